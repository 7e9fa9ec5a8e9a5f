/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/fault.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "sim/box/event.h"

/* Event type bits of nvml.h, which the box does not include: it knows no vendor ABI. */
#define EVENT_ECC_SINGLE 0x1u
#define EVENT_ECC_DOUBLE 0x2u
#define EVENT_XID        0x8u

#define NO_INSTANCE UINT32_MAX

#define XID_DOUBLE_BIT_ECC   48
#define XID_ROW_REMAP        63
#define XID_ROW_REMAP_FAILED 64
#define XID_OFF_THE_BUS      79

/* Whether `rest` of a name only says which version of a call it is: "", "_v2", "_v2_ptds". */
static bool is_version(const char *rest) {
    while (*rest) {
        if (!strncmp(rest, "_ptsz", 5) || !strncmp(rest, "_ptds", 5))
            rest += 5;
        else if (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '0' && rest[2] <= '9')
            for (rest += 3; *rest >= '0' && *rest <= '9'; rest++)
                ;
        else
            return false;
    }
    return true;
}

bool fault_names(const char *pattern, const char *call) {
    const size_t n = strlen(pattern);

    if (n && pattern[n - 1] == '*')
        return !strncmp(pattern, call, n - 1);
    return !strncmp(pattern, call, n) && is_version(call + n);
}

static bool matches(const struct box_fault *fault, const char *call, int gpu) {
    if (fault->spent || (fault->gpu >= 0 && fault->gpu != gpu))
        return false;
    return strnlen(fault->call, sizeof(fault->call)) < sizeof(fault->call) &&
           fault_names(fault->call, call);
}

static void remove_fault(struct box *box, struct box_fault *fault) {
    uint32_t n = 0;

    __atomic_store_n(&fault->kind, FAULT_NONE, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < BOX_MAX_FAULTS; i++)
        n += box->file->fault[i].kind != FAULT_NONE;
    __atomic_store_n(&box->file->n_faults, n, __ATOMIC_RELEASE);
    event_wake(box);
}

/* Count one more strike of `fault`, and remove it after the last one. */
static void strike(struct box *box, struct box_fault *fault) {
    fault->hits++;
    if (!fault->remaining || --fault->remaining)
        return;
    /* A hang ends only when it is cleared: the calls that it holds wait for that. */
    if (fault->kind == FAULT_CALL_HANG)
        fault->spent = true;
    else
        remove_fault(box, fault);
}

static void sleep_ns(uint64_t ns) {
    struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
        ;
}

/* Return when fault `id` is gone. */
static void hang(struct box *box, uint32_t id) {
    bool there = true;

    while (there) {
        uint32_t seen;

        if (box_lock(box) < 0)
            return;
        there = false;
        for (unsigned i = 0; i < BOX_MAX_FAULTS; i++)
            there |= box->file->fault[i].kind != FAULT_NONE && box->file->fault[i].id == id;
        seen = box->file->event_futex;
        box_unlock(box);
        if (there)
            event_wait(box, seen, UINT32_MAX);
    }
}

bool fault_call(struct box *box, const char *call, int gpu, int *ret_code) {
    uint64_t slow_ns = 0;
    uint32_t hang_id = 0;
    bool fail = false;

    if (__builtin_expect(!__atomic_load_n(&box->file->n_faults, __ATOMIC_RELAXED), 1))
        return false;
    if (box_lock(box) < 0)
        return false;
    for (unsigned i = 0; i < BOX_MAX_FAULTS && !fail; i++) {
        struct box_fault *fault = &box->file->fault[i];

        if (fault->kind < FAULT_CALL_SLOW || fault->kind > FAULT_CALL_FAIL ||
            !matches(fault, call, gpu))
            continue;
        if (fault->kind == FAULT_CALL_SLOW)
            slow_ns += fault->argument;
        else if (fault->kind == FAULT_CALL_HANG)
            hang_id = fault->id;
        else {
            *ret_code = fault->code;
            fail = true;
        }
        strike(box, fault);
    }
    box_unlock(box);
    if (slow_ns)
        sleep_ns(slow_ns);
    if (hang_id)
        hang(box, hang_id);
    return fail;
}

bool fault_alloc(struct box *box, int gpu, uint64_t bytes) {
    bool fail = false;

    if (!box->file->n_faults)
        return false;
    for (unsigned i = 0; i < BOX_MAX_FAULTS; i++) {
        struct box_fault *fault = &box->file->fault[i];
        bool strikes = false;

        if (fault->gpu >= 0 && fault->gpu != gpu)
            continue;
        if (fault->kind == FAULT_ALLOC_AFTER) {
            strikes = bytes > fault->argument;
            if (!strikes)
                fault->argument -= bytes;
        } else if (fault->kind == FAULT_ALLOC_RANDOM)
            strikes = random_next(&fault->random) >> 32 < fault->argument;
        if (strikes)
            strike(box, fault);
        fail |= strikes;
    }
    return fail;
}

int fault_add(struct box *box, const struct box_fault *fault, uint32_t *ret_id) {
    for (unsigned i = 0; i < BOX_MAX_FAULTS; i++) {
        struct box_fault *slot = &box->file->fault[i];
        struct box_fault filled = *fault;

        if (slot->kind != FAULT_NONE)
            continue;
        filled.kind = FAULT_NONE;
        filled.spent = false;
        filled.id = box->file->next_fault_id++;
        *slot = filled;
        /* Raise the count first: if this process dies between the two stores, others only look for
         * a fault that is not there; the other way round they would never find the fault. */
        __atomic_store_n(&box->file->n_faults, box->file->n_faults + 1, __ATOMIC_RELEASE);
        __atomic_store_n(&slot->kind, fault->kind, __ATOMIC_RELEASE);
        *ret_id = filled.id;
        return 0;
    }
    return -ENOSPC;
}

int fault_clear(struct box *box, uint32_t id) {
    bool found = !id;

    for (unsigned i = 0; i < BOX_MAX_FAULTS; i++) {
        struct box_fault *fault = &box->file->fault[i];

        if (fault->kind == FAULT_NONE || (id && fault->id != id))
            continue;
        found = true;
        remove_fault(box, fault);
    }
    return found ? 0 : -ENOENT;
}

void fault_xid(struct box *box, unsigned gpu, uint64_t xid) {
    struct box_gpu *g = &box->file->gpu[gpu];

    g->last_xid = xid;
    if (xid == XID_OFF_THE_BUS)
        g->lost = true;
    else if (xid == XID_DOUBLE_BIT_ECC) {
        g->ecc.uncorrected_volatile++;
        g->ecc.uncorrected_aggregate++;
    } else if (xid == XID_ROW_REMAP) {
        g->ecc.remapped_uncorrected++;
        g->ecc.remap_pending = true;
    } else if (xid == XID_ROW_REMAP_FAILED)
        g->ecc.remap_failed = true;
    event_post(box, gpu, NO_INSTANCE, NO_INSTANCE, EVENT_XID, xid);
}

void fault_ecc(struct box *box, unsigned gpu, bool uncorrected, uint64_t n) {
    struct box_ecc *ecc = &box->file->gpu[gpu].ecc;

    if (uncorrected) {
        ecc->uncorrected_volatile += n;
        ecc->uncorrected_aggregate += n;
    } else {
        ecc->corrected_volatile += n;
        ecc->corrected_aggregate += n;
    }
    event_post(box, gpu, NO_INSTANCE, NO_INSTANCE,
               uncorrected ? EVENT_ECC_DOUBLE : EVENT_ECC_SINGLE, n);
}

void fault_lost(struct box *box, unsigned gpu) {
    fault_xid(box, gpu, XID_OFF_THE_BUS);
}

void fault_recover(struct box *box, unsigned gpu) {
    struct box_gpu *g = &box->file->gpu[gpu];

    g->last_xid = 0;
    g->ecc = (struct box_ecc){ 0 };
    __atomic_store_n(&g->lost, 0, __ATOMIC_RELEASE);
    event_wake(box);
}
