/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Account: what each process used of a GPU over its life, while accounting is on.
 */
#include "sim/nvml/core.h"

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    ENTER(t, device, ON_GPU);

    REQUIRE(mode);
    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    *mode = t.gpu->accounting ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

static void forget(struct target *t) {
    for (unsigned i = 0; i < BOX_MAX_ACCOUNTS; i++)
        if (t->box->file->account[i].gpu == t->part.gpu)
            t->box->file->account[i].in_use = 0;
}

nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    REQUIRE(mode == NVML_FEATURE_ENABLED || mode == NVML_FEATURE_DISABLED);
    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    if (mode == NVML_FEATURE_DISABLED)
        forget(&t);
    t.gpu->accounting = mode;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceClearAccountingPids(nvmlDevice_t device) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    forget(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *bufferSize) {
    ENTER(t, device, ON_GPU);

    REQUIRE(bufferSize);
    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    *bufferSize = BOX_MAX_ACCOUNTS;
    return NVML_SUCCESS;
}

/* The record of `pid`, of the living process if there is one, else of the one that ended last. */
static bool find(struct target *t, unsigned pid, struct box_account *ret, bool *ret_running) {
    const struct box_file *file = t->box->file;
    uint64_t now_us = box_now_us(), newest = 0;
    bool found = false;

    proc_reap(t->box);
    *ret_running = false;
    for (uint32_t slot = 0; slot < MIN(file->proc_high, (uint32_t)BOX_MAX_PROCS); slot++) {
        const struct box_proc *proc = &file->proc[slot];
        const struct box_usage *usage = &proc->usage[t->part.gpu];
        uint64_t age_us;

        if (proc->state != PROC_LIVE || usage->contexts == 0 ||
            proc_visible_pid(t->box, slot) != (pid_t)pid)
            continue;
        age_us = now_us - MIN(proc->joined_at_us, now_us) + 1;
        *ret = (struct box_account){
            .in_use = 1,
            .pid = pid,
            .gpu = t->part.gpu,
            .gpu_utilization = (uint32_t)MIN(usage->busy_total_us * 100 / age_us, UINT64_C(100)),
            .max_memory_bytes = usage->peak_bytes,
            .started_at_us = proc->joined_at_us,
        };
        *ret_running = true;
        return true;
    }
    for (unsigned i = 0; i < BOX_MAX_ACCOUNTS; i++) {
        const struct box_account *account = &file->account[i];

        if (account->in_use && account->gpu == t->part.gpu && account->pid == pid &&
            account->started_at_us >= newest) {
            newest = account->started_at_us;
            *ret = *account;
            found = true;
        }
    }
    return found;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats) {
    ENTER(t, device, ON_GPU);
    struct box_account account;
    bool running;

    REQUIRE(stats);
    if (!t.gpu->accounting)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!find(&t, pid, &account, &running))
        return NVML_ERROR_NOT_FOUND;
    *stats = (nvmlAccountingStats_t){
        .gpuUtilization = account.gpu_utilization,
        .memoryUtilization = account.memory_utilization,
        .maxMemoryUsage = account.max_memory_bytes,
        .time = running ? 0 : account.time_ms,
        .startTime = account.started_at_us,
        .isRunning = running,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats) {
    ENTER(t, device, ON_GPU);
    struct box_account account;
    bool running;

    REQUIRE(stats);
    if (!t.gpu->accounting)
        return NVML_ERROR_NOT_SUPPORTED;
    if (!find(&t, stats->pid, &account, &running))
        return NVML_ERROR_NOT_FOUND;
    *stats = (nvmlAccountingStats_v2_t){
        .pid = stats->pid,
        .isRunning = running,
        .gpuUtilization = account.gpu_utilization,
        .memoryUtilization = account.memory_utilization,
        .maxMemoryUsage = account.max_memory_bytes,
        .sampleCount = 1,
        .sumGpuUtil = account.gpu_utilization,
        .sumFbUtil = account.memory_utilization,
        .time = running ? 0 : account.time_ms,
        .startTime = account.started_at_us,
    };
    return NVML_SUCCESS;
}

static void add_pid(unsigned *pids, unsigned *n, unsigned pid) {
    for (unsigned i = 0; i < *n; i++)
        if (pids[i] == pid)
            return;
    pids[(*n)++] = pid;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids) {
    ENTER(t, device, ON_GPU);
    unsigned all[BOX_MAX_ACCOUNTS + BOX_MAX_PROCS], n = 0, n_rows;
    struct process_row rows[BOX_MAX_PROCS];
    nvmlReturn_t r;

    REQUIRE(count);
    if (!t.gpu->accounting)
        return NVML_ERROR_NOT_SUPPORTED;
    r = process_collect(&t, PROC_COMPUTE | PROC_GRAPHICS, rows, &n_rows);
    if (r != NVML_SUCCESS)
        return r;
    for (unsigned i = 0; i < n_rows; i++)
        add_pid(all, &n, rows[i].pid);
    for (unsigned i = 0; i < BOX_MAX_ACCOUNTS; i++)
        if (t.box->file->account[i].in_use && t.box->file->account[i].gpu == t.part.gpu)
            add_pid(all, &n, t.box->file->account[i].pid);
    r = core_give_list(count, pids, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
        pids[i] = all[i];
    return r;
}
