/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * User database: what users are called, their groups, and which uids are theirs, without ever
 * waiting for a directory service.
 *
 * All of it may come over a network that does not answer, so it is looked up by a thread of its
 * own and remembered. Groups are looked up again after a while; what was known before counts until
 * the answer is there. Called from the event-loop thread alone.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define USER_DATABASE_MAX        4096 /* users that are remembered */
#define USER_DATABASE_WAIT_USEC  UINT64_C(50000)
#define USER_DATABASE_LATE_USEC  UINT64_C(2000000)   /* a lookup that takes longer hangs */
#define USER_DATABASE_FRESH_USEC UINT64_C(300000000) /* then groups are looked up again */
#define USER_DATABASE_NAME_SIZE  64                  /* longer names are cut */
#define USER_DATABASE_GROUPS_MAX 4096                /* of one user; more are not looked at */

struct user_database;

/* What the database says of a uid. */
struct user_facts {
    char name[USER_DATABASE_NAME_SIZE];
    /*
     * The user for whom this uid counts: itself where the database has it, else the owner of the
     * subordinate uid that it is, else itself again.
     */
    uid_t account;
    bool has_groups; /* the account has an entry: the groups are known */
    gid_t gid;       /* its first group */
    gid_t *gids;     /* owned: all of them */
    size_t n_gids;
};

/*
 * Look a user up: name, gid and gids; the caller frees `gids`. 0, -ENOENT: there is none, or an
 * error.
 */
typedef int (*user_database_fn)(uid_t uid, struct user_facts *ret);

/* `look_up` NULL: in the system's; `subuid_path` NULL: there are no subordinate uids. */
int user_database_new(struct user_database **ret, user_database_fn look_up,
                      const char *subuid_path);
/* Does not wait for a thread that hangs: it keeps what it uses. Accepts NULL, returns NULL. */
struct user_database *user_database_free(struct user_database *database);
DEFINE_FREEP(struct user_database, user_database_freep, user_database_free)

/*
 * The name of a user, its number where it has none, or until it is known. The first call for a user
 * waits for a moment, which is enough for a local file; once that was too short, no call waits
 * until the thread is back. Borrowed until the next call; never NULL.
 */
const char *user_database_name(struct user_database *database, uid_t uid);

/*
 * What is known of a user, without a wait; borrowed until the next call. NULL: nothing yet; the
 * thread has been asked, and user_database_fd() polls readable when it has an answer.
 */
const struct user_facts *user_database_find(struct user_database *database, uid_t uid);

/* Whether the thread hangs over a lookup: an answer is not to be waited for. */
bool user_database_is_late(struct user_database *database);

/*
 * Whose subordinate uid this is, as far as that is known now; its own where it is none. What an
 * account is for rights says user_facts.account; this is for counting, before that is known.
 */
uid_t user_database_owner(struct user_database *database, uid_t uid);

int user_database_fd(const struct user_database *database);
void user_database_dispatch(struct user_database *database); /* take the answers */
