/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Broker fixture: a broker over devices that exist only on paper, with a clock that the test moves,
 * and a record of everything that the broker reported. Every call checks the books afterwards, and
 * that each lease is billed for what it holds and no other for anything, and fails the test if they
 * are wrong.
 *
 * Processes are named by pid; their uid is given with them. Bytes are given in GiB.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/broker/broker.h"

#define GIB  (UINT64_C(1) << 30)
#define SECS UINT64_C(1000000)

#define FIXTURE_TOLD_MAX 256

struct fixture_told {
    uint64_t tag; /* of the request, see fixture_ask() */
    struct verdict verdict;
};

/* What a lease is billed for on a device, from now on. */
#define FIXTURE_BILLS_MAX 1024
struct fixture_bill {
    uint64_t lease; /* 0: none */
    struct gpuid device;
    uint64_t held_bytes, guaranteed_bytes;
};

struct broker_fixture {
    struct policy policy;
    struct broker *broker;
    struct moment now;
    uint32_t n_told;
    struct fixture_told told[FIXTURE_TOLD_MAX]; /* verdicts of requests that waited, oldest first */
    uint32_t n_moved, n_notices, n_evicted, n_records, n_denials;
    uint32_t place; /* of the last moved() */
    char reason[VERDICT_REASON_SIZE];
    enum notice_kind notice; /* the last one */
    uint64_t notice_bytes;
    char event[32]; /* kind of the last event */
    uint64_t spent_byte_seconds;
    struct fixture_bill bills[FIXTURE_BILLS_MAX];
    pid_t survivor;  /* what the search for processes of `orphan` finds at the next fixture_turn();
                        0: none, -1: it continues */
    uint64_t orphan; /* the last lease that was told to be orphaned, until the search is over */
    unsigned n_orphaned;
    void (*record)(struct broker_fixture *fixture, const struct record *record); /* may be NULL */
    void *userdata;   /* of the test's own */
    FILE *transcript; /* what the broker tells is written here, too; NULL: it is not */
};

/* `n` GPUs of so many GiB, numbered from 0. */
struct broker_fixture *fixture_new(unsigned n, uint64_t gib);
struct broker_fixture *fixture_free(
    struct broker_fixture *fixture); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct broker_fixture, fixture_freep, fixture_free)

/* Replace the broker by a new one that knows nothing; the clock keeps its time. */
void fixture_restart(struct broker_fixture *fixture);
void fixture_devices(struct broker_fixture *fixture, unsigned n, uint64_t gib);

struct gpuid fixture_gpu(unsigned i);
struct gpuid fixture_mig(unsigned gpu, unsigned place);
const char *fixture_name(unsigned i); /* its UUID; of the last four calls */
void fixture_device(struct broker_fixture *fixture, const struct device_facts *device);
struct device_facts fixture_make(unsigned i, uint64_t gib);
struct device_facts fixture_make_mig(unsigned gpu, unsigned place, uint64_t gib);

struct broker_peer fixture_peer(pid_t pid, uid_t uid);

/* A request with nothing given. */
struct request fixture_request(void);
struct request fixture_fixed(uint32_t n_gpus, uint64_t gib);
struct request fixture_grow(uint32_t n_gpus, uint64_t min_gib, uint64_t max_gib); /* 0: not given */
struct request fixture_share(uint32_t n_gpus, uint32_t permyriad);
struct request fixture_exclusive(uint32_t n_gpus);

/* Ask; `tag` is what later verdicts are told by. */
struct verdict fixture_ask(struct broker_fixture *fixture, pid_t pid, uid_t uid,
                           const struct request *request, uint64_t tag);
/* The lease that must come of it at once. */
uint64_t fixture_get(struct broker_fixture *fixture, pid_t pid, uid_t uid, struct request request);
struct verdict fixture_attach(struct broker_fixture *fixture, pid_t pid, uid_t uid, uint64_t lease);
struct verdict fixture_grow_by(struct broker_fixture *fixture, pid_t pid, uint64_t lease,
                               unsigned gpu, uint64_t gib, bool wait, uint64_t tag);
struct verdict fixture_shrink_by(struct broker_fixture *fixture, pid_t pid, uint64_t lease,
                                 unsigned gpu, uint64_t gib);
void fixture_release(struct broker_fixture *fixture, uid_t uid, uint64_t lease);
void fixture_gone(struct broker_fixture *fixture, pid_t pid);
void fixture_turn(struct broker_fixture *fixture);
void fixture_pass(struct broker_fixture *fixture,
                  uint64_t usec); /* time passes, and the broker has its turn */
void fixture_check(struct broker_fixture *fixture);

/* Write down a verdict, an explanation, or the state of queue and books, where the fixture has a
 * transcript. */
void fixture_write_verdict(struct broker_fixture *fixture, const struct verdict *verdict);
void fixture_write_explanation(struct broker_fixture *fixture, const struct explanation *said);
void fixture_write_state(struct broker_fixture *fixture);

/* A sample of all devices, listing these processes; used_gib 0 rows are left out. */
struct fixture_row {
    pid_t pid;
    unsigned gpu;
    uint64_t used_gib;
    bool is_busy;
    const char *cgroup; /* NULL: none */
    uid_t uid;          /* 0: not known */
    uint64_t lease;     /* by its environment; 0: none */
};
void fixture_sample(struct broker_fixture *fixture, const struct fixture_row *rows, size_t n_rows);

/* What only a test looks at: the books one by one, from a `pos` of 0 to NULL; and the next ids, as
 * the record that keeps them has them (it sets next_… only). */
const struct book *fixture_next_book(const struct broker_fixture *fixture, size_t *pos);
void fixture_next_ids(const struct broker_fixture *fixture, struct record_meta *ret);

uint64_t fixture_left(const struct broker_fixture *fixture,
                      unsigned gpu); /* GiB that are free, rounded down */

/* The last verdict told for a tag; NULL: none yet. */
const struct verdict *fixture_told(const struct broker_fixture *fixture, uint64_t tag);

/* The whole state as records, except META: what a log says of it that is complete. */
void fixture_dump(struct broker_fixture *fixture,
                  void (*fn)(void *userdata, const struct record *record), void *userdata);
