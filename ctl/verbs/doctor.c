/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doctor: what is wrong with this box, and how to fix it.
 *
 * A list of checks, ordered by dependency. Each finding is printed at once, so that a hanging
 * driver shows where it hangs. A limit of this machine is only a note; the exit status is bad only
 * for problems that can be fixed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup_owner.h"
#include "base/cleanup.h"
#include "ctl/gpuctl.h"
#include "ctl/installed.h"
#include "ctl/source/box_view.h"
#include "ctl/verbs/selftest.h"
#include "ctl/view/show.h"
#include "wire/client.h"

enum { OPT_SELFTEST = 1, OPT_TRANSCRIPT };

static const struct option_def options_table[] = {
    { OPT_SELFTEST, 0, "selftest", NULL, "test on this box what Allot claims to enforce" },
    { OPT_TRANSCRIPT, 0, "transcript", "FILE",
      "with --selftest: record the results in this file, for Allot's developers", WORD_FILE },
};

enum finding_level { FINE, NOTE, WRONG };

struct doctor {
    const struct term *term;
    unsigned n_wrong;
};

static void find(struct doctor *doctor, enum finding_level finding, const char *remedy,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
static void find(struct doctor *doctor, enum finding_level finding, const char *remedy,
                 const char *format, ...) {
    static const char *const words[] = { "fine", "note", "WRONG" };
    static const enum term_style styles[] = { STYLE_GOOD, STYLE_PLAIN, STYLE_BAD };
    cleanup(freep) char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    term_item(doctor->term, styles[finding], 7, words[finding], text ? text : "out of memory");
    /* Marked, so that it does not look like the end of a wrapped finding. */
    if (remedy)
        term_item(doctor->term, STYLE_DIM, 9, doctor->term->utf8 ? "       → " : "       > ",
                  remedy);
    fflush(doctor->term->out);
    doctor->n_wrong += finding == WRONG;
}

static void check_host(struct doctor *doctor) {
    if (cgroup_owner_root())
        find(doctor, FINE, NULL, "cgroup v2 is mounted");
    else
        find(doctor, NOTE,
             "boot with systemd.unified_cgroup_hierarchy=1; without it tiers 1 and 2 are not "
             "available",
             "cgroup v2 is not mounted");
    if (access("/run/systemd/system", F_OK) == 0)
        find(doctor, FINE, NULL, "systemd runs here");
    else
        find(doctor, NOTE, "jobs have no scope of their own, so tiers 1 and 2 are not available",
             "systemd does not run here");
}

static void check_guard(struct doctor *doctor) {
    char path[INSTALLED_PATH_SIZE];

    if (installed_find(path, "../guard/liballot-guard.so", GPUCTL_GUARD))
        find(doctor, FINE, NULL, "the guard is installed: %s", path);
    else
        find(doctor, WRONG,
             "install it: without it unmodified programs are not held to their share",
             "the guard is missing: %s", GPUCTL_GUARD);
}

/* Device nodes, if the driver is a real one: what a program of this user could open. */
static void check_nodes(struct doctor *doctor, const struct wire_box *box, bool is_managed) {
    struct stat st;

    if (strcmp(box->driver, "nvidia"))
        return;
    if (stat("/dev/nvidiactl", &st) < 0) {
        find(doctor, WRONG,
             "nvidia-modprobe -c 0 -u makes the device nodes; nvidia-persistenced keeps them",
             "there is no /dev/nvidiactl");
        return;
    }
    if (is_managed && box->mode == WIRE_BOX_LOCKED && (st.st_mode & S_IRWXO))
        find(doctor, WRONG, "see NVreg_DeviceFileMode, and allotd.conf(5) on the locked mode",
             "the box is configured as locked, but all users can open /dev/nvidiactl");
    else
        find(doctor, FINE, NULL, "/dev/nvidiactl is there");
}

static void check_device(struct doctor *doctor, const struct wire_device *d) {
    char text[SHOW_SIZE];

    if (d->state == WIRE_DEVICE_LOST)
        find(doctor, WRONG,
             "look at the kernel's log (journalctl -k -g Xid); reset it with nvidia-smi -r once "
             "no process uses it, or power-cycle the host; then gpuctl resume",
             "GPU %" PRIu64 " is lost%s%s", d->index, d->reason ? ": " : "",
             d->reason ? d->reason : "");
    else if (d->state == WIRE_DEVICE_DRAINING)
        find(doctor, NOTE, "gpuctl resume puts it back into service",
             "GPU %" PRIu64 " is drained%s%s", d->index, d->reason ? ": " : "",
             d->reason ? d->reason : "");
    else if (d->stale_usec.has)
        find(doctor, WRONG,
             "the driver hangs: look at the kernel's log; processes in state D hold the device",
             "GPU %" PRIu64 ": the readings have been stale for %s", d->index,
             show_age(0, d->stale_usec.value, text));
    else
        find(doctor, FINE, NULL, "GPU %" PRIu64 " is ready, %s of %s free", d->index,
             show_bytes(d->free_bytes, text), show_bytes(d->usable_bytes, (char[SHOW_SIZE]){}));
    if (d->ecc_uncorrected.has && d->ecc_uncorrected.value > 0)
        find(doctor, WRONG,
             "reset the GPU so that the pages are retired; replace it if errors continue",
             "GPU %" PRIu64 " had %" PRIi64 " uncorrected memory errors", d->index,
             d->ecc_uncorrected.value);
    if (d->overcommitted_bytes)
        find(doctor, WRONG,
             "end the unmanaged processes below, or run them under \"gpuctl run\"; the locked mode "
             "prevents it",
             "GPU %" PRIu64 " is overcommitted by %s", d->index,
             show_bytes(d->overcommitted_bytes, text));
}

static void check_tiers(struct doctor *doctor, const struct wire_box *box) {
    static const char *const remedies[] = {
        [1] = "needs driver 615 or later and cgroup v2; not for MIG",
        [2] = "needs systemd, cgroup v2, and allot-hand running as root",
        [5] = "needs NVML's process lists; the reason is above",
    };

    for (size_t i = 0; i < box->n_tiers; i++) {
        const struct wire_tier *tier = &box->tiers[i];

        /* These tiers come with the processes of jobs: without any, the box has no fault. */
        if (!tier->proven && (tier->number == 3 || tier->number == 4)) {
            find(doctor, FINE, NULL, "tier %" PRIu64 ", %s: no process uses it now", tier->number,
                 tier->name);
            continue;
        }
        find(doctor, tier->proven ? FINE : NOTE,
             !tier->proven && tier->number < ELEMENTSOF(remedies) ? remedies[tier->number] : NULL,
             "tier %" PRIu64 ", %s, is %s: %s", tier->number, tier->name,
             tier->proven ? "proven" : "absent", tier->detail);
    }
    if (box->mode == WIRE_BOX_OPEN)
        find(doctor, NOTE, "allotd.conf(5) on \"mode\" says how to lock it",
             "the box is open: programs can still be started outside leases");
    else
        find(doctor, FINE, NULL, "the box is locked: no lease, no GPU");
}

static void check_people(struct doctor *doctor, const struct wire_box *box) {
    char text[SHOW_SIZE];

    for (size_t i = 0; i < box->n_processes; i++) {
        const struct wire_process *p = &box->processes[i];

        if (!p->lease.has) /* in open mode it is allowed; in locked mode it got around something */
            find(doctor, box->mode == WIRE_BOX_OPEN ? NOTE : WRONG, "run it under \"gpuctl run\"",
                 "process %" PRIu64 " of %s has no lease and uses %s: %s", p->pid,
                 p->user ? p->user : "an unknown user", show_maybe_bytes(p->used_bytes, text),
                 p->command);
        else if (p->offence)
            find(doctor, WRONG, "\"gpuctl kill\" with the number of the lease ends the job",
                 "process %" PRIu64 " of %s, lease %" PRId64 ": %s", p->pid,
                 p->user ? p->user : "an unknown user", p->lease.value, p->offence);
    }
    for (size_t i = 0; i < box->n_leases; i++)
        if (view_lease_is_idle(&box->leases[i]))
            find(doctor, NOTE, "gpuctl release, or a rule for idle leases in allotd.conf(5)",
                 "lease %" PRIu64 " of %s has held memory and computed nothing for %s",
                 box->leases[i].id, box->leases[i].user,
                 show_age(0, box->leases[i].idle_usec.value, text));
    for (size_t i = 0; i < box->n_notices; i++)
        find(doctor, NOTE, NULL, "allotd says: %s", box->notices[i]);
}

static int run(struct gpuctl *ctl, int argc, char **argv) {
    struct allot_error err = {};
    struct box_view box_view;
    struct option_parser options;
    struct doctor doctor = { .term = &ctl->term };
    const struct wire_box *box;
    const char *transcript = NULL;
    bool is_selftest = false;
    int id;

    option_parser_init(&options, ctl, &verb_doctor, argc, argv);
    while ((id = option_parser_next(&options)) > 0) {
        if (id == OPT_TRANSCRIPT)
            transcript = options.value;
        is_selftest |= id == OPT_SELFTEST;
    }
    if (id < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(&verb_doctor, "unexpected argument \"%s\"",
                                     argv[options.first]);
    if (transcript && !is_selftest)
        return gpuctl_complain_usage(&verb_doctor, "--transcript can only be used with --selftest");
    if (is_selftest)
        return selftest_run(ctl, transcript);

    check_host(&doctor);
    check_guard(&doctor);
    if (box_view_take(&box_view, ctl, NULL, &err) < 0)
        find(
            &doctor, WRONG,
            "if the driver is installed: systemctl start allotd, then see journalctl -u allotd; if "
            "not: install it until nvidia-smi works",
            "%s", err.text);
    else {
        box = &box_view.box;
        if (!box_view.view.is_managed)
            find(&doctor, WRONG, "systemctl start allotd; journalctl -u allotd says why it ended",
                 "%s", box_view.trouble);
        else if (strcmp(box->version, ALLOT_VERSION))
            find(&doctor, WRONG, "systemctl restart allotd; jobs keep their leases",
                 "allotd has version %s, gpuctl has version " ALLOT_VERSION, box->version);
        else
            find(&doctor, FINE, NULL, "allotd %s answers", box->version);
        if (box->grace_usec.has && box->grace_usec.value > 0)
            find(&doctor, NOTE, NULL, "allotd was restarted and waits for jobs to come back");
        check_nodes(&doctor, box, box_view.view.is_managed);
        if (box->n_devices == 0)
            find(&doctor, WRONG, "check lspci | grep -i nvidia, then nvidia-smi -L",
                 "there is no GPU");
        for (size_t i = 0; i < box->n_devices; i++)
            check_device(&doctor, &box->devices[i]);
        if (box_view.view.is_managed) {
            check_tiers(&doctor, box);
            check_people(&doctor, box);
        }
        box_view_done(&box_view);
    }
    if (doctor.n_wrong == 0)
        printf("No problems found.\n");
    else
        printf("%u problem%s to fix.\n", doctor.n_wrong, doctor.n_wrong == 1 ? "" : "s");
    return doctor.n_wrong ? EXIT_UNSOUND : EXIT_OK;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .operands = "",
    .summary = "problems of this box and their remedies",
    VERB_OPTIONS(options_table),
    .word = WORD_NONE,
    .notes = "With --selftest it tries things out: it allocates memory in every way that there\n"
             "is, within its leases and beyond them, and shows what each tier refuses and what\n"
             "calls cost. It takes less than five minutes and\n"
             "a few hundred MiB of each card, and needs no root. Example:\n"
             "  gpuctl doctor --selftest --transcript selftest.txt\n"
             "Exit status: 0 no problems, 7 problems.\n",
    .run = run,
};
