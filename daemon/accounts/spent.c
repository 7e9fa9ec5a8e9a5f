/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/accounts/spent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"

struct spent_slot {
    uint64_t number, byte_seconds;
};

struct spender {
    size_t n_slots, capacity;
    struct spent_slot *slots; /* owned; ascending */
};

void accounts_spent_done(struct accounts_spent *spent) {
    struct spender *spender;

    for (size_t pos = 0; (spender = map_next(&spent->spenders, &pos));) {
        free(spender->slots);
        free(spender);
    }
    map_done(&spent->spenders);
}

static struct spender *spender_get(struct accounts_spent *spent, uint32_t uid) {
    struct spender *spender = map_find(&spent->spenders, uid);

    if (spender)
        return spender;
    spender = calloc(1, sizeof(*spender));
    if (spender && map_put(&spent->spenders, uid, spender) < 0) {
        free(spender);
        return NULL;
    }
    return spender;
}

/* Room for one slot more. */
static int spender_reserve(struct spender *spender) {
    size_t capacity = MAX(2 * spender->capacity, (size_t)4);
    struct spent_slot *slots;

    if (spender->n_slots < spender->capacity)
        return 0;
    slots = realloc(spender->slots, capacity * sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    spender->slots = slots;
    spender->capacity = capacity;
    return 0;
}

int accounts_spent_add(struct accounts_spent *spent, uint32_t uid, uint64_t number,
                       uint64_t byte_seconds) {
    struct spender *spender = spender_get(spent, uid);
    struct spent_slot *slot;
    size_t at;

    if (!spender)
        return -ENOMEM;
    /* Nearly always the last one. */
    for (at = spender->n_slots; at > 0 && spender->slots[at - 1].number > number; at--)
        ;
    slot = at > 0 ? &spender->slots[at - 1] : NULL;
    if (slot && slot->number == number) {
        slot->byte_seconds = units_add(slot->byte_seconds, byte_seconds);
        return 0;
    }
    if (spender->n_slots >= ACCOUNTS_SLOTS_MAX) {
        if (at == 0)
            return 0; /* older than anything that counts */
        memmove(spender->slots, spender->slots + 1, --spender->n_slots * sizeof(struct spent_slot));
        at--;
    }
    if (spender_reserve(spender) < 0)
        return -ENOMEM;
    memmove(spender->slots + at + 1, spender->slots + at,
            (spender->n_slots - at) * sizeof(struct spent_slot));
    spender->slots[at] = (struct spent_slot){ number, byte_seconds };
    spender->n_slots++;
    return 0;
}

uint64_t accounts_spent_since(const struct accounts_spent *spent, uint32_t uid,
                              uint64_t since_usec) {
    const struct spender *spender = map_find(&spent->spenders, uid);
    unsigned __int128 total = 0;

    for (size_t i = spender ? spender->n_slots : 0; i > 0; i--) {
        const struct spent_slot *slot = &spender->slots[i - 1];
        unsigned __int128 begin = (unsigned __int128)slot->number * ACCOUNTS_SLOT_USEC;
        unsigned __int128 end = begin + ACCOUNTS_SLOT_USEC;

        if (end <= since_usec)
            break;
        if (begin >= since_usec)
            total += slot->byte_seconds;
        else
            total += slot->byte_seconds * (end - since_usec) / ACCOUNTS_SLOT_USEC;
    }
    return total > UINT64_MAX ? UINT64_MAX : (uint64_t)total;
}
