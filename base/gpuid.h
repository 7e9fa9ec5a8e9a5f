/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU id: the two names of a device that survive a reboot, its bus id and its UUID.
 *
 * Plain values, nothing to free, any thread. The parsers accept the forms that NVML, CUDA and sysfs
 * write. Texts are not trusted: a parser reads no more than the longest valid text.
 */
#include <stdbool.h>
#include <stdint.h>

/* A place on the PCI bus. */
struct pci_id {
    uint32_t domain;
    uint8_t bus;
    uint8_t device;   /* 0-31 */
    uint8_t function; /* 0-7; a GPU's compute function is 0 */
};

/* Longest text that pci_id_format() makes, with its NUL: the size of NVML's own buffer. */
#define PCI_ID_TEXT_SIZE 32

enum pci_id_form {
    PCI_ID_NVML,        /* 00000000:3B:00.0, nvmlPciInfo_t.busId */
    PCI_ID_NVML_LEGACY, /* 0000:3B:00.0, busIdLegacy: 16 bytes, so 16 bits of the domain */
    PCI_ID_CUDA,        /* 0000:3B:00.0, cuDeviceGetPCIBusId: a larger domain is written whole */
    PCI_ID_SYSFS,       /* 0000:3b:00.0, the folder under /sys/bus/pci/devices */
};

/*
 * Read `[domain:]bus:device[.function]`, all hexadecimal in either case; domain and function
 * default to 0. -EINVAL for anything else, also for text before or after it.
 */
int pci_id_parse(struct pci_id *ret, const char *text);
const char *pci_id_format(const struct pci_id *id, enum pci_id_form form,
                          char text[static PCI_ID_TEXT_SIZE]); /* returns `text` */

/* Bus order: < 0, 0, > 0. It is the order of NVML's indices and of CUDA_DEVICE_ORDER=PCI_BUS_ID. */
int pci_id_compare(const struct pci_id *a, const struct pci_id *b);

enum gpuid_kind {
    GPUID_GPU,      /* GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293 */
    GPUID_MIG,      /* MIG-89c850dc-38e3-57df-85c7-690c186b68e9, driver 470 and later */
    GPUID_MIG_PATH, /* MIG-GPU-<uuid of the GPU>/<gpu instance>/<compute instance>, before that */
};

/* A device's identity. */
struct gpuid {
    enum gpuid_kind kind;
    uint8_t uuid[16];          /* as CUuuid.bytes; for a MIG path that of the GPU */
    uint32_t gpu_instance;     /* only in a MIG path, else 0 */
    uint32_t compute_instance; /* the same */
};

/* "MIG-GPU-" + 36 + "/4294967295/4294967295" + NUL, rounded up to NVML's buffer. */
#define GPUID_TEXT_SIZE 96

/* -EINVAL unless `text` is exactly one of the three forms; hexadecimal digits in either case. */
int gpuid_parse(struct gpuid *ret, const char *text);
const char *gpuid_format(const struct gpuid *id, char text[static GPUID_TEXT_SIZE]);

bool gpuid_equal(const struct gpuid *a, const struct gpuid *b);
