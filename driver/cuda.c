/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gpuid.h"

/* X(code, name, -errno, text); cuda_check.c lets the compiler check that none is missing. */
static const struct driver_code codes[] = {
#define X(code, name, error, text) { code, #name, error, text },
#include "driver/cuda_codes.h"
#undef X
};

static const struct driver_symbol symbols[] = {
#define X(needed, since, where, field, symbol, ...) { #symbol, needed, since },
#define X0(needed, since, where, field, symbol)     { #symbol, needed, since },
    CUDA_CALLS(X, X0)
#undef X
#undef X0
};

_Static_assert(ELEMENTSOF(symbols) == CUDA_CALL_COUNT, "one symbol per call");
_Static_assert(sizeof(struct cuda_calls) == CUDA_CALL_COUNT * sizeof(void *),
               "one pointer per symbol, in the same order");

static const char *since_text(unsigned since, char text[static 32]) {
    snprintf(text, 32, "CUDA %u.%u", since / 1000, since % 1000 / 10);
    return text;
}

/* cuInit() reports "no device" for all of these. */
static int explain_no_device(const struct cuda *cuda, struct allot_error *err) {
    char module[DRIVER_VERSION_SIZE];

    if (cuda->object.is_simulated)
        return error_wrap(err, -ENODEV,
                          "no device of the simulated box is visible: check CUDA_VISIBLE_DEVICES");
    driver_module_version(cuda->object.proc_dir, module);
    if (!*module)
        return error_wrap(
            err, -ENODEV,
            "the NVIDIA kernel module is not loaded (there is no %s/version): load it "
            "(modprobe nvidia), or install the driver and reboot",
            cuda->object.proc_dir);
    return error_wrap(err, -ENODEV,
                      "the NVIDIA driver %s is loaded but no device is visible: check "
                      "CUDA_VISIBLE_DEVICES and the device nodes /dev/nvidia*",
                      module);
}

static void name_device(const struct cuda *cuda, CUdevice device,
                        char text[static CUDA_NAME_SIZE]) {
    struct gpuid id = { .kind = GPUID_GPU };
    char uuid[GPUID_TEXT_SIZE] = "", name[64] = "";
    CUuuid bytes;

    /* Version 2 gives an instance's own UUID where version 1 gives its GPU's. */
    if (cuda_device_get_uuid_v2(cuda, NULL, &bytes, device) == 0 ||
        cuda_device_get_uuid(cuda, NULL, &bytes, device) == 0) {
        memcpy(id.uuid, bytes.bytes, sizeof(id.uuid));
        gpuid_format(&id, uuid);
    }
    if (cuda_device_get_name(cuda, NULL, name, sizeof(name), device) < 0)
        name[0] = 0;
    snprintf(text, CUDA_NAME_SIZE, "CUDA device %d%s%s%s%s%s", device, *uuid || *name ? " (" : "",
             uuid, *uuid && *name ? ", " : "", name, *uuid || *name ? ")" : "");
}

static int init(struct driver_object *object, struct allot_error *err) {
    struct cuda *cuda = (struct cuda *)object;
    int n, r;

    r = cuda_init(cuda, err, 0);
    if (r == -ENODEV)
        return explain_no_device(cuda, err);
    if (r < 0)
        return r;
    r = cuda_driver_get_version(cuda, err, &cuda->version);
    if (r < 0)
        return r;
    r = cuda_device_get_count(cuda, err, &n);
    if (r < 0)
        return r;
    if (n <= 0) {
        error_set(err, -ENODEV, "cuDeviceGetCount: %d devices", n);
        return explain_no_device(cuda, err);
    }
    cuda->names = calloc((size_t)n, sizeof(*cuda->names));
    if (!cuda->names)
        return error_set(err, -ENOMEM, "CUDA: out of memory");
    cuda->n_devices = n;
    for (int i = 0; i < n; i++) {
        CUdevice device;

        if (cuda_device_get(cuda, NULL, &device, i) == 0)
            name_device(cuda, device, cuda->names[i].text);
    }
    return 0;
}

static void done(struct driver_object *object) {
    free(((struct cuda *)object)->names);
}

static struct driver_library library = {
    .name = "the CUDA driver",
    .sonames = (const char *const[]){ "libcuda.so.1", NULL },
    .package = "the NVIDIA driver (Debian: libcuda1)",
    .since_text = since_text,
    .symbols = symbols,
    .n_symbols = ELEMENTSOF(symbols),
    .codes = codes,
    .n_codes = ELEMENTSOF(codes),
    .object_size = sizeof(struct cuda),
    .calls_offset = offsetof(struct cuda, calls),
    .dies_in_fork = true,
    .init = init,
    .done = done,
    DRIVER_LIBRARY_INIT,
};

int cuda_open(struct cuda **ret, const struct driver_options *options, struct allot_error *err) {
    struct driver_object *object;
    int r = driver_open(&object, &library, options, err);

    if (r < 0)
        return r;
    *ret = (struct cuda *)object;
    return 0;
}

void cuda_close(struct cuda *cuda) {
    driver_close(cuda ? &cuda->object : NULL);
}

bool cuda_can(const struct cuda *cuda, enum cuda_call call) {
    void *symbol;

    memcpy(&symbol, (const char *)&cuda->calls + call * sizeof(symbol), sizeof(symbol));
    return symbol;
}

/* The name of the device that `where` stands for; NULL if it is none or unknown. */
static const char *find_name(const struct cuda *cuda, int where, char text[static 32]) {
    CUdevice device = where;

    if (cuda->object.generation != driver_generation || where == CUDA_NOWHERE)
        return NULL;
    if (where == CUDA_HERE && cuda->calls.ctx_get_device(&device) != CUDA_SUCCESS)
        return NULL;
    if (device >= 0 && device < cuda->n_devices && cuda->names[device].text[0])
        return cuda->names[device].text;
    snprintf(text, 32, "CUDA device %d", device);
    return text;
}

const char *cuda_device_here(const struct cuda *cuda, char text[static 32]) {
    return find_name(cuda, CUDA_HERE, text);
}

int cuda_refuse(const struct cuda *cuda, enum cuda_call call, int where, struct allot_error *err) {
    char text[32];

    return driver_refuse(&cuda->object, call, err ? find_name(cuda, where, text) : NULL, err);
}

int cuda_fail(const struct cuda *cuda, enum cuda_call call, int where, CUresult code,
              struct allot_error *err) {
    char text[32];

    return driver_fail(&cuda->object, call, err ? find_name(cuda, where, text) : NULL, (int)code,
                       err);
}
