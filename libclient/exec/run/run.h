/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Run: do everything that a frame's program says, once.
 */
#include <stdint.h>

struct frame;
struct pool;

/*
 * Between frame_begin() and frame_end(), by one thread. `n_threads`: how many may work on it, the
 * caller and helpers from `inter`. What goes wrong is in the frame. -ENOMEM: nothing was run.
 */
int run_frame(struct frame *frame, struct pool *inter, uint32_t n_threads);
