/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Constants: values of a program that never change and lie in the memory of GPUs. A program is
 * built without them: its first run copies them there, without a lock, as their memory may have to
 * be waited for. The constants of a device lie in one block. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct allot_error;
struct buffer;
struct node;
struct program;

bool constants_are_any(const struct program *program);

/* The constants of one device. Graphs have thousands of them: to allocate and copy each by itself
 * would take longer than the rest of a plan. */
struct constants_need {
    uint64_t bytes;             /* of the block */
    uint32_t n;                 /* 0: there are none */
    const struct node *largest; /* the node of the largest; NULL: none */
};
struct constants_need constants_need(const struct program *program, uint32_t device);
/* The error where their memory cannot be allocated: the node of the largest, and how many others.
 */
int constants_name(const struct constants_need *need, int r, struct allot_error *err);
/* Give each constant its place in the block and a reference to it. Nothing queued uses the block.
 * After an error some are missing. */
int constants_copy(struct program *program, uint32_t device, struct buffer *block,
                   const atomic_bool *stopped, struct allot_error *err);
void constants_drop(struct program *program);
