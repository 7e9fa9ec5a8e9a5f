/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Devnode: the device nodes of a box, where the machine has any.
 *
 * A real driver finds a GPU only if it may open /dev/nvidiaN. Where such nodes exist (made by
 * hand with mknod, say, in a container or by a test) the simulated driver opens them too: one
 * that opens or answers ENXIO is present; EPERM, EACCES and ENOENT hide the GPU. Where a machine
 * has no node at all there is no check.
 */
#include <stdint.h>

struct box;

/* Bit per GPU index that this process may see. */
uint32_t devnode_visible_gpus(const struct box *box);
