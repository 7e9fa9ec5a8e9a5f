/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * User names: what users are called, without ever waiting for a directory service.
 *
 * A name may come over a network that does not answer, so it is looked up by a thread of its own,
 * once, and remembered. Until it is known a user is called by its number. The first call for a user
 * waits for a moment, which is enough for a local file; once that was too short, no call waits
 * until the thread is back. Called from the event-loop thread alone.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define USER_NAMES_MAX       4096 /* users that are remembered */
#define USER_NAMES_WAIT_USEC UINT64_C(50000)

struct user_names;

/* Looks a user up: as getpwuid_r() does, into `text`. 0, -ENOENT: it has no name, or an error. */
typedef int (*user_names_fn)(uid_t uid, char *text, size_t size);

/* `look_up` NULL: in the system's user database. */
int user_names_new(struct user_names **ret, user_names_fn look_up);
/* Does not wait for a thread that hangs: it keeps what it uses. Accepts NULL, returns NULL. */
struct user_names *user_names_free(struct user_names *user_names);
DEFINE_FREEP(struct user_names, user_names_freep, user_names_free)

/* Borrowed until the next call; never NULL. */
const char *user_names_get(struct user_names *user_names, uid_t uid);
