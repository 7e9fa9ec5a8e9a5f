/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a claim fits into what is left on the devices, and where.
 *
 * First come the rules in which others have no part: hours, and the quotas of the user. Devices
 * that these leave out are no candidates now; if too few remain, the claim waits for its own user
 * or for the clock, and reserves nothing. Then comes memory, device by device, and the choice among
 * the devices that fit.
 */
#include "daemon/broker/internal.h"

#include <stdio.h>
#include <string.h>

#include "daemon/broker/device_choice.h"
#include "daemon/broker/visibility.h"

bool fit_quota_leaves(const struct user *user, const struct book *book, uint64_t bytes) {
    uint64_t quota = units_share(user->rules.quota_permyriad, book->usable_bytes);
    uint64_t has = user->slot_bytes[book->slot];

    return user->rules.quota_permyriad >= 10000 || (has <= quota && bytes <= quota - has);
}

static bool reaches(const struct user *user, const struct claim *claim, uint32_t n_old) {
    uint32_t most = user->rules.quota_devices;

    return MIN(n_old, claim->n_wanted) + (uint64_t)(most - MIN(most, user->n_slots)) >=
           claim->n_wanted;
}

bool fit_quota_reaches(const struct user *user, const struct claim *claim) {
    uint32_t n_old = 0;

    for (uint32_t i = 0; i < claim->n_options; i++)
        n_old += user->slot_leases[claim->options[i].slot] > 0;
    return reaches(user, claim, n_old);
}

/* Options that rules and hours allow now, as indices; the reason for the others goes into `ret`. */
static uint32_t permitted(const struct broker *broker, const struct user *user,
                          const struct claim *claim, struct moment now, uint16_t *options,
                          struct fit *ret) {
    const struct policy_rules *rules = &user->rules;
    uint32_t n = 0, n_old = 0;
    uint64_t left, least = 0;

    ret->why = WHY_QUOTA;
    for (uint32_t i = 0; i < claim->n_options; i++) {
        const struct option *option = &claim->options[i];
        const struct book *book = broker->books[option->slot];
        struct policy_identity identity = visibility_identity(book);

        if (!device_facts_is_leasable(&book->device))
            continue;
        if (broker->policy->n_devices > 0 &&
            !policy_hours_allow(broker->policy, &identity, now.week_minute, user->uid, user->gids,
                                user->n_gids, claim->is_exclusive, &ret->until_minute)) {
            ret->why = WHY_HOURS;
            ret->blocked = option->slot;
            continue;
        }
        if (!fit_quota_leaves(user, book, option->guaranteed_bytes))
            continue;
        options[n++] = (uint16_t)i;
        n_old += user->slot_leases[option->slot] > 0;
        least = n == 1 ? option->guaranteed_bytes : MIN(least, option->guaranteed_bytes);
    }
    left = rules->quota_bytes - MIN(rules->quota_bytes, user->charged_bytes);
    if (n < claim->n_wanted)
        return 0;
    ret->why = WHY_QUOTA;
    if (user->n_leases >= rules->max_leases || !reaches(user, claim, n_old) ||
        least > left / claim->n_wanted)
        return 0;
    return n;
}

bool fit_is_permitted(const struct broker *broker, const struct user *user,
                      const struct claim *claim, struct moment now, struct fit *ret) {
    uint16_t options[BOOKS_MAX];

    return permitted(broker, user, claim, now, options, ret) > 0;
}

void fit_decide(struct broker *broker, const struct user *user, const struct claim *claim,
                const uint64_t free_bytes[static BOOKS_MAX], struct moment now, struct fit *ret) {
    uint16_t options[BOOKS_MAX], by_slot[BOOKS_MAX], order[BOOKS_MAX];
    struct device_choice_input input = {
        .n_wanted = claim->n_wanted,
        .choose = claim->choose,
        .order = order,
        .free_bytes = free_bytes,
        .books = broker->books,
    };
    struct device_choice choice;
    const struct policy_rules *rules = &user->rules;
    uint32_t n, n_new_left, n_new = 0;
    bool in[BOOKS_MAX] = { false };
    uint64_t sum = 0;
    bool is_unsafe = false;

    ret->blocked = -1;
    ret->n_chosen = 0;
    ret->how[0] = '\0';
    ret->is_spent = user_is_spent(user);
    n = permitted(broker, user, claim, now, options, ret);
    if (n == 0)
        return;

    ret->why = WHY_DEVICE;
    n_new_left = rules->quota_devices - MIN(rules->quota_devices, user->n_slots);
    for (uint32_t i = 0; i < n; i++) {
        const struct option *option = &claim->options[options[i]];

        if (free_bytes[option->slot] < option->guaranteed_bytes) {
            if (ret->blocked < 0 || free_bytes[option->slot] > free_bytes[ret->blocked])
                ret->blocked = option->slot;
            continue;
        }
        if (claim->n_wanted == 1 && option->declares_max && !bankers_admits(broker, &option, 1)) {
            is_unsafe = true;
            continue;
        }
        n_new += user->slot_leases[option->slot] == 0;
        by_slot[option->slot] = options[i];
        order[input.n_order++] = option->slot;
    }
    if (n_new > n_new_left && n_new_left < claim->n_wanted) {
        /* Take new devices only as far as the quota of devices allows: the best of them. */
        struct device_choice_input fresh = input;
        uint16_t new_order[BOOKS_MAX], kept = 0;

        fresh.order = new_order;
        fresh.n_order = 0;
        fresh.n_wanted = n_new_left;
        for (uint32_t i = 0; i < input.n_order; i++)
            if (user->slot_leases[order[i]] == 0)
                new_order[fresh.n_order++] = order[i];
        device_choice_decide(&choice, &fresh);
        for (uint32_t i = 0; i < choice.n_chosen; i++)
            in[choice.chosen[i]] = true;
        for (uint32_t i = 0; i < input.n_order; i++)
            if (user->slot_leases[order[i]] > 0 || in[order[i]])
                order[kept++] = order[i];
        input.n_order = kept;
        memset(in, 0, sizeof(in));
    }
    if (input.n_order < claim->n_wanted) {
        ret->why = is_unsafe ? WHY_UNSAFE : WHY_DEVICE;
        return;
    }

    device_choice_decide(&choice, &input);
    for (uint32_t i = 0; i < choice.n_chosen; i++)
        in[choice.chosen[i]] = true;
    /* List them in the job's own order, whichever was the best. */
    for (uint32_t i = 0; i < input.n_order; i++)
        if (in[order[i]]) {
            ret->chosen[ret->n_chosen] = &claim->options[by_slot[order[i]]];
            sum += ret->chosen[ret->n_chosen++]->guaranteed_bytes;
        }
    if (sum > rules->quota_bytes - MIN(rules->quota_bytes, user->charged_bytes)) {
        ret->why = WHY_QUOTA;
        ret->n_chosen = 0;
    } else if (ret->n_chosen > 1 && ret->chosen[0]->declares_max &&
               !bankers_admits(broker, ret->chosen, ret->n_chosen)) {
        ret->why = WHY_UNSAFE;
        ret->n_chosen = 0;
    } else if (claim->is_named) {
        snprintf(ret->how, sizeof(ret->how), "named in the request");
    } else {
        snprintf(ret->how, sizeof(ret->how), "%s", choice.why);
    }
}
