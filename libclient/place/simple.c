/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simple: TensorFlow's placer.
 *
 * It gathers nodes that must or want to share a device in groups (group.h): first those joined by
 * an edge with a reference or a resource, which always binds; then those that ask to be colocated,
 * which soft placement may ignore. Then it places nodes in graph order: a group goes where the
 * first of its nodes goes, to the best device that matches the group's requests and has kernels for
 * all of its nodes. Two heuristics save copies: a node that reads only the shape of its input stays
 * with it, and a source of values waits until its consumers are placed and follows them if they are
 * on one device.
 */
#include "libclient/place/placer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/halt.h"
#include "libclient/place/place.h"

static const char *const reasons[] = {
    [PLACER_FIRST] = "the first device with a kernel",
    [PLACER_ASSIGNED] = "placed before",
    [PLACER_REQUESTED] = "requested",
    [PLACER_GROUP] = "with its group",
    [PLACER_INPUT] = "with its input, of which it reads only the shape",
    [PLACER_CONSUMERS] = "with its consumers",
    [PLACER_SOFT] = "soft placement: the request cannot be met",
};

const char *placer_reason_text(enum placer_reason reason) {
    return reasons[reason];
}

enum placer_code place_fail(struct place_state *state, enum placer_code code, uint32_t node,
                            const char *format, ...) {
    va_list args;
    int n;

    state->error->code = code;
    state->error->node = node;
    va_start(args, format);
    n = vsnprintf(state->error->text, sizeof(state->error->text), format, args);
    va_end(args);
    error_cut(state->error->text, sizeof(state->error->text), (size_t)n);
    return code;
}

void place_list(struct place_listing *list, const char *format, ...) {
    va_list args;

    va_start(args, format);
    if (list->n < sizeof(list->text))
        list->n +=
            (size_t)vsnprintf(list->text + list->n, sizeof(list->text) - list->n, format, args);
    va_end(args);
    error_cut(list->text, sizeof(list->text), list->n);
}

const char *place_list_devices(const struct place_state *state, struct place_listing *list) {
    const struct placer_problem *problem = state->problem;

    place_list(list, "[ ");
    for (size_t i = 0; i < problem->n_devices; i++)
        place_list(list, "%s%s", i ? ", " : "", problem->devices[i]);
    place_list(list, " ]");
    return list->text;
}

static enum placer_code no_memory(struct place_state *state) {
    return place_fail(state, PLACER_NO_MEMORY, UINT32_MAX, "no host memory to place the graph");
}

enum placer_code place_check(struct place_state *state) {
    return halt_is_set(state->problem->halt)
               ? place_fail(state, PLACER_CANCELLED, UINT32_MAX, "the placement was cancelled")
               : PLACER_OK;
}

/* ---- Step 1: what each node can and wants ---------------------------------------------------- */

static int by_priority(const void *a, const void *b) {
    const struct placer_kernel *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return x->type < y->type ? -1 : x->type > y->type;
}

/* The kernels' types that some device has, the most preferred first. */
static const struct group_types *types_of_op(struct place_state *state, uint32_t op) {
    const struct placer_op *def = &state->problem->ops[op];
    struct group_types types = { 0 };

    if (state->op_types[op])
        return state->op_types[op];
    for (size_t i = 0; i < def->n_kernels && types.n < PLACER_TYPES_MAX; i++)
        if (def->kernels[i].type < PLACER_TYPES_MAX && state->have_type[def->kernels[i].type])
            types.types[types.n++] = def->kernels[i];
    qsort(types.types, types.n, sizeof(types.types[0]), by_priority);
    state->op_types[op] = group_set_keep_types(&state->groups, &types);
    return state->op_types[op];
}

static uint32_t type_by_name(const struct placer_problem *problem, const char *name) {
    for (uint32_t i = 0; i < problem->n_types; i++)
        if (strcmp(problem->types[i], name) == 0)
            return i;
    return UINT32_MAX;
}

/* An op without kernels may run on another task, whose kernels are not known here. */
static bool is_remote(const struct place_state *state, const struct spec *requested) {
    return state->has_local && requested && requested->has_job && requested->has_replica &&
           requested->has_task &&
           (strcmp(requested->job, state->local.job) != 0 ||
            requested->replica != state->local.replica || requested->task != state->local.task);
}

static const struct group_types *remote_types(struct place_state *state,
                                              const struct spec *requested) {
    const struct placer_problem *problem = state->problem;
    struct group_types types = { 0 };

    for (uint32_t i = 0; i < problem->n_types && i < PLACER_TYPES_MAX; i++)
        if (!requested->has_type || strcmp(problem->types[i], requested->type) == 0)
            types.types[types.n++] = (struct placer_kernel){ i, 0 };
    return group_set_keep_types(&state->groups, &types);
}

static int parse_kept(struct place_state *state, const char *text, const struct spec **ret) {
    struct spec spec;

    if (state->last_text && strcmp(state->last_text, text) == 0) {
        *ret = state->last_spec;
        return 0;
    }
    if (spec_parse(&spec, text) < 0)
        return -EINVAL;
    *ret = group_set_keep_spec(&state->groups, &spec);
    if (!*ret)
        return -ENOMEM;
    state->last_text = text;
    state->last_spec = *ret;
    return 0;
}

static enum placer_code begin_assigned(struct place_state *state, uint32_t i, struct group *group) {
    const struct placer_node *node = &state->problem->nodes[i];
    const struct placer_op *op = &state->problem->ops[node->op];
    uint32_t device = 0;
    bool supported = false;
    int r;

    r = parse_kept(state, node->assigned, &group->assigned);
    if (r == -EINVAL)
        return place_fail(state, PLACER_INTERNAL, i, "Malformed assigned device '%s' of node %s",
                          node->assigned, node->name);
    if (r < 0)
        return no_memory(state);
    group->requested = group->assigned;
    while (device < state->problem->n_devices &&
           strcmp(state->problem->devices[device], node->assigned) != 0)
        device++;
    if (device == state->problem->n_devices)
        return place_fail(state, PLACER_INTERNAL, i,
                          "Assigned device '%s' does not match any device (node %s)",
                          node->assigned, node->name);
    for (size_t k = 0; k < op->n_kernels; k++)
        supported |= op->kernels[k].type == state->devices[device].type;
    if (!supported)
        return place_fail(
            state, PLACER_INTERNAL, i,
            "Assigned device '%s' does not have registered OpKernel support for %s (node "
            "%s)",
            node->assigned, op->name, node->name);
    return PLACER_OK;
}

static enum placer_code no_kernel(struct place_state *state, uint32_t i) {
    const struct placer_problem *problem = state->problem;
    const struct placer_op *op = &problem->ops[problem->nodes[i].op];
    struct place_listing kernels = { .text = "" }, devices = { .text = "" };

    for (size_t k = 0; k < op->n_kernels; k++)
        place_list(&kernels, "%sdevice='%s'", k ? ", " : "", problem->types[op->kernels[k].type]);
    if (op->n_kernels == 0)
        place_list(&kernels, "<no registered kernels>");
    return place_fail(
        state, PLACER_INVALID_ARGUMENT, i,
        "No OpKernel was registered to support Op '%s' used by {{node %s}}. Registered "
        "kernels: %s. Registered devices: %s",
        op->name, problem->nodes[i].name, kernels.text, place_list_devices(state, &devices));
}

static bool is_source(const struct placer_op *op) {
    return op->n_inputs == 0 && op->n_outputs == 1 && op->outputs[0] != PLACER_VALUE;
}

static enum placer_code begin_node(struct place_state *state, uint32_t i) {
    const struct placer_node *node = &state->problem->nodes[i];
    const struct placer_op *op = &state->problem->ops[node->op];
    struct group *group = &state->groups.groups[i];
    int r;

    group->types = types_of_op(state, node->op);
    if (!group->types)
        return no_memory(state);
    if (place_given(node->assigned))
        return begin_assigned(state, i, group);
    if (place_given(node->requested)) {
        r = parse_kept(state, node->requested, &group->requested);
        if (r == -ENOMEM)
            return no_memory(state);
        if (r < 0 && group->types->n == 0)
            return no_kernel(state, i);
        if (r < 0)
            return place_fail(state, PLACER_INVALID_ARGUMENT, i,
                              "Malformed device specification '%s' of node %s", node->requested,
                              node->name);
    }
    if (group->types->n == 0) {
        if (op->n_kernels != 0 || !is_remote(state, group->requested))
            return no_kernel(state, i);
        group->types = remote_types(state, group->requested);
        if (!group->types)
            return no_memory(state);
    }
    if (is_source(op))
        group->resource = group->requested;
    return PLACER_OK;
}

/* ---- Steps 2 to 4: nodes that share a device ------------------------------------------------ */

static enum placer_code incompatible_edge(struct place_state *state, uint32_t node,
                                          uint32_t producer, const char *strength,
                                          const struct spec *mine, const struct spec *theirs) {
    char a[SPEC_TEXT_SIZE], b[SPEC_TEXT_SIZE];

    return place_fail(
        state, PLACER_INVALID_ARGUMENT, node,
        "Cannot place the graph because a reference or resource edge connects colocation "
        "groups with incompatible %s devices: %s vs %s. The edge goes from %s to %s",
        strength, spec_format(theirs, b), spec_format(mine, a),
        state->problem->nodes[producer].name, state->problem->nodes[node].name);
}

static enum placer_code cannot_colocate(struct place_state *state, uint32_t node, uint32_t other,
                                        enum group_clash clash, const char *what,
                                        const struct spec *a, const struct spec *b) {
    const char *name = state->problem->nodes[node].name, *with = state->problem->nodes[other].name;
    char a_text[SPEC_TEXT_SIZE], b_text[SPEC_TEXT_SIZE];

    if (clash == GROUP_NO_MEMORY)
        return no_memory(state);
    if (clash == GROUP_NO_TYPE)
        return place_fail(
            state, PLACER_INVALID_ARGUMENT, node,
            "Cannot colocate nodes %s and %s because no device type supports both of those "
            "nodes and the other nodes colocated with them.",
            name, with);
    return place_fail(
        state, PLACER_INVALID_ARGUMENT, node,
        "Cannot colocate nodes %s and %s: Cannot merge devices with incompatible %s: '%s' "
        "and '%s'",
        name, with, what, spec_format(a, a_text), spec_format(b, b_text));
}

static enum placer_code bind_edge(struct place_state *state, uint32_t node, uint32_t producer) {
    struct group *mine = group_set_of(&state->groups, node);
    struct group *theirs = group_set_of(&state->groups, producer);
    const struct spec *a = NULL, *b = NULL;
    const char *what = NULL;
    enum group_clash clash;

    if (mine->assigned && theirs->assigned && !spec_compatible(mine->assigned, theirs->assigned))
        return incompatible_edge(state, node, producer, "assigned", mine->assigned,
                                 theirs->assigned);
    if (mine->resource && theirs->resource && !spec_compatible(mine->resource, theirs->resource))
        return incompatible_edge(state, node, producer, "resource", mine->resource,
                                 theirs->resource);
    if (mine->requested && theirs->requested &&
        !spec_compatible(mine->requested, theirs->requested))
        mine->requested = theirs->requested;
    clash = group_set_merge(&state->groups, node, producer, false, &what, &a, &b);
    return clash == GROUP_MERGED ? PLACER_OK
                                 : cannot_colocate(state, node, producer, clash, what, a, b);
}

static enum placer_code gather(struct place_state *state) {
    const struct placer_problem *problem = state->problem;
    enum placer_code code;

    for (uint32_t i = 0; i < problem->n_nodes; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];

        code = place_check(state);
        if (code != PLACER_OK)
            return code;
        for (size_t input = 0; input < op->n_inputs; input++)
            if (op->inputs[input] != PLACER_VALUE) {
                code = bind_edge(state, i, problem->nodes[i].inputs[input].node);
                if (code != PLACER_OK)
                    return code;
            }
    }
    for (uint32_t i = 0; i < problem->n_nodes; i++)
        for (size_t k = 0; k < problem->nodes[i].n_colocate; k++) {
            uint32_t other = problem->nodes[i].colocate[k];
            const struct spec *a = NULL, *b = NULL;
            const char *what = NULL;
            enum group_clash clash =
                group_set_merge(&state->groups, i, other, problem->soft, &what, &a, &b);

            if (clash == GROUP_NO_MEMORY || (clash != GROUP_MERGED && !problem->soft))
                return cannot_colocate(state, i, other, clash, what, a, b);
        }
    return PLACER_OK;
}

static bool is_compiler_type(const char *name) {
    return strncmp(name, "XLA_", 4) == 0;
}

static bool names_compiler_type(const struct spec *spec) {
    return spec && spec->has_type && is_compiler_type(spec->type);
}

/* A compiler's devices are used only on request. */
static enum placer_code drop_compiler_types(struct place_state *state) {
    const struct placer_problem *problem = state->problem;
    const struct group_types *before = NULL, *after = NULL;

    for (uint32_t i = 0; i < problem->n_nodes; i++) {
        struct group *group = &state->groups.groups[i];
        struct group_types kept = { 0 };

        if (group->parent != i || names_compiler_type(group->assigned) ||
            names_compiler_type(group->resource) || names_compiler_type(group->requested))
            continue;
        if (group->types == before) {
            group->types = after;
            continue;
        }
        for (uint32_t t = 0; t < group->types->n; t++)
            if (!is_compiler_type(problem->types[group->types->types[t].type]))
                kept.types[kept.n++] = group->types->types[t];
        before = after = group->types;
        if (kept.n == 0 || kept.n == group->types->n)
            continue;
        after = group_set_keep_types(&state->groups, &kept);
        if (!after)
            return no_memory(state);
        group->types = after;
    }
    return PLACER_OK;
}

/* ---- The whole ------------------------------------------------------------------------------- */

struct named {
    const char *name;
    uint32_t device;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static enum placer_code begin_devices(struct place_state *state) {
    const struct placer_problem *problem = state->problem;
    cleanup(freep) struct named *names = calloc(problem->n_devices, sizeof(*names));

    if (!names)
        return no_memory(state);
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        struct place_device *device = &state->devices[i];

        if (spec_parse(&device->spec, problem->devices[i]) < 0 || !spec_is_full(&device->spec))
            return place_fail(state, PLACER_INTERNAL, UINT32_MAX, "'%s' is not a full device name",
                              problem->devices[i]);
        device->type = type_by_name(problem, device->spec.type);
        if (device->type < PLACER_TYPES_MAX)
            state->have_type[device->type] = true;
        names[i] = (struct named){ problem->devices[i], i };
    }
    qsort(names, problem->n_devices, sizeof(*names), by_name);
    for (uint32_t i = 0; i < problem->n_devices; i++)
        state->devices[names[i].device].rank = i;
    state->has_local =
        place_given(problem->local_device) && spec_parse(&state->local, problem->local_device) == 0;
    return PLACER_OK;
}

/* Form the groups, and see what each wants. */
static enum placer_code form_groups(struct place_state *state) {
    const struct placer_problem *problem = state->problem;
    enum placer_code code;

    if (problem->n_devices == 0)
        return place_fail(state, PLACER_FAILED_PRECONDITION, UINT32_MAX,
                          "No devices are registered");
    code = begin_devices(state);
    for (uint32_t i = 0; i < problem->n_nodes && code == PLACER_OK; i++)
        if ((code = place_check(state)) == PLACER_OK)
            code = begin_node(state, i);
    if (code == PLACER_OK)
        code = gather(state);
    return code == PLACER_OK ? drop_compiler_types(state) : code;
}

static enum placer_code state_init(struct place_state *state, const struct placer_problem *problem,
                                   struct placer_error *error) {
    size_t n = MAX(problem->n_nodes, (size_t)1), n_ops = MAX(problem->n_ops, (size_t)1);

    *error = (struct placer_error){ PLACER_OK, UINT32_MAX, "" };
    *state = (struct place_state){ .problem = problem, .error = error };
    state->devices = calloc(MAX(problem->n_devices, (size_t)1), sizeof(*state->devices));
    state->op_types = calloc(n_ops, sizeof(*state->op_types));
    state->op_choice = malloc(n_ops * sizeof(*state->op_choice));
    state->placed = malloc(n * sizeof(*state->placed));
    state->reasons = calloc(n, sizeof(*state->reasons));
    state->consumers_at = malloc(n * sizeof(*state->consumers_at));
    if (!state->devices || !state->op_types || !state->op_choice || !state->placed ||
        !state->reasons || !state->consumers_at ||
        group_set_init(&state->groups, (uint32_t)problem->n_nodes) < 0)
        return no_memory(state);
    for (size_t i = 0; i < problem->n_ops; i++)
        state->op_choice[i] = UINT32_MAX;
    for (size_t i = 0; i < problem->n_nodes; i++)
        state->placed[i] = UINT32_MAX;
    return PLACER_OK;
}

static void state_done(struct place_state *state) {
    group_set_done(&state->groups);
    free(state->consumers_at);
    free(state->reasons);
    free(state->placed);
    free(state->op_choice);
    free(state->op_types);
    free(state->devices);
}

enum placer_code placer_choices(const struct placer_problem *problem,
                                struct placer_choice *ret_choices, struct placer_error *error) {
    cleanup(state_done) struct place_state state;
    enum placer_code code = state_init(&state, problem, error);

    if (code == PLACER_OK && problem->n_devices > PLACER_CHOICES_DEVICES_MAX)
        code = place_fail(&state, PLACER_FAILED_PRECONDITION, UINT32_MAX,
                          "%zu devices are more than the %d that this placer can use",
                          problem->n_devices, PLACER_CHOICES_DEVICES_MAX);
    if (code == PLACER_OK)
        code = form_groups(&state);
    return code == PLACER_OK ? place_choices(&state, ret_choices) : code;
}

enum placer_code placer_simple(const struct placer_problem *problem, uint32_t *ret_devices,
                               enum placer_reason *ret_reasons, struct placer_error *error) {
    cleanup(state_done) struct place_state state;
    enum placer_code code = state_init(&state, problem, error);

    if (code == PLACER_OK)
        code = form_groups(&state);
    if (code == PLACER_OK)
        code = place_all(&state);
    if (code == PLACER_OK) {
        memcpy(ret_devices, state.placed, problem->n_nodes * sizeof(*ret_devices));
        if (ret_reasons)
            memcpy(ret_reasons, state.reasons, problem->n_nodes * sizeof(*ret_reasons));
    }
    return code;
}
