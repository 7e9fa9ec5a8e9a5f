/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Driver: one of the vendor's libraries in this process, found by name at run time.
 *
 * Nothing of ours is linked to a vendor library. Each of NVML, the CUDA driver and cuBLAS is a
 * `struct driver_library` (what to look for) from which driver_open() makes a `struct
 * driver_object` (what was found): the head of struct nvml, cuda or cublas, followed by one
 * function pointer per symbol.
 *
 * Once: however many threads open a library, and however often, it is loaded and initialised once;
 * all get the same object, which lives until the last user has closed it. If the first attempt
 * fails, nothing is left behind and the next one tries again. The shared object itself is never
 * unloaded: vendor libraries have threads of their own and do not survive unloading.
 *
 * Fork: an object opened before fork() is dead in the child: every call through it is -ESTALE.
 * The child may open NVML again. CUDA and cuBLAS, once opened, cannot be used in a forked child at
 * all (the driver's own rule): opening them is -ESTALE too. After exec() everything can be opened
 * again.
 *
 * Threads: any. A call may hang in the kernel for as long as the driver likes and cannot be
 * interrupted, opening included. A caller that must go on
 * regardless makes its calls in a process that it can abandon, as the daemon does with its reader.
 */
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum driver_choice {
    DRIVER_AUTO,   /* sim if GPUSIM_BOX is set, otherwise nvidia; it never depends on what happens
                      to work */
    DRIVER_NVIDIA, /* the real one; a simulated library in its place is refused */
    DRIVER_SIM,    /* the simulated box; a real library in its place is refused */
};

/* "auto", "nvidia", "sim"; -EINVAL for anything else. */
int driver_choice_parse(enum driver_choice *ret, const char *text);
const char *driver_choice_name(enum driver_choice choice);

/* All borrowed, and needed only while driver_open() runs. */
struct driver_options {
    enum driver_choice choice;
    bool has_box;           /* GPUSIM_BOX is set */
    const char *sim_dir;    /* folder of the simulated libraries; NULL: search for it */
    const char *nvidia_dir; /* folder of the real ones; NULL: the dynamic linker's search path */
    const char *proc_dir;   /* where the kernel module reports itself; NULL: /proc/driver/nvidia */
};

/* The options of a program: `choice`, and GPUSIM_BOX and ALLOT_SIM_DIR from its environment. */
struct driver_options driver_options_read(enum driver_choice choice);

/* `choice` with DRIVER_AUTO resolved. */
enum driver_choice driver_resolve(const struct driver_options *options);

/* The symbol that distinguishes the simulator's libraries from the vendor's. */
#define DRIVER_SIM_MARKER "gpusimMarker"

struct driver_symbol {
    const char *name;
    bool needed;    /* the library is useless without it; otherwise a call to it is -EOPNOTSUPP */
    unsigned since; /* first version that has it, as `since_text` writes it; 0: older than any in
                       use */
};

/* What a vendor's status code means here. */
struct driver_code {
    int code;
    const char *name;
    int error;        /* -errno */
    const char *text; /* the problem and the remedy */
};

struct driver_object;

/* One per vendor library, static. */
struct driver_library {
    const char *name;           /* "NVML" */
    const char *const *sonames; /* in order of preference, NULL at the end */
    const char *package;        /* the package that has it, for messages */
    const char *(*since_text)(unsigned since, char text[static 32]); /* "driver 615" */
    const struct driver_symbol *symbols; /* in the order of the pointers in the object */
    size_t n_symbols;
    const struct driver_code *codes; /* code 0, success, is not among them */
    size_t n_codes;
    size_t object_size;
    size_t calls_offset; /* of the function pointers in the object */
    bool dies_in_fork;   /* cannot be opened in a forked child of a process that had it open */

    /* Initialise what was loaded; -errno and `err` if it cannot be used. Not called concurrently.
     */
    int (*init)(struct driver_object *object, struct allot_error *err);
    /* Undo init(): the last user is gone. NULL: nothing to do. */
    void (*done)(struct driver_object *object);

    /* used by load.c only */
    pthread_mutex_t lock;
    struct driver_object *first;
    bool is_known, was_forked;
};

#define DRIVER_LIBRARY_INIT .lock = PTHREAD_MUTEX_INITIALIZER

#define DRIVER_VERSION_SIZE 32

/* The head of what driver_open() makes. Read only, except by load.c. */
struct driver_object {
    struct driver_library *library;
    struct driver_object *next;
    void *handle; /* of dlopen() */
    unsigned refs;
    unsigned generation; /* of the process; see driver_generation */
    bool is_simulated;
    char path[PATH_MAX];               /* the file it came from */
    char proc_dir[PATH_MAX];           /* options.proc_dir */
    char version[DRIVER_VERSION_SIZE]; /* of the library, from its file's name; "": it has none */
};

/* Changes in a forked child; a cheap check before each call. */
extern unsigned driver_generation;

int driver_open(struct driver_object **ret, struct driver_library *library,
                const struct driver_options *options, struct allot_error *err);
void driver_close(struct driver_object *object); /* accepts NULL */

/*
 * Why the call of symbol `which` is not made: the object belongs to another process (-ESTALE), or
 * the library lacks that symbol (-EOPNOTSUPP). `where` names the device, may be NULL.
 */
int driver_refuse(const struct driver_object *object, size_t which, const char *where,
                  struct allot_error *err);

/* The error of a call that the library answered with `code`, not success. */
int driver_fail(const struct driver_object *object, size_t which, const char *where, int code,
                struct allot_error *err);

/*
 * Whether -errno `r` says that the device or the whole driver is out of reach, not just that one
 * query has no answer: -ENODEV, -ENXIO, -ENOTRECOVERABLE, -ELIBBAD, -EACCES, -ENOTCONN, -ESTALE.
 */
bool driver_is_gone(int r);

/* Fill object->version. */
void driver_version_read(struct driver_object *object);

/* The meaning of a code; never NULL: unknown codes share an entry. */
const struct driver_code *driver_code_find(const struct driver_library *library, int code);

/* The version of the loaded kernel module, for messages; "" if there is none. */
void driver_module_version(const char *proc_dir, char text[static DRIVER_VERSION_SIZE]);

/*
 * For the tables of calls: a line is X(needed, since, …, field, symbol, (parameters), (arguments)),
 * or X0(…) without the last two if there are no parameters. These remove the parentheses.
 */
#define DRIVER_UNPACK(...) __VA_ARGS__
#define DRIVER_LIKELY(x)   __builtin_expect(!!(x), 1)
