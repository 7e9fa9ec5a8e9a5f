/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Desk: a broker over devices that exist on paper, with a clock that stands still until it is
 * moved, and a note of everything that the broker told. Every call checks the books afterwards and
 * fails the test where they are wrong.
 *
 * Processes are named by pid; their uid is given with them. Bytes are given in GiB.
 */
#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/broker.h"

#define GIB  (UINT64_C(1) << 30)
#define SECS UINT64_C(1000000)

#define DESK_TOLD_MAX 256

struct desk_told {
    uint64_t tag; /* of the request, see desk_ask() */
    struct verdict verdict;
};

struct desk {
    struct policy policy;
    struct broker *broker;
    struct moment now;
    uint32_t n_told;
    struct desk_told told[DESK_TOLD_MAX]; /* verdicts of requests that waited, oldest first */
    uint32_t n_moved, n_notices, n_evicted, n_records, n_denials;
    uint32_t place; /* of the last moved() */
    char reason[VERDICT_REASON_SIZE];
    enum notice_kind notice; /* the last one */
    uint64_t notice_bytes;
    char event[32]; /* kind of the last event */
    uint64_t spent_byte_seconds;
    pid_t survivor; /* of the next lease that everybody left; 0: none, -1: a search goes on */
    unsigned n_sought;
    pid_t job_process; /* a process that has the environment of `job_process_lease`; 0: none */
    uint64_t job_process_lease;
    void (*record)(struct desk *desk, const struct record *record); /* may be NULL */
    void *userdata;                                                 /* of the test's own */
};

/* `n` GPUs of so many GiB, numbered from 0. */
struct desk *desk_new(unsigned n, uint64_t gib);
struct desk *desk_free(struct desk *desk); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct desk, desk_freep, desk_free)

/* A broker that knows nothing yet in the place of the one that was; the clock goes on. */
void desk_restart(struct desk *desk);
void desk_devices(struct desk *desk, unsigned n, uint64_t gib);

struct gpuid desk_gpu(unsigned i);
struct gpuid desk_mig(unsigned gpu, unsigned place);
const char *desk_name(unsigned i); /* its UUID; of the last four calls */
void desk_device(struct desk *desk, const struct device *device);
struct device desk_make(unsigned i, uint64_t gib);
struct device desk_make_mig(unsigned gpu, unsigned place, uint64_t gib);

struct broker_peer desk_peer(pid_t pid, uid_t uid);

/* A request with nothing given. */
struct request desk_request(void);
struct request desk_fixed(uint32_t n_gpus, uint64_t gib);
struct request desk_grow(uint32_t n_gpus, uint64_t min_gib, uint64_t max_gib); /* 0: not given */
struct request desk_share(uint32_t n_gpus, uint32_t permyriad);
struct request desk_exclusive(uint32_t n_gpus);

/* Ask; `tag` is what later verdicts are told by. */
struct verdict desk_ask(struct desk *desk, pid_t pid, uid_t uid, const struct request *request,
                        uint64_t tag);
/* The lease that must come of it at once. */
uint64_t desk_get(struct desk *desk, pid_t pid, uid_t uid, struct request request);
struct verdict desk_attach(struct desk *desk, pid_t pid, uid_t uid, uint64_t lease);
struct verdict desk_grow_by(struct desk *desk, pid_t pid, uint64_t lease, unsigned gpu,
                            uint64_t gib, bool wait, uint64_t tag);
struct verdict desk_shrink_by(struct desk *desk, pid_t pid, uint64_t lease, unsigned gpu,
                              uint64_t gib);
void desk_release(struct desk *desk, uid_t uid, uint64_t lease);
void desk_gone(struct desk *desk, pid_t pid);
void desk_turn(struct desk *desk);
void desk_pass(struct desk *desk, uint64_t usec); /* time passes, and the broker has its turn */
void desk_check(struct desk *desk);

/* A sample of all devices, listing these processes; used_gib 0 rows are left out. */
struct desk_row {
    pid_t pid;
    unsigned gpu;
    uint64_t used_gib;
    bool is_busy;
    const char *cgroup; /* NULL: none */
    uid_t uid;          /* 0: not known */
};
void desk_sample(struct desk *desk, const struct desk_row *rows, size_t n_rows);

uint64_t desk_left(const struct desk *desk, unsigned gpu); /* GiB that are free, rounded down */

/* The last verdict told for a tag; NULL: none yet. */
const struct verdict *desk_told(const struct desk *desk, uint64_t tag);
