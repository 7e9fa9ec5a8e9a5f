/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fat binary is a header, then entries: each a header that says what it is and for which
 * architecture, then the bytes.
 *
 *     header   magic u32, version u16, header bytes u16, bytes of all entries u64
 *     entry    kind u16 (1 PTX, 2 machine code), version u16, header bytes u32, bytes u64, stored
 *              bytes u32 (compressed), …, minor u16, major u16, architecture u32, …, flags u64, …,
 *              bytes once decompressed u64
 */
#include "sim/cuda/module/image.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/module/jit.h"

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC  0xba55ed50u
#define PACKED_MAGIC  "\177ALLOT-PTX-LINK\n" /* 16 bytes with its NUL */
#define MAX_BYTES     (UINT64_C(1) << 30)

#define HOW_TO_GET_PTX                                                                             \
    "only PTX can run on a simulated GPU: compile with 'nvcc -ptx', with '-gencode "               \
    "arch=compute_75,code=compute_75 -Xfatbin -compress=false', or ask NVRTC for nvrtcGetPTX()"

enum { ENTRY_PTX = 1, ENTRY_ELF = 2 };

struct fatbin_wrapper {
    uint32_t magic, version;
    const void *data;
    void *rest;
};

struct fatbin_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};

struct fatbin_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t stored_bytes, reserved;
    uint16_t minor, major;
    uint32_t architecture;
    uint32_t name_offset, name_bytes;
    uint64_t flags;
    uint64_t reserved2;
    uint64_t plain_bytes; /* 0: not compressed */
};

struct packed_header {
    char magic[16];
    uint64_t bytes; /* with this */
    uint64_t n_inputs;
};

void image_done(struct image *image) {
    for (size_t i = 0; i < image->n_inputs; i++) {
        free(image->inputs[i].name);
        free(image->inputs[i].text);
    }
    free(image->inputs);
    *image = (struct image){ 0 };
}

CUresult image_add(struct image *image, const char *name, const char *text, size_t n) {
    struct image_input *inputs =
        reallocarray(image->inputs, image->n_inputs + 1, sizeof(*image->inputs));
    struct image_input input = { .n = strnlen(text, n) };

    if (!inputs)
        return CUDA_ERROR_OUT_OF_MEMORY;
    image->inputs = inputs;
    input.name = strdup(name && *name ? name : "application ptx input");
    input.text = malloc(input.n + 1);
    if (!input.name || !input.text) {
        free(input.name);
        free(input.text);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(input.text, text, input.n);
    input.text[input.n] = '\0';
    image->inputs[image->n_inputs++] = input;
    return CUDA_SUCCESS;
}

static unsigned device_target(const struct cuda_device *device) {
    return device ? device->model->cc_major * 10 + device->model->cc_minor : UINT32_MAX;
}

static CUresult read_fatbin(struct image *image, const char *name, const void *code, size_t bytes,
                            const struct cuda_device *device, struct jit *jit) {
    const unsigned char *at = code, *end;
    const unsigned char *best = NULL;
    struct fatbin_header header;
    struct fatbin_entry entry;
    uint64_t best_bytes = 0;
    unsigned best_target = 0, newest = 0;
    bool machine_code = false, compressed = false;

    if (bytes && bytes < sizeof(header))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, at, sizeof(header));
    if (header.header_bytes < sizeof(header) || header.bytes > MAX_BYTES ||
        (bytes && header.header_bytes + header.bytes > bytes)) {
        jit_error(jit, "fatal   : the fat binary is damaged\n");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    at += header.header_bytes;
    end = at + header.bytes;
    while ((size_t)(end - at) >= sizeof(entry)) {
        uint64_t left = (uint64_t)(end - at);

        memcpy(&entry, at, sizeof(entry));
        if (entry.header_bytes < sizeof(entry) || entry.header_bytes > left ||
            entry.bytes > left - entry.header_bytes) {
            jit_error(jit, "fatal   : the fat binary is damaged\n");
            return CUDA_ERROR_INVALID_IMAGE;
        }
        if (entry.kind != ENTRY_PTX) {
            machine_code |= entry.kind == ENTRY_ELF;
        } else if (entry.plain_bytes || entry.stored_bytes) {
            compressed = true;
        } else if (entry.architecture > device_target(device)) {
            newest = MAX(newest, entry.architecture);
        } else if (!best || entry.architecture > best_target) {
            best = at + entry.header_bytes;
            best_bytes = entry.bytes;
            best_target = entry.architecture;
        }
        at += entry.header_bytes + entry.bytes;
    }
    if (best)
        return image_add(image, name, (const char *)best, best_bytes);
    if (compressed)
        jit_error(jit, "fatal   : the PTX in the fat binary is compressed; " HOW_TO_GET_PTX "\n");
    else if (newest)
        jit_error(jit, "fatal   : the PTX in the fat binary is for compute_%u, the device is %u\n",
                  newest, device_target(device));
    else
        jit_error(jit, "fatal   : the fat binary holds %s; " HOW_TO_GET_PTX "\n",
                  machine_code ? "machine code alone" : "no PTX");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult read_packed(struct image *image, const void *code, size_t bytes) {
    const unsigned char *at = code;
    struct packed_header header;
    uint64_t left;

    if (bytes && bytes < sizeof(header))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, at, sizeof(header));
    if (header.bytes < sizeof(header) || header.bytes > MAX_BYTES ||
        (bytes && header.bytes > bytes))
        return CUDA_ERROR_INVALID_IMAGE;
    left = header.bytes - sizeof(header);
    at += sizeof(header);
    for (uint64_t i = 0; i < header.n_inputs; i++) {
        uint64_t sizes[2]; /* name and text, each with its NUL */

        if (left < sizeof(sizes))
            return CUDA_ERROR_INVALID_IMAGE;
        memcpy(sizes, at, sizeof(sizes));
        at += sizeof(sizes);
        left -= sizeof(sizes);
        if (!sizes[0] || !sizes[1] || sizes[0] > left || sizes[1] > left - sizes[0] ||
            at[sizes[0] - 1] || at[sizes[0] + sizes[1] - 1])
            return CUDA_ERROR_INVALID_IMAGE;
        CUresult r = image_add(image, (const char *)at, (const char *)at + sizes[0], sizes[1] - 1);

        if (r != CUDA_SUCCESS)
            return r;
        at += sizes[0] + sizes[1];
        left -= sizes[0] + sizes[1];
    }
    return CUDA_SUCCESS;
}

void *image_pack(const struct image *image, size_t *ret_bytes) {
    struct packed_header header = { .magic = PACKED_MAGIC, .n_inputs = image->n_inputs };
    unsigned char *packed, *at;

    header.bytes = sizeof(header);
    for (size_t i = 0; i < image->n_inputs; i++)
        header.bytes +=
            2 * sizeof(uint64_t) + strlen(image->inputs[i].name) + image->inputs[i].n + 2;
    packed = malloc(header.bytes);
    if (!packed)
        return NULL;
    memcpy(packed, &header, sizeof(header));
    at = packed + sizeof(header);
    for (size_t i = 0; i < image->n_inputs; i++) {
        const struct image_input *input = &image->inputs[i];
        const uint64_t sizes[2] = { strlen(input->name) + 1, input->n + 1 };

        memcpy(at, sizes, sizeof(sizes));
        memcpy(at + sizeof(sizes), input->name, sizes[0]);
        memcpy(at + sizeof(sizes) + sizes[0], input->text, sizes[1]);
        at += sizeof(sizes) + sizes[0] + sizes[1];
    }
    *ret_bytes = header.bytes;
    return packed;
}

/* Whether it begins like a text: a few bytes of it, up to its NUL. */
static bool is_text(const char *code, size_t bytes) {
    for (size_t i = 0; i < 8 && i < bytes && code[i]; i++)
        if (!isprint((unsigned char)code[i]) && !isspace((unsigned char)code[i]))
            return false;
    return true;
}

CUresult image_read(struct image *image, const char *name, const void *code, size_t bytes,
                    const struct cuda_device *device, struct jit *jit) {
    const char *text = code;
    uint32_t magic = 0;

    for (size_t i = 0; i < 4 && (bytes == 0 || i < bytes); i++) {
        magic |= (uint32_t)(unsigned char)text[i] << 8 * i;
        if (!text[i])
            break;
    }
    if (magic == WRAPPER_MAGIC && (bytes == 0 || bytes >= sizeof(struct fatbin_wrapper))) {
        struct fatbin_wrapper wrapper;

        memcpy(&wrapper, code, sizeof(wrapper));
        if (!wrapper.data)
            return CUDA_ERROR_INVALID_IMAGE;
        return image_read(image, name, wrapper.data, 0, device, jit);
    }
    if (magic == FATBIN_MAGIC)
        return read_fatbin(image, name, code, bytes, device, jit);
    if ((bytes == 0 || bytes >= 16) && strncmp(text, PACKED_MAGIC, 16) == 0)
        return read_packed(image, code, bytes);
    if (magic == 0x464c457f) { /* ELF */
        jit_error(jit, "fatal   : a cubin holds machine code; " HOW_TO_GET_PTX "\n");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (!is_text(text, bytes ? bytes : 8)) {
        jit_error(jit, "fatal   : neither PTX nor a fat binary; " HOW_TO_GET_PTX "\n");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return image_add(image, name, text, bytes ? bytes : SIZE_MAX);
}

CUresult image_read_file(struct image *image, const char *path, const struct cuda_device *device,
                         struct jit *jit) {
    cleanup(fclosep) FILE *file = fopen(path, "re");
    cleanup(freep) char *bytes = NULL;
    size_t n = 0, room = 0;

    if (!file) {
        jit_error(jit, "fatal   : Could not open input file '%s': %s\n", path, strerror(errno));
        return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    }
    for (;;) {
        size_t got;

        if (n + 1 >= room) {
            char *larger = room < MAX_BYTES ? realloc(bytes, room ? 2 * room : 65536) : NULL;

            if (!larger)
                return CUDA_ERROR_OUT_OF_MEMORY;
            bytes = larger;
            room = room ? 2 * room : 65536;
        }
        got = fread(bytes + n, 1, room - n - 1, file);
        if (got == 0)
            break;
        n += got;
    }
    if (ferror(file))
        return CUDA_ERROR_OPERATING_SYSTEM;
    bytes[n] = '\0';
    if (n == 0) {
        jit_error(jit, "fatal   : '%s' is empty\n", path);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return image_read(image, NULL, bytes, n, device, jit);
}

/* The newest PTX that a driver for this CUDA version takes, as 10 × major + minor. */
static unsigned newest_ptx(int cuda_version) {
    const unsigned major = (unsigned)cuda_version / 1000,
                   minor = (unsigned)cuda_version % 1000 / 10;

    if (major >= 13)
        return (major - 13) * 10 + 90 + minor;
    if (major == 12)
        return 80 + (minor < 6 ? minor : minor - 1); /* 12.6 brought no new one */
    return major == 11 ? 70 + minor : 60 + minor;
}

/* The next word of a PTX text at `*at`, comments skipped; its length, 0 at the end. */
static size_t word(const char **at, unsigned *line) {
    for (;; (*at)++) {
        if (**at == '\n') {
            ++*line;
        } else if (strncmp(*at, "//", 2) == 0) {
            *at += strcspn(*at, "\n");
            --*at;
        } else if (strncmp(*at, "/*", 2) == 0) {
            for (*at += 2; **at && strncmp(*at, "*/", 2) != 0; ++*at)
                *line += **at == '\n';
            if (!**at)
                return 0;
            ++*at;
        } else if (!isspace((unsigned char)**at)) {
            return strcspn(*at, " \t\r\n,;{(");
        }
    }
}

static CUresult check_target(const char *name, const char *target, unsigned line,
                             const struct cuda_device *device, struct jit *jit) {
    const unsigned of_device = device_target(device);
    unsigned wanted = 0;
    char suffix = 0;

    if (sscanf(target, "sm_%u%c", &wanted, &suffix) < 1 || !device)
        return CUDA_SUCCESS; /* the parser's business */
    if (wanted > of_device) {
        jit_error(jit,
                  "ptxas %s, line %u; fatal   : SM version specified by .target is higher than "
                  "default SM version assumed: sm_%u, the device is sm_%u\n",
                  name, line, wanted, of_device);
        return CUDA_ERROR_INVALID_PTX;
    }
    if ((suffix == 'a' && wanted != of_device) ||
        (suffix == 'f' && wanted / 10 != of_device / 10)) {
        jit_error(jit,
                  "ptxas %s, line %u; fatal   : sm_%u%c is for that architecture alone, the device "
                  "is sm_%u\n",
                  name, line, wanted, suffix, of_device);
        return CUDA_ERROR_INVALID_PTX;
    }
    return CUDA_SUCCESS;
}

static CUresult check_head(const struct image_input *input, const struct cuda_device *device,
                           struct jit *jit) {
    const unsigned newest = newest_ptx(driver_cuda_version());
    const char *at = input->text;
    unsigned line = 1;
    size_t n;

    while ((n = word(&at, &line)) > 0 && *at == '.') {
        if (n == 8 && strncmp(at, ".version", n) == 0) {
            unsigned major = 0, minor = 0;

            at += n;
            if (word(&at, &line) == 0 || sscanf(at, "%u.%u", &major, &minor) != 2)
                return CUDA_SUCCESS;
            if (major * 10 + minor > newest) {
                jit_error(jit,
                          "ptxas %s, line %u; fatal   : Unsupported .version %u.%u; current "
                          "version is '%u.%u'\n",
                          input->name, line, major, minor, newest / 10, newest % 10);
                return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
            }
            at += strcspn(at, " \t\r\n");
        } else if (n == 7 && strncmp(at, ".target", n) == 0) {
            at += n;
            return word(&at, &line) ? check_target(input->name, at, line, device, jit)
                                    : CUDA_SUCCESS;
        } else {
            return CUDA_SUCCESS;
        }
    }
    return CUDA_SUCCESS;
}

CUresult image_check(const struct image *image, const struct cuda_device *device, struct jit *jit) {
    for (size_t i = 0; i < image->n_inputs; i++) {
        CUresult r = check_head(&image->inputs[i], device, jit);

        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}
