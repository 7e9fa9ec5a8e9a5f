/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inventory: a list in bus order that samples update.
 *
 * What a device is (identity, size, links) survives a reading that fails. What it shows (use, heat,
 * clocks) comes from the last sample, and is absent if that could not read it.
 *
 * A device that was lost is trusted again only after RETURN_SAMPLES good readings in a row: a card
 * that comes and goes must not be given to a job each time it comes.
 */
#include "daemon/devices/inventory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RETURN_SAMPLES 3

struct inventory {
    inventory_fn changed;
    void *userdata;
    size_t n, n_allocated;
    struct device_facts **devices; /* by bus, GPUs before their instances */
};

int inventory_new(struct inventory **ret, inventory_fn changed, void *userdata) {
    struct inventory *inventory = calloc(1, sizeof(*inventory));

    if (!inventory)
        return -ENOMEM;
    inventory->changed = changed;
    inventory->userdata = userdata;
    *ret = inventory;
    return 0;
}

struct inventory *inventory_free(struct inventory *inventory) {
    if (!inventory)
        return NULL;
    for (size_t i = 0; i < inventory->n; i++)
        free(inventory->devices[i]);
    free(inventory->devices);
    free(inventory);
    return NULL;
}

static void tell(struct inventory *inventory, enum inventory_change change,
                 const struct device_facts *device) {
    if (inventory->changed)
        inventory->changed(inventory->userdata, change, device);
}

static struct device_facts *find(const struct inventory *inventory, const struct gpuid *id) {
    for (size_t i = 0; i < inventory->n; i++)
        if (gpuid_equal(&inventory->devices[i]->seen.id, id))
            return inventory->devices[i];
    return NULL;
}

static int compare(const void *a, const void *b) {
    const struct sample_device *x = &(*(struct device_facts *const *)a)->seen;
    const struct sample_device *y = &(*(struct device_facts *const *)b)->seen;
    int order = pci_id_compare(&x->pci, &y->pci);

    if (order)
        return order;
    if (x->is_mig != y->is_mig)
        return x->is_mig ? 1 : -1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return memcmp(x->id.uuid, y->id.uuid, sizeof(x->id.uuid)); /* a lost one and its successor */
}

/*
 * Indices count GPUs in bus order, lost ones too: a card that falls off changes no other card's
 * number.
 */
static void settle_order(struct inventory *inventory) {
    uint32_t index = 0;
    struct device_facts *gpu = NULL;

    qsort(inventory->devices, inventory->n, sizeof(*inventory->devices), compare);
    for (size_t i = 0; i < inventory->n; i++) {
        struct device_facts *device = inventory->devices[i];

        if (!device->seen.is_mig) {
            gpu = device;
            device->seen.index = index++;
        } else if (gpu && gpuid_equal(&gpu->seen.id, &device->seen.parent))
            device->seen.index = gpu->seen.index;
    }
}

/* State and reason from what is known; lost is decided elsewhere. */
static void settle_state(struct device_facts *device) {
    size_t n = 0;

    if (device->state == DEVICE_LOST)
        return;
    device->reason[0] = 0;
    for (unsigned i = 0; i < ELEMENTSOF(device->drain_reasons); i++)
        if (device->drains & 1u << i && n < sizeof(device->reason))
            n += (size_t)snprintf(device->reason + n, sizeof(device->reason) - n, "%s%s",
                                  n ? "; " : "", device->drain_reasons[i]);
    device->state = device->drains ? DEVICE_DRAINING : DEVICE_READY;
}

static void lose(struct inventory *inventory, struct device_facts *device, const char *reason) {
    bool is_news = device->state != DEVICE_LOST;

    device->seen.readings.has = 0;
    device->n_good = 0;
    device->state = DEVICE_LOST;
    snprintf(device->reason, sizeof(device->reason), "%s", reason);
    if (is_news)
        tell(inventory, INVENTORY_LOST, device);
}

/* Whether anything that leases depend on has changed. */
static bool is_other(const struct sample_device *a, const struct sample_device *b) {
    return a->total_bytes != b->total_bytes || a->reserved_bytes != b->reserved_bytes ||
           pci_id_compare(&a->pci, &b->pci) != 0 || a->mig_enabled != b->mig_enabled ||
           a->place != b->place || a->readings.minor != b->readings.minor ||
           a->n_links != b->n_links ||
           memcmp(a->links, b->links, a->n_links * sizeof(a->links[0])) != 0 ||
           strcmp(a->name, b->name) != 0;
}

/* Apply a good reading. */
static void read_well(struct inventory *inventory, struct device_facts *device,
                      const struct sample_device *row, uint64_t taken_usec) {
    uint32_t index = device->seen.index;
    bool changed = is_other(&device->seen, row);

    device->seen = *row;
    device->seen.index = index;
    device->is_present = true;
    device->read_usec = taken_usec;
    if (device->state == DEVICE_LOST) {
        if (++device->n_good < RETURN_SAMPLES)
            return;
        device->state = DEVICE_READY;
        settle_state(device);
        tell(inventory, INVENTORY_RETURNED, device);
        return;
    }
    if (changed)
        tell(inventory, INVENTORY_CHANGED, device);
}

static void take_row(struct inventory *inventory, struct device_facts *device,
                     const struct sample_device *row, uint64_t taken_usec) {
    switch (row->health) {
    case SAMPLE_OK:
        read_well(inventory, device, row, taken_usec);
        break;
    case SAMPLE_LOST:
        device->is_present = false;
        lose(inventory, device, row->trouble);
        break;
    case SAMPLE_CLOSED:
    case SAMPLE_FAILED:
        device->is_present = true;
        device->seen.readings.has = 0;
        device->n_good = 0;
        break;
    }
    device->seen.health = row->health;
    memcpy(device->seen.trouble, row->trouble, sizeof(row->trouble));
}

/* Room for `more` devices, so that nothing after it can fail. */
static int reserve(struct inventory *inventory, size_t more) {
    struct device_facts **bigger;

    if (inventory->n_allocated - inventory->n >= more)
        return 0;
    bigger = realloc(inventory->devices, (inventory->n + more) * sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    inventory->devices = bigger;
    inventory->n_allocated = inventory->n + more;
    return 0;
}

static void free_devices(struct device_facts **devices, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(devices[i]);
}

/* A new instance inherits the drains of its GPU. */
static void inherit(const struct inventory *inventory, struct device_facts *device) {
    const struct device_facts *gpu =
        device->seen.is_mig ? find(inventory, &device->seen.parent) : NULL;

    if (!gpu)
        return;
    device->drains = gpu->drains;
    memcpy(device->drain_reasons, gpu->drain_reasons, sizeof(device->drain_reasons));
    settle_state(device);
}

int inventory_update(struct inventory *inventory, const struct sample *sample) {
    struct device_facts *fresh[SAMPLE_DEVICES_MAX];
    size_t n_fresh = 0, n_known = inventory->n;

    for (size_t i = 0; i < sample->n_devices && n_fresh < ELEMENTSOF(fresh); i++) {
        const struct sample_device *row = &sample->devices[i];

        /* A device that is lost when first seen has a name and nothing else: ignore it. */
        if (find(inventory, &row->id) || row->health != SAMPLE_OK ||
            sample_find_device(sample, &row->id) != row) /* listed twice */
            continue;
        fresh[n_fresh] = calloc(1, sizeof(struct device_facts));
        if (!fresh[n_fresh]) {
            free_devices(fresh, n_fresh);
            return -ENOMEM;
        }
        fresh[n_fresh]->seen = *row;
        fresh[n_fresh]->is_present = true;
        fresh[n_fresh++]->read_usec = sample->taken_usec;
    }
    if (reserve(inventory, n_fresh) < 0) {
        free_devices(fresh, n_fresh);
        return -ENOMEM;
    }

    for (size_t i = 0; i < n_known; i++) {
        struct device_facts *device = inventory->devices[i];

        if (sample_find_device(sample, &device->seen.id))
            continue;
        device->is_present = false;
        lose(inventory, device,
             device->seen.is_mig ? "the instance is gone" : "the GPU is no longer on the bus");
    }
    for (size_t i = 0; i < sample->n_devices; i++) {
        struct device_facts *device = find(inventory, &sample->devices[i].id);

        if (device)
            take_row(inventory, device, &sample->devices[i], sample->taken_usec);
    }
    for (size_t i = 0; i < n_fresh; i++)
        inventory->devices[inventory->n++] = fresh[i];
    settle_order(inventory);
    for (size_t i = 0; i < inventory->n; i++)
        for (size_t j = 0; j < n_fresh; j++)
            if (inventory->devices[i] == fresh[j]) {
                inherit(inventory, fresh[j]);
                tell(inventory, INVENTORY_APPEARED, fresh[j]);
            }
    return 0;
}

int inventory_miss(struct inventory *inventory, const struct sample_device *seen) {
    struct device_facts *device;

    if (find(inventory, &seen->id))
        return 0;
    if (reserve(inventory, 1) < 0)
        return -ENOMEM;
    device = calloc(1, sizeof(*device));
    if (!device)
        return -ENOMEM;
    device->seen = *seen;
    device->seen.health = SAMPLE_LOST;
    inventory->devices[inventory->n++] = device;
    settle_order(inventory);
    lose(inventory, device, "it has been missing since allotd was restarted");
    return 0;
}

void inventory_stale(struct inventory *inventory) {
    for (size_t i = 0; i < inventory->n; i++)
        inventory->devices[i]->seen.readings.has = 0;
}

/* The device itself, and the instances of a GPU. */
static bool concerns(const struct device_facts *device, const struct gpuid *id) {
    return gpuid_equal(&device->seen.id, id) || gpuid_equal(&device->seen.parent, id);
}

int inventory_drain(struct inventory *inventory, const struct gpuid *id, enum device_drain why,
                    const char *reason) {
    if (!find(inventory, id))
        return -ENOENT;
    for (size_t i = 0; i < inventory->n; i++) {
        struct device_facts *device = inventory->devices[i];
        enum device_state before = device->state;

        if (!concerns(device, id))
            continue;
        device->drains |= why;
        snprintf(device->drain_reasons[__builtin_ctz(why)], DEVICE_REASON_SIZE, "%s", reason);
        settle_state(device);
        if (before == DEVICE_READY)
            tell(inventory, INVENTORY_DRAINED, device);
    }
    return 0;
}

int inventory_resume(struct inventory *inventory, const struct gpuid *id, enum device_drain why) {
    if (!find(inventory, id))
        return -ENOENT;
    for (size_t i = 0; i < inventory->n; i++) {
        struct device_facts *device = inventory->devices[i];
        enum device_state before = device->state;

        if (!concerns(device, id))
            continue;
        device->drains &= ~(uint32_t)why;
        device->drain_reasons[__builtin_ctz(why)][0] = 0;
        settle_state(device);
        if (before == DEVICE_DRAINING && device->state == DEVICE_READY)
            tell(inventory, INVENTORY_RESUMED, device);
    }
    return 0;
}

const struct device_facts *inventory_at(const struct inventory *inventory, size_t i) {
    return i < inventory->n ? inventory->devices[i] : NULL;
}

size_t inventory_count(const struct inventory *inventory) {
    return inventory->n;
}

const struct device_facts *inventory_find(const struct inventory *inventory,
                                          const struct gpuid *id) {
    return find(inventory, id);
}

/* "7", or "7:2" with has_place. No sign, no blank, nothing after it. */
static bool parse_index(const char *text, uint32_t *index, bool *has_place, uint32_t *place) {
    uint32_t *field = index;

    *index = *place = 0;
    *has_place = false;
    for (size_t digits = 0;; text++) {
        if (*text >= '0' && *text <= '9' && digits++ < 6)
            *field = *field * 10 + (uint32_t)(*text - '0');
        else if (*text == ':' && digits && !*has_place) {
            *has_place = true;
            field = place;
            digits = 0;
        } else
            return !*text && digits;
    }
}

static bool is_named(const struct device_facts *device, const char *beginning) {
    char text[GPUID_TEXT_SIZE];

    gpuid_format(&device->seen.id, text);
    return strncasecmp(text, beginning, strlen(beginning)) == 0;
}

int inventory_resolve(const struct inventory *inventory, const char *text,
                      const struct device_facts **ret) {
    const struct device_facts *found = NULL;
    uint32_t index, place;
    bool has_place;
    struct pci_id pci;

    if (!strncasecmp(text, "GPU-", 4) || !strncasecmp(text, "MIG-", 4)) {
        for (size_t i = 0; i < inventory->n; i++)
            if (is_named(inventory->devices[i], text)) {
                if (found)
                    return -ENOTUNIQ;
                found = inventory->devices[i];
            }
    } else {
        if (pci_id_parse(&pci, text) == 0)
            for (size_t i = 0; i < inventory->n && !found; i++)
                if (!inventory->devices[i]->seen.is_mig &&
                    pci_id_compare(&inventory->devices[i]->seen.pci, &pci) == 0)
                    found = inventory->devices[i];
        if (!found && parse_index(text, &index, &has_place, &place))
            for (size_t i = 0; i < inventory->n && !found; i++) {
                const struct sample_device *seen = &inventory->devices[i]->seen;

                if (seen->index == index && seen->is_mig == has_place &&
                    (!has_place ||
                     (seen->place == place && inventory->devices[i]->state != DEVICE_LOST)))
                    found = inventory->devices[i];
            }
    }
    if (!found)
        return -ENOENT;
    *ret = found;
    return 0;
}
