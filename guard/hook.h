/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Hook: the guard's function and the driver's own behind it, for every name of hooks.def.
 *
 * The guard exports the driver's names, so a program that was linked to libcuda, or to a library
 * that has libcuda's names and loads it later, binds to the guard by itself; resolve.c redirects
 * programs that ask by name. The guard does nothing until a libcuda is loaded or a hook is called.
 * Any thread.
 */
#include <stdbool.h>
#include <stddef.h>

/* Declare every version of every function; no name is a macro for another. */
#define __CUDA_API_VERSION_INTERNAL        1
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT 1
#include <cuda.h>

#include "guard/resolve.h"

/* Prototypes that only newer headers declare. */
#pragma GCC visibility push(default)
CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams);
#pragma GCC visibility pop

/* Functions of the driver that the guard calls but does not intercept. */
#define HOOK_USES(X)                                                                               \
    X(cuArrayGetMemoryRequirements)                                                                \
    X(cuCtxFromGreenCtx)                                                                           \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxGetLimit)                                                                               \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetDefaultMemPool)                                                                   \
    X(cuDeviceGetGraphMemAttribute)                                                                \
    X(cuDeviceGetMemPool)                                                                          \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDeviceGetUuid_v2)                                                                          \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuDriverGetVersion)                                                                          \
    X(cuEventCreate)                                                                               \
    X(cuEventQuery)                                                                                \
    X(cuEventRecord)                                                                               \
    X(cuEventRecord_ptsz)                                                                          \
    X(cuGraphChildGraphNodeGetGraph)                                                               \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphMemAllocNodeGetParams)                                                                \
    X(cuGraphNodeGetType)                                                                          \
    X(cuMemPoolGetAttribute)                                                                       \
    X(cuStreamIsCapturing)                                                                         \
    X(cuStreamIsCapturing_ptsz)

enum hook {
#define HOOK(symbol) HOOK_##symbol,
#define PASS(symbol, why)
#include "guard/hooks.def"
#undef HOOK
#undef PASS
    N_HOOKS,
    BEFORE_USES = N_HOOKS - 1,
#define X(symbol) HOOK_##symbol,
    HOOK_USES(X)
#undef X
        N_REALS,
};

/* The driver's function, for a call: REAL(cuMemAlloc_v2)(&pointer, bytes). Loads the driver if none
 * is loaded yet. NULL if there is none to load, or the driver has no such function: hook_error()
 * tells which. */
#define REAL(symbol) ((__typeof__(&symbol))hook_real(HOOK_##symbol))

extern _Atomic(void *) hook_reals[N_REALS];
void *hook_find_real(enum hook hook);

static inline void *hook_real(enum hook hook) {
    void *real = hook_reals[hook];

    return __builtin_expect(real != NULL, 1) ? real : hook_find_real(hook);
}

/* The error for a program that calls a hook whose driver function does not exist. */
CUresult hook_error(void);

/* The hook of a driver function; N_HOOKS: none. */
enum hook hook_by_real(const void *real);
/* The hook of a name; and the same for resolve.c. N_HOOKS or false: none. */
enum hook hook_by_name(const char *name);
bool hook_find(const char *name, struct resolve_name *ret);
/* The guard's function for this hook. */
void *hook_function(enum hook hook);
