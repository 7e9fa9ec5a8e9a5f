/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image: three kinds come to the driver.
 *
 * PTX is text: its variables of the global and constant spaces are declared at the top level, with
 * their sizes; the code that will be made of it is taken to be as long as the text. A cubin is an
 * ELF file: its sections that are to be loaded, code and variables alike. A fatbin is a list of
 * such images for several architectures, of which one is used: the largest counts. Compressed ones
 * count by the length they say they unpack to.
 */
#include "guard/image.h"

#include <ctype.h>
#include <elf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define FATBIN_MAGIC  UINT32_C(0xba55ed50)
#define WRAPPER_MAGIC UINT32_C(0x466243b1)
#define CODE_MAX      (UINT64_C(64) << 20) /* of text: comments and debug lines are no code */

struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void *file;
};

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* of the entries after the header */
};

struct fatbin_entry {
    uint16_t kind, version; /* kind 1: PTX, 2: cubin */
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes;
    uint32_t options_offset;
    uint16_t minor, major;
    uint32_t arch;
    uint32_t name_offset, name_bytes;
    uint64_t flags;
    uint64_t zero;
    uint64_t unpacked_bytes;
};

#define ENTRY_COMPRESSED UINT64_C(0x2000)

/* ---- PTX ------------------------------------------------------------------------------------- */

static uint64_t type_bytes(const char *type, size_t length) {
    static const struct {
        char name[6];
        uint8_t bytes;
    } types[] = { { "b8", 1 },  { "u8", 1 },    { "s8", 1 },   { "b16", 2 }, { "u16", 2 },
                  { "s16", 2 }, { "f16", 2 },   { "bf16", 2 }, { "b32", 4 }, { "u32", 4 },
                  { "s32", 4 }, { "f32", 4 },   { "b64", 8 },  { "u64", 8 }, { "s64", 8 },
                  { "f64", 8 }, { "b128", 16 }, { "f16x2", 4 } };

    for (size_t i = 0; i < ELEMENTSOF(types); i++)
        if (strlen(types[i].name) == length && memcmp(types[i].name, type, length) == 0)
            return types[i].bytes;
    return 8; /* textures, samplers and what comes: handles */
}

/* One declaration, from behind its space to its semicolon. */
static uint64_t variable_bytes(const char *text, const char *end) {
    uint64_t element = 0, vector = 1, count = 1;

    while (text < end && *text != ';' && *text != '=') {
        if (*text == '.') {
            const char *word = ++text;

            while (text < end && isalnum((unsigned char)*text))
                text++;
            if (word[0] == 'v' && text - word == 2 && isdigit((unsigned char)word[1]))
                vector = (uint64_t)(word[1] - '0');
            else if (text - word == 5 && memcmp(word, "align", 5) == 0)
                while (text < end &&
                       (isspace((unsigned char)*text) || isdigit((unsigned char)*text)))
                    text++;
            else if (!(text - word >= 4 && memcmp(word, "attr", 4) == 0))
                element = type_bytes(word, (size_t)(text - word));
        } else if (*text == '[') {
            uint64_t n = 0;

            for (text++; text < end && *text != ']'; text++)
                if (isdigit((unsigned char)*text))
                    n = n > UINT64_MAX / 20 ? UINT64_MAX / 10 : n * 10 + (uint64_t)(*text - '0');
            if (__builtin_mul_overflow(count, n, &count))
                return UINT64_MAX;
        } else {
            text++;
        }
    }
    return __builtin_mul_overflow(element * vector, count, &count) ? UINT64_MAX : count;
}

/* Whether the word at `at` begins a statement or follows a linking directive, as that of an
 * instruction (ld.global.u32) does not. */
static bool is_declaration(const char *text, const char *at) {
    const char *before = at;
    const char *word;

    while (before > text && isspace((unsigned char)before[-1]))
        before--;
    if (before == text || before[-1] == ';' || before[-1] == '}' || before[-1] == '/')
        return true;
    if (before == at) /* glued to something */
        return false;
    word = before;
    while (word > text && (isalnum((unsigned char)word[-1]) || word[-1] == '_' || word[-1] == '.'))
        word--;
    if (before - word == 7 && memcmp(word, ".extern", 7) == 0)
        return false; /* somebody else's */
    /* `.visible`, `.weak`, `.common`, or the numbers of a directive on the line before. */
    return *word == '.' || isalnum((unsigned char)*word);
}

static uint64_t ptx_bytes(const char *text, size_t length) {
    static const char *const spaces[] = { ".global", ".const" };
    const char *end = text + length;
    uint64_t bytes = MIN(length, CODE_MAX);

    for (size_t s = 0; s < ELEMENTSOF(spaces); s++) {
        size_t space = strlen(spaces[s]);
        const char *at = text;

        while ((at = memmem(at, (size_t)(end - at), spaces[s], space))) {
            uint64_t more = 0;

            if (at + space < end && isspace((unsigned char)at[space]) && is_declaration(text, at))
                more = variable_bytes(at + space, end);
            bytes = bytes + more < bytes ? UINT64_MAX : bytes + more;
            at += space;
        }
    }
    return bytes;
}

/* ---- Cubins and fatbins -----------------------------------------------------------------------
 */

static uint64_t elf_bytes(const void *image, size_t length) {
    const Elf64_Ehdr *header = image;
    const Elf64_Shdr *sections;
    uint64_t bytes = 0;

    if (length < sizeof(*header) || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_shentsize != sizeof(*sections))
        return length == IMAGE_UNKNOWN_LENGTH ? 0 : length;
    if (length != IMAGE_UNKNOWN_LENGTH &&
        (header->e_shoff > length ||
         (length - header->e_shoff) / sizeof(*sections) < header->e_shnum))
        return length;
    sections = (const void *)((const char *)image + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_flags & SHF_ALLOC)
            bytes = bytes + sections[i].sh_size < bytes ? UINT64_MAX : bytes + sections[i].sh_size;
    return bytes;
}

static uint64_t one_bytes(const void *image, size_t length) {
    if (length >= SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0)
        return elf_bytes(image, length);
    if (length == IMAGE_UNKNOWN_LENGTH)
        length = strlen(image);
    return ptx_bytes(image, length);
}

static uint64_t fatbin_bytes(const struct fatbin *fatbin, size_t length) {
    const char *at = (const char *)fatbin + fatbin->header_bytes, *end;
    uint64_t most = 0;

    if (length != IMAGE_UNKNOWN_LENGTH &&
        (fatbin->header_bytes > length || fatbin->bytes > length - fatbin->header_bytes))
        return length;
    end = at + fatbin->bytes;
    while ((size_t)(end - at) >= sizeof(struct fatbin_entry)) {
        const struct fatbin_entry *entry = (const void *)at;
        size_t room = (size_t)(end - at);
        uint64_t bytes;

        if (entry->header_bytes < 64 || entry->header_bytes > room ||
            entry->bytes > room - entry->header_bytes)
            break;
        if (entry->flags & ENTRY_COMPRESSED)
            bytes = MAX(entry->bytes,
                        entry->header_bytes >= sizeof(*entry) ? entry->unpacked_bytes : 0);
        else
            bytes = one_bytes(at + entry->header_bytes, entry->bytes);
        most = MAX(most, bytes);
        at += entry->header_bytes + entry->bytes;
    }
    return most;
}

uint64_t image_bytes(const void *image, size_t length) {
    uint32_t magic = 0;

    if (length != IMAGE_UNKNOWN_LENGTH && length < sizeof(magic))
        return length;
    if (length == IMAGE_UNKNOWN_LENGTH && strnlen(image, sizeof(magic)) < sizeof(magic) &&
        *(const char *)image == 0)
        return 0;
    memcpy(&magic, image, sizeof(magic));
    if (magic == WRAPPER_MAGIC &&
        (length == IMAGE_UNKNOWN_LENGTH || length >= sizeof(struct wrapper))) {
        const struct wrapper *wrapper = image;

        if (length != IMAGE_UNKNOWN_LENGTH || !wrapper->data)
            return length == IMAGE_UNKNOWN_LENGTH ? 0 : length; /* a pointer in a file is none */
        image = wrapper->data;
        memcpy(&magic, image, sizeof(magic));
    }
    if (magic == FATBIN_MAGIC &&
        (length == IMAGE_UNKNOWN_LENGTH || length >= sizeof(struct fatbin)))
        return fatbin_bytes(image, length);
    return one_bytes(image, length);
}
