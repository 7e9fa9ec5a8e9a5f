/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that CUDA's runtime provides: vprintf, malloc, free, __assertfail.
 *
 * Arguments are in .param variables, where the calling sequence put them. The arguments of printf
 * follow one another in the thread's memory, each aligned to its size, floats widened to doubles,
 * as in C.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/control.h"

#define MAX_FORMAT 1024
#define MAX_STRING 512
#define MAX_OUTPUT 4096

static uint64_t argument(struct ptx_warp *w, const struct ptx_call *call, uint32_t i,
                         unsigned lane) {
    const struct ptx_call_copy *copy = &call->args[i];
    uint64_t value = 0;
    const char *from;

    if (copy->reg)
        from = w->base[copy->ref & 3] + (copy->ref & ~3) + (size_t)lane * copy->bytes;
    else
        from = w->local + (size_t)lane * w->local_stride + w->frame->local + (uint32_t)copy->ref;
    memcpy(&value, from, MIN(copy->bytes, 8U));
    return value;
}

static void give(struct ptx_warp *w, const struct ptx_call *call, unsigned lane, uint64_t value) {
    const struct ptx_call_copy *copy = call->rets;
    char *to;

    if (!call->n_rets)
        return;
    if (copy->reg)
        to = w->base[copy->ref & 3] + (copy->ref & ~3) + (size_t)lane * copy->bytes;
    else
        to = w->local + (size_t)lane * w->local_stride + w->frame->local + (uint32_t)copy->ref;
    memcpy(to, &value, MIN(copy->bytes, 8U));
}

static bool read_bytes(struct ptx_warp *w, unsigned lane, uint64_t address, void *to, uint32_t n) {
    bool unbacked;
    const unsigned char *from = ptx_memory_resolve(w, lane, address, n, false, &unbacked);

    if (from)
        memcpy(to, from, n);
    else
        memset(to, 0, n);
    return from || unbacked;
}

/* A string of the device, cut to the room. */
static bool read_string(struct ptx_warp *w, unsigned lane, uint64_t address, char *to,
                        size_t room) {
    size_t n = 0;

    for (; n + 1 < room; n++) {
        if (!read_bytes(w, lane, address + n, &to[n], 1))
            return false;
        if (!to[n])
            return true;
    }
    to[n] = 0;
    return true;
}

struct printf_output {
    char text[MAX_OUTPUT];
    size_t n;
};

static void put(struct printf_output *out, const char *text, size_t n) {
    n = MIN(n, sizeof(out->text) - 1 - out->n);
    memcpy(out->text + out->n, text, n);
    out->n += n;
}

/* The next argument of `bytes`, aligned to that. */
static bool next_argument(struct ptx_warp *w, unsigned lane, uint64_t *at, uint32_t bytes,
                          uint64_t *ret) {
    *at = (*at + bytes - 1) & ~(uint64_t)(bytes - 1);
    *ret = 0;
    if (!read_bytes(w, lane, *at, ret, bytes))
        return false;
    *at += bytes;
    return true;
}

/* One conversion, "%-5.2lld": flags, width and precision are handed to the host's printf, which
 * gets a specification of at most 31 characters made of checked pieces only. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static const char *convert(struct ptx_warp *w, unsigned lane, const char *p, uint64_t *args,
                           struct printf_output *out, bool *good) {
    char spec[32] = "%", piece[MAX_STRING + 64], string[MAX_STRING];
    size_t n = 1;
    bool wide = false;
    uint64_t value;
    int printed = 0;

    for (p++; *p && strchr("-+ #0123456789.*", *p); p++) {
        if (*p == '*') {
            if (!next_argument(w, lane, args, 4, &value))
                goto bad;
            int width = MIN((int)value, 256);

            n += (size_t)snprintf(spec + n, sizeof(spec) - n, "%d", MAX(width, -256));
        } else if (n < 16) {
            spec[n++] = *p;
        }
        n = MIN(n, (size_t)20);
    }
    for (; *p && strchr("hljztL", *p); p++)
        wide |= *p == 'l' || *p == 'j' || *p == 'z' || *p == 't';
    spec[n] = 0;
    switch (*p) {
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
    case 'c':
        if (!next_argument(w, lane, args, wide ? 8 : 4, &value))
            goto bad;
        if (*p == 'c') {
            snprintf(spec + n, sizeof(spec) - n, "c");
            printed = snprintf(piece, sizeof(piece), spec, (int)value);
        } else if (*p == 'd' || *p == 'i') {
            snprintf(spec + n, sizeof(spec) - n, "lld");
            printed = snprintf(piece, sizeof(piece), spec,
                               wide ? (long long)value : (long long)(int32_t)value);
        } else {
            snprintf(spec + n, sizeof(spec) - n, "ll%c", *p);
            printed = snprintf(piece, sizeof(piece), spec, (unsigned long long)value);
        }
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A': {
        double number;

        if (!next_argument(w, lane, args, 8, &value))
            goto bad;
        memcpy(&number, &value, 8);
        spec[n] = *p;
        spec[n + 1] = 0;
        printed = snprintf(piece, sizeof(piece), spec, number);
        break;
    }
    case 'p':
        if (!next_argument(w, lane, args, 8, &value))
            goto bad;
        printed = snprintf(piece, sizeof(piece), "0x%llx", (unsigned long long)value);
        break;
    case 's':
        if (!next_argument(w, lane, args, 8, &value) ||
            !read_string(w, lane, value, string, sizeof(string)))
            goto bad;
        spec[n] = 's';
        spec[n + 1] = 0;
        printed = snprintf(piece, sizeof(piece), spec, string);
        break;
    case '%':
        put(out, "%", 1);
        return p + 1;
    default:
        put(out, "%", 1); /* as it stands */
        return p;
    }
    if (printed > 0)
        put(out, piece, MIN((size_t)printed, sizeof(piece) - 1));
    return p + 1;
bad:
    *good = false;
    return p;
}
#pragma GCC diagnostic pop

int ptx_builtin_vprintf(struct ptx_warp *w, unsigned lane, uint64_t format, uint64_t args) {
    const struct ptx_launch *launch = w->worker->launch;
    char text[MAX_FORMAT];
    struct printf_output out;
    bool good = read_string(w, lane, format, text, sizeof(text));

    out.n = 0;
    for (const char *p = text; good && *p;) {
        const char *percent = strchrnul(p, '%');

        put(&out, p, (size_t)(percent - p));
        p = *percent ? convert(w, lane, percent, &args, &out, &good) : percent;
    }
    if (!good)
        return -1;
    if (launch->print)
        launch->print(launch->user, out.text, out.n);
    return 0;
}

static void fail_assertion(struct ptx_warp *w, const struct ptx_code *in, unsigned lane) {
    const struct ptx_launch *launch = w->worker->launch;
    const struct ptx_call *call = in->aux;
    char message[MAX_STRING] = "", file[MAX_STRING] = "", function[MAX_STRING] = "";
    char line[3 * MAX_STRING + 200];
    uint32_t thread = w->index * PTX_LANES + lane, nx = launch->block[0], ny = launch->block[1];
    int n;

    read_string(w, lane, argument(w, call, 0, lane), message, sizeof(message));
    read_string(w, lane, argument(w, call, 1, lane), file, sizeof(file));
    read_string(w, lane, argument(w, call, 3, lane), function, sizeof(function));
    n = snprintf(line, sizeof(line),
                 "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file,
                 (unsigned)argument(w, call, 2, lane), function, w->block->id[0], w->block->id[1],
                 w->block->id[2], thread % nx, thread / nx % ny, thread / nx / ny, message);
    if (launch->print && n > 0)
        launch->print(launch->user, line, MIN((size_t)n, sizeof(line) - 1));
    ptx_fault(w, in, PTX_FAULT_ASSERT, lane, 0, "assertion `%.100s` failed", message);
}

bool ptx_builtin_run(struct ptx_warp *w, const struct ptx_code *in, uint32_t mask) {
    const struct ptx_call *call = in->aux;
    const struct ptx_launch *launch = w->worker->launch;

    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint64_t first = argument(w, call, 0, lane);

        switch (call->builtin) {
        case PTX_VPRINTF:
            if (ptx_builtin_vprintf(w, lane, first, argument(w, call, 1, lane)) < 0) {
                ptx_fault(w, in, PTX_FAULT_ADDRESS, lane, first, "printf");
                return false;
            }
            give(w, call, lane, 0);
            break;
        case PTX_MALLOC:
            give(w, call, lane, launch->heap_alloc ? launch->heap_alloc(launch->user, first) : 0);
            break;
        case PTX_FREE:
            if (launch->heap_free && first)
                launch->heap_free(launch->user, first);
            break;
        default:
            fail_assertion(w, in, lane);
            return false;
        }
    }
    return true;
}
