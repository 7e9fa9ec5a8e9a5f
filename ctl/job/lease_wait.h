/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lease wait: requests a lease for a command and waits for it, showing queue position and reason on
 * stderr.
 */
#include "ctl/job/request_options.h"
#include "ctl/gpuctl.h"
#include "wire/client.h"

/*
 * The grant lives until the next call on `client`. EXIT_OK, or an error message and one of
 * EXIT_RUN_…. If the daemon restarts meanwhile, gpuctl waits for it and asks again. If the daemon
 * hangs, gpuctl waits too, but only for the time limit of `wanted` plus 2 s.
 */
int lease_wait_acquire(const struct gpuctl *ctl, const struct request_options *wanted, bool quiet,
                       struct client *client, const struct wire_grant **ret);
