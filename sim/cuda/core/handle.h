/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Handle: memory without an address, cuMemCreate(). It lives while the program holds the handle or
 * has it mapped. An exportable one has a file of its own, which is what other processes get.
 *
 * Functions need driver.lock.
 */
#include <stdint.h>

#include "sim/cuda/memory/address_space.h"

struct handle {
    struct slab_head head;
    struct cuda_device *device; /* NULL: host memory */
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
/* Count one mapping more, or one less. */
void handle_map(struct handle *handle);
void handle_unmap(struct handle *handle);
/* Take one more reference: cuMemRetainAllocationHandle(). */
CUmemGenericAllocationHandle handle_retain(struct handle *handle);

/* Whether `fd` is the file of a handle or pool (`kind`) of this box; its number. */
bool handle_name(int fd, const char *kind, uint64_t *ret_number);
/* A new file for `kind`, named so that handle_name() recognises it; -1: none could be made. */
int handle_file(const char *kind, uint64_t number, uint64_t bytes);
