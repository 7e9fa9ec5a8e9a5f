/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memory user: a run that has memory of GPUs, or is about to, and gives it back by itself when it
 * is over. Whoever lacks memory that the process's own limit, or the driver, refuses waits while
 * there is one (exec/memory/alloc_wait.h).
 *
 * So that nobody misses one, a run is a memory user before it takes memory, and until that can be
 * had by others; its end is told to those who wait (device/wakeup.h). Any thread, with any lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct gpu;
struct program;

struct memory_user {
    struct list link;
    const struct program *program; /* NULL: it is none */
    bool has_memory;               /* else it is about to take some, and has none while it waits */
    uint32_t n_waiting;            /* threads of it that wait for another's */
    unsigned generation;           /* of the process that it is one of */
};

/* A program that has nothing to do with GPUs has no memory users: then it is left as it is, zeroed.
 */
void memory_user_begin(struct memory_user *user, const struct program *program, bool has_memory);
void memory_user_end(struct memory_user *user); /* also of one that is none */

/* What one who lacks memory may hope for. */
enum memory_user_release {
    MEMORY_USER_RELEASES_NONE,   /* nobody else has any, or all who have some wait themselves */
    MEMORY_USER_RELEASES_SOON,   /* somebody is about to take some, or to find that there is none:
                                    look again */
    MEMORY_USER_RELEASES_AT_END, /* somebody who has some will end */
};

/*
 * Before a thread of `user` waits for memory of `gpu`. Without hope it does not wait. Of
 * those who have memory and wait for each other the last one to ask has none; it ends, and the
 * others get on.
 */
enum memory_user_release memory_user_wait(struct memory_user *user, const struct gpu *gpu);
/* A thread of it waits behind others who lack memory, and has none itself. */
void memory_user_queue(struct memory_user *user);
void memory_user_resume(struct memory_user *user); /* after either, but for no hope */
