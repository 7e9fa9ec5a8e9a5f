/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/gpuctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

static int complain_verb(const char *name) {
    struct suggest suggest = suggest_begin(name);

    for (size_t i = 0; i < n_verbs; i++)
        suggest_try(&suggest, verbs[i]->name);
    if (suggest.word)
        return gpuctl_complain_usage(NULL, "there is no verb \"%s\": did you mean \"%s\"?", name,
                                     suggest.word);
    return gpuctl_complain_usage(NULL, "there is no verb \"%s\"", name);
}

static int run_verb(struct gpuctl *ctl, int argc, char **argv) {
    static char status[] = "status", *status_argv[] = { status, NULL };
    const struct verb *verb;

    if (argc == 0) {
        argc = 1;
        argv = status_argv;
    }
    if (!strcmp(argv[0], "help")) {
        verb = argc > 1 ? verb_find(argv[1]) : NULL;
        if (argc > 1 && !verb)
            return complain_verb(argv[1]);
        gpuctl_print_help(verb);
        return EXIT_OK;
    }
    /* The shells' completions call this; see ctl/completion. */
    if (!strcmp(argv[0], "__complete"))
        return complete_words(ctl, argc - 1, argv + 1);
    verb = verb_find(argv[0]);
    if (!verb)
        return complain_verb(argv[0]);
    return verb->run(ctl, argc, argv);
}

int main(int argc, char **argv) {
    struct gpuctl ctl = { .driver = "auto", .argv = argv };
    static char version[] = "version";
    struct option_parser options;
    int status;

    if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")))
        argv[1] = version;
    option_parser_init(&options, &ctl, NULL, argc, argv);
    if (option_parser_next(&options) < 0)
        status = options.status;
    else
        status = run_verb(&ctl, argc - options.first, argv + options.first);
    /* Report a full disk. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_OK)
        status = gpuctl_complain(EXIT_FAILED, "the output could not be written completely: %m");
    return status;
}
