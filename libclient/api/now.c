/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Immediate mode: each kind of call (op, attributes, types, device) has a graph of one node and a
 * session of its own, which feeds the inputs and has one plan for each set of shapes. A hash table
 * finds the kinds, and drops the least recently used. A kind that cannot be placed leaves nothing
 * behind, and threads that make different calls share only the table.
 *
 * Inputs that determine shapes (those called `shape`, and all of Range) are constants of the graph,
 * and their numbers are part of the kind.
 */
#include "libclient/allot/now.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/list.h"
#include "libclient/api/config.h"
#include "libclient/api/handle.h"
#include "libclient/api/session.h"
#include "libclient/core/log.h"
#include "libclient/core/spec.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/engine/plan_lookup.h"
#include "libclient/graph/build.h"
#include "libclient/ops/ops.h"

enum { KINDS_MAX = 128, BUCKETS = 256, FEW = 16 };

struct now_call {
    const char *op, *device; /* device "": anywhere */
    struct allot_tensor *const *inputs;
    size_t n_inputs, n_ret;
    const struct build_attr *attrs;
    size_t n_attrs;
    bool is_soft;
};

struct now_kind {
    struct list link;      /* of table.recent; the one used last comes last */
    struct now_kind *next; /* of those in the same bucket */
    uint64_t hash;
    unsigned n_users;
    bool is_out; /* of the table: its last user frees it */
    char *op, *device;
    enum dtype *dtypes;
    struct allot_tensor **known; /* by input; NULL: it is fed */
    size_t n_inputs, n_ret;
    struct build_attr *attrs; /* names and values owned */
    size_t n_attrs;
    bool is_soft;
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_callable *callable;
    const char *where; /* name of its device, the session's */
};

static struct {
    pthread_mutex_t lock;
    struct now_kind *buckets[BUCKETS]; /* by hash */
    struct list recent;
    size_t n;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER, .recent = { &table.recent, &table.recent } };

static _Thread_local char thread_device[DEVICE_NAME_SIZE];

static bool is_known(const struct opdef *op, size_t input) {
    return input < op->n_inputs && op->shaped_by >> input & 1;
}

static uint64_t mix(uint64_t hash, const void *data, size_t n) {
    const unsigned char *bytes = data;

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

static uint64_t mix_text(uint64_t hash, const char *text) {
    return mix(hash, text, strlen(text) + 1);
}

static uint64_t mix_attr(uint64_t hash, const struct attr *value) {
    switch (value->kind) {
    case ATTR_INT:
        return mix(hash, &value->i, sizeof(value->i));
    case ATTR_FLOAT:
        return mix(hash, &value->f, sizeof(value->f));
    case ATTR_BOOL:
        return mix(hash, &value->b, sizeof(value->b));
    case ATTR_DTYPE:
        return mix(hash, &value->dtype, sizeof(value->dtype));
    case ATTR_STRING:
        return mix_text(hash, value->string);
    case ATTR_INTS:
        return mix(mix(hash, &value->ints.n, sizeof(value->ints.n)), value->ints.values,
                   value->ints.n * sizeof(int64_t));
    default: /* immediate mode has none of these */
        return hash;
    }
}

static uint64_t hash_of(const struct now_call *call, const struct opdef *op) {
    uint64_t hash = mix_text(0xcbf29ce484222325, call->op);

    hash = mix_text(hash, call->device);
    hash = mix(hash, &call->n_ret, sizeof(call->n_ret));
    hash = mix(hash, &call->is_soft, sizeof(call->is_soft));
    for (size_t i = 0; i < call->n_inputs; i++) {
        hash = mix(hash, &call->inputs[i]->dtype, sizeof(call->inputs[i]->dtype));
        if (is_known(op, i))
            hash = mix(hash, tensor_data(call->inputs[i]), call->inputs[i]->bytes);
    }
    for (size_t i = 0; i < call->n_attrs; i++) {
        hash = mix_text(hash, call->attrs[i].name);
        hash = mix_attr(hash, &call->attrs[i].value);
    }
    return hash;
}

static bool tensors_equal(const struct allot_tensor *a, const struct allot_tensor *b) {
    return a->dtype == b->dtype && shape_equal(&a->shape, &b->shape) &&
           memcmp(tensor_data(a), tensor_data(b), a->bytes) == 0;
}

static bool is_of_kind(const struct now_kind *kind, const struct now_call *call) {
    if (strcmp(kind->op, call->op) != 0 || strcmp(kind->device, call->device) != 0 ||
        kind->n_inputs != call->n_inputs || kind->n_ret != call->n_ret ||
        kind->n_attrs != call->n_attrs || kind->is_soft != call->is_soft)
        return false;
    for (size_t i = 0; i < call->n_inputs; i++)
        if (kind->dtypes[i] != call->inputs[i]->dtype ||
            (kind->known[i] && !tensors_equal(kind->known[i], call->inputs[i])))
            return false;
    for (size_t i = 0; i < call->n_attrs; i++)
        if (strcmp(kind->attrs[i].name, call->attrs[i].name) != 0 ||
            !attr_equal(&kind->attrs[i].value, &call->attrs[i].value))
            return false;
    return true;
}

static struct now_kind *kind_free(struct now_kind *kind) {
    if (!kind)
        return NULL;
    allot_callable_free(kind->callable);
    allot_session_free(kind->session);
    allot_graph_unref(kind->graph);
    for (size_t i = 0; i < kind->n_attrs; i++) {
        free((char *)kind->attrs[i].name);
        attr_done(&kind->attrs[i].value);
    }
    for (size_t i = 0; kind->known && i < kind->n_inputs; i++)
        allot_tensor_unref(kind->known[i]);
    free(kind->attrs);
    free(kind->known);
    free(kind->dtypes);
    free(kind->device);
    free(kind->op);
    free(kind);
    return NULL;
}
DEFINE_FREEP(struct now_kind, kind_freep, kind_free)

/* ---- Making a kind --------------------------------------------------------------------------- */

static int copy_call(struct now_kind *kind, const struct now_call *call, const struct opdef *op,
                     struct allot_error *err) {
    kind->op = strdup(call->op);
    kind->device = strdup(call->device);
    kind->dtypes = calloc(call->n_inputs + 1, sizeof(*kind->dtypes));
    kind->known = calloc(call->n_inputs + 1, sizeof(*kind->known));
    kind->attrs = calloc(call->n_attrs + 1, sizeof(*kind->attrs));
    kind->n_inputs = call->n_inputs;
    kind->n_ret = call->n_ret;
    kind->is_soft = call->is_soft;
    if (!kind->op || !kind->device || !kind->dtypes || !kind->known || !kind->attrs)
        return error_set(err, -ENOMEM, "no host memory for op %s", call->op);
    for (size_t i = 0; i < call->n_inputs; i++) {
        const struct allot_tensor *input = call->inputs[i];
        int r;

        kind->dtypes[i] = input->dtype;
        if (!is_known(op, i))
            continue;
        r = allot_tensor_copy_of(&kind->known[i], (enum allot_dtype)input->dtype, input->shape.rank,
                                 input->shape.dims, tensor_data(input), err);
        if (r < 0)
            return r;
    }
    for (; kind->n_attrs < call->n_attrs; kind->n_attrs++) {
        struct build_attr *attr = &kind->attrs[kind->n_attrs];

        attr->name = strdup(call->attrs[kind->n_attrs].name);
        if (!attr->name || attr_copy(&attr->value, &call->attrs[kind->n_attrs].value) < 0) {
            free((char *)attr->name);
            return error_set(err, -ENOMEM, "no host memory for op %s", call->op);
        }
    }
    return 0;
}

/* Build the node and its inputs; returns the inputs that the session feeds. */
static int build(struct now_kind *kind, struct allot_output *feeds, size_t *ret_n_feeds,
                 uint32_t *ret, struct allot_error *err) {
    cleanup(freep) struct edge *edges = calloc(kind->n_inputs + 1, sizeof(*edges));
    struct build_node request = {
        .op = kind->op,
        .device = kind->device[0] ? kind->device : NULL,
        .inputs = edges,
        .n_inputs = kind->n_inputs,
        .attrs = kind->attrs,
        .n_attrs = kind->n_attrs,
    };
    int r = edges ? 0 : error_set(err, -ENOMEM, "no host memory for op %s", kind->op);

    for (size_t i = 0; r == 0 && i < kind->n_inputs; i++) {
        struct allot_output input =
            kind->known[i]
                ? allot_const(kind->graph, NULL, kind->known[i])
                : allot_placeholder(kind->graph, NULL, (enum allot_dtype)kind->dtypes[i], -1, NULL);

        r = allot_graph_error(kind->graph, err);
        edges[i] = handle_edge(input);
        if (!kind->known[i])
            feeds[(*ret_n_feeds)++] = input;
    }
    return r < 0 ? r : build_add(kind->graph, &request, ret, err);
}

static int make_session(struct now_kind *kind, struct allot_error *err) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    cleanup(freep) char *text = NULL;
    int r = config_fill(&options, &text, err);

    if (r < 0)
        return r;
    options.log_device_placement = false;
    options.allow_soft_placement = kind->is_soft;
    /* One op: nothing could run beside it but its own loops. */
    options.inter_op_threads = 1;
    return session_make(&kind->session, kind->graph, &options, err);
}

static int place(struct now_kind *kind, uint32_t node, struct allot_error *err) {
    struct device *device;
    int r = plan_lookup_place(kind->session->engine, node, &device, err);

    if (r == 0)
        kind->where = device->name;
    return r;
}

static int make_callable(struct now_kind *kind, const struct allot_output *feeds, size_t n_feeds,
                         uint32_t id, struct allot_error *err) {
    const struct node *node = graph_node(kind->graph, id);
    cleanup(freep) struct allot_output *fetches = calloc(kind->n_ret + 1, sizeof(*fetches));
    struct allot_node *target = handle_of(node);

    if (!fetches)
        return error_set(err, -ENOMEM, "no host memory for op %s", kind->op);
    if (kind->n_ret > node->n_outputs)
        return error_set(err, -EINVAL, "%zu outputs were requested from op %s, which has %u",
                         kind->n_ret, kind->op, node->n_outputs);
    for (size_t i = 0; i < kind->n_ret; i++)
        fetches[i] = (struct allot_output){ target, (int)i };
    return allot_callable_new(&kind->callable, kind->session, feeds, n_feeds, fetches, kind->n_ret,
                              &target, 1, err);
}

static int kind_new(struct now_kind **ret, const struct now_call *call, const struct opdef *op,
                    struct allot_error *err) {
    cleanup(freep) struct allot_output *feeds = calloc(call->n_inputs + 1, sizeof(*feeds));
    cleanup(kind_freep) struct now_kind *kind = calloc(1, sizeof(*kind));
    size_t n_feeds = 0;
    uint32_t node = 0;
    int r;

    if (!feeds || !kind)
        return error_set(err, -ENOMEM, "no host memory for op %s", call->op);
    r = copy_call(kind, call, op, err);
    if (r == 0)
        r = allot_graph_new(&kind->graph, err);
    if (r == 0)
        r = build(kind, feeds, &n_feeds, &node, err);
    if (r == 0)
        r = make_session(kind, err);
    if (r == 0)
        r = place(kind, node, err);
    if (r == 0)
        r = make_callable(kind, feeds, n_feeds, node, err);
    if (r < 0)
        return r;
    kind->n_users = 1;
    *ret = TAKE(kind);
    return 0;
}

/* ---- The table ------------------------------------------------------------------------------- */

static struct now_kind **bucket_of(uint64_t hash) {
    return &table.buckets[(hash ^ hash >> 32) % BUCKETS];
}

/* With the lock held. Remove it from the table; true: it is unused, and the caller frees it. */
static bool drop(struct now_kind *kind) {
    struct now_kind **at = bucket_of(kind->hash);

    while (*at != kind)
        at = &(*at)->next;
    *at = kind->next;
    table.n--;
    list_remove(&kind->link);
    kind->is_out = true;
    return kind->n_users == 0;
}

void allot_now_clear(void) {
    struct list idle;

    list_init(&idle);
    pthread_mutex_lock(&table.lock);
    while (!list_is_empty(&table.recent)) {
        struct now_kind *kind = list_entry(table.recent.next, struct now_kind, link);

        if (drop(kind))
            list_append(&idle, &kind->link);
    }
    pthread_mutex_unlock(&table.lock);
    while (!list_is_empty(&idle)) {
        struct now_kind *kind = list_entry(idle.next, struct now_kind, link);

        list_remove(&kind->link);
        kind_free(kind);
    }
}

static struct now_kind *find(const struct now_call *call, uint64_t hash) {
    struct now_kind *kind;

    pthread_mutex_lock(&table.lock);
    kind = *bucket_of(hash);
    while (kind && !(kind->hash == hash && is_of_kind(kind, call)))
        kind = kind->next;
    if (kind) {
        kind->n_users++;
        list_remove(&kind->link);
        list_append(&table.recent, &kind->link);
    }
    pthread_mutex_unlock(&table.lock);
    return kind;
}

/* Keep a new kind. If another thread has made the same one meanwhile, there are two for a while. */
static void keep(struct now_kind *kind, uint64_t hash) {
    struct now_kind *oldest = NULL;

    pthread_mutex_lock(&table.lock);
    kind->hash = hash;
    kind->next = *bucket_of(hash);
    *bucket_of(hash) = kind;
    list_append(&table.recent, &kind->link);
    if (++table.n > KINDS_MAX) {
        oldest = list_entry(table.recent.next, struct now_kind, link);
        if (!drop(oldest))
            oldest = NULL;
    }
    pthread_mutex_unlock(&table.lock);
    kind_free(oldest);
}

static void release(struct now_kind *kind) {
    bool is_last;

    pthread_mutex_lock(&table.lock);
    is_last = --kind->n_users == 0 && kind->is_out;
    pthread_mutex_unlock(&table.lock);
    if (is_last)
        kind_free(kind);
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int run_kind(const struct now_kind *kind, const struct now_call *call,
                    struct allot_tensor **ret, struct allot_error *err) {
    struct allot_tensor *few[FEW], **feeds = few;
    cleanup(freep) struct allot_tensor **many = NULL;
    size_t n = 0;

    if (call->n_inputs > FEW && !(feeds = many = calloc(call->n_inputs, sizeof(*many))))
        return error_set(err, -ENOMEM, "no host memory for op %s", call->op);
    for (size_t i = 0; i < call->n_inputs; i++)
        if (!kind->known[i])
            feeds[n++] = call->inputs[i];
    if (config_logs())
        log_say(ALLOT_LOG_INFO, "Executing op %s in device %s", kind->op, kind->where);
    return allot_callable_run(kind->callable, NULL, feeds, ret, err);
}

static int run_once(const struct now_call *call, const struct opdef *op, struct allot_tensor **ret,
                    struct allot_error *err) {
    uint64_t hash = hash_of(call, op);
    struct now_kind *kind = find(call, hash);
    int r;

    if (!kind) {
        r = kind_new(&kind, call, op, err);
        if (r < 0)
            return r;
        keep(kind, hash);
    }
    r = run_kind(kind, call, ret, err);
    release(kind);
    return r;
}

static int run(const struct now_call *call, struct allot_tensor **ret, struct allot_error *err) {
    const struct opdef *op;
    int r = ops_register_all(err);

    if (r < 0)
        return r;
    op = call->op ? opdef_find(call->op) : NULL;
    if (!call->op)
        return error_null(err, "name of an op");
    if ((call->n_inputs && !call->inputs) || (call->n_ret && !ret))
        return error_null(err, call->n_ret && !ret ? "place for outputs" : "array of inputs");
    if (!op)
        return opdef_missing(call->op, err);
    for (size_t i = 0; i < call->n_inputs; i++)
        if (!call->inputs[i])
            return error_set(err, -EINVAL, "input %zu of op %s is not a tensor", i, call->op);
    for (size_t i = 0; i < op->n_inputs; i++)
        if (op->inputs[i].is_variable)
            return error_set(err, -EINVAL, "op %s takes a variable: use it in a graph", call->op);
    r = run_once(call, op, ret, err);
    if (r == -ENOMEM) {
        /* This call needs the memory more than the kept kinds do. */
        allot_now_clear();
        r = run_once(call, op, ret, err);
    }
    return r;
}

int allot_now(const char *op, struct allot_tensor *const *inputs, size_t n_inputs,
              struct allot_tensor **ret, size_t n_ret, struct allot_error *err) {
    const struct now_call call = {
        .op = op,
        .device = thread_device,
        .inputs = inputs,
        .n_inputs = n_inputs,
        .n_ret = n_ret,
        .is_soft = config_is_soft(),
    };

    return run(&call, ret, err);
}

int allot_now_set_device(const char *device, struct allot_error *err) {
    struct spec spec;

    if (device && (strlen(device) >= sizeof(thread_device) || spec_parse(&spec, device) < 0))
        return error_set(err, -EINVAL, "'%.64s' is not a device name: \"/cpu:0\", \"/gpu:1\", …",
                         device);
    strcpy(thread_device, device ? device : "");
    return 0;
}

#define X(name, op)                                                                                \
    int allot_now_##name(struct allot_tensor **ret, struct allot_tensor *x,                        \
                         struct allot_error *err) {                                                \
        return allot_now(#op, &x, 1, ret, 1, err);                                                 \
    }
ALLOT_UNARY_OPS(X)
#undef X

#define X(name, op)                                                                                \
    int allot_now_##name(struct allot_tensor **ret, struct allot_tensor *x,                        \
                         struct allot_tensor *y, struct allot_error *err) {                        \
        struct allot_tensor *inputs[] = { x, y };                                                  \
                                                                                                   \
        return allot_now(#op, inputs, 2, ret, 1, err);                                             \
    }
ALLOT_BINARY_OPS(X)
#undef X

/* ---- Calls in the making --------------------------------------------------------------------- */

struct allot_now_op {
    char *op;
    struct allot_tensor **inputs; /* a reference each */
    size_t n_inputs;
    struct build_attr attrs[OPDEF_ATTRS_MAX]; /* names and values owned */
    size_t n_attrs;
    struct allot_error failure; /* the first; code 0: none */
};

static void now_free(struct allot_now_op *now) {
    for (size_t i = 0; i < now->n_inputs; i++)
        allot_tensor_unref(now->inputs[i]);
    for (size_t i = 0; i < now->n_attrs; i++) {
        free((char *)now->attrs[i].name);
        attr_done(&now->attrs[i].value);
    }
    free(now->inputs);
    free(now->op);
    free(now);
}

struct allot_now_op *allot_now_begin(const char *op) {
    struct allot_now_op *now = calloc(1, sizeof(*now));

    if (!now)
        return NULL;
    now->op = strdup(op ? op : "");
    if (!now->op)
        error_set(&now->failure, -ENOMEM, "no host memory for op %s", op);
    else if (!op)
        error_null(&now->failure, "name of an op");
    return now;
}

void allot_now_input(struct allot_now_op *now, struct allot_tensor *input) {
    struct allot_tensor **grown;

    if (!now || now->failure.code)
        return;
    grown = realloc(now->inputs, (now->n_inputs + 1) * sizeof(*grown));
    if (!grown) {
        error_set(&now->failure, -ENOMEM, "no host memory for op %s", now->op);
        return;
    }
    now->inputs = grown;
    now->inputs[now->n_inputs++] = allot_tensor_ref(input);
}

static void give(struct allot_now_op *now, const char *name, struct attr value) {
    struct build_attr *attr;

    if (!now || now->failure.code)
        return;
    if (!name || attr_is_null(&value)) {
        error_set(&now->failure, -EINVAL, "attribute '%s' of op %s: NULL was given",
                  name ? name : "", now->op);
        return;
    }
    if (now->n_attrs == OPDEF_ATTRS_MAX) {
        error_set(&now->failure, -EINVAL, "more than %d attributes for op %s", OPDEF_ATTRS_MAX,
                  now->op);
        return;
    }
    attr = &now->attrs[now->n_attrs];
    attr->name = strdup(name);
    if (!attr->name || attr_copy(&attr->value, &value) < 0) {
        free((char *)attr->name);
        error_set(&now->failure, -ENOMEM, "no host memory for op %s", now->op);
        return;
    }
    now->n_attrs++;
}

void allot_now_attr_int(struct allot_now_op *now, const char *name, int64_t value) {
    give(now, name, attr_int(value));
}

void allot_now_attr_float(struct allot_now_op *now, const char *name, double value) {
    give(now, name, attr_float(value));
}

void allot_now_attr_bool(struct allot_now_op *now, const char *name, bool value) {
    give(now, name, attr_bool(value));
}

void allot_now_attr_type(struct allot_now_op *now, const char *name, enum allot_dtype value) {
    give(now, name, attr_dtype((enum dtype)value));
}

void allot_now_attr_string(struct allot_now_op *now, const char *name, const char *value) {
    give(now, name, attr_string(value));
}

void allot_now_attr_ints(struct allot_now_op *now, const char *name, const int64_t *values,
                         size_t n) {
    give(now, name, attr_ints(values, n));
}

int allot_now_run(struct allot_now_op *now, struct allot_tensor **ret, size_t n_ret,
                  struct allot_error *err) {
    struct now_call call = { .device = thread_device, .n_ret = n_ret, .is_soft = config_is_soft() };
    int r;

    if (!now)
        return error_set(err, -ENOMEM, "no host memory for an op");
    call.op = now->op;
    call.inputs = now->inputs;
    call.n_inputs = now->n_inputs;
    call.attrs = now->attrs;
    call.n_attrs = now->n_attrs;
    r = now->failure.code ? error_set(err, now->failure.code, "%s", now->failure.text)
                          : run(&call, ret, err);
    now_free(now);
    return r;
}
