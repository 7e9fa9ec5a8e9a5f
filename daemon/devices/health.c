/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health: an Xid is the driver's own classification, so the rules are a table of numbers.
 *
 * Most Xids are the fault of a program (a wild pointer, an assertion) and say nothing about the
 * card: they are noted for its author. Those that drain by default are the ones after which
 * NVIDIA's guide asks for a reset, a diagnosis or a new card: until then the next job would meet
 * the same.
 */
#include "daemon/devices/health.h"

#include <errno.h>
#include <stdio.h>

static const struct {
    uint16_t number;
    bool drains;
    const char *text;
} xids[] = {
    { 13, false, "a program's kernel failed (graphics engine exception)" },
    { 31, false, "a program touched memory that is not its own (page fault)" },
    { 32, false, "a program sent a bad command stream" },
    { 43, false, "a program's channel was stopped after its own error" },
    { 45, false, "channels were cleaned up after a program's end or an earlier error" },
    { 48, true, "a double bit error in memory that ECC could not correct" },
    { 61, true, "the internal microcontroller stopped at a breakpoint" },
    { 62, true, "the internal microcontroller halted" },
    { 63, false, "a memory row or page was remapped or retired" },
    { 64, true, "a memory row or page could not be remapped or retired" },
    { 68, false, "a video processor exception" },
    { 69, false, "a program's kernel failed (graphics engine class error)" },
    { 74, true, "an NVLink error" },
    { 79, true, "the GPU has fallen off the bus" },
    { 92, true, "a high rate of single bit memory errors" },
    { 94, false, "a memory error that was contained: only the program that met it is hurt" },
    { 95, true, "a memory error that was not contained" },
    { 109, false, "a context switch took too long" },
    { 119, true, "the GPU's system processor (GSP) does not answer" },
    { 120, true, "the GPU's system processor (GSP) failed" },
    { 121, true, "a chip-to-chip link error" },
    { 140, true, "memory errors that ECC could not recover" },
    { 143, true, "the GPU could not be initialised" },
    { 145, true, "an NVLink error (RLW)" },
    { 154, true, "the driver asks for a recovery of the GPU" },
};

void health_rules_default(struct health_rules *ret) {
    *ret = (struct health_rules){
        .drain_rows_failed = true,
        .drain_unavailable = true,
        .resume_on_return = true,
    };
    for (size_t i = 0; i < ELEMENTSOF(xids); i++)
        if (xids[i].drains)
            health_xid_set(ret, xids[i].number, true);
}

bool health_xid_drains(const struct health_rules *rules, uint64_t xid) {
    return xid <= HEALTH_XID_MAX && rules->drain_xids[xid / 64] >> (xid % 64) & 1;
}

int health_xid_set(struct health_rules *rules, uint64_t xid, bool drains) {
    if (xid > HEALTH_XID_MAX)
        return -ERANGE;
    if (drains)
        rules->drain_xids[xid / 64] |= UINT64_C(1) << (xid % 64);
    else
        rules->drain_xids[xid / 64] &= ~(UINT64_C(1) << (xid % 64));
    return 0;
}

const char *health_xid_text(uint64_t xid) {
    for (size_t i = 0; i < ELEMENTSOF(xids); i++)
        if (xids[i].number == xid)
            return xids[i].text;
    return NULL;
}

static void decide_xid(const struct health_rules *rules, uint64_t xid,
                       struct health_decision *ret) {
    const char *text = health_xid_text(xid);

    ret->verdict = health_xid_drains(rules, xid) ? HEALTH_DRAIN : HEALTH_NOTE;
    snprintf(ret->reason, sizeof(ret->reason), "Xid %llu%s%s", (unsigned long long)xid,
             text ? ": " : "", text ? text : "");
}

void health_decide_event(const struct health_rules *rules, const struct sample_event *event,
                         struct health_decision *ret) {
    *ret = (struct health_decision){ .verdict = HEALTH_NOTE };
    switch (event->kind) {
    case SAMPLE_EVENT_XID:
        decide_xid(rules, event->data, ret);
        return;
    case SAMPLE_EVENT_ECC_CORRECTED:
        snprintf(ret->reason, sizeof(ret->reason), "memory errors, corrected by ECC");
        return;
    case SAMPLE_EVENT_ECC_UNCORRECTED:
        /* How many there are is in the reading that follows: health_decide_reading() counts. */
        if (!rules->max_uncorrected)
            ret->verdict = HEALTH_DRAIN;
        snprintf(ret->reason, sizeof(ret->reason), "a memory error that ECC could not correct");
        return;
    case SAMPLE_EVENT_UNAVAILABLE:
        if (rules->drain_unavailable)
            ret->verdict = HEALTH_DRAIN;
        snprintf(ret->reason, sizeof(ret->reason),
                 "the driver says that the GPU cannot be used and asks for a recovery (code %llu)",
                 (unsigned long long)event->data);
        return;
    case SAMPLE_EVENT_OTHER:
        snprintf(ret->reason, sizeof(ret->reason),
                 "the driver retired memory or met poisoned data");
        return;
    case SAMPLE_EVENT_MIG_CHANGED:
        break;
    }
    ret->verdict = HEALTH_FINE;
}

void health_decide_reading(const struct health_rules *rules, const struct sample_device *now,
                           uint64_t accepted_uncorrected, struct health_decision *ret) {
    uint64_t added = 0;

    *ret = (struct health_decision){ .verdict = HEALTH_FINE };
    if (now->health != SAMPLE_OK)
        return;
    /* A counter that went back was reset with its card: all of it is new. */
    if (READINGS_HAVE(&now->readings, ecc_uncorrected))
        added = now->readings.ecc_uncorrected >= accepted_uncorrected
                    ? now->readings.ecc_uncorrected - accepted_uncorrected
                    : now->readings.ecc_uncorrected;
    if (rules->drain_rows_failed && READINGS_HAVE(&now->readings, rows_failed) &&
        now->readings.rows_failed) {
        ret->verdict = HEALTH_DRAIN;
        snprintf(ret->reason, sizeof(ret->reason),
                 "memory rows failed and could not be remapped: the card needs service");
    } else if (added > rules->max_uncorrected) {
        ret->verdict = HEALTH_DRAIN;
        snprintf(ret->reason, sizeof(ret->reason),
                 "%llu memory errors that ECC could not correct, where %llu are allowed",
                 (unsigned long long)added, (unsigned long long)rules->max_uncorrected);
    }
}

bool health_decide_recovery(const struct health_rules *rules, const struct device_facts *device,
                            bool has_returned, uint64_t drained_usec, uint64_t now_usec) {
    if (!(device->drains & DRAIN_HEALTH) || device->state == DEVICE_LOST ||
        device->seen.health != SAMPLE_OK)
        return false;
    if (rules->drain_rows_failed && READINGS_HAVE(&device->seen.readings, rows_failed) &&
        device->seen.readings.rows_failed)
        return false;
    if (has_returned && rules->resume_on_return)
        return true;
    return rules->recover_usec && now_usec >= drained_usec &&
           now_usec - drained_usec >= rules->recover_usec;
}
