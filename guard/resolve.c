/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolve: dlsym() reads its return address to identify the caller, which RTLD_NEXT depends on. So
 * the guard's dlsym is a few instructions that call resolve_dlsym() and, if that has no answer,
 * jump to the C library's with unchanged arguments and return address. The return address also
 * separates the driver's own lookups from the program's.
 *
 * cuGetProcAddress is left to the driver, which alone knows what a version and a flag mean; what it
 * returns is recognised by its address. A driver may return an address that it does not export
 * under that name: then vendor/cuda_symbols.def says which symbol it stands for.
 */
#include "guard/resolve.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "guard/elf.h"
#include "guard/hook.h"
#include "guard/note.h"
#include "guard/nvml.h"

typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef void *(*dlvsym_fn)(void *handle, const char *name, const char *version);

/* The jumps below read it. */
__attribute__((visibility("hidden"))) dlsym_fn resolve_real_dlsym;
__attribute__((visibility("hidden"))) dlvsym_fn resolve_real_dlvsym;

#if defined(__x86_64__)
#define STUB(symbol, pick, real)                                                                   \
    __asm__(".pushsection .text\n"                                                                 \
            ".globl " #symbol "\n.type " #symbol ", @function\n" #symbol ":\n"                     \
            "endbr64\n"                                                                            \
            "push %rdi\npush %rsi\npush %rdx\n"                                                    \
            "mov 24(%rsp), %rcx\n"                                                                 \
            "call " #pick "\n"                                                                     \
            "mov %rdx, %rcx\n"                                                                     \
            "pop %rdx\npop %rsi\npop %rdi\n"                                                       \
            "test %rcx, %rcx\n"                                                                    \
            "jnz 1f\n"                                                                             \
            "jmp *" #real "(%rip)\n"                                                               \
            "1: ret\n"                                                                             \
            ".size " #symbol ", . - " #symbol "\n.popsection\n")
#elif defined(__aarch64__)
#define STUB(symbol, pick, real)                                                                   \
    __asm__(".pushsection .text\n"                                                                 \
            ".globl " #symbol "\n.type " #symbol ", %function\n" #symbol ":\n"                     \
            "stp x29, x30, [sp, #-48]!\nmov x29, sp\n"                                             \
            "stp x0, x1, [sp, #16]\nstr x2, [sp, #32]\nmov x3, x30\n"                              \
            "bl " #pick "\n"                                                                       \
            "mov x16, x0\nmov x17, x1\n"                                                           \
            "ldp x0, x1, [sp, #16]\nldr x2, [sp, #32]\nldp x29, x30, [sp], #48\n"                  \
            "cbnz x17, 1f\n"                                                                       \
            "adrp x16, " #real "\nldr x16, [x16, :lo12:" #real "]\nbr x16\n"                       \
            "1: mov x0, x16\nret\n"                                                                \
            ".size " #symbol ", . - " #symbol "\n.popsection\n")
#else
#error "the guard's dlsym is written for x86-64 and aarch64"
#endif

STUB(dlsym, resolve_dlsym, resolve_real_dlsym);
STUB(dlvsym, resolve_dlvsym, resolve_real_dlvsym);

static bool find_dl(const struct elf_object *object, void *user) {
    (void)user;
    /* libc has them since 2.34, libdl before that. */
    if (!object->soname ||
        (strcmp(object->soname, "libc.so.6") != 0 && strcmp(object->soname, "libdl.so.2") != 0))
        return false;
    if (!resolve_real_dlsym)
        resolve_real_dlsym = (dlsym_fn)elf_symbol(object, "dlsym");
    if (!resolve_real_dlvsym)
        resolve_real_dlvsym = (dlvsym_fn)elf_symbol(object, "dlvsym");
    return resolve_real_dlsym && resolve_real_dlvsym;
}

/* Another library's constructor may call dlsym() before ours has run. */
static void prepare(void) {
    if (!resolve_real_dlsym || !resolve_real_dlvsym)
        elf_each(find_dl, NULL);
}

__attribute__((constructor)) static void begin(void) {
    prepare();
}

static void *ask(void *handle, const char *name, const char *version) {
    return version ? resolve_real_dlvsym(handle, name, version) : resolve_real_dlsym(handle, name);
}

static bool lies_in(const void *address, const char *soname, struct elf_object *ret) {
    return elf_object_of(address, ret) && elf_is(ret, soname);
}

static bool adopt_if_it(const struct elf_object *object, void *user) {
    const struct resolve_name *found = user;

    if (!elf_is(object, found->soname))
        return false;
    found->adopt(object);
    return true;
}

/* Whether the library that has this name is loaded. */
static bool is_loaded(struct resolve_name *found) {
    if (!*found->real)
        elf_each(adopt_if_it, found);
    return *found->real;
}

static bool refuses_unknown(const char *name);

static struct resolve_pick pick(void *handle, const char *name, const char *version,
                                const void *caller) {
    struct resolve_name found;
    struct elf_object object;
    void *real = NULL;
    bool inside;

    prepare();
    if (!name || (strncmp(name, "cu", 2) != 0 && strncmp(name, "nvml", 4) != 0))
        return (struct resolve_pick){ NULL, 0 };
    if (!hook_find(name, &found) && !nvml_find(name, &found)) {
        char refused[128];

        if (*name != 'c' || !refuses_unknown(name))
            return (struct resolve_pick){ NULL, 0 };
        /* Programs then call dlerror(): let the C library produce the message, with this text. */
        snprintf(refused, sizeof(refused), "%s (refused by liballot-guard.so)", name);
        return (struct resolve_pick){ resolve_real_dlsym(RTLD_DEFAULT, refused), 1 };
    }
    inside = lies_in(caller, found.soname, &object);
    /* RTLD_NEXT is relative to the caller; the last in the search order is the driver. */
    if (handle == RTLD_NEXT && inside)
        return (struct resolve_pick){ NULL, 0 };
    if (handle != RTLD_NEXT) {
        real = ask(handle, name, version);
        if (!real)
            return (struct resolve_pick){ NULL, 1 };
    }
    if (inside)
        return (struct resolve_pick){ real == found.ours ? elf_symbol(&object, name) : real, 1 };
    if (real && real != found.ours) {
        /* A framework's own function of that name: it will look up the driver's function itself. */
        if (!lies_in(real, found.soname, &object))
            return (struct resolve_pick){ real, 1 };
        found.adopt(&object);
        return (struct resolve_pick){ found.ours, 1 };
    }
    if (is_loaded(&found))
        return (struct resolve_pick){ found.ours, 1 };
    /* No driver has the name: answer what the program would find without the guard. With RTLD_NEXT
     * the lookup may find the caller's own function, which would then call itself forever. */
    real = ask(RTLD_NEXT, name, version);
    return (struct resolve_pick){ handle == RTLD_NEXT ? NULL : real, 1 };
}

__attribute__((used)) struct resolve_pick resolve_dlsym(void *handle, const char *name,
                                                        const char *none, const void *caller) {
    (void)none;
    return pick(handle, name, NULL, caller);
}

__attribute__((used)) struct resolve_pick resolve_dlvsym(void *handle, const char *name,
                                                         const char *version, const void *caller) {
    return pick(handle, name, version, caller);
}

/* ---- cuGetProcAddress ---------------------------------------------------------------------- */

struct symbol_row {
    const char *name;
    int version;
    bool per_thread;
    const char *symbol;
};

static const struct symbol_row rows[] = {
#define SYMBOL(name, version, symbol)               { #name, version, false, #symbol },
#define THREAD(name, version, symbol, ending)       { #name, version, true, #symbol },
#define EXTRA(name, version, symbol)                SYMBOL(name, version, symbol)
#define EXTRA_THREAD(name, version, symbol, ending) THREAD(name, version, symbol, ending)
#include "vendor/cuda_symbols.def"
#undef SYMBOL
#undef THREAD
#undef EXTRA
#undef EXTRA_THREAD
};

/* The symbol that a name means in some version, as far as we know; `*ret_known`: whether we know
 * the name at all. */
static const char *symbol_of(const char *name, int version, cuuint64_t flags, bool *ret_known) {
    bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct symbol_row *plain = NULL, *thread = NULL;

    *ret_known = false;
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        *ret_known = true;
        if (rows[i].version > version)
            continue;
        if (rows[i].per_thread)
            thread = &rows[i];
        else
            plain = &rows[i];
    }
    if (per_thread && thread && plain && thread->version >= plain->version)
        return thread->symbol;
    return plain ? plain->symbol : NULL;
}

/* Whether a name of the driver API sounds as if it took device memory. */
static bool sounds_allocating(const char *name) {
    static const char *const words[] = { "Alloc",  "MemCreate",  "ArrayCreate", "CtxCreate",
                                         "Import", "ModuleLoad", "LibraryLoad" };

    if (name[2] < 'A' || name[2] > 'Z' || strstr(name, "Host") || strstr(name, "Semaphore"))
        return false;
    for (size_t i = 0; i < ELEMENTSOF(words); i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

static bool is_strict(void) {
    const char *wanted = secure_getenv("ALLOT_GUARD_STRICT");

    return wanted && strcmp(wanted, "0") != 0 && *wanted;
}

/* A name that is newer than the guard and may allocate: count it. True if it must be refused. */
static bool refuses_unknown(const char *name) {
    static const char *const known[] = {
#define FUNCTION(name) #name,
#define DATA(name, bytes)
#include "vendor/cuda_names.def"
#undef FUNCTION
#undef DATA
    };
    static _Atomic unsigned n_unknown;
    bool strict;

    if (!sounds_allocating(name))
        return false;
    for (size_t i = 0; i < ELEMENTSOF(known); i++)
        if (strcmp(known[i], name) == 0)
            return false;
    strict = is_strict();
    note(NOTE_UNKNOWN,
         "%s is newer than this guard and may take memory that is not counted%s (%u so far)", name,
         strict ? ": refused, because ALLOT_GUARD_STRICT is set" : "",
         atomic_fetch_add(&n_unknown, 1) + 1);
    return strict;
}

/* Replace the driver's answer by what the program gets; false: nothing. */
static bool exchange(const char *name, void **address, int version, cuuint64_t flags) {
    enum hook hook;
    const char *symbol;
    bool known;

    if (!*address)
        return true;
    hook = hook_by_real(*address);
    if (hook < N_HOOKS) {
        *address = hook_function(hook);
        return true;
    }
    symbol = symbol_of(name, version, flags, &known);
    hook = symbol ? hook_by_name(symbol) : N_HOOKS;
    if (hook < N_HOOKS) {
        *address = hook_function(hook);
        return true;
    }
    return known || !refuses_unknown(name);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
    __typeof__(&cuGetProcAddress_v2) real = REAL(cuGetProcAddress_v2);
    CUresult r = real ? real(symbol, pfn, cudaVersion, flags, symbolStatus) : hook_error();

    if (r == CUDA_SUCCESS && symbol && pfn && !exchange(symbol, pfn, cudaVersion, flags)) {
        *pfn = NULL;
        if (!symbolStatus)
            return CUDA_ERROR_NOT_FOUND;
        *symbolStatus = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return r;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    __typeof__(&cuGetProcAddress) real = REAL(cuGetProcAddress);
    CUresult r = real ? real(symbol, pfn, cudaVersion, flags) : hook_error();

    if (r == CUDA_SUCCESS && symbol && pfn && !exchange(symbol, pfn, cudaVersion, flags)) {
        *pfn = NULL;
        return CUDA_ERROR_NOT_FOUND;
    }
    return r;
}
