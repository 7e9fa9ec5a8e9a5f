/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process decides itself what it is called and what its arguments look like, so nothing of that
 * is more than decoration, with one exception: a display or MPS server is never signalled, and that
 * must not be had by prctl(PR_SET_NAME). So its name is that of the file it runs, and the file must
 * be root's.
 */
#include "daemon/hand/exec/proc.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* Length of the UTF-8 sequence at `p`, 0 if it is none (too long a form, surrogates, cut off). */
static size_t utf8_length(const unsigned char *p, size_t n) {
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = { { 0xe0, 0xc0, 0x80 }, { 0xf0, 0xe0, 0x800 }, { 0xf8, 0xf0, 0x10000 } };

    for (size_t i = 0; i < ELEMENTSOF(forms); i++) {
        uint32_t c = p[0] & (unsigned char)~forms[i].mask;

        if ((p[0] & forms[i].mask) != forms[i].lead || n < i + 2)
            continue;
        for (size_t j = 1; j < i + 2; j++) {
            if ((p[j] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (p[j] & 0x3f);
        }
        return c < forms[i].least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) || c < 0xa0
                   ? 0
                   : i + 2;
    }
    return 0;
}

void hand_proc_clean(char *ret, size_t size, const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    size_t len = 0;

    while (n > 0) {
        size_t step = 1;

        if (p[0] >= 0x80)
            step = utf8_length(p, n);
        if (len + MAX(step, (size_t)1) >= size)
            break;
        if (step == 0 || (step == 1 && (p[0] < ' ' || p[0] > '~'))) {
            ret[len++] = '?';
            step = 1;
        } else {
            memcpy(ret + len, p, step);
            len += step;
        }
        p += step;
        n -= step;
    }
    ret[len] = 0;
}

/* Up to size - 1 bytes of a file of the process; the length, -errno if there is none. */
static ssize_t read_file(const char *dir, const char *name, char *ret, size_t size) {
    char path[128];
    cleanup(closep) int fd = -1;
    size_t len = 0;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (len < size - 1) {
        ssize_t n = read(fd, ret + len, size - 1 - len);

        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    ret[len] = 0;
    return (ssize_t)len;
}

static uint64_t read_start(const char *dir) {
    unsigned long long start;
    char text[1024], *after;

    if (read_file(dir, "stat", text, sizeof(text)) < 0)
        return 0;
    after = strrchr(text, ')');
    /* A zombie holds nothing any more; NVML may still list it. */
    if (!after || strncmp(after, ") Z", 3) == 0 || strncmp(after, ") X", 3) == 0 ||
        sscanf(after,
               ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &start) != 1)
        return 0;
    return start;
}

/* Its arguments with blanks between, or its name where it has none (it overwrote them). */
static void read_command(const char *dir, struct sample_process *process) {
    char text[512];
    ssize_t n = read_file(dir, "cmdline", text, sizeof(text));

    while (n > 0 && text[n - 1] == 0)
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (text[i] == 0)
            text[i] = ' ';
    if (n <= 0) {
        n = read_file(dir, "comm", text, sizeof(text));
        if (n > 0 && text[n - 1] == '\n')
            n--;
    }
    hand_proc_clean(process->command, sizeof(process->command), text, n > 0 ? (size_t)n : 0);
}

/* Uid and the pid in its own namespace, from "Uid:\treal\t…" and "NSpid:\t…\town". */
static void read_status(const char *dir, struct sample_process *process) {
    char text[4096], *line;
    unsigned uid;

    if (read_file(dir, "status", text, sizeof(text)) < 0)
        return;
    line = strstr(text, "\nUid:");
    if (line && sscanf(line, " Uid: %u", &uid) == 1) {
        process->has_uid = true;
        process->uid = uid;
    }
    line = strstr(text, "\nNSpid:");
    if (line) {
        char *end = strchrnul(line + 1, '\n'), *last;

        *end = 0;
        last = strrchr(line, '\t');
        if (last && strchr(line, '\t') != last)
            process->namespace_pid = (pid_t)strtol(last, NULL, 10);
    }
}

static void read_cgroup(const char *dir, struct sample_process *process) {
    char text[4096], *line, *end;

    if (read_file(dir, "cgroup", text, sizeof(text)) < 0)
        return;
    line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return;
    line += *line == '\n' ? 4 : 3;
    end = strchrnul(line, '\n');
    *end = 0;
    hand_proc_container(process->container, sizeof(process->container), line);
    process->owner = cgroup_owner_find(cgroup_owner_root(), line);
    /* A part of a path is the path of another file. */
    if ((size_t)(end - line) < sizeof(process->cgroup))
        memcpy(process->cgroup, line, (size_t)(end - line) + 1);
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
    char dir[64];

    if (process->pid <= 0)
        return;
    snprintf(dir, sizeof(dir), "%s/%d", proc_dir, (int)process->pid);
    process->start = read_start(dir);
    if (!process->start)
        return;
    read_command(dir, process);
    read_status(dir, process);
    read_cgroup(dir, process);
    read_name(dir, process);
    /* If another process has the pid by now, then nothing of the above can be relied on. */
    if (read_start(dir) != process->start) {
        process->start = 0;
        process->has_uid = false;
        process->cgroup[0] = 0;
    }
}

static size_t count_hex(const char *p) {
    size_t n = 0;

    while (isxdigit((unsigned char)p[n]))
        n++;
    return n;
}

/* The name between `before` and `after` in a component of the path, whole. */
static bool take_name(char *ret, size_t size, const char *component, size_t n, const char *before,
                      const char *after) {
    size_t front = strlen(before), back = strlen(after);

    if (n <= front + back || strncmp(component, before, front) != 0 ||
        strncmp(component + n - back, after, back) != 0)
        return false;
    component += front;
    n -= front + back;
    if (count_hex(component) >= n && n >= 64)
        n = 12; /* as all tools show such an id */
    hand_proc_clean(ret, size, component, n);
    return true;
}

void hand_proc_container(char *ret, size_t size, const char *cgroup) {
    static const struct {
        const char *before, *after;
    } forms[] = {
        { "docker-", ".scope" },         { "libpod-", ".scope" },
        { "crio-", ".scope" },           { "machine-", ".scope" },
        { "cri-containerd-", ".scope" }, { "systemd-nspawn@", ".service" },
        { "lxc.payload.", "" },          { "nerdctl-", ".scope" },
    };
    const char *component = cgroup;

    ret[0] = 0;
    while (*component) {
        size_t n;

        component += strspn(component, "/");
        n = strcspn(component, "/");
        /* The innermost one wins: a container in a container is seen by its own name. */
        for (size_t i = 0; i < ELEMENTSOF(forms); i++)
            if (take_name(ret, size, component, n, forms[i].before, forms[i].after))
                break;
        if (n == 64 && count_hex(component) == 64) /* …/docker/ID, …/kubepods/…/ID */
            take_name(ret, size, component, n, "", "");
        component += n;
    }
}
