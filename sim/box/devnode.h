/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Devnode: the device nodes of a box, if the machine has any.
 *
 * A real driver finds a GPU only if it may open /dev/nvidiaN. If such nodes exist (made with
 * mknod, say, in a container or by a test), the simulated driver opens them too: a node that opens
 * or gives ENXIO shows its GPU; EPERM, EACCES and ENOENT hide it. A machine without any node is
 * not checked.
 */
#include <stdint.h>

struct box;

/* Bit per GPU index that this process may see. */
uint32_t devnode_visible_gpus(const struct box *box);
