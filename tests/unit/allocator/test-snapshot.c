/* SPDX-License-Identifier: Apache-2.0 */
/* An arena written as JSON and for the viewer, read again by Python's json and pickle. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "allocator/arena.h"
#include "tests/support/allocator/device_oracle.h"
#include "tests/support/suite.h"

#define PAGE (64u << 10)

static struct device_oracle *oracle;
static struct arena *arena;

/* Blocks of every kind: live with and without a tag, free, pending, plain; and holes. */
static void begin(unsigned history) {
    struct arena_request request = { .bytes = 1000 };
    struct arena_block blocks[24];
    uint8_t stream, other, streams[2];

    ck_assert_int_eq(
        device_oracle_new(&oracle, &(struct device_oracle_options){ .span_bytes = 64u << 20,
                                                                    .page_bytes = PAGE,
                                                                    .regions = true }),
        0);
    ck_assert_int_eq(arena_new(&arena, device_oracle_source(oracle),
                               &(struct arena_options){ .name = "GPU \"0\"",
                                                        .cap_bytes = 4u << 20,
                                                        .max_shards = 1,
                                                        .history = history,
                                                        .stream_ops = device_oracle_stream_ops(),
                                                        .stream_userdata = oracle },
                               NULL),
                     0);
    ck_assert_int_eq(arena_stream_new(arena, 1, &stream), 0);
    ck_assert_int_eq(arena_stream_new(arena, 2, &other), 0);
    for (unsigned n = 0; n < 24; n++) {
        request.bytes = n < 8 ? 1000 + n : 2 * PAGE; /* a whole page in each */
        request.tag = n % 2 ? arena_tag(arena, n % 3 ? "conv\n1" : "matmul") : 0;
        request.stream = n % 4 == 3 ? stream : 0;
        request.flags = n == 20 ? ARENA_PLAIN : 0;
        ck_assert_int_eq(arena_alloc(arena, &request, &blocks[n], NULL), 0);
    }
    streams[0] = stream;
    streams[1] = other;
    ck_assert_int_eq(arena_dealloc(arena, blocks[2].handle), 0);
    ck_assert_int_eq(arena_dealloc_on(arena, blocks[4].handle, &stream, 1), 0);
    ck_assert_int_eq(arena_dealloc_on(arena, blocks[6].handle, streams, 2), 0);
    for (unsigned n = 9; n < 20; n += 2)
        ck_assert_int_eq(arena_dealloc(arena, blocks[n].handle), 0);
    ck_assert_int_eq(arena_trim(arena, 0, NULL), 0);
    request = (struct arena_request){ .bytes = (uint64_t)1 << 40 };
    ck_assert_int_eq(arena_alloc(arena, &request, &blocks[0], NULL), -ENOMEM);
}

static void end(void) {
    arena = arena_free(arena);
    oracle = device_oracle_free(oracle);
}

/* Run Python over what `write` writes; it must agree with `facts`. */
static void read_by_python(int (*write)(struct arena *arena, FILE *file), const char *script) {
    char path[] = "/tmp/allot-snapshot-XXXXXX", command[4096];
    struct arena_stats stats;
    FILE *file;
    int fd = mkstemp(path), status;

    ck_assert_int_ge(fd, 0);
    file = fdopen(fd, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(write(arena, file), 0);
    fclose(file);
    arena_get_stats(arena, &stats);
    snprintf(command, sizeof(command), "python3 - %s %llu %llu %llu %llu <<'END'\n%s\nEND\n", path,
             (unsigned long long)stats.live_bytes, (unsigned long long)stats.reserved_bytes,
             (unsigned long long)stats.live_blocks, (unsigned long long)stats.pending_bytes,
             script);
    status = system(command);
    unlink(path);
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

static bool has_python(void) {
    if (system("python3 -c 'import json, pickle' 2>/dev/null") == 0)
        return true;
    printf("skipped: no python3\n");
    return false;
}

START_TEST(json_says_where_every_block_lies) {
    if (!has_python())
        return;
    begin(0);
    read_by_python(arena_write_json,
                   "import json, sys\n"
                   "a = json.load(open(sys.argv[1]))\n"
                   "live, reserved, blocks, pending = map(int, sys.argv[2:])\n"
                   "assert a['name'] == 'GPU \"0\"' and a['live_bytes'] == live\n"
                   "assert sum(s['bytes'] for s in a['segments']) == reserved\n"
                   "all = [b for s in a['segments'] for b in s['blocks']]\n"
                   "for s in a['segments']:\n"
                   "    at = s['address']\n"
                   "    for b in s['blocks']:\n"
                   "        assert b['address'] == at\n"
                   "        at += b['bytes']\n"
                   "    assert at == s['address'] + s['bytes']\n"
                   "assert sum(b['requested_bytes'] for b in all if b['state'] == 'live') == live\n"
                   "assert sum(b['state'] == 'live' for b in all) == blocks\n"
                   "assert sum(b['bytes'] for b in all if b['state'] == 'pending') == pending > 0\n"
                   "assert {b.get('tag') for b in all} == {None, 'conv\\n1', 'matmul'}\n"
                   "assert sum(not s['placed'] for s in a['segments']) == 1\n"
                   "assert sum(c['live_blocks'] for c in a['classes']) == blocks\n");
    end();
}
END_TEST

START_TEST(the_viewer_gets_a_pickle_of_segments_and_traces) {
    if (!has_python())
        return;
    begin(1000);
    read_by_python(
        arena_write_viewer,
        "import pickle, pickletools, sys\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "known = {'PROTO', 'EMPTY_DICT', 'EMPTY_LIST', 'BINUNICODE', 'BININT', 'LONG1', "
        "'SETITEM',\n"
        "         'APPEND', 'NEWTRUE', 'NEWFALSE', 'STOP'}\n"
        "assert {op.name for op, _, _ in pickletools.genops(data)} <= known\n"
        "a = pickle.loads(data)\n"
        "live, reserved, blocks, pending = map(int, sys.argv[2:])\n"
        "assert set(a) == {'segments', 'device_traces', 'allocator_settings'}\n"
        "assert sum(s['total_size'] for s in a['segments']) == reserved\n"
        "assert sum(s['requested_size'] for s in a['segments']) == live\n"
        "for s in a['segments']:\n"
        "    assert sum(b['size'] for b in s['blocks']) == s['total_size']\n"
        "    assert s['blocks'][0]['address'] == s['address'] and s['device'] == 0\n"
        "all = [b for s in a['segments'] for b in s['blocks']]\n"
        "states = [b['state'] for b in all]\n"
        "assert states.count('active_allocated') == blocks\n"
        "assert set(states) == {'active_allocated', 'active_pending_free', 'inactive'}\n"
        "assert any(b['frames'] and b['frames'][0]['name'] == 'matmul' for b in all)\n"
        "trace, = a['device_traces']\n"
        "# Pages come to and go from a segment of their stream; 0 is as good as none there.\n"
        "assert {s['stream'] for s in a['segments']} == \\\n"
        "       {t['stream'] for t in trace if t['action'].startswith('segment_')} == {1}\n"
        "assert {t['stream'] for t in trace} == {1, 2}\n"
        "# Only what has no free_completed yet is pending: not what one stream freed.\n"
        "assert [b['size'] for b in all if b['state'] == 'active_pending_free'] == [1024]\n"
        "assert sum(s['active_size'] - s['allocated_size'] for s in a['segments']) == 1024\n"
        "actions = [t['action'] for t in trace]\n"
        "assert actions.count('alloc') == 24 and actions.count('free_requested') == 9\n"
        "# One waits for two streams.\n"
        "asked, done = ({t['addr'] for t in trace if t['action'] == 'free_' + what}\n"
        "               for what in ('requested', 'completed'))\n"
        "assert len(asked - done) == 1 and done < asked\n"
        "assert {'segment_map', 'segment_unmap', 'segment_alloc', 'oom'} <= set(actions)\n"
        "# Played back from the end, as the viewer does, the trace leads to nothing.\n"
        "held = {b['address'] for b in all if b['state'] == 'active_allocated'} | (asked - done)\n"
        "mapped = reserved\n"
        "for t in reversed(trace):\n"
        "    if t['action'] == 'alloc': held.remove(t['addr'])\n"
        "    if t['action'] == 'free_completed': held.add(t['addr'])\n"
        "    if t['action'] in ('segment_map', 'segment_alloc'): mapped -= t['size']\n"
        "    if t['action'] in ('segment_unmap', 'segment_free'): mapped += t['size']\n"
        "assert not held and not mapped\n");
    for (unsigned n = 0; n < 40; n++) { /* records and queries of the fake fail now and then */
        device_oracle_run(oracle, 1 + n % 2);
        arena_poll(arena);
    }
    read_by_python(arena_write_viewer,
                   "import pickle, sys\n"
                   "trace, = pickle.load(open(sys.argv[1], 'rb'))['device_traces']\n"
                   "done = [t for t in trace if t['action'] == 'free_completed']\n"
                   "assert len(done) == 9 and done[-1]['size'] == 1006\n");
    end();
}
END_TEST

START_TEST(a_history_keeps_the_last) {
    if (!has_python())
        return;
    begin(5);
    arena_set_cap(arena, 40u << 20);
    read_by_python(arena_write_viewer,
                   "import pickle, sys\n"
                   "trace, = pickle.load(open(sys.argv[1], 'rb'))['device_traces']\n"
                   "assert trace[-1]['action'] == 'oom' and trace[-1]['size'] == 1 << 40\n"
                   "assert trace[-1]['addr'] == 0\n"
                   "# What was left under the cap then, not now.\n"
                   "assert trace[-1]['device_free'] == (4 << 20) - int(sys.argv[3])\n"
                   "assert 5 <= len(trace) <= 10\n");
    end();
}
END_TEST

START_TEST(names_that_are_not_text_can_be_read_all_the_same) {
    struct arena_request request = { .bytes = 1 };
    struct arena_block block;

    if (!has_python())
        return;
    begin(10);
    request.tag = arena_tag(arena, "caf\xe9 \xc3\xa9 \xed\xa0\x80 \xf0\x9f\x90");
    ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
    read_by_python(arena_write_json,
                   "import json, sys\n"
                   "a = json.loads(open(sys.argv[1], 'rb').read().decode('utf-8'))\n"
                   "tags = {b.get('tag') for s in a['segments'] for b in s['blocks']}\n"
                   "assert any(t and t.startswith('caf? \u00e9 ') for t in tags), tags\n");
    read_by_python(arena_write_viewer,
                   "import pickle, sys\n"
                   "a = pickle.load(open(sys.argv[1], 'rb'))\n"
                   "names = {f['name'] for s in a['segments'] for b in s['blocks']\n"
                   "         for f in b['frames']}\n"
                   "assert any(n.startswith('caf? \u00e9 ') for n in names), names\n");
    end();
}
END_TEST

START_TEST(a_file_that_is_full_is_an_error) {
    FILE *file = fopen("/dev/full", "we");

    ck_assert_ptr_nonnull(file);
    begin(0);
    ck_assert_int_eq(arena_write_json(arena, file), -EIO);
    clearerr(file);
    ck_assert_int_eq(arena_write_viewer(arena, file), -EIO);
    fclose(file);
    end();
}
END_TEST

SUITE("snapshot", json_says_where_every_block_lies, the_viewer_gets_a_pickle_of_segments_and_traces,
      a_history_keeps_the_last, names_that_are_not_text_can_be_read_all_the_same,
      a_file_that_is_full_is_an_error)
