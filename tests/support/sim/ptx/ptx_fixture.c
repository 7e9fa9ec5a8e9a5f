/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/ptx/ptx_fixture.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

#define FIRST_ADDRESS UINT64_C(0x700000000000)
#define GAP           4096

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...) {
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static void print(void *user, const char *text, size_t n) {
    struct ptxworld *world = user;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    n = MIN(n, sizeof(world->printed) - 1 - world->n_printed);
    memcpy(world->printed + world->n_printed, text, n);
    world->n_printed += n;
    world->printed[world->n_printed] = 0;
    pthread_mutex_unlock(&lock);
}

static uint64_t add(struct ptxworld *world, uint64_t bytes) {
    struct ptx_extent extent = { .base = world->next, .bytes = bytes };
    int r;

    if (world->n_blocks == ELEMENTSOF(world->blocks))
        die("too many allocations");
    extent.host = calloc(1, bytes);
    if (!extent.host)
        die("out of memory");
    r = ptx_memory_add(world->memory, &extent);
    if (r < 0)
        die("ptx_memory_add: %s", strerror(-r));
    world->blocks[world->n_blocks] = extent.host;
    world->addresses[world->n_blocks++] = extent.base;
    world->next = (extent.base + bytes + GAP + 511) & ~UINT64_C(511);
    return extent.base;
}

void ptxworld_init_text(struct ptxworld *world, const char *name, const char *text) {
    struct allot_error err = { 0 };

    *world = (struct ptxworld){ .next = FIRST_ADDRESS, .n_threads = 4 };
    if (ptx_module_new(&world->module) < 0 || ptx_memory_new(&world->memory) < 0)
        die("out of memory");
    if (ptx_module_add(world->module, name, text, strlen(text), &err) < 0 ||
        ptx_module_link(world->module, &err) < 0)
        die("%s", err.text);
    for (size_t i = 0; i < ptx_module_n_variables(world->module); i++) {
        struct ptx_variable variable;

        ptx_module_variable(world->module, i, &variable);
        ptx_module_place(world->module, i, add(world, MAX(variable.bytes, (uint64_t)1)));
    }
    for (size_t i = 0; i < ptx_module_n_variables(world->module); i++) {
        struct ptx_variable variable;

        ptx_module_variable(world->module, i, &variable);
        if (ptx_module_image(world->module, i, world->blocks[i], variable.bytes, &err) < 0)
            die("%s", err.text);
    }
}

char *ptxworld_read_file(const char *path, size_t *ret_n) {
    cleanup(fclosep) FILE *file = fopen(path, "re");
    char *text;
    long n;

    if (!file || fseek(file, 0, SEEK_END) || (n = ftell(file)) < 0)
        die("%s: %m", path);
    rewind(file);
    text = calloc(1, (size_t)n + 1);
    if (!text || fread(text, 1, (size_t)n, file) != (size_t)n)
        die("%s: %m", path);
    if (ret_n)
        *ret_n = (size_t)n;
    return text;
}

void ptxworld_init_file(struct ptxworld *world, const char *path) {
    char *text = ptxworld_read_file(path, NULL);

    ptxworld_init_text(world, path, text);
    free(text);
}

void ptxworld_done(struct ptxworld *world) {
    ptx_module_free(world->module);
    ptx_memory_free(world->memory);
    for (size_t i = 0; i < world->n_blocks; i++)
        free(world->blocks[i]);
}

uint64_t ptxworld_alloc(struct ptxworld *world, uint64_t bytes) {
    return add(world, bytes);
}

void ptxworld_free(struct ptxworld *world, uint64_t address) {
    for (size_t i = 0; i < world->n_blocks; i++)
        if (world->addresses[i] == address) {
            if (ptx_memory_remove(world->memory, address) < 0)
                die("not allocated");
            free(world->blocks[i]);
            world->blocks[i] = NULL;
            world->addresses[i] = 0;
            return;
        }
    die("not allocated");
}

void *ptxworld_host(struct ptxworld *world, uint64_t address) {
    struct ptx_extent extent;

    if (ptx_memory_find(world->memory, address, false, &extent) < 0)
        die("no memory at %#llx", (unsigned long long)address);
    return extent.host + (address - extent.base);
}

uint64_t ptxworld_variable(struct ptxworld *world, const char *name) {
    for (size_t i = 0; i < ptx_module_n_variables(world->module); i++) {
        struct ptx_variable variable;

        ptx_module_variable(world->module, i, &variable);
        if (!strcmp(variable.name, name))
            return world->addresses[i];
    }
    die("no variable '%s'", name);
}

void ptxworld_launch(struct ptxworld *world, const char *kernel, const uint32_t grid[3],
                     const uint32_t block[3], uint32_t shared, void **params,
                     struct ptx_result *ret) {
    struct ptx_launch launch = world->defaults;
    struct allot_error err = { 0 };
    unsigned char bytes[4096] = { 0 };

    launch.kernel = ptx_module_find(world->module, kernel);
    if (!launch.kernel)
        die("no kernel '%s'", kernel);
    for (size_t i = 0; i < ptx_function_n_params(launch.kernel); i++) {
        struct ptx_param param;

        ptx_function_param(launch.kernel, i, &param);
        memcpy(bytes + param.offset, params[i], param.bytes);
    }
    memcpy(launch.grid, grid, sizeof(launch.grid));
    memcpy(launch.block, block, sizeof(launch.block));
    launch.dynamic_shared_bytes = shared;
    launch.params = bytes;
    launch.param_bytes = sizeof(bytes);
    launch.memory = world->memory;
    launch.n_threads = world->n_threads;
    launch.cancel = world->cancel;
    launch.user = world;
    launch.print = print;
    if (ptx_launch(&launch, ret, &err) < 0)
        die("%s: %s", kernel, err.text);
}

void ptxworld_run(struct ptxworld *world, const char *kernel, uint32_t grid, uint32_t block,
                  uint32_t shared, void **params) {
    struct ptx_result result;

    ptxworld_launch(world, kernel, (uint32_t[]){ grid, 1, 1 }, (uint32_t[]){ block, 1, 1 }, shared,
                    params, &result);
    if (result.fault.kind)
        die("%s: fault %d at line %u, thread %u of block %u, address %#llx: %s", kernel,
            result.fault.kind, result.fault.line, result.fault.thread[0], result.fault.block[0],
            (unsigned long long)result.fault.address, result.fault.text);
}
