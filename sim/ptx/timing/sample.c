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
 * In a one-dimensional grid the inside gets three of four samples, near the middle of its thirds,
 * but not exactly there in a large one: so samples differ where every other block does.
 *
 * Where the samples differ, four are not enough: blocks are then taken from n equal stretches of
 * the grid, each at a scattered offset in its stretch.
 */
#include <math.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/block.h"

#define MANY 16 /* blocks for one sample, where the next block is as good */

static uint64_t scatter(uint64_t x) {
    x = (x + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t stretch_start(uint64_t n_all, uint64_t n, uint64_t i) {
    return (uint64_t)((unsigned __int128)n_all * i / n);
}

uint64_t ptx_sample_pick(uint64_t n_all, uint64_t n, uint64_t i) {
    const uint64_t from = stretch_start(n_all, n, i), to = stretch_start(n_all, n, i + 1);

    return n == n_all ? i : from + scatter(i) % (to - from);
}

double ptx_sample_uncertainty(const double *costs, uint64_t n) {
    double sum = costs[0], squares = 0;

    if (n < 2)
        return 1;
    for (uint64_t i = 1; i < n; i++) {
        squares += (costs[i] - costs[i - 1]) * (costs[i] - costs[i - 1]);
        sum += costs[i];
    }
    return sum > 0 ? 3 * sqrt(squares / 2 * (double)n / (double)(n - 1)) / sum : 0;
}

uint64_t ptx_sample_number(const struct ptx_samples *samples, uint64_t i) {
    return samples->costs ? ptx_sample_pick(samples->n_all, samples->n, i) : samples->number[i];
}

uint64_t ptx_sample_find(const struct ptx_samples *samples, uint64_t number, uint64_t *ret_weight) {
    uint64_t i = 0;

    if (!samples->costs) {
        while (samples->number[i] != number)
            i++;
        *ret_weight = samples->weight[i];
        return i;
    }
    i = (uint64_t)(((unsigned __int128)(number + 1) * samples->n - 1) / samples->n_all);
    *ret_weight = stretch_start(samples->n_all, samples->n, i + 1) -
                  stretch_start(samples->n_all, samples->n, i);
    return i;
}

bool ptx_sample_differ(const struct ptx_samples *samples) {
    double least = INFINITY, most = 0;

    for (uint64_t i = 0; i < samples->n; i++)
        if (samples->weight[i] > 1) { /* not the end of a grid, which stands for itself */
            least = MIN(least, samples->cost[i]);
            most = MAX(most, samples->cost[i]);
        }
    return most > least * (1 + PTX_SAMPLES_ALIKE);
}

static void add(struct ptx_samples *samples, uint64_t number, uint64_t weight) {
    if (weight == 0)
        return;
    samples->cost[samples->n] = 0;
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
    /* In each direction: one block inside, one at the end. */
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
    } else { /* one dimension is 1 long, so that its middle is also its end */
        const uint64_t a = x > 1 ? x : y, b = z > 1 ? z : y;
        const uint64_t ma = x > 1 ? mx : my, la = x > 1 ? lx : ly;
        const uint64_t mb = z > 1 ? mz : my, lb = z > 1 ? lz : ly;

        add(samples, ma + mb, (a - 1) * (b - 1));
        add(samples, la + mb, b - 1);
        add(samples, ma + lb, a - 1);
        add(samples, la + lb, 1);
    }
}
