/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/plan_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/log.h"

#define PREFIX "plan-"

/* Half of the digest is enough to tell files apart; the text has all of it. */
enum { NAME_DIGITS = SHA256_SIZE, NAME_SIZE = sizeof(PREFIX) + NAME_DIGITS };

static void name_of(const char *key, char ret[static NAME_SIZE]) {
    snprintf(ret, NAME_SIZE, PREFIX "%.*s", (int)NAME_DIGITS, key);
}

int plan_store_find(struct cache_folder *folder, const struct task_graph *graph,
                    const char key[static KEPT_PLAN_KEY_SIZE], struct dynamic_result *ret) {
    cleanup(freep) char *text = NULL;
    const char *why = NULL;
    char name[NAME_SIZE];
    size_t n;
    int r;

    name_of(key, name);
    r = cache_folder_read(folder, name, PLAN_STORE_FILE_MAX, &text, &n);
    if (r == 0)
        r = kept_plan_parse(graph, key, text, n, ret, &why);
    if (r == 0 || r == -ENOENT)
        return r;
    log_say(ALLOT_LOG_WARNING, "%s/%s: the plan in it is not used: %s; it is searched anew",
            folder->path, name,
            why           ? why
            : r == -EFBIG ? "it is too large"
                          : strerror(-r));
    return -ENOENT;
}

void plan_store_keep(struct cache_folder *folder, const struct task_graph *graph,
                     const char key[static KEPT_PLAN_KEY_SIZE],
                     const struct dynamic_result *result) {
    cleanup(freep) char *text = NULL;
    char name[NAME_SIZE];
    size_t n;

    if (!*folder->path || kept_plan_print(graph, result, key, &text, &n) < 0 ||
        n > PLAN_STORE_FILE_MAX)
        return;
    name_of(key, name);
    if (cache_folder_write(folder, name, text, n) == 0)
        cache_folder_limit(folder, PREFIX, PLAN_STORE_MAX, PLAN_STORE_BYTES_MAX);
}
