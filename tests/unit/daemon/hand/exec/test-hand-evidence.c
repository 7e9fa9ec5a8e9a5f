/* SPDX-License-Identifier: Apache-2.0 */
/* Whom the hand signals: scopes on the real kernel, evidence of a lease, marks in environments. */
#include "daemon/hand/exec/lease_evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sha256.h"
#include "daemon/enforce/process.h"
#include "daemon/hand/exec/find.h"
#include "daemon/hand/exec/proc.h"
#include "daemon/hand/exec/signal.h"
#include "tests/support/daemon/hand/fake_machine.h"
#include "tests/support/suite.h"

#define USER  1000
#define SCOPE "/user.slice/user-1000.slice/allot-17.scope"

static const char *const leased[] = { "A=1", "ALLOT_LEASE=17", "ALLOT_TOKEN=abc", NULL };
static const char *const plain[] = { "A=1", "XALLOT_LEASE=17", "ALLOT_LEAS=17", NULL };

/* ---- Scopes ------------------------------------------------------------------------------------
 */

static struct hand_signal to_scope(int number) {
    return (struct hand_signal){ .signal = number, .cgroup = SCOPE };
}

/* The signal that ended it. */
static int ended_by(pid_t pid) {
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
    return WTERMSIG(status);
}

static bool is_running(pid_t pid) {
    return waitpid(pid, NULL, WNOHANG) == 0;
}

START_TEST(every_process_of_a_scope_is_signalled) {
    struct hand_signal signal = to_scope(SIGTERM);
    struct hand_signalled answer = { .n_processes = 9, .has_used = true };
    struct allot_error err = { 0 };
    pid_t pids[70], outside;

    if (!fake_machine_enter())
        return;
    ck_assert_int_eq(signal_send(&signal, &answer, &err), 0); /* there is no such scope any more */
    ck_assert_uint_eq(answer.n_processes, 0);
    ck_assert(!answer.has_used);
    fake_machine_cgroup(SCOPE);
    ck_assert_int_eq(signal_send(&signal, &answer, &err), 0); /* nor any process in it */
    ck_assert_uint_eq(answer.n_processes, 0);
    outside = fake_machine_process("/user.slice/user-1000.slice", USER, NULL);
    for (size_t i = 0; i < ELEMENTSOF(pids); i++) /* more than are signalled together */
        pids[i] = fake_machine_process(SCOPE, i % 2 ? USER : 0, NULL);
    ck_assert_int_eq(signal_send(&signal, &answer, &err), 0);
    ck_assert_uint_eq(answer.n_processes, ELEMENTSOF(pids));
    for (size_t i = 0; i < ELEMENTSOF(pids); i++)
        ck_assert_int_eq(ended_by(pids[i]), SIGTERM);
    ck_assert(is_running(outside));

    /* In the name of the user: those that are not the user's stay. */
    pids[0] = fake_machine_process(SCOPE, USER, NULL);
    pids[1] = fake_machine_process(SCOPE, 0, NULL);
    pids[2] = fake_machine_process(SCOPE, USER + 1, NULL);
    signal.as_user = true;
    signal.uid = USER;
    signal.signal = SIGKILL;
    ck_assert_int_eq(signal_send(&signal, &answer, &err), 0);
    ck_assert_uint_ge(answer.n_processes, 1);
    ck_assert_int_eq(ended_by(pids[0]), SIGKILL);
    ck_assert(is_running(pids[1]));
    ck_assert_int_eq(signal_send(&signal, &answer, &err), -EPERM);
    ck_assert_ptr_nonnull(strstr(err.text, "every process of the lease now runs as another user"));

    /* cgroup.kill ends all at once, those below too. */
    signal.as_user = false;
    pids[3] = fake_machine_process(SCOPE "/below", USER, NULL);
    close(0); /* any descriptor will do */
    ck_assert_int_eq(signal_send(&signal, &answer, &err), 0);
    ck_assert_uint_eq(answer.n_processes, 2);
    for (size_t i = 1; i < 4; i++)
        ck_assert_int_eq(ended_by(pids[i]), SIGKILL);
    fake_machine_end(outside);
    fake_machine_leave();
}
END_TEST

START_TEST(a_scope_that_is_not_roots_is_no_lease) {
    struct hand_signal signal = to_scope(SIGTERM);
    struct hand_signalled answer;
    struct allot_error err = { 0 };
    pid_t pid;

    if (!fake_machine_enter())
        return;
    pid = fake_machine_process(SCOPE, USER, NULL);
    ck_assert_int_eq(chown(fake_machine_cgroup("/user.slice/user-1000.slice"), USER, USER), 0);
    ck_assert_int_eq(signal_send(&signal, &answer, &err), -EPERM);
    ck_assert_str_eq(err.text, SCOPE " is not the scope of a lease");
    ck_assert(is_running(pid));
    strcpy(signal.cgroup, "/user.slice");
    ck_assert_int_eq(signal_send(&signal, &answer, &err), -EPERM);
    signal.signal = SIGRTMAX + 1;
    ck_assert_int_eq(signal_send(&signal, &answer, &err), -EINVAL);
    signal.signal = -1;
    ck_assert_int_eq(signal_send(&signal, &answer, &err), -EINVAL);
    fake_machine_end(pid);
    fake_machine_leave();
}
END_TEST

START_TEST(the_hand_and_its_parent_are_never_signalled) {
    const pid_t taboo[] = { 1, getpid(), getppid(), -5 };
    struct hand_signal signal = { .signal = 0 };
    struct hand_signalled answer;
    struct allot_error err = { 0 };
    struct process_id id;

    for (size_t i = 0; i < ELEMENTSOF(taboo); i++) {
        signal.pid = taboo[i];
        if (process_identify(&id, taboo[i]) == 0)
            signal.start = id.start;
        ck_assert_int_eq(signal_send(&signal, &answer, &err), -EPERM);
        ck_assert_ptr_nonnull(strstr(err.text, "is never signalled"));
    }
}
END_TEST

START_TEST(signal_numbers_and_zombies) {
    struct hand_signal signal = { .signal = 0 };
    struct hand_signalled answer;
    struct allot_error err = { 0 };
    struct process_id id;

    signal.pid = fork();
    if (signal.pid == 0)
        for (;;)
            pause();
    ck_assert_int_eq(process_identify(&id, signal.pid), 0);
    signal.start = id.start;
    ck_assert_int_eq(signal_send(&signal, &answer, &err), 0);
    ck_assert_uint_eq(answer.n_processes, 1);
    signal.signal = SIGRTMAX;
    ck_assert_int_eq(signal_send(&signal, &answer, &err), 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)signal.pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
    ck_assert_int_eq(signal_send(&signal, &answer, &err), -ESRCH);
    waitpid(signal.pid, NULL, 0);
}
END_TEST

/* ---- Evidence ----------------------------------------------------------------------------------
 */

/* From now on questions come from a user, or from root. */
static void asked_by(uid_t uid) {
    int sockets[2];

    ck_assert_int_eq(seteuid(uid), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    ck_assert_int_eq(seteuid(0), 0);
    lease_evidence_init(sockets[0]);
    close(sockets[0]);
    close(sockets[1]);
}

static int check(pid_t pid, bool as_user) {
    struct sample_process process = { .pid = pid };
    struct allot_error err = { 0 };
    int r;

    hand_proc_read(&process, "/proc");
    ck_assert_uint_ne(process.start, 0);
    r = lease_evidence_check(&process, as_user, &err);
    ck_assert(r == 0 || strstr(err.text, "shows no sign of a lease"));
    return r;
}

static int check_and_end(pid_t pid, bool as_user) {
    int r = check(pid, as_user);

    fake_machine_end(pid);
    return r;
}

START_TEST(a_lease_shows_in_scope_or_environment) {
    if (!fake_machine_enter())
        return;
    asked_by(0); /* a peer that has all rights itself */
    ck_assert_int_eq(
        check_and_end(fake_machine_process("/system.slice/a.service", 0, plain), false), 0);
    asked_by(USER);
    ck_assert_int_eq(check_and_end(fake_machine_process("/user.slice", USER, plain), false),
                     -EPERM);
    ck_assert_int_eq(check_and_end(fake_machine_process("/user.slice", USER, leased), false), 0);
    ck_assert_int_eq(check_and_end(fake_machine_process("/user.slice", 0, leased), false), 0);
    ck_assert_int_eq(check_and_end(fake_machine_process(SCOPE, USER, plain), false), 0);
    ck_assert_int_eq(chown(fake_machine_cgroup("/user.slice/user-1000.slice"), USER, USER), 0);
    ck_assert_int_eq(check_and_end(fake_machine_process(SCOPE, USER, plain), false), -EPERM);

    /* What users can do to processes of their own, unless these are services or root's. */
    ck_assert_int_eq(check_and_end(fake_machine_process("/user.slice", USER, plain), true), 0);
    ck_assert_int_eq(check_and_end(fake_machine_process("/user.slice", 0, plain), true), -EPERM);
    ck_assert_int_eq(
        check_and_end(fake_machine_process("/system.slice/a.service", USER, plain), true), -EPERM);
    ck_assert_int_eq(
        check_and_end(fake_machine_process("/system.slice/a.scope", USER, plain), true), 0);
    ck_assert_int_eq(check_and_end(fake_machine_process("/init.scope", USER, plain), true), -EPERM);
    fake_machine_leave();
}
END_TEST

/* A process that has a file in its memory, under this name. */
static pid_t mapping(const char *cgroup, uid_t uid, const char *path) {
    int ready[2], fd;
    pid_t pid;
    char c;

    fake_machine_file(path, "something");
    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fd = open(path, O_RDONLY);
        if (fake_machine_move(cgroup, getpid()) < 0 || setresuid(uid, uid, uid) < 0 ||
            mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ||
            write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

START_TEST(a_lease_shows_in_memory) {
    static const struct {
        const char *path, *cgroup;
        uid_t uid;
        int r;
    } cases[] = {
        { "/run/lib/liballot.so.0", "/user.slice", USER, 0 },
        { "/run/lib/liballot-guard.so", "/system.slice/a.service", 0, 0 },
        { "/run/lib/libother.so", "/user.slice", USER, -EPERM },
        { "/dev/nvidia0", "/user.slice", USER, 0 },
        { "/dev/nvidia0", "/user.slice", 0, 0 },
        { "/dev/nvidia0", "/system.slice/a.service", USER, 0 },
        { "/dev/nvidia0", "/system.slice/a.service", 0, -EPERM }, /* the box's own */
        { "/run/nvidia0", "/user.slice", USER, -EPERM },
        { "/run/a-box", "/user.slice", USER, 0 },
    };

    if (!fake_machine_enter())
        return;
    asked_by(USER);
    ck_assert_int_eq(check_and_end(mapping("/user.slice", USER, "/run/a-box"), false), -EPERM);
    setenv("GPUSIM_BOX", "", 1);
    ck_assert_int_eq(check_and_end(mapping("/user.slice", USER, "/run/b-box"), false), -EPERM);
    setenv("GPUSIM_BOX", "/run/a-box", 1);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        int r = check_and_end(mapping(cases[i].cgroup, cases[i].uid, cases[i].path), false);

        ck_assert_msg(r == cases[i].r, "case %zu: %d", i, r);
    }
    fake_machine_leave();
}
END_TEST

static pid_t start_program(const char *path) {
    int ready[2];
    pid_t pid;
    char c;

    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execle(path, path, "1000", (char *)NULL, (char *const[]){ NULL });
        _exit(1);
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &c, 1), 0);
    close(ready[0]);
    return pid;
}

START_TEST(gpuctl_itself_is_evidence) {
    char command[256];
    pid_t pid;

    if (!fake_machine_enter())
        return;
    asked_by(USER);
    ck_assert_int_eq(system("mkdir /run/bin && cp /bin/sleep /run/bin/gpuctl && cp /bin/sleep "
                            "/run/bin/gpuctl2"),
                     0);
    ck_assert_int_eq(check_and_end(start_program("/run/bin/gpuctl2"), false), -EPERM);
    pid = start_program("/run/bin/gpuctl");
    ck_assert_int_eq(check(pid, false), 0);
    snprintf(command, sizeof(command), "rm /run/bin/gpuctl");
    ck_assert_int_eq(system(command), 0); /* an update replaced it */
    ck_assert_int_eq(check_and_end(pid, false), 0);
    fake_machine_leave();
}
END_TEST

/* What it is taken for, by the file that it runs. */
static uint32_t kinds_of(const char *path, struct hand_signal *signal) {
    struct sample_process process = { .pid = start_program(path) };
    struct hand_signalled answer;
    struct allot_error err = { 0 };
    int r;

    hand_proc_read(&process, "/proc");
    ck_assert_uint_ne(process.start, 0);
    signal->pid = process.pid;
    signal->start = process.start;
    r = signal_send(signal, &answer, &err);
    if (process.kinds & SAMPLE_UNTOUCHABLE) {
        ck_assert_int_eq(r, -EPERM);
        ck_assert_ptr_nonnull(strstr(err.text, "is a display or MPS server"));
    } else
        ck_assert_int_eq(r, 0);
    fake_machine_end(process.pid);
    return process.kinds;
}

START_TEST(servers_are_known_by_roots_files) {
    struct hand_signal signal = { .signal = 0 };

    if (!fake_machine_enter())
        return;
    ck_assert_int_eq(system("mkdir /run/bin && cd /run/bin && for f in nvidia-cuda-mps-server "
                            "nvidia-cuda-mps-control Xorg gamescope Xorg2 sway mutter; do cp "
                            "/bin/sleep $f; done && "
                            "chown 1000 sway && chmod g+w mutter"),
                     0);
    ck_assert_uint_eq(kinds_of("/run/bin/nvidia-cuda-mps-server", &signal), SAMPLE_MPS_SERVER);
    ck_assert_uint_eq(kinds_of("/run/bin/nvidia-cuda-mps-control", &signal), SAMPLE_MPS_SERVER);
    ck_assert_uint_eq(kinds_of("/run/bin/Xorg", &signal), SAMPLE_DISPLAY);
    ck_assert_uint_eq(kinds_of("/run/bin/gamescope", &signal), SAMPLE_DISPLAY);
    ck_assert_uint_eq(kinds_of("/run/bin/Xorg2", &signal), 0);
    ck_assert_uint_eq(kinds_of("/run/bin/sway", &signal), 0);
    ck_assert_uint_eq(kinds_of("/run/bin/mutter", &signal), 0);
    fake_machine_leave();
}
END_TEST

START_TEST(environments_are_lists_of_texts) {
    ck_assert(lease_evidence_has_lease("ALLOT_LEASE=1", 14));
    ck_assert(lease_evidence_has_lease("A=1\0ALLOT_LEASE=", 16));
    ck_assert(lease_evidence_has_lease("A=1\0\0ALLOT_LEASE=1\0B", 20));
    ck_assert(!lease_evidence_has_lease("A=1\0ALLOT_LEASE=", 15)); /* cut */
    ck_assert(!lease_evidence_has_lease("XALLOT_LEASE=1", 15));
    ck_assert(!lease_evidence_has_lease("ALLOT_LEASE", 12));
    ck_assert(!lease_evidence_has_lease("", 0));
}
END_TEST

START_TEST(no_one_is_signalled_without_evidence) {
    struct hand_signal signal = { .signal = SIGTERM };
    struct hand_signalled answer = { 0 };
    struct allot_error err = { 0 };
    struct process_id id;
    pid_t pid;

    if (!fake_machine_enter())
        return;
    asked_by(USER);
    for (int round = 0; round < 3; round++) {
        pid = fake_machine_process("/user.slice", USER, round == 2 ? leased : plain);
        ck_assert_int_eq(process_identify(&id, pid), 0);
        signal.pid = pid;
        signal.start = id.start;
        signal.as_user = round == 1;
        signal.uid = USER;
        ck_assert_int_eq(signal_send(&signal, &answer, &err), round == 0 ? -EPERM : 0);
        if (round == 0) { /* another user's rights show nothing */
            signal.as_user = true;
            signal.uid = USER + 1;
            ck_assert_int_eq(signal_send(&signal, &answer, &err), -EPERM);
            ck_assert_ptr_nonnull(strstr(err.text, "no sign of a lease"));
        }
        ck_assert_int_eq(answer.n_processes, round > 0);
        fake_machine_end(pid);
    }
    fake_machine_leave();
}
END_TEST

/* ---- Marks -------------------------------------------------------------------------------------
 */

static bool has_found(const struct hand_found *found, pid_t pid) {
    struct process_id id;

    ck_assert_int_eq(process_identify(&id, pid), 0);
    for (uint32_t i = 0; i < found->n_processes; i++)
        if (found->processes[i].pid == pid) {
            ck_assert_uint_eq(found->processes[i].start, id.start);
            return true;
        }
    return false;
}

START_TEST(processes_are_found_by_their_marks) {
    struct hand_find find = { .lease = 17, .uid = USER };
    struct allot_error err = { 0 };
    struct hand_found found;
    pid_t pids[70];

    if (!fake_machine_enter())
        return;
    pids[0] = fake_machine_process("/user.slice", USER, leased);
    pids[1] = fake_machine_process("/user.slice", USER, plain);
    pids[2] = fake_machine_process("/user.slice", USER + 1, leased);
    pids[3] = fake_machine_process("/user.slice", USER, leased);
    found = (struct hand_found){ 0 };
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, 2);
    ck_assert(has_found(&found, pids[0]) && has_found(&found, pids[3]));
    ck_assert_int_eq(geteuid(), 0);

    find.lease = 18;
    found = (struct hand_found){ 0 };
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, 0);

    find.has_token = 1; /* then it alone counts */
    sha256(find.token, "abc", 3);
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, 2);
    find.token[0]++;
    found = (struct hand_found){ 0 };
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, 0);

    find = (struct hand_find){ .lease = 17, .uid = USER, .pid = pids[3] };
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, 1);
    ck_assert(has_found(&found, pids[3]));
    find.pid = pids[1];
    found = (struct hand_found){ 0 };
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, 0);
    find.pid = pids[2];
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, 0);

    find.pid = 0; /* more than there is room for */
    for (size_t i = 4; i < ELEMENTSOF(pids); i++)
        pids[i] = fake_machine_process("/user.slice", USER, leased);
    ck_assert_int_eq(find_processes(&find, &found, &err), 0);
    ck_assert_uint_eq(found.n_processes, HAND_FOUND_MAX);
    for (size_t i = 0; i < ELEMENTSOF(pids); i++)
        fake_machine_end(pids[i]);
    fake_machine_leave();
}
END_TEST

SUITE_TIMEOUT("hand-evidence", 60, every_process_of_a_scope_is_signalled,
              a_scope_that_is_not_roots_is_no_lease, the_hand_and_its_parent_are_never_signalled,
              signal_numbers_and_zombies, a_lease_shows_in_scope_or_environment,
              a_lease_shows_in_memory, gpuctl_itself_is_evidence, environments_are_lists_of_texts,
              servers_are_known_by_roots_files, no_one_is_signalled_without_evidence,
              processes_are_found_by_their_marks)
