/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Clerk: the broker's rules done by hand, slowly: every rule from its definition, by trying
 * everything. What the broker answers is compared with what the clerk would.
 *
 * A small world: few devices of equal size, amounts in whole GiB, one process per job. The queue is
 * walked whole for each question; safety is found by trying every order of ends, deadlocks by
 * trying every set of processes, who may pass by trying every state that a device can come to. Jobs
 * that declare a maximum or wait for growth stand among the first 32.
 */
#include <stdbool.h>
#include <stdint.h>

#define CLERK_DEVICES 3
#define CLERK_JOBS    64
#define CLERK_WANTS   128
#define CLERK_PASSED  8 /* who waits on a device and may be passed there */

struct clerk_job {
    bool lives;
    int pid, uid, priority;
    uint64_t lease; /* the broker's number, 0: not known yet */
    bool declares;
    uint32_t devices; /* bits */
    int64_t limit, guaranteed, held[CLERK_DEVICES];
};

struct clerk_want {
    bool lives;
    uint64_t tag, waiter;
    int pid, uid, priority;
    int64_t since_usec;
    uint64_t arrival;

    /* Growth. */
    int job; /* -1: a new lease */
    int device;
    int64_t bytes;

    /* A new lease. */
    uint32_t allowed; /* bits */
    int n_wanted;
    bool spreads;
    bool declares;
    int64_t limit, guaranteed;
};

enum clerk_outcome { CLERK_WAITS, CLERK_GRANTED, CLERK_DEADLOCK };

struct clerk {
    int64_t usable;
    int64_t age_usec;
    int max_leases; /* of a user */
    struct clerk_job jobs[CLERK_JOBS];
    struct clerk_want wants[CLERK_WANTS];
    uint64_t n_arrivals;
};

/* Told of each want whose fate is decided; a granted lease is in `job`. */
typedef void (*clerk_fn)(void *userdata, const struct clerk_want *want, enum clerk_outcome outcome,
                         int job);

int64_t clerk_free(const struct clerk *clerk, int device);
int clerk_find_job(const struct clerk *clerk); /* an unused place, -1: none */
struct clerk_want *clerk_find_want(struct clerk *clerk);

/* Serve whoever is to be served, cut every deadlock, until nothing moves. */
void clerk_settle(struct clerk *clerk, clerk_fn fn, void *userdata);

/* The queue, as indices of `wants`; returns how many. */
int clerk_line(const struct clerk *clerk, int *ret);
