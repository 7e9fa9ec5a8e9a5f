/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/visible.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/gpuid.h"
#include "base/visible.h"
#include "libclient/device/gpu.h"

/* The devices that the driver shows as a box of their own, for visible_decide(). */
struct shown_devices {
    struct visible_box box;
    struct visible_gpu *gpus;
    struct visible_mig *migs;
    char (*uuids)[GPUID_TEXT_SIZE];
};

static void shown_done(struct shown_devices *shown) {
    free(shown->gpus);
    free(shown->migs);
    free(shown->uuids);
}

static int shown_make(struct shown_devices *ret, struct cuda *cuda, struct allot_error *err) {
    size_t n = (size_t)cuda->n_devices;

    ret->gpus = calloc(n, sizeof(*ret->gpus));
    ret->migs = calloc(n, sizeof(*ret->migs));
    ret->uuids = calloc(n, sizeof(*ret->uuids));
    if (!ret->gpus || !ret->migs || !ret->uuids)
        return error_set(err, -ENOMEM, "no host memory for a list of devices");
    for (size_t i = 0; i < n; i++) {
        struct gpu gpu = { .cuda = cuda, .number = (int)i };
        struct gpuid id;
        int r = gpu_identify(&gpu, err);

        if (r == 0)
            r = gpuid_parse(&id, gpu.uuid);
        if (r < 0)
            return r;
        /* In the order in which the driver counts them. An instance stands for its GPU, which the
         * driver does not show. */
        ret->gpus[i] = (struct visible_gpu){ .speed_rank = (uint32_t)i };
        if (strstr(gpu.name, " MIG ")) {
            id.kind = GPUID_MIG;
            ret->gpus[i].mig_enabled = true;
            ret->migs[ret->box.n_migs++] = (struct visible_mig){ .uuid = ret->uuids[i], .gpu = i };
        } else {
            ret->gpus[i].uuid = ret->uuids[i];
        }
        gpuid_format(&id, ret->uuids[i]);
    }
    ret->box.gpus = ret->gpus;
    ret->box.n_gpus = n;
    ret->box.migs = ret->migs;
    return 0;
}

static int take(struct device_visible *ret, const struct shown_devices *shown,
                const struct visible_list *list, struct allot_error *err) {
    ret->numbers = calloc(list->n_devices + 1, sizeof(*ret->numbers));
    ret->uuids = calloc(list->n_devices + 1, GPUID_TEXT_SIZE + 1);
    if (!ret->numbers || !ret->uuids)
        return error_set(err, -ENOMEM, "no host memory for a list of devices");
    for (size_t i = 0; i < list->n_devices; i++) {
        size_t gpu = list->devices[i].gpu;

        ret->numbers[ret->n++] = (int)gpu;
        strcat(strcat(ret->uuids, i ? "," : ""), shown->uuids[gpu]);
    }
    return 0;
}

/* Every entry of a list counts: one that the driver would drop silently is an error here. */
static int choose(struct device_visible *ret, struct cuda *cuda, const char *text,
                  struct allot_error *err) {
    const struct visible_env env = visible_env(text, NULL);
    cleanup(shown_done) struct shown_devices shown = { 0 };
    cleanup(freep) struct visible_list *list = malloc(sizeof(*list));
    int r = list ? shown_make(&shown, cuda, err)
                 : error_set(err, -ENOMEM, "no host memory for a list of devices");

    if (r == 0)
        r = visible_decide(list, &shown.box, &env);
    if (r < 0)
        return r;
    if (*text && list->cut_at < env.devices_len) {
        const char *why = strchr(list->reason, ':');
        const char *environment = getenv("CUDA_VISIBLE_DEVICES");

        return error_set(
            err, -ENODEV,
            "visible_devices \"%.64s\"%s; the driver shows this process %d GPU%s%s%.64s", text,
            why ? why : ": it names no device", cuda->n_devices, cuda->n_devices == 1 ? "" : "s",
            environment ? ", by CUDA_VISIBLE_DEVICES=" : "", environment ? environment : "");
    }
    return take(ret, &shown, list, err);
}

int device_visible_make(struct device_visible *ret, struct cuda *cuda, const char *list,
                        struct allot_error *err) {
    struct device_visible chosen = { 0 };
    int r = 0;

    if (list) {
        r = choose(&chosen, cuda, list, err);
    } else {
        chosen.numbers = calloc((size_t)cuda->n_devices + 1, sizeof(*chosen.numbers));
        if (!chosen.numbers)
            r = error_set(err, -ENOMEM, "no host memory for a list of devices");
        while (r == 0 && chosen.n < (size_t)cuda->n_devices) {
            chosen.numbers[chosen.n] = (int)chosen.n;
            chosen.n++;
        }
    }
    if (r < 0) {
        device_visible_done(&chosen);
        return r;
    }
    *ret = chosen;
    return 0;
}

void device_visible_done(struct device_visible *chosen) {
    free(chosen->numbers);
    free(chosen->uuids);
    *chosen = (struct device_visible){ 0 };
}
