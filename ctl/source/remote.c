/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remote: -H runs the same command line, without the -H, with the gpuctl of another host over ssh.
 *
 * ssh gives the remote shell one string, so every word is quoted for it. The other side writes for
 * our terminal: it is told its width and locale. It gets a terminal of its own only if ours is one,
 * because a program under `run` or `top` needs it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/gpuctl.h"

/* Append a word in single quotes, safe for every shell. */
static void quote(FILE *to, const char *word) {
    fputs(" '", to);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", to);
        else
            fputc(*word, to);
    fputc('\'', to);
}

/* Whether `word` is -H in any spelling: how many words it takes; 0 if it is something else. */
static int host_words(const char *word) {
    if (!strcmp(word, "-H") || !strcmp(word, "--host"))
        return 2;
    return (!strncmp(word, "-H", 2) && word[2]) || !strncmp(word, "--host=", 7) ? 1 : 0;
}

static void pass_variable(FILE *to, const char *name) {
    const char *value = getenv(name);
    cleanup(freep) char *word = NULL;

    if (value && asprintf(&word, "%s=%s", name, value) > 0)
        quote(to, word);
}

int remote_exec(const struct gpuctl *ctl, int argc, char **argv, int first) {
    cleanup(freep) char *command = NULL;
    cleanup(freep) char *host = strdup(ctl->host);
    const char *ssh = getenv("ALLOT_SSH"), *words[16];
    char *colon, *port = NULL;
    size_t length = 0, n = 0;
    struct term term;
    FILE *to;

    if (!host || !(to = open_memstream(&command, &length)))
        return gpuctl_complain(EXIT_FAILED, "out of memory");
    colon = strrchr(host, ':');
    if (colon && !strchr(host, ']') && strchr(host, ':') == colon) {
        *colon = '\0';
        port = colon + 1;
    }
    if (!*host || *host == '-' ||
        (port && (!*port || strspn(port, "0123456789") != strlen(port)))) {
        fclose(to);
        return gpuctl_complain_usage(NULL, "\"%s\" is not a host: -H [USER@]HOST[:PORT]",
                                     ctl->host);
    }
    term_init(&term, stdout, ctl->colour, ctl->ascii);
    fprintf(to, "env COLUMNS=%u", term.width);
    pass_variable(to, "LC_ALL");
    pass_variable(to, "LC_CTYPE");
    pass_variable(to, "LANG");
    pass_variable(to, "NO_COLOR");
    fputs(" gpuctl", to);
    if (ctl->socket) {
        fputs(" --socket", to);
        quote(to, ctl->socket);
    }
    if (ctl->ascii)
        fputs(" --ascii", to);
    fprintf(to, " --color=%s --driver=%s", term.colour ? "always" : "never", ctl->driver);
    for (int i = 0; i < argc; i++) {
        const int skip = i < first ? host_words(argv[i]) : 0;

        if (skip)
            i += skip - 1;
        else
            quote(to, argv[i]);
    }
    if (fclose(to) != 0)
        return gpuctl_complain(EXIT_FAILED, "out of memory");

    words[n++] = ssh && *ssh ? ssh : "ssh";
    words[n++] = isatty(STDIN_FILENO) && term.is_tty ? "-t" : "-T";
    words[n++] = "-x";
    if (port) {
        words[n++] = "-p";
        words[n++] = port;
    }
    words[n++] = "--";
    words[n++] = host;
    words[n++] = command;
    words[n] = NULL;
    fflush(stdout);
    execvp(words[0], (char **)words);
    return gpuctl_complain(EXIT_FAILED, "cannot run %s: %m; -H needs an ssh client", words[0]);
}
