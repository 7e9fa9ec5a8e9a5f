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
 */
#include "base/cleanup.h"
#include "sim/ptx_block.h"

#define MANY 16 /* blocks for one sample, where the next block is as good */

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
