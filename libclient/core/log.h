/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Log: messages for people, to wherever allot_log_set() says. Any thread.
 */
#include "libclient/allot/log.h"

void log_say(enum allot_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
