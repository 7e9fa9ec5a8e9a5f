/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a stream of bytes, cut into messages as a connection would. Each is tried as a call,
 * as a reply to methods, and as a box. What is accepted is written and must read the same again;
 * what is refused has a reason; and the stream, cut elsewhere, gives the same messages.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "tests/fuzz/fuzz.h"
#include "wire/frame.h"
#include "wire/snapshot.h"
#include "wire/varlink.h"

/* A copy that ends where the text does. */
static char *exact(const char *text, size_t n) {
    char *copy = malloc(n ? n : 1);

    fuzz_check(copy);
    return memcpy(copy, text, n);
}

static void try_call(const char *text, size_t n) {
    cleanup(freep) char *copy = exact(text, n);
    struct json_writer first = { 0 }, second = { 0 };
    struct store store = { 0 };
    struct failure failure;
    struct varlink_call call, again;
    int r = varlink_call_read(&call, copy, n, &store, &failure);

    if (r < 0) {
        fuzz_check(r == -EBADMSG || r == -EINVAL || r == -EOPNOTSUPP);
        fuzz_check(failure.code != FAILURE_NONE);
        varlink_failure_write(&first, &failure);
        fuzz_check(!first.failed);
    } else if (call.method < WIRE_METHODS) {
        enum varlink_flags flags =
            (call.more ? VARLINK_MORE : 0) | (call.oneway ? VARLINK_ONEWAY : 0);
        cleanup(freep) char *text_again = NULL;
        struct store store_again = { 0 };

        varlink_call_write(&first, call.method, &call.parameters, flags);
        text_again = exact(first.data, first.len);
        fuzz_check(varlink_call_read(&again, text_again, first.len, &store_again, &failure) == 0);
        fuzz_check(again.method == call.method && again.more == call.more);
        varlink_call_write(&second, again.method, &again.parameters, flags);
        fuzz_check(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
        store_done(&store_again);
    }
    json_writer_done(&first);
    json_writer_done(&second);
    store_done(&store);
}

static void try_reply(enum wire_method method, const char *text, size_t n) {
    cleanup(freep) char *copy = exact(text, n);
    struct json_writer first = { 0 }, second = { 0 };
    struct store store = { 0 };
    struct allot_error err = { 0 };
    struct failure failure;
    union wire_reply reply;
    int r = varlink_reply_read(&reply, &failure, method, copy, n, &store, &err);

    if (r == -EREMOTEIO)
        fuzz_check(failure.code != FAILURE_NONE && failure_errno(failure.code) < 0);
    if (r < 0)
        fuzz_check(err.text[0]);
    if (r >= 0) {
        union wire_reply again;
        cleanup(freep) char *text_again = NULL;
        struct store store_again = { 0 };

        varlink_reply_write(&first, method, &reply, r > 0);
        text_again = exact(first.data, first.len);
        fuzz_check(varlink_reply_read(&again, &failure, method, text_again, first.len, &store_again,
                                      &err) == r);
        varlink_reply_write(&second, method, &again, r > 0);
        fuzz_check(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
        store_done(&store_again);
    }
    json_writer_done(&first);
    json_writer_done(&second);
    store_done(&store);
}

static void try_snapshot(const char *text, size_t n) {
    cleanup(snapshot_freep) struct snapshot *snapshot = NULL;
    struct allot_error err = { 0 };

    if (snapshot_read(&snapshot, text, n, &err) < 0)
        fuzz_check(err.text[0]);
}

/* Feed the stream `step` bytes at a time; the number of messages, and a sum over them. */
static size_t cut(const uint8_t *data, size_t size, size_t step, size_t *ret_sum) {
    struct frame_in in;
    size_t n_messages = 0, at = 0, n;
    char *text;
    int fds[2], r = 0;

    *ret_sum = 0;
    fuzz_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    frame_in_init(&in, 4096);
    while (at < size && r >= 0) {
        size_t part = MIN(step, size - at);

        fuzz_check(send(fds[1], data + at, part, MSG_NOSIGNAL) == (ssize_t)part);
        at += part;
        while (r >= 0 && frame_in_read(&in, fds[0]) > 0)
            while ((r = frame_in_next(&in, &text, &n)) > 0) {
                fuzz_check(n <= 4096 && text[n] == '\0' && strlen(text) == n);
                *ret_sum = *ret_sum * 31 + n;
                n_messages++;
            }
    }
    frame_in_done(&in);
    close(fds[0]);
    close(fds[1]);
    return n_messages;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    size_t left = size, sum_whole, sum_parts;

    if (size > 16384)
        return 0;
    while (left > 0) {
        const char *end = memchr(text, '\0', left);
        size_t n = end ? (size_t)(end - text) : left;

        try_call(text, n);
        /* All of a short one; of a long one those that its length picks. */
        for (enum wire_method method = 0; method < WIRE_METHODS; method++)
            if (n < 512 || n % 4 == method % 4)
                try_reply(method, text, n);
        try_snapshot(text, n);
        text += MIN(n + 1, left);
        left -= MIN(n + 1, left);
    }
    fuzz_check(cut(data, size, 8192, &sum_whole) == cut(data, size, 7 + size / 64, &sum_parts) &&
               sum_whole == sum_parts);
    return 0;
}
