/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_OPS_H
#define ALLOT_OPS_H
/*
 * One helper for each op: it takes outputs and returns an output, so that calls nest like
 * expressions. ops.md (allot(3)) says what each takes and returns; graph.h describes errors and
 * threads. The new node goes into the graph of its inputs.
 *
 * A variable that is given as a value is read. Negative axes count from the end; no axes (n 0)
 * means all axes.
 */
#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The name of the node that the next helper returns: allot_name_next(graph, "loss"). It counts for
 * that one call only, even if the call fails or has another name already. */
void allot_name_next(struct allot_graph *graph, const char *name);

/* ---- Sources: `name` may be NULL ----------------------------------------------------------------
 */

/* The numbers of `tensor`. The graph keeps a reference: the program must not change the tensor any
 * more. */
struct allot_output allot_const(struct allot_graph *graph, const char *name,
                                struct allot_tensor *tensor);
/* A copy of dense numbers. */
struct allot_output allot_constant(struct allot_graph *graph, const char *name,
                                   enum allot_dtype dtype, int rank, const int64_t *dims,
                                   const void *data);
struct allot_output allot_constant_f32(struct allot_graph *graph, const char *name, int rank,
                                       const int64_t *dims, const float *data);
/* A single number; and a tensor filled with one number. A number that the type cannot represent is
 * an error (-ERANGE): 1.5, 1e20 or a NaN as an integer. Floats are rounded to nearest; as a bool,
 * every number but 0 is true. */
struct allot_output allot_scalar(struct allot_graph *graph, enum allot_dtype dtype, double value);
struct allot_output allot_filled(struct allot_graph *graph, enum allot_dtype dtype, int rank,
                                 const int64_t *dims, double value);
/* A value that each step feeds. A length of -1 allows any length, a rank of -1 any shape. */
struct allot_output allot_placeholder(struct allot_graph *graph, const char *name,
                                      enum allot_dtype dtype, int rank, const int64_t *dims);
struct allot_output allot_random_uniform(struct allot_graph *graph, enum allot_dtype dtype,
                                         int rank, const int64_t *dims, double minimum,
                                         double maximum, uint64_t seed);
struct allot_output allot_random_normal(struct allot_graph *graph, enum allot_dtype dtype, int rank,
                                        const int64_t *dims, double mean, double stddev,
                                        uint64_t seed);
struct allot_output allot_truncated_normal(struct allot_graph *graph, enum allot_dtype dtype,
                                           int rank, const int64_t *dims, double mean,
                                           double stddev, uint64_t seed);
/* From `start` in steps of `delta` up to, but not including, `limit`. All three have the same type:
 * i32, i64, f32 or f64. */
struct allot_output allot_range(struct allot_output start, struct allot_output limit,
                                struct allot_output delta);

/* ---- Variables: what outlives a step ------------------------------------------------------------
 */

/* A variable with the type and shape of its initial value, which allot_initializer() assigns. The
 * shape must be fully known. Control scopes affect neither the variable nor that assignment, so
 * that reading the variable does not run the nodes of the scope it was made in. They do affect
 * nodes of `initial` that are made in such a scope. */
struct allot_output allot_variable(struct allot_graph *graph, const char *name,
                                   struct allot_output initial);
/* A variable without an initial value: a session restores or assigns one. */
struct allot_output allot_variable_of(struct allot_graph *graph, const char *name,
                                      enum allot_dtype dtype, int rank, const int64_t *dims);
/* A node that runs the initial assignments of all variables that exist now. */
struct allot_node *allot_initializer(struct allot_graph *graph);
/* Change a variable. The output is the new value; the change happens when a session runs it. */
struct allot_output allot_assign(struct allot_output variable, struct allot_output value);
struct allot_output allot_assign_add(struct allot_output variable, struct allot_output value);
struct allot_output allot_assign_sub(struct allot_output variable, struct allot_output value);
/* The variable's value, read by a node of its own, which runs after the nodes of the control
 * scopes. */
struct allot_output allot_read(struct allot_output variable);

/* ---- Control ------------------------------------------------------------------------------------
 */

/* A node that does nothing and runs after `n` others. */
struct allot_node *allot_group(struct allot_graph *graph, const char *name,
                               struct allot_node *const *nodes, size_t n);
/* x; whenever it is computed, a line "message[numbers]" goes to the log (log.h; by default standard
 * error). */
struct allot_output allot_print(struct allot_output x, const char *message);
/* Fails the step, with message and data, unless `condition` holds. */
struct allot_node *allot_assert(struct allot_output condition, const struct allot_output *data,
                                size_t n, const char *message);
/* x; fails the step if it has a NaN or an infinity. */
struct allot_output allot_check_numerics(struct allot_output x, const char *message);

/* ---- One in, one out; two in, one out -----------------------------------------------------------
 */

#define ALLOT_UNARY_OPS(X)                                                                         \
    X(identity, Identity)                                                                          \
    X(stop_gradient, StopGradient)                                                                 \
    X(shape, Shape)                                                                                \
    X(size, Size)                                                                                  \
    X(rank, Rank)                                                                                  \
    X(neg, Neg)                                                                                    \
    X(abs, Abs)                                                                                    \
    X(sign, Sign)                                                                                  \
    X(square, Square)                                                                              \
    X(exp, Exp)                                                                                    \
    X(expm1, Expm1)                                                                                \
    X(log, Log)                                                                                    \
    X(log1p, Log1p)                                                                                \
    X(sqrt, Sqrt)                                                                                  \
    X(rsqrt, Rsqrt)                                                                                \
    X(reciprocal, Reciprocal)                                                                      \
    X(sin, Sin)                                                                                    \
    X(cos, Cos)                                                                                    \
    X(tanh, Tanh)                                                                                  \
    X(sigmoid, Sigmoid)                                                                            \
    X(relu, Relu)                                                                                  \
    X(relu6, Relu6)                                                                                \
    X(elu, Elu)                                                                                    \
    X(gelu, Gelu)                                                                                  \
    X(silu, Silu)                                                                                  \
    X(softplus, Softplus)                                                                          \
    X(erf, Erf)                                                                                    \
    X(floor, Floor)                                                                                \
    X(ceil, Ceil)                                                                                  \
    X(round, Round)                                                                                \
    X(logical_not, LogicalNot)                                                                     \
    X(is_nan, IsNan)                                                                               \
    X(is_finite, IsFinite)                                                                         \
    X(zeros_like, ZerosLike)                                                                       \
    X(ones_like, OnesLike)                                                                         \
    X(softmax, Softmax)                                                                            \
    X(log_softmax, LogSoftmax)                                                                     \
    X(where, Where)

#define ALLOT_BINARY_OPS(X)                                                                        \
    X(add, Add)                                                                                    \
    X(sub, Sub)                                                                                    \
    X(mul, Mul)                                                                                    \
    X(div, Div)                                                                                    \
    X(floor_div, FloorDiv)                                                                         \
    X(floor_mod, FloorMod)                                                                         \
    X(pow, Pow)                                                                                    \
    X(maximum, Maximum)                                                                            \
    X(minimum, Minimum)                                                                            \
    X(squared_difference, SquaredDifference)                                                       \
    X(equal, Equal)                                                                                \
    X(not_equal, NotEqual)                                                                         \
    X(less, Less)                                                                                  \
    X(less_equal, LessEqual)                                                                       \
    X(greater, Greater)                                                                            \
    X(greater_equal, GreaterEqual)                                                                 \
    X(logical_and, LogicalAnd)                                                                     \
    X(logical_or, LogicalOr)                                                                       \
    X(bias_add, BiasAdd)                                                                           \
    X(matmul, MatMul)                                                                              \
    X(batch_matmul, BatchMatMul)                                                                   \
    X(softmax_cross_entropy, SoftmaxCrossEntropy)              /* (logits, labels): the losses */  \
    X(sparse_softmax_cross_entropy, SparseSoftmaxCrossEntropy) /* labels: i32 or i64 */

#define ALLOT_REDUCTIONS(X)                                                                        \
    X(sum, Sum)                                                                                    \
    X(mean, Mean)                                                                                  \
    X(prod, Prod)                                                                                  \
    X(max, Max)                                                                                    \
    X(min, Min)                                                                                    \
    X(all, All)                                                                                    \
    X(any, Any)

/* struct allot_output allot_relu(struct allot_output x), … */
#define X(name, op) struct allot_output allot_##name(struct allot_output x);
ALLOT_UNARY_OPS(X)
#undef X
/* struct allot_output allot_add(struct allot_output x, struct allot_output y), … */
#define X(name, op) struct allot_output allot_##name(struct allot_output x, struct allot_output y);
ALLOT_BINARY_OPS(X)
#undef X
/* allot_sum(x) reduces all dimensions; allot_sum_along(x, axes, n, keep_dims) reduces `axes`, which
 * stay as dimensions of length 1 with `keep_dims`. */
#define X(name, op)                                                                                \
    struct allot_output allot_##name(struct allot_output x);                                       \
    struct allot_output allot_##name##_along(struct allot_output x, const int64_t *axes, size_t n, \
                                             bool keep_dims);
ALLOT_REDUCTIONS(X)
#undef X

struct allot_output allot_leaky_relu(struct allot_output x, double alpha);
struct allot_output allot_select(struct allot_output condition, struct allot_output t,
                                 struct allot_output e);
struct allot_output allot_add_n(const struct allot_output *inputs, size_t n);
struct allot_output allot_matmul_of(struct allot_output a, struct allot_output b, bool transpose_a,
                                    bool transpose_b);
struct allot_output allot_arg_max(struct allot_output x, int axis);
struct allot_output allot_arg_min(struct allot_output x, int axis);

/* ---- Arrays -------------------------------------------------------------------------------------
 */

struct allot_output allot_cast(struct allot_output x, enum allot_dtype dtype);
/* One length may be -1: it follows from the others. */
struct allot_output allot_reshape(struct allot_output x, int rank, const int64_t *dims);
struct allot_output allot_broadcast_to(struct allot_output x, int rank, const int64_t *dims);
/* `perm` NULL: all dimensions in reverse order. */
struct allot_output allot_transpose(struct allot_output x, const int64_t *perm, size_t n);
struct allot_output allot_expand_dims(struct allot_output x, int axis);
struct allot_output allot_squeeze(struct allot_output x, const int64_t *axes, size_t n);
struct allot_output allot_concat(const struct allot_output *values, size_t n, int axis);
struct allot_output allot_pack(const struct allot_output *values, size_t n, int axis);
/* `n` outputs; on failure none of them has a node. */
int allot_split(struct allot_output x, int axis, size_t n, struct allot_output *ret);
int allot_unpack(struct allot_output x, int axis, size_t n, struct allot_output *ret);
/* A length of -1: up to the end. */
struct allot_output allot_slice(struct allot_output x, const int64_t *begin, const int64_t *size,
                                size_t n);
struct allot_output allot_gather(struct allot_output params, struct allot_output indices, int axis);
struct allot_output allot_tile(struct allot_output x, const int64_t *multiples, size_t n);
struct allot_output allot_pad(struct allot_output x, const int64_t *before, const int64_t *after,
                              size_t n);
/* `on` where the position in the last dimension equals the index, else `off`. */
struct allot_output allot_one_hot(struct allot_output indices, int64_t depth,
                                  enum allot_dtype dtype, double on, double off);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
