/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/job/request_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"

void request_options_init(struct request_options *wanted) {
    *wanted = (struct request_options){};
}

void request_options_done(struct request_options *wanted) {
    free(wanted->list);
    free(wanted->uuids);
    wanted->list = wanted->uuids = NULL;
}

static int wrong(const struct verb *verb, const char *what, const char *value, const char *meant) {
    gpuctl_complain_usage(verb, "%s %s: expected %s", what, value, meant);
    return -EINVAL;
}

static int parse_int(const char *text, long least, long most, struct wire_maybe *ret) {
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (end == text || *end || errno || n < least || n > most)
        return -EINVAL;
    *ret = (struct wire_maybe){ true, n };
    return 0;
}

static int parse_time(const char *text, struct wire_maybe *ret) {
    uint64_t usec;

    if (units_parse_usec(&usec, text) < 0)
        return -EINVAL;
    if (usec != UNITS_FOREVER)
        *ret = wire_some(usec);
    return 0;
}

int request_options_add(struct request_options *wanted, const struct verb *verb, int id,
                        const char *value) {
    struct wire_request *request = &wanted->request;

    switch (id) {
    case REQUEST_OPTION_GPUS:
        if (parse_int(value, 1, REQUEST_DEVICES_MAX, &request->gpus) < 0)
            return wrong(verb, "--gpus", value, "a number from 1 to 64");
        return 0;
    case REQUEST_OPTION_DEVICES:
        free(wanted->list);
        wanted->list = strdup(value);
        if (!wanted->list) {
            gpuctl_complain(EXIT_FAILED, "out of memory");
            return -ENOMEM;
        }
        return 0;
    case REQUEST_OPTION_FRACTION:
        wanted->fraction = value;
        return 0;
    case REQUEST_OPTION_GROW:
        wanted->grow = true;
        return 0;
    case REQUEST_OPTION_MIN:
        wanted->min = value;
        return 0;
    case REQUEST_OPTION_MAX:
        wanted->max = value;
        return 0;
    case REQUEST_OPTION_MEM:
        wanted->mem = value;
        return 0;
    case REQUEST_OPTION_EXCLUSIVE:
        wanted->exclusive = true;
        return 0;
    case REQUEST_OPTION_CHOOSE:
        request->choose = words_find(choice_words, value);
        if (!request->choose)
            return wrong(verb, "--choose", value, CHOICES_TEXT);
        return 0;
    case REQUEST_OPTION_WAIT:
        request->wait = wire_some(true);
        wanted->no_wait = false;
        request->timeout_usec = (struct wire_maybe){};
        if (value && parse_time(value, &request->timeout_usec) < 0)
            return wrong(verb, "--wait", value, "a time like 90s, 2h or infinity");
        return 0;
    case REQUEST_OPTION_NO_WAIT:
        request->wait = wire_some(false);
        request->timeout_usec = (struct wire_maybe){};
        wanted->no_wait = true;
        return 0;
    case REQUEST_OPTION_PRIORITY:
        if (parse_int(value, -1000000, 1000000, &request->priority) < 0)
            return wrong(verb, "--priority", value, "a whole number");
        return 0;
    case REQUEST_OPTION_NAME:
        if (strlen(value) > REQUEST_NAME_MAX) {
            gpuctl_complain_usage(verb, "--name has %zu bytes; at most %d are allowed",
                                  strlen(value), REQUEST_NAME_MAX);
            return -EINVAL;
        }
        request->name = value;
        return 0;
    default:
        if (parse_time(value, &request->time_limit_usec) < 0)
            return wrong(verb, "--time-limit", value, "a time like 90s, 2h or infinity");
        return 0;
    }
}

/* One item of --fraction or --mem. */
static int parse_amount(const struct verb *verb, bool is_fraction, const char *text,
                        struct wire_amount *ret) {
    struct units_amount amount = { .is_share = true };

    if (is_fraction ? units_parse_permyriad(&amount.permyriad, text) < 0
                    : units_parse_amount(&amount, text) < 0)
        return wrong(verb, is_fraction ? "--fraction" : "--mem", text,
                     is_fraction ? "a share like 0.4 or 40%" : "a size like 8G, 512MiB or 40%");
    if (amount.is_share ? amount.permyriad == 0 : amount.bytes == 0)
        return wrong(verb, is_fraction ? "--fraction" : "--mem", text, "more than 0");
    if (amount.is_share)
        *ret = (struct wire_amount){ .mode = LEASE_FRACTION,
                                     .permyriad = wire_some(amount.permyriad) };
    else
        *ret = (struct wire_amount){ .mode = LEASE_FIXED, .bytes = wire_some(amount.bytes) };
    return 0;
}

/* `text` has one item for all devices, or one for each that --devices names. */
static int parse_amounts(struct request_options *wanted, const struct verb *verb, bool is_fraction,
                         const char *text) {
    cleanup(freep) char *copy = strdup(text);
    size_t n = 0;

    if (!copy) {
        gpuctl_complain(EXIT_FAILED, "out of memory");
        return -ENOMEM;
    }
    for (char *item = copy, *next; item; item = next) {
        int r;

        next = strchr(item, ',');
        if (next)
            *next++ = '\0';
        if (n == REQUEST_DEVICES_MAX)
            return wrong(verb, is_fraction ? "--fraction" : "--mem", text, "at most 64 amounts");
        r = parse_amount(verb, is_fraction, item, &wanted->amounts[n++]);
        if (r < 0)
            return r;
    }
    if (n == 1) {
        wanted->amount = wanted->amounts[0];
        wanted->request.amount = &wanted->amount;
        return 0;
    }
    if (n != wanted->request.n_devices) {
        gpuctl_complain_usage(
            verb, "%zu amounts for %zu devices: give one for all, or one for each of --devices", n,
            wanted->request.n_devices);
        return -EINVAL;
    }
    wanted->request.amounts = wanted->amounts;
    wanted->request.n_amounts = n;
    return 0;
}

static int grow_amount(struct request_options *wanted, const struct verb *verb) {
    struct wire_amount *amount = &wanted->amount;
    struct units_amount most;
    uint64_t bytes;

    *amount = (struct wire_amount){ .mode = LEASE_GROW };
    if (wanted->min) {
        if (units_parse_bytes(&bytes, wanted->min) < 0)
            return wrong(verb, "--min", wanted->min, "a size like 2G");
        amount->min_bytes = wire_some(bytes);
    }
    if (wanted->max) {
        if (units_parse_amount(&most, wanted->max) < 0)
            return wrong(verb, "--max", wanted->max, "a size like 8G, or 50%");
        if (most.is_share)
            amount->permyriad = wire_some(most.permyriad);
        else
            amount->max_bytes = wire_some(most.bytes);
    }
    if (wanted->fraction) {
        uint32_t permyriad;

        if (units_parse_permyriad(&permyriad, wanted->fraction) < 0 || permyriad == 0)
            return wrong(verb, "--fraction", wanted->fraction, "a share like 0.4 or 40%");
        amount->permyriad = wire_some(permyriad);
    }
    if (amount->min_bytes.has && amount->max_bytes.has &&
        amount->min_bytes.value > amount->max_bytes.value) {
        gpuctl_complain_usage(verb, "--min %s is more than --max %s", wanted->min, wanted->max);
        return -EINVAL;
    }
    wanted->request.amount = amount;
    return 0;
}

/* The devices that Slurm gave this job on this node, as numbers of the whole node; NULL: this is no
 * Slurm job. */
static const char *slurm_gpus(void) {
    const char *gpus;

    if (!getenv("SLURM_JOB_ID"))
        return NULL;
    gpus = getenv("SLURM_STEP_GPUS");
    if (!gpus || !*gpus)
        gpus = getenv("SLURM_JOB_GPUS");
    return gpus && *gpus ? gpus : NULL;
}

/*
 * The most devices that the job may see. Inside a Slurm job, CUDA_VISIBLE_DEVICES counts from 0
 * within the devices that the job's cgroup lets it open. So only Slurm's own variable names them
 * for a process outside, such as allotd.
 */
static void take_environment(struct request_options *wanted) {
    struct wire_request *request = &wanted->request;
    const char *gpus = slurm_gpus();

    if (gpus) {
        wanted->is_slurm = true;
        request->visible_devices = gpus;
        request->device_order = "PCI_BUS_ID";
        if (!request->gpus.has && !request->n_devices) {
            request->gpus = wire_some(1);
            for (const char *comma = gpus; (comma = strchr(comma, ',')); comma++)
                request->gpus.value++;
        }
    } else if (!request->n_devices) {
        request->visible_devices = getenv("CUDA_VISIBLE_DEVICES");
        request->device_order = getenv("CUDA_DEVICE_ORDER");
    }
}

int request_options_finish(struct request_options *wanted, const struct verb *verb) {
    struct wire_request *request = &wanted->request;
    const int n_modes = (wanted->fraction && !wanted->grow) + wanted->grow + (wanted->mem != NULL) +
                        wanted->exclusive;
    int r = 0;

    if (wanted->list) {
        for (char *item = wanted->list, *next; item; item = next) {
            next = strchr(item, ',');
            if (next)
                *next++ = '\0';
            if (!*item)
                return wrong(verb, "--devices", "with an empty name", "a list like 0,1");
            if (request->n_devices == REQUEST_DEVICES_MAX)
                return wrong(verb, "--devices", "with so many", "a list of at most 64");
            wanted->devices[request->n_devices++] = item;
        }
        request->devices = wanted->devices;
        if (request->gpus.has) {
            gpuctl_complain_usage(verb, "--gpus or --devices, not both");
            return -EINVAL;
        }
    }
    if (n_modes > 1) {
        gpuctl_complain_usage(verb, "one of --fraction, --grow, --mem and --exclusive, not several "
                                    "(--fraction with --grow is a cap)");
        return -EINVAL;
    }
    if ((wanted->min || wanted->max) && !wanted->grow) {
        gpuctl_complain_usage(verb, "--min and --max can only be used with --grow");
        return -EINVAL;
    }
    if (wanted->grow)
        r = grow_amount(wanted, verb);
    else if (wanted->fraction)
        r = parse_amounts(wanted, verb, true, wanted->fraction);
    else if (wanted->mem)
        r = parse_amounts(wanted, verb, false, wanted->mem);
    else if (wanted->exclusive) {
        wanted->amount = (struct wire_amount){ .mode = LEASE_EXCLUSIVE };
        request->amount = &wanted->amount;
    }
    if (r < 0)
        return r;
    take_environment(wanted);
    return 0;
}

static const struct wire_device *find_minor(const struct wire_box *box, unsigned long minor) {
    for (size_t i = 0; i < box->n_devices; i++) {
        const struct wire_device *device = &box->devices[i];

        if (device->kind == WIRE_DEVICE_GPU && device->minor.has &&
            (uint64_t)device->minor.value == minor)
            return device;
    }
    return NULL;
}

int request_options_resolve(struct request_options *wanted, const struct wire_box *box) {
    const char *at = wanted->request.visible_devices;
    size_t length;
    FILE *to;

    if (!wanted->is_slurm)
        return 0;
    free(wanted->uuids);
    wanted->uuids = NULL;
    to = open_memstream(&wanted->uuids, &length);
    if (!to) {
        gpuctl_complain(EXIT_FAILED, "out of memory");
        return -ENOMEM;
    }
    for (const char *first = at; *at; at += *at == ',') {
        char *end;
        const unsigned long minor = strtoul(at, &end, 10);
        const struct wire_device *device = end > at ? find_minor(box, minor) : NULL;

        if (!device || (*end && *end != ',')) {
            fclose(to);
            gpuctl_complain(EXIT_FAILED,
                            "Slurm gave this job GPU \"%.*s\", but allotd knows no device with "
                            "that minor number: name it with --devices",
                            (int)strcspn(at, ","), at);
            return -ENODEV;
        }
        fprintf(to, "%s%s", at == first ? "" : ",", device->uuid);
        at = end;
    }
    if (fclose(to) != 0) {
        gpuctl_complain(EXIT_FAILED, "out of memory");
        return -ENOMEM;
    }
    wanted->request.visible_devices = wanted->uuids;
    return 0;
}
