/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/gpusim/gpusim.h"

static const struct option options[] = {
    { "help", no_argument, NULL, 'h' },
    { "box", required_argument, NULL, 'b' },
    { 0 },
};

/* The folder of the simulated libraries: beside this binary in a build tree, else as installed. */
static int find_libraries(char ret[PATH_MAX], struct allot_error *err) {
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - sizeof("/lib/libcuda.so.1"));
    char *slash;

    if (n > 0) {
        char probe[PATH_MAX];

        ret[n] = 0;
        slash = strrchr(ret, '/');
        strcpy(slash, "/lib");
        snprintf(probe, sizeof(probe), "%.*s/libcuda.so.1", PATH_MAX - 16, ret);
        if (access(probe, R_OK) == 0)
            return 0;
    }
    snprintf(ret, PATH_MAX, "%s", GPUSIM_LIB_DIR);
    if (access(GPUSIM_LIB_DIR "/libcuda.so.1", R_OK) < 0)
        return error_set(err, -ENOENT,
                         "the simulated libraries are neither beside gpusim nor in %s: install "
                         "the simulator's package, or build it (./run build)",
                         GPUSIM_LIB_DIR);
    return 0;
}

static int run(int argc, char **argv) {
    struct allot_error err = { 0 };
    char path[PATH_MAX], libraries[PATH_MAX];
    cleanup(freep) char *search = NULL;
    const char *given = NULL, *before = getenv("LD_LIBRARY_PATH");
    struct box *box;
    int c;

    opterr = 0; /* one message is enough: ours */
    while ((c = getopt_long(argc, argv, "+hb:", options, NULL)) >= 0) {
        if (c == 'h')
            return gpusim_print_help(&verb_exec);
        if (c == '?')
            return gpusim_complain_usage(
                &verb_exec, "no such option, or its argument is missing: %s", argv[optind - 1]);
        given = optarg;
    }
    if (optind >= argc)
        return gpusim_complain_usage(&verb_exec, "no program given");
    if (find_libraries(libraries, &err) < 0)
        return gpusim_complain(&err);

    /* Opened once here, so that gpusim reports a damaged or missing box, not the program. */
    if (given) {
        if (gpusim_find_path(path, given, &err) < 0 || gpusim_open(&box, path, &err) < 0)
            return gpusim_complain(&err);
    } else if (box_open_default(&box, &err) < 0 || gpusim_find_path(path, NULL, &err) < 0)
        return gpusim_complain(&err);
    box_free(box);

    if (asprintf(&search, "%s%s%s", libraries, before && *before ? ":" : "",
                 before && *before ? before : "") < 0 ||
        setenv("GPUSIM_BOX", path, 1) < 0 || setenv("LD_LIBRARY_PATH", search, 1) < 0) {
        error_set(&err, -ENOMEM, "no host memory for the environment of %s", argv[optind]);
        return gpusim_complain(&err);
    }
    execvp(argv[optind], argv + optind);
    c = errno;
    error_set(&err, -c, "cannot run %s: %s", argv[optind], strerror(c));
    gpusim_complain(&err);
    return c == ENOENT ? 127 : 126;
}

const struct gpusim_verb verb_exec = {
    .name = "exec",
    .summary = "run a program that sees the box instead of real GPUs",
    .help = "usage: gpusim exec [--box FILE] [--] PROGRAM [ARGUMENT…]\n"
            "\n"
            "Sets GPUSIM_BOX, puts the simulated libraries before all others on\n"
            "LD_LIBRARY_PATH, and becomes the program. Its exit status is the program's;\n"
            "127: not found, 126: cannot be run.\n",
    .run = run,
};
