/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run: any program under a lease.
 *
 * Request the lease on a separate connection, so that the wait is cancelled if gpuctl ends. Show
 * queue position and reason meanwhile. Then start the command with the environment of the grant and
 * the guard first in LD_PRELOAD.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/source/call.h"
#include "ctl/job/request_options.h"
#include "ctl/job/container_engine.h"
#include "ctl/gpuctl.h"
#include "ctl/job/job.h"
#include "ctl/job/job_env.h"
#include "ctl/job/lease_wait.h"
#include "ctl/source/box_view.h"
#include "ctl/view/show.h"
#include "ctl/view/text.h"

enum { OPT_VISIBLE = REQUEST_OPTIONS_END, OPT_NO_GUARD, OPT_NO_CONFINE, OPT_VERBOSE, OPT_QUIET };

static const struct option_def options_table[] = {
    REQUEST_OPTIONS,
    { OPT_VISIBLE, 0, "visible", "HOW", "how the program sees its devices: uuid or index",
      WORD_CHOICE, "uuid index" },
    { OPT_NO_GUARD, 0, "no-guard", NULL, "do not preload the guard, if policy permits" },
    { OPT_NO_CONFINE, 0, "no-confine", NULL, "no scope, no device filter, if policy permits" },
    { OPT_VERBOSE, 'v', "verbose", NULL, "say what was granted and how it is enforced" },
    { OPT_QUIET, 'q', "quiet", NULL, "no progress while it waits" },
};

/* Time limit for making a scope: systemd answers in milliseconds, unless the box is overloaded. */
#define CONFINE_USEC  (60 * UINT64_C(1000000))
#define CONFINE_TRIES 3
#define TIERS_MAX     5

/* Everything that the user asked for. */
struct run_request {
    struct gpuctl *ctl;
    struct request_options wanted;
    char **command;
    bool by_index, no_guard, no_confine, verbose, quiet;
    char guard[INSTALLED_PATH_SIZE]; /* its path, unless no_guard */
};

/* ---- The command
 * ---------------------------------------------------------------------------------- */

static void order_done(struct run_request *order) {
    request_options_done(&order->wanted);
}

/* With container engines, a daemon or a monitor starts the job, outside of what gpuctl confines. */
static void warn_about_containers(char *const *command) {
    const char *engine = container_engine_find(command);

    if (engine)
        fprintf(stderr,
                "gpuctl: %s has its containers started elsewhere, outside of this lease: "
                "neither the guard\n"
                "gpuctl: nor the device filter reaches them. Use \"gpuctl cdi\" instead: it takes "
                "a lease for a\n"
                "gpuctl: container and says how to start it; see \"gpuctl cdi --help\".\n",
                engine);
}

/* Print a line of --verbose, with device numbers. */
static void tell(const struct box_view *box_view, const char *before, const char *text) {
    cleanup(freep) char *sentence = show_sentence(box_view ? &box_view->box : NULL, text);

    gpuctl_say("%s%s", before, sentence ? sentence : "");
}

/* --visible index: numbers in bus order, which are right only if the job cannot open other
 * devices. */
static int check_index(const struct wire_box *box) {
    for (size_t i = 0; i < box->n_tiers; i++)
        if (box->tiers[i].number == 2 && box->tiers[i].proven)
            return EXIT_OK;
    return gpuctl_complain(
        EXIT_RUN_FAILED,
        "--visible index needs the device filter (tier 2), which this box has not "
        "proven: other programs' devices would be counted, too. \"gpuctl doctor\" says "
        "why; omit --visible");
}

/*
 * Have this process confined: a scope of its own, only the lease's devices, the driver's limit. If
 * the daemon is restarting, wait for it: the lease outlives it.
 */
static int confine(struct client *client, uint64_t lease, const char *token, bool verbose,
                   const struct box_view *box_view) {
    const struct wire_confine call = { .lease = lease, .token = token };
    struct failure failure = {};
    struct allot_error err = {};
    union wire_reply reply;
    char tiers[TIERS_MAX * sizeof("18446744073709551615, ")];
    size_t n = 0;
    int r;

    for (int tries = 0;; tries++) {
        r = client_call(client, WIRE_METHOD_CONFINE, &call, CONFINE_USEC, &reply, &failure, &err);
        if (r == 0 || r == -ETIMEDOUT || failure.code != FAILURE_NONE ||
            client_is_connected(client) || tries == CONFINE_TRIES)
            break;
        r = client_reconnect(client, CONFINE_USEC, -1, &err);
        if (r < 0)
            break;
    }
    if (r < 0)
        return gpuctl_complain(EXIT_RUN_FAILED,
                               "the command was not started, because it could not be confined: %s",
                               err.text);
    if (!verbose)
        return EXIT_OK;
    for (size_t i = 0; i < MIN(reply.confine.n_tiers, (size_t)TIERS_MAX); i++)
        n += snprintf(tiers + n, sizeof(tiers) - n, "%s%" PRIu64, i ? ", " : "tier ",
                      reply.confine.tiers[i]);
    gpuctl_say("%s%s, enforced by %s", reply.confine.scope ? "scope " : "no scope",
               reply.confine.scope ? reply.confine.scope : "",
               n ? tiers : "neither the driver nor a device filter");
    for (size_t i = 0; i < reply.confine.n_detail; i++)
        tell(box_view, "  ", reply.confine.detail[i]);
    return EXIT_OK;
}

/* The lease is granted: set the environment, preload the guard, confine this process and execute
 * the command. */
static int start(const struct run_request *order, struct client *client,
                 const struct wire_grant *grant) {
    cleanup(freep) char *token = grant->token ? strdup(grant->token) : NULL;
    cleanup(job_env_done) struct job_env env;
    cleanup(box_view_done) struct box_view taken = {};
    const struct box_view *box_view = NULL; /* for the devices' numbers */
    const uint64_t lease = grant->lease;
    int status = EXIT_OK;

    job_env_init(&env);
    if (order->verbose) {
        char before[48];

        box_view = box_view_take(&taken, order->ctl, NULL, NULL) == 0 ? &taken : NULL;
        snprintf(before, sizeof(before), "lease %" PRIu64 ": ", lease);
        tell(box_view, before, grant->reason);
    }
    if ((grant->token && !token) ||
        job_env_make(&env, grant, client_path(client), order->by_index) < 0 ||
        (!order->no_guard && job_env_add_guard(&env, order->guard) < 0))
        return gpuctl_complain(EXIT_RUN_FAILED, "out of memory");
    if (!order->no_confine)
        status = confine(client, lease, token, order->verbose, box_view);
    return status == EXIT_OK ? job_exec(order->command, env.list) : status;
}

/* In the child. */
static int become(void *userdata) {
    struct run_request *order = userdata;
    cleanup(client_freep) struct client *client = NULL;
    const struct wire_grant *grant;
    struct allot_error err = {};
    union wire_reply reply;
    int r, status;

    r = client_new(&client, order->ctl->socket, &err);
    if (r == 0)
        r = client_connect(client, &err);
    if (r < 0)
        return gpuctl_complain(EXIT_RUN_FAILED, "%s", err.text);
    if (order->by_index || order->wanted.is_slurm) {
        status = call_make(client, WIRE_METHOD_GET_BOX, NULL, &reply);
        if (status != EXIT_OK || request_options_resolve(&order->wanted, reply.get_box.box) < 0)
            return EXIT_RUN_FAILED;
        status = order->by_index ? check_index(reply.get_box.box) : EXIT_OK;
        if (status != EXIT_OK)
            return status;
    }
    status = lease_wait_acquire(order->ctl, &order->wanted, order->quiet, client, &grant);
    return status == EXIT_OK ? start(order, client, grant) : status;
}

static int run(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(order_done) struct run_request order = { .ctl = ctl };
    struct wire_request *request = &order.wanted.request;
    struct option_parser options;
    const char *slash;
    int id;

    request_options_init(&order.wanted);
    option_parser_init(&options, ctl, &verb_run, argc, argv);
    while ((id = option_parser_next(&options)) > 0)
        switch (id) {
        case OPT_VISIBLE:
            if (strcmp(options.value, "uuid") && strcmp(options.value, "index"))
                return gpuctl_complain_usage(
                    &verb_run, "--visible must be uuid or index, not \"%s\"", options.value);
            order.by_index = !strcmp(options.value, "index");
            break;
        case OPT_NO_GUARD:
            order.no_guard = true;
            break;
        case OPT_NO_CONFINE:
            order.no_confine = true;
            break;
        case OPT_VERBOSE:
            order.verbose = true;
            break;
        case OPT_QUIET:
            order.quiet = true;
            break;
        default:
            if (request_options_add(&order.wanted, &verb_run, id, options.value) < 0)
                return EXIT_USAGE;
        }
    if (id < 0)
        return options.status;
    if (options.first == argc)
        return gpuctl_complain_usage(&verb_run,
                                     "which command? gpuctl run --fraction 0.4 -- python train.py");
    if (request_options_finish(&order.wanted, &verb_run) < 0)
        return EXIT_USAGE;
    order.command = argv + options.first;
    /* Requests wait by default; only --no-wait refuses to. */
    if (!request->wait.has)
        request->wait = wire_some(true);
    request->confine = wire_some(!order.no_confine);
    order.no_guard = order.no_guard || !job_env_find_guard(order.guard);
    request->guard = wire_some(!order.no_guard);
    slash = strrchr(order.command[0], '/');
    if (!request->name)
        request->name = slash && slash[1] ? slash + 1 : order.command[0];
    /* Check now, rather than after hours of waiting. */
    id = job_check(order.command[0]);
    if (id != EXIT_OK)
        return id;
    warn_about_containers(order.command);
    return job_run(become, &order);
}

const struct verb verb_run = {
    .name = "run",
    .operands = "[--] COMMAND [ARGUMENT…]",
    .summary = "run a command under a lease, waiting for one if need be",
    VERB_OPTIONS(options_table),
    .word = WORD_COMMAND,
    .stops = true,
    .notes =
        "The command sees the lease's devices and no others, and memory of the size of its\n"
        "share. Without an amount it gets the administrator's default. The lease ends when the\n"
        "last process of the job is gone. Examples:\n"
        "  gpuctl run --fraction 0.4 -- python train.py\n"
        "  gpuctl run --gpus 2 --mem 8G --wait=2h -- ./simulate\n"
        "  gpuctl run --devices 0,1 --grow --min 2G --max 50% -- jupyter lab\n"
        "Exit status: the command's; 124 not granted in time, 125 gpuctl itself failed, 126 the\n"
        "command cannot be run, 127 no such command, 128+N ended by signal N, 2 a mistake in the\n"
        "options of run.\n",
    .run = run,
};
