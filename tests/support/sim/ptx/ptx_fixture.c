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
    struct ptx_fixture *fixture = user;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    n = MIN(n, sizeof(fixture->printed) - 1 - fixture->n_printed);
    memcpy(fixture->printed + fixture->n_printed, text, n);
    fixture->n_printed += n;
    fixture->printed[fixture->n_printed] = 0;
    pthread_mutex_unlock(&lock);
}

static uint64_t add(struct ptx_fixture *fixture, uint64_t bytes) {
    struct ptx_extent extent = { .base = fixture->next, .bytes = bytes };
    int r;

    if (fixture->n_blocks == ELEMENTSOF(fixture->blocks))
        die("too many allocations");
    extent.host = calloc(1, bytes);
    if (!extent.host)
        die("out of memory");
    r = ptx_table_add(&fixture->table, &extent);
    if (r < 0)
        die("ptx_table_add: %s", strerror(-r));
    fixture->blocks[fixture->n_blocks] = extent.host;
    fixture->addresses[fixture->n_blocks++] = extent.base;
    fixture->next = (extent.base + bytes + GAP + 511) & ~UINT64_C(511);
    return extent.base;
}

void ptx_fixture_init_text(struct ptx_fixture *fixture, const char *name, const char *text) {
    struct allot_error err = { 0 };

    *fixture = (struct ptx_fixture){ .next = FIRST_ADDRESS, .n_threads = 4 };
    if (ptx_module_new(&fixture->module) < 0 || ptx_table_init(&fixture->table) < 0)
        die("out of memory");
    if (ptx_module_add(fixture->module, name, text, strlen(text), &err) < 0 ||
        ptx_module_link(fixture->module, &err) < 0)
        die("%s", err.text);
    for (size_t i = 0; i < ptx_module_n_variables(fixture->module); i++) {
        struct ptx_variable variable;

        ptx_module_variable(fixture->module, i, &variable);
        ptx_module_place(fixture->module, i, add(fixture, MAX(variable.bytes, (uint64_t)1)));
    }
    for (size_t i = 0; i < ptx_module_n_variables(fixture->module); i++) {
        struct ptx_variable variable;

        ptx_module_variable(fixture->module, i, &variable);
        if (ptx_module_image(fixture->module, i, fixture->blocks[i], variable.bytes, &err) < 0)
            die("%s", err.text);
    }
}

char *ptx_fixture_read_file(const char *path, size_t *ret_n) {
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

void ptx_fixture_init_file(struct ptx_fixture *fixture, const char *path) {
    char *text = ptx_fixture_read_file(path, NULL);

    ptx_fixture_init_text(fixture, path, text);
    free(text);
}

void ptx_fixture_done(struct ptx_fixture *fixture) {
    ptx_module_free(fixture->module);
    ptx_table_done(&fixture->table);
    for (size_t i = 0; i < fixture->n_blocks; i++)
        free(fixture->blocks[i]);
}

uint64_t ptx_fixture_alloc(struct ptx_fixture *fixture, uint64_t bytes) {
    return add(fixture, bytes);
}

void ptx_fixture_free(struct ptx_fixture *fixture, uint64_t address) {
    for (size_t i = 0; i < fixture->n_blocks; i++)
        if (fixture->addresses[i] == address) {
            if (ptx_table_remove(&fixture->table, address) < 0)
                die("not allocated");
            free(fixture->blocks[i]);
            fixture->blocks[i] = NULL;
            fixture->addresses[i] = 0;
            return;
        }
    die("not allocated");
}

void *ptx_fixture_host(struct ptx_fixture *fixture, uint64_t address) {
    struct ptx_extent extent;

    if (ptx_table_find(&fixture->table, address, &extent) < 0)
        die("no memory at %#llx", (unsigned long long)address);
    return extent.host + (address - extent.base);
}

uint64_t ptx_fixture_variable(struct ptx_fixture *fixture, const char *name) {
    for (size_t i = 0; i < ptx_module_n_variables(fixture->module); i++) {
        struct ptx_variable variable;

        ptx_module_variable(fixture->module, i, &variable);
        if (!strcmp(variable.name, name))
            return fixture->addresses[i];
    }
    die("no variable '%s'", name);
}

struct ptx_function *ptx_fixture_find(const struct ptx_module *module, const char *name) {
    for (size_t i = 0; i < ptx_module_n_kernels(module); i++)
        if (!strcmp(ptx_function_name(ptx_module_kernel(module, i)), name))
            return ptx_module_kernel(module, i);
    return NULL;
}

void ptx_fixture_launch(struct ptx_fixture *fixture, const char *kernel, const uint32_t grid[3],
                        const uint32_t block[3], uint32_t shared, void **params,
                        struct ptx_result *ret) {
    struct ptx_launch launch = fixture->defaults;
    struct allot_error err = { 0 };
    unsigned char bytes[4096] = { 0 };

    launch.kernel = ptx_fixture_find(fixture->module, kernel);
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
    launch.memory = fixture->table.memory;
    launch.n_threads = fixture->n_threads;
    launch.cancel = fixture->cancel;
    launch.user = fixture;
    launch.print = print;
    if (ptx_launch(&launch, ret, &err) < 0)
        die("%s: %s", kernel, err.text);
}

void ptx_fixture_run(struct ptx_fixture *fixture, const char *kernel, uint32_t grid, uint32_t block,
                     uint32_t shared, void **params) {
    struct ptx_result result;

    ptx_fixture_launch(fixture, kernel, (uint32_t[]){ grid, 1, 1 }, (uint32_t[]){ block, 1, 1 },
                       shared, params, &result);
    if (result.fault.kind)
        die("%s: fault %d at line %u, thread %u of block %u, address %#llx: %s", kernel,
            result.fault.kind, result.fault.line, result.fault.thread[0], result.fault.block[0],
            (unsigned long long)result.fault.address, result.fault.text);
}
