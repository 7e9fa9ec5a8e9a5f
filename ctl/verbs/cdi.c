/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cdi: a lease for a container.
 *
 * Container engines start the job outside of gpuctl, so they need in writing what `run` sets up for
 * a process: a CDI specification with one device that stands for the lease and brings the nodes of
 * its cards, the environment, allotd's socket and the guard. Processes in the container belong to
 * the lease by its token. The specification contains that token, so only its owner may read it.
 *
 * This process holds the lease as long as it runs. If a command is given, gpuctl starts it with the
 * device added; otherwise gpuctl stays until it is interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/source/call.h"
#include "ctl/job/request_options.h"
#include "ctl/gpuctl.h"
#include "ctl/job/job.h"
#include "ctl/installed.h"
#include "ctl/job/lease_wait.h"
#include "ctl/view/pretty.h"
#include "wire/snapshot.h"

#define CDI_KIND    "allot.io/lease"
#define CDI_VERSION "0.5.0"
#define CDI_DIR     "/var/run/cdi"
/* Where the guard is inside the container, and the library that it loads. */
#define GUARD_INSIDE    "/run/allot/liballot-guard.so"
#define LIBALLOT_INSIDE "/run/allot/liballot.so.0"

/* Files to mount into the container; "": not there. */
struct container_mounts {
    char guard[INSTALLED_PATH_SIZE], liballot[INSTALLED_PATH_SIZE];
};

enum { OPT_OUTPUT = REQUEST_OPTIONS_END, OPT_QUIET };

static const struct option_def options_table[] = {
    REQUEST_OPTIONS,
    { OPT_OUTPUT, 'o', "output", "DIR",
      "where to write it, \"-\" for stdout; " CDI_DIR " by default", WORD_FILE },
    { OPT_QUIET, 'q', "quiet", NULL, "no progress while it waits" },
};

static void put_node(struct json_writer *w, const char *path) {
    struct stat st;

    if (stat(path, &st) < 0 || !S_ISCHR(st.st_mode))
        return;
    json_begin(w, '{');
    json_name(w, "path");
    json_put_string(w, path);
    json_end(w, '}');
}

/* Add the node of a MIG instance, from what the driver says: "DeviceFileMinor: 12". */
static void put_capability(struct json_writer *w, const char *file) {
    FILE *from = fopen(file, "re");
    char line[128], path[64];
    unsigned minor;

    while (from && fgets(line, sizeof(line), from))
        if (sscanf(line, "DeviceFileMinor: %u", &minor) == 1) {
            snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", minor);
            put_node(w, path);
        }
    if (from)
        fclose(from);
}

/* Add the nodes of a device; for a MIG instance those of its GPU and of its GPU and compute
 * instances. */
static void put_device(struct json_writer *w, const struct wire_box *box,
                       const struct wire_device *device) {
    const struct wire_device *gpu =
        device->parent ? snapshot_find_device(box, device->parent) : device;
    char path[128];

    if (!gpu || !gpu->minor.has)
        return;
    snprintf(path, sizeof(path), "/dev/nvidia%" PRIi64, gpu->minor.value);
    put_node(w, path);
    if (!device->gpu_instance.has || !device->compute_instance.has)
        return;
    snprintf(path, sizeof(path),
             "/proc/driver/nvidia/capabilities/gpu%" PRIi64 "/mig/gi%" PRIi64 "/access",
             gpu->minor.value, device->gpu_instance.value);
    put_capability(w, path);
    snprintf(path, sizeof(path),
             "/proc/driver/nvidia/capabilities/gpu%" PRIi64 "/mig/gi%" PRIi64 "/ci%" PRIi64
             "/access",
             gpu->minor.value, device->gpu_instance.value, device->compute_instance.value);
    put_capability(w, path);
}

static void put_mount(struct json_writer *w, const char *from, const char *to) {
    static const char *const options[] = { "ro", "nosuid", "nodev", "bind" };

    json_begin(w, '{');
    json_name(w, "hostPath");
    json_put_string(w, from);
    json_name(w, "containerPath");
    json_put_string(w, to);
    json_name(w, "options");
    json_begin(w, '[');
    for (size_t i = 0; i < ELEMENTSOF(options); i++)
        json_put_string(w, options[i]);
    json_end(w, ']');
    json_end(w, '}');
}

static void put_variable(struct json_writer *w, const char *name, const char *value) {
    cleanup(freep) char *word = NULL;

    if (asprintf(&word, "%s=%s", name, value) < 0) {
        word = NULL;
        w->failed = true;
        return;
    }
    json_put_string(w, word);
}

/* The specification of a grant, with one device named by the number of the lease. */
static void put_spec(struct json_writer *w, const struct wire_grant *grant,
                     const struct wire_box *box, const char *socket,
                     const struct container_mounts *mounts) {
    char number[24];

    snprintf(number, sizeof(number), "%" PRIu64, grant->lease);
    json_begin(w, '{');
    json_name(w, "cdiVersion");
    json_put_string(w, CDI_VERSION);
    json_name(w, "kind");
    json_put_string(w, CDI_KIND);
    json_name(w, "devices");
    json_begin(w, '[');
    json_begin(w, '{');
    json_name(w, "name");
    json_put_string(w, number);
    json_name(w, "containerEdits");
    json_begin(w, '{');
    json_name(w, "env");
    json_begin(w, '[');
    for (size_t i = 0; i < grant->n_environment; i++)
        if (strcmp(grant->environment[i].name, "ALLOT_SOCKET"))
            put_variable(w, grant->environment[i].name, grant->environment[i].value);
    put_variable(w, "ALLOT_SOCKET", CLIENT_SOCKET_DEFAULT);
    put_variable(w, "TF_FORCE_GPU_ALLOW_GROWTH", "true");
    if (*mounts->guard)
        put_variable(w, "LD_PRELOAD", GUARD_INSIDE);
    json_end(w, ']');
    json_name(w, "deviceNodes");
    json_begin(w, '[');
    for (size_t i = 0; i < grant->n_shares; i++) {
        const struct wire_device *device = snapshot_find_device(box, grant->shares[i].device);

        if (device)
            put_device(w, box, device);
    }
    put_node(w, "/dev/nvidiactl");
    put_node(w, "/dev/nvidia-uvm");
    put_node(w, "/dev/nvidia-uvm-tools");
    json_end(w, ']');
    json_name(w, "mounts");
    json_begin(w, '[');
    put_mount(w, socket, CLIENT_SOCKET_DEFAULT);
    if (*mounts->guard) {
        put_mount(w, mounts->guard, GUARD_INSIDE);
        put_mount(w, mounts->liballot, LIBALLOT_INSIDE);
    }
    json_end(w, ']');
    json_end(w, '}');
    json_end(w, '}');
    json_end(w, ']');
    json_end(w, '}');
}

/* Write the file whole or not at all. `ret_path`: its path, for removing it at the end. */
static int write_spec(struct json_writer *w, const char *dir, uint64_t lease,
                      char ret_path[static PATH_MAX]) {
    char part[PATH_MAX];
    FILE *to;
    int fd, r;

    if (snprintf(ret_path, PATH_MAX, "%s/allot-lease-%" PRIu64 ".json", dir, lease) >= PATH_MAX ||
        snprintf(part, sizeof(part), "%s/.allot-lease-%" PRIu64 ".part", dir, lease) >= PATH_MAX)
        return gpuctl_complain(EXIT_RUN_FAILED, "the path %s is too long", dir);
    mkdir(dir, 0755); /* for the default folder; if another one is missing, opening the file fails
                         below */
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    to = fd < 0 ? NULL : fdopen(fd, "w");
    if (!to) {
        r = errno;
        if (fd >= 0)
            close(fd);
        return gpuctl_complain(
            EXIT_RUN_FAILED,
            "cannot write %s: %s; --output names another folder, which the container "
            "engine must know (docker: cdi-spec-dirs, podman: --cdi-spec-dir)",
            part, strerror(r));
    }
    r = pretty_print(w, to);
    if (fclose(to) != 0 || r < 0 || rename(part, ret_path) < 0) {
        unlink(part);
        return gpuctl_complain(EXIT_RUN_FAILED, "cannot write %s: %m", ret_path);
    }
    return EXIT_OK;
}

/* The command with "--device …" added after its "run" or "create". For free(). */
static char **add_device(char **command, char *option) {
    size_t n = 0, to = 0;
    char **words;
    bool added = false;

    while (command[n])
        n++;
    words = calloc(n + 2, sizeof(*words));
    for (size_t i = 0; words && i < n; i++) {
        words[to++] = command[i];
        if (!added && i > 0 && (!strcmp(command[i], "run") || !strcmp(command[i], "create"))) {
            words[to++] = option;
            added = true;
        }
    }
    return words;
}

static int become(void *userdata) {
    return job_exec(userdata, environ);
}

static int run_command(const struct wire_grant *grant, char **command) {
    cleanup(freep) char **words = NULL;
    char option[64];

    snprintf(option, sizeof(option), "--device=" CDI_KIND "=%" PRIu64, grant->lease);
    words = add_device(command, option);
    if (!words)
        return gpuctl_complain(EXIT_RUN_FAILED, "out of memory");
    return job_run(become, words);
}

/* Block the signals that end the lease, before its device is announced. */
static void block_signals(sigset_t *signals) {
    sigemptyset(signals);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGHUP);
    sigprocmask(SIG_BLOCK, signals, NULL);
}

static int serve(const struct gpuctl *ctl, struct client *client, const struct wire_grant *grant,
                 const char *dir, char **command) {
    cleanup(client_freep) struct client *asker = NULL;
    char path[PATH_MAX] = "";
    struct container_mounts mounts;
    struct json_writer w = {};
    union wire_reply reply;
    const char *first = grant->n_shares ? grant->shares[0].device : "…";
    sigset_t signals;
    int number, status;

    if (!installed_find(mounts.guard, "../guard/liballot-guard.so", GPUCTL_GUARD) ||
        !installed_find(mounts.liballot, "../libclient/liballot.so.0", GPUCTL_LIBALLOT))
        *mounts.guard = '\0';
    /* The grant lives in `client`, so ask for the box on another connection. */
    status = call_connect(&asker, ctl);
    if (status == EXIT_OK)
        status = call_make(asker, WIRE_METHOD_GET_BOX, NULL, &reply);
    if (status != EXIT_OK)
        return EXIT_RUN_FAILED;
    put_spec(&w, grant, reply.get_box.box, client_path(client), &mounts);
    if (!strcmp(dir, "-")) {
        if (pretty_print(&w, stdout) < 0)
            return gpuctl_complain(EXIT_RUN_FAILED, "out of memory");
    } else {
        status = write_spec(&w, dir, grant->lease, path);
        json_writer_done(&w);
        if (status != EXIT_OK)
            return status;
    }
    if (*command)
        status = run_command(grant, command);
    else {
        block_signals(&signals);
        fflush(stdout);
        fprintf(stderr,
                "gpuctl: lease %" PRIu64
                " is held until gpuctl is interrupted; meanwhile:\n  docker run --device " CDI_KIND
                "=%" PRIu64 " --device nvidia.com/gpu=%s IMAGE\n"
                "  podman run --device " CDI_KIND "=%" PRIu64 " --device nvidia.com/gpu=%s IMAGE\n"
                "gpuctl: the second device adds the driver's libraries (nvidia-ctk cdi generate "
                "describes it); do not\n"
                "gpuctl: write \"all\" there, which adds cards that this lease does not have\n",
                grant->lease, grant->lease, first, grant->lease, first);
        sigwait(&signals, &number);
    }
    if (*path)
        unlink(path);
    return status;
}

static int run(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    cleanup(request_options_done) struct request_options wanted;
    const struct wire_grant *grant;
    const char *dir = CDI_DIR;
    struct option_parser options;
    bool quiet = false;
    uint64_t lease;
    int id, status;

    request_options_init(&wanted);
    option_parser_init(&options, ctl, &verb_cdi, argc, argv);
    while ((id = option_parser_next(&options)) > 0) {
        if (id == OPT_OUTPUT)
            dir = options.value;
        else if (id == OPT_QUIET)
            quiet = true;
        else if (request_options_add(&wanted, &verb_cdi, id, options.value) < 0)
            return EXIT_USAGE;
    }
    if (id < 0)
        return options.status;
    if (request_options_finish(&wanted, &verb_cdi) < 0)
        return EXIT_USAGE;
    if (!wanted.request.wait.has)
        wanted.request.wait = wire_some(true);
    wanted.request.confine = wire_some(false); /* so that the grant has a token */
    if (!wanted.request.name)
        wanted.request.name = "container";
    status = call_connect(&client, ctl);
    if (status == EXIT_OK && wanted.is_slurm) {
        union wire_reply reply;

        status = call_make(client, WIRE_METHOD_GET_BOX, NULL, &reply);
        if (status == EXIT_OK && request_options_resolve(&wanted, reply.get_box.box) < 0)
            status = EXIT_FAILED;
    }
    if (status != EXIT_OK)
        return EXIT_RUN_FAILED;
    status = lease_wait_acquire(ctl, &wanted, quiet, client, &grant);
    if (status != EXIT_OK)
        return status;
    lease = grant->lease;
    status = serve(ctl, client, grant, dir, argv + options.first);
    client_call(client, WIRE_METHOD_RELEASE, &(struct wire_release){ lease }, 5000000, NULL, NULL,
                NULL);
    return status;
}

const struct verb verb_cdi = {
    .name = "cdi",
    .operands = "[-- ENGINE run [ARGUMENT…]]",
    .summary = "a lease for a container: a CDI specification and the run options",
    VERB_OPTIONS(options_table),
    .word = WORD_COMMAND,
    .stops = true,
    .notes = "With a command the device is added to it and the lease ends with it; without, the\n"
             "options to use are shown and the lease is held until Ctrl-C. Examples:\n"
             "  gpuctl cdi -d 0 --fraction 0.4 -- podman run --rm --device nvidia.com/gpu=0 IMAGE\n"
             "  gpuctl cdi --mem 8G --output ~/.config/cdi\n",
    .run = run,
};
