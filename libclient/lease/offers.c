/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/lease/offers.h"

#include <string.h>

#include "base/gpuid.h"
#include "libclient/lease/lease.h"

enum { ANSWER_USEC = 2000000 };

static bool is_same(const char *a, const char *b) {
    struct gpuid x, y;

    return gpuid_parse(&x, a) == 0 && gpuid_parse(&y, b) == 0 &&
           memcmp(x.uuid, y.uuid, sizeof(x.uuid)) == 0;
}

int lease_offers(struct lease_offer *offers, size_t n, struct allot_error *err) {
    cleanup(client_freep) struct client *client = NULL;
    union wire_reply reply;
    int r = client_new(&client, NULL, err);

    if (r == 0)
        r = client_connect(client, err);
    if (r == 0)
        r = client_call(client, WIRE_METHOD_GET_BOX, NULL, ANSWER_USEC, &reply, NULL, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        offers[i] = (struct lease_offer){ .device = offers[i].device };
        for (size_t d = 0; d < reply.get_box.box->n_devices; d++) {
            const struct wire_device *device = &reply.get_box.box->devices[d];

            if (!is_same(device->uuid, offers[i].device))
                continue;
            offers[i].is_ready = device->state == WIRE_DEVICE_READY;
            offers[i].free_bytes = device->free_bytes;
            offers[i].context_bytes = device->context_bytes;
        }
    }
    return r;
}
