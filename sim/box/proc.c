/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/box/box.h"
#include "sim/box/cgroup.h"
#include "sim/box/charge.h"

/* Presence locks lie beyond the end of the file, a byte per slot. */
#define PRESENCE_OFFSET (INT64_C(1) << 40)

struct identity {
    pid_t pid;
    uint64_t start_time, pid_namespace, image;
};

uint64_t proc_start_time(pid_t pid) {
    cleanup(fclosep) FILE *f = NULL;
    char path[64], line[1024], *p;
    unsigned long long start = 0;
    char state;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f || !fgets(line, sizeof(line), f))
        return 0;
    p = strrchr(line, ')'); /* the command may hold blanks and parentheses */
    if (!p)
        return 0;
    /* After the command come fields 3 (state) to 21, then the start time. */
    if (sscanf(p + 1,
               " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start; /* ended, but its parent has not reaped it */
}

/* The identity of this process. Read from /proc once by each thread, and again in a forked child: a
 * lock that is held while another thread forks would stay held in the child. */
static struct identity self_identity(void) {
    static _Thread_local struct identity self;
    struct stat st;

    if (self.pid != getpid()) {
        const void *random = (const void *)getauxval(AT_RANDOM);

        self.pid = getpid();
        self.start_time = proc_start_time(self.pid);
        self.pid_namespace = stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
        /* 16 random bytes, which the kernel makes anew at each exec and a fork inherits. */
        self.image = 0;
        if (random)
            memcpy(&self.image, random, sizeof(self.image));
    }
    return self;
}

static bool is_process(const struct box_proc *proc, const struct identity *self) {
    return proc->pid == self->pid && proc->start_time == self->start_time &&
           proc->pid_namespace == self->pid_namespace;
}

static bool is_self(const struct box_proc *proc, const struct identity *self) {
    return is_process(proc, self) && proc->image == self->image;
}

/* The pid, in our namespace, of the process that is present in `slot`. 0: not visible; -1: none is.
 */
static pid_t presence(const struct box *box, uint32_t slot) {
    struct flock lock = {
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = PRESENCE_OFFSET + slot,
        .l_len = 1,
    };

    if (fcntl(box->fd, F_GETLK, &lock) < 0)
        return 0; /* cannot tell: never declare a process dead on an error */
    return lock.l_type == F_UNLCK ? -1 : MAX(lock.l_pid, 0);
}

static void set_presence(struct box *box, uint32_t slot) {
    struct flock lock = {
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = PRESENCE_OFFSET + slot,
        .l_len = 1,
    };

    fcntl(box->fd, F_SETLK, &lock);
}

uint32_t proc_find_self(const struct box *box) {
    const struct identity self = self_identity();
    const uint32_t high = MIN(box->file->proc_high, (uint32_t)BOX_MAX_PROCS);

    for (uint32_t i = 0; i < high; i++)
        if (box->file->proc[i].state == PROC_LIVE && is_self(&box->file->proc[i], &self))
            return i;
    return PROC_NONE;
}

void proc_stay(struct box *box) {
    const uint32_t slot = proc_find_self(box);

    if (slot != PROC_NONE)
        set_presence(box, slot);
}

int proc_join(struct box *box, uint32_t *ret_slot) {
    const struct identity self = self_identity();
    struct box_file *file = box->file;
    struct box_proc *proc;
    uint32_t slot;

    slot = proc_find_self(box);
    if (slot != PROC_NONE) {
        *ret_slot = slot;
        return 0;
    }
    for (slot = 0; slot < BOX_MAX_PROCS && file->proc[slot].state != PROC_FREE; slot++)
        ;
    if (slot == BOX_MAX_PROCS) {
        proc_reap(box);
        for (slot = 0; slot < BOX_MAX_PROCS && file->proc[slot].state != PROC_FREE; slot++)
            ;
        if (slot == BOX_MAX_PROCS)
            return -ENOSPC;
    }

    proc = &file->proc[slot];
    memset(proc, 0, sizeof(*proc));
    proc->pid = self.pid;
    proc->uid = geteuid();
    proc->start_time = self.start_time;
    proc->pid_namespace = self.pid_namespace;
    proc->image = self.image;
    proc->joined_at_us = box_now_us();
    snprintf(proc->name, sizeof(proc->name), "%s", program_invocation_short_name);
    cgroup_self(proc->cgroup, sizeof(proc->cgroup));
    for (unsigned g = 0; g < BOX_MAX_GPUS; g++)
        proc->usage[g].gi_id = proc->usage[g].ci_id = UINT32_MAX;

    set_presence(box, slot);
    if (slot >= file->proc_high)
        __atomic_store_n(&file->proc_high, slot + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&proc->state, PROC_LIVE, __ATOMIC_RELEASE);
    *ret_slot = slot;
    return 0;
}

/* Segments of an ended process pass to their other users, or stay until the slot is freed. */
static void leave_segments(struct box *box, uint32_t slot, bool shared_only) {
    const uint32_t high = MIN(box->file->segment_high, (uint32_t)BOX_MAX_SEGMENTS);

    for (uint32_t i = 0; i < high; i++) {
        struct box_segment *segment = &box->file->segment[i];
        bool others = false;

        if (!segment->id || !(segment->users[slot / 64] & UINT64_C(1) << slot % 64))
            continue;
        for (uint32_t w = 0; w < BOX_MAX_PROCS / 64; w++)
            others |= segment->users[w] & ~(w == slot / 64 ? UINT64_C(1) << slot % 64 : 0);
        if (others || !shared_only)
            charge_segment_leave(box, slot, segment->id);
    }
}

static void keep_account(struct box *box, const struct box_proc *proc) {
    struct box_file *file = box->file;
    const uint64_t lived_us = box_now_us() - proc->joined_at_us;

    for (unsigned g = 0; g < box->n_gpus; g++) {
        const struct box_usage *usage = &proc->usage[g];
        struct box_account *account;

        if (!file->gpu[g].accounting || !usage->peak_bytes)
            continue;
        account = &file->account[file->account_next++ % BOX_MAX_ACCOUNTS];
        *account = (struct box_account){
            .in_use = true,
            .pid = proc->pid,
            .gpu = g,
            .gpu_utilization = lived_us ? MIN(usage->busy_total_us * 100 / lived_us, 100u) : 0,
            .max_memory_bytes = usage->peak_bytes,
            .time_ms = lived_us / 1000,
            .started_at_us = proc->joined_at_us,
        };
    }
}

static void free_slot(struct box *box, uint32_t slot) {
    leave_segments(box, slot, false);
    __atomic_store_n(&box->file->proc[slot].state, PROC_FREE, __ATOMIC_RELEASE);
}

static void end(struct box *box, uint32_t slot) {
    struct box_proc *proc = &box->file->proc[slot];

    keep_account(box, proc);
    leave_segments(box, slot, true);
    if (!box->file->release_delay_ns) {
        free_slot(box, slot);
        return;
    }
    proc->release_at_ns = box_now_ns() + box->file->release_delay_ns;
    __atomic_store_n(&proc->state, PROC_RELEASING, __ATOMIC_RELEASE);
}

void proc_reap(struct box *box) {
    const struct identity self = self_identity();
    const uint32_t high = MIN(box->file->proc_high, (uint32_t)BOX_MAX_PROCS);
    const uint64_t now = box_now_ns();

    for (uint32_t i = 0; i < high; i++) {
        struct box_proc *proc = &box->file->proc[i];

        if (proc->state == PROC_LIVE) {
            /*
             * A process cannot test its own locks; the slot that it had before an exec counts as
             * ended.
             */
            if (is_process(proc, &self) ? !is_self(proc, &self) : presence(box, i) < 0)
                end(box, i);
        } else if (proc->state == PROC_RELEASING) {
            /* A deadline further away than the delay dates from before a reboot. */
            if (now >= proc->release_at_ns ||
                proc->release_at_ns - now > box->file->release_delay_ns)
                free_slot(box, i);
        }
    }
}

pid_t proc_visible_pid(const struct box *box, uint32_t slot) {
    const struct identity self = self_identity();
    const struct box_proc *proc = &box->file->proc[slot];

    if (proc->pid_namespace == self.pid_namespace)
        return proc->pid;
    return MAX(presence(box, slot), 0);
}
