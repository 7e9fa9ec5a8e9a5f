/* SPDX-License-Identifier: Apache-2.0 */
/* An arena as JSON: its numbers, and every block where it lies. */
#include <errno.h>
#include <string.h>

#include "allocator/snapshot.h"
#include "base/utf8.h"

/* Names are bytes: what is no UTF-8 is shown as such. */
static void write_text(FILE *file, const char *text) {
    size_t left = strlen(text);

    fputc('"', file);
    while (left > 0) {
        size_t n = utf8_length(text, left);

        if (!n)
            fputc('?', file);
        else if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            fwrite(text, 1, n, file);
        n += !n;
        text += n;
        left -= n;
    }
    fputc('"', file);
}

static const char *state_name(const struct snapshot_block *block) {
    if (block->state == CHUNK_LIVE)
        return "live";
    return block->state == CHUNK_DEFERRED || block->stream ? "pending" : "free";
}

static void write_segment(FILE *file, struct arena *arena, const struct snapshot *snapshot,
                          const struct snapshot_segment *segment) {
    fprintf(file,
            "    {\"address\": %llu, \"bytes\": %llu, \"shard\": %u, \"placed\": %s, "
            "\"blocks\": [",
            (unsigned long long)segment->address, (unsigned long long)segment->bytes,
            segment->shard, segment->placed ? "true" : "false");
    for (uint32_t k = 0; k < segment->n_blocks; k++) {
        const struct snapshot_block *block = &snapshot->blocks[segment->first + k];

        fprintf(file, "%s\n      {\"address\": %llu, \"bytes\": %llu, \"state\": \"%s\"",
                k ? "," : "", (unsigned long long)block->address, (unsigned long long)block->bytes,
                state_name(block));
        if (block->state == CHUNK_LIVE)
            fprintf(file, ", \"requested_bytes\": %llu",
                    (unsigned long long)block->requested_bytes);
        if (block->stream)
            fprintf(file, ", \"stream\": %u", block->stream);
        if (block->tag) {
            fputs(", \"tag\": ", file);
            write_text(file, tag_name(arena, block->tag));
        }
        fputc('}', file);
    }
    fputs("]}", file);
}

int arena_write_json(struct arena *arena, FILE *file) {
    cleanup(snapshot_done) struct snapshot snapshot = { 0 };
    bool first = true;
    int r;

    r = snapshot_take(&snapshot, arena);
    if (r < 0)
        return r;
    fputs("{\n  \"name\": ", file);
    write_text(file, arena->name);
#define X(name, what)                                                                              \
    fprintf(file, ",\n  \"" #name "\": %llu", (unsigned long long)snapshot.stats.name);
    ARENA_STATS(X)
#undef X
    fputs(",\n  \"classes\": [", file);
    for (unsigned n = 0; n < ARENA_CLASSES; n++) {
        const typeof(snapshot.stats.classes[0]) *class = &snapshot.stats.classes[n];

        if (!class->live_blocks && !class->free_blocks)
            continue;
        fprintf(file,
                "%s\n    {\"from_bytes\": %llu, \"live_blocks\": %llu, \"live_bytes\": %llu, "
                "\"free_blocks\": %llu, \"free_bytes\": %llu}",
                first ? "" : ",", (unsigned long long)256 << n,
                (unsigned long long)class->live_blocks, (unsigned long long)class->live_bytes,
                (unsigned long long)class->free_blocks, (unsigned long long)class->free_bytes);
        first = false;
    }
    fputs("],\n  \"segments\": [", file);
    for (uint32_t n = 0; n < snapshot.n_segments; n++) {
        fputs(n ? ",\n" : "\n", file);
        write_segment(file, arena, &snapshot, &snapshot.segments[n]);
    }
    fputs("]\n}\n", file);
    return ferror(file) || fflush(file) != 0 ? -EIO : 0;
}
