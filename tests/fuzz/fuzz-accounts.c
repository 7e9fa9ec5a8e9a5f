/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is the file of the accounts' database, as a damaged disk or another program left it. It
 * is refused with a sentence, or opened; then questions and notes are answered, whatever they find.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/accounts/db.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/tmpdir.h"

static int count(void *userdata, uint32_t uid, uint64_t slot, uint64_t byte_seconds) {
    (void)uid, (void)slot, (void)byte_seconds;
    return ++*(unsigned *)userdata < 100000 ? 0 : -1;
}

static void ask(struct accounts_db *db) {
    struct accounts_note note = {
        .kind = NOTE_BEGIN, .lease = 7, .uid = 1000, .what = "fixed", .text = "x"
    };
    struct allot_error err = { 0 };
    struct list notes;
    unsigned n_spent = 0;

    list_init(&notes);
    list_append(&notes, &note.in_queue);
    (void)accounts_db_write(db, &notes, &err);
    (void)accounts_db_close_orphans(db, &err);
    for (int by = ACCOUNTS_BY_USER; by <= ACCOUNTS_BY_DEVICE; by++) {
        const struct accounts_query query = { .until_usec = UINT64_MAX,
                                              .by = (enum accounts_by)by };
        cleanup(freep) struct accounts_row *rows = NULL;
        size_t n = 0;

        err.text[0] = '\0';
        if (accounts_db_usage(db, &query, &rows, &n, &err) < 0)
            fuzz_check(err.text[0]);
        for (size_t i = 0; i < n; i++)
            fuzz_check(memchr(rows[i].key, '\0', sizeof(rows[i].key)));
    }
    (void)accounts_db_spent(db, 0, 3600000000, count, &n_spent, &err);
    (void)accounts_db_prune(db, 1000000, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };
    struct accounts_db *db = NULL;
    struct allot_error err = { 0 };
    char path[4096];
    int fd;

    snprintf(path, sizeof(path), "%s/accounts", tmpdir());
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
    if (accounts_db_open(&db, path, 42, &err) < 0)
        fuzz_check(!db && err.text[0]);
    else
        ask(db);
    accounts_db_free(db);
    for (size_t i = 0; i < ELEMENTSOF(suffixes); i++) {
        snprintf(path, sizeof(path), "%s/accounts%s", tmpdir(), suffixes[i]);
        unlink(path);
    }
    return 0;
}
