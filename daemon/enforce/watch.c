/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watch: one track per subject that was over its limit in the last sample.
 *
 *     fine ──over──▶ counting (1, 2, … n samples) ──▶ log ─step─▶ refuse ─step─▶ TERM ─step─▶ KILL
 *      ▲                                                                                       │
 *      └──────────────── one sample under the limit: told, forgotten ◀──────────────────────────┘
 *
 * Steps go up only with a sample that shows the subject over *now*; a sample that cannot tell (the
 * driver marks a reading as not available) leaves the track where it is, and so does a gap. The
 * ladder of an unmanaged process has no "refuse": there is no growth to refuse.
 *
 * On dry run the ladder is walked in the same way, and every action says that it is not done.
 */
#include "daemon/enforce/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "daemon/broker/sample.h"

struct track {
    uint64_t lease;
    struct gpuid device;
    struct process_id process; /* of an unmanaged one, else 0 */
    uint32_t n_over;           /* samples in a row */
    enum watch_step step;
    uint64_t step_usec; /* when the step was reached */
    struct process_id culprit;
    bool is_dry;
    bool is_seen; /* in this turn */
};

struct watch {
    struct track *tracks;
    size_t n, n_allocated;
};

void watch_rules_default(struct watch_rules *ret) {
    *ret = (struct watch_rules){
        .dry_run = true,
        .tolerance_bytes = UINT64_C(64) << 20, /* granules and caches of the driver's own */
        .tolerance_permyriad = 200,
        .n_samples = 3,
        .step_usec = UINT64_C(10) * 1000 * 1000,
        .unmanaged = WATCH_WARN,
    };
}

const char *watch_step_name(enum watch_step step) {
    static const char *const names[] = {
        [WATCH_FINE] = "fine",    [WATCH_LOG] = "log",      [WATCH_REFUSE] = "refuse growth",
        [WATCH_TERM] = "SIGTERM", [WATCH_KILL] = "SIGKILL",
    };

    return (size_t)step < ELEMENTSOF(names) ? names[step] : "unknown";
}

int watch_new(struct watch **ret) {
    struct watch *watch = calloc(1, sizeof(*watch));

    if (!watch)
        return -ENOMEM;
    *ret = watch;
    return 0;
}

struct watch *watch_free(struct watch *watch) {
    if (!watch)
        return NULL;
    free(watch->tracks);
    free(watch);
    return NULL;
}

static struct track *find(const struct watch *watch, uint64_t lease, const struct process_id *id,
                          const struct gpuid *device) {
    for (size_t i = 0; i < watch->n; i++) {
        struct track *track = &watch->tracks[i];

        if (track->lease == lease && gpuid_equal(&track->device, device) &&
            (lease || process_id_equal(&track->process, id)))
            return track;
    }
    return NULL;
}

static struct track *add(struct watch *watch, const struct watch_subject *subject) {
    struct track *track;

    if (watch->n == watch->n_allocated) {
        size_t n = watch->n_allocated ? 2 * watch->n_allocated : 16;
        struct track *bigger = realloc(watch->tracks, n * sizeof(*bigger));

        if (!bigger)
            return NULL;
        watch->tracks = bigger;
        watch->n_allocated = n;
    }
    track = &watch->tracks[watch->n++];
    *track = (struct track){ .lease = subject->lease, .device = subject->device };
    if (!subject->lease)
        track->process = subject->processes[0].id;
    return track;
}

/* What the subject may show before it is over. */
static uint64_t allowance(const struct watch_rules *rules, const struct watch_subject *subject) {
    uint64_t share = subject->limit_bytes / 10000 * rules->tolerance_permyriad;

    return subject->lease ? units_add(subject->limit_bytes, MAX(rules->tolerance_bytes, share)) : 0;
}

/* What a subject shows, and which process is most to blame. */
struct finding {
    bool is_known; /* false: some reading is not to be had, and what is known is not too much */
    bool is_over;
    uint64_t used_bytes;
    const struct watch_process *culprit; /* NULL: no process that may be dealt with */
};

static uint64_t excess(const struct watch_process *process) {
    return process->used_bytes > process->held_bytes ? process->used_bytes - process->held_bytes
                                                     : 0;
}

static bool is_worse(const struct watch_process *a, const struct watch_process *b) {
    if (excess(a) != excess(b))
        return excess(a) > excess(b);
    return a->used_bytes > b->used_bytes;
}

static struct finding examine(const struct watch_rules *rules,
                              const struct watch_subject *subject) {
    struct finding ret = { .is_known = true };

    for (size_t i = 0; i < subject->n_processes; i++) {
        const struct watch_process *process = &subject->processes[i];

        if (!process->has_used) {
            ret.is_known = false;
            continue;
        }
        ret.used_bytes = units_add(ret.used_bytes, process->used_bytes);
        if (process->kinds & SAMPLE_UNTOUCHABLE || !process->used_bytes)
            continue;
        if (!ret.culprit || is_worse(process, ret.culprit))
            ret.culprit = process;
    }
    ret.is_over = ret.used_bytes > allowance(rules, subject);
    /* Too much is too much, whatever the missing readings would add. */
    ret.is_known |= ret.is_over;
    return ret;
}

/* Whether it is left to the workload manager that started it. */
static bool is_spared(const struct watch_rules *rules, const struct watch_subject *subject) {
    enum cgroup_owner owner = subject->processes[0].owner;

    return owner != CGROUP_OWNER_NONE && !(rules->terminate_also >> owner & 1);
}

/* The highest step that the rules have for this subject. */
static enum watch_step ceiling(const struct watch_rules *rules,
                               const struct watch_subject *subject) {
    if (subject->lease)
        return WATCH_KILL;
    if (rules->unmanaged == WATCH_TERMINATE && is_spared(rules, subject))
        return WATCH_LOG;
    return rules->unmanaged == WATCH_TERMINATE ? WATCH_KILL
           : rules->unmanaged == WATCH_WARN    ? WATCH_LOG
                                               : WATCH_FINE;
}

static enum watch_step next_step(const struct watch_subject *subject, enum watch_step step) {
    if (step == WATCH_LOG && !subject->lease)
        return WATCH_TERM;
    return step == WATCH_KILL ? WATCH_KILL : step + 1;
}

static void say_why(char reason[static 200], const struct watch_rules *rules,
                    const struct watch_subject *subject, const struct track *track,
                    const struct finding *finding) {
    char used[UNITS_TEXT_SIZE], limit[UNITS_TEXT_SIZE], next[64] = "";
    enum watch_step above = next_step(subject, track->step);

    units_format_bytes(finding->used_bytes, used);
    units_format_bytes(subject->limit_bytes, limit);
    if (above > track->step && above <= ceiling(rules, subject))
        snprintf(next, sizeof(next), "; %s in %llu s unless it shrinks", watch_step_name(above),
                 (unsigned long long)(rules->step_usec / 1000000));
    if (subject->lease)
        snprintf(reason, 200, "the lease uses %s of this device and may use %s%s%s", used, limit,
                 rules->dry_run ? " (dry run: nothing is done)" : "", next);
    else if (rules->unmanaged == WATCH_TERMINATE && is_spared(rules, subject))
        snprintf(reason, 200,
                 "the process uses %s of this device without a lease; it belongs to %s and is left "
                 "to it (terminate-also does not name it)",
                 used, cgroup_owner_name(subject->processes[0].owner));
    else
        snprintf(reason, 200, "the process uses %s of this device without a lease%s%s", used,
                 rules->dry_run ? " (dry run: nothing is done)" : "", next);
}

static void tell(const struct watch_rules *rules, const struct watch_subject *subject,
                 const struct track *track, const struct finding *finding, watch_fn act,
                 void *userdata) {
    struct watch_action action = {
        .step = track->step,
        .dry_run = rules->dry_run && track->step > WATCH_LOG,
        .lease = subject->lease,
        .device = subject->device,
        .used_bytes = finding->used_bytes,
        .limit_bytes = subject->limit_bytes,
    };

    if (finding->culprit) {
        uint64_t others = finding->used_bytes - finding->culprit->used_bytes;
        uint64_t allowed = allowance(rules, subject);

        action.process = *finding->culprit;
        action.over_bytes = allowed > others ? allowed - others : 0;
    }
    if (track->step == WATCH_FINE)
        snprintf(action.reason, sizeof(action.reason), "back within its limit");
    else
        say_why(action.reason, rules, subject, track, finding);
    act(userdata, &action);
}

/* Over now: count, or go up a step when it is time. */
static void climb(struct track *track, const struct watch_rules *rules, uint64_t now_usec,
                  const struct watch_subject *subject, const struct finding *finding, watch_fn act,
                  void *userdata) {
    enum watch_step above = next_step(subject, track->step);

    if (track->n_over < UINT32_MAX)
        track->n_over++;
    /* When a dry run ends, do not begin with a signal. */
    if (track->step > WATCH_LOG && track->is_dry && !rules->dry_run) {
        track->step = WATCH_LOG;
        track->step_usec = now_usec;
        return;
    }
    if (track->step == WATCH_FINE) {
        if (track->n_over < MAX(rules->n_samples, 1u))
            return;
    } else {
        /* A clock that went back must not hurry the ladder. */
        if (now_usec < track->step_usec || now_usec - track->step_usec < rules->step_usec)
            return;
        /* The process to blame is dealt with; another one starts with its own warning. */
        if (track->step >= WATCH_TERM &&
            (!finding->culprit || !process_id_equal(&track->culprit, &finding->culprit->id)))
            above = WATCH_TERM;
        else if (above == track->step)
            return;
    }
    if (above > ceiling(rules, subject) || (above >= WATCH_TERM && !finding->culprit))
        return;
    track->step = above;
    track->step_usec = now_usec;
    track->is_dry = rules->dry_run;
    if (finding->culprit)
        track->culprit = finding->culprit->id;
    tell(rules, subject, track, finding, act, userdata);
}

static int judge(struct watch *watch, const struct watch_rules *rules, uint64_t now_usec,
                 const struct watch_subject *subject, watch_fn act, void *userdata) {
    struct finding finding = examine(rules, subject);
    struct track *track;

    if (subject->n_processes == 0)
        return 0;
    track = find(watch, subject->lease, &subject->processes[0].id, &subject->device);
    if (!finding.is_known) {
        if (track)
            track->is_seen = true;
        return 0;
    }
    if (!finding.is_over || ceiling(rules, subject) == WATCH_FINE) {
        if (track && track->step > WATCH_FINE) {
            track->step = WATCH_FINE;
            tell(rules, subject, track, &finding, act, userdata);
        }
        return 0; /* not seen: forgotten at the end of the turn */
    }
    if (!track)
        track = add(watch, subject);
    if (!track)
        return -ENOMEM;
    track->is_seen = true;
    climb(track, rules, now_usec, subject, &finding, act, userdata);
    return 0;
}

int watch_turn(struct watch *watch, const struct watch_rules *rules, uint64_t now_usec,
               const struct watch_subject *subjects, size_t n, watch_fn act, void *userdata) {
    int r = 0;

    for (size_t i = 0; i < watch->n; i++)
        watch->tracks[i].is_seen = false;
    for (size_t i = 0; i < n; i++)
        if (judge(watch, rules, now_usec, &subjects[i], act, userdata) < 0)
            r = -ENOMEM;
    for (size_t i = 0; i < watch->n;) {
        if (watch->tracks[i].is_seen)
            i++;
        else
            watch->tracks[i] = watch->tracks[--watch->n];
    }
    return r;
}

bool watch_is_any_over(const struct watch *watch) {
    for (size_t i = 0; i < watch->n; i++)
        if (watch->tracks[i].step >= WATCH_LOG)
            return true;
    return false;
}

bool watch_refuses(const struct watch *watch, uint64_t lease, const struct gpuid *device) {
    const struct track *track = lease ? find(watch, lease, NULL, device) : NULL;

    return track && track->step >= WATCH_REFUSE && !track->is_dry;
}

enum watch_step watch_step_of(const struct watch *watch, uint64_t lease,
                              const struct process_id *id, const struct gpuid *device) {
    const struct track *track = find(watch, lease, id, device);

    return track ? track->step : WATCH_FINE;
}
