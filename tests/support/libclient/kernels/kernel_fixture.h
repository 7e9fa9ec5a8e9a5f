/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Kernel fixture: one kernel on its own: a node of an op, inputs and outputs in blocks of exactly
 * their size (so that a sanitizer sees a step too far), prepared and run.
 *
 * A failure of the fixture itself fails the test. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/kernel.h"

enum { KERNEL_FIXTURE_VALUES = 12 };

struct kernel_fixture {
    struct attr attrs[OPDEF_ATTRS_MAX]; /* the defaults, and what was set; borrowed */
    struct node node;
    struct kernel_value in[KERNEL_FIXTURE_VALUES], out[KERNEL_FIXTURE_VALUES];
    void *in_data[KERNEL_FIXTURE_VALUES], *out_data[KERNEL_FIXTURE_VALUES];
    uint32_t n_in, n_out;
    bool owned[KERNEL_FIXTURE_VALUES]; /* whether the output is a block of its own */
    uint64_t seed, step;
    struct allot_error error; /* of the last run */
};

/* Attributes that have no default must be set before it is run. */
void kernel_fixture_init(struct kernel_fixture *fixture, const char *op);
void kernel_fixture_done(struct kernel_fixture *fixture);

/* `value` is borrowed. */
void kernel_fixture_attr(struct kernel_fixture *fixture, const char *name, struct attr value);

/* A new input of that shape; returns its data, zeroed. */
void *kernel_fixture_input(struct kernel_fixture *fixture, enum dtype dtype,
                           const struct shape *shape);
/* Outputs as the op says for these inputs. Its answer. */
int kernel_fixture_outputs(struct kernel_fixture *fixture);
/* The same, with output 0 where input `i` is. */
int kernel_fixture_outputs_in_place(struct kernel_fixture *fixture, uint32_t i);

/* Whether the op says that its first input may have this type. */
bool kernel_fixture_takes(const struct kernel_fixture *fixture, enum dtype dtype);
bool kernel_fixture_has_kernel(const struct kernel_fixture *fixture);
/* What prepare or run answered. `pool` NULL: one without threads. */
int kernel_fixture_run(struct kernel_fixture *fixture, struct thread_pool *pool);

struct shape kernel_fixture_shape(int rank, ...); /* of ints */

/* Reads and writes element number `i`, of any type: a long double holds each exactly. Written
 * values are rounded, or cut to the type's low bits. */
long double kernel_fixture_get(enum dtype dtype, const void *data, int64_t i);
void kernel_fixture_set(enum dtype dtype, void *data, int64_t i, long double value);
/* `value` as an integer of that type keeps it. */
__int128 kernel_fixture_wrap(enum dtype dtype, __int128 value);

/* Random contents: floats in [-range, range] with a few special ones where `special`, integers
 * small or over the whole type. */
void kernel_fixture_fill(enum dtype dtype, void *data, int64_t n, uint64_t *seed, double range,
                         bool special);

/* How many units in the last place `got` is from `expected`; 0 for two NaNs, or the same infinity.
 */
double kernel_fixture_ulps(enum dtype dtype, long double got, long double expected);

/* Where element `i` of `output` comes from in an input that is stretched to it. */
int64_t kernel_fixture_stretch(const struct shape *input, const struct shape *output, int64_t i);
