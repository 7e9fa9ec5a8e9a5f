/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU fixture: sessions on a simulated box with two GPUs, and ops for tests of what runs where and
 * when. They add 1 to each element, and besides:
 *
 *     Next    nothing else; on either kind of device
 *     Hold    GPU: what comes behind it on the stream waits until a test posts gpu_fixture_let_go
 *     LetGo   CPU: posts it
 *     Crash   GPU: reads where nothing is
 *
 * Put(variable, value) writes a variable, on either kind of device; Raise(variable, x), on a GPU,
 * adds 1 to what it is, after x.
 */
#include <semaphore.h>
#include <stdatomic.h>

#include "base/error.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/graph/build.h"
#include "tests/support/sim/box/sim_box.h"

struct gpu_fixture {
    struct sim_box box;
    struct allot_graph *graph;
    struct engine *engine;
    uint64_t limit_bytes; /* of each GPU; 0: none. For the next session, if it is the only one */
    struct allot_error err;
};

extern sem_t gpu_fixture_let_go;
extern atomic_uint gpu_fixture_n_held; /* how many Hold have begun to wait */

/* The box, and the ops; `sim_dir`: where the simulated libraries are. */
void gpu_fixture_open(struct gpu_fixture *fixture, const char *sim_dir);
void gpu_fixture_close(struct gpu_fixture *fixture);
/* A graph and a session on the box. */
void gpu_fixture_session_open(struct gpu_fixture *fixture, unsigned threads);
void gpu_fixture_session_close(struct gpu_fixture *fixture);

uint32_t add(struct gpu_fixture *fixture, const char *op, const char *device,
             const struct edge *inputs, size_t n_inputs, const struct build_attr *attrs,
             size_t n_attrs);
struct edge one_op(struct gpu_fixture *fixture, const char *op, const char *device, struct edge x);
struct edge next(struct gpu_fixture *fixture, const char *device, struct edge x);
/* A Placeholder or a Variable of `n` numbers. */
struct edge source(struct gpu_fixture *fixture, const char *op, const char *device, int64_t n);

/* 0, 1, 2 and so on. */
struct allot_tensor *numbers(int64_t n);
/* Element i is times * (i + plus). */
void check_numbers(const struct allot_tensor *tensor, float times, float plus);
/* Fetch `y`, whose element i must be i + plus. `fed` NULL: nothing is fed. */
void check_run(struct gpu_fixture *fixture, struct edge x, struct allot_tensor *fed, struct edge y,
               float plus);
