/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Config: what the setters of allot/config.h have said. Any thread.
 */
#include <stdbool.h>

struct allot_error;
struct allot_session_options;

/* Fill in what `options` leaves open. `*ret_text` (to be freed) is what they then point to. */
int config_fill(struct allot_session_options *options, char **ret_text, struct allot_error *err);
/* -EINVAL: it is no part of a whole. */
int config_check_fraction(double fraction, struct allot_error *err);
bool config_logs(void);
bool config_is_soft(void);
