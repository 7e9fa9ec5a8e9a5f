/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each probe tries, in a place of its own, what the tier must refuse:
 *
 *     1  a program in a cgroup limited to 2 MiB makes a CUDA context, and must get no memory
 *     2  a process in a scope with no device allowed opens a GPU's node, and must get EPERM
 *     5  NVML must say what processes use, and a signal by pidfd must end a child
 */
#include "daemon/hand/exec/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/hand/exec/scope.h"
#include "driver/cuda.h"
#include "driver/nvml_process.h"

#define LIMIT_BYTES (UINT64_C(2) << 20)
#define TRY_BYTES   (UINT64_C(16) << 20)

static void say(struct hand_probes *probes, int tier, bool proven, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(struct hand_probes *probes, int tier, bool proven, const char *format, ...) {
    va_list args;

    probes->tiers[tier].proven = proven;
    va_start(args, format);
    vsnprintf(probes->tiers[tier].detail, sizeof(probes->tiers[tier].detail), format, args);
    va_end(args);
}

/* A name that no other process has. */
static void probe_name(char ret[static SCOPE_NAME_SIZE], const char *what) {
    snprintf(ret, SCOPE_NAME_SIZE, "allot-probe-%s-%d.scope", what, (int)getpid());
}

/* ---- Tier 2
 * -------------------------------------------------------------------------------------- */

static void probe_filter(struct nvml_reader *reader, struct bus *bus, struct hand_probes *ret) {
    const struct sample_device *device;
    char name[SCOPE_NAME_SIZE], path[BUS_PATH_SIZE];
    struct bus_scope scope = {
        .name = name,
        .slice = "system.slice",
        .description = "Allot tries whether a device filter works",
        .is_closed = true,
    };
    struct allot_error err = { 0 };

    for (size_t i = 0; (device = nvml_reader_at(reader, i)); i++)
        if (!device->is_mig && scope_gpu_node(path, device) == 0)
            break;
    if (!device) {
        say(ret, 2, false, "the GPUs have no device nodes");
        return;
    }
    probe_name(name, "filter");
    if (scope_start_tried(bus, &scope, path, &err) < 0)
        say(ret, 2, false, "%s", err.text);
    else
        say(ret, 2, true, "%s was refused in a scope without it", path);
}

/* ---- Tier 1
 * -------------------------------------------------------------------------------------- */

int probe_try_memory(enum driver_choice driver, const char *uuid) {
    struct driver_options options = driver_options_read(driver);
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    CUdeviceptr pointer;
    CUcontext context;
    int r;

    if (setenv("CUDA_VISIBLE_DEVICES", uuid, 1) < 0 || cuda_open(&cuda, &options, NULL) < 0)
        return PROBE_NOT_TRIED;
    r = cuda_primary_ctx_retain(cuda, NULL, &context, 0);
    if (r == 0)
        r = cuda_ctx_set_current(cuda, NULL, context);
    if (r == 0)
        r = cuda_mem_alloc(cuda, NULL, &pointer, TRY_BYTES);
    return r == 0 ? PROBE_GRANTED : r == -ENOMEM ? PROBE_REFUSED : PROBE_NOT_TRIED;
}

/* In a scope of its own: limit it, then let the child become the program that asks for more. */
static int try_limit(struct nvml_reader *reader, struct bus *bus, const struct gpuid *gpu,
                     const char *driver, int *ret_status, struct allot_error *err) {
    struct nvml_limit limit = { .hard_bytes = LIMIT_BYTES };
    char name[SCOPE_NAME_SIZE], cgroup[256], folder[512], uuid[GPUID_TEXT_SIZE], self[512];
    cleanup(probe_child_done) struct probe_child child = PROBE_CHILD_INIT;
    struct bus_scope scope = {
        .name = name,
        .slice = "system.slice",
        .description = "Allot tries whether the driver limits memory",
        .n_pids = 1,
    };
    struct nvml_device device;
    const struct nvml *nvml;
    ssize_t n;
    int r;

    r = nvml_reader_nvml(reader, &nvml, err);
    if (r == 0)
        r = nvml_device_find(nvml, &device, gpuid_format(gpu, uuid), err);
    /* Most drivers do not have it: asked first, for it costs nothing. */
    if (r == 0 && scope_folder(folder, sizeof(folder), "/", err) == 0)
        r = nvml_process_limit_get(nvml, &device, folder, &(struct nvml_limit){ 0 }, err);
    if (r == -EOPNOTSUPP)
        return error_set(err, r, "the driver has no limits by cgroup (driver 615 and later have)");
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return error_set(err, -errno, "/proc/self/exe cannot be read");
    self[n] = 0;
    r = probe_child_start(&child, err);
    if (r < 0)
        return r;
    probe_name(name, "limit");
    scope.pids[0] = child.pid;
    r = bus_start_scope(bus, &scope, err);
    if (r == 0)
        r = bus_unit_cgroup(bus, name, cgroup, sizeof(cgroup), err);
    if (r == 0)
        r = scope_folder(folder, sizeof(folder), cgroup, err);
    if (r == 0)
        r = nvml_process_limit_set(nvml, &device, folder, &limit, err);
    if (r < 0)
        return r;
    return probe_child_exec(
        &child, (const char *const[]){ self, "--driver", driver, "--try-memory", uuid, NULL },
        ret_status, err);
}

static void probe_limit(struct nvml_reader *reader, struct bus *bus, struct hand_probes *ret) {
    const struct sample_device *device;
    const struct nvml *nvml;
    struct allot_error err = { 0 };
    int status = 0;

    for (size_t i = 0; (device = nvml_reader_at(reader, i)); i++)
        if (!device->is_mig && !device->mig_enabled && device->health == SAMPLE_OK)
            break;
    if (!device) {
        say(ret, 1, false, "there is no whole GPU to try it on");
        return;
    }
    if (nvml_reader_nvml(reader, &nvml, &err) < 0 ||
        try_limit(reader, bus, &device->id, nvml_is_simulated(nvml) ? "sim" : "nvidia", &status,
                  &err) < 0)
        say(ret, 1, false, "%s", err.text);
    else if (status == PROBE_REFUSED)
        say(ret, 1, true, "a program limited to 2 MiB was refused memory by the driver");
    else if (status == PROBE_GRANTED)
        say(ret, 1, false, "the driver accepts limits and does not keep them");
    else
        say(ret, 1, false, "no CUDA program could be run to try it (exit status %d)", status);
}

/* ---- Tier 5
 * -------------------------------------------------------------------------------------- */

/* A child that would sleep for ever is ended through its pidfd. */
static int try_signal(struct allot_error *err) {
    cleanup(probe_child_done) struct probe_child child = PROBE_CHILD_INIT;
    cleanup(closep) int pidfd = -1;
    int status, r;

    r = probe_child_start(&child, err);
    if (r < 0)
        return r;
    pidfd = (int)syscall(SYS_pidfd_open, child.pid, 0);
    if (pidfd < 0 || syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0)
        return error_set(err, -errno, "signals by pidfd do not work: %s", strerror(errno));
    if (waitpid(child.pid, &status, 0) != child.pid || !WIFSIGNALED(status))
        return error_set(err, -EIO, "a signal did not end a child");
    child.pid = 0;
    return 0;
}

static void probe_watch(struct nvml_reader *reader, struct hand_probes *ret) {
    const struct sample_device *device;
    struct allot_error err = { 0 };
    size_t n_read = 0;

    for (size_t i = 0; (device = nvml_reader_at(reader, i)); i++) {
        uint64_t used;

        /* -ENOENT: the list can be read, and we are not on it. */
        if (nvml_reader_used(reader, &device->id, getpid(), &used, &err) == -ENOENT)
            n_read++;
    }
    if (n_read == 0)
        say(ret, 5, false, "NVML does not say what processes use: %s", err.text);
    else if (try_signal(&err) < 0)
        say(ret, 5, false, "%s", err.text);
    else
        say(ret, 5, true, "NVML lists processes of %zu devices, and a signal ended a child",
            n_read);
}

void probe_all(struct nvml_reader *reader, struct hand_probes *ret) {
    cleanup(bus_freep) struct bus *bus = NULL;
    struct allot_error err = { 0 };

    memset(ret, 0, sizeof(*ret));
    if (bus_new(&bus, &err) < 0) {
        say(ret, 1, false, "it needs cgroups of jobs: %s", err.text);
        say(ret, 2, false, "%s", err.text);
    } else {
        probe_limit(reader, bus, ret);
        probe_filter(reader, bus, ret);
    }
    probe_watch(reader, ret);
}
