/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake systemd: a thread that answers on a bus of its own what the hand asks of systemd, over a
 * fake machine (tests/support/daemon/hand/fake_machine.h). It keeps a record of all that it was
 * asked, moves processes between cgroups and closes device nodes, as systemd would; and it fails
 * where it is told to.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A property of a unit. What is in no list is unknown, as to another version of systemd. */
struct fake_property {
    const char *name, *type; /* "t", "u", "s", "ay", "as", "a(st)", "a(ss)", "a(iayu)", "(bas)" */
    const char *text;        /* of lists: of one entry; NULL: none */
    uint64_t number;
};

struct fake_unit {
    const char *name, *slice, *cgroup;
    const struct fake_property *properties; /* up to one without name */
};

struct fake_systemd {
    /* Set by the test, before it asks. */
    const char *unit_of_pid;    /* what GetUnitByPID answers; NULL: nothing is known of it */
    struct fake_unit units[16]; /* up to one without name */
    const char *fails;      /* "Subscribe", "Get Slice": the call or property that is refused … */
    const char *failure;    /* … with this error of the bus; NULL: AccessDenied */
    unsigned n_pass;        /* … after so many that were not */
    const char *job_result; /* of scopes; NULL: "done" */
    bool signals_first;     /* JobRemoved comes before the answer that names the job */
    bool has_no_filter;     /* DevicePolicy= has no effect here */
    bool closes_sessions;   /* scopes of that name have no device, as if a drop-in said so */
    bool moves_nothing;     /* AttachProcessesToUnit says yes and does nothing */
    void (*attaching)(void *userdata, pid_t pid); /* before AttachProcessesToUnit is obeyed */
    void *userdata;

    /* What was asked, a line each: "StartTransientUnit \"allot-1.scope\" …" */
    char asked[65536];

    pthread_t thread;
    int listener;
    unsigned n_jobs, n_made;
    struct fake_made {
        char name[128], slice[256], cgroup[700];
    } made[32]; /* what `units` has of scopes that were started */
};

/* Start it; the bus of this process and its children is its own from now on. */
void fake_systemd_start(struct fake_systemd *systemd);
void fake_systemd_stop(struct fake_systemd *systemd);
/* Whether it was asked this, a part of a line or more; forget what it was asked. */
bool fake_systemd_was_asked(const struct fake_systemd *systemd, const char *words);
void fake_systemd_forget(struct fake_systemd *systemd);
