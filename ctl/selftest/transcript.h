/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Transcript: what the self-test saw, as a file that its user can send to strangers.
 *
 * No names of users, jobs or hosts, no home folders, and a digest in place of each UUID: the same
 * card has the same digest in every transcript. Words to hide are added before lines are written.
 */
#include <stdbool.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "wire/message.h"

struct transcript {
    FILE *out; /* NULL: none is wanted */
    char **hidden;
    size_t n_hidden, room;
};

/* `path` NULL: nothing is written. A symbolic link is not followed. */
int transcript_open(struct transcript *transcript, const char *path, struct allot_error *err);
/* 0, or -errno if something could not be written. */
int transcript_close(struct transcript *transcript);

/* Write `word` as "(hidden)" wherever it stands alone. -ENOMEM. */
int transcript_hide(struct transcript *transcript, const char *word);
/* The same for all users, jobs, commands and the host of a box. */
int transcript_hide_box(struct transcript *transcript, const struct wire_box *box);

void transcript_write(struct transcript *transcript, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
