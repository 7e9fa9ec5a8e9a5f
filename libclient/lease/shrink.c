/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/lease/shrink.h"

#include <errno.h>

#include "libclient/lease/lease.h"

/*
 * Freed bytes are free whatever the daemon says, so the caller does not wait long for its answer:
 * where none comes, the process attaches anew, with what it then holds.
 */
static int shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                  const struct allot_lease_patience *patience, struct allot_error *err) {
    uint64_t until = lease_deadline(patience->hangs_usec ? patience->hangs_usec : LEASE_HANGS_USEC);
    struct lease_wait wait = { .away_usec = until,
                               .answer_usec = until,
                               .userdata = patience->userdata,
                               .cancel_fd = patience->cancel_fd,
                               .go_on = patience->go_on };
    struct wire_shrink call = { .bytes = bytes / WIRE_GRANULE * WIRE_GRANULE };
    union wire_reply reply;
    char name[96];
    int r;

    r = lease_name_device(lease, device, name, err);
    if (r < 0)
        return r;
    call.lease = lease->id;
    call.device = name;
    r = lease_call(lease, WIRE_METHOD_SHRINK, &call, &wait, &reply, err);
    return r == -ERESTART ? 0 : r;
}

int lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                 const struct allot_lease_patience *patience, struct allot_error *err) {
    int r = shrink(lease, device, bytes, patience, err);

    if (r < 0) {
        pthread_mutex_lock(&lease->lock);
        if (lease->state == LEASE_ENDED) /* it holds nothing that could be given back */
            r = 0;
        pthread_mutex_unlock(&lease->lock);
    }
    return r;
}

int allot_lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                       struct allot_error *err) {
    const struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;

    if (!lease)
        return lease_check_process(lease, err);
    return shrink(lease, device, bytes, &patience, err);
}
