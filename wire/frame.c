/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     data   0 ........ start ....... scanned ...... len ..... size
 *              taken     │ a message that has begun   │  room
 *
 * Messages are taken from the front. The rest of an unfinished one is moved to the front only when
 * the room behind it runs out, at most once per buffer. The buffer doubles up to one byte more than
 * the longest message, so a peer that sends without end costs at most that.
 */
#include "wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

#define FRAME_FIRST ((size_t)4096)

/* After a burst, an empty buffer larger than this is freed. */
#define FRAME_KEEP ((size_t)16 << 10)

void frame_in_init(struct frame_in *in, size_t max) {
    *in = (struct frame_in){ .max = max };
}

void frame_in_done(struct frame_in *in) {
    free(in->data);
    *in = (struct frame_in){ .max = in->max };
}

static int in_make_room(struct frame_in *in) {
    size_t most = in->max + 1; /* with its NUL */
    size_t size;
    char *data;

    if (in->start > 0 && (in->start == in->len || in->size - in->len < in->size / 4)) {
        memmove(in->data, in->data + in->start, in->len - in->start);
        in->len -= in->start;
        in->scanned -= in->start;
        in->start = 0;
    }
    if (in->len < in->size)
        return 0;
    size = MAX(in->size * 2, FRAME_FIRST);
    /* A whole message always fits, and so does the byte that shows that a message is too long. */
    size = MIN(size, MAX(most, FRAME_FIRST) + 1);
    if (size <= in->size)
        return -EMSGSIZE;
    data = realloc(in->data, size);
    if (!data)
        return -ENOMEM;
    in->data = data;
    in->size = size;
    return 0;
}

int frame_in_read(struct frame_in *in, int fd) {
    ssize_t n;
    int r;

    r = in_make_room(in);
    if (r < 0)
        return r;
    do
        n = recv(fd, in->data + in->len, in->size - in->len, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    in->len += (size_t)n;
    return (int)n;
}

int frame_in_next(struct frame_in *in, char **ret_text, size_t *ret_n) {
    char *from, *end = NULL;

    if (in->scanned < in->len)
        end = memchr(in->data + in->scanned, '\0', in->len - in->scanned);
    if (!end) {
        in->scanned = in->len;
        return in->len - in->start > in->max ? -EMSGSIZE : 0;
    }
    from = in->data + in->start;
    if ((size_t)(end - from) > in->max)
        return -EMSGSIZE;
    *ret_text = from;
    *ret_n = (size_t)(end - from);
    in->start = in->scanned = (size_t)(end + 1 - in->data);
    return 1;
}

size_t frame_in_partial(const struct frame_in *in) {
    return in->len - in->start;
}

void frame_in_trim(struct frame_in *in) {
    if (in->start == in->len)
        frame_in_done(in);
}

void frame_out_init(struct frame_out *out, size_t max) {
    *out = (struct frame_out){ .max = max };
}

void frame_out_done(struct frame_out *out) {
    json_writer_done(&out->json);
    out->sent = out->begun = 0;
}

struct json_writer *frame_out_begin(struct frame_out *out) {
    out->begun = out->json.len;
    out->json.comma = false;
    out->json.failed = false;
    return &out->json;
}

void frame_out_drop(struct frame_out *out) {
    out->json.len = out->begun;
    out->json.failed = false;
}

int frame_out_end(struct frame_out *out) {
    json_put_raw(&out->json, "", 1);
    if (out->json.failed || out->begun - out->sent > out->max) {
        int r = out->json.failed ? -ENOMEM : -ENOBUFS;

        frame_out_drop(out);
        return r;
    }
    out->begun = out->json.len;
    return 0;
}

size_t frame_out_pending(const struct frame_out *out) {
    return out->begun - out->sent;
}

int frame_out_flush(struct frame_out *out, int fd) {
    while (out->sent < out->begun) {
        ssize_t n = send(fd, out->json.data + out->sent, out->begun - out->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EWOULDBLOCK ? -EAGAIN : -errno;
        out->sent += (size_t)n;

        /* Free what a slow reader has taken before it has taken everything. */
        if (out->sent > FRAME_KEEP && out->sent > out->json.len / 2 && out->sent < out->begun) {
            memmove(out->json.data, out->json.data + out->sent, out->json.len - out->sent);
            out->json.len -= out->sent;
            out->begun -= out->sent;
            out->sent = 0;
        }
    }
    if (out->json.size > FRAME_KEEP)
        frame_out_done(out);
    else
        out->json.len = out->sent = out->begun = 0;
    return 0;
}
