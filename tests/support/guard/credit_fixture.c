/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/guard/credit_fixture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guard/credit.h"

struct fake_lease *fixture_daemon;
unsigned fixture_n_notes[N_NOTES];
char fixture_note[1024];

/* In the place of the guard's own, which writes to standard error. Any thread. */
void note(enum note kind, const char *format, ...) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    va_list args;

    pthread_mutex_lock(&lock);
    fixture_n_notes[kind]++;
    va_start(args, format);
    vsnprintf(fixture_note, sizeof(fixture_note), format, args);
    va_end(args);
    pthread_mutex_unlock(&lock);
}

void fixture_add_share(const char *device, uint64_t limit_bytes, uint64_t guaranteed_bytes) {
    struct allot_lease_share *share = &fixture_daemon->shares[fixture_daemon->n_shares++];

    snprintf(share->device, sizeof(share->device), "%s", device);
    share->limit_bytes = limit_bytes;
    share->guaranteed_bytes = guaranteed_bytes;
    share->context_bytes = CONTEXT;
}

/* The library that the guard will load: it lies beside this program. */
void fixture_begin(void) {
    void *handle = dlopen(FAKE_LEASE_LIBRARY, RTLD_NOW | RTLD_LOCAL);

    ck_assert_msg(handle != NULL, "%s", dlerror());
    fixture_daemon = dlsym(handle, "fake_lease");
    ck_assert_ptr_nonnull(fixture_daemon);
    fixture_daemon->room_bytes = 1024 * GIB;
    setenv("ALLOT_LEASE", "7", 1);
    unsetenv("ALLOT_WAIT");
}

int fixture_share_of(uint8_t first) {
    const uint8_t uuid[16] = { first, first, first, first, 0x22, 0x22, 0x33, 0x33,
                               0x44,  0x44,  0x55,  0x55,  0x55, 0x55, 0x55, 0x55 };

    return credit_share(uuid);
}

/* One share of GPU, attached. */
int fixture_lease_of(uint64_t limit_bytes) {
    fixture_begin();
    fixture_add_share(GPU, limit_bytes, MIB);
    ck_assert_int_eq(fixture_share_of(0x11), 0);
    return 0;
}

void fixture_check_calls(const struct fake_call *calls, unsigned n_calls, const uint64_t *mib,
                         unsigned n) {
    ck_assert_uint_eq(n_calls, n);
    for (unsigned i = 0; i < n; i++)
        ck_assert_msg(calls[i].bytes == mib[i] * MIB, "call %u was of %llu bytes, not %llu MiB", i,
                      (unsigned long long)calls[i].bytes, (unsigned long long)mib[i]);
}
void fixture_tell(enum allot_lease_event event, const char *device) {
    struct allot_lease_notice notice = { .event = event, .device = device, .text = "so it is" };

    fixture_daemon->options.notice(fixture_daemon->options.userdata, &notice);
}

/* Whether the guard's thread gives something back within this time. */
bool fixture_gives_back(unsigned msec) {
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += msec / 1000;
    end.tv_nsec += (long)(msec % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    return sem_timedwait(&fixture_daemon->shrunk, &end) == 0;
}

int fixture_ends_with(pid_t pid) {
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Each case in a process of its own. */
void fixture_each(unsigned n, void (*try_case)(unsigned which)) {
    for (unsigned i = 0; i < n; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            try_case(i);
            _exit(0);
        }
        ck_assert_msg(fixture_ends_with(pid) == 0, "case %u", i);
    }
}
