/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Trial: one kernel on its own: a node of an op, inputs and outputs in blocks of exactly their size
 * (so that a sanitizer sees a step too far), prepared and run.
 *
 * A failure of the trial itself fails the test. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/kernel.h"

enum { TRIAL_VALUES = 12 };

struct trial {
    struct attr attrs[OPDEF_ATTRS_MAX]; /* the defaults, and what was set; borrowed */
    struct node node;
    struct kernel_value in[TRIAL_VALUES], out[TRIAL_VALUES];
    void *in_data[TRIAL_VALUES], *out_data[TRIAL_VALUES];
    uint32_t n_in, n_out;
    bool owned[TRIAL_VALUES]; /* whether the output is a block of its own */
    uint64_t seed, step;
    struct allot_error error; /* of the last run */
};

/* Attributes that have no default must be set before it is run. */
void trial_init(struct trial *trial, const char *op);
void trial_done(struct trial *trial);

/* `value` is borrowed. */
void trial_attr(struct trial *trial, const char *name, struct attr value);

/* A new input of that shape; returns its data, zeroed. */
void *trial_input(struct trial *trial, enum dtype dtype, const struct shape *shape);
/* Outputs as the op says for these inputs. Its answer. */
int trial_outputs(struct trial *trial);
/* The same, with output 0 where input `i` is. */
int trial_outputs_in_place(struct trial *trial, uint32_t i);

/* Whether the op says that its first input may have this type. */
bool trial_takes(const struct trial *trial, enum dtype dtype);
bool trial_has_kernel(const struct trial *trial);
/* What prepare or run answered. `pool` NULL: one without threads. */
int trial_run(struct trial *trial, struct pool *pool);

struct shape trial_shape(int rank, ...); /* of ints */

/* Elements by number, of any type: exact in a long double. Written values are rounded, or cut to
 * the type's low bits. */
long double trial_get(enum dtype dtype, const void *data, int64_t i);
void trial_set(enum dtype dtype, void *data, int64_t i, long double value);
/* `value` as an integer of that type keeps it. */
__int128 trial_wrap(enum dtype dtype, __int128 value);

/* Random contents: floats in [-range, range] with a few special ones where `special`, integers
 * small or over the whole type. */
void trial_fill(enum dtype dtype, void *data, int64_t n, uint64_t *seed, double range,
                bool special);

/* How many units in the last place `got` is from `expected`; 0 for two NaNs, or the same infinity.
 */
double trial_ulps(enum dtype dtype, long double got, long double expected);

/* Where element `i` of `output` comes from in an input that is stretched to it. */
int64_t trial_stretch(const struct shape *input, const struct shape *output, int64_t i);
