/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/map.h"

struct loader {
    struct trace trace;
    size_t n_max;
    struct map slots; /* id → slot + 1 of a live block */
    uint64_t *unused; /* slots free again */
    size_t n_unused, n_unused_max;
    uint64_t *sizes; /* by slot */
    size_t n_sizes_max;
    uint64_t live_bytes;
};

static int reserve(void *array, size_t *n_max, size_t n, size_t size) {
    void **at = array, *larger;

    if (n < *n_max)
        return 0;
    larger = reallocarray(*at, *n_max ? *n_max * 2 : 1024, size);
    if (!larger)
        return -ENOMEM;
    *at = larger;
    *n_max = *n_max ? *n_max * 2 : 1024;
    return 0;
}

static int load_alloc(struct loader *loader, uint64_t id, uint64_t bytes) {
    struct trace *trace = &loader->trace;
    uint64_t slot = trace->n_slots;
    int r;

    if (map_find(&loader->slots, id))
        return -EEXIST;
    if (reserve(&trace->ops, &loader->n_max, trace->n_ops, sizeof(*trace->ops)) < 0 ||
        reserve(&loader->sizes, &loader->n_sizes_max, trace->n_slots, sizeof(*loader->sizes)) < 0)
        return -ENOMEM;
    if (loader->n_unused)
        slot = loader->unused[--loader->n_unused];
    else
        trace->n_slots++;
    r = map_put(&loader->slots, id, (void *)(uintptr_t)(slot + 1));
    if (r < 0)
        return r;
    loader->sizes[slot] = bytes;
    trace->ops[trace->n_ops++] = (struct trace_op){ bytes, slot };
    loader->live_bytes += bytes;
    trace->peak_bytes = MAX(trace->peak_bytes, loader->live_bytes);
    return 0;
}

static int load_free(struct loader *loader, uint64_t id) {
    struct trace *trace = &loader->trace;
    uint64_t slot = (uintptr_t)map_take(&loader->slots, id);

    if (!slot)
        return -ENOENT;
    slot--;
    if (reserve(&trace->ops, &loader->n_max, trace->n_ops, sizeof(*trace->ops)) < 0 ||
        reserve(&loader->unused, &loader->n_unused_max, loader->n_unused, sizeof(*loader->unused)) <
            0)
        return -ENOMEM;
    loader->unused[loader->n_unused++] = slot;
    loader->live_bytes -= loader->sizes[slot];
    trace->ops[trace->n_ops++] = (struct trace_op){ TRACE_FREE, slot };
    return 0;
}

static void loader_done(struct loader *loader) {
    trace_done(&loader->trace);
    map_done(&loader->slots);
    free(loader->unused);
    free(loader->sizes);
}

/* A number and the blank or end behind it. */
static bool number(const char **at, uint64_t *ret) {
    char *end;

    while (**at == ' ' || **at == '\t')
        ++*at;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *ret = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0 && (*end == 0 || *end == '\n' || *end == ' ' || *end == '\t' || *end == '\r');
}

int trace_load(struct trace *ret, const char *path, struct allot_error *err) {
    cleanup(fclosep) FILE *file = fopen(path, "re");
    cleanup(loader_done) struct loader loader = { 0 };
    cleanup(freep) char *line = NULL;
    size_t size = 0;
    unsigned long n = 0;
    int r;

    if (!file)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    while (getline(&line, &size, file) > 0) {
        const char *at = line + 1;
        uint64_t id, bytes;

        r = -EINVAL;
        if (++n == 1 && strncmp(line, "# allot-trace 1", 15) != 0)
            return error_set(err, -EINVAL, "%s: it does not begin with \"# allot-trace 1\"", path);
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (line[0] == 'a' && number(&at, &id) && number(&at, &bytes) && bytes != TRACE_FREE)
            r = load_alloc(&loader, id, bytes);
        else if (line[0] == 'f' && number(&at, &id))
            r = load_free(&loader, id);
        else if (line[0] == 'w') {
            loader.trace.warm = loader.trace.n_ops;
            r = 0;
        }
        if (r < 0)
            return error_set(err, r, "%s:%lu: %s", path, n,
                             r == -EEXIST   ? "the id is live already"
                             : r == -ENOENT ? "no live block has this id"
                             : r == -ENOMEM ? "no memory"
                                            : "not a line of a trace");
    }
    if (!loader.trace.n_ops)
        return error_set(err, -EINVAL, "%s: an empty trace", path);
    *ret = loader.trace;
    loader.trace = (struct trace){ 0 };
    return 0;
}

void trace_done(struct trace *trace) {
    free(trace->ops);
    *trace = (struct trace){ 0 };
}
