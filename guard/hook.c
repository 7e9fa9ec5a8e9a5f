/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hook: the driver is the loaded object that has libcuda's soname, wherever its file is. Names
 * prove nothing: frameworks export all of the driver's names, as functions that load the driver
 * when they are called. The guard looks for the driver when it first needs it, which costs a walk
 * over the loaded objects, and never again: libcuda cannot be unloaded.
 *
 * The driver never calls a hook from inside one of its own calls, so neither endless recursion nor
 * double charges can happen:
 * - hook_reals has only addresses that the driver's own symbol table names, never the guard's or a
 *   framework's;
 * - the driver's calls of its own names stay inside it: it is linked with -Bsymbolic (a unit test
 *   checks NVIDIA's driver and the simulated one);
 * - when the driver calls dlsym(), it gets its own functions (resolve.c).
 *
 * That leaves callbacks of the program; their calls count as the program's.
 */
#include "guard/hook.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "guard/elf.h"

#define SONAME "libcuda.so.1"

_Atomic(void *) hook_reals[N_REALS];

static _Atomic bool driver_known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct {
    const char *name;
    void (*function)(void);
} hooks[N_REALS] = {
#define HOOK(symbol) [HOOK_##symbol] = { #symbol, (void (*)(void))symbol },
#define PASS(symbol, why)
#include "guard/hooks.def"
#undef HOOK
#undef PASS
#define X(symbol) [HOOK_##symbol] = { #symbol, NULL },
    HOOK_USES(X)
#undef X
};

static void adopt(const struct elf_object *object) {
    pthread_mutex_lock(&lock);
    if (!driver_known) {
        for (size_t i = 0; i < N_REALS; i++)
            hook_reals[i] = elf_symbol(object, hooks[i].name);
        driver_known = true;
    }
    pthread_mutex_unlock(&lock);
}

static bool adopt_if_driver(const struct elf_object *object, void *user) {
    (void)user;
    if (!elf_is(object, SONAME))
        return false;
    adopt(object);
    return true;
}

/* A program that calls a hook without having loaded the driver was linked to a library that loads
 * it on the first call: the guard stands in front of that library and does the same. */
void *hook_find_real(enum hook hook) {
    if (!driver_known && !elf_each(adopt_if_driver, NULL) && dlopen(SONAME, RTLD_NOW))
        elf_each(adopt_if_driver, NULL);
    return hook_reals[hook];
}

CUresult hook_error(void) {
    /* Without a driver, answer as such a library does. */
    return driver_known ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
}

static void forget_lock(void) {
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(NULL, NULL, forget_lock);
}

enum hook hook_by_name(const char *name) {
    for (enum hook i = 0; i < N_HOOKS; i++)
        if (strcmp(hooks[i].name, name) == 0)
            return i;
    return N_HOOKS;
}

enum hook hook_by_real(const void *real) {
    for (enum hook i = 0; i < N_HOOKS; i++)
        if (hook_reals[i] == real)
            return i;
    return N_HOOKS;
}

void *hook_function(enum hook hook) {
    void *address;

    memcpy(&address, &hooks[hook].function, sizeof(address));
    return address;
}

bool hook_find(const char *name, struct resolve_name *ret) {
    enum hook hook = hook_by_name(name);

    if (hook == N_HOOKS)
        return false;
    *ret = (struct resolve_name){ SONAME, hook_function(hook), &hook_reals[hook], adopt };
    return true;
}
