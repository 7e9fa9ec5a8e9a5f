/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to helpers: by a socket, or to a program that is started and ended. */
#include "daemon/hand/link.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"

struct bench {
    struct hand_link link;
    sd_event *event;
    struct allot_error err;
};

static void start(struct bench *bench, const char *socket, const char *program) {
    struct hand_address address = { .socket = socket, .program = program };

    memset(bench, 0, sizeof(*bench));
    ck_assert_int_ge(sd_event_new(&bench->event), 0);
    ck_assert_int_eq(hand_link_init(&bench->link, bench->event, "allot-nothing", &address), 0);
    ck_assert_int_eq(bench->link.fd, -1);
}

static void finish(struct bench *bench) {
    hand_link_done(&bench->link);
    sd_event_unref(bench->event);
}

START_TEST(a_socket_is_reached) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), other;
    struct bench bench;
    char c;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", tmpdir());
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    start(&bench, address.sun_path, "/ignored");
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), -ECONNREFUSED);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "allot-nothing cannot be reached at "));
    ck_assert_int_eq(listen(listener, 8), 0);
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), 0);
    ck_assert_int_ge(bench.link.fd, 0);
    ck_assert_int_eq(fcntl(bench.link.fd, F_GETFD), FD_CLOEXEC);
    ck_assert(fcntl(bench.link.fd, F_GETFL) & O_NONBLOCK);
    ck_assert_uint_eq(bench.link.n_children, 0);
    other = accept(listener, NULL, NULL);
    ck_assert_int_eq(send(bench.link.fd, "x", 1, 0), 1);
    ck_assert_int_eq(recv(other, &c, 1, 0), 1);
    hand_link_close(&bench.link);
    ck_assert_int_eq(bench.link.fd, -1);
    ck_assert_int_eq(recv(other, &c, 1, 0), 0);
    close(other);
    close(listener);
    unlink(address.sun_path);
    finish(&bench);
}
END_TEST

START_TEST(the_path_of_a_socket_has_a_longest) {
    struct bench bench;
    char path[120];

    for (size_t length = 107; length <= 108; length++) {
        memset(path, 'x', sizeof(path));
        memcpy(path, "/nonexistent/", 13);
        path[length] = '\0';
        start(&bench, path, NULL);
        ck_assert_int_eq(hand_link_open(&bench.link, &bench.err),
                         length == 107 ? -ENOENT : -ENAMETOOLONG);
        if (length == 108)
            ck_assert_ptr_nonnull(strstr(bench.err.text, "is too long for a socket"));
        finish(&bench);
    }
}
END_TEST

/* A program that writes down what it has, and then waits for the end of its socket. */
static const char *script(const char *name) {
    static char path[200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", tmpdir(), name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "#!/bin/sh\n"
            "exec >%s/said.new\n"
            "for fd in 0 1 2 3 4 5 6 7 8 9; do\n"
            "    [ ! -e /proc/$$/fd/$fd ] || echo \"fd $fd $(readlink /proc/$$/fd/$fd)\"\n"
            "done\n"
            "echo \"pid $$\"\n"
            "while read -r line; do\n" /* a shell that waits for a child blocks all signals */
            "    case $line in SigBlk*) echo \"$line\" ;; esac\n"
            "done </proc/$$/status\n"
            "env\n"
            "mv %s/said.new %s/said\n"
            "exec sleep 1000\n",
            tmpdir(), tmpdir(), tmpdir());
    fchmod(fileno(f), 0755);
    fclose(f);
    return path;
}

/* What it wrote. */
static char *wait_said(struct bench *bench) {
    static char said[16384];
    char path[200];
    FILE *f;

    snprintf(path, sizeof(path), "%s/said", tmpdir());
    while (!(f = fopen(path, "r")))
        ck_assert_int_ge(sd_event_run(bench->event, 10000), 0);
    said[fread(said, 1, sizeof(said) - 1, f)] = '\0';
    fclose(f);
    unlink(path);
    return said;
}

static void check_said(const char *said) {
    const char *mask = strstr(said, "SigBlk:");
    unsigned long long blocked = 0;

    ck_assert_msg(strstr(said, "fd 3 socket:"), "%s", said);
    for (int fd = 4; fd < 10; fd++) { /* the shell has its script above 9 */
        char words[16];

        snprintf(words, sizeof(words), "fd %d ", fd);
        ck_assert_msg(!strstr(said, words), "%s", said);
    }
    ck_assert(mask && sscanf(mask, "SigBlk: %llx", &blocked) == 1);
    ck_assert(!(blocked >> (SIGTERM - 1) & 1));
    ck_assert_ptr_nonnull(strstr(said, "KEPT=yes"));
    ck_assert_ptr_null(strstr(said, "LISTEN_"));
    ck_assert_ptr_null(strstr(said, "NOTIFY_SOCKET"));
    ck_assert_ptr_null(strstr(said, "WATCHDOG_USEC"));
}

static void set_ours(void) {
    sigset_t blocked;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, &blocked, NULL), 0);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", "1", 1);
    setenv("NOTIFY_SOCKET", "/run/x", 1);
    setenv("WATCHDOG_USEC", "1", 1);
    setenv("KEPT", "yes", 1);
}

START_TEST(a_program_has_its_socket_and_nothing_of_ours) {
    struct bench bench;
    int many[8];
    char c;

    set_ours();
    start(&bench, NULL, script("helper"));
    for (size_t i = 0; i < ELEMENTSOF(many); i++) /* made to survive */
        many[i] = dup(STDERR_FILENO);
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), 0);
    ck_assert_int_eq(fcntl(bench.link.fd, F_GETFD), FD_CLOEXEC);
    ck_assert(fcntl(bench.link.fd, F_GETFL) & O_NONBLOCK);
    ck_assert_uint_eq(bench.link.n_children, 1);
    check_said(wait_said(&bench));
    ck_assert(recv(bench.link.fd, &c, 1, 0) < 0 && errno == EAGAIN);
    /* It is killed, and its end is noticed. */
    hand_link_close(&bench.link);
    ck_assert_ptr_null(bench.link.child);
    while (bench.link.n_children > 0)
        ck_assert_int_ge(sd_event_run(bench.event, 10000), 0);
    ck_assert(list_is_empty(&bench.link.children));
    for (size_t i = 0; i < ELEMENTSOF(many); i++)
        close(many[i]);
    finish(&bench);
}
END_TEST

/* In a process without 0 and 3: the program's end of the pair has the right number already. Check
 * has descriptors in ours. */
static int open_with_third_free(const char *program, const char *said) {
    struct hand_address address = { .program = program };
    struct bench bench = { 0 };

    if (dup2(STDERR_FILENO, 3) < 0 || sd_event_new(&bench.event) < 0 ||
        hand_link_init(&bench.link, bench.event, "allot-nothing", &address) < 0)
        return 1;
    close(STDIN_FILENO);
    close(3);
    if (hand_link_open(&bench.link, &bench.err) < 0 || bench.link.fd != STDIN_FILENO)
        return 2;
    while (access(said, F_OK) < 0)
        if (sd_event_run(bench.event, 10000) < 0 || bench.link.n_children == 0)
            return 3;
    finish(&bench);
    return 0;
}

START_TEST(a_socket_that_is_the_third_descriptor_already_stays_it) {
    struct bench bench = { 0 };
    const char *program = script("helper");
    char said[200];
    int status;
    pid_t pid;

    set_ours();
    snprintf(said, sizeof(said), "%s/said", tmpdir()); /* each process has its own folder */
    pid = fork();
    if (pid == 0)
        _exit(open_with_third_free(program, said));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    check_said(wait_said(&bench));
}
END_TEST

START_TEST(a_program_is_ended_with_its_link) {
    struct bench bench;
    pid_t pid = 0;

    start(&bench, NULL, script("helper"));
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), 0);
    ck_assert_int_eq(sscanf(strstr(wait_said(&bench), "pid "), "pid %d", &pid), 1);
    ck_assert_int_eq(kill(pid, 0), 0);
    hand_link_done(&bench.link); /* which waits for it */
    ck_assert(kill(pid, 0) < 0 && errno == ESRCH);
    sd_event_unref(bench.event);
    hand_link_done(&(struct hand_link){ 0 });
}
END_TEST

START_TEST(a_program_that_is_none_is_not_started) {
    struct bench bench;
    char path[200];
    FILE *f;

    start(&bench, NULL, "/nonexistent");
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "/nonexistent cannot be run: "));
    finish(&bench);
    snprintf(path, sizeof(path), "%s/text", tmpdir());
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    start(&bench, NULL, path);
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), -EACCES);
    ck_assert_uint_eq(bench.link.n_children, 0);
    finish(&bench);
}
END_TEST

START_TEST(programs_that_are_stuck_are_not_joined_by_more) {
    struct bench bench;

    start(&bench, NULL, "/nonexistent");
    bench.link.n_children = 7;
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), -ENOENT);
    bench.link.n_children = 8;
    ck_assert_int_eq(hand_link_open(&bench.link, &bench.err), -EBUSY);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "8 processes of allot-nothing are stuck"));
    bench.link.n_children = 0;
    finish(&bench);
}
END_TEST

START_TEST(a_helper_stands_beside_the_program_or_where_it_is_installed) {
    struct hand_address none = { 0 };
    struct hand_link link;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    sd_event *event;

    ck_assert_int_gt(n, 0);
    self[n] = '\0';
    ck_assert_int_ge(sd_event_new(&event), 0);
    ck_assert_int_eq(hand_link_init(&link, event, strrchr(self, '/') + 1, &none), 0);
    ck_assert_str_eq(link.program, self);
    hand_link_done(&link);
    ck_assert_int_eq(hand_link_init(&link, event, "allot-nothing", &none), 0);
    n = strrchr(self, '/') - self;
    ck_assert(strncmp(link.program, self, (size_t)n + 1) != 0);
    ck_assert_str_eq(strrchr(link.program, '/'), "/allot-nothing");
    hand_link_done(&link);
    sd_event_unref(event);
}
END_TEST

SUITE("hand-link", a_socket_is_reached, the_path_of_a_socket_has_a_longest,
      a_program_has_its_socket_and_nothing_of_ours,
      a_socket_that_is_the_third_descriptor_already_stays_it, a_program_is_ended_with_its_link,
      a_program_that_is_none_is_not_started, programs_that_are_stuck_are_not_joined_by_more,
      a_helper_stands_beside_the_program_or_where_it_is_installed)
