/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Engine: an allocator that replay drives, behind plain C calls.
 *
 * `allot` and `allot-ptr` are part of replay. The others are shared objects beside it, named
 * engine-NAME.so, each with a `const struct engine *replay_engine`, built by bench-allocator.sh
 * from the wheels.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct engine {
    const char *name;
    /* An arena of at most `capacity` bytes, which is taken as it is needed. NULL: it cannot run. */
    void *(*start)(uint64_t capacity);
    void (*end)(void *arena);
    /* What free() wants, 0 where there is no memory. */
    uint64_t (*alloc)(void *arena, uint64_t bytes);
    void (*free)(void *arena, uint64_t block);
    /* Most bytes ever held of the device. */
    uint64_t (*peak_reserved)(void *arena);
    /* Optional: most requested bytes live at once, where it is known exactly. */
    uint64_t (*peak_live)(void *arena);
    /* Optional: bytes of pages mapped or moved since the start. */
    uint64_t (*mapped)(void *arena);
};

extern const struct engine engine_allot, engine_allot_ptr;

#ifdef __cplusplus
}
#endif
