/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/cost_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "libclient/core/log.h"

/* What is in the file now, into an empty table. */
static void read_file(struct cost_store *store, struct cost_table *table) {
    cleanup(freep) char *text = NULL;
    const char *why = NULL;
    size_t n = 0;
    int r = cache_folder_read(store->folder, store->file, COST_TABLE_TEXT_MAX, &text, &n);

    if (r == -ENOENT)
        return;
    if (r == 0)
        r = cost_table_parse(table, store->version, text, n, &why);
    if (r < 0)
        log_say(r == -ESTALE ? ALLOT_LOG_INFO : ALLOT_LOG_WARNING,
                "%s/%s: the costs in it are not used: %s; ops are planned by the model until they "
                "are measured",
                store->folder->path, store->file,
                why           ? why
                : r == -EFBIG ? "it is too large"
                              : strerror(-r));
}

void cost_store_init(struct cost_store *store, struct cache_folder *folder) {
    struct utsname host = { .nodename = "" };

    *store = (struct cost_store){ .folder = folder };
    pthread_mutex_init(&store->lock, NULL);
    op_key_version(store->version);
    uname(&host);
    for (char *c = host.nodename; *c; c++)
        if (*c == '/' || *c <= ' ' || *c >= 0x7f)
            *c = '_';
    snprintf(store->file, sizeof(store->file), "costs-%.64s", host.nodename);
    read_file(store, &store->known);
}

void cost_store_done(struct cost_store *store) {
    cost_table_done(&store->known);
    cost_table_done(&store->fresh);
    pthread_mutex_destroy(&store->lock);
}

bool cost_store_find(struct cost_store *store, uint64_t kind, uint64_t op, double *ret_usec) {
    bool is_there;

    pthread_mutex_lock(&store->lock);
    is_there = cost_table_find(&store->known, kind, op, ret_usec);
    pthread_mutex_unlock(&store->lock);
    return is_there;
}

int cost_store_add(struct cost_store *store, uint64_t kind, uint64_t op, const char *name,
                   double usec) {
    int r;

    pthread_mutex_lock(&store->lock);
    r = cost_table_add(&store->fresh, kind, op, name, usec);
    pthread_mutex_unlock(&store->lock);
    return r == -ERANGE ? 0 : r;
}

static void write_file(struct cost_store *store) {
    struct cost_table table = { 0 };
    cleanup(freep) char *text = NULL;
    size_t n;

    read_file(store, &table);
    if (cost_table_merge(&table, &store->fresh) == 0 &&
        cost_table_print(&table, store->version, &text, &n) == 0)
        cache_folder_write(store->folder, store->file, text, n);
    cost_table_done(&table);
}

void cost_store_save(struct cost_store *store) {
    pthread_mutex_lock(&store->lock);
    if (store->fresh.by_key.n > 0) {
        if (*store->folder->path)
            write_file(store);
        /* What others have measured meanwhile is left for the next session: the plans of this one
         * depend on what it measured itself. */
        cost_table_merge(&store->known, &store->fresh);
        cost_table_done(&store->fresh);
    }
    pthread_mutex_unlock(&store->lock);
}
