/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memory user: a run that holds memory of GPUs, or is about to take some, and gives it back when it
 * ends. As long as there is one, an allocation that the process's own limit or the driver refuses
 * can wait (exec/memory/alloc.h).
 *
 * A run becomes a memory user before it takes memory and stays one until others can have that
 * memory, so that no waiter misses it; its end wakes waiters (core/wait.h). Any thread, with
 * any lock held.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct gpu;
struct program;

struct memory_user {
    struct list link;
    const struct program *program; /* NULL: not a memory user */
    bool has_memory;     /* else it is about to take some, and holds none while it waits */
    uint32_t n_waiting;  /* its threads that wait for memory of another user */
    unsigned generation; /* of the process that it belongs to */
};

/* A program without GPUs makes no memory user: the struct is left zeroed. */
void memory_user_begin(struct memory_user *user, const struct program *program, bool has_memory);
void memory_user_end(struct memory_user *user); /* nothing to do if it is none */

/* What a program has on GPUs is idle, or about to be: wake waiters. */
void memory_user_tell_idle(const struct program *program);

/* Whether other memory users will release memory that a waiter can take. */
enum memory_user_release {
    MEMORY_USER_RELEASES_NONE, /* no other user holds any, or all that do wait themselves */
    MEMORY_USER_RELEASES_SOON, /* a user is about to take some, or to find that there is none: look
                                  again soon */
    MEMORY_USER_RELEASES_AT_END, /* a user that holds some will end */
};

/*
 * Call before a thread of `user` waits for memory of `gpu`. With RELEASES_NONE it must not wait. If
 * users that hold memory would all wait for each other, the last one to ask gets RELEASES_NONE; its
 * run ends, and the others go on.
 */
enum memory_user_release memory_user_wait(struct memory_user *user, const struct gpu *gpu);
/* A thread of `user`, which holds no memory, waits in the queue behind others that lack memory. */
void memory_user_queue(struct memory_user *user);
void memory_user_resume(struct memory_user *user); /* after either, except after RELEASES_NONE */
