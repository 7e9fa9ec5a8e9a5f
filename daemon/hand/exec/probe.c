/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each probe tries, in a place of its own, what the tier must refuse:
 *
 *     1  a program in a cgroup limited to 2 MiB makes a CUDA context, and must get no memory
 *     2  a process in a scope with no device allowed opens a GPU's node, and must get EPERM
 *     5  a signal by pidfd must end a child; what processes use is for the reader to say
 */
#include "daemon/hand/exec/probe.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/hand/exec/device_nodes.h"
#include "daemon/hand/exec/driver_limit.h"
#include "daemon/hand/exec/scope.h"

#define LIMIT_BYTES (UINT64_C(2) << 20)

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

static void probe_filter(struct bus *bus, struct hand_probes *ret) {
    char name[SCOPE_NAME_SIZE], path[BUS_PATH_SIZE];
    struct bus_scope scope = {
        .name = name,
        .slice = "system.slice",
        .description = "Allot tries whether a device filter works",
        .is_closed = true,
    };
    struct allot_error err = { 0 };

    if (device_nodes_other_gpu(NULL, path) < 0) {
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

/* In a scope of its own: limit it, then let the child become the program that asks for more. */
static int try_limit(enum driver_choice driver, struct bus *bus, const struct gpuid *gpu,
                     struct allot_error *err) {
    cleanup(probe_child_done) struct probe_child child = PROBE_CHILD_INIT;
    char name[SCOPE_NAME_SIZE], cgroup[256], folder[512];
    struct bus_scope scope = {
        .name = name,
        .slice = "system.slice",
        .description = "Allot tries whether the driver limits memory",
    };
    int r;

    /* Most drivers do not have it: asked first, for it costs little. */
    r = scope_folder(folder, sizeof(folder), "/", err);
    if (r == 0)
        r = driver_limit_check(driver, gpu, folder, err);
    if (r == -EOPNOTSUPP)
        return error_set(err, r, "the driver has no limits by cgroup (driver 615 and later have)");
    r = probe_child_start(&child, err);
    if (r < 0)
        return r;
    probe_name(name, "limit");
    scope.pid = child.pid;
    r = bus_start_scope(bus, &scope, err);
    if (r == 0)
        r = bus_unit_cgroup(bus, name, cgroup, sizeof(cgroup), err);
    if (r == 0)
        r = scope_folder(folder, sizeof(folder), cgroup, err);
    if (r == 0)
        r = driver_limit_set(driver, gpu, folder, LIMIT_BYTES, err);
    return r < 0 ? r : driver_limit_try(&child, driver, gpu, err);
}

static void probe_limit(enum driver_choice driver, struct bus *bus,
                        const struct hand_probe_question *question, struct hand_probes *ret) {
    struct allot_error err = { 0 };

    if (!question->has_gpu)
        say(ret, 1, false, "there is no whole GPU to try it on");
    else if (try_limit(driver, bus, &question->gpu, &err) < 0)
        say(ret, 1, false, "%s", err.text);
    else
        say(ret, 1, true, "a program limited to 2 MiB was refused memory by the driver");
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
        return error_set(err, -EIO, "a signal did not end a test process");
    child.pid = 0;
    return 0;
}

static void probe_signal(struct hand_probes *ret) {
    struct allot_error err = { 0 };

    if (try_signal(&err) < 0)
        say(ret, 5, false, "%s", err.text);
    else
        say(ret, 5, true, "a signal ended a test process");
}

void probe_all(enum driver_choice driver, const struct hand_probe_question *question,
               struct hand_probes *ret) {
    cleanup(bus_freep) struct bus *bus = NULL;
    struct allot_error err = { 0 };

    memset(ret, 0, sizeof(*ret));
    if (bus_new(&bus, &err) < 0) {
        say(ret, 1, false, "it needs cgroups of jobs: %s", err.text);
        say(ret, 2, false, "%s", err.text);
    } else {
        probe_limit(driver, bus, question, ret);
        probe_filter(bus, ret);
    }
    probe_signal(ret);
}
