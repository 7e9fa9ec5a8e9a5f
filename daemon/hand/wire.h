/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The private wire between allotd and allot-hand: a SOCK_SEQPACKET socket, each message one struct.
 *
 * allotd asks one thing at a time and waits for its HAND_ANSWER; a sample is answered by rows
 * before that. HAND_EVENT comes at any time. Both ends must be of one build: HELLO carries
 * HAND_ABI, which changes with every size, and a hand of another build refuses. A message of the
 * wrong size ends the connection. Nothing here comes from a client of allotd: only numbers that
 * allotd vouches for.
 */
#include <stddef.h>
#include <stdint.h>

#include "daemon/hand/hand.h"
#include "daemon/broker/sample.h"

enum hand_kind {
    /* allotd to hand */
    HAND_HELLO = 1, /* first of all */
    HAND_KNOWN,     /* a device that an earlier hand read */
    HAND_CLOSE,
    HAND_SAMPLE,
    HAND_CONFINE,
    HAND_SIGNAL,
    HAND_PROBE,
    HAND_LOCK,
    /* hand to allotd */
    HAND_DEVICE,  /* a row of a sample */
    HAND_PROCESS, /* likewise */
    HAND_EVENT,
    HAND_ANSWER,
};

struct hand_head {
    uint32_t kind;
    uint32_t reserved;
    uint64_t serial; /* of the question, in all that answers it; 0 in events */
};

struct hand_hello {
    struct hand_head head;
    uint32_t abi;
    uint32_t driver; /* enum driver_choice */
};

struct hand_close {
    struct hand_head head;
    struct gpuid gpu;
    uint32_t closed;
};

struct hand_plain {
    struct hand_head head; /* HAND_SAMPLE, HAND_PROBE */
};

struct hand_confine_question {
    struct hand_head head;
    struct hand_confine confine;
};

struct hand_signal_question {
    struct hand_head head;
    struct hand_signal signal;
};

struct hand_lock_question {
    struct hand_head head;
    uint32_t locked;
};

struct hand_device_row {
    struct hand_head head; /* HAND_DEVICE, and HAND_KNOWN */
    struct sample_device device;
};

struct hand_process_row {
    struct hand_head head;
    struct sample_process process;
};

struct hand_event_row {
    struct hand_head head;
    struct sample_event event;
};

/* What a sample says once. */
struct hand_sampled {
    uint64_t taken_usec;
    uint32_t is_simulated, cut, cuda_version;
    char driver_version[80];
};

struct hand_answer_row {
    struct hand_head head;
    int32_t r;
    char text[sizeof(((struct allot_error *)0)->text)]; /* where r is not 0 */
    union {
        struct hand_sampled sampled;
        struct hand_confined confined;
        struct hand_signalled signalled;
        struct hand_probes probes;
    };
};

union hand_message {
    struct hand_head head;
    struct hand_hello hello;
    struct hand_close close;
    struct hand_plain plain;
    struct hand_confine_question confine;
    struct hand_signal_question signal;
    struct hand_lock_question lock;
    struct hand_device_row device;
    struct hand_process_row process;
    struct hand_event_row event;
    struct hand_answer_row answer;
};

#define HAND_ABI                                                                                   \
    ((uint32_t)(1 + sizeof(union hand_message) * 3 + sizeof(struct hand_process_row) * 5 +         \
                sizeof(struct hand_answer_row) * 7 + sizeof(struct hand_signal_question) * 11 +    \
                offsetof(struct sample_device, links) * 13))

/* The size of a message of `kind`; 0: there is no such kind. */
static inline size_t hand_size(uint32_t kind) {
    switch (kind) {
    case HAND_HELLO:
        return sizeof(struct hand_hello);
    case HAND_KNOWN:
    case HAND_DEVICE:
        return sizeof(struct hand_device_row);
    case HAND_CLOSE:
        return sizeof(struct hand_close);
    case HAND_SAMPLE:
    case HAND_PROBE:
        return sizeof(struct hand_plain);
    case HAND_CONFINE:
        return sizeof(struct hand_confine_question);
    case HAND_SIGNAL:
        return sizeof(struct hand_signal_question);
    case HAND_LOCK:
        return sizeof(struct hand_lock_question);
    case HAND_PROCESS:
        return sizeof(struct hand_process_row);
    case HAND_EVENT:
        return sizeof(struct hand_event_row);
    case HAND_ANSWER:
        return sizeof(struct hand_answer_row);
    default:
        return 0;
    }
}

/* The descriptor on which a hand that allotd started itself finds its socket. */
#define HAND_FD 3
