/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is a snapshot and what happened since; scan.h draws it. A turn is one round of the
 * event loop: its records are collected in `turn`, get a head and an end mark, and are written by
 * one pwrite(). The file is always longer than its contents, by zeros that the file system has
 * already allocated: writing there cannot fail for lack of space. So "is there room for promises?"
 * can be answered before one is made. When the file is several times larger than the live records,
 * these are written beside it and renamed over it. Every start does so too: no file is ever written
 * by two daemons, and nothing is written behind a torn end.
 *
 *     state            the file
 *     state.new        a snapshot in the making; worth nothing until it is renamed
 *     state.damaged-N  what was found damaged, for people
 *     state.boot       says that there is a state in this boot: if it is missing, it was lost
 */
#include "daemon/state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "daemon/state/live.h"
#include "daemon/state/scan.h"

#define NAME      "state"
#define NAME_NEW  "state.new"
#define NAME_BOOT "state.boot"
#define DAMAGED_MAX                                                                                \
    4 /* files set aside; the first ones are kept, they are nearest to the cause                   \
       */

/* Zeros written ahead of the log: enough for a few thousand turns of one or two records each, or
 * for one turn of a few hundred records. */
#define RESERVE (UINT64_C(256) << 10)
/* Below this nothing new is promised; endings need about 30 bytes each. */
#define RESERVE_MIN (RESERVE / 2)

/* A snapshot is due when the log is this many times what is live; small logs are left alone. */
#define LOG_TIMES 4
#define LOG_SMALL (UINT64_C(512) << 10)

/* No box has this many leases: of such a file only the beginning is read into memory. */
#define FILE_MAX   (UINT64_C(1) << 30)
#define FILE_BEGIN (UINT64_C(64) << 20)

struct state {
    char *dir_path;
    int dir, fd;             /* `dir` carries the lock */
    uint64_t offset;         /* where the next frame goes */
    uint64_t allocated;      /* of the file; zeros from `offset` on */
    uint64_t sequence;       /* of the next frame */
    uint64_t snapshot_above; /* log size at which the next snapshot is tried */
    uint8_t *turn;           /* room for a frame head, then the payload */
    size_t turn_size, turn_capacity;
    int put_error;  /* what kept a record out of the turn; sticks */
    int live_error; /* the same of `live`: no snapshot can be made of it; sticks */
    int room_error; /* why there is no room ahead; 0: there is */
    struct state_live live;
    uint64_t n_commits, n_snapshots;
};

struct state *state_free(struct state *state) {
    if (!state)
        return NULL;
    if (state->fd >= 0)
        close(state->fd);
    if (state->dir >= 0)
        close(state->dir);
    state_live_done(&state->live);
    free(state->dir_path);
    free(state->turn);
    free(state);
    return NULL;
}

DEFINE_FREEP(struct state, state_freep, state_free)

static int write_all(int fd, const uint8_t *bytes, size_t size, uint64_t offset) {
    while (size > 0) {
        ssize_t n = pwrite(fd, bytes, size, (off_t)offset);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            return -EIO;
        bytes += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static uint64_t chunks(uint64_t bytes) {
    return (bytes + STATE_CHUNK - 1) / STATE_CHUNK * STATE_CHUNK;
}

/* Make the file, which has `from` bytes, `bytes` long. */
static int allocate(int fd, uint64_t from, uint64_t bytes) {
    int r;

    do
        r = posix_fallocate(fd, (off_t)from, (off_t)(bytes - from));
    while (r == EINTR);
    /* A part of it may have been given; a size that is not ours would look like a cut file. */
    if (r != 0 && ftruncate(fd, (off_t)from) < 0)
        return -errno;
    return -r;
}

/* ---- The turn ---- */

static bool turn_reserve(struct state *state, size_t size) {
    size_t capacity = MAX(state->turn_capacity, (size_t)16 << 10);
    uint8_t *larger;

    if (state->turn_size + size <= state->turn_capacity)
        return true;
    while (capacity < state->turn_size + size)
        capacity *= 2;
    larger = realloc(state->turn, capacity);
    if (!larger)
        return false;
    state->turn = larger;
    state->turn_capacity = capacity;
    return true;
}

static void turn_clear(struct state *state) {
    state->turn_size = STATE_FRAME_HEAD;
}

/* Append an encoded record. -ENOMEM. */
static int turn_append(struct state *state, const uint8_t *bytes, size_t size) {
    if (!turn_reserve(state, 2 + size + STATE_FRAME_END))
        return -ENOMEM;
    state->turn[state->turn_size] = (uint8_t)size;
    state->turn[state->turn_size + 1] = (uint8_t)(size >> 8);
    memcpy(state->turn + state->turn_size + 2, bytes, size);
    state->turn_size += 2 + size;
    return 0;
}

void state_put(struct state *state, const struct record *record) {
    uint8_t bytes[RECORD_SIZE_MAX];
    size_t size = record_encode(record, bytes);
    int r;

    r = turn_append(state, bytes, size);
    if (r < 0)
        state->put_error = r;
    r = state_live_apply(&state->live, record, bytes, size);
    if (r < 0)
        state->live_error = r;
}

static void put_lost(struct state *state, bool is_lost) {
    struct record record = { .kind = RECORD_META, .meta = state->live.meta };

    record.meta.is_lost = is_lost;
    state_put(state, &record);
}

void state_set_lost(struct state *state) {
    put_lost(state, true);
}

void state_mended(struct state *state) {
    put_lost(state, false);
}

/* ---- Snapshots ---- */

static int snapshot_append(void *userdata, const uint8_t *bytes, size_t size) {
    return turn_append(userdata, bytes, size);
}

/* What is live as the first frame of a new file with `reserve` behind it, renamed over the old one.
 * `state->turn`, whose records are in `live` already, is used for it and empty afterwards. */
static int snapshot_with(struct state *state, uint64_t reserve) {
    struct record meta = { .kind = RECORD_META, .meta = state->live.meta };
    uint8_t head[STATE_HEAD_SIZE], bytes[RECORD_SIZE_MAX];
    cleanup(closep) int fd = -1;
    uint64_t allocated;
    size_t kept = state->turn_size, size;
    int r;

    if (state->live_error < 0)
        return state->live_error; /* it would miss something that the log has */

    /* Built behind the turn, which must survive a failure. */
    if (!turn_reserve(state, STATE_FRAME_HEAD))
        return -ENOMEM;
    state->turn_size += STATE_FRAME_HEAD;
    size = record_encode(&meta, bytes);
    r = turn_append(state, bytes, size);
    if (r == 0)
        r = state_live_each(&state->live, snapshot_append, state);
    size = state->turn_size - kept - STATE_FRAME_HEAD;
    state->turn_size = kept;
    if (r < 0)
        return r;
    if (size > UINT32_MAX)
        return -EFBIG;
    size = state_scan_close_frame(state->turn + kept, size, state->sequence);

    fd = openat(state->dir, NAME_NEW, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    allocated = chunks(STATE_HEAD_SIZE + size + MAX(reserve, (uint64_t)STATE_FRAME_HEAD));
    state_scan_write_head(head);
    r = allocate(fd, 0, allocated);
    if (r == 0)
        r = write_all(fd, head, sizeof(head), 0);
    if (r == 0)
        r = write_all(fd, state->turn + kept, size, STATE_HEAD_SIZE);
    if (r == 0 && renameat(state->dir, NAME_NEW, state->dir, NAME) < 0)
        r = -errno;
    if (r < 0) {
        unlinkat(state->dir, NAME_NEW, 0); /* gives its space back */
        return r;
    }

    if (state->fd >= 0)
        close(state->fd);
    state->fd = TAKE_FD(fd);
    state->offset = STATE_HEAD_SIZE + size;
    state->allocated = allocated;
    state->sequence++;
    state->room_error = 0;
    state->snapshot_above = MAX(LOG_TIMES * state->offset, LOG_SMALL);
    state->n_snapshots++;
    turn_clear(state);
    return 0;
}

static int snapshot(struct state *state) {
    return snapshot_with(state, RESERVE);
}

/* ---- Room ---- */

static bool is_full(int r) {
    return r == -ENOSPC || r == -EDQUOT || r == -EFBIG;
}

/* Make sure that `bytes` and the reserve fit behind `offset`; false if not even `bytes` fit. */
static bool room_make(struct state *state, uint64_t bytes) {
    uint64_t wanted = state->offset + bytes + RESERVE;

    if (wanted > state->allocated) {
        uint64_t allocated = chunks(wanted + RESERVE);
        int r = allocate(state->fd, state->allocated, allocated);

        if (r == 0)
            state->allocated = allocated;
        state->room_error = r;
    }
    return state->offset + bytes + STATE_FRAME_HEAD <= state->allocated;
}

static bool room_is_ample(const struct state *state) {
    return state->allocated - state->offset >= RESERVE_MIN;
}

static int explain_room(const struct state *state, int r, struct allot_error *err) {
    return error_set(err, r,
                     "%s: no room to record leases (%s), so none are granted; leases can still "
                     "end: free some space there",
                     state->dir_path, strerror(-r));
}

bool state_is_ready(struct state *state, struct allot_error *err) {
    if (state->put_error < 0 || state->live_error < 0) {
        error_set(
            err, MIN(state->put_error, state->live_error),
            "%s: a record was lost for lack of memory, so no lease is granted: restart allotd",
            state->dir_path);
        return false;
    }
    if (state->fd < 0) {
        int r = snapshot(state);

        if (r == 0)
            return true;
        explain_room(state, r, err);
        return false;
    }
    if (room_is_ample(state) || (room_make(state, 0) && room_is_ample(state)))
        return true;
    /* The new file is smaller, but needs its space while the old one still has its own. */
    if (state->offset > 2 * state->live.bytes + RESERVE && snapshot(state) == 0)
        return true;
    explain_room(state, state->room_error ? state->room_error : -ENOSPC, err);
    return false;
}

static bool promises_live(const struct state *state) {
    return state->live.n[RECORD_LEASE] || state->live.n[RECORD_HOLDER] ||
           state->live.n[RECORD_WAITER];
}

int state_commit(struct state *state, struct allot_error *err) {
    size_t size = state->turn_size - STATE_FRAME_HEAD;
    int r;

    if (state->put_error < 0)
        return error_set(err, state->put_error,
                         "%s: a record was lost for lack of memory: restart allotd",
                         state->dir_path);
    if (size == 0)
        return 0;
    if (size > UINT32_MAX)
        return error_set(err, -EFBIG, "%s: one turn made more records than can be written at once",
                         state->dir_path);
    if (state->fd < 0 || !room_make(state, STATE_FRAME_HEAD + size + STATE_FRAME_END)) {
        r = snapshot(state); /* holds the turn, too */
        if (r < 0 && state->fd < 0 && !promises_live(state)) {
            /* There never was room since the start, so nothing was promised. */
            turn_clear(state);
            return 0;
        }
        if (r < 0)
            return explain_room(state, state->room_error ? state->room_error : r, err);
        state->n_commits++;
        return 0;
    }

    size = state_scan_close_frame(state->turn, size, state->sequence);
    r = write_all(state->fd, state->turn, size, state->offset);
    if (r < 0)
        return error_set(err, r, "%s/" NAME ": cannot write: %s", state->dir_path, strerror(-r));
    state->offset += size;
    state->sequence++;
    state->n_commits++;
    turn_clear(state);

    /*
     * All records are on disk, but not in memory, so no snapshot can be made: a restart reads them
     * all.
     */
    if (state->live_error < 0)
        return error_set(err, state->live_error,
                         "%s: out of memory, so a record is missing: restart allotd",
                         state->dir_path);

    /* Failing costs nothing but the attempt: not again before the log is half as large again. */
    if (state->offset > state->snapshot_above && snapshot(state) < 0)
        state->snapshot_above = state->offset + state->offset / 2;
    return 0;
}

/* ---- Opening ---- */

/* 1: it is too large, and what was read is its beginning. */
static int read_file(int fd, uint8_t **ret, size_t *ret_size) {
    cleanup(freep) uint8_t *bytes = NULL;
    struct stat st;
    size_t size, at = 0;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENOTSUP;
    size = (size_t)((uint64_t)st.st_size > FILE_MAX ? FILE_BEGIN : (uint64_t)st.st_size);
    bytes = malloc(size + 1);
    if (!bytes)
        return -ENOMEM;
    while (at < size) {
        ssize_t n = pread(fd, bytes + at, size - at, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    *ret = TAKE(bytes);
    *ret_size = at;
    return (uint64_t)st.st_size > FILE_MAX;
}

static int apply(void *userdata, const struct record *record, const uint8_t *bytes, size_t size) {
    return state_live_apply(userdata, record, bytes, size);
}

/* Leave the damaged file under a name of its own. A link, so that there is a state at every
 * instant; the snapshot is renamed over the old name. */
static void set_aside(struct state *state, struct state_report *report) {
    char name[sizeof(NAME) + 32];

    for (int i = 1; i <= DAMAGED_MAX; i++) {
        snprintf(name, sizeof(name), NAME ".damaged-%d", i);
        if (i == DAMAGED_MAX)
            unlinkat(state->dir, name, 0);
        if (linkat(state->dir, NAME, state->dir, name, 0) < 0) {
            if (errno == EEXIST)
                continue;
            return;
        }
        snprintf(report->aside, sizeof(report->aside), "%s/%s", state->dir_path, name);
        return;
    }
}

/* Zero what an unfinished write left behind. Otherwise the next frame, if shorter, would be
 * followed by the rest of it. */
static int clear_torn(struct state *state, uint8_t *bytes) {
    uint64_t end = state->allocated;

    while (end > state->offset && bytes[end - 1] == 0)
        end--;
    memset(bytes + state->offset, 0, end - state->offset);
    return write_all(state->fd, bytes + state->offset, end - state->offset, state->offset);
}

/* Whether a daemon has kept its state here since the machine was started. */
static bool was_kept(const struct state *state, const uint8_t boot_id[static 16]) {
    uint8_t bytes[17];
    cleanup(closep) int fd = openat(state->dir, NAME_BOOT, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    return fd >= 0 && pread(fd, bytes, sizeof(bytes), 0) == 16 && memcmp(bytes, boot_id, 16) == 0;
}

/* After the first snapshot: a start that was killed before it has nothing to miss. */
static void note_kept(struct state *state, const uint8_t boot_id[static 16]) {
    cleanup(closep) int fd = -1;

    if (was_kept(state, boot_id))
        return;
    fd = openat(state->dir, NAME_BOOT, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && write_all(fd, boot_id, 16, 0) < 0)
        unlinkat(state->dir, NAME_BOOT, 0);
}

static const char *damage_text(enum state_damage damage) {
    switch (damage) {
    case STATE_WHOLE:
        return "is whole";
    case STATE_TORN:
        return "ends within its last write";
    case STATE_TRUNCATED:
        return "has lost its end";
    case STATE_CORRUPTED:
        return "is damaged";
    case STATE_FOREIGN:
        break;
    }
    return "is not of this version";
}

static void report_fill(struct state *state, const struct state_scan *scan,
                        struct state_report *report) {
    report->n_leases = state->live.n[RECORD_LEASE];
    report->n_holders = state->live.n[RECORD_HOLDER];
    report->n_waiters = state->live.n[RECORD_WAITER];
    if (scan->damage > STATE_TORN)
        snprintf(
            report->text, sizeof(report->text),
            "%s/" NAME " %s at byte %" PRIu64 ": %" PRIu64
            " records could be read, the rest is rebuilt from the holders and the driver; %s%s",
            state->dir_path, damage_text(scan->damage), scan->damaged_at, scan->n_records,
            report->aside[0] ? "the file is kept as " : "the file could not be kept",
            report->aside);
    else if (report->is_lost && report->is_fresh)
        snprintf(report->text, sizeof(report->text),
                 "%s/" NAME " is gone, but existed earlier in this boot: leases are rebuilt from "
                 "their holders and the driver",
                 state->dir_path);
    else if (report->is_lost)
        snprintf(report->text, sizeof(report->text),
                 "%s/" NAME ": records were lost before the last restart and are not all back yet",
                 state->dir_path);
    else if (report->is_rebooted)
        snprintf(report->text, sizeof(report->text),
                 "%s/" NAME " is of an earlier boot: its leases ended with it", state->dir_path);
}

static int dir_open(struct state *state, const char *dir, struct allot_error *err) {
    state->dir_path = strdup(dir);
    if (!state->dir_path)
        return error_set(err, -ENOMEM, "out of memory");
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "%s: cannot make the state directory: %m", dir);
    state->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state->dir < 0)
        return error_set(err, -errno, "%s: cannot open the state directory: %m", dir);
    if (flock(state->dir, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, errno == EWOULDBLOCK ? -EBUSY : -errno,
                         errno == EWOULDBLOCK ? "%s: another allotd keeps its state here: end it, "
                                                "or give this one another --state-dir"
                                              : "%s: cannot lock the state directory: %m",
                         dir);
    return 0;
}

/*
 * Make the first snapshot since the start, or the next best thing: one with hardly any room behind
 * it; one without the damaged file, whose room it takes; or none, until there is room. What cannot
 * be recorded is then not promised, but the daemon goes on.
 */
static int settle_in(struct state *state, const struct state_scan *scan, uint8_t *bytes,
                     struct state_report *report) {
    size_t length = strlen(report->text);
    int r = snapshot(state);

    if (r == 0)
        return 0;
    /* A file of this boot that misses nothing still has its reserve: half the room is better than
     * none. */
    if (!report->is_fresh && scan->damage <= STATE_TORN && !report->is_rebooted) {
        state->snapshot_above = MAX(2 * state->offset, LOG_SMALL);
        state->room_error = r;
        return clear_torn(state, bytes) < 0 ? r : 0;
    }
    if (!is_full(r))
        return r;
    if (snapshot_with(state, 0) == 0)
        return 0;
    if (state->fd >= 0) {
        state->fd = (close(state->fd), -1);
        unlinkat(state->dir, NAME, 0);
        if (report->aside[0])
            unlinkat(state->dir, strrchr(report->aside, '/') + 1, 0);
        report->aside[0] = 0;
        snprintf(report->text + length, sizeof(report->text) - length,
                 "%sthe disk is full: it was not kept after all", length ? "; " : "");
    }
    if (snapshot_with(state, 0) == 0)
        return 0;
    state->offset = state->allocated = 0;
    state->room_error = r;
    length = strlen(report->text);
    snprintf(report->text + length, sizeof(report->text) - length,
             "%s%s: cannot write the state: %s; no lease is granted until there is room: free some "
             "space there",
             length ? "; " : "", state->dir_path, strerror(-r));
    return 0;
}

int state_open(struct state **ret, const char *dir, const uint8_t boot_id[static 16],
               struct state_report *report, struct allot_error *err) {
    cleanup(state_freep) struct state *state = calloc(1, sizeof(*state));
    cleanup(freep) uint8_t *bytes = NULL;
    struct state_scan scan = { 0 };
    size_t size = 0;
    bool is_large;
    int r;

    *report = (struct state_report){ 0 };
    if (!state)
        return error_set(err, -ENOMEM, "out of memory");
    state->dir = state->fd = -1;
    state->sequence = 1;
    state_live_init(&state->live);
    if (!turn_reserve(state, STATE_FRAME_HEAD))
        return error_set(err, -ENOMEM, "out of memory");
    turn_clear(state);
    r = dir_open(state, dir, err);
    if (r < 0)
        return r;

    state->fd = openat(state->dir, NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    r = state->fd < 0 ? -errno : 0;
    report->is_fresh = r == -ENOENT;
    if (r == 0)
        r = read_file(state->fd, &bytes, &size);
    if (r == -ELOOP || r == -EISDIR || r == -ENOTSUP)
        return error_set(err, r,
                         "%s/" NAME " is a link, a directory or the like, which allotd did not "
                         "make: remove it, or give another --state-dir",
                         dir);
    if (r < 0 && !report->is_fresh)
        return error_set(err, r, "%s/" NAME " cannot be read: %s", dir, strerror(-r));
    if (!report->is_fresh) {
        is_large = r > 0;
        if ((r = state_scan(bytes, size, apply, &state->live, &scan)) < 0)
            return error_set(err, r, "%s/" NAME ": %s", dir, strerror(-r));
        if (is_large && scan.damage <= STATE_TORN) {
            scan.damage = STATE_CORRUPTED;
            scan.damaged_at = scan.end;
        }
        if (scan.damage > STATE_TORN) {
            state->live.meta.is_lost = true;
            set_aside(state, report);
        }
        /* Without META the boot is unknown: keep what could be read, as for a re-attach. */
        report->is_rebooted = scan.sequence != 0 &&
                              memcmp(state->live.meta.boot_id, (uint8_t[16]){ 0 }, 16) != 0 &&
                              memcmp(state->live.meta.boot_id, boot_id, 16) != 0;
        if (report->is_rebooted) {
            state_live_reboot(&state->live);
            state->live.meta.is_lost = false;
        }
        report->is_lost = state->live.meta.is_lost;
        state->offset = scan.end;
        state->allocated = size;
        state->sequence = scan.sequence + 1;
    } else
        report->is_lost = state->live.meta.is_lost = was_kept(state, boot_id);
    memcpy(state->live.meta.boot_id, boot_id, 16);
    report_fill(state, &scan, report);

    r = settle_in(state, &scan, bytes, report);
    if (r < 0)
        return error_set(err, r, "%s: cannot write the state: %s", dir, strerror(-r));
    note_kept(state, boot_id);
    *ret = TAKE(state);
    return 0;
}

/* ---- Replay ---- */

struct ordered_waiter {
    uint64_t order;
    const uint8_t *bytes; /* borrowed */
    size_t size;
};

struct state_replay {
    state_record_fn fn;
    void *userdata;
    struct ordered_waiter *waiters; /* put in order before they are handed on */
    size_t n_waiters;
};

static int replay_one(void *userdata, const uint8_t *bytes, size_t size) {
    struct state_replay *replay = userdata;
    struct record record;
    int r;

    r = record_decode(&record, bytes, size);
    if (r < 0)
        return r;
    if (record.kind == RECORD_WAITER) {
        replay->waiters[replay->n_waiters++] =
            (struct ordered_waiter){ record.waiter.order, bytes, size };
        return 0;
    }
    return replay->fn(replay->userdata, &record);
}

static int compare_order(const void *a, const void *b) {
    const struct ordered_waiter *left = a, *right = b;

    return (left->order > right->order) - (left->order < right->order);
}

int state_replay(struct state *state, state_record_fn fn, void *userdata) {
    struct record record = { .kind = RECORD_META, .meta = state->live.meta };
    cleanup(freep) struct ordered_waiter *waiters =
        calloc(state->live.n[RECORD_WAITER] + 1, sizeof(*waiters));
    struct state_replay replay = { .fn = fn, .userdata = userdata, .waiters = waiters };
    int r;

    if (!waiters)
        return -ENOMEM;
    r = fn(userdata, &record);
    if (r == 0)
        r = state_live_each(&state->live, replay_one, &replay);
    if (r < 0)
        return r;
    qsort(waiters, replay.n_waiters, sizeof(*waiters), compare_order);
    for (size_t i = 0; i < replay.n_waiters; i++) {
        r = record_decode(&record, waiters[i].bytes, waiters[i].size);
        if (r == 0)
            r = fn(userdata, &record);
        if (r < 0)
            return r;
    }
    return 0;
}

void state_figures(const struct state *state, struct state_figures *ret) {
    *ret = (struct state_figures){ .live_bytes = state->live.bytes,
                                   .log_bytes = state->offset,
                                   .n_commits = state->n_commits,
                                   .n_snapshots = state->n_snapshots };
}
