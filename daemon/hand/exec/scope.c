/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scope is made in the slice that the process is in already, so that what the administrator set
 * for the user as a whole also applies to the job. What was set for the unit that the process
 * leaves (memory, addresses, device nodes, processors) goes along, to a slice that all leases share
 * which left that unit: ten of them together have what one has.
 *
 *     user.slice ─ user-1000.slice ┬ session-3.scope            the shell, gpuctl
 *                                  ├ user@1000.service ─ …      (its processes go up to the slice)
 *                                  ├ allot-17.scope             a job from a unit without limits
 *                                  └ user-1000-allot_5e….slice  the limits of some unit
 *                                    └ allot-18.scope           a job that left that unit
 *
 * Nothing is claimed that was not tested. The scope begins with a child of ours, which tries nodes
 * from inside: one that must be refused, and the job's own where the unit had device rules. Only
 * then is the process moved, by its pid, and looked at again through its pidfd: if it has ended,
 * another process may have been moved that got its pid, and that one is put back. A second process
 * of a lease joins the existing scope.
 */
#include "daemon/hand/exec/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/cgroup_owner.h"
#include "daemon/hand/exec/device_nodes.h"
#include "daemon/hand/exec/driver_limit.h"
#include "daemon/hand/exec/lease_evidence.h"
#include "daemon/hand/exec/proc.h"
#include "daemon/enforce/process.h"

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
        return error_set(err, -ENOENT, "cgroup2 is not mounted");
    if ((size_t)snprintf(ret, size, "%s%s", root, cgroup) >= size)
        return error_set(err, -ENAMETOOLONG, "the path of the cgroup is too long");
    return 0;
}

/* ---- The scope ----------------------------------------------------------------------------------
 */

/* The filter answers EPERM; file permissions would be EACCES, and a node without driver ENXIO. */
static int judge(int error, const char *path, struct allot_error *err) {
    if (error == EPERM)
        return 0;
    if (error == 0 || error == ENXIO || error == ENODEV)
        return error_set(err, -ENOTSUP, "%s was not refused: the device filter does not work here",
                         path);
    return error_set(err, -error, "%s could not be tried: %s", path, strerror(error));
}

/* Join the existing scope if it is in the slice in which it would be made: not another user's. */
static int join(struct bus *bus, const struct bus_scope *scope, struct allot_error *err) {
    char cgroup[256], part[BUS_NAME_SIZE + 2];
    int r = bus_unit_cgroup(bus, scope->name, cgroup, sizeof(cgroup), err);

    if (r < 0)
        return r;
    snprintf(part, sizeof(part), "/%s/", scope->slice);
    if (!strstr(cgroup, part))
        return error_set(err, -EEXIST,
                         "%s exists already, in %s, and not in the slice of this user", scope->name,
                         cgroup);
    return bus_attach(bus, scope->name, scope->pid, err);
}

/* In the scope by now: one node must be refused, and where device rules came along, none of the
 * scope's own. */
static int try_nodes(struct probe_child *child, const struct bus_scope *scope, const char *path,
                     struct allot_error *err) {
    int error, r = probe_child_open(child, path, &error, err);

    if (r == 0)
        r = judge(error, path, err);
    if (r < 0 || !scope->place || !scope->place->limits.has_devices)
        return r;
    for (size_t i = 0; i < scope->n_allow; i++) {
        r = probe_child_open(child, scope->allow[i], &error, err);
        if (r < 0)
            return r;
        if (error == EPERM)
            return error_set(err, -EACCES, "the device rules of %s do not allow %s",
                             scope->place->unit, scope->allow[i]);
    }
    return 0;
}

/* Make the scope with the child in it, or join the existing one. */
static int start_tried(struct bus *bus, struct bus_scope *scope, struct probe_child *child,
                       const char *path, struct allot_error *err) {
    int r = probe_child_start(child, err);

    if (r < 0)
        return r;
    scope->pid = child->pid;
    r = bus_start_scope(bus, scope, err);
    if (r == -EEXIST)
        r = join(bus, scope, err);
    return r < 0 ? r : try_nodes(child, scope, path, err);
}

int scope_start_tried(struct bus *bus, struct bus_scope *scope, const char *path,
                      struct allot_error *err) {
    cleanup(probe_child_done) struct probe_child child = PROBE_CHILD_INIT;

    return start_tried(bus, scope, &child, path, err);
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

/*
 * Refuse to take a process out of a cgroup below its unit's that is not its user's: systemd does
 * not know the limits that are set there. Those of a cgroup of its own the user could lift itself.
 */
static int check_below(const struct bus_place *place, const char *cgroup, uint32_t uid,
                       struct allot_error *err) {
    const char *end = cgroup + strlen(place->cgroup);
    char part[PROCESS_CGROUP_SIZE], folder[512];
    struct stat st;
    int r;

    if (!process_is_within(cgroup, place->cgroup))
        return error_set(err, -EAGAIN, "the process has just left %s", place->unit);
    while (*end) {
        end = strchrnul(end + 1, '/');
        snprintf(part, sizeof(part), "%.*s", (int)(end - cgroup), cgroup);
        r = scope_folder(folder, sizeof(folder), part, err);
        if (r < 0)
            return r;
        if (stat(folder, &st) < 0 || st.st_uid != uid)
            return error_set(err, -EOPNOTSUPP,
                             "the process is in %s, below %s, and the limits there cannot be "
                             "carried over",
                             part, place->unit);
    }
    return 0;
}

/* The cgroup of the parent: where a process was born a moment ago. */
static int parent_cgroup(char ret[static PROCESS_CGROUP_SIZE], pid_t pid) {
    char path[64], text[1024], *after;
    cleanup(fclosep) FILE *f = NULL;
    int parent;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f || !fgets(text, sizeof(text), f))
        return -ESRCH;
    after = strrchr(text, ')');
    if (!after || sscanf(after, ") %*c %d", &parent) != 1 || parent <= 1)
        return -ENOENT;
    return process_cgroup(ret, parent);
}

/*
 * The process that was meant has ended, and another one may have got its pid before it was moved:
 * then that one is in the scope now, and goes back to where it was born.
 */
static void put_back(const struct process_id *meant, const char *scope_cgroup) {
    char now[PROCESS_CGROUP_SIZE], home[PROCESS_CGROUP_SIZE], folder[512], path[600];
    cleanup(closep) int pidfd = -1, fd = -1;
    struct process_id id;
    int r;

    if (process_identify(&id, meant->pid) < 0 || process_id_equal(&id, meant) ||
        process_open(&pidfd, &id) < 0 || process_cgroup(now, id.pid) < 0 ||
        !process_is_within(now, scope_cgroup))
        return;
    r = parent_cgroup(home, id.pid);
    if (r == 0 && process_is_within(home, scope_cgroup))
        return; /* a child of the process that was meant */
    if (r == 0)
        r = scope_folder(folder, sizeof(folder), home, NULL);
    if (r == 0) {
        snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        r = fd < 0 || dprintf(fd, "%d", (int)id.pid) < 0 ? -errno : 0;
    }
    fprintf(stderr,
            SD_WARNING
            "process %d got the pid of one that ended while it was moved to %s, and %s\n",
            (int)id.pid, scope_cgroup, r < 0 ? "could not be put back" : "was put back");
}

/* Move the process, and check through its pidfd that it is the one that arrived. */
static int move(struct bus *bus, const char *name, const struct process_id *id, int pidfd,
                struct hand_confined *ret, struct allot_error *err) {
    char after[PROCESS_CGROUP_SIZE], cgroup[sizeof(ret->cgroup)];
    struct pollfd ended = { .fd = pidfd, .events = POLLIN };
    int r;

    r = bus_unit_cgroup(bus, name, cgroup, sizeof(cgroup), err);
    if (r < 0)
        return r;
    r = bus_attach(bus, name, id->pid, err);
    if (poll(&ended, 1, 0) != 0) {
        put_back(id, cgroup);
        return error_set(err, -ESRCH, "process %d has ended", (int)id->pid);
    }
    if (r < 0)
        return r;
    if (process_cgroup(after, id->pid) < 0 || !process_is_within(after, cgroup))
        return error_set(err, -EIO, "the process was not moved into %s", name);
    strcpy(ret->cgroup, cgroup);
    snprintf(ret->scope, sizeof(ret->scope), "%s", name);
    return 0;
}

/* Put the process into its scope; ret->scope and ->cgroup are set if it is in one. */
static int enter(struct bus *bus, const struct hand_confine_question *question, int pidfd,
                 const char *cgroup, struct hand_confined *ret, struct allot_error *err) {
    const struct hand_confine *confine = &question->confine;
    const struct process_id id = { confine->pid, confine->start };
    char name[SCOPE_NAME_SIZE], forbidden[BUS_PATH_SIZE], description[96];
    cleanup(probe_child_done) struct probe_child child = PROBE_CHILD_INIT;
    cleanup(freep) struct device_nodes *nodes = calloc(1, sizeof(*nodes));
    cleanup(bus_place_done) struct bus_place place = { 0 };
    struct bus_scope scope;
    int r, tried;

    if (!nodes)
        return error_set(err, -ENOMEM, "out of memory");
    r = check_owner(cgroup, err);
    if (r == 0)
        r = device_nodes_find(nodes, question, err);
    if (r < 0)
        return r;
    if (device_nodes_forbidden(nodes, forbidden) < 0)
        return error_set(err, -ENOENT, "there is no other device node to prove it with");
    r = bus_find_place(bus, confine->pid, &place, err);
    if (r == 0)
        r = check_below(&place, cgroup, confine->uid, err);
    if (r < 0)
        return r;
    scope_name(name, confine->lease);
    snprintf(description, sizeof(description), "GPU lease %" PRIu64, confine->lease);
    scope = (struct bus_scope){
        .name = name,
        .slice = place.shared[0] ? place.shared : place.slice,
        .description = description,
        .is_closed = true,
        .n_allow = nodes->n,
        .allow = nodes->paths,
        .place = &place,
    };
    tried = start_tried(bus, &scope, &child, forbidden, err);
    /* Where filters do not work at all, the scope is still a cgroup for the driver's limit. */
    if (tried < 0 && tried != -ENOTSUP)
        return tried;
    r = move(bus, name, &id, pidfd, ret, tried < 0 ? NULL : err);
    if (tried < 0 || r < 0)
        return tried < 0 ? tried : r;
    ret->tiers |= 1 << 2;
    note(ret, 2, "%s in %s; %s was tried inside and refused", name, scope.slice, forbidden);
    return 0;
}

/* Claims the limit for all devices or for none; devices that could be limited stay limited. */
static int limit_all(enum driver_choice driver, const struct hand_confine_question *question,
                     const char *cgroup, struct allot_error *err) {
    char folder[512];
    int r = scope_folder(folder, sizeof(folder), cgroup, err);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < question->confine.n_devices; i++) {
        int one;

        if (question->nodes[i].is_mig) {
            r = error_set(err, -EOPNOTSUPP, "the driver has no limits for MIG instances");
            continue;
        }
        one = driver_limit_set(driver, &question->confine.devices[i].id, folder,
                               question->confine.devices[i].limit_bytes, r < 0 ? NULL : err);
        r = r < 0 ? r : one;
    }
    return r;
}

int scope_confine(enum driver_choice driver, const struct hand_confine_question *question,
                  struct hand_confined *ret, struct allot_error *err) {
    const struct hand_confine *confine = &question->confine;
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
    r = lease_evidence_check(&process, true, err);
    if (r < 0)
        return r;
    r = process_cgroup(cgroup, confine->pid);
    if (r < 0)
        return error_set(err, r, "process %d is in no cgroup2", (int)confine->pid);

    if (confine->want_scope) {
        r = bus_new(&bus, &why);
        if (r == 0)
            r = enter(bus, question, pidfd, cgroup, ret, &why);
        if (r < 0)
            note(ret, 2, "not in force: %s", why.text);
    }
    if (confine->want_limit) {
        r = ret->cgroup[0] ? limit_all(driver, question, ret->cgroup, &why)
                           : error_set(&why, -ENOENT, "it needs a cgroup of the lease's own");
        if (r == 0) {
            ret->tiers |= 1 << 1;
            note(ret, 1, "the driver limits %s, and says so", ret->scope);
        } else
            note(ret, 1, "not in force: %s", why.text);
    }
    return 0;
}
