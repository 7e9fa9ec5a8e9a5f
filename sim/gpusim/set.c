/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "sim/box/event.h"
#include "sim/gpusim/gpusim.h"

static const struct option options[] = {
    { "help", no_argument, NULL, 'h' },
    { "box", required_argument, NULL, 'b' },
    { 0 },
};

/* The reading called `name` (`n` characters) of a GPU; NULL: no such reading. */
static struct box_setting *find_setting(struct box_gpu *gpu, const char *name, size_t n,
                                        long *ret_max) {
#define X(field, word, unit, max)                                                                  \
    if (strlen(word) == n && !strncmp(word, name, n)) {                                            \
        *ret_max = (max);                                                                          \
        return &gpu->field;                                                                        \
    }
    BOX_SETTINGS(X)
#undef X
    return NULL;
}

static int set_reading(struct box_gpu *gpu, const char *assignment, struct allot_error *err) {
    const char *equals = strchr(assignment, '=');
    long value, max = 0;
    struct box_setting *setting = find_setting(gpu, assignment, equals - assignment, &max);
    char *end;

    if (!setting)
        return error_set(err, -EINVAL,
                         "there is no reading \"%.*s\"; \"gpusim set --help\" lists them",
                         (int)(equals - assignment), assignment);
    if (!strcmp(equals + 1, "auto")) {
        setting->fixed = false;
        return 0;
    }
    errno = 0;
    value = strtol(equals + 1, &end, 10);
    if (errno || end == equals + 1 || *end || value < 0 || value > max)
        return error_set(err, -EINVAL, "\"%s\": a whole number up to %ld, or \"auto\"", assignment,
                         max);
    setting->value = value;
    setting->fixed = true;
    return 0;
}

static int set_box(struct box *box, const char *assignment, struct allot_error *err) {
    const char *equals = strchr(assignment, '=');
    const size_t n = equals - assignment;
    uint64_t *field = NULL, usec;

    if (n == strlen("release-delay") && !strncmp(assignment, "release-delay", n))
        field = &box->file->release_delay_ns;
    else if (n == strlen("nvml-lag") && !strncmp(assignment, "nvml-lag", n))
        field = &box->file->nvml_lag_ns;
    else
        return error_set(err, -EINVAL,
                         "\"%.*s\" is not a setting of a box (release-delay, nvml-lag); for a "
                         "reading, name the GPU first",
                         (int)n, assignment);
    if (units_parse_usec(&usec, equals + 1) < 0 || usec > UINT64_C(3600000000))
        return error_set(err, -EINVAL, "\"%s\" does not give a time of up to 1h, such as 200ms",
                         assignment);
    *field = usec * 1000;
    return 0;
}

static int apply(struct box *box, int argc, char **argv, struct allot_error *err) {
    const bool on_box = strchr(argv[0], '=');
    unsigned first = 0, last = box->n_gpus - 1;
    int r = 0;

    if (!on_box && strcmp(argv[0], "all")) {
        r = gpusim_find_gpu(box, argv[0], &first, err);
        last = first;
    }
    for (int i = on_box ? 0 : 1; i < argc && r == 0; i++) {
        if (!strchr(argv[i], '='))
            return error_set(err, -EINVAL, "\"%s\" is not of the form NAME=VALUE", argv[i]);
        if (on_box)
            r = set_box(box, argv[i], err);
        for (unsigned g = first; g <= last && !on_box && r == 0; g++)
            r = set_reading(&box->file->gpu[g], argv[i], err);
    }
    return r;
}

static int run(int argc, char **argv) {
    struct allot_error err = { 0 };
    const char *given = NULL;
    struct box *box;
    int c, r;

    opterr = 0; /* one message is enough: ours */
    while ((c = getopt_long(argc, argv, "hb:", options, NULL)) >= 0) {
        if (c == 'h')
            return gpusim_print_help(&verb_set);
        if (c == '?')
            return gpusim_complain_usage(
                &verb_set, "no such option, or its argument is missing: %s", argv[optind - 1]);
        given = optarg;
    }
    if (optind >= argc || (!strchr(argv[optind], '=') && optind + 1 >= argc))
        return gpusim_complain_usage(&verb_set, "no setting given");
    if (gpusim_open_locked(&box, given, &err) < 0)
        return gpusim_complain(&err);
    r = apply(box, argc - optind, argv + optind, &err);
    box_unlock(box);
    box_free(box);
    return r < 0 ? gpusim_complain(&err) : EXIT_SUCCESS;
}

#define X(field, word, unit, max) "  " word "=N|auto  (" unit ")\n"
const struct gpusim_verb verb_set = {
    .name = "set",
    .summary = "fix a reading, or the pace of the box",
    .help = "usage: gpusim set [--box FILE] GPU|all NAME=VALUE…\n"
            "       gpusim set [--box FILE] release-delay=TIME|nvml-lag=TIME…\n"
            "\n"
            "Readings follow the work of programs until they are fixed; auto releases them again.\n"
            "\n" BOX_SETTINGS(X) "\nA GPU is named by index, UUID (a prefix will do) or bus id.\n",
    .run = run,
};
#undef X
