/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sd-bus, synchronously: the hand does one thing at a time, and only allotd waits for it, which
 * replaces it when it takes too long.
 *
 * A transient unit is there when its job is done, not when the call returns. JobRemoved says so, to
 * clients that subscribed before they asked.
 */
#include "daemon/hand/exec/bus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "base/clock.h"

#define CALL_USEC   (UINT64_C(20) * 1000 * 1000)
#define RELOAD_USEC (UINT64_C(60) * 1000 * 1000)

#define SYSTEMD "org.freedesktop.systemd1"
#define MANAGER "org.freedesktop.systemd1.Manager"
#define ROOT    "/org/freedesktop/systemd1"

struct bus {
    sd_bus *bus;
    sd_bus_slot *match;
    char job[128];   /* the job that is waited for */
    char result[32]; /* of that job; "" until it is known */
};

static inline void errorp(sd_bus_error *error) {
    sd_bus_error_free(error);
}
static inline void messagep(sd_bus_message **message) {
    sd_bus_message_unref(*message);
}

/* `r` of a call that failed, with what the bus says about it. */
static int fail(struct allot_error *err, int r, const sd_bus_error *error, const char *what) {
    return error_set(err, r, "systemd: %s: %s", what,
                     error->message ? error->message : strerror(-r));
}

/* Jobs end in any order, and one may end before the call that made it has returned. */
static int job_removed(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    const char *path, *unit, *result;
    struct bus *bus = userdata;
    uint32_t id;

    if (sd_bus_message_read(message, "uoss", &id, &path, &unit, &result) < 0)
        return 0;
    if (bus->job[0] && strcmp(bus->job, path) == 0)
        snprintf(bus->result, sizeof(bus->result), "%s", result);
    return 0;
}

int bus_new(struct bus **ret, struct allot_error *err) {
    cleanup(bus_freep) struct bus *bus = NULL;
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    int r;

    if (sd_booted() <= 0)
        return error_set(err, -ENOSYS, "this machine was not booted by systemd");
    bus = calloc(1, sizeof(*bus));
    if (!bus)
        return error_set(err, -ENOMEM, "out of memory");
    r = sd_bus_open_system(&bus->bus);
    if (r < 0)
        return error_set(err, r, "the system bus cannot be reached: %s", strerror(-r));
    sd_bus_set_method_call_timeout(bus->bus, CALL_USEC);
    r = sd_bus_match_signal(bus->bus, &bus->match, SYSTEMD, ROOT, MANAGER, "JobRemoved",
                            job_removed, bus);
    if (r < 0)
        return error_set(err, r, "systemd: JobRemoved cannot be watched: %s", strerror(-r));
    r = sd_bus_call_method(bus->bus, SYSTEMD, ROOT, MANAGER, "Subscribe", &error, NULL, NULL);
    if (r < 0)
        return fail(err, r, &error, "Subscribe");
    *ret = TAKE(bus);
    return 0;
}

struct bus *bus_free(struct bus *bus) {
    if (!bus)
        return NULL;
    sd_bus_slot_unref(bus->match);
    sd_bus_flush_close_unref(bus->bus);
    free(bus);
    return NULL;
}

static int unit_path(struct bus *bus, const char *unit, char **ret, struct allot_error *err) {
    int r = sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, ret);

    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

/* The interface that has the resource properties of a unit. */
static const char *interface_of(const char *unit) {
    const char *dot = strrchr(unit, '.');

    if (dot && strcmp(dot, ".service") == 0)
        return "org.freedesktop.systemd1.Service";
    if (dot && strcmp(dot, ".scope") == 0)
        return "org.freedesktop.systemd1.Scope";
    if (dot && strcmp(dot, ".slice") == 0)
        return "org.freedesktop.systemd1.Slice";
    return NULL;
}

static void read_limits(struct bus *bus, const char *path, const char *interface,
                        struct bus_place *place) {
    static const char *const properties[] = { "MemoryMax", "MemoryHigh", "MemorySwapMax",
                                              "CPUQuotaPerSecUSec", "TasksMax" };
    uint64_t value;

    for (size_t i = 0; i < ELEMENTSOF(properties); i++)
        if (sd_bus_get_property_trivial(bus->bus, SYSTEMD, path, interface, properties[i], NULL,
                                        't', &value) >= 0 &&
            value != UINT64_MAX)
            place->limits[place->n_limits++] = (struct bus_limit){ properties[i], value };
}

int bus_find_place(struct bus *bus, pid_t pid, struct bus_place *ret, struct allot_error *err) {
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(messagep) sd_bus_message *reply = NULL;
    cleanup(freep) char *id = NULL, *slice = NULL;
    struct bus_place place = { 0 };
    const char *path, *interface;
    int r;

    r = sd_bus_call_method(bus->bus, SYSTEMD, ROOT, MANAGER, "GetUnitByPID", &error, &reply, "u",
                           (uint32_t)pid);
    if (r < 0)
        return fail(err, r, &error, "GetUnitByPID");
    r = sd_bus_message_read(reply, "o", &path);
    if (r < 0)
        return fail(err, r, &error, "GetUnitByPID");
    r = sd_bus_get_property_string(bus->bus, SYSTEMD, path, "org.freedesktop.systemd1.Unit", "Id",
                                   &error, &id);
    if (r < 0)
        return fail(err, r, &error, "Id");
    interface = interface_of(id);
    if (!interface)
        return error_set(err, -EOPNOTSUPP, "the process is in %s, which has no slice", id);
    snprintf(place.unit, sizeof(place.unit), "%s", id);
    if (strcmp(interface, "org.freedesktop.systemd1.Slice") == 0) {
        snprintf(place.slice, sizeof(place.slice), "%s", id);
    } else {
        r = sd_bus_get_property_string(bus->bus, SYSTEMD, path, interface, "Slice", &error, &slice);
        if (r < 0)
            return fail(err, r, &error, "Slice");
        snprintf(place.slice, sizeof(place.slice), "%s", slice);
        read_limits(bus, path, interface, &place);
    }
    *ret = place;
    return 0;
}

static int append_devices(sd_bus_message *message, const struct bus_scope *scope) {
    int r = sd_bus_message_append(message, "(sv)", "DevicePolicy", "s", "closed");

    if (r < 0)
        return r;
    for (size_t i = 0; i < scope->n_allow; i++) {
        r = sd_bus_message_append(message, "(sv)", "DeviceAllow", "a(ss)", 1, scope->allow[i],
                                  "rwm");
        if (r < 0)
            return r;
    }
    return 0;
}

static int append_properties(sd_bus_message *message, const struct bus_scope *scope) {
    int r;

    r = sd_bus_message_open_container(message, 'a', "(sv)");
    if (r < 0)
        return r;
    /* Only into a unit that is delegated can a second process of the lease be put. */
    r = sd_bus_message_append(message, "(sv)(sv)(sv)(sv)", "Description", "s", scope->description,
                              "Slice", "s", scope->slice, "CollectMode", "s", "inactive-or-failed",
                              "Delegate", "b", 1);
    if (r < 0)
        return r;
    for (size_t i = 0; i < scope->n_limits; i++) {
        r = sd_bus_message_append(message, "(sv)", scope->limits[i].property, "t",
                                  scope->limits[i].value);
        if (r < 0)
            return r;
    }
    if (scope->is_closed) {
        r = append_devices(message, scope);
        if (r < 0)
            return r;
    }
    r = scope->n_pids == 2
            ? sd_bus_message_append(message, "(sv)", "PIDs", "au", 2, (uint32_t)scope->pids[0],
                                    (uint32_t)scope->pids[1])
            : sd_bus_message_append(message, "(sv)", "PIDs", "au", 1, (uint32_t)scope->pids[0]);
    if (r < 0)
        return r;
    return sd_bus_message_close_container(message);
}

static int wait_for_job(struct bus *bus, const char *unit, struct allot_error *err) {
    uint64_t deadline = clock_usec(CLOCK_MONOTONIC) + CALL_USEC, now;

    while (!bus->result[0]) {
        int r = sd_bus_process(bus->bus, NULL);

        if (r < 0)
            return error_set(err, r, "systemd: the connection broke: %s", strerror(-r));
        if (r > 0)
            continue;
        now = clock_usec(CLOCK_MONOTONIC);
        if (now >= deadline)
            return error_set(err, -ETIMEDOUT, "systemd: %s did not start in time", unit);
        sd_bus_wait(bus->bus, deadline - now);
    }
    if (strcmp(bus->result, "done") != 0)
        return error_set(err, -EIO, "systemd: %s did not start: %s", unit, bus->result);
    return 0;
}

int bus_start_scope(struct bus *bus, const struct bus_scope *scope, struct allot_error *err) {
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(messagep) sd_bus_message *message = NULL, *reply = NULL;
    const char *job;
    int r;

    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER,
                                       "StartTransientUnit");
    if (r >= 0)
        r = sd_bus_message_append(message, "ss", scope->name, "fail");
    if (r >= 0)
        r = append_properties(message, scope);
    if (r >= 0)
        r = sd_bus_message_append(message, "a(sa(sv))", 0);
    if (r < 0)
        return error_set(err, r, "systemd: the request for %s cannot be made: %s", scope->name,
                         strerror(-r));
    bus->job[0] = bus->result[0] = 0;
    r = sd_bus_call(bus->bus, message, 0, &error, &reply);
    if (r < 0 && sd_bus_error_has_name(&error, SYSTEMD ".UnitExists"))
        return error_set(err, -EEXIST, "systemd: there is a %s already", scope->name);
    if (r < 0)
        return fail(err, r, &error, "StartTransientUnit");
    r = sd_bus_message_read(reply, "o", &job);
    if (r < 0)
        return fail(err, r, &error, "StartTransientUnit");
    /* Signals that came meanwhile wait in the queue: they are looked at from here on. */
    snprintf(bus->job, sizeof(bus->job), "%s", job);
    return wait_for_job(bus, scope->name, err);
}

int bus_attach(struct bus *bus, const char *scope, const pid_t *pids, size_t n,
               struct allot_error *err) {
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(messagep) sd_bus_message *message = NULL;
    int r;

    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER,
                                       "AttachProcessesToUnit");
    if (r >= 0)
        r = sd_bus_message_append(message, "ss", scope, "");
    if (r >= 0)
        r = sd_bus_message_append_array(message, 'u', pids, n * sizeof(*pids));
    if (r < 0)
        return error_set(err, r, "systemd: the request for %s cannot be made: %s", scope,
                         strerror(-r));
    r = sd_bus_call(bus->bus, message, 0, &error, NULL);
    return r < 0 ? fail(err, r, &error, "AttachProcessesToUnit") : 0;
}

int bus_unit_cgroup(struct bus *bus, const char *unit, char *ret, size_t size,
                    struct allot_error *err) {
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(freep) char *path = NULL, *cgroup = NULL;
    const char *interface = interface_of(unit);
    int r = unit_path(bus, unit, &path, err);

    if (r < 0)
        return r;
    r = sd_bus_get_property_string(bus->bus, SYSTEMD, path, interface, "ControlGroup", &error,
                                   &cgroup);
    if (r < 0)
        return fail(err, r, &error, "ControlGroup");
    if (!*cgroup || strlen(cgroup) >= size)
        return error_set(err, -ENODATA, "systemd: %s has no cgroup that can be used", unit);
    strcpy(ret, cgroup);
    return 0;
}

int bus_set_devices(struct bus *bus, const char *unit, const char *const *allow, size_t n,
                    struct allot_error *err) {
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(messagep) sd_bus_message *message = NULL;
    int r;

    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER,
                                       "SetUnitProperties");
    if (r >= 0)
        r = sd_bus_message_append(message, "sb", unit, 1);
    if (r >= 0)
        r = sd_bus_message_open_container(message, 'a', "(sv)");
    if (r >= 0)
        r = sd_bus_message_append(message, "(sv)(sv)", "DevicePolicy", "s",
                                  allow ? "strict" : "auto", "DeviceAllow", "a(ss)", 0);
    for (size_t i = 0; r >= 0 && i < n; i++)
        r = sd_bus_message_append(message, "(sv)", "DeviceAllow", "a(ss)", 1, allow[i], "rwm");
    if (r >= 0)
        r = sd_bus_message_close_container(message);
    if (r < 0)
        return error_set(err, r, "systemd: the request for %s cannot be made: %s", unit,
                         strerror(-r));
    r = sd_bus_call(bus->bus, message, 0, &error, NULL);
    return r < 0 ? fail(err, r, &error, unit) : 0;
}

int bus_list_units(struct bus *bus, const char *pattern, const char *other_pattern,
                   void (*each)(void *userdata, const char *unit), void *userdata,
                   struct allot_error *err) {
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(messagep) sd_bus_message *reply = NULL;
    const char *name;
    int r;

    r = sd_bus_call_method(bus->bus, SYSTEMD, ROOT, MANAGER, "ListUnitsByPatterns", &error, &reply,
                           "asas", 1, "active", 2, pattern, other_pattern);
    if (r < 0)
        return fail(err, r, &error, "ListUnitsByPatterns");
    r = sd_bus_message_enter_container(reply, 'a', "(ssssssouso)");
    while (r >= 0) {
        r = sd_bus_message_read(reply, "(ssssssouso)", &name, NULL, NULL, NULL, NULL, NULL, NULL,
                                NULL, NULL, NULL);
        if (r <= 0)
            break;
        each(userdata, name);
    }
    return r < 0 ? fail(err, r, &error, "ListUnitsByPatterns") : 0;
}

int bus_reload(struct bus *bus, struct allot_error *err) {
    cleanup(errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(messagep) sd_bus_message *message = NULL;
    int r;

    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER, "Reload");
    if (r >= 0)
        r = sd_bus_call(bus->bus, message, RELOAD_USEC, &error, NULL);
    return r < 0 ? fail(err, r, &error, "Reload") : 0;
}
