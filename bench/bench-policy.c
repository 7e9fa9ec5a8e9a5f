/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a decision costs with a short line and with a long one.
 *
 * A box of 16 devices, all taken; a line of n requests of many users for one device, for two, or
 * for a certain one. Each row is the CPU time of one operation of the broker alone, without wire,
 * state or accounts: the best of several rounds, because whatever else runs on the machine only
 * adds.
 *
 *     ask     a request that has to wait, its place and its reason, and its cancellation
 *     grow    growth and shrinking of a running job while the others wait
 *     serve   a lease ends, the first in line is served, the next comes
 *     explain the same as ask, changing nothing
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "daemon/broker.h"

#define GIB       (UINT64_C(1) << 30)
#define N_DEVICES 16
#define ROUNDS    7
#define GOAL      3.0

static const unsigned lengths[] = { 10, 100, 1000, 10000 };

struct bench {
    struct policy policy;
    struct broker *broker;
    struct moment now;
    uint64_t random;
    unsigned n_served; /* who waited and was granted */
    pid_t n_pids;
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

/* Users of 50 requests each. */
static struct broker_peer peer_of(struct bench *bench) {
    pid_t pid = ++bench->n_pids;

    return (struct broker_peer){
        .process = { .pid = pid % 4000000 + 2, .start = (uint64_t)pid },
        .uid = 1000 + (uid_t)(pid / 50) % 500,
        .gid = 100,
    };
}

static struct verdict ask(struct bench *bench, const struct broker_peer *peer, uint32_t n_gpus,
                          const char *name, uint64_t bytes) {
    struct demand demand = {
        .n_gpus = name ? 0 : n_gpus,
        .devices = &name,
        .n_devices = name ? 1 : 0,
        .has_amount = true,
        .amount = { LEASE_FIXED, POLICY_NO_SHARE, bytes, UNITS_FOREVER, UNITS_FOREVER },
        .timeout_usec = UNITS_FOREVER,
        .time_limit_usec = UNITS_FOREVER,
    };
    struct verdict verdict;

    bench->now.usec++;
    if (broker_submit(bench->broker, peer, &demand, NULL, bench->now, &verdict) < 0)
        die("out of memory");
    return verdict;
}

static struct verdict ask_any(struct bench *bench) {
    struct broker_peer peer = peer_of(bench);
    char name[8];
    unsigned what = (unsigned)(random_next(&bench->random) % 10);

    snprintf(name, sizeof(name), "%u", (unsigned)(random_next(&bench->random) % N_DEVICES));
    return ask(bench, &peer, what < 7 ? 1 : 2, what == 9 ? name : NULL,
               (20 + random_next(&bench->random) % 20) * GIB);
}

static struct bench *bench_new(unsigned n_waiters) {
    struct bench *bench = calloc(1, sizeof(*bench));
    struct broker_sink sink = { .userdata = bench, .decided = decided, .moved = ignore_moved };

    if (!bench)
        die("out of memory");
    policy_init(&bench->policy);
    bench->now.usec = 1000000;
    bench->random = 1;
    if (broker_new(&bench->broker, &bench->policy, &sink) < 0)
        die("out of memory");
    for (unsigned i = 0; i < N_DEVICES; i++) {
        struct device device = { .state = DEVICE_READY, .is_present = true };

        device.seen.id.uuid[0] = (uint8_t)i;
        device.seen.index = i;
        device.seen.pci.bus = (uint8_t)i;
        device.seen.total_bytes = 40 * GIB;
        if (broker_device_set(bench->broker, &device, 0, bench->now) < 0)
            die("out of memory");
    }
    for (unsigned i = 0; i < N_DEVICES; i++) {
        struct broker_peer peer = peer_of(bench);
        struct verdict verdict = ask(bench, &peer, 1, NULL, 36 * GIB);

        if (verdict.kind != VERDICT_GRANT)
            die("the box could not be filled");
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

static double bench_ask(struct bench *bench) {
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

static double bench_explain(struct bench *bench) {
    const unsigned n = 2000;
    static struct explanation said;
    double began = cpu_nsec();

    for (unsigned i = 0; i < n; i++) {
        struct broker_peer peer = peer_of(bench);
        struct demand demand = {
            .n_gpus = 1 + i % 2,
            .timeout_usec = UNITS_FOREVER,
            .time_limit_usec = UNITS_FOREVER,
            .has_amount = true,
            .amount = { LEASE_FIXED, POLICY_NO_SHARE, 30 * GIB, UNITS_FOREVER, UNITS_FOREVER },
        };

        if (broker_explain(bench->broker, &peer, &demand, bench->now, &said) < 0 ||
            said.verdict.kind != VERDICT_WAIT)
            die("a request would not wait");
    }
    return (cpu_nsec() - began) / n;
}

static double bench_grow(struct bench *bench) {
    const unsigned n = 20000;
    size_t first = 0;
    const struct lease *lease = broker_next_lease(bench->broker, &first);
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

static double bench_serve(struct bench *bench) {
    const unsigned n = 300;
    double sum = 0;

    for (unsigned i = 0; i < n; i++) {
        size_t oldest = 0;
        const struct lease *lease = broker_next_lease(bench->broker, &oldest);
        struct broker_peer peer = { .uid = lease->uid, .process = { .pid = 1, .start = 1 } };
        struct verdict verdict;
        double began;

        bench->now.usec += 10;
        bench->n_served = 0;
        began = cpu_nsec();
        broker_release(bench->broker, &peer, lease->id, bench->now, &verdict);
        broker_turn(bench->broker, bench->now);
        sum += cpu_nsec() - began;
        /* The first in line may want two devices, and wait for the next release. */
        for (; bench->n_served > 0; bench->n_served--)
            if (ask_any(bench).kind != VERDICT_WAIT)
                die("a request did not wait");
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
        { "ask", bench_ask },
        { "grow", bench_grow },
        { "serve", bench_serve },
        { "explain", bench_explain },
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
