/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hook: the driver is whatever loaded object has libcuda's soname or, if somebody renamed a copy,
 * defines the names that every libcuda has; never the guard itself. It is looked for when it is
 * needed and not yet known, which costs a walk over the loaded objects, and never again afterwards:
 * libcuda cannot be unloaded.
 */
#include "guard/hook.h"

#include <pthread.h>
#include <string.h>

#include "guard/elf.h"

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

static bool is_driver(const struct elf_object *object) {
    void *version;

    if (object->soname && strcmp(object->soname, "libcuda.so.1") == 0)
        return true;
    version = elf_symbol(object, "cuDriverGetVersion");
    return version && elf_symbol(object, "cuGetExportTable");
}

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
    if (!is_driver(object))
        return false;
    adopt(object);
    return true;
}

bool hook_driver_is_here(void) {
    return driver_known || elf_each(adopt_if_driver, NULL);
}

bool hook_learn(const void *address) {
    struct elf_object object;

    if (driver_known)
        return true;
    return elf_object_of(address, &object) && adopt_if_driver(&object, NULL);
}

void *hook_find_real(enum hook hook) {
    return hook_driver_is_here() ? hook_reals[hook] : NULL;
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

const char *hook_name(enum hook hook) {
    return hooks[hook].name;
}

void *hook_function(enum hook hook) {
    void *address;

    memcpy(&address, &hooks[hook].function, sizeof(address));
    return address;
}
