/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/cache_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "libclient/core/log.h"

#define NAME      "allot"
#define UNDER_WAY ".new-"

/* A file that a writer has not finished for so long never will be. */
enum { ABANDONED_SECONDS = 3600 };

/* Files of one kind that are looked at; more are not ours. */
enum { FILES_MAX = 4096 };

/* ---- The folder ------------------------------------------------------------------------------ */

static void set_default(struct cache_folder *ret) {
    const char *xdg = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = -1;

    /* Relative paths there have no meaning. */
    if (xdg && *xdg == '/')
        n = snprintf(ret->parent, sizeof(ret->parent), "%s", xdg);
    else if (home && *home == '/')
        n = snprintf(ret->parent, sizeof(ret->parent), "%s/.cache", home);
    if (n < 0 || (size_t)n + sizeof("/" NAME) > sizeof(ret->path))
        ret->parent[0] = '\0';
    else
        stpcpy(stpcpy(ret->path, ret->parent), "/" NAME);
}

void cache_folder_init(struct cache_folder *ret, const char *wanted) {
    *ret = (struct cache_folder){ 0 };
    if (!wanted)
        wanted = secure_getenv("ALLOT_CACHE_DIR");
    if (!wanted)
        set_default(ret);
    else if (strlen(wanted) < sizeof(ret->path))
        strcpy(ret->path, wanted);
}

/* Say it once. A home that is missing or cannot be written to, as services have it, is no fault. */
static int complain(struct cache_folder *folder, int r, const char *path, const char *what) {
    if (!atomic_exchange(&folder->has_warned, true))
        log_say(*folder->parent && r != -EPERM ? ALLOT_LOG_INFO : ALLOT_LOG_WARNING,
                "%s: %s: costs and plans are not kept there; ALLOT_CACHE_DIR names another folder, "
                "or none if it is empty",
                path, what);
    return r;
}

/* A folder of this user's. No other user may write to the last; those above may be a group's. */
static int check_folder(struct cache_folder *folder, int fd, const char *path) {
    struct stat st;

    if (fstat(fd, &st) < 0)
        return complain(folder, -errno, path, strerror(errno));
    if (st.st_uid != geteuid())
        return complain(folder, -EPERM, path, "the folder belongs to another user");
    if (path == folder->path && st.st_mode & (S_IWGRP | S_IWOTH))
        return complain(folder, -EPERM, path, "other users may write to the folder");
    return 0;
}

static int open_at(int at, const char *path) {
    int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int make_folder(const char *path) {
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* The descriptor of a folder that may be used; `makes`: it is made where it is missing. */
static int open_checked(struct cache_folder *folder, const char *path, bool makes) {
    int fd = open_at(AT_FDCWD, path), r;

    if (fd == -ENOENT && makes) {
        r = make_folder(path);
        fd = r < 0 ? r : open_at(AT_FDCWD, path);
    }
    if (fd == -ENOENT && !makes)
        return fd;
    if (fd < 0)
        return complain(folder, fd, path, fd == -ELOOP ? "it is a link" : strerror(-fd));
    r = check_folder(folder, fd, path);
    if (r < 0) {
        close(fd);
        return r;
    }
    return fd;
}

/* Where the parent, as ~/.cache, is missing, it may only be made in a folder of this user's. */
static int check_home(struct cache_folder *folder) {
    char home[PATH_MAX];
    char *end;
    int fd, r;

    strcpy(home, folder->parent);
    end = strrchr(home, '/');
    if (access(folder->parent, F_OK) == 0 || end == home)
        return 0;
    *end = '\0';
    fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return complain(folder, -errno, home, strerror(errno));
    r = check_folder(folder, fd, home);
    close(fd);
    return r;
}

static int open_folder(struct cache_folder *folder, bool makes) {
    int fd;

    if (!*folder->path)
        return -ENOENT;
    if (*folder->parent) {
        int r = makes ? check_home(folder) : 0;

        if (r < 0)
            return r;
        fd = open_checked(folder, folder->parent, makes);
        if (fd < 0)
            return fd;
        close(fd);
    }
    return open_checked(folder, folder->path, makes);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int read_all(int fd, size_t most, char **ret, size_t *ret_n) {
    struct stat st;
    size_t n = 0;
    char *text;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    if (st.st_size < 0 || (uint64_t)st.st_size > most)
        return -EFBIG;
    text = malloc((size_t)st.st_size + 1);
    if (!text)
        return -ENOMEM;
    while (n < (size_t)st.st_size) {
        ssize_t got = read(fd, text + n, (size_t)st.st_size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(text);
            return -errno;
        }
        if (got == 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    *ret = text;
    *ret_n = n;
    return 0;
}

int cache_folder_read(struct cache_folder *folder, const char *name, size_t most, char **ret,
                      size_t *ret_n) {
    cleanup(closep) int at = open_folder(folder, false);
    cleanup(closep) int fd = -1;

    if (at < 0)
        return at;
    fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : read_all(fd, most, ret, ret_n);
}

static int write_all(int fd, const char *text, size_t n) {
    while (n > 0) {
        ssize_t got = write(fd, text, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        text += got;
        n -= (size_t)got;
    }
    return 0;
}

/* Written aside and put in place as a whole. It is not flushed to the disk: after a crash the file
 * may be anything, and readers check what they read. */
int cache_folder_write(struct cache_folder *folder, const char *name, const char *text, size_t n) {
    cleanup(closep) int at = open_folder(folder, true);
    cleanup(closep) int fd = -1;
    char aside[64];
    uint64_t number;
    int r;

    if (at < 0)
        return at;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return -EIO;
    snprintf(aside, sizeof(aside), UNDER_WAY "%016llx", (unsigned long long)number);
    fd = openat(at, aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    r = fd < 0 ? -errno : write_all(fd, text, n);
    if (r == 0 && renameat(at, aside, at, name) < 0)
        r = -errno;
    if (r < 0 && fd >= 0)
        unlinkat(at, aside, 0);
    return r < 0 ? complain(folder, r, folder->path, strerror(-r)) : 0;
}

struct cached_file {
    char name[NAME_MAX + 1];
    uint64_t bytes;
    struct timespec written;
};

static int by_age(const void *a, const void *b) {
    const struct timespec *x = &((const struct cached_file *)a)->written;
    const struct timespec *y = &((const struct cached_file *)b)->written;

    return x->tv_sec != y->tv_sec ? (x->tv_sec < y->tv_sec ? -1 : 1)
                                  : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

static size_t list_files(DIR *dir, const char *prefix, struct cached_file *files) {
    time_t now = time(NULL);
    struct dirent *found;
    size_t n = 0;

    while (n < FILES_MAX && (found = readdir(dir))) {
        struct stat st;
        bool is_aside = begins(found->d_name, UNDER_WAY);

        if ((!is_aside && !begins(found->d_name, prefix)) ||
            fstatat(dirfd(dir), found->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        if (is_aside) {
            if (now - st.st_mtim.tv_sec > ABANDONED_SECONDS)
                unlinkat(dirfd(dir), found->d_name, 0);
            continue;
        }
        strcpy(files[n].name, found->d_name);
        files[n].bytes = (uint64_t)st.st_size;
        files[n++].written = st.st_mtim;
    }
    return n;
}

void cache_folder_limit(struct cache_folder *folder, const char *prefix, size_t n_most,
                        uint64_t bytes_most) {
    cleanup(freep) struct cached_file *files = calloc(FILES_MAX, sizeof(*files));
    int fd = files ? open_folder(folder, false) : -ENOMEM;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    uint64_t bytes = 0;
    size_t n;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    n = list_files(dir, prefix, files);
    qsort(files, n, sizeof(*files), by_age);
    for (size_t i = 0; i < n; i++)
        bytes += files[i].bytes;
    for (size_t i = 0; i < n && (n - i > n_most || bytes > bytes_most); i++) {
        unlinkat(dirfd(dir), files[i].name, 0);
        bytes -= files[i].bytes;
    }
    closedir(dir);
}
