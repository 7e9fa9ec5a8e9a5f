/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/cuda/memory/heap.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/memory/segment.h"
#include "sim/box/proc.h"

#define IPC_MAGIC UINT32_C(0x43504947)

/* What a CUipcMemHandle holds. It travels through files and sockets: nothing in it is trusted. */
struct ipc_handle {
    uint32_t magic;
    int32_t pid; /* of the exporter, as it sees itself */
    uint64_t box_id;
    uint64_t segment;
    uint64_t start_time; /* of that process: no other one is mistaken for it */
    uint64_t offset;     /* in its file */
    uint64_t bytes;      /* of the allocation */
    int32_t fd;          /* of its file */
    uint32_t inner;      /* of the allocation in the segment */
    uint64_t pad;
};
_Static_assert(sizeof(struct ipc_handle) == CU_IPC_HANDLE_SIZE, "as large as the vendor's");

static struct slab imports = SLAB(struct ipc_import);

/*
 * Ranges that were freed here while other processes use their memory: neither the bytes nor the
 * addresses (the same offset in our file) may be used again until no process uses them.
 */
static struct range *retired;

static void sweep(void) {
    struct range **at = &retired, *range;

    while ((range = *at)) {
        if (segment_exists(range->segment)) {
            at = &range->next;
            continue;
        }
        *at = range->next;
        address_space_discard(-1, range->base, range->span);
        address_space_release(range->base, range->span);
        range_free(range);
    }
}

bool segment_forget(struct range *range) {
    sweep();
    if (!segment_leave(range->segment)) {
        range->next = retired;
        retired = range;
        return false;
    }
    address_space_discard(-1, range->base, range->span);
    address_space_release(range->base, range->span);
    return true;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
    struct context *context;
    struct allocation found;
    struct ipc_handle handle = { .magic = IPC_MAGIC };

    ENTER_CONTEXT(context);
    if (!pHandle)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    /* Only plain device memory: not managed, mapped, of a pool, nor of another process. */
    if (!memory_find(dptr, &found) ||
        (found.range->kind != RANGE_DEVICE && found.range->kind != RANGE_BLOCK) ||
        found.range->heap->pool)
        return CUDA_ERROR_INVALID_VALUE;
    if (!found.range->segment)
        TRY(segment_new(found.range->device, found.range->span, &found.range->segment));
    handle.pid = getpid();
    handle.box_id = driver.box->file->box_id;
    handle.segment = found.range->segment;
    handle.start_time = proc_start_time(getpid());
    handle.offset = found.range->base - address_space.base;
    handle.bytes = found.bytes;
    handle.fd = address_space.fd;
    handle.inner = (uint32_t)(found.base - found.range->base);
    memcpy(pHandle, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult ipc_import_new(struct context *context, struct cuda_device *device, int fd,
                        uint64_t offset, uint64_t span, uint64_t inner, uint64_t bytes,
                        struct range **ret) {
    struct ipc_import *import = slab_new(&imports);
    struct range *range = range_new();

    if (range)
        range->base = address_space_reserve(ADDRESS_SPACE_DEVICE, span, 0, 0);
    if (!import || !range || !range->base ||
        address_space_map(range->base, span, fd, offset) != CUDA_SUCCESS) {
        if (range && range->base)
            address_space_release(range->base, span);
        if (range)
            range_free(range);
        if (import)
            slab_free(&imports, import);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    import->opened = 1;
    import->address = range->base + inner;
    slab_publish(import);
    range->kind = RANGE_IMPORTED;
    range->device = device;
    range->bytes = inner + bytes;
    range->span = span;
    range->import = import;
    context_link(context, range);
    address_space_enter(range, range->base, span);
    *ret = range;
    return CUDA_SUCCESS;
}

void ipc_close(struct range *range) {
    struct ipc_import *import = range->import;

    address_space_enter(NULL, range->base, range->span);
    context_unlink(range->context, range);
    address_space_map(range->base, range->span, -1, 0);
    address_space_release(range->base, range->span);
    if (import->segment)
        segment_leave(import->segment);
    slab_free(&imports, import);
    range_free(range);
}

/* The exporter's file, if that process is still the one that made the handle. */
static int open_exporter(const struct ipc_handle *handle) {
    cleanup(closep) int fd = -1;
    struct stat st;
    char path[64];

    if (handle->pid <= 0 || proc_start_time(handle->pid) != handle->start_time)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    if (handle->offset % ADDRESS_SPACE_GRANULE || handle->offset > (uint64_t)st.st_size)
        return -1;
    return TAKE_FD(fd);
}

static struct range *find_opened(struct context *context, const struct ipc_handle *handle) {
    for (struct range *range = context->first; range; range = range->next)
        if (range->kind == RANGE_IMPORTED && range->import->segment == handle->segment &&
            range->import->address == range->base + handle->inner)
            return range;
    return NULL;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    struct context *context;
    struct cuda_device *device;
    struct ipc_handle inside;
    struct range *range;
    uint64_t span;
    CUresult r;

    ENTER_CONTEXT(context);
    if (!pdptr || Flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&inside, &handle, sizeof(inside));
    if (inside.magic != IPC_MAGIC || inside.box_id != driver.box->file->box_id || !inside.segment)
        return CUDA_ERROR_INVALID_VALUE;
    if (inside.pid == getpid() && inside.start_time == proc_start_time(getpid()))
        return CUDA_ERROR_INVALID_CONTEXT; /* as the real one: not in the exporting process */
    DRIVER_LOCKED();
    range = find_opened(context, &inside);
    if (range) {
        range->import->opened++;
        *pdptr = range->import->address;
        return CUDA_SUCCESS;
    }
    r = segment_join(inside.segment, &device, &span);
    if (r != CUDA_SUCCESS)
        return r;
    if (inside.inner >= span || inside.bytes > span - inside.inner) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else {
        cleanup(closep) int fd = open_exporter(&inside);

        r = fd < 0 ? CUDA_ERROR_INVALID_VALUE
                   : ipc_import_new(context, device, fd, inside.offset, span, inside.inner,
                                    inside.bytes, &range);
    }
    if (r != CUDA_SUCCESS) {
        segment_leave(inside.segment);
        return r;
    }
    range->import->segment = inside.segment;
    *pdptr = range->import->address;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) {
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    struct context *context;
    struct range *range;

    ENTER_CONTEXT(context);
    DRIVER_LOCKED();
    range = address_space_find(dptr);
    if (!range || range->kind != RANGE_IMPORTED || range->import->pool ||
        range->import->address != dptr)
        return CUDA_ERROR_INVALID_VALUE;
    if (--range->import->opened == 0)
        ipc_close(range);
    return CUDA_SUCCESS;
}
