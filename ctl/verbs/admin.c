/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that change something and confirm it in one line: drain, resume, release, kill, reload.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "ctl/source/call.h"
#include "ctl/gpuctl.h"

#define DEVICES_MAX 64

/* Operands of drain and resume: devices, one or several (separated by commas) per word. `copy` is
 * for free(). */
static int take_devices(const struct verb *verb, char **words, const char **ret, size_t *ret_n,
                        char **copy) {
    size_t n = 0, length = 1;
    char *to;

    for (char **word = words; *word; word++)
        length += strlen(*word) + 1;
    *copy = to = malloc(length);
    if (!to)
        return gpuctl_complain(EXIT_FAILED, "out of memory");
    for (char **word = words; *word; word++) {
        char *rest = NULL;

        strcpy(to, *word);
        for (char *item = strtok_r(to, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
            if (n == DEVICES_MAX)
                return gpuctl_complain_usage(verb, "at most %d devices at once", DEVICES_MAX);
            ret[n++] = item;
        }
        to += strlen(*word) + 1;
    }
    if (n == 0)
        return gpuctl_complain_usage(verb, "which device? \"gpuctl devices\" lists them");
    *ret_n = n;
    return EXIT_OK;
}

enum { OPT_REASON = 1, OPT_SIGNAL };

static const struct option_def drain_options[] = {
    { OPT_REASON, 'r', "reason", "TEXT", "the reason shown to users" },
};

static int run_drain(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    cleanup(freep) char *copy = NULL;
    const char *devices[DEVICES_MAX];
    struct wire_drain drain = { .devices = devices };
    struct option_parser options;
    int id, status;

    option_parser_init(&options, ctl, &verb_drain, argc, argv);
    while ((id = option_parser_next(&options)) > 0)
        drain.reason = options.value;
    if (id < 0)
        return options.status;
    status = take_devices(&verb_drain, argv + options.first, devices, &drain.n_devices, &copy);
    if (status == EXIT_OK)
        status = call_connect(&client, ctl);
    if (status == EXIT_OK)
        status = call_make(client, WIRE_METHOD_DRAIN, &drain, NULL);
    if (status == EXIT_OK)
        printf("Drained: no new leases there, and the driver's handles are closed. \"gpuctl "
               "resume\" undoes it.\n");
    return status;
}

static int run_resume(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    cleanup(freep) char *copy = NULL;
    const char *devices[DEVICES_MAX];
    struct wire_resume resume = { .devices = devices };
    struct option_parser options;
    int status;

    option_parser_init(&options, ctl, &verb_resume, argc, argv);
    if (option_parser_next(&options) < 0)
        return options.status;
    status = take_devices(&verb_resume, argv + options.first, devices, &resume.n_devices, &copy);
    if (status == EXIT_OK)
        status = call_connect(&client, ctl);
    if (status == EXIT_OK)
        status = call_make(client, WIRE_METHOD_RESUME, &resume, NULL);
    if (status == EXIT_OK)
        printf("Back in service.\n");
    return status;
}

static int parse_lease(const char *text, uint64_t *ret) {
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno || *ret > INT64_MAX ? -EINVAL : 0;
}

/* Call `each` for every operand, which is a lease. Returns the first status that is not EXIT_OK. */
static int each_lease(struct gpuctl *ctl, const struct verb *verb, char **words,
                      int (*each)(struct client *client, uint64_t lease, void *userdata),
                      void *userdata) {
    cleanup(client_freep) struct client *client = NULL;
    int status = EXIT_OK;
    uint64_t lease;

    if (!*words)
        return gpuctl_complain_usage(verb, "which lease? \"gpuctl leases\" lists them");
    for (char **word = words; *word; word++)
        if (parse_lease(*word, &lease) < 0)
            return gpuctl_complain_usage(
                verb, "\"%s\" is not a lease: give its number, see \"gpuctl leases\"", *word);
    status = call_connect(&client, ctl);
    if (status != EXIT_OK)
        return status;
    for (char **word = words; *word; word++) {
        int one;

        parse_lease(*word, &lease);
        one = each(client, lease, userdata);
        status = status == EXIT_OK ? one : status;
        if (!client_is_connected(client))
            break;
    }
    return status;
}

static int release_one(struct client *client, uint64_t lease, void *userdata) {
    const int status =
        call_make(client, WIRE_METHOD_RELEASE, &(struct wire_release){ lease }, NULL);

    if (status == EXIT_OK)
        printf("Lease %" PRIu64 " ends; its memory is free when its processes have released it.\n",
               lease);
    return status;
}

static int run_release(struct gpuctl *ctl, int argc, char **argv) {
    struct option_parser options;

    option_parser_init(&options, ctl, &verb_release, argc, argv);
    if (option_parser_next(&options) < 0)
        return options.status;
    return each_lease(ctl, &verb_release, argv + options.first, release_one, NULL);
}

static const struct option_def kill_options[] = {
    { OPT_SIGNAL, 's', "signal", "SIGNAL", "name or number; TERM by default", WORD_SIGNAL },
};

/* "9", "KILL", "SIGKILL". */
static int parse_signal(const char *text) {
    char *end;
    long number = strtol(text, &end, 10);

    if (end != text && !*end)
        return number > 0 && number < NSIG ? (int)number : -EINVAL;
    if (!strncasecmp(text, "SIG", 3))
        text += 3;
    for (int i = 1; i < NSIG; i++) {
        const char *name = sigabbrev_np(i);

        if (name && !strcasecmp(name, text))
            return i;
    }
    return -EINVAL;
}

static int kill_one(struct client *client, uint64_t lease, void *userdata) {
    const int number = *(const int *)userdata;
    struct wire_kill call = { .lease = lease };
    union wire_reply reply;
    int status;

    call.signal = wire_some(number);
    status = call_make(client, WIRE_METHOD_KILL, &call, &reply);
    if (status == EXIT_OK)
        printf("Lease %" PRIu64 ": %" PRIu64 " process%s got SIG%s.\n", lease, reply.kill.processes,
               reply.kill.processes == 1 ? "" : "es", sigabbrev_np(number));
    return status;
}

static int run_kill(struct gpuctl *ctl, int argc, char **argv) {
    struct option_parser options;
    int id, number = SIGTERM;

    option_parser_init(&options, ctl, &verb_kill, argc, argv);
    while ((id = option_parser_next(&options)) > 0) {
        number = parse_signal(options.value);
        if (number < 0)
            return gpuctl_complain_usage(&verb_kill, "there is no signal %s", options.value);
    }
    if (id < 0)
        return options.status;
    return each_lease(ctl, &verb_kill, argv + options.first, kill_one, &number);
}

static int run_reload(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    struct option_parser options;
    int status;

    option_parser_init(&options, ctl, &verb_reload, argc, argv);
    if (option_parser_next(&options) < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(&verb_reload, "unexpected argument \"%s\"",
                                     argv[options.first]);
    status = call_connect(&client, ctl);
    if (status == EXIT_OK)
        status = call_make(client, WIRE_METHOD_RELOAD, NULL, NULL);
    if (status == EXIT_OK)
        printf("The configuration was read again and is in force.\n");
    return status;
}

const struct verb verb_drain = {
    .name = "drain",
    .operands = "DEVICE…",
    .summary = "take devices out of service: no new leases, handles closed",
    VERB_OPTIONS(drain_options),
    .word = WORD_DEVICE,
    .notes = "Jobs that hold leases there are told and go on. For administrators. Example:\n"
             "  gpuctl drain 2 --reason \"fan replaced at noon\"\n",
    .run = run_drain,
};

const struct verb verb_resume = {
    .name = "resume",
    .operands = "DEVICE…",
    .summary = "put drained devices back into service",
    .word = WORD_DEVICE,
    .notes = "For administrators.\n",
    .run = run_resume,
};

const struct verb verb_release = {
    .name = "release",
    .operands = "LEASE…",
    .summary = "end leases: their holders are told to free the memory",
    .word = WORD_LEASE,
    .notes = "For your own leases; for those of others you must be root or in the group\n"
             "allot-admin. Processes are not signalled: \"gpuctl kill\" does that.\n",
    .run = run_release,
};

const struct verb verb_kill = {
    .name = "kill",
    .operands = "LEASE…",
    .summary = "signal every process of leases",
    VERB_OPTIONS(kill_options),
    .word = WORD_LEASE,
    .notes = "For your own leases; for those of others you must be root or in the group\n"
             "allot-admin. Example:\n"
             "  gpuctl kill 12 --signal KILL\n",
    .run = run_kill,
};

const struct verb verb_reload = {
    .name = "reload",
    .operands = "",
    .summary = "make allotd read its configuration again",
    .word = WORD_NONE,
    .notes = "If it has a mistake, nothing changes, and the mistakes are shown with file and "
             "line.\nFor administrators.\n",
    .run = run_reload,
};
