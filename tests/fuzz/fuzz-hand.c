/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a message of the helpers' private wire: what was asked (0: the message is a
 * question), its kind with the highest bit set where the size is the input's own, and the bytes
 * after the head. Whatever is let through is used as each end uses it: with every count, name and
 * text.
 */
#include <string.h>

#include "base/cleanup.h"
#include "daemon/hand/exec/scope.h"
#include "daemon/hand/message_check.h"
#include "tests/fuzz/fuzz.h"

#define OWN_SIZE 0x80

static void use_gpuid(const struct gpuid *id) {
    char text[GPUID_TEXT_SIZE];
    struct gpuid back;

    fuzz_check(gpuid_parse(&back, gpuid_format(id, text)) == 0);
    fuzz_check(back.kind == id->kind && memcmp(back.uuid, id->uuid, sizeof(back.uuid)) == 0);
}

static void use_text(const char *text, size_t size) {
    fuzz_check(strlen(text) < size);
    for (const char *p = text; *p; p++)
        fuzz_check((unsigned char)*p >= ' ' && *p != 127);
}
#define USE_TEXT(text) use_text(text, sizeof(text))

static void use_device(const struct sample_device *device) {
    struct sample *sample = calloc(1, sizeof(*sample));
    char bus[PCI_ID_TEXT_SIZE];
    size_t room = 0;

    use_gpuid(&device->id);
    use_gpuid(&device->parent);
    pci_id_format(&device->pci, PCI_ID_NVML, bus);
    fuzz_check(strlen(device->name) < sizeof(device->name));
    for (uint32_t i = 0; i < device->n_links; i++) {
        use_gpuid(&device->links[i].remote);
        fuzz_check(strcmp(sample_path_name(device->links[i].path), "unknown") != 0);
    }
    sample_add_device(sample, &room, device);
    fuzz_check(sample_find_device(sample, &device->id));
    sample_free(sample);
}

static void use_process(const struct sample_process *process) {
    use_gpuid(&process->device);
    USE_TEXT(process->command);
    USE_TEXT(process->name);
    USE_TEXT(process->container);
    fuzz_check(*cgroup_owner_name(process->owner));
    scope_is_ours(process->cgroup);
}

static void use_question(const union hand_message *message) {
    switch (message->head.kind) {
    case HAND_KNOWN:
        use_device(&message->device.device);
        break;
    case HAND_CLOSE:
        use_gpuid(&message->close.gpu);
        break;
    case HAND_CONFINE:
        for (uint32_t i = 0; i < message->confine.confine.n_devices; i++) {
            use_gpuid(&message->confine.confine.devices[i].id);
            fuzz_check(message->confine.nodes[i].minor < 1 << 20);
        }
        break;
    case HAND_USED:
        use_gpuid(&message->used.device);
        break;
    case HAND_PROBE:
        use_gpuid(&message->probe.gpu);
        break;
    case HAND_DESCRIBE:
        for (uint32_t i = 0; i < message->describe.n; i++)
            fuzz_check(message->describe.pids[i] >= 0);
        break;
    case HAND_SIGNAL:
        fuzz_check(strlen(message->signal.signal.cgroup) < sizeof(message->signal.signal.cgroup));
        scope_is_ours(message->signal.signal.cgroup);
        break;
    }
}

static void use_answer(const struct hand_answer_row *row, uint32_t asked) {
    USE_TEXT(row->text);
    if (row->r < 0)
        return;
    if (asked == HAND_CONFINE) {
        for (uint32_t i = 0; i < row->confined.n_details; i++)
            USE_TEXT(row->confined.details[i]);
        fuzz_check(strlen(row->confined.cgroup) < sizeof(row->confined.cgroup));
    } else if (asked == HAND_PROBE) {
        for (size_t i = 0; i < ELEMENTSOF(row->probes.tiers); i++)
            USE_TEXT(row->probes.tiers[i].detail);
    } else if (asked == HAND_FIND) {
        for (uint32_t i = 0; i < row->found.n_processes; i++)
            fuzz_check(row->found.processes[i].pid > 0);
    } else if (asked == HAND_SAMPLE) {
        USE_TEXT(row->sampled.driver_version);
        USE_TEXT(row->sampled.list_trouble);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    union hand_message message;
    uint32_t asked, kind;
    size_t n;

    if (size < 2)
        return 0;
    asked = data[0];
    kind = data[1] & ~OWN_SIZE;
    memset(&message, 0, sizeof(message));
    n = MIN(size - 2, sizeof(message) - sizeof(message.head));
    memcpy((char *)&message + sizeof(message.head), data + 2, n);
    message.head.kind = kind;
    n = data[1] & OWN_SIZE ? sizeof(message.head) + n : hand_size(kind);
    if (!asked) {
        bool is_for_reader = message_check_question(&message, n, HAND_ROLE_READER);
        bool is_for_hand = message_check_question(&message, n, HAND_ROLE_HAND);

        fuzz_check(kind == HAND_HELLO || !(is_for_reader && is_for_hand));
        if (is_for_reader || is_for_hand)
            use_question(&message);
        return 0;
    }
    if (!message_check_reply(&message, n, asked))
        return 0;
    switch (kind) {
    case HAND_DEVICE:
        use_device(&message.device.device);
        break;
    case HAND_PROCESS:
        use_process(&message.process.process);
        break;
    case HAND_EVENT:
        use_gpuid(&message.event.event.device);
        break;
    case HAND_ANSWER:
        use_answer(&message.answer, asked);
        break;
    }
    return 0;
}
