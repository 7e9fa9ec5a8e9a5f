/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Watch: compares what NVML shows with what the books allow, and answers in steps (tier 5).
 *
 *     over for n samples in a row → log → refuse growth → SIGTERM → SIGKILL
 *
 * It remembers which subjects were over, and since when, and is pure otherwise: the time is passed
 * in. It decides, the caller acts (books, hand, log, accounts). Each subject is judged by itself:
 * the processes of one lease on one device, or one process without a lease. Within a lease only the
 * process that holds most beyond what it declared is dealt with. It never acts on a reading that
 * the driver marks as not available, nor against a display or MPS server. A process without a lease
 * that Slurm or a container engine started is theirs to end: it is only reported, unless the rules
 * name its owner.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/cgroup_owner.h"
#include "daemon/enforce/process.h"

enum watch_unmanaged { WATCH_ALLOW, WATCH_WARN, WATCH_TERMINATE };

/* The administrator's; watch_rules_default() first, then what the configuration says. */
struct watch_rules {
    bool dry_run;             /* say what would be done, refuse and signal nothing; the default */
    uint64_t tolerance_bytes; /* over the limit by more than this, or … */
    uint32_t tolerance_permyriad;   /* … this of the limit, whichever is more */
    uint32_t n_samples;             /* in a row, before the first step; at least 1 */
    uint64_t step_usec;             /* on each step of the ladder, before the next one */
    enum watch_unmanaged unmanaged; /* processes on a device without a lease */
    uint32_t terminate_also;        /* bit n: also those in cgroups of cgroup_owner n */
};

void watch_rules_default(struct watch_rules *ret);

enum watch_step {
    WATCH_FINE,
    WATCH_LOG,
    WATCH_REFUSE, /* no growth for this lease on this device until it is back under its limit */
    WATCH_TERM,
    WATCH_KILL,
};

/* "fine", "log", "refuse growth", "SIGTERM", "SIGKILL". */
const char *watch_step_name(enum watch_step step);

struct watch_process {
    struct process_id id;
    uint32_t uid;
    bool has_used;
    uint64_t used_bytes; /* NVML's */
    uint64_t held_bytes; /* what it declared: the books' */
    uint32_t kinds;      /* sample_kind bits */
    enum cgroup_owner owner;
};

/* What is judged together. */
struct watch_subject {
    uint64_t lease; /* 0: a process without one, `processes` is that one */
    struct gpuid device;
    uint64_t limit_bytes; /* 0 without a lease */
    size_t n_processes;
    const struct watch_process *processes;
};

struct watch_action {
    enum watch_step step; /* WATCH_FINE: it was over and no longer is; growth is allowed again */
    bool dry_run;         /* this is only what would be done */
    uint64_t lease;
    struct gpuid device;
    struct watch_process process;     /* the process that it concerns */
    uint64_t used_bytes, limit_bytes; /* of the subject */
    uint64_t over_bytes; /* for hand_signal.over_bytes: above it the subject is still over */
    char reason[200];    /* what it uses, what it may, and what is done next and when */
};

typedef void (*watch_fn)(void *userdata, const struct watch_action *action);

struct watch;

int watch_new(struct watch **ret);
struct watch *watch_free(struct watch *watch); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct watch, watch_freep, watch_free)

/*
 * Judge every subject of one sample, all in one call: a subject that is not among them is
 * forgotten. Each step is told once, when it is reached. -ENOMEM: those that could be judged were.
 */
int watch_turn(struct watch *watch, const struct watch_rules *rules, uint64_t now_usec,
               const struct watch_subject *subjects, size_t n, watch_fn act, void *userdata);

/* Whether growth of `lease` on `device` is refused now. */
bool watch_refuses(const struct watch *watch, uint64_t lease, const struct gpuid *device);

/* Whether a subject is over now, and was for so long that it was told. */
bool watch_is_any_over(const struct watch *watch);

/* The step that the process's subject has reached, for status. */
enum watch_step watch_step_of(const struct watch *watch, uint64_t lease,
                              const struct process_id *id, const struct gpuid *device);
