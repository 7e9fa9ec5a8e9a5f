/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Subuid: whose subordinate uids are whose, as /etc/subuid has them.
 *
 * A user may run processes as any of its subordinate uids, tens of thousands of them; they are
 * still one user, and count as that. Plain values; any thread. Embedded; zeroed memory is empty.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SUBUID_FILE       "/etc/subuid"
#define SUBUID_RANGES_MAX 65536
#define SUBUID_SIZE_MAX   ((size_t)4 << 20) /* bytes of the file that are read */

struct subuid_range {
    uid_t first, last; /* both included */
    uid_t owner;
};

struct subuid_table {
    struct subuid_range *ranges; /* owned; in the order of the file */
    size_t n_ranges;
};

/* The number of a user by its name or number. -ENOENT: there is none; else it could not be asked.
 */
typedef int (*subuid_user_fn)(uid_t *ret, const char *name);

/*
 * `NAME-OR-NUMBER:FIRST:COUNT` in each line. Lines that are no such thing, users that are not
 * known, and ranges that hold uid 0 or go beyond the last uid, are left out. So are ranges of root:
 * what runs in a container of root's is not root, and only root could have started it. -ENOMEM, or
 * what `find_user` failed with.
 */
int subuid_parse(struct subuid_table *ret, const char *text, size_t size, subuid_user_fn find_user);
void subuid_done(struct subuid_table *table);

/* Whose subordinate uid it is: of the first range that has it; false: of no user. */
bool subuid_find(const struct subuid_table *table, uid_t uid, uid_t *ret_owner);
