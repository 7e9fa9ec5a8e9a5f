/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/graph/graph_reference.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/pool.h"
#include "libclient/kernels/kernel.h"
#include "libclient/ops/ops.h"

enum { VALUES_MAX = 64 };

/* Values of the step, by node and output. */
struct page {
    struct graph_reference *reference;
    struct allot_tensor ***values;
    uint32_t n_nodes;
    struct thread_pool *pool;
};

/* The node that runs, for kernels that ask for memory. */
struct running {
    struct kernel_step step;
    struct allot_tensor **outputs;
    const struct node *node;
};

void graph_reference_init(struct graph_reference *reference, struct allot_graph *graph) {
    ck_assert_int_eq(ops_register_all(NULL), 0);
    ck_assert_int_eq(kernel_register_all(NULL), 0);
    *reference = (struct graph_reference){ .graph = graph };
}

void graph_reference_done(struct graph_reference *reference) {
    struct allot_tensor *tensor;

    for (size_t pos = 0; (tensor = map_next(&reference->variables, &pos));)
        allot_tensor_unref(tensor);
    map_done(&reference->variables);
}

static struct allot_tensor *tensor_new(enum dtype dtype, const struct shape *shape) {
    struct allot_tensor *tensor;

    ck_assert_int_eq(
        allot_tensor_new(&tensor, (enum allot_dtype)dtype, shape->rank, shape->dims, NULL), 0);
    return tensor;
}

static struct allot_tensor *copy(const struct allot_tensor *from) {
    struct allot_tensor *to = tensor_new(from->dtype, &from->shape);

    memcpy(tensor_data(to), tensor_data(from), from->bytes);
    return to;
}

static int output_new(const struct kernel_run *run, uint32_t i, const struct shape *shape,
                      void **ret) {
    struct running *running = (struct running *)(void *)run->step;

    running->outputs[i] = tensor_new(running->node->outputs[i].dtype, shape);
    *ret = tensor_data(running->outputs[i]);
    return 0;
}

static int blame(struct graph_reference *reference, const struct node *node, int r) {
    return error_wrap(&reference->error, r, "node '%s'", node->name);
}

/* Shapes of the outputs now that those of the inputs are whole. */
static int infer(struct page *page, const struct node *node, struct allot_tensor *const *inputs,
                 struct shape *ret) {
    struct shape shapes[VALUES_MAX];
    struct opdef_shapes inference = {
        node, shapes,         node->n_inputs, (const struct allot_tensor *const *)inputs,
        ret,  node->n_outputs
    };

    for (uint32_t i = 0; i < node->n_inputs; i++)
        shapes[i] = inputs[i]->shape;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        ret[i] = shape_unknown();
    return node->op->shape(&inference, &page->reference->error);
}

/* Prepare and run, with memory for the outputs. */
static int compute(struct page *page, const struct node *node, struct allot_tensor *const *inputs,
                   struct allot_tensor **outputs) {
    const struct kernel *kernel = kernel_find(node, KERNEL_CPU);
    struct kernel_value in[VALUES_MAX], out[VALUES_MAX];
    void *in_data[VALUES_MAX], *out_data[VALUES_MAX];
    struct shape shapes[VALUES_MAX];
    struct running running = { .step = { .number = page->reference->step,
                                         .deterministic = true,
                                         .output_new = output_new },
                               .outputs = outputs,
                               .node = node };
    struct kernel_plan plan = { .node = node,
                                .kernel = kernel,
                                .inputs = in,
                                .outputs = out,
                                .n_inputs = node->n_inputs,
                                .n_outputs = node->n_outputs,
                                .random_seed = page->reference->graph->seed + node->id };
    cleanup(freep) void *scratch = NULL;
    struct kernel_run run;
    int r = infer(page, node, inputs, shapes);

    if (r < 0)
        return r;
    ck_assert_msg(kernel, "op %s has no kernel", node->op->name);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        in[i] = (struct kernel_value){ inputs[i]->dtype, inputs[i]->shape, inputs[i] };
        in_data[i] = tensor_data(inputs[i]);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        out[i] = (struct kernel_value){ node->outputs[i].dtype, shapes[i], NULL };
        if (kernel->flags & KERNEL_DYNAMIC)
            continue;
        ck_assert_msg(shape_is_whole(&shapes[i]), "%s", node->name);
        ck_assert_msg(shape_compatible(&shapes[i], &node->outputs[i].shape),
                      "'%s' came out in another shape than was said", node->name);
        outputs[i] = tensor_new(out[i].dtype, &shapes[i]);
        out_data[i] = tensor_data(outputs[i]);
    }
    if (kernel->flags & KERNEL_ALIAS) {
        memcpy(out_data[0], in_data[0], inputs[0]->bytes);
        return 0;
    }
    r = kernel->prepare(&plan, &page->reference->error);
    if (r < 0)
        return r;
    scratch = aligned_alloc(64, (plan.scratch_bytes + 64) / 64 * 64);
    run = (struct kernel_run){ plan.state, in_data, out_data, scratch, page->pool, &running.step };
    r = plan.run(&run);
    if (r < 0)
        page->reference->error = *kernel_failure();
    if (plan.state_free)
        plan.state_free(plan.state);
    else
        free(plan.state);
    return r;
}

/* The value behind a handle; where it has none yet, one to be filled. */
static struct allot_tensor *variable(struct page *page, struct edge edge,
                                     const struct allot_tensor *like) {
    struct map *variables = &page->reference->variables;
    struct allot_tensor *value = map_find(variables, edge.node);

    if (value || !like)
        return value;
    value = tensor_new(like->dtype, &like->shape);
    ck_assert_int_eq(map_put(variables, edge.node, value), 0);
    return value;
}

static int step_node(struct page *page, const struct node *node, struct allot_tensor **outputs) {
    struct allot_tensor *inputs[VALUES_MAX];
    const char *op = node->op->name;

    if (strcmp(op, "Const") == 0) {
        outputs[0] = allot_tensor_ref(graph_node_attr(node, "value")->tensor);
        return 0;
    }
    if (strcmp(op, "Variable") == 0 || strcmp(op, "NoOp") == 0)
        return 0;
    if (strcmp(op, "Placeholder") == 0 && page->values[node->id][0])
        return 0;
    if (strcmp(op, "Placeholder") == 0)
        return error_set(&page->reference->error, -EINVAL, "it was not fed");
    ck_assert_uint_le(node->n_inputs, VALUES_MAX);
    for (uint32_t i = node->n_inputs; i-- > 0;) {
        struct edge from = node->inputs[i];

        inputs[i] = page->values[from.node][from.output];
        if (graph_output(page->reference->graph, from)->is_variable)
            inputs[i] = variable(page, from, strcmp(op, "Assign") == 0 ? inputs[1] : NULL);
        if (!inputs[i])
            return error_set(&page->reference->error, -EINVAL, "variable '%s' has no value",
                             graph_node(page->reference->graph, from.node)->name);
    }
    if (strcmp(op, "ReadVariable") == 0) {
        outputs[0] = copy(inputs[0]);
        return 0;
    }
    return compute(page, node, inputs, outputs);
}

/* What was fed stays, whatever is computed. Takes over the reference. */
static void put(struct page *page, struct edge edge, struct allot_tensor *value) {
    struct allot_tensor **at = &page->values[edge.node][edge.output];

    if (*at)
        allot_tensor_unref(value);
    else
        *at = value;
}

static void page_done(struct page *page) {
    for (uint32_t i = 0; i < page->n_nodes; i++) {
        const struct node *node = graph_node(page->reference->graph, i);

        for (uint32_t o = 0; page->values[i] && o < node->n_outputs; o++)
            allot_tensor_unref(page->values[i][o]);
        free(page->values[i]);
    }
    free(page->values);
    pool_free(page->pool);
}

int graph_reference_run(struct graph_reference *reference, const struct topo_request *request,
                        struct allot_tensor *const *feeds, struct allot_tensor **ret) {
    struct page page = { reference, NULL, graph_n_nodes(reference->graph), NULL };
    cleanup(freep) uint32_t *ids = NULL;
    size_t n;
    int r;

    reference->error.code = 0;
    r = topo_prune(reference->graph, request, &ids, &n, &reference->error);
    if (r < 0)
        return r;
    reference->step++;
    ck_assert_int_eq(pool_new(&page.pool, 0, "test"), 0);
    page.values = calloc(page.n_nodes, sizeof(page.values[0]));
    for (uint32_t i = 0; i < page.n_nodes; i++)
        page.values[i] =
            calloc(graph_node(reference->graph, i)->n_outputs + 1, sizeof(page.values[0][0]));
    for (size_t i = 0; i < request->n_feeds; i++)
        put(&page, request->feeds[i], allot_tensor_ref(feeds[i]));
    for (size_t i = 0; i < n && r == 0; i++) {
        const struct node *node = graph_node(reference->graph, ids[i]);
        struct allot_tensor *outputs[VALUES_MAX] = { NULL };

        ck_assert_uint_le(node->n_outputs, VALUES_MAX);
        r = step_node(&page, node, outputs);
        if (r < 0)
            blame(reference, node, r);
        for (uint32_t o = 0; o < node->n_outputs; o++)
            put(&page, (struct edge){ ids[i], o }, outputs[o]);
    }
    for (size_t i = 0; i < request->n_fetches && r == 0; i++)
        ret[i] =
            allot_tensor_ref(page.values[request->fetches[i].node][request->fetches[i].output]);
    page_done(&page);
    return r;
}
