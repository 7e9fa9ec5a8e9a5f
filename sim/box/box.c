/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/box.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "sim/box/proc.h"
#include "sim/box/spec.h"

/* A living process keeps the lock for microseconds; only a stopped one keeps it this long. */
#define LOCK_PATIENCE_SECONDS 30

/* Descriptors go above the numbers that programs rely on, and above those that close-all loops
 * reach first. */
#define FD_FLOOR 200

/*
 * Boxes that this process has joined stay mapped and open until it ends: closing any descriptor
 * of a file drops the record locks that this process has on it, and with them its presence.
 */
struct kept_box {
    struct kept_box *next;
    struct box box;
    dev_t device;
    ino_t inode;
    unsigned refs;
};

static struct kept_box *kept_boxes;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t box_now_ns(void) {
    return clock_nsec(CLOCK_MONOTONIC);
}

uint64_t box_now_us(void) {
    return clock_usec(CLOCK_REALTIME);
}

/* FNV-1a over what names the GPUs; catches damage, not malice. */
uint64_t box_identity_sum(const struct box_file *file) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    const size_t n_gpus = MIN(file->n_gpus, (uint32_t)BOX_MAX_GPUS);

    for (size_t i = 0; i <= n_gpus; i++) {
        const unsigned char *p = i ? (const void *)&file->gpu[i - 1] : (const void *)&file->n_gpus;
        size_t n = i ? offsetof(struct box_gpu, mig_enabled) : sizeof(file->n_gpus);

        for (; n; n--)
            sum = (sum ^ *p++) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static int lock_kind(const pthread_mutex_t *mutex) {
    return mutex->__data.__kind;
}

static int lock_init(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attr;
    int r;

    r = pthread_mutexattr_init(&attr);
    if (r)
        return -r;
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    r = pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return -r;
}

static bool terminated(const char *text, size_t size) {
    return memchr(text, 0, size);
}

static int check_gpu(const struct box_gpu *gpu, unsigned i, struct allot_error *err) {
    uint64_t parts_bytes = 0;
    unsigned slices = 0;

    if (!terminated(gpu->model, sizeof(gpu->model)) || !model_find(gpu->model))
        return error_set(err, -EPROTO, "GPU %u of the box is of an unknown model", i);
    if (!terminated(gpu->uuid, sizeof(gpu->uuid)) || !terminated(gpu->serial, sizeof(gpu->serial)))
        return error_set(err, -EPROTO, "GPU %u of the box has a damaged name", i);
    if (gpu->reserved_bytes > gpu->total_bytes ||
        (gpu->total_bytes - gpu->reserved_bytes) % BOX_GRANULE)
        return error_set(err, -EPROTO, "the memory of GPU %u of the box is not in whole granules",
                         i);
    for (unsigned k = 0; k < BOX_MAX_GI; k++) {
        const struct box_gi *gi = &gpu->gi[k];

        if (!gi->in_use)
            continue;
        if (gi->placement_start > 8 || gi->placement_size > 8 - gi->placement_start)
            return error_set(err, -EPROTO, "GPU instance %u of GPU %u lies outside it", gi->id, i);
        for (unsigned s = 0; s < gi->placement_size; s++) {
            if (slices & 1u << (gi->placement_start + s))
                return error_set(err, -EPROTO, "GPU instances of GPU %u overlap", i);
            slices |= 1u << (gi->placement_start + s);
        }
        if (gi->memory_bytes % BOX_GRANULE || gi->memory_bytes > gpu->total_bytes)
            return error_set(err, -EPROTO, "GPU instance %u of GPU %u has an impossible size",
                             gi->id, i);
        parts_bytes += gi->memory_bytes;
        for (unsigned c = 0; c < BOX_MAX_CI; c++)
            if (gi->ci[c].in_use && !terminated(gi->ci[c].uuid, sizeof(gi->ci[c].uuid)))
                return error_set(err, -EPROTO, "a MIG device of GPU %u has a damaged name", i);
    }
    if (parts_bytes > gpu->total_bytes)
        return error_set(err, -EPROTO, "GPU instances of GPU %u are larger than the GPU", i);
    return 0;
}

static int check_procs(const struct box *box, struct allot_error *err) {
    const struct box_file *file = box->file;

    if (file->proc_high > BOX_MAX_PROCS || file->segment_high > BOX_MAX_SEGMENTS)
        return error_set(err, -EPROTO, "the box counts more processes or segments than it has");
    for (uint32_t i = 0; i < file->proc_high; i++) {
        const struct box_proc *proc = &file->proc[i];

        if (proc->state > PROC_RELEASING)
            return error_set(err, -EPROTO, "process slot %u is in no known state", i);
        if (proc->state == PROC_FREE)
            continue;
        if (!terminated(proc->name, sizeof(proc->name)) ||
            !terminated(proc->cgroup, sizeof(proc->cgroup)))
            return error_set(err, -EPROTO, "process slot %u has a damaged name", i);
        for (unsigned g = 0; g < BOX_MAX_GPUS; g++)
            for (unsigned p = 0; p < BOX_PARTS; p++)
                if (proc->usage[g].private_bytes[p] % BOX_GRANULE)
                    return error_set(err, -EPROTO, "process slot %u holds half a granule", i);
    }
    for (uint32_t i = 0; i < file->segment_high; i++) {
        const struct box_segment *segment = &file->segment[i];

        if (segment->id && (segment->gpu >= box->n_gpus || segment->part >= BOX_PARTS ||
                            segment->bytes % BOX_GRANULE || segment->owner >= file->proc_high))
            return error_set(err, -EPROTO, "segment %u is damaged", i);
    }
    return 0;
}

/* Check what must be true at every instant, even without the lock: no index or text in the box may
 * lead outside of it. */
static int check_structure(const struct box *box, struct allot_error *err) {
    const struct box_file *file = box->file;
    int r;

    if (!terminated(file->driver_version, sizeof(file->driver_version)) ||
        !terminated(file->nvml_version, sizeof(file->nvml_version)) ||
        !terminated(file->dev_dir, sizeof(file->dev_dir)))
        return error_set(err, -EPROTO, "the versions or paths of the box are damaged");
    for (unsigned i = 0; i < box->n_gpus; i++) {
        r = check_gpu(&file->gpu[i], i, err);
        if (r < 0)
            return r;
    }
    r = check_procs(box, err);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < BOX_MAX_LIMITS; i++)
        if (file->limit[i].in_use &&
            (file->limit[i].gpu >= box->n_gpus ||
             !terminated(file->limit[i].cgroup, sizeof(file->limit[i].cgroup))))
            return error_set(err, -EPROTO, "memory limit %u is damaged", i);
    for (unsigned i = 0; i < BOX_MAX_FAULTS; i++)
        if (file->fault[i].kind > FAULT_ALLOC_RANDOM ||
            !terminated(file->fault[i].call, sizeof(file->fault[i].call)))
            return error_set(err, -EPROTO, "injected fault %u is damaged", i);
    return 0;
}

/* Whether the mapped file is a box that this code can use. */
static int examine(const struct box_file *file, const char *path, struct allot_error *err) {
    pthread_mutex_t fresh;

    if (memcmp(file->magic, BOX_MAGIC, sizeof(file->magic)))
        return error_set(err, -EPROTO, "%s is not a simulated box", path);
    if (file->version != BOX_VERSION || file->header_bytes != sizeof(*file))
        return error_set(err, -EPROTO,
                         "%s is a box of another version (%u, this is %u): destroy it with the "
                         "gpusim that made it, or remove the file",
                         path, file->version, BOX_VERSION);
    if (file->n_gpus < 1 || file->n_gpus > BOX_MAX_GPUS ||
        box_identity_sum(file) != file->identity_sum)
        return error_set(err, -EPROTO, "%s is damaged: remove it and create the box again", path);
    lock_init(&fresh);
    if (lock_kind(&file->lock) != lock_kind(&fresh))
        return error_set(err, -EPROTO,
                         "%s is damaged (its lock): remove it and create the box again", path);
    return check_structure(&(struct box){ .file = (struct box_file *)file, .n_gpus = file->n_gpus },
                           err);
}

int box_path(char ret[PATH_MAX], bool *ret_named, struct allot_error *err) {
    const char *named = secure_getenv("GPUSIM_BOX");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    int n;

    *ret_named = named && *named;
    if (*ret_named)
        n = snprintf(ret, PATH_MAX, "%s", named);
    else if (runtime && *runtime)
        n = snprintf(ret, PATH_MAX, "%s/gpusim/box", runtime);
    else
        n = snprintf(ret, PATH_MAX, "/tmp/gpusim-%u/box", (unsigned)geteuid());
    if (n >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "the path of the box is too long");
    return 0;
}

/* The folder of the default box, which must belong to this user alone: all users share /tmp. */
static int make_default_dir(const char *path, struct allot_error *err) {
    char dir[PATH_MAX];
    struct stat st;

    snprintf(dir, sizeof(dir), "%s", path);
    *strrchr(dir, '/') = 0;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "cannot make %s for the default box: %m", dir);
    if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return error_set(
            err, -EPERM,
            "%s is not a folder of this user alone: set GPUSIM_BOX to a file elsewhere", dir);
    return 0;
}

int box_open_default(struct box **ret, struct allot_error *err) {
    char path[PATH_MAX];
    bool named;
    int r;

    r = box_path(path, &named, err);
    if (r < 0)
        return r;
    r = box_open(ret, path, err);
    if (r != -ENOENT)
        return r;
    if (named)
        return error_set(err, -ENOENT,
                         "GPUSIM_BOX names %s, which does not exist: "
                         "\"gpusim create\" makes it",
                         path);

    r = make_default_dir(path, err);
    if (r < 0)
        return r;
    r = spec_create_default(path, err);
    if (r < 0 && r != -EEXIST) /* another process was as fast */
        return r;
    return box_open(ret, path, err);
}

static struct kept_box *find_kept(dev_t device, ino_t inode) {
    struct kept_box *kept = kept_boxes;

    while (kept && (kept->device != device || kept->inode != inode))
        kept = kept->next;
    return kept;
}

static int open_locked(struct box **ret, const char *path, struct allot_error *err) {
    cleanup(freep) struct kept_box *kept = NULL;
    cleanup(closep) int fd = -1;
    cleanup(closep) int low = -1;
    struct box_file *file;
    struct stat st;
    int high, r;

    /* By name first: opening and closing a second descriptor would drop our presence. */
    if (stat(path, &st) < 0)
        return error_set(err, -errno, "cannot open the box %s: %m", path);
    kept = find_kept(st.st_dev, st.st_ino);
    if (kept) {
        kept->refs++;
        *ret = &TAKE(kept)->box;
        return 0;
    }
    if (!S_ISREG(st.st_mode) || st.st_size != sizeof(struct box_file))
        return error_set(err, -EPROTO, "%s is not a simulated box of this version", path);

    fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, -errno, "cannot open the box %s: %m", path);
    high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);
    if (high >= 0) {
        low = fd;
        fd = high;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != sizeof(struct box_file))
        return error_set(err, -EPROTO, "%s is not a simulated box of this version", path);
    file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return error_set(err, -errno, "cannot map the box %s: %m", path);
    r = examine(file, path, err);
    if (r < 0) {
        munmap(file, sizeof(*file));
        return r;
    }

    kept = calloc(1, sizeof(*kept));
    if (!kept) {
        munmap(file, sizeof(*file));
        return error_set(err, -ENOMEM, "no host memory to open the box %s", path);
    }
    kept->box.file = file;
    kept->box.fd = TAKE_FD(fd);
    kept->box.n_gpus = file->n_gpus;
    snprintf(kept->box.path, sizeof(kept->box.path), "%s", path);
    kept->device = st.st_dev;
    kept->inode = st.st_ino;
    kept->refs = 1;
    kept->next = kept_boxes;
    kept_boxes = kept;
    /*
     * Another library of this process may have joined: closing a descriptor of the file ends its
     * presence, so take that again before another process can look.
     */
    if (low >= 0 && box_lock(&kept->box) == 0) {
        closep(&low);
        low = -1;
        proc_stay(&kept->box);
        box_unlock(&kept->box);
    }
    *ret = &TAKE(kept)->box;
    return 0;
}

static void lock_kept(void) {
    pthread_mutex_lock(&kept_lock);
}

static void unlock_kept(void) {
    pthread_mutex_unlock(&kept_lock);
}

/*
 * A child must not inherit the lock from a thread that it does not have. Fork handlers run in
 * reverse order of registration: this one is registered before those of the library around us
 * (hence the priority), so at a fork this lock is taken after theirs, as it is when they open a
 * box.
 */
__attribute__((constructor(101))) static void guard_forks(void) {
    pthread_atfork(lock_kept, unlock_kept, unlock_kept);
}

int box_open(struct box **ret, const char *path, struct allot_error *err) {
    int r;

    pthread_mutex_lock(&kept_lock);
    r = open_locked(ret, path, err);
    pthread_mutex_unlock(&kept_lock);
    return r;
}

struct box *box_free(struct box *box) {
    struct kept_box *kept;
    bool joined = true;

    if (!box)
        return NULL;
    kept = (struct kept_box *)((char *)box - offsetof(struct kept_box, box));
    pthread_mutex_lock(&kept_lock);
    if (--kept->refs == 0) {
        /* Under the lock, so that no thread of this process joins the box between the check and the
         * close.
         */
        if (box_lock(box) == 0) {
            joined = proc_find_self(box) != PROC_NONE;
            if (!joined)
                close(box->fd);
            box_unlock(box);
        }
        if (!joined) {
            struct kept_box **at = &kept_boxes;

            while (*at != kept)
                at = &(*at)->next;
            *at = kept->next;
            munmap(box->file, sizeof(*box->file));
            free(kept);
        }
    }
    pthread_mutex_unlock(&kept_lock);
    return NULL;
}

int box_create(const char *path, const struct box_file *init, unsigned mode,
               struct allot_error *err) {
    char temporary[PATH_MAX];
    cleanup(closep) int fd = -1;
    struct box_file *file;
    int r;

    if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
        return error_set(err, -ENAMETOOLONG, "the path of the box is too long");
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_set(err, -errno, "cannot create the box %s: %m", path);
    /* Allocate all blocks now: a disk that fills up later would end programs with SIGBUS. */
    r = -posix_fallocate(fd, 0, sizeof(*file));
    if (r == 0 && fchmod(fd, mode) < 0)
        r = -errno;
    file =
        r == 0 ? mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (file == MAP_FAILED) {
        r = r < 0 ? r : -errno;
        unlink(temporary);
        return error_set(err, r, "cannot create the box %s: %s", path, strerror(-r));
    }

    memcpy(file, init, offsetof(struct box_file, fault));
    memcpy(file->magic, BOX_MAGIC, sizeof(file->magic));
    file->version = BOX_VERSION;
    file->header_bytes = sizeof(*file);
    file->made_at_us = box_now_us();
    file->next_segment_id = file->next_fault_id = 1;
    if (getrandom(&file->box_id, sizeof(file->box_id), 0) < 0)
        file->box_id = box_now_ns();
    r = lock_init(&file->lock);
    file->identity_sum = box_identity_sum(file);
    if (r == 0)
        r = examine(file, path, err);
    munmap(file, sizeof(*file));
    if (r == 0 && link(temporary, path) < 0)
        r = error_set(err, -errno,
                      errno == EEXIST ? "%s exists already: destroy it first, or name another file"
                                      : "cannot create the box %s: %m",
                      path);
    unlink(temporary);
    return r;
}

static int wait_for_lock(pthread_mutex_t *lock) {
#ifdef __SANITIZE_THREAD__
    /* ThreadSanitizer's timed lock does not detect owners that died; its trylock does. */
    for (unsigned i = 0; i < LOCK_PATIENCE_SECONDS * 10000; i++) {
        int r = pthread_mutex_trylock(lock);

        if (r != EBUSY)
            return r;
        usleep(100);
    }
    return ETIMEDOUT;
#else
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_PATIENCE_SECONDS;
    return pthread_mutex_timedlock(lock, &until);
#endif
}

int box_lock(struct box *box) {
    int r;

    r = pthread_mutex_trylock(&box->file->lock);
    if (r == EBUSY)
        r = wait_for_lock(&box->file->lock);
    if (r == EOWNERDEAD)
        r = pthread_mutex_consistent(&box->file->lock);
    return -r;
}

void box_unlock(struct box *box) {
    pthread_mutex_unlock(&box->file->lock);
}

const struct sim_model *box_model(const struct box *box, unsigned gpu) {
    const struct sim_model *model = model_find(box->file->gpu[gpu].model);

    /* Checked when the box was opened; a box that is damaged while in use must not crash its users.
     * */
    return model ? model : &sim_models[0];
}

uint64_t box_capacity(const struct box *box, struct box_part part) {
    const struct box_gpu *gpu;

    if (part.gpu >= box->n_gpus || part.part >= BOX_PARTS)
        return 0;
    gpu = &box->file->gpu[part.gpu];
    if (part.part)
        return gpu->gi[part.part - 1].in_use ? gpu->gi[part.part - 1].memory_bytes : 0;
    return gpu->mig_enabled ? 0 : gpu->total_bytes - MIN(gpu->reserved_bytes, gpu->total_bytes);
}

int box_check(const struct box *box, struct allot_error *err) {
    const struct box_file *file = box->file;
    uint64_t used[BOX_MAX_GPUS][BOX_PARTS] = { 0 };
    int r;

    r = check_structure(box, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < file->proc_high; i++)
        for (unsigned g = 0; g < box->n_gpus && file->proc[i].state != PROC_FREE; g++)
            for (unsigned p = 0; p < BOX_PARTS; p++)
                used[g][p] += file->proc[i].usage[g].private_bytes[p];
    for (uint32_t i = 0; i < file->segment_high; i++)
        if (file->segment[i].id)
            used[file->segment[i].gpu][file->segment[i].part] += file->segment[i].bytes;
    for (unsigned g = 0; g < box->n_gpus; g++)
        for (unsigned p = 0; p < BOX_PARTS; p++)
            if (used[g][p] > box_capacity(box, (struct box_part){ g, p }))
                return error_set(err, -EPROTO, "more of GPU %u is in use than it has", g);
    return 0;
}
