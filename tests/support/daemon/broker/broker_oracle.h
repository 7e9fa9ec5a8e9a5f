/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Broker oracle: the broker's rules in slow and simple form: every rule straight from its
 * definition, by trying everything. Tests compare the broker's answers with the oracle's.
 *
 * A small world: few devices of equal size, amounts in whole GiB, one process per job. The queue is
 * walked whole for each question; safety is found by trying every order of ends, deadlocks by
 * trying every set of processes, backfill by trying every state that a device can come to. Jobs
 * that declare a maximum or wait for growth stand among the first 32.
 */
#include <stdbool.h>
#include <stdint.h>

#define ORACLE_DEVICES 3
#define ORACLE_JOBS    64
#define ORACLE_WANTS   128
#define ORACLE_PASSED  8 /* waiters on a device that may be passed there */

struct oracle_job {
    bool lives;
    int pid, uid, priority;
    uint64_t lease; /* the broker's number, 0: not known yet */
    bool declares;
    uint32_t devices; /* bits */
    int64_t limit, guaranteed, held[ORACLE_DEVICES];
};

struct oracle_want {
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

enum oracle_outcome { ORACLE_WAITS, ORACLE_GRANTED, ORACLE_DEADLOCK };

struct broker_oracle {
    int64_t usable;
    int64_t age_usec;
    int max_leases; /* of a user */
    struct oracle_job jobs[ORACLE_JOBS];
    struct oracle_want wants[ORACLE_WANTS];
    uint64_t n_arrivals;
};

/* Told of each want whose fate is decided; a granted lease is in `job`. */
typedef void (*oracle_fn)(void *userdata, const struct oracle_want *want,
                          enum oracle_outcome outcome, int job);

int64_t oracle_free(const struct broker_oracle *oracle, int device);
int oracle_find_job(const struct broker_oracle *oracle); /* an unused place, -1: none */
struct oracle_want *oracle_find_want(struct broker_oracle *oracle);

/* Serve every request that can be served and resolve every deadlock, until nothing changes. */
void oracle_settle(struct broker_oracle *oracle, oracle_fn fn, void *userdata);

/* The queue, as indices of `wants`; returns how many. */
int oracle_queue(const struct broker_oracle *oracle, int *ret);
