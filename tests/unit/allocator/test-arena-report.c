/* SPDX-License-Identifier: Apache-2.0 */
/* Out of memory, in words that a person reads: whole, true and on one line. */
#include "base/utf8.h"
#include "tests/support/allocator/arena_fixture.h"

/* The words of a request that fails. */
static const char *words(uint64_t bytes, uint32_t tag) {
    static struct allot_error err;
    struct arena_request request = { .bytes = bytes, .tag = tag };
    struct arena_block block;

    err = (struct allot_error){ 0 };
    ck_assert_int_eq(arena_alloc(arena, &request, &block, &err), -ENOMEM);
    return err.text;
}

START_TEST(a_report_that_is_too_long_says_that_it_goes_on) {
    char whole[4096];

    begin(&placed, &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
    for (unsigned n = 0; n < 5; n++) {
        struct arena_request request = { .bytes = KIB(100) };
        struct arena_block block;
        char name[200];

        snprintf(name, sizeof(name), "%u/%0150u", n, n);
        request.tag = arena_tag(arena, name);
        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    }
    ck_assert_int_ge(
        arena_report(arena, &(struct arena_request){ .bytes = MIB(1) }, whole, sizeof(whole)),
        (int)sizeof(((struct allot_error *)NULL)->text));
    ck_assert_str_eq(words(MIB(1), 0) + strlen(words(MIB(1), 0)) - strlen("…"), "…");
    ck_assert_ptr_null(strstr(whole, "…"));
    end();
}
END_TEST

START_TEST(a_report_advises_to_wait_only_where_that_helps) {
    static const struct device_oracle_options kinds[] = {
        { .span_bytes = MIB(64), .no_wait = true, .no_order = true },
        { .span_bytes = MIB(64),
          .no_wait = true,
          .no_order = true,
          .no_remap = true,
          .no_trim = true },
        { .no_wait = true, .no_order = true },
    };
    static const char wait[] = "Waiting for the streams";

    for (unsigned kind = 0; kind < ELEMENTSOF(kinds); kind++) {
        uint8_t streams[2];
        struct arena_block blocks[16];

        begin(&kinds[kind], &(struct arena_options){
                                .cap_bytes = MIB(1), .max_shards = 1, .initial_bytes = MIB(1) });
        ck_assert_int_eq(arena_stream_new(arena, 1, &streams[0]), 0);
        ck_assert_int_eq(arena_stream_new(arena, 2, &streams[1]), 0);
        for (unsigned n = 0; n < 16; n++) {
            blocks[n] = take(n < 8 ? KIB(64) : KIB(32));
            if (n >= 8)
                take(KIB(32));
        }
        /* One page of a stream beside one of several and one for all; and half pages, which lie
         * apart. */
        give_on(blocks[3], streams[0]);
        device_oracle_give(oracle, blocks[4].address, KIB(64), streams, 2);
        ck_assert_int_eq(arena_dealloc(arena, blocks[4].handle, streams, 2), 0);
        give(blocks[5]);
        for (unsigned n = 8; n < 14; n += 2)
            give(blocks[n]);
        ck_assert_msg(strstr(words(KIB(192), 0), wait), "%s", words(KIB(192), 0));
        ck_assert_msg(!strstr(words(KIB(200), 0), wait), "%s", words(KIB(200), 0));
        ck_assert_msg(strstr(words(KIB(200), 0), "in pieces"), "%s", words(KIB(200), 0));
        /* Apart, but whole pages, which can be moved together. */
        give_on(blocks[0], streams[1]);
        ck_assert_int_eq(strstr(words(KIB(256), 0), wait) != NULL, kind == 0);
        end();
    }
}
END_TEST

START_TEST(a_report_is_one_line_of_text_whatever_names_are) {
    struct arena_request request = { .bytes = KIB(900) };
    struct arena_block block;
    const char *text;

    begin(&placed, &(struct arena_options){ .cap_bytes = MIB(1), .max_shards = 1 });
    request.tag = arena_tag(arena, "conv\n1\x1b[2J caf\xe9 \xc3\xa9\x7f");
    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    text = words(KIB(900), request.tag);
    ck_assert_msg(strstr(text, "for conv?1?[2J caf? é?;"), "%s", text);
    ck_assert_msg(strstr(text, "by conv?1?[2J caf? é? 900 KiB"), "%s", text);
    for (size_t left = strlen(text), n; left > 0; left -= n, text += n) {
        n = utf8_length(text, left);
        ck_assert(n && (unsigned char)*text >= 0x20);
    }
    ck_assert_msg(strstr(words(KIB(900), 0), "in 1 block,"), "%s", words(KIB(900), 0));
    ck_assert_msg(strstr(words(KIB(900), 0), "in 1 hole,"), "%s", words(KIB(900), 0));
    end();
}
END_TEST

SUITE("arena-report", a_report_that_is_too_long_says_that_it_goes_on,
      a_report_advises_to_wait_only_where_that_helps,
      a_report_is_one_line_of_text_whatever_names_are)
