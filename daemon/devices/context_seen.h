/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Context seen: what contexts of different users were seen to cost on a device, and what is learned
 * from that.
 *
 * A user can make its own processes use whatever it likes, so that one user's figure says nothing
 * to another: only the median of at least CONTEXT_SEEN_LEAST users counts, and only near the figure
 * of the device's kind. Pure.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONTEXT_SEEN_LEAST 3  /* users, before anything is learned */
#define CONTEXT_SEEN_MAX   32 /* users that are kept: those seen last */

/* Zeroed memory is a valid empty one. */
struct context_seen {
    size_t n;
    struct {
        uid_t uid;
        uint64_t bytes;
    } users[CONTEXT_SEEN_MAX]; /* the one that was noted last comes last */
};

/* The user's last figure; 0: none. */
uint64_t context_seen_of(const struct context_seen *seen, uid_t uid);

/* A context of this user was seen to cost so much; in place of its earlier figure. */
void context_seen_note(struct context_seen *seen, uid_t uid, uint64_t bytes);

/* What is learned, for a device whose kind usually takes `usual_bytes`; 0: nothing. */
uint64_t context_seen_median(const struct context_seen *seen, uint64_t usual_bytes);

/* Within half of the usual figure around it. */
uint64_t context_seen_clamp(uint64_t bytes, uint64_t usual_bytes);
