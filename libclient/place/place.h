/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Place: a placement while it is being made. Internal to the placer; one thread.
 */
#include "libclient/place/group.h"
#include "libclient/place/placer.h"

struct place_device {
    struct spec spec;
    uint32_t type; /* index of problem.types; UINT32_MAX: none that an op knows */
    uint32_t rank; /* by name, bytewise */
};

struct place_state {
    const struct placer_problem *problem;
    struct placer_error *error;
    struct group_set groups;
    struct place_device *devices;
    bool have_type[PLACER_TYPES_MAX]; /* some device is of it */
    struct spec local;
    bool has_local;
    const struct group_types **op_types; /* supported types of each op; NULL: not asked yet */
    uint32_t *op_choice;                 /* best device of an op without requests */
    uint32_t *placed;                    /* device of each node */
    enum placer_reason *reasons;
    uint32_t *consumers_at; /* the one device of a generator's consumers; see below */
    const char *last_text;  /* the spec text that was parsed last, as most nodes repeat it */
    const struct spec *last_spec;
};

/* Write the error and return its code. */
enum placer_code place_fail(struct place_state *state, enum placer_code code, uint32_t node,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/* PLACER_CANCELLED: `problem->halt` is set. */
enum placer_code place_check(struct place_state *state);

/* Whether a text of the problem is given. */
static inline bool place_given(const char *text) {
    return text && *text;
}

/* Lists in messages, cut by "…" where there is no room: so they come last. */
struct place_listing {
    char text[512];
    size_t n;
};
void place_list(struct place_listing *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *place_list_devices(const struct place_state *state, struct place_listing *list);

/* Where the groups may go. */
enum placer_code place_choices(struct place_state *state, struct placer_choice *ret);

/* Where groups go: the passes over the nodes, once the groups are made. */
enum placer_code place_all(struct place_state *state);
