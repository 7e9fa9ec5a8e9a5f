/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page has a place for each of the last records. A record whose place was taken by a later one,
 * RECORDS further on, counts as reached: a program that records so much more often than it waits
 * has lost that record anyway.
 *
 *     last = 70     place 5: 69, reached    place 6: 70, of pid 4711    place 7: 7, reached
 */
#include "sim/cuda/stream/ipc_event.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/core/handle.h"
#include "sim/box/proc.h"

#define EVENT_MAGIC UINT32_C(0x45504947)

enum {
    RECORDS = 64,
    PAGE = 4096,
};

struct event_record {
    _Atomic uint64_t number; /* written last */
    _Atomic uint64_t reached;
    _Atomic uint64_t start_time; /* of the process that made it */
    _Atomic int32_t pid;
};

struct event_page {
    _Atomic uint64_t last;
    struct event_record records[RECORDS];
};
_Static_assert(sizeof(struct event_page) <= PAGE, "fits a page");

struct ipc_event {
    _Atomic unsigned refs;
    struct event_page *page;
    int fd; /* -1: another process's */
    uint64_t number;
};

/* What a CUipcEventHandle holds. It travels through files and sockets: nothing in it is trusted. */
struct event_handle {
    uint32_t magic;
    int32_t pid; /* of the exporter, as it sees itself */
    uint64_t box_id;
    uint64_t start_time; /* of that process: no other one is mistaken for it */
    uint64_t number;     /* of its file */
    int32_t fd;          /* of its file */
    uint32_t pad[7];
};
_Static_assert(sizeof(struct event_handle) == CU_IPC_HANDLE_SIZE, "as large as the vendor's");

static uint64_t last_number;

/* Read once: no fork can make it wrong, because a child cannot use the driver. */
static uint64_t own_start_time(void) {
    static _Atomic uint64_t kept;
    uint64_t found = atomic_load(&kept);

    if (!found) {
        found = proc_start_time(getpid());
        atomic_store(&kept, found);
    }
    return found;
}

static CUresult map(struct ipc_event **ret, int fd) {
    struct ipc_event *event = calloc(1, sizeof(*event));
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (!event || page == MAP_FAILED) {
        if (page != MAP_FAILED)
            munmap(page, PAGE);
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->refs = 1;
    event->page = page;
    event->fd = -1;
    *ret = event;
    return CUDA_SUCCESS;
}

CUresult ipc_event_new(struct ipc_event **ret) {
    cleanup(closep) int fd = handle_file("event", ++last_number, PAGE);
    struct ipc_event *event;

    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(map(&event, fd));
    event->fd = TAKE_FD(fd);
    event->number = last_number;
    *ret = event;
    return CUDA_SUCCESS;
}

CUresult ipc_event_open(struct ipc_event **ret, const CUipcEventHandle *handle) {
    cleanup(closep) int fd = -1;
    struct event_handle inside;
    struct stat st;
    uint64_t number;
    char path[64];

    memcpy(&inside, handle, sizeof(inside));
    if (inside.magic != EVENT_MAGIC || inside.box_id != driver.box->file->box_id ||
        inside.pid <= 0 || inside.fd < 0 || proc_start_time(inside.pid) != inside.start_time)
        return CUDA_ERROR_INVALID_HANDLE;
    if (inside.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT; /* as with memory: not in the exporting process */
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", inside.pid, inside.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    /* Reading a mapping beyond the end of a shorter file would raise SIGBUS. */
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < PAGE ||
        !handle_name(fd, "event", &number) || number != inside.number)
        return CUDA_ERROR_INVALID_HANDLE;
    return map(ret, fd);
}

CUresult ipc_event_name(const struct ipc_event *event, CUipcEventHandle *ret) {
    struct event_handle handle = { .magic = EVENT_MAGIC };

    if (event->fd < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    handle.pid = getpid();
    handle.box_id = driver.box->file->box_id;
    handle.start_time = own_start_time();
    handle.number = event->number;
    handle.fd = event->fd;
    memcpy(ret, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

struct ipc_event *ipc_event_ref(struct ipc_event *event) {
    atomic_fetch_add(&event->refs, 1);
    return event;
}

struct ipc_event *ipc_event_unref(struct ipc_event *event) {
    if (!event || atomic_fetch_sub(&event->refs, 1) > 1)
        return NULL;
    munmap(event->page, PAGE);
    if (event->fd >= 0)
        close(event->fd);
    free(event);
    return NULL;
}

uint64_t ipc_event_record(struct ipc_event *event) {
    const uint64_t number = atomic_fetch_add(&event->page->last, 1) + 1;
    struct event_record *record = &event->page->records[number % RECORDS];

    atomic_store(&record->number, 0);
    atomic_store(&record->reached, 0);
    atomic_store(&record->start_time, own_start_time());
    atomic_store(&record->pid, getpid());
    atomic_store(&record->number, number);
    return number;
}

void ipc_event_reach(struct ipc_event *event, uint64_t number) {
    struct event_record *record = &event->page->records[number % RECORDS];

    if (atomic_load(&record->number) == number)
        atomic_store(&record->reached, number);
}

uint64_t ipc_event_last(const struct ipc_event *event) {
    return atomic_load(&event->page->last);
}

bool ipc_event_reached(const struct ipc_event *event, uint64_t number, bool look) {
    const struct event_record *record = &event->page->records[number % RECORDS];
    const uint64_t found = atomic_load(&record->number);

    if (number == 0 || atomic_load(&record->reached) == number || found > number)
        return true;
    if (!look || found != number) /* the latter: it is being made */
        return false;
    return proc_start_time(atomic_load(&record->pid)) != atomic_load(&record->start_time);
}
