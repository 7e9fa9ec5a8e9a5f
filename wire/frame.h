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

/* What a client may send in one message, and what the daemon may. */
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
 * Read once from `fd`. > 0: so many bytes; 0: the peer has ended its side; -EAGAIN; -ENOMEM or what
 * the socket says (-ECONNRESET). Every message taken before is void after it. Do not call it while
 * frame_in_next() still has messages.
 */
int frame_in_read(struct frame_in *in, int fd);

/*
 * 1: the next message, which may be changed where it stands; text[n] is its NUL. 0: no whole one is
 * there. -EMSGSIZE: it is longer than `max`, and the connection of no use any more.
 */
int frame_in_next(struct frame_in *in, char **ret_text, size_t *ret_n);

/* Bytes of a message that has begun and not ended (a slow sender), and memory given back. */
size_t frame_in_partial(const struct frame_in *in);
void frame_in_trim(struct frame_in *in); /* does nothing while messages are left */

struct frame_out {
    struct json_writer json; /* between begin and end the message is written here */
    size_t sent;             /* of json.len */
    size_t begun;            /* where the message being written starts */
    size_t max;              /* bytes that may wait for a slow reader before one more is refused */
};

void frame_out_init(struct frame_out *out, size_t max);
void frame_out_done(struct frame_out *out);

/*
 * Write a message into the writer that begin gives, then end it. -ENOMEM or -ENOBUFS (more than
 * `max` was waiting already: the reader is too slow to be kept): the message is taken back and what
 * was queued before it is whole.
 */
struct json_writer *frame_out_begin(struct frame_out *out);
int frame_out_end(struct frame_out *out);
void frame_out_drop(struct frame_out *out); /* take back what was begun */

/* Send what waits. 0: all is sent; -EAGAIN: poll for writing; -EPIPE, -ECONNRESET: peer gone. */
int frame_out_flush(struct frame_out *out, int fd);
size_t frame_out_pending(const struct frame_out *out); /* ended and not sent */
