/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For each user we keep the time at which its whole allowance is back. Each lease taken moves that
 * time by its part of a minute; it may be at most a minute ahead of now.
 */
#include "daemon/server/grant_rate.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define MINUTE_USEC UINT64_C(60000000)
#define USERS_SWEEP 1024 /* from this many on, users that took nothing lately are forgotten */

struct grant_user {
    uid_t uid;
    uint64_t full_usec;
};

void grant_rate_done(struct grant_rate *rate) {
    struct grant_user *user;

    for (size_t pos = 0; (user = map_next(&rate->users, &pos));)
        free(user);
    map_done(&rate->users);
}

static void sweep(struct grant_rate *rate, uint64_t now_usec) {
    struct grant_user *user;

    for (size_t pos = 0; (user = map_next(&rate->users, &pos));)
        if (user->full_usec <= now_usec)
            free(map_take(&rate->users, user->uid));
}

static struct grant_user *user_get(struct grant_rate *rate, uid_t uid, uint64_t now_usec) {
    struct grant_user *user = map_find(&rate->users, uid);

    if (user)
        return user;
    if (rate->users.n >= USERS_SWEEP)
        sweep(rate, now_usec);
    user = calloc(1, sizeof(*user));
    if (user && map_put(&rate->users, uid, user) < 0) {
        free(user);
        return NULL;
    }
    if (user)
        user->uid = uid;
    return user;
}

int grant_rate_take(struct grant_rate *rate, uid_t uid, uint32_t per_minute, uint64_t now_usec,
                    uint64_t *ret_usec) {
    struct grant_user *user;
    uint64_t part_usec, full_usec;

    if (per_minute == UINT32_MAX)
        return 0;
    user = user_get(rate, uid, now_usec);
    if (!user)
        return -ENOMEM;
    part_usec = MINUTE_USEC / MAX(per_minute, 1u);
    full_usec = MAX(user->full_usec, now_usec) + part_usec;
    if (full_usec > now_usec + MINUTE_USEC) {
        *ret_usec = full_usec - now_usec - MINUTE_USEC;
        return -EAGAIN;
    }
    user->full_usec = full_usec;
    return 0;
}

void grant_rate_give(struct grant_rate *rate, uid_t uid, uint32_t per_minute) {
    struct grant_user *user = map_find(&rate->users, uid);

    if (user && per_minute != UINT32_MAX)
        user->full_usec -= MIN(user->full_usec, MINUTE_USEC / MAX(per_minute, 1u));
}
