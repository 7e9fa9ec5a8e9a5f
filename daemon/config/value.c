/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/value.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#define LIST_MAX  1024 /* words; a box has 256 devices */
#define HOURS_MAX 256  /* windows of one section */

static bool is_separator(char c) {
    return c == ' ' || c == '\t' || c == ',';
}

const char *config_value_next(const char **at, size_t *ret_length) {
    const char *word = *at;

    while (is_separator(*word))
        word++;
    *ret_length = 0;
    while (word[*ret_length] && !is_separator(word[*ret_length]))
        ++*ret_length;
    *at = word + *ret_length;
    return *ret_length ? word : NULL;
}

int config_value_bool(bool *ret, const char *text, const char **why) {
    static const char *const yes[] = { "yes", "true", "on", "1" };
    static const char *const no[] = { "no", "false", "off", "0" };

    for (size_t i = 0; i < ELEMENTSOF(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            *ret = true;
            return 0;
        }
        if (strcasecmp(text, no[i]) == 0) {
            *ret = false;
            return 0;
        }
    }
    *why = "yes or no";
    return -EINVAL;
}

int config_value_number(int64_t *ret, const char *text, int64_t min, int64_t max,
                        const char **why) {
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    char *end;
    long long value;

    *why = "a whole number";
    if (!isdigit((unsigned char)*digits))
        return -EINVAL;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno != 0 || value < min || value > max) {
        *why = "a whole number within its range";
        return -EINVAL;
    }
    *ret = value;
    return 0;
}

int config_value_word(unsigned *ret, const char *text, const char *const *names) {
    for (unsigned i = 0; names[i]; i++)
        if (strcasecmp(text, names[i]) == 0) {
            *ret = i;
            return 0;
        }
    return -EINVAL;
}

int config_value_xids(struct health_rules *rules, const char *text, const char **why) {
    struct health_rules made = *rules;
    const char *word;
    size_t length;
    int64_t xid;

    memset(made.drain_xids, 0, sizeof(made.drain_xids));
    if (strcasecmp(text, "none") != 0) {
        for (size_t n = 0; (word = config_value_next(&text, &length)); n++) {
            char number[16];

            *why = "Xid numbers up to 255, or none";
            if (length >= sizeof(number))
                return -EINVAL;
            memcpy(number, word, length);
            number[length] = '\0';
            if (config_value_number(&xid, number, 1, HEALTH_XID_MAX, &(const char *){ NULL }) < 0 ||
                health_xid_set(&made, (uint64_t)xid, true) < 0)
                return -EINVAL;
        }
    }
    *rules = made;
    return 0;
}

int config_value_owners(uint32_t *ret, const char *text, const char **why) {
    uint32_t owners = 0;
    const char *word;
    size_t length;

    if (strcasecmp(text, "none") != 0)
        while ((word = config_value_next(&text, &length))) {
            unsigned owner = CGROUP_OWNER_NONE + 1;

            while (owner < N_CGROUP_OWNERS &&
                   (strlen(cgroup_owner_name((enum cgroup_owner)owner)) != length ||
                    strncasecmp(word, cgroup_owner_name((enum cgroup_owner)owner), length) != 0))
                owner++;
            if (owner == N_CGROUP_OWNERS) {
                *why = "none, or a list of slurm, docker, podman, crio, containerd, kubernetes, "
                       "nspawn, lxc and other";
                return -EINVAL;
            }
            owners |= UINT32_C(1) << owner;
        }
    *ret = owners;
    return 0;
}

int config_value_devices(struct policy_names *ret, const char *text, const char **why) {
    struct policy_names names = { .all = false };
    const char *word;
    size_t length;

    if (strcasecmp(text, "all") == 0)
        names.all = true;
    else if (strcasecmp(text, "none") != 0) {
        while ((word = config_value_next(&text, &length))) {
            char **more = realloc(names.names, (names.n_names + 1) * sizeof(*more));

            if (more)
                names.names = more;
            if (!more || !(more[names.n_names] = strndup(word, length))) {
                policy_names_done(&names);
                return -ENOMEM;
            }
            names.n_names++;
            if (names.n_names > LIST_MAX || length >= GPUID_TEXT_SIZE ||
                strncasecmp(word, "all", MAX(length, (size_t)3)) == 0 ||
                strncasecmp(word, "none", MAX(length, (size_t)4)) == 0) {
                policy_names_done(&names);
                *why = "all, none, or a list of UUIDs, bus ids and indices";
                return -EINVAL;
            }
        }
        if (names.n_names == 0) {
            *why = "all, none, or a list of UUIDs, bus ids and indices";
            return -EINVAL;
        }
    }
    policy_names_done(ret);
    *ret = names;
    return 0;
}

/* ---- Hours ---- */

static const char *const days[] = { "mon", "tue", "wed", "thu", "fri", "sat", "sun" };

/* `Mon`, or the whole word, at `*at`. */
static bool take_day(const char **at, unsigned *ret) {
    for (unsigned i = 0; i < ELEMENTSOF(days); i++)
        if (strncasecmp(*at, days[i], 3) == 0) {
            *at += 3;
            while (isalpha((unsigned char)**at))
                ++*at;
            *ret = i;
            return true;
        }
    return false;
}

static bool take_time(const char **at, unsigned *ret) {
    unsigned part[2] = { 0, 0 };

    for (int i = 0; i < 2; i++) {
        int n = 0;

        for (; n < 2 && isdigit((unsigned char)**at); n++)
            part[i] = part[i] * 10 + (unsigned)(*(*at)++ - '0');
        if (n == 0 || (i == 1 && n != 2))
            return false;
        if (i == 0 && *(*at)++ != ':')
            return false;
    }
    if (part[0] > 24 || part[1] > 59 || (part[0] == 24 && part[1] != 0))
        return false;
    *ret = part[0] * 60 + part[1];
    return true;
}

static void skip_blanks(const char **at) {
    while (**at == ' ' || **at == '\t')
        ++*at;
}

struct windows {
    struct policy_hours *hours;
    size_t n;
};

static int add_window(struct windows *windows, unsigned from, unsigned to) {
    struct policy_hours *more;

    if (windows->n >= HOURS_MAX)
        return -EINVAL;
    more = realloc(windows->hours, (windows->n + 1) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    windows->hours = more;
    more[windows->n++] =
        (struct policy_hours){ .from_minute = (uint16_t)from, .to_minute = (uint16_t)to };
    return 0;
}

/* One window on one day; past midnight it goes on into the next one, or into Monday. */
static int add_day(struct windows *windows, unsigned day, unsigned from, unsigned to) {
    unsigned begin = day * 24 * 60 + from;
    unsigned end = day * 24 * 60 + (to > from ? to : to + 24 * 60);
    int r;

    if (end <= POLICY_WEEK_MINUTES)
        return add_window(windows, begin, end);
    r = add_window(windows, begin, POLICY_WEEK_MINUTES);
    return r < 0 ? r : add_window(windows, 0, end - POLICY_WEEK_MINUTES);
}

/* `[Mon[-Fri]] 09:00-18:00` */
static int add_one(struct windows *windows, const char **at) {
    unsigned first = 0, last = 6, from, to;
    int r;

    skip_blanks(at);
    if (take_day(at, &first)) {
        last = first;
        if (**at == '-') {
            ++*at;
            if (!take_day(at, &last))
                return -EINVAL;
        }
        skip_blanks(at);
    }
    if (!take_time(at, &from) || *(*at)++ != '-' || !take_time(at, &to) || from == to ||
        from == 24 * 60)
        return -EINVAL;
    skip_blanks(at);
    for (unsigned day = first;; day = (day + 1) % 7) {
        r = add_day(windows, day, from, to);
        if (r < 0)
            return r;
        if (day == last)
            return 0;
    }
}

int config_value_hours(struct policy_hours **ret, size_t *ret_n, const char *text,
                       const char **why) {
    struct windows windows = { 0 };
    int r;

    do {
        r = add_one(&windows, &text);
        if (r == 0 && *text && *text != ',')
            r = -EINVAL;
    } while (r == 0 && *text && *text++ == ',');
    if (r < 0) {
        free(windows.hours);
        *why = "hours such as Mon-Fri 09:00-18:00, 22:00-06:00";
        return r;
    }
    *ret = windows.hours;
    *ret_n = windows.n;
    return 0;
}

/* ---- People ---- */

static bool is_number(const char *name, int64_t *ret) {
    const char *why;

    return isdigit((unsigned char)*name) &&
           config_value_number(ret, name, 0, UINT32_MAX - 1, &why) == 0;
}

/* Of one entry of the user database, with its members: a group may have thousands. */
#define ENTRY_SIZE ((size_t)1 << 20)

/* Asks the user database for a name. */
typedef int (*find_fn)(const char *name, char *buffer, uint32_t *ret);

static int find_user(const char *name, char *buffer, uint32_t *ret) {
    struct passwd entry, *found = NULL;

    if (getpwnam_r(name, &entry, buffer, ENTRY_SIZE, &found) != 0 || !found)
        return -ENOENT;
    *ret = found->pw_uid;
    return 0;
}

static int find_group(const char *name, char *buffer, uint32_t *ret) {
    struct group entry, *found = NULL;

    if (getgrnam_r(name, &entry, buffer, ENTRY_SIZE, &found) != 0 || !found)
        return -ENOENT;
    *ret = found->gr_gid;
    return 0;
}

static int id_of(uint32_t *ret, const char *name, find_fn find) {
    cleanup(freep) char *buffer = NULL;
    int64_t number;

    if (is_number(name, &number)) {
        *ret = (uint32_t)number;
        return 0;
    }
    buffer = malloc(ENTRY_SIZE);
    return buffer ? find(name, buffer, ret) : -ENOMEM;
}

int config_value_user(uid_t *ret, const char *name) {
    return id_of(ret, name, find_user);
}

int config_value_group(gid_t *ret, const char *name) {
    return id_of(ret, name, find_group);
}
