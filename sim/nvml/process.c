/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process: the processes that have a context on a GPU, and how much of its memory.
 *
 * The same list in five shapes: nvmlProcessInfo_t had 16 bytes at first and has 24 since MIG; the
 * unversioned functions are the old ones, whatever a newer nvml.h calls by that name.
 */
#include "sim/nvml/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t held_on_gpu(struct target *t, uint32_t slot) {
    uint64_t bytes = charge_held_seen(t->box, slot, (struct box_part){ t->part.gpu, 0 });

    for (unsigned part = 1; t->gpu->mig_enabled && part < BOX_PARTS; part++)
        if (t->gpu->gi[part - 1].in_use)
            bytes += charge_held_seen(t->box, slot, (struct box_part){ t->part.gpu, part });
    return bytes;
}

nvmlReturn_t process_collect(struct target *t, unsigned kinds,
                             struct process_row rows[static BOX_MAX_PROCS], unsigned *ret_n) {
    const struct box_file *file = t->box->file;
    unsigned n = 0;

    if (!t->gi && t->gpu->mig_enabled && geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;

    proc_reap(t->box);
    for (uint32_t slot = 0; slot < MIN(file->proc_high, (uint32_t)BOX_MAX_PROCS); slot++) {
        const struct box_usage *usage = &file->proc[slot].usage[t->part.gpu];
        unsigned has = usage->kinds ? usage->kinds : PROC_COMPUTE;
        pid_t pid;

        if (file->proc[slot].state != PROC_LIVE || usage->contexts == 0 || !(has & kinds))
            continue;
        if (t->gi && (usage->gi_id != t->gi->id || (t->ci && usage->ci_id != t->ci->id)))
            continue;
        pid = proc_visible_pid(t->box, slot);
        if (pid <= 0)
            continue;
        rows[n++] = (struct process_row){
            .pid = (unsigned)pid,
            .used_bytes = t->gi ? charge_held_seen(t->box, slot, t->part) : held_on_gpu(t, slot),
            .gi_id = t->gpu->mig_enabled ? usage->gi_id : UINT32_MAX,
            .ci_id = t->gpu->mig_enabled ? usage->ci_id : UINT32_MAX,
            .slot = slot,
        };
    }
    *ret_n = n;
    return NVML_SUCCESS;
}

static nvmlReturn_t list_v1(const char *call, nvmlDevice_t device, unsigned kinds, unsigned *count,
                            nvmlProcessInfo_v1_t *infos) {
    ENTER_(t, core_enter(&t, call, device, ON_ANY));
    struct process_row rows[BOX_MAX_PROCS];
    nvmlReturn_t r;
    unsigned n;

    REQUIRE(count);
    r = process_collect(&t, kinds, rows, &n);
    if (r == NVML_SUCCESS)
        r = core_give_list(count, infos, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
        infos[i] =
            (nvmlProcessInfo_v1_t){ .pid = rows[i].pid, .usedGpuMemory = rows[i].used_bytes };
    return r;
}

static nvmlReturn_t list_v2(const char *call, nvmlDevice_t device, unsigned kinds, unsigned *count,
                            nvmlProcessInfo_v2_t *infos) {
    ENTER_(t, core_enter(&t, call, device, ON_ANY));
    struct process_row rows[BOX_MAX_PROCS];
    nvmlReturn_t r;
    unsigned n;

    REQUIRE(count);
    r = process_collect(&t, kinds, rows, &n);
    if (r == NVML_SUCCESS)
        r = core_give_list(count, infos, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
        infos[i] = (nvmlProcessInfo_v2_t){ .pid = rows[i].pid,
                                           .usedGpuMemory = rows[i].used_bytes,
                                           .gpuInstanceId = rows[i].gi_id,
                                           .computeInstanceId = rows[i].ci_id };
    return r;
}

/* No MPS server runs on a box: that list is empty. */
#define LISTS(X)                                                                                   \
    X(nvmlDeviceGetComputeRunningProcesses, PROC_COMPUTE)                                          \
    X(nvmlDeviceGetGraphicsRunningProcesses, PROC_GRAPHICS)                                        \
    X(nvmlDeviceGetMPSComputeRunningProcesses, 0)
#define X(name, kinds)                                                                             \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) {     \
        return list_v1(__func__, device, kinds, count, infos);                                     \
    }                                                                                              \
    nvmlReturn_t name##_v2(nvmlDevice_t device, unsigned int *count,                               \
                           nvmlProcessInfo_v2_t *infos) {                                          \
        return list_v2(__func__, device, kinds, count, infos);                                     \
    }                                                                                              \
    nvmlReturn_t name##_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {   \
        return list_v2(__func__, device, kinds, count, infos);                                     \
    }
LISTS(X)
#undef X

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *plist) {
    static const unsigned kinds[] = {
        [NVML_PROCESS_MODE_COMPUTE] = PROC_COMPUTE,
        [NVML_PROCESS_MODE_GRAPHICS] = PROC_GRAPHICS,
        [NVML_PROCESS_MODE_MPS] = 0,
        [NVML_PROCESS_MODE_ALL] = PROC_COMPUTE | PROC_GRAPHICS,
    };
    ENTER(t, device, ON_ANY);
    struct process_row rows[BOX_MAX_PROCS];
    nvmlReturn_t r;
    unsigned n;

    REQUIRE_VERSION(plist, nvmlProcessDetailList_v1);
    REQUIRE(plist->mode < ELEMENTSOF(kinds));
    r = process_collect(&t, kinds[plist->mode], rows, &n);
    if (r == NVML_SUCCESS)
        r = core_give_list(&plist->numProcArrayEntries, plist->procArray, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
        plist->procArray[i] = (nvmlProcessDetail_v1_t){ .pid = rows[i].pid,
                                                        .usedGpuMemory = rows[i].used_bytes,
                                                        .gpuInstanceId = rows[i].gi_id,
                                                        .computeInstanceId = rows[i].ci_id };
    return r;
}

nvmlReturn_t process_name(unsigned pid, char *name, unsigned length) {
    char path[64], text[4096];
    cleanup(closep) int fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES || errno == EPERM ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_NOT_FOUND;
    n = read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return NVML_ERROR_NOT_FOUND; /* a zombie or a kernel thread has no command line */
    text[n] = '\0';
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    ENTER_BOX(t);
    REQUIRE(name && length > 0);
    return process_name(pid, name, length);
}
