/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/process_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/manager.h"

struct watched_process {
    struct manager *manager;
    struct process_id process;
    int pidfd;
    sd_event_source *source;
};

static void watched_process_free(struct watched_process *watched_process) {
    if (!watched_process)
        return;
    map_take(&watched_process->manager->process_watch.processes,
             process_id_key(&watched_process->process));
    sd_event_source_disable_unref(watched_process->source);
    closep(&watched_process->pidfd);
    free(watched_process);
}

static int on_end(sd_event_source *source, int fd, uint32_t events, void *data) {
    struct watched_process *watched_process = data;
    struct manager *manager = watched_process->manager;
    struct process_id process = watched_process->process;

    watched_process_free(watched_process);
    broker_process_gone(manager->broker, &process, manager_now(manager));
    /* What it used is free as soon as the driver says so, which is soon: take a sample. */
    hand_sample(manager->hand);
    manager_settle(manager);
    return 0;
}

int process_watch_begin(struct manager *manager, const struct process_id *process) {
    struct watched_process *watched_process =
        map_find(&manager->process_watch.processes, process_id_key(process));
    int r;

    if (watched_process)
        return 0;
    watched_process = malloc(sizeof(*watched_process));
    if (!watched_process)
        return -ENOMEM;
    *watched_process = (struct watched_process){ manager, *process, -1, NULL };
    r = process_open(&watched_process->pidfd, process);
    if (r >= 0)
        r = sd_event_add_io(manager->event, &watched_process->source, watched_process->pidfd,
                            EPOLLIN, on_end, watched_process);
    if (r >= 0)
        r = map_put(&manager->process_watch.processes, process_id_key(process), watched_process);
    if (r < 0) {
        sd_event_source_disable_unref(watched_process->source);
        closep(&watched_process->pidfd);
        free(watched_process);
        return r;
    }
    return 0;
}

void process_watch_done(struct process_watch *watch) {
    struct watched_process *watched_process;

    for (size_t pos = 0; (watched_process = map_next(&watch->processes, &pos));)
        watched_process_free(watched_process);
    map_done(&watch->processes);
}
