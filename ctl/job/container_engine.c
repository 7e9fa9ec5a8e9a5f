/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Container engine: skip the options and operands of wrappers until a word remains that is no
 * wrapper.
 */
#include "ctl/job/container_engine.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static const char *const engines[] = { "docker", "podman", "nerdctl", "ctr", "docker-compose" };
static const char *const shells[] = { "sh", "bash", "dash", "ksh", "zsh" };

/* A program that runs the command after it. Options that are not listed take no separate word. */
struct wrapper {
    const char *name;
    const char *letters;  /* short options whose value is the next word, unless it is attached */
    const char *words;    /* the same for long options, each between blanks */
    unsigned n_operands;  /* operands before the command */
    bool has_assignments; /* NAME=VALUE words may stand before the command */
};

static const struct wrapper wrappers[] = {
    { "env", "uC", " unset chdir ", 0, true },
    { "sudo", "ughpCrtTUDR",
      " user group host prompt close-from role type command-timeout other-user chdir chroot ", 0,
      true },
    { "doas", "uC", "", 0, false },
    { "nice", "n", " adjustment ", 0, false },
    { "ionice", "cn", " class classdata ", 0, false },
    { "timeout", "ks", " kill-after signal ", 1, false },
    { "stdbuf", "ioe", " input output error ", 0, false },
    { "time", "fo", " format output ", 0, false },
    { "taskset", "", "", 1, false },
    { "nohup", "", "", 0, false },
    { "setsid", "", "", 0, false },
    { "exec", "a", "", 0, false },
    { "command", "", "", 0, false },
};

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static const char *find(const char *const *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], name))
            return list[i];
    return NULL;
}

static bool is_assignment(const char *word) {
    const char *end = word;

    while (isalnum((unsigned char)*end) || *end == '_')
        end++;
    return end > word && *end == '=' && !isdigit((unsigned char)*word);
}

/* Whether the word after this option is its value. */
static bool takes_next(const struct wrapper *wrapper, const char *option) {
    if (option[1] == '-') {
        const size_t n = strlen(option + 2);
        const char *at = n ? strstr(wrapper->words, option + 2) : NULL;

        return at && at > wrapper->words && at[-1] == ' ' && at[n] == ' ';
    }
    /* "-Eu root": the last of several letters takes the value. */
    for (const char *letter = option + 1; *letter; letter++)
        if (strchr(wrapper->letters, *letter))
            return !letter[1];
    return false;
}

/* Skip a wrapper's own words. */
static char *const *step_over(const struct wrapper *wrapper, char *const *argv) {
    unsigned n_left = wrapper->n_operands;

    while (*argv && **argv == '-' && (*argv)[1]) {
        const bool is_end = !strcmp(*argv, "--");
        const bool has_value = !is_end && takes_next(wrapper, *argv);

        argv++;
        if (is_end)
            break;
        if (has_value && *argv)
            argv++;
    }
    while (*argv && wrapper->has_assignments && is_assignment(*argv))
        argv++;
    while (*argv && n_left-- > 0)
        argv++;
    return argv;
}

/* The script of a shell: the word after the options, if one of them contains "c". */
static const char *script_of(char *const *argv) {
    for (; *argv && (**argv == '-' || **argv == '+'); argv++)
        if (**argv == '-' && (*argv)[1] != '-' && strchr(*argv, 'c'))
            return argv[1];
    return NULL;
}

/* Split into simple commands at operators; quotes count as letters. */
static const char *engine_in_script(const char *script) {
    cleanup(freep) char *copy = strdup(script);
    const char *engine = NULL;
    char *rest = copy, *part;

    while (!engine && copy && (part = strsep(&rest, ";&|(){}\n"))) {
        char *words[64], **first = words, *word;
        size_t n = 0;

        while (n < ELEMENTSOF(words) - 1 && (word = strsep(&part, " \t")))
            if (*word)
                words[n++] = word;
        words[n] = NULL;
        while (*first && is_assignment(*first))
            first++;
        engine = container_engine_find(first);
    }
    return engine;
}

const char *container_engine_find(char *const *argv) {
    while (*argv) {
        const char *name = base_name(*argv++);
        const struct wrapper *wrapper = NULL;
        const char *engine = find(engines, ELEMENTSOF(engines), name);

        if (engine)
            return engine;
        if (find(shells, ELEMENTSOF(shells), name)) {
            const char *script = script_of(argv);

            return script ? engine_in_script(script) : NULL;
        }
        for (size_t i = 0; i < ELEMENTSOF(wrappers); i++)
            if (!strcmp(wrappers[i].name, name))
                wrapper = &wrappers[i];
        if (!wrapper)
            return NULL;
        argv = step_over(wrapper, argv);
    }
    return NULL;
}
