/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A filter on the users' slice would also close the nodes to the leases' scopes inside it: a node
 * must be allowed all the way up. So the filter is on everything else in those slices: the session
 * scopes and the users' managers. systemd only has a list of what is allowed, so it lists
 * everything that is not NVIDIA's: the kernel's groups of character devices, and all block devices.
 *
 * Drop-ins apply to what starts from now on, SetUnitProperties to what runs already. Both are under
 * /run: they outlive the daemon (a lock that opens when the daemon stops is useless) but not the
 * boot.
 */
#include "daemon/hand/exec/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/hand/exec/bus.h"
#include "daemon/hand/exec/device_nodes.h"
#include "daemon/hand/exec/scope.h"

#define ALLOWED_MAX 128
#define FILE_NAME   "90-allot-locked.conf"

/* What sessions may open: groups as systemd names them, "char-input". */
struct allowed {
    size_t n;
    char names[ALLOWED_MAX][BUS_PATH_SIZE];
    const char *list[ALLOWED_MAX];
};

static const struct {
    const char *folder, *section, *pattern;
} units[] = {
    { "session-.scope.d", "Scope", "session-*.scope" },
    { "user@.service.d", "Service", "user@*.service" },
};

static void allow(struct allowed *allowed, const char *kind, const char *name) {
    char *text = allowed->names[allowed->n];

    if (allowed->n == ALLOWED_MAX)
        return;
    snprintf(text, BUS_PATH_SIZE, "%s-%s", kind, name);
    for (size_t i = 0; i < allowed->n; i++)
        if (strcmp(allowed->names[i], text) == 0)
            return;
    allowed->list[allowed->n++] = text;
}

/* "  5 /dev/tty", under "Character devices:". */
static int find_allowed(struct allowed *ret, struct allot_error *err) {
    cleanup(fclosep) FILE *f = fopen("/proc/devices", "re");
    char line[128], name[48];
    bool is_char = false;
    unsigned major;

    if (!f)
        return error_set(err, -errno, "/proc/devices cannot be read: %s", strerror(errno));
    ret->n = 0;
    allow(ret, "block", "*");
    allow(ret, "char", &UNIT_LIMITS_LOCK_MARK[sizeof("char")]);
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, "Character", 9) == 0)
            is_char = true;
        else if (strncmp(line, "Block", 5) == 0)
            is_char = false;
        else if (is_char && sscanf(line, "%u %47s", &major, name) == 2 &&
                 strncmp(name, "nvidia", 6) != 0 && !strpbrk(name, "*?["))
            allow(ret, "char", name);
    }
    return 0;
}

static int write_dropin(size_t which, const struct allowed *allowed, struct allot_error *err) {
    char folder[128], path[192], temporary[200];
    cleanup(fclosep) FILE *f = NULL;

    snprintf(folder, sizeof(folder), LOCK_DIR "/%s", units[which].folder);
    snprintf(path, sizeof(path), "%s/" FILE_NAME, folder);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return error_set(err, -errno, "%s cannot be made: %s", folder, strerror(errno));
    f = fopen(temporary, "we");
    if (!f)
        return error_set(err, -errno, "%s cannot be written: %s", temporary, strerror(errno));
    fprintf(f,
            "# Written by allot-hand: GPUs are closed to sessions (mode = locked in allotd.conf).\n"
            "[%s]\nDevicePolicy=strict\n",
            units[which].section);
    for (size_t i = 0; i < allowed->n; i++)
        fprintf(f, "DeviceAllow=%s rwm\n", allowed->names[i]);
    if (fflush(f) != 0 || ferror(f) || rename(temporary, path) < 0) {
        int r = -errno;

        unlink(temporary);
        return error_set(err, r, "%s cannot be written: %s", path, strerror(-r));
    }
    return 0;
}

/* True if there was one. */
static bool remove_dropins(void) {
    bool was_there = false;
    char path[192];

    for (size_t i = 0; i < ELEMENTSOF(units); i++) {
        snprintf(path, sizeof(path), LOCK_DIR "/%s/" FILE_NAME, units[i].folder);
        was_there |= unlink(path) == 0;
        snprintf(path, sizeof(path), LOCK_DIR "/%s", units[i].folder);
        rmdir(path); /* others may have drop-ins there too */
    }
    return was_there;
}

struct lock_walk {
    struct bus *bus;
    const struct allowed *allowed; /* NULL: open */
    struct allot_error *err;
    int r;
};

static void set_unit(void *userdata, const char *unit) {
    struct lock_walk *walk = userdata;
    int r = walk->allowed ? bus_set_devices(walk->bus, unit, walk->allowed->list, walk->allowed->n,
                                            walk->r < 0 ? NULL : walk->err)
                          : bus_set_devices(walk->bus, unit, NULL, 0, NULL);

    /* A session may have ended since it was listed. */
    if (r < 0 && r != -ENOENT && walk->r == 0)
        walk->r = r;
}

/* Make a session scope, which gets what every new one gets; a child in it tries to open a GPU. */
static int prove(struct bus *bus, struct allot_error *err) {
    char name[SCOPE_NAME_SIZE], path[BUS_PATH_SIZE];
    struct bus_scope scope = {
        .name = name,
        .slice = "user.slice",
        .description = "Allot tries whether sessions are locked out of the GPUs",
    };

    if (device_nodes_other_gpu(NULL, path) < 0)
        return error_set(err, -ENOENT, "the GPUs have no device nodes that could be locked");
    snprintf(name, sizeof(name), "session-allot%d.scope", (int)getpid());
    return scope_start_tried(bus, &scope, path, err);
}

int lock_set(bool locked, struct allot_error *err) {
    cleanup(freep) struct allowed *allowed = NULL;
    cleanup(bus_freep) struct bus *bus = NULL;
    struct lock_walk walk = { .err = err };
    int r;

    if (!locked && !remove_dropins())
        return 0; /* it was open */
    r = bus_new(&bus, err);
    if (r < 0)
        return r;
    if (locked) {
        allowed = calloc(1, sizeof(*allowed));
        if (!allowed)
            return error_set(err, -ENOMEM, "out of memory");
        r = find_allowed(allowed, err);
        for (size_t i = 0; r == 0 && i < ELEMENTSOF(units); i++)
            r = write_dropin(i, allowed, err);
        if (r < 0)
            return r;
    }
    r = bus_reload(bus, err);
    if (r < 0)
        return r;
    walk.bus = bus;
    walk.allowed = allowed;
    r = bus_list_units(bus, units[0].pattern, units[1].pattern, set_unit, &walk, err);
    if (r == 0)
        r = walk.r;
    return r == 0 && locked ? prove(bus, err) : r;
}
