/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena as PyTorch's memory viewer opens it: a pickle of
 *
 *     {"segments": [{"device", "address", "total_size", …, "blocks": [{"size", "state", …}]}],
 *      "device_traces": [[{"action", "addr", "size", "stream", "time_us", "frames"}]],
 *      "allocator_settings": {…}}
 *
 * The viewer adds the blocks' sizes up to find their addresses, so they tile their segment. Its
 * reader knows a part of the pickle opcodes, of which these few, of protocol 2, are all that is
 * needed. A tag appears as the name of the only frame. A free is completed, as PyTorch means it,
 * once somebody may have the memory: at once, the stream itself being somebody, unless several
 * streams may still use it; so pending are only the blocks that wait for several.
 *
 * Streams are counted from 1: where all events are on stream 0, the viewer takes it that there are
 * no streams and then finds no segment that pages were mapped to.
 */
#include <errno.h>
#include <string.h>

#include "allocator/snapshot.h"
#include "base/utf8.h"

static void put_bytes(FILE *file, uint64_t value, unsigned n) {
    for (unsigned k = 0; k < n; k++)
        fputc((int)(value >> (8 * k) & 0xff), file);
}

static void put_number(FILE *file, uint64_t value) {
    if (value <= INT32_MAX) {
        fputc('J', file); /* BININT */
        put_bytes(file, value, 4);
    } else {
        fputc(0x8a, file); /* LONG1: two's complement, so a set top bit wants another byte */
        fputc(value >> 63 ? 9 : 8, file);
        put_bytes(file, value, 8);
        if (value >> 63)
            fputc(0, file);
    }
}

/* Names are bytes, and a reader would give up at what is no UTF-8. */
static void put_text(FILE *file, const char *text) {
    size_t left = strlen(text);

    fputc('X', file); /* BINUNICODE */
    put_bytes(file, left, 4);
    while (left > 0) {
        size_t n = utf8_length(text, left);

        if (n)
            fwrite(text, 1, n, file);
        else
            fputc('?', file);
        n += !n;
        text += n;
        left -= n;
    }
}

static void put_key(FILE *file, const char *key, uint64_t value) {
    put_text(file, key);
    put_number(file, value);
    fputc('s', file); /* SETITEM */
}

static void put_text_key(FILE *file, const char *key, const char *value) {
    put_text(file, key);
    put_text(file, value);
    fputc('s', file);
}

static void put_bool_key(FILE *file, const char *key, bool value) {
    put_text(file, key);
    fputc(value ? 0x88 : 0x89, file); /* NEWTRUE, NEWFALSE */
    fputc('s', file);
}

static void put_frames(FILE *file, struct arena *arena, uint32_t tag) {
    put_text(file, "frames");
    fputc(']', file); /* EMPTY_LIST */
    if (tag) {
        fputc('}', file); /* EMPTY_DICT */
        put_text_key(file, "filename", arena->name);
        put_key(file, "line", 0);
        put_text_key(file, "name", tag_name(arena, tag));
        fputc('a', file); /* APPEND */
    }
    fputc('s', file);
}

/* As events and segments name the stream of this number. */
static void put_stream(FILE *file, uint8_t stream) {
    put_key(file, "stream", stream + UINT64_C(1));
}

static void put_block(FILE *file, struct arena *arena, const struct snapshot_block *block) {
    fputc('}', file);
    put_key(file, "address", block->address);
    put_key(file, "size", block->bytes);
    put_key(file, "requested_size",
            block->state == CHUNK_LIVE ? block->requested_bytes : block->bytes);
    put_text_key(file, "state",
                 block->state == CHUNK_LIVE       ? "active_allocated"
                 : block->state == CHUNK_DEFERRED ? "active_pending_free"
                                                  : "inactive");
    put_frames(file, arena, block->tag);
    fputc('a', file);
}

static void put_segment(FILE *file, struct arena *arena, const struct snapshot *snapshot,
                        const struct snapshot_segment *segment) {
    uint64_t allocated = 0, active = 0, requested = 0;

    fputc('}', file);
    put_text(file, "blocks");
    fputc(']', file);
    for (uint32_t k = 0; k < segment->n_blocks; k++) {
        const struct snapshot_block *block = &snapshot->blocks[segment->first + k];

        put_block(file, arena, block);
        if (block->state == CHUNK_LIVE) {
            allocated += block->bytes;
            requested += block->requested_bytes;
        }
        if (block->state != CHUNK_FREE)
            active += block->bytes;
    }
    fputc('s', file);
    put_key(file, "device", 0);
    put_key(file, "address", segment->address);
    put_key(file, "total_size", segment->bytes);
    put_key(file, "allocated_size", allocated);
    put_key(file, "active_size", active);
    put_key(file, "requested_size", requested);
    put_stream(file, 0);
    put_text_key(file, "segment_type", "large");
    put_bool_key(file, "is_expandable", segment->placed);
    put_frames(file, arena, 0);
    fputc('a', file);
}

static void put_event(FILE *file, struct arena *arena, const struct note *note,
                      const char *action) {
    fputc('}', file);
    put_text_key(file, "action", action);
    put_key(file, "addr", note->action == NOTE_OOM ? 0 : note->address);
    put_key(file, "size", note->bytes);
    put_stream(file, note->stream);
    put_key(file, "time_us", note->usec);
    if (note->action == NOTE_OOM)
        put_key(file, "device_free", note->left_bytes);
    put_frames(file, arena, note->tag);
    fputc('a', file);
}

static void put_note(FILE *file, struct arena *arena, const struct note *note) {
    bool placed = note->address - arena->source.base < arena->source.span_bytes;

    switch ((enum note_action)note->action) {
    case NOTE_ALLOC:
        put_event(file, arena, note, "alloc");
        break;
    case NOTE_FREE:
        put_event(file, arena, note, "free_requested");
        put_event(file, arena, note, "free_completed");
        break;
    case NOTE_FREE_LATER:
        put_event(file, arena, note, "free_requested");
        break;
    case NOTE_FREED:
        put_event(file, arena, note, "free_completed");
        break;
    case NOTE_MAP:
        put_event(file, arena, note, placed ? "segment_map" : "segment_alloc");
        break;
    case NOTE_UNMAP:
        put_event(file, arena, note, placed ? "segment_unmap" : "segment_free");
        break;
    case NOTE_OOM:
        put_event(file, arena, note, "oom");
        break;
    }
}

int arena_write_viewer(struct arena *arena, FILE *file) {
    cleanup(snapshot_done) struct snapshot snapshot = { 0 };
    int r;

    r = snapshot_take(&snapshot, arena);
    if (r < 0)
        return r;
    fputc(0x80, file); /* PROTO */
    fputc(2, file);
    fputc('}', file);
    put_text(file, "segments");
    fputc(']', file);
    for (uint32_t n = 0; n < snapshot.n_segments; n++)
        put_segment(file, arena, &snapshot, &snapshot.segments[n]);
    fputc('s', file);
    put_text(file, "device_traces");
    fputc(']', file);
    fputc(']', file);
    for (uint64_t n = 0; n < snapshot.n_notes; n++)
        put_note(file, arena, &snapshot.notes[n]);
    fputc('a', file);
    fputc('s', file);
    put_text(file, "allocator_settings");
    fputc('}', file);
    put_bool_key(file, "expandable_segments", arena->source.span_bytes != 0);
    put_text_key(file, "allocator", "allot");
    fputc('s', file);
    fputc('.', file); /* STOP */
    return ferror(file) || fflush(file) != 0 ? -EIO : 0;
}
