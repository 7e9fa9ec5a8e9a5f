/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Releasing: what a process held when it ended, charged until NVML no longer shows it.
 */
#include "daemon/broker/internal.h"

#include <assert.h>
#include <stdlib.h>

struct releasing *releasing_new(uint32_t n_parts) {
    struct releasing *releasing =
        calloc(1, sizeof(*releasing) + n_parts * sizeof(releasing->parts[0]));

    return releasing;
}

void releasing_enter(struct broker *broker, struct releasing *releasing) {
    for (uint32_t i = 0; i < releasing->n_parts; i++)
        releasing->parts[i].book->releasing_bytes += releasing->parts[i].bytes;
    list_append(&broker->releasing, &releasing->in_broker);
    emit_releasing(broker, releasing);
}

struct releasing *releasing_find(const struct broker *broker, uint64_t lease,
                                 const struct process_id *process) {
    struct releasing *releasing;

    list_foreach (releasing, &broker->releasing, in_broker) {
        if (releasing->lease == lease && process_id_equal(&releasing->process, process))
            return releasing;
    }
    return NULL;
}

void releasing_lower(struct broker *broker, struct releasing *releasing, uint32_t part,
                     uint64_t bytes) {
    struct lease *lease;
    unsigned share;

    assert(bytes <= releasing->parts[part].bytes);
    if (bytes == releasing->parts[part].bytes)
        return;
    releasing->parts[part].book->releasing_bytes -= releasing->parts[part].bytes - bytes;
    releasing->parts[part].bytes = bytes;
    queue_touch(broker, releasing->parts[part].book->slot);
    lease = broker_lease(broker, releasing->lease);
    if (lease && lease->n_growths > 0 &&
        lease_share(lease, &releasing->parts[part].book->device.seen.id, &share))
        growth_retry_siblings(broker, lease, share);
}

void releasing_free(struct broker *broker, struct releasing *releasing) {
    struct lease *lease;

    if (!releasing)
        return;
    if (list_is_linked(&releasing->in_broker)) {
        for (uint32_t i = 0; i < releasing->n_parts; i++)
            releasing_lower(broker, releasing, i, 0);
        list_remove(&releasing->in_broker);
        lease = broker_lease(broker, releasing->lease);
        /* Both records have the same key. */
        if (lease && lease->owner && process_id_equal(&lease->owner->process, &releasing->process))
            emit_owner(broker, lease);
        else
            emit_holder_gone(broker, releasing->lease, &releasing->process);
    }
    free(releasing);
}

/* One struct releasing for a process and lease: take over what it left behind when it went before.
 */
void releasing_merge(struct broker *broker, struct releasing *releasing, struct releasing *former) {
    for (uint32_t i = 0; i < former->n_parts; i++) {
        uint64_t bytes = former->parts[i].bytes;
        uint32_t at = 0;

        while (at < releasing->n_parts && releasing->parts[at].book != former->parts[i].book)
            at++;
        if (at == releasing->n_parts) {
            releasing->parts[at].book = former->parts[i].book;
            releasing->parts[releasing->n_parts++].bytes = 0;
        }
        releasing->parts[at].bytes += bytes;
        former->parts[i].book->releasing_bytes -= bytes;
    }
    list_remove(&former->in_broker);
    free(former);
}
