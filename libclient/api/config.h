/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Config: the settings made through allot/config.h. Any thread.
 */
#include <stdbool.h>

struct allot_error;
struct allot_session_options;

/* Fill in the options that are not given. They may then point into `*ret_text`, which the caller
 * frees. */
int config_fill(struct allot_session_options *options, char **ret_text, struct allot_error *err);
/* -EINVAL: it is no part of a whole. */
int config_check_fraction(double fraction, struct allot_error *err);
bool config_logs(void);
bool config_is_soft(void);
