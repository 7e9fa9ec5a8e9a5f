/* SPDX-License-Identifier: Apache-2.0 */
/* What the hand proves by trying it: the tiers, and locked mode; and the child that tries. */
#include "daemon/hand/exec/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/hand/exec/driver_limit.h"
#include "daemon/hand/exec/lock.h"
#include "daemon/hand/exec/probe_child.h"
#include "tests/support/daemon/hand/fake_limit.h"
#include "tests/support/daemon/hand/fake_machine.h"
#include "tests/support/daemon/hand/fake_systemd.h"
#include "tests/support/suite.h"

#define DROP_IN "90-allot-locked.conf"
#define SCOPES  LOCK_DIR "/session-.scope.d/"
#define USERS   LOCK_DIR "/user@.service.d/"
#define GPU     "GPU-01000000-0000-0000-0000-000000000000"

static bool start(struct fake_systemd *systemd) {
    memset(systemd, 0, sizeof(*systemd));
    if (!fake_machine_enter())
        return false;
    fake_machine_node("nvidia1", 195, 1);
    fake_machine_node("nvidia0", 195, 0);
    systemd->units[0] = (struct fake_unit){ "session-3.scope", "user-1.slice", "/s", NULL };
    systemd->units[1] = (struct fake_unit){ "user@1.service", "user-1.slice", "/u", NULL };
    fake_systemd_start(systemd);
    return true;
}

static void finish(struct fake_systemd *systemd) {
    fake_systemd_stop(systemd);
    fake_machine_leave();
}

/* ---- Probes ------------------------------------------------------------------------------------
 */

static struct hand_probes probe(struct fake_systemd *systemd, bool has_gpu) {
    struct hand_probe_question question = { .has_gpu = has_gpu, .gpu = { .uuid = { 1 } } };
    struct hand_probes probes;

    fake_systemd_forget(systemd);
    memset(&probes, 0xff, sizeof(probes));
    for (size_t i = 2; i < ELEMENTSOF(systemd->units); i++)
        systemd->units[i] = (struct fake_unit){ 0 };
    probe_all(DRIVER_SIM, &question, &probes);
    ck_assert(!probes.tiers[0].proven && !probes.tiers[3].proven && !probes.tiers[4].proven);
    ck_assert_str_eq(probes.tiers[3].detail, "");
    return probes;
}

#define IS(probes, tier, is_proven, text)                                                          \
    do {                                                                                           \
        ck_assert_int_eq((probes).tiers[tier].proven, is_proven);                                  \
        ck_assert_str_eq((probes).tiers[tier].detail, text);                                       \
    } while (0)

START_TEST(tiers_are_proven_by_what_was_refused) {
    struct fake_systemd systemd;
    struct hand_probes probes;
    char words[256];

    if (!start(&systemd))
        return;
    fake_limit_install();
    fake_limit_answer("try", LIMIT_REFUSED, "");
    probes = probe(&systemd, true);
    IS(probes, 1, true, "a program limited to 2 MiB was refused memory by the driver");
    IS(probes, 2, true, "/dev/nvidia0 was refused in a scope without it");
    IS(probes, 5, true, "a signal ended a test process");
    snprintf(words, sizeof(words),
             "--driver sim check " GPU " /run/cgroup/\n"
             "--driver sim set " GPU
             " /run/cgroup/system.slice/allot-probe-limit-%d.scope 2097152\n"
             "--driver sim try " GPU "\n",
             (int)getpid());
    ck_assert_str_eq(fake_limit_asked(), words);
    snprintf(words, sizeof(words),
             "StartTransientUnit \"allot-probe-filter-%d.scope\" \"fail\" [ ( \"Description\" < "
             "\"Allot tries whether a device filter works\">) ( \"Slice\" < \"system.slice\">)",
             (int)getpid());
    ck_assert(fake_systemd_was_asked(&systemd, words));
    ck_assert(fake_systemd_was_asked(&systemd, "( \"DevicePolicy\" < \"closed\">) ( \"PIDs\""));
    ck_assert(fake_systemd_was_asked(
        &systemd, "( \"Description\" < \"Allot tries whether the driver limits memory\">)"));
    probes = probe(&systemd, false);
    IS(probes, 1, false, "there is no whole GPU to try it on");
    IS(probes, 2, true, "/dev/nvidia0 was refused in a scope without it");
    finish(&systemd);
}
END_TEST

START_TEST(tiers_that_do_not_hold_are_not_proven) {
    struct fake_systemd systemd;
    struct hand_probes probes;

    if (!start(&systemd))
        return;
    fake_limit_install();
    systemd.has_no_filter = true;
    fake_limit_answer("check", LIMIT_UNKNOWN, "the driver has none");
    probes = probe(&systemd, true);
    IS(probes, 1, false, "the driver has no limits by cgroup (driver 615 and later have)");
    IS(probes, 2, false, "/dev/nvidia0 was not refused: the device filter does not work here");
    fake_limit_answer("check", LIMIT_FAILED, "not this time"); /* another reason: it is tried */
    fake_limit_answer("set", LIMIT_FAILED, "the limit is too low");
    IS(probe(&systemd, true), 1, false, "the limit is too low");
    fake_limit_answer("set", LIMIT_DONE, "");
    fake_limit_answer("try", LIMIT_GRANTED, "");
    IS(probe(&systemd, true), 1, false, "the driver accepts limits but does not enforce them");
    fake_limit_answer("try", LIMIT_NOT_TRIED, "");
    IS(probe(&systemd, true), 1, false, "no CUDA program could be run to try it (exit status 12)");
    fake_limit_answer("try", LIMIT_FAILED, "no CUDA");
    IS(probe(&systemd, true), 1, false, "no CUDA");
    fake_limit_answer("set", LIMIT_USAGE, "");
    IS(probe(&systemd, true), 1, false, "allot-limit ended with exit status 2");
    systemd.fails = "StartTransientUnit";
    probes = probe(&systemd, true);
    IS(probes, 1, false, "systemd: StartTransientUnit: StartTransientUnit is refused");
    IS(probes, 2, false, "systemd: StartTransientUnit: StartTransientUnit is refused");
    systemd.fails = "Get ControlGroup";
    IS(probe(&systemd, true), 1, false, "systemd: ControlGroup: Get ControlGroup is refused");
    systemd.fails = "Subscribe";
    probes = probe(&systemd, true);
    IS(probes, 1, false, "it needs cgroups of jobs: systemd: Subscribe: Subscribe is refused");
    IS(probes, 2, false, "systemd: Subscribe: Subscribe is refused");
    IS(probes, 5, true, "a signal ended a test process");
    systemd.fails = NULL;
    unlink("/dev/nvidia0");
    unlink("/dev/nvidia1");
    IS(probe(&systemd, true), 2, false, "the GPUs have no device nodes");
    finish(&systemd);
}
END_TEST

/* ---- Locked mode -------------------------------------------------------------------------------
 */

static void expect_text(const char *path, const char *expected) {
    char text[4096];
    cleanup(fclosep) FILE *f = fopen(path, "re");

    ck_assert_msg(f != NULL, "%s", path);
    text[fread(text, 1, sizeof(text) - 1, f)] = 0;
    ck_assert_str_eq(text, expected);
}

#define WRITTEN                                                                                    \
    "# Written by allot-hand: GPUs are closed to sessions (mode = locked in allotd.conf).\n"
#define ALLOWED                                                                                    \
    "DevicePolicy=strict\nDeviceAllow=block-* rwm\nDeviceAllow=char-allot-locked rwm\n"            \
    "DeviceAllow=char-mem rwm\nDeviceAllow=char-/dev/tty rwm\nDeviceAllow=char-input rwm\n"
#define SET(unit)                                                                                  \
    "SetUnitProperties \"" unit                                                                    \
    "\" 1 [ ( \"DevicePolicy\" < \"strict\">) ( \"DeviceAllow\" < []>) ( "                         \
    "\"DeviceAllow\" < [ ( \"block-*\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( \"char-allot-locked\" " \
    "\"rwm\")]>) ( \"DeviceAllow\" < [ ( \"char-mem\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( "        \
    "\"char-/dev/tty\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( \"char-input\" \"rwm\")]>)]\n"

START_TEST(locked_sessions_have_all_but_the_gpus) {
    struct fake_systemd systemd;
    struct allot_error err = { 0 };
    struct stat st;
    char words[512];

    if (!start(&systemd))
        return;
    fake_machine_cover("/proc/devices",
                       "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/tty\n 13 input\n195 "
                       "nvidia-frontend\n195 nvidia\n 44 odd*\n 45 odd?\n 46 odd[x]\n\nBlock "
                       "devices:\n  7 loop\n");
    systemd.closes_sessions = true;
    ck_assert_msg(lock_set(true, &err) == 0, "%s", err.text);
    expect_text(SCOPES DROP_IN, WRITTEN "[Scope]\n" ALLOWED);
    expect_text(USERS DROP_IN, WRITTEN "[Service]\n" ALLOWED);
    ck_assert_int_lt(stat(SCOPES DROP_IN ".new", &st), 0);
    ck_assert_int_eq(stat(SCOPES, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0755);
    snprintf(words, sizeof(words),
             "StartTransientUnit \"session-allot%d.scope\" \"fail\" [ ( \"Description\" < \"Allot "
             "tries whether sessions are locked out of the GPUs\">) ( \"Slice\" < \"user.slice\">)",
             (int)getpid());
    ck_assert_ptr_nonnull(strstr(
        systemd.asked,
        "Subscribe\nReload\nListUnitsByPatterns [ \"active\"] [ \"session-*.scope\" "
        "\"user@*.service\"]\n" SET("session-3.scope") SET("user@1.service") "StartTransientUnit"));
    ck_assert(fake_systemd_was_asked(&systemd, words));

    /* Open again. */
    fake_systemd_forget(&systemd);
    ck_assert_int_eq(lock_set(false, &err), 0);
    ck_assert_int_lt(stat(SCOPES, &st), 0);
    ck_assert_int_lt(stat(USERS, &st), 0);
    ck_assert_str_eq(systemd.asked,
                     "Subscribe\nReload\nListUnitsByPatterns [ \"active\"] [ \"session-*.scope\" "
                     "\"user@*.service\"]\n"
                     "SetUnitProperties \"session-3.scope\" 1 [ ( \"DevicePolicy\" < \"auto\">) ( "
                     "\"DeviceAllow\" < []>)]\n"
                     "SetUnitProperties \"user@1.service\" 1 [ ( \"DevicePolicy\" < \"auto\">) ( "
                     "\"DeviceAllow\" < []>)]\n");
    fake_systemd_forget(&systemd);
    ck_assert_int_eq(lock_set(false, &err), 0); /* it was open */
    ck_assert_str_eq(systemd.asked, "");

    /* Drop-ins of others stay. */
    fake_machine_file(SCOPES "other.conf", "");
    fake_machine_file(SCOPES DROP_IN, "");
    ck_assert_int_eq(lock_set(false, &err), 0);
    ck_assert_int_eq(stat(SCOPES "other.conf", &st), 0);
    ck_assert(fake_systemd_was_asked(&systemd, "Reload"));
    finish(&systemd);
}
END_TEST

START_TEST(a_lock_that_does_not_hold_is_said) {
    static const char *const calls[] = { "Subscribe", "Reload", "ListUnitsByPatterns",
                                         "SetUnitProperties", "StartTransientUnit" };
    struct fake_systemd systemd;
    struct allot_error err = { 0 };

    if (!start(&systemd))
        return;
    for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
        systemd.fails = calls[i];
        ck_assert_int_eq(lock_set(true, &err), -EACCES);
        ck_assert_ptr_nonnull(strstr(err.text, calls[i]));
    }
    systemd.fails = NULL;
    ck_assert_int_eq(lock_set(true, &err), -ENOTSUP);
    ck_assert_str_eq(err.text,
                     "/dev/nvidia0 was not refused: the device filter does not work here");
    systemd.units[2] = (struct fake_unit){ 0 };
    /* Opening does not wait for what runs, and a session that has ended is no trouble. */
    fake_systemd_forget(&systemd);
    systemd.fails = "SetUnitProperties";
    ck_assert_int_eq(lock_set(false, &err), -EACCES);
    ck_assert(fake_systemd_was_asked(&systemd, "SetUnitProperties \"user@1.service\""));
    systemd.failure = "org.freedesktop.systemd1.NoSuchUnit";
    systemd.closes_sessions = true;
    ck_assert_msg(lock_set(true, &err) == 0, "%s", err.text);
    systemd.fails = NULL;
    unlink("/dev/nvidia0");
    unlink("/dev/nvidia1");
    ck_assert_int_eq(lock_set(true, &err), -ENOENT);
    ck_assert_str_eq(err.text, "the GPUs have no device nodes that could be locked");
    ck_assert_int_eq(lock_set(false, &err), 0);
    fake_systemd_forget(&systemd);
    fake_machine_file(LOCK_DIR "/session-.scope.d", "a file");
    ck_assert_int_eq(lock_set(true, &err), -ENOTDIR);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be written"));
    unlink(LOCK_DIR "/session-.scope.d");
    fake_machine_file(SCOPES DROP_IN "/x/y", "a folder");
    ck_assert_int_eq(lock_set(true, &err), -EISDIR);
    ck_assert_int_lt(access(SCOPES DROP_IN ".new", F_OK), 0);
    rename(LOCK_DIR, "/run/away");
    finish(&systemd);
}
END_TEST

/* ---- The child ---------------------------------------------------------------------------------
 */

START_TEST(a_child_opens_what_it_is_told) {
    struct probe_child child = PROBE_CHILD_INIT;
    struct allot_error err = { 0 };
    char longest[1025];
    int error = -1;
    pid_t pid;

    ck_assert_int_eq(probe_child_start(&child, &err), 0);
    pid = child.pid;
    ck_assert_int_gt(pid, 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(probe_child_open(&child, "/dev/null", &error, &err), 0);
        ck_assert_int_eq(error, 0);
        ck_assert_int_eq(probe_child_open(&child, "/nonexistent", &error, &err), 0);
        ck_assert_int_eq(error, ENOENT);
    }
    memset(longest, '/', sizeof(longest));
    longest[1024] = 0;
    ck_assert_int_eq(probe_child_open(&child, longest, &error, &err), -ENAMETOOLONG);
    longest[1023] = 0;
    ck_assert_int_eq(probe_child_open(&child, longest, &error, &err), 0);
    ck_assert_int_eq(error, EISDIR);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
    ck_assert_int_eq(probe_child_open(&child, "/dev/null", &error, &err), -EPIPE);
    probe_child_done(&child);
    ck_assert_int_eq(child.pid, 0);
    ck_assert_int_eq(child.socket, -1);
    ck_assert_int_lt(waitpid(pid, NULL, 0), 0); /* reaped */
    probe_child_done(&child);
}
END_TEST

START_TEST(a_child_that_is_done_leaves_nothing) {
    struct probe_child child = PROBE_CHILD_INIT;
    struct allot_error err = { 0 };
    int before = dup(0), after;
    pid_t pid;

    close(before);
    ck_assert_int_eq(probe_child_start(&child, &err), 0);
    pid = child.pid;
    probe_child_done(&child);
    ck_assert_int_lt(waitpid(pid, NULL, 0), 0);
    after = dup(0);
    ck_assert_int_eq(after, before); /* no descriptor is left */
    close(after);
    /* It ends with its parent. */
    ck_assert_int_eq(probe_child_start(&child, &err), 0);
    close(child.socket);
    ck_assert_int_eq(waitpid(child.pid, &before, 0), child.pid);
    ck_assert(WIFEXITED(before) && WEXITSTATUS(before) == 125);
}
END_TEST

START_TEST(a_child_becomes_a_program) {
    struct probe_child child = PROBE_CHILD_INIT;
    struct probe_child_output output;
    struct allot_error err = { 0 };
    char big[1100];
    int status = -1;

    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = 0;
    ck_assert_int_eq(probe_child_start(&child, &err), 0);
    ck_assert_int_eq(probe_child_exec(&child, (const char *const[]){ "/bin/sh", big, NULL },
                                      &status, &output, &err),
                     -E2BIG);
    ck_assert_int_eq(
        probe_child_exec(&child,
                         (const char *const[]){ "a", "b", "c", "d", "e", "f", "g", "h", "i", NULL },
                         &status, &output, &err),
        -E2BIG);
    ck_assert_int_eq(probe_child_exec(&child,
                                      (const char *const[]){
                                          "/bin/sh", "-c", "echo \"$1$2$3$4$5\"; echo more; exit 7",
                                          "sh", "a", "b", "c", "d e", NULL },
                                      &status, &output, &err),
                     0);
    ck_assert_int_eq(status, 7);
    ck_assert_str_eq(output.text, "abcd e");
    ck_assert_int_eq(child.pid, 0);
    probe_child_done(&child);

    ck_assert_int_eq(probe_child_start(&child, &err), 0);
    ck_assert_int_eq(probe_child_exec(&child,
                                      (const char *const[]){ "/bin/sh", "-c",
                                                             "printf 'a\\033b'; kill -9 $$", NULL },
                                      &status, &output, &err),
                     0);
    ck_assert_int_eq(status, 128 + SIGKILL);
    ck_assert_ptr_null(strchr(output.text, '\033'));
    ck_assert_int_eq(output.text[0], 'a');
    probe_child_done(&child);

    ck_assert_int_eq(probe_child_start(&child, &err), 0);
    ck_assert_int_eq(probe_child_exec(&child, (const char *const[]){ "/nonexistent", NULL },
                                      &status, &output, &err),
                     0);
    ck_assert_int_eq(status, 125);
    ck_assert_str_eq(output.text, "");
    probe_child_done(&child);
}
END_TEST

SUITE_TIMEOUT("hand-probe", 60, tiers_are_proven_by_what_was_refused,
              tiers_that_do_not_hold_are_not_proven, locked_sessions_have_all_but_the_gpus,
              a_lock_that_does_not_hold_is_said, a_child_opens_what_it_is_told,
              a_child_that_is_done_leaves_nothing, a_child_becomes_a_program)
