/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/gpusim/gpusim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/safe_text.h"
#include "base/suggest.h"
#include "sim/box/proc.h"

static const struct gpusim_verb *const verbs[] = {
    &verb_create, &verb_show, &verb_exec, &verb_set, &verb_inject, &verb_destroy,
};

int gpusim_complain(const struct allot_error *err) {
    char text[sizeof(err->text)];

    safe_text_clean(text, sizeof(text), err->text, strlen(err->text));
    fprintf(stderr, "gpusim: %s\n", text);
    return EXIT_FAILURE;
}

int gpusim_complain_usage(const struct gpusim_verb *verb, const char *format, ...) {
    char text[1024], safe[sizeof(text)];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    safe_text_clean(safe, sizeof(safe), text, strlen(text));
    fprintf(stderr, "gpusim %s: %s\n\"gpusim %s --help\" says more\n", verb->name, safe,
            verb->name);
    return EXIT_USAGE;
}

int gpusim_print_help(const struct gpusim_verb *verb) {
    printf("gpusim %s: %s\n\n%s", verb->name, verb->summary, verb->help);
    return EXIT_SUCCESS;
}

int gpusim_find_path(char ret[PATH_MAX], const char *given, struct allot_error *err) {
    char path[PATH_MAX], *real;
    bool named;
    int r;

    if (given)
        snprintf(path, sizeof(path), "%s", given);
    else {
        r = box_path(path, &named, err);
        if (r < 0)
            return r;
    }
    real = realpath(path, NULL);
    if (!real && errno != ENOENT)
        return error_set(err, -errno, "cannot open %s: %m", path);
    if (real || path[0] == '/')
        snprintf(ret, PATH_MAX, "%s", real ? real : path);
    else {
        cleanup(freep) char *here = realpath(".", NULL);

        if (!here || snprintf(ret, PATH_MAX, "%s/%s", here, path) >= PATH_MAX)
            return error_set(err, -ENAMETOOLONG, "the path of the box is too long");
    }
    free(real);
    return 0;
}

int gpusim_open(struct box **ret, const char *path, struct allot_error *err) {
    const int r = box_open(ret, path, err);

    if (r == -ENOENT)
        error_set(err, r, "there is no box at %s: \"gpusim create\" makes one", path);
    return r;
}

int gpusim_open_locked(struct box **ret, const char *given, struct allot_error *err) {
    char path[PATH_MAX];
    struct box *box;
    int r;

    r = gpusim_find_path(path, given, err);
    if (r < 0)
        return r;
    r = gpusim_open(&box, path, err);
    if (r < 0)
        return r;
    r = box_lock(box);
    if (r < 0) {
        box_free(box);
        return error_set(err, r, "the box %s is locked by a process that is stopped or hangs: %s",
                         path, strerror(-r));
    }
    proc_reap(box);
    *ret = box;
    return 0;
}

int gpusim_find_gpu(const struct box *box, const char *text, unsigned *ret,
                    struct allot_error *err) {
    unsigned found = 0;
    struct pci_id pci;
    char *end;
    unsigned long n;

    n = strtoul(text, &end, 10);
    if (end != text && !*end && *text != '-') {
        if (n >= box->n_gpus)
            return error_set(err, -EINVAL, "there is no GPU %lu: the box has 0 to %u", n,
                             box->n_gpus - 1);
        *ret = n;
        return 0;
    }
    for (unsigned i = 0; i < box->n_gpus; i++) {
        const struct box_gpu *gpu = &box->file->gpu[i];

        if ((!strncasecmp(text, "GPU-", 4) && !strncasecmp(text, gpu->uuid, strlen(text))) ||
            (pci_id_parse(&pci, text) == 0 && pci.domain == gpu->pci_domain &&
             pci.bus == gpu->pci_bus && pci.device == gpu->pci_device)) {
            *ret = i;
            found++;
        }
    }
    if (found != 1)
        return error_set(err, -EINVAL,
                         found ? "\"%s\" matches several GPUs"
                               : "there is no GPU \"%s\": name it by index, UUID or bus id",
                         text);
    return 0;
}

static void usage(FILE *out) {
    fprintf(out, "usage: gpusim VERB [OPTION…]\n\nA box of simulated GPUs, used by programs that "
                 "load NVML or the CUDA driver.\n\n");
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
        fprintf(out, "  %-8s  %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(out, "\nThe box is the file that --box, else GPUSIM_BOX names, else the user's own.\n"
                 "\"gpusim VERB --help\" and gpusim(1) say more.\n");
}

int main(int argc, char **argv) {
    struct suggest suggest;

    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return EXIT_SUCCESS;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("gpusim %s\n", ALLOT_VERSION);
        return EXIT_SUCCESS;
    }
    suggest = suggest_begin(argv[1]);
    for (size_t i = 0; i < ELEMENTSOF(verbs); i++)
        if (!strcmp(argv[1], verbs[i]->name))
            return verbs[i]->run(argc - 1, argv + 1);
        else
            suggest_try(&suggest, verbs[i]->name);
    fprintf(stderr, "gpusim: there is no verb \"%s\"", argv[1]);
    if (suggest.word)
        fprintf(stderr, ": did you mean \"%s\"?\n", suggest.word);
    else
        fprintf(stderr, "; \"gpusim --help\" lists them\n");
    return EXIT_USAGE;
}
