/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saver: a checkpoint is one run that fetches the variables, and a file. Restoring adds no node to
 * the graph: it writes directly to the session's variables, with the same locking as a run.
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

static int check(const struct allot_session *session, const char *path, struct allot_error *err) {
    return !session ? error_null(err, "session") : !path ? error_null(err, "path of a file") : 0;
}

/* The variable whose tensor of the file is this one's: the copies of a strategy have one. */
static uint32_t original(const struct allot_graph *graph, uint32_t id) {
    const struct graph_variable *variable = graph_variable(graph, id);

    return !variable || variable->mirror_of == UINT32_MAX ? id : variable->mirror_of;
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
            (is_mirror ? has_mirrors && (n == 0 || is_chosen[original(graph, i)]) : n == 0))
            chosen[(*ret_n)++] = handle_output(graph, (struct edge){ i, 0 });
    }
    *ret = chosen;
    return 0;
}

/* ---- Saving ---------------------------------------------------------------------------------- */

static int save_values(const struct allot_output *variables, struct allot_tensor *const *values,
                       size_t n, const char *path, struct allot_error *err) {
    cleanup(freep) struct safetensors_entry *entries = calloc(n + 1, sizeof(*entries));
    cleanup(freep) char *head = NULL;
    struct whole file;
    size_t head_bytes;
    int r;

    if (!entries)
        return error_set(err, -ENOMEM, "no host memory for a checkpoint");
    for (size_t i = 0; i < n; i++)
        entries[i] = (struct safetensors_entry){
            .name = handle_node(variables[i].node)->name,
            .dtype = values[i]->dtype,
            .shape = values[i]->shape,
            .bytes = values[i]->bytes,
        };
    r = safetensors_format(entries, n, &head, &head_bytes, err);
    if (r == 0)
        r = whole_begin(&file, path, err);
    if (r < 0)
        return r;
    whole_write(&file, head, head_bytes);
    for (size_t i = 0; i < n; i++)
        whole_write(&file, tensor_data(values[i]), values[i]->bytes);
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
    const struct safetensors_entry *entry =
        safetensors_find(file, graph_node(node->graph, original(node->graph, node->id))->name);
    const struct node_output *own = &node->outputs[0];
    char there[SHAPE_TEXT_SIZE], here[SHAPE_TEXT_SIZE];

    if (!entry)
        return error_set(err, -ENOENT, "it has no tensor '%s'", node->name);
    if (entry->dtype == DTYPE_NONE)
        return error_set(
            err, -EINVAL, "tensor '%s' is %s, which is not supported here; the variable is %s %s",
            node->name, entry->foreign, dtype_name(own->dtype), shape_format(&own->shape, here));
    if (entry->dtype != own->dtype || !shape_equal(&entry->shape, &own->shape))
        return error_set(err, -EINVAL, "tensor '%s' is %s %s, but the variable is %s %s",
                         node->name, dtype_name(entry->dtype), shape_format(&entry->shape, there),
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

static int restore_from(struct allot_session *session, const struct allot_output *variables,
                        size_t n, int fd, const struct safetensors *file, uint64_t data,
                        struct allot_error *err) {
    cleanup(freep) const struct safetensors_entry **entries = calloc(n + 1, sizeof(void *));
    int r = entries ? 0 : error_set(err, -ENOMEM, "no host memory for a checkpoint");

    for (size_t i = 0; r == 0 && i < n; i++)
        r = check_entry(file, handle_node(variables[i].node), &entries[i], err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        cleanup(freep) void *bytes = malloc(entries[i]->bytes + 1);

        if (!bytes)
            return error_set(err, -ENOMEM, "no host memory for tensor '%s'", entries[i]->name);
        r = read_at(fd, bytes, entries[i]->bytes, data + entries[i]->begin);
        r = r < 0 ? error_set(err, r, "tensor '%s': %s", entries[i]->name, strerror(-r))
                  : put_held(session->engine, handle_node(variables[i].node), bytes, err);
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
        gpus_visit_end(&visit);
    }
    safetensors_done(&file);
    return r < 0 ? error_set(err, r, "%s: %s", path, why.text) : 0;
}
