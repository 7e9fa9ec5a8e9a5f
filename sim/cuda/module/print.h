/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Print: the output of kernels, kept until the program waits for them.
 *
 * At most CU_LIMIT_PRINTF_FIFO_SIZE bytes; the oldest are dropped first.
 */
#include <stddef.h>

struct context;

/* From a kernel. Any thread, no lock. */
void print_add(struct context *context, const char *text, size_t n);
/* Write what there is to stdout. Without driver.lock. */
void print_flush(struct context *context);
/* The context ends: flush and forget. */
void print_end(struct context *context);
