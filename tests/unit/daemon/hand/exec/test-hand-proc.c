/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/exec/proc.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/hand/exec/scope.h"
#include "daemon/enforce/process.h"
#include "tests/support/suite.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(we_know_ourselves) {
    struct sample_process process = { .pid = getpid() };
    struct process_id id;

    hand_proc_read(&process, "/proc");
    ck_assert_int_eq(process_identify(&id, getpid()), 0);
    ck_assert_uint_eq(process.start, id.start);
    ck_assert(process.has_uid);
    ck_assert_uint_eq(process.uid, getuid());
    ck_assert_ptr_nonnull(strstr(process.command, "test-hand-proc"));
    ck_assert_uint_eq(process.kinds, 0);
}
END_TEST

START_TEST(no_process_is_a_display_by_calling_itself_so) {
    struct sample_process process = { 0 };
    int fds[2];
    char byte;

    ck_assert_int_eq(pipe(fds), 0);
    process.pid = fork();
    if (process.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "Xorg");
        if (write(fds[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    hand_proc_read(&process, "/proc");
    ck_assert_uint_ne(process.start, 0);
    ck_assert_uint_eq(process.kinds, 0);
    kill(process.pid, SIGKILL);
    waitpid(process.pid, NULL, 0);
    process = (struct sample_process){ .pid = process.pid };
    hand_proc_read(&process, "/proc");
    ck_assert_uint_eq(process.start, 0);
}
END_TEST

/* Lay out a made-up /proc. */
static void write_file(const char *dir, const char *name, const char *text, size_t n) {
    char path[128];
    cleanup(fclosep) FILE *f = NULL;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
}

START_TEST(processes_of_containers_have_a_pid_of_their_own) {
    static const char stat_text[] =
        "77 (a) b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0 0 0 0 0 0 0 0 0";
    static const char status[] = "Name:\ta\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t77\t5\n";
    static const char cgroup[] = "12:devices:/x\n0::/system.slice/docker-" ID ".scope\n";
    char root[] = "/tmp/hand-proc-XXXXXX", dir[64];
    struct sample_process process = { .pid = 77 };

    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(dir, sizeof(dir), "%s/77", root);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    write_file(dir, "stat", stat_text, strlen(stat_text));
    write_file(dir, "status", status, strlen(status));
    write_file(dir, "cgroup", cgroup, strlen(cgroup));
    write_file(dir, "cmdline", "python\0train.py\0", 16);
    hand_proc_read(&process, root);
    ck_assert_uint_eq(process.start, 4711);
    ck_assert_uint_eq(process.uid, 1000); /* the real one */
    ck_assert_int_eq(process.namespace_pid, 5);
    ck_assert_str_eq(process.command, "python train.py");
    ck_assert_str_eq(process.container, "0123456789ab");
    ck_assert_str_eq(process.cgroup, "/system.slice/docker-" ID ".scope");

    /* A path that does not fit is no path. */
    {
        char text[600] = "0::/";

        memset(text + 4, 'x', 500);
        write_file(dir, "cgroup", text, strlen(text));
    }
    write_file(dir, "cmdline", "", 0);
    write_file(dir, "comm", "a) b\n", 5);
    process = (struct sample_process){ .pid = 77 };
    hand_proc_read(&process, root);
    ck_assert_str_eq(process.cgroup, "");
    ck_assert_str_eq(process.command, "a) b");
    for (size_t i = 0; i < 5; i++) {
        static const char *const names[] = { "stat", "status", "cgroup", "cmdline", "comm" };
        char path[96];

        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
    rmdir(root);
}
END_TEST

START_TEST(only_scopes_of_leases_are_ours) {
    char name[SCOPE_NAME_SIZE];

    scope_name(name, UINT64_MAX);
    ck_assert_str_eq(name, "allot-18446744073709551615.scope");
    ck_assert(scope_is_ours("/user.slice/user-1000.slice/allot-17.scope"));
    ck_assert(!scope_is_ours("/user.slice/user-1000.slice/allot-17.scope/x"));
    ck_assert(!scope_is_ours("/user.slice/allot-probe-17.scope"));
    ck_assert(!scope_is_ours("/a/../allot-17.scope"));
    ck_assert(!scope_is_ours("allot-17.scope"));
    ck_assert(!scope_is_ours(""));
}
END_TEST

SUITE("hand-proc", we_know_ourselves, no_process_is_a_display_by_calling_itself_so,
      processes_of_containers_have_a_pid_of_their_own, only_scopes_of_leases_are_ours)
