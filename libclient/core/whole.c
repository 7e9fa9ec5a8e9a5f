/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"

int whole_begin(struct whole *ret, const char *path, struct allot_error *err) {
    struct whole whole = { .path = path, .fd = -1 };
    uint64_t random;
    int r;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        random = (uintptr_t)&random;
    if (asprintf(&whole.beside, "%s.%016" PRIx64, path, random) < 0)
        return error_set(err, -ENOMEM, "no host memory to write %s", path);
    whole.fd = open(whole.beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (whole.fd < 0) {
        r = -errno;
        free(whole.beside);
        return error_set(err, r, "%s: cannot create a temporary file next to it: %s", path,
                         strerror(-r));
    }
    *ret = whole;
    return 0;
}

void whole_write(struct whole *whole, const void *data, size_t n) {
    const char *at = data;

    while (n > 0 && whole->code == 0) {
        ssize_t done = write(whole->fd, at, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            whole->code = done < 0 ? -errno : -EIO;
            return;
        }
        at += done;
        n -= (size_t)done;
    }
}

/* Sync the folder too: only then is the new name on the disk. */
static void sync_folder(const char *path) {
    cleanup(freep) char *folder = strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    cleanup(closep) int fd = -1;

    if (!folder)
        return;
    if (slash)
        slash[slash == folder] = '\0';
    fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        fsync(fd);
}

int whole_end(struct whole *whole, struct allot_error *err) {
    int r = whole->code;

    if (r == 0 && fsync(whole->fd) < 0)
        r = -errno;
    close(whole->fd);
    if (r == 0 && rename(whole->beside, whole->path) < 0)
        r = -errno;
    if (r < 0)
        unlink(whole->beside);
    else
        sync_folder(whole->path);
    free(whole->beside);
    return r < 0 ? error_set(err, r, "%s cannot be written: %s", whole->path, strerror(-r)) : 0;
}
