/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

unsigned driver_generation;

/*
 * The fork rule. A fork() may happen while another thread of the parent holds a library's lock, so
 * the child initialises the locks again. It leaves the objects alone: they may be half built, and
 * belong to the parent's driver connection anyway.
 */
static struct driver_library *known[8];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static void after_fork(void) {
    driver_generation++;
    pthread_mutex_init(&known_lock, NULL);
    for (size_t i = 0; i < ELEMENTSOF(known) && known[i]; i++) {
        pthread_mutex_init(&known[i]->lock, NULL);
        known[i]->was_forked |= known[i]->first != NULL;
        known[i]->first = NULL;
    }
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, after_fork);
}

static void make_known(struct driver_library *library) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&known_lock);
    for (size_t i = 0; !library->is_known && i < ELEMENTSOF(known); i++)
        if (!known[i]) {
            known[i] = library;
            library->is_known = true;
        }
    pthread_mutex_unlock(&known_lock);
}

/* The folder of the file with this code, which is a program or liballot.so. */
static bool own_dir(char dir[static PATH_MAX]) {
    struct link_map *map = NULL;
    char path[PATH_MAX];
    Dl_info info;

    if (!dladdr1((void *)driver_open, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    if (!realpath(map->l_name[0] ? map->l_name : "/proc/self/exe", path))
        return false;
    strcpy(dir, dirname(path));
    return true;
}

static int join(char path[static PATH_MAX], const char *dir, const char *name) {
    int n = snprintf(path, PATH_MAX, "%s/%s", dir, name);

    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Find the simulator's libraries: in the given folder, in the build tree, or in their package's
 * folder. */
static int find_sim(const struct driver_options *options, const char *soname,
                    char path[static PATH_MAX], struct allot_error *err) {
    static const char *const beside[] = { "../sim/lib", "../../sim/lib" };
    char dir[PATH_MAX], candidate[PATH_MAX];

    if (options->sim_dir) {
        if (join(path, options->sim_dir, soname) < 0)
            return error_set(err, -ENAMETOOLONG, "ALLOT_SIM_DIR is too long");
        if (access(path, R_OK) < 0)
            return error_set(err, -ENOENT, "no simulator at %s (ALLOT_SIM_DIR): %s", path,
                             strerror(errno));
        return 0;
    }
    for (size_t i = 0; i < ELEMENTSOF(beside) && own_dir(dir); i++)
        if (join(candidate, dir, beside[i]) == 0 && join(path, candidate, soname) == 0 &&
            access(path, R_OK) == 0)
            return 0;
    if (join(path, ALLOT_SIM_LIBDIR, soname) == 0 && access(path, R_OK) == 0)
        return 0;
    return error_set(err, -ENOENT,
                     "the simulator was requested, but %s is neither in the build tree nor in %s: "
                     "build it, install its package, or set ALLOT_SIM_DIR",
                     soname, ALLOT_SIM_LIBDIR);
}

/* dlopen() the first of the library's names that exists. */
static int load_file(struct driver_library *library, const struct driver_options *options,
                     void **ret_handle, struct allot_error *err) {
    bool want_sim = driver_resolve(options) == DRIVER_SIM;
    int r = -ELIBACC;

    for (size_t i = 0; library->sonames[i]; i++) {
        const char *soname = library->sonames[i];
        const char *name = soname;
        char path[PATH_MAX];
        bool is_sim;
        void *handle;

        if (want_sim) {
            r = find_sim(options, soname, path, err);
            if (r < 0)
                continue;
            name = path;
        } else if (options->nvidia_dir) {
            r = join(path, options->nvidia_dir, soname);
            if (r < 0)
                return error_set(err, r, "%s: name too long", options->nvidia_dir);
            name = path;
        }
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
            r = error_set(err, -ELIBACC, "%s cannot be loaded (%s): it comes with %s",
                          library->name, dlerror(), library->package);
            continue;
        }
        is_sim = dlsym(handle, DRIVER_SIM_MARKER);
        if (is_sim != want_sim) {
            dlclose(handle);
            return want_sim
                       ? error_set(
                             err, -ELIBBAD,
                             "%s does not belong to the simulator, which was requested: correct "
                             "ALLOT_SIM_DIR",
                             name)
                       : error_set(err, -ELIBBAD,
                                   "%s is the simulator's, but the real driver was requested: "
                                   "take its folder out of LD_LIBRARY_PATH, or request the "
                                   "driver \"sim\" (GPUSIM_BOX is not set)",
                                   name);
        }
        *ret_handle = handle;
        return 0;
    }
    return r;
}

/* Fill the function pointers; counts the needed names that are missing and reports the first.
 */
static int fill_calls(struct driver_object *object, struct allot_error *err) {
    const struct driver_library *library = object->library;
    char *calls = (char *)object + library->calls_offset;
    const char *missing = NULL;
    size_t n_missing = 0;

    for (size_t i = 0; i < library->n_symbols; i++) {
        void *symbol = dlsym(object->handle, library->symbols[i].name);

        if (!symbol && library->symbols[i].needed && n_missing++ == 0)
            missing = library->symbols[i].name;
        memcpy(calls + i * sizeof(symbol), &symbol, sizeof(symbol));
    }
    if (n_missing == 0)
        return 0;
    return error_set(
        err, -ELIBBAD, "%s lacks %s%s: it is too old for Allot, or not %s; it comes with %s",
        object->path, missing, n_missing > 1 ? " and others" : "", library->name, library->package);
}

static int make_object(struct driver_object **ret, struct driver_library *library, void *handle,
                       const struct driver_options *options, struct allot_error *err) {
    cleanup(freep) struct driver_object *object = calloc(1, library->object_size);
    struct link_map *map;
    int r;

    if (!object)
        return error_set(err, -ENOMEM, "%s: out of memory", library->name);
    object->library = library;
    object->handle = handle;
    object->refs = 1;
    object->generation = driver_generation;
    object->is_simulated = driver_resolve(options) == DRIVER_SIM;
    snprintf(object->proc_dir, sizeof(object->proc_dir), "%s",
             options->proc_dir ? options->proc_dir : "/proc/driver/nvidia");
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(object->path, sizeof(object->path), "%s", map->l_name);
    driver_version_read(object);

    r = fill_calls(object, err);
    if (r < 0)
        return r;
    r = library->init(object, err);
    if (r < 0)
        return r;
    *ret = TAKE(object);
    return 0;
}

static int open_locked(struct driver_object **ret, struct driver_library *library,
                       const struct driver_options *options, struct allot_error *err) {
    struct driver_object *object;
    void *handle;
    int r;

    if (library->was_forked && library->dies_in_fork)
        return error_set(err, -ESTALE,
                         "%s cannot be used in a process forked from one that used it: fork before "
                         "the first use, or start the child by exec",
                         library->name);
    r = load_file(library, options, &handle, err);
    if (r < 0)
        return r;
    for (object = library->first; object; object = object->next)
        if (object->handle == handle) { /* dlopen() of the same file gives the same handle */
            dlclose(handle);
            object->refs++;
            *ret = object;
            return 0;
        }
    /* On failure keep the handle: the next attempt gets it again, and unloading is not safe. */
    r = make_object(&object, library, handle, options, err);
    if (r < 0)
        return r;
    object->next = library->first;
    library->first = object;
    *ret = object;
    return 0;
}

int driver_open(struct driver_object **ret, struct driver_library *library,
                const struct driver_options *options, struct allot_error *err) {
    int r;

    make_known(library);
    pthread_mutex_lock(&library->lock);
    r = open_locked(ret, library, options, err);
    pthread_mutex_unlock(&library->lock);
    return r;
}

void driver_close(struct driver_object *object) {
    struct driver_library *library;
    struct driver_object **link;

    if (!object || object->generation != driver_generation)
        return; /* it is the parent's */
    library = object->library;
    pthread_mutex_lock(&library->lock);
    if (--object->refs == 0) {
        for (link = &library->first; *link != object;)
            link = &(*link)->next;
        *link = object->next;
        if (library->done)
            library->done(object);
        free(object);
    }
    pthread_mutex_unlock(&library->lock);
}
