/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tests/cases/visible.tsv, row by row, and what the table only describes. */
#include <errno.h>
#include <string.h>

#include "base/visible.h"
#include "tests/support/suite.h"

/* The box of the table, with the third GPU the fastest. */
static const struct visible_gpu four_gpus[] = {
    { "GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1", { .bus = 0x07 }, .speed_rank = 1 },
    { "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293", { .bus = 0x0b }, .speed_rank = 1 },
    { "GPU-e429a63e-c61c-4795-b757-5132caeb8e70", { .bus = 0x48 }, .speed_rank = 0 },
    { "GPU-eee1dfbc-0a0f-6ad8-5ff6-dc942a8b9d98", { .bus = 0x4c }, .speed_rank = 1 },
};
static const struct visible_box four = { .gpus = four_gpus, .n_gpus = 4 };

/* The same with the second and fourth GPU in MIG mode, the latter without instances. */
static const struct visible_gpu mig_gpus[] = {
    { "GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1", { .bus = 0x07 } },
    { "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293", { .bus = 0x0b }, .mig_enabled = true },
    { "GPU-e429a63e-c61c-4795-b757-5132caeb8e70", { .bus = 0x48 } },
    { "GPU-eee1dfbc-0a0f-6ad8-5ff6-dc942a8b9d98", { .bus = 0x4c }, .mig_enabled = true },
};
static const struct visible_mig migs[] = {
    { "MIG-f2b5fbbd-850e-51bb-8ffa-ac9fb48126da", 1, 2, 0 },
    { "MIG-89c850dc-38e3-57df-85c7-690c186b68e9", 1, 1, 0 },
    { "MIG-89d01b1c-0f8e-5e4c-9d2d-3d1f6a0f2b11", 1, 1, 1 },
};
static const struct visible_box mixed = { mig_gpus, 4, migs, ELEMENTSOF(migs) };

static struct visible_list decide(const struct visible_box *box, const char *devices,
                                  const char *order) {
    struct visible_env env = visible_env(devices, order);
    struct visible_list list;

    ck_assert_int_eq(visible_decide(&list, box, &env), 0);
    return list;
}

/* "[0,2]", with "1/89c850dc" style for an instance of a GPU. */
static const char *show(const struct visible_list *list, const struct visible_box *box) {
    static char text[1024];
    int n = sprintf(text, "[");

    for (size_t i = 0; i < list->n_devices; i++) {
        const struct visible_device *device = &list->devices[i];

        n += sprintf(text + n, "%s%zu", i ? "," : "", device->gpu);
        if (device->mig != VISIBLE_WHOLE)
            n += sprintf(text + n, "/%.8s", box->migs[device->mig].uuid + 4);
    }
    sprintf(text + n, "]");
    return text;
}

static void expect(const struct visible_box *box, const char *devices, const char *wanted) {
    struct visible_list list = decide(box, devices, "PCI_BUS_ID");

    ck_assert_msg(strcmp(show(&list, box), wanted) == 0, "\"%s\": %s, not %s (%s)",
                  devices ? devices : "<unset>", show(&list, box), wanted, list.reason);
}

/* The table's escapes, in place. */
static const char *unescape(char *text) {
    char *to = text;

    if (strcmp(text, "<unset>") == 0)
        return NULL;
    if (strcmp(text, "<empty>") == 0)
        return "";
    for (char *from = text; *from; to++) {
        unsigned code;

        if (from[0] == '\\' && from[1] == 't') {
            *to = '\t';
            from += 2;
        } else if (sscanf(from, "\\x%2x", &code) == 1) {
            *to = (char)code;
            from += 4;
        } else
            *to = *from++;
    }
    *to = 0;
    return text;
}

START_TEST(each_row_of_the_table_holds) {
    cleanup(fclosep) FILE *table = fopen(TEST_CASES "/visible.tsv", "re");
    unsigned checked = 0, unverified = 0, prose = 0;
    char line[1024];

    ck_assert_msg(table, "cannot open %s", TEST_CASES "/visible.tsv");
    while (fgets(line, sizeof(line), table)) {
        char *field[6] = { 0 }, *rest = line;
        struct visible_list list;
        const char *env;

        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || strncmp(line, "id\t", 3) == 0)
            continue;
        for (unsigned i = 0; i < ELEMENTSOF(field) && rest; i++)
            field[i] = strsep(&rest, "\t");
        ck_assert_msg(field[4], "row %s is short", field[0]);
        if (strcmp(field[4], "unverified") == 0) {
            unverified++;
            continue;
        }
        if (strcmp(field[4], "prose") == 0) {
            prose++;
            continue;
        }
        env = unescape(field[2]);
        list = decide(&four, env, field[1]);
        ck_assert_msg(strcmp(show(&list, &four), field[3]) == 0, "row %s, \"%s\": %s, not %s",
                      field[0], env ? env : "<unset>", show(&list, &four), field[3]);
        checked++;
    }
    ck_assert_uint_eq(checked, 46);
    ck_assert_uint_eq(unverified, 6);
    ck_assert_uint_eq(prose, 3);
}
END_TEST

/*
 * Rows 19, 43, 44, 62, 63, 78: NVIDIA does not document what the driver does; base/visible.c says
 * why we do this.
 */
START_TEST(unpublished_corner_cases_are_settled) {
    struct visible_list list;

    expect(&four, "1,4,1", "[1]");
    expect(&four, "+", "[]");
    expect(&four, "0,+,1", "[0]");
    expect(&four, "GPU-9e8d35e3, GPU-e4", "[1]");
    expect(&four, " GPU-9e8d35e3", "[]");
    list = decide(&four, "1", "pci_bus_id");
    ck_assert_str_eq(show(&list, &four), "[0]");
    ck_assert_str_eq(list.warning,
                     "CUDA_DEVICE_ORDER \"pci_bus_id\" is unknown: FASTEST_FIRST is used");
}
END_TEST

START_TEST(empty_is_not_unset) {
    struct visible_list list = decide(&four, "", NULL);

    ck_assert_uint_eq(list.n_devices, 0);
    ck_assert_str_eq(list.reason, "CUDA_VISIBLE_DEVICES is empty: no device");
    list = decide(&four, NULL, NULL);
    ck_assert_str_eq(show(&list, &four), "[2,0,1,3]");
    ck_assert_str_eq(list.reason, "");
    expect(&four, NULL, "[0,1,2,3]");
}
END_TEST

START_TEST(the_order_of_the_array_does_not_matter) {
    struct visible_gpu gpus[4];
    struct visible_box box = { .gpus = gpus, .n_gpus = 4 };
    struct visible_list list;

    for (unsigned i = 0; i < 4; i++)
        gpus[i] = four_gpus[3 - i];
    list = decide(&box, "0,GPU-e4", "PCI_BUS_ID");
    ck_assert_str_eq(show(&list, &box), "[3]");
    list = decide(&box, NULL, "FASTEST_FIRST");
    ck_assert_str_eq(show(&list, &box), "[1,3,2,0]");
}
END_TEST

START_TEST(a_cut_says_where_and_why) {
    static const struct {
        const char *devices, *reason;
        size_t at;
    } rows[] = {
        { "0,2,-1,1", "item 3 (\"-1\") is negative", 4 },
        { "0,4,1", "item 2 (\"4\") is out of range", 2 },
        { "0,,1", "item 2 (\"\") is empty", 2 },
        { "abc", "item 1 (\"abc\") is not an index (UUIDs cannot be mixed with indices)", 0 },
        { "0,1,0", "item 3 (\"0\") names a device for the second time, which empties the list", 4 },
        { "GPU-e", "item 1 (\"GPU-e\") matches the UUIDs of several GPUs", 0 },
        { "GPU-12", "item 1 (\"GPU-12\") is not a GPU of this box", 0 },
        { "GPU-99,1", "item 2 (\"1\") is not a GPU UUID like the items before it", 7 },
        { "MIG-1", "item 1 (\"MIG-1\") is not a MIG device of this box", 0 },
        { "\xc3\xa9\n\"\\",
          "item 1 (\"\\xc3\\xa9\\x0a\\x22\\x5c\") is not an index (UUIDs cannot be mixed "
          "with indices)",
          0 },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct visible_list list = decide(&four, rows[i].devices, "PCI_BUS_ID");
        char wanted[256];

        snprintf(wanted, sizeof(wanted), "CUDA_VISIBLE_DEVICES: %s", rows[i].reason);
        ck_assert_str_eq(list.reason, wanted);
        ck_assert_uint_eq(list.cut_at, rows[i].at);
    }
    ck_assert_str_eq(decide(&four, "0,", NULL).reason, "");
    ck_assert_uint_eq(decide(&four, "0,1", NULL).cut_at, 3);
}
END_TEST

/* Rows 69 and 71, and the vendor's two sentences: one instance, and no whole GPU beside one. */
START_TEST(instances_are_named_by_uuid_or_path_and_come_alone) {
    expect(&mixed, "MIG-89c850dc-38e3-57df-85c7-690c186b68e9", "[1/89c850dc]");
    expect(&mixed, "MIG-f2", "[1/f2b5fbbd]");
    expect(&mixed, "MIG-89", "[]"); /* two begin so */
    expect(&mixed, "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/0", "[1/89c850dc]");
    expect(&mixed, "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/1", "[1/89d01b1c]");
    expect(&mixed, "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/2/0", "[1/f2b5fbbd]");
    expect(&mixed, "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/2/1", "[]");
    expect(&mixed, "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/02/0", "[]");
    expect(&mixed, "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293", "[]");
    expect(&mixed, "MIG-GPU-9e8d/2/0", "[]");
    expect(&mixed, "MIG-f2b5fbbd,MIG-89c850dc", "[1/f2b5fbbd]");
    expect(&mixed, "MIG-f2b5fbbd,MIG-f2b5fbbd", "[]");
    expect(&mixed, "MIG-f2b5fbbd,MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/2/0", "[]");
    expect(&mixed, "MIG-f2b5fbbd,GPU-99,0", "[1/f2b5fbbd]");
    expect(&mixed, "GPU-99,MIG-f2b5fbbd", "[0]");
    ck_assert_str_eq(decide(&mixed, "MIG-f2b5fbbd,MIG-89c850dc", NULL).reason,
                     "CUDA shows a process only one MIG device, and no whole GPU beside it: "
                     "the first of the 2 MIG devices is used");
}
END_TEST

START_TEST(a_gpu_in_mig_mode_stands_for_its_first_instance) {
    expect(&mixed, NULL, "[1/89c850dc]");
    expect(&mixed, "1", "[1/89c850dc]");
    expect(&mixed, "GPU-9e8d35e3", "[1/89c850dc]");
    expect(&mixed, "0,1,2", "[1/89c850dc]");
    expect(&mixed, "0,2", "[0,2]");
    expect(&mixed, "2,3,0", "[2]"); /* the fourth has no instance: it is no device */
    expect(&mixed, "GPU-eee", "[]");
}
END_TEST

START_TEST(instances_of_a_gpu_not_in_mig_mode_are_not_there) {
    struct visible_box box = { four_gpus, 4, migs, ELEMENTSOF(migs) };

    expect(&box, "MIG-f2b5fbbd", "[]");
    expect(&box, NULL, "[0,1,2,3]");
}
END_TEST

/* Row 79: a server started with "0,2" shows two devices, and its client counts among those. */
START_TEST(a_mask_under_a_mask_counts_what_the_first_left) {
    struct visible_list server = decide(&four, "0,2", "PCI_BUS_ID"), client;
    struct visible_gpu left[4];
    struct visible_box box = { .gpus = left, .n_gpus = server.n_devices };

    for (size_t i = 0; i < server.n_devices; i++)
        left[i] = four_gpus[server.devices[i].gpu];
    client = decide(&box, "0,2", "PCI_BUS_ID");
    ck_assert_str_eq(show(&client, &box), "[0]"); /* 2 is now out of range */
    client = decide(&box, "0,1", "PCI_BUS_ID");
    ck_assert_str_eq(show(&client, &box), "[0,1]");
    client = decide(&box, "GPU-9942,GPU-e4", "PCI_BUS_ID");
    ck_assert_str_eq(show(&client, &box), "[0,1]");
}
END_TEST

START_TEST(a_lone_gpu_may_be_called_by_the_bare_prefix) {
    struct visible_box one = { .gpus = four_gpus, .n_gpus = 1 };

    expect(&one, "GPU-", "[0]");
    expect(&one, "GPU", "[]");
}
END_TEST

START_TEST(a_box_without_devices_shows_none) {
    struct visible_box none = { 0 };

    expect(&none, NULL, "[]");
    expect(&none, "0", "[]");
    expect(&none, "GPU-", "[]");
    expect(&none, "MIG-", "[]");
}
END_TEST

START_TEST(a_broken_or_endless_box_is_refused) {
    static const struct visible_mig lost[] = { { "MIG-1", 4, 0, 0 } };
    struct visible_box box = { four_gpus, 4, lost, 1 };
    struct visible_env env = visible_env(NULL, NULL);
    struct visible_list list;

    ck_assert_int_eq(visible_decide(&list, &box, &env), -EINVAL);
    box = (struct visible_box){ .n_gpus = VISIBLE_GPUS_MAX + 1 };
    ck_assert_int_eq(visible_decide(&list, &box, &env), -E2BIG);
    box = (struct visible_box){ .n_migs = VISIBLE_MIGS_MAX + 1 };
    ck_assert_int_eq(visible_decide(&list, &box, &env), -E2BIG);
}
END_TEST

START_TEST(numbers_that_overflow_are_out_of_range) {
    expect(&four, "4294967296", "[]");
    expect(&four, "18446744073709551616", "[]");
    expect(&four, "-18446744073709551615", "[]");
    expect(&four, "18446744073709551617,0", "[]");
    expect(&four, "000000000000000000000000000000000000000001", "[1]");
    expect(&four, "99999999999999999999999999999999999999999999999999999999999", "[]");
}
END_TEST

START_TEST(a_text_ends_at_its_length_and_not_at_a_nul) {
    /* Exactly as long as its content, so that the sanitizer reports a read past its end. */
    cleanup(freep) char *text = malloc(5);
    struct visible_env env = { .devices = text, .devices_len = 5 };
    struct visible_list list;

    memcpy(text, "3,1,2", 5);
    ck_assert_int_eq(visible_decide(&list, &four, &env), 0);
    ck_assert_uint_eq(list.n_devices, 3);
    memcpy(text, "3\0,1,", 5);
    ck_assert_int_eq(visible_decide(&list, &four, &env), 0);
    ck_assert_uint_eq(list.n_devices, 2);
    memcpy(text, "GPU-9", 5);
    ck_assert_int_eq(visible_decide(&list, &four, &env), 0);
    ck_assert_uint_eq(list.n_devices, 0);
}
END_TEST

START_TEST(huge_texts_cost_one_pass) {
    size_t n = 64u << 20;
    cleanup(freep) char *text = malloc(n);
    struct visible_env env = { .devices = text, .devices_len = n };
    struct visible_list list;

    ck_assert_ptr_nonnull(text);
    memset(text, ' ', n);
    text[n - 1] = '3';
    ck_assert_int_eq(visible_decide(&list, &four, &env), 0);
    ck_assert_uint_eq(list.n_devices, 1);
    memset(text, '9', n);
    ck_assert_int_eq(visible_decide(&list, &four, &env), 0);
    ck_assert_uint_eq(list.n_devices, 0);
    memset(text, 'e', n);
    memcpy(text, "GPU-", 4);
    ck_assert_int_eq(visible_decide(&list, &four, &env), 0);
    ck_assert_uint_eq(list.n_devices, 0);
}
END_TEST

SUITE("visible", each_row_of_the_table_holds, unpublished_corner_cases_are_settled,
      empty_is_not_unset, the_order_of_the_array_does_not_matter, a_cut_says_where_and_why,
      instances_are_named_by_uuid_or_path_and_come_alone,
      a_gpu_in_mig_mode_stands_for_its_first_instance,
      instances_of_a_gpu_not_in_mig_mode_are_not_there,
      a_mask_under_a_mask_counts_what_the_first_left, a_lone_gpu_may_be_called_by_the_bare_prefix,
      a_box_without_devices_shows_none, a_broken_or_endless_box_is_refused,
      numbers_that_overflow_are_out_of_range, a_text_ends_at_its_length_and_not_at_a_nul,
      huge_texts_cost_one_pass)
