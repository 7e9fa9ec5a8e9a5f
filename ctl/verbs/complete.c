/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Complete: candidates for the word that is being typed, for the shells' completion scripts.
 *
 * One candidate per line, with a tab and a description if there is one. The option tables say what
 * can come. Devices, leases and users come from allotd; there are none if it does not answer. The
 * shell filters by what was typed, but some shells do not, so we filter too.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "ctl/gpuctl.h"
#include "ctl/source/box_view.h"
#include "ctl/view/text.h"

struct completion {
    struct gpuctl *ctl;
    const char *prefix; /* what comes before the part that is completed, as in "--devices=0," */
    size_t prefix_len;
    const char *typed; /* the part to complete */
};

static void offer(const struct completion *c, const char *word, const char *about) {
    cleanup(freep) char *clean = text_clean(word, true);
    cleanup(freep) char *clean_about = text_clean(about, true);

    if (!clean || !clean_about || strncmp(clean, c->typed, strlen(c->typed)))
        return;
    printf("%.*s%s%s%s\n", (int)c->prefix_len, c->prefix, clean, *clean_about ? "\t" : "",
           clean_about);
}

static void offer_options(const struct completion *c, const struct option_def *defs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        cleanup(freep) char *word = NULL;

        if (asprintf(&word, "--%s%s", defs[i].name,
                     defs[i].value && defs[i].value[0] != '[' ? "=" : "") >= 0)
            offer(c, word, defs[i].help);
        else
            word = NULL;
    }
}

static void offer_words(const struct completion *c, const char *words) {
    cleanup(freep) char *copy = strdup(words);
    char *rest = NULL;

    for (char *word = copy ? strtok_r(copy, " ", &rest) : NULL; word;
         word = strtok_r(NULL, " ", &rest))
        offer(c, word, "");
}

static void offer_box(const struct completion *c, enum word_kind kind) {
    struct box_view box_view;
    char number[24];

    if (box_view_take(&box_view, c->ctl, NULL, NULL) < 0)
        return;
    if (kind == WORD_DEVICE || kind == WORD_DEVICES)
        for (size_t i = 0; i < box_view.box.n_devices; i++) {
            const struct wire_device *device = &box_view.box.devices[i];

            snprintf(number, sizeof(number), "%" PRIu64, device->index);
            offer(c, number, device->name);
            if (strlen(c->typed) > 0)
                offer(c, device->uuid, device->name);
        }
    for (size_t i = 0; i < box_view.box.n_leases; i++) {
        const struct wire_lease *lease = &box_view.box.leases[i];
        bool known = false;

        snprintf(number, sizeof(number), "%" PRIu64, lease->id);
        if (kind == WORD_LEASE)
            offer(c, number, lease->name ? lease->name : lease->user);
        for (size_t before = 0; before < i; before++)
            known |= !strcmp(box_view.box.leases[before].user, lease->user);
        if (kind == WORD_USER && !known)
            offer(c, lease->user, "");
    }
    box_view_done(&box_view);
}

static void offer_value(struct completion *c, enum word_kind kind, const char *choices) {
    switch (kind) {
    case WORD_DEVICES: {
        const char *comma = strrchr(c->typed, ',');

        if (comma) {
            c->prefix_len = comma + 1 - c->prefix;
            c->typed = comma + 1;
        }
        offer_box(c, kind);
        break;
    }
    case WORD_DEVICE:
    case WORD_LEASE:
    case WORD_USER:
        offer_box(c, kind);
        break;
    case WORD_CHOICE:
        offer_words(c, choices);
        break;
    case WORD_SIZE:
        offer_words(c, "1G 2G 4G 8G 16G 32G 25% 50%");
        break;
    case WORD_FRACTION:
        offer_words(c, "0.1 0.2 0.25 0.3 0.4 0.5 0.75 1");
        break;
    case WORD_DURATION:
        offer_words(c, "10s 1m 10m 1h 8h 1d 7d");
        break;
    case WORD_SIGNAL:
        offer_words(c, "TERM KILL INT HUP USR1 USR2 STOP CONT");
        break;
    default: /* the shell completes files and commands best */
        break;
    }
}

static const struct option_def *find_option(const struct verb *verb, const char *word, size_t n) {
    const struct option_def *const tables[] = { verb ? verb->options : NULL, common_options };
    const size_t counts[] = { verb ? verb->n_options : 0, n_common_options };

    for (size_t t = 0; t < ELEMENTSOF(tables); t++)
        for (size_t i = 0; i < counts[t]; i++) {
            const struct option_def *def = &tables[t][i];

            if (n > 2 && word[0] == '-' && word[1] == '-' && strlen(def->name) == n - 2 &&
                !strncmp(word + 2, def->name, n - 2))
                return def;
            if (n == 2 && word[0] == '-' && def->letter && word[1] == def->letter)
                return def;
        }
    return NULL;
}

static bool takes_next_word(const struct option_def *def) {
    return def && def->value && def->value[0] != '[';
}

int complete_words(struct gpuctl *ctl, int n_words, char **words) {
    struct completion c = { .ctl = ctl };
    const struct option_def *def = NULL;
    const struct verb *verb = NULL;
    const char *last, *equals;

    if (n_words > 0 && !strcmp(words[0], "--")) {
        n_words--;
        words++;
    }
    last = n_words > 0 ? words[n_words - 1] : "";
    c.prefix = c.typed = last;
    for (int i = 0; i < n_words - 1; i++) {
        def = find_option(verb, words[i], strlen(words[i]));
        if (takes_next_word(def)) {
            if (i + 1 == n_words - 1) {
                offer_value(&c, def->word, def->choices);
                return EXIT_OK;
            }
            i++;
        } else if (words[i][0] != '-' && !verb) {
            verb = verb_find(words[i]);
            if (!verb)
                return EXIT_OK;
        } else if (verb && verb->stops && (words[i][0] != '-' || !strcmp(words[i], "--")))
            return EXIT_OK; /* inside the command, which the shell completes */
    }
    equals = strchr(last, '=');
    if (last[0] == '-' && equals) {
        def = find_option(verb, last, equals - last);
        c.prefix_len = equals + 1 - last;
        c.typed = equals + 1;
        if (def)
            offer_value(&c, def->word, def->choices);
        return EXIT_OK;
    }
    if (last[0] == '-') {
        if (verb)
            offer_options(&c, verb->options, verb->n_options);
        offer_options(&c, common_options, n_common_options);
    } else if (!verb)
        for (size_t i = 0; i < n_verbs; i++)
            offer(&c, verbs[i]->name, verbs[i]->summary);
    else
        offer_value(&c, verb->word, "");
    return EXIT_OK;
}
