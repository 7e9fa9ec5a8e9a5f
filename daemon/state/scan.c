/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four things can be wrong with a state file, and they must be told apart.
 *
 * A daemon that is killed in the middle of write() leaves the beginning of a frame, then the zeros
 * that were there before: *torn*. Nothing was answered, so nothing was lost. The end mark
 * distinguishes it from damage: a frame whose head is good and whose end mark is still zero was
 * never finished. A file that was cut lacks its zeros: *truncated*. Any other place where no frame
 * begins is *corrupted*; reading goes on at the next frame whose checksums are right, because its
 * records describe whole objects. A gap in the sequence means that a frame is missing.
 */
#include "daemon/state/scan.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"

#define VERSION 1
#define PAGE    4096 /* write() stops at no smaller place */

static const uint8_t file_magic[8] = { 'a', 'l', 'l', 'o', 't', 's', 't', '\n' };
static const uint8_t frame_magic[4] = { 0xa1, 'F', 'R', 'M' };
static const uint8_t frame_end[STATE_FRAME_END] = { 'E', 'N', 'D', 0xe4 };

static void put_u32(uint8_t *bytes, uint32_t value) {
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
}

static void put_u64(uint8_t *bytes, uint64_t value) {
    put_u32(bytes, (uint32_t)value);
    put_u32(bytes + 4, (uint32_t)(value >> 32));
}

static uint32_t get_u32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static uint64_t get_u64(const uint8_t *bytes) {
    return get_u32(bytes) | (uint64_t)get_u32(bytes + 4) << 32;
}

void state_scan_write_head(uint8_t bytes[static STATE_HEAD_SIZE]) {
    memcpy(bytes, file_magic, sizeof(file_magic));
    put_u32(bytes + 8, VERSION);
    put_u32(bytes + 12, crc32c(0, bytes, 12));
}

size_t state_scan_close_frame(uint8_t *bytes, size_t payload_size, uint64_t sequence) {
    memcpy(bytes, frame_magic, sizeof(frame_magic));
    put_u32(bytes + 4, (uint32_t)payload_size);
    put_u64(bytes + 8, sequence);
    put_u32(bytes + 16, crc32c(0, bytes + STATE_FRAME_HEAD, payload_size));
    put_u32(bytes + 20, crc32c(0, bytes, 20));
    memcpy(bytes + STATE_FRAME_HEAD + payload_size, frame_end, sizeof(frame_end));
    return STATE_FRAME_HEAD + payload_size + STATE_FRAME_END;
}

enum frame { FRAME_GOOD, FRAME_UNFINISHED, FRAME_CUT, FRAME_BAD };

/* What stands at `at`, of `size` bytes; a good frame's size and sequence. */
static enum frame frame_look(const uint8_t *bytes, size_t size, size_t at, size_t *ret_size,
                             uint64_t *ret_sequence) {
    const uint8_t *head = bytes + at;
    size_t left = size - at;
    uint64_t whole;

    if (left < STATE_FRAME_HEAD)
        return memcmp(head, frame_magic, MIN(left, sizeof(frame_magic))) == 0 ? FRAME_CUT
                                                                              : FRAME_BAD;
    if (memcmp(head, frame_magic, sizeof(frame_magic)) != 0 ||
        get_u32(head + 20) != crc32c(0, head, 20))
        return FRAME_BAD;
    whole = (uint64_t)STATE_FRAME_HEAD + get_u32(head + 4) + STATE_FRAME_END;
    if (whole > left)
        return FRAME_CUT;
    if (memcmp(head + whole - STATE_FRAME_END, frame_end, sizeof(frame_end)) != 0)
        return get_u32(head + whole - STATE_FRAME_END) == 0 ? FRAME_UNFINISHED : FRAME_BAD;
    if (get_u32(head + 16) != crc32c(0, head + STATE_FRAME_HEAD, get_u32(head + 4)))
        return FRAME_BAD;
    *ret_size = whole;
    *ret_sequence = get_u64(head + 8);
    return FRAME_GOOD;
}

/* The offset behind the last byte that is not zero. */
static size_t content_end(const uint8_t *bytes, size_t size) {
    while (size > 0 && bytes[size - 1] == 0)
        size--;
    return size;
}

/* The next good frame at or behind `from` with a higher sequence; `size` if there is none. */
static size_t frame_search(const uint8_t *bytes, size_t size, size_t from, uint64_t sequence) {
    while (from < size) {
        const uint8_t *hit = memmem(bytes + from, size - from, frame_magic, sizeof(frame_magic));
        size_t whole;
        uint64_t next;

        if (!hit)
            break;
        from = (size_t)(hit - bytes);
        if (frame_look(bytes, size, from, &whole, &next) == FRAME_GOOD && next > sequence)
            return from;
        from++;
    }
    return size;
}

static void worsen(struct state_scan *scan, enum state_damage damage, uint64_t at) {
    if (scan->damage == STATE_WHOLE || (scan->damage == STATE_TORN && damage != STATE_TORN))
        scan->damaged_at = at;
    scan->damage = MAX(scan->damage, damage);
}

/* A frame in order of which no records can be made was written by another program. */
static int frame_read(const uint8_t *payload, size_t size, uint64_t offset, state_scan_fn fn,
                      void *userdata, struct state_scan *scan) {
    struct record record;
    int r;

    for (size_t at = 0; at < size;) {
        size_t length;

        if (size - at < 2) {
            worsen(scan, STATE_CORRUPTED, offset + at);
            return 0;
        }
        length = (size_t)payload[at] | (size_t)payload[at + 1] << 8;
        at += 2;
        if (length > size - at) {
            worsen(scan, STATE_CORRUPTED, offset + at);
            return 0;
        }
        if (record_decode(&record, payload + at, length) < 0) {
            worsen(scan, STATE_CORRUPTED, offset + at);
        } else {
            r = fn(userdata, &record, payload + at, length);
            if (r < 0)
                return r;
            scan->n_records++;
        }
        at += length;
    }
    return 0;
}

/* The bytes from `at` on are not a good frame. Whether they can be the last write of a daemon that
 * was killed during it: from the place where the write stopped, there are only zeros. */
static bool is_torn(enum frame look, size_t at, size_t content, size_t size) {
    size_t page = (at / PAGE + 1) * PAGE;

    if (size % STATE_CHUNK != 0 || size - content < STATE_FRAME_END)
        return false;
    if (look == FRAME_UNFINISHED)
        return true;
    /* Not even its head is whole: it began just before the end of a page and stopped there. */
    return look == FRAME_BAD && page - at < STATE_FRAME_HEAD && content <= page;
}

int state_scan(const uint8_t *bytes, size_t size, state_scan_fn fn, void *userdata,
               struct state_scan *ret) {
    size_t content = content_end(bytes, size), at = STATE_HEAD_SIZE;
    uint8_t head[STATE_HEAD_SIZE];
    int r;

    *ret = (struct state_scan){ 0 };
    state_scan_write_head(head);
    if (size < STATE_HEAD_SIZE) {
        worsen(ret, memcmp(bytes, head, size) == 0 ? STATE_TRUNCATED : STATE_FOREIGN, size);
        return 0;
    }
    if (memcmp(bytes, head, sizeof(head)) != 0) {
        /* Another version's frames may mean something else; a damaged head hides good frames. */
        if (memcmp(bytes, head, sizeof(file_magic)) == 0 &&
            get_u32(bytes + 12) == crc32c(0, bytes, 12)) {
            worsen(ret, STATE_FOREIGN, 0);
            return 0;
        }
        worsen(ret, STATE_CORRUPTED, 0);
    }

    ret->end = at;
    while (at < content) {
        size_t whole = 0;
        uint64_t sequence = 0;
        enum frame look = frame_look(bytes, size, at, &whole, &sequence);

        if (look != FRAME_GOOD || sequence <= ret->sequence) {
            size_t next = frame_search(bytes, size, at + 1, ret->sequence);

            if (next == size) {
                if (is_torn(look, at, content, size))
                    worsen(ret, STATE_TORN, at);
                else
                    worsen(ret, look == FRAME_CUT ? STATE_TRUNCATED : STATE_CORRUPTED, at);
                break;
            }
            worsen(ret, STATE_CORRUPTED, at);
            at = next;
            continue;
        }
        if (ret->sequence != 0 && sequence != ret->sequence + 1)
            worsen(ret, STATE_CORRUPTED, at);
        r = frame_read(bytes + at + STATE_FRAME_HEAD, whole - STATE_FRAME_HEAD - STATE_FRAME_END,
                       at + STATE_FRAME_HEAD, fn, userdata, ret);
        if (r < 0)
            return r;
        ret->sequence = sequence;
        at += whole;
        ret->end = at;
    }

    if (size % STATE_CHUNK != 0 || size - content < STATE_FRAME_HEAD)
        worsen(ret, STATE_TRUNCATED, size);
    else if (ret->sequence == 0)
        worsen(ret, STATE_CORRUPTED, STATE_HEAD_SIZE); /* no file is made without its first frame */
    return 0;
}
