/* SPDX-License-Identifier: Apache-2.0 */
/* allotd's side and its real helpers over a simulated box. */
#include "daemon/hand/hand.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/enforce/process.h"
#include "sim/box/fault.h"
#include "tests/support/daemon/hand/hand_fixture.h"

#define MIB (UINT64_C(1) << 20)

START_TEST(a_sample_says_all_about_every_device) {
    struct box_spec spec = {
        .models = "h100-80g,t4-16g,a100-40g",
        .buses = "81:00.0,3b:00.0,af:00.0",
        .minors = "2,7,0",
        .nvlink = "none",
    };
    struct hand_fixture bench;

    hand_fixture_start(&bench, &spec, 0);
    hand_fixture_run_samples(&bench, 1);
    ck_assert_uint_eq(bench.last.n_devices, 3);
    ck_assert(bench.last.is_simulated);
    ck_assert(!bench.last.cut);
    ck_assert_uint_gt(bench.last.taken_usec, 0);
    ck_assert_str_ne(bench.last.driver_version, "");
    for (unsigned i = 0; i < 3; i++) {
        static const char *const names[] = { "T4", "H100", "A100" };
        static const uint64_t minors[] = { 7, 2, 0 };
        const struct sample_device *device = &bench.last.devices[i];

        ck_assert_int_eq(device->health, SAMPLE_OK);
        ck_assert_uint_eq(device->index, i);
        ck_assert_uint_eq(device->readings.minor, minors[i]);
        ck_assert_msg(strstr(device->name, names[i]) != NULL, "%s", device->name);
        ck_assert(!device->is_mig && !device->mig_enabled);
        ck_assert_uint_gt(device->total_bytes, device->reserved_bytes);
        ck_assert_uint_eq(device->readings.has &
                              (READINGS_BIT(used_bytes) | READINGS_BIT(temperature_celsius) |
                               READINGS_BIT(power_milliwatts) | READINGS_BIT(utilization_percent) |
                               READINGS_BIT(sm_clock_mhz) | READINGS_BIT(minor)),
                          READINGS_BIT(used_bytes) | READINGS_BIT(temperature_celsius) |
                              READINGS_BIT(power_milliwatts) | READINGS_BIT(utilization_percent) |
                              READINGS_BIT(sm_clock_mhz) | READINGS_BIT(minor));
        ck_assert_uint_eq(device->n_links, 2); /* a way to each of the others */
    }
    ck_assert_uint_eq(hand_stale_since(bench.hand), 0);
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(links_are_counted) {
    struct box_spec spec = { .n_gpus = 4, .models = "a100-40g", .nvlink = "pairs" };
    struct hand_fixture bench;

    hand_fixture_start(&bench, &spec, 0);
    hand_fixture_run_samples(&bench, 1);
    for (unsigned i = 0; i < 4; i++) {
        const struct sample_device *device = &bench.last.devices[i];
        unsigned n_nvlink = 0;

        ck_assert_uint_eq(device->n_links, 3);
        for (unsigned j = 0; j < 3; j++)
            if (device->links[j].path == SAMPLE_PATH_NVLINK) {
                n_nvlink++;
                ck_assert_uint_gt(device->links[j].lanes, 0);
                ck_assert(gpuid_equal(&device->links[j].remote, &bench.last.devices[i ^ 1].id));
            }
        ck_assert_uint_eq(n_nvlink, 1);
    }
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(processes_are_shown_with_their_users) {
    struct nvml_library_hold hold = { .part = { .gpu = 1 },
                                      .bytes = 100 * MIB,
                                      .busy_percent = 80 };
    const struct sample_process *process;
    struct process_id id;
    struct hand_fixture bench;
    pid_t pid;

    hand_fixture_start(&bench, NULL, 0);
    pid = nvml_library_hold(&bench.s, &hold);
    HAND_FIXTURE_UNTIL(&bench, bench.last.n_processes == 1);
    process = bench.last.processes;
    ck_assert_int_eq(process_identify(&id, pid), 0);
    ck_assert_int_eq(process->pid, pid);
    ck_assert_uint_eq(process->start, id.start);
    ck_assert(process->has_uid && process->uid == getuid());
    ck_assert(process->has_used);
    ck_assert_uint_eq(process->used_bytes, 100 * MIB);
    ck_assert_uint_eq(process->kinds, SAMPLE_COMPUTE);
    ck_assert(gpuid_equal(&process->device, &bench.last.devices[1].id));
    ck_assert_ptr_nonnull(strstr(process->command, "test-hand"));
    ck_assert_int_eq(process->cgroup[0], '/');
    sim_box_kill(pid);
    HAND_FIXTURE_UNTIL(&bench, bench.last.n_processes == 0);
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(instances_are_devices_of_their_own) {
    struct box_spec spec = { .n_gpus = 2, .models = "a100-40g", .mig = "0:3g.20gb+3g.20gb" };
    struct nvml_library_hold hold = { .part = { .gpu = 0, .part = 2 }, .bytes = 64 * MIB };
    struct hand_fixture bench;
    pid_t pid;

    hand_fixture_start(&bench, &spec, 0);
    pid = nvml_library_hold(&bench.s, &hold);
    HAND_FIXTURE_UNTIL(&bench, bench.last.n_processes == 1);
    ck_assert_uint_eq(bench.last.n_devices, 4);
    ck_assert(bench.last.devices[0].mig_enabled && !bench.last.devices[0].is_mig);
    for (unsigned i = 1; i < 3; i++) {
        const struct sample_device *device = &bench.last.devices[i];

        ck_assert(device->is_mig);
        ck_assert_int_eq(device->id.kind, GPUID_MIG);
        ck_assert_uint_eq(device->place, i - 1);
        ck_assert_uint_eq(device->index, 0);
        ck_assert_uint_gt(device->total_bytes, UINT64_C(15) << 30);
        ck_assert_uint_lt(device->total_bytes, UINT64_C(25) << 30);
        ck_assert(gpuid_equal(&device->parent, &bench.last.devices[0].id));
    }
    ck_assert(!bench.last.devices[3].is_mig);
    ck_assert(gpuid_equal(&bench.last.processes[0].device, &bench.last.devices[2].id));
    sim_box_kill(pid);
    hand_fixture_finish(&bench);
}
END_TEST

static void inject(struct hand_fixture *bench, void (*what)(struct box *box, unsigned gpu),
                   unsigned gpu) {
    ck_assert_int_ge(box_lock(bench->s.box), 0);
    what(bench->s.box, gpu);
    box_unlock(bench->s.box);
}

static void xid_31(struct box *box, unsigned gpu) {
    fault_xid(box, gpu, 31);
}

START_TEST(events_come_as_they_happen) {
    struct hand_fixture bench;

    hand_fixture_start(&bench, NULL, 0);
    hand_fixture_run_samples(&bench, 2);
    inject(&bench, xid_31, 1);
    HAND_FIXTURE_UNTIL(&bench, bench.n_events > 0);
    ck_assert_int_eq(bench.events[0].kind, SAMPLE_EVENT_XID);
    ck_assert_uint_eq(bench.events[0].data, 31);
    ck_assert(gpuid_equal(&bench.events[0].device, &bench.last.devices[1].id));
    ck_assert_uint_gt(bench.events[0].at_usec, 0);
    hand_fixture_run_samples(&bench, 2);
    ck_assert_uint_eq(bench.n_events, 1); /* once */
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(a_lost_device_is_shown_as_lost_until_it_is_back) {
    struct hand_fixture bench;

    hand_fixture_start(&bench, NULL, 0);
    hand_fixture_run_samples(&bench, 1);
    inject(&bench, fault_lost, 0);
    HAND_FIXTURE_UNTIL(&bench, bench.last.devices[0].health == SAMPLE_LOST);
    ck_assert_uint_eq(bench.last.n_devices, 2);
    ck_assert_uint_eq(bench.last.devices[0].readings.has, 0);
    ck_assert_str_ne(bench.last.devices[0].trouble, "");
    ck_assert_int_eq(bench.last.devices[1].health, SAMPLE_OK);
    ck_assert(!gpuid_equal(&bench.last.devices[0].id, &bench.last.devices[1].id));
    inject(&bench, fault_recover, 0);
    HAND_FIXTURE_UNTIL(&bench, bench.last.devices[0].health == SAMPLE_OK);
    ck_assert_uint_eq(bench.last.n_devices, 2);
    hand_fixture_finish(&bench);
}
END_TEST

static uint32_t hang(struct hand_fixture *bench, const char *call) {
    struct box_fault fault = { .kind = FAULT_CALL_HANG, .gpu = -1 };
    uint32_t id;

    snprintf(fault.call, sizeof(fault.call), "%s", call);
    ck_assert_int_ge(box_lock(bench->s.box), 0);
    ck_assert_int_eq(fault_add(bench->s.box, &fault, &id), 0);
    box_unlock(bench->s.box);
    return id;
}

static void clear(struct hand_fixture *bench, uint32_t id) {
    ck_assert_int_ge(box_lock(bench->s.box), 0);
    ck_assert_int_eq(fault_clear(bench->s.box, id), 0);
    box_unlock(bench->s.box);
}

START_TEST(a_reader_that_hangs_is_replaced_and_readings_are_stale_meanwhile) {
    struct hand_fixture bench;
    uint64_t before;
    uint32_t id;

    hand_fixture_start(&bench, NULL, 3000000);
    hand_fixture_run_samples(&bench, 2);
    before = bench.last.taken_usec;
    id = hang(&bench, "nvmlDeviceGetMemoryInfo*");
    HAND_FIXTURE_UNTIL(&bench, bench.n_stale == 1);
    ck_assert_uint_ge(bench.stale_since, before);
    ck_assert_uint_eq(hand_stale_since(bench.hand), bench.stale_since);
    ck_assert_ptr_nonnull(strstr(bench.stale_reason, "does not answer"));
    ck_assert_uint_ge(hand_n_readers_replaced(bench.hand), 1);
    HAND_FIXTURE_UNTIL(&bench, hand_n_readers_replaced(bench.hand) >= 2); /* so is its successor */
    ck_assert_uint_eq(bench.n_stale, 1);                                  /* told once */
    ck_assert_uint_eq(hand_n_replaced(bench.hand), 0); /* the other one has nothing to do with it */
    clear(&bench, id);
    hand_fixture_run_samples(&bench, 1);
    ck_assert_uint_eq(hand_stale_since(bench.hand), 0);
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(a_call_that_hangs_is_answered_all_the_same) {
    struct nvml_library_hold hold = { .bytes = 100 * MIB };
    struct hand_signal signal = { .signal = SIGKILL };
    struct hand_excess excess = { 0 };
    struct process_id id;
    struct hand_fixture bench;
    uint32_t fault;
    pid_t pid;

    hand_fixture_start(&bench, NULL, 3000000);
    pid = nvml_library_hold(&bench.s, &hold);
    hand_fixture_run_samples(&bench, 1);
    ck_assert_int_eq(process_identify(&id, pid), 0);
    signal.pid = pid;
    signal.start = id.start;
    excess.device = bench.last.devices[0].id;
    fault = hang(&bench, "nvmlDeviceGetComputeRunningProcesses*");
    /* A sample may be stuck already; then this is stuck in the second reader. */
    ck_assert_int_eq(hand_signal_over(bench.hand, &signal, &excess, hand_fixture_done, &bench), 0);
    ck_assert_uint_eq(bench.n_answers, 0);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -ETIMEDOUT);
    ck_assert_str_ne(bench.err.text, "");
    clear(&bench, fault);
    ck_assert_int_eq(kill(pid, 0), 0);
    sim_box_kill(pid);
    hand_fixture_finish(&bench);
}
END_TEST

/* The helper of that name: a child of ours. */
static pid_t find_helper(const char *name) {
    char path[64], comm[32];
    cleanup(fclosep) FILE *children = NULL;
    int pid;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    children = fopen(path, "re");
    ck_assert_ptr_nonnull(children);
    while (fscanf(children, "%d", &pid) == 1) {
        cleanup(fclosep) FILE *f = NULL;

        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        f = fopen(path, "re");
        if (f && fscanf(f, "%31s", comm) == 1 && strcmp(comm, name) == 0)
            return pid;
    }
    ck_abort_msg("there is no %s", name);
}

START_TEST(a_helper_that_is_killed_is_replaced_and_the_other_one_stays) {
    struct hand_fixture bench;
    struct sample_device first;

    hand_fixture_start(&bench, NULL, 0);
    hand_fixture_run_samples(&bench, 1);
    first = bench.last.devices[0];
    for (unsigned round = 0; round < 6; round++) {
        bool is_reader = round % 2;
        pid_t pid = find_helper(is_reader ? "allot-reader" : "allot-hand");
        pid_t other = find_helper(is_reader ? "allot-hand" : "allot-reader");

        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        HAND_FIXTURE_UNTIL(
            &bench, hand_n_replaced(bench.hand) + hand_n_readers_replaced(bench.hand) == round + 1);
        ck_assert_uint_eq(hand_n_readers_replaced(bench.hand), (round + 1) / 2);
        hand_fixture_run_samples(&bench, 1);
        ck_assert(gpuid_equal(&first.id, &bench.last.devices[0].id));
        ck_assert_uint_eq(hand_stale_since(bench.hand), 0);
        ck_assert_int_eq(find_helper(is_reader ? "allot-hand" : "allot-reader"), other);
        /* Reaped: no zombies gather. */
        HAND_FIXTURE_UNTIL(&bench,
                           waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT) < 0);
    }
    hand_fixture_finish(&bench);
}
END_TEST

/* Whether a line of /proc/PID/FILE has these words. */
static bool has_line(pid_t pid, const char *file, const char *words) {
    char path[64], line[512];
    cleanup(fclosep) FILE *f = NULL;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f))
        if (strstr(line, words))
            return true;
    return false;
}

START_TEST(the_hand_has_nothing_of_nvidias_and_the_reader_has_no_rights) {
    struct hand_fixture bench;
    pid_t hand, reader;

    hand_fixture_start(&bench, NULL, 0);
    hand_fixture_run_samples(&bench, 1);
    hand_probe(bench.hand, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    hand = find_helper("allot-hand");
    reader = find_helper("allot-reader");
    ck_assert(has_line(reader, "status", "CapEff:\t0000000000000000"));
    ck_assert(has_line(reader, "status", "CapPrm:\t0000000000000000"));
    ck_assert(has_line(reader, "status", "NoNewPrivs:\t1"));
    if (getuid() == 0) { /* else it is not for us to see */
        ck_assert(has_line(reader, "maps", "libnvidia-ml"));
        ck_assert(!has_line(hand, "maps", "libnvidia"));
        ck_assert(!has_line(hand, "maps", "libcuda"));
    }
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(a_closed_device_stays_closed_over_a_replacement) {
    struct gpuid gpu, nobody = { .uuid = { 9 } };
    struct hand_fixture bench;
    uint32_t id;

    hand_fixture_start(&bench, NULL, 3000000);
    hand_fixture_run_samples(&bench, 1);
    gpu = bench.last.devices[0].id;
    hand_close_device(bench.hand, &nobody, true, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -ENOENT);
    hand_close_device(bench.hand, &gpu, true, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, 0);
    hand_fixture_run_samples(&bench, 1);
    for (int round = 0; round < 2; round++) {
        ck_assert_uint_eq(bench.last.n_devices, 2);
        ck_assert_int_eq(bench.last.devices[0].health, SAMPLE_CLOSED);
        ck_assert(gpuid_equal(&bench.last.devices[0].id, &gpu));
        ck_assert(!(bench.last.devices[0].readings.has & READINGS_BIT(used_bytes)));
        ck_assert_int_eq(bench.last.devices[1].health, SAMPLE_OK);
        id = hang(&bench, "nvmlDeviceGetMemoryInfo*");
        HAND_FIXTURE_UNTIL(&bench, hand_n_readers_replaced(bench.hand) > (unsigned)round);
        clear(&bench, id);
        hand_fixture_run_samples(&bench, 1);
    }
    hand_close_device(bench.hand, &gpu, false, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, 0);
    HAND_FIXTURE_UNTIL(&bench, bench.last.devices[0].health == SAMPLE_OK);
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(what_cannot_be_enforced_is_not_claimed) {
    struct hand_confine confine = { .lease = 1,
                                    .pid = getpid(),
                                    .want_scope = true,
                                    .want_limit = true,
                                    .n_devices = 1,
                                    .uid = getuid() };
    struct process_id id;
    struct hand_fixture bench;

    hand_fixture_start(&bench, NULL, 0);
    hand_fixture_run_samples(&bench, 1);
    ck_assert_int_eq(process_identify(&id, getpid()), 0);
    confine.start = id.start;
    confine.devices[0].id = bench.last.devices[0].id;
    confine.uid++;
    hand_confine(bench.hand, &confine, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -EPERM);
    confine.uid--;
    confine.start++;
    hand_confine(bench.hand, &confine, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -ESRCH);
    confine.start--;
    confine.n_devices = HAND_DEVICES_MAX + 1;
    hand_confine(bench.hand, &confine, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -ECONNRESET);
    HAND_FIXTURE_UNTIL(&bench,
                       hand_n_replaced(bench.hand) == 1); /* with such a peer it does not talk */
    hand_fixture_run_samples(&bench, 1);

    hand_probe(bench.hand, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, 0);
    ck_assert_msg(bench.answer.probes.tiers[5].proven, "%s", bench.answer.probes.tiers[5].detail);
    ck_assert(!bench.answer.probes.tiers[3].proven && !bench.answer.probes.tiers[4].proven);
    if (sd_booted() > 0) {
        printf("skipped: this machine was booted by systemd, tests/systemd tries the rest\n");
        hand_fixture_finish(&bench);
        return;
    }
    ck_assert(!bench.answer.probes.tiers[1].proven && !bench.answer.probes.tiers[2].proven);
    ck_assert_ptr_nonnull(strstr(bench.answer.probes.tiers[2].detail, "systemd"));
    confine.n_devices = 1;
    hand_confine(bench.hand, &confine, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, 0);
    ck_assert_uint_eq(bench.answer.confined.tiers, 0);
    ck_assert_str_eq(bench.answer.confined.scope, "");
    ck_assert_uint_eq(bench.answer.confined.n_details, 2);
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(answers_come_once_each_until_the_hand_goes) {
    struct hand_signal signal = { .signal = SIGTERM, .pid = 1 };
    struct hand_fixture bench;

    hand_fixture_start(&bench, NULL, 0);
    for (size_t i = 0; i < 10; i++)
        ck_assert_int_eq(hand_signal(bench.hand, &signal, hand_fixture_done, &bench), 0);
    HAND_FIXTURE_UNTIL(&bench, bench.n_answers == 10);
    hand_fixture_run_samples(&bench, 2);
    ck_assert_uint_eq(bench.n_answers, 10);
    hand_probe(bench.hand, hand_fixture_done, &bench); /* dropped with the hand */
    hand_fixture_finish(&bench);
    ck_assert_uint_eq(bench.n_answers, 10);
}
END_TEST

START_TEST(a_missing_driver_is_reported_and_tried_again) {
    struct hand_fixture bench;
    char away[PATH_MAX + 8];

    hand_fixture_start(&bench, NULL, 0);
    hand_fixture_run_samples(&bench, 1);
    snprintf(away, sizeof(away), "%s.away", bench.s.path);
    ck_assert_int_eq(rename(bench.s.path, away), 0);
    hand_free(bench.hand);
    bench.hand = NULL;
    {
        struct hand_options options = {
            .event = bench.event,
            .driver = DRIVER_SIM,
            .hand.program = ALLOT_HAND,
            .reader.program = ALLOT_READER,
            .period_usec = 50000,
            .watcher = hand_fixture_watcher(&bench),
        };

        bench.n_stale = 0;
        ck_assert_int_eq(hand_new(&bench.hand, &options, NULL), 0);
    }
    HAND_FIXTURE_UNTIL(&bench, bench.n_stale == 1);
    ck_assert_uint_eq(bench.stale_since, 0);
    ck_assert_uint_eq(hand_stale_since(bench.hand), 1);
    ck_assert_int_eq(rename(away, bench.s.path), 0);
    bench.n_samples = 0;
    hand_fixture_run_samples(&bench, 1);
    ck_assert_uint_eq(hand_stale_since(bench.hand), 0);
    ck_assert_uint_eq(hand_n_replaced(bench.hand) + hand_n_readers_replaced(bench.hand), 0);
    hand_fixture_finish(&bench);
}
END_TEST

static int no_hand(const char *program, const char *socket_path, struct hand **ret, sd_event *event,
                   struct hand_fixture *bench, struct allot_error *err) {
    struct hand_options options = {
        .event = event,
        .hand = { .socket = socket_path, .program = program },
        .reader = { .socket = socket_path, .program = program },
        .period_usec = 20000,
        .watcher = hand_fixture_watcher(bench),
    };

    return hand_new(ret, &options, err);
}

START_TEST(programs_that_are_no_hand_do_no_harm) {
    struct allot_error err = { 0 };
    struct hand_fixture bench = { 0 };
    struct hand *hand;

    ck_assert_int_ge(sd_event_new(&bench.event), 0);
    ck_assert_int_eq(no_hand("/nonexistent", NULL, &hand, bench.event, &bench, &err), -ENOENT);
    ck_assert_int_eq(no_hand(NULL, "/nonexistent", &hand, bench.event, &bench, &err), -ENOENT);
    ck_assert_str_ne(err.text, "");
    ck_assert_int_eq(no_hand("/bin/true", NULL, &hand, bench.event, &bench, &err), 0);
    HAND_FIXTURE_UNTIL(&bench, hand_n_replaced(hand) >= 3);
    ck_assert_uint_eq(bench.n_stale, 1);
    hand_free(hand);
    sd_event_unref(bench.event);
}
END_TEST

SUITE_TIMEOUT("hand", 120, a_sample_says_all_about_every_device, links_are_counted,
              processes_are_shown_with_their_users, instances_are_devices_of_their_own,
              events_come_as_they_happen, a_lost_device_is_shown_as_lost_until_it_is_back,
              a_reader_that_hangs_is_replaced_and_readings_are_stale_meanwhile,
              a_call_that_hangs_is_answered_all_the_same,
              a_helper_that_is_killed_is_replaced_and_the_other_one_stays,
              the_hand_has_nothing_of_nvidias_and_the_reader_has_no_rights,
              a_closed_device_stays_closed_over_a_replacement,
              what_cannot_be_enforced_is_not_claimed, answers_come_once_each_until_the_hand_goes,
              a_missing_driver_is_reported_and_tried_again, programs_that_are_no_hand_do_no_harm)
