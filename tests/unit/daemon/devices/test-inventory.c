/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/devices/inventory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/suite.h"

#define N_MAX 8

/* A sample to be changed between updates, and what the inventory told. */
struct bench {
    struct inventory *inventory;
    struct sample sample;
    struct sample_device rows[N_MAX];
    size_t n_told;
    struct {
        enum inventory_change change;
        struct gpuid id;
    } told[64];
};

static struct gpuid id_of(unsigned n, bool is_mig) {
    return (struct gpuid){ .kind = is_mig ? GPUID_MIG : GPUID_GPU, .uuid = { [0] = (uint8_t)n } };
}

static void changed(void *userdata, enum inventory_change change,
                    const struct device_facts *device) {
    struct bench *bench = userdata;

    ck_assert(bench->n_told < ELEMENTSOF(bench->told));
    bench->told[bench->n_told].change = change;
    bench->told[bench->n_told++].id = device->seen.id;
}

static struct sample_device *row(struct bench *bench, unsigned n, uint8_t bus) {
    struct sample_device *device = &bench->rows[bench->sample.n_devices++];

    *device = (struct sample_device){
        .id = id_of(n, false),
        .parent = id_of(n, false),
        .pci = { .bus = bus },
        .total_bytes = UINT64_C(40) << 30,
        .readings.has = READINGS_BIT(used_bytes) | READINGS_BIT(minor),
        .readings.minor = n,
    };
    snprintf(device->name, sizeof(device->name), "SIM %u", n);
    return device;
}

static struct sample_device *instance(struct bench *bench, unsigned n, unsigned gpu, uint8_t bus,
                                      uint32_t place) {
    struct sample_device *device = row(bench, n, bus);

    device->id = id_of(n, true);
    device->parent = id_of(gpu, false);
    device->is_mig = true;
    device->place = place;
    return device;
}

static void bench_init(struct bench *bench) {
    memset(bench, 0, sizeof(*bench));
    bench->sample.devices = bench->rows;
    ck_assert_int_eq(inventory_new(&bench->inventory, changed, bench), 0);
}

static void update(struct bench *bench) {
    bench->n_told = 0;
    bench->sample.taken_usec += 1000000;
    ck_assert_int_eq(inventory_update(bench->inventory, &bench->sample), 0);
}

static const struct device_facts *device(struct bench *bench, unsigned n) {
    struct gpuid id = id_of(n, false);
    const struct device_facts *found = inventory_find(bench->inventory, &id);

    ck_assert_ptr_nonnull(found);
    return found;
}

START_TEST(a_device_that_was_lost_before_keeps_its_number) {
    struct bench bench = { 0 };
    struct sample_device missed;

    ck_assert_int_eq(inventory_new(&bench.inventory, changed, &bench), 0);
    missed = *row(&bench, 1, 1);
    bench.sample.n_devices = 0;
    bench.sample.devices = bench.rows;
    row(&bench, 2, 2);
    ck_assert_int_eq(inventory_miss(bench.inventory, &missed), 0);
    ck_assert_int_eq(inventory_update(bench.inventory, &bench.sample), 0);
    ck_assert_int_eq(inventory_miss(bench.inventory, &bench.rows[0]), 0); /* it is there */
    ck_assert_uint_eq(inventory_count(bench.inventory), 2);
    ck_assert_int_eq(inventory_at(bench.inventory, 0)->state, DEVICE_LOST);
    ck_assert(gpuid_equal(&inventory_at(bench.inventory, 0)->seen.id, &missed.id));
    ck_assert_uint_eq(inventory_at(bench.inventory, 1)->seen.index, 1);
    ck_assert_int_eq(inventory_at(bench.inventory, 1)->state, DEVICE_READY);
    ck_assert_uint_eq(bench.n_told, 2);
    ck_assert_int_eq(bench.told[0].change, INVENTORY_LOST);

    row(&bench, 1, 1);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(inventory_update(bench.inventory, &bench.sample), 0);
    ck_assert_int_eq(inventory_at(bench.inventory, 0)->state, DEVICE_READY);
    ck_assert_uint_eq(bench.n_told, 3);
    ck_assert_int_eq(bench.told[2].change, INVENTORY_RETURNED);
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(devices_are_listed_in_bus_order_whatever_the_order_of_the_sample) {
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 0x81);
    instance(&bench, 4, 2, 0x3b, 1);
    instance(&bench, 3, 2, 0x3b, 0);
    row(&bench, 2, 0x3b)->mig_enabled = true;
    update(&bench);
    ck_assert_uint_eq(inventory_count(bench.inventory), 4);
    for (unsigned i = 0; i < 4; i++) {
        static const unsigned order[] = { 2, 3, 4, 1 }, indices[] = { 0, 0, 0, 1 };

        ck_assert_uint_eq(inventory_at(bench.inventory, i)->seen.id.uuid[0], order[i]);
        ck_assert_uint_eq(inventory_at(bench.inventory, i)->seen.index, indices[i]);
        ck_assert_int_eq(bench.told[i].change, INVENTORY_APPEARED);
        ck_assert_uint_eq(bench.told[i].id.uuid[0], order[i]);
    }
    ck_assert_ptr_null(inventory_at(bench.inventory, 4));
    ck_assert(!device_facts_is_leasable(inventory_at(bench.inventory, 0))); /* divided */
    ck_assert(device_facts_is_leasable(inventory_at(bench.inventory, 1)));
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(a_device_that_is_not_in_the_sample_is_lost_and_keeps_its_number) {
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 1);
    row(&bench, 2, 2);
    update(&bench);
    bench.rows[0] = bench.rows[1];
    bench.sample.n_devices = 1;
    update(&bench);
    ck_assert_uint_eq(bench.n_told, 1);
    ck_assert_int_eq(bench.told[0].change, INVENTORY_LOST);
    ck_assert_int_eq(device(&bench, 1)->state, DEVICE_LOST);
    ck_assert_str_eq(device(&bench, 1)->reason, "the GPU is no longer on the bus");
    ck_assert_uint_eq(device(&bench, 1)->seen.total_bytes, UINT64_C(40) << 30);
    ck_assert_uint_eq(device(&bench, 1)->seen.readings.has, 0);
    ck_assert_uint_eq(device(&bench, 2)->seen.index, 1);
    update(&bench); /* told once */
    ck_assert_uint_eq(bench.n_told, 0);
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(a_device_that_comes_back_is_trusted_after_three_good_readings) {
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 1);
    update(&bench);
    bench.rows[0].health = SAMPLE_LOST;
    snprintf(bench.rows[0].trouble, sizeof(bench.rows[0].trouble), "fallen off the bus");
    update(&bench);
    ck_assert_str_eq(device(&bench, 1)->reason, "fallen off the bus");
    bench.rows[0].health = SAMPLE_OK;
    update(&bench);
    update(&bench);
    ck_assert_uint_eq(bench.n_told, 0);
    ck_assert_int_eq(device(&bench, 1)->state, DEVICE_LOST);
    bench.rows[0].health = SAMPLE_FAILED; /* begins to count anew */
    update(&bench);
    bench.rows[0].health = SAMPLE_OK;
    update(&bench);
    update(&bench);
    ck_assert_int_eq(device(&bench, 1)->state, DEVICE_LOST);
    update(&bench);
    ck_assert_uint_eq(bench.n_told, 1);
    ck_assert_int_eq(bench.told[0].change, INVENTORY_RETURNED);
    ck_assert_int_eq(device(&bench, 1)->state, DEVICE_READY);
    ck_assert_str_eq(device(&bench, 1)->reason, "");
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(a_device_that_cannot_be_read_keeps_what_it_is_and_loses_what_it_shows) {
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 1)->readings.used_bytes = 5;
    update(&bench);
    for (int health = SAMPLE_CLOSED; health <= SAMPLE_FAILED; health++) {
        bench.rows[0].health = SAMPLE_OK;
        update(&bench);
        ck_assert(device(&bench, 1)->seen.readings.has & READINGS_BIT(used_bytes));
        bench.rows[0] = (struct sample_device){ .id = id_of(1, false), .health = health };
        update(&bench);
        ck_assert_uint_eq(bench.n_told, 0);
        ck_assert_int_eq(device(&bench, 1)->state, DEVICE_READY);
        ck_assert_uint_eq(device(&bench, 1)->seen.readings.has, 0);
        ck_assert_uint_eq(device(&bench, 1)->seen.total_bytes, UINT64_C(40) << 30);
        ck_assert_str_eq(device(&bench, 1)->seen.name, "SIM 1");
        bench.sample.n_devices = 0;
        row(&bench, 1, 1);
    }
    update(&bench);
    inventory_stale(bench.inventory);
    ck_assert_uint_eq(device(&bench, 1)->seen.readings.has, 0);
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(a_device_is_ready_when_no_reason_drains_it) {
    struct gpuid id = id_of(1, false), nobody = id_of(9, false);
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 1)->mig_enabled = true;
    instance(&bench, 2, 1, 1, 0);
    update(&bench);
    bench.n_told = 0;
    ck_assert_int_eq(inventory_drain(bench.inventory, &nobody, DRAIN_ADMIN, "x"), -ENOENT);
    ck_assert_int_eq(inventory_drain(bench.inventory, &id, DRAIN_ADMIN, "new fan"), 0);
    ck_assert_int_eq(inventory_drain(bench.inventory, &id, DRAIN_HEALTH, "Xid 79"), 0);
    ck_assert_uint_eq(bench.n_told, 2); /* the GPU and its instance, each once */
    ck_assert_int_eq(inventory_at(bench.inventory, 1)->state, DEVICE_DRAINING);
    ck_assert_str_eq(device(&bench, 1)->reason, "new fan; Xid 79");
    ck_assert_int_eq(inventory_resume(bench.inventory, &id, DRAIN_ADMIN), 0);
    ck_assert_str_eq(device(&bench, 1)->reason, "Xid 79");
    ck_assert_uint_eq(bench.n_told, 2);

    instance(&bench, 3, 1, 1, 1); /* made meanwhile: it is drained like its GPU */
    update(&bench);
    ck_assert_int_eq(inventory_at(bench.inventory, 2)->state, DEVICE_DRAINING);
    bench.n_told = 0;
    ck_assert_int_eq(inventory_resume(bench.inventory, &id, DRAIN_HEALTH), 0);
    ck_assert_uint_eq(bench.n_told, 3);
    ck_assert_int_eq(bench.told[2].change, INVENTORY_RESUMED);
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(a_lost_device_that_is_drained_comes_back_drained) {
    struct gpuid id = id_of(1, false);
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 1);
    update(&bench);
    bench.rows[0].health = SAMPLE_LOST;
    update(&bench);
    bench.n_told = 0;
    ck_assert_int_eq(inventory_drain(bench.inventory, &id, DRAIN_HEALTH, "Xid 79"), 0);
    ck_assert_int_eq(device(&bench, 1)->state, DEVICE_LOST);
    bench.rows[0].health = SAMPLE_OK;
    for (int i = 0; i < 3; i++)
        update(&bench);
    ck_assert_int_eq(device(&bench, 1)->state, DEVICE_DRAINING);
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(changes_that_matter_to_leases_are_told) {
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 1);
    update(&bench);
    bench.rows[0].readings.used_bytes = 1;
    bench.rows[0].readings.temperature_celsius = 80;
    update(&bench);
    ck_assert_uint_eq(bench.n_told, 0);
    bench.rows[0].reserved_bytes = 1 << 20;
    update(&bench);
    ck_assert_uint_eq(bench.n_told, 1);
    ck_assert_int_eq(bench.told[0].change, INVENTORY_CHANGED);
    bench.rows[0].n_links = 1;
    bench.rows[0].links[0].lanes = 4;
    update(&bench);
    ck_assert_uint_eq(bench.n_told, 1);
    bench.rows[0].links[0].lanes = 12;
    update(&bench);
    ck_assert_uint_eq(bench.n_told, 1);
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(instances_that_are_gone_say_so) {
    struct gpuid id = id_of(2, true);
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 1)->mig_enabled = true;
    instance(&bench, 2, 1, 1, 0);
    update(&bench);
    bench.sample.n_devices = 1;
    instance(&bench, 3, 1, 1, 0);
    update(&bench);
    ck_assert_str_eq(inventory_find(bench.inventory, &id)->reason, "the instance is gone");
    inventory_free(bench.inventory);
}
END_TEST

START_TEST(people_name_devices_in_several_ways) {
    static const struct {
        const char *text;
        int r;
        unsigned n;
    } cases[] = {
        { "0", 0, 1 },
        { "1", 0, 2 },
        { "2", -ENOENT, 0 },
        { "1:0", 0, 3 },
        { "1:1", 0, 4 },
        { "1:2", -ENOENT, 0 },
        { "3b:00", 0, 1 },
        { "0000:3B:00.0", 0, 1 },
        { "00000000:81:00.0", 0, 2 },
        { "0000:99:00.0", -ENOENT, 0 },
        { "GPU-01000000-0000-0000-0000-000000000000", 0, 1 },
        { "gpu-01", 0, 1 },
        { "GPU-", -ENOTUNIQ, 0 },
        { "MIG-03", 0, 3 },
        { "MIG-05", -ENOENT, 0 },
        { "", -ENOENT, 0 },
        { "-1", -ENOENT, 0 },
        { " 1", -ENOENT, 0 },
        { "1 ", -ENOENT, 0 },
        { "1:", -ENOENT, 0 },
        { ":1", -ENOENT, 0 },
        { "99999999999999999999", -ENOENT, 0 },
        { "GPU-01000000-0000-0000-0000-000000000000-more", -ENOENT, 0 },
    };
    const struct device_facts *found;
    struct bench bench;

    bench_init(&bench);
    row(&bench, 1, 0x3b);
    row(&bench, 2, 0x81)->mig_enabled = true;
    instance(&bench, 3, 2, 0x81, 0);
    instance(&bench, 4, 2, 0x81, 1);
    update(&bench);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        int r = inventory_resolve(bench.inventory, cases[i].text, &found);

        ck_assert_msg(r == cases[i].r, "\"%s\": %d", cases[i].text, r);
        if (r == 0)
            ck_assert_msg(found->seen.id.uuid[0] == cases[i].n, "\"%s\"", cases[i].text);
    }
    inventory_free(bench.inventory);
}
END_TEST

SUITE("inventory", devices_are_listed_in_bus_order_whatever_the_order_of_the_sample,
      a_device_that_is_not_in_the_sample_is_lost_and_keeps_its_number,
      a_device_that_was_lost_before_keeps_its_number,
      a_device_that_comes_back_is_trusted_after_three_good_readings,
      a_device_that_cannot_be_read_keeps_what_it_is_and_loses_what_it_shows,
      a_device_is_ready_when_no_reason_drains_it, a_lost_device_that_is_drained_comes_back_drained,
      changes_that_matter_to_leases_are_told, instances_that_are_gone_say_so,
      people_name_devices_in_several_ways)
