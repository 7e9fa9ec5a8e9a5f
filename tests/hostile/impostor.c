/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program can ask of the helpers that has taken over allotd:
 *
 *   impostor SOCKET signal PID [UID]   end a process, in root's name or in that of a user
 *   impostor SOCKET confine PID UID    move one into a scope
 *   impostor SOCKET all PID UID...     both, in root's name, the user's and root's as a user
 *   impostor SOCKET known              tell of a GPU with links without end
 *   impostor SOCKET wild SEED          every kind of question, with fields that make no sense
 *
 * Prints the answer, or "closed"; after `wild` how many of them were answered.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/hand/wire.h"

#define N_KINDS 18 /* two more than there are */

static union hand_message message;

static int ask(int fd, uint32_t kind) {
    static uint64_t serial;
    ssize_t n;

    message.head = (struct hand_head){ .kind = kind, .serial = ++serial };
    if (send(fd, &message, hand_size(kind), MSG_NOSIGNAL) < 0)
        return -1;
    do
        n = recv(fd, &message, sizeof(message), 0);
    while (n > 0 && message.head.kind != HAND_ANSWER);
    return n > 0 ? 0 : -1;
}

/* Field 22 of /proc/PID/stat. */
static uint64_t start_of(int pid) {
    char path[64], text[1024], *after;
    unsigned long long start = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (f && fgets(text, sizeof(text), f) && (after = strrchr(text, ')')))
        sscanf(after,
               ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
               "%*d %llu",
               &start);
    if (f)
        fclose(f);
    return start;
}

static int greet(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        perror("connect");
        exit(1);
    }
    memset(&message, 0, sizeof(message));
    message.hello.abi = HAND_ABI;
    message.hello.driver = DRIVER_AUTO;
    if (ask(fd, HAND_HELLO) < 0 || message.answer.r < 0) {
        puts("no hello");
        exit(1);
    }
    memset(&message, 0, sizeof(message));
    return fd;
}

static uint8_t next_byte(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(*random >> 56);
}

/* Noise all over, or a few wild bytes in a question that else makes sense. */
static void make_wild(uint64_t *random, size_t size) {
    bool is_noise = next_byte(random) % 2;
    uint8_t *bytes = (uint8_t *)&message;

    memset(&message, 0, sizeof(message));
    for (size_t i = sizeof(message.head); i < size; i++)
        if (is_noise)
            bytes[i] = next_byte(random);
    for (unsigned i = 0; !is_noise && i < 8 && size > sizeof(message.head); i++)
        bytes[sizeof(message.head) + (next_byte(random) * 256u + next_byte(random)) %
                                         (size - sizeof(message.head))] = next_byte(random);
}

static void be_wild(const char *path, uint64_t random) {
    unsigned n_asked = 0, n_answered = 0;
    int fd = -1;

    for (unsigned round = 0; round < 4 * N_KINDS; round++) {
        uint32_t kind = round % N_KINDS;
        size_t size = hand_size(kind) ? hand_size(kind) : sizeof(message);

        /* What a lock or a probe does is allotd's to ask for, and not wild. */
        if (kind == HAND_LOCK || kind == HAND_PROBE)
            continue;
        if (fd < 0)
            fd = greet(path);
        make_wild(&random, size);
        message.head = (struct hand_head){ .kind = kind, .serial = 2 };
        n_asked++;
        if (send(fd, &message, size, MSG_NOSIGNAL) > 0 &&
            recv(fd, &message, sizeof(message), 0) > 0 && kind != HAND_SAMPLE) {
            n_answered++;
            continue;
        }
        close(fd); /* refused; or there are more rows to come than one */
        fd = -1;
    }
    printf("%u of %u\n", n_answered, n_asked);
}

/* `what` PID [UID]: the answer, or "closed". */
static void attack(int fd, const char *what, int pid, const char *uid) {
    int r;

    memset(&message, 0, sizeof(message));
    if (strcmp(what, "signal") == 0) {
        message.signal.signal = (struct hand_signal){
            .signal = SIGKILL, .pid = pid, .start = start_of(pid), .as_user = uid != NULL
        };
        message.signal.signal.uid = uid ? (uint32_t)atoi(uid) : 0;
        r = ask(fd, HAND_SIGNAL);
    } else if (strcmp(what, "confine") == 0) {
        message.confine.confine = (struct hand_confine){
            .lease = 999999, .pid = pid, .start = start_of(pid), .want_scope = true
        };
        message.confine.confine.uid = uid ? (uint32_t)atoi(uid) : 0;
        r = ask(fd, HAND_CONFINE);
    } else {
        message.device.device.n_links = UINT32_MAX;
        r = ask(fd, HAND_KNOWN);
    }
    if (r < 0)
        puts("closed");
    else
        printf("%d %s\n", message.answer.r, message.answer.text);
}

int main(int argc, char **argv) {
    int fd;

    if (argc < 3)
        return 2;
    if (strcmp(argv[2], "wild") == 0) {
        be_wild(argv[1], argc > 3 ? strtoull(argv[3], NULL, 10) : 0);
        return 0;
    }
    fd = greet(argv[1]);
    if (strcmp(argv[2], "all") != 0) {
        attack(fd, argv[2], argc > 3 ? atoi(argv[3]) : 0, argc > 4 ? argv[4] : NULL);
        return 0;
    }
    for (int i = 3; i + 1 < argc; i += 2) {
        attack(fd, "signal", atoi(argv[i]), NULL);
        attack(fd, "signal", atoi(argv[i]), argv[i + 1]);
        attack(fd, "signal", atoi(argv[i]), "0");
        attack(fd, "confine", atoi(argv[i]), argv[i + 1]);
    }
    return 0;
}
