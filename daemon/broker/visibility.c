/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request can say in two ways which devices it wants: by names, all of which are meant, and by
 * CUDA_VISIBLE_DEVICES, which is read as the driver would read it on this box (base/visible.h):
 * over every device that is present, drained ones too, so that an index means the same card
 * whatever its health. Policy and health are applied afterwards.
 */
#include "daemon/broker/visibility.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/visible.h"

struct policy_identity visibility_identity(const struct book *book) {
    const struct sample_device *seen = &book->device.seen;

    return (struct policy_identity){
        .id = seen->id,
        .pci = seen->pci,
        .index = seen->index,
        .parent = seen->is_mig ? &seen->parent : NULL,
        .place = seen->place,
    };
}

/* Quote foreign text in a reason: shortened, and without control sequences for a terminal. */
static const char *quoted(const char *text, char ret[static 64]) {
    size_t n = 0;

    for (; text[n] && n < 60; n++)
        ret[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    strcpy(ret + n, text[n] ? "..." : "");
    return ret;
}

static const char *why_not_ready(const struct book *book) {
    return book->device.reason[0] ? book->device.reason
                                  : device_facts_state_name(book->device.state);
}

/* One name: exactly one device that this user may see and that is ready. */
static int resolve(struct visibility *ret, struct verdict *verdict, struct book *const *books,
                   size_t n_books, const struct policy_rules *rules, const char *name) {
    const struct book *found = NULL;
    struct policy_identity identity;
    char text[64];

    for (size_t i = 0; i < n_books; i++) {
        identity = visibility_identity(books[i]);
        if (!policy_name_fits(name, &identity))
            continue;
        if (found)
            return verdict_refuse(
                verdict, REFUSAL_NO_DEVICE, NULL,
                "%s matches more than one device of this box; write more of its UUID",
                quoted(name, text));
        found = books[i];
    }
    if (!found)
        return verdict_refuse(verdict, REFUSAL_NO_DEVICE, NULL,
                              "this box has no device %s; `gpuctl devices` lists its devices",
                              quoted(name, text));

    identity = visibility_identity(found);
    if (!policy_names_fit(&rules->devices, &identity))
        return verdict_refuse(verdict, REFUSAL_DENIED, found,
                              "the administrator's rules do not let you use %s", found->name);
    if (found->device.state == DEVICE_LOST)
        return verdict_refuse(verdict, REFUSAL_NO_DEVICE, found, "%s is lost: %s", found->name,
                              why_not_ready(found));
    if (found->device.state == DEVICE_DRAINING)
        return verdict_refuse(verdict, REFUSAL_DRAINING, found, "%s takes no new leases: %s",
                              found->name, why_not_ready(found));
    if (!device_facts_is_leasable(&found->device))
        return verdict_refuse(verdict, REFUSAL_NO_DEVICE, found,
                              "%s is divided into MIG instances; name one of them", found->name);
    for (uint32_t i = 0; i < ret->n_named; i++)
        if (ret->named[i] == found->slot)
            return verdict_refuse(verdict, REFUSAL_DENIED, found, "%s is named twice", found->name);
    if (ret->n_named == BOOKS_SHARES_MAX)
        return verdict_refuse(verdict, REFUSAL_DENIED, NULL, "a lease has at most %d devices",
                              BOOKS_SHARES_MAX);
    ret->named[ret->n_named++] = (uint8_t)found->slot;
    return 0;
}

/* Slots of what a CUDA program would see, in its order. */
static int read_environment(struct visibility *ret, uint16_t *slots, uint32_t *ret_n,
                            struct book *const *books, size_t n_books,
                            const struct visibility_request *request) {
    struct visible_gpu gpus[BOOKS_MAX];
    struct visible_mig migs[BOOKS_MAX];
    uint16_t gpu_slots[BOOKS_MAX], mig_slots[BOOKS_MAX];
    struct visible_box box = { .gpus = gpus, .migs = migs };
    struct visible_env env = visible_env(request->cuda_visible_devices, request->cuda_device_order);
    struct visible_list list;
    int r;

    for (size_t i = 0; i < n_books; i++) {
        const struct sample_device *seen = &books[i]->device.seen;
        uint32_t faster = 0;

        if (seen->is_mig || books[i]->device.state == DEVICE_LOST)
            continue;
        /* The driver does not say how it ranks devices: capability, then memory, is close. */
        for (size_t j = 0; j < n_books; j++) {
            const struct sample_device *other = &books[j]->device.seen;

            if (!other->is_mig && (other->readings.capability > seen->readings.capability ||
                                   (other->readings.capability == seen->readings.capability &&
                                    other->total_bytes > seen->total_bytes)))
                faster++;
        }
        gpu_slots[box.n_gpus] = (uint16_t)i;
        gpus[box.n_gpus++] = (struct visible_gpu){
            .uuid = books[i]->name,
            .pci = seen->pci,
            .speed_rank = faster,
            .mig_enabled = seen->mig_enabled,
        };
    }
    for (size_t i = 0; i < n_books; i++) {
        const struct sample_device *seen = &books[i]->device.seen;

        if (!seen->is_mig || books[i]->device.state == DEVICE_LOST)
            continue;
        for (size_t j = 0; j < box.n_gpus; j++)
            if (gpuid_equal(&books[gpu_slots[j]]->device.seen.id, &seen->parent)) {
                mig_slots[box.n_migs] = (uint16_t)i;
                migs[box.n_migs++] = (struct visible_mig){
                    .uuid = books[i]->name,
                    .gpu = j,
                    .gpu_instance = seen->gpu_instance,
                    .compute_instance = seen->compute_instance,
                };
                break;
            }
    }

    r = visible_decide(&list, &box, &env);
    if (r < 0)
        return r;
    for (size_t i = 0; i < list.n_devices; i++)
        slots[i] = list.devices[i].mig == VISIBLE_WHOLE ? gpu_slots[list.devices[i].gpu]
                                                        : mig_slots[list.devices[i].mig];
    *ret_n = (uint32_t)list.n_devices;
    snprintf(ret->note, sizeof(ret->note), "%s", list.reason);
    return 0;
}

/* Every device in bus order, the instances of a GPU in theirs. */
static uint32_t bus_order(uint16_t *slots, struct book *const *books, size_t n_books) {
    for (size_t i = 0; i < n_books; i++) {
        const struct sample_device *mine = &books[i]->device.seen;
        size_t at = i;

        for (; at > 0; at--) {
            const struct sample_device *other = &books[slots[at - 1]]->device.seen;

            if (other->index < mine->index ||
                (other->index == mine->index && other->place <= mine->place))
                break;
            slots[at] = slots[at - 1];
        }
        slots[at] = (uint16_t)i;
    }
    return (uint32_t)n_books;
}

int visibility_decide(struct visibility *ret, struct verdict *ret_verdict,
                      struct book *const *books, size_t n_books, const struct policy_rules *rules,
                      const struct visibility_request *request) {
    uint16_t slots[BOOKS_MAX];
    uint32_t n_slots = 0, n_forbidden = 0;
    const struct book *unhealthy = NULL;

    *ret = (struct visibility){ 0 };
    for (size_t i = 0; i < request->n_devices; i++) {
        int r = resolve(ret, ret_verdict, books, n_books, rules, request->devices[i]);

        if (r < 0)
            return r;
    }
    if (ret->n_named > 1)
        for (uint32_t i = 0; i < ret->n_named; i++)
            if (books[ret->named[i]]->device.seen.is_mig)
                return verdict_refuse(
                    ret_verdict, REFUSAL_DENIED, books[ret->named[i]],
                    "%s is a MIG instance, and a process sees one instance and no GPU "
                    "beside it; ask for it alone",
                    books[ret->named[i]]->name);

    if (request->cuda_visible_devices) {
        if (read_environment(ret, slots, &n_slots, books, n_books, request) < 0)
            return verdict_refuse(
                ret_verdict, REFUSAL_NO_DEVICE, NULL,
                "the devices of this box contradict each other: an instance has no GPU");
    } else {
        n_slots = bus_order(slots, books, n_books);
    }

    for (uint32_t i = 0; i < n_slots; i++) {
        const struct book *book = books[slots[i]];
        struct policy_identity identity = visibility_identity(book);

        if (!policy_names_fit(&rules->devices, &identity)) {
            n_forbidden++;
        } else if (book->device.state != DEVICE_READY) {
            /* A GPU that is partitioned is no device, drained or not. */
            if (!book->device.seen.mig_enabled || book->device.seen.is_mig) {
                ret->n_unhealthy++;
                if (!unhealthy || book->device.state == DEVICE_DRAINING)
                    unhealthy = book;
            }
        } else if (device_facts_is_leasable(&book->device)) {
            slots_add(&ret->candidates, book->slot);
            ret->order[ret->n_order++] = slots[i];
        }
    }

    for (uint32_t i = 0; i < ret->n_named; i++)
        if (!slots_has(&ret->candidates, ret->named[i]))
            return verdict_refuse(ret_verdict, REFUSAL_NO_DEVICE, books[ret->named[i]],
                                  "CUDA_VISIBLE_DEVICES leaves out %s, which the request names",
                                  books[ret->named[i]]->name);
    if (ret->n_order > 0)
        return 0;

    if (unhealthy && unhealthy->device.state == DEVICE_DRAINING)
        return verdict_refuse(ret_verdict, REFUSAL_DRAINING, unhealthy,
                              "no device that you may use takes new leases; %s: %s",
                              unhealthy->name, why_not_ready(unhealthy));
    if (unhealthy)
        return verdict_refuse(ret_verdict, REFUSAL_NO_DEVICE, unhealthy,
                              "no device that you may use is available; %s: %s", unhealthy->name,
                              why_not_ready(unhealthy));
    if (n_forbidden > 0)
        return verdict_refuse(
            ret_verdict, REFUSAL_DENIED, NULL,
            "the administrator's rules let you use none of the %u devices in the request",
            n_forbidden);
    if (request->cuda_visible_devices)
        return verdict_refuse(ret_verdict, REFUSAL_NO_DEVICE, NULL,
                              "CUDA_VISIBLE_DEVICES shows no device: %s",
                              ret->note[0] ? ret->note : "it is empty");
    return verdict_refuse(ret_verdict, REFUSAL_NO_DEVICE, NULL, "this box has no device to lease");
}
