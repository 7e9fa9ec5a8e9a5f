/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/cleanup.h"
#include "ctl/gpuctl.h"

#define X(name) &verb_##name,
const struct verb *const verbs[] = { VERBS(X) };
#undef X
const size_t n_verbs = ELEMENTSOF(verbs);

const struct verb *verb_find(const char *name) {
    for (size_t i = 0; i < n_verbs; i++)
        if (!strcmp(name, verbs[i]->name))
            return verbs[i];
    return NULL;
}
