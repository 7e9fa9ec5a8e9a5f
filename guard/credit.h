/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Credit: the bytes of the job's lease that this process has, and the part of them that it uses.
 *
 * The daemon keeps the books; it alone decides. The guard asks for bytes ahead of need, in batches,
 * so that most allocations touch two words of memory and need no other process. Unused bytes go
 * back some time after they were freed, and at once if the daemon recalls them because another
 * process of the job needs them. A process loses its bytes with its connection: so a killed process
 * gives everything back. Any thread; a forked child begins with nothing and attaches as itself.
 *
 * Amounts are counted as the driver hands memory out: credit_size().
 */
#include <stdbool.h>
#include <stdint.h>

struct allot_error;
struct allot_lease_notice;

/* The results of credit_share() that are not the index of a share. */
enum {
    CREDIT_SHARES_MAX = 64,
    CREDIT_NONE = -1,    /* no lease in the environment: the program is not limited */
    CREDIT_REFUSED = -2, /* there is a lease, but it has no such device, or cannot be reached */
};

/* Whether the environment has no lease; false also before the first lookup. */
extern _Atomic int credit_state;
static inline bool credit_is_off(void) {
    return credit_state == CREDIT_NONE;
}

/*
 * The share of the lease with device `uuid` (16 bytes). Attaches to the lease at the first call;
 * that may wait for a daemon that is just being restarted.
 */
int credit_share(const uint8_t uuid[16]);

/* CLOCK_MONOTONIC, by which delays are measured. */
uint64_t credit_now_msec(void);

/* What an allocation of `bytes` takes: the driver hands out 2 MiB pages, and packs allocations
 * smaller than half a page into shared pages, in units of 512 bytes. UINT64_MAX stays
 * UINT64_MAX. */
uint64_t credit_size(uint64_t bytes);

/*
 * Charge `bytes` that are about to be allocated. False: the lease does not have that much left,
 * which is reported on stderr, once. May wait if the job was started with ALLOT_WAIT.
 */
bool credit_take(int share, uint64_t bytes);
/* Charge bytes that are allocated already: they are counted and requested, but never refused. */
void credit_force(int share, uint64_t bytes);
void credit_give(int share, uint64_t bytes);

/*
 * For programs that declare their allocations ahead (libclient/allot/charger.h): reserve this many
 * bytes, in whole pages, for this process. Using them later is no new charge. -errno with a
 * sentence in `err`. Unused bytes go back when they are no longer reserved.
 */
struct allot_lease_patience;
int credit_reserve(int share, uint64_t bytes, const struct allot_lease_patience *patience,
                   struct allot_error *err);
void credit_unreserve(int share, uint64_t bytes);
/* What all processes of the lease hold, by the daemon's count. */
int credit_held(int share, uint64_t *ret_bytes, struct allot_error *err);

/* The job's limit and the bytes that all of its processes hold, without the unused credits of this
 * one. If the daemon does not answer, only what this process knows. */
struct credit_view {
    uint64_t limit_bytes;
    uint64_t held_bytes;
};
bool credit_view(int share, struct credit_view *ret);
uint64_t credit_limit(int share);
uint64_t credit_guaranteed(int share);
uint64_t credit_context(int share); /* what a context costs on this device */

/* The lease's devices, in its order: their number, and the UUID text of each. */
int credit_n_shares(void);
const char *credit_uuid(int share);

/*
 * Set the function that is called when credits are short, before the daemon is asked. It gives back
 * charges that are not really used. Set once, before the first credit.
 */
void credit_on_short(void (*settle)(int share));

/* Set the function that is called with each notice of the lease, before the guard acts on it.
 * Likewise set once. */
void credit_on_notice(void (*hear)(const struct allot_lease_notice *notice));
