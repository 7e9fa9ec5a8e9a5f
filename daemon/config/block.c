/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of keys: in which sections each is allowed, what kind of value it takes, within which
 * bounds, and where it goes. For an unknown key the message suggests the one that was probably
 * meant. What depends on several keys (a default amount, the idle ladder) is checked when all files
 * are read, because a drop-in may complete what the main file began.
 */
#include "daemon/config/block.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/suggest.h"
#include "daemon/config/value.h"

#define IN(kind) (1u << BLOCK_##kind)
#define IN_RULES (IN(DEFAULTS) | IN(USER) | IN(GROUP))
#define SECOND   UINT64_C(1000000)
#define DAY      (24 * 3600 * SECOND)
#define GIB_HOUR ((UINT64_C(1) << 30) * 3600)

enum value_kind {
    VALUE_BOOL,
    VALUE_U32,
    VALUE_U64,
    VALUE_I32,
    VALUE_BYTES,
    VALUE_SHARE, /* permyriad */
    VALUE_USEC,
    VALUE_GIB_HOURS,
    VALUE_MODE,
    VALUE_CHOICE,
    VALUE_DEVICES,
    VALUE_LOCKED,
    VALUE_GROUP,
    VALUE_UNMANAGED,
    VALUE_OWNERS,
    VALUE_REQUIRE,
    VALUE_XIDS,
    VALUE_RESERVE,
    VALUE_HOURS,
    VALUE_FOR,
};

struct config_key {
    unsigned sections;
    const char *name;
    enum value_kind value;
    size_t offset;    /* in struct config, policy_rules or policy_device, by its sections */
    int64_t min, max; /* of numbers and durations (microseconds) */
    bool unlimited;   /* `infinity` may be said */
    uint32_t has;     /* bit of policy_rules.has */
};

/* clang-format off */
#define AT(member)     offsetof(struct config, member)
#define RULE(member)   offsetof(struct policy_rules, member)
#define RULE_HAS(name, value, member, min, max, unlimited)                                         \
    { IN_RULES, name, value, RULE(member), min, max, unlimited, POLICY_HAS(member) }

static const struct config_key keys[] = {
    { IN(ALLOTD), "mode", VALUE_LOCKED, AT(is_locked), 0, 0, false, 0 },
    { IN(ALLOTD), "admin-group", VALUE_GROUP, AT(admin_group), 0, 0, false, 0 },
    { IN(ALLOTD), "max-connections", VALUE_U32, AT(max_connections), 1, 1 << 20, false, 0 },
    { IN(ALLOTD), "show-programs", VALUE_BOOL, AT(show_programs), 0, 0, false, 0 },
    { IN(ALLOTD), "sample-interval", VALUE_USEC, AT(sample_usec), SECOND / 10, 3600 * SECOND, false, 0 },
    { IN(ALLOTD), "stale-time", VALUE_USEC, AT(stale_usec), SECOND / 10, 3600 * SECOND, false, 0 },
    { IN(ALLOTD), "grace-time", VALUE_USEC, AT(policy.grace_usec), 0, 3600 * SECOND, false, 0 },
    { IN(ALLOTD), "priority-age", VALUE_USEC, AT(policy.age_usec), SECOND, 30 * DAY, false, 0 },
    { IN(ALLOTD), "reserve-time", VALUE_USEC, AT(policy.reserve_usec), SECOND, 30 * DAY, false, 0 },
    { IN(ALLOTD), "end-time", VALUE_USEC, AT(policy.ending_usec), 0, DAY, false, 0 },
    { IN(ALLOTD), "recall-time", VALUE_USEC, AT(policy.recall_usec), SECOND / 100, 3600 * SECOND, false, 0 },
    { IN(ALLOTD), "release-time", VALUE_USEC, AT(policy.gone_usec), SECOND, 3600 * SECOND, false, 0 },
    { IN(ALLOTD), "idle-priority-drop", VALUE_I32, AT(policy.idle_drop), 0, 2 * POLICY_PRIORITY_MAX, false, 0 },

    { IN(WATCH), "dry-run", VALUE_BOOL, AT(watch.dry_run), 0, 0, false, 0 },
    { IN(WATCH), "tolerance-bytes", VALUE_BYTES, AT(watch.tolerance_bytes), 0, INT64_MAX, false, 0 },
    { IN(WATCH), "tolerance-fraction", VALUE_SHARE, AT(watch.tolerance_permyriad), 0, 10000, false, 0 },
    { IN(WATCH), "samples", VALUE_U32, AT(watch.n_samples), 1, 10000, false, 0 },
    { IN(WATCH), "step-time", VALUE_USEC, AT(watch.step_usec), 0, DAY, false, 0 },
    { IN(WATCH), "unmanaged", VALUE_UNMANAGED, AT(watch.unmanaged), 0, 0, false, 0 },
    { IN(WATCH), "terminate-also", VALUE_OWNERS, AT(watch.terminate_also), 0, 0, false, 0 },

    { IN(HEALTH), "drain-xids", VALUE_XIDS, AT(health), 0, 0, false, 0 },
    { IN(HEALTH), "max-uncorrected-ecc", VALUE_U64, AT(health.max_uncorrected), 0, INT64_MAX, true, 0 },
    { IN(HEALTH), "drain-failed-rows", VALUE_BOOL, AT(health.drain_rows_failed), 0, 0, false, 0 },
    { IN(HEALTH), "drain-unavailable", VALUE_BOOL, AT(health.drain_unavailable), 0, 0, false, 0 },
    { IN(HEALTH), "resume-on-return", VALUE_BOOL, AT(health.resume_on_return), 0, 0, false, 0 },
    { IN(HEALTH), "recover-after", VALUE_USEC, AT(health.recover_usec), 0, 365 * DAY, false, 0 },

    { IN(ACCOUNTS), "retention", VALUE_USEC, AT(retention_usec), DAY, 100 * 365 * DAY, true, 0 },
    { IN(ACCOUNTS), "quota-period", VALUE_USEC, AT(quota_period_usec), 3600 * SECOND, 366 * DAY, false, 0 },

    RULE_HAS("devices", VALUE_DEVICES, devices, 0, 0, false),
    RULE_HAS("quota-bytes", VALUE_BYTES, quota_bytes, 0, INT64_MAX, true),
    RULE_HAS("quota-fraction", VALUE_SHARE, quota_permyriad, 0, 10000, false),
    RULE_HAS("quota-devices", VALUE_U32, quota_devices, 0, 100000, true),
    RULE_HAS("quota-gib-hours", VALUE_GIB_HOURS, quota_byte_seconds, 0, 1000000, true),
    RULE_HAS("small-leases", VALUE_BOOL, small_leases, 0, 0, false),
    RULE_HAS("max-leases", VALUE_U32, max_leases, 0, 1000000, true),
    RULE_HAS("grants-per-minute", VALUE_U32, grants_per_minute, 1, 1000000, true),
    RULE_HAS("max-waiting", VALUE_U32, max_waiting, 0, 1000000, true),
    RULE_HAS("priority", VALUE_I32, priority, -POLICY_PRIORITY_MAX, POLICY_PRIORITY_MAX, false),
    RULE_HAS("max-priority", VALUE_I32, priority_max, -POLICY_PRIORITY_MAX, POLICY_PRIORITY_MAX, false),
    RULE_HAS("choose", VALUE_CHOICE, choose, 0, 0, false),
    RULE_HAS("require", VALUE_REQUIRE, require, 0, 0, false),
    RULE_HAS("wait-limit", VALUE_USEC, wait_usec, 0, 10 * 365 * DAY, true),
    RULE_HAS("growth-wait-limit", VALUE_USEC, grow_wait_usec, 0, 365 * DAY, false),
    RULE_HAS("lease-limit", VALUE_USEC, lease_usec, SECOND, 10 * 365 * DAY, true),
    RULE_HAS("idle-tell", VALUE_USEC, idle_tell_usec, SECOND, 10 * 365 * DAY, true),
    RULE_HAS("idle-lower", VALUE_USEC, idle_drop_usec, SECOND, 10 * 365 * DAY, true),
    RULE_HAS("idle-end", VALUE_USEC, idle_end_usec, SECOND, 10 * 365 * DAY, true),
    { IN_RULES, "default-mode", VALUE_MODE, RULE(amount.mode), 0, 0, false, POLICY_HAS(amount) },
    { IN_RULES, "default-fraction", VALUE_SHARE, RULE(amount.permyriad), 1, 10000, false, 0 },
    { IN_RULES, "default-bytes", VALUE_BYTES, RULE(amount.bytes), 1, INT64_MAX, false, 0 },
    { IN_RULES, "default-min", VALUE_BYTES, RULE(amount.min_bytes), 0, INT64_MAX, false, 0 },
    { IN_RULES, "default-max", VALUE_BYTES, RULE(amount.max_bytes), 1, INT64_MAX, false, 0 },

    { IN(DEVICE), "reserve", VALUE_RESERVE, 0, 0, 0, false, 0 },
    { IN(DEVICE), "exclusive-hours", VALUE_HOURS, 0, 0, 0, false, 0 },
    { IN(DEVICE), "require", VALUE_REQUIRE, 0, 0, 0, false, 0 },
    { IN(DEVICE), "exclusive-for", VALUE_FOR, 0, 0, 0, false, 0 },
};
/* clang-format on */
_Static_assert(ELEMENTSOF(keys) <= BLOCK_KEYS_MAX, "more room for places is needed");

static const char *const unmanageds[] = { "allow", "warn", "terminate", NULL };
static const char *const lockeds[] = { "open", "locked", NULL };

const char *block_kind_name(enum block_kind kind) {
    static const char *const names[BLOCK_KINDS] = { "allotd",   "watch", "health", "accounts",
                                                    "defaults", "user",  "group",  "device" };

    return names[kind];
}

const char *block_label(const struct block *block, char text[static BLOCK_LABEL_SIZE]) {
    char quoted[BLOCK_QUOTE_SIZE];

    if (block->name)
        snprintf(text, BLOCK_LABEL_SIZE, "[%s %s]", block_kind_name(block->kind),
                 block_quote(block->name, quoted));
    else
        snprintf(text, BLOCK_LABEL_SIZE, "[%s]", block_kind_name(block->kind));
    return text;
}

const char *block_quote(const char *value, char text[static BLOCK_QUOTE_SIZE]) {
    size_t n = 0;

    for (; *value && n < BLOCK_QUOTE_SIZE - 4; value++)
        text[n++] = (unsigned char)*value < ' ' || *value == 0x7f ? '?' : *value;
    strcpy(text + n, *value ? "..." : "");
    return text;
}

static void device_done(struct policy_device *device) {
    policy_names_done(&device->devices);
    for (size_t i = 0; i < device->n_hours; i++) {
        free(device->hours[i].uids);
        free(device->hours[i].gids);
    }
    free(device->hours);
}

struct block *block_free(struct block *block) {
    if (!block)
        return NULL;
    list_remove(&block->in_blocks);
    policy_names_done(&block->rules.devices);
    device_done(&block->device);
    free(block->exclusive_for);
    free(block->name);
    free(block);
    return NULL;
}

/* ---- Names ---- */

static size_t key_find(unsigned sections, const char *name) {
    for (size_t i = 0; i < ELEMENTSOF(keys); i++)
        if ((keys[i].sections & sections) && strcmp(keys[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

static void find_unknown(const struct block *block, const char *name, struct config_place place,
                         struct config_findings *findings) {
    size_t elsewhere = key_find(~0u, name);
    char quoted[BLOCK_QUOTE_SIZE], label[BLOCK_LABEL_SIZE];
    struct suggest suggest = suggest_begin(name);

    block_quote(name, quoted);
    block_label(block, label);
    if (elsewhere != SIZE_MAX) {
        enum block_kind kind = 0;

        while (!(keys[elsewhere].sections & 1u << kind))
            kind++;
        config_find(findings, place, true, "%s does not belong to %s but to [%s%s]", quoted, label,
                    block_kind_name(kind),
                    kind == BLOCK_DEFAULTS && key_find(IN(DEVICE), name) != SIZE_MAX
                        ? "], [user NAME], [group NAME] or [device NAME"
                    : kind == BLOCK_DEFAULTS ? "], [user NAME] or [group NAME"
                    : kind == BLOCK_DEVICE   ? " NAME"
                                             : "");
        return;
    }
    for (size_t i = 0; i < ELEMENTSOF(keys); i++)
        if (keys[i].sections & 1u << block->kind)
            suggest_try(&suggest, keys[i].name);
    if (suggest.word)
        config_find(findings, place, true, "%s has no key %s: did you mean %s?", label, quoted,
                    suggest.word);
    else
        config_find(findings, place, true, "%s has no key %s", label, quoted);
}

struct config_place block_place(const struct block *block, const char *key) {
    size_t i = key_find(1u << block->kind, key);

    return i == SIZE_MAX ? (struct config_place){ NULL, 0 } : block->keys[i];
}

/* ---- Values ---- */

static int set_scalar(const struct config_key *key, void *target, const char *text,
                      const char **why) {
    uint64_t wide;
    uint32_t narrow;
    int64_t number;
    bool is_infinite = key->unlimited && strcmp(text, "infinity") == 0;

    switch (key->value) {
    case VALUE_U32:
    case VALUE_U64:
    case VALUE_I32:
    case VALUE_GIB_HOURS:
        if (is_infinite)
            number = -1; /* all bits: no limit */
        else if (config_value_number(&number, text, key->min, key->max, why) < 0)
            return -EINVAL;
        else if (key->value == VALUE_GIB_HOURS)
            number *= (int64_t)GIB_HOUR;
        if (key->value == VALUE_U32)
            *(uint32_t *)target = (uint32_t)number;
        else if (key->value == VALUE_I32)
            *(int32_t *)target = (int32_t)number;
        else
            *(uint64_t *)target = (uint64_t)number;
        return 0;
    case VALUE_BYTES:
        *why = "an amount of memory such as 512M or 8G";
        if (is_infinite)
            wide = UNITS_FOREVER;
        else if (units_parse_bytes(&wide, text) < 0 || wide < (uint64_t)key->min ||
                 wide > (uint64_t)key->max)
            return -EINVAL;
        *(uint64_t *)target = wide;
        return 0;
    case VALUE_SHARE:
        *why = "a share such as 40% or 0.4";
        if (units_parse_permyriad(&narrow, text) < 0 || narrow < key->min || narrow > key->max)
            return -EINVAL;
        *(uint32_t *)target = narrow;
        return 0;
    default: /* VALUE_USEC */
        *why = key->unlimited ? "a duration such as 90s, 1h30m or infinity"
                              : "a finite duration such as 90s or 1h30m";
        if (units_parse_usec(&wide, text) < 0 || (wide == UNITS_FOREVER && !key->unlimited))
            return -EINVAL;
        if (wide != UNITS_FOREVER && (wide < (uint64_t)key->min || wide > (uint64_t)key->max)) {
            *why = "a duration within its range";
            return -EINVAL;
        }
        *(uint64_t *)target = wide;
        return 0;
    }
}

static int set_word(const char *const *names, unsigned *ret, const char *text, const char *expected,
                    const char **why) {
    *why = expected;
    return config_value_word(ret, text, names);
}

static int set_require(unsigned *ret, const char *text, const char **why) {
    return set_word(policy_require_words, ret, text, "driver, scope, guard or none", why);
}

static int set_device(struct block *block, const struct config_key *key, const char *text,
                      const char **why) {
    struct policy_hours *hours;
    size_t n;
    int r;

    if (key->value == VALUE_RESERVE) {
        *why = "an amount such as 2G or 5%";
        if (units_parse_amount(&block->device.reserve, text) < 0)
            return -EINVAL;
        block->device.has_reserve = true;
        return 0;
    }
    if (key->value == VALUE_REQUIRE) {
        unsigned word;

        if (set_require(&word, text, why) < 0)
            return -EINVAL;
        block->device.has_require = true;
        block->device.require = (enum require)word;
        return 0;
    }
    if (key->value == VALUE_FOR) {
        char *copy = strdup(text);

        if (!copy)
            return -ENOMEM;
        free(block->exclusive_for);
        block->exclusive_for = copy;
        return 0;
    }
    r = config_value_hours(&hours, &n, text, why);
    if (r < 0)
        return r;
    free(block->device.hours);
    block->device.hours = hours;
    block->device.n_hours = n;
    return 0;
}

static int set(struct block *block, struct config *config, const struct config_key *key,
               const char *text, const char **why) {
    void *target =
        (char *)(key->sections & IN_RULES ? (void *)&block->rules : (void *)config) + key->offset;
    unsigned word;
    int r;

    switch (key->value) {
    case VALUE_BOOL:
        return config_value_bool(target, text, why);
    case VALUE_MODE:
        r = set_word(lease_mode_words, &word, text, LEASE_MODES_TEXT, why);
        if (r == 0)
            *(enum lease_mode *)target = (enum lease_mode)(word + 1);
        return r;
    case VALUE_CHOICE:
        r = set_word(choice_words, &word, text, CHOICES_TEXT, why);
        if (r == 0)
            *(enum choice *)target = (enum choice)(word + 1);
        return r;
    case VALUE_UNMANAGED:
        r = set_word(unmanageds, &word, text, "allow, warn or terminate", why);
        if (r == 0)
            *(enum watch_unmanaged *)target = (enum watch_unmanaged)word;
        return r;
    case VALUE_LOCKED:
        r = set_word(lockeds, &word, text, "open or locked", why);
        if (r == 0)
            *(bool *)target = word == 1;
        return r;
    case VALUE_REQUIRE:
        if (block->kind == BLOCK_DEVICE)
            return set_device(block, key, text, why);
        r = set_require(&word, text, why);
        if (r == 0)
            *(uint32_t *)target = word;
        return r;
    case VALUE_OWNERS:
        return config_value_owners(target, text, why);
    case VALUE_DEVICES:
        return config_value_devices(target, text, why);
    case VALUE_XIDS:
        return config_value_xids(target, text, why);
    case VALUE_GROUP:
        *why = "the name of a group";
        if (strlen(text) >= CONFIG_NAME_SIZE || strpbrk(text, " \t,"))
            return -EINVAL;
        strcpy(target, text);
        return 0;
    case VALUE_RESERVE:
    case VALUE_HOURS:
    case VALUE_FOR:
        return set_device(block, key, text, why);
    default:
        return set_scalar(key, target, text, why);
    }
}

/* The bounds of a number, for people. */
static void bounds_text(const struct config_key *key, char *text, size_t size) {
    char from[UNITS_TEXT_SIZE], to[UNITS_TEXT_SIZE];

    text[0] = '\0';
    if (key->value == VALUE_USEC)
        snprintf(text, size, " (%s to %s%s)", units_format_usec((uint64_t)key->min, from),
                 units_format_usec((uint64_t)key->max, to), key->unlimited ? ", or infinity" : "");
    else if (key->value == VALUE_U32 || key->value == VALUE_I32 || key->value == VALUE_GIB_HOURS)
        snprintf(text, size, " (%lld to %lld%s)", (long long)key->min, (long long)key->max,
                 key->unlimited ? ", or infinity" : "");
}

void block_set(struct block *block, struct config *config, const char *name, const char *value,
               struct config_place place, struct config_findings *findings) {
    size_t i = key_find(1u << block->kind, name);
    char quoted[BLOCK_QUOTE_SIZE], bounds[80];
    struct config_place *before;
    const char *why = "something else";
    int r;

    if (i == SIZE_MAX) {
        find_unknown(block, name, place, findings);
        return;
    }
    before = &block->keys[i];
    if (before->file == place.file && before->file) {
        config_find(findings, place, true, "%s is already in line %u: remove one of them", name,
                    before->line);
        return;
    }
    if (!*value) {
        config_find(findings, place, true, "%s has no value", name);
        return;
    }
    r = set(block, config, &keys[i], value, &why);
    if (r == -ENOMEM) {
        findings->is_out_of_memory = true;
        return;
    }
    if (r < 0) {
        bounds_text(&keys[i], bounds, sizeof(bounds));
        config_find(findings, place, true, "%s = %s: expected %s%s", name,
                    block_quote(value, quoted), why, bounds);
        return;
    }
    block->rules.has |= keys[i].has;
    *before = place;
}

/* ---- What belongs together ---- */

static bool is_given(const struct block *block, const char *key) {
    return block_place(block, key).file != NULL;
}

/* A default amount is one thing: the mode says which of the other keys it needs and allows. */
static void check_amount(const struct block *block, struct config_findings *findings) {
    static const struct {
        const char *key;
        unsigned modes; /* that bear it */
        unsigned needs; /* that cannot be without */
    } rows[] = {
        { "default-fraction", 1u << LEASE_FRACTION | 1u << LEASE_GROW, 1u << LEASE_FRACTION },
        { "default-bytes", 1u << LEASE_FIXED, 1u << LEASE_FIXED },
        { "default-min", 1u << LEASE_GROW, 0 },
        { "default-max", 1u << LEASE_GROW, 0 },
    };
    struct config_place mode_at = block_place(block, "default-mode");
    char label[BLOCK_LABEL_SIZE];
    unsigned mode = 1u << block->rules.amount.mode;

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct config_place at = block_place(block, rows[i].key);

        if (at.file && !mode_at.file)
            config_find(findings, at, true, "%s needs default-mode, which %s does not set",
                        rows[i].key, block_label(block, label));
        else if (at.file && !(rows[i].modes & mode))
            config_find(findings, at, true, "%s has no effect with default-mode = %s", rows[i].key,
                        words_name(lease_mode_words, block->rules.amount.mode));
        else if (!at.file && mode_at.file && (rows[i].needs & mode))
            config_find(findings, mode_at, true, "default-mode = %s needs %s",
                        words_name(lease_mode_words, block->rules.amount.mode), rows[i].key);
    }
    if (is_given(block, "default-min") && is_given(block, "default-max") &&
        block->rules.amount.min_bytes > block->rules.amount.max_bytes)
        config_find(findings, block_place(block, "default-min"), true,
                    "default-min is more than default-max");
}

/* Find quotas that the default amount of the same section can never meet. */
static void check_quota(const struct block *block, struct config_findings *findings) {
    const struct policy_rules *rules = &block->rules;

    if (is_given(block, "quota-bytes")) {
        if (is_given(block, "default-bytes") && rules->amount.bytes > rules->quota_bytes)
            config_find(findings, block_place(block, "default-bytes"), true,
                        "default-bytes is more than quota-bytes: every default request would be "
                        "denied");
        if (is_given(block, "default-min") && rules->amount.min_bytes > rules->quota_bytes)
            config_find(findings, block_place(block, "default-min"), true,
                        "default-min is more than quota-bytes: every default request would be "
                        "denied");
    }
    if (is_given(block, "quota-fraction") && is_given(block, "default-fraction") &&
        is_given(block, "default-mode") && rules->amount.mode == LEASE_FRACTION &&
        rules->amount.permyriad > rules->quota_permyriad)
        config_find(findings, block_place(block, "default-fraction"), true,
                    "default-fraction is more than quota-fraction: every default request would be "
                    "denied");
}

static void check_ladder(const struct block *block, const struct block *defaults,
                         struct config_findings *findings) {
    static const char *const steps[] = { "idle-tell", "idle-lower", "idle-end" };
    uint64_t last = 0;
    const char *last_name = NULL;

    for (size_t i = 0; i < ELEMENTSOF(steps); i++) {
        const struct block *from = is_given(block, steps[i]) ? block : defaults;
        struct config_place at = from ? block_place(from, steps[i]) : (struct config_place){ 0 };
        uint64_t usec;

        if (!at.file)
            continue;
        usec = i == 0   ? from->rules.idle_tell_usec
               : i == 1 ? from->rules.idle_drop_usec
                        : from->rules.idle_end_usec;
        if (last_name && usec < last)
            config_find(findings, from == block ? at : block->at, true,
                        "%s is a shorter time than %s, which comes before it", steps[i], last_name);
        last = usec;
        last_name = steps[i];
    }
}

static void check_priority(const struct block *block, const struct block *defaults,
                           struct config_findings *findings) {
    const struct block *upper = is_given(block, "max-priority") ? block : defaults;
    const struct block *own = is_given(block, "priority") ? block : defaults;

    if (upper && own && is_given(upper, "max-priority") && is_given(own, "priority") &&
        (upper == block || own == block) && own->rules.priority > upper->rules.priority_max)
        config_find(findings,
                    own == block ? block_place(block, "priority")
                                 : block_place(block, "max-priority"),
                    true, "priority %d is more than max-priority %d", own->rules.priority,
                    upper->rules.priority_max);
}

static int add_person(struct policy_hours *hours, const char *name, bool is_group, uint32_t id) {
    if (is_group) {
        gid_t *more = realloc(hours->gids, (hours->n_gids + 1) * sizeof(*more));

        if (!more)
            return -ENOMEM;
        hours->gids = more;
        more[hours->n_gids++] = id;
    } else {
        uid_t *more = realloc(hours->uids, (hours->n_uids + 1) * sizeof(*more));

        if (!more)
            return -ENOMEM;
        hours->uids = more;
        more[hours->n_uids++] = id;
    }
    return 0;
}

/* `exclusive-for` to each window: users, and groups with an @. */
static void check_people(struct block *block, struct config_findings *findings) {
    struct config_place at = block_place(block, "exclusive-for");
    const char *rest = block->exclusive_for, *word;
    size_t length, n = 0;

    if (!rest)
        return;
    if (block->device.n_hours == 0) {
        config_find(findings, at, true, "exclusive-for has no effect without exclusive-hours");
        return;
    }
    while ((word = config_value_next(&rest, &length))) {
        bool is_group = *word == '@';
        char name[256], quoted[BLOCK_QUOTE_SIZE];
        uint32_t id = 0;
        int r;

        snprintf(name, sizeof(name), "%.*s", (int)MIN(length, sizeof(name) - 1), word);
        r = is_group ? config_value_group(&id, name + 1) : config_value_user(&id, name);
        findings->is_out_of_memory |= r == -ENOMEM;
        if (r < 0) {
            config_find(findings, at, true, "%s: there is no such %s",
                        block_quote(is_group ? name + 1 : name, quoted),
                        is_group ? "group" : "user");
            continue;
        }
        if (n++ >= 256) {
            config_find(findings, at, true, "exclusive-for names more than 256: use a group");
            return;
        }
        for (size_t i = 0; i < block->device.n_hours; i++)
            if (add_person(&block->device.hours[i], name, is_group, id) < 0)
                findings->is_out_of_memory = true;
    }
}

void block_check(struct block *block, const struct block *defaults,
                 struct config_findings *findings) {
    if (block->kind == BLOCK_DEVICE) {
        check_people(block, findings);
        return;
    }
    if (!(IN_RULES & 1u << block->kind))
        return;
    check_amount(block, findings);
    check_quota(block, findings);
    check_ladder(block, defaults == block ? NULL : defaults, findings);
    check_priority(block, defaults == block ? NULL : defaults, findings);
}
