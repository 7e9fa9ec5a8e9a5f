/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sim/box/box.h"
#include "sim/box/mig.h"
#include "sim/box/spec.h"
#include "tests/support/suite.h"

static struct box_file *build(const struct box_spec *spec) {
    struct box_file *file = malloc(sizeof(*file));
    struct allot_error err = { 0 };

    ck_assert_msg(spec_build(spec, file, &err) == 0, "%s", err.text);
    return file;
}

START_TEST(one_model_for_all_or_a_list_with_its_last_repeated) {
    struct box_file *file = build(&(struct box_spec){ .n_gpus = 3, .models = "h100-80g,t4-16g" });

    ck_assert_str_eq(file->gpu[0].model, "h100-80g");
    ck_assert_str_eq(file->gpu[1].model, "t4-16g");
    ck_assert_str_eq(file->gpu[2].model, "t4-16g");
    free(file);
    file = build(&(struct box_spec){ .models = "t4-16g" });
    ck_assert_uint_eq(file->n_gpus, 4);
    free(file);
}
END_TEST

START_TEST(gpus_are_numbered_in_bus_order_whatever_the_order_of_the_list) {
    struct box_file *file = build(&(struct box_spec){ .models = "t4-16g,a100-40g,h100-80g",
                                                      .buses = "0000:c1:00.0,01:00.0,0000:3b:00.0",
                                                      .minors = "0,1,2" });

    ck_assert_str_eq(file->gpu[0].model, "a100-40g");
    ck_assert_str_eq(file->gpu[1].model, "h100-80g");
    ck_assert_str_eq(file->gpu[2].model, "t4-16g");
    ck_assert_uint_eq(file->gpu[0].minor, 1);
    free(file);
}
END_TEST

START_TEST(memory_that_is_ordered_leaves_whole_granules) {
    struct box_file *file = build(&(struct box_spec){ .n_gpus = 1, .memories = "8191M" });

    ck_assert_uint_eq(file->gpu[0].total_bytes, UINT64_C(8191) << 20);
    ck_assert_uint_eq((file->gpu[0].total_bytes - file->gpu[0].reserved_bytes) % BOX_GRANULE, 0);
    free(file);
}
END_TEST

START_TEST(nvlink_joins_what_has_it) {
    struct box_file *file =
        build(&(struct box_spec){ .models = "a100-40g,a100-40g,h100-80g,t4-16g" });

    ck_assert_uint_eq(file->gpu[0].nvlinks[1], 12);
    ck_assert_uint_eq(file->gpu[2].nvlinks[0], 12);
    ck_assert_uint_eq(file->gpu[3].nvlinks[0], 0);
    ck_assert_uint_eq(file->gpu[0].nvlinks[0], 0);
    free(file);
    file = build(&(struct box_spec){ .n_gpus = 4, .nvlink = "pairs" });
    ck_assert_uint_eq(file->gpu[0].nvlinks[1], 12);
    ck_assert_uint_eq(file->gpu[1].nvlinks[2], 0);
    free(file);
}
END_TEST

START_TEST(gpus_behind_one_switch_are_on_one_numa_node) {
    for (unsigned n = 1; n <= BOX_MAX_GPUS; n++) {
        struct box_file *file = build(&(struct box_spec){ .n_gpus = n });

        for (unsigned i = 0; i < n; i++)
            for (unsigned j = 0; j < i; j++)
                if (file->gpu[i].pcie_switch == file->gpu[j].pcie_switch)
                    ck_assert_int_eq(file->gpu[i].numa_node, file->gpu[j].numa_node);
        ck_assert_int_eq(file->gpu[n - 1].numa_node, n > 2);
        free(file);
    }
}
END_TEST

START_TEST(uplinks_are_shared_as_asked) {
    struct box_file *file = build(&(struct box_spec){ .n_gpus = 4, .uplink = "one" });

    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(file->gpu[i].pcie_switch, 1);
    ck_assert(!file->no_p2p);
    free(file);
    file = build(&(struct box_spec){ .n_gpus = 4, .uplink = "own", .no_p2p = true });
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(file->gpu[i].pcie_switch, i + 1);
    ck_assert(file->no_p2p);
    free(file);
}
END_TEST

static void refuse(struct box_spec spec, const char *word) {
    struct box_file *file = malloc(sizeof(*file));
    struct allot_error err = { 0 };

    ck_assert_int_eq(spec_build(&spec, file, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, word) != NULL, "\"%s\" lacks \"%s\"", err.text, word);
    free(file);
}

START_TEST(what_cannot_be_is_refused_in_words) {
    refuse((struct box_spec){ .models = "gtx1" }, "gtx1");
    refuse((struct box_spec){ .uplink = "two" }, "two");
    refuse((struct box_spec){ .n_gpus = 17 }, "at most 16");
    refuse((struct box_spec){ .n_gpus = 1, .models = "t4-16g,a100-40g" }, "a list of 2 for 1");
    refuse((struct box_spec){ .n_gpus = 1, .memories = "1M" }, "1M");
    refuse((struct box_spec){ .n_gpus = 1, .memories = "9999T" }, "9999T");
    refuse((struct box_spec){ .n_gpus = 1, .uuids = "GPU-1" }, "GPU-1");
    refuse((struct box_spec){ .n_gpus = 2, .buses = "3b:00.0,3b:00.0" }, "two GPUs on PCI bus");
    refuse((struct box_spec){ .n_gpus = 2, .minors = "1" }, "minor number 1");
    refuse((struct box_spec){ .n_gpus = 2, .nvlink = "ring" }, "ring");
    refuse((struct box_spec){ .n_gpus = 1, .driver = "300" }, "300");
    refuse((struct box_spec){ .n_gpus = 1, .models = "t4-16g", .mig = "0:1g.5gb" }, "no MIG");
    refuse((struct box_spec){ .n_gpus = 1, .mig = "0:9g.1gb" }, "9g.1gb");
    refuse((struct box_spec){ .n_gpus = 1, .mig = "1:1g.5gb" }, "GPU:PROFILE");
    refuse((struct box_spec){ .n_gpus = 1, .mig = "0:7g.40gb+1g.5gb" }, "does not fit");
    refuse((struct box_spec){ .n_gpus = 1, .mig = "0:4x1c.3g.20gb" }, "more compute slices");
}
END_TEST

START_TEST(instances_take_the_ids_and_places_that_the_driver_gives) {
    struct box_file *file =
        build(&(struct box_spec){ .n_gpus = 1, .mig = "0:4g.20gb+2g.10gb+1g.5gb" });
    const struct box_gpu *gpu = &file->gpu[0];
    const struct sim_model *model = model_find("a100-40g");
    char name[32];

    ck_assert_uint_eq(gpu->mig_enabled, 1);
    ck_assert_uint_eq(gpu->gi[0].id, 1);
    ck_assert_uint_eq(gpu->gi[1].id, 5);
    ck_assert_uint_eq(gpu->gi[1].placement_start, 4);
    ck_assert_uint_eq(gpu->gi[2].id, 13);
    ck_assert_uint_eq(mig_room(gpu, model_find_profile(model, "1g.5gb", 0)), 0);
    mig_device_name(model, &gpu->gi[1], &gpu->gi[1].ci[0], name, sizeof(name));
    ck_assert_str_eq(name, "2g.10gb");
    ck_assert_int_eq(strncmp(gpu->gi[0].ci[0].uuid, "MIG-", 4), 0);
    ck_assert_str_ne(gpu->gi[0].ci[0].uuid, gpu->gi[1].ci[0].uuid);
    free(file);
}
END_TEST

START_TEST(every_profile_fits_as_often_as_the_vendor_says) {
    for (size_t m = 0; m < n_sim_models; m++)
        for (size_t p = 0; p < sim_models[m].n_mig_profiles; p++) {
            const struct sim_mig_profile *profile = &sim_models[m].mig_profiles[p];
            struct box_gpu gpu = { 0 };
            unsigned slot, n = 0;

            ck_assert_uint_eq(mig_room(&gpu, profile), profile->max_instances);
            while (mig_gi_new(&gpu, profile, -1, &slot) == 0)
                n++;
            ck_assert_uint_eq(n, profile->max_instances);
            ck_assert_uint_eq(profile->memory_bytes % BOX_GRANULE, 0);
            ck_assert_uint_le(n * profile->memory_bytes,
                              sim_models[m].total_bytes - sim_models[m].reserved_bytes);
        }
}
END_TEST

START_TEST(an_instance_goes_only_when_it_is_empty) {
    struct box_file *file = build(&(struct box_spec){ .n_gpus = 1, .mig = "0:3g.20gb" });
    struct box_gpu *gpu = &file->gpu[0];

    ck_assert_int_eq(mig_find_gi(gpu, 1), 0);
    ck_assert_int_eq(mig_find_gi(gpu, 2), -1);
    ck_assert_int_eq(mig_gi_free(gpu, 0), -EBUSY);
    mig_ci_free(gpu, 0, 0);
    ck_assert_int_eq(mig_find_ci(&gpu->gi[0], 0), -1);
    ck_assert_int_eq(mig_gi_free(gpu, 0), 0);
    ck_assert_int_eq(mig_find_gi(gpu, 1), -1);
    free(file);
}
END_TEST

START_TEST(a_driver_is_named_by_its_branch) {
    struct box_file *file = build(&(struct box_spec){ .n_gpus = 1, .driver = "535" });

    ck_assert_str_eq(file->driver_version, "535.309.01");
    ck_assert_uint_eq(file->cuda_driver_version, 12020);
    free(file);
}
END_TEST

SUITE("spec", one_model_for_all_or_a_list_with_its_last_repeated,
      gpus_are_numbered_in_bus_order_whatever_the_order_of_the_list,
      memory_that_is_ordered_leaves_whole_granules, nvlink_joins_what_has_it,
      gpus_behind_one_switch_are_on_one_numa_node, uplinks_are_shared_as_asked,
      what_cannot_be_is_refused_in_words, instances_take_the_ids_and_places_that_the_driver_gives,
      every_profile_fits_as_often_as_the_vendor_says, an_instance_goes_only_when_it_is_empty,
      a_driver_is_named_by_its_branch)
