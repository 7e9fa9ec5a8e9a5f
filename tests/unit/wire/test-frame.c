/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/random.h"
#include "tests/support/suite.h"
#include "wire/frame.h"
#include "wire/peer.h"

static void pair(int fds[2]) {
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
}

/* Put a message of `n` bytes that all are `c`. */
static int put(struct frame_out *out, char c, size_t n) {
    struct json_writer *w = frame_out_begin(out);

    for (size_t i = 0; i < n; i++)
        json_put_raw(w, &c, 1);
    return frame_out_end(out);
}

START_TEST(messages_come_out_as_they_went_in_however_they_are_cut) {
    uint64_t seed = 3;

    for (int round = 0; round < 60; round++) {
        cleanup(closep) int near = -1, far = -1;
        struct frame_in in;
        size_t lengths[64];
        char *stream = calloc(1, 64 * 5001);
        size_t n = 0, sent = 0, heard = 0, size;
        int fds[2], r;

        pair(fds);
        near = fds[0];
        far = fds[1];
        frame_in_init(&in, 5000);
        for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
            lengths[i] = random_next(&seed) % (round % 2 ? 5001 : 40);
            memset(stream + n, 'a' + (int)(i % 26), lengths[i]);
            n += lengths[i] + 1;
        }
        while (heard < ELEMENTSOF(lengths)) {
            char *text;

            if (sent < n) {
                ssize_t done = send(far, stream + sent,
                                    MIN(n - sent, 1 + random_next(&seed) % 9000), MSG_NOSIGNAL);

                sent += done > 0 ? (size_t)done : 0;
            }
            r = frame_in_read(&in, near);
            ck_assert_msg(r > 0 || r == -EAGAIN, "%d", r);
            while ((r = frame_in_next(&in, &text, &size)) > 0) {
                ck_assert_uint_eq(size, lengths[heard]);
                ck_assert_uint_eq(strlen(text), size);
                ck_assert_uint_eq(strspn(text, (char[]){ (char)('a' + heard % 26), 0 }), size);
                heard++;
            }
            ck_assert_int_eq(r, 0);
        }
        ck_assert_uint_eq(frame_in_partial(&in), 0);
        frame_in_trim(&in);
        ck_assert_ptr_null(in.data);
        frame_in_done(&in);
        free(stream);
    }
}
END_TEST

START_TEST(the_longest_message_fits_and_one_byte_more_does_not) {
    for (int more = 0; more < 2; more++) {
        cleanup(closep) int near = -1, far = -1;
        cleanup(freep) char *bytes = malloc(FRAME_CALL_MAX + 2);
        size_t n = FRAME_CALL_MAX + (size_t)more, sent = 0, size;
        struct frame_in in;
        int fds[2], r = 0;
        char *text;

        pair(fds);
        near = fds[0];
        far = fds[1];
        frame_in_init(&in, FRAME_CALL_MAX);
        memset(bytes, 'x', n);
        bytes[n] = '\0';
        while (r == 0) {
            ssize_t done = send(far, bytes + sent, n + 1 - sent, MSG_NOSIGNAL);

            sent += done > 0 ? (size_t)done : 0;
            ck_assert_int_gt(frame_in_read(&in, near), 0);
            r = frame_in_next(&in, &text, &size);
        }
        ck_assert_int_eq(r, more ? -EMSGSIZE : 1);
        ck_assert_uint_le(in.size, FRAME_CALL_MAX + 2);
        frame_in_done(&in);
    }
}
END_TEST

START_TEST(a_sender_without_end_costs_no_more_than_one_message) {
    cleanup(closep) int near = -1, far = -1;
    struct frame_in in;
    char bytes[4096], *text;
    int fds[2], r = 0;
    size_t n;

    pair(fds);
    near = fds[0];
    far = fds[1];
    memset(bytes, '[', sizeof(bytes));
    frame_in_init(&in, FRAME_CALL_MAX);
    while (r == 0) {
        ck_assert_int_gt(send(far, bytes, sizeof(bytes), MSG_NOSIGNAL), 0);
        ck_assert_int_gt(frame_in_read(&in, near), 0);
        ck_assert_uint_gt(frame_in_partial(&in), 0);
        r = frame_in_next(&in, &text, &n);
    }
    ck_assert_int_eq(r, -EMSGSIZE);
    ck_assert_int_eq(frame_in_next(&in, &text, &n), -EMSGSIZE);
    ck_assert_uint_le(in.size, FRAME_CALL_MAX + 2);
    frame_in_done(&in);
}
END_TEST

START_TEST(the_end_of_the_peer_is_seen) {
    cleanup(closep) int near = -1;
    struct frame_out out;
    struct frame_in in;
    char *text;
    size_t n;
    int fds[2];

    pair(fds);
    near = fds[0];
    frame_in_init(&in, 100);
    frame_out_init(&out, 1000);
    ck_assert_int_eq(frame_in_read(&in, near), -EAGAIN);
    ck_assert_int_eq((int)send(fds[1], "half", 4, 0), 4);
    close(fds[1]);
    ck_assert_int_eq(frame_in_read(&in, near), 4);
    ck_assert_int_eq(frame_in_next(&in, &text, &n), 0);
    ck_assert_int_eq(frame_in_read(&in, near), 0);
    ck_assert_uint_eq(frame_in_partial(&in), 4);
    ck_assert_int_eq(put(&out, 'x', 3), 0);
    ck_assert_int_eq(frame_out_flush(&out, near), -EPIPE);
    frame_in_done(&in);
    frame_out_done(&out);
}
END_TEST

START_TEST(a_slow_reader_is_refused_and_loses_no_half_message) {
    cleanup(closep) int near = -1, far = -1;
    struct frame_out out;
    struct frame_in in;
    size_t n_put = 0, n_heard = 0, n;
    char *text;
    int fds[2], r;

    pair(fds);
    near = fds[0];
    far = fds[1];
    frame_out_init(&out, 200000);
    frame_in_init(&in, 5000);
    while ((r = put(&out, (char)('a' + n_put % 26), 1 + n_put * 37 % 4999)) == 0) {
        n_put++;
        r = frame_out_flush(&out, near);
        ck_assert(r == 0 || r == -EAGAIN);
    }
    ck_assert_int_eq(r, -ENOBUFS);
    ck_assert_uint_gt(frame_out_pending(&out), 200000);
    while (n_heard < n_put) {
        r = frame_in_read(&in, far);
        ck_assert_int_gt(r, 0);
        while (frame_in_next(&in, &text, &n) > 0) {
            ck_assert_uint_eq(n, 1 + n_heard * 37 % 4999);
            ck_assert_int_eq(text[n - 1], 'a' + (int)(n_heard % 26));
            n_heard++;
        }
        r = frame_out_flush(&out, near);
        ck_assert(r == 0 || r == -EAGAIN);
    }
    ck_assert_uint_eq(frame_out_pending(&out), 0);
    frame_in_done(&in);
    frame_out_done(&out);
}
END_TEST

START_TEST(what_was_begun_can_be_taken_back) {
    cleanup(closep) int near = -1, far = -1;
    struct frame_out out;
    char bytes[16];
    int fds[2];

    pair(fds);
    near = fds[0];
    far = fds[1];
    frame_out_init(&out, 1000);
    ck_assert_int_eq(put(&out, 'a', 2), 0);
    json_put_raw(frame_out_begin(&out), "half", 4);
    ck_assert_uint_eq(frame_out_pending(&out), 3);
    frame_out_drop(&out);
    ck_assert_int_eq(put(&out, 'b', 1), 0);
    ck_assert_int_eq(frame_out_flush(&out, near), 0);
    ck_assert_int_eq((int)recv(far, bytes, sizeof(bytes), 0), 5);
    ck_assert_mem_eq(bytes, "aa\0b\0", 5);
    frame_out_done(&out);
}
END_TEST

START_TEST(descriptors_that_are_sent_along_do_not_arrive) {
    cleanup(closep) int near = -1, far = -1;
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    char bytes[2] = "x";
    struct iovec part = { bytes, sizeof(bytes) };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    struct frame_in in;
    int fds[2], before, after;

    pair(fds);
    near = fds[0];
    far = fds[1];
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &far, sizeof(int));
    before = dup(0);
    close(before);
    frame_in_init(&in, 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq((int)sendmsg(far, &message, 0), 2);
        ck_assert_int_eq(frame_in_read(&in, near), 2);
    }
    after = dup(0);
    close(after);
    ck_assert_int_eq(before, after);
    frame_in_done(&in);
}
END_TEST

START_TEST(the_kernel_identifies_the_peer) {
    struct peer peer;
    gid_t groups[1024];
    int fds[2], n = getgroups(ELEMENTSOF(groups), groups);

    pair(fds);
    ck_assert_int_eq(peer_get(&peer, fds[0]), 0);
    ck_assert_int_eq(peer.pid, getpid());
    ck_assert_uint_eq(peer.uid, getuid());
    ck_assert_uint_eq(peer.gid, getgid());
    ck_assert_int_ge(peer.pidfd, 0);
    ck_assert(fcntl(peer.pidfd, F_GETFD) & FD_CLOEXEC);
    ck_assert_uint_eq(peer.n_groups, (size_t)n);
    ck_assert(n == 0 || memcmp(peer.groups, groups, (size_t)n * sizeof(*groups)) == 0);
    peer_done(&peer);
    peer_done(&peer);
    close(fds[0]);
    close(fds[1]);
    ck_assert_int_lt(peer_get(&peer, fds[0]), 0);
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_lt(peer_get(&peer, fds[0]), 0);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

/* As a process of other ids and groups, which only root can become; its exit status. */
static int look_as(unsigned n_groups) {
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        gid_t groups[PEER_GROUPS_MAX + 50];
        struct peer peer;
        int fds[2];

        for (unsigned i = 0; i < n_groups; i++)
            groups[i] = 5000 + i;
        if (setgroups(n_groups, groups) < 0 || setgid(4711) < 0 || setuid(4712) < 0)
            _exit(10);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ||
            peer_get(&peer, fds[0]) < 0)
            _exit(11);
        if (peer.pid != getpid() || peer.uid != 4712 || peer.gid != 4711 || peer.pidfd < 0)
            _exit(12);
        if (peer.n_groups != (n_groups < PEER_GROUPS_MAX ? n_groups : PEER_GROUPS_MAX))
            _exit(13);
        for (size_t i = 0; i < peer.n_groups; i++)
            if (peer.groups[i] != 5000 + i)
                _exit(14);
        peer_done(&peer);
        if (peer.groups || peer.n_groups || peer.pidfd != -1)
            _exit(15);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

START_TEST(a_peer_has_its_groups_up_to_a_number) {
    if (geteuid() != 0) {
        printf("skipped: only root can take on other groups\n");
        return;
    }
    ck_assert_int_eq(look_as(0), 0);
    ck_assert_int_eq(look_as(1), 0);
    ck_assert_int_eq(look_as(PEER_GROUPS_MAX), 0);
    ck_assert_int_eq(look_as(PEER_GROUPS_MAX + 50), 0);
}
END_TEST

/* From now on the kernel answers so where it is asked for the pidfd of a peer. */
static void without_peerpidfd(int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getsockopt, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 77, 0, 1), /* SO_PEERPIDFD */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { ELEMENTSOF(code), code };

    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(an_older_kernel_has_the_peer_by_its_pid) {
    static const struct {
        int error, r;
        bool has_pidfd;
    } cases[] = {
        { ENOPROTOOPT, 0, true }, { EINVAL, 0, true },  { ESRCH, 0, false },
        { ENODATA, 0, false },    { EIO, -EIO, false }, { EMFILE, -EMFILE, false },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
            struct peer peer = { .pidfd = -7 };
            int fds[2], r;

            pair(fds);
            without_peerpidfd(cases[i].error);
            r = peer_get(&peer, fds[0]);
            if (r != cases[i].r)
                _exit(1);
            if (r < 0)
                _exit(peer.pidfd == -7 ? 0 : 2);
            if ((peer.pidfd >= 0) != cases[i].has_pidfd || peer.pidfd_exact || peer.pid != getpid())
                _exit(3);
            peer_done(&peer);
            _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(status == 0, "case %zu: %d", i, WEXITSTATUS(status));
    }
}
END_TEST

START_TEST(a_socket_without_a_peer_is_refused) {
    struct peer peer = { .pid = 1 };
    int lone = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(peer_get(&peer, lone), -ENOTCONN);
    ck_assert_int_eq(peer_get(&peer, other), -ENOTCONN);
    ck_assert_int_eq(peer.pid, 1);
    close(lone);
    close(other);
}
END_TEST

SUITE("frame", messages_come_out_as_they_went_in_however_they_are_cut,
      the_longest_message_fits_and_one_byte_more_does_not,
      a_sender_without_end_costs_no_more_than_one_message, the_end_of_the_peer_is_seen,
      a_slow_reader_is_refused_and_loses_no_half_message, what_was_begun_can_be_taken_back,
      descriptors_that_are_sent_along_do_not_arrive, the_kernel_identifies_the_peer,
      a_peer_has_its_groups_up_to_a_number, an_older_kernel_has_the_peer_by_its_pid,
      a_socket_without_a_peer_is_refused)
