/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/source/box_view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/gpuid.h"
#include "ctl/source/nvml_view.h"

/* A daemon that does not answer for so long counts as absent; the driver is read instead. */
#define ANSWER_USEC (5 * UINT64_C(1000000))

static int ask_daemon(struct box_view *box_view, const struct gpuctl *ctl, struct client *client,
                      struct allot_error *err) {
    cleanup(client_freep) struct client *own = NULL;
    union wire_reply reply;
    int r;

    if (!client) {
        r = client_new(&own, ctl->socket, err);
        if (r < 0)
            return r;
        client = own;
    }
    r = client_connect(client, err);
    if (r < 0)
        return r;
    r = client_call(client, WIRE_METHOD_GET_BOX, NULL, ANSWER_USEC, &reply, NULL, err);
    if (r < 0)
        return r;
    box_view->box = *reply.get_box.box;
    box_view->client = TAKE(own);
    return 0;
}

int box_view_take(struct box_view *box_view, const struct gpuctl *ctl, struct client *client,
                  struct allot_error *err) {
    struct allot_error no_daemon = {}, no_driver = {};
    int r;

    *box_view = (struct box_view){};
    box_view->view = (struct view){ .box = &box_view->box, .is_managed = true };
    r = ask_daemon(box_view, ctl, client, &no_daemon);
    if (r < 0) {
        r = nvml_view_take(&box_view->nvml, ctl->driver, &no_driver);
        if (r < 0)
            return error_set(err, -EHOSTDOWN, "%s; the driver cannot be read either: %s",
                             no_daemon.text, no_driver.text);
        box_view->box = box_view->nvml->box;
        box_view->view.is_managed = false;
        snprintf(box_view->trouble, sizeof(box_view->trouble), "%s", no_daemon.text);
        box_view->view.trouble = box_view->trouble;
    }
    box_view->whole = box_view->box;
    box_view->view.whole = &box_view->whole;
    box_view->view.now_usec = clock_usec(CLOCK_REALTIME);
    return 0;
}

void box_view_done(struct box_view *box_view) {
    for (size_t i = 0; i < ELEMENTSOF(box_view->kept); i++)
        free(box_view->kept[i]);
    client_free(box_view->client);
    snapshot_free(box_view->nvml);
    *box_view = (struct box_view){};
}

static bool device_is(const struct wire_device *device, const char *text, size_t n,
                      bool *ret_exactly) {
    char number[24], bus[PCI_ID_TEXT_SIZE];
    struct pci_id wanted, own;

    snprintf(number, sizeof(number), "%" PRIu64, device->index);
    *ret_exactly = true;
    if (n == strlen(number) && !strncmp(number, text, n))
        return true;
    if (n < sizeof(bus)) {
        memcpy(bus, text, n);
        bus[n] = '\0';
        if (device->kind == WIRE_DEVICE_GPU && pci_id_parse(&wanted, bus) == 0 &&
            pci_id_parse(&own, device->bus_id) == 0 && pci_id_compare(&wanted, &own) == 0)
            return true;
    }
    *ret_exactly = n == strlen(device->uuid);
    return n >= 5 && !strncasecmp(device->uuid, text, n);
}

static int find_device(const struct wire_box *box, const char *text, size_t n,
                       const struct wire_device **ret, struct allot_error *err) {
    const struct wire_device *found = NULL;
    bool several = false;

    for (size_t i = 0; i < box->n_devices; i++) {
        bool exactly;

        if (!device_is(&box->devices[i], text, n, &exactly))
            continue;
        if (exactly) {
            *ret = &box->devices[i];
            return 0;
        }
        several = found;
        found = &box->devices[i];
    }
    if (several)
        return error_set(err, -EINVAL, "several UUIDs begin with \"%.*s\": give more digits",
                         (int)n, text);
    if (!found)
        return error_set(err, -ENOENT,
                         "there is no device \"%.*s\": name it by index, bus id or UUID, as "
                         "\"gpuctl devices\" shows them",
                         (int)n, text);
    *ret = found;
    return 0;
}

static bool is_kept(const struct wire_box *box, const char *uuid) {
    for (size_t i = 0; i < box->n_devices; i++)
        if (!strcmp(box->devices[i].uuid, uuid))
            return true;
    return false;
}

static bool is_user(const char *wanted, const char *name, uint64_t uid) {
    char number[24];

    snprintf(number, sizeof(number), "%" PRIu64, uid);
    return !wanted || (name && !strcmp(wanted, name)) || !strcmp(wanted, number);
}

static int keep_devices(struct box_view *box_view, const char *list, struct allot_error *err) {
    const struct wire_box *box = &box_view->box;
    struct wire_device *devices;
    size_t n = 0;

    devices = calloc(box->n_devices + 1, sizeof(*devices));
    if (!devices)
        return error_set(err, -ENOMEM, "out of memory");
    box_view->kept[0] = devices;
    for (const char *item = list; *item;) {
        const size_t length = strcspn(item, ",");
        const struct wire_device *device = NULL;
        bool twice = false;
        int r;

        r = find_device(box, item, length, &device, err);
        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++)
            twice |= !strcmp(devices[i].uuid, device->uuid);
        if (!twice)
            devices[n++] = *device;
        item += length + (item[length] == ',');
    }
    if (n == 0)
        return error_set(err, -ENOENT, "no device is named: -i 0,1 or -i GPU-1cb7");
    box_view->box.devices = devices;
    box_view->box.n_devices = n;
    return 0;
}

/* Whether `text` names devices of the whole box, but none that the filter keeps. */
static bool is_of_others(const struct box_view *box_view, const char *text) {
    bool names_any = false;

    for (size_t i = 0; i < box_view->whole.n_devices; i++) {
        const char *uuid = box_view->whole.devices[i].uuid;

        if (!*uuid || !strstr(text, uuid))
            continue;
        if (is_kept(&box_view->box, uuid))
            return false;
        names_any = true;
    }
    return names_any;
}

/*
 * The interface does not say which devices would satisfy a waiting request. A growth request names
 * its device in `asked`; a request for a single named device names it in `reason`. All others may
 * be placed on any device.
 */
static bool waits_for_others(const struct box_view *box_view, const struct wire_waiter *waiter) {
    static const char one[] = "1 named device ";

    return is_of_others(box_view, waiter->asked) ||
           (!strncmp(waiter->asked, one, sizeof(one) - 1) &&
            is_of_others(box_view, waiter->reason));
}

int box_view_filter(struct box_view *box_view, const struct box_view_filter *filter,
                    struct allot_error *err) {
    struct wire_box *box = &box_view->box;
    struct wire_process *processes;
    struct wire_waiter *queue;
    struct wire_lease *leases;
    const char **notices;
    size_t n;
    int r;

    if (filter->devices) {
        r = keep_devices(box_view, filter->devices, err);
        if (r < 0)
            return r;
    }
    if (!filter->devices && !filter->user)
        return 0;

    box_view->kept[1] = leases = calloc(box->n_leases + 1, sizeof(*leases));
    box_view->kept[2] = processes = calloc(box->n_processes + 1, sizeof(*processes));
    box_view->kept[3] = queue = calloc(box->n_queue + 1, sizeof(*queue));
    box_view->kept[4] = notices = calloc(box->n_notices + 1, sizeof(*notices));
    if (!leases || !processes || !queue || !notices)
        return error_set(err, -ENOMEM, "out of memory");

    n = 0;
    for (size_t i = 0; i < box->n_leases; i++) {
        const struct wire_lease *lease = &box->leases[i];
        bool here = false;

        for (size_t share = 0; share < lease->n_shares; share++)
            here |= is_kept(box, lease->shares[share].device);
        if (here && is_user(filter->user, lease->user, lease->uid))
            leases[n++] = *lease;
    }
    box->leases = leases;
    box->n_leases = n;

    n = 0;
    for (size_t i = 0; i < box->n_processes; i++) {
        const struct wire_process *process = &box->processes[i];

        if (is_kept(box, process->device) &&
            (!filter->user ||
             is_user(filter->user, process->user,
                     process->uid.has ? (uint64_t)process->uid.value : UINT64_MAX)))
            processes[n++] = *process;
    }
    box->processes = processes;
    box->n_processes = n;

    n = 0;
    for (size_t i = 0; i < box->n_queue; i++)
        if (is_user(filter->user, box->queue[i].user, box->queue[i].uid) &&
            !waits_for_others(box_view, &box->queue[i]))
            queue[n++] = box->queue[i];
    box->queue = queue;
    box->n_queue = n;

    n = 0;
    for (size_t i = 0; i < box->n_notices; i++)
        if (!is_of_others(box_view, box->notices[i]))
            notices[n++] = box->notices[i];
    box->notices = notices;
    box->n_notices = n;
    return 0;
}

/* ---- Users ----------------------------------------------------------------------------------- */

/* Parsed here: gpuctl is linked statically, so it cannot ask a directory service. */
static bool is_in_passwd(const char *name) {
    FILE *from = fopen("/etc/passwd", "re");
    const size_t length = strlen(name);
    cleanup(freep) char *line = NULL;
    bool found = false;
    size_t size = 0;

    if (!from)
        return false;
    while (!found && getline(&line, &size, from) > 0)
        found = !strncmp(line, name, length) && line[length] == ':';
    fclose(from);
    return found;
}

int box_view_check_user(const struct box_view *box_view, const char *user,
                        struct allot_error *err) {
    const struct wire_box *box = &box_view->whole;

    if (*user && strspn(user, "0123456789") == strlen(user))
        return 0;
    for (size_t i = 0; i < box->n_leases; i++)
        if (is_user(user, box->leases[i].user, box->leases[i].uid))
            return 0;
    for (size_t i = 0; i < box->n_processes; i++)
        if (is_user(user, box->processes[i].user, UINT64_MAX))
            return 0;
    for (size_t i = 0; i < box->n_queue; i++)
        if (is_user(user, box->queue[i].user, box->queue[i].uid))
            return 0;
    if (*user && !strchr(user, ':') && is_in_passwd(user))
        return 0;
    return error_set(err, -ENOENT,
                     "there is no user \"%s\" in /etc/passwd or with a lease, process or waiting "
                     "request here: name a user of a directory service by uid",
                     user);
}
