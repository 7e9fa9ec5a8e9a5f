/* SPDX-License-Identifier: Apache-2.0 */
/* Policies by themselves: which rule holds for whom, and which device a name means. */
#include "daemon/broker/policy.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

static void add_name(struct policy_names *names, const char *name) {
    names->names = realloc(names->names, (names->n_names + 1) * sizeof(*names->names));
    names->names[names->n_names++] = strdup(name);
}

static struct policy_section *add_section(struct policy *policy, enum policy_who who, uint32_t id,
                                          struct policy_rules rules) {
    policy->sections =
        realloc(policy->sections, (policy->n_sections + 1) * sizeof(*policy->sections));
    policy->sections[policy->n_sections] = (struct policy_section){ who, id, rules };
    return &policy->sections[policy->n_sections++];
}

static struct policy_device *add_device(struct policy *policy, const char *name) {
    struct policy_device *device;

    policy->devices = realloc(policy->devices, (policy->n_devices + 1) * sizeof(*policy->devices));
    device = &policy->devices[policy->n_devices++];
    *device = (struct policy_device){ 0 };
    if (name)
        add_name(&device->devices, name);
    else
        device->devices.all = true;
    return device;
}

static struct policy_hours *add_hours(struct policy_device *device, uint16_t from, uint16_t to) {
    device->hours = realloc(device->hours, (device->n_hours + 1) * sizeof(*device->hours));
    device->hours[device->n_hours] = (struct policy_hours){ .from_minute = from, .to_minute = to };
    return &device->hours[device->n_hours++];
}

#define REQUIRES_ONLY(value)                                                                       \
    (struct policy_rules) {                                                                        \
        .has = POLICY_HAS(require), .require = (value)                                             \
    }

START_TEST(the_strongest_requirement_is_found_wherever_it_stands) {
    struct policy policy;

    policy_init(&policy);
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_GUARD);
    policy.require = REQUIRE_SCOPE;
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_SCOPE);
    policy.defaults = REQUIRES_ONLY(REQUIRE_NONE);
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_NONE);
    add_section(&policy, POLICY_USER, 7, REQUIRES_ONLY(REQUIRE_DRIVER));
    add_section(&policy, POLICY_GROUP, 7, REQUIRES_ONLY(REQUIRE_GUARD));
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_DRIVER);
    policy.sections[0].rules.has = 0; /* not set */
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_GUARD);
    add_device(&policy, "0")->require = REQUIRE_DRIVER;
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_GUARD);
    policy.devices[0].has_require = true;
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_DRIVER);
    add_device(&policy, "1")->has_require = true;
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_DRIVER);
    policy_done(&policy);
    ck_assert_uint_eq(policy.n_sections, 0);
    ck_assert_int_eq(policy_strongest(&policy), REQUIRE_GUARD);
}
END_TEST

START_TEST(each_requirement_has_its_name_and_tiers) {
    ck_assert_str_eq(policy_require_name(REQUIRE_NONE), "none");
    ck_assert_str_eq(policy_require_name(REQUIRE_GUARD), "guard");
    ck_assert_str_eq(policy_require_name(REQUIRE_SCOPE), "scope");
    ck_assert_str_eq(policy_require_name(REQUIRE_DRIVER), "driver");
    ck_assert_uint_eq(policy_require_tiers(REQUIRE_NONE), 0);
    ck_assert_uint_eq(policy_require_tiers(REQUIRE_GUARD), 0);
    ck_assert_uint_eq(policy_require_tiers(REQUIRE_SCOPE), 4);
    ck_assert_uint_eq(policy_require_tiers(REQUIRE_DRIVER), 6);
}
END_TEST

START_TEST(spending_counts_where_any_rule_limits_it) {
    const struct policy_rules spends = { .has = POLICY_HAS(quota_byte_seconds) };
    struct policy policy;

    policy_init(&policy);
    ck_assert(!policy_has_spending(&policy));
    policy.defaults.has = POLICY_HAS(quota_bytes);
    ck_assert(!policy_has_spending(&policy));
    policy.defaults = spends;
    ck_assert(policy_has_spending(&policy));
    policy.defaults.has = 0;
    add_section(&policy, POLICY_USER, 7, spends);
    add_section(&policy, POLICY_USER, 8, REQUIRES_ONLY(REQUIRE_NONE));
    ck_assert(policy_has_spending(&policy));
    policy.sections[0].rules.has = 0;
    ck_assert(!policy_has_spending(&policy));
    policy_done(&policy);
}
END_TEST

START_TEST(a_user_has_its_own_rules_then_its_groups_then_the_defaults) {
    const gid_t gids[] = { 50, 60 };
    struct policy_rules rules;
    struct policy policy;

    policy_init(&policy);
    policy_rules_for(&rules, &policy, 1000, gids, 2);
    ck_assert_uint_eq(rules.has, UINT32_MAX);
    ck_assert_uint_eq(rules.max_leases, 64);
    ck_assert_uint_eq(rules.quota_bytes, UNITS_FOREVER);
    ck_assert_int_eq(rules.priority_max, 0);
    ck_assert_uint_eq(rules.require, REQUIRE_GUARD);
    ck_assert(rules.devices.all);
    policy.require = REQUIRE_SCOPE;
    policy.defaults = (struct policy_rules){ .has = POLICY_HAS(max_leases) | POLICY_HAS(priority) |
                                                    POLICY_HAS(quota_bytes),
                                             .max_leases = 1,
                                             .priority = 3,
                                             .quota_bytes = 11 };
    add_section(&policy, POLICY_GROUP, 60,
                (struct policy_rules){ .has = POLICY_HAS(max_leases) | POLICY_HAS(quota_devices),
                                       .max_leases = 2,
                                       .quota_devices = 5 });
    add_section(&policy, POLICY_USER, 1000,
                (struct policy_rules){ .has = POLICY_HAS(max_leases) | POLICY_HAS(amount) |
                                              POLICY_HAS(devices),
                                       .max_leases = 3,
                                       .amount = { .mode = LEASE_FIXED, .bytes = 9 } });
    add_section(&policy, POLICY_USER, 60, REQUIRES_ONLY(REQUIRE_DRIVER));
    add_section(&policy, POLICY_GROUP, 1000, REQUIRES_ONLY(REQUIRE_DRIVER));
    policy_rules_for(&rules, &policy, 1000, gids, 2);
    ck_assert_uint_eq(rules.max_leases, 3);
    ck_assert_uint_eq(rules.quota_devices, 5);
    ck_assert_uint_eq(rules.quota_bytes, 11);
    ck_assert_int_eq(rules.priority, 3);
    ck_assert_int_eq(rules.priority_max, 3); /* at least what it has by itself */
    ck_assert_uint_eq(rules.require, REQUIRE_SCOPE);
    ck_assert_int_eq(rules.amount.mode, LEASE_FIXED);
    ck_assert(!rules.devices.all);
    policy_rules_for(&rules, &policy, 1000, gids, 1);
    ck_assert_uint_eq(rules.quota_devices, UINT32_MAX);
    policy_rules_for(&rules, &policy, 1001, gids, 2);
    ck_assert_uint_eq(rules.max_leases, 2);
    ck_assert_int_eq(rules.amount.mode, LEASE_GROW);
    policy.defaults.has |= POLICY_HAS(priority_max);
    policy.defaults.priority_max = 2;
    policy_rules_for(&rules, &policy, 1001, NULL, 0);
    ck_assert_int_eq(rules.priority_max, 3);
    policy.defaults.priority_max = 4;
    policy_rules_for(&rules, &policy, 1001, NULL, 0);
    ck_assert_int_eq(rules.priority_max, 4);
    ck_assert_uint_eq(rules.max_leases, 1);
    policy_done(&policy);
}
END_TEST

START_TEST(the_last_rule_for_a_device_counts) {
    const struct policy_identity first = { .index = 0 }, second = { .index = 1 };
    struct policy policy;

    policy_init(&policy);
    ck_assert_uint_eq(policy_reserve(&policy, &first, 100), 0);
    ck_assert_int_eq(policy_require(&policy, &first), REQUIRE_NONE);
    for (unsigned i = 0; i < 3; i++) {
        struct policy_device *device = add_device(&policy, i == 0 ? NULL : "1");

        device->has_reserve = i != 2;
        device->has_require = i != 1;
        device->require = i == 0 ? REQUIRE_DRIVER : REQUIRE_SCOPE;
    }
    ck_assert_int_eq(units_parse_amount(&policy.devices[0].reserve, "10%"), 0);
    ck_assert_int_eq(units_parse_amount(&policy.devices[1].reserve, "2K"), 0);
    ck_assert_uint_eq(policy_reserve(&policy, &first, 10000), 1000);
    ck_assert_uint_eq(policy_reserve(&policy, &second, 10000), 2048);
    ck_assert_uint_eq(policy_reserve(&policy, &second, 2047), 2047); /* all that it has */
    ck_assert_int_eq(policy_require(&policy, &first), REQUIRE_DRIVER);
    ck_assert_int_eq(policy_require(&policy, &second), REQUIRE_SCOPE);
    policy_done(&policy);
}
END_TEST

START_TEST(hours_are_for_those_named_or_for_exclusive_leases) {
    const struct policy_identity gpu = { .index = 1 }, other = { .index = 2 };
    const gid_t gids[] = { 50, 60 };
    struct policy_hours *hours;
    struct policy policy;
    uint16_t until = 0;

    policy_init(&policy);
    add_device(&policy, "2");
    hours = add_hours(add_device(&policy, "1"), 100, 200);
    ck_assert(!policy_hours_allow(&policy, &gpu, 100, 7, gids, 2, false, &until));
    ck_assert_uint_eq(until, 200);
    ck_assert(!policy_hours_allow(&policy, &gpu, 199, 7, gids, 2, false, NULL));
    ck_assert(policy_hours_allow(&policy, &gpu, 199, 7, gids, 2, true, NULL));
    ck_assert(policy_hours_allow(&policy, &gpu, 99, 7, gids, 2, false, NULL));
    ck_assert(policy_hours_allow(&policy, &gpu, 200, 7, gids, 2, false, NULL));
    ck_assert(policy_hours_allow(&policy, &other, 150, 7, gids, 2, false, NULL));
    hours->uids = malloc(2 * sizeof(uid_t));
    hours->uids[0] = 6;
    hours->uids[1] = 7;
    hours->n_uids = 2;
    ck_assert(policy_hours_allow(&policy, &gpu, 150, 7, gids, 2, false, NULL));
    ck_assert(!policy_hours_allow(&policy, &gpu, 150, 8, gids, 2, true, NULL));
    hours->gids = malloc(2 * sizeof(gid_t));
    hours->gids[0] = 59;
    hours->gids[1] = 60;
    hours->n_gids = 2;
    ck_assert(policy_hours_allow(&policy, &gpu, 150, 8, gids, 2, false, NULL));
    ck_assert(!policy_hours_allow(&policy, &gpu, 150, 8, gids, 1, false, NULL));
    hours->n_uids = 0;
    ck_assert(policy_hours_allow(&policy, &gpu, 150, 7, gids, 2, false, NULL));
    ck_assert(!policy_hours_allow(&policy, &gpu, 150, 7, NULL, 0, true, NULL));
    /* All windows hold together. */
    add_hours(&policy.devices[1], 140, 160);
    ck_assert(!policy_hours_allow(&policy, &gpu, 150, 8, gids, 2, false, &until));
    ck_assert_uint_eq(until, 160);
    policy_done(&policy);
}
END_TEST

START_TEST(names_mean_devices) {
    const struct gpuid parent = { .kind = GPUID_GPU, .uuid = { 0xab, 0xcd } };
    const struct policy_identity gpu = { .id = { .kind = GPUID_GPU, .uuid = { 0x12, 0x34 } },
                                         .pci = { .bus = 3 },
                                         .index = 123456789 };
    const struct policy_identity instance = { .id = { .kind = GPUID_MIG, .uuid = { 0x55 } },
                                              .parent = &parent,
                                              .pci = { .bus = 4 },
                                              .index = 2,
                                              .place = 7 };
    static const struct {
        const char *name;
        bool is_gpu, is_instance;
    } names[] = {
        { "GPU-1234", true, false },
        { "gpu-12", true, false },
        { "GPU-1235", false, false },
        { "GPU-", false, false },
        { "MIG-", false, false },
        { "MIG-55", false, true },
        { "GPU-12340000-0000-0000-0000-000000000000", true, false },
        { "GPU-12340000-0000-0000-0000-0000000000000000", false, false },
        { "123456789", true, false },
        { "1234567890", false, false },
        { "123456789 ", false, false },
        { "2", false, false },
        { "2:7", false, true },
        { "2:8", false, false },
        { "3:7", false, false },
        { "2:7x", false, false },
        { "2:", false, false },
        { "03:00", true, false },
        { "04:00", false, false },
        { "03:01", false, false },
        { "00000000:03:00.0", true, false },
        { "", false, false },
        { "x", false, false },
    };
    struct policy_names set = { 0 };

    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        ck_assert_msg(policy_name_fits(names[i].name, &gpu) == names[i].is_gpu, "%s",
                      names[i].name);
        ck_assert_msg(policy_name_fits(names[i].name, &instance) == names[i].is_instance, "%s",
                      names[i].name);
    }
    ck_assert(!policy_names_fit(&set, &gpu));
    add_name(&set, "7");
    add_name(&set, "2"); /* the GPU that the instance is of */
    ck_assert(!policy_names_fit(&set, &gpu));
    ck_assert(policy_names_fit(&set, &instance));
    add_name(&set, "03:00");
    ck_assert(policy_names_fit(&set, &gpu));
    policy_names_done(&set);
    ck_assert_uint_eq(set.n_names, 0);
    ck_assert(!policy_names_fit(&set, &instance));
    add_name(&set, "GPU-abcd");
    ck_assert(policy_names_fit(&set, &instance));
    policy_names_done(&set);
    set.all = true;
    ck_assert(policy_names_fit(&set, &gpu));
    policy_names_done(&set);
}
END_TEST

SUITE("policy", the_strongest_requirement_is_found_wherever_it_stands,
      each_requirement_has_its_name_and_tiers, spending_counts_where_any_rule_limits_it,
      a_user_has_its_own_rules_then_its_groups_then_the_defaults, the_last_rule_for_a_device_counts,
      hours_are_for_those_named_or_for_exclusive_leases, names_mean_devices)
