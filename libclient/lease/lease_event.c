/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/lease/lease_event.h"

#include <sys/socket.h>

static void ring(const struct own_fd *out) {
    if (own_fd_is_there(out))
        send(out->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Make the pair, again if need be. Locked. */
static int open_pair(struct lease_event *event) {
    int fds[2], r;

    own_fd_done(&event->in);
    own_fd_done(&event->out);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
        return -errno;
    r = own_fd_init(&event->in, fds[0]);
    if (r < 0) {
        close(fds[1]);
        return r;
    }
    r = own_fd_init(&event->out, fds[1]);
    if (r == 0 && event->is_raised)
        ring(&event->out);
    return r;
}

int lease_event_init(struct lease_event *event) {
    int r;

    *event = (struct lease_event){ .in = OWN_FD_NONE, .out = OWN_FD_NONE };
    r = -pthread_mutex_init(&event->lock, NULL);
    return r < 0 ? r : open_pair(event);
}

void lease_event_done(struct lease_event *event) {
    own_fd_done(&event->in);
    own_fd_done(&event->out);
}

void lease_event_raise(struct lease_event *event) {
    pthread_mutex_lock(&event->lock);
    if (!event->is_raised)
        ring(&event->out);
    event->is_raised = true;
    pthread_mutex_unlock(&event->lock);
}

void lease_event_lower(struct lease_event *event) {
    char bytes[8];

    pthread_mutex_lock(&event->lock);
    event->is_raised = false;
    while (own_fd_is_there(&event->in) &&
           recv(event->in.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    pthread_mutex_unlock(&event->lock);
}

/* Locked. */
static bool is_lost(const struct lease_event *event) {
    return !own_fd_is_there(&event->in) || !own_fd_is_there(&event->out);
}

bool lease_event_is_lost(struct lease_event *event) {
    bool lost;

    pthread_mutex_lock(&event->lock);
    lost = is_lost(event);
    pthread_mutex_unlock(&event->lock);
    return lost;
}

int lease_event_fd(struct lease_event *event) {
    int fd;

    pthread_mutex_lock(&event->lock);
    fd = is_lost(event) && open_pair(event) < 0 ? -1 : event->in.fd;
    pthread_mutex_unlock(&event->lock);
    return fd;
}
