/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remote: -H runs the same command line, without the -H, with the gpuctl of another host over ssh.
 * With several hosts, the gpuctl of each says at the same time what its box is like.
 *
 * ssh gives the remote shell one string, so every word is quoted for it. The other side writes for
 * our terminal: it is told its width and locale. It gets a terminal of its own only if ours is one,
 * because a program under `run` or `top` needs it.
 */
#include "ctl/source/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ctl/gpuctl.h"

/* Append a word in single quotes, safe for every shell. */
static void quote(FILE *to, const char *word) {
    fputs(" '", to);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", to);
        else
            fputc(*word, to);
    fputc('\'', to);
}

/* Whether `word` is -H in any spelling: how many words it takes; 0 if it is something else. */
static int host_words(const char *word) {
    if (!strcmp(word, "-H") || !strcmp(word, "--host"))
        return 2;
    return (!strncmp(word, "-H", 2) && word[2]) || !strncmp(word, "--host=", 7) ? 1 : 0;
}

static void pass_variable(FILE *to, const char *name) {
    const char *value = getenv(name);
    cleanup(freep) char *word = NULL;

    if (value && asprintf(&word, "%s=%s", name, value) > 0)
        quote(to, word);
}

/* The command line of ssh. */
struct ssh {
    char *host; /* without its port; owned */
    const char *words[20];
};

/* -EINVAL: `text` names no host; -ENOMEM. `command` is borrowed. */
static int ssh_init(struct ssh *ssh, const char *text, const char *how, const char *command) {
    const char *program = getenv("ALLOT_SSH");
    char *colon, *port = NULL;
    size_t n = 0;

    ssh->host = strdup(text);
    if (!ssh->host)
        return -ENOMEM;
    colon = strrchr(ssh->host, ':');
    if (colon && !strchr(ssh->host, ']') && strchr(ssh->host, ':') == colon) {
        *colon = '\0';
        port = colon + 1;
    }
    if (!*ssh->host || *ssh->host == '-' ||
        (port && (!*port || strspn(port, "0123456789") != strlen(port))))
        return -EINVAL;
    ssh->words[n++] = program && *program ? program : "ssh";
    ssh->words[n++] = how;
    ssh->words[n++] = "-x";
    if (!strcmp(how, "-n")) { /* among several: one that asks, or is silent, holds up the others */
        ssh->words[n++] = "-oBatchMode=yes";
        ssh->words[n++] = "-oConnectTimeout=5";
    }
    if (port) {
        ssh->words[n++] = "-p";
        ssh->words[n++] = port;
    }
    ssh->words[n++] = "--";
    ssh->words[n++] = ssh->host;
    ssh->words[n++] = command;
    ssh->words[n] = NULL;
    return 0;
}

/* The beginning of a command line of gpuctl for the remote shell. */
static void put_gpuctl(FILE *to, const struct gpuctl *ctl) {
    pass_variable(to, "LC_ALL");
    pass_variable(to, "LC_CTYPE");
    pass_variable(to, "LANG");
    pass_variable(to, "NO_COLOR");
    fputs(" gpuctl", to);
    if (ctl->socket) {
        fputs(" --socket", to);
        quote(to, ctl->socket);
    }
}

int remote_exec(const struct gpuctl *ctl, int argc, char **argv, int first) {
    cleanup(freep) char *command = NULL;
    struct ssh ssh = { 0 };
    size_t length = 0;
    struct term term;
    FILE *to = open_memstream(&command, &length);
    int r;

    if (!to)
        return gpuctl_complain(EXIT_FAILED, "out of memory");
    term_init(&term, stdout, ctl->colour, ctl->ascii);
    fprintf(to, "env COLUMNS=%u", term.width);
    put_gpuctl(to, ctl);
    if (ctl->ascii)
        fputs(" --ascii", to);
    fprintf(to, " --color=%s --driver=%s", term.colour ? "always" : "never", ctl->driver);
    for (int i = 0; i < argc; i++) {
        const int skip = i < first ? host_words(argv[i]) : 0;

        if (skip)
            i += skip - 1;
        else
            quote(to, argv[i]);
    }
    if (fclose(to) != 0)
        return gpuctl_complain(EXIT_FAILED, "out of memory");
    r = ssh_init(&ssh, ctl->host, isatty(STDIN_FILENO) && term.is_tty ? "-t" : "-T", command);
    if (r == 0) {
        fflush(stdout);
        execvp(ssh.words[0], (char **)ssh.words);
        r = -errno;
    }
    free(ssh.host);
    if (r == -EINVAL)
        return gpuctl_complain_usage(NULL, "\"%s\" is not a host: -H [USER@]HOST[:PORT]",
                                     ctl->host);
    errno = -r;
    return gpuctl_complain(EXIT_FAILED, "cannot run %s: %m; -H needs an ssh client",
                           ssh.words[0] ? ssh.words[0] : "ssh");
}

/* ---- Several hosts --------------------------------------------------------------------------- */

enum { ANSWER_MAX = 32 << 20, COMPLAINT_MAX = 4096 };
/* A host that has not answered by then counts as one that does not. */
#define ANSWER_USEC (20 * UINT64_C(1000000))

/* One ssh under way. */
struct asked {
    struct remote_host *host;
    pid_t pid;          /* 0: none, or it has ended and was waited for */
    int out, err, ends; /* its output, its complaints; readable once it has ended */
    int status;
    char *text, *complaint; /* owned */
    size_t n, n_complaint;
};

static void asked_done(struct asked *asked) {
    const int fds[] = { asked->out, asked->err, asked->ends };

    if (asked->pid > 0) {
        kill(asked->pid, SIGKILL);
        while (waitpid(asked->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    for (size_t i = 0; i < ELEMENTSOF(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(asked->text);
    free(asked->complaint);
}

__attribute__((noreturn)) static void become_ssh(const struct ssh *ssh, int out, int err) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null >= 0)
        dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execvp(ssh->words[0], (char **)ssh->words);
    dprintf(STDERR_FILENO, "cannot run %s: %m; -H needs an ssh client\n", ssh->words[0]);
    _exit(255);
}

static int asked_begin(struct asked *asked, const char *command) {
    int out[2] = { -1, -1 }, err[2] = { -1, -1 };
    struct ssh ssh = { 0 };
    int r = ssh_init(&ssh, asked->host->name, "-n", command);

    if (r == 0 &&
        (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ||
         fcntl(out[0], F_SETFL, O_NONBLOCK) < 0 || fcntl(err[0], F_SETFL, O_NONBLOCK) < 0))
        r = -errno;
    if (r == 0) {
        asked->pid = fork();
        if (asked->pid == 0)
            become_ssh(&ssh, out[1], err[1]);
        asked->ends = asked->pid > 0 ? (int)syscall(SYS_pidfd_open, asked->pid, 0) : -1;
        r = asked->ends < 0 ? -errno : 0;
    }
    free(ssh.host);
    close(out[1]);
    close(err[1]);
    asked->out = out[0];
    asked->err = err[0];
    if (r < 0)
        error_set(&asked->host->trouble, r, "%s%s",
                  r == -EINVAL ? "this is no host: [USER@]HOST[:PORT]"
                               : "no ssh could be started: ",
                  r == -EINVAL ? "" : strerror(-r));
    return r;
}

/* Take what there is of a pipe, and close it where it ends or has more than `max` bytes in all. */
static void drain(int *fd, char **text, size_t *n, size_t max) {
    char piece[65536], *grown;
    ssize_t got = 0;

    while (*fd >= 0) {
        got = read(*fd, piece, sizeof(piece));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        grown = got > 0 && *n + (size_t)got <= max ? realloc(*text, *n + (size_t)got + 1) : NULL;
        if (!grown) {
            close(*fd);
            *fd = -1;
            return;
        }
        *text = grown;
        memcpy(grown + *n, piece, (size_t)got);
        *n += (size_t)got;
        grown[*n] = '\0';
    }
}

/* Read all answers as they come, until every ssh has ended or the time is over. A master connection
 * that ssh leaves behind may keep the pipes open: they need not end. */
static void gather(struct asked *asked, size_t n) {
    const uint64_t until = clock_usec(CLOCK_MONOTONIC) + ANSWER_USEC;

    for (;;) {
        struct pollfd fds[3 * REMOTE_HOSTS_MAX];
        uint64_t now = clock_usec(CLOCK_MONOTONIC);
        size_t n_running = 0;

        for (size_t i = 0; i < n; i++) {
            struct asked *one = &asked[i];
            const bool runs = one->pid > 0;

            fds[3 * i] = (struct pollfd){ .fd = runs ? one->ends : -1, .events = POLLIN };
            fds[3 * i + 1] = (struct pollfd){ .fd = runs ? one->out : -1, .events = POLLIN };
            fds[3 * i + 2] = (struct pollfd){ .fd = runs ? one->err : -1, .events = POLLIN };
            n_running += runs;
        }
        if (n_running == 0 || now >= until)
            return;
        if (poll(fds, 3 * n, (int)((until - now) / 1000 + 1)) < 0 && errno != EINTR)
            return;
        for (size_t i = 0; i < n; i++) {
            struct asked *one = &asked[i];

            if (one->pid <= 0)
                continue;
            /* First the end, then what was written before it. */
            if (fds[3 * i].revents && waitpid(one->pid, &one->status, WNOHANG) == one->pid)
                one->pid = 0;
            drain(&one->out, &one->text, &one->n, ANSWER_MAX);
            drain(&one->err, &one->complaint, &one->n_complaint, COMPLAINT_MAX);
        }
    }
}

/* The last line that ssh or the other gpuctl complained with. */
static const char *last_line(char *text) {
    char *end = text ? text + strlen(text) : NULL, *begin;

    while (end && end > text && (end[-1] == '\n' || end[-1] == '\r'))
        *--end = '\0';
    if (!end || end == text)
        return NULL;
    begin = strrchr(text, '\n');
    return begin ? begin + 1 : text;
}

/* The members of view_json(). */
static int parse(struct remote_host *host, char *text, size_t n) {
    struct json_reader r;
    char *name, *box = NULL, *trouble = NULL;
    size_t length, n_box = 0;
    int64_t at = 0;
    int code;

    json_reader_init(&r, text, n);
    code = json_enter(&r, JSON_OBJECT);
    while (code >= 0 && (code = json_next_member(&r, &name, &length)) > 0) {
        if (!strcmp(name, "box"))
            code = json_skip(&r, &box, &n_box);
        else if (!strcmp(name, "managed"))
            code = json_read_bool(&r, &host->is_managed);
        else if (!strcmp(name, "at"))
            code = json_read_int(&r, &at);
        else if (!strcmp(name, "trouble") && json_peek(&r) == JSON_STRING)
            code = json_read_string(&r, &trouble, NULL);
        else
            code = json_skip(&r, NULL, NULL);
    }
    if (code == 0)
        code = json_finish(&r);
    if (code < 0 || !box)
        return error_set(&host->trouble, -EBADMSG,
                         "its gpuctl did not answer with a box: is it an older version?");
    host->at_usec = at > 0 ? (uint64_t)at : 0;
    if (trouble)
        error_set(&host->trouble, -EHOSTDOWN, "%s", trouble);
    return snapshot_read(&host->snapshot, box, n_box, &host->trouble);
}

/* What became of one. */
static void asked_end(struct asked *asked) {
    struct remote_host *host = asked->host;
    const char *why = last_line(asked->complaint);

    if (host->trouble.code < 0) /* it was not asked */
        return;
    if (asked->pid > 0)
        error_set(&host->trouble, -ETIMEDOUT, "no answer within %u s",
                  (unsigned)(ANSWER_USEC / 1000000));
    else if (WIFEXITED(asked->status) && WEXITSTATUS(asked->status) == 0 && asked->text)
        parse(host, asked->text, asked->n);
    else
        error_set(&host->trouble, -EHOSTDOWN, "%s", why ? why : "ssh ended without an answer");
}

int remote_gather(const struct gpuctl *ctl, const char *const *words, struct remote_host *hosts,
                  size_t n) {
    struct asked asked[REMOTE_HOSTS_MAX] = { 0 };
    cleanup(freep) char *command = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&command, &length);

    if (!to)
        return -ENOMEM;
    fputs("env", to);
    put_gpuctl(to, ctl);
    fprintf(to, " --color=never --driver=%s status --json", ctl->driver);
    for (; *words; words++)
        quote(to, *words);
    if (fclose(to) != 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        asked[i] = (struct asked){ .host = &hosts[i], .out = -1, .err = -1, .ends = -1 };
        asked_begin(&asked[i], command);
    }
    gather(asked, n);
    for (size_t i = 0; i < n; i++) {
        asked_end(&asked[i]);
        asked_done(&asked[i]);
    }
    return 0;
}

/* None of them means anything in CSV or JSON. */
#define HOST_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@._:%[]-"

int remote_hosts_parse(const char *text, struct remote_host *ret, size_t *ret_n) {
    size_t n = 0;

    for (;;) {
        size_t length = strcspn(text, ",");

        if (length == 0 || length >= sizeof(ret[0].name) || strspn(text, HOST_LETTERS) < length)
            return -EINVAL;
        if (n == REMOTE_HOSTS_MAX)
            return -E2BIG;
        ret[n] = (struct remote_host){ 0 };
        memcpy(ret[n++].name, text, length);
        if (!text[length])
            break;
        text += length + 1;
    }
    *ret_n = n;
    return 0;
}

void remote_hosts_done(struct remote_host *hosts, size_t n) {
    for (size_t i = 0; i < n; i++)
        snapshot_free(hosts[i].snapshot);
}
