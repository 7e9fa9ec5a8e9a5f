/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cost store: the measured costs of a box, in a file of the cache folder.
 *
 * The file is named after the host. It is read once, when the store is made; what was measured
 * since then is merged into the file as it is by then, so that sessions and processes add to each
 * other. Costs count for one build of the library (op_key_version()); kinds of devices carry the
 * version of the driver.
 *
 * Any thread.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/exec/plan/cache_folder.h"
#include "libclient/exec/plan/op_key.h"
#include "libclient/place/cost_table.h"

struct cost_store {
    struct cache_folder *folder; /* borrowed */
    char file[96];
    char version[OP_KEY_VERSION_SIZE];
    pthread_mutex_t lock;           /* of the tables */
    struct cost_table known, fresh; /* what was measured since the file was read or written */
};

void cost_store_init(struct cost_store *store, struct cache_folder *folder);
void cost_store_done(struct cost_store *store);

/* The mean of what was measured on this kind of device; false: nothing was. */
bool cost_store_find(struct cost_store *store, uint64_t kind, uint64_t op, double *ret_usec);
/* A time that is not one is left out. -ENOMEM. */
int cost_store_add(struct cost_store *store, uint64_t kind, uint64_t op, const char *name,
                   double usec);
/* Let finds see what was added, and keep it. */
void cost_store_save(struct cost_store *store);
