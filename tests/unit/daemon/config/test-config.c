/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/config/config.h"
#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"

static struct config *parse(const char *text) {
    struct config *config = NULL;
    struct config_report report = { 0 };
    struct allot_error err = { 0 };
    int r = config_parse(&config, "test", text, strlen(text), &report, &err);

    ck_assert_msg(r == 0, "%s", report.text ? report.text : err.text);
    config_report_done(&report);
    return config;
}

START_TEST(an_empty_text_gives_what_is_built_in) {
    struct config *config = parse("");
    struct policy_rules rules;

    ck_assert(!config->is_locked);
    ck_assert(config->watch.dry_run);
    ck_assert_uint_eq(config->policy.grace_usec, 10000000);
    ck_assert_str_eq(config->admin_group, "allot-admin");
    policy_rules_for(&rules, &config->policy, 1, NULL, 0);
    ck_assert(rules.devices.all);
    ck_assert_int_eq(rules.amount.mode, LEASE_GROW);
    config_free(config);
}
END_TEST

START_TEST(every_key_arrives_where_it_belongs) {
    struct config *config = parse("\xef\xbb\xbf# everything\n"
                                  "[allotd]\n"
                                  "mode = locked\n"
                                  "admin-group = gpu-people ; a comment\n"
                                  "max-connections = 33\n"
                                  "sample-interval = 2s\n"
                                  "grace-time = 15s\n"
                                  "priority-age = 5min\n"
                                  "end-time = 40s\n"
                                  "recall-time = 3s\n"
                                  "release-time = 50s\n"
                                  "idle-priority-drop = 7\n"
                                  "[watch]\n"
                                  "dry-run = no\n"
                                  "tolerance-bytes = 64M\n"
                                  "tolerance-fraction = 3%\n"
                                  "samples = 4\n"
                                  "step-time = 20s\n"
                                  "unmanaged = terminate\n"
                                  "terminate-also = slurm, docker LXC\n"
                                  "[health]\n"
                                  "drain-xids = 48, 79 255\n"
                                  "max-uncorrected-ecc = 5\n"
                                  "drain-failed-rows = no\n"
                                  "drain-unavailable = false\n"
                                  "resume-on-return = off\n"
                                  "recover-after = 1h\n"
                                  "[accounts]\n"
                                  "retention = 30d\n"
                                  "quota-period = 7d\n"
                                  "[defaults]\n"
                                  "devices = GPU-1234 0000:3b:00.0, 2\n"
                                  "quota-bytes = 80G\n"
                                  "quota-fraction = 0.5\n"
                                  "quota-devices = 2\n"
                                  "quota-gib-hours = 100\n"
                                  "max-leases = 5\n"
                                  "max-waiting = 6\n"
                                  "priority = -3\n"
                                  "max-priority = 4\n"
                                  "choose = links\n"
                                  "require = driver\n"
                                  "wait-limit = 2h\n"
                                  "growth-wait-limit = 30s\n"
                                  "lease-limit = 1d\n"
                                  "idle-tell = 10min\n"
                                  "idle-lower = 20min\n"
                                  "idle-end = 1h\n"
                                  "default-mode = grow\n"
                                  "default-fraction = 25%\n"
                                  "default-min = 1G\n"
                                  "default-max = 9G\n");
    const struct policy_rules *rules = &config->policy.defaults;

    ck_assert(config->is_locked);
    ck_assert_str_eq(config->admin_group, "gpu-people");
    ck_assert_uint_eq(config->max_connections, 33);
    ck_assert_uint_eq(config->sample_usec, 2000000);
    ck_assert_uint_eq(config->policy.grace_usec, 15000000);
    ck_assert_uint_eq(config->policy.age_usec, 300000000);
    ck_assert_uint_eq(config->policy.ending_usec, 40000000);
    ck_assert_uint_eq(config->policy.recall_usec, 3000000);
    ck_assert_uint_eq(config->policy.gone_usec, 50000000);
    ck_assert_int_eq(config->policy.idle_drop, 7);
    ck_assert(!config->watch.dry_run);
    ck_assert_uint_eq(config->watch.tolerance_bytes, 64 << 20);
    ck_assert_uint_eq(config->watch.tolerance_permyriad, 300);
    ck_assert_uint_eq(config->watch.n_samples, 4);
    ck_assert_uint_eq(config->watch.step_usec, 20000000);
    ck_assert_int_eq(config->watch.unmanaged, WATCH_TERMINATE);
    ck_assert_uint_eq(config->watch.terminate_also,
                      1 << CGROUP_OWNER_SLURM | 1 << CGROUP_OWNER_DOCKER | 1 << CGROUP_OWNER_LXC);
    for (uint64_t xid = 0; xid <= HEALTH_XID_MAX; xid++)
        ck_assert(health_xid_drains(&config->health, xid) ==
                  (xid == 48 || xid == 79 || xid == 255));
    ck_assert_uint_eq(config->health.max_uncorrected, 5);
    ck_assert(!config->health.drain_rows_failed && !config->health.drain_unavailable);
    ck_assert(!config->health.resume_on_return);
    ck_assert_uint_eq(config->health.recover_usec, UINT64_C(3600000000));
    ck_assert_uint_eq(config->retention_usec, UINT64_C(30) * 86400 * 1000000);
    ck_assert_uint_eq(rules->quota_period_usec, UINT64_C(7) * 86400 * 1000000);
    ck_assert(!rules->devices.all);
    ck_assert_uint_eq(rules->devices.n_names, 3);
    ck_assert_str_eq(rules->devices.names[1], "0000:3b:00.0");
    ck_assert_str_eq(rules->devices.names[2], "2");
    ck_assert_uint_eq(rules->quota_bytes, UINT64_C(80) << 30);
    ck_assert_uint_eq(rules->quota_permyriad, 5000);
    ck_assert_uint_eq(rules->quota_devices, 2);
    ck_assert_uint_eq(rules->quota_byte_seconds, (UINT64_C(100) << 30) * 3600);
    ck_assert_uint_eq(rules->max_leases, 5);
    ck_assert_uint_eq(rules->max_waiting, 6);
    ck_assert_int_eq(rules->priority, -3);
    ck_assert_int_eq(rules->priority_max, 4);
    ck_assert_int_eq(rules->choose, CHOICE_LINKS);
    ck_assert_uint_eq(rules->require, REQUIRE_DRIVER);
    ck_assert_uint_eq(rules->wait_usec, UINT64_C(7200000000));
    ck_assert_uint_eq(rules->grow_wait_usec, 30000000);
    ck_assert_uint_eq(rules->lease_usec, UINT64_C(86400000000));
    ck_assert_uint_eq(rules->idle_tell_usec, 600000000);
    ck_assert_uint_eq(rules->idle_drop_usec, 1200000000);
    ck_assert_uint_eq(rules->idle_end_usec, UINT64_C(3600000000));
    ck_assert_int_eq(rules->amount.mode, LEASE_GROW);
    ck_assert_uint_eq(rules->amount.permyriad, 2500);
    ck_assert_uint_eq(rules->amount.min_bytes, UINT64_C(1) << 30);
    ck_assert_uint_eq(rules->amount.max_bytes, UINT64_C(9) << 30);
    config_free(config);
}
END_TEST

START_TEST(people_get_their_own_rules) {
    struct config *config = parse("[defaults]\nmax-leases = 3\npriority = 1\n"
                                  "[user root]\nmax-leases = infinity\n"
                                  "[group 4242]\nmax-leases = 9\ndevices = none\n"
                                  "[user 0]\nquota-bytes = 1G\n"
                                  "[user 77]\ndefault-mode = fixed\ndefault-bytes = 2G\n"
                                  "quota-gib-hours = infinity\n");
    gid_t gid = 4242;
    struct policy_rules rules;

    ck_assert_uint_eq(config->policy.n_sections, 3);
    policy_rules_for(&rules, &config->policy, 0, NULL, 0);
    ck_assert_uint_eq(rules.max_leases, UINT32_MAX);
    ck_assert_uint_eq(rules.quota_bytes, 1 << 30);
    ck_assert_int_eq(rules.priority, 1);
    policy_rules_for(&rules, &config->policy, 5, &gid, 1);
    ck_assert_uint_eq(rules.max_leases, 9);
    ck_assert(!rules.devices.all);
    ck_assert_uint_eq(rules.devices.n_names, 0);
    policy_rules_for(&rules, &config->policy, 77, NULL, 0);
    ck_assert_uint_eq(rules.max_leases, 3);
    ck_assert_int_eq(rules.amount.mode, LEASE_FIXED);
    ck_assert_uint_eq(rules.amount.bytes, UINT64_C(2) << 30);
    ck_assert_uint_eq(rules.quota_byte_seconds, UNITS_FOREVER);
    config_free(config);
}
END_TEST

START_TEST(what_is_required_depends_on_mode_user_and_device) {
    static const struct {
        const char *text;
        enum require require, strongest, device;
    } cases[] = {
        { "", REQUIRE_GUARD, REQUIRE_GUARD, REQUIRE_NONE },
        { "[allotd]\nmode = locked\n", REQUIRE_SCOPE, REQUIRE_SCOPE, REQUIRE_NONE },
        { "[allotd]\nmode = locked\n[defaults]\nrequire = none\n", REQUIRE_NONE, REQUIRE_NONE,
          REQUIRE_NONE },
        { "[defaults]\nrequire = scope\n[user 1]\nrequire = guard\n", REQUIRE_GUARD, REQUIRE_SCOPE,
          REQUIRE_NONE },
        { "[group 7]\nrequire = scope\n", REQUIRE_SCOPE, REQUIRE_SCOPE, REQUIRE_NONE },
        { "[device all]\nrequire = scope\n[device 0]\nrequire = driver\n", REQUIRE_GUARD,
          REQUIRE_DRIVER, REQUIRE_DRIVER },
    };
    const struct policy_identity identity = { .index = 0 };
    const gid_t gids[] = { 7 };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct config *config = parse(cases[i].text);
        struct policy_rules rules;

        policy_rules_for(&rules, &config->policy, 1, gids, 1);
        ck_assert_uint_eq(rules.require, cases[i].require);
        ck_assert_uint_eq(policy_strongest(&config->policy), cases[i].strongest);
        ck_assert_uint_eq(policy_require(&config->policy, &identity), cases[i].device);
        config_free(config);
    }
}
END_TEST

START_TEST(devices_have_a_reserve_and_hours) {
    struct config *config = parse("[device all]\nreserve = 5%\n"
                                  "[device GPU-9e8d]\nreserve = 2G\n"
                                  "exclusive-hours = Mon-Fri 09:00-18:00,\n"
                                  "   Sun 22:00-06:00\n"
                                  "exclusive-for = root @0 1234\n");
    const struct policy_device *device;

    ck_assert_uint_eq(config->policy.n_devices, 2);
    device = &config->policy.devices[0];
    ck_assert(device->devices.all && device->has_reserve && device->reserve.is_share);
    ck_assert_uint_eq(device->reserve.permyriad, 500);
    ck_assert_uint_eq(device->n_hours, 0);
    device = &config->policy.devices[1];
    ck_assert_str_eq(device->devices.names[0], "GPU-9e8d");
    ck_assert_uint_eq(device->n_hours, 7);
    ck_assert_uint_eq(device->hours[4].from_minute, 4 * 1440 + 540);
    ck_assert_uint_eq(device->hours[4].to_minute, 4 * 1440 + 1080);
    /* Sunday night ends the week: two windows. */
    ck_assert_uint_eq(device->hours[5].from_minute, 6 * 1440 + 1320);
    ck_assert_uint_eq(device->hours[5].to_minute, POLICY_WEEK_MINUTES);
    ck_assert_uint_eq(device->hours[6].from_minute, 0);
    ck_assert_uint_eq(device->hours[6].to_minute, 360);
    for (size_t i = 0; i < device->n_hours; i++) {
        ck_assert_uint_eq(device->hours[i].n_uids, 2);
        ck_assert_uint_eq(device->hours[i].uids[1], 1234);
        ck_assert_uint_eq(device->hours[i].n_gids, 1);
    }
    config_free(config);
}
END_TEST

START_TEST(long_lists_need_no_long_patience) {
    char text[8192] = "[defaults]\ndevices = ";
    struct config *config;

    for (int i = 0; i < 100; i++) {
        size_t length = strlen(text);

        snprintf(text + length, sizeof(text) - length, "GPU-9e8d35e3-a134-0fdd-0e01-%012d%s", i,
                 i % 3 ? ", " : " ");
    }
    strcat(text, " ; the end of a long line, which says nothing = at all\nmax-leases = 2\n");
    config = parse(text);
    ck_assert_uint_eq(config->policy.defaults.devices.n_names, 100);
    ck_assert_str_eq(config->policy.defaults.devices.names[99],
                     "GPU-9e8d35e3-a134-0fdd-0e01-000000000099");
    ck_assert_uint_eq(config->policy.defaults.max_leases, 2);
    config_free(config);
}
END_TEST

/* The line of the mistake, and a word of what is said about it. */
START_TEST(mistakes_are_named_with_their_line) {
    static const struct {
        const char *text;
        unsigned line;
        const char *word;
    } rows[] = {
        { "x = 1\n", 1, "before the first" },
        { "[allotd]\nnonsense\n", 2, "key = value" },
        { "[allotd]\n= 3\n", 2, "key = value" },
        { "[allotd\n", 1, "[NAME]" },
        { "[allotd] x = 1\n", 1, "[NAME]" },
        { "[alotd]\n", 1, "no section [alotd]" },
        { "[]\n", 1, "no section" },
        { "[watch me]\n", 1, "takes no name" },
        { "[user]\nmax-leases = 1\n", 1, "needs a name" },
        { "[user a b]\n", 1, "more than one" },
        { "[user a,b]\n", 1, "more than one" },
        { "[device none]\nreserve = 1G\n", 1, "expected all" },
        { "[allotd]\n\n# x\ngrace = 1s\n", 4, "no key grace" },
        { "[defaults]\nmax-lease = 1\n", 2, "did you mean max-leases?" },
        { "[watch]\nmax-leases = 1\n", 2, "does not belong to [watch] but to [defaults]" },
        { "[defaults]\nreserve = 1G\n", 2, "[device NAME]" },
        { "[user root]\nquota-period = 1d\n", 2, "[accounts]" },
        { "[defaults]\nmax-leases = 1\nmax-leases = 2\n", 3, "already in line 2" },
        { "[defaults]\nmax-leases =\n", 2, "has no value" },
        { "[defaults]\nmax-leases = -1\n", 2, "0 to 1000000, or infinity" },
        { "[defaults]\nmax-leases = 1e3\n", 2, "whole number" },
        { "[defaults]\nmax-leases = 99999999999999999999\n", 2, "whole number" },
        { "[defaults]\npriority = 101\n", 2, "-100 to 100" },
        { "[defaults]\nquota-fraction = 2\n", 2, "a share" },
        { "[defaults]\nquota-bytes = 1 parsec\n", 2, "512M or 8G" },
        { "[defaults]\nquota-bytes = -1\n", 2, "512M or 8G" },
        { "[defaults]\nwait-limit = soon\n", 2, "a duration" },
        { "[defaults]\ngrowth-wait-limit = infinity\n", 2, "a finite duration" },
        { "[allotd]\ngrace-time = 2h\n", 2, "0s to 1h" },
        { "[allotd]\nmode = shut\n", 2, "open or locked" },
        { "[allotd]\nadmin-group = a b\n", 2, "name of a group" },
        { "[watch]\ndry-run = maybe\n", 2, "yes or no" },
        { "[watch]\nunmanaged = kill\n", 2, "allow, warn or terminate" },
        { "[watch]\nsamples = 0\n", 2, "1 to 10000" },
        { "[health]\ndrain-xids = 48 256\n", 2, "up to 255" },
        { "[health]\ndrain-xids = 48 all\n", 2, "up to 255" },
        { "[defaults]\ndevices = all 3\n", 2, "all, none, or a list" },
        { "[defaults]\ndevices = ,\n", 2, "all, none, or a list" },
        { "[defaults]\ndefault-mode = most\n", 2, "fraction, grow, fixed or exclusive" },
        { "[defaults]\ndefault-fraction = 40%\n", 2, "needs default-mode" },
        { "[user 5]\ndefault-bytes = 4G\n", 2, "needs default-mode" },
        { "[defaults]\ndefault-mode = fraction\n", 2, "needs default-fraction" },
        { "[defaults]\ndefault-mode = fixed\n", 2, "needs default-bytes" },
        { "[defaults]\ndefault-mode = exclusive\ndefault-fraction = 1\n", 3, "has no effect" },
        { "[defaults]\ndefault-mode = fixed\ndefault-bytes = 1G\ndefault-max = 2G\n", 4,
          "has no effect" },
        { "[defaults]\ndefault-mode = grow\ndefault-min = 3G\ndefault-max = 2G\n", 3, "more than" },
        { "[defaults]\nquota-bytes = 1G\ndefault-mode = fixed\ndefault-bytes = 2G\n", 4, "denied" },
        { "[defaults]\nquota-fraction = 10%\ndefault-mode = fraction\ndefault-fraction = 20%\n", 4,
          "denied" },
        { "[defaults]\nidle-tell = 1h\nidle-end = 30min\n", 3,
          "idle-end is a shorter time than idle-tell" },
        { "[defaults]\nidle-tell = 1h\n[user 5]\nidle-end = 30min\n", 4,
          "idle-end is a shorter time than idle-tell" },
        { "[defaults]\npriority = 5\nmax-priority = 4\n", 2, "more than max-priority" },
        { "[defaults]\nmax-priority = 4\n[user 5]\npriority = 5\n", 4, "more than max-priority" },
        { "[device 0]\nexclusive-hours = Mon 25:00-26:00\n", 2, "hours such as" },
        { "[device 0]\nexclusive-hours = Mon 09:00-09:00\n", 2, "hours such as" },
        { "[device 0]\nexclusive-hours = Mon-Fox 09:00-10:00\n", 2, "hours such as" },
        { "[device 0]\nexclusive-hours = 9-10\n", 2, "hours such as" },
        { "[device 0]\nexclusive-for = root\n", 2, "without exclusive-hours" },
        { "[device 0]\nexclusive-hours = 9:00-10:00\nexclusive-for = nobody-at-all\n", 3,
          "no such user" },
        { "[device 0]\nreserve = 0.5\n", 2, "2G or 5%" },
        { "[allotd]\ngrace-time = 1s\n  mode = open\n", 3, "remove the blank" },
        { "[defaults]\nwait-limit = 1h # fine\nchoose = pack # fine\npriority = # none\n", 4,
          "has no value" },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct config *config = NULL;
        struct config_report report = { 0 };
        struct allot_error err = { 0 };
        char place[32];

        ck_assert_msg(config_parse(&config, "test", rows[i].text, strlen(rows[i].text), &report,
                                   &err) == -EINVAL,
                      "row %zu is taken: %s", i, rows[i].text);
        ck_assert_ptr_null(config);
        ck_assert_uint_eq(report.n_errors, 1);
        snprintf(place, sizeof(place), "test:%u: ", rows[i].line);
        ck_assert_msg(strncmp(err.text, place, strlen(place)) == 0 &&
                          strstr(err.text, rows[i].word),
                      "row %zu: %s", i, err.text);
        ck_assert_msg(strstr(report.text, ": error: ") &&
                          strstr(report.text, err.text + strlen(place)),
                      "%s", report.text);
        config_report_done(&report);
    }
}
END_TEST

START_TEST(all_mistakes_are_reported_at_once) {
    static const char text[] =
        "[allotd]\ngrace = 1\nmode = x\n[nowhere]\nkey = 1\n[user no-such-1]\n";
    struct config *config = NULL;
    struct config_report report = { 0 };

    ck_assert_int_eq(config_parse(&config, "f", text, sizeof(text) - 1, &report, NULL), -EINVAL);
    ck_assert_uint_eq(report.n_errors, 3);
    ck_assert_uint_eq(report.n_warnings, 1);
    ck_assert_ptr_nonnull(strstr(report.text, "f:2: error"));
    ck_assert_ptr_nonnull(strstr(report.text, "f:3: error"));
    ck_assert_ptr_nonnull(strstr(report.text, "f:4: error"));
    ck_assert_ptr_nonnull(strstr(report.text, "f:6: warning: there is no user no-such-1"));
    config_report_done(&report);
}
END_TEST

START_TEST(a_nul_byte_and_control_characters_are_no_trap) {
    static const char text[] = "[allotd]\nmode = op\0en\n[watch]\n\033[31m = \001\n";
    struct config *config = NULL;
    struct config_report report = { 0 };

    ck_assert_int_eq(config_parse(&config, "f", text, sizeof(text) - 1, &report, NULL), -EINVAL);
    ck_assert_uint_eq(report.n_errors, 2);
    ck_assert_ptr_null(strchr(report.text, '\033'));
    config_report_done(&report);
}
END_TEST

/* ---- Files ---- */

/* Every commented key of the file that is installed says what holds anyway; its examples are fine.
 */
START_TEST(the_installed_file_tells_the_truth) {
    cleanup(fclosep) FILE *f = fopen(CONF, "r");
    char text[16384] = "", line[512];
    struct config *config, *built_in = parse("");
    bool is_example = false;
    size_t n_keys = 0;

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        size_t length = strlen(text);
        bool is_key = line[0] == '#' && line[1] >= 'a' && line[1] <= 'z' && strstr(line, " = ");

        is_example |= strncmp(line, "# A group", 9) == 0;
        if (is_example || (line[0] == '#' && !is_key))
            continue;
        n_keys += is_key;
        snprintf(text + length, sizeof(text) - length, "%s", line + is_key);
    }
    ck_assert_uint_gt(n_keys, 10);
    config = parse(text);
    ck_assert_int_eq(config->is_locked, built_in->is_locked);
    ck_assert_str_eq(config->admin_group, built_in->admin_group);
    ck_assert_uint_eq(config->retention_usec, built_in->retention_usec);
    ck_assert_uint_eq(config->quota_period_usec, built_in->quota_period_usec);
    ck_assert_uint_eq(config->policy.grace_usec, built_in->policy.grace_usec);
    ck_assert_uint_eq(config->policy.age_usec, built_in->policy.age_usec);
    ck_assert_mem_eq(&config->watch, &built_in->watch, sizeof(config->watch));
    ck_assert_mem_eq(&config->health, &built_in->health, sizeof(config->health));
    {
        struct policy_rules mine, theirs;

        policy_rules_for(&mine, &config->policy, 5, NULL, 0);
        policy_rules_for(&theirs, &built_in->policy, 5, NULL, 0);
#define X(type, member, value) ck_assert(mine.member == theirs.member);
        POLICY_RULES(X)
#undef X
        ck_assert(mine.devices.all && theirs.devices.all);
        ck_assert_int_eq(mine.amount.mode, theirs.amount.mode);
    }
    config_free(config);

    /* The examples, which are all behind one #. */
    rewind(f);
    text[0] = '\0';
    is_example = false;
    while (fgets(line, sizeof(line), f)) {
        size_t length = strlen(text);

        is_example |= strncmp(line, "# A group", 9) == 0;
        if (is_example && line[0] == '#' && line[1] != ' ')
            snprintf(text + length, sizeof(text) - length, "%s", line + 1);
    }
    config = parse(text);
    ck_assert_uint_eq(config->policy.n_devices, 1);
    config_free(config);
    config_free(built_in);
}
END_TEST

static char path[4200];

static void write_file(const char *name, const char *text) {
    char file[4400];
    FILE *f;

    snprintf(file, sizeof(file), "%s%s", path, name);
    f = fopen(file, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void make_directory(void) {
    char file[4400];

    ck_assert_ptr_nonnull(tmpdir());
    snprintf(path, sizeof(path), "%s/a.conf", tmpdir());
    snprintf(file, sizeof(file), "%s.d", path);
    ck_assert_int_eq(mkdir(file, 0700), 0);
}

START_TEST(dropins_come_after_the_file_and_in_their_order) {
    struct config *config = NULL;
    struct allot_error err = { 0 };

    make_directory();
    write_file("", "[defaults]\nmax-leases = 1\npriority = 1\nmax-waiting = 1\n");
    write_file(".d/20-b.conf", "[defaults]\nmax-leases = 20\n");
    write_file(".d/10-a.conf", "[defaults]\nmax-leases = 10\npriority = 10\n");
    write_file(".d/.30-hidden.conf", "nonsense");
    write_file(".d/30-other.conf~", "nonsense");
    ck_assert_msg(config_read(&config, path, NULL, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(config->policy.defaults.max_leases, 20);
    ck_assert_int_eq(config->policy.defaults.priority, 10);
    ck_assert_uint_eq(config->policy.defaults.max_waiting, 1);
    config_free(config);

    write_file(".d/40-c.conf", "\n[defaults]\nmax-leases = many\n");
    ck_assert_int_eq(config_read(&config, path, NULL, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, ".d/40-c.conf:3: max-leases = many"));
}
END_TEST

START_TEST(a_dropin_completes_what_the_file_began) {
    struct config *config = NULL;
    struct allot_error err = { 0 };

    make_directory();
    write_file("", "[user 5]\ndefault-fraction = 20%\n");
    ck_assert_int_eq(config_read(&config, path, NULL, &err), -EINVAL);
    write_file(".d/1.conf", "[user 5]\ndefault-mode = fraction\n");
    ck_assert_msg(config_read(&config, path, NULL, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(config->policy.sections[0].rules.amount.permyriad, 2000);
    config_free(config);
}
END_TEST

START_TEST(a_missing_file_is_reported) {
    struct config *config = NULL;
    struct config_report report = { 0 };
    struct allot_error err = { 0 };

    make_directory();
    ck_assert_int_eq(config_read(&config, path, &report, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(report.text, "a.conf: error: there is no such file"));
    config_report_done(&report);
    ck_assert_int_eq(config_check_main(path), 1);

    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(config_read(&config, path, NULL, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "is no file"));
}
END_TEST

SUITE("config", an_empty_text_gives_what_is_built_in, every_key_arrives_where_it_belongs,
      people_get_their_own_rules, what_is_required_depends_on_mode_user_and_device,
      devices_have_a_reserve_and_hours, long_lists_need_no_long_patience,
      mistakes_are_named_with_their_line, all_mistakes_are_reported_at_once,
      a_nul_byte_and_control_characters_are_no_trap, dropins_come_after_the_file_and_in_their_order,
      a_dropin_completes_what_the_file_began, a_missing_file_is_reported,
      the_installed_file_tells_the_truth)
