/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run: any program under a lease.
 *
 * Ask for the lease on a connection of its own, which cancels the wait if we go away; show place
 * and reason meanwhile; then start the command with the environment of the grant and the guard in
 * front of whatever was preloaded before.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/call.h"
#include "ctl/demand.h"
#include "ctl/gpuctl.h"
#include "ctl/job.h"
#include "ctl/jobenv.h"
#include "ctl/lend.h"
#include "ctl/text.h"

enum { OPT_VISIBLE = DEMAND_OPTIONS_END, OPT_NO_GUARD, OPT_NO_CONFINE, OPT_VERBOSE, OPT_QUIET };

static const struct option_def options_table[] = {
    DEMAND_OPTIONS,
    { OPT_VISIBLE, 0, "visible", "HOW", "name the devices to the program by uuid or index",
      WORD_CHOICE, "uuid index" },
    { OPT_NO_GUARD, 0, "no-guard", NULL, "do not preload the guard" },
    { OPT_NO_CONFINE, 0, "no-confine", NULL, "no scope of its own, no device filter" },
    { OPT_VERBOSE, 'v', "verbose", NULL, "say what was granted and how it is enforced" },
    { OPT_QUIET, 'q', "quiet", NULL, "no progress while it waits" },
};

struct settings {
    struct demand demand;
    bool by_index, no_guard, no_confine, verbose, quiet;
};

/* ---- The command
 * ---------------------------------------------------------------------------------- */

/* Container engines have a daemon or a monitor start the job, outside of what is confined here. */
static void warn_about_containers(const char *command) {
    static const char *const engines[] = { "docker", "podman", "nerdctl", "ctr", "docker-compose" };
    const char *slash = strrchr(command, '/');
    const char *name = slash ? slash + 1 : command;

    for (size_t i = 0; i < ELEMENTSOF(engines); i++)
        if (!strcmp(name, engines[i]))
            fprintf(stderr,
                    "gpuctl: %s has its containers started elsewhere, outside of this lease: "
                    "neither the guard\n"
                    "gpuctl: nor the device filter reaches them. Instead: \"gpuctl cdi --help\" "
                    "takes a lease and says how\n"
                    "gpuctl: to give it to a container.\n",
                    name);
}

/* --visible index: numbers in bus order, which hold only where other devices cannot be opened. */
static int check_index(const struct gpuctl *ctl, const struct wire_box *box) {
    for (size_t i = 0; i < box->n_tiers; i++)
        if (box->tiers[i].number == 2 && box->tiers[i].proven)
            return EXIT_OK;
    return complain(EXIT_RUN_FAILED,
                    "--visible index needs the device filter (tier 2), which this box has not "
                    "proven: other programs' devices would be counted, too. \"gpuctl doctor\" says "
                    "why; leave --visible away");
}

static int start(struct gpuctl *ctl, const struct settings *settings, struct client *client,
                 const struct wire_grant *grant, char **command) {
    cleanup(jobenv_done) struct jobenv env;
    struct job job = {
        .argv = command,
        .socket = client_path(client),
        .lease = grant->lease,
        .token = grant->token,
        .confine = !settings->no_confine,
        .verbose = settings->verbose,
    };
    bool started;
    int status;

    jobenv_init(&env);
    if (settings->verbose) {
        cleanup(freep) char *reason = text_clean(grant->reason, true);

        fprintf(stderr, "gpuctl: lease %" PRIu64 ": %s\n", grant->lease, reason ? reason : "");
    }
    status = jobenv_make(&env, grant, client_path(client), settings->by_index);
    if (status == 0 && !settings->no_guard)
        status = jobenv_add_guard(&env, settings->verbose);
    if (status < 0)
        status = complain(EXIT_RUN_FAILED, "out of memory");
    else {
        job.environment = env.list;
        status = job_run(&job, &started);
        if (started)
            return status;
    }
    /* Nobody holds it: without this it would stand until allotd notices. */
    client_call(client, WIRE_METHOD_RELEASE, &(struct wire_release){ job.lease }, 5000000, NULL,
                NULL, NULL);
    return status;
}

static int run(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    struct settings settings = {};
    const struct wire_grant *grant;
    struct allot_error err = {};
    struct options options;
    int id, r, status;

    demand_init(&settings.demand);
    options_init(&options, ctl, &verb_run, argc, argv);
    while ((id = options_next(&options)) > 0)
        switch (id) {
        case OPT_VISIBLE:
            if (strcmp(options.value, "uuid") && strcmp(options.value, "index"))
                return complain_usage(&verb_run, "--visible is uuid or index, not \"%s\"",
                                      options.value);
            settings.by_index = !strcmp(options.value, "index");
            break;
        case OPT_NO_GUARD:
            settings.no_guard = true;
            break;
        case OPT_NO_CONFINE:
            settings.no_confine = true;
            break;
        case OPT_VERBOSE:
            settings.verbose = true;
            break;
        case OPT_QUIET:
            settings.quiet = true;
            break;
        default:
            if (demand_option(&settings.demand, &verb_run, id, options.value) < 0)
                return EXIT_USAGE;
        }
    if (id < 0)
        return options.status;
    if (options.first == argc)
        return complain_usage(&verb_run,
                              "which command? gpuctl run --fraction 0.4 -- python train.py");
    if (demand_finish(&settings.demand, &verb_run) < 0) {
        demand_done(&settings.demand);
        return EXIT_USAGE;
    }
    /* Waiting is what a queue is for: only --no-wait refuses it. */
    if (!settings.demand.request.wait.has)
        settings.demand.request.wait = wire_some(true);
    settings.demand.request.confine = wire_some(!settings.no_confine);
    if (!settings.demand.request.name) {
        const char *slash = strrchr(argv[options.first], '/');

        settings.demand.request.name = slash && slash[1] ? slash + 1 : argv[options.first];
    }
    warn_about_containers(argv[options.first]);

    r = client_new(&client, ctl->socket, &err);
    if (r == 0)
        r = client_connect(client, &err);
    if (r < 0) {
        demand_done(&settings.demand);
        return complain(EXIT_RUN_FAILED, "%s", err.text);
    }
    status = EXIT_OK;
    if (settings.by_index) {
        union wire_reply reply;

        status = call_make(client, WIRE_METHOD_GET_BOX, NULL, &reply);
        status = status == EXIT_OK ? check_index(ctl, reply.get_box.box) : EXIT_RUN_FAILED;
    }
    if (status == EXIT_OK)
        status = lend_acquire(ctl, &settings.demand, settings.quiet, client, &grant);
    if (status == EXIT_OK)
        status = start(ctl, &settings, client, grant, argv + options.first);
    demand_done(&settings.demand);
    return status;
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
        "command cannot be run, 127 there is none; 128+N it was ended by signal N.\n",
    .run = run,
};
