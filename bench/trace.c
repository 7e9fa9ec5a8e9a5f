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
    bool warm; /* a `w` was there */
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
    if (bytes > UINT64_MAX - loader->live_bytes)
        return -EOVERFLOW;
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

/* A blank and a number. */
static bool number(const char **at, uint64_t *ret) {
    char *end;

    if (**at != ' ' && **at != '\t')
        return false;
    while (**at == ' ' || **at == '\t')
        ++*at;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *ret = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

/* Nothing more in this line. */
static bool ends(const char *at) {
    return at[strspn(at, " \t\r\n")] == 0;
}

static int load_line(struct loader *loader, const char *line) {
    const char *at = line + 1;
    uint64_t id, bytes;

    if (line[0] == '#' || ends(line))
        return 0;
    if (line[0] == 'a' && number(&at, &id) && number(&at, &bytes) && ends(at) &&
        bytes != TRACE_FREE)
        return load_alloc(loader, id, bytes);
    if (line[0] == 'f' && number(&at, &id) && ends(at))
        return load_free(loader, id);
    if (line[0] != 'w' || !ends(at))
        return -EINVAL;
    if (loader->warm)
        return -EALREADY;
    loader->warm = true;
    loader->trace.warm = loader->trace.n_ops;
    return 0;
}

static const char *say(int r) {
    switch (r) {
    case -EEXIST:
        return "the id is live already: free it first, or take another";
    case -ENOENT:
        return "no live block has this id";
    case -ENOMEM:
        return "no memory left for the trace";
    case -EOVERFLOW:
        return "with it 2^64 bytes or more would be live";
    case -EALREADY:
        return "a second \"w\": only one place can be where measuring begins";
    default:
        return "not a line of a trace, which is a <id> <bytes>, f <id>, w, or # and a comment";
    }
}

int trace_load(struct trace *ret, const char *path, struct allot_error *err) {
    static const char head[] = "# allot-trace 1";
    cleanup(fclosep) FILE *file = fopen(path, "re");
    cleanup(loader_done) struct loader loader = { 0 };
    cleanup(freep) char *line = NULL;
    size_t size = 0;
    unsigned long n = 0;
    ssize_t length;

    if (!file)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    while ((length = getline(&line, &size, file)) > 0) {
        int r;

        if (++n == 1 && (strncmp(line, head, strlen(head)) != 0 || !ends(line + strlen(head))))
            break;
        r = strlen(line) == (size_t)length ? load_line(&loader, line) : -EINVAL;
        if (r < 0)
            return error_set(err, r, "%s:%lu: %s", path, n, say(r));
    }
    if (ferror(file))
        return error_set(err, -EIO, "%s: %s", path, strerror(errno));
    if (length > 0 || !n)
        return error_set(err, -EINVAL, "%s: it does not begin with \"%s\"", path, head);
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
