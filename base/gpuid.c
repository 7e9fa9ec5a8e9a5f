/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gpuid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* sscanf() and strtoul() would accept blanks, signs and "0x", which these names do not have. */
static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Read 1 to `most` hexadecimal digits at *p and advance *p. */
static bool take_hex(const char **p, unsigned most, uint32_t *ret) {
    uint32_t value = 0;
    unsigned n = 0;

    for (; n < most && hex_digit(**p) >= 0; n++)
        value = value << 4 | (uint32_t)hex_digit(*(*p)++);
    if (n == 0 || hex_digit(**p) >= 0)
        return false;
    *ret = value;
    return true;
}

/* Read a decimal number at *p and advance *p; false if it has no digit or does not fit. */
static bool take_decimal(const char **p, uint32_t *ret) {
    uint64_t value = 0;
    const char *start = *p;

    for (; **p >= '0' && **p <= '9'; (*p)++) {
        value = value * 10 + (uint64_t)(**p - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *ret = (uint32_t)value;
    return *p != start;
}

int pci_id_parse(struct pci_id *ret, const char *text) {
    uint32_t field[3], function = 0, domain, bus, device;
    const char *p = text;
    unsigned n = 0;

    for (;;) {
        if (!take_hex(&p, 8, &field[n++]))
            return -EINVAL;
        if (*p != ':' || n == ELEMENTSOF(field))
            break;
        p++;
    }
    if (n < 2)
        return -EINVAL;
    if (*p == '.') {
        p++;
        if (!take_hex(&p, 1, &function))
            return -EINVAL;
    }
    domain = n == 3 ? field[0] : 0;
    bus = field[n - 2];
    device = field[n - 1];
    if (*p || bus > 0xff || device > 0x1f || function > 7)
        return -EINVAL;
    *ret = (struct pci_id){ domain, (uint8_t)bus, (uint8_t)device, (uint8_t)function };
    return 0;
}

const char *pci_id_format(const struct pci_id *id, enum pci_id_form form,
                          char text[static PCI_ID_TEXT_SIZE]) {
    uint32_t domain = form == PCI_ID_NVML_LEGACY ? id->domain & 0xffff : id->domain;

    snprintf(text, PCI_ID_TEXT_SIZE,
             form == PCI_ID_SYSFS ? "%0*x:%02x:%02x.%x" : "%0*X:%02X:%02X.%X",
             form == PCI_ID_NVML ? 8 : 4, domain, (unsigned)id->bus, (unsigned)id->device,
             (unsigned)id->function);
    return text;
}

int pci_id_compare(const struct pci_id *a, const struct pci_id *b) {
    if (a->domain != b->domain)
        return a->domain < b->domain ? -1 : 1;
    if (a->bus != b->bus)
        return a->bus - b->bus;
    if (a->device != b->device)
        return a->device - b->device;
    return a->function - b->function;
}

/* Read 8-4-4-4-12 hexadecimal digits at *p and advance *p. */
static bool take_uuid(const char **p, uint8_t uuid[static 16]) {
    for (unsigned i = 0; i < 16; i++) {
        int high, low;

        if ((i == 4 || i == 6 || i == 8 || i == 10) && *(*p)++ != '-')
            return false;
        high = hex_digit(**p);
        if (high < 0)
            return false;
        low = hex_digit(*++*p);
        if (low < 0)
            return false;
        ++*p;
        uuid[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool take_word(const char **p, const char *word) {
    size_t n = strlen(word);

    if (strncmp(*p, word, n) != 0)
        return false;
    *p += n;
    return true;
}

int gpuid_parse(struct gpuid *ret, const char *text) {
    struct gpuid id = { .kind = GPUID_GPU };
    const char *p = text;

    if (take_word(&p, "MIG-"))
        id.kind = take_word(&p, "GPU-") ? GPUID_MIG_PATH : GPUID_MIG;
    else if (!take_word(&p, "GPU-"))
        return -EINVAL;
    if (!take_uuid(&p, id.uuid))
        return -EINVAL;
    if (id.kind == GPUID_MIG_PATH &&
        !(take_word(&p, "/") && take_decimal(&p, &id.gpu_instance) && take_word(&p, "/") &&
          take_decimal(&p, &id.compute_instance)))
        return -EINVAL;
    if (*p)
        return -EINVAL;
    *ret = id;
    return 0;
}

const char *gpuid_format(const struct gpuid *id, char text[static GPUID_TEXT_SIZE]) {
    static const char *const prefixes[] = {
        [GPUID_GPU] = "GPU-",
        [GPUID_MIG] = "MIG-",
        [GPUID_MIG_PATH] = "MIG-GPU-",
    };
    const uint8_t *u = id->uuid;
    int n;

    n = snprintf(text, GPUID_TEXT_SIZE,
                 "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                 prefixes[id->kind], u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9],
                 u[10], u[11], u[12], u[13], u[14], u[15]);
    if (id->kind == GPUID_MIG_PATH)
        snprintf(text + n, GPUID_TEXT_SIZE - (size_t)n, "/%u/%u", id->gpu_instance,
                 id->compute_instance);
    return text;
}

bool gpuid_equal(const struct gpuid *a, const struct gpuid *b) {
    return a->kind == b->kind && memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 &&
           a->gpu_instance == b->gpu_instance && a->compute_instance == b->compute_instance;
}
