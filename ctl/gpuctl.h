/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * gpuctl: the command-line tool. One verb per file. A verb's options are one table, which drives
 * parsing, --help and completion.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "ctl/view/term.h"

/* Exit codes, as in gpuctl(1). */
enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NO_DAEMON = 3, /* allotd does not answer */
    EXIT_REFUSED = 4,   /* denied, not permitted, draining, busy */
    EXIT_WAITING = 5,   /* the wait timed out, or the request would have to wait */
    EXIT_NOT_FOUND = 6, /* no such device or lease */
    EXIT_UNSOUND = 7,   /* doctor found a problem */

    /* Of `run` only; other values are the command's own exit status. */
    EXIT_RUN_WAITING = 124,
    EXIT_RUN_FAILED = 125,
    EXIT_RUN_NOT_EXECUTABLE = 126,
    EXIT_RUN_NO_COMMAND = 127,
};

/* The kind of an option's value or an operand, for completion. */
enum word_kind {
    WORD_ANY,
    WORD_NONE, /* a verb without operands */
    WORD_DEVICE,
    WORD_DEVICES, /* several, separated by commas */
    WORD_LEASE,
    WORD_USER,
    WORD_FILE,
    WORD_COMMAND,
    WORD_SIZE,
    WORD_FRACTION,
    WORD_DURATION,
    WORD_SIGNAL,
    WORD_VERB,
    WORD_CHOICE, /* one of `choices` */
};

struct option_def {
    int id;           /* what option_parser_next() returns, > 0 */
    char letter;      /* 0: none */
    const char *name; /* without dashes */
    const char
        *value; /* what --help calls it, "[=SECONDS]" if it is optional; NULL: takes no value */
    const char *help;
    enum word_kind word;
    const char *choices; /* for WORD_CHOICE: separated by blanks */
};

/* What all verbs share. main() fills it in; option_parser_next() adds the common options. */
struct gpuctl {
    struct term term;
    enum term_choice colour;
    bool ascii;
    const char *socket; /* NULL: ALLOT_SOCKET, otherwise the default */
    const char *host;   /* -H; NULL: this host */
    const char *driver; /* which driver to read without a daemon: auto, nvidia, sim */
    char **argv;        /* as main() got it */
};

struct verb {
    const char *name;
    const char *operands; /* for the synopsis: "LEASE…"; "" for none */
    const char *summary;
    const struct option_def *options;
    size_t n_options;
    enum word_kind word; /* kind of its operands */
    bool takes_hosts;    /* -H may name several, and the verb asks them itself */
    bool stops;          /* options end at the first operand, which begins a command */
    const char *notes;   /* what --help says after the options */
    int (*run)(struct gpuctl *ctl, int argc,
               char **argv); /* argv[0] is the verb; returns the exit status */
};

#define VERB_OPTIONS(table) .options = table, .n_options = sizeof(table) / sizeof((table)[0])

/* X(name) */
#define VERBS(X)                                                                                   \
    X(status)                                                                                      \
    X(top)                                                                                         \
    X(run)                                                                                         \
    X(devices)                                                                                     \
    X(leases)                                                                                      \
    X(queue)                                                                                       \
    X(explain)                                                                                     \
    X(usage)                                                                                       \
    X(drain)                                                                                       \
    X(resume)                                                                                      \
    X(release)                                                                                     \
    X(kill)                                                                                        \
    X(monitor)                                                                                     \
    X(cdi)                                                                                         \
    X(doctor)                                                                                      \
    X(reload)                                                                                      \
    X(version)

#define X(name) extern const struct verb verb_##name;
VERBS(X)
#undef X

extern const struct verb *const verbs[];
extern const size_t n_verbs;
const struct verb *verb_find(const char *name);

/* Options of every verb, accepted before or after it. */
extern const struct option_def common_options[];
extern const size_t n_common_options;

/* One pass over the options of a verb, one option at a time, like getopt. */
struct option_parser {
    struct gpuctl *ctl;
    const struct verb *verb;
    int argc;
    char **argv;
    const char *value; /* of the current option; NULL: none */
    int first;         /* after the last option: index of the first operand in argv */
    int status;        /* if option_parser_next() returned < 0: the exit status */
    bool begun;
};

void option_parser_init(struct option_parser *options, struct gpuctl *ctl, const struct verb *verb,
                        int argc, char **argv);
/*
 * The id of the next option. 0: there are no more, and ctl->term is set. < 0: the verb ends here
 * with options->status (--help, or a mistake that was reported). With -H the last call does not
 * return: gpuctl on the other host runs instead.
 */
int option_parser_next(struct option_parser *options);

/* Print "gpuctl VERB: …" and where to read more; returns EXIT_USAGE. `verb` may be NULL. */
int gpuctl_complain_usage(const struct verb *verb, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Print "gpuctl: …" on stderr, as one line of safe text whatever it quotes. */
void gpuctl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same; returns `status`. */
int gpuctl_complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether `text` is a value of --driver. */
bool option_driver_is_known(const char *text);

void gpuctl_print_help(const struct verb *verb); /* NULL: for gpuctl itself */

/* Print candidates for the last of `words` (what follows "gpuctl" on the command line), one per
 * line. */
int complete_words(struct gpuctl *ctl, int n_words, char **words);
