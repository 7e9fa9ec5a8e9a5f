/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sd-bus, synchronously: the hand does one thing at a time, and only allotd waits for it, which
 * replaces it if it takes too long.
 *
 * A transient unit exists when its job is done, not when the call returns. JobRemoved reports that,
 * to clients that subscribed before they asked.
 */
#include "daemon/hand/exec/bus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "daemon/hand/exec/bus_cleanup.h"

#define CALL_USEC   (UINT64_C(20) * 1000 * 1000)
#define RELOAD_USEC (UINT64_C(60) * 1000 * 1000)

#define SYSTEMD UNIT_LIMITS_SYSTEMD
#define MANAGER "org.freedesktop.systemd1.Manager"
#define ROOT    "/org/freedesktop/systemd1"

struct bus {
    sd_bus *bus;
    sd_bus_slot *match;
    char job[128];   /* the job that is waited for */
    char result[32]; /* of that job; "" until it is known */
};

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
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
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

/* The slice that all leases share which leave this unit: "user-1000-allot_3f….slice". */
static int name_shared(struct bus_place *place, struct allot_error *err) {
    uint8_t hash[SHA256_SIZE];
    char hex[17];
    bool is_top = strcmp(place->slice, "-.slice") == 0;
    size_t length = strlen(place->slice) - strlen(".slice");
    int n;

    sha256(hash, place->unit, strlen(place->unit));
    for (size_t i = 0; i < 8; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    n = is_top ? snprintf(place->shared, sizeof(place->shared), "allot_%s.slice", hex)
               : snprintf(place->shared, sizeof(place->shared), "%.*s-allot_%s.slice", (int)length,
                          place->slice, hex);
    if (n < 0 || (size_t)n >= sizeof(place->shared))
        return error_set(err, -ENAMETOOLONG, "no slice in %s can have the limits of %s",
                         place->slice, place->unit);
    return 0;
}

void bus_place_done(struct bus_place *place) {
    unit_limits_done(&place->limits);
}

static int find_unit(struct bus *bus, pid_t pid, char **ret_path, char **ret_id,
                     struct allot_error *err) {
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(bus_cleanup_messagep) sd_bus_message *reply = NULL;
    const char *path;
    int r;

    r = sd_bus_call_method(bus->bus, SYSTEMD, ROOT, MANAGER, "GetUnitByPID", &error, &reply, "u",
                           (uint32_t)pid);
    if (r >= 0)
        r = sd_bus_message_read(reply, "o", &path);
    if (r < 0)
        return fail(err, r, &error, "GetUnitByPID");
    r = sd_bus_get_property_string(bus->bus, SYSTEMD, path, "org.freedesktop.systemd1.Unit", "Id",
                                   &error, ret_id);
    if (r < 0)
        return fail(err, r, &error, "Id");
    *ret_path = strdup(path);
    return *ret_path ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* When systemd ends the unit, by RuntimeMaxSec=. */
static int read_end(struct bus *bus, const char *path, const char *interface,
                    struct bus_place *place, struct allot_error *err) {
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    uint64_t max = UINT64_MAX, since = 0;
    int r = sd_bus_get_property_trivial(bus->bus, SYSTEMD, path, interface, "RuntimeMaxUSec",
                                        &error, 't', &max);

    place->ends_usec = UINT64_MAX;
    if (r < 0 && sd_bus_error_has_name(&error, SD_BUS_ERROR_UNKNOWN_PROPERTY))
        return 0; /* scopes have it since systemd 244 */
    if (r >= 0 && max != 0 && max != UINT64_MAX)
        r = sd_bus_get_property_trivial(bus->bus, SYSTEMD, path, "org.freedesktop.systemd1.Unit",
                                        "ActiveEnterTimestampMonotonic", &error, 't', &since);
    if (r < 0)
        return fail(err, r, &error, "RuntimeMaxUSec");
    if (max == 0 || max == UINT64_MAX)
        return 0;
    if (since == 0) /* it is still starting: its time has not begun */
        since = clock_usec(CLOCK_MONOTONIC);
    if (__builtin_add_overflow(since, max, &place->ends_usec))
        place->ends_usec = UINT64_MAX;
    return 0;
}

int bus_find_place(struct bus *bus, pid_t pid, struct bus_place *ret, struct allot_error *err) {
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(freep) char *path = NULL, *id = NULL, *slice = NULL;
    cleanup(bus_place_done) struct bus_place place = { .ends_usec = UINT64_MAX };
    const char *interface;
    int r = find_unit(bus, pid, &path, &id, err);

    if (r < 0)
        return r;
    interface = interface_of(id);
    if (!interface)
        return error_set(err, -EOPNOTSUPP, "the process is in %s, which has no slice", id);
    snprintf(place.unit, sizeof(place.unit), "%s", id);
    r = bus_unit_cgroup(bus, id, place.cgroup, sizeof(place.cgroup), err);
    if (r < 0)
        return r;
    if (strcmp(interface, "org.freedesktop.systemd1.Slice") == 0) {
        snprintf(place.slice, sizeof(place.slice), "%s", id);
    } else {
        r = sd_bus_get_property_string(bus->bus, SYSTEMD, path, interface, "Slice", &error, &slice);
        if (r < 0)
            return fail(err, r, &error, "Slice");
        snprintf(place.slice, sizeof(place.slice), "%s", slice);
        r = unit_limits_read(&place.limits, bus->bus, path, interface, id, err);
        if (r == 0)
            r = read_end(bus, path, interface, &place, err);
        if (r == 0 && (place.limits.n > 0 || place.ends_usec != UINT64_MAX))
            r = name_shared(&place, err);
        if (r < 0)
            return r;
    }
    *ret = place;
    place = (struct bus_place){ 0 };
    return 0;
}

/* The slice with the limits, made with the scope: a(sa(sv)). */
static int append_shared(sd_bus_message *message, const struct bus_place *place) {
    char description[BUS_NAME_SIZE + 64];
    int r = sd_bus_message_open_container(message, 'a', "(sa(sv))");

    if (r >= 0 && place) {
        snprintf(description, sizeof(description), "What GPU leases of %s share", place->unit);
        r = sd_bus_message_open_container(message, 'r', "sa(sv)");
        if (r >= 0)
            r = sd_bus_message_append(message, "s", place->shared);
        if (r >= 0)
            r = sd_bus_message_open_container(message, 'a', "(sv)");
        if (r >= 0)
            r = sd_bus_message_append(message, "(sv)(sv)(sv)", "Description", "s", description,
                                      "CollectMode", "s", "inactive-or-failed", "StopWhenUnneeded",
                                      "b", 1);
        if (r >= 0)
            r = unit_limits_append(&place->limits, message, false);
        for (int i = 0; r >= 0 && i < 2; i++)
            r = sd_bus_message_close_container(message);
    }
    return r < 0 ? r : sd_bus_message_close_container(message);
}

/* The limits as they are now, in the slice that other leases of the unit are in already. */
static int set_shared(struct bus *bus, const struct bus_place *place, struct allot_error *err) {
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(bus_cleanup_messagep) sd_bus_message *message = NULL;
    int r;

    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER,
                                       "SetUnitProperties");
    if (r >= 0)
        r = sd_bus_message_append(message, "sb", place->shared, 1);
    if (r >= 0)
        r = sd_bus_message_open_container(message, 'a', "(sv)");
    if (r >= 0)
        r = unit_limits_append(&place->limits, message, true);
    if (r >= 0)
        r = sd_bus_message_close_container(message);
    if (r >= 0)
        r = sd_bus_call(bus->bus, message, 0, &error, NULL);
    return r < 0 ? fail(err, r, &error, place->shared) : 0;
}

static bool is_loaded(struct bus *bus, const char *unit) {
    return sd_bus_call_method(bus->bus, SYSTEMD, ROOT, MANAGER, "GetUnit", NULL, NULL, "s", unit) >=
           0;
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
    /* A second process of the lease can be put only into a delegated unit. */
    r = sd_bus_message_append(message, "(sv)(sv)(sv)(sv)", "Description", "s", scope->description,
                              "Slice", "s", scope->slice, "CollectMode", "s", "inactive-or-failed",
                              "Delegate", "b", 1);
    if (r < 0)
        return r;
    if (scope->is_closed) {
        r = append_devices(message, scope);
        if (r < 0)
            return r;
    }
    if (scope->place && scope->place->ends_usec != UINT64_MAX) {
        uint64_t now = clock_usec(CLOCK_MONOTONIC), end = MAX(scope->place->ends_usec, now + 1);

        r = sd_bus_message_append(message, "(sv)", "RuntimeMaxUSec", "t", end - now);
        if (r < 0)
            return r;
    }
    r = sd_bus_message_append(message, "(sv)", "PIDs", "au", 1, (uint32_t)scope->pid);
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
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(bus_cleanup_messagep) sd_bus_message *message = NULL, *reply = NULL;
    const struct bus_place *place = scope->place && scope->place->shared[0] ? scope->place : NULL;
    bool has_shared = place && is_loaded(bus, place->shared);
    const char *job;
    int r;

    if (has_shared) {
        r = set_shared(bus, place, err);
        if (r < 0)
            return r;
    }
    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER,
                                       "StartTransientUnit");
    if (r >= 0)
        r = sd_bus_message_append(message, "ss", scope->name, "fail");
    if (r >= 0)
        r = append_properties(message, scope);
    if (r >= 0)
        r = append_shared(message, has_shared ? NULL : place);
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
    /* Signals that came meanwhile wait in the queue and are read from here on. */
    snprintf(bus->job, sizeof(bus->job), "%s", job);
    r = wait_for_job(bus, scope->name, err);
    /* The last lease in that slice may have ended meanwhile, and the slice with it. */
    return r < 0 || !has_shared ? r : set_shared(bus, place, err);
}

int bus_attach(struct bus *bus, const char *scope, pid_t pid, struct allot_error *err) {
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(bus_cleanup_messagep) sd_bus_message *message = NULL;
    int r;

    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER,
                                       "AttachProcessesToUnit");
    if (r >= 0)
        r = sd_bus_message_append(message, "ssau", scope, "", 1, (uint32_t)pid);
    if (r < 0)
        return error_set(err, r, "systemd: the request for %s cannot be made: %s", scope,
                         strerror(-r));
    r = sd_bus_call(bus->bus, message, 0, &error, NULL);
    return r < 0 ? fail(err, r, &error, "AttachProcessesToUnit") : 0;
}

int bus_unit_cgroup(struct bus *bus, const char *unit, char *ret, size_t size,
                    struct allot_error *err) {
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
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
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(bus_cleanup_messagep) sd_bus_message *message = NULL;
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
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(bus_cleanup_messagep) sd_bus_message *reply = NULL;
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
    cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
    cleanup(bus_cleanup_messagep) sd_bus_message *message = NULL;
    int r;

    r = sd_bus_message_new_method_call(bus->bus, &message, SYSTEMD, ROOT, MANAGER, "Reload");
    if (r >= 0)
        r = sd_bus_call(bus->bus, message, RELOAD_USEC, &error, NULL);
    return r < 0 ? fail(err, r, &error, "Reload") : 0;
}
