/* SPDX-License-Identifier: Apache-2.0 */
/* The out-of-memory report: what is wrong and what the user can change. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/map_target.h"
#include "base/units.h"
#include "base/utf8.h"

#define HOLDERS 5

struct report_text {
    char *at;
    size_t size, length; /* the length may pass the size, as with snprintf() */
};

static __attribute__((format(printf, 2, 3))) void say(struct report_text *text, const char *format,
                                                      ...) {
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text->length < text->size ? text->at + text->length : NULL,
                  text->length < text->size ? text->size - text->length : 0, format, args);
    va_end(args);
    if (n > 0)
        text->length += (size_t)n;
}

/* Print a name as one line of text, since a name can have any bytes. */
static void say_name(struct report_text *text, const char *name) {
    size_t left = strlen(name);

    while (left > 0) {
        size_t n = utf8_length(name, left);

        if (!n || (unsigned char)*name < 0x20 || *name == 0x7f)
            say(text, "?");
        else
            say(text, "%.*s", (int)n, name);
        n += !n;
        name += n;
        left -= n;
    }
}

static const char *plural(uint64_t n) {
    return n == 1 ? "" : "s";
}

struct tag_sum {
    uint64_t bytes, blocks;
    uint32_t tag;
};

static int compare_holders(const void *a, const void *b) {
    const struct tag_sum *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->tag < y->tag ? -1 : x->tag > y->tag;
}

/* Live bytes by tag, most first; NULL if nothing is tagged or the host has no memory. */
static struct tag_sum *count_holders(struct arena *arena, uint32_t *ret_n) {
    struct tag_sum *holders;
    struct shard *shard;
    uint32_t n;

    pthread_mutex_lock(&arena->tagging);
    n = arena->n_tags + 1;
    pthread_mutex_unlock(&arena->tagging);
    holders = n > 1 ? calloc(n, sizeof(*holders)) : NULL;
    if (!holders)
        return NULL;

    arena_lock_all(arena);
    arena_foreach_shard(arena, shard) for (uint32_t i = 1; i < shard->table.n_used; i++) {
        const struct chunk *chunk = &shard->table.chunks[i];
        uint32_t tag = chunk_is_live(chunk) && chunk_tag(chunk) < n ? chunk_tag(chunk) : 0;

        if (!chunk_is_live(chunk))
            continue;
        holders[tag].bytes += chunk_live_bytes(chunk);
        holders[tag].blocks++;
    }
    arena_unlock_all(arena);
    for (uint32_t tag = 0; tag < n; tag++)
        holders[tag].tag = tag;
    qsort(holders, n, sizeof(*holders), compare_holders);
    *ret_n = n;
    return holders;
}

static void say_holders(struct report_text *text, struct arena *arena) {
    cleanup(freep) struct tag_sum *holders = NULL;
    char bytes[UNITS_TEXT_SIZE];
    uint32_t n = 0;

    holders = count_holders(arena, &n);
    for (uint32_t k = 0; holders && k < MIN(n, (uint32_t)HOLDERS) && holders[k].blocks; k++) {
        say(text, "%s ", k ? "," : " Most is held by");
        say_name(text, holders[k].tag ? tag_name(arena, holders[k].tag) : "blocks without a tag");
        say(text, " %s (%llu)", units_format_bytes(holders[k].bytes, bytes),
            (unsigned long long)holders[k].blocks);
    }
    if (holders && n && holders[0].blocks)
        say(text, ".");
}

/* Neighbours that will all be free once the streams have passed what they freed. */
struct free_piece {
    uint32_t start, end; /* granules */
    uint64_t largest;    /* of the pieces so far */
    uint64_t pages_size; /* total of their whole pages */
};

static void piece_ends(struct free_piece *piece, uint32_t page_size) {
    uint64_t start = ((uint64_t)piece->start + page_size - 1) / page_size;
    uint64_t end = piece->end / page_size;

    piece->largest = MAX(piece->largest, (uint64_t)(piece->end - piece->start));
    piece->pages_size += end > start ? (end - start) * page_size : 0;
    piece->start = piece->end = 0;
}

/* Add up the chunks of a region, or of a placed shard, from the first on. */
static void count_pieces(const struct shard *shard, uint32_t first, struct free_piece *piece) {
    for (uint32_t i = first; i; i = shard->table.chunks[i].next) {
        const struct chunk *chunk = &shard->table.chunks[i];
        const unsigned state = chunk_state(chunk);

        if (state != CHUNK_FREE && state != CHUNK_DEFERRED && state != CHUNK_TOP) {
            piece_ends(piece, shard->page_size);
            continue;
        }
        if (piece->start == piece->end)
            piece->start = chunk->offset;
        piece->end = chunk_end(chunk);
    }
    piece_ends(piece, shard->page_size);
}

/* Would there be room once the streams have passed what was freed on them? */
static bool waiting_helps(struct arena *arena, const struct arena_request *request) {
    const uint64_t need = (request->bytes + request->align_bytes + 255) >> 8;
    const bool plain = arena->slices_end && request->flags & ARENA_PLAIN;
    struct free_piece piece = { 0 };
    struct shard *shard;

    arena_lock_all(arena);
    arena_foreach_shard(arena, shard) {
        uint32_t first = shard->top;

        if (plain != (shard->index == PLAIN_INDEX))
            continue;
        while (first && shard->table.chunks[first].prev)
            first = shard->table.chunks[first].prev;
        if (shard->placed)
            count_pieces(shard, first, &piece);
        for (uint32_t n = 0; n < shard->n_regions; n++)
            count_pieces(shard, shard->regions[n].first, &piece);
    }
    arena_unlock_all(arena);
    return piece.largest >= need ||
           (!plain && arena->slices_end && (arena->source.remap || arena->source.trim) &&
            piece.pages_size >= need);
}

/* Does any shard have contiguous addresses for this, wherever the memory is? */
static bool has_addresses(struct arena *arena, const struct arena_request *request) {
    uint32_t size = (uint32_t)((request->bytes + 255) >> 8);
    struct shard *shard;
    struct map_target target;
    bool has = false;

    if (!arena->slices_end || request->flags & ARENA_PLAIN)
        return true;
    pthread_mutex_lock(&arena->growing); /* so that targets do not change meanwhile */
    arena_foreach_shard(arena, shard) {
        has = shard->placed &&
              map_target_find(shard, size + !size, request->align_bytes, request->stream, &target);
        if (has)
            break;
    }
    pthread_mutex_unlock(&arena->growing);
    return has;
}

/* Say what would have to change, the cheapest first. */
static void say_help(struct report_text *text, struct arena *arena,
                     const struct arena_request *request, const struct arena_stats *stats,
                     const char *refused) {
    uint64_t asked = request->bytes, page = arena->page_bytes, need;
    char bytes[UNITS_TEXT_SIZE];

    if (asked > ARENA_BYTES_MAX || request->align_bytes > ARENA_BYTES_MAX) {
        say(text, " No device is that large: look at how the size was computed.");
        return;
    }
    if (stats->cap_bytes && asked > stats->cap_bytes) {
        say(text, " It is more than the whole cap: ask for less at a time, or for a larger lease.");
        return;
    }
    if (stats->pending_bytes && stats->free_bytes >= asked && waiting_helps(arena, request))
        say(text, " Waiting for the streams that still use freed memory would help.");
    else if (stats->free_bytes >= asked)
        say(text, " Enough is free, but in pieces:%s freeing what lies between would help.",
            arena->source.remap || arena->source.trim ? " no piece holds enough whole pages;"
                                                      : " the source cannot move memory;");

    if (!has_addresses(arena, request)) {
        say(text,
            " The source's reservation of %s does not have that many contiguous addresses left, "
            "however much memory the device has: ask for less at a time, free more, or reserve "
            "more.",
            units_format_bytes(arena->source.span_bytes, bytes));
        return;
    }

    /* Memory comes in whole pages, and an alignment may leave a gap before the block. */
    if (__builtin_add_overflow(asked, request->align_bytes + page - 1, &need))
        return;
    need = need / page * page;
    if (__builtin_add_overflow(need, stats->reserved_bytes, &need))
        return;
    /* More than the cap may be held if the cap was cut. */
    if (stats->cap_bytes && need > stats->cap_bytes)
        say(text, " Raising the cap by %s, or freeing as much, would help.",
            units_format_bytes_up(need - stats->cap_bytes, bytes));
    else
        say(text, *refused ? " The cap allows it, but the source of the memory refused it."
                           : " The cap allows it, but the device refused: others hold its memory.");
}

int arena_report(struct arena *arena, const struct arena_request *request, char *text_at,
                 size_t size) {
    struct report_text text = { text_at, size, 0 };
    char asked[UNITS_TEXT_SIZE], live[UNITS_TEXT_SIZE], reserved[UNITS_TEXT_SIZE];
    char cap[UNITS_TEXT_SIZE], largest[UNITS_TEXT_SIZE], free_text[UNITS_TEXT_SIZE];
    struct arena_stats stats;
    char refused[512] = "";

    arena_get_stats(arena, &stats);
    if (size)
        *text_at = 0;
    say_name(&text, arena->name);
    say(&text, ": out of memory: asked for %s", units_format_bytes(request->bytes, asked));
    if (request->align_bytes > ARENA_GRANULE_BYTES)
        say(&text, " aligned to %s", units_format_bytes(request->align_bytes, asked));
    if (request->tag) {
        say(&text, " for ");
        say_name(&text, tag_name(arena, request->tag));
    }
    say(&text, "; live %s in %llu block%s, reserved %s", units_format_bytes(stats.live_bytes, live),
        (unsigned long long)stats.live_blocks, plural(stats.live_blocks),
        units_format_bytes(stats.reserved_bytes, reserved));
    if (stats.cap_bytes)
        say(&text, " of a cap of %s", units_format_bytes(stats.cap_bytes, cap));
    say(&text, "; free %s in %llu hole%s, the largest %s",
        units_format_bytes(stats.free_bytes, free_text), (unsigned long long)stats.free_blocks,
        plural(stats.free_blocks), units_format_bytes(stats.largest_free_bytes, largest));
    if (stats.pending_bytes)
        say(&text, ", %s of it still in use by streams",
            units_format_bytes(stats.pending_bytes, asked));
    say(&text, ".");
    if (arena->source.describe)
        arena->source.describe(arena->source.userdata, refused, sizeof(refused));
    say_help(&text, arena, request, &stats, refused);
    if (*refused)
        say(&text, " %s%s", refused, refused[strlen(refused) - 1] == '.' ? "" : ".");
    say_holders(&text, arena); /* last, because it is the longest, and is cut off if there is little
                                  room */
    return (int)text.length;
}
