/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/place/order_fixture.h"

#include <stdbool.h>
#include <string.h>

#include "base/random.h"

uint32_t order_fixture_below(uint64_t *random, uint32_t n) {
    return (uint32_t)(random_next(random) % n);
}

void order_fixture_settle(struct order_fixture *world, uint32_t n) {
    uint32_t n_before = 0, n_after = 0;

    memset(world->n_users, 0, sizeof(world->n_users));
    for (uint32_t job = 0; job < n; job++) {
        world->first_before[job] = n_before;
        world->makes[job] = job;
        for (uint32_t i = 0; i < world->n_inputs[job]; i++) {
            world->before[n_before++] = world->inputs[job][i];
            world->n_users[world->inputs[job][i]]++;
        }
    }
    for (uint32_t job = 0; job < n; job++) {
        world->first_after[job] = n_after;
        for (uint32_t later = job + 1; later < n; later++)
            for (uint32_t i = 0; i < world->n_inputs[later]; i++)
                if (world->inputs[later][i] == job)
                    world->after[n_after++] = later;
    }
    world->first_before[n] = n_before;
    world->first_after[n] = n_after;
    world->makes[n] = n;
    world->problem = (struct order_problem){
        .n_jobs = n,
        .n_buffers = n,
        .before = { world->first_before, world->before },
        .after = { world->first_after, world->after },
        .makes = { world->makes, world->makes }, /* job i makes buffer i: its row is where it is */
        .uses = { world->first_before, world->before },
        .bytes = world->bytes,
        .n_users = world->n_users,
    };
}

void order_fixture_random(struct order_fixture *world, uint64_t *random, uint32_t n) {
    for (uint32_t job = 0; job < n; job++) {
        world->bytes[job] = 1 + order_fixture_below(random, 100);
        world->n_inputs[job] = 0;
        for (uint32_t i = 0; i < ORDER_FIXTURE_INPUTS && job > 0; i++) {
            uint32_t input = order_fixture_below(random, job);
            bool is_new = order_fixture_below(random, 2) == 0;

            for (uint32_t k = 0; k < world->n_inputs[job]; k++)
                is_new = is_new && world->inputs[job][k] != input;
            if (is_new)
                world->inputs[job][world->n_inputs[job]++] = input;
        }
    }
    order_fixture_settle(world, n);
}
