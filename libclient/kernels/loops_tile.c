/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of f32 with AVX-512, tile by tile: 12 rows and 32 columns of c stay in 24 registers
 * while the products along k are added to them. b is packed before, up to 512 rows and 128 columns
 * at a time, cut into strips as wide as a tile. a is read where it lies, an element at a time for
 * all columns of the tile.
 *
 *                  128 columns of b, packed:
 *                  |strip|strip|strip|strip|
 *       12 rows    +-----+-----+-----+-----+
 *       of a       |tile |tile |tile |tile |   then the next 12 rows; then the next columns
 *
 * A strip comes from the second cache once per tile, at 128 bytes for 24 multiplications, which
 * costs nothing: tiles alone run at 98 to 100 % of multiply-adds in registers (Emerald Rapids).
 * What costs is what comes from farther. A tile that packs takes 1.2 to 2 times as long, so that b
 * is packed once for all rows; and every second step prefetches a line of what follows: the first
 * tiles of 12 rows prefetch the next rows, the others what is packed next, as late as possible,
 * because the second cache cannot hold it all the time.
 *
 * Every element is one chain of fused multiply-adds in the order of k, whatever the tiles, the
 * pieces that the product was cut into, and the number of threads.
 */
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/kernels/loops.h"

enum {
    LANES = 16,
    ROWS = 12,
    STRIP = 2 * LANES,
    COLUMNS = 4 * STRIP, /* that are packed at a time */
    DEPTH = TILES_DEPTH,
    COPIED = 96 * ROWS, /* rows of a that are copied at a time, if they are copied at all: 2.4 MB */
    AHEAD = 12,         /* rows of b that are prefetched before they are packed */
    ASKED = DEPTH / LANES, /* lines of a row that a tile prefetches before it turns to the next */
    PAGE = 1024, /* in elements, of the steps at which all fall into one set of the first cache */
    COPY_ROW = DEPTH + LANES,
};

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif

/* What the tiles of one packed part of b have in common. */
struct tile_part {
    int64_t depth;
    int64_t a_row, a_column, b_row, b_column, c_row;
    bool first;        /* c is not read: it begins at 0 */
    const float *rate; /* of struct gemm */
    /* What is packed next, and how many of its columns; NULL: nothing. */
    const float *next;
    int64_t next_columns;
};

/* Lines to prefetch, this many bytes apart; and what to add after each ASKED of them. */
struct ahead {
    const char *at;
    int64_t step, jump;
};

/* This is inline assembly because, with a factor that is used twice, gcc moves the sums between
 * registers, and these moves cost as much as multiplications. */
static inline __attribute__((always_inline)) __m512 add_product(__m512 sum, __m512 factor, __m512 y,
                                                                const int width) {
    if (width == 1)
        return _mm512_fmadd_ps(factor, y, sum);
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(factor), "v"(y));
    return sum;
}

/* `rows` and `width`, in vectors, are constants, and so is whether b has to be packed first. */
static inline __attribute__((always_inline)) void tile(const struct tile_part *part, float *c,
                                                       const float *a, float *packed,
                                                       const float *b, const struct ahead *ahead,
                                                       __mmask16 mask, const int rows,
                                                       const int width, const bool packs) {
    const int64_t a_row = part->a_row, c_row = part->c_row;
    const float *x0 = a, *x1 = a + 4 * a_row, *x2 = a + 8 * a_row;
    int64_t offsets[4] = { 0, a_row, 2 * a_row, 3 * a_row }, k = part->depth;
    const char *asked = ahead->at;
    const int64_t asked_step = ahead->step, asked_jump = ahead->jump;
    __m512 sums[ROWS][2];
    float *to;

    /* Keep these seven numbers in registers; gcc would compute each anew at every step. */
    __asm__("" : "+r"(x1), "+r"(x2), "+r"(offsets[3]));

#define EACH(i, n) UNROLL for (int i = 0; i < (n); i++)
#define MASK       (j + 1 < width ? (__mmask16)-1 : mask)
#define STEP                                                                                       \
    do {                                                                                           \
        __m512 y[2];                                                                               \
                                                                                                   \
        EACH(j, width) {                                                                           \
            if (packs) {                                                                           \
                _mm_prefetch((const char *)(b + AHEAD * part->b_row + j * LANES), _MM_HINT_T0);    \
                y[j] = _mm512_maskz_loadu_ps(MASK, b + j * LANES);                                 \
                _mm512_store_ps(packed + j * LANES, y[j]);                                         \
            } else                                                                                 \
                y[j] = _mm512_load_ps(packed + j * LANES);                                         \
        }                                                                                          \
        EACH(i, rows) {                                                                            \
            const __m512 factor = _mm512_set1_ps((i < 4 ? x0 : i < 8 ? x1 : x2)[offsets[i % 4]]);  \
                                                                                                   \
            EACH(j, width)                                                                         \
            sums[i][j] = add_product(sums[i][j], factor, y[j], width);                             \
        }                                                                                          \
        x0 += part->a_column;                                                                      \
        x1 += part->a_column;                                                                      \
        x2 += part->a_column;                                                                      \
        packed += STRIP;                                                                           \
        if (packs)                                                                                 \
            b += part->b_row;                                                                      \
    } while (0)

/* Use one pointer: gcc would keep 24 precomputed addresses on the stack, which costs 2 % of a tile
 * of 128 steps. */
#define EACH_ROW(to)                                                                               \
    UNROLL for (int i = 0; i < rows; i++, (to) += c_row, __extension__({ __asm__("" : "+r"(to)); }))

    to = c;
    EACH_ROW(to)
    EACH(j, width) {
        _mm_prefetch((const char *)(to + j * LANES), _MM_HINT_T0);
        sums[i][j] =
            part->first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(MASK, to + j * LANES);
    }
    while (k >= 2) {
        int64_t n = MIN(k / 2, (int64_t)ASKED);

        k -= 2 * n;
        do {
            _mm_prefetch(asked, _MM_HINT_T1);
            asked += asked_step;
            STEP;
            STEP;
        } while (--n > 0);
        asked += asked_jump;
    }
    if (k > 0)
        STEP;
    /* All is read before any is written: where rows share lines a load would wait for a store. */
    if (part->rate) {
        to = c;
        EACH_ROW(to)
        EACH(j, width)
        sums[i][j] = _mm512_sub_ps(_mm512_maskz_loadu_ps(MASK, to + j * LANES),
                                   _mm512_mul_ps(_mm512_set1_ps(*part->rate), sums[i][j]));
    }
    to = c;
    EACH_ROW(to)
    EACH(j, width)
    _mm512_mask_storeu_ps(to + j * LANES, MASK, sums[i][j]);
}

typedef void (*tile_fn)(const struct tile_part *part, float *c, const float *a, float *packed,
                        const float *b, const struct ahead *ahead, __mmask16 mask);
#define TILE(name, rows, width, packs)                                                             \
    static __attribute__((noinline)) void name(const struct tile_part *part, float *c,             \
                                               const float *a, float *packed, const float *b,      \
                                               const struct ahead *ahead, __mmask16 mask) {        \
        tile(part, c, a, packed, b, ahead, mask, rows, width, packs);                              \
    }
#define TILES(X) X(12) X(8) X(4) X(2) X(1)
#define X(rows)                                                                                    \
    TILE(tile_##rows##_1, rows, 1, false)                                                          \
    TILE(tile_##rows##_2, rows, 2, false)                                                          \
    TILE(pack_##rows##_1, rows, 1, true)                                                           \
    TILE(pack_##rows##_2, rows, 2, true)
TILES(X)
#undef X

static const struct {
    int64_t rows;
    tile_fn run[2], pack[2]; /* one vector wide, and two */
} tiles[] = {
#define X(rows)                                                                                    \
    { rows, { tile_##rows##_1, tile_##rows##_2 }, { pack_##rows##_1, pack_##rows##_2 } },
    TILES(X)
#undef X
};

static __mmask16 first_lanes(int64_t n) {
    return n >= LANES ? (__mmask16)-1 : (__mmask16)((1 << n) - 1);
}

/* Four numbers of each of 16 columns, to four rows of 16. */
static inline void pack_16_by_4(float *to, const float *b, int64_t b_column) {
    __m512 x[4], y[4];

    /* Every fourth column side by side: what is left is to be done within 128 bits. */
    for (int i = 0; i < 4; i++) {
        const float *from = b + i * b_column;

        x[i] = _mm512_castps128_ps512(_mm_loadu_ps(from));
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(from + 4 * b_column), 1);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(from + 8 * b_column), 2);
        x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(from + 12 * b_column), 3);
    }
    y[0] = _mm512_unpacklo_ps(x[0], x[1]);
    y[1] = _mm512_unpackhi_ps(x[0], x[1]);
    y[2] = _mm512_unpacklo_ps(x[2], x[3]);
    y[3] = _mm512_unpackhi_ps(x[2], x[3]);
    for (int i = 0; i < 2; i++) {
        _mm512_store_ps(to + 2 * i * STRIP, _mm512_shuffle_ps(y[i], y[i + 2], 0x44));
        _mm512_store_ps(to + (2 * i + 1) * STRIP, _mm512_shuffle_ps(y[i], y[i + 2], 0xee));
    }
}

/* Packs `depth` rows of `columns` dense columns, with zeros up to a strip. The source is already
 * prefetched. Prefetching a few rows ahead again cost more than it gained: rows 2 KiB apart fall
 * into few sets of the first-level cache. */
static void pack_rows(float *to, const float *b, int64_t b_column, int64_t depth, int64_t columns) {
    for (int64_t j = 0; j < STRIP; j += LANES) {
        int64_t k = 0;

        for (; k + 4 <= depth && j + LANES <= columns; k += 4)
            pack_16_by_4(to + k * STRIP + j, b + j * b_column + k, b_column);
        for (; k < depth; k++)
            for (int64_t i = j; i < j + LANES; i++)
                to[k * STRIP + i] = i < columns ? b[i * b_column + k] : 0;
    }
}

static void pack_transposed(float *to, const float *b, int64_t b_column, int64_t depth,
                            int64_t columns) {
    for (int64_t j = 0; j < columns; j += STRIP)
        pack_rows(to + j * depth, b + j * b_column, b_column, depth,
                  MIN(columns - j, (int64_t)STRIP));
}

/* Prefetch row after row, ASKED lines of each, or one. */
static struct ahead rows_ahead(const float *at, int64_t row) {
    return (struct ahead){ (const char *)at, sizeof(float) * LANES,
                           (int64_t)sizeof(float) * (row - ASKED * LANES) };
}
static struct ahead lines_ahead(const float *at, int64_t row) {
    return (struct ahead){ (const char *)at, (int64_t)sizeof(float) * row, 0 };
}

/* How many lines a tile prefetches. */
static int64_t asked_lines(const struct tile_part *part) {
    return part->depth / 2;
}
static int64_t asked_rows(const struct tile_part *part) {
    return MAX(asked_lines(part) / ASKED, (int64_t)1);
}

/* Prefetch the next rows of a; `n` is 0 or 1. */
static struct ahead next_rows(const struct tile_part *part, const float *a, int64_t a_row,
                              int64_t n) {
    if (a_row == 1)
        return lines_ahead(a + n * asked_lines(part) * part->a_column, part->a_column);
    return rows_ahead(a + n * asked_rows(part) * a_row, a_row);
}

/* In how many pieces to prefetch what is packed next. */
static int64_t n_pieces(const struct tile_part *part) {
    if (!part->next)
        return 0;
    return part->b_column == 1 ? 2 * ((part->next_columns + LANES - 1) / LANES)
                               : part->next_columns / asked_rows(part);
}
static struct ahead piece_ahead(const struct tile_part *part, int64_t n) {
    const int64_t lines = (part->next_columns + LANES - 1) / LANES;

    if (part->b_column == 1)
        return lines_ahead(part->next + n % lines * LANES +
                               n / lines * asked_lines(part) * part->b_row,
                           part->b_row);
    return rows_ahead(part->next + n * asked_rows(part) * part->b_column, part->b_column);
}

/* Rows of a. */
struct rows {
    const float *at; /* where they are read, at the part's distance */
    int64_t n;
    float *copy; /* not NULL: the same place, still to be filled, from there */
    const float *from;
    int64_t from_row;
};

/* Computes a block: the rows of `a` by `columns` columns. The tiles of the first rows pack the
 * columns from `b`; NULL: they are packed already. */
static void run_part(const struct tile_part *part, float *c, const struct rows *a, float *packed,
                     const float *b, int64_t columns) {
    enum { FOR_ROWS = 2 }; /* this many tiles of 12 rows prefetch the next 12 */
    const float *from = a->copy ? a->from : a->at;
    const int64_t from_row = a->copy ? a->from_row : part->a_row;
    const int64_t strips = (columns + STRIP - 1) / STRIP, pieces = n_pieces(part),
                  last = (a->n - 1) / ROWS,
                  askers = last * MAX(strips - FOR_ROWS, (int64_t)0) + strips;
    int64_t i = 0, piece = MIN(pieces - askers, (int64_t)0);

    for (size_t t = 0; i < a->n; t++)
        for (; i + tiles[t].rows <= a->n; i += tiles[t].rows) {
            const tile_fn *run = b && i == 0 ? tiles[t].pack : tiles[t].run;
            const int64_t next = i + tiles[t].rows;

            for (int64_t row = i; a->copy && row < next; row++)
                memcpy(a->copy + row * part->a_row, from + row * from_row,
                       sizeof(float) * (size_t)part->depth);
            for (int64_t j = 0; j < columns; j += STRIP) {
                const int64_t left = columns - j;
                const bool wide = left > LANES;
                struct ahead ahead = { (const char *)packed, 0, 0 };

                if (j < FOR_ROWS * STRIP && next < a->n)
                    ahead = next_rows(part, from + next * from_row, from_row, j / STRIP);
                else if (piece++ >= 0 && piece <= pieces)
                    ahead = piece_ahead(part, piece - 1);
                run[wide](part, c + i * part->c_row + j, a->at + i * part->a_row,
                          packed + j * part->depth, b ? b + j : NULL, &ahead,
                          first_lanes(wide ? left - LANES : left));
            }
        }
}

/* Where things are packed. */
struct room {
    float *packed;
    float *copy;     /* of rows of a, at another distance; NULL: these are read where they lie */
    int64_t columns; /* as many as there is room for, where they have DEPTH rows */
};

/* `rows` rows by the part's depth. `next`: where b goes on afterwards; or NULL. */
static void run_block(const struct gemm *gemm, const struct room *room, struct tile_part *part,
                      float *c, const float *a, const float *b, int64_t rows, const float *next) {
    const bool dense = gemm->b_column == 1;
    /* With fewer rows, take more columns: the first tile of 12 rows waits for memory, and the
     * others then find it in the cache. This gains 4 % for 784 × 512 × 128. */
    const int64_t most = room->columns * DEPTH / part->depth / STRIP * STRIP;
    struct rows here = { .at = a, .n = rows };

    if (room->copy) {
        here = (struct rows){ room->copy, rows, room->copy, a, gemm->a_row };
        part->a_row = COPY_ROW;
    }
    for (int64_t j = 0; j < gemm->n; j += most, here.copy = NULL) {
        const int64_t left = gemm->n - j, columns = MIN(left, most);
        const float *from = b + j * gemm->b_column;

        part->next = left > columns ? from + columns * gemm->b_column : next;
        part->next_columns = MIN(left > columns ? left - columns : gemm->n, most);
        if (!dense)
            pack_transposed(room->packed, from, gemm->b_column, part->depth, columns);
        run_part(part, c + j, &here, room->packed, dense ? from : NULL, columns);
    }
}

/* As many rows as are copied at a time; about as many each time, as b is packed for each. */
static int64_t block_rows(int64_t m) {
    const int64_t blocks = (m + COPIED - 1) / COPIED;

    return ((m + blocks - 1) / blocks + ROWS - 1) / ROWS * ROWS;
}

static void run_all(const struct gemm *gemm, const struct room *room, float *c, const float *a,
                    const float *b) {
    const int64_t block = room->copy ? block_rows(gemm->m) : gemm->m;

    for (int64_t k = 0; k < gemm->k; k += DEPTH, b += DEPTH * gemm->b_row) {
        struct tile_part part = {
            .depth = MIN(gemm->k - k, (int64_t)DEPTH),
            .a_row = gemm->a_row,
            .a_column = gemm->a_column,
            .b_row = gemm->b_row,
            .b_column = gemm->b_column,
            .c_row = gemm->c_row,
            .first = k == 0,
            .rate = gemm->rate,
        };

        for (int64_t i = 0; i < gemm->m; i += block)
            run_block(gemm, room, &part, c + i * gemm->c_row,
                      a + i * gemm->a_row + k * gemm->a_column, b, MIN(gemm->m - i, block),
                      i + block < gemm->m   ? b
                      : k + DEPTH < gemm->k ? b + DEPTH * gemm->b_row
                                            : NULL);
    }
}

/* When there is no memory for packing: slower, but the same bits. */
static __attribute__((noinline)) void run_on_stack(const struct gemm *gemm, float *c,
                                                   const float *a, const float *b) {
    _Alignas(64) float packed[DEPTH * STRIP];

    run_all(gemm, &(struct room){ packed, NULL, STRIP }, c, a, b);
}

void loops_tile_v4(const struct gemm *gemm, void *c, const void *a, const void *b) {
    /* Rows whose distance is a multiple of a page fall into one set of the first-level cache, which
     * has no room for all rows of a tile. */
    const bool copies = gemm->a_column == 1 && gemm->a_row % PAGE == 0 && gemm->m > 1;
    const int64_t copied = copies ? block_rows(gemm->m) * COPY_ROW : 0;
    float *room = aligned_alloc(64, sizeof(float) * (size_t)(DEPTH * COLUMNS + copied));

    if (room)
        run_all(gemm, &(struct room){ room, copies ? room + DEPTH * COLUMNS : NULL, COLUMNS }, c, a,
                b);
    else
        run_on_stack(gemm, c, a, b);
    free(room);
}
