/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake: a vendor library for tests of driver/, made from the same table as the real calls.
 *
 * Every symbol of the table answers `fakeCode`; some really answer when that is 0. With FAKE_BARE
 * only what the table calls needed is there: a driver older than anything optional. A test steers a
 * fake through its `struct fake`, which it finds by dlsym(handle, "fake").
 */
#include <stdbool.h>
#include <stdint.h>

#define FAKE_PROCESSES_MAX 256

struct fake_process {
    uint32_t pid;
    uint64_t used;
    uint32_t gpu_instance, compute_instance;
};

struct fake {
    int code;           /* what each call answers, initialisation excepted */
    int init_code;      /* what initialisation answers */
    unsigned n_init;    /* how often it was initialised, */
    unsigned n_done;    /* and shut down */
    unsigned init_usec; /* how long it takes */
    const char *driver; /* version */
    bool is_mig;        /* device 0 is in MIG mode, with instances (1, 0) and (2, 0) */
    uint64_t total, reserved, free, used;
    struct fake_process compute[FAKE_PROCESSES_MAX], graphics[FAKE_PROCESSES_MAX];
    unsigned n_compute, n_graphics;
    unsigned grows_by;   /* each size query finds so many compute processes more than said */
    uint64_t soft, hard; /* memory limits set */
    uint64_t event;      /* the event bits to deliver, 0: time out */
};

extern struct fake fake;

#define FAKE_EXPORT     __attribute__((visibility("default")))
#define FAKE_WEAK       __attribute__((visibility("default"), weak))
#define FAKE_IF_true(x) x
#ifdef FAKE_BARE
#define FAKE_IF_false(x)
#else
#define FAKE_IF_false(x) x
#endif
