/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Machine probe: the machine of a session (place/machine.h) as the driver describes it: rates from
 * clocks and widths of the GPUs, links from NVML, memory from the lease. What the driver does not
 * say is assumed, modestly.
 *
 * Channels are those of the executor: each GPU has one stream for copies to it, from its peers and
 * from the host, and one for copies to the host. Links over PCIe share media: the lanes by which a
 * GPU sends; and the uplink of a switch, which copies of the host pass, copies between GPUs behind
 * different switches, and all copies between GPUs that cannot reach each other.
 */
#include "libclient/place/machine.h"

struct device;

/* `devices[0]` is the host's CPU. A device needs its name, limit and, on a GPU, what
 * gpu_identify() fills in. */
void machine_probe(struct machine *ret, struct device *const *devices, uint32_t n_devices,
                   unsigned n_cpu_threads);
