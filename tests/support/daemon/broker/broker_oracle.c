/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/broker/broker_oracle.h"

#include <string.h>

static int64_t charge(const struct oracle_job *job, int device) {
    if (!job->lives || !(job->devices >> device & 1))
        return 0;
    return job->held[device] > job->guaranteed ? job->held[device] : job->guaranteed;
}

int64_t oracle_free(const struct broker_oracle *oracle, int device) {
    int64_t sum = 0;

    for (int i = 0; i < ORACLE_JOBS; i++)
        sum += charge(&oracle->jobs[i], device);
    return oracle->usable - sum;
}

int oracle_find_job(const struct broker_oracle *oracle) {
    for (int i = 0; i < ORACLE_JOBS; i++)
        if (!oracle->jobs[i].lives)
            return i;
    return -1;
}

struct oracle_want *oracle_find_want(struct broker_oracle *oracle) {
    for (int i = 0; i < ORACLE_WANTS; i++)
        if (!oracle->wants[i].lives)
            return &oracle->wants[i];
    return NULL;
}

static bool before(const struct broker_oracle *oracle, const struct oracle_want *a,
                   const struct oracle_want *b) {
    int64_t now = 1 << 30; /* any moment will do */
    int64_t score_a, score_b;

    if ((a->job >= 0) != (b->job >= 0))
        return a->job >= 0;
    /* priority + waited / age, in units of the age so that nothing is rounded */
    score_a = a->priority * oracle->age_usec + (now - a->since_usec);
    score_b = b->priority * oracle->age_usec + (now - b->since_usec);
    return score_a != score_b ? score_a > score_b : a->arrival < b->arrival;
}

int oracle_queue(const struct broker_oracle *oracle, int *ret) {
    int n = 0;

    for (int i = 0; i < ORACLE_WANTS; i++) {
        int at = n;

        if (!oracle->wants[i].lives)
            continue;
        for (; at > 0 && before(oracle, &oracle->wants[i], &oracle->wants[ret[at - 1]]); at--)
            ret[at] = ret[at - 1];
        ret[at] = i;
        n++;
    }
    return n;
}

/* ---- Safety: every order ---- */

static bool can_all_end(const struct broker_oracle *oracle, uint32_t ended) {
    int64_t left[ORACLE_DEVICES];
    bool some = false;

    for (int d = 0; d < ORACLE_DEVICES; d++) {
        left[d] = oracle->usable;
        for (int i = 0; i < ORACLE_JOBS; i++)
            if (oracle->jobs[i].declares && (i >= 32 || !(ended >> i & 1)))
                left[d] -= charge(&oracle->jobs[i], d);
    }
    for (int i = 0; i < ORACLE_JOBS; i++) {
        const struct oracle_job *job = &oracle->jobs[i];
        bool fits = true;

        if (!job->lives || !job->declares || (i < 32 && ended >> i & 1))
            continue;
        some = true;
        for (int d = 0; d < ORACLE_DEVICES; d++)
            if (job->devices >> d & 1)
                fits &= job->limit - charge(job, d) <= left[d];
        if (fits && can_all_end(oracle, ended | UINT32_C(1) << i))
            return true;
    }
    return !some;
}

/* ---- The queue ---- */

static int n_leases(const struct broker_oracle *oracle, int uid) {
    int n = 0;

    for (int i = 0; i < ORACLE_JOBS; i++)
        n += oracle->jobs[i].lives && oracle->jobs[i].uid == uid;
    return n;
}

static int64_t rise(const struct oracle_job *job, int device, int64_t bytes) {
    int64_t after = job->held[device] + bytes;

    return after > charge(job, device) ? after - charge(job, device) : 0;
}

static int make_job(struct broker_oracle *oracle, const struct oracle_want *want,
                    uint32_t devices) {
    int at = oracle_find_job(oracle);

    oracle->jobs[at] = (struct oracle_job){
        .lives = true,
        .pid = want->pid,
        .uid = want->uid,
        .priority = want->priority,
        .declares = want->declares,
        .devices = devices,
        .limit = want->limit,
        .guaranteed = want->guaranteed,
    };
    return at;
}

static bool is_safe_on(struct broker_oracle *oracle, const struct oracle_want *want,
                       uint32_t devices) {
    int at = make_job(oracle, want, devices);
    bool is_safe = !want->declares || can_all_end(oracle, 0);

    oracle->jobs[at].lives = false;
    return is_safe;
}

/* The devices for a new lease, by what is left on each; 0: it does not fit. */
static uint32_t choose(struct broker_oracle *oracle, const struct oracle_want *want,
                       const int64_t *left) {
    uint32_t chosen = 0;

    for (int n = 0; n < want->n_wanted; n++) {
        int best = -1;

        for (int d = 0; d < ORACLE_DEVICES; d++) {
            if (!(want->allowed >> d & 1) || chosen >> d & 1 || left[d] < want->guaranteed)
                continue;
            if (want->n_wanted == 1 && !is_safe_on(oracle, want, UINT32_C(1) << d))
                continue;
            if (best < 0 || (want->spreads ? left[d] > left[best] : left[d] < left[best]))
                best = d;
        }
        if (best < 0)
            return 0;
        chosen |= UINT32_C(1) << best;
    }
    return chosen;
}

/* ---- Passing: every state ---- */

/*
 * Whether there is a state of the device in which a waiter in front would start, and could not if
 * `bytes` were taken. A state: each job from `job` on may be gone, those that can have other
 * amounts may have any; each of those in front may run, wait (then it keeps), or be gone.
 */
static bool could_delay(const struct broker_oracle *oracle, int device, int64_t bytes,
                        const int64_t *needs, int n_needs) {
    bool used[64] = { true };

    for (int i = 0; i < ORACLE_JOBS; i++) {
        const struct oracle_job *job = &oracle->jobs[i];
        int64_t most = job->limit > job->held[device] ? job->limit : job->held[device];
        bool is_fixed = job->limit == job->guaranteed && job->held[device] <= job->guaranteed;

        if (charge(job, device) == 0)
            continue;
        for (int64_t sum = oracle->usable; sum >= 0; sum--)
            for (int64_t part = 1; part <= most && part <= sum; part++)
                used[sum] |= used[sum - part] && (!is_fixed || part == most);
    }
    for (int k = 0; k < n_needs; k++) {
        for (int64_t sum = 0; sum <= oracle->usable; sum++) {
            int64_t left = oracle->usable - sum;

            if (used[sum] && left >= needs[k] && left - bytes < needs[k])
                return true;
        }
        for (int64_t sum = oracle->usable; sum >= needs[k]; sum--)
            used[sum] |= used[sum - needs[k]];
    }
    return false;
}

/* Whether the leases of the user leave room for so much, if all others end. */
static bool is_left_by_own(const struct broker_oracle *oracle, int uid, int device, int64_t bytes) {
    int64_t left = oracle->usable;

    for (int i = 0; i < ORACLE_JOBS; i++)
        if (oracle->jobs[i].lives && oracle->jobs[i].uid == uid)
            left -= charge(&oracle->jobs[i], device);
    return bytes <= left;
}

/* Whether they leave room on as many devices as it wants. */
static bool has_enough_by_own(const struct broker_oracle *oracle, const struct oracle_want *want) {
    int n = 0;

    for (int d = 0; d < ORACLE_DEVICES; d++)
        if (want->allowed >> d & 1)
            n += is_left_by_own(oracle, want->uid, d, want->guaranteed);
    return n >= want->n_wanted;
}

/* What a waiter reserves on a device; its own leases leave no room: from its own user alone. */
struct kept {
    int device, uid;
    bool is_private;
    int64_t bytes;
};

static void keep(const struct broker_oracle *oracle, struct kept *kept, int *n,
                 const struct oracle_want *want, int device, int64_t bytes) {
    bool is_private = !is_left_by_own(oracle, want->uid, device, bytes) ||
                      (want->job < 0 && !has_enough_by_own(oracle, want));

    kept[(*n)++] = (struct kept){ device, want->uid, is_private, bytes };
}

/* Whether the first that can be served was; the queue is then to be walked anew. */
static bool serve_one(struct broker_oracle *oracle, oracle_fn fn, void *userdata) {
    static struct kept kept[ORACLE_WANTS * ORACLE_DEVICES];
    int queue[ORACLE_WANTS], n = oracle_queue(oracle, queue), n_kept = 0;

    for (int k = 0; k < n; k++) {
        struct oracle_want *want = &oracle->wants[queue[k]];
        int64_t left[ORACLE_DEVICES], needs[ORACLE_DEVICES][ORACLE_PASSED];
        int n_needs[ORACLE_DEVICES] = { 0 };

        for (int d = 0; d < ORACLE_DEVICES; d++)
            left[d] = oracle_free(oracle, d);
        for (int i = 0; i < n_kept; i++) {
            int d = kept[i].device;

            if (kept[i].is_private && kept[i].uid != want->uid)
                continue;
            left[d] -= kept[i].bytes;
            if (n_needs[d] < ORACLE_PASSED)
                needs[d][n_needs[d]++] = kept[i].bytes;
        }
        for (int d = 0; d < ORACLE_DEVICES; d++) {
            left[d] = left[d] > 0 && n_needs[d] < ORACLE_PASSED ? left[d] : 0;
            /* The room that there is: as much as could be taken without a delay. */
            if (want->job < 0 && want->limit == want->guaranteed && n_needs[d] < ORACLE_PASSED)
                for (int64_t more = oracle_free(oracle, d); more >= want->guaranteed; more--)
                    if (left[d] < want->guaranteed &&
                        !could_delay(oracle, d, more, needs[d], n_needs[d]))
                        left[d] = more;
        }
        if (want->job >= 0) {
            struct oracle_job *job = &oracle->jobs[want->job];
            int64_t more = rise(job, want->device, want->bytes);

            if (more <= left[want->device]) {
                job->held[want->device] += want->bytes;
                if (more == 0 || !job->declares || can_all_end(oracle, 0)) {
                    want->lives = false;
                    fn(userdata, want, ORACLE_GRANTED, want->job);
                    return true;
                }
                job->held[want->device] -= want->bytes;
            }
            keep(oracle, kept, &n_kept, want, want->device, more);
        } else {
            uint32_t devices;

            if (n_leases(oracle, want->uid) >= oracle->max_leases)
                continue;
            devices = choose(oracle, want, left);
            if (devices && (want->n_wanted == 1 || is_safe_on(oracle, want, devices))) {
                int at = make_job(oracle, want, devices);

                want->lives = false;
                fn(userdata, want, ORACLE_GRANTED, at);
                return true;
            }
            for (int d = 0; d < ORACLE_DEVICES; d++)
                if (want->allowed >> d & 1)
                    keep(oracle, kept, &n_kept, want, d, want->guaranteed);
        }
    }
    return false;
}

/* ---- Deadlocks: every set of leases ---- */

/*
 * Whether in this set of jobs each waits for growth that it cannot have even if all others end.
 * (One process per job: nothing else of its own could help.)
 */
static bool is_deadlock(const struct broker_oracle *oracle, uint32_t set) {
    for (int i = 0; i < ORACLE_JOBS; i++) {
        bool is_stuck = false;

        if (i >= 32 || !(set >> i & 1))
            continue;
        for (int w = 0; w < ORACLE_WANTS; w++) {
            const struct oracle_want *want = &oracle->wants[w];
            int64_t left = oracle->usable;

            if (!want->lives || want->job != i)
                continue;
            for (int j = 0; j < 32; j++)
                if (set >> j & 1)
                    left -= charge(&oracle->jobs[j], want->device);
            is_stuck |= rise(&oracle->jobs[i], want->device, want->bytes) > left;
        }
        if (!is_stuck)
            return false;
    }
    return true;
}

static bool cut_one(struct broker_oracle *oracle, oracle_fn fn, void *userdata) {
    struct oracle_want *victim = NULL;
    uint32_t all = 0, waiting = 0;

    for (int w = 0; w < ORACLE_WANTS; w++)
        if (oracle->wants[w].lives && oracle->wants[w].job >= 0)
            waiting |= UINT32_C(1) << oracle->wants[w].job;
    /* The union of deadlocks is a deadlock: the jobs that end are the fewer. */
    for (uint32_t set = 1; set <= waiting; set++)
        if ((set & (set - 1)) && !(set & ~waiting) && is_deadlock(oracle, set))
            all |= set;
    for (int w = 0; w < ORACLE_WANTS; w++) {
        struct oracle_want *want = &oracle->wants[w];
        int64_t left = oracle->usable;

        if (!want->lives || want->job < 0 || !(all >> want->job & 1))
            continue;
        for (int j = 0; j < 32; j++)
            if (all >> j & 1)
                left -= charge(&oracle->jobs[j], want->device);
        if (rise(&oracle->jobs[want->job], want->device, want->bytes) <= left)
            continue;
        if (!victim || want->priority < victim->priority ||
            (want->priority == victim->priority && want->arrival > victim->arrival))
            victim = want;
    }
    if (!victim)
        return false;
    victim->lives = false;
    fn(userdata, victim, ORACLE_DEADLOCK, victim->job);
    return true;
}

void oracle_settle(struct broker_oracle *oracle, oracle_fn fn, void *userdata) {
    do {
        while (serve_one(oracle, fn, userdata))
            continue;
    } while (cut_one(oracle, fn, userdata));
}
