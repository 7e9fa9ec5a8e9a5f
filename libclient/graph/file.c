/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/graph/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "libclient/core/whole.h"

int graph_file_save(const struct allot_graph *graph, const char *path, struct allot_error *err) {
    cleanup(freep) uint8_t *bytes = NULL;
    struct whole file;
    size_t size;
    int r = graph_encode(graph, &bytes, &size, err);

    if (r == 0)
        r = whole_begin(&file, path, err);
    if (r < 0)
        return r;
    whole_write(&file, bytes, size);
    return whole_end(&file, err);
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

int graph_file_load(struct allot_graph **ret, const char *path, struct allot_error *err) {
    cleanup(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    cleanup(freep) uint8_t *bytes = NULL;
    struct allot_error words = { 0 };
    size_t size = 0;
    int r = fd < 0 ? -errno : read_all(fd, &bytes, &size);

    if (r < 0)
        return error_set(err, r, "%s: the graph cannot be read: %s", path,
                         r == -EBADMSG ? "it is not a regular file" : strerror(-r));
    r = graph_decode(ret, bytes, size, &words);
    return r < 0 ? error_set(err, r, "%s: %s", path, words.text) : 0;
}
