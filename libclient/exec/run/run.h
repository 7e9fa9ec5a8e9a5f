/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Run: run the program of a run state, once.
 */
#include <stdint.h>

struct run_state;
struct pool;

/*
 * Between run_state_begin() and run_state_end(), by one thread. `n_threads`: how many may work on
 * it, the caller and helpers from `inter`. What goes wrong is in the run state. -ENOMEM: nothing
 * was run.
 */
int run_program(struct run_state *state, struct pool *inter, uint32_t n_threads);
