/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allot-reader: the process that loads NVML. It has no capability, and gives up those that it was
 * started with before it loads anything: what NVIDIA's libraries do here, they do without rights.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/capabilities.h"
#include "daemon/hand/reader/nvml_reader.h"
#include "daemon/hand/serve.h"

static int send_device(void *userdata, const struct sample_device *device) {
    union hand_message row;

    memset(&row, 0, sizeof(row)); /* padding too, so that none of our memory leaks */
    row.head.kind = HAND_DEVICE;
    row.device.device = *device;
    return serve_send(userdata, &row);
}

static int send_process(void *userdata, const struct sample_process *process) {
    union hand_message row;

    memset(&row, 0, sizeof(row));
    row.head.kind = HAND_PROCESS;
    row.process.process = *process;
    return serve_send(userdata, &row);
}

/* Called from the listener's thread. */
static void send_event(void *userdata, const struct sample_event *event) {
    union hand_message row;

    memset(&row, 0, sizeof(row));
    row.head.kind = HAND_EVENT;
    row.event.event = *event;
    serve_send(userdata, &row);
}

static int greeted(struct serve *serve, enum driver_choice driver, struct allot_error *err) {
    const struct nvml_reader_sink sink = {
        .userdata = serve,
        .device = send_device,
        .process = send_process,
        .event = send_event,
    };
    struct nvml_reader *reader;
    int r = nvml_reader_new(&reader, driver, &sink);

    if (r < 0)
        return error_set(err, r, "out of memory");
    serve->userdata = reader;
    return 0;
}

static int tell_used(struct nvml_reader *reader, const struct hand_used_question *question,
                     struct hand_used *ret, struct allot_error *err) {
    int r = nvml_reader_used(reader, &question->device, question->pid, &ret->used_bytes, err);

    ret->is_listed = r == 0;
    return r == -ENOENT ? 0 : r;
}

static int answer(struct serve *serve, const union hand_message *question,
                  struct hand_answer_row *ret, struct allot_error *err) {
    struct nvml_reader *reader = serve->userdata;

    switch (question->head.kind) {
    case HAND_KNOWN:
        nvml_reader_know(reader, &question->device.device);
        return 0;
    case HAND_CLOSE:
        return nvml_reader_close(reader, &question->close.gpu, question->close.closed != 0, err);
    case HAND_SAMPLE:
        return nvml_reader_sample(reader, &ret->sampled, err);
    case HAND_USED:
        return tell_used(reader, &question->used, &ret->used, err);
    default:
        return error_set(err, -EPROTO, "there is no request of kind %u", question->head.kind);
    }
}

static const char help[] = "usage: allot-reader\n\n"
                           "The unprivileged part of allotd that reads NVML. allotd starts it: by\n"
                           "allot-reader.socket, or by itself on a private box; see allotd(8).\n";

int main(int argc, char **argv) {
    struct serve serve = { .role = HAND_ROLE_READER, .greeted = greeted, .answer = answer };
    int r, socket = serve_begin(argc, argv, "allot-reader", help);

    r = capabilities_keep(0);
    if (r < 0) {
        fprintf(stderr, "capabilities cannot be given up: %s\n", strerror(-r));
        return EXIT_FAILURE;
    }
    /* Not nvml_reader_free(): it would wait for a driver that may not answer. */
    _exit(serve_run(&serve, socket));
}
