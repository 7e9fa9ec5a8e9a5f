/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/selftest/transcript.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"

#define UUID_LENGTH 36

int transcript_open(struct transcript *transcript, const char *path, struct allot_error *err) {
    static const char *const variables[] = { "USER", "LOGNAME", "SUDO_USER", "HOME" };
    char host[256];
    int fd, r = 0;

    *transcript = (struct transcript){};
    if (!path)
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(err, -errno, "cannot write the transcript to %s: %s", path,
                         strerror(errno));
    transcript->out = fdopen(fd, "w");
    if (!transcript->out) {
        close(fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < ELEMENTSOF(variables) && r == 0; i++)
        r = transcript_hide(transcript, getenv(variables[i]));
    if (r == 0 && gethostname(host, sizeof(host) - 1) == 0) {
        host[sizeof(host) - 1] = '\0';
        r = transcript_hide(transcript, host);
        host[strcspn(host, ".")] = '\0';
        if (r == 0)
            r = transcript_hide(transcript, host);
    }
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

int transcript_close(struct transcript *transcript) {
    int r = 0;

    if (transcript->out) {
        if (ferror(transcript->out))
            r = -EIO;
        if (fclose(transcript->out) != 0 && r == 0)
            r = -errno;
    }
    for (size_t i = 0; i < transcript->n_hidden; i++)
        free(transcript->hidden[i]);
    free(transcript->hidden);
    *transcript = (struct transcript){};
    return r;
}

int transcript_hide(struct transcript *transcript, const char *word) {
    /* "root" is no secret; what is shorter than three letters would be found in every line. */
    if (!transcript->out || !word || strlen(word) < 3 || !strcmp(word, "root") ||
        !strcmp(word, "/root"))
        return 0;
    if (transcript->n_hidden == transcript->room) {
        const size_t room = transcript->room ? transcript->room * 2 : 16;
        char **grown = reallocarray(transcript->hidden, room, sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        transcript->hidden = grown;
        transcript->room = room;
    }
    transcript->hidden[transcript->n_hidden] = strdup(word);
    return transcript->hidden[transcript->n_hidden++] ? 0 : -ENOMEM;
}

int transcript_hide_box(struct transcript *transcript, const struct wire_box *box) {
    int r = transcript_hide(transcript, box->host);

    for (size_t i = 0; i < box->n_leases && r == 0; i++) {
        r = transcript_hide(transcript, box->leases[i].user);
        if (r == 0)
            r = transcript_hide(transcript, box->leases[i].name);
    }
    for (size_t i = 0; i < box->n_processes && r == 0; i++) {
        r = transcript_hide(transcript, box->processes[i].user);
        if (r == 0)
            r = transcript_hide(transcript, box->processes[i].command);
    }
    for (size_t i = 0; i < box->n_queue && r == 0; i++) {
        r = transcript_hide(transcript, box->queue[i].user);
        if (r == 0)
            r = transcript_hide(transcript, box->queue[i].name);
    }
    return r;
}

/* Bytes of the UUID at `text` with its "GPU-" or "MIG-"; 0: there is none. */
static size_t uuid_at(const char *text) {
    size_t n = 4;

    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
        return 0;
    while (n < 4 + UUID_LENGTH && (isxdigit((unsigned char)text[n]) || text[n] == '-'))
        n++;
    return n >= 4 + 8 ? n : 0;
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Bytes of the hidden word at `at` of `line`; 0: there is none. */
static size_t hidden_at(const struct transcript *transcript, const char *line, const char *at) {
    size_t longest = 0;

    for (size_t i = 0; i < transcript->n_hidden; i++) {
        const char *word = transcript->hidden[i];
        const size_t n = strlen(word);

        if (n > longest && !strncmp(at, word, n) &&
            (at == line || !is_word(at[-1]) || !is_word(*word)) &&
            (!is_word(at[n]) || !is_word(word[n - 1])))
            longest = n;
    }
    return longest;
}

void transcript_write(struct transcript *transcript, const char *format, ...) {
    cleanup(freep) char *line = NULL;
    va_list args;
    int r;

    if (!transcript->out)
        return;
    va_start(args, format);
    r = vasprintf(&line, format, args);
    va_end(args);
    if (r < 0) {
        line = NULL;
        return;
    }
    for (const char *at = line; *at;) {
        const size_t uuid = uuid_at(at), hidden = uuid ? 0 : hidden_at(transcript, line, at);

        if (uuid) {
            uint8_t digest[SHA256_SIZE];

            sha256(digest, at, uuid);
            fprintf(transcript->out, "%.3s#%02x%02x%02x%02x", at, digest[0], digest[1], digest[2],
                    digest[3]);
        } else if (hidden)
            fputs("(hidden)", transcript->out);
        else
            fputc(*at, transcript->out);
        at += uuid ? uuid : hidden ? hidden : 1;
    }
    fflush(transcript->out);
}
