/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Upload: the constants of a program that lie in the memory of one device: in one block, brought by
 * as few copies as there may be. Each copy waits for its end, and graphs have constants by the
 * thousand.
 */
#include <stdatomic.h>
#include <stdint.h>

struct allot_error;
struct buffer;
struct program;

/* How large the block is; 0: there are none. */
uint64_t upload_bytes(const struct program *program, uint32_t device);
/* Copy them into `block`, to which each of them gets a reference. -ECANCELED: `*halt` was set
 * (NULL: it never is). */
int upload_constants(struct program *program, uint32_t device, struct buffer *block,
                     const atomic_bool *halt, struct allot_error *err);
