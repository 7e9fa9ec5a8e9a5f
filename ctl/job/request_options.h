/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Request options: a request as users write it on the command line of `run`, `explain` and `cdi`.
 *
 * Embedded in its verb; strings are borrowed from argv and the environment.
 */
#include "ctl/gpuctl.h"
#include "wire/message.h"

#define REQUEST_DEVICES_MAX 64
#define REQUEST_NAME_MAX    127 /* bytes; allotd would truncate a longer one */

struct request_options {
    struct wire_request request;
    struct wire_amount amount;
    struct wire_amount amounts[REQUEST_DEVICES_MAX]; /* if each device has its own */
    const char *devices[REQUEST_DEVICES_MAX];
    char *list;    /* the text of --devices, split at its commas; owned */
    char *uuids;   /* Slurm's devices, separated by commas; owned */
    bool no_wait;  /* --no-wait was given */
    bool is_slurm; /* the devices are those that Slurm gave */

    /* The texts of the options, until all are known. */
    const char *fraction, *mem, *min, *max;
    bool grow, exclusive;
};

/* Ids of the options below; a verb's own ids begin at REQUEST_OPTIONS_END. */
enum {
    REQUEST_OPTION_GPUS = 1,
    REQUEST_OPTION_DEVICES,
    REQUEST_OPTION_FRACTION,
    REQUEST_OPTION_GROW,
    REQUEST_OPTION_MIN,
    REQUEST_OPTION_MAX,
    REQUEST_OPTION_MEM,
    REQUEST_OPTION_EXCLUSIVE,
    REQUEST_OPTION_CHOOSE,
    REQUEST_OPTION_WAIT,
    REQUEST_OPTION_NO_WAIT,
    REQUEST_OPTION_PRIORITY,
    REQUEST_OPTION_NAME,
    REQUEST_OPTION_TIME_LIMIT,
    REQUEST_OPTIONS_END,
};

/* clang-format off */
#define REQUEST_OPTIONS                                                                            \
    { REQUEST_OPTION_GPUS, 'g', "gpus", "N", "how many devices, any that fit; 1 by default" },     \
    { REQUEST_OPTION_DEVICES, 'd', "devices", "LIST",                                              \
      "these devices: index, UUID or bus id; a comma list", WORD_DEVICES },                           \
    { REQUEST_OPTION_FRACTION, 'f', "fraction", "F",                                               \
      "share of each device: 0.4 or 40%; or a comma list", WORD_FRACTION },                          \
    { REQUEST_OPTION_GROW, 0, "grow", NULL,                                                        \
      "memory that grows as needed, from --min up to --max" },                                     \
    { REQUEST_OPTION_MIN, 0, "min", "SIZE", "guaranteed from the start: 2G", WORD_SIZE },          \
    { REQUEST_OPTION_MAX, 0, "max", "SIZE", "never more than this: 8G or 50%", WORD_SIZE },        \
    { REQUEST_OPTION_MEM, 'm', "mem", "SIZE",                                                      \
      "memory on each device: 8G, 40%; or a comma list", WORD_SIZE },                         \
    { REQUEST_OPTION_EXCLUSIVE, 'x', "exclusive", NULL,                                            \
      "whole devices, shared with no other job" },                                                 \
    { REQUEST_OPTION_CHOOSE, 0, "choose", "HOW",                                                   \
      "pack, spread, or links (best connected)", WORD_CHOICE, "pack spread links" },            \
    { REQUEST_OPTION_WAIT, 0, "wait", "[=TIME]",                                                   \
      "wait until it fits, at most this long: --wait=2h", WORD_DURATION },                           \
    { REQUEST_OPTION_NO_WAIT, 0, "no-wait", NULL, "now or not at all" },                           \
    { REQUEST_OPTION_PRIORITY, 'p', "priority", "N",                                               \
      "higher goes first, as far as policy allows" },                                            \
    { REQUEST_OPTION_NAME, 'n', "name", "NAME", "the name of the lease in the views" },            \
    { REQUEST_OPTION_TIME_LIMIT, 't', "time-limit", "TIME",                                        \
      "the lease ends after this: 8h", WORD_DURATION }
/* clang-format on */

void request_options_init(struct request_options *wanted);
void request_options_done(struct request_options *wanted);

/* Add one option; < 0: its value is wrong, which was reported. */
int request_options_add(struct request_options *wanted, const struct verb *verb, int id,
                        const char *value);

/*
 * All options are known: build the request from them and from the visible devices of the
 * environment, or those of Slurm. < 0: the options contradict each other, which was reported.
 */
int request_options_finish(struct request_options *wanted, const struct verb *verb);

/*
 * Slurm numbers devices by the minor numbers of their nodes, which are not the indices of the box:
 * replace them by UUIDs. Does nothing if the devices are not Slurm's. < 0: failed, which was
 * reported.
 */
int request_options_resolve(struct request_options *wanted, const struct wire_box *box);
