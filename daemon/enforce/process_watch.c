/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/process_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/manager.h"

struct tenure {
    struct manager *manager;
    struct process_id process;
    int pidfd;
    sd_event_source *source;
};

/* Pids have 22 bits; a start time in ticks has not 42 before a box has been up for centuries. */
static uint64_t key_of(const struct process_id *process) {
    return process->start << 22 ^ (uint64_t)process->pid;
}

static void tenure_free(struct tenure *tenure) {
    if (!tenure)
        return;
    map_take(&tenure->manager->tenures, key_of(&tenure->process));
    sd_event_source_disable_unref(tenure->source);
    closep(&tenure->pidfd);
    free(tenure);
}

static int on_end(sd_event_source *source, int fd, uint32_t events, void *data) {
    struct tenure *tenure = data;
    struct manager *manager = tenure->manager;
    struct process_id process = tenure->process;

    tenure_free(tenure);
    broker_process_gone(manager->broker, &process, manager_now(manager));
    /* What it used is free as soon as the driver says so, which is soon: look. */
    hand_sample(manager->hand);
    manager_settle(manager);
    return 0;
}

int tenure_watch(struct manager *manager, const struct process_id *process) {
    struct tenure *tenure = map_find(&manager->tenures, key_of(process));
    int r;

    if (tenure)
        return 0;
    tenure = malloc(sizeof(*tenure));
    if (!tenure)
        return -ENOMEM;
    *tenure = (struct tenure){ manager, *process, -1, NULL };
    r = process_open(&tenure->pidfd, process);
    if (r >= 0)
        r = sd_event_add_io(manager->event, &tenure->source, tenure->pidfd, EPOLLIN, on_end,
                            tenure);
    if (r >= 0)
        r = map_put(&manager->tenures, key_of(process), tenure);
    if (r < 0) {
        sd_event_source_disable_unref(tenure->source);
        closep(&tenure->pidfd);
        free(tenure);
        return r;
    }
    return 0;
}

void tenure_free_all(struct manager *manager) {
    struct tenure *tenure;

    for (size_t pos = 0; (tenure = map_next(&manager->tenures, &pos));)
        tenure_free(tenure);
    map_done(&manager->tenures);
}
