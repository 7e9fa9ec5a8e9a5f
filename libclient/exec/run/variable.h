/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Variable: a value that outlives a run, on the device of its node.
 *
 * A reader keeps a reference to the bytes as they are. A writer holds the lock; it changes the
 * bytes in place if there is no other reference, or else makes new ones. So a reader never sees
 * half of a write, and well ordered graphs copy nothing. Any thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "libclient/core/buffer.h"
#include "libclient/core/dtype.h"
#include "libclient/core/shape.h"

struct allot_error;
struct allot_tensor;
struct device;
struct node;
struct wait;

struct variable {
    pthread_mutex_t lock;
    const struct node *node; /* of a graph that outlives it */
    struct device *device;   /* one reference */
    uint64_t bytes;
    struct buffer *buffer;        /* NULL: not initialised */
    _Atomic uint32_t n_unsettled; /* runs that have queued writes of it on a GPU and are not over;
                                     increased under the lock, decreased at any time */
};

/* The variables of a session. */
struct variable_table {
    pthread_mutex_t lock;
    struct map by_node;
};

void variable_table_init(struct variable_table *variables);
void variable_table_done(struct variable_table *variables);
/* The variable of this node, made where there is none yet. -ENOMEM. */
int variable_table_get(struct variable_table *variables, const struct node *node,
                       struct device *device, struct variable **ret);

/* The bytes as they are now, with a reference for the caller. -ENODATA: it is not initialised.
 * `*ret_settled`: no queued work writes them; otherwise only the compute stream is ordered behind
 * the writes. */
int variable_read(struct variable *variable, struct buffer **ret, bool *ret_settled);

/* Give it another device, with its value, or without where that is lost (`is_lost`). No run is
 * under way. -ENOMEM and errors of the driver: it stays where it is. */
int variable_move(struct variable *variable, struct device *to, bool is_lost,
                  struct allot_error *err);

/* With the lock held: whether its bytes cannot be changed in place: there are none, or there are
 * references besides the variable's own and the caller's `n_own`, which the caller no longer
 * uses. */
bool variable_lacks(const struct variable *variable, uint32_t n_own);
/* Without the lock, as it may wait: new bytes to write instead. */
int variable_fresh(const struct variable *variable, struct wait *wait, struct buffer **ret,
                   struct allot_error *err);
/*
 * With the lock held: make `variable->buffer` one that may be changed: the same, or `*fresh`, which
 * the caller has allocated if the variable lacks one. `*fresh` is then the old buffer, so that a
 * caller that cannot change the variable after all can put it back. `keep`: the contents must be
 * the old ones (-ENODATA: there are none).
 */
int variable_prepare(struct variable *variable, uint32_t n_own, bool keep, struct buffer **fresh,
                     struct allot_error *err);
