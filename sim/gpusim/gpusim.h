/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * gpusim: the tool that makes, shows, changes and breaks simulated boxes. One verb per file.
 */
#include <stdbool.h>

#include "base/error.h"
#include "sim/box/box.h"

/* Exit codes, as in gpusim(1). */
enum {
    EXIT_USAGE = 2,
};

struct gpusim_verb {
    const char *name;
    const char *summary;
    const char *help;                  /* the text of --help, after the summary */
    int (*run)(int argc, char **argv); /* argv[0] is the verb; the exit status */
};

extern const struct gpusim_verb verb_create, verb_show, verb_exec, verb_set, verb_inject,
    verb_destroy;

/* Say what went wrong, as "gpusim: …", and give the exit status for it. */
int gpusim_complain(const struct allot_error *err);
int gpusim_complain_usage(const struct gpusim_verb *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Answer --help. */
int gpusim_print_help(const struct gpusim_verb *verb);

/* The box that --box, else GPUSIM_BOX, else the default names. `ret` gets its path, absolute. */
int gpusim_find_path(char ret[PATH_MAX], const char *given, struct allot_error *err);
/* Open the box at `path`; -ENOENT says how to make one. */
int gpusim_open(struct box **ret, const char *path, struct allot_error *err);
/* Open and lock the box, and drop processes that have ended. For verbs that end soon after. */
int gpusim_open_locked(struct box **ret, const char *given, struct allot_error *err);

/* "2", "GPU-uuid…" (a prefix will do) or a PCI bus id. -EINVAL: no such GPU, the text says so. */
int gpusim_find_gpu(const struct box *box, const char *text, unsigned *ret,
                    struct allot_error *err);
