/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Print: what kernels printed, kept until the program waits for them.
 *
 * As much as CU_LIMIT_PRINTF_FIFO_SIZE; the oldest goes first when it is full.
 */
#include <stddef.h>

struct context;

/* From a kernel. Any thread, no lock. */
void print_add(struct context *context, const char *text, size_t n);
/* Write what there is to stdout. Without driver.lock. */
void print_flush(struct context *context);
/* The context ends: flush and forget. */
void print_end(struct context *context);
