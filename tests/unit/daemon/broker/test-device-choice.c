/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices a request may have, and which of them it gets. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/rank_tree.h"
#include "daemon/broker/device_choice.h"
#include "daemon/broker/visibility.h"
#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

#define N_GPUS 8

static struct book books[N_GPUS + 2], *by_slot[N_GPUS + 2];

static void make_books(size_t n) {
    memset(books, 0, sizeof(books));
    for (size_t i = 0; i < n; i++) {
        books[i].slot = (unsigned)i;
        books[i].device = fixture_make((unsigned)i, 40);
        books[i].usable_bytes = 40 * GIB;
        gpuid_format(&books[i].device.seen.id, books[i].name);
        by_slot[i] = &books[i];
    }
}

static void connect(unsigned a, unsigned b, enum sample_path path, uint32_t lanes) {
    struct sample_device *seen = &books[a].device.seen;

    seen->links[seen->n_links++] =
        (struct sample_link){ .remote = fixture_gpu(b), .path = path, .lanes = lanes };
}

/* ---- Placement ---------------------------------------------------------------------------------
 */

static const uint16_t in_order[] = { 0, 1, 2, 3, 4, 5, 6, 7 };

static struct device_choice place(uint32_t n_wanted, enum choice choose, const uint64_t *gib,
                                  uint32_t n) {
    uint64_t free_bytes[BOOKS_MAX] = { 0 };
    struct device_choice choice;
    struct device_choice_input input = {
        .n_wanted = n_wanted,
        .choose = choose,
        .order = in_order,
        .n_order = n,
        .free_bytes = free_bytes,
        .books = by_slot,
    };

    for (uint32_t i = 0; i < n; i++)
        free_bytes[i] = gib[i] * GIB;
    device_choice_decide(&choice, &input);
    return choice;
}

START_TEST(pack_takes_the_fullest_and_spread_the_emptiest) {
    static const struct {
        enum choice choose;
        uint64_t gib[4];
        uint32_t n_wanted;
        uint8_t chosen[2];
    } rows[] = {
        { CHOICE_PACK, { 40, 10, 20, 10 }, 1, { 1 } },
        { CHOICE_PACK, { 40, 10, 20, 10 }, 2, { 1, 3 } },
        { CHOICE_SPREAD, { 40, 10, 20, 40 }, 1, { 0 } },
        { CHOICE_SPREAD, { 40, 10, 20, 40 }, 2, { 0, 3 } },
        { CHOICE_LINKS, { 40, 10, 20, 40 }, 1, { 1 } },
    };

    make_books(4);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct device_choice got = place(rows[i].n_wanted, rows[i].choose, rows[i].gib, 4);

        ck_assert_uint_eq(got.n_chosen, rows[i].n_wanted);
        ck_assert_mem_eq(got.chosen, rows[i].chosen, rows[i].n_wanted);
        ck_assert_str_ne(got.why, "");
    }
    ck_assert_uint_eq(place(5, CHOICE_PACK, rows[0].gib, 4).n_chosen, 0);
}
END_TEST

START_TEST(links_finds_the_clique) {
    static const uint64_t all[] = { 10, 40, 40, 40, 40, 40, 40, 40 };
    struct device_choice got;

    /* Pairs 0-5 and 2-7 by NVLink, 2-7 by more lanes; all others over the host. */
    make_books(N_GPUS);
    for (unsigned a = 0; a < N_GPUS; a++)
        for (unsigned b = 0; b < N_GPUS; b++) {
            if (a == b)
                continue;
            if ((a == 0 && b == 5) || (a == 5 && b == 0))
                connect(a, b, SAMPLE_PATH_NVLINK, 2);
            else if ((a == 2 && b == 7) || (a == 7 && b == 2))
                connect(a, b, SAMPLE_PATH_NVLINK, 4);
            else
                connect(a, b, a / 4 == b / 4 ? SAMPLE_PATH_NODE : SAMPLE_PATH_SYSTEM, 0);
        }
    got = place(2, CHOICE_LINKS, all, N_GPUS);
    ck_assert_uint_eq(got.n_chosen, 2);
    ck_assert((got.chosen[0] == 2 && got.chosen[1] == 7) ||
              (got.chosen[0] == 7 && got.chosen[1] == 2));
    ck_assert_ptr_nonnull(strstr(got.why, "NVLink"));

    /* No clique of three: one NUMA node is the next best, and the explanation does not boast. */
    got = place(3, CHOICE_LINKS, all, N_GPUS);
    ck_assert_uint_eq(got.n_chosen, 3);
    ck_assert_uint_eq(got.chosen[0] / 4, got.chosen[1] / 4);
    ck_assert_uint_eq(got.chosen[0] / 4, got.chosen[2] / 4);
    ck_assert_ptr_nonnull(strstr(got.why, "no NVLink"));
}
END_TEST

START_TEST(several_devices_are_never_mig_instances) {
    static const uint64_t gib[] = { 40, 5, 40, 5 };

    make_books(4);
    books[1].device.seen.is_mig = books[3].device.seen.is_mig = true;
    ck_assert_uint_eq(place(3, CHOICE_PACK, gib, 4).n_chosen, 0);
    ck_assert_uint_eq(place(2, CHOICE_PACK, gib, 4).n_chosen, 2);
    /* A whole GPU where one fits, else an instance. */
    ck_assert_uint_eq(place(1, CHOICE_PACK, gib, 4).chosen[0], 0);
    books[0].device.seen.is_mig = books[2].device.seen.is_mig = true;
    ck_assert_uint_eq(place(1, CHOICE_PACK, gib, 4).chosen[0], 1);
}
END_TEST

START_TEST(two_gpus_on_a_divided_box_are_denied) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct device_facts gpu = fixture_make(1, 40), mig;
    struct request request = fixture_fixed(2, 1);
    struct verdict verdict;

    gpu.seen.mig_enabled = true;
    fixture_device(fixture, &gpu);
    for (unsigned i = 0; i < 3; i++) {
        mig = fixture_make_mig(1, i, 10);
        fixture_device(fixture, &mig);
    }
    verdict = fixture_ask(fixture, 10, 1000, &request, 1);
    ck_assert_int_eq(verdict.refusal, REFUSAL_NO_DEVICE);
    ck_assert_ptr_nonnull(strstr(verdict.reason, "MIG"));
    request.n_gpus = 0;
    request.devices = (const char *[]){ "1:0", "1:1" };
    request.n_devices = 2;
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &request, 1).refusal, REFUSAL_DENIED);
    request.devices = (const char *[]){ "1" };
    request.n_devices = 1;
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &request, 1).refusal, REFUSAL_NO_DEVICE);
    request.devices = (const char *[]){ "1:2" };
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &request, 1).kind, VERDICT_GRANT);
}
END_TEST

/* ---- Visibility --------------------------------------------------------------------------------
 */

START_TEST(what_is_seen_is_request_and_policy_and_health) {
    static const struct {
        const char *cuda, *names[2], *allowed[2];
        unsigned draining; /* bits */
        const char *order; /* of slots */
        enum refusal refusal;
    } rows[] = {
        { NULL, { NULL }, { NULL }, 0, "0123", 0 },
        { "2,0", { NULL }, { NULL }, 0, "20", 0 },
        { "2,0", { NULL }, { NULL }, 1 << 2, "0", 0 },
        { "2,9,0", { NULL }, { NULL }, 0, "2", 0 },
        { "", { NULL }, { NULL }, 0, "", REFUSAL_NO_DEVICE },
        { NULL, { NULL }, { "1", "3" }, 0, "13", 0 },
        { "0,2", { NULL }, { "1", "3" }, 0, "", REFUSAL_DENIED },
        { "GPU-01", { NULL }, { NULL }, 0, "1", 0 },
        { NULL, { "3" }, { NULL }, 0, "0123", 0 },
        { NULL, { "3" }, { "1" }, 0, "", REFUSAL_DENIED },
        { NULL, { "3" }, { NULL }, 1 << 3, "", REFUSAL_DRAINING },
        { NULL, { "3", "3" }, { NULL }, 0, "", REFUSAL_DENIED },
        { NULL, { "GPU-0" }, { NULL }, 0, "", REFUSAL_NO_DEVICE },
        { NULL, { "0000:02:00.0" }, { NULL }, 0, "0123", 0 },
        { "1", { "2" }, { NULL }, 0, "", REFUSAL_NO_DEVICE },
        { NULL, { "\x1b[31m" }, { NULL }, 0, "", REFUSAL_NO_DEVICE },
        { NULL, { NULL }, { NULL }, 15, "", REFUSAL_DRAINING },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct policy_rules rules = { .devices = { .all = !rows[i].allowed[0] } };
        struct visibility_request input = { .cuda_visible_devices = rows[i].cuda,
                                            .devices = rows[i].names };
        struct visibility seen;
        struct verdict verdict = { 0 };
        char order[8] = "";
        int r;

        make_books(4);
        for (unsigned d = 0; d < 4; d++)
            if (rows[i].draining >> d & 1)
                books[d].device.state = DEVICE_DRAINING;
        rules.devices.names = (char **)(uintptr_t)rows[i].allowed;
        while (rules.devices.n_names < 2 && rows[i].allowed[rules.devices.n_names])
            rules.devices.n_names++;
        while (input.n_devices < 2 && rows[i].names[input.n_devices])
            input.n_devices++;
        r = visibility_decide(&seen, &verdict, by_slot, 4, &rules, &input);
        ck_assert_msg((r < 0) == (rows[i].refusal != 0), "row %zu: %s", i, verdict.reason);
        if (r < 0) {
            ck_assert_msg(verdict.refusal == rows[i].refusal, "row %zu: %s", i, verdict.reason);
            ck_assert_ptr_null(strchr(verdict.reason, '\x1b'));
            continue;
        }
        for (uint32_t k = 0; k < seen.n_order; k++)
            order[k] = (char)('0' + seen.order[k]);
        ck_assert_msg(strcmp(order, rows[i].order) == 0, "row %zu: %s", i, order);
    }
}
END_TEST

/* ---- Rules -------------------------------------------------------------------------------------
 */

START_TEST(the_users_own_section_comes_before_groups_and_defaults) {
    struct policy_section sections[] = {
        { POLICY_GROUP,
          50,
          { .has = POLICY_HAS(priority) | POLICY_HAS(max_leases),
            .priority = 5,
            .max_leases = 7 } },
        { POLICY_GROUP, 51, { .has = POLICY_HAS(priority), .priority = 9 } },
        { POLICY_USER, 1000, { .has = POLICY_HAS(priority), .priority = 1 } },
    };
    struct policy policy;
    struct policy_rules rules;

    policy_init(&policy);
    policy.defaults.has = POLICY_HAS(quota_devices);
    policy.defaults.quota_devices = 3;
    policy.sections = sections;
    policy.n_sections = ELEMENTSOF(sections);
    policy_rules_for(&rules, &policy, 1000, (gid_t[]){ 51, 50 }, 2);
    ck_assert_int_eq(rules.priority, 1);
    ck_assert_int_eq(rules.priority_max, 1);
    ck_assert_uint_eq(rules.max_leases, 7);
    ck_assert_uint_eq(rules.quota_devices, 3);
    ck_assert_uint_eq(rules.quota_bytes, UNITS_FOREVER);
    ck_assert(rules.devices.all);
    policy_rules_for(&rules, &policy, 1001, (gid_t[]){ 51, 50 }, 2);
    ck_assert_int_eq(rules.priority, 5);
    policy_rules_for(&rules, &policy, 1001, NULL, 0);
    ck_assert_int_eq(rules.priority, 0);
    ck_assert_uint_eq(rules.max_leases, 64);
}
END_TEST

START_TEST(names_mean_what_people_write) {
    struct gpuid gpu = fixture_gpu(2);
    struct policy_identity identity = { .id = gpu, .pci = { .bus = 2 }, .index = 2 };
    struct policy_identity mig = {
        .id = fixture_mig(2, 1), .pci = { .bus = 2 }, .index = 2, .parent = &gpu, .place = 1
    };
    char *parents[] = { (char *)(uintptr_t) "2" };

    ck_assert(policy_name_fits("2", &identity));
    ck_assert(policy_name_fits("GPU-02", &identity));
    ck_assert(policy_name_fits("gpu-02", &identity));
    ck_assert(policy_name_fits("00000000:02:00.0", &identity));
    ck_assert(policy_name_fits("02:00", &identity));
    ck_assert(!policy_name_fits("2:0", &identity));
    ck_assert(!policy_name_fits("GPU-", &identity));
    ck_assert(!policy_name_fits("GPU-03", &identity));
    ck_assert(!policy_name_fits("", &identity));
    ck_assert(!policy_name_fits("2 ", &identity));
    ck_assert(!policy_name_fits("99999999999999999999", &identity));
    ck_assert(!policy_name_fits("2", &mig));
    ck_assert(policy_name_fits("2:1", &mig));
    ck_assert(!policy_name_fits("2:0", &mig));
    ck_assert(policy_name_fits("MIG-0201", &mig));
    ck_assert(policy_names_fit(&(struct policy_names){ .names = parents, .n_names = 1 }, &mig));
}
END_TEST

/* ---- Order -------------------------------------------------------------------------------------
 */

START_TEST(ranks_agree_with_an_array) {
    enum { N = 200 };
    static struct rank_tree_node nodes[N];
    struct rank_tree_node *root = NULL;
    uint64_t random = 3;

    for (unsigned step = 0; step < 4000; step++) {
        struct rank_tree_node *node = &nodes[random_next(&random) % N];
        uint32_t n = 0;

        if (node->n > 0) {
            rank_tree_remove(&root, node);
        } else {
            node->key = (int64_t)(random_next(&random) % 20) - 10;
            node->tie = (uint64_t)(node - nodes);
            rank_tree_insert(&root, node);
        }
        for (unsigned i = 0; i < N; i++)
            n += nodes[i].n > 0;
        ck_assert_uint_eq(rank_tree_count(root), n);
        if (node->n > 0) {
            uint32_t before = 0, not_after = 0;

            for (unsigned i = 0; i < N; i++) {
                before +=
                    nodes[i].n > 0 && (nodes[i].key < node->key ||
                                       (nodes[i].key == node->key && nodes[i].tie < node->tie));
                not_after += nodes[i].n > 0 && nodes[i].key <= node->key;
            }
            ck_assert_uint_eq(rank_tree_rank(node), before);
            ck_assert_ptr_eq(rank_tree_at(root, before), node);
            ck_assert_uint_eq(rank_tree_rank_of(root, node->key), not_after);
        }
    }
}
END_TEST

SUITE("device-choice", pack_takes_the_fullest_and_spread_the_emptiest, links_finds_the_clique,
      several_devices_are_never_mig_instances, two_gpus_on_a_divided_box_are_denied,
      what_is_seen_is_request_and_policy_and_health,
      the_users_own_section_comes_before_groups_and_defaults, names_mean_what_people_write,
      ranks_agree_with_an_array)
