/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pack and spread sort by what is free. Links looks for the set whose slowest connection is
 * fastest: from each device it grows a set by adding the device that is best connected to all that
 * are in it, and keeps the best of these sets. That finds NVLink cliques exactly if they are
 * cliques, which they are on real boards (pairs, quads, a switch for all), without trying every
 * subset.
 */
#include "daemon/broker/device_choice.h"

#include <stdio.h>

#include "base/units.h"

uint32_t device_choice_link(const struct book *a, const struct book *b) {
    for (uint32_t i = 0; i < a->device.seen.n_links && i < SAMPLE_LINKS_MAX; i++) {
        const struct sample_link *link = &a->device.seen.links[i];

        if (!gpuid_equal(&link->remote, &b->device.seen.id))
            continue;
        /* Any NVLink beats any path over PCIe. */
        if (link->path == SAMPLE_PATH_NVLINK)
            return 100 + (link->lanes < 1000 ? link->lanes : 1000);
        return (uint32_t)(10 * (SAMPLE_PATH_SYSTEM + 1 - link->path));
    }
    return 0;
}

static uint32_t link_between(const struct book *a, const struct book *b) {
    uint32_t forth = device_choice_link(a, b), back = device_choice_link(b, a);

    return forth > back ? forth : back;
}

static bool is_instance(const struct device_choice_input *input, uint16_t slot) {
    return input->books[slot]->device.seen.is_mig;
}

/* Whether to take `a` before `b`, which comes later in the order. */
static bool is_better(const struct device_choice_input *input, uint16_t a, uint16_t b) {
    uint64_t free_a = input->free_bytes[a], free_b = input->free_bytes[b];

    if (is_instance(input, a) != is_instance(input, b))
        return is_instance(input, b);
    return input->choose == CHOICE_SPREAD ? free_a >= free_b : free_a <= free_b;
}

/* Grow a set from `seed`; returns its slowest link, and the sum of all in `ret_sum`. */
static uint32_t grow_set(const struct device_choice_input *input, const uint16_t *fits,
                         uint32_t n_fits, uint32_t seed, uint8_t *set, uint64_t *ret_sum) {
    uint32_t worst[BOOKS_MAX], slowest = UINT32_MAX, n = 0;
    uint64_t sums[BOOKS_MAX], sum = 0;
    bool in[BOOKS_MAX] = { false };

    for (uint32_t i = 0; i < n_fits; i++) {
        worst[i] = UINT32_MAX;
        sums[i] = 0;
    }
    for (uint32_t next = seed;;) {
        in[next] = true;
        set[n++] = (uint8_t)fits[next];
        if (n > 1) {
            slowest = worst[next] < slowest ? worst[next] : slowest;
            sum += sums[next];
        }
        if (n == input->n_wanted)
            break;
        for (uint32_t i = 0; i < n_fits; i++) {
            uint32_t link =
                in[i] ? 0 : link_between(input->books[fits[next]], input->books[fits[i]]);

            worst[i] = link < worst[i] ? link : worst[i];
            sums[i] += link;
        }
        next = UINT32_MAX;
        for (uint32_t i = 0; i < n_fits; i++)
            if (!in[i] && (next == UINT32_MAX || worst[i] > worst[next] ||
                           (worst[i] == worst[next] && sums[i] > sums[next])))
                next = i;
    }
    *ret_sum = sum;
    return slowest;
}

static void by_links(struct device_choice *ret, const struct device_choice_input *input,
                     const uint16_t *fits, uint32_t n_fits) {
    uint32_t best = 0;
    uint64_t best_sum = 0;

    for (uint32_t seed = 0; seed < n_fits; seed++) {
        uint8_t set[BOOKS_SHARES_MAX];
        uint64_t sum;
        uint32_t slowest = grow_set(input, fits, n_fits, seed, set, &sum);

        /* `fits` is sorted as by pack, so the first of equals is the fullest. */
        if (seed > 0 && (slowest < best || (slowest == best && sum <= best_sum)))
            continue;
        best = slowest;
        best_sum = sum;
        for (uint32_t i = 0; i < input->n_wanted; i++)
            ret->chosen[i] = set[i];
    }
    if (best > 100)
        snprintf(ret->why, sizeof(ret->why), "links: NVLink between all, %u lanes at least",
                 best - 100);
    else if (best > 0)
        snprintf(ret->why, sizeof(ret->why),
                 "links: no NVLink between all that fit; the slowest path between them scores %u "
                 "of 70",
                 best);
    else
        snprintf(ret->why, sizeof(ret->why),
                 "links: none known between the devices that fit; chosen as with \"pack\"");
}

void device_choice_decide(struct device_choice *ret, const struct device_choice_input *input) {
    uint16_t fits[BOOKS_MAX];
    uint32_t n_fits = 0;
    char text[UNITS_TEXT_SIZE];

    ret->n_chosen = 0;
    ret->why[0] = '\0';
    /* Insertion keeps the order of equals. */
    for (uint32_t i = 0; i < input->n_order; i++) {
        uint32_t at = n_fits;

        if (input->n_wanted > 1 && is_instance(input, input->order[i]))
            continue;
        while (at > 0 && !is_better(input, fits[at - 1], input->order[i])) {
            fits[at] = fits[at - 1];
            at--;
        }
        fits[at] = input->order[i];
        n_fits++;
    }
    if (input->n_wanted == 0 || n_fits < input->n_wanted || input->n_wanted > BOOKS_SHARES_MAX)
        return;

    ret->n_chosen = input->n_wanted;
    if (input->choose == CHOICE_LINKS && input->n_wanted > 1) {
        by_links(ret, input, fits, n_fits);
        return;
    }
    for (uint32_t i = 0; i < input->n_wanted; i++)
        ret->chosen[i] = (uint8_t)fits[i];
    snprintf(ret->why, sizeof(ret->why), "%s: the %s of the %u that fit; the first has %s free",
             words_name(choice_words, input->choose),
             input->choose == CHOICE_SPREAD ? "emptiest" : "fullest", n_fits,
             units_format_bytes(input->free_bytes[fits[0]], text));
}
