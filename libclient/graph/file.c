/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/graph/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static int write_all(int fd, const uint8_t *bytes, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        bytes += n;
        size -= (size_t)n;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

int graph_save(const struct allot_graph *graph, const char *path, struct allot_error *err) {
    cleanup(freep) uint8_t *bytes = NULL;
    static _Atomic unsigned n_saved; /* names for files in the making */
    cleanup(freep) char *temporary = NULL;
    size_t size;
    int fd, r = graph_encode(graph, &bytes, &size, err);

    if (r < 0)
        return r;
    if (asprintf(&temporary, "%s.new-%d-%u", path, (int)getpid(), atomic_fetch_add(&n_saved, 1)) <
        0) {
        temporary = NULL;
        return error_set(err, -ENOMEM, "no memory to save a graph");
    }
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        r = -errno;
        return error_set(err, r, "%s: a file beside it cannot be made: %s", path, strerror(-r));
    }
    r = write_all(fd, bytes, size);
    close(fd);
    if (r == 0 && rename(temporary, path) < 0)
        r = -errno;
    if (r < 0) {
        unlink(temporary);
        return error_set(err, r, "%s: the graph cannot be written: %s", path, strerror(-r));
    }
    return 0;
}

static int read_all(int fd, uint8_t **ret, size_t *ret_size) {
    cleanup(freep) uint8_t *bytes = NULL;
    struct stat status;
    size_t size, n = 0;

    if (fstat(fd, &status) < 0)
        return -errno;
    if (S_ISDIR(status.st_mode))
        return -EISDIR;
    if (!S_ISREG(status.st_mode))
        return -EBADMSG;
    size = (size_t)status.st_size;
    bytes = malloc(size + 1);
    if (!bytes)
        return -ENOMEM;
    while (n < size) {
        ssize_t got = read(fd, bytes + n, size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *ret = TAKE(bytes);
    *ret_size = n;
    return 0;
}

int graph_load(struct allot_graph **ret, const char *path, struct allot_error *err) {
    cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    cleanup(freep) uint8_t *bytes = NULL;
    struct allot_error words = { 0 };
    size_t size = 0;
    int r = fd < 0 ? -errno : read_all(fd, &bytes, &size);

    if (r < 0)
        return error_set(err, r, "%s: the graph cannot be read: %s", path,
                         r == -EBADMSG ? "it is no regular file" : strerror(-r));
    r = graph_decode(ret, bytes, size, &words);
    return r < 0 ? error_set(err, r, "%s: %s", path, words.text) : 0;
}
