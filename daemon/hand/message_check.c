/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bools and enums are read as bytes and integers here: reading an out-of-range value as a bool or
 * an enum is undefined behaviour.
 */
#include "daemon/hand/message_check.h"

#include <signal.h>
#include <string.h>

#include "base/safe_text.h"

#define MINOR_MAX (UINT64_C(1) << 20) /* of a device node, in Linux */
#define ERRNO_MAX 4095

static bool is_bool(const bool *value) {
    unsigned char byte;

    memcpy(&byte, value, sizeof(byte));
    return byte <= 1;
}

static bool is_below(const void *value, unsigned n) {
    unsigned number;

    memcpy(&number, value, sizeof(number));
    return number < n;
}
#define IS_ENUM(value, n)                                                                          \
    ({                                                                                             \
        _Static_assert(sizeof(value) == sizeof(unsigned), "an enum has the size of an unsigned");  \
        is_below(&(value), n);                                                                     \
    })

static bool ends(const char *text, size_t size) {
    return memchr(text, 0, size) != NULL;
}
#define ENDS(text) ends(text, sizeof(text))

static void clean(char *text, size_t size) {
    char safe[512];

    _Static_assert(sizeof(((struct allot_error *)0)->text) <= sizeof(safe), "the longest text");
    safe_text_clean(safe, size, text, strlen(text));
    memcpy(text, safe, size);
}
#define CLEAN(text) clean(text, sizeof(text))

static bool is_gpuid(const struct gpuid *id) {
    return IS_ENUM(id->kind, GPUID_MIG_PATH + 1);
}

static bool is_device(const struct sample_device *device) {
    if (!is_gpuid(&device->id) || !is_gpuid(&device->parent) || !is_bool(&device->is_mig) ||
        !is_bool(&device->mig_enabled) || !is_bool(&device->runs_mps) || device->pci.device > 31 ||
        device->pci.function > 7 || !ENDS(device->name) ||
        !IS_ENUM(device->health, SAMPLE_FAILED + 1) || !ENDS(device->trouble) ||
        device->readings.has >> READING_COUNT || device->readings.minor >= MINOR_MAX ||
        device->n_links > SAMPLE_LINKS_MAX)
        return false;
    for (uint32_t i = 0; i < device->n_links; i++)
        if (!is_gpuid(&device->links[i].remote) ||
            !IS_ENUM(device->links[i].path, SAMPLE_PATH_SYSTEM + 1))
            return false;
    return true;
}

static bool is_process(const struct sample_process *process) {
    const uint32_t kinds =
        SAMPLE_COMPUTE | SAMPLE_GRAPHICS | SAMPLE_MPS_CLIENT | SAMPLE_MPS_SERVER | SAMPLE_DISPLAY;

    return process->pid >= 0 && process->namespace_pid >= 0 && is_gpuid(&process->device) &&
           !(process->kinds & ~kinds) && is_bool(&process->has_uid) &&
           is_bool(&process->has_used) && is_bool(&process->has_busy) &&
           IS_ENUM(process->owner, N_CGROUP_OWNERS) && ENDS(process->command) &&
           ENDS(process->name) && ENDS(process->container) && ENDS(process->cgroup) &&
           (!process->cgroup[0] || process->cgroup[0] == '/');
}

static bool is_confine(const struct hand_confine_question *question) {
    const struct hand_confine *confine = &question->confine;

    if (confine->pid <= 0 || !is_bool(&confine->want_scope) || !is_bool(&confine->want_limit) ||
        confine->n_devices > HAND_DEVICES_MAX)
        return false;
    for (uint32_t i = 0; i < confine->n_devices; i++)
        if (!is_gpuid(&confine->devices[i].id) || !is_bool(&question->nodes[i].has_minor) ||
            !is_bool(&question->nodes[i].is_mig) || question->nodes[i].minor >= MINOR_MAX)
            return false;
    return true;
}

static bool is_describe(const struct hand_describe_question *question) {
    if (question->n > HAND_DESCRIBE_MAX)
        return false;
    for (uint32_t i = 0; i < question->n; i++)
        if (question->pids[i] < 0)
            return false;
    return true;
}

/* One process or one cgroup. */
static bool is_signal(const struct hand_signal *signal) {
    return signal->signal >= 0 && signal->signal <= SIGRTMAX && is_bool(&signal->as_user) &&
           signal->pid >= 0 && ENDS(signal->cgroup) && (!signal->pid || !signal->cgroup[0]);
}

static bool is_for_reader(const union hand_message *message) {
    switch (message->head.kind) {
    case HAND_KNOWN:
        return is_device(&message->device.device);
    case HAND_CLOSE:
        return is_gpuid(&message->close.gpu) && message->close.closed <= 1;
    case HAND_SAMPLE:
        return true;
    case HAND_USED:
        return is_gpuid(&message->used.device) && message->used.pid > 0;
    default:
        return false;
    }
}

static bool is_for_hand(const union hand_message *message) {
    switch (message->head.kind) {
    case HAND_DESCRIBE:
        return is_describe(&message->describe);
    case HAND_CONFINE:
        return is_confine(&message->confine);
    case HAND_SIGNAL:
        return is_signal(&message->signal.signal);
    case HAND_FIND:
        return message->find.find.has_token <= 1 && message->find.find.pid >= 0;
    case HAND_PROBE:
        return message->probe.has_gpu <= 1 && is_gpuid(&message->probe.gpu);
    case HAND_LOCK:
        return message->lock.locked <= 1;
    default:
        return false;
    }
}

bool message_check_question(const union hand_message *message, size_t size, enum hand_role role) {
    if (size < sizeof(message->head) || size != hand_size(message->head.kind))
        return false;
    if (message->head.kind == HAND_HELLO)
        return message->hello.driver <= DRIVER_SIM;
    return role == HAND_ROLE_READER ? is_for_reader(message) : is_for_hand(message);
}

/* ---- What helpers say -------------------------------------------------------------------------
 */

static bool check_confined(struct hand_confined *confined) {
    const uint32_t tiers = 1 << 1 | 1 << 2;

    if (!ENDS(confined->scope) || !ENDS(confined->cgroup) || confined->tiers & ~tiers ||
        (confined->cgroup[0] && confined->cgroup[0] != '/') ||
        confined->n_details > HAND_DETAILS_MAX)
        return false;
    CLEAN(confined->scope);
    for (uint32_t i = 0; i < confined->n_details; i++) {
        if (!ENDS(confined->details[i]))
            return false;
        CLEAN(confined->details[i]);
    }
    return true;
}

static bool check_probes(struct hand_probes *probes) {
    for (size_t i = 0; i < ELEMENTSOF(probes->tiers); i++) {
        if (!is_bool(&probes->tiers[i].proven) || !ENDS(probes->tiers[i].detail))
            return false;
        CLEAN(probes->tiers[i].detail);
    }
    return true;
}

static bool is_found(const struct hand_found *found) {
    if (found->n_processes > HAND_FOUND_MAX)
        return false;
    for (uint32_t i = 0; i < found->n_processes; i++)
        if (found->processes[i].pid <= 0)
            return false;
    return true;
}

static bool check_answer(struct hand_answer_row *row, uint32_t asked) {
    if (row->r > 0 || row->r < -ERRNO_MAX || !ENDS(row->text))
        return false;
    CLEAN(row->text);
    if (row->r < 0)
        return true;
    switch (asked) {
    case HAND_SAMPLE:
        if (row->sampled.is_simulated > 1 || row->sampled.cut > 1 ||
            !ENDS(row->sampled.driver_version) || !ENDS(row->sampled.list_trouble))
            return false;
        CLEAN(row->sampled.driver_version);
        CLEAN(row->sampled.list_trouble);
        return true;
    case HAND_USED:
        return row->used.is_listed <= 1;
    case HAND_CONFINE:
        return check_confined(&row->confined);
    case HAND_SIGNAL:
        return is_bool(&row->signalled.has_used);
    case HAND_FIND:
        return is_found(&row->found);
    case HAND_PROBE:
        return check_probes(&row->probes);
    default:
        return true;
    }
}

bool message_check_reply(union hand_message *message, size_t size, uint32_t asked) {
    if (size < sizeof(message->head) || size != hand_size(message->head.kind))
        return false;
    switch (message->head.kind) {
    case HAND_DEVICE:
        if (asked != HAND_SAMPLE || !is_device(&message->device.device))
            return false;
        CLEAN(message->device.device.name);
        CLEAN(message->device.device.trouble);
        return true;
    case HAND_PROCESS:
        if ((asked != HAND_SAMPLE && asked != HAND_DESCRIBE) ||
            !is_process(&message->process.process))
            return false;
        CLEAN(message->process.process.command);
        CLEAN(message->process.process.name);
        CLEAN(message->process.process.container);
        return true;
    case HAND_EVENT:
        return IS_ENUM(message->event.event.kind, SAMPLE_EVENT_OTHER + 1) &&
               is_gpuid(&message->event.event.device);
    case HAND_ANSWER:
        return asked && check_answer(&message->answer, asked);
    default:
        return false;
    }
}
