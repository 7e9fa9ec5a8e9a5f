/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device nodes: those of a lease, and those that it must not open. Found by their names under /dev
 * and by what the kernel module says under /proc: the hand never asks the driver's libraries.
 */
#include <stddef.h>

#include "base/error.h"
#include "daemon/hand/exec/bus.h"
#include "daemon/hand/wire.h"

struct device_nodes {
    size_t n;
    char paths[BUS_ALLOW_MAX][BUS_PATH_SIZE];
};

/* The nodes of the lease; -ENOENT if one of its GPUs has none. */
int device_nodes_find(struct device_nodes *ret, const struct hand_confine_question *question,
                      struct allot_error *err);

/*
 * A GPU's node that is not among `nodes` (NULL: any), the lowest number first. -ENOENT: there is
 * none.
 */
int device_nodes_other_gpu(const struct device_nodes *nodes, char ret[static BUS_PATH_SIZE]);

/* Likewise, or another device's where every GPU is among them. */
int device_nodes_forbidden(const struct device_nodes *nodes, char ret[static BUS_PATH_SIZE]);
