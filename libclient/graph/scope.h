/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Scope: what holds for every node that is made until it is popped: a device, a device function,
 * control dependencies, colocation, a prefix of names. They nest; one stack for all kinds.
 *
 * The builder's thread.
 */
#include <stddef.h>
#include <stdint.h>

struct allot_error;
struct allot_graph;

/*
 * Called for each node that is made: its op, its name, and the device that scopes further in gave
 * it ("": none). Returns the device, which stays valid until the next call, or NULL to leave it as
 * it is. It may not build.
 */
typedef const char *(*scope_device_fn)(const char *op, const char *name, const char *device,
                                       void *userdata);

/* `device` NULL: what scopes further out say does not hold. -EINVAL: no device name; -ENOMEM. */
int scope_push_device(struct allot_graph *graph, const char *device, struct allot_error *err);
int scope_push_function(struct allot_graph *graph, scope_device_fn fn, void *userdata,
                        struct allot_error *err);
/* `n` 0: those further out do not hold. */
int scope_push_controls(struct allot_graph *graph, const uint32_t *nodes, size_t n,
                        struct allot_error *err);
/* `node` UINT32_MAX: none, a scope that does nothing. */
int scope_push_colocate(struct allot_graph *graph, uint32_t node, struct allot_error *err);
/* Made unique ("hidden_1") unless it ends in '/': then it is the whole prefix. */
int scope_push_name(struct allot_graph *graph, const char *name, struct allot_error *err);
/* An end to what scopes say of devices and colocation, until it is popped: for nodes that go where
 * a variable is. */
int scope_push_placeless(struct allot_graph *graph, struct allot_error *err);
/* An end to all that scopes say, until it is popped: for nodes that must be the same wherever they
 * are made. */
int scope_push_bare(struct allot_graph *graph, struct allot_error *err);
void scope_pop(struct allot_graph *graph); /* nothing where there is none */

/* What a scope is about; a bare one is about all. */
enum scope_about {
    SCOPE_ABOUT_NONE,
    SCOPE_ABOUT_DEVICE,
    SCOPE_ABOUT_CONTROL,
    SCOPE_ABOUT_COLOCATE,
    SCOPE_ABOUT_NAME
};
/* The innermost; SCOPE_ABOUT_NONE: there is no scope. */
enum scope_about scope_innermost(const struct allot_graph *graph);

/* "hidden/", "" */
const char *scope_prefix(const struct allot_graph *graph);
/* Whether nodes made now get control edges. */
int scope_has_controls(const struct allot_graph *graph);

/* What the scopes say of a node to be made: its controls and colocations, appended to arrays that
 * grow; the device, over `device`, which is the node's own or "". */
struct scope_list {
    uint32_t *ids;
    size_t n, size;
    uint64_t *seen; /* a bit per id, once the list is long; NULL */
    size_t n_seen;  /* words */
};
int scope_list_add(struct scope_list *list, uint32_t id); /* once each. -ENOMEM */
void scope_list_done(struct scope_list *list);
int scope_apply(struct allot_graph *graph, const char *op, const char *name, const char *own,
                struct scope_list *controls, struct scope_list *colocate, char **ret_device,
                struct allot_error *err);
