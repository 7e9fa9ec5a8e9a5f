/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/lease_news.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/gpuid.h"
#include "libclient/allot/lease.h"
#include "libclient/core/log.h"

enum { DEVICES_MAX = 64 };

/* Not the lock of the set of devices: that is held while the thread of the lease is awaited. */
static struct {
    pthread_mutex_t lock;
    struct {
        struct gpuid id;
        struct lease_news news;
    } devices[DEVICES_MAX];
    size_t n;
    struct lease_news all; /* of the lease */
    bool is_leaving;       /* the process itself ends the lease */
} told = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic uint64_t n_news;

/* With the lock held. NULL: it is no device, or there are too many. */
static struct lease_news *find(const char *uuid, bool makes) {
    struct gpuid id;

    if (gpuid_parse(&id, uuid) < 0)
        return NULL;
    for (size_t i = 0; i < told.n; i++)
        if (memcmp(told.devices[i].id.uuid, id.uuid, sizeof(id.uuid)) == 0)
            return &told.devices[i].news;
    if (!makes || told.n == DEVICES_MAX)
        return NULL;
    told.devices[told.n].id = id;
    told.devices[told.n].news = (struct lease_news){ 0 };
    return &told.devices[told.n++].news;
}

static void worsen(struct lease_news *news, enum lease_standing to) {
    if (news->standing < to)
        news->standing = to;
}

void lease_news_note(void *userdata, const struct allot_lease_notice *notice) {
    const char *text = notice->text ? notice->text : "";
    struct lease_news *news;
    bool is_news = true;

    pthread_mutex_lock(&told.lock);
    news = told.is_leaving ? NULL : notice->device ? find(notice->device, true) : &told.all;
    switch (news ? notice->event : ALLOT_LEASE_IDLE) {
    case ALLOT_LEASE_RECALL:
        news->recalled_bytes += notice->bytes;
        break;
    case ALLOT_LEASE_DRAINING:
        worsen(news, LEASE_DRAINING);
        break;
    case ALLOT_LEASE_ENDING:
        worsen(news, LEASE_ENDING);
        break;
    case ALLOT_LEASE_LOST:
        /* A lease that is gone takes the right to the memory with it, not its contents. */
        worsen(news, notice->device ? LEASE_LOST : LEASE_ENDING);
        break;
    default:
        is_news = false;
    }
    if (is_news && notice->event != ALLOT_LEASE_RECALL)
        snprintf(news->text, sizeof(news->text), "%s", text);
    pthread_mutex_unlock(&told.lock);
    /* Before a reader can know it, so that the log tells causes first. */
    if (is_news)
        log_say(ALLOT_LOG_NOTICE, "the daemon says: %s", text);
    if (is_news)
        atomic_fetch_add(&n_news, 1);
}

void lease_news_leave(void) {
    pthread_mutex_lock(&told.lock);
    told.is_leaving = true;
    pthread_mutex_unlock(&told.lock);
}

void lease_news_forget(void) {
    pthread_mutex_lock(&told.lock);
    told.is_leaving = false;
    told.n = 0;
    told.all = (struct lease_news){ 0 };
    pthread_mutex_unlock(&told.lock);
    if (atomic_load(&n_news) > 0)
        atomic_fetch_add(&n_news, 1);
}

uint64_t lease_news_count(void) {
    return atomic_load_explicit(&n_news, memory_order_acquire);
}

struct lease_news lease_news_of(const char *uuid) {
    const struct lease_news *found;
    struct lease_news news;

    pthread_mutex_lock(&told.lock);
    found = find(uuid, false);
    news = found ? *found : (struct lease_news){ 0 };
    if (told.all.standing > news.standing) {
        news.standing = told.all.standing;
        memcpy(news.text, told.all.text, sizeof(news.text));
    }
    pthread_mutex_unlock(&told.lock);
    return news;
}
