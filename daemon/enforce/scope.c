/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cgroup_owner.h"
#include "base/cleanup.h"
#include "daemon/log.h"
#include "daemon/manager.h"

struct scope {
    struct manager *manager;
    uint64_t lease;
    sd_event_source *source; /* NULL: only the tick checks */
    char path[];             /* of cgroup.events */
};

static void scope_free(struct scope *scope) {
    if (!scope)
        return;
    map_take(&scope->manager->scopes.by_lease, scope->lease);
    sd_event_source_disable_unref(scope->source);
    free(scope);
}

/* Whether the cgroup is empty or gone. What cannot be read is not empty. */
static bool is_vacant(const char *path) {
    cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[256];
    ssize_t n;

    if (fd < 0)
        return errno == ENOENT || errno == ENODEV;
    n = read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return errno == ENODEV;
    text[n] = 0;
    return strstr(text, "populated 0") != NULL;
}

/* Look; the scope may be gone afterwards. */
static void look(struct scope *scope, struct moment now) {
    struct manager *manager = scope->manager;
    uint64_t lease = scope->lease;

    if (!is_vacant(scope->path))
        return;
    scope_free(scope);
    broker_vacated(manager->broker, lease, now);
}

static int on_change(sd_event_source *source, const struct inotify_event *event, void *data) {
    struct scope *scope = data;
    struct manager *manager = scope->manager;

    look(scope, manager_now(manager));
    hand_sample(manager->hand);
    manager_settle(manager);
    return 0;
}

void scope_watch(struct manager *manager, uint64_t lease, const char *cgroup) {
    struct scope *scope;
    const char *root = cgroup_owner_root();
    size_t size;
    int r;

    /* A scope that cannot be seen is not taken for an empty one. */
    if (!*cgroup || !root || map_find(&manager->scopes.by_lease, lease))
        return;
    size = strlen(root) + strlen(cgroup) + sizeof("/cgroup.events");
    scope = calloc(1, sizeof(*scope) + size);
    if (scope) {
        scope->manager = manager;
        scope->lease = lease;
        snprintf(scope->path, size, "%s%s/cgroup.events", root, cgroup);
    }
    if (!scope || map_put(&manager->scopes.by_lease, lease, scope) < 0) {
        free(scope);
        log_line(LOG_WARNING, &(struct log_about){ .lease = lease },
                 "out of memory: the scope of lease %llu is not watched; a "
                 "release ends the lease",
                 (unsigned long long)lease);
        return;
    }
    r = sd_event_add_inotify(manager->event, &scope->source, scope->path,
                             IN_MODIFY | IN_DELETE_SELF, on_change, scope);
    if (r < 0)
        scope->source = NULL;
}

void scope_tick(struct manager *manager, struct moment now) {
    struct scope *scope;

    for (size_t pos = 0; (scope = map_next(&manager->scopes.by_lease, &pos));) {
        if (!broker_lease(manager->broker, scope->lease))
            scope_free(scope);
        else
            look(scope, now);
    }
}

void scope_list_done(struct scope_list *scopes) {
    struct scope *scope;

    for (size_t pos = 0; (scope = map_next(&scopes->by_lease, &pos));)
        scope_free(scope);
    map_done(&scopes->by_lease);
}
