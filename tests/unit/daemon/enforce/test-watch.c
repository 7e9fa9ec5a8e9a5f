/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/watch.h"

#include <string.h>

#include "base/random.h"
#include "daemon/broker/sample.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)
#define SEC UINT64_C(1000000)

static const struct gpuid gpu = { .uuid = { 1 } };

struct bench {
    struct watch *watch;
    struct watch_rules rules;
    uint64_t now_usec;
    size_t n;
    struct watch_action told[64];
};

static void act(void *userdata, const struct watch_action *action) {
    struct bench *bench = userdata;

    ck_assert(bench->n < ELEMENTSOF(bench->told));
    bench->told[bench->n++] = *action;
}

static void bench_init(struct bench *bench) {
    memset(bench, 0, sizeof(*bench));
    watch_rules_default(&bench->rules);
    ck_assert(bench->rules.dry_run); /* a fresh installation kills no process */
    bench->rules.dry_run = false;
    bench->rules.tolerance_bytes = 10 * MIB;
    bench->rules.tolerance_permyriad = 0;
    ck_assert_int_eq(watch_new(&bench->watch), 0);
}

static struct watch_process process(pid_t pid, uint64_t used, uint64_t held) {
    return (struct watch_process){
        .id = { pid, 7 },
        .has_used = true,
        .used_bytes = used,
        .held_bytes = held,
        .kinds = SAMPLE_COMPUTE,
    };
}

/* One sample, a second later, with one subject. */
static void turn(struct bench *bench, uint64_t lease, uint64_t limit,
                 const struct watch_process *processes, size_t n) {
    struct watch_subject subject = { lease, gpu, limit, n, processes };

    bench->n = 0;
    bench->now_usec += SEC;
    ck_assert_int_eq(
        watch_turn(bench->watch, &bench->rules, bench->now_usec, &subject, 1, act, bench), 0);
}

START_TEST(the_ladder_is_climbed_a_step_at_a_time) {
    struct watch_process hog = process(5, 200 * MIB, 100 * MIB);
    enum watch_step seen[4];
    uint64_t when[4];
    struct bench bench;
    size_t n = 0;

    bench_init(&bench);
    for (int i = 0; i < 60; i++) {
        turn(&bench, 1, 100 * MIB, &hog, 1);
        if (bench.n) {
            ck_assert_uint_eq(bench.n, 1);
            ck_assert(n < 4);
            when[n] = bench.now_usec;
            seen[n++] = bench.told[0].step;
            ck_assert_int_eq(bench.told[0].process.id.pid, 5);
            ck_assert_uint_eq(bench.told[0].over_bytes, 110 * MIB);
            ck_assert(!bench.told[0].dry_run);
        }
        ck_assert_int_eq(watch_refuses(bench.watch, 1, &gpu), n >= 2);
    }
    ck_assert_uint_eq(n, 4);
    ck_assert_int_eq(seen[0], WATCH_LOG);
    ck_assert_int_eq(seen[1], WATCH_REFUSE);
    ck_assert_int_eq(seen[2], WATCH_TERM);
    ck_assert_int_eq(seen[3], WATCH_KILL);
    ck_assert_uint_eq(when[0], 3 * SEC);
    for (int i = 1; i < 4; i++)
        ck_assert_uint_eq(when[i] - when[i - 1], 10 * SEC);
    watch_free(bench.watch);
}
END_TEST

START_TEST(a_sample_under_the_limit_ends_it) {
    struct watch_process hog = process(5, 200 * MIB, 0), good = process(5, 110 * MIB, 0);
    struct bench bench;

    bench_init(&bench);
    for (int round = 0; round < 3; round++) {
        turn(&bench, 1, 100 * MIB, &hog, 1);
        turn(&bench, 1, 100 * MIB, &hog, 1);
        turn(&bench, 1, 100 * MIB, &good, 1); /* two in a row are not three */
        ck_assert_uint_eq(bench.n, 0);
    }
    for (int i = 0; i < 14; i++)
        turn(&bench, 1, 100 * MIB, &hog, 1);
    ck_assert(watch_refuses(bench.watch, 1, &gpu));
    turn(&bench, 1, 100 * MIB, &good, 1);
    ck_assert_uint_eq(bench.n, 1);
    ck_assert_int_eq(bench.told[0].step, WATCH_FINE);
    ck_assert(!watch_refuses(bench.watch, 1, &gpu));
    turn(&bench, 1, 100 * MIB, &hog, 1); /* from the beginning */
    ck_assert_uint_eq(bench.n, 0);
    watch_free(bench.watch);
}
END_TEST

START_TEST(a_dry_run_says_and_does_nothing) {
    struct watch_process hog = process(5, 200 * MIB, 0);
    struct bench bench;
    size_t n = 0;

    bench_init(&bench);
    bench.rules.dry_run = true;
    for (int i = 0; i < 60; i++) {
        turn(&bench, 1, 100 * MIB, &hog, 1);
        n += bench.n;
        if (bench.n && bench.told[0].step > WATCH_LOG) {
            ck_assert(bench.told[0].dry_run);
            ck_assert_ptr_nonnull(strstr(bench.told[0].reason, "dry run"));
        }
        ck_assert(!watch_refuses(bench.watch, 1, &gpu));
    }
    ck_assert_uint_eq(n, 4);
    /* When it becomes serious, the ladder begins below the signals. */
    bench.rules.dry_run = false;
    for (int i = 0; i < 12; i++) {
        turn(&bench, 1, 100 * MIB, &hog, 1);
        ck_assert(bench.n == 0 || bench.told[0].step == WATCH_REFUSE);
    }
    ck_assert(watch_refuses(bench.watch, 1, &gpu));
    watch_free(bench.watch);
}
END_TEST

START_TEST(readings_that_are_not_available_neither_accuse_nor_acquit) {
    struct watch_process pair[] = { process(5, 200 * MIB, 0), process(6, 0, 0) };
    struct bench bench;

    bench_init(&bench);
    for (int i = 0; i < 3; i++)
        turn(&bench, 1, 100 * MIB, pair, 1);
    ck_assert_uint_eq(bench.n, 1);
    pair[0].has_used = false;
    for (int i = 0; i < 100; i++) {
        turn(&bench, 1, 100 * MIB, pair, 1);
        ck_assert_uint_eq(bench.n, 0);
    }
    ck_assert_int_eq(watch_step_of(bench.watch, 1, &pair[0].id, &gpu), WATCH_LOG);
    /* What is known is too much already. */
    pair[0].has_used = true;
    pair[1].has_used = false;
    turn(&bench, 1, 100 * MIB, pair, 2);
    ck_assert_uint_eq(bench.n, 1);
    ck_assert_int_eq(bench.told[0].step, WATCH_REFUSE);
    watch_free(bench.watch);
}
END_TEST

START_TEST(only_the_process_that_exceeds_its_limit_is_dealt_with) {
    struct watch_process job[] = {
        process(5, 60 * MIB, 60 * MIB), /* uses what it declared */
        process(6, 80 * MIB, 20 * MIB), /* uses 60 more than it declared */
        process(7, 70 * MIB, 70 * MIB),
    };
    struct watch_process neighbour = process(8, 90 * MIB, 90 * MIB);
    struct watch_subject subjects[] = {
        { 1, gpu, 150 * MIB, 3, job },
        { 2, gpu, 100 * MIB, 1, &neighbour },
    };
    struct bench bench;
    size_t n = 0;

    bench_init(&bench);
    for (int i = 0; i < 60; i++) {
        bench.n = 0;
        bench.now_usec += SEC;
        watch_turn(bench.watch, &bench.rules, bench.now_usec, subjects, 2, act, &bench);
        for (size_t j = 0; j < bench.n; j++, n++) {
            ck_assert_uint_eq(bench.told[j].lease, 1);
            ck_assert_int_eq(bench.told[j].process.id.pid, 6);
            ck_assert_uint_eq(bench.told[j].used_bytes, 210 * MIB);
            /* With the others' 130 the lease is within 160 once this one has 30 or less. */
            ck_assert_uint_eq(bench.told[j].over_bytes, 30 * MIB);
        }
    }
    ck_assert_uint_eq(n, 4);
    watch_free(bench.watch);
}
END_TEST

START_TEST(a_new_culprit_is_warned_before_it_is_killed) {
    struct watch_process first = process(5, 200 * MIB, 0), second = process(6, 300 * MIB, 0);
    struct bench bench;
    bool was_warned = false;

    bench_init(&bench);
    for (int i = 0; i < 24; i++)
        turn(&bench, 1, 100 * MIB, &first, 1);
    ck_assert_int_eq(watch_step_of(bench.watch, 1, &first.id, &gpu), WATCH_TERM);
    for (int i = 0; i < 40; i++) {
        turn(&bench, 1, 100 * MIB, &second, 1);
        if (bench.n && bench.told[0].step == WATCH_KILL)
            ck_assert(was_warned);
        was_warned |= bench.n && bench.told[0].step == WATCH_TERM;
    }
    ck_assert(was_warned);
    watch_free(bench.watch);
}
END_TEST

START_TEST(displays_and_mps_servers_are_never_signalled) {
    struct watch_process server = process(5, 900 * MIB, 0);
    struct bench bench;

    for (uint32_t kind = SAMPLE_MPS_SERVER; kind <= SAMPLE_DISPLAY; kind <<= 1) {
        bench_init(&bench);
        bench.rules.unmanaged = WATCH_TERMINATE;
        server.kinds = kind;
        for (int i = 0; i < 100; i++) {
            turn(&bench, i % 2, 100 * MIB, &server, 1);
            for (size_t j = 0; j < bench.n; j++)
                ck_assert_int_lt(bench.told[j].step, WATCH_TERM);
        }
        watch_free(bench.watch);
    }
}
END_TEST

START_TEST(what_slurm_or_an_engine_started_is_ended_only_by_name) {
    struct watch_process job = process(5, MIB, 0);
    struct bench bench;

    for (unsigned owner = CGROUP_OWNER_SLURM; owner < N_CGROUP_OWNERS; owner++)
        for (unsigned named = CGROUP_OWNER_NONE; named < N_CGROUP_OWNERS; named++) {
            enum watch_step highest = WATCH_FINE;

            bench_init(&bench);
            bench.rules.unmanaged = WATCH_TERMINATE;
            bench.rules.terminate_also = named ? 1u << named : 0;
            job.owner = (enum cgroup_owner)owner;
            for (int k = 0; k < 60; k++) {
                turn(&bench, 0, 0, &job, 1);
                for (size_t j = 0; j < bench.n; j++) {
                    highest = MAX(highest, bench.told[j].step);
                    if (owner != named)
                        ck_assert_ptr_nonnull(strstr(bench.told[j].reason, "is left to it"));
                }
            }
            ck_assert_int_eq(highest, owner == named ? WATCH_KILL : WATCH_LOG);
            watch_free(bench.watch);
        }
}
END_TEST

START_TEST(unmanaged_processes_are_treated_as_policy_says) {
    static const struct {
        enum watch_unmanaged policy;
        enum watch_step highest;
        size_t n;
    } cases[] = {
        { WATCH_ALLOW, WATCH_FINE, 0 },
        { WATCH_WARN, WATCH_LOG, 1 },
        { WATCH_TERMINATE, WATCH_KILL, 3 }, /* there is no growth to refuse */
    };
    struct watch_process stranger = process(5, MIB, 0);
    struct bench bench;

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        enum watch_step highest = WATCH_FINE;
        size_t n = 0;

        bench_init(&bench);
        bench.rules.unmanaged = cases[i].policy;
        for (int k = 0; k < 60; k++) {
            turn(&bench, 0, 0, &stranger, 1);
            for (size_t j = 0; j < bench.n; j++, n++) {
                highest = MAX(highest, bench.told[j].step);
                ck_assert_uint_eq(bench.told[j].over_bytes, 0);
            }
        }
        ck_assert_uint_eq(n, cases[i].n);
        ck_assert_int_eq(highest, cases[i].highest);
        watch_free(bench.watch);
    }
}
END_TEST

START_TEST(a_clock_that_jumps_hurries_no_process) {
    struct watch_process hog = process(5, 200 * MIB, 0);
    struct bench bench;

    bench_init(&bench);
    bench.now_usec = 1000 * SEC;
    for (int i = 0; i < 3; i++)
        turn(&bench, 1, 100 * MIB, &hog, 1);
    ck_assert_uint_eq(bench.n, 1);
    bench.now_usec = 0;
    turn(&bench, 1, 100 * MIB, &hog, 1);
    ck_assert_uint_eq(bench.n, 0);
    bench.now_usec = 100000 * SEC; /* suspended: one step, not three */
    turn(&bench, 1, 100 * MIB, &hog, 1);
    ck_assert_uint_eq(bench.n, 1);
    ck_assert_int_eq(bench.told[0].step, WATCH_REFUSE);
    watch_free(bench.watch);
}
END_TEST

/* Whatever is shown, a process within its limit is told nothing but that it is fine again. */
START_TEST(walks_never_touch_processes_within_their_limit) {
    struct watch_process processes[4][3];
    struct watch_subject subjects[4];
    uint64_t random = 42;
    struct bench bench;

    bench_init(&bench);
    bench.rules.n_samples = 2;
    bench.rules.step_usec = 2 * SEC;
    for (int step = 0; step < 20000; step++) {
        bool is_over[4];

        for (size_t i = 0; i < 4; i++) {
            uint64_t used = 0;

            for (size_t j = 0; j < 3; j++) {
                processes[i][j] =
                    process((pid_t)(10 * i + j + 1), (random_next(&random) % 80) * MIB, 20 * MIB);
                processes[i][j].has_used = random_next(&random) % 8 != 0;
                used += processes[i][j].has_used ? processes[i][j].used_bytes : 0;
            }
            subjects[i] = (struct watch_subject){ i + 1, gpu, 100 * MIB, 3, processes[i] };
            is_over[i] = used > 110 * MIB;
        }
        bench.n = 0;
        bench.now_usec += SEC;
        watch_turn(bench.watch, &bench.rules, bench.now_usec, subjects, random_next(&random) % 5,
                   act, &bench);
        for (size_t j = 0; j < bench.n; j++) {
            const struct watch_action *action = &bench.told[j];

            ck_assert_int_eq(action->step != WATCH_FINE, is_over[action->lease - 1]);
            if (action->step >= WATCH_TERM)
                ck_assert(action->process.has_used &&
                          action->process.used_bytes > action->over_bytes);
        }
    }
    watch_free(bench.watch);
}
END_TEST

SUITE("watch", the_ladder_is_climbed_a_step_at_a_time, a_sample_under_the_limit_ends_it,
      a_dry_run_says_and_does_nothing, readings_that_are_not_available_neither_accuse_nor_acquit,
      only_the_process_that_exceeds_its_limit_is_dealt_with,
      a_new_culprit_is_warned_before_it_is_killed, displays_and_mps_servers_are_never_signalled,
      unmanaged_processes_are_treated_as_policy_says,
      what_slurm_or_an_engine_started_is_ended_only_by_name, a_clock_that_jumps_hurries_no_process,
      walks_never_touch_processes_within_their_limit)
