/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/gpuid.h"
#include "tests/support/suite.h"

START_TEST(bus_ids_are_read_as_nvml_cuda_and_people_write_them) {
    static const struct {
        const char *text;
        struct pci_id id;
    } rows[] = {
        { "00000000:3B:00.0", { 0, 0x3b, 0, 0 } },
        { "0000:3b:00.0", { 0, 0x3b, 0, 0 } },
        { "3b:00.0", { 0, 0x3b, 0, 0 } },
        { "3B:00", { 0, 0x3b, 0, 0 } },
        { "0001:3b:1f", { 1, 0x3b, 0x1f, 0 } },
        { "0:0:0.0", { 0, 0, 0, 0 } },
        { "ffffffff:ff:1f.7", { ~0u, 255, 31, 7 } },
        { "00010000:0A:1D.3", { 65536, 10, 29, 3 } },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct pci_id id;

        ck_assert_msg(pci_id_parse(&id, rows[i].text) == 0, "%s", rows[i].text);
        ck_assert_msg(pci_id_compare(&id, &rows[i].id) == 0, "%s", rows[i].text);
    }
}
END_TEST

START_TEST(what_is_no_bus_id_is_refused) {
    static const char *const texts[] = {
        "",
        ":",
        "3b",
        "3b:",
        ":3b:00.0",
        "3b:00.",
        "3b:00.8",
        "3b:20.0",
        "100:00.0",
        "000000000:3b:00.0",
        "0x3b:00.0",
        " 3b:00.0",
        "3b:00.0 ",
        "3b:00.0:1",
        "0:0:0:0.0",
        "-1:00.0",
        "+3b:00.0",
        "3b:00.00",
        "3g:00.0",
        "3b.00.0",
        "0000:3b:00.0.0",
        "GPU-3b:00.0",
    };
    struct pci_id id = { 1, 2, 3, 4 };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        ck_assert_msg(pci_id_parse(&id, texts[i]) == -EINVAL, "%s", texts[i]);
    ck_assert_int_eq(id.domain, 1); /* untouched on failure */
}
END_TEST

START_TEST(bus_ids_are_written_in_each_form) {
    struct pci_id id = { 0, 0x3b, 0x0a, 0 }, far = { 0x12345678, 0xff, 0x1f, 7 };
    char text[PCI_ID_TEXT_SIZE];

    ck_assert_str_eq(pci_id_format(&id, PCI_ID_NVML, text), "00000000:3B:0A.0");
    ck_assert_str_eq(pci_id_format(&id, PCI_ID_NVML_LEGACY, text), "0000:3B:0A.0");
    ck_assert_str_eq(pci_id_format(&id, PCI_ID_CUDA, text), "0000:3B:0A.0");
    ck_assert_str_eq(pci_id_format(&id, PCI_ID_SYSFS, text), "0000:3b:0a.0");
    ck_assert_str_eq(pci_id_format(&far, PCI_ID_NVML, text), "12345678:FF:1F.7");
    ck_assert_str_eq(pci_id_format(&far, PCI_ID_CUDA, text), "12345678:FF:1F.7");
    ck_assert_str_eq(pci_id_format(&far, PCI_ID_NVML_LEGACY, text), "5678:FF:1F.7");
    ck_assert_uint_lt(strlen(text), 16); /* fits NVML's legacy field */
}
END_TEST

START_TEST(bus_order_is_by_domain_bus_device_function) {
    static const struct pci_id ids[] = {
        { 0, 0, 0, 0 }, { 0, 0, 0, 1 }, { 0, 0, 1, 0 }, { 0, 1, 0, 0 }, { 1, 0, 0, 0 }, { ~0u },
    };

    for (size_t i = 0; i < ELEMENTSOF(ids); i++)
        for (size_t j = 0; j < ELEMENTSOF(ids); j++) {
            int order = pci_id_compare(&ids[i], &ids[j]);

            ck_assert_int_eq((order > 0) - (order < 0), (i > j) - (i < j));
        }
}
END_TEST

START_TEST(uuids_of_gpus_and_instances_survive_a_round_trip) {
    static const struct {
        const char *text;
        enum gpuid_kind kind;
        uint32_t gi, ci;
    } rows[] = {
        { "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293", GPUID_GPU, 0, 0 },
        { "MIG-89c850dc-38e3-57df-85c7-690c186b68e9", GPUID_MIG, 0, 0 },
        { "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/0", GPUID_MIG_PATH, 1, 0 },
        { "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/4294967295/4294967295", GPUID_MIG_PATH,
          UINT32_MAX, UINT32_MAX },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        char text[GPUID_TEXT_SIZE];
        struct gpuid id;

        ck_assert_int_eq(gpuid_parse(&id, rows[i].text), 0);
        ck_assert_int_eq(id.kind, rows[i].kind);
        ck_assert_uint_eq(id.gpu_instance, rows[i].gi);
        ck_assert_uint_eq(id.compute_instance, rows[i].ci);
        ck_assert_str_eq(gpuid_format(&id, text), rows[i].text);
    }
}
END_TEST

START_TEST(uuid_bytes_are_in_the_order_of_the_text) {
    struct gpuid id, upper;

    ck_assert_int_eq(gpuid_parse(&id, "GPU-00112233-4455-6677-8899-aabbccddeeff"), 0);
    for (unsigned i = 0; i < 16; i++)
        ck_assert_uint_eq(id.uuid[i], i * 0x11);
    ck_assert_int_eq(gpuid_parse(&upper, "GPU-00112233-4455-6677-8899-AABBCCDDEEFF"), 0);
    ck_assert(gpuid_equal(&id, &upper));
    upper.kind = GPUID_MIG;
    ck_assert(!gpuid_equal(&id, &upper));
}
END_TEST

START_TEST(what_is_no_uuid_is_refused) {
    static const char *const texts[] = {
        "",
        "GPU-",
        "9e8d35e3-a134-0fdd-0e01-23811fdbd293",
        "gpu-9e8d35e3-a134-0fdd-0e01-23811fdbd293",
        "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd29",
        "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd2933",
        "GPU-9e8d35e3a-134-0fdd-0e01-23811fdbd293",
        "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd29g",
        "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/0",
        "MIG-89c850dc-38e3-57df-85c7-690c186b68e9/1/0",
        "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293",
        "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1",
        "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/",
        "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293//0",
        "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/0/2",
        "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/1/4294967296",
        "MIG-GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293/-1/0",
    };
    struct gpuid id;

    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        ck_assert_msg(gpuid_parse(&id, texts[i]) == -EINVAL, "%s", texts[i]);
}
END_TEST

SUITE("gpuid", bus_ids_are_read_as_nvml_cuda_and_people_write_them, what_is_no_bus_id_is_refused,
      bus_ids_are_written_in_each_form, bus_order_is_by_domain_bus_device_function,
      uuids_of_gpus_and_instances_survive_a_round_trip, uuid_bytes_are_in_the_order_of_the_text,
      what_is_no_uuid_is_refused)
