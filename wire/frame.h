/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Frame: NUL-terminated messages, read from and written to a stream.
 *
 * Embedded in the connection that owns the socket; the caller polls. Nothing is copied on the way:
 * a message is parsed where the socket put it, and written where the socket takes it from. Both
 * directions are bounded, because the peer is not trusted. Sockets may be blocking or not; a peer
 * that is gone is an error, never a signal. The kernel drops descriptors that a peer sends.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

/* The longest message of a client, and of the daemon. */
#define FRAME_CALL_MAX  ((size_t)64 << 10)
#define FRAME_REPLY_MAX ((size_t)64 << 20)

struct frame_in {
    char *data;
    size_t size;
    size_t start;   /* where the first message that was not taken begins */
    size_t scanned; /* no NUL between start and here */
    size_t len;     /* bytes in data */
    size_t max;     /* longest message, without its NUL */
};

void frame_in_init(struct frame_in *in, size_t max);
void frame_in_done(struct frame_in *in);

/*
 * Read once from `fd`. > 0: number of bytes; 0: the peer has closed its side; -EAGAIN; -ENOMEM or
 * an error of the socket (-ECONNRESET). This invalidates every message taken before. Do not call it
 * while frame_in_next() still has messages.
 */
int frame_in_read(struct frame_in *in, int fd);

/*
 * 1: the next message, which may be changed in place; text[n] is its NUL. 0: there is no whole
 * message. -EMSGSIZE: it is longer than `max`, and the connection can no longer be used.
 */
int frame_in_next(struct frame_in *in, char **ret_text, size_t *ret_n);

/* Bytes of a message that has begun and not ended (a slow sender); and giving back memory. */
size_t frame_in_partial(const struct frame_in *in);
void frame_in_trim(struct frame_in *in); /* does nothing while messages are left */

struct frame_out {
    struct json_writer json; /* between begin and end the message is written here */
    size_t sent;             /* of json.len */
    size_t begun;            /* where the message being written starts */
    size_t max;              /* no message is accepted while more bytes than this wait for a slow
                                reader */
};

void frame_out_init(struct frame_out *out, size_t max);
void frame_out_done(struct frame_out *out);

/*
 * Write a message into the writer that begin returns, then end it. -ENOMEM, or -ENOBUFS (more than
 * `max` bytes were already waiting: drop this slow reader): the message is taken back, and
 * everything queued before it is whole.
 */
struct json_writer *frame_out_begin(struct frame_out *out);
int frame_out_end(struct frame_out *out);
void frame_out_drop(struct frame_out *out); /* take back the message that was begun */

/* Send what is queued. 0: all is sent; -EAGAIN: poll for writing; -EPIPE, -ECONNRESET: peer
 * gone. */
int frame_out_flush(struct frame_out *out, int fd);
size_t frame_out_pending(const struct frame_out *out); /* complete and not sent */
