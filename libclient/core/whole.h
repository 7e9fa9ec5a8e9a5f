/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Whole: a file that is written beside its path and then takes its place, so that readers find the
 * old file or all of the new one, after a crash as well. One thread.
 */
#include <stddef.h>

struct allot_error;

struct whole {
    const char *path; /* borrowed */
    char *beside;     /* owned */
    int fd;
    int code; /* of what went wrong first; 0: nothing */
};

/* -errno, with an error that names the path: nothing was made then. */
int whole_begin(struct whole *ret, const char *path, struct allot_error *err);
/* What goes wrong is told by the end. */
void whole_write(struct whole *whole, const void *data, size_t n);
/* All of it is on the disk and at its path; or -errno, and what was there before is. */
int whole_end(struct whole *whole, struct allot_error *err);
