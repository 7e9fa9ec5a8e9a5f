/* SPDX-License-Identifier: Apache-2.0 */
/* What the hand asks of systemd, word by word, and what it makes of the answers. */
#include "daemon/hand/exec/bus.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/enforce/process.h"
#include "tests/support/daemon/hand/fake_machine.h"
#include "tests/support/daemon/hand/fake_systemd.h"
#include "tests/support/suite.h"

/* sha256("svc.service"), its first half */
#define SHARED    "system-allot_c4c092a7893b0576.slice"
#define NO_LIMIT  UINT64_MAX
#define FAILED(r) ck_assert_msg((r) < 0, "%d", r)

static const struct fake_property limits[] = {
    { "CPUWeight", "t", .number = NO_LIMIT },
    { "MemoryMax", "t", .number = 4096 },
    { "AllowedCPUs", "ay", .text = "\3" },
    { "AllowedMemoryNodes", "ay" },
    { "IOReadBandwidthMax", "a(st)", .text = "/dev/sda", .number = 5 },
    { "IOWriteBandwidthMax", "a(st)" },
    { "IPAddressDeny", "a(iayu)", .text = "yes", .number = 8 },
    { "RestrictNetworkInterfaces", "(bas)", .text = "eth0", .number = 1 },
    { "DevicePolicy", "s", .text = "closed" },
    { "DeviceAllow", "a(ss)", .text = "/dev/kmsg" },
    { "ManagedOOMSwap", "s", .text = "auto" },
    { "ManagedOOMPreference", "s", .text = "none" },
    { "ManagedOOMMemoryPressure", "s", .text = "kill" },
    { "ManagedOOMMemoryPressureLimit", "u", .number = 9 },
    { 0 },
};
static const struct fake_property defaults[] = {
    { "CPUWeight", "t", .number = NO_LIMIT },
    { "AllowedCPUs", "ay" },
    { "IOWriteBandwidthMax", "a(st)" },
    { "IPAddressDeny", "a(iayu)" },
    { "RestrictNetworkInterfaces", "(bas)", .number = 1 },
    { "DevicePolicy", "s", .text = "auto" },
    { "DeviceAllow", "a(ss)" },
    { "ManagedOOMPreference", "s", .text = "none" },
    { "ManagedOOMMemoryPressureLimit", "u" },
    { 0 },
};
static const struct fake_property locked[] = {
    { "DevicePolicy", "s", .text = "strict" },
    { "DeviceAllow", "a(ss)", .text = "char-allot-locked" },
    { "TasksMax", "t", .number = 70 },
    { 0 },
};
static const struct fake_property of_scope[] = {
    { "DevicePolicy", "s", .text = "closed" },
    { "DeviceAllow", "a(ss)", .text = "/dev/nvidia0" },
    { 0 },
};

static bool start(struct fake_systemd *systemd, struct bus **ret) {
    struct allot_error err = { 0 };

    *systemd = (struct fake_systemd){
        .unit_of_pid = "svc.service",
        .units = {
            { "svc.service", "system.slice", "/system.slice/svc.service", limits },
            { "plain.scope", "user-1.slice", "/user.slice/user-1.slice/plain.scope", defaults },
            { "session-1.scope", "user-1.slice", "/user.slice/user-1.slice/session-1.scope", locked },
            { "allot-7.scope", "user-1.slice", "/user.slice/user-1.slice/allot-7.scope", of_scope },
            { "user-1.slice", "-.slice", "/user.slice/user-1.slice", limits },
            { "top.service", "-.slice", "/top.service", limits },
        },
    };
    if (!fake_machine_enter())
        return false;
    fake_systemd_start(systemd);
    ck_assert_msg(bus_new(ret, &err) == 0, "%s", err.text);
    ck_assert_str_eq(systemd->asked, "Subscribe\n");
    fake_systemd_forget(systemd);
    return true;
}

static void finish(struct fake_systemd *systemd, struct bus *bus) {
    bus_free(bus);
    fake_systemd_stop(systemd);
    fake_machine_leave();
}

START_TEST(no_bus_is_no_systemd) {
    struct fake_systemd systemd;
    struct allot_error err = { 0 };
    struct bus *bus, *other = NULL;

    if (!start(&systemd, &bus))
        return;
    systemd.fails = "Subscribe";
    bus_free(bus);
    ck_assert_int_eq(bus_new(&other, &err), -EACCES);
    ck_assert_str_eq(err.text, "systemd: Subscribe: Subscribe is refused");
    setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/run/nothing", 1);
    ck_assert_int_eq(bus_new(&other, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "the system bus cannot be reached"));
    ck_assert_int_eq(rmdir("/run/systemd/system"), 0);
    ck_assert_int_eq(bus_new(&other, &err), -ENOSYS);
    ck_assert_ptr_null(other);
    ck_assert_ptr_null(bus_free(NULL));
    finish(&systemd, NULL);
}
END_TEST

START_TEST(a_place_is_the_unit_with_its_limits) {
    static const char *const kept[] = { "AllowedCPUs",
                                        "MemoryMax",
                                        "IOReadBandwidthMax",
                                        "IPAddressDeny",
                                        "RestrictNetworkInterfaces",
                                        "DevicePolicy",
                                        "DeviceAllow",
                                        "ManagedOOMMemoryPressure",
                                        "ManagedOOMMemoryPressureLimit" };
    struct fake_systemd systemd;
    struct bus_place place = { 0 };
    struct allot_error err = { 0 };
    struct bus *bus;

    if (!start(&systemd, &bus))
        return;
    ck_assert_msg(bus_find_place(bus, 4711, &place, &err) == 0, "%s", err.text);
    ck_assert_str_eq(systemd.asked, "GetUnitByPID 4711\n");
    ck_assert_str_eq(place.unit, "svc.service");
    ck_assert_str_eq(place.slice, "system.slice");
    ck_assert_str_eq(place.cgroup, "/system.slice/svc.service");
    ck_assert_str_eq(place.shared, SHARED);
    ck_assert(place.limits.has_devices);
    ck_assert_uint_eq(place.limits.n, ELEMENTSOF(kept));
    for (size_t i = 0; i < ELEMENTSOF(kept); i++)
        ck_assert_str_eq(place.limits.all[i].name, kept[i]);
    bus_place_done(&place);
    ck_assert_uint_eq(place.limits.n, 0);

    systemd.unit_of_pid = "top.service"; /* in no slice but the top one */
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_int_eq(strncmp(place.shared, "allot_", 6), 0);
    ck_assert_str_eq(place.shared + 6 + 16, ".slice");
    ck_assert_uint_eq(strspn(place.shared + 6, "0123456789abcdef"), 16);
    bus_place_done(&place);

    systemd.unit_of_pid = "plain.scope"; /* all at their defaults */
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_str_eq(place.slice, "user-1.slice");
    ck_assert_str_eq(place.shared, "");
    ck_assert_uint_eq(place.limits.n, 0);
    ck_assert(!place.limits.has_devices);

    systemd.unit_of_pid = "user-1.slice"; /* what is set for a slice holds in it anyway */
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_str_eq(place.slice, "user-1.slice");
    ck_assert_str_eq(place.shared, "");
    ck_assert_uint_eq(place.limits.n, 0);
    finish(&systemd, bus);
}
END_TEST

START_TEST(device_rules_of_the_hand_are_not_carried_over) {
    struct fake_systemd systemd;
    struct bus_place place = { 0 };
    struct allot_error err = { 0 };
    struct bus *bus;

    if (!start(&systemd, &bus))
        return;
    systemd.unit_of_pid = "session-1.scope"; /* locked */
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_uint_eq(place.limits.n, 1);
    ck_assert_str_eq(place.limits.all[0].name, "TasksMax");
    ck_assert(!place.limits.has_devices);
    ck_assert_str_ne(place.shared, "");
    bus_place_done(&place);
    systemd.unit_of_pid = "allot-7.scope"; /* of a lease */
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_uint_eq(place.limits.n, 0);
    ck_assert(!place.limits.has_devices);
    ck_assert_str_eq(place.shared, "");
    finish(&systemd, bus);
}
END_TEST

/* Bound to the cgroup of a service, and nothing that a scope has. */
START_TEST(a_limit_that_scopes_cannot_have_is_refused) {
    static const struct fake_property set[] = {
        { "RestrictFileSystems", "(bas)", .text = "ext4", .number = 1 }, { 0 }
    };
    static const struct fake_property unset[] = { { "RestrictFileSystems", "(bas)" }, { 0 } };
    struct fake_systemd systemd;
    struct bus_place place = { .unit = "untouched" };
    struct allot_error err = { 0 };
    struct bus *bus;

    if (!start(&systemd, &bus))
        return;
    systemd.units[0].properties = set;
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), -EOPNOTSUPP);
    ck_assert_str_eq(err.text, "RestrictFileSystems of svc.service cannot be carried over: a scope "
                               "has no such limit");
    ck_assert_str_eq(place.unit, "untouched");
    systemd.units[0].properties = unset;
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_uint_eq(place.limits.n, 0);
    bus_place_done(&place);
    finish(&systemd, bus);
}
END_TEST

START_TEST(a_place_that_is_not_known_is_said) {
    static const char *const calls[] = { "GetUnitByPID", "Get Id", "Get ControlGroup", "Get Slice",
                                         "Get MemoryMax" };
    struct fake_systemd systemd;
    struct bus_place place = { .unit = "untouched" };
    struct allot_error err = { 0 };
    struct bus *bus;
    char long_cgroup[300], long_slice[240];

    if (!start(&systemd, &bus))
        return;
    for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
        systemd.fails = calls[i];
        err.text[0] = 0;
        ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), i == 4 ? -EOPNOTSUPP : -EACCES);
        ck_assert_ptr_nonnull(strstr(err.text, "is refused"));
        ck_assert_str_eq(place.unit, "untouched");
    }
    systemd.fails = NULL;
    systemd.units[0].cgroup = "";
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), -ENODATA);
    memset(long_cgroup, 'x', sizeof(long_cgroup) - 1);
    long_cgroup[0] = '/';
    long_cgroup[256] = 0;
    systemd.units[0].cgroup = long_cgroup;
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), -ENODATA);
    long_cgroup[255] = 0;
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_str_eq(place.cgroup, long_cgroup);
    bus_place_done(&place);
    memset(long_slice, 'x', sizeof(long_slice) - 1);
    strcpy(long_slice + 230, ".slice");
    systemd.units[0].slice = long_slice; /* no room for the name of a slice below it */
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), -ENAMETOOLONG);
    strcpy(long_slice + 226, ".slice"); /* 226 + "-allot_" + 16 + ".slice": 255 */
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), 0);
    ck_assert_uint_eq(strlen(place.shared), 255);
    bus_place_done(&place);
    strcpy(long_slice + 227, ".slice");
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), -ENAMETOOLONG);
    systemd.units[0].name = "a.mount";
    systemd.unit_of_pid = "a.mount";
    ck_assert_int_eq(bus_find_place(bus, 1, &place, &err), -EOPNOTSUPP);
    ck_assert_str_eq(err.text, "the process is in a.mount, which has no slice");
    systemd.unit_of_pid = NULL;
    FAILED(bus_find_place(bus, 1, &place, &err));
    finish(&systemd, bus);
}
END_TEST

/* An own process in a scope: a place to put it, and what the scope is to be. */
static struct bus_scope make_scope(pid_t pid) {
    return (struct bus_scope){
        .name = "allot-1.scope", .slice = "user-1.slice", .description = "GPU lease 1", .pid = pid
    };
}

START_TEST(a_scope_is_asked_for_as_it_is_meant) {
    static char allow[][BUS_PATH_SIZE] = { "/dev/nvidia0", "/dev/nvidiactl" };
    struct fake_systemd systemd;
    struct allot_error err = { 0 };
    struct bus_scope scope;
    struct bus *bus;
    char cgroup[PROCESS_CGROUP_SIZE], expected[512];
    pid_t pid;

    if (!start(&systemd, &bus))
        return;
    pid = fake_machine_process("/user.slice", 0, NULL);
    scope = make_scope(pid);
    ck_assert_msg(bus_start_scope(bus, &scope, &err) == 0, "%s", err.text);
    snprintf(
        expected, sizeof(expected),
        "StartTransientUnit \"allot-1.scope\" \"fail\" [ ( \"Description\" < \"GPU lease 1\">) ( "
        "\"Slice\" < \"user-1.slice\">) ( \"CollectMode\" < \"inactive-or-failed\">) ( "
        "\"Delegate\" < 1>) ( \"PIDs\" < [ %d]>)] []\n",
        (int)pid);
    ck_assert_str_eq(systemd.asked, expected);
    ck_assert_int_eq(process_cgroup(cgroup, pid), 0);
    ck_assert_str_eq(cgroup, "/user.slice/user-1.slice/allot-1.scope");

    ck_assert_int_eq(bus_start_scope(bus, &scope, &err), -EEXIST);
    ck_assert_str_eq(err.text, "systemd: there is a allot-1.scope already");

    fake_systemd_forget(&systemd);
    scope.name = "allot-2.scope";
    scope.is_closed = true;
    scope.n_allow = 2;
    scope.allow = allow;
    systemd.signals_first = true; /* the job's end comes before its name */
    ck_assert_int_eq(bus_start_scope(bus, &scope, &err), 0);
    ck_assert(fake_systemd_was_asked(
        &systemd, "( \"Delegate\" < 1>) ( \"DevicePolicy\" < \"closed\">) ( \"DeviceAllow\" < [ ( "
                  "\"/dev/nvidia0\" \"rwm\")]>) ( \"DeviceAllow\" < [ ( \"/dev/nvidiactl\" "
                  "\"rwm\")]>) ( \"PIDs\""));
    fake_machine_end(pid);
    finish(&systemd, bus);
}
END_TEST

#define CARRIED                                                                                    \
    "( \"AllowedCPUs\" < [ 3]>) ( \"MemoryMax\" < 4096>) ( \"IOReadBandwidthMax\" < [ ( "          \
    "\"/dev/sda\" "                                                                                \
    "5)]>) ( \"IPAddressDeny\" < [ ( 2 [ 10 1 2 3] 8)]>) ( \"RestrictNetworkInterfaces\" < ( 1 [ " \
    "\"eth0\"])>) ( \"DevicePolicy\" < \"closed\">) ( \"DeviceAllow\" < [ ( \"char-pts\" \"rw\") " \
    "( "                                                                                           \
    "\"/dev/kmsg\" \"rwm\")]>) ( \"ManagedOOMMemoryPressure\" < \"kill\">) ( "                     \
    "\"ManagedOOMMemoryPressureLimit\" < 9>)"
#define ANEW                                                                                       \
    "( \"AllowedCPUs\" < [ 3]>) ( \"MemoryMax\" < 4096>) ( \"IOReadBandwidthMax\" < []>) ( "       \
    "\"IOReadBandwidthMax\" < [ ( \"/dev/sda\" 5)]>) ( \"IPAddressDeny\" < []>) ( "                \
    "\"IPAddressDeny\" "                                                                           \
    "< [ ( 2 [ 10 1 2 3] 8)]>) ( \"RestrictNetworkInterfaces\" < ( 1 [ \"eth0\"])>) ( "            \
    "\"DevicePolicy\" < \"closed\">) ( \"DeviceAllow\" < []>) ( \"DeviceAllow\" < [ ( "            \
    "\"char-pts\" "                                                                                \
    "\"rw\") ( \"/dev/kmsg\" \"rwm\")]>) ( \"ManagedOOMMemoryPressure\" < \"kill\">) ( "           \
    "\"ManagedOOMMemoryPressureLimit\" < 9>)"

START_TEST(limits_go_along_in_a_slice_that_leases_share) {
    struct fake_systemd systemd;
    struct allot_error err = { 0 };
    struct bus_place place = { 0 };
    struct bus_scope scope;
    struct bus *bus;
    char words[2048];
    pid_t pid;

    if (!start(&systemd, &bus))
        return;
    pid = fake_machine_process("/user.slice", 0, NULL);
    ck_assert_int_eq(bus_find_place(bus, pid, &place, &err), 0);
    fake_systemd_forget(&systemd);
    scope = make_scope(pid);
    scope.slice = place.shared;
    scope.place = &place;
    ck_assert_msg(bus_start_scope(bus, &scope, &err) == 0, "%s", err.text);
    snprintf(words, sizeof(words),
             "GetUnit \"%s\"\nStartTransientUnit \"allot-1.scope\" \"fail\" [", place.shared);
    ck_assert_int_eq(strncmp(systemd.asked, words, strlen(words)), 0);
    snprintf(words, sizeof(words),
             "[ ( \"%s\" [ ( \"Description\" < \"What GPU leases of svc.service share\">) ( "
             "\"CollectMode\" < \"inactive-or-failed\">) ( \"StopWhenUnneeded\" < 1>) " CARRIED
             "])]\n",
             place.shared);
    ck_assert_msg(fake_systemd_was_asked(&systemd, words), "%s", systemd.asked);

    /* The slice is there: its limits are set before and after. */
    fake_systemd_forget(&systemd);
    systemd.units[6] =
        (struct fake_unit){ place.shared, "system.slice", "/system.slice/shared", NULL };
    scope.name = "allot-2.scope";
    ck_assert_msg(bus_start_scope(bus, &scope, &err) == 0, "%s", err.text);
    snprintf(words, sizeof(words),
             "GetUnit \"%s\"\nSetUnitProperties \"%s\" 1 [ " ANEW "]\nStartTransientUnit ",
             place.shared, place.shared);
    ck_assert_msg(strncmp(systemd.asked, words, strlen(words)) == 0, "%s", systemd.asked);
    snprintf(words, sizeof(words), "] []\nSetUnitProperties \"%s\" 1 [ " ANEW "]\n", place.shared);
    ck_assert_msg(fake_systemd_was_asked(&systemd, words), "%s", systemd.asked);

    /* Limits that cannot be set: no scope. */
    fake_systemd_forget(&systemd);
    systemd.fails = "SetUnitProperties";
    scope.name = "allot-3.scope";
    ck_assert_int_eq(bus_start_scope(bus, &scope, &err), -EACCES);
    ck_assert(!fake_systemd_was_asked(&systemd, "StartTransientUnit"));
    systemd.n_pass = 1; /* the slice ended meanwhile */
    ck_assert_int_eq(bus_start_scope(bus, &scope, &err), -EACCES);
    ck_assert(fake_systemd_was_asked(&systemd, "StartTransientUnit"));
    scope.name = "allot-4.scope";

    /* No shared slice: none is asked for. */
    fake_systemd_forget(&systemd);
    systemd.fails = NULL;
    place.shared[0] = 0;
    scope.slice = "system.slice";
    ck_assert_int_eq(bus_start_scope(bus, &scope, &err), 0);
    ck_assert(!fake_systemd_was_asked(&systemd, "GetUnit"));
    ck_assert(fake_systemd_was_asked(&systemd, "] []\n"));
    bus_place_done(&place);
    fake_machine_end(pid);
    finish(&systemd, bus);
}
END_TEST

START_TEST(a_scope_that_does_not_start_is_said) {
    struct fake_systemd systemd;
    struct allot_error err = { 0 };
    struct bus_scope scope;
    struct bus *bus;
    pid_t pid;

    if (!start(&systemd, &bus))
        return;
    pid = fake_machine_process("/user.slice", 0, NULL);
    scope = make_scope(pid);
    systemd.fails = "StartTransientUnit";
    ck_assert_int_eq(bus_start_scope(bus, &scope, &err), -EACCES);
    ck_assert_str_eq(err.text, "systemd: StartTransientUnit: StartTransientUnit is refused");
    systemd.fails = NULL;
    systemd.job_result = "timeout";
    ck_assert_int_eq(bus_start_scope(bus, &scope, &err), -EIO);
    ck_assert_str_eq(err.text, "systemd: allot-1.scope did not start: timeout");
    fake_machine_end(pid);
    finish(&systemd, bus);
}
END_TEST

START_TEST(processes_are_attached) {
    struct fake_systemd systemd;
    struct allot_error err = { 0 };
    struct bus *bus;
    char cgroup[PROCESS_CGROUP_SIZE], expected[128];
    pid_t pid;

    if (!start(&systemd, &bus))
        return;
    pid = fake_machine_process("/user.slice", 0, NULL);
    ck_assert_int_eq(bus_attach(bus, "plain.scope", pid, &err), 0);
    snprintf(expected, sizeof(expected), "AttachProcessesToUnit \"plain.scope\" \"\" [ %d]\n",
             (int)pid);
    ck_assert_str_eq(systemd.asked, expected);
    ck_assert_int_eq(process_cgroup(cgroup, pid), 0);
    ck_assert_str_eq(cgroup, "/user.slice/user-1.slice/plain.scope");
    systemd.fails = "AttachProcessesToUnit";
    ck_assert_int_eq(bus_attach(bus, "plain.scope", pid, &err), -EACCES);
    ck_assert_str_eq(err.text, "systemd: AttachProcessesToUnit: AttachProcessesToUnit is refused");
    fake_machine_end(pid);
    finish(&systemd, bus);
}
END_TEST

static void gather(void *userdata, const char *unit) {
    strcat(strcat(userdata, unit), " ");
}

START_TEST(units_are_listed_and_given_devices) {
    static const char *const allow[] = { "char-pts", "block-*" };
    struct fake_systemd systemd;
    struct allot_error err = { 0 };
    char names[256] = "";
    struct bus *bus;

    if (!start(&systemd, &bus))
        return;
    ck_assert_int_eq(bus_list_units(bus, "a-*.scope", "b@*.service", gather, names, &err), 0);
    ck_assert_str_eq(systemd.asked,
                     "ListUnitsByPatterns [ \"active\"] [ \"a-*.scope\" \"b@*.service\"]\n");
    ck_assert_str_eq(names, "svc.service plain.scope session-1.scope top.service ");
    systemd.fails = "ListUnitsByPatterns";
    ck_assert_int_eq(bus_list_units(bus, "a", "b", gather, names, &err), -EACCES);

    fake_systemd_forget(&systemd);
    ck_assert_int_eq(bus_set_devices(bus, "a.scope", allow, 2, &err), 0);
    ck_assert_str_eq(systemd.asked,
                     "SetUnitProperties \"a.scope\" 1 [ ( \"DevicePolicy\" < \"strict\">) ( "
                     "\"DeviceAllow\" < []>) ( \"DeviceAllow\" < [ ( \"char-pts\" \"rwm\")]>) ( "
                     "\"DeviceAllow\" < [ ( \"block-*\" \"rwm\")]>)]\n");
    fake_systemd_forget(&systemd);
    ck_assert_int_eq(bus_set_devices(bus, "a.scope", NULL, 0, &err), 0);
    ck_assert_str_eq(systemd.asked, "SetUnitProperties \"a.scope\" 1 [ ( \"DevicePolicy\" < "
                                    "\"auto\">) ( \"DeviceAllow\" < []>)]\n");
    systemd.fails = "SetUnitProperties";
    ck_assert_int_eq(bus_set_devices(bus, "a.scope", NULL, 0, &err), -EACCES);
    ck_assert_str_eq(err.text, "systemd: a.scope: SetUnitProperties is refused");

    fake_systemd_forget(&systemd);
    ck_assert_int_eq(bus_reload(bus, &err), 0);
    ck_assert_str_eq(systemd.asked, "Reload\n");
    systemd.fails = "Reload";
    ck_assert_int_eq(bus_reload(bus, &err), -EACCES);
    finish(&systemd, bus);
}
END_TEST

SUITE_TIMEOUT("hand-bus", 60, no_bus_is_no_systemd, a_place_is_the_unit_with_its_limits,
              device_rules_of_the_hand_are_not_carried_over,
              a_limit_that_scopes_cannot_have_is_refused, a_place_that_is_not_known_is_said,
              a_scope_is_asked_for_as_it_is_meant, limits_go_along_in_a_slice_that_leases_share,
              a_scope_that_does_not_start_is_said, processes_are_attached,
              units_are_listed_and_given_devices)
