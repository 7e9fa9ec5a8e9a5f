/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a decision costs with a short line and with a long one.
 *
 * A box of 16 devices, all but full; a line of n requests of which no two are alike: of hundreds of
 * users that see different devices, for one device, two or certain ones, of different size, mode,
 * priority and patience. Each row is the CPU time of one operation of the broker alone, without
 * wire, state or accounts: the best of several rounds, because whatever else runs on the machine
 * only adds.
 *
 *     submit  a request that has to wait, its place and its reason, and its cancellation
 *     idle    a lease ends, and what it gives back is too little for every waiter
 *     wake    a lease ends, the first waiter that fits is served
 *     grow    growth and shrinking of a running job while the others wait
 *     explain the same as submit, changing nothing
 *     timeout a wait ends by its timeout
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "daemon/broker/broker.h"

#define GIB       (UINT64_C(1) << 30)
#define N_DEVICES 16
#define N_USERS   400
#define N_SMALL   512 /* leases of a granule each, to be released */
#define ROUNDS    7
#define GOAL      3.0

static const unsigned lengths[] = { 10, 100, 1000, 10000 };

struct bench {
    struct policy policy;
    struct broker *broker;
    struct moment now;
    uint64_t random;
    unsigned n_served; /* waiters that were granted */
    pid_t n_pids;
    uint64_t small[N_SMALL], large;
};

static void die(const char *what) {
    fprintf(stderr, "bench-policy: %s\n", what);
    exit(1);
}

static double cpu_nsec(void) {
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void decided(void *userdata, void *cookie, const struct verdict *verdict) {
    struct bench *bench = userdata;

    bench->n_served += verdict->kind == VERDICT_GRANT;
}

static void ignore_moved(void *userdata, void *cookie, uint32_t place, const char *reason) {
}

/* Users of 50 requests each; each user sees other devices, may have another priority, … */
static struct broker_peer peer_of(struct bench *bench) {
    pid_t pid = ++bench->n_pids;

    return (struct broker_peer){
        .process = { .pid = pid % 4000000 + 2, .start = (uint64_t)pid },
        .uid = 1000 + (uid_t)(pid / 50) % N_USERS,
        .gid = 100,
    };
}

static struct verdict ask(struct bench *bench, const struct broker_peer *peer,
                          const struct request *like) {
    struct request request = *like;
    struct verdict verdict;

    request.timeout_usec = request.timeout_usec ? request.timeout_usec : UNITS_FOREVER;
    request.time_limit_usec = UNITS_FOREVER;
    request.has_amount = true;
    bench->now.usec++;
    if (broker_submit(bench->broker, peer, &request, NULL, bench->now, &verdict) < 0)
        die("out of memory");
    return verdict;
}

static uint64_t pick(struct bench *bench, uint64_t n) {
    return random_next(&bench->random) % n;
}

/* No two alike: how much, of how many, of which devices, with which priority, for how long. */
static struct verdict ask_any(struct bench *bench) {
    struct broker_peer peer = peer_of(bench);
    uint64_t bytes = GIB + pick(bench, 39 * GIB / BOOKS_GRANULE) * BOOKS_GRANULE;
    char names[N_DEVICES][8];
    const char *devices[N_DEVICES];
    struct request request = {
        .amount = { LEASE_FIXED, POLICY_NO_SHARE, bytes, UNITS_FOREVER, UNITS_FOREVER },
        .has_priority = true,
        .priority = (int32_t)pick(bench, 41) - 20,
        .timeout_usec = (3600 + pick(bench, 1000000)) * 1000000,
        .has_choose = true,
        .choose = (enum choice)(1 + pick(bench, 3)),
        .devices = devices,
    };
    unsigned first;

    switch (pick(bench, 4)) {
    case 0:
        request.amount.mode = LEASE_FRACTION;
        request.amount.permyriad = 300 + (uint32_t)pick(bench, 9700);
        break;
    case 1:
        request.amount = AMOUNT_GROW;
        request.amount.min_bytes = bytes;
        request.amount.max_bytes = pick(bench, 2) ? 40 * GIB : UNITS_FOREVER;
        break;
    default:
        break;
    }
    if (pick(bench, 3) == 0) {
        first = (unsigned)pick(bench, N_DEVICES);
        request.n_devices = 1 + pick(bench, 3);
        for (unsigned i = 0; i < request.n_devices; i++) {
            snprintf(names[i], sizeof(names[i]), "%u", (first + i * 5) % N_DEVICES);
            devices[i] = names[i];
        }
        peer.uid = 900; /* sees all of them */
        peer.uid -= (uid_t)pick(bench, 800);
    } else {
        request.n_gpus = 1 + (uint32_t)pick(bench, 2);
    }
    return ask(bench, &peer, &request);
}

/* Each user its own devices, four at least. */
static void make_policy(struct bench *bench) {
    struct policy *policy = &bench->policy;
    uint64_t random = 7;

    policy_init(policy);
    policy->defaults.has = POLICY_HAS(priority_max) | POLICY_HAS(max_leases);
    policy->defaults.priority_max = 50;
    policy->defaults.max_leases = 100000;
    policy->sections = calloc(N_USERS, sizeof(*policy->sections));
    if (!policy->sections)
        die("out of memory");
    policy->n_sections = N_USERS;
    for (unsigned i = 0; i < N_USERS; i++) {
        struct policy_section *section = &policy->sections[i];
        struct policy_names *names = &section->rules.devices;
        unsigned first = (unsigned)(random_next(&random) % N_DEVICES);

        section->who = POLICY_USER;
        section->id = 1000 + i;
        section->rules.has = POLICY_HAS(devices);
        names->names = calloc(N_DEVICES, sizeof(char *));
        if (!names->names)
            die("out of memory");
        for (unsigned d = 0; d < N_DEVICES; d++) {
            char text[8];

            if (d >= 4 && random_next(&random) % 2)
                continue;
            snprintf(text, sizeof(text), "%u", (first + d) % N_DEVICES);
            names->names[names->n_names++] = strdup(text);
        }
    }
}

static struct bench *bench_new(unsigned n_waiters) {
    struct bench *bench = calloc(1, sizeof(*bench));
    struct broker_sink sink = { .userdata = bench, .decided = decided, .moved = ignore_moved };

    if (!bench)
        die("out of memory");
    make_policy(bench);
    bench->now.usec = 1000000;
    bench->random = 1;
    if (broker_new(&bench->broker, &bench->policy, &sink) < 0)
        die("out of memory");
    for (unsigned i = 0; i < N_DEVICES; i++) {
        struct device_facts device = { .state = DEVICE_READY, .is_present = true };

        device.seen.id.uuid[0] = (uint8_t)i;
        device.seen.index = i;
        device.seen.pci.bus = (uint8_t)i;
        device.seen.total_bytes = 40 * GIB;
        if (broker_device_set(bench->broker, &device, 0, bench->now) < 0)
            die("out of memory");
    }
    for (unsigned i = 0; i < N_SMALL + N_DEVICES; i++) {
        struct broker_peer peer = { .process = { .pid = 2, .start = 1 + i }, .uid = 90, .gid = 90 };
        struct request request = {
            .n_gpus = 1,
            .amount = { LEASE_FIXED, POLICY_NO_SHARE, i < N_SMALL ? BOOKS_GRANULE : 39 * GIB,
                        UNITS_FOREVER, UNITS_FOREVER },
            .has_choose = true,
            .choose = CHOICE_SPREAD,
        };
        struct verdict verdict = ask(bench, &peer, &request);

        if (verdict.kind != VERDICT_GRANT)
            die("the box could not be filled");
        if (i < N_SMALL)
            bench->small[i] = verdict.lease;
        bench->large = verdict.lease;
    }
    for (unsigned i = 0; i < n_waiters; i++)
        if (ask_any(bench).kind != VERDICT_WAIT)
            die("a request did not wait");
    broker_turn(bench->broker, bench->now);
    return bench;
}

static void bench_free(struct bench *bench) {
    broker_free(bench->broker);
    policy_done(&bench->policy);
    free(bench);
}

/* ---- Operations: CPU nanoseconds of one ---- */

static double bench_submit(struct bench *bench) {
    const unsigned n = 2000;
    double began = cpu_nsec();

    for (unsigned i = 0; i < n; i++) {
        struct verdict verdict = ask_any(bench);

        if (verdict.kind != VERDICT_WAIT)
            die("a request did not wait");
        broker_cancel(bench->broker, verdict.waiter, bench->now);
        broker_turn(bench->broker, bench->now);
    }
    return (cpu_nsec() - began) / n;
}

static double bench_idle(struct bench *bench) {
    struct broker_peer peer = { .process = { .pid = 1, .start = 1 }, .uid = 90 };
    double began = cpu_nsec();

    bench->n_served = 0;
    for (unsigned i = 0; i < N_SMALL; i++) {
        struct verdict verdict;

        bench->now.usec += 10;
        broker_release(bench->broker, &peer, bench->small[i], bench->now, &verdict);
        broker_turn(bench->broker, bench->now);
    }
    if (bench->n_served > 0)
        die("somebody was served");
    return (cpu_nsec() - began) / N_SMALL;
}

static double bench_timeout(struct bench *bench) {
    const unsigned n = 300;
    double sum = 0;

    for (unsigned i = 0; i < n; i++) {
        struct broker_peer peer = peer_of(bench);
        struct request request = {
            .n_gpus = 1,
            .amount = { LEASE_FIXED, POLICY_NO_SHARE, 30 * GIB, UNITS_FOREVER, UNITS_FOREVER },
            .timeout_usec = 5,
        };
        double began;

        ask(bench, &peer, &request);
        broker_turn(bench->broker, bench->now);
        bench->now.usec += 10;
        began = cpu_nsec();
        broker_turn(bench->broker, bench->now);
        sum += cpu_nsec() - began;
    }
    return sum / n;
}

static double bench_explain(struct bench *bench) {
    const unsigned n = 2000;
    static struct explanation said;
    double began = cpu_nsec();

    for (unsigned i = 0; i < n; i++) {
        struct broker_peer peer = peer_of(bench);
        struct request request = {
            .n_gpus = 1 + i % 2,
            .timeout_usec = UNITS_FOREVER,
            .time_limit_usec = UNITS_FOREVER,
            .has_amount = true,
            .amount = { LEASE_FIXED, POLICY_NO_SHARE, 30 * GIB, UNITS_FOREVER, UNITS_FOREVER },
        };

        if (broker_explain(bench->broker, &peer, &request, bench->now, &said) < 0 ||
            said.verdict.kind != VERDICT_WAIT)
            die("a request would not wait");
    }
    return (cpu_nsec() - began) / n;
}

static double bench_grow(struct bench *bench) {
    const unsigned n = 20000;
    const struct lease *lease = broker_lease(bench->broker, bench->large);
    struct broker_peer peer = peer_of(bench);
    struct broker_attach attach = { .lease = lease->id };
    struct broker_growth growth = {
        .lease = lease->id,
        .device = lease->shares[0].book->device.seen.id,
        .bytes = 64 << 20,
        .timeout_usec = UNITS_FOREVER,
    };
    struct verdict verdict;
    double began;

    peer.uid = lease->uid;
    if (broker_attach(bench->broker, &peer, &attach, bench->now, &verdict) < 0)
        die("out of memory");
    began = cpu_nsec();
    for (unsigned i = 0; i < n; i++) {
        if (broker_grow(bench->broker, &peer.process, &growth, NULL, bench->now, &verdict) < 0 ||
            verdict.kind != VERDICT_GRANT)
            die("growth was refused");
        broker_turn(bench->broker, bench->now);
        broker_shrink(bench->broker, &peer.process, growth.lease, &growth.device, growth.bytes,
                      bench->now, &verdict);
        broker_turn(bench->broker, bench->now);
    }
    return (cpu_nsec() - began) / n;
}

static double bench_wake(struct bench *bench) {
    const unsigned n = 300;
    double sum = 0;
    unsigned n_woken = 0;

    while (n_woken < n) {
        size_t oldest = 0;
        const struct lease *lease = broker_next_lease(bench->broker, &oldest);
        struct broker_peer peer = { .process = { .pid = 1, .start = 1 } };
        struct verdict verdict;
        uint64_t id;
        double began;

        while (lease && lease->shares[0].guaranteed_bytes == BOOKS_GRANULE)
            lease = broker_next_lease(bench->broker, &oldest);
        if (!lease)
            die("nobody holds anything");
        peer.uid = lease->uid;
        id = lease->id;
        bench->now.usec += 10;
        bench->n_served = 0;
        began = cpu_nsec();
        broker_release(bench->broker, &peer, id, bench->now, &verdict);
        broker_turn(bench->broker, bench->now);
        began = cpu_nsec() - began;
        /* Several small ones may fit where a large one was. */
        if (bench->n_served == 1) {
            n_woken++;
            sum += began;
        }
        for (; bench->n_served > 0; bench->n_served--)
            while (ask_any(bench).kind != VERDICT_WAIT)
                continue;
    }
    return sum / n;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(void) {
    static const struct {
        const char *name;
        double (*fn)(struct bench *bench);
    } operations[] = {
        { "submit", bench_submit }, { "idle", bench_idle },       { "wake", bench_wake },
        { "grow", bench_grow },     { "explain", bench_explain }, { "timeout", bench_timeout },
    };
    bool all_good = true;

    printf("%-10s", "waiters");
    for (size_t i = 0; i < ELEMENTSOF(lengths); i++)
        printf(" %9u", lengths[i]);
    printf("   ratio (goal: at most %.0f)\n", GOAL);
    for (size_t op = 0; op < ELEMENTSOF(operations); op++) {
        double best[ELEMENTSOF(lengths)], rounds[ROUNDS], ratio;

        for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
            for (unsigned round = 0; round < ROUNDS; round++) {
                struct bench *bench = bench_new(lengths[i]);

                rounds[round] = operations[op].fn(bench);
                bench_free(bench);
            }
            qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
            best[i] = rounds[0];
        }
        printf("%-10s", operations[op].name);
        for (size_t i = 0; i < ELEMENTSOF(lengths); i++)
            printf(" %6.2f µs", best[i] / 1e3);
        ratio = best[ELEMENTSOF(lengths) - 1] / best[0];
        printf("   %.2f\n", ratio);
        all_good &= ratio <= GOAL;
    }
    return all_good ? 0 : 1;
}
