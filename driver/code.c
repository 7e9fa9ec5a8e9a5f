/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of driver.h: the meaning of a vendor's status codes, for all libraries. */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "driver/driver.h"

const struct driver_code *driver_code_find(const struct driver_library *library, int code) {
    static const struct driver_code unknown = {
        .code = -1,
        .name = "unknown",
        .error = -EIO,
        .text = "an error that this version of Allot does not know",
    };

    for (size_t i = 0; i < library->n_codes; i++)
        if (library->codes[i].code == code)
            return &library->codes[i];
    return &unknown;
}

bool driver_is_gone(int r) {
    switch (r) {
    case -ENODEV:
    case -ENXIO:
    case -ENOTRECOVERABLE:
    case -ELIBBAD:
    case -EACCES:
    case -ENOTCONN:
    case -ESTALE:
        return true;
    default:
        return false;
    }
}

int driver_refuse(const struct driver_object *object, size_t which, const char *where,
                  struct allot_error *err) {
    const struct driver_library *library = object->library;
    const struct driver_symbol *symbol = &library->symbols[which];
    char since[32];

    if (object->generation != driver_generation)
        return error_set(err, -ESTALE, "%s: %s was opened before fork(): open it in this process",
                         symbol->name, library->name);
    return error_set(err, -EOPNOTSUPP, "%s%s%s: not supported by this driver%s%s%s%s", symbol->name,
                     where ? " on " : "", where ? where : "", *object->version ? " " : "",
                     object->version, symbol->since ? ", needs at least " : "",
                     symbol->since ? library->since_text(symbol->since, since) : "");
}

int driver_fail(const struct driver_object *object, size_t which, const char *where, int code,
                struct allot_error *err) {
    const struct driver_library *library = object->library;
    const struct driver_code *meaning = driver_code_find(library, code);

    return error_set(err, meaning->error, "%s%s%s: %s (%s %d)", library->symbols[which].name,
                     where ? " on " : "", where ? where : "", meaning->text, meaning->name, code);
}

/* Copy the first thing in `text` that looks like 535.154.05. */
static void copy_version(const char *text, char version[static DRIVER_VERSION_SIZE]) {
    for (; *text; text += strcspn(text, " \t\n"), text += strspn(text, " \t\n")) {
        size_t n = strspn(text, "0123456789.");

        if (n < 3 || n >= DRIVER_VERSION_SIZE || !memchr(text, '.', n) || !strchr(" \t\n", text[n]))
            continue;
        memcpy(version, text, n);
        version[n] = 0;
        return;
    }
}

void driver_version_read(struct driver_object *object) {
    cleanup(freep) char *path = realpath(object->path, NULL);
    const char *suffix = path ? strstr(basename(path), ".so.") : NULL;

    if (suffix)
        copy_version(suffix + strlen(".so."), object->version);
}

void driver_module_version(const char *proc_dir, char text[static DRIVER_VERSION_SIZE]) {
    cleanup(fclosep) FILE *file = NULL;
    char path[PATH_MAX], line[256];

    *text = 0;
    if (snprintf(path, sizeof(path), "%s/version", proc_dir) >= (int)sizeof(path))
        return;
    file = fopen(path, "re");
    if (file && fgets(line, sizeof(line), file))
        copy_version(line, text);
}
