/* SPDX-License-Identifier: Apache-2.0 */
/* The real helpers, and a program at the other end that is not allotd. */
#include "daemon/hand/wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

static int start_helper_as(const char *program, uid_t uid, pid_t *ret_pid) {
    int sockets[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    *ret_pid = fork();
    if (*ret_pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        dup2(null, STDERR_FILENO);
        if (sockets[1] == HAND_FD)
            fcntl(HAND_FD, F_SETFD, 0);
        else
            dup2(sockets[1], HAND_FD);
        if (setresuid(uid, uid, uid) == 0)
            execl(program, program, (char *)NULL);
        _exit(127);
    }
    close(sockets[1]);
    return sockets[0];
}

static int start_helper(const char *program, pid_t *ret_pid) {
    return start_helper_as(program, getuid(), ret_pid);
}

START_TEST(a_helper_ends_on_anything_that_is_not_a_question_for_it) {
    struct hand_hello hello = { .head.kind = HAND_HELLO, .abi = HAND_ABI, .driver = DRIVER_SIM };
    union hand_message message;
    struct sim_box s;

    sim_box_init(&s, NULL);
    for (unsigned round = 0; round < 80; round++) {
        bool is_reader = round % 4 >= 2;
        uint64_t random = round;
        int status, fd;
        pid_t pid;

        fd = start_helper(is_reader ? ALLOT_READER : ALLOT_HAND, &pid);
        if (round % 2) {
            ck_assert_int_eq(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
            ck_assert_int_gt(recv(fd, &message, sizeof(message), 0), 0);
            ck_assert_int_eq(message.answer.r, 0);
        }
        memset(&message, 0, sizeof(message));
        switch (round / 4) {
        case 0: /* too short for a head */
            send(fd, &message, 3, MSG_NOSIGNAL);
            break;
        case 1: /* another build */
            hello.abi++;
            send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
            hello.abi--;
            break;
        case 2: /* its own words */
            message.head.kind = HAND_ANSWER;
            send(fd, &message, sizeof(message.answer), MSG_NOSIGNAL);
            break;
        case 3: /* the right kind in the wrong size */
            message.head.kind = HAND_CONFINE;
            send(fd, &message, sizeof(message.confine) - 1, MSG_NOSIGNAL);
            break;
        case 4: /* the end */
            break;
        case 5: /* for the other one */
            message.head.kind = is_reader ? HAND_DESCRIBE : HAND_SAMPLE;
            send(fd, &message, hand_size(message.head.kind), MSG_NOSIGNAL);
            break;
        default:
            for (size_t i = 0; i < sizeof(message); i++)
                ((uint8_t *)&message)[i] =
                    (uint8_t)((random = random * 6364136223846793005u + 1) >> 56);
            send(fd, &message, sizeof(message), MSG_NOSIGNAL);
        }
        shutdown(fd, SHUT_WR);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFEXITED(status), "round %u: signal %d", round, WTERMSIG(status));
        close(fd);
    }
    sim_box_done(&s);
}
END_TEST

/* Not even its own user may look into it: what is in /proc of it is root's. */
START_TEST(the_memory_of_a_helper_is_its_own) {
    struct hand_hello hello = { .head.kind = HAND_HELLO, .abi = HAND_ABI, .driver = DRIVER_SIM };
    uid_t uid = getuid() == 0 ? 65534 : getuid();
    union hand_message message;
    char path[64];
    struct stat st;
    ssize_t n;
    pid_t pid;
    int fd;

    fd = start_helper_as(ALLOT_HAND, uid, &pid);
    ck_assert_int_eq(send(fd, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    n = recv(fd, &message, sizeof(message), 0);
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    if (n > 0) {
        ck_assert_int_eq(message.answer.r, 0);
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_uint_eq(st.st_uid, 0);
    } else {
        puts("skipped: the folder of the build is not for everybody to read");
    }
    close(fd);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

/* What it says, and its exit status; without a socket. */
static int run_alone(const char *program, const char *words, char said[static 512]) {
    char command[512];
    FILE *f;

    snprintf(command, sizeof(command), "exec 3<&- 2>&1; exec %s %s", program, words);
    f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    said[fread(said, 1, 511, f)] = 0;
    return WEXITSTATUS(pclose(f));
}

START_TEST(a_helper_says_what_it_is_and_does_nothing_by_itself) {
    static const char *const programs[] = { ALLOT_HAND, ALLOT_READER };
    char said[512], name[64];

    for (size_t i = 0; i < ELEMENTSOF(programs); i++) {
        snprintf(name, sizeof(name), "usage: %s\n", strrchr(programs[i], '/') + 1);
        ck_assert_int_eq(run_alone(programs[i], "--help", said), 0);
        ck_assert_int_eq(strncmp(said, name, strlen(name)), 0);
        ck_assert_int_eq(run_alone(programs[i], "-h", said), 0);
        ck_assert_int_eq(run_alone(programs[i], "", said), 2);
        ck_assert_int_eq(strncmp(said, name, strlen(name)), 0);
        ck_assert_int_eq(run_alone(programs[i], "--what", said), 2);
        ck_assert_int_eq(run_alone(programs[i], "3</dev/null", said), 2);
        ck_assert_int_eq(run_alone(programs[i], "--version", said), 0);
        ck_assert_int_eq(strncmp(said, name + 7, strlen(name) - 8), 0);
    }
}
END_TEST

SUITE_TIMEOUT("hand-wire", 120, the_memory_of_a_helper_is_its_own,
              a_helper_says_what_it_is_and_does_nothing_by_itself,
              a_helper_ends_on_anything_that_is_not_a_question_for_it)
