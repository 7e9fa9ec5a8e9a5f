/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Context: the guard charges the cost of a context before it is created. When it is destroyed, the
 * guard refunds it with everything that lived in it. Creating a context on a device outside the
 * lease fails.
 *
 * Before the driver is initialised, the guard sets CUDA_VISIBLE_DEVICES to the lease's devices, or
 * to those of them that the program's own value names. So a launcher that numbers its workers 0, 1,
 * 2… numbers the devices of the lease, not those of the box.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/visible.h"
#include "guard/memory.h"
#include "guard/note.h"
#include "guard/pool.h"

enum { DEVICES = 64 };

/* ---- Visibility ------------------------------------------------------------------------------ */

static void set_visible(void) {
    const char *devices = getenv("CUDA_VISIBLE_DEVICES"), *form = getenv("ALLOT_VISIBLE");
    struct visible_gpu gpus[CREDIT_SHARES_MAX] = { 0 };
    struct visible_env env = visible_env(devices, "PCI_BUS_ID");
    struct visible_box box = { .gpus = gpus };
    static struct visible_list list; /* large; cuInit is called once */
    char text[CREDIT_SHARES_MAX * 64] = "";
    size_t length = 0;

    /* By index: the box has closed the other devices' nodes, and the program cannot read UUIDs. */
    if (credit_n_shares() == 0 || (form && strcmp(form, "index") == 0))
        return;
    for (int i = 0; i < credit_n_shares(); i++) {
        if (strncmp(credit_uuid(i), "MIG-", 4) == 0) {
            /* CUDA shows a process one instance. */
            setenv("CUDA_VISIBLE_DEVICES", credit_uuid(i), 1);
            return;
        }
        gpus[i] = (struct visible_gpu){ .uuid = credit_uuid(i), .pci = { .domain = (uint32_t)i } };
        box.n_gpus++;
    }
    if (visible_decide(&list, &box, &env) < 0)
        return;
    for (size_t i = 0; i < list.n_devices && length < sizeof(text); i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", i ? "," : "",
                                   gpus[list.devices[i].gpu].uuid);
    setenv("CUDA_VISIBLE_DEVICES", text, 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
}

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult cuInit(unsigned int Flags) {
    static bool done;
    __typeof__(&cuInit) real = REAL(cuInit);

    OR_NOT_SUPPORTED(real);
    pthread_mutex_lock(&init_lock);
    if (!done)
        set_visible();
    done = true;
    pthread_mutex_unlock(&init_lock);
    return real(Flags);
}

/* ---- Contexts that programs make --------------------------------------------------------------
 */

static void let_go(const struct table_entry *entry) {
    memory_gone(entry);
}

static CUresult begin_context(struct memory_charge *charge, CUdevice device) {
    int share = memory_share_of(device);

    *charge = (struct memory_charge){ CREDIT_NONE, 0 };
    if (share == CREDIT_REFUSED && credit_n_shares() == 0)
        return CUDA_ERROR_OUT_OF_MEMORY; /* there is no lease to charge; the reason was printed */
    if (share == CREDIT_REFUSED) {
        note(NOTE_REFUSED,
             "device %d is not part of this job's lease: no context can be created on it", device);
        return CUDA_ERROR_INVALID_DEVICE;
    }
    return share < 0 ? CUDA_SUCCESS : memory_take_on(charge, share, credit_context(share));
}

/* The body of a call that makes a context, whatever its other arguments are. */
#define MAKE_CONTEXT(symbol, arguments)                                                            \
    __typeof__(&symbol) real = REAL(symbol);                                                       \
    struct memory_charge charge;                                                                   \
    CUresult r;                                                                                    \
                                                                                                   \
    OR_NOT_SUPPORTED(real);                                                                        \
    r = begin_context(&charge, dev);                                                               \
    if (r != CUDA_SUCCESS)                                                                         \
        return r;                                                                                  \
    r = real arguments;                                                                            \
    return MEMORY_KEPT(&charge, r, TABLE_CONTEXT, pctx, NULL, cuCtxDestroy_v2)

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    MAKE_CONTEXT(cuCtxCreate, (pctx, flags, dev));
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    MAKE_CONTEXT(cuCtxCreate_v2, (pctx, flags, dev));
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
    MAKE_CONTEXT(cuCtxCreate_v3, (pctx, paramsArray, numParams, flags, dev));
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
    MAKE_CONTEXT(cuCtxCreate_v4, (pctx, ctxCreateParams, flags, dev));
}

static CUresult end(CUresult r, CUcontext context) {
    struct table_entry entry;

    if (r == CUDA_SUCCESS && table_take(TABLE_CONTEXT, (uintptr_t)context, &entry)) {
        memory_gone(&entry);
        table_drop_context(context, let_go);
        pool_context_gone();
    }
    return r;
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    __typeof__(&cuCtxDestroy_v2) real = REAL(cuCtxDestroy_v2);

    OR_NOT_SUPPORTED(real);
    return end(real(ctx), ctx);
}

CUresult cuCtxDestroy(CUcontext ctx) {
    __typeof__(&cuCtxDestroy) real = REAL(cuCtxDestroy);

    OR_NOT_SUPPORTED(real);
    return end(real(ctx), ctx);
}

CUresult cuCtxDetach(CUcontext ctx) {
    __typeof__(&cuCtxDetach) real = REAL(cuCtxDetach);
    CUcontext current = NULL;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(ctx);
    /* It is destroyed only if that was its last use; then it is no longer current either. */
    if (r == CUDA_SUCCESS && REAL(cuCtxGetCurrent))
        REAL(cuCtxGetCurrent)(&current);
    return current == ctx ? r : end(r, ctx);
}

/* ---- Primary contexts ------------------------------------------------------------------------ */

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primaries[DEVICES]; /* those that are charged */
static struct memory_charge primary_charges[DEVICES];

/*
 * The context handles that green contexts of a device ever had. Memory allocated in one belongs to
 * the primary context and is freed with that, however long the green one lived.
 */
struct green {
    CUcontext context;
    CUdevice device;
};
static struct green *greens;
static size_t n_greens;

static bool is_active(CUdevice device) {
    unsigned flags;
    int active = 0;

    return REAL(cuDevicePrimaryCtxGetState) &&
           REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* Before a call that may create the primary context: charge the context unless it exists. Holds the
 * lock until end_primary. */
static CUresult begin_primary(struct memory_charge *charge, CUdevice device) {
    *charge = (struct memory_charge){ CREDIT_NONE, 0 };
    pthread_mutex_lock(&primary_lock);
    if (device < 0 || device >= DEVICES || is_active(device))
        return CUDA_SUCCESS;
    return begin_context(charge, device);
}

static void end_primary(struct memory_charge *charge, CUresult r, CUdevice device,
                        CUcontext context) {
    if (r != CUDA_SUCCESS) {
        memory_drop(charge);
    } else if (charge->share >= 0) {
        primaries[device] = context;
        primary_charges[device] = *charge;
    }
    pthread_mutex_unlock(&primary_lock);
}

/* Without host memory for the record, memory that is not freed stays charged until the process
 * ends. Called with the lock. */
static void keep_green(CUgreenCtx green, CUdevice device) {
    CUcontext context;
    struct green *more;

    if (!REAL(cuCtxFromGreenCtx) || REAL(cuCtxFromGreenCtx)(&context, green) != CUDA_SUCCESS)
        return;
    for (size_t i = 0; i < n_greens; i++)
        if (greens[i].context == context)
            return;
    more = realloc(greens, (n_greens + 1) * sizeof(*more));
    if (!more)
        return;
    greens = more;
    greens[n_greens++] = (struct green){ context, device };
}

static void drop_greens(CUdevice device) {
    size_t kept = 0;

    for (size_t i = 0; i < n_greens; i++)
        if (greens[i].device == device)
            table_drop_context(greens[i].context, let_go);
        else
            greens[kept++] = greens[i];
    n_greens = kept;
}

static CUresult ended_primary(CUresult r, CUdevice device) {
    pthread_mutex_lock(&primary_lock);
    if (r == CUDA_SUCCESS && device >= 0 && device < DEVICES && primaries[device] &&
        !is_active(device)) {
        memory_drop(&primary_charges[device]);
        table_drop_context(primaries[device], let_go);
        drop_greens(device);
        pool_context_gone();
        primaries[device] = NULL;
    }
    pthread_mutex_unlock(&primary_lock);
    return r;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    __typeof__(&cuDevicePrimaryCtxRetain) real = REAL(cuDevicePrimaryCtxRetain);
    struct memory_charge charge;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = begin_primary(&charge, dev);
    if (r == CUDA_SUCCESS)
        r = real(pctx, dev);
    end_primary(&charge, r, dev, r == CUDA_SUCCESS ? *pctx : NULL);
    return r;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
    __typeof__(&cuGreenCtxCreate) real = REAL(cuGreenCtxCreate);
    struct memory_charge charge;
    CUcontext context = NULL;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = begin_primary(&charge, dev);
    if (r == CUDA_SUCCESS)
        r = real(phCtx, desc, dev, flags);
    /* It retains the primary context; get its handle, which costs nothing now that it exists. */
    if (r == CUDA_SUCCESS && charge.share >= 0 &&
        REAL(cuDevicePrimaryCtxRetain)(&context, dev) == CUDA_SUCCESS)
        REAL(cuDevicePrimaryCtxRelease_v2)(dev);
    if (r == CUDA_SUCCESS)
        keep_green(*phCtx, dev);
    end_primary(&charge, r, dev, context);
    return r;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
    __typeof__(&cuGreenCtxDestroy) real = REAL(cuGreenCtxDestroy);
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(hCtx);
    for (CUdevice device = 0; device < DEVICES;
         device++) /* it may have been the last use of a primary context */
        ended_primary(r, device);
    return r;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    __typeof__(&cuDevicePrimaryCtxRelease_v2) real = REAL(cuDevicePrimaryCtxRelease_v2);

    OR_NOT_SUPPORTED(real);
    return ended_primary(real(dev), dev);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    __typeof__(&cuDevicePrimaryCtxRelease) real = REAL(cuDevicePrimaryCtxRelease);

    OR_NOT_SUPPORTED(real);
    return ended_primary(real(dev), dev);
}

/* A reset frees everything, pools too. */
static CUresult was_reset(CUresult r, CUdevice device) {
    int share;

    ended_primary(r, device);
    share = r == CUDA_SUCCESS ? memory_share_of(device) : CREDIT_NONE;
    if (share >= 0)
        pool_forget(share);
    return r;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    __typeof__(&cuDevicePrimaryCtxReset_v2) real = REAL(cuDevicePrimaryCtxReset_v2);

    OR_NOT_SUPPORTED(real);
    return was_reset(real(dev), dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    __typeof__(&cuDevicePrimaryCtxReset) real = REAL(cuDevicePrimaryCtxReset);

    OR_NOT_SUPPORTED(real);
    return was_reset(real(dev), dev);
}

/* ---- The heap of kernels' own malloc() ---------------------------------------------------------
 */

/* The context's cost includes the default heap. */
#define HEAP_DEFAULT (UINT64_C(8) << 20)

static uint64_t heap_size(uint64_t bytes) {
    return bytes > HEAP_DEFAULT ? credit_size(bytes - HEAP_DEFAULT) : 0;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    __typeof__(&cuCtxSetLimit) real = REAL(cuCtxSetLimit);
    void *context = memory_context();
    struct memory_charge charge;
    struct table_entry entry;
    int share = CREDIT_NONE;
    size_t now = 0;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && REAL(cuCtxGetLimit) && context)
        share = memory_share_here();
    if (share < 0)
        return real(limit, value);
    /* One charge per context, which ends with it; replaced when the size changes. */
    charge = (struct memory_charge){ share, 0 };
    if (memory_lift(&entry, TABLE_HEAP, (uintptr_t)context))
        charge.bytes = entry.bytes;
    r = CUDA_SUCCESS;
    if (heap_size(value) > charge.bytes && !credit_take(share, heap_size(value) - charge.bytes))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    else
        charge.bytes = MAX(charge.bytes, heap_size(value));
    if (r == CUDA_SUCCESS)
        r = real(limit, value);
    if (REAL(cuCtxGetLimit)(&now, limit) == CUDA_SUCCESS)
        memory_settle(&charge, heap_size(now));
    memory_keep(&charge, TABLE_HEAP, (uintptr_t)context, context);
    return r;
}

static void forget_contexts(void) {
    pthread_mutex_init(&init_lock, NULL);
    pthread_mutex_init(&primary_lock, NULL);
    n_greens = 0;
    memset(primaries, 0, sizeof(primaries));
    memset(primary_charges, 0, sizeof(primary_charges));
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(NULL, NULL, forget_contexts);
}
