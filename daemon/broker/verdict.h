/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Verdict: the broker's answer to a request, in numbers for the program and in words for people.
 *
 * Plain value, filled where the decision is made, carried unchanged to the client. Only what `kind`
 * and `refusal` name is set; the rest may hold anything, because the path of a Grow clears no
 * buffers.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/gpuid.h"

struct book;

enum verdict_kind {
    VERDICT_GRANT,
    VERDICT_WAIT,
    VERDICT_DENY,
};

/* Why not; in the order of the errors of the interface file. */
enum refusal {
    REFUSAL_NONE,
    REFUSAL_NO_MEMORY,
    REFUSAL_DENIED,
    REFUSAL_NO_DEVICE,
    REFUSAL_NOT_FOUND,
    REFUSAL_TIMEOUT,
    REFUSAL_DEADLOCK,
    REFUSAL_DRAINING,
    REFUSAL_BUSY,
    REFUSAL_LAST = REFUSAL_BUSY,
};

#define VERDICT_REASON_SIZE 384
#define VERDICT_HOLDERS_MAX 8

struct verdict {
    enum verdict_kind kind;
    enum refusal refusal; /* DENY only */
    uint64_t lease;       /* GRANT */
    uint64_t waiter;      /* WAIT: to be named in broker_cancel() */
    uint32_t place;       /* WAIT, and DENY for TIMEOUT: from 1; 0: none */
    uint64_t held_bytes;  /* GRANT of growth: the lease's on that device, all its processes */
    uint64_t limit_bytes; /* the same */
    bool has_device;      /* DENY: `device` and `free_bytes` are set */
    struct gpuid device;
    uint64_t free_bytes;
    uint32_t n_holders;               /* DENY for DEADLOCK: the holders and what they hold */
    char reason[VERDICT_REASON_SIZE]; /* always a sentence, but "" for a grant of growth */
    char holders[VERDICT_HOLDERS_MAX][288];
};

/*
 * Whether a refusal is about devices that may become ready, or come back: a waiter that queues for
 * them keeps waiting.
 */
bool verdict_may_pass(const struct verdict *verdict);

/*
 * Make the verdict a refusal with the given reason; about `book`, with what is free there, if it is
 * not NULL. Returns -ENODEV, for the caller to return.
 */
int verdict_refuse(struct verdict *verdict, enum refusal refusal, const struct book *book,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
int verdict_refuse_va(struct verdict *verdict, enum refusal refusal, const struct book *book,
                      const char *format, va_list args) __attribute__((format(printf, 4, 0)));
