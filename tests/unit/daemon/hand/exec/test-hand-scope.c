/* SPDX-License-Identifier: Apache-2.0 */
/* Scopes of leases over a fake systemd and the real kernel: who gets one, and what is claimed of
 * it. */
#include "daemon/hand/exec/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/enforce/process.h"
#include "tests/support/daemon/hand/fake_limit.h"
#include "tests/support/daemon/hand/fake_machine.h"
#include "tests/support/daemon/hand/fake_systemd.h"
#include "tests/support/suite.h"

#define USER    1000
#define SLICE   "/user.slice/user-1000.slice"
#define SESSION SLICE "/session-3.scope"
#define ID      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct bench {
    struct fake_systemd systemd;
    struct hand_confine_question question;
    struct hand_confined answer;
    struct allot_error err;
    pid_t pid;
};

static const struct fake_property device_rules[] = {
    { "DevicePolicy", "s", .text = "closed" },
    { "DeviceAllow", "a(ss)", .text = "/dev/kmsg" },
    { 0 },
};

/* The process that is to be confined, in `cgroup`. */
static void put_process(struct bench *bench, const char *cgroup) {
    struct process_id id;

    if (bench->pid)
        fake_machine_end(bench->pid);
    bench->pid = fake_machine_process(cgroup, USER, NULL);
    ck_assert_int_eq(process_identify(&id, bench->pid), 0);
    bench->question.confine.pid = id.pid;
    bench->question.confine.start = id.start;
}

static bool start(struct bench *bench) {
    memset(bench, 0, sizeof(*bench));
    if (!fake_machine_enter())
        return false;
    fake_machine_node("nvidia0", 195, 0);
    fake_machine_node("nvidia1", 195, 1);
    fake_machine_node("nvidia7", 195, 7);
    fake_machine_node("nvidiactl", 195, 255);
    fake_machine_node("nvidia-uvm", 235, 0);
    bench->systemd.unit_of_pid = "session-3.scope";
    bench->systemd.units[0] =
        (struct fake_unit){ "session-3.scope", "user-1000.slice", SESSION, NULL };
    fake_systemd_start(&bench->systemd);
    bench->question.confine.lease = 17;
    bench->question.confine.uid = USER;
    bench->question.confine.want_scope = true;
    bench->question.confine.n_devices = 1;
    bench->question.nodes[0] = (struct hand_node){ .has_minor = true, .minor = 0 };
    put_process(bench, SESSION);
    return true;
}

static void finish(struct bench *bench) {
    fake_machine_end(bench->pid);
    fake_systemd_stop(&bench->systemd);
    fake_machine_leave();
}

static int confine(struct bench *bench) {
    memset(&bench->answer, 0xff, sizeof(bench->answer));
    fake_systemd_forget(&bench->systemd);
    return scope_confine(DRIVER_SIM, &bench->question, &bench->answer, &bench->err);
}

/* It is not confined, and this is why. */
#define IS_NOT(bench, why)                                                                         \
    do {                                                                                           \
        ck_assert_int_eq(confine(bench), 0);                                                       \
        ck_assert_uint_eq((bench)->answer.tiers, 0);                                               \
        ck_assert_uint_eq((bench)->answer.n_details, 1);                                           \
        ck_assert_str_eq((bench)->answer.details[0], "tier 2: not in force: " why);                \
    } while (0)

static void expect_cgroup(pid_t pid, const char *cgroup) {
    char now[PROCESS_CGROUP_SIZE];

    ck_assert_int_eq(process_cgroup(now, pid), 0);
    ck_assert_str_eq(now, cgroup);
}

START_TEST(a_process_gets_a_scope_with_the_nodes_of_its_lease) {
    struct bench bench;
    char words[256];
    pid_t first;

    if (!start(&bench))
        return;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.n_details, 1);
    ck_assert_str_eq(bench.answer.details[0], "tier 2: allot-17.scope in user-1000.slice; "
                                              "/dev/nvidia1 was tried inside and refused");
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2);
    ck_assert_str_eq(bench.answer.scope, "allot-17.scope");
    ck_assert_str_eq(bench.answer.cgroup, SLICE "/allot-17.scope");
    expect_cgroup(bench.pid, SLICE "/allot-17.scope");
    ck_assert(fake_systemd_was_asked(&bench.systemd, "\"Description\" < \"GPU lease 17\""));
    ck_assert(fake_systemd_was_asked(
        &bench.systemd,
        "( \"DevicePolicy\" < \"closed\">) ( \"DeviceAllow\" < [ ( \"/dev/nvidia0\" "
        "\"rwm\")]>) ( \"DeviceAllow\" < [ ( \"/dev/nvidiactl\" \"rwm\")]>) ( "
        "\"DeviceAllow\" < [ ( \"/dev/nvidia-uvm\" \"rwm\")]>) ( \"PIDs\""));
    /* The scope begins with a child of the hand's; the process comes when all was tried. */
    snprintf(words, sizeof(words), "( \"PIDs\" < [ %d]>)", (int)bench.pid);
    ck_assert(!fake_systemd_was_asked(&bench.systemd, words));
    snprintf(words, sizeof(words), "AttachProcessesToUnit \"allot-17.scope\" \"\" [ %d]\n",
             (int)bench.pid);
    ck_assert(fake_systemd_was_asked(&bench.systemd, words));

    /* A second process of the lease joins. */
    first = bench.pid;
    bench.pid = 0;
    put_process(&bench, SESSION);
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2);
    expect_cgroup(bench.pid, SLICE "/allot-17.scope");
    fake_machine_end(first);
    finish(&bench);
}
END_TEST

START_TEST(a_process_that_is_not_the_one_is_refused) {
    struct bench bench;

    if (!start(&bench))
        return;
    bench.question.confine.uid = USER + 1;
    ck_assert_int_eq(confine(&bench), -EPERM);
    bench.question.confine.uid = USER;
    bench.question.confine.start++;
    ck_assert_int_eq(confine(&bench), -ESRCH);
    bench.question.confine.start--;
    expect_cgroup(bench.pid, SESSION);
    ck_assert_str_eq(bench.systemd.asked, "");
    fake_machine_end(bench.pid);
    ck_assert_int_eq(confine(&bench), -ESRCH);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "has ended"));
    bench.pid = 0;
    put_process(&bench, SESSION);

    /* Nothing wanted, nothing done. */
    bench.question.confine.want_scope = false;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 0);
    ck_assert_uint_eq(bench.answer.n_details, 0);
    expect_cgroup(bench.pid, SESSION);
    finish(&bench);
}
END_TEST

START_TEST(cgroups_of_others_are_left_alone) {
    struct bench bench;
    const char *folder;

    if (!start(&bench))
        return;
    put_process(&bench, "/system.slice/docker-" ID ".scope");
    IS_NOT(&bench, "the process is in a container (docker), and its cgroup is the container's");
    put_process(&bench, "/system.slice/slurmstepd.scope/job_1");
    IS_NOT(&bench, "the process is in a Slurm step, and its cgroup is Slurm's");
    put_process(&bench, "/batch/7");
    IS_NOT(&bench, "the process is in a cgroup that another manager made");
    ck_assert(!fake_systemd_was_asked(&bench.systemd, "StartTransientUnit"));

    /* Below its unit: only in a cgroup that the user could leave by itself. */
    put_process(&bench, SESSION "/a/b");
    IS_NOT(&bench, "the process is in " SESSION "/a, below session-3.scope, and the limits there "
                   "cannot be carried over");
    folder = fake_machine_cgroup(SESSION "/a");
    ck_assert_int_eq(chown(folder, USER, USER), 0);
    IS_NOT(&bench, "the process is in " SESSION "/a/b, below session-3.scope, and the limits there "
                   "cannot be carried over");
    expect_cgroup(bench.pid, SESSION "/a/b");
    folder = fake_machine_cgroup(SESSION "/a/b");
    ck_assert_int_eq(chown(folder, USER, USER), 0);
    bench.systemd.units[0].cgroup = SLICE "/session-4.scope";
    IS_NOT(&bench, "the process has just left session-3.scope");
    bench.systemd.units[0].cgroup = SESSION;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2);
    finish(&bench);
}
END_TEST

START_TEST(what_systemd_refuses_is_not_claimed) {
    struct bench bench;

    if (!start(&bench))
        return;
    bench.systemd.fails = "Subscribe";
    IS_NOT(&bench, "systemd: Subscribe: Subscribe is refused");
    bench.systemd.fails = "GetUnitByPID";
    IS_NOT(&bench, "systemd: GetUnitByPID: GetUnitByPID is refused");
    bench.systemd.fails = "StartTransientUnit";
    IS_NOT(&bench, "systemd: StartTransientUnit: StartTransientUnit is refused");
    ck_assert_str_eq(bench.answer.scope, "");
    ck_assert_str_eq(bench.answer.cgroup, "");
    expect_cgroup(bench.pid, SESSION);
    bench.systemd.fails = "AttachProcessesToUnit";
    IS_NOT(&bench, "systemd: AttachProcessesToUnit: AttachProcessesToUnit is refused");
    ck_assert_str_eq(bench.answer.scope, "");
    bench.question.confine.lease = 18;
    bench.systemd.fails = "Get ControlGroup";
    bench.systemd.n_pass = 1;
    IS_NOT(&bench, "systemd: ControlGroup: Get ControlGroup is refused");
    bench.systemd.fails = NULL;
    bench.question.confine.lease = 19;
    bench.systemd.moves_nothing = true;
    IS_NOT(&bench, "the process was not moved into allot-19.scope");
    ck_assert_str_eq(bench.answer.scope, "");
    expect_cgroup(bench.pid, SESSION);
    finish(&bench);
}
END_TEST

START_TEST(a_scope_of_that_name_elsewhere_is_not_joined) {
    struct bench bench;

    if (!start(&bench))
        return;
    bench.systemd.units[1] =
        (struct fake_unit){ "allot-17.scope", "user-1001.slice",
                            "/user.slice/user-1001.slice/allot-17.scope", NULL };
    IS_NOT(&bench, "allot-17.scope exists already, in "
                   "/user.slice/user-1001.slice/allot-17.scope, and not in the slice of this user");
    ck_assert(!fake_systemd_was_asked(&bench.systemd, "AttachProcessesToUnit"));
    bench.systemd.fails = "Get ControlGroup";
    bench.systemd.n_pass = 1;
    IS_NOT(&bench, "systemd: ControlGroup: Get ControlGroup is refused");
    expect_cgroup(bench.pid, SESSION);
    finish(&bench);
}
END_TEST

START_TEST(device_rules_of_the_unit_hold_in_the_scope) {
    struct bench bench;
    dev_t node = makedev(195, 255);

    if (!start(&bench))
        return;
    bench.systemd.units[0].properties = device_rules;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2); /* the fake's slice refuses nothing by itself */
    ck_assert_ptr_nonnull(strstr(bench.answer.details[0], "in user-1000-allot_"));
    ck_assert_ptr_nonnull(strstr(bench.answer.cgroup, "/user-1000-allot_"));

    put_process(&bench, SESSION);
    bench.question.confine.lease = 18;
    fake_machine_filter(SLICE, &node, 1);
    IS_NOT(&bench, "the device rules of session-3.scope do not allow /dev/nvidia0");
    bench.systemd.units[0].properties = NULL;
    bench.question.confine.lease = 19; /* without rules of its own nothing else is tried */
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2);
    finish(&bench);
}
END_TEST

START_TEST(nodes_are_the_leases_and_one_other_is_tried) {
    struct bench bench;

    if (!start(&bench))
        return;
    bench.question.nodes[0].has_minor = false;
    bench.question.confine.devices[0].id = (struct gpuid){ .uuid = { 1 } };
    IS_NOT(&bench, "GPU-01000000-0000-0000-0000-000000000000 has no device node here");
    bench.question.nodes[0].has_minor = true;
    bench.question.nodes[0].minor = 3;
    IS_NOT(&bench, "GPU-01000000-0000-0000-0000-000000000000 has no device node here");
    /* Two devices on one node, and one more; an instance has the nodes of its capabilities too. */
    fake_machine_node("nvidia-caps/nvidia-cap12", 240, 12);
    fake_machine_node("nvidia-caps/nvidia-cap13", 240, 13);
    fake_machine_node("nvidia-uvm-tools", 235, 1);
    fake_machine_cover_folder("/proc/driver");
    fake_machine_file("/proc/driver/nvidia/capabilities/gpu1/mig/gi2/access",
                      "DeviceFileModify: 1\nDeviceFileMinor: 12\n");
    fake_machine_file("/proc/driver/nvidia/capabilities/gpu1/mig/gi2/ci3/access",
                      "DeviceFileMinor: 13\n");
    fake_machine_file("/proc/driver/nvidia/capabilities/gpu0/mig/gi0/access",
                      "DeviceFileMinor: 14\n");
    bench.question.confine.n_devices = 3;
    bench.question.nodes[0] = bench.question.nodes[1] =
        (struct hand_node){ .has_minor = true, .minor = 0 };
    bench.question.nodes[2] = (struct hand_node){
        .has_minor = true, .is_mig = true, .minor = 1, .gpu_instance = 2, .compute_instance = 3
    };
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2);
    ck_assert_ptr_nonnull(strstr(bench.answer.details[0], "; /dev/nvidia7 was tried"));
    ck_assert(fake_systemd_was_asked(
        &bench.systemd,
        "( \"DeviceAllow\" < [ ( \"/dev/nvidia0\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( "
        "\"/dev/nvidia1\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( \"/dev/nvidia-caps/nvidia-cap12\" "
        "\"rwm\")]>) ( \"DeviceAllow\" < [ ( \"/dev/nvidia-caps/nvidia-cap13\" \"rwm\")]>) ( "
        "\"DeviceAllow\" < [ ( \"/dev/nvidiactl\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( "
        "\"/dev/nvidia-uvm\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( \"/dev/nvidia-uvm-tools\" "
        "\"rwm\")]>) ( \"PIDs\""));

    /* Every GPU is the lease's: another device is tried, and without one nothing is claimed. */
    unlink("/dev/nvidia7");
    put_process(&bench, SESSION);
    bench.question.confine.lease = 18;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_ptr_nonnull(strstr(bench.answer.details[0], "; /dev/kmsg was tried"));
    unlink("/dev/kmsg");
    fake_machine_file("/dev/nvidia7", "no node");
    fake_machine_node("nvidia8x", 195, 8);
    put_process(&bench, SESSION);
    IS_NOT(&bench, "there is no other device node to prove it with");
    fake_machine_node("mem", 1, 1);
    bench.question.confine.lease = 19;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_ptr_nonnull(strstr(bench.answer.details[0], "; /dev/mem was tried"));
    finish(&bench);
}
END_TEST

START_TEST(without_a_filter_the_scope_is_for_the_driver_alone) {
    struct bench bench;

    if (!start(&bench))
        return;
    bench.systemd.has_no_filter = true;
    IS_NOT(&bench, "/dev/nvidia1 was not refused: the device filter does not work here");
    ck_assert_str_eq(bench.answer.scope, "allot-17.scope");
    expect_cgroup(bench.pid, SLICE "/allot-17.scope");
    put_process(&bench, SESSION);
    unlink("/dev/nvidia1");
    fake_machine_node("nvidia1", 1, 3); /* one that opens */
    bench.question.confine.lease = 18;
    IS_NOT(&bench, "/dev/nvidia1 was not refused: the device filter does not work here");
    ck_assert_str_eq(bench.answer.scope, "allot-18.scope");
    finish(&bench);
}
END_TEST

START_TEST(the_driver_limits_a_scope_of_the_leases_own) {
    struct bench bench;

    if (!start(&bench))
        return;
    fake_limit_install();
    fake_limit_say(0, "");
    bench.question.confine.want_limit = true;
    bench.question.confine.n_devices = 2;
    bench.question.confine.devices[0].id = (struct gpuid){ .uuid = { 1 } };
    bench.question.confine.devices[1].id = (struct gpuid){ .uuid = { 2 } };
    bench.question.confine.devices[0].limit_bytes = 4096;
    bench.question.confine.devices[1].limit_bytes = UINT64_MAX;
    bench.question.nodes[1] = (struct hand_node){ .has_minor = true, .minor = 1 };
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 1 | 1 << 2);
    ck_assert_uint_eq(bench.answer.n_details, 2);
    ck_assert_str_eq(bench.answer.details[1],
                     "tier 1: the driver limits allot-17.scope, and says so");
    ck_assert_str_eq(fake_limit_asked(),
                     "--driver sim set GPU-01000000-0000-0000-0000-000000000000 /run/cgroup" SLICE
                     "/allot-17.scope 4096\n"
                     "--driver sim set GPU-02000000-0000-0000-0000-000000000000 /run/cgroup" SLICE
                     "/allot-17.scope 18446744073709551615\n");

    /* All or nothing; the first reason counts, and the others are limited all the same. */
    put_process(&bench, SESSION);
    bench.question.confine.lease = 18;
    fake_limit_say(LIMIT_FAILED, "no luck\nat all");
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2);
    ck_assert_str_eq(bench.answer.details[1], "tier 1: not in force: no luck");
    ck_assert_ptr_nonnull(strstr(fake_limit_asked(), "set GPU-02"));
    put_process(&bench, SESSION);
    bench.question.confine.lease = 19;
    bench.question.nodes[0].is_mig = true;
    fake_limit_say(0, "");
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 1 << 2);
    ck_assert_str_eq(bench.answer.details[1],
                     "tier 1: not in force: the driver has no limits for MIG instances");
    ck_assert_ptr_nonnull(strstr(fake_limit_asked(), "set GPU-02"));
    ck_assert_ptr_null(strstr(fake_limit_asked(), "set GPU-01"));

    /* Not in a cgroup that has other jobs in it. */
    put_process(&bench, SESSION);
    bench.question.nodes[0].is_mig = false;
    bench.question.confine.want_scope = false;
    fake_limit_say(0, "");
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 0);
    ck_assert_uint_eq(bench.answer.n_details, 1);
    ck_assert_str_eq(bench.answer.details[0],
                     "tier 1: not in force: it needs a cgroup of the lease's own");
    ck_assert_str_eq(fake_limit_asked(), "");
    finish(&bench);
}
END_TEST

/* The process ends, and another one gets its pid before systemd moves it. */
struct impostor {
    const struct bench *bench;
    const char *cgroup;
    pid_t pid;
};

static void replace(void *userdata, pid_t pid) {
    const uint64_t tick_usec = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    struct impostor *impostor = userdata;
    struct clone_args args = { .exit_signal = SIGCHLD,
                               .set_tid = (uint64_t)(uintptr_t)&pid,
                               .set_tid_size = 1 };

    if (pid != impostor->bench->pid || impostor->pid)
        return;
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    /* One that began in the same tick of the kernel's clock could not be told from it. */
    while (clock_usec(CLOCK_BOOTTIME) / tick_usec <= impostor->bench->question.confine.start)
        sched_yield();
    if (!impostor->cgroup) {
        impostor->pid = 1;
        return;
    }
    impostor->pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (impostor->pid == 0)
        for (;;)
            pause();
    ck_assert_int_eq(impostor->pid, pid);
    ck_assert_int_eq(fake_machine_move(impostor->cgroup, pid), 0);
}

START_TEST(a_process_that_got_the_pid_meanwhile_is_put_back) {
    struct bench bench;
    struct impostor impostor = { .bench = &bench, .cgroup = SLICE };

    if (!start(&bench))
        return;
    bench.systemd.attaching = replace;
    bench.systemd.userdata = &impostor;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_uint_eq(bench.answer.tiers, 0);
    ck_assert_ptr_nonnull(strstr(bench.answer.details[0], "has ended"));
    ck_assert_str_eq(bench.answer.scope, "");
    ck_assert_int_eq(impostor.pid, bench.pid);
    expect_cgroup(impostor.pid, "/"); /* where its parent is */
    fake_machine_end(impostor.pid);

    /* Ended, and nothing has its pid. */
    bench.pid = 0;
    put_process(&bench, SESSION);
    impostor.cgroup = NULL;
    impostor.pid = 0;
    bench.question.confine.lease = 18;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_ptr_nonnull(strstr(bench.answer.details[0], "has ended"));
    bench.pid = 0;
    put_process(&bench, SESSION);
    finish(&bench);
}
END_TEST

/* The process that was meant had a child in the scope, which got its pid for a child of its own. */
static void replace_by_grandchild(void *userdata, pid_t pid) {
    struct impostor *impostor = userdata;
    const uint64_t tick_usec = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    struct clone_args args = { .exit_signal = SIGCHLD,
                               .set_tid = (uint64_t)(uintptr_t)&pid,
                               .set_tid_size = 1 };
    int ready[2];
    char c;

    if (pid != impostor->bench->pid || impostor->pid)
        return;
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    while (clock_usec(CLOCK_BOOTTIME) / tick_usec <= impostor->bench->question.confine.start)
        sched_yield();
    ck_assert_int_eq(pipe(ready), 0);
    impostor->pid = fork();
    if (impostor->pid == 0) {
        pid_t child;

        if (fake_machine_move(impostor->cgroup, getpid()) < 0)
            _exit(1);
        child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        if (child > 0 && write(ready[1], "x", 1) != 1)
            _exit(1);
        if (child < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    close(ready[0]);
}

START_TEST(a_child_of_the_job_stays_in_its_scope) {
    struct bench bench;
    struct impostor impostor = { .bench = &bench, .cgroup = SLICE "/allot-17.scope" };

    if (!start(&bench))
        return;
    bench.systemd.attaching = replace_by_grandchild;
    bench.systemd.userdata = &impostor;
    ck_assert_int_eq(confine(&bench), 0);
    ck_assert_ptr_nonnull(strstr(bench.answer.details[0], "has ended"));
    expect_cgroup(bench.pid, impostor.cgroup);
    kill(bench.pid, SIGKILL);
    fake_machine_end(impostor.pid);
    bench.pid = 0;
    put_process(&bench, SESSION);
    finish(&bench);
}
END_TEST

START_TEST(folders_are_below_the_mount) {
    struct allot_error err = { 0 };
    char folder[40];

    if (!fake_machine_enter())
        return;
    ck_assert_int_eq(scope_folder(folder, sizeof(folder), "/a.slice", &err), 0);
    ck_assert_str_eq(folder, "/run/cgroup/a.slice");
    ck_assert_int_eq(scope_folder(folder, 20, "/a.slice", &err), 0);
    ck_assert_int_eq(scope_folder(folder, 19, "/a.slice", &err), -ENAMETOOLONG);
    fake_machine_leave();
}
END_TEST

SUITE_TIMEOUT("hand-scope", 60, a_process_gets_a_scope_with_the_nodes_of_its_lease,
              a_process_that_is_not_the_one_is_refused, cgroups_of_others_are_left_alone,
              what_systemd_refuses_is_not_claimed, a_scope_of_that_name_elsewhere_is_not_joined,
              device_rules_of_the_unit_hold_in_the_scope,
              nodes_are_the_leases_and_one_other_is_tried,
              without_a_filter_the_scope_is_for_the_driver_alone,
              the_driver_limits_a_scope_of_the_leases_own,
              a_process_that_got_the_pid_meanwhile_is_put_back,
              a_child_of_the_job_stays_in_its_scope, folders_are_below_the_mount)
