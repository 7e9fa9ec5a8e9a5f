/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credit: two words per device, `used` ≤ `held`. Taking is a compare-and-swap on `used`. Only if
 * `used` would pass `held` does the guard ask the daemon: for a batch and, if that is too much, for
 * exactly the missing bytes. The first thread that meets the limit while others free memory sees
 * their frees, because `used` falls at once and `held` only later.
 *
 * A thread that takes reads `held` again afterwards, and a thread that gives back reads `used`
 * again after lowering `held`. If two race, at least one sees the other and undoes its change. So
 * giving back needs not the lock of the threads that ask, and must not take it: the thread that
 * reconnects to a restarted daemon also answers recalls, and threads that ask wait for exactly that
 * thread.
 *
 * Until the daemon has answered a return, it counts as held what `held` no longer counts. A growth
 * that it refuses meanwhile is therefore asked for again after that answer.
 *
 *        0         used              held                       limit
 *        |----------|.................|--------------------------|
 *         allocated   credit in hand    others of the job, or free
 *
 * Shares are in memory that a fork wipes instead of copying (MADV_WIPEONFORK): a process cloned by
 * the system call itself, so that no handler of ours runs, has no credit and gets none.
 *
 * Freed bytes stay in hand for LINGER_MSEC, because most programs allocate them again at once. Then
 * the keeper, a thread of the guard, gives back all but one batch.
 *
 * The client of the daemon is liballot, loaded when the first credit is needed: a program that
 * never touches a GPU gets neither the library nor a thread. It is loaded with RTLD_DEEPBIND, so
 * that it prefers its own symbols: a program may have other libraries with the same names.
 */
#include "guard/credit.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/gpuid.h"
#include "base/units.h"
#include "guard/note.h"
#include "guard/resolve.h"
#include "libclient/allot/lease.h"

#define PAGE           (UINT64_C(2) << 20)
#define UNIT           UINT64_C(512)
#define BATCH_MAX      (UINT64_C(64) << 20)
#define BATCH_MIN      (UINT64_C(8) << 20)
#define LINGER_MSEC    200
#define SILENCE_MSEC   10000
#define RECONNECT_USEC (UINT64_C(30) * 1000 * 1000) /* a daemon is restarted sooner than that */

struct credit_share {
    _Atomic uint64_t used; /* may pass `held` only by credit_force() */
    _Atomic uint64_t held;
    _Atomic uint64_t reserved; /* reserved by the program itself, used or not yet */
    pthread_mutex_t asking;    /* held while a thread asks the daemon for more */
    pthread_mutex_t returning; /* of the three below; never held during a call */
    pthread_cond_t returned;
    unsigned n_returning; /* threads that may have lowered `held` before the daemon knows */
    uint64_t n_returns;   /* that have ended */
    uint64_t limit, guaranteed, batch, context;
    uint8_t uuid[16];
    char text[GPUID_TEXT_SIZE];
};

/* liballot's functions that we call. */
#define LEASE_CALLS(X)                                                                             \
    X(allot_lease_attach)                                                                          \
    X(allot_lease_free)                                                                            \
    X(allot_lease_grow_with)                                                                       \
    X(allot_lease_held)                                                                            \
    X(allot_lease_shares)                                                                          \
    X(allot_lease_shrink)

static struct {
    pthread_mutex_t attaching;
    struct allot_lease *lease;
    struct credit_share *shares; /* CREDIT_SHARES_MAX of them; NULL: never attached */
    int n_shares;
    uint64_t wait_usec; /* how long a growth may wait; 0: not at all */
    sem_t wake;         /* of the keeper: no descriptor, which the program could close */
    bool has_keeper;
    _Atomic bool lingering;
    void (*settle)(int share);
    void (*hear)(const struct allot_lease_notice *notice);
#define X(name) __typeof__(&name) name;
    struct {
        LEASE_CALLS(X)
    } calls;
#undef X
} credit = { .attaching = PTHREAD_MUTEX_INITIALIZER };

enum { UNASKED = 0, ATTACHED = 1 };
_Atomic int credit_state; /* one of these, or CREDIT_NONE, or CREDIT_REFUSED */

uint64_t credit_now_msec(void) {
    return clock_usec(CLOCK_MONOTONIC) / 1000;
}

uint64_t credit_size(uint64_t bytes) {
    uint64_t unit = bytes >= PAGE / 2 ? PAGE : UNIT;

    if (bytes > UINT64_MAX - PAGE)
        return UINT64_MAX;
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t pages(uint64_t bytes) {
    return bytes > UINT64_MAX - PAGE ? UINT64_MAX : (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Bytes that must not be given back: in use or reserved. */
static uint64_t needed(const struct credit_share *share) {
    return MAX(pages(share->used), share->reserved);
}

void credit_on_short(void (*settle)(int share)) {
    credit.settle = settle;
}

void credit_on_notice(void (*hear)(const struct allot_lease_notice *notice)) {
    credit.hear = hear;
}

/* ---- The lease ------------------------------------------------------------------------------ */

/* liballot is installed beside the guard; in a build tree it is in the neighbouring folder. */
static void *open_client(char *text, size_t size) {
    static const char *const places[] = { "liballot.so.0", "../liballot.so.0",
                                          "../libclient/liballot.so.0" };
    char path[PATH_MAX];
    const char *why = NULL;
    Dl_info info;
    int flags = RTLD_NOW | RTLD_LOCAL;
    void *handle;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    flags |= RTLD_DEEPBIND; /* the sanitizers do not support it */
#endif
    if (dladdr(&credit, &info) == 0 || !info.dli_fname)
        return NULL;
    for (size_t i = 0; i < ELEMENTSOF(places); i++) {
        const char *slash = strrchr(info.dli_fname, '/');
        int folder = slash ? (int)(slash - info.dli_fname) : 0;

        snprintf(path, sizeof(path), "%.*s/%s", slash ? folder : 1, slash ? info.dli_fname : ".",
                 places[i]);
        if (access(path, R_OK) < 0)
            continue;
        handle = dlopen(path, flags);
        if (handle)
            return handle;
        why = dlerror();
    }
    snprintf(text, size, "%s", why ? why : "liballot.so.0 is not beside the guard");
    return NULL;
}

static int load_calls(struct allot_error *err) {
    char why[256] = "";
    void *handle = open_client(why, sizeof(why));

    if (!handle) {
        snprintf(err->text, sizeof(err->text), "the client library cannot be loaded: %s", why);
        return -ENOENT;
    }
#define X(name)                                                                                    \
    credit.calls.name = (__typeof__(&name))dlsym(handle, #name);                                   \
    if (!credit.calls.name) {                                                                      \
        snprintf(err->text, sizeof(err->text),                                                     \
                 "the client library has no %s: it is older than the guard", #name);               \
        return -ENOENT;                                                                            \
    }
    LEASE_CALLS(X)
#undef X
    return 0;
}

static void return_begin(struct credit_share *share) {
    pthread_mutex_lock(&share->returning);
    share->n_returning++;
    pthread_mutex_unlock(&share->returning);
}

static void return_end(struct credit_share *share) {
    pthread_mutex_lock(&share->returning);
    share->n_returning--;
    share->n_returns++;
    pthread_cond_broadcast(&share->returned);
    pthread_mutex_unlock(&share->returning);
}

static uint64_t returns_so_far(struct credit_share *share) {
    uint64_t n;

    pthread_mutex_lock(&share->returning);
    n = share->n_returns;
    pthread_mutex_unlock(&share->returning);
    return n;
}

/* Whether a return ended after there were `so_far`; waits for the next one that is under way. */
static bool await_return(struct credit_share *share, uint64_t so_far) {
    bool has_ended;

    pthread_mutex_lock(&share->returning);
    while (share->n_returns == so_far && share->n_returning)
        pthread_cond_wait(&share->returned, &share->returning);
    has_ended = share->n_returns != so_far;
    pthread_mutex_unlock(&share->returning);
    return has_ended;
}

static bool give_back_within(struct credit_share *share, uint64_t keep) {
    uint64_t held = share->held, spare;

    do {
        uint64_t need = needed(share);

        spare = held > need && held - need > keep ? held - need - keep : 0;
        spare -= spare % PAGE;
        if (!spare)
            return false;
    } while (!atomic_compare_exchange_strong(&share->held, &held, held - spare));
    if (needed(share) > share->held) { /* another thread just took them */
        share->held += spare;
        return false;
    }
    if (credit.calls.allot_lease_shrink(credit.lease, share->text, spare, NULL) < 0) {
        share->held += spare; /* the daemon did not take them: still ours */
        return false;
    }
    return true;
}

/* Give back what is held and not used, except `keep` bytes. True if there was something to give. */
static bool give_back(struct credit_share *share, uint64_t keep) {
    bool has_given;

    return_begin(share);
    has_given = give_back_within(share, keep);
    return_end(share);
    return has_given;
}

static struct credit_share *share_of_text(const char *uuid) {
    for (int i = 0; i < credit.n_shares; i++)
        if (strcmp(credit.shares[i].text, uuid) == 0)
            return &credit.shares[i];
    return NULL;
}

static void on_notice(void *userdata, const struct allot_lease_notice *notice) {
    (void)userdata;
    /* Tell the program first: it may give back what it reserved. */
    if (credit.hear)
        credit.hear(notice);
    if (notice->event == ALLOT_LEASE_RECALL) {
        struct credit_share *share = notice->device ? share_of_text(notice->device) : NULL;

        if (!share || credit_state != ATTACHED)
            return;
        if (credit.settle)
            credit.settle((int)(share - credit.shares));
        if (!give_back(share, 0)) /* even with nothing to give, answer: the daemon waits for it */
            credit.calls.allot_lease_shrink(credit.lease, share->text, 0, NULL);
    } else if (notice->event == ALLOT_LEASE_ENDING || notice->event == ALLOT_LEASE_LOST) {
        note(NOTE_DAEMON, "%s", notice->text);
    }
}

static void *keep(void *unused) {
    (void)unused;
    for (;;) {
        if (sem_wait(&credit.wake) < 0)
            continue;
        poll(NULL, 0, LINGER_MSEC);
        credit.lingering = false;
        for (int i = 0; i < credit.n_shares; i++)
            give_back(&credit.shares[i], credit.shares[i].batch);
    }
    return NULL;
}

static void start_keeper(void) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;

    sem_init(&credit.wake, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Without it, credits go back by recall alone. */
    credit.has_keeper = pthread_create(&thread, &attributes, keep, NULL) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int make_room(struct allot_error *err) {
    const size_t size = CREDIT_SHARES_MAX * sizeof(struct credit_share);
    struct credit_share *shares;

    if (credit.shares)
        return 0;
    shares = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shares == MAP_FAILED) {
        snprintf(err->text, sizeof(err->text), "no host memory for the shares of a lease");
        return -ENOMEM;
    }
    madvise(shares, size, MADV_WIPEONFORK); /* kernels before 4.14 do not have it */
    credit.shares = shares;
    return 0;
}

static void learn_shares(void) {
    struct allot_lease_share shares[CREDIT_SHARES_MAX];
    size_t n = credit.calls.allot_lease_shares(credit.lease, shares, CREDIT_SHARES_MAX);

    credit.n_shares = 0;
    for (size_t i = 0; i < n && i < CREDIT_SHARES_MAX; i++) {
        struct credit_share *share = &credit.shares[credit.n_shares];
        struct gpuid id;
        uint64_t batch;

        if (gpuid_parse(&id, shares[i].device) < 0)
            continue;
        memcpy(share->uuid, id.uuid, sizeof(share->uuid));
        gpuid_format(&id, share->text);
        batch = shares[i].limit_bytes / 64 / PAGE * PAGE;
        share->batch = MAX(MIN(batch, BATCH_MAX), BATCH_MIN);
        pthread_mutex_init(&share->asking, NULL);
        pthread_mutex_init(&share->returning, NULL);
        pthread_cond_init(&share->returned, NULL);
        share->n_returning = 0;
        share->limit = shares[i].limit_bytes;
        share->guaranteed = shares[i].guaranteed_bytes;
        share->context = shares[i].context_bytes;
        credit.n_shares++;
    }
}

static void attach(void) {
    const char *lease = secure_getenv("ALLOT_LEASE"), *wait = secure_getenv("ALLOT_WAIT");
    struct allot_lease_options options;
    struct allot_error err = { 0 };

    if (!lease || !*lease) {
        credit_state = CREDIT_NONE;
        return;
    }
    if (wait && units_parse_usec(&credit.wait_usec, wait) < 0)
        credit.wait_usec = 0;
    if (make_room(&err) < 0 || (!credit.calls.allot_lease_attach && load_calls(&err) < 0))
        goto fail;
    options = allot_lease_options_init();
    options.notice = on_notice;
    options.credits = true;
    options.tier = 3;
    options.reconnect_usec = RECONNECT_USEC;
    if (credit.calls.allot_lease_attach(&credit.lease, 0, NULL, &options, &err) < 0)
        goto fail;
    learn_shares();
    start_keeper();
    credit_state = ATTACHED;
    return;

fail:
    note(NOTE_DAEMON, "lease %s cannot be used, so no GPU memory can be allocated: %s", lease,
         err.text);
    credit_state = CREDIT_REFUSED;
}

/* The child of a fork holds nothing; the parent's threads, locks and connections are not the
 * child's. */
static void after_fork(void) {
    pthread_mutex_init(&credit.attaching, NULL);
    if (credit.lease)
        credit.lease = credit.calls.allot_lease_free(credit.lease);
    credit.has_keeper = false;
    credit.lingering = false;
    for (int i = 0; i < credit.n_shares; i++)
        credit.shares[i].used = credit.shares[i].held = credit.shares[i].reserved = 0;
    credit.n_shares = 0;
    if (credit_state != CREDIT_NONE)
        credit_state = UNASKED;
}

static bool is_attached(void) {
    if (__builtin_expect(credit_state == ATTACHED, 1))
        return true;
    if (credit_state == CREDIT_NONE)
        return false;
    pthread_mutex_lock(&credit.attaching);
    if (credit_state == UNASKED)
        attach();
    pthread_mutex_unlock(&credit.attaching);
    return credit_state == ATTACHED;
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(NULL, NULL, after_fork);
}

int credit_share(const uint8_t uuid[16]) {
    if (!is_attached())
        return credit_state == CREDIT_NONE ? CREDIT_NONE : CREDIT_REFUSED;
    for (int i = 0; i < credit.n_shares; i++)
        if (memcmp(credit.shares[i].uuid, uuid, 16) == 0)
            return i;
    return CREDIT_REFUSED;
}

int credit_n_shares(void) {
    return is_attached() ? credit.n_shares : 0;
}

const char *credit_uuid(int share) {
    return credit.shares[share].text;
}

/* ---- Taking and giving ---------------------------------------------------------------------- */

static bool take_from_hand(struct credit_share *share, uint64_t bytes) {
    uint64_t used = share->used;

    do {
        uint64_t held = share->held;

        if (used > held || bytes > held - used)
            return false;
    } while (!atomic_compare_exchange_weak(&share->used, &used, used + bytes));
    if (__builtin_expect(used + bytes <= share->held, 1))
        return true;
    share->used -= bytes; /* another thread just gave it back */
    return false;
}

/* By one thread at a time. */
static int ask_with(struct credit_share *share, uint64_t bytes,
                    const struct allot_lease_patience *patience, struct allot_error *err) {
    int r = credit.calls.allot_lease_grow_with(credit.lease, share->text, bytes, patience, err);

    if (r == 0)
        share->held += bytes;
    return r;
}

static int ask(struct credit_share *share, uint64_t bytes, uint64_t wait_usec,
               struct allot_error *err) {
    struct allot_lease_patience patience = allot_lease_patience_init();

    patience.timeout_usec = wait_usec;
    patience.reconnect_usec = RECONNECT_USEC;
    return ask_with(share, bytes, &patience, err);
}

static uint64_t missing(const struct credit_share *share, uint64_t bytes) {
    uint64_t used = share->used, held = share->held;
    uint64_t need = MAX(pages(used + bytes < used ? UINT64_MAX : used + bytes), share->reserved);

    return need > held ? need - held : 0;
}

/* As gpuctl(1) shows it: `GPU-1cb7d768`. */
static int brief(const struct credit_share *share) {
    return strncmp(share->text, "MIG-GPU-", 8) == 0 ? (int)strlen(share->text) : 12;
}

/* The daemon's words without the device, which the line has already named. */
static void shorten(char *text, const struct credit_share *share) {
    const size_t n = strlen(share->text);
    char *at;

    while (n > 0 && (at = strstr(text, share->text))) {
        char *end = at + n;

        if (at - text >= 4 && strncmp(at - 4, " on ", 4) == 0)
            at -= 4;
        else
            at = stpcpy(at, "it");
        memmove(at, end, strlen(end) + 1);
    }
}

/* Mention the cost of a context, because users forget to count it. */
static void refuse(const struct credit_share *share, uint64_t bytes,
                   const struct allot_error *err) {
    char asked[UNITS_TEXT_SIZE], used[UNITS_TEXT_SIZE], context[UNITS_TEXT_SIZE];
    struct allot_error why = *err;

    shorten(why.text, share);
    if (!why.text[0]) {
        char limit[UNITS_TEXT_SIZE];

        snprintf(why.text, sizeof(why.text),
                 "it would not fit even if nothing else were allocated: the job may use %s",
                 units_format_bytes(share->limit, limit));
    }
    note(NOTE_REFUSED, "%s refused on %.*s: this process uses %s (a context takes %s): %s",
         units_format_bytes(bytes, asked), brief(share), share->text,
         units_format_bytes(share->used, used), units_format_bytes(share->context, context),
         why.text);
}

static bool take_slowly(struct credit_share *share, uint64_t bytes) {
    struct allot_error err = { 0 };
    bool taken = false;
    int r = 0;

    if (share->limit == 0) {
        note(NOTE_REFUSED, "this process was cloned from one that holds a lease, and has no share "
                           "in it: start programs with fork() or exec()");
        return false;
    }
    if (bytes > share->limit) {
        refuse(share, bytes, &err);
        return false;
    }
    if (credit.settle)
        credit.settle((int)(share - credit.shares));
    pthread_mutex_lock(&share->asking);
    while (!(taken = take_from_hand(share, bytes)) && r >= 0) {
        uint64_t so_far = returns_so_far(share), need = missing(share, bytes);

        if (need == 0)
            continue; /* another thread just freed memory */
        r = -ENOSPC;
        /* Ask for a batch only if no other process can need it. */
        if (need < share->batch && share->held + share->batch <= share->limit)
            r = ask(share, share->batch, 0, &err);
        if (r < 0)
            r = ask(share, need, 0, &err);
        if (r == -ENOSPC && await_return(share, so_far))
            r = 0;
        else if (r < 0 && credit.wait_usec)
            r = ask(share, need, credit.wait_usec, &err);
    }
    pthread_mutex_unlock(&share->asking);
    if (!taken)
        refuse(share, bytes, &err);
    return taken;
}

bool credit_take(int share, uint64_t bytes) {
    if (__builtin_expect(take_from_hand(&credit.shares[share], bytes), 1))
        return true;
    return take_slowly(&credit.shares[share], bytes);
}

void credit_force(int i, uint64_t bytes) {
    struct credit_share *share = &credit.shares[i];
    struct allot_error err = { 0 };
    uint64_t need, so_far;
    int r = 0;

    share->used += bytes;
    pthread_mutex_lock(&share->asking);
    do {
        so_far = returns_so_far(share);
        need = missing(share, 0);
        if (need)
            r = ask(share, need, 0, &err);
    } while (need && (r == 0 || (r == -ENOSPC && await_return(share, so_far))));
    if (need && r < 0) {
        shorten(err.text, share);
        note(NOTE_OVER, "the driver took more on %.*s than the job may use: %s", brief(share),
             share->text, err.text);
    }
    pthread_mutex_unlock(&share->asking);
}

void credit_give(int i, uint64_t bytes) {
    struct credit_share *share = &credit.shares[i];
    uint64_t used = atomic_fetch_sub(&share->used, bytes) - bytes, held = share->held;

    if (held > used && held - used > 2 * share->batch && credit.has_keeper && !credit.lingering &&
        !atomic_exchange(&credit.lingering, true))
        sem_post(&credit.wake);
}

int credit_reserve(int i, uint64_t bytes, const struct allot_lease_patience *patience,
                   struct allot_error *err) {
    struct allot_lease_patience at_once = allot_lease_patience_init();
    struct credit_share *share = &credit.shares[i];
    uint64_t need, so_far;
    int r = 0;

    /* Leave out the caller's `go_on`: it is called below, without the lock. */
    at_once.reconnect_usec = 1;
    at_once.hangs_usec = patience->hangs_usec;
    at_once.cancel_fd = patience->cancel_fd;
    pthread_mutex_lock(&share->asking);
    share->reserved += bytes; /* first, so that no thread gives back the bytes in hand */
    while (so_far = returns_so_far(share), (need = missing(share, 0)) > 0) {
        r = ask_with(share, need, &at_once, err);
        if (r == -ENOSPC && await_return(share, so_far))
            r = 0;
        if (r == 0)
            continue;
        if (patience->timeout_usec == 0 && r != -ENOTCONN && r != -ECANCELED)
            break;
        /* Other threads that have to ask must not wait along with this one, and memory freed
         * meanwhile goes back. So nothing is set aside, and the bytes in hand are counted again
         * when the answer arrives. */
        share->reserved -= bytes;
        pthread_mutex_unlock(&share->asking);
        r = credit.calls.allot_lease_grow_with(credit.lease, share->text, need, patience, err);
        pthread_mutex_lock(&share->asking);
        share->reserved += bytes;
        if (r < 0)
            break;
        share->held += need;
    }
    if (r < 0)
        share->reserved -= bytes;
    pthread_mutex_unlock(&share->asking);
    return r;
}

void credit_unreserve(int i, uint64_t bytes) {
    credit.shares[i].reserved -= bytes;
    give_back(&credit.shares[i], 0);
}

int credit_held(int share, uint64_t *ret_bytes, struct allot_error *err) {
    return credit.calls.allot_lease_held(credit.lease, credit.shares[share].text, ret_bytes, err);
}

bool credit_view(int i, struct credit_view *ret) {
    static _Atomic uint64_t silent_until; /* the daemon did not answer: do not ask again before this
                                             time */
    struct credit_share *share = &credit.shares[i];
    uint64_t need, held, ours;

    if (credit.settle)
        credit.settle(i);
    need = needed(share);
    ours = share->held;
    if (credit_now_msec() < silent_until) {
        held = ours; /* nothing is known of other processes */
    } else if (credit.calls.allot_lease_held(credit.lease, share->text, &held, NULL) < 0) {
        silent_until = credit_now_msec() + SILENCE_MSEC;
        held = ours;
    }
    if (ours > need) /* bytes in hand but not used are as good as free */
        held -= MIN(held, ours - need);
    *ret = (struct credit_view){ share->limit, held };
    return true;
}

uint64_t credit_limit(int share) {
    return credit.shares[share].limit;
}

uint64_t credit_guaranteed(int share) {
    return credit.shares[share].guaranteed;
}

uint64_t credit_context(int share) {
    return credit.shares[share].context;
}
