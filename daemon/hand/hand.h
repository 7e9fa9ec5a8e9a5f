/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Hand: allotd's side of its two helpers.
 *
 * allot-reader loads NVML and has no capability; it reads devices and lists their processes.
 * allot-hand is root and never loads anything of NVIDIA's; it looks at processes in /proc, makes
 * scopes and signals. Neither decides anything. A sample is the reader's, completed by what the
 * hand knows of the processes in it.
 *
 * Everything here is asynchronous, on the event loop's thread: no call ever waits for the driver. A
 * helper that does not answer in time, or ends, is abandoned and replaced by another connection
 * (and process); the other one goes on. Readings are stale as soon as one is overdue, until the
 * next one. A signal that needs no reading does not wait for a hand that is busy
 * (daemon/hand/signal_fallback.h).
 *
 * Calls: an answer comes exactly once, from the loop, never from inside the call that asked: with 0
 * or -errno and a sentence. -ETIMEDOUT: the helper got stuck on it. -ECONNRESET: the helper ended,
 * and its successor may be asked again. hand_free() drops open calls without an answer.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/gpuid.h"
#include "daemon/broker/sample.h"
#include "driver/driver.h"

struct sd_event;
struct hand;

#define HAND_SOCKET        "/run/allot/hand"   /* of allot-hand.socket */
#define HAND_READER_SOCKET "/run/allot/reader" /* of allot-reader.socket */
#define HAND_DEVICES_MAX   64                  /* of a lease */
#define HAND_DETAILS_MAX   6

/* What the helpers tell by themselves. All required; borrowed data, valid during the callback. */
struct hand_watcher {
    void *userdata;
    void (*sampled)(void *userdata, const struct sample *sample);
    void (*happened)(void *userdata, const struct sample_event *event);
    /*
     * Readings are stale: `since_usec` is when the last sample was taken (0: there was none yet).
     * Told once, and once more if the helper that did not answer is given up; the next sampled()
     * ends it.
     */
    void (*stale)(void *userdata, uint64_t since_usec, const char *reason);
};

struct hand_options {
    struct sd_event *event; /* borrowed */
    enum driver_choice driver;
    struct hand_address {
        const char *socket;  /* connect here; NULL: start `program` over a socket pair */
        const char *program; /* NULL: the one beside the running program, or the installed one */
    } hand, reader;
    uint64_t period_usec;  /* between samples; 0: 1 s */
    uint64_t timeout_usec; /* for a sample or a call; 0: 10 s */
    uint64_t stale_usec;   /* a sample that takes longer is overdue; 0: 2 s */
    struct hand_watcher watcher;
};

/*
 * Returns at once; the first sample comes from the loop. Fails only if there is no memory or one of
 * the two cannot be started at all (no program, no listener); then it is not tried again.
 */
int hand_new(struct hand **ret, const struct hand_options *options, struct allot_error *err);
struct hand *hand_free(struct hand *hand); /* accepts NULL, returns NULL; the helpers end too */
DEFINE_FREEP(struct hand, hand_freep, hand_free)

/* CLOCK_BOOTTIME of the last sample if readings are stale (1 if there never was one), else 0. */
uint64_t hand_stale_since(const struct hand *hand);

/* Take samples this often from now on, and call readings stale when one is this late. */
void hand_set_period(struct hand *hand, uint64_t period_usec, uint64_t stale_usec);

/* Take a sample now rather than at the next period; several wishes become one. */
void hand_sample(struct hand *hand);

/* How many helpers were replaced so far: hands, and readers. */
unsigned hand_n_replaced(const struct hand *hand);
unsigned hand_n_readers_replaced(const struct hand *hand);

/* ---- Confinement: scope and limit ---------------------------------------------------------- */

struct hand_confine {
    uint64_t lease;
    pid_t pid;       /* the caller itself, between fork and exec */
    uint64_t start;  /* field 22 of its /proc/PID/stat: another process of that pid is refused */
    uint32_t uid;    /* the user whose process it must be */
    bool want_scope; /* tier 2 */
    bool want_limit; /* tier 1; only in a scope of our own: other cgroups have other jobs in them */
    uint32_t n_devices;
    struct {
        struct gpuid id;
        uint64_t limit_bytes; /* hard limit of the driver */
    } devices[HAND_DEVICES_MAX];
};

struct hand_confined {
    char scope[64];   /* "allot-17.scope"; "": none */
    char cgroup[256]; /* cgroup2 path of the scope; "": none */
    uint32_t tiers;   /* bit n: tier n is in force, each looked at after it was set */
    uint32_t n_details;
    char details[HAND_DETAILS_MAX][200]; /* a sentence for each tier: in force, or why not */
};

/* ---- Signals ------------------------------------------------------------------------------- */

struct hand_signal {
    int signal;
    /*
     * With the rights of this user and no others, as if the user had sent it: a process that runs
     * as another user by now is not reached.
     */
    bool as_user;
    uint32_t uid;
    /* One process (pid != 0), or every process of a scope's cgroup. */
    pid_t pid;
    uint64_t start;
    char cgroup[256]; /* as in hand_confined; only cgroups of our own scopes are accepted */
};

/* The part of a device that a process must exceed. */
struct hand_excess {
    struct gpuid device;
    uint64_t over_bytes;
};

struct hand_signalled {
    uint32_t n_processes; /* signalled; 0 of hand_signal_over(): it is no longer over */
    bool has_used;
    uint64_t used_bytes; /* of hand_signal_over(): by NVML, just before */
};

/* ---- What a job left behind ------------------------------------------------------------------ */

/* The processes of a user whose environment has the marks of a lease (daemon/enforce/job_marks.h).
 */
struct hand_find {
    uint64_t lease;
    uint32_t uid;
    uint32_t has_token;
    uint8_t token[32]; /* the token's digest, then it alone counts; else the number of the lease */
    pid_t pid;         /* whether this process is one; 0: look at all */
};

#define HAND_FOUND_MAX 64
struct hand_found {
    uint32_t n_processes;
    struct {
        pid_t pid;
        uint64_t start;
    } processes[HAND_FOUND_MAX]; /* there may be more */
};

/* ---- Probes of the tiers ------------------------------------------------------------------- */

/* Tiers 1, 2 and 5: proven only if what must be refused was tried just now and was refused. */
struct hand_probes {
    struct {
        bool proven;
        char detail[200]; /* how it was proven, or why it is absent */
    } tiers[6];           /* by number; 0, 3 and 4 are not the hand's */
};

/* The answer to a request: the member that belongs to it is filled in. */
struct hand_answer {
    struct hand_confined confined;
    struct hand_signalled signalled;
    struct hand_found found;
    struct hand_probes probes;
};

/* `answer` is NULL unless r is 0; `err` says why r is not 0. */
typedef void (*hand_fn)(void *userdata, int r, const struct hand_answer *answer,
                        const struct allot_error *err);

/* Ask. 0: `done` will be called once, unless the hand is freed before. */
int hand_confine(struct hand *hand, const struct hand_confine *confine, hand_fn done,
                 void *userdata);
int hand_signal(struct hand *hand, const struct hand_signal *signal, hand_fn done, void *userdata);
/*
 * Only if NVML still shows the process, by its pid, with more than `excess` says. The signal then
 * goes to the process of that pid and start, so what NVML showed was about it: it lived then.
 */
int hand_signal_over(struct hand *hand, const struct hand_signal *signal,
                     const struct hand_excess *excess, hand_fn done, void *userdata);
int hand_find(struct hand *hand, const struct hand_find *find, hand_fn done, void *userdata);
int hand_probe(struct hand *hand, hand_fn done, void *userdata);

/*
 * Close every handle to a GPU (its instances with it), or read it again. Remembered: a successor is
 * told, too. The answer comes when the handles are closed; until it is opened the samples have the
 * device as SAMPLE_CLOSED. -ENOENT: no such GPU was read yet (so call it after the first sample).
 */
int hand_close_device(struct hand *hand, const struct gpuid *gpu, bool closed, hand_fn done,
                      void *userdata);

/*
 * Locked mode: close the GPUs' device nodes to users' sessions and managers, so that only the
 * scopes of leases have them; false opens them again. A lock returns 0 only if it was tested and
 * works. It outlives hand and daemon until it is opened or the machine reboots.
 */
int hand_lock(struct hand *hand, bool locked, hand_fn done, void *userdata);
