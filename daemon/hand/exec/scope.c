/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scope lies in the slice that the process is in already, so that what the administrator set
 * for the user as a whole holds for the job as well; what was set for the unit that it leaves (a
 * memory limit of a service, say) is copied.
 *
 *     user.slice ─ user-1000.slice ┬ session-3.scope            the shell, gpuctl
 *                                  ├ user@1000.service ─ …      (its processes go up to the slice)
 *                                  └ allot-17.scope             the job: its cards only
 *
 * Nothing is claimed that was not seen. The scope begins with two processes: the job's and a
 * child of ours, which tries a node that must be refused, from inside. A second process of a
 * lease joins the scope that is there.
 */
#include "daemon/hand/exec/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cgroup_owner.h"
#include "daemon/hand/exec/proc.h"
#include "daemon/enforce/process.h"
#include "driver/nvml_process.h"

void scope_name(char ret[static SCOPE_NAME_SIZE], uint64_t lease) {
    snprintf(ret, SCOPE_NAME_SIZE, "allot-%" PRIu64 ".scope", lease);
}

bool scope_is_ours(const char *cgroup) {
    const char *last = strrchr(cgroup, '/');
    size_t n;

    if (cgroup[0] != '/' || strstr(cgroup, "/../") || strncmp(last, "/allot-", 7) != 0)
        return false;
    last += 7;
    n = strspn(last, "0123456789");
    return n > 0 && strcmp(last + n, ".scope") == 0;
}

int scope_folder(char *ret, size_t size, const char *cgroup, struct allot_error *err) {
    const char *root = cgroup_owner_root();

    if (!root)
        return error_set(err, -ENOENT, "cgroup2 is not mounted under /sys/fs/cgroup");
    if ((size_t)snprintf(ret, size, "%s%s", root, cgroup) >= size)
        return error_set(err, -ENAMETOOLONG, "the path of the cgroup is too long");
    return 0;
}

static bool is_node(const char *path) {
    struct stat st;

    return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

int scope_gpu_node(char ret[static BUS_PATH_SIZE], const struct sample_device *device) {
    if (!(device->has & SAMPLE_HAS(minor)))
        return -ENOENT;
    snprintf(ret, BUS_PATH_SIZE, "/dev/nvidia%" PRIu64, device->minor);
    return is_node(ret) ? 0 : -ENOENT;
}

/* ---- Which nodes --------------------------------------------------------------------------------
 */

struct nodes {
    size_t n;
    char paths[BUS_ALLOW_MAX][BUS_PATH_SIZE];
};

static void allow(struct nodes *nodes, const char *path) {
    if (nodes->n == ELEMENTSOF(nodes->paths) || !is_node(path))
        return;
    for (size_t i = 0; i < nodes->n; i++)
        if (strcmp(nodes->paths[i], path) == 0)
            return;
    snprintf(nodes->paths[nodes->n++], BUS_PATH_SIZE, "%s", path);
}

/* The node that stands for an instance, from what the driver says: "DeviceFileMinor: 12". */
static void allow_capability(struct nodes *nodes, const char *file) {
    cleanup(fclosep) FILE *f = fopen(file, "re");
    char line[128], path[BUS_PATH_SIZE];
    unsigned minor;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "DeviceFileMinor: %u", &minor) == 1) {
            snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", minor);
            allow(nodes, path);
        }
}

static void allow_instance(struct nodes *nodes, const struct sample_device *device) {
    char file[160];

    snprintf(file, sizeof(file), "/proc/driver/nvidia/capabilities/gpu%" PRIu64 "/mig/gi%u/access",
             device->minor, device->gpu_instance);
    allow_capability(nodes, file);
    snprintf(file, sizeof(file),
             "/proc/driver/nvidia/capabilities/gpu%" PRIu64 "/mig/gi%u/ci%u/access", device->minor,
             device->gpu_instance, device->compute_instance);
    allow_capability(nodes, file);
}

/* The nodes of the lease; -ENOENT if one of its GPUs has none. */
static int find_nodes(const struct nvml_reader *reader, const struct hand_confine *confine,
                      struct nodes *ret, struct allot_error *err) {
    static const char *const common[] = { "/dev/nvidiactl", "/dev/nvidia-uvm",
                                          "/dev/nvidia-uvm-tools" };
    char text[GPUID_TEXT_SIZE], path[BUS_PATH_SIZE];

    ret->n = 0;
    for (uint32_t i = 0; i < confine->n_devices; i++) {
        const struct gpuid *id = &confine->devices[i].id;
        const struct sample_device *device = nvml_reader_find(reader, id);

        if (!device || scope_gpu_node(path, device) < 0)
            return error_set(err, -ENOENT, "%s has no device node here", gpuid_format(id, text));
        allow(ret, path);
        if (device->is_mig)
            allow_instance(ret, device);
    }
    for (size_t i = 0; i < ELEMENTSOF(common); i++)
        allow(ret, common[i]);
    return 0;
}

/* A node that must be refused in this scope: another GPU's, or another thing altogether. */
static int find_forbidden(const struct nvml_reader *reader, const struct nodes *nodes,
                          char ret[static BUS_PATH_SIZE]) {
    static const char *const others[] = { "/dev/kmsg", "/dev/fuse", "/dev/loop-control",
                                          "/dev/mem" };
    const struct sample_device *device;

    for (size_t i = 0; (device = nvml_reader_at(reader, i)); i++) {
        bool is_allowed = false;

        if (device->is_mig || scope_gpu_node(ret, device) < 0)
            continue;
        for (size_t j = 0; j < nodes->n; j++)
            is_allowed |= strcmp(nodes->paths[j], ret) == 0;
        if (!is_allowed)
            return 0;
    }
    for (size_t i = 0; i < ELEMENTSOF(others); i++)
        if (is_node(others[i])) {
            snprintf(ret, BUS_PATH_SIZE, "%s", others[i]);
            return 0;
        }
    return -ENOENT;
}

/* ---- The scope ----------------------------------------------------------------------------------
 */

/* EPERM is the filter's word; access rights would say EACCES, and a node without driver ENXIO. */
static int judge(int error, const char *path, struct allot_error *err) {
    if (error == EPERM)
        return 0;
    if (error == 0 || error == ENXIO || error == ENODEV)
        return error_set(err, -ENOTSUP, "%s was not refused: the device filter does not work here",
                         path);
    return error_set(err, -error, "%s could not be tried: %s", path, strerror(error));
}

/* Into the scope that is there, if it is in the slice that it would be made in: not another user's.
 */
static int join(struct bus *bus, const struct bus_scope *scope, struct allot_error *err) {
    char cgroup[256], part[BUS_NAME_SIZE + 2];
    int r = bus_unit_cgroup(bus, scope->name, cgroup, sizeof(cgroup), err);

    if (r < 0)
        return r;
    snprintf(part, sizeof(part), "/%s/", scope->slice);
    if (!strstr(cgroup, part))
        return error_set(err, -EEXIST, "there is a %s elsewhere, in %s", scope->name, cgroup);
    return bus_attach(bus, scope->name, scope->pids, scope->n_pids, err);
}

int scope_start_tried(struct bus *bus, struct bus_scope *scope, const char *path,
                      struct allot_error *err) {
    cleanup(probe_child_done) struct probe_child child = PROBE_CHILD_INIT;
    int error, r;

    r = probe_child_start(&child, err);
    if (r < 0)
        return r;
    scope->pids[scope->n_pids++] = child.pid;
    r = bus_start_scope(bus, scope, err);
    if (r == -EEXIST)
        r = join(bus, scope, err);
    if (r < 0)
        return r;
    r = probe_child_open(&child, path, &error, err);
    return r < 0 ? r : judge(error, path, err);
}

__attribute__((format(printf, 3, 4))) static void note(struct hand_confined *confined, int tier,
                                                       const char *format, ...) {
    char *text = confined->details[confined->n_details];
    va_list args;
    int n;

    if (confined->n_details == HAND_DETAILS_MAX)
        return;
    n = snprintf(text, sizeof(confined->details[0]), "tier %d: ", tier);
    va_start(args, format);
    vsnprintf(text + n, sizeof(confined->details[0]) - (size_t)n, format, args);
    va_end(args);
    confined->n_details++;
}

/* Refuse to take a process out of a cgroup that another manager keeps its own limits in. */
static int check_owner(const char *cgroup, struct allot_error *err) {
    enum cgroup_owner owner = cgroup_owner_find(cgroup_owner_root(), cgroup);

    if (owner == CGROUP_OWNER_NONE)
        return 0;
    if (owner == CGROUP_OWNER_SLURM)
        return error_set(err, -EOPNOTSUPP,
                         "the process is in a Slurm step, and its cgroup is Slurm's");
    if (owner == CGROUP_OWNER_OTHER)
        return error_set(err, -EOPNOTSUPP, "the process is in a cgroup that another manager made");
    return error_set(err, -EOPNOTSUPP,
                     "the process is in a container (%s), and its cgroup is the container's",
                     cgroup_owner_name(owner));
}

/* Put the process into its scope; ret->scope and ->cgroup are set where it is in one. */
static int enter(struct bus *bus, const struct nvml_reader *reader,
                 const struct hand_confine *confine, const char *cgroup, struct hand_confined *ret,
                 struct allot_error *err) {
    char name[SCOPE_NAME_SIZE], forbidden[BUS_PATH_SIZE], description[96];
    char after[PROCESS_CGROUP_SIZE];
    cleanup(freep) struct nodes *nodes = calloc(1, sizeof(*nodes));
    struct bus_place place;
    struct bus_scope scope;
    int r, tried;

    if (!nodes)
        return error_set(err, -ENOMEM, "out of memory");
    r = check_owner(cgroup, err);
    if (r == 0)
        r = find_nodes(reader, confine, nodes, err);
    if (r < 0)
        return r;
    if (find_forbidden(reader, nodes, forbidden) < 0)
        return error_set(err, -ENOENT, "there is no other device node to prove it with");
    r = bus_find_place(bus, confine->pid, &place, err);
    if (r < 0)
        return r;
    scope_name(name, confine->lease);
    snprintf(description, sizeof(description), "GPU lease %" PRIu64, confine->lease);
    scope = (struct bus_scope){
        .name = name,
        .slice = place.slice,
        .description = description,
        .n_pids = 1,
        .pids = { confine->pid },
        .is_closed = true,
        .n_allow = nodes->n,
        .allow = nodes->paths,
        .n_limits = place.n_limits,
        .limits = place.limits,
    };
    tried = scope_start_tried(bus, &scope, forbidden, err);
    if (bus_unit_cgroup(bus, name, ret->cgroup, sizeof(ret->cgroup), NULL) < 0 ||
        process_cgroup(after, confine->pid) < 0 || !process_is_within(after, ret->cgroup)) {
        ret->cgroup[0] = 0;
        return tried < 0 ? tried : error_set(err, -EIO, "the process did not arrive in %s", name);
    }
    snprintf(ret->scope, sizeof(ret->scope), "%s", name);
    if (tried < 0)
        return tried;
    ret->tiers |= 1 << 2;
    note(ret, 2, "%s in %s; %s was tried inside and refused", name, place.slice, forbidden);
    return 0;
}

/* ---- The driver's limit ---------------------------------------------------------------------- */

static int set_limit(const struct nvml *nvml, const struct gpuid *id, const char *folder,
                     uint64_t limit_bytes, struct allot_error *err) {
    struct nvml_limit limit = { .hard_bytes = limit_bytes }, now;
    char text[GPUID_TEXT_SIZE];
    struct nvml_device device;
    int r;

    r = nvml_device_find(nvml, &device, gpuid_format(id, text), err);
    if (r == 0)
        r = nvml_process_limit_set(nvml, &device, folder, &limit, err);
    if (r == 0)
        r = nvml_process_limit_get(nvml, &device, folder, &now, err);
    if (r < 0)
        return r;
    if (now.hard_bytes != limit_bytes)
        return error_set(err, -EIO, "%s: the driver says %" PRIu64 " instead of %" PRIu64, text,
                         now.hard_bytes, limit_bytes);
    return 0;
}

/* All devices or none is claimed; those that could be limited stay so. */
static int limit_all(struct nvml_reader *reader, const struct hand_confine *confine,
                     const char *cgroup, struct allot_error *err) {
    const struct nvml *nvml;
    char folder[512];
    int r;

    r = scope_folder(folder, sizeof(folder), cgroup, err);
    if (r == 0)
        r = nvml_reader_nvml(reader, &nvml, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < confine->n_devices; i++) {
        const struct sample_device *device = nvml_reader_find(reader, &confine->devices[i].id);
        int one;

        if (device && device->is_mig) {
            r = error_set(err, -EOPNOTSUPP, "the driver has no limits for MIG instances");
            continue;
        }
        one = set_limit(nvml, &confine->devices[i].id, folder, confine->devices[i].limit_bytes,
                        r < 0 ? NULL : err);
        r = r < 0 ? r : one;
    }
    return r;
}

int scope_confine(struct nvml_reader *reader, const struct hand_confine *confine,
                  struct hand_confined *ret, struct allot_error *err) {
    const struct process_id id = { confine->pid, confine->start };
    struct sample_process process = { .pid = confine->pid };
    cleanup(bus_freep) struct bus *bus = NULL;
    cleanup(closep) int pidfd = -1;
    char cgroup[PROCESS_CGROUP_SIZE];
    struct allot_error why = { 0 };
    int r;

    *ret = (struct hand_confined){ 0 };
    r = process_open(&pidfd, &id);
    if (r < 0)
        return error_set(err, -ESRCH, "process %d has ended", (int)confine->pid);
    hand_proc_read(&process, "/proc");
    if (process.start != confine->start || !process.has_uid || process.uid != confine->uid)
        return error_set(err, -EPERM, "process %d is not one of user %u", (int)confine->pid,
                         confine->uid);
    r = process_cgroup(cgroup, confine->pid);
    if (r < 0)
        return error_set(err, r, "process %d is in no cgroup2", (int)confine->pid);

    if (confine->want_scope) {
        r = bus_new(&bus, &why);
        if (r == 0)
            r = enter(bus, reader, confine, cgroup, ret, &why);
        if (r < 0)
            note(ret, 2, "not in force: %s", why.text);
    }
    if (confine->want_limit) {
        r = ret->cgroup[0] ? limit_all(reader, confine, ret->cgroup, &why)
                           : error_set(&why, -ENOENT, "it needs a cgroup of the lease's own");
        if (r == 0) {
            ret->tiers |= 1 << 1;
            note(ret, 1, "the driver limits %s, and says so", ret->scope);
        } else
            note(ret, 1, "not in force: %s", why.text);
    }
    return 0;
}
