/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "guard/image.h"
#include "tests/support/suite.h"

#define PTX_HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

/* What the variables of a text take, its own length left out. */
static uint64_t variables(const char *text) {
    return image_bytes(text, IMAGE_UNKNOWN_LENGTH) - strlen(text);
}

START_TEST(variables_of_a_text_are_added_up) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        { PTX_HEAD, 0 },
        { PTX_HEAD ".global .align 4 .u32 counter;\n", 4 },
        { PTX_HEAD ".visible .global .align 16 .b8 big[1048576];\n", 1048576 },
        { PTX_HEAD ".weak .global .f64 table[8][16];\n", 8 * 8 * 16 },
        { PTX_HEAD ".global .align 16 .v4 .f32 corners[3];\n", 48 },
        { PTX_HEAD ".const .align 8 .b8 k[256] = {1, 2, 3};\n", 256 },
        { PTX_HEAD ".extern .global .u32 elsewhere[100];\n", 0 },
        { PTX_HEAD ".global .u32 a;\n.global .u64 b;\n", 12 },
        { PTX_HEAD
          ".visible .entry f() { ld.global.u32 %r1, [%rd1]; st.global.f32 [%rd2], %f1; }\n",
          0 },
        { PTX_HEAD "// a line\n.global .s16 after_a_comment[2];\n", 4 },
        { PTX_HEAD ".global .align 8 .b8 hex[0x80000000];\n", UINT64_C(1) << 31 },
        { PTX_HEAD ".global .b8 octal[017];\n.global .b8 binary[0b101U];\n", 20 },
        { PTX_HEAD "// a comment (so)\n.global .b8 a[512];\n", 512 },
        { PTX_HEAD ".file 1 \"x.cu\"\n.global .b8 a[512];\n", 512 },
        { PTX_HEAD ".global /* [0] = */ .b8 // = {\n a[512];\n", 512 },
        { PTX_HEAD ".global .b8 a[65536], b[65536], c;\n", 131073 },
        { PTX_HEAD ".global .u32 open[] = {1, 2, 3, 4};\n", 16 },
        { PTX_HEAD ".global .u64 names[2] = {generic(a), b};\n.global .u32 x;\n", 20 },
        { PTX_HEAD ".global .attribute(.managed) .align 4 .b8 m[64];\n", 64 },
        { PTX_HEAD ".const .b8 product[4*1024];\n", 4096 },
        { PTX_HEAD ".func f() { .local .b8 stack[4096]; { ret; } }\n.global .u8 after;\n", 1 },
        { PTX_HEAD ".section .debug_str { .b8 1,2,3 }\n.global .u8 after;\n", 1 },
        { PTX_HEAD ".global .b8 huge[18446744073709551615];\n.global .u32 x;\n", 0 },
    };

    for (size_t i = 0; i + 1 < ELEMENTSOF(cases); i++)
        ck_assert_msg(variables(cases[i].text) == cases[i].bytes, "%s: %lu instead of %lu",
                      cases[i].text, variables(cases[i].text), cases[i].bytes);
    /* No sum is small because it overflowed. */
    ck_assert_uint_gt(image_bytes(cases[ELEMENTSOF(cases) - 1].text, IMAGE_UNKNOWN_LENGTH),
                      UINT64_C(1) << 60);
}
END_TEST

struct cubin {
    Elf64_Ehdr header;
    Elf64_Shdr sections[3];
};

static struct cubin make_cubin(uint64_t variable_bytes) {
    struct cubin cubin = { 0 };

    memcpy(cubin.header.e_ident, ELFMAG, SELFMAG);
    cubin.header.e_ident[EI_CLASS] = ELFCLASS64;
    cubin.header.e_shoff = offsetof(struct cubin, sections);
    cubin.header.e_shentsize = sizeof(Elf64_Shdr);
    cubin.header.e_shnum = 3;
    cubin.sections[0] = (Elf64_Shdr){ .sh_size = 5000 }; /* not to be loaded */
    cubin.sections[1] = (Elf64_Shdr){ .sh_flags = SHF_ALLOC, .sh_size = 1000 };
    cubin.sections[2] = (Elf64_Shdr){ .sh_type = SHT_NOBITS,
                                      .sh_flags = SHF_ALLOC | SHF_WRITE,
                                      .sh_size = variable_bytes };
    return cubin;
}

START_TEST(sections_of_a_cubin_that_are_loaded_count) {
    struct cubin cubin = make_cubin(UINT64_C(8) << 30);

    ck_assert_uint_eq(image_bytes(&cubin, IMAGE_UNKNOWN_LENGTH), 1000 + (UINT64_C(8) << 30));
    ck_assert_uint_eq(image_bytes(&cubin, sizeof(cubin)), 1000 + (UINT64_C(8) << 30));
    /* Cut short, it counts by its length. */
    ck_assert_uint_eq(image_bytes(&cubin, sizeof(cubin) - 1), sizeof(cubin) - 1);
    ck_assert_uint_eq(image_bytes(&cubin, 10), 10);
}
END_TEST

/* A program may pass the driver anything: the driver reports an error, and the process lives. */
START_TEST(images_that_lead_nowhere_do_no_harm) {
    struct cubin cubin = make_cubin(100);

    cubin.header.e_shoff = UINT64_C(1) << 46;
    ck_assert_uint_eq(image_bytes(&cubin, IMAGE_UNKNOWN_LENGTH), 0);
    cubin.header.e_shoff = offsetof(struct cubin, sections);
    cubin.header.e_shnum = 0xffff;
    image_bytes(&cubin, IMAGE_UNKNOWN_LENGTH);
}
END_TEST

START_TEST(the_largest_image_of_a_fatbin_counts) {
    struct cubin small = make_cubin(100), large = make_cubin(70000);
    struct {
        struct {
            uint32_t magic;
            uint16_t version, header_bytes;
            uint64_t bytes;
        } fatbin;
        struct entry {
            struct {
                uint16_t kind, version;
                uint32_t header_bytes;
                uint64_t bytes;
                uint8_t rest[64];
            } header;
            struct cubin cubin;
        } entries[2];
    } image = { .fatbin = { 0xba55ed50, 1, 16, 2 * sizeof(struct entry) } };
    struct {
        uint32_t magic, version;
        const void *data, *file;
    } wrapper = { 0x466243b1, 1, &image, NULL };

    for (int i = 0; i < 2; i++) {
        image.entries[i].header.kind = 2;
        image.entries[i].header.header_bytes = sizeof(image.entries[i].header);
        image.entries[i].header.bytes = sizeof(struct cubin);
    }
    image.entries[0].cubin = large;
    image.entries[1].cubin = small;
    ck_assert_uint_eq(image_bytes(&image, IMAGE_UNKNOWN_LENGTH), 71000);
    ck_assert_uint_eq(image_bytes(&image, sizeof(image)), 71000);
    ck_assert_uint_eq(image_bytes(&wrapper, IMAGE_UNKNOWN_LENGTH), 71000);
    /* A pointer in a file leads nowhere. */
    ck_assert_uint_eq(image_bytes(&wrapper, sizeof(wrapper)), sizeof(wrapper));
    /* One that says it is longer than it is counts by its length. */
    image.fatbin.bytes = UINT64_MAX - 4;
    ck_assert_uint_eq(image_bytes(&image, sizeof(image)), sizeof(image));
}
END_TEST

/* Files are not trusted. ASan is the judge. */
START_TEST(files_that_were_changed_do_no_harm) {
    struct cubin cubin = make_cubin(100);
    char *copy = malloc(sizeof(cubin));

    for (size_t i = 0; i < sizeof(cubin); i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            memcpy(copy, &cubin, sizeof(cubin));
            copy[i] = (char)(copy[i] ^ 1 << bit);
            image_bytes(copy, sizeof(cubin));
        }
    free(copy);
}
END_TEST

SUITE("guard-image", variables_of_a_text_are_added_up, sections_of_a_cubin_that_are_loaded_count,
      images_that_lead_nowhere_do_no_harm, the_largest_image_of_a_fatbin_counts,
      files_that_were_changed_do_no_harm)
