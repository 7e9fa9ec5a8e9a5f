/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Values of the configuration: what people write, as what the daemon uses.
 *
 * Each returns 0, or -EINVAL with `why` set to what was expected ("a duration such as 90s or
 * 1h30m"), or -ENOMEM; the result is untouched on failure. Nothing here knows files or keys.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/devices/health.h"
#include "daemon/broker/policy.h"
#include "daemon/enforce/watch.h"

int config_value_bool(bool *ret, const char *text, const char **why);

/* A whole number from `min` to `max`, in decimal. */
int config_value_number(int64_t *ret, const char *text, int64_t min, int64_t max, const char **why);

/* Xids, separated by blanks or commas, or `none`: these drain and no others. */
int config_value_xids(struct health_rules *rules, const char *text, const char **why);

/* Owners of cgroups, separated by blanks or commas, or `none`: a bit for each. */
int config_value_owners(uint32_t *ret, const char *text, const char **why);

/* `all`, `none`, or names of devices separated by blanks or commas. */
int config_value_devices(struct policy_names *ret, const char *text, const char **why);

/*
 * Windows of the week, separated by commas: `Mon-Fri 09:00-18:00, Sat 10:00-24:00`, `22:00-06:00`
 * for every day. They come out as windows that do not cross the end of the week, without users or
 * groups.
 */
int config_value_hours(struct policy_hours **ret, size_t *ret_n, const char *text,
                       const char **why);

/* One of `names`, which end with NULL: its index. */
int config_value_word(unsigned *ret, const char *text, const char *const *names);

/*
 * The number of a user or group, by name or in decimal. -ENOENT: the machine does not know the
 * name (an unknown number is fine: containers and directories have such). May take as long as the
 * machine's user database does.
 */
int config_value_user(uid_t *ret, const char *name);
int config_value_group(gid_t *ret, const char *name);

/* The next word of a list; NULL at its end. Words end at blanks and commas; *at moves on. */
const char *config_value_next(const char **at, size_t *ret_length);
