/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simple: TensorFlow's placer.
 *
 * Nodes that must or want to share a device are gathered in groups (group.h): first those that an
 * edge with a reference or a resource binds, which is law, then those that ask to be colocated,
 * which is a wish where placement is soft. Then nodes are placed in graph order: a group goes where
 * the first of its nodes goes, to the best device that matches what the group is asked for and has
 * kernels for all of it. Two heuristics save copies: a node that reads only the shape of its input
 * stays with it, and a source of values waits until its consumers are placed and follows them if
 * they are on one device.
 */
#include "libclient/place/placer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/place/group.h"

struct device {
    struct spec spec;
    uint32_t type; /* index of problem.types; UINT32_MAX: none that an op knows */
    uint32_t rank; /* by name, bytewise */
};

struct state {
    const struct placer_problem *problem;
    struct placer_error *error;
    struct groups groups;
    struct device *devices;
    bool have_type[PLACER_TYPES_MAX]; /* some device is of it */
    struct spec local;
    bool has_local;
    const struct group_types **op_types; /* supported types of each op; NULL: not asked yet */
    uint32_t *op_choice;                 /* best device of an op that nobody asks anything of */
    uint32_t *placed;                    /* device of each node */
    enum placer_reason *reasons;
    uint32_t *consumers_at; /* the one device of a generator's consumers; see below */
    const char *last_text;  /* the spec text that was parsed last, as most nodes repeat it */
    const struct spec *last_spec;
};

/* Of consumers_at. */
#define NOBODY  (UINT32_MAX - 1)
#define SEVERAL (UINT32_MAX - 2)

static const char *const reasons[] = {
    [PLACER_FIRST] = "the first device with a kernel",
    [PLACER_ASSIGNED] = "placed before",
    [PLACER_REQUESTED] = "requested",
    [PLACER_GROUP] = "with its group",
    [PLACER_INPUT] = "with its input, of which it reads only the shape",
    [PLACER_CONSUMERS] = "with its consumers",
    [PLACER_SOFT] = "soft placement: what was requested cannot be had",
};

const char *placer_reason_text(enum placer_reason reason) {
    return reasons[reason];
}

const char *placer_code_name(enum placer_code code) {
    static const char *const names[] = {
        [PLACER_OK] = "OK",
        [PLACER_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [PLACER_INTERNAL] = "INTERNAL",
        [PLACER_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [PLACER_NO_MEMORY] = "RESOURCE_EXHAUSTED",
    };

    return names[code];
}

__attribute__((format(printf, 4, 5))) static enum placer_code fail(struct state *state,
                                                                   enum placer_code code,
                                                                   uint32_t node,
                                                                   const char *format, ...) {
    va_list args;

    state->error->code = code;
    state->error->node = node;
    va_start(args, format);
    vsnprintf(state->error->text, sizeof(state->error->text), format, args);
    va_end(args);
    return code;
}

static enum placer_code no_memory(struct state *state) {
    return fail(state, PLACER_NO_MEMORY, UINT32_MAX, "no host memory to place the graph");
}

static bool given(const char *text) {
    return text && *text;
}

static const char *text_of(const char *text) {
    return text ? text : "";
}

/* Lists in messages: comma-separated, cut where there is no room. */
struct listing {
    char text[512];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void list_add(struct listing *list, const char *format,
                                                           ...) {
    va_list args;

    va_start(args, format);
    if (list->n < sizeof(list->text))
        list->n +=
            (size_t)vsnprintf(list->text + list->n, sizeof(list->text) - list->n, format, args);
    va_end(args);
}

static const char *list_devices(const struct state *state, struct listing *list) {
    const struct placer_problem *problem = state->problem;

    list_add(list, "[ ");
    for (size_t i = 0; i < problem->n_devices; i++)
        list_add(list, "%s%s", i ? ", " : "", problem->devices[i]);
    list_add(list, " ]");
    return list->text;
}

/* ---- Step 1: what each node can and wants ------------------------------------------------------
 */

static int by_priority(const void *a, const void *b) {
    const struct placer_kernel *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return x->type < y->type ? -1 : x->type > y->type;
}

/* The kernels' types that some device has, the most preferred first. */
static const struct group_types *types_of_op(struct state *state, uint32_t op) {
    const struct placer_op *def = &state->problem->ops[op];
    struct group_types types = { 0 };

    if (state->op_types[op])
        return state->op_types[op];
    for (size_t i = 0; i < def->n_kernels && types.n < PLACER_TYPES_MAX; i++)
        if (def->kernels[i].type < PLACER_TYPES_MAX && state->have_type[def->kernels[i].type])
            types.types[types.n++] = def->kernels[i];
    qsort(types.types, types.n, sizeof(types.types[0]), by_priority);
    state->op_types[op] = groups_keep_types(&state->groups, &types);
    return state->op_types[op];
}

static uint32_t type_by_name(const struct placer_problem *problem, const char *name) {
    for (uint32_t i = 0; i < problem->n_types; i++)
        if (strcmp(problem->types[i], name) == 0)
            return i;
    return UINT32_MAX;
}

/* An op without kernels may run on another task, whose kernels are not known here. */
static bool is_remote(const struct state *state, const struct spec *requested) {
    return state->has_local && requested && requested->has_job && requested->has_replica &&
           requested->has_task &&
           (strcmp(requested->job, state->local.job) != 0 ||
            requested->replica != state->local.replica || requested->task != state->local.task);
}

static const struct group_types *remote_types(struct state *state, const struct spec *requested) {
    const struct placer_problem *problem = state->problem;
    struct group_types types = { 0 };

    for (uint32_t i = 0; i < problem->n_types && i < PLACER_TYPES_MAX; i++)
        if (!requested->has_type || strcmp(problem->types[i], requested->type) == 0)
            types.types[types.n++] = (struct placer_kernel){ i, 0 };
    return groups_keep_types(&state->groups, &types);
}

static int parse_kept(struct state *state, const char *text, const struct spec **ret) {
    struct spec spec;

    if (state->last_text && strcmp(state->last_text, text) == 0) {
        *ret = state->last_spec;
        return 0;
    }
    if (spec_parse(&spec, text) < 0)
        return -EINVAL;
    *ret = groups_keep_spec(&state->groups, &spec);
    if (!*ret)
        return -ENOMEM;
    state->last_text = text;
    state->last_spec = *ret;
    return 0;
}

static enum placer_code begin_assigned(struct state *state, uint32_t i, struct group *group) {
    const struct placer_node *node = &state->problem->nodes[i];
    const struct placer_op *op = &state->problem->ops[node->op];
    uint32_t device = 0;
    bool supported = false;
    int r;

    r = parse_kept(state, node->assigned, &group->assigned);
    if (r == -EINVAL)
        return fail(state, PLACER_INTERNAL, i, "Malformed assigned device '%s' of node %s",
                    node->assigned, node->name);
    if (r < 0)
        return no_memory(state);
    group->requested = group->assigned;
    while (device < state->problem->n_devices &&
           strcmp(state->problem->devices[device], node->assigned) != 0)
        device++;
    if (device == state->problem->n_devices)
        return fail(state, PLACER_INTERNAL, i,
                    "Assigned device '%s' does not match any device (node %s)", node->assigned,
                    node->name);
    for (size_t k = 0; k < op->n_kernels; k++)
        supported |= op->kernels[k].type == state->devices[device].type;
    if (!supported)
        return fail(state, PLACER_INTERNAL, i,
                    "Assigned device '%s' does not have registered OpKernel support for %s (node "
                    "%s)",
                    node->assigned, op->name, node->name);
    return PLACER_OK;
}

static enum placer_code no_kernel(struct state *state, uint32_t i) {
    const struct placer_problem *problem = state->problem;
    const struct placer_op *op = &problem->ops[problem->nodes[i].op];
    struct listing kernels = { .text = "" }, devices = { .text = "" };

    for (size_t k = 0; k < op->n_kernels; k++)
        list_add(&kernels, "%sdevice='%s'", k ? ", " : "", problem->types[op->kernels[k].type]);
    if (op->n_kernels == 0)
        list_add(&kernels, "<no registered kernels>");
    return fail(state, PLACER_INVALID_ARGUMENT, i,
                "No OpKernel was registered to support Op '%s' used by {{node %s}}. Registered "
                "kernels: %s. Registered devices: %s",
                op->name, problem->nodes[i].name, kernels.text, list_devices(state, &devices));
}

static bool is_source(const struct placer_op *op) {
    return op->n_inputs == 0 && op->n_outputs == 1 && op->outputs[0] != PLACER_VALUE;
}

static enum placer_code begin_node(struct state *state, uint32_t i) {
    const struct placer_node *node = &state->problem->nodes[i];
    const struct placer_op *op = &state->problem->ops[node->op];
    struct group *group = &state->groups.groups[i];
    int r;

    group->types = types_of_op(state, node->op);
    if (!group->types)
        return no_memory(state);
    if (given(node->assigned))
        return begin_assigned(state, i, group);
    if (given(node->requested)) {
        r = parse_kept(state, node->requested, &group->requested);
        if (r == -ENOMEM)
            return no_memory(state);
        if (r < 0 && group->types->n == 0)
            return no_kernel(state, i);
        if (r < 0)
            return fail(state, PLACER_INVALID_ARGUMENT, i,
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

/* ---- Steps 2 to 4: who shares a device ---------------------------------------------------------
 */

static enum placer_code incompatible_edge(struct state *state, uint32_t node, uint32_t producer,
                                          const char *strength, const struct spec *mine,
                                          const struct spec *theirs) {
    char a[SPEC_TEXT_SIZE], b[SPEC_TEXT_SIZE];

    return fail(state, PLACER_INVALID_ARGUMENT, node,
                "Cannot place the graph because a reference or resource edge connects colocation "
                "groups with incompatible %s devices: %s vs %s. The edge goes from %s to %s",
                strength, spec_format(theirs, b), spec_format(mine, a),
                state->problem->nodes[producer].name, state->problem->nodes[node].name);
}

static enum placer_code cannot_colocate(struct state *state, uint32_t node, uint32_t other,
                                        enum group_clash clash, const char *what,
                                        const struct spec *a, const struct spec *b) {
    const char *name = state->problem->nodes[node].name, *with = state->problem->nodes[other].name;
    char a_text[SPEC_TEXT_SIZE], b_text[SPEC_TEXT_SIZE];

    if (clash == GROUP_NO_MEMORY)
        return no_memory(state);
    if (clash == GROUP_NO_TYPE)
        return fail(state, PLACER_INVALID_ARGUMENT, node,
                    "Cannot colocate nodes %s and %s because no device type supports both of those "
                    "nodes and the other nodes colocated with them.",
                    name, with);
    return fail(state, PLACER_INVALID_ARGUMENT, node,
                "Cannot colocate nodes %s and %s: Cannot merge devices with incompatible %s: '%s' "
                "and '%s'",
                name, with, what, spec_format(a, a_text), spec_format(b, b_text));
}

static enum placer_code bind_edge(struct state *state, uint32_t node, uint32_t producer) {
    struct group *mine = groups_of(&state->groups, node);
    struct group *theirs = groups_of(&state->groups, producer);
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
    clash = groups_merge(&state->groups, node, producer, false, &what, &a, &b);
    return clash == GROUP_MERGED ? PLACER_OK
                                 : cannot_colocate(state, node, producer, clash, what, a, b);
}

static enum placer_code gather(struct state *state) {
    const struct placer_problem *problem = state->problem;
    enum placer_code code;

    for (uint32_t i = 0; i < problem->n_nodes; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];

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
                groups_merge(&state->groups, i, other, problem->soft, &what, &a, &b);

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

/* Devices of a compiler are for those who ask for them. */
static enum placer_code drop_compiler_types(struct state *state) {
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
        after = groups_keep_types(&state->groups, &kept);
        if (!after)
            return no_memory(state);
        group->types = after;
    }
    return PLACER_OK;
}

/* ---- Steps 5 and 6: where groups go ------------------------------------------------------------
 */

static int32_t priority_of(const struct group_types *types, uint32_t type) {
    for (uint32_t i = 0; i < types->n; i++)
        if (types->types[i].type == type)
            return types->types[i].priority;
    return INT32_MIN; /* not supported: no real priority is so low */
}

static bool is_local(const struct state *state, uint32_t device) {
    return state->has_local &&
           strcmp(state->problem->devices[device], state->problem->local_device) == 0;
}

static bool is_better(const struct state *state, const struct group_types *types, uint32_t a,
                      uint32_t b) {
    const struct device *x = &state->devices[a], *y = &state->devices[b];
    int32_t p = priority_of(types, x->type), q = priority_of(types, y->type);

    if (is_local(state, a) != is_local(state, b))
        return is_local(state, a);
    if (p != q)
        return p > q;
    if (x->type != y->type)
        return x->type < y->type;
    return x->rank < y->rank;
}

static bool is_candidate(const struct state *state, const struct group *group,
                         const struct spec *wanted, uint32_t device) {
    return group_supports(group, state->devices[device].type) &&
           spec_matches(wanted, &state->devices[device].spec);
}

/* The best device for a spec; UINT32_MAX: none. */
static uint32_t best(const struct state *state, const struct group *group,
                     const struct spec *wanted) {
    uint32_t found = UINT32_MAX;

    for (uint32_t i = 0; i < state->problem->n_devices; i++)
        if (is_candidate(state, group, wanted, i) &&
            (found == UINT32_MAX || is_better(state, group->types, i, found)))
            found = i;
    return found;
}

static void open_device(struct spec *spec) {
    spec->has_type = spec->has_id = false;
}

/*
 * The spec that the group's device must match: what it is asked for or, where no device has that
 * and placement is soft, what is left when type and number are opened: first the user's, then those
 * of something that cannot move but may be made elsewhere, never those of an earlier placement.
 */
static uint32_t choose(const struct state *state, const struct group *group,
                       struct spec *ret_wanted, bool *ret_soft) {
    struct spec wanted = group_wanted(group), resource = { 0 };
    uint32_t device = best(state, group, &wanted);

    *ret_wanted = wanted;
    *ret_soft = false;
    if (device != UINT32_MAX || !state->problem->soft)
        return device;
    *ret_soft = true;
    for (int step = 0; step < 2 && device == UINT32_MAX; step++) {
        wanted = group->requested ? *group->requested : (struct spec){ 0 };
        open_device(&wanted);
        if (group->resource) {
            resource = *group->resource;
            if (step == 1)
                open_device(&resource);
            spec_override(&wanted, &resource);
        }
        if (group->assigned)
            spec_override(&wanted, group->assigned);
        device = best(state, group, &wanted);
    }
    if (device != UINT32_MAX)
        *ret_wanted = wanted;
    return device;
}

static void list_group(const struct state *state, uint32_t root, struct listing *list) {
    const struct placer_problem *problem = state->problem;
    uint32_t said[16], n_said = 0;

    for (uint32_t i = 0; i < problem->n_nodes && n_said < ELEMENTSOF(said); i++) {
        uint32_t op = problem->nodes[i].op;
        bool again = groups_root((struct groups *)&state->groups, i) != root;

        for (uint32_t k = 0; k < n_said; k++)
            again |= said[k] == op;
        if (again || !state->op_types[op])
            continue;
        said[n_said++] = op;
        list_add(list, "%s%s:", n_said > 1 ? "; " : "", problem->ops[op].name);
        for (uint32_t t = 0; t < state->op_types[op]->n; t++)
            list_add(list, " %s", problem->types[state->op_types[op]->types[t].type]);
    }
}

static enum placer_code cannot_place(struct state *state, uint32_t i) {
    const struct placer_problem *problem = state->problem;
    const struct placer_node *node = &problem->nodes[i];
    const struct group *group = groups_of(&state->groups, i);
    struct spec wanted = group_wanted(group), own = { 0 };
    char wanted_text[SPEC_TEXT_SIZE], own_text[SPEC_TEXT_SIZE];
    struct listing list = { .text = "" };
    bool some_match = false;

    spec_format(&wanted, wanted_text);
    if (given(node->requested))
        spec_parse(&own, node->requested);
    spec_format(&own, own_text);
    for (uint32_t d = 0; d < problem->n_devices; d++)
        some_match |= spec_matches(&wanted, &state->devices[d].spec);
    if (strcmp(wanted_text, own_text) != 0) {
        list_group(state, groups_root(&state->groups, i), &list);
        return fail(state, PLACER_INVALID_ARGUMENT, i,
                    "Cannot assign a device for operation %s (requested '%s'): node %s was "
                    "colocated with a group of nodes that required incompatible device '%s'. "
                    "Colocation debug info: %s",
                    node->name, text_of(node->requested), node->name, wanted_text, list.text);
    }
    if (!some_match)
        return fail(state, PLACER_INVALID_ARGUMENT, i,
                    "Cannot assign a device for operation %s (requested '%s'): it was explicitly "
                    "assigned to %s but available devices are %s. Make sure the device "
                    "specification refers to a valid device: unknown device.",
                    node->name, text_of(node->requested), wanted_text, list_devices(state, &list));
    if (wanted.has_type)
        return fail(state, PLACER_INVALID_ARGUMENT, i,
                    "Cannot assign a device for operation %s (requested '%s'): Could not satisfy "
                    "explicit device specification '%s' because no supported kernel for %s devices "
                    "is available.",
                    node->name, text_of(node->requested), wanted_text, wanted.type);
    return fail(state, PLACER_INVALID_ARGUMENT, i,
                "Cannot assign a device for operation %s (requested '%s'): Could not satisfy "
                "explicit device specification '%s'",
                node->name, text_of(node->requested), wanted_text);
}

/* From now on the group is there and nowhere else. */
static void settle(struct state *state, uint32_t i, uint32_t device, enum placer_reason reason) {
    struct group *group = groups_of(&state->groups, i);

    group->device = device;
    state->placed[i] = device;
    state->reasons[i] = reason;
}

/* A group that nobody asks anything of, of one node: every such node of an op goes to one place. */
static bool is_plain(const struct state *state, uint32_t i, const struct group *group) {
    return group == &state->groups.groups[i] && group->rank == 0 && !group->assigned &&
           !group->resource && !group->requested &&
           group->types == state->op_types[state->problem->nodes[i].op];
}

/* `preferred`: go there if it is among the candidates; UINT32_MAX: no preference. */
static enum placer_code place(struct state *state, uint32_t i, uint32_t preferred,
                              enum placer_reason why) {
    const struct placer_node *node = &state->problem->nodes[i];
    struct group *group = groups_of(&state->groups, i);
    enum placer_reason reason = given(node->requested) ? PLACER_REQUESTED : PLACER_FIRST;
    struct spec wanted, own;
    uint32_t device;
    bool soft;

    if (group->device != GROUP_UNPLACED) {
        device = group->device;
        if (!group_supports(group, state->devices[device].type))
            return cannot_place(state, i);
        if (!given(node->requested))
            reason = PLACER_GROUP;
        else if (spec_parse(&own, node->requested) == 0 &&
                 !spec_matches(&own, &state->devices[device].spec))
            reason = PLACER_SOFT;
        settle(state, i, device, reason);
        return PLACER_OK;
    }
    if (is_plain(state, i, group) && state->op_choice[node->op] != UINT32_MAX &&
        (preferred == UINT32_MAX || !group_supports(group, state->devices[preferred].type))) {
        settle(state, i, state->op_choice[node->op], PLACER_FIRST);
        return PLACER_OK;
    }
    device = choose(state, group, &wanted, &soft);
    if (device == UINT32_MAX)
        return cannot_place(state, i);
    if (is_plain(state, i, group))
        state->op_choice[node->op] = device;
    if (soft || (given(node->requested) && spec_parse(&own, node->requested) == 0 &&
                 !spec_matches(&own, &state->devices[device].spec)))
        reason = PLACER_SOFT;
    if (preferred != UINT32_MAX && is_candidate(state, group, &wanted, preferred)) {
        reason = preferred == device ? reason : why;
        device = preferred;
    }
    settle(state, i, device, reason);
    return PLACER_OK;
}

static bool is_generator(const struct placer_op *op) {
    return op->n_inputs == 0 && op->n_outputs == 1 && op->outputs[0] != PLACER_REF;
}

/* A group goes where its assigned node is, which must be possible for all of it. */
static enum placer_code pass_assigned(struct state *state, uint32_t i) {
    struct group *group = groups_of(&state->groups, i);
    uint32_t device = 0;

    while (strcmp(state->problem->devices[device], state->problem->nodes[i].assigned) != 0)
        device++;
    settle(state, i, device, PLACER_ASSIGNED);
    group->assigned = group->requested = &state->devices[device].spec;
    return group_supports(group, state->devices[device].type) ? PLACER_OK : cannot_place(state, i);
}

static enum placer_code place_all(struct state *state) {
    const struct placer_problem *problem = state->problem;
    enum placer_code code = PLACER_OK;

    for (uint32_t i = 0; i < problem->n_nodes && code == PLACER_OK; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];
        uint32_t preferred = UINT32_MAX;

        if (given(problem->nodes[i].assigned)) {
            code = pass_assigned(state, i);
            continue;
        }
        if (is_generator(op))
            continue;
        if (op->is_metadata && op->n_inputs)
            preferred = state->placed[problem->nodes[i].inputs[0].node];
        code = place(state, i, preferred, PLACER_INPUT);
    }
    if (code != PLACER_OK)
        return code;

    for (uint32_t i = 0; i < problem->n_nodes; i++)
        state->consumers_at[i] = NOBODY;
    for (uint32_t i = 0; i < problem->n_nodes; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];

        for (size_t input = 0; input < op->n_inputs; input++) {
            uint32_t *at = &state->consumers_at[problem->nodes[i].inputs[input].node];

            *at = *at == NOBODY || *at == state->placed[i] ? state->placed[i] : SEVERAL;
        }
    }
    for (uint32_t i = 0; i < problem->n_nodes && code == PLACER_OK; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];
        uint32_t at = state->consumers_at[i];

        if (!given(problem->nodes[i].assigned) && is_generator(op))
            code = place(state, i, at < problem->n_devices ? at : UINT32_MAX, PLACER_CONSUMERS);
    }
    return code;
}

/* ---- The whole --------------------------------------------------------------------------------
 */

struct named {
    const char *name;
    uint32_t device;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static enum placer_code begin_devices(struct state *state) {
    const struct placer_problem *problem = state->problem;
    cleanup(freep) struct named *names = calloc(problem->n_devices, sizeof(*names));

    if (!names)
        return no_memory(state);
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        struct device *device = &state->devices[i];

        if (spec_parse(&device->spec, problem->devices[i]) < 0 || !spec_is_full(&device->spec))
            return fail(state, PLACER_INTERNAL, UINT32_MAX, "'%s' is no full device name",
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
        given(problem->local_device) && spec_parse(&state->local, problem->local_device) == 0;
    return PLACER_OK;
}

static enum placer_code solve(struct state *state) {
    const struct placer_problem *problem = state->problem;
    enum placer_code code;

    if (problem->n_devices == 0)
        return fail(state, PLACER_FAILED_PRECONDITION, UINT32_MAX, "No devices are registered");
    code = begin_devices(state);
    for (uint32_t i = 0; i < problem->n_nodes && code == PLACER_OK; i++)
        code = begin_node(state, i);
    if (code == PLACER_OK)
        code = gather(state);
    if (code == PLACER_OK)
        code = drop_compiler_types(state);
    return code == PLACER_OK ? place_all(state) : code;
}

enum placer_code placer_simple(const struct placer_problem *problem, uint32_t *ret_devices,
                               enum placer_reason *ret_reasons, struct placer_error *error) {
    struct state state = { .problem = problem, .error = error };
    size_t n = MAX(problem->n_nodes, (size_t)1);
    enum placer_code code;

    *error = (struct placer_error){ PLACER_OK, UINT32_MAX, "" };
    state.devices = calloc(MAX(problem->n_devices, (size_t)1), sizeof(*state.devices));
    state.op_types = calloc(MAX(problem->n_ops, (size_t)1), sizeof(*state.op_types));
    state.op_choice = malloc(MAX(problem->n_ops, (size_t)1) * sizeof(*state.op_choice));
    state.placed = malloc(n * sizeof(*state.placed));
    state.reasons = calloc(n, sizeof(*state.reasons));
    state.consumers_at = malloc(n * sizeof(*state.consumers_at));
    if (!state.devices || !state.op_types || !state.op_choice || !state.placed || !state.reasons ||
        !state.consumers_at || groups_init(&state.groups, (uint32_t)problem->n_nodes) < 0) {
        code = no_memory(&state);
    } else {
        for (size_t i = 0; i < problem->n_ops; i++)
            state.op_choice[i] = UINT32_MAX;
        for (size_t i = 0; i < problem->n_nodes; i++)
            state.placed[i] = UINT32_MAX;
        code = solve(&state);
    }
    if (code == PLACER_OK) {
        memcpy(ret_devices, state.placed, problem->n_nodes * sizeof(*ret_devices));
        if (ret_reasons)
            memcpy(ret_reasons, state.reasons, problem->n_nodes * sizeof(*ret_reasons));
    }
    groups_done(&state.groups);
    free(state.consumers_at);
    free(state.reasons);
    free(state.placed);
    free(state.op_choice);
    free(state.op_types);
    free(state.devices);
    return code;
}
