/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sim/box/utilization.h"
#include "sim/box/devnode.h"
#include "sim/box/proc.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

START_TEST(utilization_is_the_busy_part_of_the_last_second) {
    struct utilization_readings readings;
    struct sim_box s;
    uint32_t slot;
    uint64_t now;

    sim_box_init(&s, NULL);
    box_lock(s.box);
    ck_assert_int_eq(proc_join(s.box, &slot), 0);
    now = box_now_ns();
    /* Half of the second and a half before now, in pieces of 10 ms. */
    for (uint64_t t = now - 1500000000; t < now; t += 20000000)
        utilization_note(s.box, slot, 0, UTILIZATION_COMPUTE, t, t + 10000000);
    utilization_note(s.box, slot, 1, UTILIZATION_MEMORY, now - 1500000000, now);
    utilization_read(s.box, 0, &readings);
    ck_assert_uint_ge(readings.utilization, 45);
    ck_assert_uint_le(readings.utilization, 55);
    ck_assert_uint_eq(readings.memory_utilization, 0);
    ck_assert_uint_gt(readings.power_mw, box_model(s.box, 0)->power_idle_mw);
    utilization_read(s.box, 1, &readings);
    ck_assert_uint_ge(readings.memory_utilization, 93);
    ck_assert_uint_ge(utilization_of_process(s.box, slot, 1, UTILIZATION_MEMORY), 93);
    ck_assert_uint_eq(utilization_of_process(s.box, slot, 1, UTILIZATION_COMPUTE), 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

START_TEST(work_side_by_side_is_busy_once) {
    struct utilization_readings readings;
    struct sim_box s;
    uint32_t slot;
    uint64_t now;

    sim_box_init(&s, NULL);
    box_lock(s.box);
    ck_assert_int_eq(proc_join(s.box, &slot), 0);
    now = box_now_ns();
    for (int stream = 0; stream < 8; stream++)
        utilization_note(s.box, slot, 0, UTILIZATION_COMPUTE, now - 1500000000, now);
    utilization_read(s.box, 0, &readings);
    ck_assert_uint_le(readings.utilization, 100);
    utilization_note(s.box, slot, 99, UTILIZATION_COMPUTE, 0, now);
    utilization_note(s.box, PROC_NONE, 0, UTILIZATION_COMPUTE, 0, now);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

START_TEST(an_idle_gpu_is_cool_and_slow_and_a_fixed_reading_stays) {
    struct utilization_readings readings;
    struct sim_box s;

    sim_box_init(&s, NULL);
    box_lock(s.box);
    utilization_read(s.box, 0, &readings);
    ck_assert_uint_eq(readings.utilization, 0);
    ck_assert_uint_eq(readings.temperature_c, box_model(s.box, 0)->temperature_idle_c);
    ck_assert_uint_eq(readings.performance_state, 8);
    s.box->file->gpu[0].temperature = (struct box_setting){ 1, 88 };
    s.box->file->gpu[0].utilization = (struct box_setting){ 1, 100 };
    utilization_read(s.box, 0, &readings);
    ck_assert_uint_eq(readings.temperature_c, 88);
    ck_assert_uint_eq(readings.performance_state, 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

START_TEST(without_device_nodes_every_gpu_is_visible) {
    struct box_spec spec = { .n_gpus = 3, .seed = 1, .dev_dir = "/nonexistent" };
    struct sim_box s;

    sim_box_init(&s, &spec);
    ck_assert_uint_eq(devnode_visible_gpus(s.box), 7);
    sim_box_done(&s);
}
END_TEST

static int count_as_nobody(struct sim_box *s, void *argument) {
    const uint32_t *expected = argument;

    if (setuid(65534) < 0)
        return 2;
    return devnode_visible_gpus(s->box) != *expected;
}

START_TEST(a_node_that_is_missing_or_refused_hides_its_gpu) {
    struct box_spec spec = { .n_gpus = 3, .seed = 1, .minors = "4,5,6" };
    char dir[] = "/tmp/allot-nodes-XXXXXX", path[64];
    uint32_t expected = 2; /* minor 5 alone is open to all users */
    struct sim_box s;

    if (geteuid() != 0)
        return; /* device nodes are root's to make */
    ck_assert_ptr_nonnull(mkdtemp(dir));
    chmod(dir, 0755);
    spec.dev_dir = dir;
    sim_box_init(&s, &spec);
    for (int minor = 4; minor <= 5; minor++) {
        snprintf(path, sizeof(path), "%s/nvidia%d", dir, minor);
        ck_assert_int_eq(mknod(path, S_IFCHR | 0600, makedev(195, minor)), 0);
        ck_assert_int_eq(chmod(path, minor == 5 ? 0666 : 0600), 0);
    }
    ck_assert_uint_eq(devnode_visible_gpus(s.box), 3);
    sim_box_expect_success(sim_box_fork(count_as_nobody, &s, &expected));
    for (int minor = 4; minor <= 5; minor++) {
        snprintf(path, sizeof(path), "%s/nvidia%d", dir, minor);
        unlink(path);
    }
    rmdir(dir);
    sim_box_done(&s);
}
END_TEST

SUITE("utilization", utilization_is_the_busy_part_of_the_last_second,
      work_side_by_side_is_busy_once, an_idle_gpu_is_cool_and_slow_and_a_fixed_reading_stays,
      without_device_nodes_every_gpu_is_visible, a_node_that_is_missing_or_refused_hides_its_gpu)
