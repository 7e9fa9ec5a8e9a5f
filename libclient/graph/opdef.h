/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Opdef: an op's inputs, outputs and attributes, and what is known of it without computing it: the
 * shapes of its outputs, and its gradient as a piece of graph.
 *
 * A signature is one text:
 *
 *     "(a: T, b: T) -> (product: T); T: {f16, bf16, f32, f64}; transpose_a: bool = false"
 *     "(values: N * T) -> (sum: T); N: int; T: type"
 *     "(variable: var T, value: T) -> (); T: type"
 *
 * Inputs and outputs have a type: an attribute of kind type ("T") or a fixed one ("i64"); `N * T`
 * is a list as long as the attribute N; `var T` is the handle of a variable, which keeps its users
 * on its device. Attributes: int, float, bool, type, shape, string, tensor, ints; `{…}` is a type
 * that must be one of these; `=` gives the default. Type and length attributes are inferred from
 * the inputs if possible.
 *
 * The registry is process-wide; ops are added at any time, by any thread, and never removed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/graph/attr.h"

struct allot_error;
struct allot_tensor;
struct node;
struct graph_gradient;

#define OPDEF_ARGS_MAX  16
#define OPDEF_ATTRS_MAX 16
#define OPDEF_NAME_SIZE 48

struct opdef_arg {
    char name[OPDEF_NAME_SIZE];
    enum dtype dtype; /* fixed; DTYPE_NONE: attribute `type_attr` */
    int type_attr;    /* index of attrs; -1 */
    int length_attr;  /* a list as long as this attribute says; -1: a single one */
    bool is_variable; /* the handle of one */
};

struct opdef_attr {
    char name[OPDEF_NAME_SIZE];
    enum attr_kind kind;
    uint32_t dtypes; /* of ATTR_DTYPE: bit 1 << dtype of those allowed */
    bool has_default;
    struct attr value; /* the default */
};

enum opdef_flag {
    OPDEF_STATEFUL = 1 << 0,   /* two nodes with the same inputs may differ: never merged, never
                                  computed ahead (random, variables, Print) */
    OPDEF_METADATA = 1 << 1,   /* reads only shape, size or rank of its first input */
    OPDEF_SIDE_EFFECT = 1 << 2 /* worth running as a target though no node uses its outputs */
};

/*
 * What is known of a node when its output shapes are asked for: while the graph is built (shapes
 * may be open) and again when a plan is made (all input shapes are whole).
 */
struct opdef_shapes {
    const struct node *node;    /* its attributes and types; its inputs may not be looked at */
    const struct shape *inputs; /* flat: lists lie in a row */
    size_t n_inputs;
    const struct allot_tensor *const *values; /* each NULL, or a host tensor: its value is known */
    struct shape *outputs;                    /* to be filled; they are unknown at first */
    size_t n_outputs;
};
/* -EINVAL with a sentence that names what does not fit, with both shapes: "MatMul: [2, 3] and
 * [4, 5]: the inner dimensions 3 and 4 differ". The node's name is put before it by the caller. */
typedef int (*opdef_shape_fn)(struct opdef_shapes *shapes, struct allot_error *err);

/* Build the gradient of `gradient->node` (graph/grad.h). */
typedef int (*opdef_gradient_fn)(struct graph_gradient *gradient, struct allot_error *err);

struct opdef {
    char name[OPDEF_NAME_SIZE];
    struct opdef_arg inputs[OPDEF_ARGS_MAX], outputs[OPDEF_ARGS_MAX];
    size_t n_inputs, n_outputs;
    struct opdef_attr attrs[OPDEF_ATTRS_MAX];
    size_t n_attrs;
    uint32_t flags;
    uint32_t shaped_by;   /* bit per input: `shape` looks at its value; such ops have no lists */
    opdef_shape_fn shape; /* NULL: outputs are unknown until they are computed */
    opdef_gradient_fn gradient; /* NULL: it has none, and a path through it is an error */
    bool is_flat;               /* the gradient is zero everywhere (comparisons, Floor, Shape) */
};

/* One line of a table of ops, as the files of ops/ have them. */
struct opdef_row {
    const char *name, *signature;
    opdef_shape_fn shape;
    opdef_gradient_fn gradient;
    uint32_t flags;
    uint32_t shaped_by;
    bool is_flat;
};

/* -EEXIST: there is one of that name. -EINVAL: the signature, with the place of the fault. */
int opdef_register(const struct opdef_row *row, struct allot_error *err);
/* Register a table, up to the first row that fails. Rows that are registered already are fine. */
int opdef_register_table(const struct opdef_row *rows, size_t n, struct allot_error *err);
/* NULL: none. Lives for ever. */
const struct opdef *opdef_find(const char *name);
int opdef_attr_index(const struct opdef *op, const char *name); /* -1 */
/* The error of a name that opdef_find() does not know: -ENOENT, with the op that is probably meant.
 */
int opdef_missing(const char *name, struct allot_error *err);
/* Op `i` in order of registration; NULL: there are no more. */
const struct opdef *opdef_at(size_t i);
/* "{f32, f64}", "type" for all of them. Returns `text`. */
#define OPDEF_DTYPES_SIZE 96
const char *opdef_dtypes_format(uint32_t dtypes, char text[static OPDEF_DTYPES_SIZE]);

/* The text of a signature as an opdef without functions. -EINVAL with the place of the fault. */
int signature_parse(struct opdef *ret, const char *name, const char *signature,
                    struct allot_error *err);
