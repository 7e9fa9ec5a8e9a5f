/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/nvml/nvml_library.h"

#include <check.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sim/box/utilization.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"

void *nvml_library_symbol(const char *name) {
    static void *library;
    void *symbol;

    if (!library)
        library = dlopen(SIM_NVML, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    symbol = dlsym(library, name);
    ck_assert_msg(symbol != NULL, "%s is missing", name);
    return symbol;
}

void nvml_library_init(struct sim_box *ret, const struct box_spec *spec) {
    sim_box_init(ret, spec);
    ck_assert_nvml_ok(NV(nvmlInit_v2)());
}

nvmlDevice_t nvml_library_device(unsigned index) {
    nvmlDevice_t device;

    ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByIndex_v2)(index, &device));
    return device;
}

struct order {
    struct nvml_library_hold hold;
    int ready;
};

static int hold_and_wait(struct sim_box *s, void *argument) {
    const struct order *order = argument;
    const struct box_part part = order->hold.part;
    const uint64_t now_ns = box_now_ns();
    struct box_usage *usage;
    uint32_t slot;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails kills no child itself */
    if (box_lock(s->box) < 0 || proc_join(s->box, &slot) < 0)
        return 1;
    usage = &s->box->file->proc[slot].usage[part.gpu];
    usage->contexts = 1;
    usage->kinds = PROC_COMPUTE;
    usage->gi_id = usage->ci_id = UINT32_MAX;
    if (part.part > 0) {
        usage->gi_id = s->box->file->gpu[part.gpu].gi[part.part - 1].id;
        usage->ci_id = 0;
    }
    if (charge_take(s->box, slot, part, order->hold.bytes, NULL) < 0)
        return 1;
    box_unlock(s->box);
    for (unsigned i = 1; order->hold.busy_percent && i <= 24; i++) {
        const uint64_t tick_ns = UINT64_C(62500000), start_ns = now_ns / tick_ns * tick_ns;

        utilization_note(s->box, slot, part.gpu, UTILIZATION_COMPUTE, start_ns - i * tick_ns,
                         start_ns - i * tick_ns + tick_ns * order->hold.busy_percent / 100);
    }
    if (write(order->ready, "", 1) != 1)
        return 1;
    for (;;)
        pause();
}

pid_t nvml_library_hold(struct sim_box *sim_box, const struct nvml_library_hold *hold) {
    struct order order = { .hold = *hold };
    int fds[2];
    pid_t pid;
    char byte;

    ck_assert_int_eq(pipe(fds), 0);
    order.ready = fds[1];
    pid = sim_box_fork(hold_and_wait, sim_box, &order);
    close(fds[1]);
    ck_assert_msg(read(fds[0], &byte, 1) == 1, "the child could not hold that");
    close(fds[0]);
    return pid;
}
