/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "libclient/core/spec.h"
#include "tests/support/suite.h"

START_TEST(what_is_written_in_short_is_read_in_full) {
    static const char *const cases[][2] = {
        { "", "" },
        { "/job:worker/replica:0/task:1/device:GPU:0",
          "/job:worker/replica:0/task:1/device:GPU:0" },
        { "/gpu:0", "/device:GPU:0" },
        { "/CPU:3", "/device:CPU:3" },
        { "/gpu:*", "/device:GPU:*" },
        { "/device:GPU", "/device:GPU:*" },
        { "GPU:1", "/device:GPU:1" },
        { "cpu:0", "/device:CPU:0" },
        { "gpu", "/device:GPU:*" },
        { "task:1", "/task:1" },
        { "device:XYZ:3", "/device:XYZ:3" },
        { "/job:ps/task:*", "/job:ps" },
        { "/device:FakeGPU:11", "/device:FakeGPU:11" },
        { "/task:2/job:a", "/job:a/task:2" },
    };
    char text[SPEC_TEXT_SIZE];

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct spec spec;

        ck_assert_msg(spec_parse(&spec, cases[i][0]) == 0, "%s", cases[i][0]);
        ck_assert_str_eq(spec_format(&spec, text), cases[i][1]);
    }
}
END_TEST

START_TEST(what_is_no_spec_is_refused) {
    static const char *const cases[] = { "/foo:bar",
                                         "/job:",
                                         "/job:a/",
                                         "/gpu:x",
                                         "/device:GPU:-1",
                                         "/replica:99999999999",
                                         "/gpu:0junk",
                                         "gpu 0",
                                         "/device:",
                                         "//gpu:0",
                                         "/job:a b",
                                         "/task:1.5",
                                         "gpu:zero",
                                         "task:x",
                                         "rubbish",
                                         "/rubbish",
                                         "gpo",
                                         "gpo:0",
                                         "/gpo:0",
                                         "XYZ:0",
                                         "*" };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct spec spec = { .has_job = true, .job = "untouched" };

        ck_assert_msg(spec_parse(&spec, cases[i]) == -EINVAL, "%s", cases[i]);
        ck_assert_str_eq(spec.job, "untouched");
    }
}
END_TEST

static struct spec spec_of(const char *text) {
    struct spec spec;

    ck_assert_int_eq(spec_parse(&spec, text), 0);
    return spec;
}

START_TEST(merging_softly_opens_only_type_and_number) {
    static const struct {
        const char *a, *b, *hard, *soft; /* NULL: refused */
    } cases[] = {
        { "/gpu:0", "/job:a", "/job:a/device:GPU:0", "/job:a/device:GPU:0" },
        { "/gpu:0", "/gpu:1", NULL, "/device:GPU:*" },
        { "/job:a/gpu:0", "/cpu:0", NULL, "/job:a" },
        { "/job:a", "/job:b", NULL, NULL },
        { "/task:1", "/task:2", NULL, NULL },
        { "", "/gpu:0", "/device:GPU:0", "/device:GPU:0" },
    };
    char text[SPEC_TEXT_SIZE];

    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        for (int soft = 0; soft < 2; soft++) {
            struct spec a = spec_of(cases[i].a), b = spec_of(cases[i].b), before = a;
            const char *expected = soft ? cases[i].soft : cases[i].hard;
            const char *what = spec_merge(&a, &b, soft);

            ck_assert_msg((what == NULL) == (expected != NULL), "%s + %s", cases[i].a, cases[i].b);
            if (expected)
                ck_assert_str_eq(spec_format(&a, text), expected);
            else
                ck_assert_mem_eq(&a, &before, sizeof(a));
        }
}
END_TEST

SUITE("device-spec", what_is_written_in_short_is_read_in_full, what_is_no_spec_is_refused,
      merging_softly_opens_only_type_and_number)
