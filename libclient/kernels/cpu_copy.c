/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy: the order of the dimensions is free, because no element depends on another. So two
 * dimensions are merged if one step leads through both, and the innermost dimension is the one in
 * which the destination is dense. If the source is dense in another dimension, the copy goes
 * through both in squares, which stay in the cache.
 */
#include "libclient/kernels/cpu_copy.h"

#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/pool.h"

enum { SQUARE = 32, PIECE_BYTES = 64 << 10, POOL_BYTES = 256 << 10 };

void cpu_copy_init(struct cpu_copy *copy, size_t bytes) {
    *copy = (struct cpu_copy){ .bytes = bytes };
}

void cpu_copy_dim(struct cpu_copy *copy, int64_t n, int64_t from, int64_t to) {
    copy->dims[copy->rank++] = (struct cpu_copy_dim){ n, from, to };
}

void cpu_copy_steps(int64_t steps[SHAPE_RANK_MAX], const struct shape *shape, size_t bytes) {
    int64_t step = (int64_t)bytes;

    for (int i = shape->rank; i-- > 0; step = shape_times(step, shape->dims[i]))
        steps[i] = step;
}

/* ---- How a copy will run: worked out when the plan is made ------------------------------------
 */

static void join(struct cpu_copy *copy) {
    int rank = 0;

    for (int i = 0; i < copy->rank; i++) {
        struct cpu_copy_dim dim = copy->dims[i];

        if (dim.n == 1)
            continue;
        if (rank && copy->dims[rank - 1].from == dim.from * dim.n &&
            copy->dims[rank - 1].to == dim.to * dim.n)
            dim.n *= copy->dims[--rank].n;
        copy->dims[rank++] = dim;
    }
    copy->rank = rank;
}

/* Move dimension `i` inwards, to index `to`. */
static void move_dim(struct cpu_copy *copy, int i, int to) {
    struct cpu_copy_dim dim = copy->dims[i];

    memmove(&copy->dims[i], &copy->dims[i + 1], (size_t)(to - i) * sizeof(dim));
    copy->dims[to] = dim;
}

static int find_dense(const struct cpu_copy *copy, bool source) {
    for (int i = 0; i < copy->rank; i++)
        if ((source ? copy->dims[i].from : copy->dims[i].to) == (int64_t)copy->bytes)
            return i;
    return -1;
}

static void choose_kind(struct cpu_copy *copy) {
    const int last = copy->rank - 1;
    int dense = find_dense(copy, false);

    if (dense >= 0)
        move_dim(copy, dense, last);
    if (copy->dims[last].to != (int64_t)copy->bytes) {
        copy->kind = COPY_STEPS;
        return;
    }
    if (copy->dims[last].from == (int64_t)copy->bytes)
        copy->kind = COPY_ROWS;
    else if (copy->dims[last].from == 0)
        copy->kind = COPY_FILL;
    else
        copy->kind = COPY_STEPS;
    dense = find_dense(copy, true);
    if (copy->kind == COPY_STEPS && dense >= 0) {
        move_dim(copy, dense, last - 1);
        copy->kind = COPY_TRANSPOSE;
    }
}

void cpu_copy_settle(struct cpu_copy *copy) {
    int64_t total = 1, unit;

    for (int i = 0; i < copy->rank; i++)
        total *= copy->dims[i].n;
    if (total == 0)
        return;
    join(copy);
    if (copy->rank == 0)
        cpu_copy_dim(copy, 1, (int64_t)copy->bytes, (int64_t)copy->bytes);
    choose_kind(copy);
    total *= (int64_t)copy->bytes;
    copy->cost = (uint64_t)total / (copy->kind == COPY_ROWS || copy->kind == COPY_FILL ? 10 : 2);
    copy->n_units = 1;
    for (int i = 0; i < copy->rank - 1 - (copy->kind == COPY_TRANSPOSE); i++)
        copy->n_units *= (size_t)copy->dims[i].n;
    if (copy->kind == COPY_TRANSPOSE) {
        copy->chunk = SQUARE;
        unit = copy->dims[copy->rank - 1].n * SQUARE * (int64_t)copy->bytes;
    } else {
        copy->chunk =
            MIN(copy->dims[copy->rank - 1].n, (int64_t)PIECE_BYTES / (int64_t)copy->bytes);
        unit = copy->chunk * (int64_t)copy->bytes;
    }
    copy->n_units *=
        (size_t)((copy->dims[copy->rank - 1 - (copy->kind == COPY_TRANSPOSE)].n + copy->chunk - 1) /
                 copy->chunk);
    if (total >= POOL_BYTES)
        copy->grain = (size_t)MAX(PIECE_BYTES / unit, (int64_t)1);
}

/* ---- Run ------------------------------------------------------------------------------------- */

#define SIZES(X)                                                                                   \
    X(1, uint8_t)                                                                                  \
    X(2, uint16_t)                                                                                 \
    X(4, uint32_t)                                                                                 \
    X(8, uint64_t)

static void fill(char *to, const char *from, size_t n, size_t bytes) {
    switch (bytes) {
#define X(size, T)                                                                                 \
    case size: {                                                                                   \
        const T value = *(const T *)from;                                                          \
        for (size_t i = 0; i < n; i++)                                                             \
            ((T *)to)[i] = value;                                                                  \
        break;                                                                                     \
    }
        SIZES(X)
#undef X
    }
}

static void steps(char *to, const char *from, int64_t n, int64_t to_step, int64_t from_step,
                  size_t bytes) {
    switch (bytes) {
#define X(size, T)                                                                                 \
    case size:                                                                                     \
        for (int64_t i = 0; i < n; i++)                                                            \
            *(T *)(to + i * to_step) = *(const T *)(from + i * from_step);                         \
        break;
        SIZES(X)
#undef X
    }
}

/*
 * Copy `rows` of the dimension in which the source is dense, by all of that in which the
 * destination is.
 */
static void transpose(const struct cpu_copy *copy, char *to, const char *from, int64_t rows) {
    const struct cpu_copy_dim *inner = &copy->dims[copy->rank - 1], *outer = inner - 1;

    for (int64_t begin = 0; begin < inner->n; begin += SQUARE) {
        const int64_t n = MIN(inner->n - begin, (int64_t)SQUARE);

        switch (copy->bytes) {
#define X(size, T)                                                                                 \
    case size:                                                                                     \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t j = begin; j < begin + n; j++)                                            \
                *(T *)(to + i * outer->to + j * size) =                                            \
                    *(const T *)(from + i * size + j * inner->from);                               \
        break;
            SIZES(X)
#undef X
        }
    }
}

struct copy_work {
    const struct cpu_copy *copy;
    char *to;
    const char *from;
};

static void run_units(void *userdata, size_t begin, size_t end) {
    const struct copy_work *work = userdata;
    const struct cpu_copy *copy = work->copy;
    const int cut =
        copy->rank - 1 - (copy->kind == COPY_TRANSPOSE); /* the dimension that is cut into pieces */
    const struct cpu_copy_dim *last = &copy->dims[cut];
    const size_t per_row = (size_t)((last->n + copy->chunk - 1) / copy->chunk);
    size_t row = begin / per_row, piece = begin % per_row, rest = row;
    int64_t at[COPY_RANK_MAX];
    char *to = work->to;
    const char *from = work->from;

    for (int i = cut; i-- > 0; rest /= (size_t)copy->dims[i].n) {
        at[i] = (int64_t)(rest % (size_t)copy->dims[i].n);
        to += at[i] * copy->dims[i].to;
        from += at[i] * copy->dims[i].from;
    }
    for (size_t now = begin; now < end; now++) {
        const int64_t first = (int64_t)piece * copy->chunk, n = MIN(copy->chunk, last->n - first);
        char *d = to + first * last->to;
        const char *x = from + first * last->from;

        if (copy->kind == COPY_ROWS)
            memcpy(d, x, (size_t)n * copy->bytes);
        else if (copy->kind == COPY_FILL)
            fill(d, x, (size_t)n, copy->bytes);
        else if (copy->kind == COPY_STEPS)
            steps(d, x, n, last->to, last->from, copy->bytes);
        else
            transpose(copy, d, x, n);
        if (++piece < per_row)
            continue;
        piece = 0;
        for (int i = cut; i-- > 0;) {
            to += copy->dims[i].to;
            from += copy->dims[i].from;
            if (++at[i] < copy->dims[i].n)
                break;
            to -= at[i] * copy->dims[i].to;
            from -= at[i] * copy->dims[i].from;
            at[i] = 0;
        }
    }
}

void cpu_copy_run(const struct cpu_copy *copy, struct thread_pool *pool, void *to,
                  const void *from) {
    struct copy_work work = { copy, (char *)to + copy->to_offset,
                              (const char *)from + copy->from_offset };

    if (copy->kind == COPY_NOTHING)
        return;
    if (copy->grain)
        pool_for(pool, copy->n_units, copy->grain, run_units, &work);
    else
        run_units(&work, 0, copy->n_units);
}
