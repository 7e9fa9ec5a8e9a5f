/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Handle: memory without an address, cuMemCreate(). It lives while the program holds the handle or
 * has it mapped. An exportable one has a file of its own, which is what other processes get.
 *
 * Functions want driver.lock.
 */
#include <stdint.h>

#include "sim/cuda/memory/address_space.h"

struct handle {
    struct slab_head head;
    struct device *device; /* NULL: host memory */
    CUmemAllocationProp prop;
    uint64_t bytes;
    unsigned refs;   /* cuMemCreate(), retained, imported: what cuMemRelease() undoes */
    unsigned mapped; /* ranges */
    int fd;          /* its own; -1: in the address space's file at `offset` */
    uint64_t offset;
    uint64_t segment; /* 0: private to this process */
    uint64_t id;
};

/* The handle with that value, if the program may still name it; NULL: it may not. */
struct handle *handle_get(CUmemGenericAllocationHandle value);
/* One mapping more or less. */
void handle_map(struct handle *handle);
void handle_unmap(struct handle *handle);
/* Name it once more: cuMemRetainAllocationHandle(). */
CUmemGenericAllocationHandle handle_retain(struct handle *handle);

/* The file descriptor of a handle or pool that came as `fd`: its kind, box and number. */
bool handle_name(int fd, const char *kind, uint64_t *ret_number);
/* A new file for `kind`, named so that handle_name() knows it again; -1: no. */
int handle_file(const char *kind, uint64_t number, uint64_t bytes);
