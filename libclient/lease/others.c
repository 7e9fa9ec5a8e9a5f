/* SPDX-License-Identifier: Apache-2.0 */
/* Which other leases hold memory of a device: for the error of a program that did not get enough.
 */
#include "libclient/lease/others.h"

#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "libclient/lease/lease.h"

/* Names beyond this many are only counted, and long ones cut, so that there is room for all. */
enum { NAMED_MAX = 3, ANSWER_USEC = 2000000 };

static uint64_t has_bytes(const struct wire_lease *lease, const char *device) {
    uint64_t bytes = 0;

    for (size_t i = 0; i < lease->n_shares; i++)
        if (strcmp(lease->shares[i].device, device) == 0)
            bytes += lease->shares[i].held_bytes > lease->shares[i].guaranteed_bytes
                         ? lease->shares[i].held_bytes
                         : lease->shares[i].guaranteed_bytes;
    return bytes;
}

/* Find the leases that hold the most, the largest first; returns how many hold any. */
static size_t find_most(const struct wire_box *box, uint64_t own, const char *device,
                        const struct wire_lease *most[static NAMED_MAX]) {
    size_t n = 0;

    for (size_t i = 0; i < box->n_leases; i++) {
        const struct wire_lease *lease = &box->leases[i];
        uint64_t has = lease->id == own ? 0 : has_bytes(lease, device);
        size_t at = n < NAMED_MAX ? n : NAMED_MAX;

        if (has == 0)
            continue;
        n++;
        for (; at > 0 && has_bytes(most[at - 1], device) < has; at--)
            if (at < NAMED_MAX)
                most[at] = most[at - 1];
        if (at < NAMED_MAX)
            most[at] = lease;
    }
    return n;
}

static size_t describe(const struct wire_box *box, uint64_t own, const char *device, char *text,
                       size_t size) {
    const struct wire_lease *most[NAMED_MAX];
    size_t n = find_most(box, own, device, most), used = 0;
    char bytes[UNITS_TEXT_SIZE];

    for (size_t i = 0; i < n && i < NAMED_MAX && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%slease %ju of %.16s%s%.24s has %s",
                                 used ? ", " : "", (uintmax_t)most[i]->id, most[i]->user,
                                 most[i]->name ? ", " : "", most[i]->name ? most[i]->name : "",
                                 units_format_bytes(has_bytes(most[i], device), bytes));
    if (n > NAMED_MAX && used < size)
        snprintf(text + used, size - used, ", and %zu more", n - NAMED_MAX);
    return n;
}

size_t lease_others(const struct allot_lease *lease, const char *device, char *text, size_t size) {
    cleanup(client_freep) struct client *client = NULL;
    union wire_reply reply;

    text[0] = '\0';
    if (lease_check_process(lease, NULL) < 0 || client_new(&client, lease->path, NULL) < 0 ||
        client_connect(client, NULL) < 0 ||
        client_call(client, WIRE_METHOD_GET_BOX, NULL, ANSWER_USEC, &reply, NULL, NULL) < 0)
        return 0;
    return describe(reply.get_box.box, lease->id, device, text, size);
}
