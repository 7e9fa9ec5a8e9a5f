/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode: a graph from untrusted bytes.
 *
 * A number in the file allocates nothing unless enough bytes follow it, and each node is made by
 * build_add(): a file cannot contain what a program could not build. A file is refused if a node
 * has later nodes as inputs, if two nodes have the same name, or if a node would differ from what
 * the file says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/build.h"
#include "libclient/graph/file.h"
#include "libclient/graph/format.h"

struct byte_reader {
    const uint8_t *bytes;
    size_t at, size;
    int r; /* the first failure: -EBADMSG where the bytes end too early */
};

/* A node as read from the file, until it is built. */
struct file_node {
    char *op, *name, *device;
    struct edge *inputs;
    uint32_t n_inputs, *controls, n_controls, *colocate, n_colocate;
    struct build_attr attrs[OPDEF_ATTRS_MAX];
    uint32_t n_attrs;
};

static void draft_done(struct file_node *draft) {
    free(draft->op);
    free(draft->name);
    free(draft->device);
    free(draft->inputs);
    free(draft->controls);
    free(draft->colocate);
    for (uint32_t i = 0; i < draft->n_attrs; i++) {
        free((char *)draft->attrs[i].name);
        attr_done(&draft->attrs[i].value);
    }
}

static const uint8_t *take(struct byte_reader *reader, size_t n) {
    const uint8_t *start = reader->bytes + reader->at;

    if (reader->r == 0 && n > reader->size - reader->at)
        reader->r = -EBADMSG;
    if (reader->r < 0)
        return NULL;
    reader->at += n;
    return start;
}

static uint64_t number(struct byte_reader *reader, size_t n) {
    const uint8_t *bytes = take(reader, n);
    uint64_t value = 0;

    for (size_t i = 0; i < n && bytes; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* A count of things that take at least `bytes` each, which must still be there. */
static uint32_t count(struct byte_reader *reader, size_t bytes) {
    uint32_t n = (uint32_t)number(reader, 4);

    if (reader->r == 0 && n > (reader->size - reader->at) / bytes)
        reader->r = -EBADMSG;
    return reader->r < 0 ? 0 : n;
}

static void *memory(struct byte_reader *reader, size_t n, size_t size) {
    void *block = reader->r < 0 ? NULL : calloc(n ? n : 1, size);

    if (reader->r == 0 && !block)
        reader->r = -ENOMEM;
    return block;
}

static char *text(struct byte_reader *reader) {
    uint32_t n = count(reader, 1);
    const uint8_t *bytes = n > FORMAT_TEXT_MAX ? NULL : take(reader, n);
    char *copy;

    if (reader->r == 0 && (!bytes || memchr(bytes, '\0', n)))
        reader->r = -EBADMSG;
    copy = memory(reader, (size_t)n + 1, 1);
    if (copy && n)
        memcpy(copy, bytes, n);
    return copy;
}

static uint32_t *ids(struct byte_reader *reader, uint32_t *ret_n) {
    uint32_t n = count(reader, 4), *list = memory(reader, n, sizeof(*list));

    for (uint32_t i = 0; i < n && list; i++)
        list[i] = (uint32_t)number(reader, 4);
    *ret_n = n;
    return list;
}

static struct shape shape(struct byte_reader *reader) {
    int rank = (int8_t)number(reader, 1);
    int64_t dims[SHAPE_RANK_MAX];
    struct shape made = { 0 };

    for (int d = 0; d < rank && d < SHAPE_RANK_MAX; d++)
        dims[d] = (int64_t)number(reader, 8);
    if (reader->r == 0 && shape_make(&made, rank, dims) < 0)
        reader->r = -EBADMSG;
    return made;
}

static struct allot_tensor *tensor(struct byte_reader *reader) {
    enum dtype dtype = (enum dtype)number(reader, 1);
    struct shape own = shape(reader), checked;
    struct allot_tensor *made = NULL;
    const uint8_t *data;
    size_t bytes;

    if (reader->r < 0)
        return NULL;
    if (tensor_check(&checked, &bytes, (int)dtype, own.rank, own.dims, NULL) < 0) {
        reader->r = -EBADMSG;
        return NULL;
    }
    data = take(reader, bytes);
    if (data &&
        allot_tensor_copy_of(&made, (enum allot_dtype)dtype, own.rank, own.dims, data, NULL) < 0)
        reader->r = -ENOMEM;
    if (made && dtype == DTYPE_BOOL)
        for (size_t i = 0; i < bytes; i++)
            if (data[i] > 1)
                reader->r = -EBADMSG; /* kernels count on 0 and 1 */
    return made;
}

static struct attr attr(struct byte_reader *reader) {
    struct attr made = { .kind = ATTR_NONE };
    uint64_t kind = number(reader, 1), bits;
    uint32_t n;

    switch (kind) {
    case ATTR_INT:
        made.i = (int64_t)number(reader, 8);
        break;
    case ATTR_FLOAT:
        bits = number(reader, 8);
        memcpy(&made.f, &bits, sizeof(bits));
        break;
    case ATTR_BOOL:
        bits = number(reader, 1);
        if (bits > 1 && reader->r == 0)
            reader->r = -EBADMSG;
        made.b = bits == 1;
        break;
    case ATTR_DTYPE:
        made.dtype = (enum dtype)number(reader, 1);
        break;
    case ATTR_SHAPE:
        made.shape = shape(reader);
        break;
    case ATTR_STRING:
        made.string = text(reader);
        break;
    case ATTR_TENSOR:
        made.tensor = tensor(reader);
        break;
    case ATTR_INTS:
        n = count(reader, 8);
        made.ints.values = memory(reader, n, sizeof(made.ints.values[0]));
        for (uint32_t i = 0; i < n && made.ints.values; i++)
            made.ints.values[i] = (int64_t)number(reader, 8);
        made.ints.n = n;
        break;
    default:
        if (reader->r == 0)
            reader->r = -EBADMSG;
        return made;
    }
    made.kind = (enum attr_kind)kind;
    return made;
}

static void read_draft(struct byte_reader *reader, struct file_node *draft) {
    uint32_t n_attrs;

    draft->op = text(reader);
    draft->name = text(reader);
    draft->device = text(reader);
    draft->n_inputs = count(reader, 8);
    draft->inputs = memory(reader, draft->n_inputs, sizeof(draft->inputs[0]));
    for (uint32_t i = 0; i < draft->n_inputs && draft->inputs; i++) {
        draft->inputs[i].node = (uint32_t)number(reader, 4);
        draft->inputs[i].output = (uint32_t)number(reader, 4);
    }
    draft->controls = ids(reader, &draft->n_controls);
    draft->colocate = ids(reader, &draft->n_colocate);
    n_attrs = count(reader, 5);
    if (n_attrs > OPDEF_ATTRS_MAX && reader->r == 0)
        reader->r = -EBADMSG;
    for (uint32_t i = 0; i < n_attrs && reader->r == 0; i++) {
        draft->attrs[i].name = text(reader);
        draft->attrs[i].value = attr(reader);
        draft->n_attrs = i + 1; /* so that an incomplete one is freed, too */
    }
}

/* The name as it is, outside of all scopes (name.h). */
static char *whole_name(struct byte_reader *reader, const char *name) {
    size_t length = strlen(name);
    char *whole = memory(reader, length + 2, 1);

    if (whole) {
        memcpy(whole, name, length);
        whole[length] = '/';
    }
    return whole;
}

static int make(struct allot_graph *graph, struct byte_reader *reader,
                const struct file_node *draft, uint32_t expected, struct allot_error *err) {
    struct build_node request = {
        .op = draft->op,
        .device = draft->device,
        .inputs = draft->inputs,
        .n_inputs = draft->n_inputs,
        .attrs = draft->attrs,
        .n_attrs = draft->n_attrs,
        .controls = draft->controls,
        .n_controls = draft->n_controls,
        .colocate = draft->colocate,
        .n_colocate = draft->n_colocate,
    };
    cleanup(freep) char *name = whole_name(reader, draft->name);
    uint32_t id;
    int r;

    if (!name)
        return error_set(err, -ENOMEM, "no host memory for a graph");
    request.name = name;
    r = build_add(graph, &request, &id, err);
    if (r == -EINVAL)
        return error_wrap(err, -EBADMSG, "node %u of the file", expected);
    if (r < 0)
        return error_wrap(err, r, "node %u of the file", expected);
    if (id != expected || strcmp(graph_node(graph, id)->name, draft->name) != 0)
        return error_set(err, -EBADMSG,
                         "node %u of the file, '%.64s', would differ: its name is taken, or "
                         "it needs a value and has a variable",
                         expected, draft->name);
    return 0;
}

/* Whether node `id` is of that op, belongs to the variable and is not tied to other nodes. */
static bool belongs(const struct allot_graph *graph, uint32_t id, const char *op,
                    uint32_t variable) {
    const struct node *node;

    if (id >= graph_n_nodes(graph))
        return false;
    node = graph_node(graph, id);
    return strcmp(node->op->name, op) == 0 && node->inputs[0].node == variable &&
           node->inputs[0].output == 0;
}

static int read_variables(struct allot_graph *graph, struct byte_reader *reader,
                          struct allot_error *err) {
    uint32_t n = count(reader, 12);

    for (uint32_t i = 0; i < n && reader->r == 0; i++) {
        uint32_t id = (uint32_t)number(reader, 4), initial = (uint32_t)number(reader, 4),
                 read = (uint32_t)number(reader, 4);
        struct graph_variable *variable = graph_variable(graph, id);

        if (reader->r < 0)
            break;
        if (!variable || (initial != UINT32_MAX && !belongs(graph, initial, "Assign", id)) ||
            (read != UINT32_MAX &&
             (!belongs(graph, read, "ReadVariable", id) || graph_node(graph, read)->n_controls)))
            return error_set(err, -EBADMSG,
                             "variable %u of the file: its nodes do not belong to it", i);
        variable->initial = initial;
        variable->read = read;
    }
    return 0;
}

static int read_graph(struct allot_graph *graph, struct byte_reader *reader,
                      struct allot_error *err) {
    uint32_t n_nodes = (uint32_t)number(reader, 4);
    int r = 0;

    graph->seed = number(reader, 8);
    for (uint32_t i = 0; i < n_nodes && r == 0 && reader->r == 0; i++) {
        struct file_node draft = { 0 };

        read_draft(reader, &draft);
        if (reader->r == 0)
            r = make(graph, reader, &draft, i, err);
        draft_done(&draft);
    }
    if (r == 0 && reader->r == 0)
        r = read_variables(graph, reader, err);
    if (r < 0)
        return r;
    if (reader->r == -ENOMEM)
        return error_set(err, -ENOMEM, "no host memory for a graph of %u nodes", n_nodes);
    if (reader->r < 0)
        return error_set(err, reader->r, "the file is damaged at byte %zu", reader->at);
    if (reader->at != reader->size)
        return error_set(err, -EBADMSG, "%zu bytes follow the graph", reader->size - reader->at);
    return 0;
}

int graph_decode(struct allot_graph **ret, const uint8_t *bytes, size_t size,
                 struct allot_error *err) {
    cleanup(graph_unrefp) struct allot_graph *graph = NULL;
    struct byte_reader reader = { .bytes = bytes, .size = size };
    uint64_t version;
    int r;

    if (size < FORMAT_MAGIC_SIZE + 24 || memcmp(bytes, FORMAT_MAGIC, FORMAT_MAGIC_SIZE) != 0)
        return error_set(err, -EBADMSG, "this is not a graph file");
    reader.at = FORMAT_MAGIC_SIZE;
    version = number(&reader, 4);
    if (version != FORMAT_VERSION)
        return error_set(err, -ENOTSUP,
                         "the file has version %" PRIu64 ", and only %d is known here", version,
                         FORMAT_VERSION);
    reader.at = size - 4;
    if (number(&reader, 4) != crc32c(0, bytes, size - 4))
        return error_set(err, -EBADMSG, "the checksum is wrong: the file is damaged or cut");
    reader.at = FORMAT_MAGIC_SIZE + 4;
    reader.size = size - 4;
    if (graph_new(&graph) < 0)
        return error_set(err, -ENOMEM, "no host memory for a graph");
    r = read_graph(graph, &reader, err);
    if (r < 0)
        return r;
    *ret = TAKE(graph);
    return 0;
}
