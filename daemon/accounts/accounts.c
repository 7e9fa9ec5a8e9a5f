/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two sides. The event loop keeps sums: what each user holds on each device now, and what that
 * amounts to since it was last handed over; a change of a charge is a multiplication and an
 * addition. Once a second the sums become notes, and all notes go to the thread, which writes them
 * in one transaction and answers questions. While the thread is behind (a full or slow disk), sums
 * stay sums, which cost nothing however long that takes. Only single lines (leases, actions, Xids)
 * pile up, and a user that has too many of them gets no more.
 *
 *     event loop:  levels → sums, tallies ─tick→ notes ═ queue ═ thread: database
 *                  answers ←─────────── eventfd ═════════╝
 */
#include "daemon/accounts/accounts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "daemon/accounts/db.h"
#include "daemon/accounts/spent.h"
#include "daemon/accounts/writer.h"

#define SECOND       UINT64_C(1000000)
#define ORPHANS_USEC (120 * SECOND) /* every lease is back or gone by then */
#define HOUSE_USEC   (3600 * SECOND)

/* Byte·microseconds. Aligned to 8 like everything else here: a list head is not aligned to 16. */
typedef unsigned __int128 product __attribute__((aligned(8)));

/* The sums of a user on a device. Times come from the caller's clocks. */
struct account_sum {
    struct list in_sums;
    uint32_t uid, gid;
    struct gpuid device;
    uint32_t n_levels;
    uint64_t held_bytes, guaranteed_bytes, charged_bytes; /* now */
    uint64_t since_usec;                                  /* counted up to here */
    product held, guaranteed, charged;                    /* not handed over */
    uint64_t first_usec;                                  /* real time of the first of them */
};

/* A lease on a device. */
struct level {
    struct list in_lease;
    struct gpuid device;
    struct account_sum *sum;
    uint64_t held_bytes, guaranteed_bytes;
};

struct levels {
    uint64_t lease;
    struct list levels;
};

/* Verdicts of a user, or on a device. */
struct tally {
    struct list in_tallies;
    bool has_device;
    uint32_t uid, gid;
    struct gpuid device;
    uint64_t first_usec;
    uint64_t numbers[NOTE_NUMBERS];
};

struct accounts {
    struct map leases; /* id → struct levels */
    struct list sums, tallies;
    struct list fresh;  /* notes not handed over */
    struct list shares; /* the same, to be written after the leases that they belong to */
    size_t n_fresh;
    uint64_t n_lost; /* notes that could not be made */
    struct accounts_spent spent;
    uint64_t window_usec, retention_usec;
    uint64_t now_usec, real_usec; /* of the last tick; now_usec 0: there was none */
    uint64_t house_at_usec;       /* when to remove what is old */
    struct accounts_writer *writer;
};

/* The lease has ended: it is on no device any more. */
static void levels_drop(struct accounts *accounts, uint64_t lease) {
    struct levels *levels = map_take(&accounts->leases, lease);
    struct level *level, *following;

    if (!levels)
        return;
    list_foreach_safe (level, following, &levels->levels, in_lease) {
        level->sum->n_levels--;
        free(level);
    }
    free(levels);
}

/* ---- Notes ---- */

static struct accounts_note *note_new(struct accounts *accounts, enum accounts_note_kind kind,
                                      uint64_t real_usec) {
    struct accounts_note *note = calloc(1, sizeof(*note));

    if (!note) {
        accounts->n_lost++;
        return NULL;
    }
    note->kind = kind;
    note->at_usec = note->first_usec = real_usec;
    list_append(kind == NOTE_SHARE ? &accounts->shares : &accounts->fresh, &note->in_queue);
    accounts->n_fresh++;
    return note;
}

static void set_text(char *ret, size_t size, const char *text) {
    snprintf(ret, size, "%s", text ? text : "");
}

void accounts_begin(struct accounts *accounts, const struct accounts_lease *lease,
                    uint64_t real_usec) {
    struct accounts_note *note = note_new(accounts, NOTE_BEGIN, real_usec);

    if (!note)
        return;
    note->lease = lease->lease;
    note->uid = lease->uid;
    note->gid = lease->gid;
    set_text(note->text, sizeof(note->text), lease->name);
    set_text(note->what, sizeof(note->what), lease->mode);
}

void accounts_end(struct accounts *accounts, uint64_t lease, uid_t uid, const char *reason,
                  uint64_t real_usec) {
    struct accounts_note *note = note_new(accounts, NOTE_END, real_usec);

    levels_drop(accounts, lease);
    if (!note)
        return;
    note->lease = lease;
    note->uid = uid;
    set_text(note->text, sizeof(note->text), reason);
}

void accounts_action(struct accounts *accounts, const struct accounts_action_note *action,
                     uint64_t real_usec) {
    struct accounts_note *note = note_new(accounts, NOTE_ACTION, real_usec);

    if (!note)
        return;
    note->lease = action->lease;
    note->pid = action->pid;
    note->uid = action->uid;
    note->gid = action->uid == ACCOUNTS_NOBODY ? ACCOUNTS_NOBODY : action->gid;
    note->is_dry_run = action->is_dry_run;
    note->has_device = action->device != NULL;
    if (action->device)
        note->device = *action->device;
    set_text(note->what, sizeof(note->what), action->what);
    set_text(note->text, sizeof(note->text), action->reason);
}

void accounts_xid(struct accounts *accounts, const struct gpuid *device, uint64_t code,
                  const char *text, uint64_t real_usec) {
    struct accounts_note *note = note_new(accounts, NOTE_XID, real_usec);

    if (!note)
        return;
    note->uid = note->gid = ACCOUNTS_NOBODY;
    note->has_device = true;
    note->device = *device;
    note->numbers[0] = code;
    set_text(note->text, sizeof(note->text), text);
}

/* ---- Charges ---- */

static struct account_sum *sum_get(struct accounts *accounts, uint32_t uid, uint32_t gid,
                                   const struct gpuid *device, uint64_t now_usec) {
    struct account_sum *sum;

    list_foreach (sum, &accounts->sums, in_sums)
        if (sum->uid == uid && sum->gid == gid && gpuid_equal(&sum->device, device))
            return sum;
    sum = calloc(1, sizeof(*sum));
    if (!sum)
        return NULL;
    sum->uid = uid;
    sum->gid = gid;
    sum->device = *device;
    sum->since_usec = now_usec;
    list_append(&accounts->sums, &sum->in_sums);
    return sum;
}

/* Count what is held up to now. */
static void sum_advance(struct accounts *accounts, struct account_sum *sum, uint64_t now_usec) {
    uint64_t passed = now_usec > sum->since_usec ? now_usec - sum->since_usec : 0;

    if (passed == 0)
        return;
    if (sum->charged_bytes > 0 && sum->first_usec == 0) {
        /* The last tick says what time it was; before the first tick, the start does. */
        uint64_t after_tick = accounts->now_usec > 0 && sum->since_usec > accounts->now_usec
                                  ? sum->since_usec - accounts->now_usec
                                  : 0;

        sum->first_usec = MAX(accounts->real_usec + after_tick, UINT64_C(1));
    }
    sum->held += (product)sum->held_bytes * passed;
    sum->guaranteed += (product)sum->guaranteed_bytes * passed;
    sum->charged += (product)sum->charged_bytes * passed;
    sum->since_usec = now_usec;
}

static struct levels *levels_get(struct accounts *accounts, uint64_t lease) {
    struct levels *levels = map_find(&accounts->leases, lease);

    if (levels)
        return levels;
    levels = calloc(1, sizeof(*levels));
    if (!levels)
        return NULL;
    levels->lease = lease;
    list_init(&levels->levels);
    if (map_put(&accounts->leases, lease, levels) < 0) {
        free(levels);
        return NULL;
    }
    return levels;
}

static struct level *level_find(struct levels *levels, const struct gpuid *device) {
    struct level *level;

    list_foreach (level, &levels->levels, in_lease)
        if (gpuid_equal(&level->device, device))
            return level;
    return NULL;
}

static struct level *level_new(struct accounts *accounts, struct levels *levels, uint32_t uid,
                               uint32_t gid, const struct gpuid *device, uint64_t now_usec) {
    struct account_sum *sum = sum_get(accounts, uid, gid, device, now_usec);
    struct level *level = sum ? calloc(1, sizeof(*level)) : NULL;
    struct accounts_note *note;

    if (!level)
        return NULL;
    level->device = *device;
    level->sum = sum;
    sum->n_levels++;
    list_append(&levels->levels, &level->in_lease);
    note = note_new(accounts, NOTE_SHARE, accounts->real_usec);
    if (note) {
        note->lease = levels->lease;
        note->uid = uid;
        note->has_device = true;
        note->device = *device;
    }
    return level;
}

void accounts_charge(struct accounts *accounts, uint64_t lease, uid_t uid, gid_t gid,
                     const struct gpuid *device, uint64_t held_bytes, uint64_t guaranteed_bytes,
                     uint64_t now_usec) {
    bool is_gone = held_bytes == 0 && guaranteed_bytes == 0;
    struct levels *levels =
        is_gone ? map_find(&accounts->leases, lease) : levels_get(accounts, lease);
    struct level *level = levels ? level_find(levels, device) : NULL;
    struct account_sum *sum;

    if (!level && is_gone)
        return;
    if (!level && levels)
        level = level_new(accounts, levels, uid, gid, device, now_usec);
    if (!level) {
        accounts->n_lost++;
        return;
    }

    sum = level->sum;
    sum_advance(accounts, sum, now_usec);
    sum->held_bytes += held_bytes - level->held_bytes;
    sum->guaranteed_bytes += guaranteed_bytes - level->guaranteed_bytes;
    sum->charged_bytes += MAX(held_bytes, guaranteed_bytes);
    sum->charged_bytes -= MAX(level->held_bytes, level->guaranteed_bytes);
    level->held_bytes = held_bytes;
    level->guaranteed_bytes = guaranteed_bytes;
    /* A level that is 0 stays until the lease ends, so that coming and going adds no line. */
}

/* ---- Verdicts ---- */

static struct tally *tally_get(struct accounts *accounts, uint32_t uid, uint32_t gid,
                               const struct gpuid *device, uint64_t real_usec) {
    struct tally *tally;

    list_foreach (tally, &accounts->tallies, in_tallies)
        if (device ? tally->has_device && gpuid_equal(&tally->device, device)
                   : !tally->has_device && tally->uid == uid && tally->gid == gid)
            return tally;
    tally = calloc(1, sizeof(*tally));
    if (!tally) {
        accounts->n_lost++;
        return NULL;
    }
    tally->uid = device ? ACCOUNTS_NOBODY : uid;
    tally->gid = device ? ACCOUNTS_NOBODY : gid;
    tally->has_device = device != NULL;
    if (device)
        tally->device = *device;
    tally->first_usec = real_usec;
    list_append(&accounts->tallies, &tally->in_tallies);
    return tally;
}

static void tally_add(struct tally *tally, const struct accounts_verdict_note *note) {
    static const unsigned kinds[] = { [ACCOUNTS_GRANTED] = TALLY_GRANTED,
                                      [ACCOUNTS_DENIED] = TALLY_DENIED,
                                      [ACCOUNTS_TIMEOUT] = TALLY_TIMEOUT,
                                      [ACCOUNTS_CANCELLED] = TALLY_CANCELLED };

    if (!tally)
        return;
    tally->numbers[kinds[note->verdict]]++;
    tally->numbers[TALLY_WAITED_USEC] += note->waited_usec;
}

void accounts_verdict(struct accounts *accounts, const struct accounts_verdict_note *note,
                      uint64_t real_usec) {
    tally_add(tally_get(accounts, note->uid, note->gid, NULL, real_usec), note);
    for (size_t i = 0; i < note->n_devices; i++)
        tally_add(tally_get(accounts, 0, 0, &note->devices[i], real_usec), note);
}

/* ---- The tick ---- */

/* Turn a sum into a note; the remainder below a byte·second stays. */
static void sum_hand_over(struct accounts *accounts, struct account_sum *sum, uint64_t real_usec) {
    struct accounts_note *note;

    if (sum->charged < SECOND)
        return;
    note = note_new(accounts, NOTE_USAGE, real_usec);
    if (!note)
        return; /* the sum stays for the next time */
    note->uid = sum->uid;
    note->gid = sum->gid;
    note->has_device = true;
    note->device = sum->device;
    note->first_usec = MIN(sum->first_usec, real_usec);
    note->numbers[USAGE_HELD] = (uint64_t)(sum->held / SECOND);
    note->numbers[USAGE_GUARANTEED] = (uint64_t)(sum->guaranteed / SECOND);
    note->numbers[USAGE_CHARGED] = (uint64_t)(sum->charged / SECOND);
    accounts_spent_add(&accounts->spent, sum->uid, real_usec / ACCOUNTS_SLOT_USEC,
                       note->numbers[USAGE_CHARGED]);
    sum->held %= SECOND;
    sum->guaranteed %= SECOND;
    sum->charged %= SECOND;
    sum->first_usec = 0;
}

static void tally_hand_over(struct accounts *accounts, struct tally *tally, uint64_t real_usec) {
    struct accounts_note *note = note_new(accounts, NOTE_TALLY, real_usec);

    if (!note)
        return;
    note->uid = tally->uid;
    note->gid = tally->gid;
    note->has_device = tally->has_device;
    note->device = tally->device;
    note->first_usec = MIN(tally->first_usec, real_usec);
    memcpy(note->numbers, tally->numbers, sizeof(note->numbers));
    list_remove(&tally->in_tallies);
    free(tally);
}

/* Unless `is_last`, only if the thread keeps up with those before. */
static void hand_over_sums(struct accounts *accounts, uint64_t real_usec, bool is_last) {
    struct tally *tally, *next_tally;
    struct account_sum *sum, *next_sum;

    if (!is_last && accounts_writer_is_behind(accounts->writer))
        return;
    list_foreach_safe (sum, next_sum, &accounts->sums, in_sums) {
        sum_hand_over(accounts, sum, real_usec);
        if (sum->n_levels == 0 && sum->charged < SECOND) {
            list_remove(&sum->in_sums);
            free(sum);
        }
    }
    list_foreach_safe (tally, next_tally, &accounts->tallies, in_tallies)
        tally_hand_over(accounts, tally, real_usec);
}

/* Hand all notes to the thread. */
static void hand_over_notes(struct accounts *accounts) {
    list_move_all(&accounts->fresh, &accounts->shares);
    accounts_writer_give(accounts->writer, &accounts->fresh, accounts->n_lost);
    accounts->n_fresh = 0;
    accounts->n_lost = 0;
}

static void keep_house(struct accounts *accounts, uint64_t now_usec, uint64_t real_usec) {
    uint64_t expected = accounts->real_usec + (now_usec - accounts->now_usec);
    uint64_t retention = accounts->retention_usec;

    if (accounts->now_usec == 0) {
        accounts->house_at_usec = now_usec + ORPHANS_USEC;
    } else if (real_usec > expected + HOUSE_USEC || real_usec + HOUSE_USEC < expected) {
        /* The clock jumped. If that was a mistake, it must not cost a year of accounts. */
        accounts->house_at_usec = now_usec + HOUSE_USEC;
    } else if (now_usec >= accounts->house_at_usec) {
        accounts->house_at_usec = now_usec + HOUSE_USEC;
        accounts_writer_keep_house(accounts->writer,
                                   real_usec > retention ? real_usec - retention : 0);
    }
}

void accounts_tick(struct accounts *accounts, uint64_t now_usec, uint64_t real_usec) {
    struct account_sum *sum;

    accounts_writer_take_sums(accounts->writer, &accounts->spent);
    list_foreach (sum, &accounts->sums, in_sums)
        sum_advance(accounts, sum, now_usec);
    hand_over_sums(accounts, real_usec, false);
    if (accounts->n_fresh > 0 || accounts->n_lost > 0)
        hand_over_notes(accounts);
    keep_house(accounts, now_usec, real_usec);
    accounts->now_usec = now_usec;
    accounts->real_usec = real_usec;
}

/* ---- Questions ---- */

uint64_t accounts_spent(struct accounts *accounts, uid_t uid) {
    uint64_t window, total;
    const struct account_sum *sum;

    if (!accounts || accounts->window_usec == 0)
        return 0;
    window = MIN(accounts->window_usec, accounts->real_usec);
    total = accounts_spent_since(&accounts->spent, uid, accounts->real_usec - window);
    list_foreach (sum, &accounts->sums, in_sums)
        if (sum->uid == uid &&
            __builtin_add_overflow(total, (uint64_t)(sum->charged / SECOND), &total))
            return UINT64_MAX;
    return total;
}

bool accounts_trouble(struct accounts *accounts, struct allot_error *ret) {
    return accounts_writer_trouble(accounts->writer, ret);
}

int accounts_usage(struct accounts *accounts, const struct accounts_query *query,
                   accounts_usage_fn fn, void *userdata) {
    hand_over_sums(accounts, accounts->real_usec, false);
    hand_over_notes(accounts);
    return accounts_writer_ask(accounts->writer, query, fn, userdata);
}

void accounts_forget(struct accounts *accounts, void *userdata) {
    accounts_writer_forget(accounts->writer, userdata);
}

int accounts_fd(const struct accounts *accounts) {
    return accounts_writer_fd(accounts->writer);
}

void accounts_dispatch(struct accounts *accounts) {
    accounts_writer_dispatch(accounts->writer);
}

/* ---- Life ---- */

void accounts_configure(struct accounts *accounts, uint64_t retention_usec, uint64_t window_usec) {
    accounts->window_usec = window_usec;
    accounts->retention_usec = retention_usec;
}

struct accounts *accounts_free(struct accounts *accounts) {
    struct accounts_note *note, *next_note;
    struct tally *tally, *next_tally;
    struct account_sum *sum, *next_sum;
    struct levels *levels;

    if (!accounts)
        return NULL;
    if (accounts->writer) {
        hand_over_sums(accounts, accounts->real_usec, true);
        hand_over_notes(accounts);
        accounts_writer_free(accounts->writer);
    }
    for (size_t pos = 0; (levels = map_next(&accounts->leases, &pos));) {
        struct level *level, *next_level;

        list_foreach_safe (level, next_level, &levels->levels, in_lease)
            free(level);
        free(levels);
    }
    map_done(&accounts->leases);
    accounts_spent_done(&accounts->spent);
    list_foreach_safe (sum, next_sum, &accounts->sums, in_sums)
        free(sum);
    list_foreach_safe (tally, next_tally, &accounts->tallies, in_tallies)
        free(tally);
    list_foreach_safe (note, next_note, &accounts->fresh, in_queue)
        free(note);
    free(accounts);
    return NULL;
}

int accounts_open(struct accounts **ret, const struct accounts_options *options,
                  struct allot_error *notice, struct allot_error *err) {
    struct accounts *accounts = calloc(1, sizeof(*accounts));
    uint64_t longest = ACCOUNTS_SLOTS_MAX * ACCOUNTS_SLOT_USEC;
    int r;

    if (!accounts)
        return error_set(err, -ENOMEM, "out of memory");
    list_init(&accounts->sums);
    list_init(&accounts->tallies);
    list_init(&accounts->fresh);
    list_init(&accounts->shares);
    accounts->window_usec = options->window_usec;
    accounts->retention_usec = options->retention_usec;
    accounts->real_usec = clock_usec(CLOCK_REALTIME);
    r = accounts_writer_new(&accounts->writer, options->path,
                            accounts->real_usec - MIN(accounts->real_usec, longest), notice, err);
    if (r < 0) {
        accounts_free(accounts);
        return r;
    }
    accounts_writer_take_sums(accounts->writer, &accounts->spent);
    *ret = accounts;
    return 0;
}
