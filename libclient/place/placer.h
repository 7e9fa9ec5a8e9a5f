/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Placer: which device each node of a graph runs on.
 *
 * Pure: plain structs in, plain structs out; it knows no graph, kernel or device. The caller fills
 * the problem from its own tables. The same problem always has the same answer. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/core/spec.h"

/* What flows along an edge; it decides whether both ends must share a device. */
enum placer_flow {
    PLACER_VALUE,
    PLACER_REF,      /* a variable by reference */
    PLACER_RESOURCE, /* a handle of something that lives on a device */
};

struct placer_kernel {
    uint32_t type;    /* index of problem.types */
    int32_t priority; /* the higher, the more it is preferred */
};

struct placer_op {
    const char *name;
    const enum placer_flow *inputs, *outputs;
    size_t n_inputs, n_outputs;
    const struct placer_kernel *kernels;
    size_t n_kernels;
    bool is_metadata; /* reads only the shape, size or rank of its input */
};

struct placer_edge {
    uint32_t node, output; /* the producer, and which of its outputs */
};

struct placer_node {
    const char *name;
    uint32_t op;                      /* index of problem.ops */
    const struct placer_edge *inputs; /* as many as the op declares */
    const char *requested;            /* spec of the user; NULL or "": none */
    const char *assigned;             /* full name, of an earlier placement; NULL or "": none */
    const uint32_t *colocate;         /* nodes that it wants to share a device with */
    size_t n_colocate;
};

struct placer_problem {
    const char *const *types;   /* device types, the most preferred first */
    size_t n_types;             /* at most PLACER_TYPES_MAX */
    const char *const *devices; /* full names, in any order */
    size_t n_devices;
    const struct placer_op *ops;
    size_t n_ops;
    const struct placer_node *nodes; /* in graph order */
    size_t n_nodes;
    bool soft; /* type and number may be replaced if no device has them, but never job or task */
    const char *local_device; /* full name; NULL: none */
    const atomic_bool *halt;  /* set: PLACER_CANCELLED; NULL: never */
};

#define PLACER_TYPES_MAX 32

/* Why a node is where it is. */
enum placer_reason {
    PLACER_FIRST,     /* the first device that has a kernel for it, and for its group */
    PLACER_ASSIGNED,  /* it was placed before */
    PLACER_REQUESTED, /* the user asked for it */
    PLACER_GROUP,     /* a node of its group was placed there */
    PLACER_INPUT,     /* reads only the shape of what is there */
    PLACER_CONSUMERS, /* all its consumers are there */
    PLACER_SOFT,      /* what the user asked for cannot be had: soft placement */
};

const char *placer_reason_text(enum placer_reason reason);

enum placer_code {
    PLACER_OK,
    PLACER_INVALID_ARGUMENT,
    PLACER_INTERNAL,
    PLACER_FAILED_PRECONDITION,
    PLACER_NO_MEMORY, /* of the host */
    PLACER_CANCELLED, /* by `halt` */
};

struct placer_error {
    enum placer_code code;
    uint32_t node;   /* at which it was found; UINT32_MAX: none */
    char text[1024]; /* what is too long ends with "…" */
};

/* What a node may do, by the rules of the simple placer, before any device is chosen. */
struct placer_choice {
    uint32_t group;   /* a node's number, the same for all that must share a device */
    uint64_t devices; /* bit mask over problem.devices, the same for the whole group; not 0 */
    bool is_soft;     /* the user's request cannot be met, and soft placement drops it */
};

#define PLACER_CHOICES_DEVICES_MAX 64

/* Where every node may go, in ret_choices[i]. At most PLACER_CHOICES_DEVICES_MAX devices. Errors
 * are those of placer_simple(). */
enum placer_code placer_choices(const struct placer_problem *problem,
                                struct placer_choice *ret_choices, struct placer_error *error);

/*
 * Place every node: ret_devices[i] is an index into problem.devices, ret_reasons[i] (NULL: not
 * wanted) says why. An error is returned and also set in error->code; the arrays are then
 * untouched.
 */
enum placer_code placer_simple(const struct placer_problem *problem, uint32_t *ret_devices,
                               enum placer_reason *ret_reasons, struct placer_error *error);
