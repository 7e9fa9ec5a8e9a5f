/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/exec/unit_limits.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/hand/exec/bus_cleanup.h"

/*
 * All that systemd.resource-control(5) has for slices, to version 257, with the type of the
 * property. Not here: accounting, which limits nothing, and protections (MemoryMin=, MemoryLow=),
 * without which a job has less, not more.
 */
/* clang-format off */
#define LIMITS(X)                                                                                  \
    X("CPUWeight", "t") X("StartupCPUWeight", "t") X("CPUShares", "t") X("StartupCPUShares", "t")  \
    X("CPUQuotaPerSecUSec", "t") X("CPUQuotaPeriodUSec", "t")                                      \
    X("AllowedCPUs", "ay") X("StartupAllowedCPUs", "ay")                                           \
    X("AllowedMemoryNodes", "ay") X("StartupAllowedMemoryNodes", "ay")                             \
    X("MemoryHigh", "t") X("StartupMemoryHigh", "t") X("MemoryMax", "t")                           \
    X("StartupMemoryMax", "t") X("MemorySwapMax", "t") X("StartupMemorySwapMax", "t")              \
    X("MemoryZSwapMax", "t") X("StartupMemoryZSwapMax", "t") X("MemoryLimit", "t")                 \
    X("TasksMax", "t")                                                                             \
    X("IOWeight", "t") X("StartupIOWeight", "t") X("IODeviceWeight", "a(st)")                      \
    X("IOReadBandwidthMax", "a(st)") X("IOWriteBandwidthMax", "a(st)")                             \
    X("IOReadIOPSMax", "a(st)") X("IOWriteIOPSMax", "a(st)")                                       \
    X("IODeviceLatencyTargetUSec", "a(st)")                                                        \
    X("BlockIOWeight", "t") X("StartupBlockIOWeight", "t") X("BlockIODeviceWeight", "a(st)")       \
    X("BlockIOReadBandwidth", "a(st)") X("BlockIOWriteBandwidth", "a(st)")                         \
    X("IPAddressAllow", "a(iayu)") X("IPAddressDeny", "a(iayu)")                                   \
    X("IPIngressFilterPath", "as") X("IPEgressFilterPath", "as") X("BPFProgram", "a(ss)")          \
    X("SocketBindAllow", "a(iiqq)") X("SocketBindDeny", "a(iiqq)")                                 \
    X("RestrictNetworkInterfaces", "(bas)") X("NFTSet", "a(iiss)")                                 \
    X("DevicePolicy", "s") X("DeviceAllow", "a(ss)")                                               \
    X("DisableControllers", "as")                                                                  \
    X("ManagedOOMSwap", "s") X("ManagedOOMMemoryPressure", "s")                                    \
    X("ManagedOOMMemoryPressureLimit", "u") X("ManagedOOMPreference", "s")
/* clang-format on */

static const struct {
    const char *name, *type;
    bool is_of_services; /* bound to a service's cgroup, and nothing that a scope has */
} known[] = {
#define X(name, type) { name, type, false },
    LIMITS(X)
#undef X
        { "RestrictFileSystems", "(bas)", true },
};
_Static_assert(ELEMENTSOF(known) <= UNIT_LIMITS_MAX, "all of them may be set");

/* Go back to the start of the value, which was read when the limit was found, and enter it. */
static int limit_begin(const struct unit_limit *limit) {
    int r = sd_bus_message_rewind(limit->value, true);

    return r < 0 ? r : sd_bus_message_enter_container(limit->value, 'v', limit->type);
}

/* Whether a value limits nothing. */
static int limit_is_default(const struct unit_limit *limit) {
    sd_bus_message *value = limit->value;
    const char *text;
    uint64_t number;
    uint32_t small;
    int r;

    switch (limit->type[0]) {
    case 't':
        r = sd_bus_message_read(value, "t", &number);
        return r < 0 ? r : number == UINT64_MAX;
    case 'u':
        r = sd_bus_message_read(value, "u", &small);
        return r < 0 ? r : small == 0;
    case 's':
        r = sd_bus_message_read(value, "s", &text);
        return r < 0 ? r : strcmp(text, "auto") == 0 || strcmp(text, "none") == 0;
    case '(': /* whether it is a list of what is allowed, and the list */
        r = sd_bus_message_enter_container(value, 'r', "bas");
        if (r >= 0)
            r = sd_bus_message_skip(value, "b");
        if (r >= 0)
            r = sd_bus_message_enter_container(value, 'a', "s");
        return r < 0 ? r : sd_bus_message_at_end(value, false);
    default:
        r = sd_bus_message_enter_container(value, 'a', limit->type + 1);
        return r < 0 ? r : sd_bus_message_at_end(value, false);
    }
}

static bool limit_is_of_devices(const struct unit_limit *limit) {
    return strncmp(limit->name, "Device", 6) == 0;
}

/* Whether the list of devices is that of locked mode. */
static bool limit_is_lock(const struct unit_limit *limit) {
    const char *name;
    bool found = false;
    int r;

    if (strcmp(limit->name, "DeviceAllow") != 0 || limit_begin(limit) < 0)
        return false;
    r = sd_bus_message_enter_container(limit->value, 'a', "(ss)");
    while (r >= 0 && (r = sd_bus_message_read(limit->value, "(ss)", &name, NULL)) > 0)
        found |= strcmp(name, UNIT_LIMITS_LOCK_MARK) == 0;
    return found;
}

void unit_limits_done(struct unit_limits *limits) {
    for (size_t i = 0; i < limits->n; i++)
        sd_bus_message_unref(limits->all[i].value);
    limits->n = 0;
}

/* Leave out the device rules, which are the hand's own. */
static void drop_devices(struct unit_limits *limits) {
    size_t n = 0;

    for (size_t i = 0; i < limits->n; i++)
        if (limit_is_of_devices(&limits->all[i]))
            sd_bus_message_unref(limits->all[i].value);
        else
            limits->all[n++] = limits->all[i];
    limits->n = n;
    limits->has_devices = false;
}

int unit_limits_read(struct unit_limits *ret, sd_bus *bus, const char *path, const char *interface,
                     const char *unit, struct allot_error *err) {
    /* Of a lease's own scope, which only the hand makes, or of locked mode. */
    bool is_own = strncmp(unit, "allot-", 6) == 0 && strstr(unit, ".scope");

    for (size_t i = 0; i < ELEMENTSOF(known); i++) {
        cleanup(bus_cleanup_errorp) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup(bus_cleanup_messagep) sd_bus_message *value = NULL;
        struct unit_limit *limit = &ret->all[ret->n];
        int r = sd_bus_get_property(bus, UNIT_LIMITS_SYSTEMD, path, interface, known[i].name,
                                    &error, &value, known[i].type);

        if (r < 0 && sd_bus_error_has_name(&error, SD_BUS_ERROR_UNKNOWN_PROPERTY))
            continue; /* another version of systemd, or another kind of unit */
        if (r >= 0) {
            *limit = (struct unit_limit){ known[i].name, known[i].type, value };
            r = limit_is_default(limit);
        }
        if (r < 0 || (r == 0 && known[i].is_of_services))
            return error_set(err, -EOPNOTSUPP, "%s of %s cannot be carried over: %s", known[i].name,
                             unit,
                             r == 0          ? "a scope has no such limit"
                             : error.message ? error.message
                                             : strerror(-r));
        if (r > 0)
            continue;
        value = NULL;
        ret->n++;
        ret->has_devices |= limit_is_of_devices(limit);
        is_own |= limit_is_lock(limit);
    }
    if (is_own)
        drop_devices(ret);
    return 0;
}

int unit_limits_append(const struct unit_limits *limits, sd_bus_message *message, bool anew) {
    int r = 0;

    for (size_t i = 0; r >= 0 && i < limits->n; i++) {
        const struct unit_limit *limit = &limits->all[i];
        bool is_list = limit->type[0] == 'a' && strcmp(limit->type, "ay") != 0;

        for (int pass = anew && is_list ? 0 : 1; r >= 0 && pass < 2; pass++) {
            r = sd_bus_message_open_container(message, 'r', "sv");
            if (r >= 0)
                r = sd_bus_message_append(message, "s", limit->name);
            if (r >= 0)
                r = sd_bus_message_open_container(message, 'v', limit->type);
            if (r >= 0 && pass == 0)
                r = sd_bus_message_open_container(message, 'a', limit->type + 1);
            if (r >= 0 && pass == 0)
                r = sd_bus_message_close_container(message);
            if (r >= 0 && pass == 1)
                r = limit_begin(limit);
            if (r >= 0 && pass == 1)
                r = sd_bus_message_copy(message, limit->value, true);
            if (r >= 0)
                r = sd_bus_message_close_container(message);
            if (r >= 0)
                r = sd_bus_message_close_container(message);
        }
    }
    return r;
}
