/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Process id: a process of this boot, named so that a reused pid is not mistaken for it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One process of this boot. */
struct process_id {
    pid_t pid;
    uint64_t start; /* field 22 of /proc/PID/stat: clock ticks since boot; 0: not known */
};

static inline bool process_id_equal(const struct process_id *a, const struct process_id *b) {
    return a->pid == b->pid && a->start == b->start;
}

/*
 * A key for maps. Pids have 22 bits, and start times count clock ticks since boot, which need the
 * other 42 only after centuries: no two processes of a boot share a key.
 */
static inline uint64_t process_id_key(const struct process_id *id) {
    return id->start << 22 ^ (uint64_t)id->pid;
}
