/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sample: which blocks stand for a whole grid, and for how many each.
 *
 * The last block in each direction is often not full, and it is only one of many:
 *
 *     ┌──────────────┬───┐
 *     │              │   │   inside, the last column, the last row and the corner
 *     │      s       │ s │   each stand for themselves
 *     ├──────────────┼───┤
 *     │      s       │ s │
 *     └──────────────┴───┘
 *
 * In a grid of one direction the inside gets three of four samples, near the middle of its thirds:
 * not exactly there in a large one, so that they differ where every other block does.
 *
 * Many samples are spread evenly over each of these parts: one in each of as many equal fields, at
 * another place in each, so that no period of the grid meets them all.
 */
#include "base/cleanup.h"
#include "sim/ptx_block.h"

#define MANY 16 /* blocks for one sample, where the next block is as good */
/* Of 2^16: steps that meet themselves as late as can be, in one direction and in two at once. */
#define ALONE  40503
#define FIRST  49471
#define SECOND 37345

enum { MAX_AT_END = 8 }; /* samples of one end */

static void add(struct ptx_samples *samples, uint64_t number, uint64_t weight) {
    if (weight == 0)
        return;
    samples->number[samples->n] = number;
    samples->weight[samples->n++] = weight;
}

/* Blocks numbered `stride` apart: all but the last one are shared out among n. */
static void one_way(struct ptx_samples *samples, uint64_t extent, uint64_t stride, unsigned n) {
    const uint64_t inside = extent - 1;

    for (unsigned i = 0; i < n; i++) {
        const uint64_t from = inside * i / n, to = inside * (i + 1) / n;

        add(samples, ((from + to) / 2 + (to - from > MANY ? i : 0)) * stride, to - from);
    }
    add(samples, inside * stride, 1);
}

/* One part of a grid: in each direction the last block (a bit in `ends`), or all others. */
static uint64_t part_extent(const uint32_t grid[3], unsigned ends, unsigned way) {
    if (ends >> way & 1)
        return grid[way] > 1; /* a single one counts as inside */
    return MAX(grid[way] - 1, 1U);
}

static uint64_t part_blocks(const uint32_t grid[3], unsigned ends) {
    return part_extent(grid, ends, 0) * part_extent(grid, ends, 1) * part_extent(grid, ends, 2);
}

/* The number of block `i` of a part. */
static uint64_t part_number(const uint32_t grid[3], unsigned ends, uint64_t i) {
    uint64_t number = 0, stride = 1;

    for (unsigned way = 0; way < 3; way++) {
        const uint64_t extent = part_extent(grid, ends, way);

        number += (ends >> way & 1 ? grid[way] - 1 : i % extent) * stride;
        i /= extent;
        stride *= grid[way];
    }
    return number;
}

/* At most `n` samples: in rows of equal stretches, as many each way as the part is long. */
static void part_sample(struct ptx_samples *samples, const uint32_t grid[3], unsigned ends,
                        unsigned n) {
    const uint64_t length = part_extent(grid, ends, 0);
    const uint64_t rows = length ? part_blocks(grid, ends) / length : 0;
    uint64_t across = 1, down, step;

    if (!n || !rows)
        return;
    while (across < length && (across + 1) * (across + 1) * rows <= n * length)
        across++;
    down = MIN(MAX(n / across, UINT64_C(1)), rows);
    across = MIN(MAX(n / down, UINT64_C(1)), length);
    step = down > 1 ? FIRST : ALONE;
    for (uint64_t i = 0; i < across * down; i++) {
        const uint64_t k = i / across, j = i % across;
        const uint64_t top = rows * k / down, bottom = rows * (k + 1) / down;
        const uint64_t left = length * j / across, right = length * (j + 1) / across;
        const uint64_t row = top + ((bottom - top) * ((i + 1) * SECOND & 0xffff) >> 16);
        const uint64_t column = left + ((right - left) * ((i + 1) * step & 0xffff) >> 16);

        add(samples, part_number(grid, ends, row * length + column),
            (bottom - top) * (right - left));
    }
}

void ptx_sample_evenly(struct ptx_samples *samples, const uint32_t grid[3], unsigned n) {
    unsigned at_ends = 0;

    samples->n = 0;
    n = MIN(n, (unsigned)PTX_MAX_OUTLINED);
    for (unsigned ends = 1; ends < 8; ends++) {
        const unsigned few = (unsigned)MIN(part_blocks(grid, ends), (uint64_t)MAX_AT_END);

        part_sample(samples, grid, ends, few);
        at_ends += few;
    }
    n = n > 2 * at_ends ? n - at_ends : at_ends;
    part_sample(samples, grid, 0, (unsigned)MIN(part_blocks(grid, 0), (uint64_t)n));
}

void ptx_sample(struct ptx_samples *samples, const uint32_t grid[3], unsigned n) {
    const uint64_t x = grid[0], y = grid[1], z = grid[2];
    const uint64_t stride[3] = { 1, x, x * y };
    /* One inside, one at the end. */
    const uint64_t mx = (x - 1) / 2, my = (y - 1) / 2 * x, mz = (z - 1) / 2 * x * y;
    const uint64_t lx = x - 1, ly = (y - 1) * x, lz = (z - 1) * x * y;
    unsigned n_ways = 0, way = 0;

    samples->n = 0;
    n = MIN(n, (unsigned)PTX_MAX_SAMPLES);
    if (x * y * z <= n) {
        for (uint64_t i = 0; i < x * y * z; i++)
            add(samples, i, 1);
        return;
    }
    for (unsigned i = 0; i < 3; i++)
        if (grid[i] > 1) {
            n_ways++;
            way = i;
        }
    if (n_ways == 1 && n > 1) {
        one_way(samples, grid[way], stride[way], n - 1);
    } else if (n < 4) {
        add(samples, mx + my + mz, x * y * z);
    } else if (z > 1 && n_ways == 3) { /* faces, with the edges that they share */
        add(samples, mx + my + mz, (x - 1) * (y - 1) * (z - 1));
        add(samples, lx + my + mz, y * z);
        add(samples, mx + ly + mz, (x - 1) * z);
        add(samples, mx + my + lz, (x - 1) * (y - 1));
    } else { /* one of the three is flat, its middle is its end */
        const uint64_t a = x > 1 ? x : y, b = z > 1 ? z : y;
        const uint64_t ma = x > 1 ? mx : my, la = x > 1 ? lx : ly;
        const uint64_t mb = z > 1 ? mz : my, lb = z > 1 ? lz : ly;

        add(samples, ma + mb, (a - 1) * (b - 1));
        add(samples, la + mb, b - 1);
        add(samples, ma + lb, a - 1);
        add(samples, la + lb, 1);
    }
}
