/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User: the rules of a uid, and the sums of all that it has. It is freed when it has and waits for
 * nothing.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void user_judge(struct broker *broker, struct user *user) {
    policy_rules_for(&user->rules, broker->policy, user->uid, user->gids, user->n_gids);
    broker->has_spending |= user->rules.quota_byte_seconds != UNITS_FOREVER;
}

void user_count_unmanaged(const struct broker *broker, struct user *user) {
    user->has_unmanaged = false;
    for (size_t i = 0; i < broker->n_unclaimed; i++) {
        const struct unclaimed *unclaimed = &broker->unclaimed[i];

        if (unclaimed->has_uid && unclaimed->uid == user->uid)
            user->unmanaged_bytes[unclaimed->slot] += unclaimed->bytes;
    }
    for (size_t i = 0; i < broker->n_books; i++)
        user->has_unmanaged |= user->unmanaged_bytes[i] > 0;
}

struct user *user_get(struct broker *broker, uid_t uid, gid_t gid) {
    struct user *user = map_find(&broker->users, uid);

    if (user)
        return user;
    user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    user->uid = uid;
    user->gid = gid;
    user->gids = malloc(sizeof(gid_t));
    list_init(&user->waiters);
    list_init(&user->parked);
    if (!user->gids || map_put(&broker->users, uid, user) < 0) {
        free(user->gids);
        free(user);
        return NULL;
    }
    user->gids[0] = gid;
    user->n_gids = 1;
    user_judge(broker, user);
    user_count_unmanaged(broker, user);
    return user;
}

void user_put(struct broker *broker, struct user *user) {
    if (!user || user->n_leases > 0 || user->n_waiting > 0)
        return;
    map_take(&broker->users, user->uid);
    free(user->gids);
    free(user);
}

bool user_is_spent(const struct user *user) {
    return user->rules.quota_byte_seconds != UNITS_FOREVER &&
           user->spent_byte_seconds >= user->rules.quota_byte_seconds;
}

void broker_spent_set(struct broker *broker, uid_t uid, uint64_t byte_seconds) {
    struct user *user = map_find(&broker->users, uid);

    if (user)
        user->spent_byte_seconds = byte_seconds;
}

bool broker_next_spender(const struct broker *broker, size_t *pos, uid_t *ret) {
    const struct user *user;

    while (broker->has_spending && (user = map_next(&broker->users, pos)))
        if (user->rules.quota_byte_seconds != UNITS_FOREVER) {
            *ret = user->uid;
            return true;
        }
    return false;
}

int user_set_peer(struct broker *broker, struct user *user, const struct broker_peer *peer) {
    size_t n = peer->n_gids + 1;
    gid_t *gids;

    user->spent_byte_seconds = peer->spent_byte_seconds;
    if (user->n_gids == n && user->gids[0] == peer->gid &&
        (n == 1 || memcmp(user->gids + 1, peer->gids, (n - 1) * sizeof(gid_t)) == 0))
        return 0;
    gids = malloc(n * sizeof(gid_t));
    if (!gids)
        return -ENOMEM;
    gids[0] = peer->gid;
    if (n > 1)
        memcpy(gids + 1, peer->gids, (n - 1) * sizeof(gid_t));
    free(user->gids);
    user->gids = gids;
    user->n_gids = n;
    user->gid = peer->gid;
    user_judge(broker, user);
    return 0;
}
