/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/module/print.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/core/context.h"

/* One lock for all contexts: kernels that print are not in a hurry. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void print_add(struct context *context, const char *text, size_t n) {
    const size_t limit =
        __atomic_load_n(&context->limits[CU_LIMIT_PRINTF_FIFO_SIZE], __ATOMIC_RELAXED);
    struct print *print = &context->print;

    if (n > limit)
        return;
    pthread_mutex_lock(&lock);
    if (print->n + n > limit) { /* whole lines, as far as there are any */
        size_t gone = print->n + n - limit;
        const char *line = memchr(print->text + gone, '\n', print->n - gone);

        gone = line ? (size_t)(line - print->text) + 1 : print->n;
        memmove(print->text, print->text + gone, print->n - gone);
        print->n -= gone;
    }
    if (print->n + n > print->room) {
        size_t room = MAX(2 * print->room, print->n + n + 4096);
        char *larger = realloc(print->text, room);

        if (larger) {
            print->text = larger;
            print->room = room;
        }
    }
    if (print->n + n <= print->room) {
        memcpy(print->text + print->n, text, n);
        __atomic_store_n(&print->n, print->n + n, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
}

void print_flush(struct context *context) {
    cleanup(freep) char *text = NULL;
    size_t n;

    if (__atomic_load_n(&context->print.n, __ATOMIC_RELAXED) == 0)
        return;
    pthread_mutex_lock(&lock);
    text = context->print.text;
    n = context->print.n;
    context->print.text = NULL;
    context->print.room = 0;
    __atomic_store_n(&context->print.n, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    fwrite(text, 1, n, stdout);
    fflush(stdout);
}

void print_end(struct context *context) {
    print_flush(context);
    free(context->print.text);
    context->print.text = NULL;
    context->print.room = 0;
}
