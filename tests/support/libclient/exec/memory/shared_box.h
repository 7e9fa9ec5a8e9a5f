/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shared box: sessions on a simulated box with a real allotd, and runs on threads of their own that
 * wait for memory which another process holds. One box at a time.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "libclient/allot/lease.h"
#include "libclient/exec/stop/cancel.h"
#include "tests/support/libclient/exec/engine/gpu_fixture.h"
#include "tests/support/daemon/real_allotd.h"

enum { MIB = 1 << 20, VALUE = 4 * MIB, COUNT = VALUE / 4 };
/* The time that counts as "at once", under a sanitizer on a busy machine. A run that is not woken
 * waits for a minute, the daemon's limit. */
#define SOON_USEC UINT64_C(20000000)

extern struct real_allotd shared_box_allotd;

/* The box and its daemon; SIM_LIB_DIR and ALLOTD are the test's. */
#define shared_box_begin() shared_box_open(SIM_LIB_DIR, ALLOTD)
void shared_box_open(const char *sim_dir, const char *allotd_path);
void shared_box_end(void);

void open_session_of(struct gpu_fixture *fixture, struct gpus_options gpus);
void open_session_on(struct gpu_fixture *fixture, uint32_t n_gpus);
void open_session(struct gpu_fixture *fixture);

/* Check that the daemon's books and the process's agree: the arena's bytes and the context. */
void check_books(const struct gpu_fixture *fixture, struct allot_lease *filler);
/* Wait until so many Holds have begun. */
void await_held(unsigned n);

struct runner {
    struct gpu_fixture *fixture;
    struct edge x, y;
    uint32_t target; /* instead of `y`, where `has_target` */
    bool has_target;
    struct allot_tensor *fed;
    struct cancel cancel;
    struct engine_run run;
    struct allot_error err;
    uint64_t ended_usec;
    pthread_t thread;
    int r;
};

/* A run with step memory of `bytes`, or with a constant of so many. */
struct runner runner_line(struct gpu_fixture *fixture, const char *op, int64_t bytes);
struct runner runner_constant(struct gpu_fixture *fixture, int64_t bytes);
void runner_done(struct runner *runner);

void runner_begin(struct runner *runner, uint64_t timeout_usec);
void runner_await(struct runner *runner, int expected);
/* One that does not wait. */
void runner_check(struct runner *runner);
/* Cancelled now, it ends at once. */
void runner_cancel(struct runner *runner);
