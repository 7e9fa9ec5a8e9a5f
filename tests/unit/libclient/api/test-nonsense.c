/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nonsense: every function that liballot exports, with NULL and worse where something must be. The
 * calls are tried in a process of their own: one that crashes is named, and another process goes on
 * with the next.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "libclient/allot/config.h"
#include "libclient/allot/custom.h"
#include "libclient/allot/lease.h"
#include "libclient/allot/log.h"
#include "libclient/allot/model.h"
#include "libclient/allot/now.h"
#include "libclient/allot/saver.h"
#include "libclient/allot/session.h"
#include "libclient/allot/shard.h"
#include "libclient/allot/train.h"
#include "tests/support/suite.h"

/* What the calls are about, made anew for each. */
static struct allot_graph *g, *other_graph;
static struct allot_session *session;
static struct allot_needs needs = { .size = sizeof(needs) }, unsized_needs;
static struct allot_callable *callable;
static struct allot_tensor *tensor, *tensors[4];
static struct allot_optimizer *sgd;
static struct allot_strategy *strategy;
static struct allot_model *model, *headless;
static struct allot_output x, variable, far, nothing, outputs[4];
static struct allot_node *nodes[4];
static struct allot_error err, *const e = &err;
static const int64_t dims[] = { 2, 3 }, below[] = { 2, -2 };
static const char *const no_format = NULL;
static void *managed;
static uint64_t number;
static char logged[512];

/* Must return -EINVAL, with a sentence in `err`. */
#define REFUSED(X)                                                                                 \
    X(allot_model_compile(NULL, ALLOT_LOSS_MSE, sgd, e))                                           \
    X(allot_model_compile(model, ALLOT_LOSS_MSE, NULL, e))                                         \
    X(allot_model_compile(model, (enum allot_loss)77, sgd, e))                                     \
    X(allot_model_compile(headless, ALLOT_LOSS_MSE, sgd, e))                                       \
    X(allot_model_session(NULL, &session, e))                                                      \
    X(allot_model_session(model, &session, e))                                                     \
    X(allot_model_fit(NULL, tensor, tensor, NULL, NULL, e))                                        \
    X(allot_model_fit(model, NULL, tensor, NULL, NULL, e))                                         \
    X(allot_model_fit(model, tensor, tensor, NULL, NULL, e))                                       \
    X(allot_model_fit(model, tensor, tensor, &(struct allot_fit_options){ 0 }, NULL, e))           \
    X(allot_model_evaluate(model, tensor, NULL, NULL, e))                                          \
    X(allot_model_evaluate(NULL, tensor, tensor, NULL, e))                                         \
    X(allot_model_predict(model, NULL, &tensor, e))                                                \
    X(allot_model_predict(model, tensor, NULL, e))                                                 \
    X(allot_model_recover(NULL, NULL, e))                                                          \
    X(allot_model_recover(model, "x", e))                                                          \
    X(allot_tensor_new(NULL, ALLOT_F32, 2, dims, e))                                               \
    X(allot_tensor_new(&tensor, ALLOT_F32, 2, NULL, e))                                            \
    X(allot_tensor_new(&tensor, ALLOT_F32, 9, dims, e))                                            \
    X(allot_tensor_new(&tensor, ALLOT_F32, 2, below, e))                                           \
    X(allot_tensor_new(&tensor, (enum allot_dtype)77, 2, dims, e))                                 \
    X(allot_tensor_copy_of(NULL, ALLOT_F32, 2, dims, dims, e))                                     \
    X(allot_tensor_copy_of(&tensor, ALLOT_F32, 2, dims, NULL, e))                                  \
    X(allot_tensor_over(NULL, ALLOT_F32, 0, NULL, logged, NULL, NULL, e))                          \
    X(allot_tensor_over(&tensor, ALLOT_F32, 0, NULL, NULL, NULL, NULL, e))                         \
    X(allot_tensor_reshape(NULL, tensor, 2, dims, e))                                              \
    X(allot_tensor_reshape(&tensor, NULL, 2, dims, e))                                             \
    X(allot_tensor_reshape(&tensor, tensor, 2, NULL, e))                                           \
    X(allot_tensor_reshape(&tensor, tensor, -1, NULL, e))                                          \
    X(allot_tensor_reshape(&tensor, tensor, 9, dims, e))                                           \
    X(allot_tensor_slice(NULL, tensor, 0, 1, e))                                                   \
    X(allot_tensor_slice(&tensor, NULL, 0, 1, e))                                                  \
    X(allot_tensor_to_dlpack(NULL, &managed, e))                                                   \
    X(allot_tensor_to_dlpack(tensor, NULL, e))                                                     \
    X(allot_tensor_from_dlpack(&tensor, NULL, e))                                                  \
    X(allot_graph_new(NULL, e))                                                                    \
    X(allot_graph_error(NULL, e))                                                                  \
    X(allot_graph_find(NULL, "x", outputs, e))                                                     \
    X(allot_graph_find(g, NULL, outputs, e))                                                       \
    X(allot_graph_find(g, "x", NULL, e))                                                           \
    X(allot_graph_save(NULL, "/dev/null", e))                                                      \
    X(allot_graph_save(g, NULL, e))                                                                \
    X(allot_graph_load(NULL, "/dev/null", e))                                                      \
    X(allot_graph_load(&g, NULL, e))                                                               \
    X(allot_gradients(NULL, 1, &x, 1, NULL, outputs, e))                                           \
    X(allot_gradients(&x, 1, NULL, 1, NULL, outputs, e))                                           \
    X(allot_gradients(&x, 1, &x, 1, NULL, NULL, e))                                                \
    X(allot_gradients(&x, 1, &far, 1, NULL, outputs, e))                                           \
    X(allot_gradients(&nothing, 1, &x, 1, NULL, outputs, e))                                       \
    X(allot_session_new(NULL, g, NULL, e))                                                         \
    X(allot_session_new(&session, NULL, NULL, e))                                                  \
    X(allot_session_run(NULL, NULL, NULL, 0, &x, 1, NULL, 0, tensors, e))                          \
    X(allot_session_run(session, &x, NULL, 1, &x, 1, NULL, 0, tensors, e))                         \
    X(allot_session_run(session, &x, tensors, 1, &x, 1, NULL, 0, tensors, e))                      \
    X(allot_session_run(session, NULL, &tensor, 1, &x, 1, NULL, 0, tensors, e))                    \
    X(allot_session_run(session, NULL, NULL, 0, NULL, 1, NULL, 0, tensors, e))                     \
    X(allot_session_run(session, NULL, NULL, 0, &x, 1, NULL, 0, NULL, e))                          \
    X(allot_session_run(session, NULL, NULL, 0, &x, 1, NULL, 1, tensors, e))                       \
    X(allot_session_run(session, NULL, NULL, 0, &x, 1, nodes, 1, tensors, e))                      \
    X(allot_session_run(session, NULL, NULL, 0, &far, 1, NULL, 0, tensors, e))                     \
    X(allot_session_run(session, NULL, NULL, 0, &nothing, 1, NULL, 0, tensors, e))                 \
    X(allot_session_plan(NULL, g, NULL, NULL, NULL, 0, &x, 1, NULL, 0, e))                         \
    X(allot_session_plan(&needs, NULL, NULL, NULL, NULL, 0, &x, 1, NULL, 0, e))                    \
    X(allot_session_plan(&unsized_needs, g, NULL, NULL, NULL, 0, &x, 1, NULL, 0, e))               \
    X(allot_session_plan(&needs, g, NULL, &x, NULL, 1, &x, 1, NULL, 0, e))                         \
    X(allot_session_plan(&needs, g, NULL, NULL, NULL, 0, NULL, 1, NULL, 0, e))                     \
    X(allot_session_plan(&needs, g, NULL, NULL, NULL, 0, &nothing, 1, NULL, 0, e))                 \
    X(allot_session_explain(NULL, NULL, e))                                                        \
    X(allot_session_explain(session, NULL, e))                                                     \
    X(allot_session_explain_page(NULL, NULL, e))                                                   \
    X(allot_session_explain_page(session, NULL, e))                                                \
    X(allot_session_run(session, NULL, NULL, 0, OUTPUT(x, 5), 1, NULL, 0, tensors, e))             \
    X(allot_session_run(session, NULL, NULL, 0, OUTPUT(x, -1), 1, NULL, 0, tensors, e))            \
    X(allot_session_run(session, OUTPUT(x, 5), &tensor, 1, &x, 1, NULL, 0, tensors, e))            \
    X(allot_callable_new(NULL, session, NULL, 0, &x, 1, NULL, 0, e))                               \
    X(allot_callable_new(&callable, NULL, NULL, 0, &x, 1, NULL, 0, e))                             \
    X(allot_callable_new(&callable, session, NULL, 0, NULL, 1, NULL, 0, e))                        \
    X(allot_callable_run(NULL, NULL, NULL, tensors, e))                                            \
    X(allot_callable_run(callable, NULL, NULL, NULL, e))                                           \
    X(allot_cancel_new(NULL, e))                                                                   \
    X(allot_save(NULL, NULL, 0, "/dev/null", e))                                                   \
    X(allot_save(session, NULL, 0, NULL, e))                                                       \
    X(allot_save(session, NULL, 1, "/dev/null", e))                                                \
    X(allot_save(session, &nothing, 1, "/dev/null", e))                                            \
    X(allot_save(session, &x, 1, "/dev/null", e))                                                  \
    X(allot_restore(NULL, NULL, 0, "/dev/null", e))                                                \
    X(allot_restore(session, NULL, 0, NULL, e))                                                    \
    X(allot_restore(session, NULL, 1, "/dev/null", e))                                             \
    X(allot_restore(session, &far, 1, "/dev/null", e))                                             \
    X(allot_set_memory_fraction(-1, e))                                                            \
    X(allot_set_memory_fraction((double)NAN, e))                                                   \
    X(allot_op_register(NULL, e))                                                                  \
    X(allot_op_register(&(struct allot_op_options){ 0 }, e))                                       \
    X(allot_op_finish(allot_op_begin(NULL, "Neg", NULL), nodes, e))                                \
    X(allot_op_finish(allot_op_begin(g, NULL, NULL), nodes, e))                                    \
    X(allot_now(NULL, &tensor, 1, tensors, 1, e))                                                  \
    X(allot_now("Neg", NULL, 1, tensors, 1, e))                                                    \
    X(allot_now("Neg", tensors, 1, tensors, 1, e))                                                 \
    X(allot_now("Neg", &tensor, 1, NULL, 1, e))                                                    \
    X(allot_now("Neg", &tensor, 1, tensors, 9, e))                                                 \
    X(allot_now("Assign", &tensor, 1, tensors, 1, e))                                              \
    X(allot_now_set_device("nowhere at all", e))                                                   \
    X(allot_now_run(allot_now_begin(NULL), tensors, 1, e))                                         \
    X(allot_now_neg(NULL, tensor, e))                                                              \
    X(allot_now_neg(tensors, NULL, e))                                                             \
    X(allot_now_add(tensors, tensor, NULL, e))                                                     \
    X(allot_lease_acquire(NULL, NULL, e))                                                          \
    X(allot_lease_acquire(&no_lease, without(true), e))                                            \
    X(allot_lease_acquire(&no_lease, without(false), e))                                           \
    X(allot_lease_attach(NULL, 1, NULL, NULL, e))                                                  \
    X(allot_lease_reattach(NULL, e))                                                               \
    X(allot_lease_grow(NULL, NULL, 1, 0, e))                                                       \
    X(allot_lease_grow_with(NULL, NULL, 1, NULL, e))                                               \
    X(allot_lease_held(NULL, NULL, &number, e))                                                    \
    X(allot_lease_shrink(NULL, NULL, 1, e))                                                        \
    X(allot_lease_release(NULL, e))                                                                \
    X(with_op(allot_op_input(op, nothing)))                                                        \
    X(with_op(allot_op_input(op, far)))                                                            \
    X(with_op(allot_op_input(op, *OUTPUT(x, 5))))                                                  \
    X(with_op(allot_op_inputs(op, NULL, 1)))                                                       \
    X(with_op(allot_op_attr_int(op, NULL, 1)))                                                     \
    X(with_op(allot_op_attr_float(op, NULL, 1)))                                                   \
    X(with_op(allot_op_attr_bool(op, NULL, true)))                                                 \
    X(with_op(allot_op_attr_type(op, NULL, ALLOT_F32)))                                            \
    X(with_op(allot_op_attr_type(op, "T", (enum allot_dtype)77)))                                  \
    X(with_op(allot_op_attr_shape(op, NULL, 2, dims)))                                             \
    X(with_op(allot_op_attr_shape(op, "shape", 2, NULL)))                                          \
    X(with_op(allot_op_attr_string(op, NULL, "x")))                                                \
    X(with_op(allot_op_attr_string(op, "message", NULL)))                                          \
    X(with_op(allot_op_attr_tensor(op, NULL, tensor)))                                             \
    X(with_op(allot_op_attr_tensor(op, "value", NULL)))                                            \
    X(with_op(allot_op_attr_ints(op, NULL, dims, 2)))                                              \
    X(with_op(allot_op_attr_ints(op, "axes", NULL, 2)))                                            \
    X(with_op(allot_op_device(op, NULL)))                                                          \
    X(with_op(allot_op_device(op, "nowhere at all")))                                              \
    X(with_op(allot_op_control(op, NULL)))                                                         \
    X(with_op(allot_op_control(op, far.node)))                                                     \
    X(with_op(allot_op_colocate(op, NULL)))                                                        \
    X(with_op(allot_op_colocate(op, far.node)))                                                    \
    X(with_now(allot_now_input(now, NULL)))                                                        \
    X(with_now(allot_now_attr_int(now, NULL, 1)))                                                  \
    X(with_now(allot_now_attr_float(now, NULL, 1)))                                                \
    X(with_now(allot_now_attr_bool(now, NULL, true)))                                              \
    X(with_now(allot_now_attr_type(now, NULL, ALLOT_F32)))                                         \
    X(with_now(allot_now_attr_string(now, NULL, "x")))                                             \
    X(with_now(allot_now_attr_string(now, "message", NULL)))                                       \
    X(with_now(allot_now_attr_ints(now, NULL, dims, 2)))                                           \
    X(with_now(allot_now_attr_ints(now, "axes", NULL, 2)))

/* Must be true, and leave an error with a sentence in the graph. */
#define KEPT(X)                                                                                    \
    X(allot_mirrored(g, NULL, 2) == NULL)                                                          \
    X(allot_mirrored(g, (const char *[]){ "nowhere at all" }, 1) == NULL)                          \
    X(allot_mirrored(g, (const char *[]){ NULL }, 1) == NULL)                                      \
    X(allot_strategy_minimize(NULL, sgd, x) == NULL)                                               \
    X(allot_strategy_minimize(strategy, NULL, x) == NULL)                                          \
    X(allot_strategy_minimize(strategy, sgd, nothing) == NULL)                                     \
    X(allot_strategy_minimize(strategy, sgd, *OUTPUT(x, 7)) == NULL)                               \
    X(is_none(allot_strategy_mean(NULL, x)))                                                       \
    X(is_none(allot_strategy_mean(strategy, *OUTPUT(x, -1))))                                      \
    X(is_none(allot_strategy_replica(strategy, x, 7)))                                             \
    X(is_none(allot_strategy_replica(NULL, x, 0)))                                                 \
    X(allot_sharded_variable(g, "s", *OUTPUT(x, 7), NULL) == NULL)                                 \
    X(allot_sharded_variable(g, "s", x, &(struct allot_shard_options){ 0 }) == NULL)               \
    X(allot_sharded_variable_of(g, "s", (enum allot_dtype)77, 2, dims, NULL) == NULL)              \
    X(allot_sharded_variable_of(g, "s", ALLOT_F32, 2, below, NULL) == NULL)                        \
    X(allot_sharded_variable_of(g, "s", ALLOT_F32, 2, NULL, NULL) == NULL)                         \
    X(is_none(allot_sharded_lookup(NULL, x)))                                                      \
    X(is_none(allot_sharded_matmul(x, NULL, false)))                                               \
    X((allot_strategy_push(strategy), allot_strategy_push(strategy)) == -EINVAL)                   \
    X(is_none(allot_dense(x, 0, ALLOT_LINEAR)))                                                    \
    X(is_none(allot_dense(x, 2, (enum allot_activation)77)))                                       \
    X(is_none(allot_dense(*OUTPUT(x, 7), 2, ALLOT_LINEAR)))                                        \
    X(allot_device_push(g, "nowhere at all") == -EINVAL)                                           \
    X(allot_device_push_fn(g, NULL, NULL) == -EINVAL)                                              \
    X(allot_control_push(g, NULL, 1) == -EINVAL)                                                   \
    X(allot_control_push(g, &far.node, 1) == -EINVAL)                                              \
    X(allot_colocate_push(g, NULL) == -EINVAL)                                                     \
    X(allot_colocate_push(g, far.node) == -EINVAL)                                                 \
    X(allot_hint_push(g, NULL) == -EINVAL)                                                         \
    X((allot_hint_pop(g), true))                                                                   \
    X(allot_name_push(g, NULL) == -EINVAL)                                                         \
    X(allot_name_push(g, "no name\n") == -EINVAL)                                                  \
    X((allot_device_pop(g), true))                                                                 \
    X((allot_control_pop(g), true))                                                                \
    X((allot_colocate_pop(g), true))                                                               \
    X((allot_name_pop(g), true))                                                                   \
    X(is_none(allot_const(g, NULL, NULL)))                                                         \
    X(is_none(allot_constant(g, NULL, ALLOT_F32, 2, dims, NULL)))                                  \
    X(is_none(allot_constant(g, NULL, (enum allot_dtype)0, 2, dims, dims)))                        \
    X(is_none(allot_constant_f32(g, NULL, 2, NULL, NULL)))                                         \
    X(is_none(allot_scalar(g, (enum allot_dtype)77, 1)))                                           \
    X(is_none(allot_scalar(g, ALLOT_I32, 1.5)))                                                    \
    X(is_none(allot_scalar(g, ALLOT_U8, 256)))                                                     \
    X(is_none(allot_scalar(g, ALLOT_I64, (double)NAN)))                                            \
    X(is_none(allot_filled(g, ALLOT_F32, 2, NULL, 0)))                                             \
    X(is_none(allot_filled(g, ALLOT_I8, 2, dims, 1e3)))                                            \
    X(is_none(allot_placeholder(g, NULL, ALLOT_F32, 2, NULL)))                                     \
    X(is_none(allot_placeholder(g, NULL, ALLOT_F32, -2, NULL)))                                    \
    X(is_none(allot_placeholder(g, NULL, (enum allot_dtype)77, 0, NULL)))                          \
    X(is_none(allot_random_uniform(g, ALLOT_F32, 2, NULL, 0, 1, 0)))                               \
    X(is_none(allot_random_normal(g, ALLOT_F32, 9, dims, 0, 1, 0)))                                \
    X(is_none(allot_truncated_normal(g, (enum allot_dtype)77, 2, dims, 0, 1, 0)))                  \
    X(is_none(allot_range(x, nothing, x)))                                                         \
    X(is_none(allot_variable(g, "v", far)))                                                        \
    X(is_none(allot_variable(g, "v", *OUTPUT(x, -1))))                                             \
    X(is_none(allot_variable_of(g, "v", ALLOT_F32, 2, NULL)))                                      \
    X(is_none(allot_variable_of(g, "v", (enum allot_dtype)77, 2, dims)))                           \
    X(is_none(allot_assign(x, x)))                                                                 \
    X(is_none(allot_assign(variable, nothing)))                                                    \
    X(is_none(allot_assign_add(variable, far)))                                                    \
    X(is_none(allot_assign_sub(*OUTPUT(variable, 7), x)))                                          \
    X(is_none(allot_read(x)))                                                                      \
    X(allot_group(g, NULL, NULL, 2) == NULL)                                                       \
    X(allot_group(g, NULL, nodes, 2) == NULL)                                                      \
    X(is_none(allot_print(x, NULL)))                                                               \
    X(allot_assert(x, NULL, 0, NULL) == NULL)                                                      \
    X(allot_assert(x, NULL, 2, "x") == NULL)                                                       \
    X(is_none(allot_check_numerics(x, NULL)))                                                      \
    X(is_none(allot_leaky_relu(*OUTPUT(x, 3), 1)))                                                 \
    X(is_none(allot_select(x, nothing, x)))                                                        \
    X(is_none(allot_add_n(outputs, 1 + (outputs[1] = x, 1))))                                      \
    X(is_none(allot_matmul_of(x, far, false, false)))                                              \
    X(is_none(allot_arg_max(x, 99)))                                                               \
    X(is_none(allot_arg_min(x, -99)))                                                              \
    X(is_none(allot_cast(x, (enum allot_dtype)77)))                                                \
    X(is_none(allot_reshape(x, 2, NULL)))                                                          \
    X(is_none(allot_broadcast_to(x, 9, dims)))                                                     \
    X(is_none(allot_transpose(x, dims, 2)))                                                        \
    X(is_none(allot_expand_dims(x, 99)))                                                           \
    X(is_none(allot_squeeze(x, NULL, 2)))                                                          \
    X(is_none(allot_concat((outputs[0] = x, outputs), 2, 0)))                                      \
    X(is_none(allot_pack((outputs[0] = x, outputs), 2, 0)))                                        \
    X(allot_split(x, 0, 2, NULL) == -EINVAL)                                                       \
    X(allot_split(x, 99, 2, outputs) == -EINVAL)                                                   \
    X(allot_unpack(x, 0, 2, NULL) == -EINVAL)                                                      \
    X(is_none(allot_slice(x, NULL, dims, 2)))                                                      \
    X(is_none(allot_slice(x, dims, NULL, 2)))                                                      \
    X(is_none(allot_gather(x, nothing, 0)))                                                        \
    X(is_none(allot_tile(x, NULL, 2)))                                                             \
    X(is_none(allot_pad(x, NULL, dims, 2)))                                                        \
    X(is_none(allot_one_hot(x, -1, ALLOT_I32, 1.5, 0)))                                            \
    X(is_none(allot_sum_along(x, NULL, 2, false)))                                                 \
    X(is_none(allot_gradient(x, far)))                                                             \
    X(is_none(allot_gradient(nothing, x)))                                                         \
    X(allot_minimize(NULL, x) == NULL)                                                             \
    X(allot_minimize(sgd, *OUTPUT(x, 7)) == NULL)                                                  \
    X(allot_apply_gradients(sgd, NULL, &variable, 1) == NULL)                                      \
    X(allot_apply_gradients(sgd, &x, &x, 1) == NULL)                                               \
    X(allot_apply_gradients(NULL, &x, &variable, 1) == NULL)

/* There is no graph to keep it in: must be true, and something is said through the log. */
#define SAID(X)                                                                                    \
    X(allot_device_push(NULL, "/cpu:0") == -EINVAL)                                                \
    X(allot_device_push_fn(NULL, NULL, NULL) == -EINVAL)                                           \
    X(allot_control_push(NULL, nodes, 1) == -EINVAL)                                               \
    X(allot_colocate_push(NULL, x.node) == -EINVAL)                                                \
    X(allot_name_push(NULL, "x") == -EINVAL)                                                       \
    X((allot_device_pop(NULL), true))                                                              \
    X((allot_control_pop(NULL), true))                                                             \
    X((allot_colocate_pop(NULL), true))                                                            \
    X((allot_name_pop(NULL), true))                                                                \
    X(allot_hint_push(NULL, NULL) == -EINVAL)                                                      \
    X((allot_hint_pop(NULL), true))                                                                \
    X((allot_name_next(NULL, "x"), true))                                                          \
    X((allot_graph_set_seed(NULL, 1), true))                                                       \
    X(is_none(allot_const(NULL, NULL, tensor)))                                                    \
    X(is_none(allot_constant(NULL, NULL, ALLOT_F32, 2, dims, NULL)))                               \
    X(is_none(allot_constant_f32(NULL, NULL, 0, NULL, NULL)))                                      \
    X(is_none(allot_scalar(NULL, ALLOT_F32, 1)))                                                   \
    X(is_none(allot_filled(NULL, ALLOT_F32, 2, dims, 0)))                                          \
    X(is_none(allot_placeholder(NULL, NULL, ALLOT_F32, 2, dims)))                                  \
    X(is_none(allot_random_uniform(NULL, ALLOT_F32, 2, dims, 0, 1, 0)))                            \
    X(is_none(allot_random_normal(NULL, ALLOT_F32, 2, dims, 0, 1, 0)))                             \
    X(is_none(allot_truncated_normal(NULL, ALLOT_F32, 2, dims, 0, 1, 0)))                          \
    X(is_none(allot_variable(NULL, "v", x)))                                                       \
    X(is_none(allot_variable_of(NULL, "v", ALLOT_F32, 2, dims)))                                   \
    X(allot_initializer(NULL) == NULL)                                                             \
    X(allot_group(NULL, NULL, nodes, 0) == NULL)                                                   \
    X(is_none(allot_add_n(NULL, 2)))                                                               \
    X(is_none(allot_concat(NULL, 2, 0)))                                                           \
    X(is_none(allot_pack(NULL, 0, 0)))                                                             \
    X(allot_apply_gradients(sgd, &x, NULL, 1) == NULL)

/* Must be true, and nothing else happens. */
#define TOLERATED(X)                                                                               \
    X(allot_strategy_free(NULL) == NULL)                                                           \
    X(allot_strategy_n_replicas(NULL) == 0)                                                        \
    X(allot_strategy_push(NULL) == -EINVAL)                                                        \
    X((allot_strategy_pop(NULL), allot_strategy_pop(strategy), true))                              \
    X(allot_ops(NULL, 0) > 100)                                                                    \
    X(allot_model_free(NULL) == NULL)                                                              \
    X(allot_model_n_replicas(NULL) == 0)                                                           \
    X(is_none(allot_model_output(NULL, x)))                                                        \
    X(is_none(allot_model_output(model, nothing)))                                                 \
    X(allot_sharded_variable(NULL, "s", x, NULL) == NULL)                                          \
    X(allot_sharded_free(NULL) == NULL)                                                            \
    X(allot_sharded_n_shards(NULL) == 0)                                                           \
    X(is_none(allot_sharded_shard(NULL, 0)))                                                       \
    X(is_none(allot_sharded_value(NULL)))                                                          \
    X(allot_model_free(allot_model_new(NULL, nothing, nothing)) == NULL)                           \
    X(allot_tensor_ref(NULL) == NULL)                                                              \
    X(allot_tensor_unref(NULL) == NULL)                                                            \
    X((int)allot_tensor_dtype(NULL) == 0)                                                          \
    X(allot_tensor_rank(NULL) == -1)                                                               \
    X(allot_tensor_dim(NULL, 0) == -1)                                                             \
    X(allot_tensor_dim(tensor, -1) == -1)                                                          \
    X(allot_tensor_count(NULL) == 0)                                                               \
    X(allot_tensor_bytes(NULL) == 0)                                                               \
    X(allot_tensor_data(NULL) == NULL)                                                             \
    X(allot_dtype_bytes((enum allot_dtype)77) == 0)                                                \
    X(strcmp(allot_dtype_name((enum allot_dtype)77), "none") == 0)                                 \
    X(allot_tensor_format(tensor, NULL, 9) == NULL)                                                \
    X(strcmp(allot_tensor_format(NULL, logged, 9), "") == 0)                                       \
    X(allot_graph_ref(NULL) == NULL)                                                               \
    X(allot_graph_unref(NULL) == NULL)                                                             \
    X((allot_graph_clear_error(NULL), true))                                                       \
    X(allot_graph_n_nodes(NULL) == 0)                                                              \
    X(allot_graph_node(NULL, 0) == NULL)                                                           \
    X(strcmp(allot_node_name(NULL), "") == 0)                                                      \
    X(strcmp(allot_node_op(NULL), "") == 0)                                                        \
    X(strcmp(allot_node_device(NULL), "") == 0)                                                    \
    X(allot_node_n_outputs(NULL) == 0)                                                             \
    X(allot_node_n_inputs(NULL) == 0)                                                              \
    X(is_none(allot_node_input(NULL, 0)))                                                          \
    X(is_none(allot_node_input(x.node, -1)))                                                       \
    X(allot_output_shape(nothing, NULL) == -1)                                                     \
    X(allot_output_shape(*OUTPUT(x, -1), NULL) == -1)                                              \
    X((int)allot_output_dtype(*OUTPUT(x, 9)) == 0)                                                 \
    X(!allot_output_is_variable(nothing))                                                          \
    X((allot_op_cancel(NULL), true))                                                               \
    X(allot_op_finish(NULL, nodes, e) == -ENOMEM)                                                  \
    X((allot_op_input(NULL, x), allot_op_inputs(NULL, NULL, 1), true))                             \
    X((allot_op_attr_int(NULL, "x", 1), allot_op_device(NULL, NULL), true))                        \
    X(allot_now_run(NULL, tensors, 1, e) == -ENOMEM)                                               \
    X((allot_now_input(NULL, tensor), allot_now_attr_int(NULL, NULL, 1), true))                    \
    X((allot_now_clear(), true))                                                                   \
    X(allot_initializer(g) != NULL)                                                                \
    X(is_none(allot_read(nothing)))                                                                \
    X(is_none(allot_gradient(nothing, nothing)))                                                   \
    X(allot_gradients(NULL, 0, NULL, 0, NULL, NULL, e) == 0)                                       \
    X(allot_optimizer_free(NULL) == NULL)                                                          \
    X((allot_optimizer_set_rate(NULL, x), true))                                                   \
    X(allot_optimizer_free(allot_momentum((double)NAN, -1, true)) == NULL)                         \
    X(allot_optimizer_free(allot_adam(0, 0, 0, 0)) == NULL)                                        \
    X(allot_optimizer_free(allot_sgd(0)) == NULL)                                                  \
    X(allot_session_free(NULL) == NULL)                                                            \
    X(allot_callable_free(NULL) == NULL)                                                           \
    X((allot_cancel_now(NULL), true))                                                              \
    X(allot_cancel_free(NULL) == NULL)                                                             \
    X(allot_session_devices(NULL, NULL, 9) == 0)                                                   \
    X(allot_session_devices(session, NULL, 9) > 0)                                                 \
    X(allot_devices(NULL, 9) > 0)                                                                  \
    X(allot_gpu_available() == (allot_devices(NULL, 0) > 1))                                       \
    X(allot_set_visible_devices(NULL, NULL) == 0)                                                  \
    X((allot_set_soft_placement(false), allot_set_log_device_placement(false), true))              \
    X((allot_set_inter_op_threads(0), allot_set_intra_op_threads(0), true))                        \
    X((allot_set_memory_growth(true), allot_set_memory_limit(0), true))                            \
    X((allot_log_set(NULL, NULL), true))                                                           \
    X(allot_call_int(NULL, "x") == 0)                                                              \
    X(allot_call_int(&(struct allot_call){ .node = x.node }, NULL) == 0)                           \
    X(allot_call_float(NULL, NULL) == 0)                                                           \
    X(!allot_call_bool(&(struct allot_call){ 0 }, "x"))                                            \
    X(allot_call_fail(NULL, no_format) == -EINVAL)                                                 \
    X(allot_shapes_n_inputs(NULL) == 0)                                                            \
    X(allot_shapes_input(NULL, 0, NULL) == -1)                                                     \
    X(allot_shapes_int(NULL, NULL) == 0)                                                           \
    X(allot_shapes_set(NULL, 0, 0, NULL) == -EINVAL)                                               \
    X(allot_shapes_fail(NULL, no_format) == -EINVAL)                                               \
    X(allot_shapes_as_input(NULL, NULL) == -EINVAL)                                                \
    X(allot_lease_free(NULL) == NULL)                                                              \
    X(allot_lease_id(NULL) == 0)                                                                   \
    X(allot_lease_shares(NULL, NULL, 9) == 0)                                                      \
    X(allot_lease_environment(NULL, 0, NULL, NULL) == -EINVAL)

#define OUTPUT(output, i) (&(struct allot_output){ (output).node, i })

static struct allot_lease *no_lease;

static bool is_none(struct allot_output output) {
    return !output.node;
}

/* An op by name, to which something is said that cannot be. */
#define with_op(say)                                                                               \
    ({                                                                                             \
        struct allot_op *op = allot_op_begin(g, "NoOp", NULL);                                     \
                                                                                                   \
        say;                                                                                       \
        allot_op_finish(op, nodes, e);                                                             \
    })
#define with_now(say)                                                                              \
    ({                                                                                             \
        struct allot_now_op *now = allot_now_begin("Neg");                                         \
                                                                                                   \
        say;                                                                                       \
        allot_now_run(now, tensors, 1, e);                                                         \
    })

/* Options that count devices, or amounts, and have none. */
static const struct allot_lease_options *without(bool devices) {
    static struct allot_lease_options options;

    options = ALLOT_LEASE_OPTIONS_INIT;
    *(devices ? &options.n_devices : &options.n_amounts) = 2;
    return &options;
}

static void keep_line(void *userdata, enum allot_log_level level, const char *text) {
    snprintf(logged, sizeof(logged), "%s", text);
}

static void world_open(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    const float numbers[6] = { 0 };

    options.cpu_only = true;
    allot_log_set(keep_line, NULL);
    ck_assert_int_eq(allot_graph_new(&g, e), 0);
    ck_assert_int_eq(allot_graph_new(&other_graph, e), 0);
    x = allot_constant_f32(g, "x", 2, dims, numbers);
    variable = allot_variable(g, "variable", x);
    far = allot_constant_f32(other_graph, "far", 2, dims, numbers);
    sgd = allot_sgd(1);
    strategy = allot_mirrored(g, (const char *[]){ "/cpu:0" }, 1);
    model = allot_model_new(strategy, x, x);
    headless = allot_model_new(NULL, nothing, x);
    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, 2, dims, e), 0);
    ck_assert_int_eq(allot_session_new(&session, g, &options, e), 0);
    ck_assert_int_eq(allot_callable_new(&callable, session, NULL, 0, &x, 1, NULL, 0, e), 0);
    ck_assert_int_eq(allot_graph_error(g, e), 0);
    err = (struct allot_error){ 0 };
    logged[0] = '\0';
}

static bool is_refused(int r) {
    return r == -EINVAL && err.code == -EINVAL && strlen(err.text) > 10;
}

static bool is_kept(bool is_so) {
    return is_so && allot_graph_error(g, e) < 0 && strlen(err.text) > 10;
}

static bool is_said(bool is_so) {
    return is_so && strlen(logged) > 10;
}

#define TEXT(...) #__VA_ARGS__,
static const char *const texts[] = { REFUSED(TEXT) KEPT(TEXT) SAID(TEXT) TOLERATED(TEXT) };

/* Whether call `i` of all did as it must. */
static bool try_one(size_t i) {
    size_t at = 0;

#define ONE(how, ...)                                                                              \
    if (at++ == i)                                                                                 \
        return how(__VA_ARGS__);
#define ONE_REFUSED(...) ONE(is_refused, __VA_ARGS__)
#define ONE_KEPT(...)    ONE(is_kept, __VA_ARGS__)
#define ONE_SAID(...)    ONE(is_said, __VA_ARGS__)
#define ONE_SO(...)      ONE(, __VA_ARGS__)
    REFUSED(ONE_REFUSED)
    KEPT(ONE_KEPT)
    SAID(ONE_SAID)
    TOLERATED(ONE_SO)
    return false;
}

/* What child and parent both see. */
struct progress {
    size_t at; /* the call that is tried; behind the last: all were */
    int n_wrong;
};

static void try_in_child(struct progress *progress) {
    for (; progress->at < ELEMENTSOF(texts); progress->at++) {
        world_open();
        if (try_one(progress->at))
            continue;
        fprintf(stderr, "%s: \"%s\", \"%s\"\n", texts[progress->at], err.text, logged);
        progress->n_wrong++;
    }
    _exit(0);
}

START_TEST(nonsense_is_refused_in_words_and_never_a_crash) {
    struct progress *progress =
        mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(progress, MAP_FAILED);
    setenv("ALLOT_SOCKET", "/nonexistent", 1);
    while (progress->at < ELEMENTSOF(texts)) {
        pid_t child = fork();
        int status;

        ck_assert_int_ge(child, 0);
        if (child == 0)
            try_in_child(progress);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        if (progress->at == ELEMENTSOF(texts))
            break;
        fprintf(stderr, "%s: it ends the program, status %#x\n", texts[progress->at],
                (unsigned)status);
        progress->at++;
        progress->n_wrong++;
    }
    ck_assert_msg(progress->n_wrong == 0, "%d of %zu calls, see above", progress->n_wrong,
                  ELEMENTSOF(texts));
}
END_TEST

/* Of a list of ops, of which all helpers are alike, one is enough. */
#define X(name, op) #name,
static const char *const alike[] = { ALLOT_UNARY_OPS(X) ALLOT_BINARY_OPS(X) ALLOT_REDUCTIONS(X) };
#undef X

static bool is_alike(const char *name) {
    for (size_t i = 0; i < ELEMENTSOF(alike); i++) {
        size_t length = strlen(alike[i]);

        if (strncmp(name, alike[i], length) == 0 &&
            (name[length] == '\0' || strcmp(name + length, "_along") == 0))
            return true;
    }
    return false;
}

static bool is_tried(const char *name) {
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        const char *at = strstr(texts[i], name);

        for (; at; at = strstr(at + 1, name))
            if (at[strlen(name)] == '(')
                return true;
    }
    return false;
}

START_TEST(every_exported_function_is_tried) {
    FILE *file = fopen(TEST_DOCS "/../libclient/allot.map", "re");
    char line[128], name[128];
    int n = 0;

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, " allot_%100[a-z0-9_];", name) == 1 && !is_alike(name)) {
            char full[160];

            snprintf(full, sizeof(full), "allot_%s", name);
            ck_assert_msg(strcmp(name, "now_") == 0 || is_tried(full), "%s", full);
            n++;
        }
    fclose(file);
    ck_assert_int_gt(n, 100);
}
END_TEST

SUITE_TIMEOUT("nonsense", 120, nonsense_is_refused_in_words_and_never_a_crash,
              every_exported_function_is_tried)
