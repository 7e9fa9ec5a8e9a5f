/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The bytes of a state file: how a turn's records are framed, and what can be read of a file that
 * may have been cut or damaged anywhere. Pure: bytes in, bytes out.
 *
 *     file:   head │ frame │ frame │ … │ zeros
 *     frame:  magic 4 │ payload size 4 │ sequence 8 │ crc of payload 4 │ crc of these 20 bytes 4 │
 *             payload │ end mark 4
 *     payload:  (size 2 │ record)…
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/broker/record.h"

#define STATE_HEAD_SIZE  16
#define STATE_FRAME_HEAD 24
#define STATE_FRAME_END  4

/* A whole file is a multiple of this, and ends in at least STATE_FRAME_HEAD zeros: cutting it
 * anywhere is seen, even between two frames. */
#define STATE_CHUNK (UINT64_C(64) << 10)

void state_scan_write_head(uint8_t bytes[static STATE_HEAD_SIZE]);

/* Put head and end mark around a payload at bytes + STATE_FRAME_HEAD. Returns the whole size. */
size_t state_scan_close_frame(uint8_t *bytes, size_t payload_size, uint64_t sequence);

enum state_damage {
    STATE_WHOLE,
    STATE_TORN, /* the last write was cut off by the end of its process: no client was answered */
    STATE_TRUNCATED, /* the end is missing */
    STATE_CORRUPTED, /* something inside is not what was written */
    STATE_FOREIGN,   /* not a state file, or one of another version */
};

struct state_scan {
    enum state_damage damage; /* the worst that was met */
    uint64_t damaged_at;      /* offset of the first place that could not be read */
    uint64_t end;             /* offset behind the last frame that was read */
    uint64_t sequence;        /* of that frame; 0: none */
    uint64_t n_records;
};

/*
 * Read what can be read and hand each record on, in order; after a damaged place reading goes on
 * with the next whole frame. Returns 0, or what `fn` returned when that is an error.
 */
typedef int (*state_scan_fn)(void *userdata, const struct record *record, const uint8_t *bytes,
                             size_t size);
int state_scan(const uint8_t *bytes, size_t size, state_scan_fn fn, void *userdata,
               struct state_scan *ret);
