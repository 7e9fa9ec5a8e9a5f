/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Fake limit: a program in the place of allot-limit, on a fake machine. */
#include "daemon/hand/limit/exit_status.h"

/* Beside the running test, for it alone. */
void fake_limit_install(void);
/* How it ends from now on, and what it says; `word` is "set", "check" or "try", NULL: each of them.
 */
void fake_limit_answer(const char *word, int status, const char *text);
/* What it was asked since it was last told how to end, a line each. */
const char *fake_limit_asked(void);

#define fake_limit_say(status, text) fake_limit_answer(NULL, status, text)
