/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nvml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/nvml_calls.h"

/* X(code, name, -errno, text); nvml_check.c lets the compiler check that none is missing. */
static const struct driver_code codes[] = {
#define X(code, name, error, text) { code, #name, error, text },
#include "driver/nvml_codes.h"
#undef X
};

static const struct driver_symbol symbols[] = {
#define X(needed, since, field, symbol, ...) { #symbol, needed, since },
#define X0(needed, since, field, symbol)     { #symbol, needed, since },
    NVML_CALLS(X, X0)
#undef X
#undef X0
};

_Static_assert(ELEMENTSOF(symbols) == NVML_CALL_COUNT, "one symbol per call");
_Static_assert(sizeof(struct nvml_calls) == NVML_CALL_COUNT * sizeof(void *),
               "one pointer per symbol, in the same order");

static const char *since_text(unsigned since, char text[static 32]) {
    snprintf(text, 32, "driver %u", since);
    return text;
}

/* Add the cause to "the driver is not loaded", which NVML reports for several causes. */
static int explain_not_loaded(const struct nvml *nvml, struct allot_error *err) {
    char module[DRIVER_VERSION_SIZE];

    driver_module_version(nvml->object.proc_dir, module);
    if (!*module)
        return error_wrap(
            err, -ENODEV,
            "the NVIDIA kernel module is not loaded (there is no %s/version): load it "
            "(modprobe nvidia), or install the driver and reboot",
            nvml->object.proc_dir);
    return error_wrap(err, -ENODEV,
                      "the NVIDIA kernel module %s is loaded but does not answer: check "
                      "/dev/nvidiactl (nvidia-modprobe makes it; a container must be given it)",
                      module);
}

static int explain_mismatch(const struct nvml *nvml, struct allot_error *err) {
    const char *version = nvml->object.version;
    char module[DRIVER_VERSION_SIZE];

    driver_module_version(nvml->object.proc_dir, module);
    return error_wrap(err, -ELIBBAD,
                      "the driver was upgraded while its kernel module %s stayed loaded (library "
                      "%s): reboot, or stop all users of the GPUs and reload the module",
                      *module ? module : "(unknown)", *version ? version : "(unknown)");
}

static int init(struct driver_object *object, struct allot_error *err) {
    struct nvml *nvml = (struct nvml *)object;
    char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    int r;

    r = nvml_try_init(nvml, NULL, err);
    if (r == -ENODEV)
        return explain_not_loaded(nvml, err);
    if (r == -ELIBBAD)
        return explain_mismatch(nvml, err);
    if (r < 0)
        return r;
    if (nvml_try_driver_version(nvml, NULL, NULL, version, sizeof(version)) == 0)
        sscanf(version, "%u.%u", &nvml->release, &nvml->minor_release);
    return 0;
}

static void done(struct driver_object *object) {
    nvml_try_shutdown((struct nvml *)object, NULL, NULL);
}

static struct driver_library library = {
    .name = "NVML",
    .sonames = (const char *const[]){ "libnvidia-ml.so.1", NULL },
    .package = "the NVIDIA driver (Debian: libnvidia-ml1)",
    .since_text = since_text,
    .symbols = symbols,
    .n_symbols = ELEMENTSOF(symbols),
    .codes = codes,
    .n_codes = ELEMENTSOF(codes),
    .object_size = sizeof(struct nvml),
    .calls_offset = offsetof(struct nvml, calls),
    .init = init,
    .done = done,
    DRIVER_LIBRARY_INIT,
};

int nvml_open(struct nvml **ret, const struct driver_options *options, struct allot_error *err) {
    struct driver_object *object;
    int r = driver_open(&object, &library, options, err);

    if (r < 0)
        return r;
    *ret = (struct nvml *)object;
    return 0;
}

void nvml_close(struct nvml *nvml) {
    driver_close(nvml ? &nvml->object : NULL);
}

const char *nvml_path(const struct nvml *nvml) {
    return nvml->object.path;
}

bool nvml_is_simulated(const struct nvml *nvml) {
    return nvml->object.is_simulated;
}

int nvml_system_read(const struct nvml *nvml, struct nvml_system *ret, struct allot_error *err) {
    struct nvml_system system = { 0 };
    int cuda = 0, r;

    r = nvml_try_driver_version(nvml, NULL, err, system.driver, sizeof(system.driver));
    if (r < 0)
        return r;
    if (nvml_try_nvml_version(nvml, NULL, NULL, system.library, sizeof(system.library)) < 0)
        system.library[0] = 0;
    if (nvml_try_cuda_version(nvml, NULL, NULL, &cuda) == 0 && cuda > 0)
        system.cuda = (unsigned)cuda;
    *ret = system;
    return 0;
}

int nvml_device_count(const struct nvml *nvml, unsigned *ret, struct allot_error *err) {
    unsigned n;
    int r = nvml_try_device_count(nvml, NULL, err, &n);

    if (r < 0)
        return r;
    *ret = n;
    return 0;
}

/* "GPU 0 (GPU-9e8d35e3-…)", or the parts of it that are known. */
static void fill_label(const struct nvml *nvml, struct nvml_device *device, int index) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    bool has_uuid;
    unsigned found;

    has_uuid = nvml_try_device_uuid(nvml, NULL, NULL, device->handle, uuid, sizeof(uuid)) == 0;
    if (index < 0 && nvml_try_device_index(nvml, NULL, NULL, device->handle, &found) == 0)
        index = (int)found;
    if (has_uuid && (index < 0 || strncmp(uuid, "MIG-", 4) == 0))
        snprintf(device->label, sizeof(device->label), "%s", uuid);
    else if (has_uuid)
        snprintf(device->label, sizeof(device->label), "GPU %d (%s)", index, uuid);
    else if (index >= 0)
        snprintf(device->label, sizeof(device->label), "GPU %d", index);
}

int nvml_device_at(const struct nvml *nvml, struct nvml_device *ret, unsigned index,
                   struct allot_error *err) {
    struct nvml_device device = { 0 };
    int r;

    snprintf(device.label, sizeof(device.label), "GPU %u", index);
    r = nvml_try_device_by_index(nvml, &device, err, index, &device.handle);
    if (r < 0)
        return r;
    fill_label(nvml, &device, (int)index);
    *ret = device;
    return 0;
}

int nvml_device_find(const struct nvml *nvml, struct nvml_device *ret, const char *uuid,
                     struct allot_error *err) {
    struct nvml_device device = { 0 };
    int r;

    snprintf(device.label, sizeof(device.label), "%.96s", uuid);
    r = nvml_try_device_by_uuid(nvml, &device, err, uuid, &device.handle);
    if (r == -EINVAL) /* some releases report this for an unknown UUID */
        return error_wrap(err, -ENOENT, "no device of this box");
    if (r < 0)
        return r;
    fill_label(nvml, &device, -1);
    *ret = device;
    return 0;
}

int nvml_device_find_pci(const struct nvml *nvml, struct nvml_device *ret, const struct pci_id *id,
                         struct allot_error *err) {
    struct nvml_device device = { 0 };
    char text[PCI_ID_TEXT_SIZE];
    int r;

    snprintf(device.label, sizeof(device.label), "%s", pci_id_format(id, PCI_ID_NVML, text));
    r = nvml_try_device_by_bus_id(nvml, &device, err, text, &device.handle);
    if (r == -EINVAL)
        return error_wrap(err, -ENOENT, "no device of this box");
    if (r < 0)
        return r;
    fill_label(nvml, &device, -1);
    *ret = device;
    return 0;
}

/* The host's memory nearest to the GPU: the lowest node of its affinity. */
static bool read_numa_node(const struct nvml *nvml, const struct nvml_device *device,
                           uint32_t *ret) {
    unsigned long nodes[16] = { 0 };

    if (nvml_try_device_memory_affinity(nvml, device, NULL, device->handle, ELEMENTSOF(nodes),
                                        nodes, NVML_AFFINITY_SCOPE_NODE) < 0)
        return false;
    for (unsigned i = 0; i < ELEMENTSOF(nodes); i++)
        if (nodes[i]) {
            *ret = i * 8 * (unsigned)sizeof(nodes[0]) + (unsigned)__builtin_ctzl(nodes[i]);
            return true;
        }
    return false;
}

int nvml_identity_read(const struct nvml *nvml, const struct nvml_device *device,
                       struct nvml_identity *ret, struct allot_error *err) {
    struct nvml_identity id = { 0 };
    nvmlDevice_t handle = device->handle;
    nvmlPciInfo_t pci = { 0 };
    int major, minor, r;

    r = nvml_try_device_uuid(nvml, device, err, handle, id.uuid, sizeof(id.uuid));
    if (r < 0)
        return r;
    r = nvml_try_device_name(nvml, device, err, handle, id.name, sizeof(id.name));
    if (r < 0)
        return r;
    r = nvml_try_device_pci(nvml, device, err, handle, &pci);
    if (r < 0)
        return r;
    id.pci = (struct pci_id){ pci.domain, (uint8_t)pci.bus, (uint8_t)pci.device, 0 };
    id.pci_device = pci.pciDeviceId;
    id.pci_subsystem = pci.pciSubSystemId;

    if (nvml_try_device_index(nvml, device, NULL, handle, &id.index) == 0)
        id.has |= NVML_HAS_INDEX;
    if (nvml_try_device_minor(nvml, device, NULL, handle, &id.minor) == 0)
        id.has |= NVML_HAS_MINOR;
    if (read_numa_node(nvml, device, &id.numa_node))
        id.has |= NVML_HAS_NUMA_NODE;
    if (nvml_try_device_compute_capability(nvml, device, NULL, handle, &major, &minor) == 0) {
        id.capability_major = (uint32_t)major;
        id.capability_minor = (uint32_t)minor;
        id.has |= NVML_HAS_CAPABILITY;
    }
    if (nvml_try_device_cores(nvml, device, NULL, handle, &id.cores) == 0)
        id.has |= NVML_HAS_CORES;
    if (nvml_try_device_serial(nvml, device, NULL, handle, id.serial, sizeof(id.serial)) == 0)
        id.has |= NVML_HAS_SERIAL;
    if (nvml_try_device_vbios(nvml, device, NULL, handle, id.vbios, sizeof(id.vbios)) == 0)
        id.has |= NVML_HAS_VBIOS;

    /* Do not trust the driver to terminate its texts. */
    id.uuid[sizeof(id.uuid) - 1] = id.name[sizeof(id.name) - 1] = 0;
    id.serial[sizeof(id.serial) - 1] = id.vbios[sizeof(id.vbios) - 1] = 0;
    *ret = id;
    return 0;
}
