/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lock: for the few dozen nanoseconds in which a shard changes.
 *
 * One locked instruction to take, a plain store to drop; half the cost of a pthread mutex without
 * contention, which is the rule because of the shards. A waiter spins, then yields, then sleeps, so
 * that waiting for a preempted holder does not burn another CPU.
 */
#include <stdatomic.h>
#include <stdbool.h>

struct lock {
    atomic_uint taken;
};

#if defined(__x86_64__) || defined(__i386__)
#define lock_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define lock_relax() __asm__ volatile("yield")
#else
#define lock_relax() atomic_signal_fence(memory_order_seq_cst)
#endif

static inline bool lock_try(struct lock *lock) {
    return !atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire);
}

/* Try for about as long as another thread needs for one allocation. */
static inline bool lock_try_hard(struct lock *lock) {
    for (unsigned i = 0; i < 64; i++) {
        if (!atomic_load_explicit(&lock->taken, memory_order_relaxed) && lock_try(lock))
            return true;
        lock_relax();
    }
    return false;
}

/* Slow part of lock_take(): another thread has the lock. */
void lock_take_slowly(struct lock *lock);

static inline void lock_take(struct lock *lock) {
    if (__builtin_expect(!lock_try(lock), 0))
        lock_take_slowly(lock);
}

static inline void lock_drop(struct lock *lock) {
    atomic_store_explicit(&lock->taken, 0, memory_order_release);
}
