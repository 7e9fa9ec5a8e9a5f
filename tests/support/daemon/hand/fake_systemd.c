/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/hand/fake_systemd.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/support/daemon/hand/fake_machine.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define ROOT    "/org/freedesktop/systemd1"
#define SOCKET  "/run/bus"

/* ---- The record -------------------------------------------------------------------------------
 */

__attribute__((format(printf, 2, 3))) static void say(struct fake_systemd *systemd,
                                                      const char *format, ...) {
    size_t len = strlen(systemd->asked);
    va_list args;

    va_start(args, format);
    vsnprintf(systemd->asked + len, sizeof(systemd->asked) - len, format, args);
    va_end(args);
}

/* Every value of a message, each after a blank: "text", 7, [array], (struct), <variant>. */
static void say_values(struct fake_systemd *systemd, sd_bus_message *message) {
    const char *contents;
    char type;

    while (sd_bus_message_peek_type(message, &type, &contents) > 0) {
        const char *text;
        uint64_t number = 0;

        switch (type) {
        case 's':
        case 'o':
            ck_assert_int_gt(sd_bus_message_read_basic(message, type, &text), 0);
            say(systemd, " \"%s\"", text);
            break;
        case 'a':
        case 'r':
        case 'v':
            ck_assert_int_gt(sd_bus_message_enter_container(message, type, contents), 0);
            say(systemd, " %c", type == 'a' ? '[' : type == 'r' ? '(' : '<');
            say_values(systemd, message);
            say(systemd, "%c", type == 'a' ? ']' : type == 'r' ? ')' : '>');
            ck_assert_int_ge(sd_bus_message_exit_container(message), 0);
            break;
        default: /* numbers: the machine is little-endian, or they are all there is */
            ck_assert_int_gt(sd_bus_message_read_basic(message, type, &number), 0);
            say(systemd, " %" PRIu64, number);
        }
    }
}

bool fake_systemd_was_asked(const struct fake_systemd *systemd, const char *words) {
    return strstr(systemd->asked, words) != NULL;
}

void fake_systemd_forget(struct fake_systemd *systemd) {
    systemd->asked[0] = 0;
}

/* ---- Answers ----------------------------------------------------------------------------------
 */

static const struct fake_unit *find_unit(const struct fake_systemd *systemd, const char *name) {
    for (size_t i = 0; systemd->units[i].name; i++)
        if (strcmp(systemd->units[i].name, name) == 0)
            return &systemd->units[i];
    return NULL;
}

static int refuse(struct fake_systemd *systemd, sd_bus_message *message, const char *what) {
    if (!systemd->fails || strcmp(systemd->fails, what) != 0)
        return 0;
    if (systemd->n_pass > 0) {
        systemd->n_pass--;
        return 0;
    }
    return sd_bus_reply_method_errorf(
        message, systemd->failure ? systemd->failure : SD_BUS_ERROR_ACCESS_DENIED, "%s is refused",
        what);
}

static int reply_path(sd_bus_message *message, const char *unit) {
    cleanup(freep) char *path = NULL;

    ck_assert_int_ge(sd_bus_path_encode(ROOT "/unit", unit, &path), 0);
    return sd_bus_reply_method_return(message, "o", path);
}

static void append_value(sd_bus_message *reply, const struct fake_property *property) {
    const char *type = property->type, *text = property->text;
    uint64_t number = property->number;
    int r;

    if (strcmp(type, "t") == 0)
        r = sd_bus_message_append(reply, "v", "t", number);
    else if (strcmp(type, "u") == 0)
        r = sd_bus_message_append(reply, "v", "u", (uint32_t)number);
    else if (strcmp(type, "s") == 0)
        r = sd_bus_message_append(reply, "v", "s", text);
    else if (strcmp(type, "ay") == 0) {
        r = sd_bus_message_open_container(reply, 'v', "ay");
        sd_bus_message_append_array(reply, 'y', text, text ? strlen(text) : 0);
        sd_bus_message_close_container(reply);
    } else if (strcmp(type, "(bas)") == 0)
        r = text ? sd_bus_message_append(reply, "v", type, (int)number, 1, text)
                 : sd_bus_message_append(reply, "v", type, (int)number, 0);
    else if (!text)
        r = sd_bus_message_append(reply, "v", type, 0);
    else if (strcmp(type, "as") == 0)
        r = sd_bus_message_append(reply, "v", type, 1, text);
    else if (strcmp(type, "a(st)") == 0)
        r = sd_bus_message_append(reply, "v", type, 1, text, number);
    else if (strcmp(type, "a(ss)") == 0)
        r = sd_bus_message_append(reply, "v", type, 2, "char-pts", "rw", text, "rwm");
    else {
        ck_assert_str_eq(type, "a(iayu)");
        r = sd_bus_message_append(reply, "v", type, 1, 2, 4, 10, 1, 2, 3, (uint32_t)number);
    }
    ck_assert_int_ge(r, 0);
}

static int get_property(struct fake_systemd *systemd, sd_bus_message *message) {
    const char *interface, *name;
    cleanup(freep) char *unit_name = NULL;
    const struct fake_unit *unit;
    sd_bus_message *reply;
    char what[64];
    int r;

    ck_assert_int_gt(sd_bus_message_read(message, "ss", &interface, &name), 0);
    ck_assert_int_gt(sd_bus_path_decode(sd_bus_message_get_path(message), ROOT "/unit", &unit_name),
                     0);
    snprintf(what, sizeof(what), "Get %s", name);
    r = refuse(systemd, message, what);
    if (r)
        return r;
    unit = find_unit(systemd, unit_name);
    if (!unit)
        return sd_bus_reply_method_errorf(message, SD_BUS_ERROR_UNKNOWN_OBJECT, "no unit %s",
                                          unit_name);
    if (strcmp(name, "Id") == 0)
        return sd_bus_reply_method_return(message, "v", "s", unit->name);
    if (strcmp(name, "Slice") == 0)
        return sd_bus_reply_method_return(message, "v", "s", unit->slice);
    if (strcmp(name, "ControlGroup") == 0)
        return sd_bus_reply_method_return(message, "v", "s", unit->cgroup);
    for (const struct fake_property *p = unit->properties; p && p->name; p++)
        if (strcmp(p->name, name) == 0) {
            ck_assert_int_ge(sd_bus_message_new_method_return(message, &reply), 0);
            append_value(reply, p);
            r = sd_bus_send(NULL, reply, NULL);
            sd_bus_message_unref(reply);
            return r;
        }
    return sd_bus_reply_method_errorf(message, SD_BUS_ERROR_UNKNOWN_PROPERTY, "no %s", name);
}

static int list_units(struct fake_systemd *systemd, sd_bus_message *message) {
    sd_bus_message *reply;
    int r;

    ck_assert_int_ge(sd_bus_message_new_method_return(message, &reply), 0);
    ck_assert_int_ge(sd_bus_message_open_container(reply, 'a', "(ssssssouso)"), 0);
    for (size_t i = 0; systemd->units[i].name; i++)
        if (!strstr(systemd->units[i].name, ".slice") && !strstr(systemd->units[i].name, "allot"))
            ck_assert_int_ge(sd_bus_message_append(reply, "(ssssssouso)", systemd->units[i].name,
                                                   "d", "loaded", "active", "running", "", "/", 0,
                                                   "", "/"),
                             0);
    ck_assert_int_ge(sd_bus_message_close_container(reply), 0);
    r = sd_bus_send(NULL, reply, NULL);
    sd_bus_message_unref(reply);
    return r;
}

/* What a request for a scope has in it, of what is to be done. */
struct wanted {
    char slice[256];
    bool is_closed;
    uint32_t pid;
    size_t n_allow;
    dev_t allow[40];
};

static void read_wanted(sd_bus_message *message, struct wanted *ret) {
    const char *name, *contents, *text, *mode;
    struct stat st;

    ck_assert_int_gt(sd_bus_message_enter_container(message, 'a', "(sv)"), 0);
    while (sd_bus_message_enter_container(message, 'r', "sv") > 0) {
        ck_assert_int_gt(sd_bus_message_read(message, "s", &name), 0);
        ck_assert_int_gt(sd_bus_message_peek_type(message, NULL, &contents), 0);
        if (strcmp(name, "Slice") == 0) {
            ck_assert_int_gt(sd_bus_message_read(message, "v", "s", &text), 0);
            snprintf(ret->slice, sizeof(ret->slice), "%s", text);
        } else if (strcmp(name, "DevicePolicy") == 0) {
            ck_assert_int_gt(sd_bus_message_read(message, "v", "s", &text), 0);
            ret->is_closed = strcmp(text, "closed") == 0;
        } else if (strcmp(name, "PIDs") == 0)
            ck_assert_int_gt(sd_bus_message_read(message, "v", "au", 1, &ret->pid), 0);
        else if (strcmp(name, "DeviceAllow") == 0) {
            ck_assert_int_gt(sd_bus_message_read(message, "v", "a(ss)", 1, &text, &mode), 0);
            if (stat(text, &st) == 0 && ret->n_allow < ELEMENTSOF(ret->allow))
                ret->allow[ret->n_allow++] = st.st_rdev;
        } else
            ck_assert_int_ge(sd_bus_message_skip(message, "v"), 0);
        sd_bus_message_exit_container(message);
    }
    sd_bus_message_exit_container(message);
}

/* "a-b.slice" is in "a.slice". */
static void slice_cgroup(char *ret, size_t size, const char *slice) {
    char part[256];

    ret[0] = 0;
    for (const char *dash = strpbrk(slice, "-."); dash; dash = strpbrk(dash + 1, "-.")) {
        size_t len = strlen(ret);

        snprintf(part, sizeof(part), "%.*s", (int)(dash - slice), slice);
        snprintf(ret + len, size - len, "/%s.slice", part);
    }
}

static void job_removed(sd_bus *bus, const char *job, const char *unit, const char *result) {
    sd_bus_message *signal;

    ck_assert_int_ge(
        sd_bus_message_new_signal(bus, &signal, ROOT, SYSTEMD ".Manager", "JobRemoved"), 0);
    sd_bus_message_set_sender(signal, SYSTEMD);
    ck_assert_int_ge(sd_bus_message_append(signal, "uoss", 1, job, unit, result), 0);
    ck_assert_int_ge(sd_bus_send(bus, signal, NULL), 0);
    sd_bus_message_unref(signal);
}

static void remember_unit(struct fake_systemd *systemd, const char *name, const char *slice,
                          const char *cgroup) {
    struct fake_made *made;
    size_t n = 0;

    while (systemd->units[n].name)
        n++;
    ck_assert_uint_lt(n + 1, ELEMENTSOF(systemd->units));
    ck_assert_uint_lt(systemd->n_made, ELEMENTSOF(systemd->made));
    made = &systemd->made[systemd->n_made++];
    snprintf(made->name, sizeof(made->name), "%s", name);
    snprintf(made->slice, sizeof(made->slice), "%s", slice);
    snprintf(made->cgroup, sizeof(made->cgroup), "%s", cgroup);
    systemd->units[n] = (struct fake_unit){ made->name, made->slice, made->cgroup, NULL };
}

static int start_scope(struct fake_systemd *systemd, sd_bus_message *message) {
    sd_bus *bus = sd_bus_message_get_bus(message);
    const char *result = systemd->job_result ? systemd->job_result : "done";
    char above[512], cgroup[700], job[64];
    const char *name, *mode;
    struct wanted wanted = { 0 };
    int r;

    ck_assert_int_gt(sd_bus_message_read(message, "ss", &name, &mode), 0);
    if (find_unit(systemd, name))
        return sd_bus_reply_method_errorf(message, SYSTEMD ".UnitExists", "Unit %s is there", name);
    read_wanted(message, &wanted);
    slice_cgroup(above, sizeof(above), wanted.slice);
    snprintf(cgroup, sizeof(cgroup), "%s/%s", above, name);
    remember_unit(systemd, name, wanted.slice, cgroup);
    fake_machine_cgroup(cgroup);
    if ((wanted.is_closed && !systemd->has_no_filter) ||
        (systemd->closes_sessions && strncmp(name, "session-", 8) == 0))
        fake_machine_filter(cgroup, wanted.allow, wanted.n_allow);
    fake_machine_move(cgroup, (pid_t)wanted.pid);
    snprintf(job, sizeof(job), ROOT "/job/%u", ++systemd->n_jobs);
    job_removed(bus, ROOT "/job/999", "other.service", "failed");
    if (systemd->signals_first)
        job_removed(bus, job, name, result);
    r = sd_bus_reply_method_return(message, "o", job);
    if (!systemd->signals_first)
        job_removed(bus, job, name, result);
    return r;
}

static int attach(struct fake_systemd *systemd, sd_bus_message *message) {
    const struct fake_unit *unit;
    const char *name, *below;
    uint32_t pid;

    ck_assert_int_gt(sd_bus_message_read(message, "ssau", &name, &below, 1, &pid), 0);
    unit = find_unit(systemd, name);
    if (!unit)
        return sd_bus_reply_method_errorf(message, SYSTEMD ".NoSuchUnit", "no %s", name);
    if (systemd->attaching)
        systemd->attaching(systemd->userdata, (pid_t)pid);
    if (!systemd->moves_nothing && fake_machine_move(unit->cgroup, (pid_t)pid) < 0)
        return sd_bus_reply_method_errorf(message, SD_BUS_ERROR_FAILED, "no process %u", pid);
    return sd_bus_reply_method_return(message, NULL);
}

static int answer_manager(struct fake_systemd *systemd, sd_bus_message *message,
                          const char *member) {
    const char *name;

    if (strcmp(member, "GetUnitByPID") == 0)
        return systemd->unit_of_pid
                   ? reply_path(message, systemd->unit_of_pid)
                   : sd_bus_reply_method_errorf(message, SYSTEMD ".NoUnitForPID", "no unit for it");
    if (strcmp(member, "GetUnit") == 0) {
        ck_assert_int_gt(sd_bus_message_read(message, "s", &name), 0);
        return find_unit(systemd, name)
                   ? reply_path(message, name)
                   : sd_bus_reply_method_errorf(message, SYSTEMD ".NoSuchUnit", "no %s", name);
    }
    if (strcmp(member, "ListUnitsByPatterns") == 0)
        return list_units(systemd, message);
    if (strcmp(member, "StartTransientUnit") == 0)
        return start_scope(systemd, message);
    if (strcmp(member, "AttachProcessesToUnit") == 0)
        return attach(systemd, message);
    return sd_bus_reply_method_return(message, NULL);
}

static int answer(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    struct fake_systemd *systemd = userdata;
    const char *interface = sd_bus_message_get_interface(message);
    const char *member = sd_bus_message_get_member(message);
    uint8_t type;
    int r;

    sd_bus_message_get_type(message, &type);
    if (type != SD_BUS_MESSAGE_METHOD_CALL)
        return 0;
    if (strcmp(interface, "org.freedesktop.DBus") == 0)
        r = strcmp(member, "Hello") == 0 ? sd_bus_reply_method_return(message, "s", ":1.1")
                                         : sd_bus_reply_method_return(message, NULL);
    else if (strcmp(interface, "org.freedesktop.DBus.Properties") == 0)
        r = get_property(systemd, message);
    else {
        ck_assert_str_eq(interface, SYSTEMD ".Manager");
        ck_assert_str_eq(sd_bus_message_get_path(message), ROOT);
        say(systemd, "%s", member);
        say_values(systemd, message);
        say(systemd, "\n");
        sd_bus_message_rewind(message, true);
        r = refuse(systemd, message, member);
        if (r == 0)
            r = answer_manager(systemd, message, member);
    }
    ck_assert_int_ge(r, 0);
    return 1;
}

static void *serve(void *userdata) {
    struct fake_systemd *systemd = userdata;
    int fd, r;

    while ((fd = accept4(systemd->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        sd_bus *bus;

        ck_assert_int_ge(sd_bus_new(&bus), 0);
        ck_assert_int_ge(sd_bus_set_fd(bus, fd, fd), 0);
        ck_assert_int_ge(sd_bus_set_server(bus, 1,
                                           SD_ID128_MAKE(61, 6c, 6c, 6f, 74, 00, 01, 02, 03, 04, 05,
                                                         06, 07, 08, 09, 0a)),
                         0);
        ck_assert_int_ge(sd_bus_add_filter(bus, NULL, answer, systemd), 0);
        ck_assert_int_ge(sd_bus_start(bus), 0);
        while ((r = sd_bus_process(bus, NULL)) >= 0)
            if (r == 0 && sd_bus_wait(bus, UINT64_MAX) < 0)
                break;
        sd_bus_close(bus);
        sd_bus_unref(bus);
    }
    return NULL;
}

void fake_systemd_start(struct fake_systemd *systemd) {
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET };

    systemd->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(systemd->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(systemd->listener, 8), 0);
    setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=" SOCKET, 1);
    ck_assert_int_eq(pthread_create(&systemd->thread, NULL, serve, systemd), 0);
}

void fake_systemd_stop(struct fake_systemd *systemd) {
    shutdown(systemd->listener, SHUT_RDWR);
    pthread_join(systemd->thread, NULL);
    close(systemd->listener);
    unlink(SOCKET);
}
