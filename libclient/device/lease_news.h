/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lease news: what the daemon has told this process about its lease since that was taken: a device
 * that is drained or lost, a lease that ends, bytes that are wanted back.
 *
 * The thread of the lease notes them; runs read them when they begin. Any thread.
 */
#include <stdint.h>

struct allot_lease_notice;

enum lease_standing {
    LEASE_SERVES,
    LEASE_DRAINING, /* the device is taken out of service; what is there can still be used */
    LEASE_ENDING,   /* the lease ends, with all devices; likewise */
    LEASE_LOST,     /* the device is gone, with all that was there */
};

struct lease_news {
    enum lease_standing standing;
    uint64_t recalled_bytes; /* that the daemon wants back */
    char text[160];          /* what it says, for people; "": nothing */
};

/* allot_lease_notice_fn */
void lease_news_note(void *userdata, const struct allot_lease_notice *notice);
/* The process itself ends the lease now: what the daemon says of that is no news. */
void lease_news_leave(void);
/* Of another lease, or none: forget everything. */
void lease_news_forget(void);

/* Raised by whatever may change an answer of lease_news_of(); 0: nothing was ever told. */
uint64_t lease_news_count(void);
/* What is known of the device with this UUID. */
struct lease_news lease_news_of(const char *uuid);
