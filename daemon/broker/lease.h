/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lease: a job's right to memory on a set of devices, and the processes that hold bytes of it.
 *
 * Owned by the broker (daemon/broker/broker.h), which alone changes them; others read. A pointer is
 * good until the next call of the broker. Event-loop thread only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/process_id.h"
#include "daemon/broker/books.h"
#include "daemon/broker/policy.h"
#include "daemon/broker/record.h"

struct lease;
struct user;
struct proc;
struct releasing;

/* A process's part of one share. */
struct part {
    uint64_t declared_bytes; /* by Grow and Shrink */
    uint64_t seen_bytes;     /* by NVML, in granules */
    uint64_t fresh_bytes;    /* the same while a sample is read */
    uint64_t context_bytes;  /* what it was told to declare for a context; 0: not known */
    bool is_recalled;        /* told to give back, and has not answered yet */
};

/* A process that holds, or may hold, bytes of a lease. */
struct holder {
    struct lease *lease;
    struct proc *proc; /* the process, as the broker knows it */
    struct process_id process;
    uint64_t attached_usec;
    bool is_attached; /* by a connection; else NVML shows it within the lease's cgroup */
    bool is_absent;   /* recorded before a restart and not back yet */
    bool credits;     /* asks ahead of need, can be recalled */
    uint8_t tier;     /* 3 guard, 4 arenas, 0 neither */
    void *cookie;     /* of broker_attach(): the session of the server */
    struct list in_lease, in_proc;
    struct releasing
        *releasing;      /* owned: room for what it leaves behind, so that an end cannot fail */
    struct part parts[]; /* one per share of the lease */
};

uint64_t lease_part_held(const struct part *part); /* max(declared, seen) */

struct lease {
    uint64_t id;
    uid_t uid;
    gid_t gid;
    enum lease_mode mode;
    bool declares_max;
    bool is_ending;         /* no more growth; gone when its processes are */
    bool evicts;            /* by us, not by its user: its processes are ended in the end */
    bool is_evicted;        /* its processes were asked to be ended */
    bool is_ended_by_admin; /* so they are ended with an administrator's rights */
    bool has_token;
    uint8_t idle_step;  /* 0 none, 1 told, 2 priority dropped, 3 ended */
    bool is_unanswered; /* the grant may not have reached the client */
    bool is_orphaned;   /* broker_inherit() will say whether a process of its job is left */
    uint8_t token[RECORD_DIGEST_SIZE];
    uint8_t digest[RECORD_DIGEST_SIZE]; /* of what was asked, while is_unanswered */
    int32_t priority;                   /* as granted */
    uint32_t tiers;
    uint64_t created_usec; /* CLOCK_BOOTTIME, as all of these */
    uint64_t expires_usec; /* 0: never */
    uint64_t idle_usec;    /* since; 0: busy, or not known */
    uint64_t ending_usec;  /* since */
    char name[RECORD_NAME_SIZE];
    char reason[RECORD_TEXT_SIZE];                          /* why it ends */
    char scope[RECORD_TEXT_SIZE], cgroup[RECORD_PATH_SIZE]; /* "": none */
    struct user *user;                                      /* its user */
    struct proc *owner; /* the process that acquired it, then an survivor of it; may be NULL */
    struct list in_owner, in_declared;
    struct list
        in_unheard; /* unanswered before a restart: a client that asks the same again gets it */
    struct list holders; /* of struct holder, by in_lease */
    uint32_t n_holders;
    uint32_t n_growths;     /* requests for growth that wait */
    uint64_t mark;          /* of bankers.c and deadlock.c */
    bool is_busy, is_vague; /* while a sample is read: computes; the driver does not say for some
                               process */
    uint32_t n_shares;
    struct share shares[];
};

/* The share on a device, NULL if it has none; `ret_i` (may be NULL) is its place. */
struct share *lease_share(struct lease *lease, const struct gpuid *device, unsigned *ret_i);

/* The priority that the queue and the choice of a victim use: as granted, minus what the idle
 * ladder takes off. */
int32_t lease_priority(const struct lease *lease, const struct policy *policy);
