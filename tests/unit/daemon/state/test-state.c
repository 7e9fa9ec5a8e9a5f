/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "daemon/state/state.h"
#include "daemon/state/scan.h"
#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"

static const uint8_t boot[16] = { 1, 2, 3 }, other_boot[16] = { 9 };

static const char *dir; /* of this test */
static char file[4200];

static void begin(void) {
    dir = tmpdir();
    ck_assert_ptr_nonnull(dir);
    snprintf(file, sizeof(file), "%s/state", dir);
}

static struct state *open_state(struct state_report *report) {
    struct state *state = NULL;
    struct allot_error err = { 0 };
    int r;

    begin();
    r = state_open(&state, dir, boot, report, &err);
    ck_assert_msg(r == 0, "%s", err.text);
    return state;
}

static void commit(struct state *state) {
    struct allot_error err = { 0 };

    ck_assert_msg(state_commit(state, &err) == 0, "%s", err.text);
}

static struct gpuid device(uint8_t n) {
    return (struct gpuid){ .kind = GPUID_GPU, .uuid = { n, 0xaa } };
}

static void put_lease(struct state *state, uint64_t id) {
    struct record record = { .kind = RECORD_LEASE,
                             .lease = { .id = id,
                                        .mode = LEASE_GROW,
                                        .uid = 1000,
                                        .n_shares = 1,
                                        .shares = { { device(1), 1 << 30, 1 << 20 } } } };

    snprintf(record.lease.name, sizeof(record.lease.name), "job %d", (int)id);
    state_put(state, &record);
}

static void put_holder(struct state *state, uint64_t lease, int32_t pid, uint64_t held) {
    struct record record = { .kind = RECORD_HOLDER,
                             .holder = { .lease = lease,
                                         .pid = pid,
                                         .start = 77,
                                         .n_held = 1,
                                         .held = { { device(1), held, 0 } } } };

    state_put(state, &record);
}

static void put_waiter(struct state *state, uint64_t id, uint64_t order) {
    struct record record = { .kind = RECORD_WAITER,
                             .waiter = { .id = id, .order = order, .pid = 5 } };

    state_put(state, &record);
}

/* What a replay gives, as text. */
struct story {
    char text[4096];
    uint64_t next_lease;
    bool is_lost;
};

static int tell(void *userdata, const struct record *record) {
    struct story *story = userdata;
    size_t length = strlen(story->text);
    char *end = story->text + length;
    size_t left = sizeof(story->text) - length;

    switch (record->kind) {
    case RECORD_META:
        story->next_lease = record->meta.next_lease;
        story->is_lost = record->meta.is_lost;
        ck_assert_uint_eq(length, 0);
        snprintf(end, left, "M");
        break;
    case RECORD_DEVICE:
        snprintf(end, left, " D%u%s", record->device.id.uuid[0], record->device.drained ? "!" : "");
        break;
    case RECORD_LEASE:
        snprintf(end, left, " L%d", (int)record->lease.id);
        break;
    case RECORD_HOLDER:
        snprintf(end, left, " H%d.%d=%d", (int)record->holder.lease, record->holder.pid,
                 (int)record->holder.held[0].held_bytes);
        break;
    case RECORD_WAITER:
        snprintf(end, left, " W%d", (int)record->waiter.id);
        break;
    default:
        ck_abort_msg("%d is not live", record->kind);
    }
    return 0;
}

static struct story replay(struct state *state) {
    struct story story = { .text = "" };

    ck_assert_int_eq(state_replay(state, tell, &story), 0);
    return story;
}

/* Two leases, a holder each, a drained device, three waiters out of order; one lease ended. */
static void fill(struct state *state) {
    struct record drained = { .kind = RECORD_DEVICE,
                              .device = { .id = device(3), .drained = true, .reason = "fan" } };
    struct record gone = { .kind = RECORD_LEASE_GONE, .lease_gone = 3 };

    put_waiter(state, 1, 30);
    put_lease(state, 1);
    commit(state);
    put_lease(state, 2);
    put_lease(state, 3);
    put_holder(state, 1, 11, 100);
    commit(state);
    put_holder(state, 2, 22, 200);
    put_waiter(state, 2, 10);
    commit(state);
    state_put(state, &drained);
    state_put(state, &gone);
    put_waiter(state, 3, 20);
    put_holder(state, 1, 11, 150);
    commit(state);
}
#define FILLED "M D3! L1 L2 H1.11=150 H2.22=200 W2 W3 W1"

static void copy_file(const char *from, const char *to, size_t size) {
    uint8_t *bytes = malloc(size + 1);
    FILE *f = fopen(from, "r");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fread(bytes, 1, size, f), size);
    fclose(f);
    f = fopen(to, "w");
    ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
    ck_assert_int_eq(fclose(f), 0);
    free(bytes);
}

static uint8_t *read_whole(size_t *ret_size) {
    FILE *f = fopen(file, "r");
    uint8_t *bytes;
    struct stat st;

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fstat(fileno(f), &st), 0);
    bytes = malloc((size_t)st.st_size);
    *ret_size = fread(bytes, 1, (size_t)st.st_size, f);
    fclose(f);
    return bytes;
}

static void write_whole(const uint8_t *bytes, size_t size) {
    FILE *f = fopen(file, "w");

    ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(a_fresh_directory_is_empty_and_says_nothing) {
    struct state_report report;
    struct state *state = open_state(&report);

    ck_assert(report.is_fresh && !report.is_lost && !report.is_rebooted);
    ck_assert_str_eq(report.text, "");
    ck_assert_str_eq(replay(state).text, "M");
    ck_assert_uint_eq(replay(state).next_lease, 1);
    ck_assert(state_is_ready(state, NULL));
    state_free(state);
}
END_TEST

START_TEST(committed_records_come_back_and_others_do_not) {
    struct state_report report;
    struct state *state = open_state(&report);

    fill(state);
    put_lease(state, 9);
    state_free(state);

    state = open_state(&report);
    ck_assert(!report.is_fresh && !report.is_lost);
    ck_assert_str_eq(report.text, "");
    ck_assert_str_eq(replay(state).text, FILLED);
    ck_assert_uint_eq(report.n_leases, 2);
    ck_assert_uint_eq(report.n_holders, 2);
    ck_assert_uint_eq(report.n_waiters, 3);
    /* Lease 3 is gone, its number is not used again. */
    ck_assert_uint_eq(replay(state).next_lease, 4);
    state_free(state);
    state = open_state(&report);
    ck_assert_str_eq(replay(state).text, FILLED);
    state_free(state);
}
END_TEST

START_TEST(a_second_daemon_is_told_of_the_first) {
    struct state_report report;
    struct state *state = open_state(&report), *second = NULL;
    struct allot_error err;

    ck_assert_int_eq(state_open(&second, dir, boot, &report, &err), -EBUSY);
    ck_assert_ptr_nonnull(strstr(err.text, dir));
    ck_assert_ptr_nonnull(strstr(err.text, "--state-dir"));
    ck_assert_ptr_null(second);
    state_free(state);
    state_free(open_state(&report));
}
END_TEST

START_TEST(leases_end_with_the_boot_and_drained_devices_stay) {
    struct state_report report;
    struct state *state = open_state(&report);

    fill(state);
    state_free(state);
    ck_assert_int_eq(state_open(&state, dir, other_boot, &report, NULL), 0);
    ck_assert(report.is_rebooted && !report.is_lost);
    ck_assert_str_eq(replay(state).text, "M D3!");
    ck_assert_uint_eq(replay(state).next_lease, 4);
    state_free(state);
}
END_TEST

START_TEST(history_is_dropped_when_it_outgrows_what_is) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct state_figures figures;
    struct stat st;

    put_lease(state, 1);
    for (int i = 0; i < 50000; i++) {
        put_holder(state, 1, 11, (uint64_t)i);
        commit(state);
    }
    state_figures(state, &figures);
    ck_assert_uint_gt(figures.n_snapshots, 3);
    ck_assert_uint_lt(figures.log_bytes, 1 << 20);
    ck_assert_int_eq(stat(file, &st), 0);
    ck_assert_int_lt(st.st_size, 2 << 20);
    state_free(state);
    state = open_state(&report);
    ck_assert_str_eq(report.text, "");
    ck_assert_str_eq(replay(state).text, "M L1 H1.11=49999");
    state_free(state);
}
END_TEST

/* Whatever is cut off: what is left is read, the loss is told, and the file is kept aside. */
START_TEST(a_file_cut_at_any_byte_is_set_aside_and_told) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct state_figures figures;
    uint8_t *bytes;
    size_t size;

    fill(state);
    state_figures(state, &figures);
    state_free(state);
    bytes = read_whole(&size);
    for (size_t cut = 0; cut < size; cut += cut < figures.log_bytes + 40 ? 1 : 4099) {
        struct story story;

        write_whole(bytes, cut);
        state = open_state(&report);
        if (cut % STATE_CHUNK == 0 && cut >= figures.log_bytes + STATE_FRAME_HEAD) {
            /* Only zeros were cut off, and whole chunks of them. */
            ck_assert(!report.is_lost);
        } else {
            ck_assert_msg(report.is_lost, "cut at %zu goes unnoticed", cut);
            ck_assert_str_ne(report.aside, "");
            ck_assert_ptr_nonnull(strstr(report.text, report.aside));
            ck_assert_int_eq(access(report.aside, R_OK), 0);
        }
        story = replay(state);
        if (cut >= figures.log_bytes)
            ck_assert_str_eq(story.text, FILLED);
        ck_assert(story.is_lost == report.is_lost);
        state_free(state);
    }
    free(bytes);
}
END_TEST

START_TEST(a_file_changed_at_any_byte_is_set_aside_and_told) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct state_figures figures;
    uint8_t *bytes;
    size_t size;

    fill(state);
    state_figures(state, &figures);
    state_free(state);
    bytes = read_whole(&size);
    for (size_t at = 0; at < size; at += at < figures.log_bytes + 40 ? 1 : 4099) {
        bytes[at] ^= 0x40;
        write_whole(bytes, size);
        bytes[at] ^= 0x40;
        state = open_state(&report);
        ck_assert_msg(report.is_lost, "changed byte %zu goes unnoticed", at);
        ck_assert_str_ne(report.aside, "");
        /* One frame is lost at most: the last one, with the drained device, stands. */
        if (at < figures.log_bytes - 400)
            ck_assert_ptr_nonnull(strstr(replay(state).text, "D3! "));
        state_free(state);
    }
    free(bytes);
}
END_TEST

START_TEST(a_loss_is_told_at_every_start_until_it_is_mended) {
    struct state_report report;
    struct state *state = open_state(&report);

    fill(state);
    state_free(state);
    ck_assert_int_eq(truncate(file, 500), 0);
    for (int i = 0; i < 3; i++) {
        state = open_state(&report);
        ck_assert(report.is_lost);
        ck_assert_str_ne(report.text, "");
        state_free(state);
    }
    state = open_state(&report);
    state_mended(state);
    commit(state);
    state_free(state);
    state = open_state(&report);
    ck_assert(!report.is_lost);
    ck_assert_str_eq(report.text, "");
    state_free(state);
}
END_TEST

/* Ended within write(): pages of the frame are there, the zeros behind them are still zeros. */
START_TEST(a_write_that_was_never_finished_is_no_loss) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct state_figures before, after;
    uint8_t *bytes;
    size_t size;

    fill(state);
    state_figures(state, &before);
    for (uint64_t id = 100; id < 200; id++)
        put_lease(state, id);
    commit(state);
    state_figures(state, &after);
    state_free(state);
    bytes = read_whole(&size);
    ck_assert_uint_gt(after.log_bytes / 4096, before.log_bytes / 4096 + 1);
    for (size_t end = (before.log_bytes / 4096 + 1) * 4096; end < after.log_bytes; end += 4096) {
        uint8_t *torn = calloc(1, size);

        memcpy(torn, bytes, end);
        write_whole(torn, size);
        free(torn);
        state = open_state(&report);
        ck_assert_msg(!report.is_lost, "%s", report.text);
        ck_assert_str_eq(replay(state).text, FILLED);
        state_free(state);
    }
    free(bytes);
}
END_TEST

START_TEST(at_most_four_damaged_files_are_kept) {
    struct state_report report;
    struct stat st;
    char path[4300];

    for (int i = 0; i < 7; i++) {
        struct state *state = open_state(&report);

        fill(state);
        state_free(state);
        ck_assert_int_eq(truncate(file, 100 + i), 0);
    }
    for (int i = 1; i <= 4; i++) {
        snprintf(path, sizeof(path), "%s/state.damaged-%d", dir, i);
        ck_assert_int_eq(stat(path, &st), 0);
        if (i < 4)
            ck_assert_int_eq(st.st_size, 99 + i);
    }
    snprintf(path, sizeof(path), "%s/state.damaged-5", dir);
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

START_TEST(a_file_that_is_too_large_is_read_from_its_beginning) {
    struct state_report report;
    struct state *state = open_state(&report);

    fill(state);
    state_free(state);
    ck_assert_int_eq(truncate(file, (off_t)20 << 30), 0);
    state_free(open_state(&report));
    ck_assert(report.is_lost && report.n_leases > 0);
}
END_TEST

START_TEST(what_is_no_file_in_its_place_is_refused_in_words) {
    struct state *state = NULL;
    struct state_report report;
    struct allot_error err;

    begin();
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(i ? mkdir(file, 0700) : symlink("elsewhere", file), 0);
        ck_assert_int_lt(state_open(&state, dir, boot, &report, &err), 0);
        ck_assert(strstr(err.text, file) && strstr(err.text, "which allotd did not make") &&
                  !state);
        ck_assert_int_eq(remove(file), 0);
    }
}
END_TEST

START_TEST(an_old_snapshot_in_the_making_is_worth_nothing) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct stat st;
    char path[4300];

    fill(state);
    state_free(state);
    snprintf(path, sizeof(path), "%s/state.new", dir);
    ck_assert_int_eq(stat(file, &st), 0);
    copy_file(file, path, (size_t)st.st_size / 2);
    state = open_state(&report);
    ck_assert_str_eq(replay(state).text, FILLED);
    ck_assert_int_eq(access(path, F_OK), -1);
    state_free(state);
}
END_TEST

static void limit_file_size(rlim_t bytes) {
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A limit on the size of files stands for the full disk. */
START_TEST(without_room_nothing_is_promised_and_endings_are_kept) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct allot_error err = { 0 };
    struct rlimit limit;
    struct stat st;
    uint64_t n = 0;
    bool failed = false;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    put_lease(state, 1);
    commit(state);
    ck_assert_int_eq(stat(file, &st), 0);
    limit_file_size((rlim_t)st.st_size);
    /* Few assertions from here on: Check notes each of them in a file that is limited, too. */
    for (; n < 100000 && state_is_ready(state, &err); n++) {
        put_lease(state, 2 + n);
        failed |= state_commit(state, &err) < 0;
    }
    ck_assert(!failed);
    ck_assert_uint_lt(n, 100000);
    ck_assert_uint_gt(n, 100);
    ck_assert_ptr_nonnull(strstr(err.text, dir));
    ck_assert_ptr_nonnull(strstr(err.text, "free some space"));
    for (uint64_t i = 0; i < n; i++) {
        struct record gone = { .kind = RECORD_LEASE_GONE, .lease_gone = 2 + i };

        state_put(state, &gone);
        failed |= state_commit(state, &err) < 0;
    }
    ck_assert(!failed);

    /* Started anew without more room: the file that is there is gone on with. */
    state_free(state);
    limit_file_size(16384);
    state = open_state(&report);
    ck_assert_str_eq(replay(state).text, "M L1");
    put_lease(state, 5000);
    ck_assert_int_eq(state_commit(state, &err), -EFBIG);
    limit_file_size(limit.rlim_max);
    ck_assert(state_is_ready(state, &err));
    put_lease(state, 5001);
    commit(state);
    state_free(state);
    state = open_state(&report);
    ck_assert_str_eq(report.text, "");
    ck_assert_str_eq(replay(state).text, "M L1 L5000 L5001");
    state_free(state);
}
END_TEST

/* The end of a daemon within write(), on a disk that is full: what was committed goes on. */
START_TEST(an_unfinished_write_on_a_full_disk_is_cleared) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct state_figures before, after;
    struct allot_error err = { 0 };
    uint8_t *bytes, *torn;
    size_t size, cut;
    struct rlimit limit;

    fill(state);
    state_figures(state, &before);
    for (uint64_t id = 100; id < 200; id++)
        put_lease(state, id);
    commit(state);
    state_figures(state, &after);
    state_free(state);
    bytes = read_whole(&size);
    cut = (after.log_bytes - 1) / 4096 * 4096;
    ck_assert_uint_gt(cut, before.log_bytes);
    torn = calloc(1, size);
    memcpy(torn, bytes, cut);
    write_whole(torn, size);

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit_file_size((rlim_t)after.log_bytes + 4096); /* for what is there, not for a snapshot */
    state = open_state(&report);
    ck_assert(!report.is_lost);
    put_lease(state, 7);
    ck_assert_msg(state_commit(state, &err) == 0, "%s", err.text);
    state_free(state);
    limit_file_size(limit.rlim_max);

    state = open_state(&report);
    ck_assert_msg(!report.is_lost, "%s", report.text);
    ck_assert_str_eq(replay(state).text, "M D3! L1 L2 L7 H1.11=150 H2.22=200 W2 W3 W1");
    state_free(state);
    free(bytes);
    free(torn);
}
END_TEST

START_TEST(a_fresh_start_without_room_says_what_to_do) {
    struct state_report report;
    struct allot_error err = { 0 };
    struct rlimit limit;
    struct state *state;

    begin();
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit_file_size(16384);
    state = open_state(&report);
    ck_assert_ptr_nonnull(strstr(report.text, "free some space"));
    ck_assert_int_eq(access(file, F_OK), -1);
    /* What is no promise needs no record; what is one cannot be made. */
    state_put(state, &(struct record){ .kind = RECORD_DEVICE,
                                       .device = { .id = device(3), .drained = true } });
    commit(state);
    ck_assert(!state_is_ready(state, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "free some space"));
    put_lease(state, 1);
    ck_assert_int_eq(state_commit(state, &err), -EFBIG);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    commit(state);
    ck_assert(state_is_ready(state, &err));
    state_free(state);
    state = open_state(&report);
    ck_assert_str_eq(replay(state).text, "M D3! L1");
    state_free(state);
}
END_TEST

START_TEST(a_state_that_is_gone_within_a_boot_is_missed) {
    struct state_report report;
    struct state *state = open_state(&report);
    struct allot_error err = { 0 };

    put_lease(state, 1);
    commit(state);
    state_free(state);
    ck_assert_int_eq(unlink(file), 0);
    state = open_state(&report);
    ck_assert(report.is_fresh && report.is_lost);
    ck_assert_ptr_nonnull(strstr(report.text, "is gone"));
    ck_assert(replay(state).is_lost);
    /* It stays so until it is mended, and is no loss for another boot. */
    state_free(state);
    state = open_state(&report);
    ck_assert(!report.is_fresh && report.is_lost);
    state_mended(state);
    commit(state);
    state_set_lost(state);
    commit(state);
    ck_assert(replay(state).is_lost);
    state_free(state);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(state_open(&state, dir, other_boot, &report, &err), 0);
    ck_assert(report.is_fresh && !report.is_lost);
    state_free(state);
}
END_TEST

/* A walk against a plain model, with restarts in between. */
START_TEST(random_histories_come_back_as_they_were) {
    uint64_t seed = 42, held[8][4] = { { 0 } };
    bool lease[8] = { false };
    struct state_report report;
    struct state *state = open_state(&report);

    for (int step = 0; step < 4000; step++) {
        uint64_t l = random_next(&seed) % 8, p = random_next(&seed) % 4;

        switch (random_next(&seed) % 5) {
        case 0:
            put_lease(state, l + 1);
            lease[l] = true;
            break;
        case 1: {
            struct record record = { .kind = RECORD_LEASE_GONE, .lease_gone = l + 1 };

            state_put(state, &record);
            lease[l] = false;
            break;
        }
        case 2: {
            struct record record = { .kind = RECORD_HOLDER_GONE,
                                     .holder_gone = {
                                         .lease = l + 1, .pid = (int32_t)p + 1, .start = 77 } };

            state_put(state, &record);
            held[l][p] = 0;
            break;
        }
        default:
            held[l][p] = 1 + random_next(&seed) % 1000;
            put_holder(state, l + 1, (int32_t)p + 1, held[l][p]);
        }
        if (random_next(&seed) % 3 == 0)
            commit(state);
        if (random_next(&seed) % 50 == 0) {
            struct story story;
            char one[64];
            size_t n = 0;

            commit(state);
            state_free(state);
            state = open_state(&report);
            ck_assert_str_eq(report.text, "");
            story = replay(state);
            for (int i = 0; i < 8; i++) {
                snprintf(one, sizeof(one), " L%d", i + 1);
                ck_assert(lease[i] == (strstr(story.text, one) != NULL));
                n += lease[i];
                for (int j = 0; j < 4; j++) {
                    snprintf(one, sizeof(one), " H%d.%d=%d", i + 1, j + 1, (int)held[i][j]);
                    if (held[i][j])
                        ck_assert_ptr_nonnull(strstr(story.text, one));
                    n += held[i][j] != 0;
                }
            }
            ck_assert_uint_eq(report.n_leases + report.n_holders, n);
        }
    }
    state_free(state);
}
END_TEST

SUITE_TIMEOUT(
    "state", 60, a_fresh_directory_is_empty_and_says_nothing,
    committed_records_come_back_and_others_do_not, a_second_daemon_is_told_of_the_first,
    leases_end_with_the_boot_and_drained_devices_stay, history_is_dropped_when_it_outgrows_what_is,
    a_file_cut_at_any_byte_is_set_aside_and_told, a_file_changed_at_any_byte_is_set_aside_and_told,
    a_loss_is_told_at_every_start_until_it_is_mended, a_write_that_was_never_finished_is_no_loss,
    at_most_four_damaged_files_are_kept, a_file_that_is_too_large_is_read_from_its_beginning,
    what_is_no_file_in_its_place_is_refused_in_words,
    an_old_snapshot_in_the_making_is_worth_nothing, random_histories_come_back_as_they_were,
    without_room_nothing_is_promised_and_endings_are_kept,
    an_unfinished_write_on_a_full_disk_is_cleared, a_fresh_start_without_room_says_what_to_do,
    a_state_that_is_gone_within_a_boot_is_missed)
