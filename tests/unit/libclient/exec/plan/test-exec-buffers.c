/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shares bytes in the memory of a step is never needed at once: proved by the edges alone,
 * whatever the threads do, and watched while one to eight of them run it. Graphs are random, and
 * those of ./run bench graph.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/random.h"
#include "libclient/allot/train.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/run/workers.h"
#include "tests/support/libclient/exec/plan/step_plan.h"
#include "tests/support/suite.h"

enum { UNIT = PROGRAM_ALIGNMENT, THREADS_MAX = 8 };

/* ---- Random graphs ------------------------------------------------------------------------------
 */

enum { SIZES = 5, EACH_MAX = 200 };

/* Values of some sizes, the first a single number: each new one comes of old ones. */
struct growth {
    uint64_t random;
    struct allot_output made[SIZES][EACH_MAX];
    uint32_t n[SIZES];
};

static uint32_t below(struct growth *growth, uint32_t n) {
    return (uint32_t)(random_next(&growth->random) % n);
}

/* Rather a late one, so that lives are short. */
static struct allot_output pick(struct growth *growth, uint32_t size) {
    uint32_t n = growth->n[size], back = below(growth, 3) ? MIN(n, 6u) : n;

    return growth->made[size][n - 1 - below(growth, back)];
}

static struct allot_output grow(struct growth *growth, uint32_t size) {
    struct allot_output a = pick(growth, size), b = pick(growth, size), inputs[4];

    switch (below(growth, 8)) {
    case 0:
        return allot_neg(a);
    case 1:
        return allot_abs(a);
    case 2:
        return allot_maximum(a, pick(growth, 0));
    case 3:
        return allot_minimum(pick(growth, 0), a);
    case 4:
        for (uint32_t i = 0; i < 4; i++)
            inputs[i] = pick(growth, size);
        return allot_add_n(inputs, 1 + below(growth, 4));
    case 5:
        return size == 0 ? allot_mean(pick(growth, below(growth, SIZES))) : allot_sub(a, b);
    default:
        return allot_add(a, b);
    }
}

/* Nothing may be fetched twice or left out: the ends are summed up. */
static void shape_random(struct shape_of_row *ret, uint64_t seed) {
    static const int64_t sizes[SIZES] = { 1, 50, 700, 3000, 9000 };
    struct growth growth = { .random = seed };
    struct allot_output ends[SIZES + 1];
    struct allot_node *nodes[SIZES * EACH_MAX];
    uint32_t n = 100 + below(&growth, 300), n_nodes = 0;

    ck_assert_int_eq(allot_graph_new(&ret->graph, NULL), 0);
    for (uint32_t size = 0; size < SIZES; size++) {
        struct allot_tensor *tensor;

        ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, size > 0, &sizes[size], NULL), 0);
        for (int64_t i = 0; i < allot_tensor_count(tensor); i++)
            ((float *)allot_tensor_data(tensor))[i] = (float)below(&growth, 64) - 32;
        ret->feed_tensors[size] = tensor;
        ret->feeds[size] = growth.made[size][growth.n[size]++] =
            allot_placeholder(ret->graph, NULL, ALLOT_F32, size > 0, &sizes[size]);
    }
    ret->n_feeds = SIZES;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = below(&growth, SIZES);

        if (growth.n[size] < EACH_MAX) {
            struct allot_output made = grow(&growth, size);

            growth.made[size][growth.n[size]++] = made;
            nodes[n_nodes++] = made.node;
        }
    }
    for (uint32_t size = 0; size < SIZES; size++)
        ends[size] = allot_mean(growth.made[size][growth.n[size] - 1]);
    ret->fetch = allot_add_n(ends, SIZES);
    ret->target = allot_group(ret->graph, "all", nodes, n_nodes);
    ck_assert_int_eq(allot_graph_error(ret->graph, NULL), 0);
}

/* ---- Kept apart by edges ------------------------------------------------------------------------
 */

struct proof {
    const struct program *program;
    uint64_t *before; /* by item: a bit per item that always comes before it */
    uint32_t n_words;
    uint32_t *first_user, *users; /* by value */
    uint64_t n_shared;            /* pairs of values that share bytes */
};

static bool comes_before(const struct proof *proof, uint32_t item, uint32_t other) {
    return proof->before[(size_t)other * proof->n_words + item / 64] >> item % 64 & 1;
}

static void list_users(struct proof *proof) {
    const struct program *program = proof->program;
    uint32_t n = 0;

    proof->first_user = calloc(program->n_values + 1, sizeof(*proof->first_user));
    proof->users = calloc(program->n_args + 1, sizeof(*proof->users));
    for (uint32_t v = 0; v < program->n_values; v++) {
        proof->first_user[v] = n;
        for (uint32_t i = 0; i < program->n_items; i++)
            for (uint32_t a = 0; a < program->items[i].n_inputs; a++)
                if (program->args[program->items[i].first_arg + a] == v)
                    proof->users[n++] = i;
    }
    proof->first_user[program->n_values] = n;
}

static void proof_begin(struct proof *proof, const struct program *program, bool in_order) {
    uint32_t n = program->n_items;

    *proof = (struct proof){ .program = program, .n_words = n / 64 + 1 };
    proof->before = calloc((size_t)(n + 1) * proof->n_words, sizeof(*proof->before));
    for (uint32_t i = 0; i < n; i++) {
        const struct program_item *item = &program->items[i];
        const uint64_t *mine = &proof->before[(size_t)i * proof->n_words];
        uint32_t n_after = in_order ? i + 1 < n : item->n_successors;

        for (uint32_t s = 0; s < n_after; s++) {
            uint32_t after = in_order ? i + 1 : program->successors[item->first_successor + s];
            uint64_t *theirs = &proof->before[(size_t)after * proof->n_words];

            ck_assert_uint_gt(after, i);
            for (uint32_t w = 0; w < proof->n_words; w++)
                theirs[w] |= mine[w];
            theirs[i / 64] |= UINT64_C(1) << i % 64;
        }
    }
    list_users(proof);
}

static void proof_end(struct proof *proof) {
    free(proof->before);
    free(proof->first_user);
    free(proof->users);
}

/* Whether the item may write `to` while it reads `from`: exactly over it, where the kernel can. */
static bool may_write_over(const struct program *program, uint32_t i, uint32_t from, uint32_t to) {
    const struct program_item *item = &program->items[i];
    const uint32_t *args = &program->args[item->first_arg];

    for (uint32_t a = 0; a < item->n_inputs; a++)
        if (args[a] == from && program_may_lie_over(program, item, a))
            return args[item->n_inputs] == to &&
                   program->values[from].offset == program->values[to].offset;
    return false;
}

/* Whether all items are done with `first` when `then` is made. */
static bool is_over_before(const struct proof *proof, uint32_t first, uint32_t then) {
    const struct program *program = proof->program;
    uint32_t maker = program->values[then].producer;

    if (!comes_before(proof, program->values[first].producer, maker))
        return false;
    for (uint32_t u = proof->first_user[first]; u < proof->first_user[first + 1]; u++)
        if (!comes_before(proof, proof->users[u], maker) &&
            !(proof->users[u] == maker && may_write_over(program, maker, first, then)))
            return false;
    return true;
}

static void check_apart(struct proof *proof) {
    const struct program *program = proof->program;

    for (uint32_t a = 0; a < program->n_values; a++)
        for (uint32_t b = 0; b < a; b++) {
            const struct program_value *x = &program->values[a], *y = &program->values[b];

            if (x->where != VALUE_SLAB || y->where != VALUE_SLAB || x->space != y->space ||
                x->offset >= y->offset + y->bytes || y->offset >= x->offset + x->bytes)
                continue;
            proof->n_shared++;
            ck_assert_msg(is_over_before(proof, a, b) || is_over_before(proof, b, a),
                          "values %u and %u share bytes, and may be needed at once", a, b);
        }
    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].where == VALUE_SLAB)
            ck_assert_uint_le(program->values[v].offset + program->values[v].bytes,
                              program->slab_bytes[program->values[v].space]);
}

/* ---- Kept apart while it runs -------------------------------------------------------------------
 */

/* Whose each part of the slab is: value + 1. Every item is taken through here. */
static struct {
    const struct program *program;
    _Atomic uint32_t *owners;
    kernel_run_fn *fns; /* by item */
    _Atomic uint32_t n_pauses, n_wrong;
} shadow;

static void check_owner(uint32_t value, uint32_t owner) {
    const struct program_value *v = &shadow.program->values[value];

    for (uint64_t at = v->offset / UNIT; at * UNIT < v->offset + v->bytes; at++)
        if (atomic_load(&shadow.owners[at]) != owner + 1)
            atomic_fetch_add(&shadow.n_wrong, 1);
}

static void own(uint32_t value) {
    const struct program_value *v = &shadow.program->values[value];

    for (uint64_t at = v->offset / UNIT; at * UNIT < v->offset + v->bytes; at++)
        atomic_store(&shadow.owners[at], value + 1);
}

/* Now and then an item takes much longer than it should. */
static void pause_somewhere(void) {
    uint64_t random = atomic_fetch_add(&shadow.n_pauses, 1);

    random = random_next(&random);
    for (uint64_t i = random % 4 ? 0 : random / 4 % 4000; i > 0; i--)
        __builtin_ia32_pause();
}

static bool is_in_slab(uint32_t value) {
    return value != PROGRAM_NONE && shadow.program->values[value].where == VALUE_SLAB;
}

static int run_watched(const struct kernel_run *run) {
    uint32_t i = run_state_item_of(run_state_of(run), run);
    const struct program_item *item = &shadow.program->items[i];
    const uint32_t *args = &shadow.program->args[item->first_arg];
    uint32_t taken = PROGRAM_NONE;
    int r;

    pause_somewhere();
    for (uint32_t a = 0; a < item->n_inputs; a++)
        if (is_in_slab(args[a]))
            check_owner(args[a], args[a]);
    for (uint32_t a = 0; a < item->n_inputs; a++)
        if (is_in_slab(args[a]) && may_write_over(shadow.program, i, args[a], args[item->n_inputs]))
            taken = args[a];
    for (uint32_t a = item->n_inputs; a < item->n_inputs + item->n_outputs; a++)
        if (is_in_slab(args[a]))
            own(args[a]);
    if (is_in_slab(item->scratch))
        own(item->scratch);
    r = shadow.fns[i](run);
    pause_somewhere();
    for (uint32_t a = 0; a < item->n_inputs + item->n_outputs; a++)
        if (is_in_slab(args[a]) && args[a] != taken)
            check_owner(args[a], args[a]);
    if (is_in_slab(item->scratch))
        check_owner(item->scratch, item->scratch);
    return r;
}

static void run_in_shadow(const struct shape_of_row *shape, const struct program *program,
                          struct step_plan *plan, uint32_t n_threads, float *value) {
    struct variable_table variables;
    struct allot_tensor *fetched;
    struct run_state *state;

    variable_table_init(&variables);
    ck_assert_int_eq(run_state_new(&state, program, &variables, NULL, NULL), 0);
    shadow.program = program;
    shadow.owners = calloc(program->slab_bytes[0] / UNIT + 1, sizeof(*shadow.owners));
    shadow.fns = calloc(program->n_items + 1, sizeof(*shadow.fns));
    for (uint32_t i = 0; i < program->n_items; i++) {
        shadow.fns[i] = state->items[i].fn;
        state->items[i].fn = run_watched;
    }
    for (int round = 0; round < 3; round++) {
        float now;

        ck_assert_int_eq(run_state_begin(state, shape->feed_tensors, 0, NULL), 0);
        ck_assert_int_eq(workers_run(state, plan->inter, n_threads), 0);
        ck_assert(state->has_ended);
        ck_assert_int_eq(run_state_end(state, &fetched, NULL), 0);
        now = *(const float *)tensor_data(fetched);
        if (*value != *value) /* the first of all */
            *value = now;
        ck_assert_mem_eq(&now, value, sizeof(now));
        allot_tensor_unref(fetched);
    }
    ck_assert_uint_eq(shadow.n_wrong, 0);
    free(shadow.owners);
    free(shadow.fns);
    run_state_free(state);
    variable_table_done(&variables);
}

START_TEST(what_shares_bytes_is_never_needed_at_once) {
    uint64_t n_shared = 0;

    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct shape_of_row shape = { 0 };
        float value = __builtin_nanf("");

        shape_random(&shape, seed);
        for (uint32_t n = 1; n <= THREADS_MAX; n++) {
            struct program *program;
            struct proof proof;
            struct step_plan plan;

            step_plan_begin(&plan, n, 1 + n / 4);
            program = step_plan_program(&shape, &plan, n, 1 + n / 4);
            proof_begin(&proof, program, n == 1);
            check_apart(&proof);
            n_shared += proof.n_shared;
            proof_end(&proof);
            run_in_shadow(&shape, program, &plan, n, &value);
            program_free(program);
            step_plan_end(&plan);
        }
        shape_done(&shape);
    }
    ck_assert_uint_gt(n_shared, 100000); /* there was something to prove */
}
END_TEST

/* Edges that others imply. */
static uint32_t n_implied(const struct proof *proof) {
    const struct program *program = proof->program;
    uint32_t n = 0;

    for (uint32_t i = 0; i < program->n_items; i++) {
        const uint32_t *after = &program->successors[program->items[i].first_successor];

        for (uint32_t s = 0; s < program->items[i].n_successors; s++)
            for (uint32_t k = 0; k < program->items[i].n_successors; k++)
                if (comes_before(proof, after[k], after[s])) {
                    n++;
                    break;
                }
    }
    return n;
}

START_TEST(nor_is_it_in_the_graphs_of_the_benchmark) {
    static void (*const builds[])(struct shape_of_row *) = {
        shape_branches,
        shape_mlp,
        shape_transformer,
    };

    for (size_t i = 0; i < ELEMENTSOF(builds); i++) {
        struct shape_of_row shape = { 0 };

        builds[i](&shape);
        for (uint32_t n = 1; n <= THREADS_MAX; n++) {
            struct program *program;
            struct proof proof;
            struct step_plan plan;

            step_plan_begin(&plan, n, n);
            program = step_plan_program(&shape, &plan, n, n);
            proof_begin(&proof, program, n == 1);
            check_apart(&proof);
            /* Of so few edges all are looked at. */
            ck_assert_uint_eq(n == 1 ? 0 : n_implied(&proof), 0);
            proof_end(&proof);
            program_free(program);
            step_plan_end(&plan);
        }
        shape_done(&shape);
    }
}
END_TEST

SUITE_TIMEOUT("exec-buffers", 300, what_shares_bytes_is_never_needed_at_once,
              nor_is_it_in_the_graphs_of_the_benchmark)
