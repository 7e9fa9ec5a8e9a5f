/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The private wire between allotd and its two helpers, allot-reader and allot-hand: a
 * SOCK_SEQPACKET socket to each, each message one struct.
 *
 * allotd asks one thing at a time and waits for its HAND_ANSWER; rows may come before that.
 * HAND_EVENT comes from the reader at any time. All must be of one build: HELLO carries HAND_ABI,
 * which changes with every size, and a helper of another build refuses. A message of the wrong
 * size, with a field that makes no sense (daemon/hand/message_check.h), or for the other helper,
 * ends the connection. Neither end trusts the other.
 */
#include <stddef.h>
#include <stdint.h>

#include "daemon/hand/hand.h"
#include "daemon/broker/sample.h"

/* Which of the two a question is for. */
enum hand_role { HAND_ROLE_READER, HAND_ROLE_HAND };

enum hand_kind {
    /* allotd to both */
    HAND_HELLO = 1, /* first of all */
    /* allotd to the reader */
    HAND_KNOWN = 2, /* a device that an earlier reader read */
    HAND_CLOSE = 3,
    HAND_SAMPLE = 4,
    HAND_USED = 14, /* what a process uses on a device now */
    /* allotd to the hand */
    HAND_CONFINE = 5,
    HAND_SIGNAL = 6,
    HAND_PROBE = 7,
    HAND_LOCK = 8,
    HAND_FIND = 9,
    HAND_DESCRIBE = 15, /* what /proc says of processes */
    /* to allotd */
    HAND_DEVICE = 10,  /* a row of a sample */
    HAND_PROCESS = 11, /* likewise; and one for each process that is described, in their order */
    HAND_EVENT = 12,
    HAND_ANSWER = 13,
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
    struct hand_head head; /* HAND_SAMPLE */
};

struct hand_used_question {
    struct hand_head head;
    struct gpuid device;
    pid_t pid;
};

#define HAND_DESCRIBE_MAX 256
struct hand_describe_question {
    struct hand_head head;
    uint32_t n;
    pid_t pids[HAND_DESCRIBE_MAX];
};

/* A process to confine, and what the hand must know of the devices: it does not ask the driver. */
struct hand_confine_question {
    struct hand_head head;
    struct hand_confine confine;
    struct hand_node {
        bool has_minor, is_mig;
        uint32_t minor; /* of /dev/nvidiaN; of an instance: its GPU's */
        uint32_t gpu_instance, compute_instance;
    } nodes[HAND_DEVICES_MAX]; /* of confine.devices, in their order */
};

struct hand_signal_question {
    struct hand_head head;
    struct hand_signal signal;
};

struct hand_find_question {
    struct hand_head head;
    struct hand_find find;
};

struct hand_probe_question {
    struct hand_head head;
    uint32_t has_gpu;
    struct gpuid gpu; /* a whole GPU to try the driver's limit on */
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
    uint32_t n_listed; /* devices that NVML lists the processes of */
    char driver_version[80];
    char list_trouble[160]; /* why it does not list those of one; "" */
};

struct hand_used {
    uint32_t is_listed; /* NVML lists the process on the device */
    uint64_t used_bytes;
};

struct hand_answer_row {
    struct hand_head head;
    int32_t r;
    char text[sizeof(((struct allot_error *)0)->text)]; /* where r is not 0 */
    union {
        struct hand_sampled sampled;
        struct hand_used used;
        struct hand_confined confined;
        struct hand_signalled signalled;
        struct hand_found found;
        struct hand_probes probes;
    };
};

union hand_message {
    struct hand_head head;
    struct hand_hello hello;
    struct hand_close close;
    struct hand_plain plain;
    struct hand_used_question used;
    struct hand_describe_question describe;
    struct hand_confine_question confine;
    struct hand_signal_question signal;
    struct hand_probe_question probe;
    struct hand_lock_question lock;
    struct hand_find_question find;
    struct hand_device_row device;
    struct hand_process_row process;
    struct hand_event_row event;
    struct hand_answer_row answer;
};

#define HAND_ABI                                                                                   \
    ((uint32_t)(3 + sizeof(union hand_message) * 3 + sizeof(struct hand_process_row) * 5 +         \
                sizeof(struct hand_answer_row) * 7 + sizeof(struct hand_signal_question) * 11 +    \
                sizeof(struct hand_confine_question) * 17 +                                        \
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
        return sizeof(struct hand_plain);
    case HAND_USED:
        return sizeof(struct hand_used_question);
    case HAND_DESCRIBE:
        return sizeof(struct hand_describe_question);
    case HAND_CONFINE:
        return sizeof(struct hand_confine_question);
    case HAND_SIGNAL:
        return sizeof(struct hand_signal_question);
    case HAND_PROBE:
        return sizeof(struct hand_probe_question);
    case HAND_LOCK:
        return sizeof(struct hand_lock_question);
    case HAND_FIND:
        return sizeof(struct hand_find_question);
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

/* The descriptor on which a helper that allotd started itself finds its socket. */
#define HAND_FD 3
