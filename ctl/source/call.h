/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Call: one call of allotd for a verb. A failure is reported and becomes the exit status.
 */
#include "ctl/gpuctl.h"
#include "wire/client.h"

/*
 * Connect to allotd. EXIT_OK, or an error message and the exit status. `ret` is client_free()'d by
 * the caller.
 */
int call_connect(struct client **ret, const struct gpuctl *ctl);

/* Call and wait for the reply, which lives until the next call on `client`. As above. */
int call_make(struct client *client, enum wire_method method, const void *parameters,
              union wire_reply *ret);

/* Report the text of `err`; returns the exit status for the answer of a call. */
int call_complain(int r, const struct failure *failure, const struct allot_error *err);
