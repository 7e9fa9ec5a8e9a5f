/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that the real allot-hand sends: to which processes, and with whose rights. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/enforce/process.h"
#include "tests/support/daemon/hand/hand_fixture.h"

#define MIB (UINT64_C(1) << 20)

START_TEST(a_process_is_signalled_only_if_it_is_the_one_and_still_over) {
    struct nvml_library_hold hold = { .bytes = 100 * MIB };
    struct hand_signal signal = { .signal = SIGTERM };
    struct hand_excess excess;
    struct process_id id;
    struct hand_fixture bench;
    int status;
    pid_t pid;

    hand_fixture_start(&bench, NULL, 0);
    sigaction(SIGTERM, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL); /* Check has its own */
    pid = nvml_library_hold(&bench.s, &hold);
    hand_fixture_run_samples(&bench, 1);
    ck_assert_int_eq(process_identify(&id, pid), 0);
    signal.pid = pid;
    signal.start = id.start + 1;
    hand_signal(bench.hand, &signal, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -ESRCH); /* another process of that pid */

    signal.start = id.start;
    excess.device = bench.last.devices[0].id;
    excess.over_bytes = 100 * MIB;
    hand_signal_over(bench.hand, &signal, &excess, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, 0);
    ck_assert_uint_eq(bench.answer.signalled.n_processes, 0);
    ck_assert(bench.answer.signalled.has_used);
    ck_assert_uint_eq(bench.answer.signalled.used_bytes, 100 * MIB);

    excess.device = bench.last.devices[1].id; /* it is not on that one at all */
    excess.over_bytes = 0;
    hand_signal_over(bench.hand, &signal, &excess, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, 0);
    ck_assert_uint_eq(bench.answer.signalled.n_processes, 0);
    ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);

    excess.device = bench.last.devices[0].id;
    excess.over_bytes = 100 * MIB - 1;
    hand_signal_over(bench.hand, &signal, &excess, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, 0);
    ck_assert_uint_eq(bench.answer.signalled.n_processes, 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    hand_fixture_finish(&bench);
}
END_TEST

/* A process of a user's that waits for a signal. */
static pid_t start_sleeper(uid_t uid) {
    int ready[2];
    char c;
    pid_t pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        if (setresuid(uid, uid, uid) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

START_TEST(a_users_signal_reaches_what_the_user_could_signal) {
    static const struct {
        uid_t target;
        bool as_user;
        uint32_t uid;
        int r;
    } cases[] = {
        { 4711, true, 4711, 0 }, { 4712, true, 4711, -EPERM }, { 0, true, 4711, -EPERM },
        { 0, false, 4711, 0 },   { 4712, true, 0, 0 },         { 4712, true, UINT32_MAX, -EINVAL },
    };
    struct hand_fixture bench;

    if (getuid() != 0) {
        printf("skipped: only root has processes of other users\n");
        return;
    }
    hand_fixture_start(&bench, NULL, 0);
    sigaction(SIGTERM, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL); /* Check has its own */
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        pid_t pid = start_sleeper(cases[i].target);
        struct hand_signal signal = {
            .signal = SIGTERM, .as_user = cases[i].as_user, .uid = cases[i].uid, .pid = pid
        };
        struct process_id id;
        int status;

        ck_assert_int_eq(process_identify(&id, pid), 0);
        signal.start = id.start;
        hand_signal(bench.hand, &signal, hand_fixture_done, &bench);
        hand_fixture_run_answer(&bench);
        ck_assert_msg(bench.r == cases[i].r, "case %zu: %d %s", i, bench.r, bench.err.text);
        if (cases[i].r == 0)
            ck_assert_uint_eq(bench.answer.signalled.n_processes, 1);
        else
            ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status));
        ck_assert_int_eq(WTERMSIG(status), cases[i].r == 0 ? SIGTERM : SIGKILL);
    }
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(only_cgroups_of_leases_are_signalled) {
    static const char *const cgroups[] = {
        "",
        "/",
        "/user.slice",
        "allot-1.scope",
        "/user.slice/allot-.scope",
        "/user.slice/allot-1.scope/below",
        "/user.slice/allot-1x.scope",
        "/user.slice/../allot-1.scope",
        "/system.slice/ssh.service",
    };
    struct hand_signal signal = { .signal = SIGTERM };
    struct hand_fixture bench;

    hand_fixture_start(&bench, NULL, 0);
    for (size_t i = 0; i < ELEMENTSOF(cgroups); i++) {
        snprintf(signal.cgroup, sizeof(signal.cgroup), "%s", cgroups[i]);
        hand_signal(bench.hand, &signal, hand_fixture_done, &bench);
        hand_fixture_run_answer(&bench);
        ck_assert_msg(bench.r == -EPERM, "%s: %d", cgroups[i], bench.r);
    }
    signal.cgroup[0] = 0;
    signal.pid = 1;
    hand_signal(bench.hand, &signal, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -EPERM);
    hand_fixture_finish(&bench);
}
END_TEST

START_TEST(a_question_that_makes_no_sense_ends_the_hand) {
    const struct hand_signal signals[] = {
        { .signal = 4711, .pid = getpid() },
        { .signal = SIGTERM, .pid = -1 },
        { .signal = SIGTERM, .pid = getpid(), .cgroup = "/allot-1.scope" },
    };
    struct hand_signal unended = { .signal = SIGTERM };
    struct hand_fixture bench;

    hand_fixture_start(&bench, NULL, 0);
    memset(unended.cgroup, 'x', sizeof(unended.cgroup));
    hand_signal(bench.hand, &unended, hand_fixture_done, &bench);
    hand_fixture_run_answer(&bench);
    ck_assert_int_eq(bench.r, -ECONNRESET);
    for (size_t i = 0; i < ELEMENTSOF(signals); i++) {
        hand_signal(bench.hand, &signals[i], hand_fixture_done, &bench);
        hand_fixture_run_answer(&bench);
        ck_assert_msg(bench.r == -ECONNRESET, "%zu: %d", i, bench.r);
    }
    hand_fixture_finish(&bench);
}
END_TEST

SUITE_TIMEOUT("hand-signal", 120, a_process_is_signalled_only_if_it_is_the_one_and_still_over,
              a_users_signal_reaches_what_the_user_could_signal,
              only_cgroups_of_leases_are_signalled, a_question_that_makes_no_sense_ends_the_hand)
