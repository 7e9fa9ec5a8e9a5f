/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     loop ── find, name ─▶ known? ─no─▶ wanted[] ─▶ thread: look_up ─▶ found[] ─▶ eventfd ─▶ known
 *
 * `known` is the loop's own; the two short arrays and the table of subordinate uids, under the
 * lock, are all that is shared. When the thread hangs the arrays fill up, and a user that does not
 * fit is asked for again next time.
 */
#include "daemon/config/user_database.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "daemon/config/subuid.h"

#define QUEUE_MAX   64
#define RETRY_USEC  (UINT64_C(60) * 1000 * 1000) /* after a lookup that failed */
#define BUFFER_SIZE ((size_t)64 << 10)

/* A user, as the loop knows it. */
struct user_entry {
    uid_t uid;
    struct user_facts facts;
    uint64_t retry_usec; /* when it is looked up again */
    bool is_known;       /* `facts` are the database's, and not made up */
    bool is_wanted;      /* the thread has been asked */
};

struct user_database {
    user_database_fn look_up;
    char *subuid_path;
    struct map known; /* of struct user_entry, by uid; the loop's */
    char number[16];  /* of a user for whom there was no memory */
    bool is_late;     /* the thread was waited for in vain; the loop's */
    int fd;           /* eventfd: there are answers */

    pthread_mutex_t lock;
    pthread_cond_t asked, answered;
    pthread_t thread;
    bool is_stopped, is_busy;
    uint64_t busy_usec; /* since when, where it is */
    size_t n_wanted, n_found;
    uid_t wanted[QUEUE_MAX];
    struct {
        uid_t uid;
        int r;
        struct user_facts facts;
    } found[QUEUE_MAX];
    struct subuid_table subuids;

    /* The thread's. */
    bool has_subuids; /* they were read once */
    struct stat subuid_stat;
    uint64_t subuid_retry_usec;
};

/* ---- The thread ---- */

static int look_up_groups(struct user_facts *facts) {
    int n = 32;

    for (;;) {
        int size = n;
        gid_t *gids = reallocarray(facts->gids, (size_t)size, sizeof(*gids));

        if (!gids)
            return -ENOMEM;
        facts->gids = gids;
        if (getgrouplist(facts->name, facts->gid, gids, &n) >= 0 ||
            size == USER_DATABASE_GROUPS_MAX) {
            facts->n_gids = (size_t)MIN(n, size);
            return 0;
        }
        n = MIN(MAX(n, size + 1), USER_DATABASE_GROUPS_MAX);
    }
}

static int look_up_user(uid_t uid, struct user_facts *ret) {
    cleanup(freep) char *buffer = malloc(BUFFER_SIZE);
    struct passwd entry, *found = NULL;
    int r;

    if (!buffer)
        return -ENOMEM;
    r = getpwuid_r(uid, &entry, buffer, BUFFER_SIZE, &found);
    if (r != 0)
        return -r;
    if (!found)
        return -ENOENT;
    snprintf(ret->name, sizeof(ret->name), "%s", found->pw_name);
    ret->gid = found->pw_gid;
    return look_up_groups(ret);
}

static int find_user(uid_t *ret, const char *name) {
    cleanup(freep) char *buffer = malloc(BUFFER_SIZE);
    struct passwd entry, *found = NULL;
    unsigned long number;
    char *end;
    int r;

    if (!buffer)
        return -ENOMEM;
    r = getpwnam_r(name, &entry, buffer, BUFFER_SIZE, &found);
    if (r == 0 && found) {
        *ret = found->pw_uid;
        return 0;
    }
    number = strtoul(name, &end, 10);
    if (end != name && !*end && number < UINT32_MAX) {
        *ret = (uid_t)number;
        return 0;
    }
    return r == 0 || r == ENOENT || r == ESRCH ? -ENOENT : -r;
}

/* The whole file as it is now; an absent one is empty. */
static int read_subuids(const char *path, struct subuid_table *ret) {
    cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    cleanup(freep) char *text = NULL;
    size_t size = 0;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    text = malloc(SUBUID_SIZE_MAX);
    if (!text)
        return -ENOMEM;
    while (size < SUBUID_SIZE_MAX) {
        ssize_t n = read(fd, text + size, SUBUID_SIZE_MAX - size);

        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        size += (size_t)n;
    }
    return subuid_parse(ret, text, size, find_user);
}

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Whose subordinate uids are whose, if that may have changed. Without the lock. */
static void refresh_subuids(struct user_database *database) {
    uint64_t now_usec = clock_usec(CLOCK_MONOTONIC);
    struct subuid_table table = { 0 };
    struct stat st = { 0 };
    int r;

    if (!database->subuid_path || now_usec < database->subuid_retry_usec)
        return;
    if (stat(database->subuid_path, &st) < 0)
        st = (struct stat){ 0 };
    if (database->has_subuids && is_same_file(&st, &database->subuid_stat))
        return;
    r = read_subuids(database->subuid_path, &table);
    if (r < 0) {
        database->subuid_retry_usec = now_usec + RETRY_USEC; /* what was known still counts */
        return;
    }
    database->subuid_stat = st;
    database->has_subuids = true;
    pthread_mutex_lock(&database->lock);
    subuid_done(&database->subuids);
    database->subuids = table;
    pthread_mutex_unlock(&database->lock);
}

/* All that is to be known of a uid. Without the lock: it alone changes the table. */
static int look_up(struct user_database *database, uid_t uid, struct user_facts *ret) {
    uid_t owner;
    int r;

    refresh_subuids(database);
    ret->account = uid;
    r = database->look_up(uid, ret);
    if (r == -ENOENT && database->subuid_path && !database->has_subuids)
        return -EAGAIN;
    if (r == -ENOENT && subuid_find(&database->subuids, uid, &owner)) {
        ret->account = owner;
        r = database->look_up(owner, ret);
        ret->name[0] = '\0'; /* it is the owner's */
    }
    ret->has_groups = r == 0;
    return r;
}

static void *run(void *argument) {
    struct user_database *database = argument;
    uint64_t one = 1;

    refresh_subuids(database); /* is_busy from the beginning */
    pthread_mutex_lock(&database->lock);
    database->is_busy = false;
    while (!database->is_stopped) {
        struct user_facts facts = { 0 };
        uid_t uid;
        int r;

        if (database->n_wanted == 0 || database->n_found == QUEUE_MAX) {
            pthread_cond_wait(&database->asked, &database->lock);
            continue;
        }
        uid = database->wanted[0];
        memmove(database->wanted, database->wanted + 1, --database->n_wanted * sizeof(uid));
        database->is_busy = true;
        database->busy_usec = clock_usec(CLOCK_MONOTONIC);
        pthread_mutex_unlock(&database->lock);
        r = look_up(database, uid, &facts);
        pthread_mutex_lock(&database->lock);
        database->is_busy = false;
        database->found[database->n_found].uid = uid;
        database->found[database->n_found].r = r;
        database->found[database->n_found++].facts = facts;
        pthread_cond_signal(&database->answered);
        (void)!write(database->fd, &one, sizeof(one)); /* else it is readable already */
    }
    pthread_mutex_unlock(&database->lock);
    return NULL;
}

/* ---- Life ---- */

static void destroy(struct user_database *database) {
    for (size_t i = 0; i < database->n_found; i++)
        free(database->found[i].facts.gids);
    subuid_done(&database->subuids);
    pthread_cond_destroy(&database->asked);
    pthread_cond_destroy(&database->answered);
    pthread_mutex_destroy(&database->lock);
    closep(&database->fd);
    free(database->subuid_path);
    free(database);
}

int user_database_new(struct user_database **ret, user_database_fn look_up_one,
                      const char *subuid_path) {
    struct user_database *database = calloc(1, sizeof(*database));
    pthread_condattr_t monotonic;
    sigset_t all, before;
    int r;

    if (!database)
        return -ENOMEM;
    database->look_up = look_up_one ? look_up_one : look_up_user;
    pthread_mutex_init(&database->lock, NULL);
    pthread_cond_init(&database->asked, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&database->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    database->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = database->fd < 0 ? -errno : 0;
    if (r == 0 && subuid_path && !(database->subuid_path = strdup(subuid_path)))
        r = -ENOMEM;
    database->is_busy = true;
    database->busy_usec = clock_usec(CLOCK_MONOTONIC);
    if (r == 0) {
        sigfillset(&all); /* signals are the loop's */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = -pthread_create(&database->thread, NULL, run, database);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (r < 0) {
        destroy(database);
        return r;
    }
    *ret = database;
    return 0;
}

static void entry_free(struct user_database *database, struct user_entry *entry) {
    map_take(&database->known, entry->uid);
    free(entry->facts.gids);
    free(entry);
}

static void forget_all(struct user_database *database) {
    struct user_entry *entry;

    for (size_t pos = 0; (entry = map_next(&database->known, &pos));) {
        free(entry->facts.gids);
        free(entry);
    }
    map_done(&database->known);
}

struct user_database *user_database_free(struct user_database *database) {
    bool is_busy;

    if (!database)
        return NULL;
    forget_all(database);
    pthread_mutex_lock(&database->lock);
    database->is_stopped = true;
    is_busy = database->is_busy;
    pthread_cond_signal(&database->asked);
    pthread_mutex_unlock(&database->lock);
    if (is_busy) {
        pthread_detach(database->thread);
        return NULL;
    }
    pthread_join(database->thread, NULL);
    destroy(database);
    return NULL;
}

/* ---- The loop ---- */

/* What the thread has found, into what is known. Locked. */
static void take_found(struct user_database *database) {
    uint64_t now_usec = clock_usec(CLOCK_MONOTONIC);

    for (size_t i = 0; i < database->n_found; i++) {
        struct user_entry *entry = map_find(&database->known, database->found[i].uid);
        struct user_facts *facts = &database->found[i].facts;
        const int r = database->found[i].r;

        if (!entry) { /* forgotten meanwhile */
            free(facts->gids);
            continue;
        }
        entry->is_wanted = false;
        entry->retry_usec =
            now_usec + (r == 0 || r == -ENOENT ? USER_DATABASE_FRESH_USEC : RETRY_USEC);
        if (r < 0 && r != -ENOENT) { /* what was known still counts */
            free(facts->gids);
            continue;
        }
        if (!facts->name[0])
            memcpy(facts->name, entry->facts.name, sizeof(facts->name));
        free(entry->facts.gids);
        entry->facts = *facts;
        entry->is_known = true;
    }
    if (database->n_found > 0) {
        database->n_found = 0;
        database->is_late = false;
        pthread_cond_signal(&database->asked); /* there is room again */
    }
}

/* Locked. */
static void ask(struct user_database *database, uid_t uid, struct user_entry *entry) {
    if (entry->is_wanted || database->n_wanted == QUEUE_MAX)
        return;
    database->wanted[database->n_wanted++] = uid;
    entry->is_wanted = true;
    pthread_cond_signal(&database->asked);
}

/* Users without an entry come in any number, if a user has many subordinate uids: these go first.
 */
static void make_room(struct user_database *database) {
    struct user_entry *entry;

    for (size_t pos = 0; (entry = map_next(&database->known, &pos));)
        if (!entry->facts.has_groups || entry->facts.account != entry->uid)
            entry_free(database, entry);
    if (database->known.n >= USER_DATABASE_MAX / 2)
        forget_all(database);
}

/* What is known of a user, asked for where that is not enough; NULL: no memory. */
static struct user_entry *entry_get(struct user_database *database, uid_t uid) {
    struct user_entry *entry = map_find(&database->known, uid);

    if (entry && !entry->is_wanted && entry->retry_usec > clock_usec(CLOCK_MONOTONIC))
        return entry;
    if (!entry) {
        if (database->known.n >= USER_DATABASE_MAX)
            make_room(database);
        entry = calloc(1, sizeof(*entry));
        if (entry && map_put(&database->known, uid, entry) < 0) {
            free(entry);
            entry = NULL;
        }
        if (!entry)
            return NULL;
        entry->uid = uid;
        entry->facts.account = uid;
        snprintf(entry->facts.name, sizeof(entry->facts.name), "%u", (unsigned)uid);
    }
    pthread_mutex_lock(&database->lock);
    take_found(database);
    if (entry->retry_usec <= clock_usec(CLOCK_MONOTONIC))
        ask(database, uid, entry);
    pthread_mutex_unlock(&database->lock);
    return entry;
}

/* For a moment. */
static void wait_for(struct user_database *database, const struct user_entry *entry) {
    struct timespec deadline =
        clock_timespec(clock_usec(CLOCK_MONOTONIC) + USER_DATABASE_WAIT_USEC);

    pthread_mutex_lock(&database->lock);
    while (entry->is_wanted && !database->is_late) {
        if (database->n_found == 0 &&
            pthread_cond_timedwait(&database->answered, &database->lock, &deadline) != 0)
            database->is_late = true;
        take_found(database);
    }
    pthread_mutex_unlock(&database->lock);
}

const char *user_database_name(struct user_database *database, uid_t uid) {
    struct user_entry *entry = entry_get(database, uid);

    if (!entry) {
        snprintf(database->number, sizeof(database->number), "%u", (unsigned)uid);
        return database->number;
    }
    if (!entry->is_known)
        wait_for(database, entry);
    return entry->facts.name;
}

const struct user_facts *user_database_find(struct user_database *database, uid_t uid) {
    const struct user_entry *entry = entry_get(database, uid);

    return entry && entry->is_known ? &entry->facts : NULL;
}

bool user_database_is_late(struct user_database *database) {
    bool is_late;

    pthread_mutex_lock(&database->lock);
    is_late = database->is_busy &&
              clock_usec(CLOCK_MONOTONIC) - database->busy_usec >= USER_DATABASE_LATE_USEC;
    pthread_mutex_unlock(&database->lock);
    return is_late;
}

uid_t user_database_owner(struct user_database *database, uid_t uid) {
    uid_t owner = uid;

    pthread_mutex_lock(&database->lock);
    subuid_find(&database->subuids, uid, &owner);
    pthread_mutex_unlock(&database->lock);
    return owner;
}

int user_database_fd(const struct user_database *database) {
    return database->fd;
}

void user_database_dispatch(struct user_database *database) {
    uint64_t n;

    (void)!read(database->fd, &n, sizeof(n));
    pthread_mutex_lock(&database->lock);
    take_found(database);
    pthread_mutex_unlock(&database->lock);
}
