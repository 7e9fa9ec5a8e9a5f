/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/selftest/tier_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl/selftest/row.h"
#include "wire/client.h"
#include "wire/snapshot.h"

#define CALL_USEC  (10 * UINT64_C(1000000))
#define WATCH_USEC (15 * UINT64_C(1000000)) /* some samples; one a second is usual */
#define NODES_MAX  64

static const struct wire_box *get_box(struct client **client, union wire_reply *reply,
                                      struct allot_error *err) {
    int r = *client ? 0 : client_new(client, NULL, err);

    if (r == 0)
        r = client_connect(*client, err);
    if (r == 0)
        r = client_call(*client, WIRE_METHOD_GET_BOX, NULL, CALL_USEC, reply, NULL, err);
    return r == 0 ? reply->get_box.box : NULL;
}

bool tier_rows_read(struct tier_rows *ret) {
    cleanup(client_freep) struct client *client = NULL;
    const char *number = getenv("ALLOT_LEASE");
    struct allot_error err = { .text = "allotd does not list the lease of this process" };
    union wire_reply reply;
    const struct wire_box *box = get_box(&client, &reply, &err);
    const struct wire_lease *lease;

    *ret = (struct tier_rows){ .lease = number ? strtoull(number, NULL, 10) : 0 };
    lease = box ? snapshot_find_lease(box, ret->lease) : NULL;
    if (!lease || lease->n_shares == 0) {
        row_print(ROW_FAILED, "lease", "see journalctl -u allotd for the end of the lease", "%s",
                  err.text);
        return false;
    }
    ret->limit_bytes = lease->shares[0].limit_bytes;
    for (size_t i = 0; i < lease->n_tiers; i++) {
        ret->has_driver_limit |= lease->tiers[i] == 1;
        ret->has_device_filter |= lease->tiers[i] == 2;
    }
    return true;
}

/* Whether a card of the lease has this minor number, or is on the GPU that has it. */
static bool is_leased(const struct wire_box *box, const struct wire_lease *lease, int minor) {
    for (size_t i = 0; i < lease->n_shares; i++) {
        const struct wire_device *d = snapshot_find_device(box, lease->shares[i].device);
        const struct wire_device *gpu = d && d->parent ? snapshot_find_device(box, d->parent) : d;

        if (!gpu || !gpu->minor.has || gpu->minor.value == minor)
            return true; /* not known: not tried */
    }
    return false;
}

void tier_rows_try_nodes(const struct tier_rows *rows) {
    cleanup(client_freep) struct client *client = NULL;
    struct allot_error err = { .text = "allotd does not know the lease" };
    union wire_reply reply;
    const struct wire_box *box = get_box(&client, &reply, &err);
    const struct wire_lease *lease = box ? snapshot_find_lease(box, rows->lease) : NULL;
    unsigned n_refused = 0, n_open = 0;

    for (int minor = 0; rows->has_device_filter && lease && minor < NODES_MAX; minor++) {
        cleanup(closep) int fd = -1;
        struct stat st;
        char path[32];

        snprintf(path, sizeof(path), "/dev/nvidia%d", minor);
        /* Not by access(): the filter refuses that, too. */
        if (is_leased(box, lease, minor) || stat(path, &st) < 0)
            continue;
        fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 && (errno == EPERM || errno == EACCES))
            n_refused++;
        else
            n_open++;
    }
    if (!rows->has_device_filter)
        row_print(ROW_SKIPPED, "tier 2: device nodes", NULL,
                  "not in force for this lease: \"gpuctl doctor\" says why");
    else if (!lease)
        row_print(ROW_FAILED, "tier 2: device nodes", "journalctl -u allotd says more", "%s",
                  err.text);
    else if (n_open > 0)
        row_print(ROW_FAILED, "tier 2: device nodes", "send the transcript, with uname -r",
                  "%u nodes of other cards were not refused", n_open);
    else if (n_refused > 0)
        row_print(ROW_PASSED, "tier 2: device nodes", NULL, "%u nodes of other cards are refused",
                  n_refused);
    else
        row_print(ROW_SKIPPED, "tier 2: device nodes", NULL, "there is no other card to try");
}

void tier_rows_try_watch(const struct tier_rows *rows) {
    const uint64_t from = clock_usec(CLOCK_MONOTONIC);
    const uint64_t pid = (uint64_t)getpid();
    cleanup(client_freep) struct client *client = NULL;
    struct allot_error err = { .text = "" };
    char took[ROW_TIME_SIZE];

    while (clock_usec(CLOCK_MONOTONIC) - from < WATCH_USEC) {
        union wire_reply reply;
        const struct wire_box *box = get_box(&client, &reply, &err);

        for (size_t i = 0; box && i < box->n_processes; i++) {
            const struct wire_process *p = &box->processes[i];

            if ((p->pid != pid &&
                 !(p->namespace_pid.has && p->namespace_pid.value == (int64_t)pid)) ||
                !p->lease.has || (uint64_t)p->lease.value != rows->lease)
                continue;
            row_print(ROW_PASSED, "tier 5: watch", NULL, "saw this process in its lease after %s",
                      row_time((clock_usec(CLOCK_MONOTONIC) - from) * 1000, took));
            return;
        }
        usleep(50000);
    }
    row_print(ROW_FAILED, "tier 5: watch",
              "check that nvidia-smi lists processes; in a container that may need the host's pids",
              "did not see this process within 15 s%s%s", *err.text ? ": " : "", err.text);
}
