/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/core/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/memory/managed.h"
#include "sim/cuda/memory/segment.h"

static struct slab handles = SLAB(struct handle);
static uint64_t last_id;

struct handle *handle_get(CUmemGenericAllocationHandle value) {
    struct handle *handle = (struct handle *)(uintptr_t)value;

    return slab_live(&handles, handle) && handle->refs > 0 ? handle : NULL;
}

static bool is_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->win32HandleMetaData)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return device_get(prop->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    return is_host(&prop->location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
    ENTER(-1);
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    TRY(check_prop(prop));
    *granularity = ADDRESS_SPACE_GRANULE;
    return CUDA_SUCCESS;
}

int handle_file(const char *kind, uint64_t number, uint64_t bytes) {
    cleanup(closep) int fd = -1;
    struct rlimit limit;
    char name[96];

    snprintf(name, sizeof(name), "gpusim-%s-%016" PRIx64 "-%" PRIu64, kind,
             driver.box->file->box_id, number);
    fd = memfd_create(name, MFD_CLOEXEC);
    /* One descriptor per handle exceeds the usual soft limit quickly; so raise it to the hard
     * limit. */
    if (fd < 0 && errno == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        fd = memfd_create(name, MFD_CLOEXEC);
    }
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return -1;
    return TAKE_FD(fd);
}

bool handle_name(int fd, const char *kind, uint64_t *ret_number) {
    char path[64], name[160], found[32];
    uint64_t box_id;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, name, sizeof(name) - 1);
    if (n < 0)
        return false;
    name[n] = 0;
    return sscanf(name, "/memfd:gpusim-%31[a-z]-%" SCNx64 "-%" SCNu64, found, &box_id,
                  ret_number) == 3 &&
           !strcmp(found, kind) && box_id == driver.box->file->box_id;
}

/* Give back its bytes and its charge. */
static void handle_end(struct handle *handle) {
    if (handle->fd >= 0)
        close(handle->fd);
    else
        address_space_file_release(handle->offset, handle->bytes, true);
    if (handle->segment)
        segment_leave(handle->segment);
    else if (handle->device)
        device_give(handle->device, handle->bytes);
    slab_free(&handles, handle);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    struct handle *handle;
    bool exportable, ok;

    ENTER(prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                  device_get(prop->location.id)
              ? (int)device_get(prop->location.id)->part.gpu
              : -1);
    if (!ret || flags)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(check_prop(prop));
    if (size == 0 || size % ADDRESS_SPACE_GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    exportable = prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    DRIVER_LOCKED();
    handle = slab_new(&handles);
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle->prop = *prop;
    handle->prop.allocFlags.compressionType = 0; /* declined, as cuda.h allows */
    handle->bytes = size;
    handle->refs = 1;
    handle->fd = -1;
    handle->id = ++last_id;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        CUresult r;

        handle->device = device_get(prop->location.id);
        r = device_lost(handle->device)          ? CUDA_ERROR_DEVICE_UNAVAILABLE
            : size > handle->device->total_bytes ? CUDA_ERROR_OUT_OF_MEMORY
                                                 : managed_make_room(handle->device, size);
        if (r != CUDA_SUCCESS) {
            slab_free(&handles, handle);
            return r;
        }
    }
    if (exportable) {
        CUresult r = CUDA_SUCCESS;

        /* The name of the file contains the number, so that comes first. */
        if (handle->device)
            r = segment_new(handle->device, size, &handle->segment);
        if (r == CUDA_SUCCESS)
            handle->fd = handle_file(handle->device ? "handle" : "host",
                                     handle->device ? handle->segment : size, size);
        ok = r == CUDA_SUCCESS && handle->fd >= 0;
    } else {
        handle->offset = address_space_file_reserve(size);
        ok = handle->offset != 0;
    }
    if (!ok) {
        if (handle->segment)
            segment_leave(handle->segment);
        else if (handle->device)
            device_give(handle->device, size);
        slab_free(&handles, handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    slab_publish(handle);
    *ret = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle value) {
    struct handle *handle;

    ENTER(-1);
    DRIVER_LOCKED();
    handle = handle_get(value);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (--handle->refs == 0 && handle->mapped == 0)
        handle_end(handle);
    return CUDA_SUCCESS;
}

void handle_map(struct handle *handle) {
    handle->mapped++;
}

void handle_unmap(struct handle *handle) {
    if (--handle->mapped == 0 && handle->refs == 0)
        handle_end(handle);
}

CUmemGenericAllocationHandle handle_retain(struct handle *handle) {
    handle->refs++;
    return (CUmemGenericAllocationHandle)(uintptr_t)handle;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle value) {
    struct handle *handle;

    ENTER(-1);
    DRIVER_LOCKED();
    handle = handle_get(value);
    if (!prop || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = handle->prop;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle value,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
    struct handle *handle;
    int fd;

    ENTER(-1);
    if (!shareableHandle || flags)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    handle = handle_get(value);
    if (!handle || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || handle->fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(shareableHandle, &fd, sizeof(fd));
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *osHandle,
                                        CUmemAllocationHandleType shHandleType) {
    int fd = (int)(intptr_t)osHandle;
    struct handle *handle;
    struct cuda_device *device = NULL;
    uint64_t number, bytes = 0;
    struct stat st;

    ENTER(-1);
    if (!ret || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    if (handle_name(fd, "handle", &number)) {
        TRY(segment_join(number, &device, &bytes));
    } else if (handle_name(fd, "host", &bytes)) {
        number = 0;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    handle = slab_new(&handles);
    if (handle)
        handle->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (!handle || handle->fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size < bytes) {
        if (handle && handle->fd >= 0)
            close(handle->fd);
        if (handle)
            slab_free(&handles, handle);
        if (number)
            segment_leave(number);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    handle->device = device;
    handle->bytes = bytes;
    handle->refs = 1;
    handle->segment = number;
    handle->id = ++last_id;
    handle->prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { .type = device ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST,
                      .id = device ? device->ordinal : 0 },
    };
    slab_publish(handle);
    *ret = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}
