/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lease wait: waiting for a lease on behalf of a command, with place and reason on stderr
 * meanwhile.
 */
#include "ctl/job/request_options.h"
#include "ctl/gpuctl.h"
#include "wire/client.h"

/*
 * The grant, which lives as long as no other call is made on `client`. EXIT_OK, or one of
 * EXIT_RUN_… after telling why not. A daemon that is restarted meanwhile is waited for, and asked
 * again; one that hangs is waited for too, but for no longer than `wanted` says, and 2 s.
 */
int lease_wait_acquire(const struct gpuctl *ctl, const struct request_options *wanted, bool quiet,
                       struct client *client, const struct wire_grant **ret);
