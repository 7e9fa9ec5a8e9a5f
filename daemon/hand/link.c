/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/hand/wire.h"

/* How many helpers that we started and gave up may linger in the kernel. */
#define ABANDONED_MAX 8

struct child {
    struct list link;
    struct hand_link *owner;
    pid_t pid;
    int pidfd;
    sd_event_source *source;
};

static void child_free(struct child *child) {
    if (child->owner->child == child)
        child->owner->child = NULL;
    child->owner->n_children--;
    list_remove(&child->link);
    sd_event_source_disable_unref(child->source);
    if (child->pidfd >= 0)
        close(child->pidfd);
    free(child);
}

static int child_ended(sd_event_source *source, int fd, uint32_t events, void *userdata) {
    struct child *child = userdata;

    waitpid(child->pid, NULL, WNOHANG);
    child_free(child);
    return 0;
}

/* Beside the running program (a build tree, a private box), else where it is installed. */
static char *find_program(const char *name) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    char *found = NULL, *slash;

    if (n > 0) {
        path[n] = 0;
        slash = strrchr(path, '/');
        if (asprintf(&found, "%.*s/%s", (int)(slash - path), path, name) < 0)
            return NULL;
        if (access(found, X_OK) == 0)
            return found;
        free(found);
    }
    return asprintf(&found, ALLOT_LIBEXECDIR "/%s", name) < 0 ? NULL : found;
}

int hand_link_init(struct hand_link *link, sd_event *event, const char *name,
                   const struct hand_address *address) {
    *link = (struct hand_link){ .fd = -1, .event = sd_event_ref(event), .name = name };
    list_init(&link->children);
    if (address->socket)
        link->socket = strdup(address->socket);
    else
        link->program = address->program ? strdup(address->program) : find_program(name);
    return link->socket || link->program ? 0 : -ENOMEM;
}

void hand_link_close(struct hand_link *link) {
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    /* It ends by itself when it sees the end of the connection; one that hangs does not see it. */
    if (link->child)
        kill(link->child->pid, SIGKILL);
    link->child = NULL;
}

void hand_link_done(struct hand_link *link) {
    if (!link->event)
        return;
    hand_link_close(link);
    while (!list_is_empty(&link->children)) {
        struct child *child = list_entry(link->children.next, struct child, link);

        /* It was killed; one that is stuck in the kernel is left to init. */
        for (int i = 0; i < 20 && waitpid(child->pid, NULL, WNOHANG) == 0; i++)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        child_free(child);
    }
    sd_event_unref(link->event);
    free(link->socket);
    free(link->program);
}

static int connect_socket(struct hand_link *link, struct allot_error *err) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    cleanup(closep) int fd = -1;

    if (strlen(link->socket) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG, "%s is too long for a socket", link->socket);
    strcpy(address.sun_path, link->socket);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, -errno, "cannot make a socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_set(err, -errno, "%s cannot be reached at %s: %s", link->name, link->socket,
                         strerror(errno));
    link->fd = TAKE_FD(fd);
    return 0;
}

/* In the child: only the socket, as HAND_FD, and the standard descriptors survive. */
static void become_helper(const char *program, int socket) {
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    unsetenv("LISTEN_FDS"); /* allotd's own */
    unsetenv("LISTEN_PID");
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    if (socket == HAND_FD)
        fcntl(socket, F_SETFD, 0);
    else
        dup2(socket, HAND_FD);
    close_range(HAND_FD + 1, UINT_MAX, 0);
    execl(program, program, (char *)NULL);
    _exit(127);
}

static int start_program(struct hand_link *link, struct allot_error *err) {
    struct child *child;
    int sockets[2], r;
    pid_t pid;

    if (access(link->program, X_OK) < 0)
        return error_set(err, -errno, "%s cannot be run: %s", link->program, strerror(errno));
    child = calloc(1, sizeof(*child));
    if (!child)
        return error_set(err, -ENOMEM, "out of memory");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
        free(child);
        return error_set(err, -errno, "cannot make a pair of sockets: %s", strerror(errno));
    }
    pid = fork();
    if (pid == 0)
        become_helper(link->program, sockets[1]);
    r = pid < 0 ? -errno : 0;
    close(sockets[1]);
    if (r < 0) {
        close(sockets[0]);
        free(child);
        return error_set(err, r, "%s cannot be started: %s", link->program, strerror(-r));
    }
    *child = (struct child){ .owner = link, .pid = pid, .pidfd = -1 };
    list_init(&child->link);
    list_append(&link->children, &child->link);
    link->n_children++;
    link->child = child;
    link->fd = sockets[0];
    fcntl(link->fd, F_SETFL, O_NONBLOCK);
    child->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (child->pidfd >= 0)
        sd_event_add_io(link->event, &child->source, child->pidfd, EPOLLIN, child_ended, child);
    return 0;
}

int hand_link_open(struct hand_link *link, struct allot_error *err) {
    if (link->n_children >= ABANDONED_MAX)
        return error_set(err, -EBUSY, "%u processes of %s are stuck already: no more are started",
                         link->n_children, link->name);
    return link->socket ? connect_socket(link, err) : start_program(link, err);
}
