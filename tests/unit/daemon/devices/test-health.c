/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/devices/health.h"

#include <errno.h>
#include <string.h>

#include "tests/support/suite.h"

START_TEST(only_xids_that_concern_the_card_drain_it) {
    static const struct {
        uint64_t xid;
        bool drains;
    } cases[] = {
        { 13, false },  { 31, false },         { 43, false }, { 45, false }, { 48, true },
        { 63, false },  { 64, true },          { 74, true },  { 79, true },  { 94, false },
        { 95, true },   { 119, true },         { 154, true }, { 0, false },  { 255, false },
        { 256, false }, { UINT64_MAX, false },
    };
    struct health_decision decision;
    struct health_rules rules;

    health_rules_default(&rules);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct sample_event event = { .kind = SAMPLE_EVENT_XID, .data = cases[i].xid };

        health_decide_event(&rules, &event, &decision);
        ck_assert_msg(decision.verdict == (cases[i].drains ? HEALTH_DRAIN : HEALTH_NOTE),
                      "Xid %llu", (unsigned long long)cases[i].xid);
        ck_assert_ptr_nonnull(strstr(decision.reason, "Xid "));
    }
}
END_TEST

START_TEST(the_administrator_says_which_xids_drain) {
    struct sample_event event = { .kind = SAMPLE_EVENT_XID, .data = 79 };
    struct health_decision decision;
    struct health_rules rules;

    health_rules_default(&rules);
    ck_assert_int_eq(health_xid_set(&rules, 79, false), 0);
    health_decide_event(&rules, &event, &decision);
    ck_assert_int_eq(decision.verdict, HEALTH_NOTE);
    event.data = 200;
    ck_assert_int_eq(health_xid_set(&rules, 200, true), 0);
    health_decide_event(&rules, &event, &decision);
    ck_assert_int_eq(decision.verdict, HEALTH_DRAIN);
    ck_assert_str_eq(decision.reason, "Xid 200"); /* nothing is made up about it */
    ck_assert_int_eq(health_xid_set(&rules, 256, true), -ERANGE);
}
END_TEST

START_TEST(other_events_have_a_verdict_and_a_reason) {
    static const struct {
        enum sample_event_kind kind;
        enum health_verdict verdict;
    } cases[] = {
        { SAMPLE_EVENT_ECC_CORRECTED, HEALTH_NOTE }, { SAMPLE_EVENT_ECC_UNCORRECTED, HEALTH_DRAIN },
        { SAMPLE_EVENT_UNAVAILABLE, HEALTH_DRAIN },  { SAMPLE_EVENT_OTHER, HEALTH_NOTE },
        { SAMPLE_EVENT_MIG_CHANGED, HEALTH_FINE },
    };
    struct health_decision decision;
    struct health_rules rules;

    health_rules_default(&rules);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct sample_event event = { .kind = cases[i].kind };

        health_decide_event(&rules, &event, &decision);
        ck_assert_int_eq(decision.verdict, cases[i].verdict);
        ck_assert_int_eq(decision.reason[0] == 0, cases[i].verdict == HEALTH_FINE);
    }
    rules.max_uncorrected = 3; /* then the reading decides */
    rules.drain_unavailable = false;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct sample_event event = { .kind = cases[i].kind };

        health_decide_event(&rules, &event, &decision);
        ck_assert_int_ne(decision.verdict, HEALTH_DRAIN);
    }
}
END_TEST

START_TEST(errors_are_counted_from_what_was_accepted) {
    struct sample_device now = { .readings.has = READINGS_BIT(ecc_uncorrected) };
    static const struct {
        uint64_t count, accepted, max;
        bool drains;
    } cases[] = {
        { 0, 0, 0, false }, { 1, 0, 0, true }, { 7, 7, 0, false }, { 8, 7, 0, true },
        { 8, 7, 1, false }, { 9, 7, 1, true }, { 2, 7, 1, true }, /* reset, and new errors */
        { 0, 7, 0, false },
    };
    struct health_decision decision;
    struct health_rules rules;

    health_rules_default(&rules);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        now.readings.ecc_uncorrected = cases[i].count;
        rules.max_uncorrected = cases[i].max;
        health_decide_reading(&rules, &now, cases[i].accepted, &decision);
        ck_assert_msg(decision.verdict == (cases[i].drains ? HEALTH_DRAIN : HEALTH_FINE), "row %zu",
                      i);
    }
    now.readings.has = 0; /* absent is not 9 */
    now.readings.ecc_uncorrected = 9;
    now.readings.rows_failed = 1;
    health_decide_reading(&rules, &now, 0, &decision);
    ck_assert_int_eq(decision.verdict, HEALTH_FINE);
    now.readings.has = READINGS_BIT(rows_failed);
    health_decide_reading(&rules, &now, 0, &decision);
    ck_assert_int_eq(decision.verdict, HEALTH_DRAIN);
    now.health = SAMPLE_FAILED; /* not read */
    health_decide_reading(&rules, &now, 0, &decision);
    ck_assert_int_eq(decision.verdict, HEALTH_FINE);
}
END_TEST

START_TEST(a_device_recovers_by_rule_only) {
    struct device_facts device = { .state = DEVICE_DRAINING, .drains = DRAIN_HEALTH };
    struct health_rules rules;

    health_rules_default(&rules);
    ck_assert(!health_decide_recovery(&rules, &device, false, 0, UINT64_MAX));
    ck_assert(health_decide_recovery(&rules, &device, true, 0, 0));
    rules.resume_on_return = false;
    ck_assert(!health_decide_recovery(&rules, &device, true, 0, UINT64_MAX));
    rules.recover_usec = 100;
    ck_assert(!health_decide_recovery(&rules, &device, false, 50, 149));
    ck_assert(health_decide_recovery(&rules, &device, false, 50, 150));
    ck_assert(!health_decide_recovery(&rules, &device, false, 50, 40)); /* a clock that went back */
    device.seen.readings.has = READINGS_BIT(rows_failed);
    device.seen.readings.rows_failed = 1;
    ck_assert(!health_decide_recovery(&rules, &device, true, 50, 1000));
    device.seen.readings.has = 0;
    device.state = DEVICE_LOST;
    ck_assert(!health_decide_recovery(&rules, &device, true, 50, 1000));
    device.state = DEVICE_DRAINING;
    device.drains = DRAIN_ADMIN; /* not health's to end */
    ck_assert(!health_decide_recovery(&rules, &device, true, 50, 1000));
}
END_TEST

SUITE("health", only_xids_that_concern_the_card_drain_it, the_administrator_says_which_xids_drain,
      other_events_have_a_verdict_and_a_reason, errors_are_counted_from_what_was_accepted,
      a_device_recovers_by_rule_only)
