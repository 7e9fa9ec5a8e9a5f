/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Top: starts gpuctl-top, a separate program, because ncurses would slow down every other verb.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "ctl/gpuctl.h"
#include "ctl/installed.h"

enum { OPT_INTERVAL = 1 };

static const struct option_def options_table[] = {
    { OPT_INTERVAL, 'n', "interval", "TIME", "time between updates: 500ms, 2s", WORD_DURATION },
};

static int run(struct gpuctl *ctl, int argc, char **argv) {
    char path[INSTALLED_PATH_SIZE], pause[24];
    uint64_t pause_usec = 2000000;
    struct option_parser options;
    int id;

    option_parser_init(&options, ctl, &verb_top, argc, argv);
    while ((id = option_parser_next(&options)) > 0)
        if (units_parse_usec(&pause_usec, options.value) < 0 || pause_usec < 250000 ||
            pause_usec > 60000000)
            return gpuctl_complain_usage(
                &verb_top, "--interval %s: expected a time from 250ms to 1m", options.value);
    if (id < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(&verb_top, "unexpected argument \"%s\"", argv[options.first]);
    if (!installed_find(path, "gpuctl-top", GPUCTL_TOP))
        return gpuctl_complain(
            EXIT_FAILED, "%s is missing: it belongs to the same package as gpuctl", GPUCTL_TOP);
    snprintf(pause, sizeof(pause), "%lu", (unsigned long)pause_usec);
    fflush(stdout);
    execl(path, "gpuctl-top", ctl->socket ? ctl->socket : "", ctl->driver, pause,
          ctl->ascii ? "ascii" : "", (char *)NULL);
    return gpuctl_complain(EXIT_FAILED, "cannot run %s: %m", path);
}

const struct verb verb_top = {
    .name = "top",
    .operands = "",
    .summary = "the status page, updated live on the whole screen",
    VERB_OPTIONS(options_table),
    .word = WORD_NONE,
    .notes = "Keys: q quit, s sort, r reverse, / filter, + and - speed, arrows scroll, h help.\n",
    .run = run,
};
