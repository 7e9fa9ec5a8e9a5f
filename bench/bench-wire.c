/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the wire costs without the socket: reading a call of Grow and writing its reply, beside what
 * json-c takes for the same two texts in the same run; and a box of 16 devices and 1,000 leases,
 * written and read. CPU time of the one thread.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/frame.h"
#include "wire/snapshot.h"
#include "wire/varlink.h"

#define ROUNDS    300000
#define N_DEVICES 16
#define N_LEASES  1000

static const char call_text[] =
    "{\"method\":\"io.allot.Manager.Grow\",\"parameters\":{\"lease\":12345,\"device\":"
    "\"GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293\",\"bytes\":2097152,\"wait\":true}}";

static double now_usec(void) {
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void must(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "bench-wire: %s\n", what);
        exit(EXIT_FAILURE);
    }
}

static double time_ours(double *ret_read) {
    struct store store = { 0 };
    struct frame_out out;
    double begin = now_usec(), middle;

    frame_out_init(&out, FRAME_CALL_MAX);
    for (unsigned i = 0; i < ROUNDS; i++) {
        char text[sizeof(call_text)];
        struct varlink_call call;
        struct failure failure;

        memcpy(text, call_text, sizeof(text));
        store_reset(&store);
        must(varlink_call_read(&call, text, sizeof(text) - 1, &store, &failure) == 0, "no call");
    }
    middle = now_usec();
    for (unsigned i = 0; i < ROUNDS; i++) {
        const struct wire_grow_reply reply = { 8589934592 + i, 17179869184 };

        varlink_reply_write(frame_out_begin(&out), WIRE_METHOD_GROW, &reply, false);
        must(frame_out_end(&out) == 0, "no reply");
        out.json.len = out.begun = 0; /* as if it were sent */
    }
    store_done(&store);
    frame_out_done(&out);
    *ret_read = (middle - begin) / ROUNDS;
    return (now_usec() - middle) / ROUNDS;
}

static double time_json_c(double *ret_read) {
    struct json_tokener *tokener = json_tokener_new();
    double begin = now_usec(), middle;

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct json_object *call, *parameters, *member;

        json_tokener_reset(tokener);
        call = json_tokener_parse_ex(tokener, call_text, sizeof(call_text) - 1);
        must(json_object_object_get_ex(call, "method", &member) &&
                 json_object_object_get_ex(call, "parameters", &parameters) &&
                 json_object_object_get_ex(parameters, "lease", &member) &&
                 json_object_object_get_ex(parameters, "device", &member) &&
                 json_object_object_get_ex(parameters, "bytes", &member),
             "no call");
        json_object_put(call);
    }
    middle = now_usec();
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct json_object *reply = json_object_new_object();
        struct json_object *parameters = json_object_new_object();

        json_object_object_add(parameters, "held_bytes", json_object_new_int64(8589934592 + i));
        json_object_object_add(parameters, "limit_bytes", json_object_new_int64(17179869184));
        json_object_object_add(reply, "parameters", parameters);
        must(strlen(json_object_to_json_string_ext(reply, JSON_C_TO_STRING_PLAIN)) > 0, "no reply");
        json_object_put(reply);
    }
    json_tokener_free(tokener);
    *ret_read = (middle - begin) / ROUNDS;
    return (now_usec() - middle) / ROUNDS;
}

static void time_box(void) {
    static struct wire_device devices[N_DEVICES];
    static struct wire_lease leases[N_LEASES];
    static const struct wire_share share = { .device = "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293" };
    static const struct wire_holder holder = { .pid = 4711 };
    const struct wire_box box = { .host = "host",
                                  .driver = "sim",
                                  .version = "0",
                                  .mode = WIRE_BOX_OPEN,
                                  .devices = devices,
                                  .n_devices = N_DEVICES,
                                  .leases = leases,
                                  .n_leases = N_LEASES };
    struct json_writer w = { 0 };
    struct snapshot *snapshot;
    double begin, middle;

    for (size_t i = 0; i < N_DEVICES; i++)
        devices[i] = (struct wire_device){ .uuid = share.device,
                                           .kind = WIRE_DEVICE_GPU,
                                           .bus_id = "00000000:07:00.0",
                                           .name = "A100-SXM4-40GB",
                                           .state = WIRE_DEVICE_READY };
    for (size_t i = 0; i < N_LEASES; i++)
        leases[i] = (struct wire_lease){ .id = i,
                                         .user = "somebody",
                                         .mode = LEASE_GROW,
                                         .state = WIRE_LEASE_ACTIVE,
                                         .shares = &share,
                                         .n_shares = 1,
                                         .holders = &holder,
                                         .n_holders = 1 };
    begin = now_usec();
    snapshot_write(&w, &box);
    middle = now_usec();
    must(snapshot_read(&snapshot, w.data, w.len, NULL) == 0, "no box");
    printf("a box of %d devices and %d leases: %zu KiB, written in %.0f us, read in %.0f us\n",
           N_DEVICES, N_LEASES, w.len >> 10, middle - begin, now_usec() - middle);
    snapshot_free(snapshot);
    json_writer_done(&w);
}

int main(void) {
    double read, write, other_read, other_write;

    write = time_ours(&read);
    other_write = time_json_c(&other_read);
    printf("Grow              read us  reply us   both us\n");
    printf("allot             %7.2f  %8.2f  %8.2f\n", read, write, read + write);
    printf("json-c alone      %7.2f  %8.2f  %8.2f\n", other_read, other_write,
           other_read + other_write);
    time_box();
    return EXIT_SUCCESS;
}
