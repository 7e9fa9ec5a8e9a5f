/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * PTX fixture: a module with its variables in device memory, for tests and benchmarks of the PTX
 * interpreter. Device addresses are made up and unlike host ones, with gaps between allocations, so
 * that a stray access is caught. What goes wrong on the way ends the program with a message.
 */
#include "tests/support/sim/ptx/ptx_table.h"

struct ptx_fixture {
    struct ptx_module *module;
    struct ptx_table table;
    uint64_t next;              /* address of the next allocation */
    unsigned char *blocks[256]; /* host side of each */
    uint64_t addresses[256];
    size_t n_blocks;
    char printed[4096]; /* what kernels printed */
    size_t n_printed;
    unsigned n_threads; /* of launches: 4, so that blocks meet on any machine */
    const _Atomic bool *cancel;
    struct ptx_launch defaults; /* copied into each launch */
};

/* A fixture with one input. */
void ptx_fixture_init_text(struct ptx_fixture *fixture, const char *name, const char *text);
void ptx_fixture_init_file(struct ptx_fixture *fixture, const char *path);
void ptx_fixture_done(struct ptx_fixture *fixture);

/* Device memory of exactly so many bytes, zeroed; its address. */
uint64_t ptx_fixture_alloc(struct ptx_fixture *fixture, uint64_t bytes);
void ptx_fixture_free(struct ptx_fixture *fixture, uint64_t address);
void *ptx_fixture_host(struct ptx_fixture *fixture, uint64_t address);        /* its bytes */
uint64_t ptx_fixture_variable(struct ptx_fixture *fixture, const char *name); /* its address */

/* Launch with parameters given by pointers, as cuLaunchKernel does. */
void ptx_fixture_launch(struct ptx_fixture *fixture, const char *kernel, const uint32_t grid[3],
                        const uint32_t block[3], uint32_t shared, void **params,
                        struct ptx_result *ret);
/* One dimension, and it must end well. */
void ptx_fixture_run(struct ptx_fixture *fixture, const char *kernel, uint32_t grid, uint32_t block,
                     uint32_t shared, void **params);

/* The kernel of that name; NULL: none. */
struct ptx_function *ptx_fixture_find(const struct ptx_module *module, const char *name);

char *ptx_fixture_read_file(const char *path, size_t *ret_n); /* NUL-terminated; free() it */

#define PTX_PARAMS(...) ((void *[]){ __VA_ARGS__ })
