/* SPDX-License-Identifier: Apache-2.0 */
/* An input is a file. It is taken whole, with sane values, or refused with a reason and a line. */
#include <string.h>

#include "base/cleanup.h"
#include "daemon/config/config.h"
#include "tests/fuzz/fuzz.h"

static void check_rules(const struct policy_rules *rules) {
    if (rules->has & POLICY_HAS(priority))
        fuzz_check(rules->priority >= -POLICY_PRIORITY_MAX &&
                   rules->priority <= POLICY_PRIORITY_MAX);
    if (rules->has & POLICY_HAS(quota_permyriad))
        fuzz_check(rules->quota_permyriad <= 10000);
    if (rules->has & POLICY_HAS(grow_wait_usec))
        fuzz_check(rules->grow_wait_usec != UNITS_FOREVER);
    if (rules->has & POLICY_HAS(amount)) {
        fuzz_check(rules->amount.mode != LEASE_FRACTION || rules->amount.permyriad <= 10000);
        fuzz_check(rules->amount.mode != LEASE_FIXED || rules->amount.bytes != UNITS_FOREVER);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config *config = NULL;
    struct config_report report = { 0 };
    struct allot_error err = { 0 };
    int r = config_parse(&config, "file", (const char *)data, size, &report, &err);

    if (r < 0) {
        fuzz_check(!config && err.code == r && strncmp(err.text, "file:", 5) == 0);
        fuzz_check(report.n_errors > 0 && report.text);
        config_report_done(&report);
        return 0;
    }
    fuzz_check(config && report.n_errors == 0);
    check_rules(&config->policy.defaults);
    for (size_t i = 0; i < config->policy.n_sections; i++)
        check_rules(&config->policy.sections[i].rules);
    for (size_t i = 0; i < config->policy.n_devices; i++)
        for (size_t j = 0; j < config->policy.devices[i].n_hours; j++) {
            const struct policy_hours *hours = &config->policy.devices[i].hours[j];

            fuzz_check(hours->from_minute < hours->to_minute &&
                       hours->to_minute <= POLICY_WEEK_MINUTES);
        }
    fuzz_check(config->watch.n_samples >= 1 && config->sample_usec >= 100000);
    fuzz_check(memchr(config->admin_group, 0, sizeof(config->admin_group)));
    config_report_done(&report);
    config_free(config);
    return 0;
}
