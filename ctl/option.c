/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: getopt_long() driven by a verb's table, and the --help from the same table.
 */
#include <assert.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/suggest.h"
#include "ctl/gpuctl.h"
#include "ctl/source/remote.h"
#include "ctl/view/text.h"

enum { COMMON_HELP = 1000, COMMON_HOST, COMMON_SOCKET, COMMON_COLOR, COMMON_ASCII, COMMON_DRIVER };

const struct option_def common_options[] = {
    { COMMON_HOST, 'H', "host", "HOST",
      "run on another host, over ssh: [USER@]HOST[:PORT]; status takes a list" },
    { COMMON_SOCKET, 0, "socket", "PATH",
      "where allotd listens (ALLOT_SOCKET, /run/allot/io.allot)", WORD_FILE },
    { COMMON_COLOR, 0, "color", "WHEN", "auto, always or never; NO_COLOR is respected", WORD_CHOICE,
      "auto always never" },
    { COMMON_ASCII, 0, "ascii", NULL, "only ASCII, whatever the locale" },
    { COMMON_DRIVER, 0, "driver", "WHICH", "auto, nvidia or sim: what to read without allotd",
      WORD_CHOICE, "auto nvidia sim" },
    { COMMON_HELP, 'h', "help", NULL, "this text" },
};
const size_t n_common_options = ELEMENTSOF(common_options);

/* A line on stderr, of safe text: messages quote what others wrote. */
__attribute__((format(printf, 2, 0))) static void say(const char *verb, const char *format,
                                                      va_list args) {
    cleanup(freep) char *text = NULL;
    cleanup(freep) char *clean = NULL;

    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    clean = text_clean(text ? text : "out of memory", true);
    fflush(stdout);
    fprintf(stderr, "gpuctl%s%s: %s\n", verb ? " " : "", verb ? verb : "",
            clean ? clean : "out of memory");
}

void gpuctl_say(const char *format, ...) {
    va_list args;

    va_start(args, format);
    say(NULL, format, args);
    va_end(args);
}

int gpuctl_complain(int status, const char *format, ...) {
    va_list args;

    va_start(args, format);
    say(NULL, format, args);
    va_end(args);
    return status;
}

int gpuctl_complain_usage(const struct verb *verb, const char *format, ...) {
    va_list args;

    va_start(args, format);
    say(verb ? verb->name : NULL, format, args);
    va_end(args);
    fprintf(stderr, "\"gpuctl %s%s--help\" tells more\n", verb ? verb->name : "", verb ? " " : "");
    return EXIT_USAGE;
}

static bool value_is_optional(const struct option_def *def) {
    return def->value && def->value[0] == '[';
}

static void print_options(const struct option_def *defs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char left[64], letter[8] = "    ";

        if (defs[i].letter)
            snprintf(letter, sizeof(letter), "-%c, ", defs[i].letter);
        snprintf(left, sizeof(left), "%s--%s%s%s", letter, defs[i].name,
                 defs[i].value && !value_is_optional(&defs[i]) ? " " : "",
                 defs[i].value ? defs[i].value : "");
        if (strlen(left) > 24)
            printf("  %s\n  %24s  %s\n", left, "", defs[i].help);
        else
            printf("  %-24s  %s\n", left, defs[i].help);
    }
}

void gpuctl_print_help(const struct verb *verb) {
    if (verb) {
        printf("gpuctl %s: %s\n\nusage: gpuctl %s [OPTION…]%s%s\n", verb->name, verb->summary,
               verb->name, *verb->operands ? " " : "", verb->operands);
        if (verb->n_options) {
            printf("\n");
            print_options(verb->options, verb->n_options);
        }
        printf("\nWith every verb:\n");
        print_options(common_options, n_common_options);
        if (verb->notes)
            printf("\n%s", verb->notes);
        return;
    }
    printf("usage: gpuctl [OPTION…] VERB [OPTION…]\n\n"
           "Show who holds the GPU memory of this box, and run programs under a lease.\n\n");
    for (size_t i = 0; i < n_verbs; i++)
        printf("  %-9s %s\n", verbs[i]->name, verbs[i]->summary);
    printf("\nWith every verb:\n");
    print_options(common_options, n_common_options);
    printf("\n\"gpuctl VERB --help\" and gpuctl(1) say more. Without a verb: status.\n");
}

/* Size of getopt_long()'s tables: the verb's options, then the common ones. More than any verb
 * has. */
#define OPTIONS_MAX 48

static struct option longs[OPTIONS_MAX + 1];
static char shorts[3 * OPTIONS_MAX + 3];

static void prepare(const struct verb *verb) {
    const size_t n_own = verb ? verb->n_options : 0, n = n_own + n_common_options;
    size_t at = 0;

    assert(n <= OPTIONS_MAX);
    memset(longs, 0, sizeof(longs));
    memset(shorts, 0, sizeof(shorts));
    if (!verb || verb->stops)
        shorts[at++] = '+';
    shorts[at++] = ':';
    for (size_t i = 0; i < n; i++) {
        const struct option_def *def = i < n_own ? &verb->options[i] : &common_options[i - n_own];

        longs[i] = (struct option){
            .name = def->name,
            .has_arg = !def->value              ? no_argument
                       : value_is_optional(def) ? optional_argument
                                                : required_argument,
            .val = def->id,
        };
        if (def->letter) {
            shorts[at++] = def->letter;
            if (def->value)
                shorts[at++] = ':';
            if (def->value && value_is_optional(def))
                shorts[at++] = ':';
        }
    }
}

void option_parser_init(struct option_parser *options, struct gpuctl *ctl, const struct verb *verb,
                        int argc, char **argv) {
    *options = (struct option_parser){ .ctl = ctl, .verb = verb, .argc = argc, .argv = argv };
}

static int end(struct option_parser *options, int status) {
    options->status = status;
    return -1;
}

/* The definition of an option by its letter, or by its id if it is a long option. */
static const struct option_def *find(const struct option_parser *options, int c) {
    const struct verb *verb = options->verb;

    for (size_t i = 0; verb && i < verb->n_options; i++)
        if (verb->options[i].id == c || (verb->options[i].letter && verb->options[i].letter == c))
            return &verb->options[i];
    for (size_t i = 0; i < n_common_options; i++)
        if (common_options[i].id == c ||
            (common_options[i].letter && common_options[i].letter == c))
            return &common_options[i];
    return NULL;
}

bool option_driver_is_known(const char *text) {
    return !strcmp(text, "auto") || !strcmp(text, "nvidia") || !strcmp(text, "sim");
}

/* Handle a common option. < 0: the verb ends. */
static int common(struct option_parser *options, int id) {
    struct gpuctl *ctl = options->ctl;

    switch (id) {
    case COMMON_HELP:
        gpuctl_print_help(options->verb);
        return end(options, EXIT_OK);
    case COMMON_HOST:
        ctl->host = optarg;
        return 0;
    case COMMON_SOCKET:
        ctl->socket = optarg;
        return 0;
    case COMMON_COLOR:
        if (term_choice_parse(&ctl->colour, optarg) < 0)
            return end(options, gpuctl_complain_usage(
                                    options->verb,
                                    "--color must be auto, always or never, not \"%s\"", optarg));
        return 0;
    case COMMON_ASCII:
        ctl->ascii = true;
        return 0;
    default:
        if (!option_driver_is_known(optarg))
            return end(options, gpuctl_complain_usage(
                                    options->verb,
                                    "--driver must be auto, nvidia or sim, not \"%s\"", optarg));
        ctl->driver = optarg;
        return 0;
    }
}

/* A long option that getopt does not know, or of which `word` begins several. */
static int complain_unknown(const struct verb *verb, const char *word) {
    cleanup(freep) char *name = strndup(word + 2, strcspn(word + 2, "="));
    struct suggest suggest = suggest_begin(name ? name : "");
    size_t n_begun = 0;

    for (size_t i = 0; name && longs[i].name; i++) {
        n_begun += strncmp(longs[i].name, name, strlen(name)) == 0;
        suggest_try(&suggest, longs[i].name);
    }
    if (n_begun > 1)
        return gpuctl_complain_usage(verb, "--%s is the beginning of several options", name);
    if (suggest.word)
        return gpuctl_complain_usage(verb, "there is no option --%s: did you mean --%s?", name,
                                     suggest.word);
    return gpuctl_complain_usage(verb, "there is no option %s", word);
}

int option_parser_next(struct option_parser *options) {
    const struct option_def *def;
    int c, r;

    if (!options->begun) {
        options->begun = true;
        optind = 0; /* also makes getopt forget another argv */
        opterr = 0;
        prepare(options->verb);
    }
    for (;;) {
        const int before = optind ? optind : 1;

        c = getopt_long(options->argc, options->argv, shorts, longs, NULL);
        if (c == -1)
            break;
        if (c == '?' || c == ':') {
            const char *word = options->argv[optopt && optopt < 256 ? before : optind - 1];

            /* optopt is the letter, the id of a known long option, or 0 for an unknown one */
            def = optopt ? find(options, optopt) : NULL;
            if (c == ':' && def)
                return end(options, gpuctl_complain_usage(options->verb, "--%s needs a value: %s",
                                                          def->name, def->value));
            if (def && !def->value)
                return end(options,
                           gpuctl_complain_usage(options->verb, "--%s takes no value", def->name));
            if (optopt && optopt < 256)
                return end(options,
                           gpuctl_complain_usage(options->verb, "there is no option -%c", optopt));
            return end(options, complain_unknown(options->verb, word));
        }
        def = find(options, c);
        if (def->id >= COMMON_HELP) {
            r = common(options, def->id);
            if (r < 0)
                return r;
            continue;
        }
        /* -w=1 is as good as -w1. */
        options->value = optarg && c == def->letter && *optarg == '=' ? optarg + 1 : optarg;
        return def->id;
    }
    options->first = optind;
    if (options->ctl->host && options->verb && strchr(options->ctl->host, ',')) {
        if (!options->verb->takes_hosts)
            return end(options,
                       gpuctl_complain_usage(options->verb,
                                             "-H %s: only \"gpuctl status\" asks several hosts",
                                             options->ctl->host));
    } else if (options->ctl->host && options->verb) {
        r = remote_exec(options->ctl, options->argc, options->argv, options->first);
        return end(options, r);
    }
    term_init(&options->ctl->term, stdout, options->ctl->colour, options->ctl->ascii);
    return 0;
}
