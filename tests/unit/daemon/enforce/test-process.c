/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/enforce/process.h"
#include "tests/support/suite.h"
#include "wire/peer.h"

/* A child that sleeps until it is killed. */
static pid_t child(void) {
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return pid;
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_process_keeps_its_identity_until_it_ends) {
    struct process_id first, second;
    pid_t pid = child();
    int fd = -1;

    ck_assert_int_eq(process_identify(&first, pid), 0);
    ck_assert_int_eq(process_identify(&second, pid), 0);
    ck_assert(process_id_equal(&first, &second));
    ck_assert_uint_gt(first.start, 0);
    ck_assert_int_eq(process_open(&fd, &first), 0);
    end(pid);
    ck_assert_int_eq(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0), 1);
    close(fd);
    ck_assert_int_eq(process_identify(&second, pid), -ESRCH);
    ck_assert_int_eq(process_open(&fd, &first), -ESRCH);
}
END_TEST

START_TEST(a_zombie_is_no_process) {
    struct process_id id;
    pid_t pid = child();
    siginfo_t info;

    kill(pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    ck_assert_int_eq(process_identify(&id, pid), -ESRCH);
    end(pid);
}
END_TEST

START_TEST(a_pid_used_again_is_not_the_same_process) {
    struct process_id id;
    pid_t pid = child();
    int fd = -1;

    ck_assert_int_eq(process_identify(&id, pid), 0);
    id.start--;
    ck_assert_int_eq(process_open(&fd, &id), -ESRCH);
    ck_assert_int_eq(fd, -1);
    end(pid);
}
END_TEST

START_TEST(odd_pids_name_no_process) {
    struct process_id id;
    char cgroup[PROCESS_CGROUP_SIZE], name[PROCESS_NAME_SIZE];
    int fd = -1;

    ck_assert_int_eq(process_identify(&id, 0), -ESRCH);
    ck_assert_int_eq(process_identify(&id, -1), -ESRCH);
    ck_assert_int_eq(process_open(&fd, &(struct process_id){ -5, 1 }), -ESRCH);
    ck_assert_int_eq(process_cgroup(cgroup, 0x7ffffff0), -ESRCH);
    process_name(name, 0x7ffffff0);
    ck_assert_str_eq(name, "?");
}
END_TEST

START_TEST(a_name_is_printable_and_may_hold_brackets) {
    char name[PROCESS_NAME_SIZE];
    struct process_id id;

    ck_assert_int_eq(prctl(PR_SET_NAME, "a) R 1\t\x1b"), 0);
    process_name(name, getpid());
    ck_assert_str_eq(name, "a) R 1??");
    ck_assert_int_eq(process_identify(&id, getpid()), 0);
    ck_assert_uint_gt(id.start, 0);
}
END_TEST

START_TEST(a_peer_is_what_the_kernel_says) {
    struct process_id id;
    struct peer peer;
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(peer_get(&peer, pair[0]), 0);
    ck_assert_int_eq(process_of_peer(&id, &peer), 0);
    ck_assert_int_eq(id.pid, getpid());
    ck_assert_uint_gt(id.start, 0);
    peer_done(&peer);
}
END_TEST

START_TEST(a_peer_that_has_ended_is_no_process) {
    struct process_id id;
    pid_t pid = child();
    struct peer peer = { .pid = pid };

    ck_assert_int_eq(process_identify(&id, pid), 0);
    ck_assert_int_eq(process_open(&peer.pidfd, &id), 0);
    ck_assert_int_eq(process_of_peer(&id, &peer), 0);
    end(pid);
    ck_assert_int_eq(process_of_peer(&id, &peer), -ESRCH);
    close(peer.pidfd);
    peer.pidfd = -1;
    ck_assert_int_eq(process_of_peer(&id, &peer), -ESRCH);
}
END_TEST

START_TEST(a_cgroup_lies_within_its_scope_and_not_within_its_namesake) {
    char cgroup[PROCESS_CGROUP_SIZE];
    int r = process_cgroup(cgroup, getpid());

    ck_assert(r == -ENODATA || (r == 0 && cgroup[0] == '/'));
    ck_assert(process_is_within("/a/b", "/a/b"));
    ck_assert(process_is_within("/a/b/c", "/a/b"));
    ck_assert(!process_is_within("/a/bc", "/a/b"));
    ck_assert(!process_is_within("/a", "/a/b"));
    ck_assert(!process_is_within("/a", ""));
}
END_TEST

SUITE("process", a_process_keeps_its_identity_until_it_ends, a_zombie_is_no_process,
      a_pid_used_again_is_not_the_same_process, odd_pids_name_no_process,
      a_name_is_printable_and_may_hold_brackets, a_peer_is_what_the_kernel_says,
      a_peer_that_has_ended_is_no_process,
      a_cgroup_lies_within_its_scope_and_not_within_its_namesake)
