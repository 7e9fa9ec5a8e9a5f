/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pool: before calling the driver, the guard charges the bytes that the pool cannot have in store;
 * afterwards it sets the charge to what the driver reserved. Memory freed on a stream is available
 * to that stream at once, and to other streams only when the stream reaches the free: until then it
 * counts as used (`pending`). If the lease has no room for that, the guard waits up to
 * PATIENCE_MSEC for streams that are about to reach it. If the pool grew beyond the lease all the
 * same (it grows in steps, and in pieces that do not fit together), the guard undoes the allocation
 * and keeps counting its bytes until the driver has them back.
 *
 * `charged` counts credits that were really taken. While a call is under way, another thread that
 * settles must not give back its charge: `n_under_way` prevents that.
 */
#include "guard/pool.h"

#include <poll.h>
#include <pthread.h>

#include "base/cleanup.h"
#include "guard/graph.h"
#include "guard/memory.h"
#include "guard/vmm.h"

enum { POOLS_MAX = 1024, PENDING_STREAMS = 16 };

#define PAGE          (UINT64_C(2) << 20)
#define PATIENCE_MSEC 1000

static struct guard_pool {
    CUmemoryPool handle; /* NULL: free place */
    int share;
    bool destroyed; /* the program destroyed it; its memory lives until the last pointer is freed */
    unsigned n_under_way;
    uint64_t charged;
    uint64_t used;          /* handed out, in units */
    uint64_t pending_bytes; /* Sum of these: */
    struct {
        CUstream stream; /* the last one stands for all other streams */
        CUevent event;   /* completed when the last free is; NULL: could not be made */
        uint64_t bytes;
    } pending[PENDING_STREAMS];
} pools[POOLS_MAX];
static size_t n_pools; /* entries ever used */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t pages(uint64_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* ---- Which pool ----------------------------------------------------------------------------- */

static struct guard_pool *find(CUmemoryPool handle) {
    for (size_t i = 0; i < n_pools; i++)
        if (pools[i].handle == handle && !pools[i].destroyed)
            return &pools[i];
    return NULL;
}

static struct guard_pool *add(CUmemoryPool handle, int share) {
    size_t i = 0;

    while (i < n_pools && pools[i].handle)
        i++;
    if (i == POOLS_MAX)
        return NULL;
    n_pools = MAX(n_pools, i + 1);
    pools[i] = (struct guard_pool){ .handle = handle, .share = share };
    return &pools[i];
}

/* The device whose default pool this is: programs can get a default pool without a call that we
 * see. */
static int share_of_default(CUmemoryPool handle) {
    int n = 0;

    if (!REAL(cuDeviceGetCount) || !REAL(cuDeviceGetDefaultMemPool) ||
        REAL(cuDeviceGetCount)(&n) != CUDA_SUCCESS)
        return CREDIT_REFUSED;
    for (CUdevice device = 0; device < n; device++) {
        CUmemoryPool theirs;

        if (REAL(cuDeviceGetDefaultMemPool)(&theirs, device) == CUDA_SUCCESS && theirs == handle)
            return memory_share_of(device);
    }
    return CREDIT_NONE; /* no pool of a device: the driver will report the error */
}

/* ---- What was freed and may not be there yet ------------------------------------------------ */

/* The entry of a stream; if all are taken, the one for all other streams. */
static unsigned pending_place(struct guard_pool *pool, CUstream stream) {
    unsigned i = 0;

    while (i < PENDING_STREAMS - 1 && pool->pending[i].bytes && pool->pending[i].stream != stream)
        i++;
    return i;
}

static void pending_add(struct guard_pool *pool, CUstream stream, bool per_thread, uint64_t bytes) {
    __typeof__(&cuEventRecord) record = per_thread ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord);
    unsigned i = pending_place(pool, stream);

    if (!pool->pending[i].event && REAL(cuEventCreate) &&
        REAL(cuEventCreate)(&pool->pending[i].event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        pool->pending[i].event = NULL;
    /* One event for several streams would cover only the last one. */
    if (i == PENDING_STREAMS - 1 && pool->pending[i].bytes && pool->pending[i].stream != stream)
        pool->pending[i].stream = NULL;
    else
        pool->pending[i].stream = stream;
    if (record && pool->pending[i].event)
        record(pool->pending[i].event, stream);
    pool->pending[i].bytes += bytes;
    pool->pending_bytes += bytes;
}

/* Forget bytes that are free by now. */
static void pending_look(struct guard_pool *pool) {
    for (unsigned i = 0; i < PENDING_STREAMS; i++)
        if (pool->pending[i].bytes && pool->pending[i].event && REAL(cuEventQuery) &&
            (i < PENDING_STREAMS - 1 || pool->pending[i].stream) &&
            REAL(cuEventQuery)(pool->pending[i].event) == CUDA_SUCCESS) {
            pool->pending_bytes -= pool->pending[i].bytes;
            pool->pending[i].bytes = 0;
        }
}

/* Bytes that this stream can reuse at once; never those of the entry for several streams. */
static uint64_t pending_of(struct guard_pool *pool, CUstream stream) {
    unsigned i = pending_place(pool, stream);

    return i < PENDING_STREAMS - 1 && pool->pending[i].stream == stream ? pool->pending[i].bytes
                                                                        : 0;
}

static void pending_reuse(struct guard_pool *pool, CUstream stream, uint64_t bytes) {
    unsigned i = pending_place(pool, stream);

    bytes = MIN(bytes, pending_of(pool, stream));
    if (bytes) {
        pool->pending[i].bytes -= bytes;
        pool->pending_bytes -= bytes;
    }
}

static void pending_clear(struct guard_pool *pool) {
    for (unsigned i = 0; i < PENDING_STREAMS; i++)
        pool->pending[i].bytes = 0;
    pool->pending_bytes = 0;
}

void pool_context_gone(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_pools; i++) {
        pending_clear(&pools[i]);
        for (unsigned k = 0; k < PENDING_STREAMS; k++)
            pools[i].pending[k].event = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- What it has reserved ------------------------------------------------------------------- */

static bool read_reserved(const struct guard_pool *pool, uint64_t *ret) {
    cuuint64_t reserved = 0;

    if (pool->destroyed || !REAL(cuMemPoolGetAttribute) ||
        REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                    &reserved) != CUDA_SUCCESS)
        reserved = pages(pool->used);
    *ret = reserved;
    return true;
}

/* Give back what the pool no longer has reserved. Called with the lock. */
static void settle(struct guard_pool *pool) {
    uint64_t reserved;

    pending_look(pool);
    if (pool->n_under_way || pool->share < 0 || !read_reserved(pool, &reserved))
        return;
    if (reserved < pool->charged) {
        credit_give(pool->share, pool->charged - reserved);
        pool->charged = reserved;
    }
    if (pool->destroyed && pool->used == 0)
        pool->handle = NULL;
}

void pool_settle(int share) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_pools; i++)
        if (pools[i].handle && pools[i].share == share)
            settle(&pools[i]);
    pthread_mutex_unlock(&lock);
    graph_settle(share);
    vmm_settle(share);
}

void pool_forget(int share) {
    table_drop_share(TABLE_POOL, share);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n_pools; i++)
        if (pools[i].handle && pools[i].share == share) {
            pools[i].used = 0;
            pending_clear(&pools[i]);
            settle(&pools[i]);
        }
    pthread_mutex_unlock(&lock);
}

/*
 * After a call of the driver, with the lock: the driver may have reserved more than was charged.
 * False: more than the lease has; it is counted nevertheless. The lock is released meanwhile,
 * because taking credits may settle pools.
 */
static bool settle_up(struct guard_pool *pool) {
    uint64_t reserved, more;
    bool taken;

    if (!read_reserved(pool, &reserved) || reserved <= pool->charged)
        return true;
    more = reserved - pool->charged;
    pool->n_under_way++;
    pthread_mutex_unlock(&lock);
    taken = credit_take(pool->share, more);
    if (!taken && REAL(cuMemPoolTrimTo)) { /* give back the unused rest of a step */
        REAL(cuMemPoolTrimTo)(pool->handle, 0);
        pthread_mutex_lock(&lock);
        read_reserved(pool, &reserved);
        more = reserved > pool->charged ? reserved - pool->charged : 0;
        pthread_mutex_unlock(&lock);
        taken = more == 0 || credit_take(pool->share, more);
    }
    if (!taken)
        credit_force(pool->share, more);
    pthread_mutex_lock(&lock);
    pool->charged += more;
    pool->n_under_way--;
    return taken;
}

/* ---- Allocating ----------------------------------------------------------------------------- */

/* The pool of a handle, which is known from now on. NULL in `ret`: nothing of it is charged. */
static CUresult find_pool(struct guard_pool **ret, CUmemoryPool handle, int share) {
    struct guard_pool *pool;

    *ret = NULL;
    pthread_mutex_lock(&lock);
    pool = find(handle);
    if (!pool) {
        pthread_mutex_unlock(&lock);
        if (share == CREDIT_REFUSED)
            share = share_of_default(handle);
        if (share == CREDIT_NONE)
            return CUDA_SUCCESS;
        if (share < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&lock);
        pool = find(handle);
        if (!pool)
            pool = add(handle, share);
    }
    pthread_mutex_unlock(&lock);
    if (!pool || pool->share == CREDIT_REFUSED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (pool->share >= 0)
        *ret = pool;
    return CUDA_SUCCESS;
}

/* Charge the bytes by which an allocation on `stream` may make the pool grow. */
static bool charge_growth(struct guard_pool *pool, CUstream stream, uint64_t bytes) {
    uint64_t need;

    pthread_mutex_lock(&lock);
    if (bytes > UINT64_MAX / 4 - pool->used) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    need = pages(pool->used + pool->pending_bytes - pending_of(pool, stream) + bytes);
    need = need > pool->charged ? need - pool->charged : 0;
    pthread_mutex_unlock(&lock);
    if (need && !credit_take(pool->share, need))
        return false;
    pthread_mutex_lock(&lock);
    pending_reuse(pool, stream, bytes);
    pool->used += bytes;
    pool->charged += need;
    pool->n_under_way++;
    pthread_mutex_unlock(&lock);
    return true;
}

static CUresult begin_alloc(struct guard_pool **ret, CUmemoryPool handle, int share,
                            CUstream stream, uint64_t bytes) {
    CUresult r = find_pool(ret, handle, share);

    if (r != CUDA_SUCCESS || !*ret || charge_growth(*ret, stream, bytes))
        return r;
    /* Memory that other streams are about to free may be enough. */
    for (unsigned waited = 0; waited < PATIENCE_MSEC && (*ret)->pending_bytes; waited++) {
        uint64_t before = (*ret)->pending_bytes;

        poll(NULL, 0, 1);
        pthread_mutex_lock(&lock);
        settle(*ret);
        pthread_mutex_unlock(&lock);
        if ((*ret)->pending_bytes < before && charge_growth(*ret, stream, bytes))
            return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void give_up(const struct table_entry *entry, bool pending, CUstream stream,
                    bool per_thread) {
    struct guard_pool *pool = &pools[entry->extra];

    pthread_mutex_lock(&lock);
    pool->used -= MIN(pool->used, entry->bytes);
    if (pending && !pool->destroyed)
        pending_add(pool, stream, per_thread, entry->bytes);
    if (pool->destroyed)
        settle(pool);
    pthread_mutex_unlock(&lock);
}

void pool_freed(const struct table_entry *entry) {
    give_up(entry, false, NULL, false);
}

/* After the driver's answer: keep the charge under `pointer`, or undo everything. */
static CUresult end_alloc(struct guard_pool *pool, uint64_t bytes, CUresult r, CUdeviceptr pointer,
                          CUstream stream, bool per_thread) {
    struct table_entry entry = { .key = pointer, .bytes = bytes, .kind = TABLE_POOL };
    bool kept = true;

    if (!pool)
        return r;
    entry.share = (int16_t)pool->share;
    entry.extra = (uint64_t)(pool - pools);
    pthread_mutex_lock(&lock);
    pool->n_under_way--;
    if (r != CUDA_SUCCESS) {
        pool->used -= bytes;
        settle(pool);
    } else {
        kept = settle_up(pool);
    }
    pthread_mutex_unlock(&lock);
    if (r != CUDA_SUCCESS || (kept && table_put(&entry)))
        return r;
    (per_thread ? REAL(cuMemFreeAsync_ptsz) : REAL(cuMemFreeAsync))(pointer, stream);
    give_up(&entry, true, stream, per_thread);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* While a stream is being captured nothing is allocated: the call makes a node. */
static bool is_capturing(CUstream stream, bool per_thread) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    __typeof__(&cuStreamIsCapturing) ask =
        per_thread ? REAL(cuStreamIsCapturing_ptsz) : REAL(cuStreamIsCapturing);

    if (!ask || ask(stream, &status) != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    graph_any_has_memory();
    return true;
}

static CUresult alloc_async(__typeof__(&cuMemAllocAsync) real, bool per_thread, CUdeviceptr *dptr,
                            size_t bytesize, CUstream stream) {
    uint64_t bytes = credit_size(bytesize);
    CUmemoryPool handle = NULL;
    struct guard_pool *pool;
    CUdevice device;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!dptr || bytesize == 0 || is_capturing(stream, per_thread) || !REAL(cuDeviceGetMemPool) ||
        !REAL(cuCtxGetDevice) || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
        REAL(cuDeviceGetMemPool)(&handle, device) != CUDA_SUCCESS)
        return real(dptr, bytesize, stream);
    r = begin_alloc(&pool, handle, memory_share_of(device), stream, bytes);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(dptr, bytesize, stream);
    return end_alloc(pool, bytes, r, r == CUDA_SUCCESS ? *dptr : 0, stream, per_thread);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    return alloc_async(REAL(cuMemAllocAsync), false, dptr, bytesize, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    return alloc_async(REAL(cuMemAllocAsync_ptsz), true, dptr, bytesize, hStream);
}

static CUresult alloc_from(__typeof__(&cuMemAllocFromPoolAsync) real, bool per_thread,
                           CUdeviceptr *dptr, size_t bytesize, CUmemoryPool handle,
                           CUstream stream) {
    uint64_t bytes = credit_size(bytesize);
    struct guard_pool *pool;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (!dptr || bytesize == 0 || !handle || is_capturing(stream, per_thread))
        return real(dptr, bytesize, handle, stream);
    r = begin_alloc(&pool, handle, CREDIT_REFUSED, stream, bytes);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(dptr, bytesize, handle, stream);
    return end_alloc(pool, bytes, r, r == CUDA_SUCCESS ? *dptr : 0, stream, per_thread);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
    return alloc_from(REAL(cuMemAllocFromPoolAsync), false, dptr, bytesize, pool, hStream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
    return alloc_from(REAL(cuMemAllocFromPoolAsync_ptsz), true, dptr, bytesize, pool, hStream);
}

static CUresult free_async(__typeof__(&cuMemFreeAsync) real, bool per_thread, CUdeviceptr dptr,
                           CUstream stream) {
    struct table_entry entry;
    bool known;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    if (is_capturing(stream, per_thread)) /* a node is made, nothing is freed */
        return real(dptr, stream);
    known = memory_lift(&entry, TABLE_POOL, dptr) || memory_lift(&entry, TABLE_MEMORY, dptr);
    r = real(dptr, stream);
    if (known && r != CUDA_SUCCESS)
        memory_put_back(&entry);
    else if (known && entry.kind == TABLE_POOL)
        give_up(&entry, true, stream, per_thread);
    else if (known)
        memory_gone(&entry);
    return r;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    return free_async(REAL(cuMemFreeAsync), false, dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
    return free_async(REAL(cuMemFreeAsync_ptsz), true, dptr, hStream);
}

/* ---- Pools themselves ----------------------------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
    __typeof__(&cuMemPoolCreate) real = REAL(cuMemPoolCreate);
    int share = CREDIT_NONE; /* of host memory */
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(pool, poolProps);
    if (r != CUDA_SUCCESS)
        return r;
    if (poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        share = memory_share_of(poolProps->location.id);
    pthread_mutex_lock(&lock);
    if (!add(*pool, share))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&lock);
    if (r != CUDA_SUCCESS)
        REAL(cuMemPoolDestroy)(*pool);
    return r;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
    __typeof__(&cuMemPoolImportFromShareableHandle) real = REAL(cuMemPoolImportFromShareableHandle);
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(pool_out, handle, handleType, flags);
    if (r == CUDA_SUCCESS) {
        pthread_mutex_lock(&lock);
        add(*pool_out, CREDIT_NONE); /* the process that created it is charged */
        pthread_mutex_unlock(&lock);
    }
    return r;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    __typeof__(&cuMemPoolDestroy) real = REAL(cuMemPoolDestroy);
    struct guard_pool *ours;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(pool);
    if (r != CUDA_SUCCESS)
        return r;
    pthread_mutex_lock(&lock);
    ours = find(pool);
    if (ours) {
        ours->destroyed = true;
        settle(ours);
        if (ours->share < 0)
            ours->handle = NULL;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
    __typeof__(&cuMemPoolTrimTo) real = REAL(cuMemPoolTrimTo);
    struct guard_pool *ours;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(pool, minBytesToKeep);
    if (r == CUDA_SUCCESS) {
        pthread_mutex_lock(&lock);
        ours = find(pool);
        if (ours)
            settle(ours);
        pthread_mutex_unlock(&lock);
    }
    return r;
}

/* ---- Forks ---------------------------------------------------------------------------------- */

static void lock_pools(void) {
    pthread_mutex_lock(&lock);
}

static void unlock_pools(void) {
    pthread_mutex_unlock(&lock);
}

static void forget_pools(void) {
    n_pools = 0;
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void begin(void) {
    credit_on_short(pool_settle);
    pthread_atfork(lock_pools, unlock_pools, forget_pools);
}
