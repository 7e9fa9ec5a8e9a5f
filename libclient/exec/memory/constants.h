/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Constants: values of a program that never change and lie in the memory of GPUs. A program is made
 * without them: they are brought when it is first run, without a lock, as their memory may have to
 * be waited for. Those of a device lie in one block. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct allot_error;
struct buffer;
struct cache;
struct cache_entry;
struct node;
struct program;
struct alloc_wait;

bool constants_are_any(const struct program *program);

/* Those of one device: to allocate and to copy each by itself takes longer than the rest of a plan,
 * and graphs have them by the thousand. */
struct constants_need {
    uint64_t bytes;             /* of the block */
    uint32_t n;                 /* 0: there are none */
    const struct node *largest; /* whose is the largest; NULL: nobody's */
};
struct constants_need constants_need(const struct program *program, uint32_t device);
/* What is said where their memory cannot be had: whose is the largest, and how many others. */
int constants_name(const struct constants_need *need, int r, struct allot_error *err);
/* Each gets its place in the block, which nothing that is queued uses, and a reference to it. Not
 * all are there after an error. */
int constants_copy(struct program *program, uint32_t device, struct buffer *block,
                   const atomic_bool *stopped, struct allot_error *err);
void constants_drop(struct program *program);

/*
 * With a use of the entry: a run is about to take memory. Either its constants are there, or they
 * are its to bring (`*ret_mine`): one run does, others that come meanwhile wait for it.
 * `wait->stopped` is of a stop with the lock and the news of the cache. -ECANCELED.
 *
 * The run stands by until constants_end(): it does not use its constants yet, and if nobody else
 * does, whoever lacks memory may have it, this run as well. So it is asked then whether they are
 * there; if so the run keeps them until the use ends.
 */
int constants_begin(struct cache *cache, struct cache_entry *entry, const struct alloc_wait *wait,
                    bool *ret_mine, struct allot_error *err);
bool constants_end(struct cache *cache, struct cache_entry *entry, bool is_mine, bool are_brought);
