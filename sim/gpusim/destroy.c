/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/gpusim/gpusim.h"
#include "sim/box/proc.h"

static const struct option options[] = {
    { "help", no_argument, NULL, 'h' },
    { "box", required_argument, NULL, 'b' },
    { "force", no_argument, NULL, 'f' },
    { 0 },
};

static int run(int argc, char **argv) {
    struct allot_error err = { 0 };
    const char *given = NULL;
    bool force = false;
    unsigned users = 0;
    struct box *box;
    int c, r = 0;

    opterr = 0; /* one message is enough: ours */
    while ((c = getopt_long(argc, argv, "hb:f", options, NULL)) >= 0) {
        if (c == 'h')
            return gpusim_print_help(&verb_destroy);
        if (c == '?')
            return gpusim_complain_usage(
                &verb_destroy, "no such option, or its argument is missing: %s", argv[optind - 1]);
        if (c == 'f')
            force = true;
        else
            given = optarg;
    }
    if (optind < argc)
        return gpusim_complain_usage(&verb_destroy, "unexpected argument \"%s\"", argv[optind]);
    if (gpusim_open_locked(&box, given, &err) < 0)
        return gpusim_complain(&err);
    for (uint32_t i = 0; i < box->file->proc_high && i < BOX_MAX_PROCS; i++)
        users += box->file->proc[i].state == PROC_LIVE;
    if (users && !force)
        r = error_set(&err, -EBUSY, "%u %s the box %s: end them first, or use --force", users,
                      users == 1 ? "process uses" : "processes use", box->path);
    else if (unlink(box->path) < 0)
        r = error_set(&err, -errno, "cannot remove %s: %m", box->path);
    box_unlock(box);
    box_free(box);
    return r < 0 ? gpusim_complain(&err) : EXIT_SUCCESS;
}

const struct gpusim_verb verb_destroy = {
    .name = "destroy",
    .summary = "remove a box",
    .help = "usage: gpusim destroy [--box FILE] [-f|--force]\n"
            "\n"
            "Refuses while processes use it, unless forced: they then keep a box that no other\n"
            "process can find.\n",
    .run = run,
};
