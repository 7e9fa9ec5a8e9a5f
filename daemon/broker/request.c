/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/request.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "daemon/broker/visibility.h"

static size_t text_size(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

static const char *put_text(char **at, const char *text) {
    char *put = *at;

    if (!text)
        return NULL;
    *at = stpcpy(put, text) + 1;
    return put;
}

struct request *request_copy(const struct request *request) {
    size_t size = sizeof(*request) + request->n_amounts * sizeof(*request->amounts) +
                  request->n_devices * sizeof(*request->devices) + text_size(request->name) +
                  text_size(request->visible_devices) + text_size(request->device_order) +
                  text_size(request->cannot_reason);
    struct request *copy;
    struct amount *amounts;
    const char **devices;
    char *at;

    for (size_t i = 0; i < request->n_devices; i++)
        size += text_size(request->devices[i]);
    copy = malloc(size);
    if (!copy)
        return NULL;

    *copy = *request;
    amounts = (struct amount *)(copy + 1);
    devices = (const char **)(amounts + request->n_amounts);
    at = (char *)(devices + request->n_devices);
    for (size_t i = 0; i < request->n_amounts; i++)
        amounts[i] = request->amounts[i];
    for (size_t i = 0; i < request->n_devices; i++)
        devices[i] = put_text(&at, request->devices[i]);
    copy->amounts = amounts;
    copy->devices = devices;
    copy->name = put_text(&at, request->name);
    copy->visible_devices = put_text(&at, request->visible_devices);
    copy->device_order = put_text(&at, request->device_order);
    copy->cannot_reason = put_text(&at, request->cannot_reason);
    return copy;
}

/* Four lanes of FNV-1a with different seeds: it only has to distinguish a process's own
 * requests. */
struct digest {
    uint64_t lanes[4];
};

static void digest_add(struct digest *digest, const void *data, size_t size) {
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size; i++)
        for (size_t lane = 0; lane < 4; lane++) {
            digest->lanes[lane] ^= bytes[i] + lane * 0x101;
            digest->lanes[lane] *= UINT64_C(0x100000001b3) + 2 * lane;
        }
}

static void digest_number(struct digest *digest, uint64_t number) {
    digest_add(digest, &number, sizeof(number));
}

static void digest_text(struct digest *digest, const char *text) {
    digest_number(digest, text ? strlen(text) : UINT64_MAX);
    if (text)
        digest_add(digest, text, strlen(text));
}

static void digest_amount(struct digest *digest, const struct amount *amount) {
    digest_number(digest, amount->mode - 1); /* as ever: it is in the state of older daemons */
    digest_number(digest, amount->permyriad);
    digest_number(digest, amount->bytes);
    digest_number(digest, amount->min_bytes);
    digest_number(digest, amount->max_bytes);
}

static const struct digest digest_empty = { { UINT64_C(0xcbf29ce484222325),
                                              UINT64_C(0x84222325cbf29ce4), 1, 2 } };
static_assert(sizeof(struct digest) == RECORD_DIGEST_SIZE, "a digest is all lanes");

void request_growth_digest(uint64_t lease, const struct gpuid *device, uint64_t bytes,
                           uint8_t ret[static RECORD_DIGEST_SIZE]) {
    struct digest digest = digest_empty;
    char text[GPUID_TEXT_SIZE];

    digest_number(&digest, lease);
    digest_text(&digest, gpuid_format(device, text));
    digest_number(&digest, bytes);
    memcpy(ret, &digest, RECORD_DIGEST_SIZE);
}

void request_digest(const struct request *request, uint8_t ret[static RECORD_DIGEST_SIZE]) {
    struct digest digest = digest_empty;

    digest_text(&digest, request->name);
    digest_number(&digest, request->has_amount);
    if (request->has_amount)
        digest_amount(&digest, &request->amount);
    digest_number(&digest, request->n_amounts);
    for (size_t i = 0; i < request->n_amounts; i++)
        digest_amount(&digest, &request->amounts[i]);
    digest_number(&digest, request->n_gpus);
    digest_number(&digest, request->n_devices);
    for (size_t i = 0; i < request->n_devices; i++)
        digest_text(&digest, request->devices[i]);
    digest_number(&digest, request->has_choose ? request->choose : 0);
    digest_text(&digest, request->visible_devices);
    digest_text(&digest, request->device_order);
    digest_number(&digest, request->has_priority);
    digest_number(&digest, request->has_priority ? (uint64_t)(int64_t)request->priority : 0);
    digest_number(&digest, request->time_limit_usec);
    memcpy(ret, &digest, RECORD_DIGEST_SIZE);
}

static void describe_amount(const struct amount *amount, char *text, size_t size) {
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];
    size_t length;

    switch (amount->mode) {
    case LEASE_FRACTION:
        snprintf(text, size, "%s", units_format_permyriad(amount->permyriad, a));
        break;
    case LEASE_FIXED:
        snprintf(text, size, "%s", units_format_bytes(amount->bytes, a));
        break;
    case LEASE_EXCLUSIVE:
        snprintf(text, size, "all of it");
        break;
    case LEASE_GROW:
        snprintf(text, size, "growing");
        length = strlen(text);
        if (amount->min_bytes != UNITS_FOREVER)
            snprintf(text + length, size - length, " from %s",
                     units_format_bytes(amount->min_bytes, a));
        length = strlen(text);
        if (amount->max_bytes != UNITS_FOREVER)
            snprintf(text + length, size - length, " to %s",
                     units_format_bytes(amount->max_bytes, a));
        else if (amount->permyriad != POLICY_NO_SHARE)
            snprintf(text + length, size - length, " to %s",
                     units_format_permyriad(amount->permyriad, b));
        break;
    }
}

static uint32_t n_wanted(const struct request *request) {
    if (request->n_devices > 0)
        return (uint32_t)request->n_devices;
    return request->n_gpus ? request->n_gpus : 1;
}

void request_describe(const struct request *request, const struct policy_rules *rules, char *text,
                      size_t size) {
    char amount[64];

    if (request->n_amounts > 0)
        snprintf(amount, sizeof(amount), "amounts of their own");
    else
        describe_amount(request->has_amount ? &request->amount : &rules->amount, amount,
                        sizeof(amount));
    snprintf(text, size, "%u %s%s × %s", n_wanted(request),
             request->n_devices > 0 ? "named device" : "device", n_wanted(request) == 1 ? "" : "s",
             amount);
}

/* ---- Claims ------------------------------------------------------------------------------------
 */

static int check_amount(struct verdict *verdict, const struct amount *amount) {
    switch (amount->mode) {
    case LEASE_FRACTION:
        if (amount->permyriad == POLICY_NO_SHARE || amount->permyriad == 0 ||
            amount->permyriad > 10000)
            return verdict_refuse(verdict, REFUSAL_DENIED, NULL,
                                  "a lease of mode fraction needs a share above 0 and up to 100%%");
        return 0;
    case LEASE_FIXED:
        if (amount->bytes == UNITS_FOREVER || amount->bytes == 0)
            return verdict_refuse(verdict, REFUSAL_DENIED, NULL,
                                  "a lease of mode fixed needs an amount of memory above 0");
        return 0;
    case LEASE_GROW:
        if (amount->permyriad != POLICY_NO_SHARE &&
            (amount->permyriad == 0 || amount->permyriad > 10000))
            return verdict_refuse(verdict, REFUSAL_DENIED, NULL,
                                  "the cap of a growing lease is a share above 0 and up to 100%%");
        if (amount->max_bytes == 0)
            return verdict_refuse(verdict, REFUSAL_DENIED, NULL,
                                  "the maximum of a growing lease must be above 0");
        if (amount->min_bytes != UNITS_FOREVER && amount->max_bytes != UNITS_FOREVER &&
            amount->min_bytes > amount->max_bytes)
            return verdict_refuse(verdict, REFUSAL_DENIED, NULL,
                                  "the minimum of a growing lease is above its maximum");
        return 0;
    case LEASE_EXCLUSIVE:
        return 0;
    }
    return verdict_refuse(verdict, REFUSAL_DENIED, NULL, "no such mode of a lease");
}

/* Why no device can ever give an amount. */
enum lack {
    LACK_MEMORY,
    LACK_QUOTA,
    LACK_CONTEXT, /* too little for a program to begin */
};

/*
 * What an amount is on a device. The smallest guarantee is a context, or a granule if its cost is
 * unknown: so an admitted job can at least start, and a context's cost is charged before it is
 * made. False: not even an empty device could give it; `ret_short` says what it would take.
 */
static bool measure(struct option *ret, const struct book *book, const struct amount *amount,
                    const struct policy_rules *rules, uint64_t *ret_short, enum lack *ret_lack) {
    uint64_t quota = books_round_down(units_share(rules->quota_permyriad, book->usable_bytes));
    uint64_t limit = book->usable_bytes, guaranteed;

    ret->slot = (uint8_t)book->slot;
    ret->mode = amount->mode;
    ret->declares_max = false;
    *ret_lack = LACK_MEMORY;
    switch (amount->mode) {
    case LEASE_FRACTION:
        guaranteed = limit = books_round_down(units_share(amount->permyriad, limit));
        break;
    case LEASE_FIXED:
        guaranteed = limit = books_round_up(amount->bytes);
        break;
    case LEASE_GROW:
        ret->declares_max = amount->max_bytes != UNITS_FOREVER;
        if (amount->permyriad != POLICY_NO_SHARE)
            limit = books_round_down(units_share(amount->permyriad, limit));
        if (ret->declares_max)
            limit = MIN(limit, books_round_up(amount->max_bytes));
        limit = MIN(limit, quota);
        limit = MIN(limit, books_round_down(rules->quota_bytes));
        guaranteed = MIN(limit, MAX(book->context_bytes, BOOKS_GRANULE));
        if (amount->min_bytes != UNITS_FOREVER)
            guaranteed = MAX(guaranteed, books_round_up(amount->min_bytes));
        break;
    default:
        guaranteed = limit;
        break;
    }
    *ret_short = guaranteed;
    ret->limit_bytes = limit;
    ret->guaranteed_bytes = guaranteed;
    if (guaranteed == 0 || guaranteed > book->usable_bytes)
        return false;
    if (guaranteed > quota || guaranteed > limit) {
        *ret_lack = LACK_QUOTA;
        return false;
    }
    if (limit < book->context_bytes && !rules->small_leases) {
        *ret_short = limit;
        *ret_lack = LACK_CONTEXT;
        return false;
    }
    return true;
}

/* Whether a lease on the device must have enforcement that this job cannot have. */
static bool asks_too_much(const struct book *book, const struct policy_rules *rules,
                          const struct request *request) {
    enum require required = MAX((enum require)rules->require, book->require);

    /* The driver has no limits for instances. */
    return (request->cannot_have != REQUIRE_NONE && required >= request->cannot_have) ||
           (required == REQUIRE_DRIVER && book->device.seen.is_mig);
}

/* Deny a request because of what `book` requires. */
static int refuse_required(struct verdict *verdict, const struct book *book,
                           const struct policy_rules *rules, const struct request *request) {
    bool by_device = book->require > (enum require)rules->require;
    enum require required = by_device ? book->require : (enum require)rules->require;
    static const char *const whats[] = {
        [REQUIRE_NONE] = "nothing",
        [REQUIRE_GUARD] = "the guard",
        [REQUIRE_SCOPE] = "a scope with a device filter",
        [REQUIRE_DRIVER] = "the driver's own limit",
    };

    return verdict_refuse(verdict, REFUSAL_DENIED, book,
                          "the administrator requires %s for every lease%s%s (require = %s), and "
                          "%s",
                          whats[required], by_device ? " on " : " of yours",
                          by_device ? book->name : "", policy_require_name(required),
                          request->cannot_reason ? request->cannot_reason
                                                 : "the driver has none for MIG instances");
}

/* The least that the claim takes in total: on its cheapest devices. */
static uint64_t least_bytes(const struct claim *claim) {
    uint64_t sorted[BOOKS_MAX], sum = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < claim->n_options; i++) {
        uint32_t at = n++;

        for (; at > 0 && sorted[at - 1] > claim->options[i].guaranteed_bytes; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = claim->options[i].guaranteed_bytes;
    }
    for (uint32_t i = 0; i < claim->n_wanted; i++)
        sum = units_add(sum, sorted[i]);
    return sum;
}

static int check_quotas(struct verdict *verdict, const struct claim *claim,
                        const struct policy_rules *rules) {
    uint64_t least = least_bytes(claim);
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];

    if (rules->max_leases == 0)
        return verdict_refuse(verdict, REFUSAL_DENIED, NULL,
                              "the administrator's rules give you no leases");
    if (claim->n_wanted > rules->quota_devices)
        return verdict_refuse(verdict, REFUSAL_DENIED, NULL,
                              "%u devices are more than your quota of %u; ask for fewer",
                              claim->n_wanted, rules->quota_devices);
    if (least > rules->quota_bytes)
        return verdict_refuse(
            verdict, REFUSAL_DENIED, NULL, "%s in all is more than your quota of %s; ask for less",
            units_format_bytes(least, a), units_format_bytes(rules->quota_bytes, b));
    return 0;
}

int request_claim_new(struct claim **ret, struct verdict *ret_verdict, struct book *const *books,
                      size_t n_books, const struct policy_rules *rules,
                      const struct request *request) {
    struct visibility visibility;
    cleanup(freep) struct claim *claim = NULL;
    const struct book *nearest = NULL, *strict = NULL;
    uint64_t nearest_short = 0, need;
    uint32_t n_devices, n_instances = 0;
    enum lack lack, nearest_lack = LACK_MEMORY;
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];
    int r;

    if (request->n_devices > 0 && request->n_gpus > 0 && request->n_gpus != request->n_devices)
        return verdict_refuse(ret_verdict, REFUSAL_DENIED, NULL,
                              "the request asks for %u devices, but names %zu", request->n_gpus,
                              request->n_devices);
    if (request->n_amounts > 0 && request->n_amounts != request->n_devices)
        return verdict_refuse(ret_verdict, REFUSAL_DENIED, NULL,
                              "%zu amounts for %zu named devices: each device needs one",
                              request->n_amounts, request->n_devices);
    if (n_wanted(request) > BOOKS_SHARES_MAX)
        return verdict_refuse(ret_verdict, REFUSAL_DENIED, NULL, "a lease has at most %d devices",
                              BOOKS_SHARES_MAX);
    r = check_amount(ret_verdict, request->has_amount ? &request->amount : &rules->amount);
    for (size_t i = 0; r == 0 && i < request->n_amounts; i++) {
        r = check_amount(ret_verdict, &request->amounts[i]);
        if (r == 0 && request->amounts[i].mode != request->amounts[0].mode)
            r = verdict_refuse(ret_verdict, REFUSAL_DENIED, NULL,
                               "all amounts of a lease must have the same mode");
    }
    if (r < 0)
        return r;
    r = visibility_decide(&visibility, ret_verdict, books, n_books, rules,
                          &(struct visibility_request){
                              .devices = request->devices,
                              .n_devices = request->n_devices,
                              .cuda_visible_devices = request->visible_devices,
                              .cuda_device_order = request->device_order,
                          });
    if (r < 0)
        return r;

    n_devices = visibility.n_named ? visibility.n_named : visibility.n_order;
    claim = calloc(1, sizeof(*claim) + n_devices * sizeof(claim->options[0]));
    if (!claim)
        return -ENOMEM;
    claim->n_wanted = n_wanted(request);
    claim->is_named = visibility.n_named > 0;
    claim->choose = request->has_choose ? request->choose : rules->choose;
    for (uint32_t i = 0; i < n_devices; i++) {
        struct book *book = books[claim->is_named ? visibility.named[i] : visibility.order[i]];
        const struct amount *amount = request->n_amounts > 0 ? &request->amounts[i]
                                      : request->has_amount  ? &request->amount
                                                             : &rules->amount;
        struct option *option = &claim->options[claim->n_options];

        if (claim->n_wanted > 1 && book->device.seen.is_mig) {
            n_instances++;
            continue;
        }
        if (asks_too_much(book, rules, request)) {
            strict = book;
            continue;
        }
        claim->is_exclusive = amount->mode == LEASE_EXCLUSIVE;
        if (!measure(option, book, amount, rules, &need, &lack)) {
            if (!nearest || book->usable_bytes > nearest->usable_bytes) {
                nearest = book;
                nearest_short = need;
                nearest_lack = lack;
            }
            continue;
        }
        slots_add(&claim->slots, book->slot);
        claim->n_options++;
    }

    if (claim->n_options >= claim->n_wanted) {
        r = check_quotas(ret_verdict, claim, rules);
        if (r == 0)
            *ret = TAKE(claim);
        return r;
    }
    if (strict)
        return refuse_required(ret_verdict, strict, rules, request);
    if (nearest && nearest_lack == LACK_CONTEXT)
        return verdict_refuse(ret_verdict, REFUSAL_DENIED, nearest,
                              "%s is less than any program needs: a context alone takes %s on %s; "
                              "ask for more than that",
                              units_format_bytes(nearest_short, a),
                              units_format_bytes(nearest->context_bytes, b), nearest->name);
    if (nearest && nearest_lack == LACK_QUOTA)
        return verdict_refuse(ret_verdict, REFUSAL_DENIED, nearest,
                              "%s on %s is more than the administrator's rules allow you there (%s "
                              "of it, %s); ask for less",
                              units_format_bytes(nearest_short, a), nearest->name,
                              units_format_permyriad(rules->quota_permyriad, b),
                              "all leases together");
    if (nearest)
        return verdict_refuse(
            ret_verdict, REFUSAL_DENIED, nearest,
            "%s on a device is more than %s has when it is empty (%s); ask for less",
            units_format_bytes(nearest_short, a), nearest->name,
            units_format_bytes(nearest->usable_bytes, b));
    if (visibility.n_unhealthy > 0 && claim->n_options + visibility.n_unhealthy >= claim->n_wanted)
        return verdict_refuse(ret_verdict, REFUSAL_DRAINING, NULL,
                              "the request asks for %u devices; of those that you may use, %u take "
                              "leases and %u are drained or lost",
                              claim->n_wanted, claim->n_options, visibility.n_unhealthy);
    return verdict_refuse(ret_verdict, REFUSAL_NO_DEVICE, NULL,
                          "the request asks for %u devices, and you may use %u of this box%s%s",
                          claim->n_wanted, claim->n_options,
                          n_instances ? " (MIG instances do not count: a process sees one)" : "",
                          visibility.note[0] ? "; see CUDA_VISIBLE_DEVICES" : "");
}
