/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Request: what a client asks for, in words (struct request of daemon/broker/broker.h) and in
 * bytes.
 *
 * A claim is a request measured on the current devices: which ones it could have, and how much it
 * would take of each. It is measured again when devices or rules change; the request stays. The
 * waiter owns both. Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "daemon/broker/books.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/policy.h"
#include "daemon/broker/verdict.h"

/* A copy with all its texts in one piece, for free(). NULL: no memory. */
struct request *request_copy(const struct request *request);

/* Equal requests have equal digests. The token is not part of it: it is new each time. */
void request_digest(const struct request *request, uint8_t ret[static RECORD_DIGEST_SIZE]);

void request_growth_digest(uint64_t lease, const struct gpuid *device, uint64_t bytes,
                           uint8_t ret[static RECORD_DIGEST_SIZE]);

/* "2 devices × 8 GiB", "exclusive", …; with the defaults of `rules` where it gives nothing. */
void request_describe(const struct request *request, const struct policy_rules *rules, char *text,
                      size_t size);

/* One device that would do. */
struct option {
    uint8_t slot;
    uint64_t limit_bytes;
    uint64_t guaranteed_bytes; /* what admission takes; never 0 */
    bool declares_max;
    enum lease_mode mode;
};

struct claim {
    uint32_t n_wanted; /* of the options */
    bool is_named;     /* all of them, n_wanted == n_options */
    bool is_exclusive;
    enum choice choose;
    struct slots slots; /* of the options */
    uint32_t n_options;
    struct option options[]; /* in the order of the request, or that CUDA counts in */
};

/*
 * 0; -ENODEV with a verdict that denies: the devices do not exist, or an empty box could not
 * satisfy it, or the rules never will; -ENOMEM.
 */
int request_claim_new(struct claim **ret, struct verdict *ret_verdict, struct book *const *books,
                      size_t n_books, const struct policy_rules *rules,
                      const struct request *request);
