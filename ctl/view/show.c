/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/units.h"
#include "wire/snapshot.h"

const char *show_bytes(uint64_t bytes, char text[static SHOW_SIZE]) {
    static const char units[] = "BKMGTPE";
    unsigned unit = 0;
    uint64_t whole = bytes, rest = 0;

    while (whole >= 1024) {
        rest = whole % 1024;
        whole /= 1024;
        unit++;
    }
    if (unit == 0)
        snprintf(text, SHOW_SIZE, bytes ? "%" PRIu64 "B" : "%" PRIu64, bytes);
    else if (whole < 100 && rest * 10 / 1024 > 0)
        snprintf(text, SHOW_SIZE, "%" PRIu64 ".%" PRIu64 "%c", whole, rest * 10 / 1024,
                 units[unit]);
    else
        snprintf(text, SHOW_SIZE, "%" PRIu64 "%c", whole, units[unit]);
    return text;
}

const char *show_maybe_bytes(struct wire_maybe bytes, char text[static SHOW_SIZE]) {
    if (bytes.has)
        return show_bytes(bytes.value < 0 ? 0 : bytes.value, text);
    snprintf(text, SHOW_SIZE, "N/A");
    return text;
}

const char *show_maybe(struct wire_maybe value, const char *unit, char text[static SHOW_SIZE]) {
    if (value.has)
        snprintf(text, SHOW_SIZE, "%" PRIi64 "%s", value.value, unit);
    else
        snprintf(text, SHOW_SIZE, "N/A");
    return text;
}

const char *show_power(struct wire_maybe now, struct wire_maybe limit,
                       char text[static SHOW_SIZE]) {
    if (now.has && limit.has)
        snprintf(text, SHOW_SIZE, "%" PRIi64 "/%" PRIi64 "W", now.value / 1000, limit.value / 1000);
    else if (now.has)
        snprintf(text, SHOW_SIZE, "%" PRIi64 "W", now.value / 1000);
    else
        snprintf(text, SHOW_SIZE, "N/A");
    return text;
}

const char *show_age(uint64_t since_usec, uint64_t now_usec, char text[static SHOW_SIZE]) {
    const uint64_t age = now_usec > since_usec ? now_usec - since_usec : 0;
    char long_text[UNITS_TEXT_SIZE];

    /* Show a running time in whole seconds. */
    units_format_usec(age / 1000000 * 1000000, long_text);
    snprintf(text, SHOW_SIZE, "%s", long_text);
    return text;
}

const char *show_uuid(const char *uuid, char text[static SHOW_SIZE]) {
    const char *dash = strchr(uuid, '-');

    /* "MIG-GPU-…/1/0" of old drivers: keep the instance. */
    if (!strncmp(uuid, "MIG-GPU-", 8)) {
        const char *slash = strchr(uuid, '/');

        snprintf(text, SHOW_SIZE, "%.16s%.16s", uuid, slash ? slash : "");
    } else
        snprintf(text, SHOW_SIZE, "%.*s", dash ? (int)(dash - uuid) + 9 : 16, uuid);
    return text;
}

const char *show_name(const struct wire_device *device) {
    const char *profile = device->kind == WIRE_DEVICE_MIG ? strstr(device->name, " MIG ") : NULL;

    if (profile)
        return profile + 1;
    return device->name + (strncmp(device->name, "NVIDIA ", 7) ? 0 : 7);
}

const char *show_bus_id(const char *bus_id, char text[static SHOW_SIZE]) {
    char written[PCI_ID_TEXT_SIZE];
    struct pci_id pci;

    if (pci_id_parse(&pci, bus_id) == 0)
        snprintf(text, SHOW_SIZE, "%s", pci_id_format(&pci, PCI_ID_SYSFS, written));
    else
        snprintf(text, SHOW_SIZE, "%s", *bus_id ? bus_id : "N/A");
    return text;
}

const char *show_device(const struct wire_box *box, const char *uuid, char text[static SHOW_SIZE]) {
    const struct wire_device *device = snapshot_find_device(box, uuid);

    if (!device)
        return show_uuid(uuid, text);
    snprintf(text, SHOW_SIZE, "%" PRIu64, device->index);
    return text;
}

/* The device whose UUID `text` begins with. */
static const struct wire_device *device_at(const struct wire_box *box, const char *text) {
    for (size_t i = 0; i < box->n_devices; i++) {
        const size_t n = strlen(box->devices[i].uuid);

        if (n > 0 && !strncmp(text, box->devices[i].uuid, n))
            return &box->devices[i];
    }
    return NULL;
}

char *show_sentence(const struct wire_box *box, const char *text) {
    char *sentence = NULL;
    size_t length;
    FILE *to = open_memstream(&sentence, &length);

    if (!to)
        return NULL;
    while (*text) {
        const struct wire_device *device =
            box && (*text == 'G' || *text == 'M') ? device_at(box, text) : NULL;

        if (device) {
            fprintf(to, "GPU %" PRIu64, device->index);
            text += strlen(device->uuid);
        } else
            fputc(*text++, to);
    }
    return fclose(to) == 0 ? sentence : NULL;
}

const char *show_time(uint64_t usec, char text[static SHOW_SIZE]) {
    const time_t seconds = usec / 1000000;
    struct tm tm;

    if (!localtime_r(&seconds, &tm) || strftime(text, SHOW_SIZE, "%F %T", &tm) == 0)
        snprintf(text, SHOW_SIZE, "N/A");
    return text;
}

struct show_bar show_bar_of(const struct wire_device *device) {
    return (struct show_bar){
        .usable_bytes = device->usable_bytes,
        .held_bytes = device->held_bytes,
        .promised_bytes = device->leased_bytes > device->held_bytes
                              ? device->leased_bytes - device->held_bytes
                              : 0,
        .unmanaged_bytes = device->unmanaged_bytes,
        .releasing_bytes = device->releasing_bytes,
    };
}

enum bar_part { PART_HELD, PART_PROMISED, PART_UNMANAGED, PART_RELEASING, PART_FREE, PARTS };

static const char *const glyphs[2][PARTS] = {
    { "#", "=", "!", "~", "." },
    { "█", "▒", "▚", "░", "·" },
};

char *show_bar(const struct show_bar *bar, size_t width, bool utf8) {
    const uint64_t parts[] = {
        [PART_HELD] = bar->held_bytes,
        [PART_PROMISED] = bar->promised_bytes,
        [PART_UNMANAGED] = bar->unmanaged_bytes,
        [PART_RELEASING] = bar->releasing_bytes,
    };
    char *text = malloc(width * 3 + 1), *to = text;
    size_t left = width;

    if (!text)
        return NULL;
    for (size_t part = 0; part < PART_FREE; part++) {
        /* Rounded down, but at least one cell if not zero. Doubles are exact enough for cells. */
        size_t cells = bar->usable_bytes ? (double)parts[part] / bar->usable_bytes * width : 0;

        if (cells == 0 && parts[part] > 0)
            cells = 1;
        for (cells = MIN(cells, left), left -= cells; cells > 0; cells--)
            to = stpcpy(to, glyphs[utf8][part]);
    }
    for (; left > 0; left--)
        to = stpcpy(to, glyphs[utf8][PART_FREE]);
    *to = '\0';
    return text;
}

const char *show_bar_legend(bool utf8) {
    return utf8 ? "█ held  ▒ leased, not held  ▚ unmanaged  ░ releasing  · free"
                : "# held  = leased, not held  ! unmanaged  ~ releasing  . free";
}
