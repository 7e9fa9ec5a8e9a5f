/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/verdict.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/broker/books.h"

int verdict_refuse_va(struct verdict *verdict, enum refusal refusal, const struct book *book,
                      const char *format, va_list args) {
    verdict->kind = VERDICT_DENY;
    verdict->refusal = refusal;
    verdict->place = 0;
    verdict->n_holders = 0;
    verdict->has_device = book != NULL;
    if (book) {
        verdict->device = book->device.seen.id;
        verdict->free_bytes = books_free_bytes(book);
    }
    vsnprintf(verdict->reason, sizeof(verdict->reason), format, args);
    return -ENODEV;
}

int verdict_refuse(struct verdict *verdict, enum refusal refusal, const struct book *book,
                   const char *format, ...) {
    va_list args;
    int r;

    va_start(args, format);
    r = verdict_refuse_va(verdict, refusal, book, format, args);
    va_end(args);
    return r;
}

bool verdict_may_pass(const struct verdict *verdict) {
    if (verdict->kind != VERDICT_DENY)
        return false;
    switch (verdict->refusal) {
    case REFUSAL_NO_DEVICE:
    case REFUSAL_DRAINING:
    case REFUSAL_BUSY:
        return true;
    case REFUSAL_NONE:
    case REFUSAL_NO_MEMORY:
    case REFUSAL_DENIED:
    case REFUSAL_NOT_FOUND:
    case REFUSAL_TIMEOUT:
    case REFUSAL_DEADLOCK:
        return false;
    }
    return false;
}
