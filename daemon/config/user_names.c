/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     loop ── user_names_get ─▶ known? ─no─▶ wanted[] ─▶ thread: look_up ─▶ found[] ─▶ known
 *
 * `known` is the loop's own; the two short arrays, under the lock, are all that is shared. When the
 * thread hangs they fill up, and a user that does not fit is asked for again next time.
 */
#include "daemon/config/user_names.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"

#define NAME_SIZE   64 /* longer names are cut */
#define QUEUE_MAX   64
#define RETRY_USEC  (UINT64_C(60) * 1000 * 1000) /* after a lookup that failed */
#define BUFFER_SIZE ((size_t)64 << 10)

/* A user, as the loop knows it. */
struct name {
    char text[NAME_SIZE];
    uint64_t retry_usec; /* when it is looked up again; UINT64_MAX: never */
    bool is_wanted;      /* the thread has been asked */
};

struct user_names {
    user_names_fn look_up;
    struct map known; /* of struct name, by uid; the loop's */
    char number[16];  /* of a user for whom there was no memory */
    bool is_late;     /* the thread was waited for in vain; the loop's */

    pthread_mutex_t lock;
    pthread_cond_t asked, answered;
    pthread_t thread;
    bool is_stopped, is_busy;
    size_t n_wanted, n_found;
    uid_t wanted[QUEUE_MAX];
    struct {
        uid_t uid;
        int r;
        char text[NAME_SIZE];
    } found[QUEUE_MAX];
};

static int look_up_user(uid_t uid, char *text, size_t size) {
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
    snprintf(text, size, "%s", found->pw_name);
    return 0;
}

static void *run(void *argument) {
    struct user_names *user_names = argument;

    pthread_mutex_lock(&user_names->lock);
    while (!user_names->is_stopped) {
        char text[NAME_SIZE] = "";
        uid_t uid;
        int r;

        if (user_names->n_wanted == 0 || user_names->n_found == QUEUE_MAX) {
            pthread_cond_wait(&user_names->asked, &user_names->lock);
            continue;
        }
        uid = user_names->wanted[0];
        memmove(user_names->wanted, user_names->wanted + 1, --user_names->n_wanted * sizeof(uid));
        user_names->is_busy = true;
        pthread_mutex_unlock(&user_names->lock);
        r = user_names->look_up(uid, text, sizeof(text));
        pthread_mutex_lock(&user_names->lock);
        user_names->is_busy = false;
        user_names->found[user_names->n_found].uid = uid;
        user_names->found[user_names->n_found].r = r;
        memcpy(user_names->found[user_names->n_found++].text, text, sizeof(text));
        pthread_cond_signal(&user_names->answered);
    }
    pthread_mutex_unlock(&user_names->lock);
    return NULL;
}

int user_names_new(struct user_names **ret, user_names_fn look_up) {
    struct user_names *user_names = calloc(1, sizeof(*user_names));
    pthread_condattr_t monotonic;
    sigset_t all, before;
    int r;

    if (!user_names)
        return -ENOMEM;
    user_names->look_up = look_up ? look_up : look_up_user;
    pthread_mutex_init(&user_names->lock, NULL);
    pthread_cond_init(&user_names->asked, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&user_names->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all); /* signals are the loop's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = -pthread_create(&user_names->thread, NULL, run, user_names);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r < 0) {
        free(user_names);
        return r;
    }
    *ret = user_names;
    return 0;
}

static void forget_all(struct user_names *user_names) {
    struct name *name;

    for (size_t pos = 0; (name = map_next(&user_names->known, &pos));)
        free(name);
    map_done(&user_names->known);
}

struct user_names *user_names_free(struct user_names *user_names) {
    bool is_busy;

    if (!user_names)
        return NULL;
    forget_all(user_names);
    pthread_mutex_lock(&user_names->lock);
    user_names->is_stopped = true;
    is_busy = user_names->is_busy;
    pthread_cond_signal(&user_names->asked);
    pthread_mutex_unlock(&user_names->lock);
    if (is_busy) {
        pthread_detach(user_names->thread);
        return NULL;
    }
    pthread_join(user_names->thread, NULL);
    pthread_cond_destroy(&user_names->asked);
    pthread_cond_destroy(&user_names->answered);
    pthread_mutex_destroy(&user_names->lock);
    free(user_names);
    return NULL;
}

/* What the thread has found, into what is known. Locked. */
static void take_found(struct user_names *user_names) {
    for (size_t i = 0; i < user_names->n_found; i++) {
        struct name *name = map_find(&user_names->known, user_names->found[i].uid);

        if (!name) /* forgotten meanwhile */
            continue;
        name->is_wanted = false;
        name->retry_usec = UINT64_MAX;
        if (user_names->found[i].r == 0)
            memcpy(name->text, user_names->found[i].text, sizeof(name->text));
        else if (user_names->found[i].r != -ENOENT)
            name->retry_usec = clock_usec(CLOCK_MONOTONIC) + RETRY_USEC;
    }
    if (user_names->n_found > 0) {
        user_names->n_found = 0;
        user_names->is_late = false;
        pthread_cond_signal(&user_names->asked); /* there is room again */
    }
}

/* The thread is asked for it; and for a moment it is waited for. Locked. */
static void ask(struct user_names *user_names, uid_t uid, struct name *name) {
    uint64_t until = clock_usec(CLOCK_MONOTONIC) + USER_NAMES_WAIT_USEC;
    struct timespec deadline = { .tv_sec = (time_t)(until / 1000000),
                                 .tv_nsec = (long)(until % 1000000) * 1000 };

    if (!name->is_wanted && user_names->n_wanted < QUEUE_MAX) {
        user_names->wanted[user_names->n_wanted++] = uid;
        name->is_wanted = true;
        pthread_cond_signal(&user_names->asked);
    }
    while (name->is_wanted && !user_names->is_late) {
        if (user_names->n_found == 0 &&
            pthread_cond_timedwait(&user_names->answered, &user_names->lock, &deadline) != 0)
            user_names->is_late = true;
        take_found(user_names);
    }
}

const char *user_names_get(struct user_names *user_names, uid_t uid) {
    struct name *name = map_find(&user_names->known, uid);

    if (name && !name->is_wanted && name->retry_usec > clock_usec(CLOCK_MONOTONIC))
        return name->text;
    if (!name) {
        if (user_names->known.n >= USER_NAMES_MAX)
            forget_all(user_names);
        name = calloc(1, sizeof(*name));
        if (name && map_put(&user_names->known, uid, name) < 0) {
            free(name);
            name = NULL;
        }
        if (!name) {
            snprintf(user_names->number, sizeof(user_names->number), "%u", (unsigned)uid);
            return user_names->number;
        }
        snprintf(name->text, sizeof(name->text), "%u", (unsigned)uid);
    }
    pthread_mutex_lock(&user_names->lock);
    take_found(user_names);
    if (name->is_wanted || name->retry_usec <= clock_usec(CLOCK_MONOTONIC))
        ask(user_names, uid, name);
    pthread_mutex_unlock(&user_names->lock);
    return name->text;
}
