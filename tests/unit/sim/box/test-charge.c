/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "sim/box/cgroup.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

static const struct box_part first = { 0, 0 };

static uint32_t join(struct sim_box *s) {
    uint32_t slot;

    ck_assert_int_eq(box_lock(s->box), 0);
    ck_assert_int_eq(proc_join(s->box, &slot), 0);
    box_unlock(s->box);
    return slot;
}

START_TEST(bytes_are_charged_in_whole_granules) {
    struct sim_box s;
    uint32_t slot;

    sim_box_init(&s, NULL);
    slot = join(&s);
    box_lock(s.box);
    ck_assert_int_eq(charge_take(s.box, slot, first, 1, NULL), 0);
    ck_assert_uint_eq(charge_held(s.box, slot, first), BOX_GRANULE);
    ck_assert_int_eq(charge_take(s.box, slot, first, BOX_GRANULE, NULL), 0);
    ck_assert_uint_eq(charge_held(s.box, slot, first), 2 * BOX_GRANULE);
    charge_give(s.box, slot, first, 1);
    charge_give(s.box, slot, first, BOX_GRANULE);
    ck_assert_uint_eq(charge_held(s.box, slot, first), 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

START_TEST(memory_ends_exactly_at_capacity) {
    struct allot_error err = { 0 };
    struct charge_sums sums;
    struct sim_box s;
    uint64_t capacity;
    uint32_t slot;

    sim_box_init(&s, NULL);
    slot = join(&s);
    box_lock(s.box);
    capacity = box_capacity(s.box, first);
    ck_assert_int_eq(charge_take(s.box, slot, first, capacity + 1, &err), -ENOMEM);
    ck_assert_int_eq(charge_take(s.box, slot, first, UINT64_MAX, &err), -ENOMEM);
    ck_assert_int_eq(charge_take(s.box, slot, first, capacity, &err), 0);
    charge_sums(s.box, first, &sums);
    ck_assert_uint_eq(sums.free_bytes, 0);
    ck_assert_int_eq(charge_take(s.box, slot, first, 1, &err), -ENOMEM);
    ck_assert_ptr_nonnull(strstr(err.text, "0 bytes free"));
    /* The neighbour is another matter. */
    ck_assert_int_eq(charge_take(s.box, slot, (struct box_part){ 1, 0 }, capacity, &err), 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

/* Take 64 MiB and stay. */
static int hold(struct sim_box *s, void *argument) {
    const int *ready = argument;
    uint32_t slot;
    int r;

    box_lock(s->box);
    r = proc_join(s->box, &slot);
    if (r == 0)
        r = charge_take(s->box, slot, first, 64 * MIB, NULL);
    box_unlock(s->box);
    if (r < 0 || write(*ready, "", 1) != 1)
        return 1;
    pause();
    return 0;
}

static pid_t start_holder(struct sim_box *s) {
    int ready[2];
    pid_t pid;
    char c;

    ck_assert_int_eq(pipe(ready), 0);
    pid = sim_box_fork(hold, s, &ready[1]);
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

START_TEST(a_killed_process_gives_its_bytes_back_and_its_neighbours_keep_theirs) {
    struct sim_box s;
    pid_t a, b;

    sim_box_init(&s, NULL);
    a = start_holder(&s);
    b = start_holder(&s);
    ck_assert_uint_eq(sim_box_used(&s, 0), 128 * MIB);
    sim_box_kill(a);
    ck_assert_uint_eq(sim_box_used(&s, 0), 64 * MIB);
    sim_box_kill(b);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(with_a_release_delay_the_bytes_of_the_dead_linger) {
    const struct box_spec spec = { .n_gpus = 1, .seed = 3, .release_delay_ns = 150000000 };
    struct charge_sums sums;
    struct sim_box s;

    sim_box_init(&s, &spec);
    sim_box_kill(start_holder(&s));
    ck_assert_uint_eq(sim_box_used(&s, 0), 64 * MIB);
    box_lock(s.box);
    charge_sums(s.box, first, &sums);
    box_unlock(s.box);
    ck_assert_uint_eq(sums.releasing_bytes, 64 * MIB);
    usleep(160000);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(what_nvml_shows_may_lag_behind_the_truth) {
    const struct box_spec spec = { .n_gpus = 1, .seed = 3, .nvml_lag_ns = 100000000 };
    struct charge_sums seen;
    struct sim_box s;
    uint32_t slot;

    sim_box_init(&s, &spec);
    slot = join(&s);
    box_lock(s.box);
    charge_sums_seen(s.box, first, &seen);
    ck_assert_uint_eq(seen.used_bytes, 0);
    ck_assert_int_eq(charge_take(s.box, slot, first, 8 * MIB, NULL), 0);
    charge_sums_seen(s.box, first, &seen);
    ck_assert_uint_eq(seen.used_bytes, 0);
    box_unlock(s.box);
    usleep(110000);
    box_lock(s.box);
    charge_sums_seen(s.box, first, &seen);
    ck_assert_uint_eq(seen.used_bytes, 8 * MIB);
    ck_assert_uint_eq(charge_held_seen(s.box, slot, first), 8 * MIB);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_limit_on_the_cgroup_holds_before_the_card_is_full) {
    struct allot_error err = { 0 };
    char cgroup[BOX_CGROUP_MAX];
    uint64_t soft, hard, used, room, total;
    struct sim_box s;
    uint32_t slot;

    sim_box_init(&s, NULL);
    slot = join(&s);
    cgroup_self(cgroup, sizeof(cgroup));
    box_lock(s.box);
    ck_assert_int_eq(charge_limit_get(s.box, 0, cgroup, &soft, &hard, &used), -ENOENT);
    ck_assert_int_eq(charge_limit_set(s.box, 0, cgroup, 0, 100 * MIB), 0);
    ck_assert_int_eq(charge_limit_set(s.box, 0, "/elsewhere", 0, 2 * MIB), 0);
    ck_assert_int_eq(charge_take(s.box, slot, first, 102 * MIB, &err), -EDQUOT);
    ck_assert_ptr_nonnull(strstr(err.text, cgroup));
    ck_assert_int_eq(charge_take(s.box, slot, first, 100 * MIB, &err), 0);
    ck_assert_int_eq(charge_take(s.box, slot, first, 1, &err), -EDQUOT);
    ck_assert_int_eq(charge_take(s.box, slot, (struct box_part){ 1, 0 }, 1, &err), 0);
    charge_room(s.box, slot, first, &room, &total);
    ck_assert_uint_eq(room, 0);
    ck_assert_uint_eq(total, box_capacity(s.box, first));
    ck_assert_int_eq(charge_limit_get(s.box, 0, cgroup, &soft, &hard, &used), 0);
    ck_assert_uint_eq(hard, 100 * MIB);
    ck_assert_uint_eq(used, 100 * MIB);
    ck_assert_int_eq(charge_limit_set(s.box, 0, cgroup, 0, UINT64_MAX), 0);
    ck_assert_int_eq(charge_take(s.box, slot, first, 1, &err), 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

START_TEST(cgroups_are_below_themselves_and_their_ancestors_only) {
    ck_assert(cgroup_is_below("/a/b", "/"));
    ck_assert(cgroup_is_below("/a/b", "/a"));
    ck_assert(cgroup_is_below("/a/b", "/a/b"));
    ck_assert(cgroup_is_below("/a/b", "/a/"));
    ck_assert(!cgroup_is_below("/ab", "/a"));
    ck_assert(!cgroup_is_below("/a", "/a/b"));
}
END_TEST

/* Join segment *argument and stay. */
static int use_segment(struct sim_box *s, void *argument) {
    const uint64_t *order = argument; /* id, descriptor to report to */
    uint32_t slot;
    int r;

    box_lock(s->box);
    r = proc_join(s->box, &slot);
    if (r == 0)
        r = charge_segment_join(s->box, slot, order[0]);
    box_unlock(s->box);
    if (r < 0 || write((int)order[1], "", 1) != 1)
        return 1;
    pause();
    return 0;
}

START_TEST(shared_memory_is_charged_once_and_inherited_by_its_users) {
    uint64_t order[2];
    struct sim_box s;
    uint32_t slot;
    int ready[2];
    pid_t pid;
    char c;

    sim_box_init(&s, NULL);
    slot = join(&s);
    box_lock(s.box);
    ck_assert_int_eq(charge_take(s.box, slot, first, 32 * MIB, NULL), 0);
    ck_assert_int_eq(charge_segment_new(s.box, slot, first, 32 * MIB, &order[0]), 0);
    ck_assert_uint_eq(charge_held(s.box, slot, first), 32 * MIB);
    box_unlock(s.box);
    ck_assert_int_eq(pipe(ready), 0);
    order[1] = ready[1];
    pid = sim_box_fork(use_segment, &s, order);
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    ck_assert_uint_eq(sim_box_used(&s, 0), 32 * MIB);

    box_lock(s.box);
    charge_segment_leave(s.box, slot, order[0]);
    ck_assert_uint_eq(charge_held(s.box, slot, first), 0);
    box_unlock(s.box);
    ck_assert_uint_eq(sim_box_used(&s, 0), 32 * MIB);
    sim_box_kill(pid);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    box_lock(s.box);
    ck_assert_int_eq(charge_segment_join(s.box, slot, order[0]), -ENOENT);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

/* Become another program that waits for its standard input to end. */
static int hold_then_exec(struct sim_box *s, void *argument) {
    int *pipes = argument; /* ready, stdin */
    uint32_t slot;

    box_lock(s->box);
    if (proc_join(s->box, &slot) < 0 || charge_take(s->box, slot, first, 64 * MIB, NULL) < 0)
        return 1;
    box_unlock(s->box);
    dup2(pipes[1], 0);
    if (write(pipes[0], "", 1) != 1)
        return 1;
    execl("/bin/cat", "cat", NULL);
    return 1;
}

START_TEST(a_process_that_execs_has_let_go) {
    int ready[2], input[2], pipes[2];
    struct sim_box s;
    pid_t pid;
    char c;

    sim_box_init(&s, NULL);
    ck_assert_int_eq(pipe(ready), 0);
    ck_assert_int_eq(pipe2(input, 0), 0);
    pipes[0] = ready[1];
    pipes[1] = input[0];
    pid = sim_box_fork(hold_then_exec, &s, pipes);
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    for (int i = 0; i < 1000 && sim_box_used(&s, 0); i++)
        usleep(10000);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    sim_box_kill(pid);
    sim_box_done(&s);
}
END_TEST

START_TEST(random_charges_always_sum_up) {
    struct allot_error err = { 0 };
    uint64_t random = 5, held[2] = { 0 }, live[64] = { 0 };
    unsigned gpu[64] = { 0 };
    struct sim_box s;
    uint32_t slot;

    sim_box_init(&s, NULL);
    slot = join(&s);
    box_lock(s.box);
    for (int i = 0; i < 20000; i++) {
        const unsigned k = random_next(&random) % ELEMENTSOF(live);

        if (live[k]) {
            charge_give(s.box, slot, (struct box_part){ gpu[k], 0 }, live[k]);
            held[gpu[k]] -= (live[k] + BOX_GRANULE - 1) / BOX_GRANULE * BOX_GRANULE;
            live[k] = 0;
        } else {
            const uint64_t bytes = random_next(&random) % (1024 * MIB) + 1;
            const struct box_part part = { random_next(&random) % 2, 0 };
            const uint64_t rounded = (bytes + BOX_GRANULE - 1) / BOX_GRANULE * BOX_GRANULE;
            const bool fits = held[part.gpu] + rounded <= box_capacity(s.box, part);

            ck_assert_int_eq(charge_take(s.box, slot, part, bytes, &err), fits ? 0 : -ENOMEM);
            if (!fits)
                continue;
            live[k] = bytes;
            gpu[k] = part.gpu;
            held[part.gpu] += rounded;
        }
        ck_assert_uint_eq(charge_held(s.box, slot, first), held[0]);
        ck_assert_int_eq(i % 256 ? 0 : box_check(s.box, &err), 0);
    }
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

SUITE("charge", bytes_are_charged_in_whole_granules, memory_ends_exactly_at_capacity,
      a_killed_process_gives_its_bytes_back_and_its_neighbours_keep_theirs,
      with_a_release_delay_the_bytes_of_the_dead_linger, what_nvml_shows_may_lag_behind_the_truth,
      a_limit_on_the_cgroup_holds_before_the_card_is_full,
      cgroups_are_below_themselves_and_their_ancestors_only,
      shared_memory_is_charged_once_and_inherited_by_its_users, a_process_that_execs_has_let_go,
      random_charges_always_sum_up)
