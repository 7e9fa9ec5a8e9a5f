/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a list of patches to a good box file: offset (4 bytes, modulo the file's size),
 * length (1 byte), that many bytes. If the first byte of the input is odd the checksum is mended
 * afterwards, so that damage behind it is reached too. Whatever box_open() accepts must then bear
 * everything that a program does with a box.
 */
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/box/box.h"
#include "sim/box/utilization.h"
#include "sim/box/charge.h"
#include "sim/box/event.h"
#include "sim/box/fault.h"
#include "sim/box/devnode.h"
#include "sim/box/proc.h"
#include "sim/box/spec.h"
#include "tests/fuzz/fuzz.h"

static char path[64];
static struct box_file *file, *pristine;

static void remove_box(void) {
    unlink(path);
}

static void make_box(void) {
    const struct box_spec spec = { .n_gpus = 3, .seed = 1, .mig = "0:3g.20gb+3g.20gb" };
    struct allot_error err = { 0 };
    int fd;

    snprintf(path, sizeof(path), "/tmp/fuzz-box-%d", (int)getpid());
    unlink(path);
    if (spec_create(&spec, path, 0600, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    atexit(remove_box);
    fd = open(path, O_RDWR | O_CLOEXEC);
    file = mmap(NULL, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    pristine = malloc(sizeof(*pristine));
    fuzz_check(file != MAP_FAILED && pristine);
    memcpy(pristine, file, sizeof(*file));
}

static void use(struct box *box) {
    struct allot_error err = { 0 };
    const uint32_t n_slots = MIN(box->file->proc_high, (uint32_t)BOX_MAX_PROCS);
    struct utilization_readings readings;
    struct box_event event;
    uint64_t cursor = 0, free_bytes, total_bytes, id;
    struct charge_sums sums;

    fuzz_check(box->n_gpus >= 1 && box->n_gpus <= BOX_MAX_GPUS);
    proc_reap(box);
    for (unsigned g = 0; g < box->n_gpus; g++) {
        fuzz_check(box_model(box, g));
        utilization_read(box, g, &readings);
        for (unsigned p = 0; p < BOX_PARTS; p++) {
            const struct box_part part = { g, p };

            charge_sums_seen(box, part, &sums);
            fuzz_check(sums.free_bytes <= sums.capacity_bytes);
            if (charge_take(box, 0, part, 1, &err) == 0)
                charge_give(box, 0, part, 1);
            charge_room(box, 0, part, &free_bytes, &total_bytes);
            for (uint32_t i = 0; i < n_slots; i++)
                charge_held_seen(box, i, part);
        }
    }
    if (charge_segment_new(box, 0, (struct box_part){ 0, 1 }, 1, &id) == 0)
        charge_segment_leave(box, 0, id);
    for (unsigned i = 0; i < 2 * BOX_MAX_EVENTS && event_next(box, &cursor, &event) == 0; i++)
        ;
    fault_alloc(box, 0, 1);
    fault_xid(box, 0, 31);
    fault_clear(box, 0);
    devnode_visible_gpus(box);
    box_check(box, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct allot_error err = { 0 };
    struct box *box;
    size_t at = 1;

    if (!file)
        make_box();
    memcpy(file, pristine, offsetof(struct box_file, segment));
    /* Only the first slots and segments are ever dirtied here: proc_high says so. */
    memcpy(file->segment, pristine->segment, 64 * sizeof(file->segment[0]));
    memcpy(file->proc, pristine->proc, 16 * sizeof(file->proc[0]));

    while (at + 5 <= size) {
        uint32_t offset;
        size_t n = data[at + 4];

        memcpy(&offset, data + at, sizeof(offset));
        at += 5;
        n = MIN(n, size - at);
        offset %= offsetof(struct box_file, proc) + 16 * sizeof(file->proc[0]);
        if (offset + n > offsetof(struct box_file, proc) + 16 * sizeof(file->proc[0]))
            n = 0;
        memcpy((char *)file + offset, data + at, n);
        at += n;
    }
    /* Who holds the lock is no news that a file could bring: nobody does. */
    file->lock = pristine->lock;
    if (size && data[0] & 1)
        file->identity_sum = box_identity_sum(file);

    if (box_open(&box, path, &err) < 0) {
        fuzz_check(err.text[0]);
        return 0;
    }
    fuzz_check(box_lock(box) == 0);
    use(box);
    box_unlock(box);
    box_free(box);
    return 0;
}
