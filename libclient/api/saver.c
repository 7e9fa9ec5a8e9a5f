/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saver: a checkpoint is one run that fetches the variables, and a file. Restoring adds no node to
 * the graph: it writes directly to the session's variables, with the same locking as a run. Shards
 * of a variable are one tensor in the file, whatever their number.
 */
#include "libclient/allot/saver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/api/handle.h"
#include "libclient/api/session.h"
#include "libclient/core/safetensors.h"
#include "libclient/core/tensor.h"
#include "libclient/core/wait.h"
#include "libclient/core/whole.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/engine/plan_lookup.h"
#include "libclient/exec/memory/memory_user.h"
#include "libclient/graph/sharding.h"

/* Read at once of a tensor of which only some rows are wanted. */
enum { PIECE_BYTES = 4 << 20 };

static int check(const struct allot_session *session, const char *path, struct allot_error *err) {
    return !session ? error_null(err, "session") : !path ? error_null(err, "path of a file") : 0;
}

/* The variable whose tensor of the file is this one's: the copies of a strategy have one. */
static uint32_t original(const struct allot_graph *graph, uint32_t id) {
    const struct graph_variable *variable = graph_variable(graph, id);

    return !variable || variable->mirror_of == UINT32_MAX ? id : variable->mirror_of;
}

/* Whether both are shards of one tensor. */
static bool are_one(const struct allot_graph *graph, uint32_t a, uint32_t b) {
    const struct graph_variable *x = graph_variable(graph, a), *y = graph_variable(graph, b);
    cleanup(freep) char *of_a = NULL, *of_b = NULL;

    if (!x || !y || !x->sharding || x->sharding != y->sharding)
        return false;
    of_a = sharding_whole_name(graph, a);
    of_b = sharding_whole_name(graph, b);
    return of_a && of_b && strcmp(of_a, of_b) == 0;
}

/* A shard stands for all of its variable. */
static bool goes_with(const struct allot_graph *graph, uint32_t id,
                      const struct allot_output *given, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (are_one(graph, id, handle_node(given[i].node)->id))
            return true;
    return false;
}

/* The variables of a call: those given, or all of the graph, with their copies if `has_mirrors`.
 * The caller frees the array. */
static int choose(const struct allot_session *session, const struct allot_output *given, size_t n,
                  bool has_mirrors, struct allot_output **ret, size_t *ret_n,
                  struct allot_error *err) {
    const struct allot_graph *graph = session->engine->graph;
    uint32_t n_nodes = graph_n_nodes(graph);
    cleanup(freep) bool *is_chosen = NULL; /* by node */
    struct allot_output *chosen;

    if (n && !given)
        return error_null(err, "array of variables");
    is_chosen = calloc((size_t)n_nodes + 1, sizeof(*is_chosen));
    chosen = calloc(n_nodes + n + 1, sizeof(*chosen));
    if (!chosen || !is_chosen) {
        free(chosen);
        return error_set(err, -ENOMEM, "no host memory for a checkpoint");
    }
    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        const struct node *node = handle_node(given[i].node);

        if (!node || node->graph != graph || graph_variable(graph, node->id) == NULL ||
            given[i].index != 0) {
            free(chosen);
            return error_set(err, -EINVAL, "'%s' is not a variable of the session's graph",
                             node ? node->name : "(none)");
        }
        /* A file has one tensor of a name. */
        if (is_chosen[node->id]) {
            free(chosen);
            return error_set(err, -EINVAL, "variable '%s' is named twice", node->name);
        }
        is_chosen[node->id] = true;
        chosen[(*ret_n)++] = given[i];
    }
    for (uint32_t i = 0; i < n_nodes; i++) {
        const bool is_mirror = original(graph, i) != i;

        if (graph_variable(graph, i) && !is_chosen[i] &&
            (is_mirror ? has_mirrors && (n == 0 || is_chosen[original(graph, i)])
                       : n == 0 || goes_with(graph, i, given, n)))
            chosen[(*ret_n)++] = handle_output(graph, (struct edge){ i, 0 });
    }
    *ret = chosen;
    return 0;
}

/* ---- Saving ---------------------------------------------------------------------------------- */

/* A tensor of the file: of one variable, or of all its shards. */
struct saved {
    char *name;
    const struct graph_sharding *sharding; /* NULL: of one variable */
    struct shape shape;
    size_t first;  /* among the variables */
    size_t *parts; /* by shard: which of the variables; NULL: of one */
};

struct saved_list {
    struct saved *saved;
    size_t n;
};

static void saved_list_done(struct saved_list *list) {
    for (size_t i = 0; list->saved && i < list->n; i++) {
        free(list->saved[i].name);
        free(list->saved[i].parts);
    }
    free(list->saved);
}

static int join_shards(struct saved *saved, const struct allot_output *variables, size_t n) {
    const struct node *first = handle_node(variables[saved->first].node);

    saved->shape.dims[0] = (int64_t)saved->sharding->begins[saved->sharding->n];
    saved->parts = calloc(saved->sharding->n, sizeof(*saved->parts));
    for (size_t i = 0; saved->parts && i < n; i++) {
        const uint32_t id = handle_node(variables[i].node)->id;

        if (are_one(first->graph, first->id, id))
            saved->parts[graph_variable(first->graph, id)->shard] = i;
    }
    return saved->parts ? 0 : -ENOMEM;
}

static int list_saved(struct saved_list *list, const struct allot_output *variables, size_t n) {
    int r = 0;

    list->saved = calloc(n + 1, sizeof(*list->saved));
    if (!list->saved)
        return -ENOMEM;
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct node *node = handle_node(variables[i].node);
        const struct graph_variable *variable = graph_variable(node->graph, node->id);
        struct saved *saved = &list->saved[list->n];

        if (variable->sharding && variable->shard != 0)
            continue; /* goes with the first */
        *saved = (struct saved){ .name = sharding_whole_name(node->graph, node->id),
                                 .sharding = variable->sharding,
                                 .shape = node->outputs[0].shape,
                                 .first = i };
        list->n++;
        r = !saved->name ? -ENOMEM : saved->sharding ? join_shards(saved, variables, n) : 0;
    }
    return r;
}

static void write_rows(struct whole *file, const struct saved *saved,
                       struct allot_tensor *const *values) {
    const struct graph_sharding *sharding = saved->sharding;

    if (!sharding) {
        whole_write(file, tensor_data(values[saved->first]), values[saved->first]->bytes);
        return;
    }
    for (uint32_t i = 0; !sharding->is_in_turn && i < sharding->n; i++)
        whole_write(file, tensor_data(values[saved->parts[i]]), values[saved->parts[i]]->bytes);
    for (uint64_t row = 0; sharding->is_in_turn && row < sharding->begins[sharding->n]; row++) {
        const struct allot_tensor *part = values[saved->parts[row % sharding->n]];
        const size_t bytes =
            part->bytes / (size_t)sharding_n_rows(sharding, (uint32_t)(row % sharding->n));

        whole_write(file, (const char *)tensor_data(part) + row / sharding->n * bytes, bytes);
    }
}

static int save_values(const struct allot_output *variables, struct allot_tensor *const *values,
                       size_t n, const char *path, struct allot_error *err) {
    cleanup(freep) struct safetensors_entry *entries = calloc(n + 1, sizeof(*entries));
    cleanup(saved_list_done) struct saved_list list = { 0 };
    cleanup(freep) char *head = NULL;
    struct whole file;
    size_t head_bytes;
    int r;

    if (!entries || list_saved(&list, variables, n) < 0)
        return error_set(err, -ENOMEM, "no host memory for a checkpoint");
    for (size_t i = 0; i < list.n; i++) {
        const enum dtype dtype = values[list.saved[i].first]->dtype;

        entries[i] = (struct safetensors_entry){
            .name = list.saved[i].name,
            .dtype = dtype,
            .shape = list.saved[i].shape,
            .bytes = (uint64_t)shape_count(&list.saved[i].shape) * dtype_bytes(dtype),
        };
    }
    r = safetensors_format(entries, list.n, &head, &head_bytes, err);
    if (r == 0)
        r = whole_begin(&file, path, err);
    if (r < 0)
        return r;
    whole_write(&file, head, head_bytes);
    for (size_t i = 0; i < list.n; i++)
        write_rows(&file, &list.saved[i], values);
    return whole_end(&file, err);
}

int allot_save(struct allot_session *session, const struct allot_output *given, size_t n,
               const char *path, struct allot_error *err) {
    cleanup(freep) struct allot_output *variables = NULL;
    cleanup(freep) struct allot_tensor **values = NULL;
    int r = check(session, path, err);

    if (r == 0)
        r = choose(session, given, n, false, &variables, &n, err);
    if (r < 0)
        return r;
    values = calloc(n + 1, sizeof(*values));
    if (!values)
        return error_set(err, -ENOMEM, "no host memory for a checkpoint");
    r = allot_session_run(session, NULL, NULL, 0, variables, n, NULL, 0, values, err);
    if (r < 0)
        return r;
    r = save_values(variables, values, n, path, err);
    for (size_t i = 0; i < n; i++)
        allot_tensor_unref(values[i]);
    return r;
}

/* ---- Restoring ------------------------------------------------------------------------------- */

static int read_at(int fd, void *data, size_t n, uint64_t offset) {
    char *at = data;

    while (n > 0) {
        ssize_t done = pread(fd, at, n, (off_t)offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EBADMSG;
        at += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

/* Read the head of an open file and find where the data begins. Error texts do not name the path.
 */
static int read_head(int fd, struct safetensors *ret, uint64_t *ret_data, struct allot_error *err) {
    cleanup(freep) char *head = NULL;
    uint64_t bytes = 0;
    uint8_t first[8];
    struct stat stat;
    int r;

    if (fstat(fd, &stat) < 0)
        return error_set(err, -errno, "%s", strerror(errno));
    if (!S_ISREG(stat.st_mode) || stat.st_size < 8)
        return error_set(err, -EBADMSG, "it is not a safetensors file");
    r = read_at(fd, first, sizeof(first), 0);
    if (r < 0)
        return error_set(err, r, "%s", strerror(-r));
    r = safetensors_head_bytes(first, (uint64_t)stat.st_size, &bytes, err);
    if (r < 0)
        return r;
    head = malloc(bytes + 1);
    if (!head)
        return error_set(err, -ENOMEM, "no host memory for its header");
    r = read_at(fd, head, bytes, 8);
    if (r < 0)
        return error_set(err, r, "%s", strerror(-r));
    *ret_data = 8 + bytes;
    return safetensors_parse(ret, head, bytes, (uint64_t)stat.st_size - 8 - bytes, err);
}

static int check_entry(const struct safetensors *file, const struct node *node,
                       const struct safetensors_entry **ret, struct allot_error *err) {
    const struct graph_variable *variable = graph_variable(node->graph, node->id);
    cleanup(freep) char *name = sharding_whole_name(node->graph, original(node->graph, node->id));
    const struct safetensors_entry *entry = name ? safetensors_find(file, name) : NULL;
    struct node_output whole = node->outputs[0];
    const struct node_output *own = &whole;
    char there[SHAPE_TEXT_SIZE], here[SHAPE_TEXT_SIZE];

    if (variable->sharding)
        whole.shape.dims[0] = (int64_t)variable->sharding->begins[variable->sharding->n];
    if (!name)
        return error_set(err, -ENOMEM, "no host memory for a checkpoint");
    if (!entry)
        return error_set(err, -ENOENT, "it has no tensor '%s'", name);
    if (entry->dtype == DTYPE_NONE)
        return error_set(
            err, -EINVAL, "tensor '%s' is %s, which is not supported here; the variable is %s %s",
            name, entry->foreign, dtype_name(own->dtype), shape_format(&own->shape, here));
    if (entry->dtype != own->dtype || !shape_equal(&entry->shape, &own->shape))
        return error_set(err, -EINVAL, "tensor '%s' is %s %s, but the variable is %s %s", name,
                         dtype_name(entry->dtype), shape_format(&entry->shape, there),
                         dtype_name(own->dtype), shape_format(&own->shape, here));
    *ret = entry;
    return 0;
}

/* Write the bytes of a variable, after all work that may still use them. */
static int fill(const struct variable *variable, struct buffer *buffer, const void *data,
                struct allot_error *err) {
    int r = device_await(variable->device, NULL, err);

    return r < 0 ? r : device_copy_in(variable->device, buffer->data, data, variable->bytes, err);
}

/* Fill new bytes and then make them the variable's: meanwhile runs read and write the old ones. The
 * exchange waits for them as a run would. */
static int put_anew(struct variable *variable, const void *data, struct allot_error *err) {
    struct memory_user nobodys = { 0 };
    struct wait wait = wait_begin(UINT64_MAX, NULL);
    struct buffer *fresh, *old;
    int r;

    wait.user = &nobodys;
    r = variable_fresh(variable, &wait, &fresh, err);
    wait_end(&wait);
    if (r < 0)
        return r;
    r = fill(variable, fresh, data, err);
    if (r < 0) {
        buffer_unref(fresh);
        return r;
    }
    pthread_mutex_lock(&variable->lock);
    old = variable->buffer;
    variable->buffer = fresh;
    pthread_mutex_unlock(&variable->lock);
    buffer_unref(old);
    return 0;
}

static int put(struct engine *engine, const struct node *node, const void *data,
               struct allot_error *err) {
    struct variable *variable;
    struct device *device;
    bool is_free;
    int r = plan_lookup_place(engine, node->id, &device, err);

    if (r < 0)
        return r;
    r = variable_table_get(&engine->variables, node, device, &variable);
    if (r < 0)
        return error_set(err, r, "no host memory for variable '%s'", node->name);
    /* In place, if no run uses it. */
    pthread_mutex_lock(&variable->lock);
    is_free = !variable_lacks(variable, 0) && device_is_idle(device);
    if (is_free)
        r = fill(variable, variable->buffer, data, err);
    pthread_mutex_unlock(&variable->lock);
    if (is_free)
        return r;
    r = put_anew(variable, data, err);
    if (r != -ENOMEM)
        return r;
    /* There is no memory for new bytes: write into the variable's own, while runs that use it wait.
     */
    pthread_mutex_lock(&variable->lock);
    if (!variable_lacks(variable, 0))
        r = fill(variable, variable->buffer, data, err);
    pthread_mutex_unlock(&variable->lock);
    return r;
}

static int put_held(struct engine *engine, const struct node *node, const void *data,
                    struct allot_error *err) {
    int r;

    engine_hold(engine);
    r = put(engine, node, data, err);
    engine_release(engine);
    return r;
}

/* What the variable has of the tensor. */
static uint64_t entry_bytes(const struct node *node, const struct safetensors_entry *entry) {
    const struct graph_variable *variable = graph_variable(node->graph, node->id);

    return !variable->sharding ? entry->bytes
                               : (uint64_t)shape_count(&node->outputs[0].shape) *
                                     dtype_bytes(node->outputs[0].dtype);
}

/* Rows in turn: all of them in pieces, of which every n-th is kept. */
static int read_in_turn(int fd, const struct graph_variable *variable, uint64_t row_bytes,
                        uint64_t begin, char *ret) {
    const struct graph_sharding *sharding = variable->sharding;
    const uint64_t n_rows = sharding->begins[sharding->n];
    const uint64_t n_piece = MAX(UINT64_C(1), PIECE_BYTES / row_bytes);
    cleanup(freep) char *piece = malloc(MIN(n_piece, n_rows) * row_bytes);
    int r = piece ? 0 : -ENOMEM;

    for (uint64_t row = 0; r == 0 && row < n_rows; row += n_piece) {
        const uint64_t n = MIN(n_piece, n_rows - row);

        r = read_at(fd, piece, n * row_bytes, begin + row * row_bytes);
        for (uint64_t i = 0; r == 0 && i < n; i++)
            if ((row + i) % sharding->n == variable->shard)
                memcpy(ret + (row + i) / sharding->n * row_bytes, piece + i * row_bytes, row_bytes);
    }
    return r;
}

static int read_entry(int fd, const struct node *node, const struct safetensors_entry *entry,
                      uint64_t begin, void *ret) {
    const struct graph_variable *variable = graph_variable(node->graph, node->id);
    const struct graph_sharding *sharding = variable->sharding;
    uint64_t row_bytes;

    if (!sharding)
        return read_at(fd, ret, entry->bytes, begin);
    row_bytes = entry->bytes / sharding->begins[sharding->n];
    if (sharding->is_in_turn)
        return read_in_turn(fd, variable, row_bytes, begin, ret);
    return read_at(fd, ret, sharding_n_rows(sharding, variable->shard) * row_bytes,
                   begin + sharding->begins[variable->shard] * row_bytes);
}

static int restore_from(struct allot_session *session, const struct allot_output *variables,
                        size_t n, int fd, const struct safetensors *file, uint64_t data,
                        struct allot_error *err) {
    cleanup(freep) const struct safetensors_entry **entries = calloc(n + 1, sizeof(void *));
    int r = entries ? 0 : error_set(err, -ENOMEM, "no host memory for a checkpoint");

    for (size_t i = 0; r == 0 && i < n; i++)
        r = check_entry(file, handle_node(variables[i].node), &entries[i], err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct node *node = handle_node(variables[i].node);
        cleanup(freep) void *bytes = malloc(entry_bytes(node, entries[i]) + 1);

        if (!bytes)
            return error_set(err, -ENOMEM, "no host memory for tensor '%s'", entries[i]->name);
        r = read_entry(fd, node, entries[i], data + entries[i]->begin, bytes);
        r = r < 0 ? error_set(err, r, "tensor '%s': %s", entries[i]->name, strerror(-r))
                  : put_held(session->engine, node, bytes, err);
    }
    return r;
}

int allot_restore(struct allot_session *session, const struct allot_output *given, size_t n,
                  const char *path, struct allot_error *err) {
    cleanup(freep) struct allot_output *variables = NULL;
    struct safetensors file = { 0 };
    struct allot_error why = { 0 };
    cleanup(closep) int fd = -1;
    uint64_t data = 0;
    int r = check(session, path, err);

    if (r == 0)
        r = engine_check(session->engine, err);
    if (r == 0)
        r = choose(session, given, n, true, &variables, &n, err);
    if (r < 0)
        return r;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    r = read_head(fd, &file, &data, &why);
    if (r == 0) {
        struct gpu_visit visit = gpus_visit_begin(session->engine->gpus);

        r = restore_from(session, variables, n, fd, &file, data, &why);
        r = engine_name_lost(session->engine, r, &why);
        gpus_visit_end(&visit);
    }
    safetensors_done(&file);
    return r < 0 ? error_set(err, r, "%s: %s", path, why.text) : 0;
}
