/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of the wire fails once: the answer is -ENOMEM, and nothing is lost or half done.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/support/base/failing_malloc.h"
#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"
#include "wire/client.h"
#include "wire/frame.h"
#include "wire/peer.h"
#include "wire/varlink.h"

/* Try `call`, the first allocation failing, then the second, …, until none does; `code` is what it
 * gave last. */
#define EACH_FAILS(code, prepare, call, tidy)                                                      \
    for (uint64_t n_ = 1;; n_++) {                                                                 \
        bool failed_;                                                                              \
                                                                                                   \
        prepare;                                                                                   \
        failing_malloc_at(n_);                                                                     \
        code = call;                                                                               \
        failed_ = failing_malloc_end();                                                            \
        tidy;                                                                                      \
        if (!failed_)                                                                              \
            break;                                                                                 \
        ck_assert_msg(code == -ENOMEM, "allocation %d: %d", (int)n_, code);                        \
    }

#define M "\"method\":\"io.allot.Manager."

START_TEST(calls_need_memory) {
    static const struct {
        const char *text;
        int code;
    } calls[] = {
        { "{" M "Acquire\",\"parameters\":{\"request\":{\"name\":\"job\",\"amounts\":[{\"mode\":"
          "\"grow\"},{\"mode\":\"grow\"},{\"mode\":\"grow\"},{\"mode\":\"grow\"},{\"mode\":"
          "\"grow\"}],"
          "\"devices\":[\"0\",\"1\"]}}}",
          0 },
        { "{" M "Nothing\"}", -EOPNOTSUPP },
        { "{\"method\":\"com.example.Nothing\"}", -EOPNOTSUPP },
        { "{\"method\":\"Nothing\"}", -EOPNOTSUPP },
        { "{" M "Grow\",\"parameters\":{\"lease\":\"x\"}}", -EINVAL },
        { "{" M "Grow\",\"more\":7}", -EINVAL },
        { "{" M "Grow\",\"upgrade\":true}", -EINVAL },
        { "{" M "Grow\",\"more\":true,\"oneway\":true}", -EINVAL },
        { "nothing", -EBADMSG },
    };

    for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
        struct varlink_call call;
        struct failure failure;
        struct store store;
        char text[512];
        int code;

        EACH_FAILS(code, (strcpy(text, calls[i].text), store = (struct store){ 0 }),
                   varlink_call_read(&call, text, strlen(text), &store, &failure),
                   store_done(&store));
        ck_assert_msg(code == calls[i].code, "%s: %d", calls[i].text, code);
    }
}
END_TEST

START_TEST(replies_need_memory) {
    static const struct {
        const char *text;
        enum wire_method method;
        int code;
    } replies[] = {
        { "{\"parameters\":{\"lease\":1,\"environment\":{\"A\":\"1\",\"B\":\"2\",\"C\":\"3\",\"D\":"
          "\"4\",\"E\":\"5\"},\"devices\":[]}}",
          WIRE_METHOD_ACQUIRE, -EINVAL },
        { "{\"error\":\"io.allot.Manager.NoMemory\",\"parameters\":{\"reason\":\"full\"}}",
          WIRE_METHOD_GROW, -EREMOTEIO },
    };

    for (size_t i = 0; i < ELEMENTSOF(replies); i++) {
        struct allot_error err;
        union wire_reply reply;
        struct failure failure;
        struct store store;
        char text[512];
        int code;

        EACH_FAILS(code, (strcpy(text, replies[i].text), store = (struct store){ 0 }),
                   varlink_reply_read(&reply, &failure, replies[i].method, text, strlen(text),
                                      &store, &err),
                   store_done(&store));
        ck_assert_msg(code == replies[i].code || code == 0, "%zu: %d", i, code);
    }
}
END_TEST

static int put(struct frame_out *out, size_t n) {
    struct json_writer *w = frame_out_begin(out);

    for (size_t i = 0; i < n; i++)
        json_put_raw(w, "x", 1);
    return frame_out_end(out);
}

START_TEST(frames_need_memory_and_go_on_afterwards) {
    struct frame_out out;
    struct frame_in in;
    size_t n, total = 0;
    char *text;
    int fds[2], r;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    frame_out_init(&out, 1000);
    EACH_FAILS(r, (void)0, put(&out, 700),
               ck_assert_uint_eq(frame_out_pending(&out), r < 0 ? 0 : 701));
    ck_assert_int_eq(r, 0);
    ck_assert_int_eq(put(&out, 400), 0);       /* what is there already is less than the most */
    ck_assert_int_eq(put(&out, 10), -ENOBUFS); /* and now it is not */
    ck_assert_uint_eq(frame_out_pending(&out), 1102);
    ck_assert_int_eq(frame_out_flush(&out, fds[0]), 0);
    ck_assert_uint_eq(frame_out_pending(&out), 0);
    ck_assert_ptr_nonnull(out.json.data); /* small enough to be kept */
    ck_assert_uint_eq(out.json.len, 0);
    ck_assert_uint_eq(out.sent, 0);
    ck_assert_int_eq(put(&out, 3), 0); /* what was refused does not come */
    ck_assert_int_eq(frame_out_flush(&out, fds[0]), 0);

    frame_in_init(&in, 5000);
    EACH_FAILS(r, (void)0, frame_in_read(&in, fds[1]), (void)0);
    ck_assert_int_eq(r, 701 + 401 + 4);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(frame_in_next(&in, &text, &n), 1);
        total += n;
    }
    ck_assert_uint_eq(total, 700 + 400 + 3);
    ck_assert_int_eq(frame_in_next(&in, &text, &n), 0);

    /* A large buffer goes once it is empty. */
    frame_out_done(&out);
    frame_out_init(&out, 100000);
    ck_assert_int_eq(put(&out, 40000), 0);
    ck_assert_int_eq(frame_out_flush(&out, fds[0]), 0);
    ck_assert_ptr_null(out.json.data);
    frame_out_done(&out);
    frame_in_done(&in);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(peers_need_memory_and_leave_no_descriptor) {
    int before = dup(0), after, fds[2], r;
    struct peer peer;

    close(before);
    if (geteuid() == 0)
        ck_assert_int_eq(setgroups(3, (const gid_t[]){ 4, 5, 6 }), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    for (int i = 0; i < 3; i++) {
        EACH_FAILS(r, (void)0, peer_get(&peer, fds[0]), (void)0);
        ck_assert_int_eq(r, 0);
        ck_assert_int_ge(peer.pidfd, 0);
        peer_done(&peer);
        ck_assert_int_eq(peer.pidfd, -1);
        ck_assert_ptr_null(peer.groups);
    }
    close(fds[0]);
    close(fds[1]);
    after = dup(0);
    close(after);
    ck_assert_int_eq(after, before);
}
END_TEST

START_TEST(clients_need_memory) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;
    struct allot_error err = { 0 };
    struct client *client = NULL;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", tmpdir());
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    EACH_FAILS(r, (void)0, client_new(&client, address.sun_path, &err), (void)0);
    ck_assert_int_eq(r, 0);
    ck_assert_str_eq(err.text, "no host memory for a connection");
    ck_assert_int_eq(client_send(client, WIRE_METHOD_GET_BOX, NULL, 0, &err), -ENOTCONN);
    ck_assert_int_eq(client_connect(client, &err), 0);
    ck_assert_int_eq(client_connect(client, &err), 0); /* it is */
    EACH_FAILS(r, (void)0, client_send(client, WIRE_METHOD_RELOAD, NULL, 0, &err), (void)0);
    ck_assert_int_eq(r, 0);
    ck_assert_str_eq(err.text, "no host memory for a call of Reload");
    ck_assert(client_is_connected(client)); /* nothing was half sent */
    client_free(client);
    close(listener);
    unlink(address.sun_path);
}
END_TEST

SUITE("wire-failing-malloc", calls_need_memory, replies_need_memory,
      frames_need_memory_and_go_on_afterwards, peers_need_memory_and_leave_no_descriptor,
      clients_need_memory)
