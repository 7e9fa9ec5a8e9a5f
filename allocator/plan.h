/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan: offsets for buffers with lifetimes that are known ahead, as in a graph that runs many
 * times.
 *
 * A buffer lives in [start, end): `start` is the first moment at which it is needed, `end` the
 * first at which it no longer is. Two buffers that are live at the same moment never share a byte;
 * a buffer may begin at the very moment at which another ends, in the same place. Moments are
 * numbers of any clock that only goes forward, usually steps of a schedule:
 *
 *     step     0   1   2   3   4           step k runs op k; a buffer that op 1 writes
 *     buffer       ├───────────┤           and op 3 reads last is { 1, 4 }
 *
 * So the inputs and outputs of an op are apart. To let an op overwrite an input that it reads last,
 * end that input at the op's own step. A buffer that lives from before the first step until after
 * the last is { 0, number of steps }; one that is written and never read is { k, k + 1 }.
 *
 * Ops of one or several steps may run concurrently or in another order, as long as this holds:
 * before an op touches a buffer, all ops are done that touch a buffer with an `end` of at most its
 * `start`. If the order of a graph is partial, let lifetimes cover every possible order, or add
 * dependencies.
 *
 * No plan can need less than the most bytes that are live at once. Pure: the
 * same buffers give the same plan, on every machine. No threads, no state.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan_buffer {
    uint64_t start, end; /* lives in [start, end); start ≥ end: never lives, and lies at 0 */
    uint64_t bytes;      /* 0: takes no room, and lies at 0 */
    uint64_t offset;     /* where the plan puts it */
};

/*
 * Fast: fills in the offsets, and in `*ret_bytes` the bytes that they need. It takes some
 * milliseconds for ten thousand buffers of any shape, and hardly more than in proportion to their
 * number. It also tries first fit by size, the usual greedy plan, if there is time for it: for a
 * thousand buffers, and for many more with short lifetimes. Then the result is never worse than
 * that plan.
 *
 * Offsets are sums of sizes: where all sizes are multiples of an alignment, so are all offsets.
 *
 * -ENOMEM; -EOVERFLOW: the buffers have more than 2^63 - 1 bytes in all, or there are more than
 * 2^29 - 1 of them; -ECANCELED: another thread has set `*halt` (NULL: never). On failure, nothing
 * is changed.
 */
int plan_fast(struct plan_buffer *buffers, size_t n, const atomic_bool *halt, uint64_t *ret_bytes);
