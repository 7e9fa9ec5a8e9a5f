/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image: the driver gets three kinds of images.
 *
 * PTX is text: it declares its variables of the global and constant spaces at the top level, with
 * their sizes; the compiled code is assumed to be as long as the text. A cubin is an ELF file: its
 * loadable sections count, code and variables alike. A fatbin is a list of such images for several
 * architectures, of which the driver uses one: the largest counts. A compressed image counts by the
 * unpacked length that it states.
 */
#include "guard/image.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"

#define FATBIN_MAGIC  UINT32_C(0xba55ed50)
#define WRAPPER_MAGIC UINT32_C(0x466243b1)
#define CODE_MAX      (UINT64_C(64) << 20) /* of text: comments and debug lines are not code */

struct fatbin_wrapper {
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

struct ptx_text {
    const char *at, *end;
};

/* Skip blanks and comments. */
static void skip_blanks(struct ptx_text *text) {
    while (text->at < text->end) {
        if (isspace((unsigned char)*text->at)) {
            text->at++;
        } else if (text->end - text->at >= 2 && text->at[0] == '/' && text->at[1] == '/') {
            const char *line = memchr(text->at, '\n', (size_t)(text->end - text->at));

            text->at = line ? line : text->end;
        } else if (text->end - text->at >= 2 && text->at[0] == '/' && text->at[1] == '*') {
            const char *close = memmem(text->at + 2, (size_t)(text->end - text->at - 2), "*/", 2);

            text->at = close ? close + 2 : text->end;
        } else {
            return;
        }
    }
}

/* The next word, string or sign; its length in `*ret`. NULL: the end. */
static const char *next_token(struct ptx_text *text, size_t *ret) {
    const char *start;

    skip_blanks(text);
    start = text->at;
    if (start == text->end)
        return NULL;
    if (*start == '"') {
        const char *close = memchr(start + 1, '"', (size_t)(text->end - start - 1));

        text->at = close ? close + 1 : text->end;
    } else if (isalnum((unsigned char)*start) || *start == '_' || *start == '.' || *start == '$' ||
               *start == '%') {
        do
            text->at++;
        while (text->at < text->end &&
               (isalnum((unsigned char)*text->at) || *text->at == '_' || *text->at == '$'));
    } else {
        text->at++;
    }
    *ret = (size_t)(text->at - start);
    return start;
}

static bool is(const char *token, size_t length, const char *word) {
    return token && strlen(word) == length && memcmp(token, word, length) == 0;
}

/* 12, 0x1f, 017, 0b101, each optionally with a U suffix. */
static uint64_t number(const char *token, size_t length) {
    uint64_t value = 0, base = 10;
    size_t i = 0;

    if (length > 1 && token[0] == '0') {
        char second = (char)tolower((unsigned char)token[1]);

        base = second == 'x' ? 16 : second == 'b' ? 2 : 8;
        i = base == 8 ? 1 : 2;
    }
    for (; i < length && isxdigit((unsigned char)token[i]); i++) {
        char c = (char)tolower((unsigned char)token[i]);
        uint64_t digit = isdigit((unsigned char)c) ? (uint64_t)(c - '0') : (uint64_t)(c - 'a' + 10);

        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return UINT64_MAX;
    }
    return value;
}

/* Between brackets: a product or sum of numbers, evaluated from left to right. If there is nothing,
 * sets `*ret_open`. */
static uint64_t dimension(struct ptx_text *text, bool *ret_open) {
    uint64_t value = 0;
    char operation = '+';
    const char *token;
    size_t length;

    *ret_open = true;
    while ((token = next_token(text, &length)) && *token != ']') {
        if (isdigit((unsigned char)*token)) {
            uint64_t n = number(token, length);
            bool over = operation == '*' ? __builtin_mul_overflow(value, n, &value)
                                         : __builtin_add_overflow(value, n, &value);

            value = over ? UINT64_MAX : value;
            *ret_open = false;
        } else {
            operation = *token;
        }
    }
    return value;
}

/* Skip an initialiser, up to the comma or semicolon behind it. Returns how many values it has. */
static uint64_t initialiser(struct ptx_text *text) {
    uint64_t values = 1;
    int depth = 0;

    for (;;) {
        struct ptx_text before = *text;
        size_t length;
        const char *token = next_token(text, &length);

        if (!token)
            return values;
        if (depth == 0 && (*token == ',' || *token == ';')) {
            *text = before;
            return values;
        }
        depth += *token == '{' || *token == '(';
        depth -= *token == '}' || *token == ')';
        values += depth > 0 && *token == ',';
    }
}

static uint64_t type_bytes(const char *type, size_t length) {
    static const struct {
        char name[8];
        uint8_t bytes;
    } types[] = { { ".b8", 1 },  { ".u8", 1 },  { ".s8", 1 },    { ".b16", 2 }, { ".u16", 2 },
                  { ".s16", 2 }, { ".f16", 2 }, { ".bf16", 2 },  { ".b32", 4 }, { ".u32", 4 },
                  { ".s32", 4 }, { ".f32", 4 }, { ".f16x2", 4 }, { ".b64", 8 }, { ".u64", 8 },
                  { ".s64", 8 }, { ".f64", 8 }, { ".b128", 16 } };

    for (size_t i = 0; i < ELEMENTSOF(types); i++)
        if (is(type, length, types[i].name))
            return types[i].bytes;
    return 0;
}

/* Bytes of the variables of one declaration, which starts behind the state space and ends at the
 * semicolon. */
static uint64_t declared_bytes(struct ptx_text *text) {
    uint64_t element = 8, vector = 1, sum = 0, count = 1, open = 0;
    const char *token;
    size_t length;
    bool named = false;

    while ((token = next_token(text, &length))) {
        if (*token == ',' || *token == ';') {
            uint64_t bytes;

            if (named && (__builtin_mul_overflow(element * vector, count, &bytes) ||
                          __builtin_add_overflow(sum, bytes, &sum)))
                sum = UINT64_MAX;
            if (*token == ';' || sum == UINT64_MAX)
                return sum;
            named = false;
            count = 1;
            open = 0;
        } else if (*token == '[') {
            bool is_open;
            uint64_t n = dimension(text, &is_open);

            open |= is_open;
            if (!is_open && __builtin_mul_overflow(count, n, &count))
                count = UINT64_MAX;
        } else if (*token == '=') {
            uint64_t values = initialiser(text);

            count = open ? MAX(count, values) : count;
        } else if (is(token, length, ".align")) {
            next_token(text, &length);
        } else if (is(token, length, ".attribute") || *token == '(') {
            while (*token != ')' && (token = next_token(text, &length)))
                ;
        } else if (is(token, length, ".v2") || is(token, length, ".v4")) {
            vector = (uint64_t)(token[2] - '0');
        } else if (*token == '.') {
            uint64_t bytes = type_bytes(token, length);

            element = bytes ? bytes : element; /* textures and the like are handles of 8 bytes */
        } else {
            named = true;
        }
    }
    return sum;
}

/* Reads the statements at the top level and skips the bodies of functions. */
static uint64_t ptx_bytes(const char *start, size_t length) {
    struct ptx_text text = { start, start + length };
    uint64_t bytes = MIN(length, CODE_MAX);
    bool is_extern = false;
    const char *token;
    size_t n;
    int depth = 0;

    while ((token = next_token(&text, &n))) {
        if (*token == '{' || *token == '}') {
            depth += *token == '{' ? 1 : -1;
            is_extern = false;
        } else if (depth > 0) {
            continue;
        } else if (*token == ';') {
            is_extern = false;
        } else if (is(token, n, ".extern")) {
            is_extern = true; /* defined in another module */
        } else if (is(token, n, ".global") || is(token, n, ".const")) {
            uint64_t more = declared_bytes(&text);

            if (!is_extern)
                bytes = bytes + more < bytes ? UINT64_MAX : bytes + more;
            is_extern = false;
        }
    }
    return bytes;
}

/* ---- Cubins and fatbins -----------------------------------------------------------------------
 */

/* Copy `n` bytes at `from`, which may not be readable if the length is unknown. */
static bool fetch(void *to, const void *from, size_t n) {
    struct iovec here = { to, n }, there = { (void *)from, n };
    ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);

    if (got < 0 && (errno == EPERM || errno == ENOSYS)) { /* the system call is forbidden: read as
                                                             the driver does */
        memcpy(to, from, n);
        return true;
    }
    return got == (ssize_t)n;
}

static uint64_t elf_bytes(const void *image, size_t length) {
    uint64_t bytes = 0, unreadable = length == IMAGE_UNKNOWN_LENGTH ? 0 : length;
    Elf64_Ehdr header;
    Elf64_Shdr section;

    if ((length != IMAGE_UNKNOWN_LENGTH && length < sizeof(header)) ||
        !fetch(&header, image, sizeof(header)) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_shentsize != sizeof(section))
        return unreadable;
    if (length != IMAGE_UNKNOWN_LENGTH &&
        (header.e_shoff > length || (length - header.e_shoff) / sizeof(section) < header.e_shnum))
        return unreadable;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        const char *at = (const char *)image + header.e_shoff + i * sizeof(section);

        if (!fetch(&section, at, sizeof(section)))
            return unreadable;
        if (section.sh_flags & SHF_ALLOC)
            bytes = bytes + section.sh_size < bytes ? UINT64_MAX : bytes + section.sh_size;
    }
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
    while (fatbin->bytes < UINT64_MAX / 2 && at < end &&
           (size_t)(end - at) >= sizeof(struct fatbin_entry)) {
        struct fatbin_entry copy, *entry = &copy;
        size_t room = (size_t)(end - at);
        uint64_t bytes;

        if (!fetch(&copy, at, sizeof(copy)) || entry->header_bytes < 64 ||
            entry->header_bytes > room || entry->bytes > room - entry->header_bytes)
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
        (length == IMAGE_UNKNOWN_LENGTH || length >= sizeof(struct fatbin_wrapper))) {
        const struct fatbin_wrapper *wrapper = image;

        /* A file has no pointers: a wrapper in it counts by its length. */
        if (length != IMAGE_UNKNOWN_LENGTH || !wrapper->data)
            return length == IMAGE_UNKNOWN_LENGTH ? 0 : length;
        image = wrapper->data;
        memcpy(&magic, image, sizeof(magic));
    }
    if (magic == FATBIN_MAGIC &&
        (length == IMAGE_UNKNOWN_LENGTH || length >= sizeof(struct fatbin)))
        return fatbin_bytes(image, length);
    return one_bytes(image, length);
}
