/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Scope: what holds for every node that is made until it is popped: a device, a device function,
 * control dependencies, colocation, a prefix of names. They nest; one stack for all kinds.
 *
 * The builder's thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allot_error;
struct allot_graph;
struct graph_hint;

/*
 * Called for each node that is made: its op, its name, and the device that scopes further in gave
 * it ("": none). Returns the device, which stays valid until the next call, or NULL to leave it as
 * it is. It may not build.
 */
typedef const char *(*scope_device_fn)(const char *op, const char *name, const char *device,
                                       void *userdata);

/* `device` NULL: ignore the scopes further out. -EINVAL: no device name; -ENOMEM. */
int scope_push_device(struct allot_graph *graph, const char *device, struct allot_error *err);
int scope_push_function(struct allot_graph *graph, scope_device_fn fn, void *userdata,
                        struct allot_error *err);
/* `n` 0: ignore the scopes further out. */
int scope_push_controls(struct allot_graph *graph, const uint32_t *nodes, size_t n,
                        struct allot_error *err);
/* `node` UINT32_MAX: none, a scope that does nothing. */
int scope_push_colocate(struct allot_graph *graph, uint32_t node, struct allot_error *err);
/* Made unique ("hidden_1") unless it ends in '/': then it is the whole prefix. */
int scope_push_name(struct allot_graph *graph, const char *name, struct allot_error *err);
/* What the dynamic placer is told about new nodes; what is not said is as scopes further out say.
 * `prefer` NULL: not said. `together`: they should share a device. -EINVAL: no device name. */
int scope_push_hint(struct allot_graph *graph, double cost_usec, const char *prefer, bool together,
                    struct allot_error *err);
/* The graph's, for a node that is made now; NULL: none. */
const struct graph_hint *scope_hint(const struct allot_graph *graph);
/* Ignore what scopes say about devices and colocation until the pop: for nodes that go where a
 * variable is. */
int scope_push_placeless(struct allot_graph *graph, struct allot_error *err);
/* Ignore all scopes until the pop: for nodes that must be the same wherever they are made. */
int scope_push_bare(struct allot_graph *graph, struct allot_error *err);
void scope_pop(struct allot_graph *graph); /* nothing to do if there is none */

/* What a scope is about; a bare scope is about everything. */
enum scope_about {
    SCOPE_ABOUT_NONE,
    SCOPE_ABOUT_DEVICE,
    SCOPE_ABOUT_CONTROL,
    SCOPE_ABOUT_COLOCATE,
    SCOPE_ABOUT_NAME,
    SCOPE_ABOUT_HINT
};
/* The innermost; SCOPE_ABOUT_NONE: there is no scope. */
enum scope_about scope_innermost(const struct allot_graph *graph);

/* "hidden/", "" */
const char *scope_prefix(const struct allot_graph *graph);
/* Whether nodes made now get control edges. */
int scope_has_controls(const struct allot_graph *graph);

/* What the scopes say about a new node: its controls and colocations, appended to arrays that grow;
 * and the device, over `device`, which is the node's own or "". */
struct scope_ids {
    uint32_t *ids;
    size_t n, size;
    uint64_t *seen; /* a bit per id, once the list is long; NULL */
    size_t n_seen;  /* words */
};
int scope_ids_add(struct scope_ids *list, uint32_t id); /* once each. -ENOMEM */
void scope_ids_done(struct scope_ids *list);
int scope_apply(struct allot_graph *graph, const char *op, const char *name, const char *own,
                struct scope_ids *controls, struct scope_ids *colocate, char **ret_device,
                struct allot_error *err);
