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
 * A strip comes from the second cache once per tile, at 128 bytes for 24 multiplications, and the
 * rows of a stay in the first. What comes from farther is asked for ahead: c when its tile begins,
 * and the next columns of b bit by bit meanwhile.
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
    BLOCK = 100 * 1024, /* elements of a that stay in the second cache, beside what is packed */
    AHEAD = 16,         /* rows of b that are asked for before they are packed */
    PAGE = 1024, /* in elements, of the steps at which all fall into one set of the first cache */
    COPY_ROW = DEPTH + LANES,
};

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif

/* What the tiles of one packed part of b have in common. */
struct part {
    int64_t depth;
    int64_t a_row, a_column, b_row, c_row;
    bool first;        /* c is not read: it begins at 0 */
    const float *rate; /* of struct gemm */
    /* What is packed next, as rows of so many lines that are so many bytes apart; NULL: nothing. */
    const char *next;
    int64_t next_lines, next_step;
};

/* Lines that will be read soon, so many bytes apart; 0: none. */
struct ahead {
    const char *at;
    int64_t step;
};

/* Where a factor is used twice this is not the compiler's own: gcc would have the sums change
 * registers, and what moves them takes the place of multiplications. */
static inline __attribute__((always_inline)) __m512 add_product(__m512 sum, __m512 factor, __m512 y,
                                                                const int width) {
    if (width == 1)
        return _mm512_fmadd_ps(factor, y, sum);
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(factor), "v"(y));
    return sum;
}

/* `rows` and `width`, in vectors, are constants, and so is whether b has to be packed first. */
static inline __attribute__((always_inline)) void tile(const struct part *part, float *c,
                                                       const float *a, float *packed,
                                                       const float *b, struct ahead ahead,
                                                       __mmask16 mask, const int rows,
                                                       const int width, const bool packs) {
    const int64_t a_row = part->a_row, c_row = part->c_row;
    const float *x0 = a, *x1 = a + 4 * a_row, *x2 = a + 8 * a_row;
    int64_t offsets[4] = { 0, a_row, 2 * a_row, 3 * a_row }, k = part->depth;
    __m512 sums[ROWS][2];

    /* Seven numbers in registers, not one after the other computed anew at each step. */
    __asm__("" : "+r"(x1), "+r"(x2), "+r"(offsets[3]));

#define EACH(i, n) UNROLL for (int i = 0; i < (n); i++)
#define C_AT       (c + i * c_row + j * LANES)
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

    EACH(i, rows)
    EACH(j, width) {
        _mm_prefetch((const char *)C_AT, _MM_HINT_T0);
        sums[i][j] = part->first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(MASK, C_AT);
    }
    for (; k >= 2; k -= 2) {
        _mm_prefetch(ahead.at, _MM_HINT_T1);
        ahead.at += ahead.step;
        STEP;
        STEP;
    }
    if (k > 0)
        STEP;
    if (part->rate)
        EACH(i, rows)
    EACH(j, width)
    sums[i][j] = _mm512_sub_ps(_mm512_maskz_loadu_ps(MASK, C_AT),
                               _mm512_mul_ps(_mm512_set1_ps(*part->rate), sums[i][j]));
    EACH(i, rows)
    EACH(j, width)
    _mm512_mask_storeu_ps(C_AT, MASK, sums[i][j]);
}

typedef void (*tile_fn)(const struct part *part, float *c, const float *a, float *packed,
                        const float *b, struct ahead ahead, __mmask16 mask);
#define TILE(name, rows, width, packs)                                                             \
    static __attribute__((noinline)) void name(const struct part *part, float *c, const float *a,  \
                                               float *packed, const float *b, struct ahead ahead,  \
                                               __mmask16 mask) {                                   \
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

/* `depth` rows of `columns` columns that are dense, four by four, with zeros up to a strip. */
static void pack_rows(float *to, const float *b, int64_t b_column, int64_t depth, int64_t columns) {
    for (int64_t j = 0; j < STRIP; j += 4) {
        int64_t k = 0;

        for (; k + 4 <= depth && j + 4 <= columns; k += 4) {
            __m128 x[4];

            for (int i = 0; i < 4; i++)
                x[i] = _mm_loadu_ps(b + (j + i) * b_column + k);
            _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]);
            for (int i = 0; i < 4; i++)
                _mm_store_ps(to + (k + i) * STRIP + j, x[i]);
        }
        for (; k < depth; k++)
            for (int i = 0; i < 4; i++)
                to[k * STRIP + j + i] = j + i < columns ? b[(j + i) * b_column + k] : 0;
    }
}

/* Strip after strip, each a few rows at a time, which stay in the first cache meanwhile. */
static void pack_transposed(float *to, const float *b, int64_t b_column, int64_t depth,
                            int64_t columns) {
    enum { FEW = 64 };

    for (int64_t j = 0; j < columns; j += STRIP)
        for (int64_t k = 0; k < depth; k += FEW) {
            const float *from = b + j * b_column + k;

            for (int64_t i = 0; i < STRIP; i++)
                for (int64_t l = 0; l < FEW; l += LANES)
                    _mm_prefetch((const char *)(from + i * b_column + FEW + l), _MM_HINT_T0);
            pack_rows(to + j * depth + k * STRIP, from, b_column, MIN(depth - k, (int64_t)FEW),
                      MIN(columns - j, (int64_t)STRIP));
        }
}

/* What the n-th tile of a part asks for: a line every second step. The first 16 ask for all that is
 * packed next, those after them for the next rows of a where each k has them in another line. */
static struct ahead look_ahead(const struct part *part, int64_t n, const float *next_rows) {
    const int64_t run = part->depth / 2, step = (int64_t)sizeof(float) * part->a_column;

    if (part->next && n < 16)
        return (struct ahead){ part->next + n % part->next_lines * 64 +
                                   n / part->next_lines * run * part->next_step,
                               part->next_step };
    if (part->a_row == 1)
        return (struct ahead){ (const char *)next_rows + n % 2 * run * step, step };
    return (struct ahead){ (const char *)next_rows, 0 };
}

/* So many rows by so many columns. `b` is where they lie, to be packed by the tiles of the first
 * rows; NULL: they are. */
static void run_part(const struct part *part, float *c, const float *a, float *packed,
                     const float *b, int64_t rows, int64_t columns) {
    int64_t i = 0, n = 0;

    for (size_t t = 0; i < rows; t++)
        for (; i + tiles[t].rows <= rows; i += tiles[t].rows) {
            const tile_fn *run = b && i == 0 ? tiles[t].pack : tiles[t].run;
            const float *next = a + (i + tiles[t].rows) * part->a_row;

            for (int64_t j = 0; j < columns; j += STRIP, n++) {
                const int64_t left = columns - j;
                const bool wide = left > LANES;

                run[wide](part, c + i * part->c_row + j, a + i * part->a_row,
                          packed + j * part->depth, b + j, look_ahead(part, n, next),
                          first_lanes(wide ? left - LANES : left));
            }
        }
}

/* Where things are packed. */
struct room {
    float *packed;
    float *copy;     /* of rows of a, at another distance; NULL: these are read where they lie */
    int64_t columns; /* as many as there is room for */
};

/* `rows` rows by the part's depth. `next`: where b goes on afterwards; or NULL. */
static void run_block(const struct gemm *gemm, const struct room *room, struct part *part, float *c,
                      const float *a, const float *b, int64_t rows, const float *next) {
    const bool dense = gemm->b_column == 1;
    const float *here = a;

    if (room->copy) {
        for (int64_t row = 0; row < rows; row++)
            memcpy(room->copy + row * COPY_ROW, a + row * gemm->a_row,
                   sizeof(float) * (size_t)part->depth);
        here = room->copy;
        part->a_row = COPY_ROW;
    }
    for (int64_t j = 0; j < gemm->n; j += room->columns) {
        const int64_t columns = MIN(gemm->n - j, room->columns);
        const float *from = b + j * gemm->b_column;

        part->next = (const char *)(j + columns < gemm->n ? from + columns * gemm->b_column : next);
        if (!dense)
            pack_transposed(room->packed, from, gemm->b_column, part->depth, columns);
        run_part(part, c + j, here, room->packed, dense ? from : NULL, rows, columns);
    }
}

static void run_all(const struct gemm *gemm, const struct room *room, float *c, const float *a,
                    const float *b) {
    const bool dense = gemm->b_column == 1;

    for (int64_t k = 0; k < gemm->k; k += DEPTH, b += DEPTH * gemm->b_row) {
        const int64_t depth = MIN(gemm->k - k, (int64_t)DEPTH);
        const int64_t block = BLOCK / (room->copy ? DEPTH : depth) / ROWS * ROWS;
        struct part part = {
            .depth = depth,
            .a_row = gemm->a_row,
            .a_column = gemm->a_column,
            .b_row = gemm->b_row,
            .c_row = gemm->c_row,
            .first = k == 0,
            .rate = gemm->rate,
            .next_lines = (dense ? room->columns : depth + LANES - 1) / LANES,
            .next_step = (int64_t)sizeof(float) * (dense ? gemm->b_row : gemm->b_column),
        };

        for (int64_t i = 0; i < gemm->m; i += block)
            run_block(gemm, room, &part, c + i * gemm->c_row,
                      a + i * gemm->a_row + k * gemm->a_column, b, MIN(gemm->m - i, block),
                      i + block < gemm->m   ? b
                      : k + DEPTH < gemm->k ? b + DEPTH * gemm->b_row
                                            : NULL);
    }
}

/* Without memory: slower, and the same bits. */
static __attribute__((noinline)) void run_on_stack(const struct gemm *gemm, float *c,
                                                   const float *a, const float *b) {
    _Alignas(64) float packed[DEPTH * STRIP];

    run_all(gemm, &(struct room){ packed, NULL, STRIP }, c, a, b);
}

void tiles_v4(const struct gemm *gemm, void *c, const void *a, const void *b) {
    /* Rows whose distance is a multiple of a page fall into one set of the first cache, which has
     * not room for those of a tile. */
    const bool copies = gemm->a_column == 1 && gemm->a_row % PAGE == 0 && gemm->m > 1;
    const size_t n = DEPTH * COLUMNS + (copies ? BLOCK / DEPTH * COPY_ROW : 0);
    float *room = aligned_alloc(64, sizeof(float) * n);

    if (room)
        run_all(gemm, &(struct room){ room, copies ? room + DEPTH * COLUMNS : NULL, COLUMNS }, c, a,
                b);
    else
        run_on_stack(gemm, c, a, b);
    free(room);
}
