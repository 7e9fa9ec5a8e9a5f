/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/ops/ops.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/cleanup.h"

int ops_register_all(struct allot_error *err) {
    static const struct ops_table *const tables[] = {
        &ops_flow,   &ops_variable, &ops_source, &ops_unary, &ops_binary, &ops_matrix,
        &ops_reduce, &ops_softmax,  &ops_array,  &ops_piece, &ops_like,   &ops_replica,
    };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool done; /* under `lock` */
    int r = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ELEMENTSOF(tables) && r == 0 && !done; i++)
        r = opdef_register_table(tables[i]->rows, tables[i]->n, err);
    done = done || r == 0;
    pthread_mutex_unlock(&lock);
    return r;
}
