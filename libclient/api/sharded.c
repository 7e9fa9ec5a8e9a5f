/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharded: variables on several devices, as pieces of graph.
 *
 * A lookup asks each shard for all rows: for those that it does not have, for its row 0, which is
 * then masked out. Shapes so depend on nothing but the indices', and the parts only need adding up.
 * The arithmetic of indices is the CPU's: indices are mostly fed, and the CPU also finds one that
 * is out of range.
 */
#include "libclient/allot/shard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/allot/config.h"
#include "libclient/api/helper.h"
#include "libclient/core/spec.h"
#include "libclient/graph/scope.h"
#include "libclient/graph/sharding.h"

struct allot_sharded {
    struct allot_graph *graph;
    const struct graph_sharding *sharding;
    struct shape shape; /* of the whole */
    struct allot_output *shards;
    char **devices; /* by shard */
};

static const struct allot_output none = { NULL, 0 };

static struct allot_output failed(struct allot_graph *graph, const struct allot_error *err) {
    handle_fail(graph, err);
    return none;
}

/* ---- Which rows go where --------------------------------------------------------------------- */

/* What is known of the cut before there is a node. */
struct cut {
    char **devices; /* n; all devices, and from trim() on those that have rows */
    size_t n;
    uint64_t *begins; /* n + 1 */
    uint64_t n_rows, row_bytes;
    bool is_in_turn;
};

static void cut_done(struct cut *cut) {
    for (size_t i = 0; cut->devices && i < cut->n; i++)
        free(cut->devices[i]);
    free(cut->devices);
    free(cut->begins);
}

static int name_devices(struct cut *cut, const struct allot_shard_options *options,
                        struct allot_error *err) {
    const size_t n = options->n_devices, n_seen = n ? 0 : allot_devices(NULL, 0);
    char name[32];

    /* The CPU is the first of the list. */
    cut->n = n ? n : n_seen > 1 ? n_seen - 1 : 1;
    cut->devices = calloc(cut->n, sizeof(char *));
    cut->begins = calloc(cut->n + 1, sizeof(*cut->begins));
    if (!cut->devices || !cut->begins)
        return error_set(err, -ENOMEM, "no host memory for a sharded variable");
    for (size_t i = 0; i < cut->n; i++) {
        snprintf(name, sizeof(name), n_seen > 1 ? "/device:GPU:%zu" : "/device:CPU:%zu", i);
        if (n && !options->devices[i])
            return error_null(err, "device of a shard");
        cut->devices[i] = strdup(n ? options->devices[i] : name);
        if (!cut->devices[i])
            return error_set(err, -ENOMEM, "no host memory for a sharded variable");
    }
    return 0;
}

/* Bytes of the variables that the graph has on a device already. */
static double bytes_on(const struct allot_graph *graph, const char *device) {
    const struct graph_variable *variable;
    struct spec wanted, there;
    double bytes = 0;

    if (spec_parse(&wanted, device) < 0)
        return 0;
    for (size_t pos = 0; (variable = map_next(&graph->variables, &pos));) {
        const struct node *node = graph_node(graph, variable->id);
        const struct node_output *own = &node->outputs[0];

        if (spec_parse(&there, node->device) == 0 && there.has_type && there.has_id &&
            spec_compatible(&wanted, &there))
            bytes += (double)shape_count(&own->shape) * (double)dtype_bytes(own->dtype);
    }
    return bytes;
}

/* Fill all devices to the same level, like water: those that are above it already get nothing. */
static void share_bytes(const double *had, const double *room, size_t n, double bytes,
                        double *ret) {
    double level = 0;

    for (size_t n_open = n, n_last = n + 1; n_open < n_last;) {
        double sum = bytes, width = 0;

        n_last = n_open;
        for (size_t i = 0; i < n; i++)
            if (ret[i] >= 0) {
                sum += had[i];
                width += room[i];
            }
        level = sum / width;
        for (size_t i = 0; i < n; i++)
            if (ret[i] >= 0 && level * room[i] < had[i]) {
                ret[i] = -1;
                n_open--;
            }
    }
    for (size_t i = 0; i < n; i++)
        ret[i] = ret[i] < 0 ? 0 : level * room[i] - had[i];
}

static int cut_by_bytes(struct cut *cut, const struct allot_graph *graph,
                        const struct allot_shard_options *options, struct allot_error *err) {
    cleanup(freep) double *had = calloc(cut->n, sizeof(*had));
    cleanup(freep) double *room = calloc(cut->n, sizeof(*room));
    cleanup(freep) double *part = calloc(cut->n, sizeof(*part));
    const double bytes = (double)cut->n_rows * (double)cut->row_bytes;
    double sum = 0;

    if (!had || !room || !part)
        return error_set(err, -ENOMEM, "no host memory for a sharded variable");
    for (size_t i = 0; i < cut->n; i++) {
        had[i] = bytes_on(graph, cut->devices[i]);
        room[i] = options->room_bytes ? (double)options->room_bytes[i] : 1;
        if (room[i] <= 0)
            return error_set(err, -EINVAL, "device %s has no room for a shard: leave it out",
                             cut->devices[i]);
    }
    share_bytes(had, room, cut->n, bytes, part);
    for (size_t i = 0; i < cut->n; i++) {
        sum += part[i];
        cut->begins[i + 1] = i + 1 == cut->n
                                 ? cut->n_rows
                                 : MIN(cut->n_rows, (uint64_t)(sum / (double)cut->row_bytes + 0.5));
    }
    return 0;
}

/* Leave out devices without a row. */
static void trim(struct cut *cut) {
    size_t n = 0;

    for (size_t i = 0; i < cut->n; i++) {
        if (cut->begins[i + 1] == cut->begins[i]) {
            free(cut->devices[i]);
            continue;
        }
        cut->devices[n] = cut->devices[i];
        cut->begins[n + 1] = cut->begins[i + 1];
        n++;
    }
    cut->n = n;
}

static int cut_rows(struct cut *cut, const struct allot_graph *graph,
                    const struct allot_shard_options *options, struct allot_error *err) {
    int r = name_devices(cut, options, err);

    if (r == 0 && options->by == ALLOT_SHARD_BYTES)
        r = cut_by_bytes(cut, graph, options, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < cut->n; i++) {
        const uint64_t whole = cut->n_rows / cut->n, rest = cut->n_rows % cut->n;

        if (options->by == ALLOT_SHARD_IN_TURN)
            cut->begins[i + 1] = cut->begins[i] + whole + (i < rest);
        else if (options->by == ALLOT_SHARD_ROWS)
            cut->begins[i + 1] = (i + 1) * whole + (i + 1) * rest / cut->n;
    }
    cut->is_in_turn = options->by == ALLOT_SHARD_IN_TURN;
    trim(cut);
    return 0;
}

/* ---- Making them ----------------------------------------------------------------------------- */

struct allot_sharded *allot_sharded_free(struct allot_sharded *sharded) {
    if (!sharded)
        return NULL;
    for (uint32_t i = 0; sharded->devices && sharded->sharding && i < sharded->sharding->n; i++)
        free(sharded->devices[i]);
    free(sharded->devices);
    free(sharded->shards);
    graph_unref(sharded->graph);
    free(sharded);
    return NULL;
}

/* The numbers of a shard's rows, as a constant of the CPU. */
static struct allot_output row_numbers(struct allot_graph *graph,
                                       const struct graph_sharding *sharding, uint32_t shard) {
    const int64_t n = (int64_t)sharding_n_rows(sharding, shard);
    cleanup(freep) int64_t *rows = malloc((size_t)n * sizeof(*rows));
    struct allot_output made = none;
    struct allot_error err;

    if (!rows) {
        error_set(&err, -ENOMEM, "no host memory for a sharded variable");
        return failed(graph, &err);
    }
    for (int64_t i = 0; i < n; i++)
        rows[i] = (int64_t)sharding_row(sharding, shard, (uint64_t)i);
    allot_with_device(graph, "/device:CPU:0") {
        made = allot_constant(graph, "rows", ALLOT_I64, 1, &n, rows);
    }
    return made;
}

/* Those parts of dimension `axis` of x that have the numbers of a shard's rows. */
static struct allot_output part_of(struct allot_output x, const struct graph_sharding *sharding,
                                   uint32_t shard, int axis, int rank) {
    int64_t begin[ALLOT_RANK_MAX] = { 0 }, size[ALLOT_RANK_MAX];

    if (sharding->is_in_turn)
        return allot_gather(x, row_numbers(handle_graph(&x, 1), sharding, shard), axis);
    for (int i = 0; i < rank; i++)
        size[i] = -1;
    begin[axis] = (int64_t)sharding->begins[shard];
    size[axis] = (int64_t)sharding_n_rows(sharding, shard);
    return allot_slice(x, begin, size, (size_t)rank);
}

/* The rows of the whole initial value; they are cut where that is. */
static struct allot_output initial_rows(struct allot_sharded *sharded, struct allot_output whole,
                                        uint32_t shard) {
    struct allot_output rows;

    if (allot_colocate_push(sharded->graph, whole.node) < 0)
        return none;
    rows = part_of(whole, sharded->sharding, shard, 0, sharded->shape.rank);
    allot_colocate_pop(sharded->graph);
    return rows;
}

/* Without an initial value, `whole` has no node. */
static struct allot_output shard_new(struct allot_sharded *sharded, uint32_t shard,
                                     enum allot_dtype dtype, struct allot_output whole,
                                     const struct allot_shard_options *options) {
    struct allot_graph *graph = sharded->graph;
    struct allot_output made = none, initial = none;
    struct shape shape = sharded->shape;
    struct allot_error err;
    char name[32];

    shape.dims[0] = (int64_t)sharding_n_rows(sharded->sharding, shard);
    if (whole.node)
        initial = initial_rows(sharded, whole, shard);
    snprintf(name, sizeof(name), "shard_%u", shard);
    allot_with_device(graph, sharded->devices[shard]) {
        if (!whole.node && options->initial)
            initial =
                options->initial(graph, shard, dtype, shape.rank, shape.dims, options->userdata);
        made = initial.node || options->initial || whole.node
                   ? allot_variable(graph, name, initial)
                   : allot_variable_of(graph, name, dtype, shape.rank, shape.dims);
    }
    if (!made.node)
        return none;
    if (!shape_equal(&handle_node(made.node)->outputs[0].shape, &shape) ||
        allot_output_dtype(made) != dtype) {
        error_set(&err, -EINVAL,
                  "the initial value of '%s' is not of the type and shape that the shard has",
                  allot_node_name(made.node));
        return failed(graph, &err);
    }
    graph_variable(graph, handle_node(made.node)->id)->sharding = sharded->sharding;
    graph_variable(graph, handle_node(made.node)->id)->shard = shard;
    return made;
}

/* In the name scope of the variable. */
static int add_shards(struct allot_sharded *sharded, struct cut *cut, enum allot_dtype dtype,
                      struct allot_output whole, const struct allot_shard_options *options,
                      struct allot_error *err) {
    struct allot_graph *graph = sharded->graph;
    const char *prefix = scope_prefix(graph);
    cleanup(freep) char *name = strndup(prefix, strlen(prefix) - 1);
    int r = name ? sharding_new(graph, name, cut->is_in_turn, cut->begins, (uint32_t)cut->n,
                                &sharded->sharding)
                 : -ENOMEM;

    sharded->shards = calloc(cut->n, sizeof(*sharded->shards));
    if (r < 0 || !sharded->shards)
        return error_set(err, -ENOMEM, "no host memory for a sharded variable");
    sharded->devices = TAKE(cut->devices);
    for (uint32_t i = 0; i < sharded->sharding->n; i++) {
        sharded->shards[i] = shard_new(sharded, i, dtype, whole, options);
        if (!sharded->shards[i].node)
            return allot_graph_error(graph, err);
    }
    return 0;
}

static int make(struct allot_sharded *sharded, const char *name, enum allot_dtype dtype,
                struct allot_output whole, const struct allot_shard_options *options,
                struct allot_error *err) {
    cleanup(cut_done) struct cut cut = { 0 };
    struct shape row = sharded->shape;
    int r;

    if (row.rank < 1 || shape_count(&row) <= 0)
        return error_set(err, -EINVAL,
                         "variable '%s' cannot be sharded: its shape must be known, and have rows",
                         name ? name : "");
    row.dims[0] = 1;
    cut.n_rows = (uint64_t)sharded->shape.dims[0];
    cut.row_bytes = (uint64_t)shape_count(&row) * dtype_bytes((enum dtype)dtype);
    r = cut_rows(&cut, sharded->graph, options, err);
    if (r == 0)
        r = allot_name_push(sharded->graph, name ? name : "Variable");
    if (r < 0)
        return err->code ? err->code : allot_graph_error(sharded->graph, err);
    r = add_shards(sharded, &cut, dtype, whole, options, err);
    allot_name_pop(sharded->graph);
    return r;
}

static int take_options(struct allot_shard_options *ret, const struct allot_shard_options *given,
                        struct allot_error *err) {
    *ret = ALLOT_SHARD_OPTIONS_INIT;
    if (given && (given->size < sizeof(size_t) || given->size > sizeof(*ret)))
        return error_set(err, -EINVAL, "shard options have the wrong size: use their initialiser");
    if (given)
        memcpy(ret, given, given->size);
    if (ret->n_devices && !ret->devices)
        return error_null(err, "array of devices");
    if (ret->by != ALLOT_SHARD_ROWS && ret->by != ALLOT_SHARD_IN_TURN &&
        ret->by != ALLOT_SHARD_BYTES)
        return error_set(err, -EINVAL, "there is no way %d to cut a variable into shards",
                         (int)ret->by);
    if (ret->room_bytes && (ret->by != ALLOT_SHARD_BYTES || !ret->n_devices))
        return error_set(err, -EINVAL,
                         "room_bytes are of ALLOT_SHARD_BYTES, and go with a list of devices");
    return 0;
}

static struct allot_sharded *sharded_new(struct allot_graph *graph, const char *name,
                                         enum allot_dtype dtype, const struct shape *shape,
                                         struct allot_output whole,
                                         const struct allot_shard_options *given) {
    struct allot_sharded *sharded = calloc(1, sizeof(*sharded));
    struct allot_shard_options options;
    struct allot_error err = { 0 };
    int r = sharded ? take_options(&options, given, &err)
                    : error_set(&err, -ENOMEM, "no host memory for a sharded variable");

    if (r == 0) {
        sharded->graph = graph_ref(graph);
        sharded->shape = *shape;
        r = make(sharded, name, dtype, whole, &options, &err);
    }
    if (r == 0)
        return sharded;
    handle_fail(graph, &err);
    return allot_sharded_free(sharded);
}

struct allot_sharded *allot_sharded_variable(struct allot_graph *graph, const char *name,
                                             struct allot_output initial,
                                             const struct allot_shard_options *options) {
    struct allot_error err = { 0 };

    if (handle_check(graph, &err) < 0) {
        handle_fail(graph, &err);
        return NULL;
    }
    if (!initial.node)
        return NULL;
    if (handle_node(initial.node)->graph != graph || initial.index < 0 ||
        initial.index >= allot_node_n_outputs(initial.node)) {
        error_set(&err, -EINVAL, "variable '%s': its initial value is not an output of this graph",
                  name ? name : "");
        handle_fail(graph, &err);
        return NULL;
    }
    return sharded_new(graph, name, allot_output_dtype(initial),
                       &handle_node(initial.node)->outputs[initial.index].shape, initial, options);
}

struct allot_sharded *allot_sharded_variable_of(struct allot_graph *graph, const char *name,
                                                enum allot_dtype dtype, int rank,
                                                const int64_t *dims,
                                                const struct allot_shard_options *options) {
    struct shape shape = { .rank = rank };
    struct allot_error err = { 0 };
    int r = handle_check(graph, &err);

    if (r == 0 && (rank < 1 || rank > ALLOT_RANK_MAX || !dims))
        r = error_set(&err, -EINVAL, "variable '%s' cannot be sharded: it has no dimension",
                      name ? name : "");
    if (r == 0 && ((int)dtype < 0 || dtype_bytes((enum dtype)dtype) == 0))
        r = error_set(&err, -EINVAL, "there is no type %d", (int)dtype);
    if (r < 0) {
        handle_fail(graph, &err);
        return NULL;
    }
    memcpy(shape.dims, dims, (size_t)rank * sizeof(*dims));
    return sharded_new(graph, name, dtype, &shape, none, options);
}

size_t allot_sharded_n_shards(const struct allot_sharded *sharded) {
    return sharded ? sharded->sharding->n : 0;
}

struct allot_output allot_sharded_shard(const struct allot_sharded *sharded, size_t i) {
    struct allot_error err;

    if (sharded && i < sharded->sharding->n)
        return sharded->shards[i];
    if (sharded)
        error_set(&err, -EINVAL, "there is no shard %zu of %u", i, sharded->sharding->n);
    else
        error_null(&err, "sharded variable");
    return failed(sharded ? sharded->graph : NULL, &err);
}

/* ---- Using them ------------------------------------------------------------------------------ */

/* NULL is reported through the graph of the other argument. */
static bool is_there(const struct allot_sharded *sharded, struct allot_output other) {
    struct allot_graph *graph = handle_graph(&other, 1);
    struct allot_error err;

    if (sharded && (!other.node || graph == sharded->graph))
        return other.node;
    if (sharded)
        error_set(&err, -EINVAL, "'%s' is a node of another graph than the sharded variable '%s'",
                  allot_node_name(other.node), sharded->sharding->name);
    else
        error_null(&err, "sharded variable");
    handle_fail(graph, &err);
    return false;
}

/* Which of the indices are of a shard, and their rows in it; row 0 for the others. */
static void find_rows(const struct graph_sharding *sharding, uint32_t shard,
                      struct allot_output indices, struct allot_output *ret_mine,
                      struct allot_output *ret_rows) {
    struct allot_graph *graph = handle_graph(&indices, 1);
    const enum allot_dtype dtype = allot_output_dtype(indices);
    struct allot_output rows;

#define NUMBER(value) allot_scalar(graph, dtype, (double)(value))
    if (sharding->is_in_turn) {
        *ret_mine = allot_equal(allot_floor_mod(indices, NUMBER(sharding->n)), NUMBER(shard));
        rows = allot_floor_div(indices, NUMBER(sharding->n));
    } else {
        /* The first and the last also get what is out of range, and say so. */
        struct allot_output from = allot_greater_equal(indices, NUMBER(sharding->begins[shard]));
        struct allot_output to = allot_less(indices, NUMBER(sharding->begins[shard + 1]));

        *ret_mine = sharding->n == 1           ? allot_equal(indices, indices)
                    : shard == 0               ? to
                    : shard + 1 == sharding->n ? from
                                               : allot_logical_and(from, to);
        rows = allot_sub(indices, NUMBER(sharding->begins[shard]));
    }
#undef NUMBER
    *ret_rows = allot_select(*ret_mine, rows, allot_zeros_like(indices));
}

/* A dimension of 1 for each but the first of a row. */
static struct allot_output widen(struct allot_output mask, int n) {
    for (int i = 0; i < n; i++)
        mask = allot_expand_dims(mask, -1);
    return mask;
}

static struct allot_output *parts_new(const struct allot_sharded *sharded) {
    struct allot_output *parts = calloc(sharded->sharding->n, sizeof(*parts));
    struct allot_error err;

    if (!parts) {
        error_set(&err, -ENOMEM, "no host memory for a sharded variable");
        handle_fail(sharded->graph, &err);
    }
    return parts;
}

struct allot_output allot_sharded_lookup(const struct allot_sharded *sharded,
                                         struct allot_output indices) {
    const struct graph_sharding *sharding = sharded ? sharded->sharding : NULL;
    cleanup(freep) struct allot_output *parts = NULL;
    struct allot_graph *graph;

    if (!is_there(sharded, indices))
        return none;
    graph = sharded->graph;
    parts = parts_new(sharded);
    if (!parts)
        return none;
    for (uint32_t i = 0; i < sharding->n; i++) {
        struct allot_output mine = none, rows = none, found;

        allot_with_device(graph, "/device:CPU:0") {
            find_rows(sharding, i, indices, &mine, &rows);
        }
        allot_with_device(graph, sharded->devices[i]) {
            found = allot_gather(sharded->shards[i], rows, 0);
            parts[i] =
                allot_select(widen(mine, sharded->shape.rank - 1), found, allot_zeros_like(found));
        }
    }
    return allot_add_n(parts, sharding->n);
}

static struct allot_output product(struct allot_output x, struct allot_output weights, int rank,
                                   bool transpose) {
    if (rank == 2)
        return allot_matmul_of(x, weights, false, transpose);
    return allot_batch_matmul(x, transpose ? allot_transpose(weights, NULL, 0) : weights);
}

/* What is in the order of the shards, in the order of the rows. */
static struct allot_output in_order(const struct allot_sharded *sharded,
                                    const struct allot_output *parts, int axis) {
    const struct graph_sharding *sharding = sharded->sharding;
    struct allot_output joined =
        sharding->n == 1 ? parts[0] : allot_concat(parts, sharding->n, axis);
    const int64_t n = sharded->shape.dims[0];
    cleanup(freep) int64_t *places = NULL;
    struct allot_error err;

    if (!sharding->is_in_turn || sharding->n == 1 || !joined.node)
        return joined;
    places = malloc((size_t)n * sizeof(*places));
    if (!places) {
        error_set(&err, -ENOMEM, "no host memory for a sharded variable");
        return failed(sharded->graph, &err);
    }
    for (int64_t row = 0; row < n; row++)
        places[row] = (int64_t)sharding->begins[row % sharding->n] + row / sharding->n;
    return allot_gather(joined, allot_constant(sharded->graph, "places", ALLOT_I64, 1, &n, places),
                        axis);
}

struct allot_output allot_sharded_matmul(struct allot_output x, const struct allot_sharded *sharded,
                                         bool transpose) {
    cleanup(freep) struct allot_output *parts = NULL;
    struct allot_error err;
    int64_t dims[ALLOT_RANK_MAX];
    int rank;

    if (!is_there(sharded, x))
        return none;
    rank = allot_output_shape(x, dims);
    if (sharded->shape.rank != 2 || rank < 2 ||
        (dims[rank - 1] >= 0 && dims[rank - 1] != sharded->shape.dims[transpose ? 1 : 0])) {
        error_set(
            &err, -EINVAL,
            "'%s' times the sharded variable '%s'%s: both must be matrices, with %lld columns "
            "of the first",
            allot_node_name(x.node), sharded->sharding->name, transpose ? ", transposed" : "",
            (long long)sharded->shape.dims[transpose && sharded->shape.rank > 1 ? 1 : 0]);
        return failed(sharded->graph, &err);
    }
    parts = parts_new(sharded);
    if (!parts)
        return none;
    for (uint32_t i = 0; i < sharded->sharding->n; i++) {
        struct allot_output own = transpose ? x : part_of(x, sharded->sharding, i, rank - 1, rank);

        allot_with_device(sharded->graph, sharded->devices[i]) {
            parts[i] = product(own, sharded->shards[i], rank, transpose);
        }
    }
    return transpose ? in_order(sharded, parts, rank - 1)
                     : allot_add_n(parts, sharded->sharding->n);
}

struct allot_output allot_sharded_value(const struct allot_sharded *sharded) {
    cleanup(freep) struct allot_output *parts = NULL;
    struct allot_error err;

    if (!sharded) {
        error_null(&err, "sharded variable");
        return failed(NULL, &err);
    }
    parts = parts_new(sharded);
    if (!parts)
        return none;
    memcpy(parts, sharded->shards, sharded->sharding->n * sizeof(*parts));
    return in_order(sharded, parts, 0);
}
