/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Names: what users are called, without ever waiting for a directory service.
 *
 * A name may come over a network that does not answer, so it is looked up by a thread of its own,
 * once, and remembered. Until it is known a user is called by its number. Whoever asks first waits
 * for a moment, which is enough for a local file; when that was once too short, nobody waits any
 * more until the thread is back. Called from the event-loop thread alone.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define NAMES_MAX       4096 /* users who are remembered */
#define NAMES_WAIT_USEC UINT64_C(50000)

struct names;

/* Looks a user up: as getpwuid_r() does, into `text`. 0, -ENOENT: it has no name, or an error. */
typedef int (*names_fn)(uid_t uid, char *text, size_t size);

/* `look_up` NULL: in the system's user database. */
int names_new(struct names **ret, names_fn look_up);
/* Does not wait for a thread that hangs: it keeps what it uses. Accepts NULL, returns NULL. */
struct names *names_free(struct names *names);
DEFINE_FREEP(struct names, names_freep, names_free)

/* Borrowed until the next call; never NULL. */
const char *names_get(struct names *names, uid_t uid);
