/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/policy.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const policy_require_words[] = { WORDS_OF(REQUIRES) };

const char *policy_require_name(enum require require) {
    return policy_require_words[require];
}

uint32_t policy_require_tiers(enum require require) {
    return require == REQUIRE_DRIVER ? 1 << 1 | 1 << 2 : require == REQUIRE_SCOPE ? 1 << 2 : 0;
}

void policy_init(struct policy *policy) {
    *policy = (struct policy){
        .require = REQUIRE_GUARD,
        .age_usec = UINT64_C(600) * 1000000,
        .reserve_usec = UINT64_C(1800) * 1000000,
        .grace_usec = UINT64_C(10) * 1000000,
        .ending_usec = UINT64_C(30) * 1000000,
        .recall_usec = UINT64_C(1000000),
        .gone_usec = UINT64_C(30) * 1000000,
        .idle_drop = 10,
    };
}

void policy_names_done(struct policy_names *names) {
    for (size_t i = 0; i < names->n_names; i++)
        free(names->names[i]);
    free(names->names);
    *names = (struct policy_names){ 0 };
}

void policy_done(struct policy *policy) {
    policy_names_done(&policy->defaults.devices);
    for (size_t i = 0; i < policy->n_sections; i++)
        policy_names_done(&policy->sections[i].rules.devices);
    free(policy->sections);
    for (size_t i = 0; i < policy->n_devices; i++) {
        struct policy_device *device = &policy->devices[i];

        policy_names_done(&device->devices);
        for (size_t j = 0; j < device->n_hours; j++) {
            free(device->hours[j].uids);
            free(device->hours[j].gids);
        }
        free(device->hours);
    }
    free(policy->devices);
    policy_init(policy);
}

/* Take the members that `from` sets and `rules` does not have yet. */
static void rules_fill(struct policy_rules *rules, const struct policy_rules *from) {
    uint32_t missing = from->has & ~rules->has;

#define X(type, member, value)                                                                     \
    if (missing & POLICY_HAS(member))                                                              \
        rules->member = from->member;
    POLICY_RULES(X)
#undef X
    if (missing & POLICY_HAS(devices))
        rules->devices = from->devices;
    if (missing & POLICY_HAS(amount))
        rules->amount = from->amount;
    rules->has |= missing;
}

static bool is_member(gid_t gid, const gid_t *gids, size_t n_gids) {
    for (size_t i = 0; i < n_gids; i++)
        if (gids[i] == gid)
            return true;
    return false;
}

void policy_rules_for(struct policy_rules *ret, const struct policy *policy, uid_t uid,
                      const gid_t *gids, size_t n_gids) {
    static const struct policy_rules built_in = {
        .has = UINT32_MAX,
#define X(type, member, value) .member = value,
        POLICY_RULES(X)
#undef X
            .devices = { .all = true },
        .amount = AMOUNT_GROW,
    };
    struct policy_rules rules = { 0 };

    for (size_t i = 0; i < policy->n_sections; i++)
        if (policy->sections[i].who == POLICY_USER && policy->sections[i].id == uid)
            rules_fill(&rules, &policy->sections[i].rules);
    for (size_t i = 0; i < policy->n_sections; i++)
        if (policy->sections[i].who == POLICY_GROUP &&
            is_member(policy->sections[i].id, gids, n_gids))
            rules_fill(&rules, &policy->sections[i].rules);
    rules_fill(&rules, &policy->defaults);
    rules_fill(&rules, &built_in);

    if (rules.priority_max == POLICY_PRIORITY_UNSET || rules.priority_max < rules.priority)
        rules.priority_max = rules.priority;
    if (rules.require == POLICY_REQUIRE_UNSET)
        rules.require = policy->require;
    *ret = rules;
}

/* A number of at most nine digits; -1: `text` is none, or something stands behind it. */
static int64_t number(const char *text, char end, const char **ret_rest) {
    int64_t value = 0;
    size_t n = 0;

    for (; text[n] >= '0' && text[n] <= '9'; n++) {
        if (n == 9)
            return -1;
        value = value * 10 + (text[n] - '0');
    }
    if (n == 0 || text[n] != end)
        return -1;
    if (ret_rest)
        *ret_rest = text + n + 1;
    return value;
}

bool policy_name_fits(const char *name, const struct policy_identity *identity) {
    char uuid[GPUID_TEXT_SIZE];
    const char *rest;
    struct pci_id pci;
    size_t length = strlen(name);
    int64_t index;

    /* A kind alone ("GPU-") would mean every device. */
    if (strncasecmp(name, "GPU-", 4) == 0 || strncasecmp(name, "MIG-", 4) == 0)
        return length > 4 && length < sizeof(uuid) &&
               strncasecmp(gpuid_format(&identity->id, uuid), name, length) == 0;

    index = number(name, '\0', NULL);
    if (index >= 0)
        return !identity->parent && identity->index == index;
    index = number(name, ':', &rest);
    if (index >= 0 && number(rest, '\0', NULL) >= 0 && identity->parent)
        return identity->index == index && identity->place == number(rest, '\0', NULL);
    /* "1:0" is an instance, "01:00" a place on the bus. */
    return !identity->parent && length >= 5 && pci_id_parse(&pci, name) == 0 &&
           pci_id_compare(&pci, &identity->pci) == 0;
}

bool policy_names_fit(const struct policy_names *names, const struct policy_identity *identity) {
    if (names->all)
        return true;
    for (size_t i = 0; i < names->n_names; i++) {
        if (policy_name_fits(names->names[i], identity))
            return true;
        if (identity->parent) {
            struct policy_identity gpu = { .id = *identity->parent,
                                           .pci = identity->pci,
                                           .index = identity->index };

            if (policy_name_fits(names->names[i], &gpu))
                return true;
        }
    }
    return false;
}

uint64_t policy_reserve(const struct policy *policy, const struct policy_identity *identity,
                        uint64_t total_bytes) {
    uint64_t bytes = 0;

    for (size_t i = 0; i < policy->n_devices; i++)
        if (policy->devices[i].has_reserve &&
            policy_names_fit(&policy->devices[i].devices, identity))
            bytes = units_amount_of(&policy->devices[i].reserve, total_bytes);
    return bytes < total_bytes ? bytes : total_bytes;
}

enum require policy_require(const struct policy *policy, const struct policy_identity *identity) {
    enum require require = REQUIRE_NONE;

    for (size_t i = 0; i < policy->n_devices; i++)
        if (policy->devices[i].has_require &&
            policy_names_fit(&policy->devices[i].devices, identity))
            require = policy->devices[i].require;
    return require;
}

enum require policy_strongest(const struct policy *policy) {
    enum require strongest = policy->defaults.has & POLICY_HAS(require)
                                 ? (enum require)policy->defaults.require
                                 : policy->require;

    for (size_t i = 0; i < policy->n_sections; i++)
        if (policy->sections[i].rules.has & POLICY_HAS(require))
            strongest = MAX(strongest, (enum require)policy->sections[i].rules.require);
    for (size_t i = 0; i < policy->n_devices; i++)
        if (policy->devices[i].has_require)
            strongest = MAX(strongest, policy->devices[i].require);
    return strongest;
}

bool policy_has_spending(const struct policy *policy) {
    bool has = policy->defaults.has & POLICY_HAS(quota_byte_seconds);

    for (size_t i = 0; i < policy->n_sections; i++)
        has |= policy->sections[i].rules.has & POLICY_HAS(quota_byte_seconds);
    return has;
}

static bool window_allows(const struct policy_hours *hours, uid_t uid, const gid_t *gids,
                          size_t n_gids, bool is_exclusive) {
    if (hours->n_uids == 0 && hours->n_gids == 0)
        return is_exclusive;
    for (size_t i = 0; i < hours->n_uids; i++)
        if (hours->uids[i] == uid)
            return true;
    for (size_t i = 0; i < hours->n_gids; i++)
        if (is_member(hours->gids[i], gids, n_gids))
            return true;
    return false;
}

bool policy_hours_allow(const struct policy *policy, const struct policy_identity *identity,
                        uint16_t week_minute, uid_t uid, const gid_t *gids, size_t n_gids,
                        bool is_exclusive, uint16_t *ret_until) {
    for (size_t i = 0; i < policy->n_devices; i++) {
        const struct policy_device *device = &policy->devices[i];

        if (device->n_hours == 0 || !policy_names_fit(&device->devices, identity))
            continue;
        for (size_t j = 0; j < device->n_hours; j++) {
            const struct policy_hours *hours = &device->hours[j];

            if (week_minute < hours->from_minute || week_minute >= hours->to_minute ||
                window_allows(hours, uid, gids, n_gids, is_exclusive))
                continue;
            if (ret_until)
                *ret_until = hours->to_minute;
            return false;
        }
    }
    return true;
}
