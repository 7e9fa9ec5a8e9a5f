/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cache folder: where measured costs and plans outlive a process. Everything in it can be lost:
 * what cannot be read or written is logged once, and the session goes on without it.
 *
 * The folder belongs to the user that the process runs as, and nobody else may write to it; so a
 * program that root runs in the name of another never leaves files in that user's home. Files are
 * private, and are replaced as a whole. No descriptor is kept: a program may close what it did not
 * open.
 *
 * Any thread.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cache_folder {
    char path[PATH_MAX];    /* "": there is none */
    char parent[PATH_MAX];  /* that must be the user's as well; "": it need not */
    atomic_bool has_warned; /* that it cannot be used */
};

/* `wanted`: the caller's choice, "" for none; NULL: what ALLOT_CACHE_DIR says, "" for none; without
 * it $XDG_CACHE_HOME/allot, or ~/.cache/allot. Nothing is made yet. */
void cache_folder_init(struct cache_folder *ret, const char *wanted);

/* A whole file, to be freed, with a NUL behind it. -ENOENT: there is none, or no folder. -EFBIG:
 * more than `most` bytes. Other errors are of the folder or the file. */
int cache_folder_read(struct cache_folder *folder, const char *name, size_t most, char **ret,
                      size_t *ret_n);
/* Replace a file, or make it, and the folder if need be. */
int cache_folder_write(struct cache_folder *folder, const char *name, const char *text, size_t n);

/* Remove the files that begin with `prefix` and were written longest ago, until there are no more
 * than `n_most` of `bytes_most` in all; those that a writer left half done as well. */
void cache_folder_limit(struct cache_folder *folder, const char *prefix, size_t n_most,
                        uint64_t bytes_most);
