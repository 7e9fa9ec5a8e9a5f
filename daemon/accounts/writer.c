/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock, held for a few instructions at a time and never during a call of the database. The
 * thread takes the whole queue and writes it in one transaction. If that fails, it puts the queue
 * back, before what came meanwhile. A second thread, which may have to wait, looks up the names for
 * the answers:
 *
 *     loop ── questions ─▶ thread_main: database ─▶ unnamed ─▶ name_main: names ─▶ answers ─▶ loop
 */
#include "daemon/accounts/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "daemon/accounts/db.h"

#define LINES_MAX     16384 /* of half a KiB each; twice that if many users have their part */
#define LINES_OF_USER 4096  /* of one user, and as many ends of leases */
#define SUMS_MAX      4096  /* that wait; then the event loop gives no more */
#define RETRY_SECONDS 5     /* at the latest; every note is an occasion, too */
#define END_SECONDS   5     /* for the last transaction, when the daemon ends */
#define DAMAGED_MAX   4     /* databases set aside; the first ones are nearest to the cause */

/* What a user was charged in a slot, before this life. */
struct spending {
    uint32_t uid;
    uint64_t number, byte_seconds;
};

/* The lines of a user that wait. */
struct line_count {
    uint32_t uid;
    size_t n;
};

struct query_call {
    struct list in_list, in_asked;
    struct accounts_query query;
    accounts_usage_fn fn; /* event loop only; NULL: the caller does not wait any more */
    void *userdata;
    struct accounts_row *rows;
    size_t n_rows;
    struct allot_error error;
    bool is_unnamed; /* in `unnamed`; under the lock */
};

struct accounts_writer {
    struct list asked; /* questions under way; event loop only */
    pthread_t thread, namer;
    int fd; /* eventfd: there are answers */

    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t wake, ended, name;
    struct list queue; /* notes */
    struct map lines;  /* uid → struct line_count: of `queue` */
    size_t n_lines, n_sums_queued;
    uint64_t n_lost;
    struct list questions, unnamed, answers;
    uint64_t prune_before_usec; /* 0: not now */
    bool is_house_due, is_behind, is_naming, is_ending, has_ended;
    struct allot_error trouble; /* code 0: none */
    struct allot_error notice;  /* the last loss of a database */
    bool is_summed;             /* what was spent before is in `sums`, or was taken from there */
    struct spending *sums;      /* NULL: taken */
    size_t n_sums;

    char *path; /* and this is the thread's */
    uint64_t life, since_usec;
    struct accounts_db *db; /* NULL: could not be opened yet */
};

/* ---- The database ---- */

/* Move a database that cannot be read out of the way, so that people can still look into it. */
static int set_aside(const char *path, struct allot_error *notice) {
    static const char *const endings[] = { "", "-wal", "-shm" };
    char aside[4200], from[4200], to[4300];

    snprintf(aside, sizeof(aside), "%s.damaged", path);
    for (int i = 2; i <= DAMAGED_MAX && access(aside, F_OK) == 0; i++)
        snprintf(aside, sizeof(aside), "%s.damaged-%d", path, i);
    if (rename(path, aside) < 0)
        return -errno;
    for (size_t i = 1; i < ELEMENTSOF(endings); i++) {
        snprintf(from, sizeof(from), "%s%s", path, endings[i]);
        snprintf(to, sizeof(to), "%s%s", aside, endings[i]);
        if (rename(from, to) < 0) {
            unlink(from); /* otherwise it would be taken for the new one's */
            unlink(to);   /* of the one that was replaced */
        }
    }
    error_set(notice, -EBADMSG,
              "%s: the accounts were damaged and are kept as %s; new ones were started", path,
              aside);
    return 0;
}

struct gathering {
    struct spending *sums;
    size_t n, n_allocated;
};

static int gather(void *userdata, uint32_t uid, uint64_t number, uint64_t byte_seconds) {
    struct gathering *gathering = userdata;

    if (gathering->n == gathering->n_allocated) {
        size_t n = 2 * gathering->n_allocated + 64;
        struct spending *more = reallocarray(gathering->sums, n, sizeof(*more));

        if (!more)
            return -ENOMEM;
        gathering->sums = more;
        gathering->n_allocated = n;
    }
    gathering->sums[gathering->n++] = (struct spending){ uid, number, byte_seconds };
    return 0;
}

/* Before the first line of this run is written, otherwise that would count twice. */
static int database_sum(struct accounts_writer *writer, struct allot_error *err) {
    struct gathering gathering = { 0 };
    int r = accounts_db_spent(writer->db, writer->since_usec, ACCOUNTS_SLOT_USEC, gather,
                              &gathering, err);

    if (r < 0) {
        free(gathering.sums);
        return r;
    }
    pthread_mutex_lock(&writer->lock);
    writer->is_summed = true;
    writer->sums = gathering.sums;
    writer->n_sums = gathering.n;
    pthread_mutex_unlock(&writer->lock);
    return 0;
}

static int database_try(struct accounts_writer *writer, struct allot_error *err) {
    int r = accounts_db_open(&writer->db, writer->path, writer->life, err);

    if (r == 0 && !writer->is_summed)
        r = database_sum(writer, err);
    if (r < 0)
        writer->db = accounts_db_free(writer->db);
    return r;
}

static int database_open(struct accounts_writer *writer, struct allot_error *notice,
                         struct allot_error *err) {
    int r = database_try(writer, err);

    if (r == -EBADMSG && set_aside(writer->path, notice) == 0)
        r = database_try(writer, err);
    return r;
}

/* Write `notes`, opening or making the database where need be. */
static int database_write(struct accounts_writer *writer, const struct list *notes,
                          struct allot_error *err) {
    struct allot_error notice = { 0 };
    int r = 0;

    if (!writer->db)
        r = database_open(writer, &notice, err);
    if (r == 0 && !list_is_empty(notes))
        r = accounts_db_write(writer->db, notes, err);
    if (r == -EBADMSG && writer->db) {
        writer->db = accounts_db_free(writer->db);
        r = set_aside(writer->path, &notice);
        if (r == 0)
            r = database_open(writer, &notice, err);
        if (r == 0)
            r = accounts_db_write(writer->db, notes, err);
    }
    if (notice.code != 0) {
        pthread_mutex_lock(&writer->lock);
        writer->notice = notice;
        pthread_mutex_unlock(&writer->lock);
    }
    return r;
}

/* Under the lock. */
static void hand_in(struct accounts_writer *writer, struct query_call *question) {
    uint64_t one = 1;

    list_append(&writer->answers, &question->in_list);
    (void)!write(writer->fd, &one, sizeof(one)); /* else it is readable already */
}

static void answer(struct accounts_writer *writer, struct query_call *question, int r,
                   const struct allot_error *trouble) {
    bool has_people = question->query.by != ACCOUNTS_BY_DEVICE;

    if (r == 0)
        accounts_db_usage(writer->db, &question->query, &question->rows, &question->n_rows,
                          &question->error);
    else
        question->error = *trouble;
    if (!has_people)
        accounts_db_name(question->rows, question->n_rows, question->query.by);
    pthread_mutex_lock(&writer->lock);
    question->is_unnamed = has_people && question->n_rows > 0;
    if (question->is_unnamed) {
        list_append(&writer->unnamed, &question->in_list);
        pthread_cond_signal(&writer->name);
    } else {
        hand_in(writer, question);
    }
    pthread_mutex_unlock(&writer->lock);
}

/* ---- What waits; called with the lock ---- */

static bool is_sum(const struct accounts_note *note) {
    return note->kind == NOTE_USAGE || note->kind == NOTE_TALLY;
}

static void forget_counts(struct accounts_writer *writer) {
    struct line_count *count;

    for (size_t pos = 0; (count = map_next(&writer->lines, &pos));)
        free(count);
    map_done(&writer->lines);
    writer->n_lines = writer->n_sums_queued = 0;
}

static void count_note(struct accounts_writer *writer, const struct accounts_note *note) {
    struct line_count *count;

    if (is_sum(note)) {
        writer->n_sums_queued++;
        return;
    }
    writer->n_lines++;
    count = map_find(&writer->lines, note->uid);
    if (!count) {
        count = calloc(1, sizeof(*count));
        if (count && map_put(&writer->lines, note->uid, count) < 0) {
            free(count);
            count = NULL;
        }
        if (!count) /* it is counted in the total */
            return;
        count->uid = note->uid;
    }
    count->n++;
}

/*
 * Each user has as much room as any other that has lines waiting: however many one of them makes,
 * the lines of the others are kept. A lease whose beginning was kept has room for its end, too.
 */
static bool has_room_for(const struct accounts_writer *writer, const struct accounts_note *note) {
    const struct line_count *count = map_find(&writer->lines, note->uid);
    size_t n = count ? count->n : 0, most = LINES_OF_USER;

    if (writer->n_lines >= LINES_MAX)
        most = MIN(most, LINES_MAX / MAX(writer->lines.n, (size_t)1));
    return n < (note->kind == NOTE_END ? 2 * most : most);
}

/* ---- The threads ---- */

static void *name_main(void *userdata) {
    struct accounts_writer *writer = userdata;

    pthread_mutex_lock(&writer->lock);
    while (!writer->is_ending) {
        struct query_call *question = list_first(&writer->unnamed, struct query_call, in_list);

        if (!question) {
            pthread_cond_wait(&writer->name, &writer->lock);
            continue;
        }
        list_remove(&question->in_list);
        question->is_unnamed = false;
        writer->is_naming = true;
        pthread_mutex_unlock(&writer->lock);
        accounts_db_name(question->rows, question->n_rows, question->query.by);
        pthread_mutex_lock(&writer->lock);
        writer->is_naming = false;
        hand_in(writer, question);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

static void notes_free(struct list *notes) {
    struct accounts_note *note, *following;

    list_foreach_safe (note, following, notes, in_queue) {
        list_remove(&note->in_queue);
        free(note);
    }
}

/* Wait until there is something to do; under the lock. */
static void wait_for_work(struct accounts_writer *writer) {
    struct timespec until;

    if (writer->is_behind && !writer->is_ending && list_is_empty(&writer->questions)) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += RETRY_SECONDS;
        pthread_cond_timedwait(&writer->wake, &writer->lock, &until);
        return;
    }
    while (!writer->is_ending && list_is_empty(&writer->questions) &&
           list_is_empty(&writer->queue) && !writer->is_house_due)
        pthread_cond_wait(&writer->wake, &writer->lock);
}

/* Do what is due; called with the lock, which is released meanwhile. What fails is tried again when
 * it is due again. */
static void keep_house(struct accounts_writer *writer) {
    uint64_t before = writer->prune_before_usec;
    struct allot_error err;

    if (!writer->is_house_due)
        return;
    writer->is_house_due = false;
    writer->prune_before_usec = 0;
    pthread_mutex_unlock(&writer->lock);
    accounts_db_close_orphans(writer->db, &err);
    if (before > 0)
        accounts_db_prune(writer->db, before, &err);
    pthread_mutex_lock(&writer->lock);
}

static void *thread_main(void *userdata) {
    struct accounts_writer *writer = userdata;
    struct list notes = LIST_INIT(notes), questions = LIST_INIT(questions);
    struct query_call *question, *following;
    const struct accounts_note *note;
    struct allot_error err = { 0 };
    int r;

    pthread_mutex_lock(&writer->lock);
    do {
        wait_for_work(writer);
        list_move_all(&notes, &writer->queue);
        list_move_all(&questions, &writer->questions);
        forget_counts(writer);
        pthread_mutex_unlock(&writer->lock);

        r = database_write(writer, &notes, &err);
        list_foreach_safe (question, following, &questions, in_list) {
            list_remove(&question->in_list);
            answer(writer, question, r, &err);
        }
        if (r == 0)
            notes_free(&notes);

        pthread_mutex_lock(&writer->lock);
        writer->is_behind = r < 0;
        if (r < 0) {
            list_move_all(&notes, &writer->queue);
            list_move_all(&writer->queue, &notes);
            forget_counts(writer);
            list_foreach (note, &writer->queue, in_queue)
                count_note(writer, note);
            writer->trouble = err;
        } else {
            writer->trouble.code = 0;
            keep_house(writer);
        }
    } while (!writer->is_ending || (r == 0 && !list_is_empty(&writer->queue)));
    pthread_mutex_unlock(&writer->lock);
    writer->db = accounts_db_free(writer->db);
    pthread_mutex_lock(&writer->lock);
    writer->has_ended = true;
    pthread_cond_signal(&writer->ended);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* ---- The event loop's side ---- */

void accounts_writer_give(struct accounts_writer *writer, struct list *notes, uint64_t n_lost) {
    struct list dropped = LIST_INIT(dropped);
    struct accounts_note *note, *following;

    pthread_mutex_lock(&writer->lock);
    writer->n_lost += n_lost;
    list_foreach_safe (note, following, notes, in_queue) {
        bool has_room = is_sum(note) || has_room_for(writer, note);

        list_remove(&note->in_queue);
        list_append(has_room ? &writer->queue : &dropped, &note->in_queue);
        if (has_room)
            count_note(writer, note);
        else
            writer->n_lost++;
    }
    pthread_cond_signal(&writer->wake);
    pthread_mutex_unlock(&writer->lock);
    notes_free(&dropped);
}

void accounts_writer_take_sums(struct accounts_writer *writer, struct accounts_spent *spent) {
    struct spending *sums;
    size_t n;

    pthread_mutex_lock(&writer->lock);
    sums = TAKE(writer->sums);
    n = writer->n_sums;
    pthread_mutex_unlock(&writer->lock);
    for (size_t i = 0; sums && i < n; i++)
        accounts_spent_add(spent, sums[i].uid, sums[i].number, sums[i].byte_seconds);
    free(sums);
}

bool accounts_writer_is_behind(struct accounts_writer *writer) {
    bool is_behind;

    pthread_mutex_lock(&writer->lock);
    is_behind = writer->is_behind || writer->n_sums_queued >= SUMS_MAX;
    pthread_mutex_unlock(&writer->lock);
    return is_behind;
}

bool accounts_writer_trouble(struct accounts_writer *writer, struct allot_error *ret) {
    bool is_trouble = true;

    pthread_mutex_lock(&writer->lock);
    if (writer->trouble.code != 0)
        error_set(ret, writer->trouble.code,
                  "the accounts cannot be written (%s); leases are not affected; %zu lines are "
                  "waiting, %" PRIu64 " were lost%s",
                  writer->trouble.text, writer->n_lines, writer->n_lost,
                  writer->is_summed ? ""
                                    : "; until then quotas of GiB·hours count only what was "
                                      "used since allotd started");
    else if (writer->notice.code != 0)
        *ret = writer->notice;
    else if (writer->n_lost > 0)
        error_set(ret, -ENOBUFS, "%" PRIu64 " lines of the accounts were lost", writer->n_lost);
    else
        is_trouble = false;
    pthread_mutex_unlock(&writer->lock);
    return is_trouble;
}

void accounts_writer_keep_house(struct accounts_writer *writer, uint64_t prune_before_usec) {
    pthread_mutex_lock(&writer->lock);
    writer->is_house_due = true;
    writer->prune_before_usec = prune_before_usec;
    pthread_cond_signal(&writer->wake);
    pthread_mutex_unlock(&writer->lock);
}

int accounts_writer_ask(struct accounts_writer *writer, const struct accounts_query *query,
                        accounts_usage_fn fn, void *userdata) {
    struct query_call *question = calloc(1, sizeof(*question));

    if (!question)
        return -ENOMEM;
    question->query = *query;
    question->fn = fn;
    question->userdata = userdata;
    list_append(&writer->asked, &question->in_asked);
    pthread_mutex_lock(&writer->lock);
    list_append(&writer->questions, &question->in_list);
    pthread_cond_signal(&writer->wake);
    pthread_mutex_unlock(&writer->lock);
    return 0;
}

static void question_free(struct query_call *question) {
    list_remove(&question->in_asked);
    free(question->rows);
    free(question);
}

void accounts_writer_forget(struct accounts_writer *writer, void *userdata) {
    struct query_call *question, *following;

    pthread_mutex_lock(&writer->lock);
    list_foreach_safe (question, following, &writer->asked, in_asked) {
        if (question->userdata != userdata)
            continue;
        question->fn = NULL;
        /* The names may never come: answers that wait for them must not pile up. */
        if (question->is_unnamed) {
            list_remove(&question->in_list);
            question_free(question);
        }
    }
    pthread_mutex_unlock(&writer->lock);
}

int accounts_writer_fd(const struct accounts_writer *writer) {
    return writer->fd;
}

void accounts_writer_dispatch(struct accounts_writer *writer) {
    struct list answers = LIST_INIT(answers);
    struct query_call *question;
    uint64_t n;

    if (read(writer->fd, &n, sizeof(n)) < 0)
        return;
    pthread_mutex_lock(&writer->lock);
    list_move_all(&answers, &writer->answers);
    pthread_mutex_unlock(&writer->lock);
    while ((question = list_first(&answers, struct query_call, in_list))) {
        list_remove(&question->in_list);
        if (question->fn)
            question->fn(question->userdata, question->rows, question->n_rows,
                         question->error.code ? &question->error : NULL);
        question_free(question);
    }
}

/* ---- Life ---- */

static void writer_destroy(struct accounts_writer *writer) {
    struct query_call *question;

    while ((question = list_first(&writer->asked, struct query_call, in_asked)))
        question_free(question);
    notes_free(&writer->queue);
    forget_counts(writer);
    free(writer->sums);
    accounts_db_free(writer->db);
    if (writer->fd >= 0)
        close(writer->fd);
    pthread_cond_destroy(&writer->wake);
    pthread_cond_destroy(&writer->ended);
    pthread_cond_destroy(&writer->name);
    pthread_mutex_destroy(&writer->lock);
    free(writer->path);
    free(writer);
}

struct accounts_writer *accounts_writer_free(struct accounts_writer *writer) {
    struct timespec until;
    bool has_ended, is_naming;
    int r = 0;

    if (!writer)
        return NULL;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += END_SECONDS;
    pthread_mutex_lock(&writer->lock);
    writer->is_ending = true;
    pthread_cond_signal(&writer->wake);
    pthread_cond_signal(&writer->name);
    while (!writer->has_ended && r == 0)
        r = pthread_cond_timedwait(&writer->ended, &writer->lock, &until);
    has_ended = writer->has_ended;
    is_naming = writer->is_naming;
    pthread_mutex_unlock(&writer->lock);
    /* One thread may hang in the disk, the other in the network. Leave it the memory it uses; the
     * process is about to end. */
    if (has_ended)
        pthread_join(writer->thread, NULL);
    else
        pthread_detach(writer->thread);
    if (is_naming)
        pthread_detach(writer->namer);
    else
        pthread_join(writer->namer, NULL);
    if (has_ended && !is_naming)
        writer_destroy(writer);
    return NULL;
}

/* Whether the database may come later: the disk is full or does not answer. */
static bool may_pass(int r) {
    return r == -ENOSPC || r == -EIO || r == -EDQUOT || r == -EFBIG || r == -ENOMEM;
}

/* A number that no other daemon had. */
static uint64_t life_new(void) {
    struct timespec now;
    uint64_t life;

    if (getrandom(&life, sizeof(life), GRND_NONBLOCK) == sizeof(life))
        return life;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000007 ^ (uint64_t)now.tv_nsec;
}

static struct accounts_writer *writer_new(const char *path) {
    struct accounts_writer *writer = calloc(1, sizeof(*writer));
    pthread_condattr_t attributes;

    if (!writer)
        return NULL;
    list_init(&writer->asked);
    list_init(&writer->queue);
    list_init(&writer->questions);
    list_init(&writer->unnamed);
    list_init(&writer->answers);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&writer->wake, &attributes);
    pthread_cond_init(&writer->ended, &attributes);
    pthread_cond_init(&writer->name, &attributes);
    pthread_condattr_destroy(&attributes);
    writer->life = life_new();
    writer->path = strdup(path);
    writer->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return writer;
}

int accounts_writer_new(struct accounts_writer **ret, const char *path, uint64_t since_usec,
                        struct allot_error *notice, struct allot_error *err) {
    struct accounts_writer *writer = writer_new(path);
    struct allot_error trouble = { 0 };
    sigset_t all, before;
    int r;

    if (!writer)
        return error_set(err, -ENOMEM, "out of memory");
    if (!writer->path || writer->fd < 0) {
        r = error_set(err, writer->path ? -errno : -ENOMEM, "cannot start the accounts: %m");
        writer_destroy(writer);
        return r;
    }
    writer->since_usec = since_usec;
    r = database_open(writer, notice, &trouble);
    if (r < 0 && !may_pass(r)) {
        if (err)
            *err = trouble;
        writer_destroy(writer);
        return r;
    }
    writer->is_behind = r < 0;
    if (r < 0)
        writer->trouble = trouble;

    /* Signals are for the event loop. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&writer->namer, NULL, name_main, writer);
    if (r == 0) {
        r = pthread_create(&writer->thread, NULL, thread_main, writer);
        if (r != 0) {
            pthread_mutex_lock(&writer->lock);
            writer->is_ending = true;
            pthread_cond_signal(&writer->name);
            pthread_mutex_unlock(&writer->lock);
            pthread_join(writer->namer, NULL);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        writer_destroy(writer);
        return error_set(err, -r, "cannot start the thread of the accounts: %s", strerror(r));
    }
    *ret = writer;
    return 0;
}
