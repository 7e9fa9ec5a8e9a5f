/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process decides itself what it is called and what its arguments look like, so they are only for
 * display, with one exception: a display or MPS server is never signalled, and a process must not
 * get that by prctl(PR_SET_NAME). So its name is that of the file it runs, and root must own the
 * file.
 */
#include "daemon/hand/exec/proc.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/proc_file.h"
#include "base/safe_text.h"

static void read_command(const char *proc, struct sample_process *process) {
    char text[512];
    size_t n = proc_file_command(proc, process->pid, text, sizeof(text));
    ssize_t n_name;

    safe_text_clean(process->command, sizeof(process->command), text, n);
    n_name = proc_file_read(proc, process->pid, "comm", text, sizeof(text));
    n = n_name > 0 ? (size_t)n_name : 0;
    safe_text_clean(process->name, sizeof(process->name), text,
                    n > 0 && text[n - 1] == '\n' ? n - 1 : n);
}

static void read_status(const char *proc, struct sample_process *process) {
    struct proc_file_status status = { 0 };

    proc_file_status(proc, process->pid, &status);
    process->has_uid = status.has_uid;
    process->uid = status.uid;
    process->namespace_pid = status.namespace_pid;
}

static void read_cgroup(const char *proc, struct sample_process *process) {
    char path[PROC_FILE_CGROUP_SIZE];

    if (proc_file_cgroup(proc, process->pid, path) < 0)
        return;
    cgroup_owner_container(process->container, sizeof(process->container), path);
    process->owner = cgroup_owner_find(cgroup_owner_root(), path);
    /* A part of a path is the path of another file. */
    if (strlen(path) < sizeof(process->cgroup))
        strcpy(process->cgroup, path);
}

/* The name of the file that it runs, if that is root's and only root may write it. */
static const char *trusted_name(const char *dir, char text[static 256]) {
    char path[128];
    struct stat st;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/exe", dir);
    if (stat(path, &st) < 0 || st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH))
        return "";
    n = readlink(path, text, 255);
    if (n <= 0)
        return "";
    text[n] = 0;
    return strrchr(text, '/') ? strrchr(text, '/') + 1 : text;
}

static void read_name(const char *dir, struct sample_process *process) {
    static const char *const displays[] = {
        "Xorg",         "X",           "Xwayland", "gnome-shell", "mutter",    "kwin_x11",
        "kwin_wayland", "sway",        "weston",   "gdm",         "sddm",      "lightdm",
        "Hyprland",     "cosmic-comp", "cinnamon", "xfwm4",       "gamescope",
    };
    static const char *const mps[] = { "nvidia-cuda-mps-server", "nvidia-cuda-mps-control" };
    char text[256];
    const char *name = trusted_name(dir, text);

    for (size_t i = 0; i < ELEMENTSOF(mps); i++)
        if (strcmp(name, mps[i]) == 0)
            process->kinds |= SAMPLE_MPS_SERVER;
    for (size_t i = 0; i < ELEMENTSOF(displays); i++)
        if (strcmp(name, displays[i]) == 0)
            process->kinds |= SAMPLE_DISPLAY;
}

void hand_proc_read(struct sample_process *process, const char *proc_dir) {
    uint64_t start;
    char dir[64];

    process->start = 0;
    if (proc_file_start(proc_dir, process->pid, &process->start) < 0 || !process->start)
        return;
    snprintf(dir, sizeof(dir), "%s/%d", proc_dir, (int)process->pid);
    read_command(proc_dir, process);
    read_status(proc_dir, process);
    read_cgroup(proc_dir, process);
    read_name(dir, process);
    /* If another process has the pid by now, none of this can be relied on. */
    if (proc_file_start(proc_dir, process->pid, &start) < 0 || start != process->start) {
        process->start = 0;
        process->has_uid = false;
        process->cgroup[0] = 0;
    }
}
