/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settle: where groups go. A group goes where the first of its nodes goes: to the best device that
 * matches the group's requests and has kernels for all of its nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/place/place.h"

/* consumers_at of a generator without consumers, or with consumers on several devices. */
#define NO_CONSUMER (UINT32_MAX - 1)
#define SEVERAL     (UINT32_MAX - 2)

static const char *text_of(const char *text) {
    return text ? text : "";
}

/* ---- Steps 5 and 6: where groups go ---------------------------------------------------------- */

static int32_t priority_of(const struct group_types *types, uint32_t type) {
    for (uint32_t i = 0; i < types->n; i++)
        if (types->types[i].type == type)
            return types->types[i].priority;
    return INT32_MIN; /* not supported: no real priority is so low */
}

static bool is_local(const struct place_state *state, uint32_t device) {
    return state->has_local &&
           strcmp(state->problem->devices[device], state->problem->local_device) == 0;
}

static bool is_better(const struct place_state *state, const struct group_types *types, uint32_t a,
                      uint32_t b) {
    const struct place_device *x = &state->devices[a], *y = &state->devices[b];
    int32_t p = priority_of(types, x->type), q = priority_of(types, y->type);

    if (is_local(state, a) != is_local(state, b))
        return is_local(state, a);
    if (p != q)
        return p > q;
    if (x->type != y->type)
        return x->type < y->type;
    return x->rank < y->rank;
}

static bool is_candidate(const struct place_state *state, const struct group *group,
                         const struct spec *wanted, uint32_t device) {
    return group_supports(group, state->devices[device].type) &&
           spec_matches(wanted, &state->devices[device].spec);
}

/* The best device for a spec; UINT32_MAX: none. */
static uint32_t best(const struct place_state *state, const struct group *group,
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
 * The spec that the group's device must match: the group's requests. If no device matches and
 * placement is soft, drop type and number: first those of the user, then those of a resource that
 * cannot move but may be created elsewhere; never those of an earlier placement.
 */
static uint32_t choose(const struct place_state *state, const struct group *group,
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

static void list_group(const struct place_state *state, uint32_t root, struct place_listing *list) {
    const struct placer_problem *problem = state->problem;
    uint32_t said[16], n_said = 0;

    for (uint32_t i = 0; i < problem->n_nodes && n_said < ELEMENTSOF(said); i++) {
        uint32_t op = problem->nodes[i].op;
        bool again = group_set_root((struct group_set *)&state->groups, i) != root;

        for (uint32_t k = 0; k < n_said; k++)
            again |= said[k] == op;
        if (again || !state->op_types[op])
            continue;
        said[n_said++] = op;
        place_list(list, "%s%s:", n_said > 1 ? "; " : "", problem->ops[op].name);
        for (uint32_t t = 0; t < state->op_types[op]->n; t++)
            place_list(list, " %s", problem->types[state->op_types[op]->types[t].type]);
    }
}

/* The node that an error about the group of `i` names: one that had a device before is not to
 * blame.
 */
static uint32_t find_culprit(struct place_state *state, uint32_t i) {
    const struct placer_problem *problem = state->problem;
    uint32_t root = group_set_root(&state->groups, i);

    if (!place_given(problem->nodes[i].assigned))
        return i;
    for (uint32_t other = 0; other < problem->n_nodes; other++)
        if (!place_given(problem->nodes[other].assigned) &&
            group_set_root(&state->groups, other) == root)
            return other;
    return i;
}

static enum placer_code cannot_place(struct place_state *state, uint32_t at) {
    const struct placer_problem *problem = state->problem;
    const uint32_t i = find_culprit(state, at);
    const struct placer_node *node = &problem->nodes[i];
    const struct group *group = group_set_of(&state->groups, i);
    struct spec wanted = group_wanted(group), own = { 0 };
    char wanted_text[SPEC_TEXT_SIZE], own_text[SPEC_TEXT_SIZE];
    struct place_listing list = { .text = "" };
    bool some_match = false;

    spec_format(&wanted, wanted_text);
    if (place_given(node->requested))
        spec_parse(&own, node->requested);
    spec_format(&own, own_text);
    for (uint32_t d = 0; d < problem->n_devices; d++)
        some_match |= spec_matches(&wanted, &state->devices[d].spec);
    if (strcmp(wanted_text, own_text) != 0) {
        list_group(state, group_set_root(&state->groups, i), &list);
        return place_fail(state, PLACER_INVALID_ARGUMENT, i,
                          "Cannot assign a device for operation %s (requested '%s'): node %s was "
                          "colocated with a group of nodes that required incompatible device '%s'. "
                          "Colocation debug info: %s",
                          node->name, text_of(node->requested), node->name, wanted_text, list.text);
    }
    if (!some_match)
        return place_fail(
            state, PLACER_INVALID_ARGUMENT, i,
            "Cannot assign a device for operation %s (requested '%s'): unknown device. Make sure "
            "the device specification refers to a valid device: it was explicitly assigned to %s "
            "but available devices are %s",
            node->name, text_of(node->requested), wanted_text, place_list_devices(state, &list));
    if (wanted.has_type)
        return place_fail(
            state, PLACER_INVALID_ARGUMENT, i,
            "Cannot assign a device for operation %s (requested '%s'): Could not satisfy "
            "explicit device specification '%s' because no supported kernel for %s devices "
            "is available.",
            node->name, text_of(node->requested), wanted_text, wanted.type);
    return place_fail(state, PLACER_INVALID_ARGUMENT, i,
                      "Cannot assign a device for operation %s (requested '%s'): Could not satisfy "
                      "explicit device specification '%s'",
                      node->name, text_of(node->requested), wanted_text);
}

/* Record the device of a group, for good. */
static void settle(struct place_state *state, uint32_t i, uint32_t device,
                   enum placer_reason reason) {
    struct group *group = group_set_of(&state->groups, i);

    group->device = device;
    state->placed[i] = device;
    state->reasons[i] = reason;
}

/* A group of one node without requests: all such nodes of an op go to one device. */
static bool is_plain(const struct place_state *state, uint32_t i, const struct group *group) {
    return group == &state->groups.groups[i] && group->rank == 0 && !group->assigned &&
           !group->resource && !group->requested &&
           group->types == state->op_types[state->problem->nodes[i].op];
}

/* `preferred`: go there if it is among the candidates; UINT32_MAX: no preference. */
static enum placer_code place(struct place_state *state, uint32_t i, uint32_t preferred,
                              enum placer_reason why) {
    const struct placer_node *node = &state->problem->nodes[i];
    struct group *group = group_set_of(&state->groups, i);
    enum placer_reason reason = place_given(node->requested) ? PLACER_REQUESTED : PLACER_FIRST;
    struct spec wanted, own;
    uint32_t device;
    bool soft;

    if (group->device != GROUP_UNPLACED) {
        device = group->device;
        if (!group_supports(group, state->devices[device].type))
            return cannot_place(state, i);
        if (!place_given(node->requested))
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
    if (soft || (place_given(node->requested) && spec_parse(&own, node->requested) == 0 &&
                 !spec_matches(&own, &state->devices[device].spec)))
        reason = PLACER_SOFT;
    if (preferred != UINT32_MAX && is_candidate(state, group, &wanted, preferred)) {
        reason = preferred == device ? reason : why;
        device = preferred;
    }
    settle(state, i, device, reason);
    return PLACER_OK;
}

enum placer_code place_choices(struct place_state *state, struct placer_choice *ret) {
    const struct placer_problem *problem = state->problem;

    for (uint32_t i = 0; i < problem->n_nodes; i++)
        ret[i] = (struct placer_choice){ .group = group_set_root(&state->groups, i) };
    for (uint32_t i = 0; i < problem->n_nodes; i++) {
        const struct group *group = group_set_of(&state->groups, i);
        struct placer_choice *root = &ret[ret[i].group];
        enum placer_code code = place_check(state);
        struct spec wanted;

        if (code != PLACER_OK)
            return code;
        if (root->devices == 0) {
            if (choose(state, group, &wanted, &root->is_soft) == UINT32_MAX)
                return cannot_place(state, i);
            for (uint32_t d = 0; d < problem->n_devices; d++)
                if (is_candidate(state, group, &wanted, d))
                    root->devices |= UINT64_C(1) << d;
        }
        ret[i] = (struct placer_choice){ ret[i].group, root->devices, root->is_soft };
    }
    return PLACER_OK;
}

static bool is_generator(const struct placer_op *op) {
    return op->n_inputs == 0 && op->n_outputs == 1 && op->outputs[0] != PLACER_REF;
}

/* A group goes where its assigned node is; that device must suit all of its nodes. */
static enum placer_code pass_assigned(struct place_state *state, uint32_t i) {
    struct group *group = group_set_of(&state->groups, i);
    uint32_t device = 0;

    while (strcmp(state->problem->devices[device], state->problem->nodes[i].assigned) != 0)
        device++;
    settle(state, i, device, PLACER_ASSIGNED);
    group->assigned = group->requested = &state->devices[device].spec;
    return group_supports(group, state->devices[device].type) ? PLACER_OK : cannot_place(state, i);
}

enum placer_code place_all(struct place_state *state) {
    const struct placer_problem *problem = state->problem;
    enum placer_code code = PLACER_OK;

    for (uint32_t i = 0; i < problem->n_nodes && code == PLACER_OK; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];
        uint32_t preferred = UINT32_MAX;

        code = place_check(state);
        if (code != PLACER_OK)
            break;
        if (place_given(problem->nodes[i].assigned)) {
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
        state->consumers_at[i] = NO_CONSUMER;
    for (uint32_t i = 0; i < problem->n_nodes; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];

        for (size_t input = 0; input < op->n_inputs; input++) {
            uint32_t *at = &state->consumers_at[problem->nodes[i].inputs[input].node];

            *at = *at == NO_CONSUMER || *at == state->placed[i] ? state->placed[i] : SEVERAL;
        }
    }
    for (uint32_t i = 0; i < problem->n_nodes && code == PLACER_OK; i++) {
        const struct placer_op *op = &problem->ops[problem->nodes[i].op];
        uint32_t at = state->consumers_at[i];

        if (!place_given(problem->nodes[i].assigned) && is_generator(op))
            code = place(state, i, at < problem->n_devices ? at : UINT32_MAX, PLACER_CONSUMERS);
    }
    return code;
}
