/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Self-test: "gpuctl doctor --selftest": tries on this box what the documentation claims, in less
 * than five minutes and without harm to others, and writes a transcript that can be sent in.
 *
 * gpuctl itself makes no context: what loads the driver is gpuctl-selftest, in processes that are
 * ended when they take too long, and under a lease where allotd runs.
 */
#include "ctl/gpuctl.h"

/* `transcript`: the file to write, or NULL. The exit status: EXIT_OK, or EXIT_UNSOUND if a row
 * failed. */
int selftest_run(const struct gpuctl *ctl, const char *transcript);
