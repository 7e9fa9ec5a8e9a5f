/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Message: the types and methods of io.allot.Manager as C structs, and their way to JSON and back.
 *
 * daemon/io.allot.Manager.varlink is the contract, and its comments hold here: member by member the
 * same names in the same order (tests/unit/wire/test-message.c compares the two). Plain structs:
 * one that is to be sent borrows everything it points to; one that was read points into the text of
 * the message (strings) and into the store it was read with (arrays, members that are structs), and
 * is void with either. Zeroed memory is a message with nothing in it.
 *
 *   optional number or bool   struct wire_maybe, zero: absent
 *   optional string, struct   NULL: absent
 *   optional array            NULL: absent; not NULL with n_ of 0: empty
 *   optional enum             0: absent; every enum begins at 1, so 0 is a mistake elsewhere
 *
 * null counts as absent. Numbers that cannot be negative are uint64_t, at most INT64_MAX.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/readings.h"
#include "base/store.h"
#include "base/words.h"

/* Devices give out memory in these units: Grow rounds up, Shrink rounds down. */
#define WIRE_GRANULE ((uint64_t)2 << 20)

struct wire_maybe {
    bool has;
    int64_t value; /* a bool: 0 or 1 */
};

static inline struct wire_maybe wire_some(uint64_t value) {
    return (struct wire_maybe){ true, value > INT64_MAX ? INT64_MAX : (int64_t)value };
}

enum wire_device_kind { WIRE_DEVICE_GPU = 1, WIRE_DEVICE_MIG };
enum wire_device_state { WIRE_DEVICE_READY = 1, WIRE_DEVICE_DRAINING, WIRE_DEVICE_LOST };
enum wire_lease_state { WIRE_LEASE_ACTIVE = 1, WIRE_LEASE_ENDING };
enum wire_process_kind { WIRE_PROCESS_COMPUTE = 1, WIRE_PROCESS_GRAPHICS, WIRE_PROCESS_BOTH };
enum wire_what { WIRE_WAITS_LEASE = 1, WIRE_WAITS_GROWTH };
enum wire_box_mode { WIRE_BOX_OPEN = 1, WIRE_BOX_LOCKED };
enum wire_verdict { WIRE_VERDICT_GRANT = 1, WIRE_VERDICT_WAIT, WIRE_VERDICT_DENY };
enum wire_by { WIRE_BY_USER = 1, WIRE_BY_GROUP, WIRE_BY_DEVICE };

/* The word of the interface for a value, "?" if there is none. base/words.h has the words of
 * further enums.
 */
const char *wire_device_kind_name(enum wire_device_kind kind);
const char *wire_device_state_name(enum wire_device_state state);
const char *wire_lease_state_name(enum wire_lease_state state);
const char *wire_process_kind_name(enum wire_process_kind kind);
const char *wire_what_name(enum wire_what what);
const char *wire_box_mode_name(enum wire_box_mode mode);
const char *wire_verdict_name(enum wire_verdict verdict);
const char *wire_by_name(enum wire_by by);
extern const char *const wire_by_words[];

/* ---- Types ---------------------------------------------------------------------------------- */

struct wire_amount {
    enum lease_mode mode;
    struct wire_maybe permyriad;
    struct wire_maybe bytes;
    struct wire_maybe min_bytes;
    struct wire_maybe max_bytes;
};

struct wire_request {
    const char *name;
    const struct wire_amount *amount;
    const struct wire_amount *amounts;
    size_t n_amounts;
    struct wire_maybe gpus;
    const char *const *devices;
    size_t n_devices;
    enum choice choose; /* optional */
    const char *visible_devices;
    const char *device_order;
    struct wire_maybe priority; /* may be negative */
    struct wire_maybe wait;     /* bool */
    struct wire_maybe timeout_usec;
    struct wire_maybe time_limit_usec;
    struct wire_maybe confine; /* bool */
    struct wire_maybe guard;   /* bool */
};

struct wire_link {
    const char *device;
    const char *kind;
    struct wire_maybe lanes;
};

struct wire_device {
    const char *uuid;
    enum wire_device_kind kind;
    const char *parent; /* optional */
    uint64_t index;
    struct wire_maybe minor;
    struct wire_maybe gpu_instance, compute_instance; /* of a MIG instance */
    const char *bus_id;
    const char *name;
    struct wire_maybe numa;
    bool mig_enabled;
    enum wire_device_state state;
    const char *reason; /* optional */
    struct wire_maybe stale_usec;
    uint64_t total_bytes;
    uint64_t reserved_bytes;
    uint64_t usable_bytes;
    struct wire_maybe used_bytes;
    uint64_t leased_bytes;
    uint64_t guaranteed_bytes;
    uint64_t held_bytes;
    uint64_t unmanaged_bytes;
    uint64_t releasing_bytes;
    uint64_t overcommitted_bytes;
    uint64_t free_bytes;
    uint64_t context_bytes;
    struct wire_maybe unguarded_processes;
#define X(group, kind, field) struct wire_maybe field;
    READINGS(X)
#undef X
    const struct wire_link *links;
    size_t n_links;
};

struct wire_share {
    const char *device;
    uint64_t limit_bytes;
    uint64_t guaranteed_bytes;
    uint64_t held_bytes;
    uint64_t context_bytes;
    struct wire_maybe used_bytes;
};

struct wire_holder {
    uint64_t pid;
    struct wire_maybe attached_at;
    uint64_t held_bytes;
};

struct wire_lease {
    uint64_t id;
    const char *name; /* optional */
    uint64_t uid;
    const char *user;
    enum lease_mode mode;
    int64_t priority;
    enum wire_lease_state state;
    const char *reason; /* optional */
    uint64_t created_at;
    struct wire_maybe expires_at;
    struct wire_maybe idle_usec;
    const char *scope; /* optional */
    const uint64_t *tiers;
    size_t n_tiers;
    const struct wire_share *shares;
    size_t n_shares;
    const struct wire_holder *holders;
    size_t n_holders;
};

struct wire_process {
    uint64_t pid;
    struct wire_maybe namespace_pid;
    struct wire_maybe uid;
    const char *user; /* optional */
    const char *command;
    const char *container; /* optional */
    const char *device;
    enum wire_process_kind kind;
    struct wire_maybe used_bytes;
    struct wire_maybe lease;
    struct wire_maybe tier;
    const char *offence; /* optional */
};

struct wire_waiter {
    uint64_t id;
    uint64_t place;
    uint64_t uid;
    const char *user;
    const char *name; /* optional */
    enum wire_what what;
    struct wire_maybe lease;
    int64_t priority;
    uint64_t since_at;
    struct wire_maybe timeout_at;
    const char *reason;
    const char *asked;
};

struct wire_tier {
    uint64_t number;
    const char *name;
    bool proven;
    const char *detail;
};

struct wire_box {
    const char *host;
    const char *driver;
    const char *driver_version; /* optional */
    const char *version;
    enum wire_box_mode mode;
    struct wire_maybe grace_usec;
    uint64_t started_at;
    const struct wire_device *devices;
    size_t n_devices;
    const struct wire_lease *leases;
    size_t n_leases;
    const struct wire_process *processes;
    size_t n_processes;
    const struct wire_waiter *queue;
    size_t n_queue;
    const struct wire_tier *tiers;
    size_t n_tiers;
    const char *const *notices;
    size_t n_notices;
};

struct wire_variable {
    const char *name;
    const char *value;
};

struct wire_grant {
    uint64_t lease;
    const char *token; /* optional */
    const struct wire_share *shares;
    size_t n_shares;
    const struct wire_variable *environment; /* an object: name → value */
    size_t n_environment;
    const char *reason;
};

struct wire_held {
    const char *device;
    uint64_t bytes;
};

struct wire_notice {
    enum notice_kind kind;
    const char *device; /* optional */
    struct wire_maybe bytes;
    const char *text;
};

struct wire_event {
    uint64_t at;
    const char *kind;
    const char *text;
    const char *device; /* optional */
    struct wire_maybe lease;
    struct wire_maybe pid;
    struct wire_maybe uid;
};

struct wire_usage_row {
    const char *key;
    uint64_t leases;
    uint64_t held_byte_seconds;
    uint64_t guaranteed_byte_seconds;
    uint64_t wait_usec;
    uint64_t granted;
    uint64_t denied;
    uint64_t actions;
    uint64_t xids;
};

/* ---- Methods: what is sent and what is answered ------------------------------------------------
 */

enum wire_method {
    WIRE_METHOD_GET_BOX,
    WIRE_METHOD_ACQUIRE,
    WIRE_METHOD_EXPLAIN,
    WIRE_METHOD_ATTACH,
    WIRE_METHOD_CONFINE,
    WIRE_METHOD_GROW,
    WIRE_METHOD_SHRINK,
    WIRE_METHOD_RELEASE,
    WIRE_METHOD_KILL,
    WIRE_METHOD_MONITOR,
    WIRE_METHOD_USAGE,
    WIRE_METHOD_DRAIN,
    WIRE_METHOD_RESUME,
    WIRE_METHOD_RELOAD,
    WIRE_METHODS, /* how many there are */
};

struct wire_nothing { /* Reload and others, either way */
    char unused;
};

struct wire_get_box_reply {
    const struct wire_box *box;
};

struct wire_acquire {
    const struct wire_request *request;
};
struct wire_acquire_reply {
    struct wire_maybe place;
    const char *reason;             /* optional */
    const struct wire_grant *grant; /* optional */
};

struct wire_explain {
    const struct wire_request *request;
};
struct wire_explain_reply {
    enum wire_verdict verdict;
    struct wire_maybe place;
    const char *reason;
    const char *const *devices;
    size_t n_devices;
    const char *const *detail;
    size_t n_detail;
};

struct wire_attach {
    uint64_t lease;
    const char *token;            /* optional */
    const struct wire_held *held; /* optional */
    size_t n_held;
    struct wire_maybe tier;
    struct wire_maybe credits; /* bool */
};
struct wire_attach_reply {
    const struct wire_share *shares; /* optional */
    size_t n_shares;
    const struct wire_notice *notice; /* optional */
};

struct wire_confine {
    uint64_t lease;
    const char *token; /* optional */
};
struct wire_confine_reply {
    const char *scope; /* optional */
    const uint64_t *tiers;
    size_t n_tiers;
    const char *const *detail;
    size_t n_detail;
};

struct wire_grow {
    uint64_t lease;
    const char *device;
    uint64_t bytes;
    struct wire_maybe wait; /* bool */
    struct wire_maybe timeout_usec;
};
struct wire_grow_reply {
    uint64_t held_bytes;
    uint64_t limit_bytes;
    struct wire_maybe place; /* while it waits */
    const char *reason;      /* optional: why it waits */
};

struct wire_shrink {
    uint64_t lease;
    const char *device;
    uint64_t bytes;
};
struct wire_shrink_reply {
    uint64_t held_bytes;
};

struct wire_release {
    uint64_t lease;
};

struct wire_kill {
    uint64_t lease;
    struct wire_maybe signal;
};
struct wire_kill_reply {
    uint64_t processes;
};

struct wire_monitor_reply {
    const struct wire_event *event; /* optional */
};

struct wire_usage {
    struct wire_maybe since_at;
    struct wire_maybe until_at;
    enum wire_by by; /* optional */
};
struct wire_usage_reply {
    const struct wire_usage_row *rows;
    size_t n_rows;
};

struct wire_drain {
    const char *const *devices;
    size_t n_devices;
    const char *reason; /* optional */
};

struct wire_resume {
    const char *const *devices;
    size_t n_devices;
};

/* Parameters of any call; the method says which member is valid. */
union wire_call {
    struct wire_nothing nothing; /* GetBox, Monitor, Reload */
    struct wire_acquire acquire;
    struct wire_explain explain;
    struct wire_attach attach;
    struct wire_confine confine;
    struct wire_grow grow;
    struct wire_shrink shrink;
    struct wire_release release;
    struct wire_kill kill;
    struct wire_usage usage;
    struct wire_drain drain;
    struct wire_resume resume;
};

union wire_reply {
    struct wire_nothing nothing; /* Release, Drain, Resume, Reload */
    struct wire_get_box_reply get_box;
    struct wire_acquire_reply acquire;
    struct wire_explain_reply explain;
    struct wire_attach_reply attach;
    struct wire_confine_reply confine;
    struct wire_grow_reply grow;
    struct wire_shrink_reply shrink;
    struct wire_kill_reply kill;
    struct wire_monitor_reply monitor;
    struct wire_usage_reply usage;
};

/* ---- To JSON and back --------------------------------------------------------------------------
 */

/* How a type of this header becomes an object, and back. Tables, in wire/message.c and
 * wire/method.c. */
struct wire_type;
extern const struct wire_type wire_box_type, wire_request_type;

struct wire_method_info {
    const char *name; /* "Grow" */
    const struct wire_type *call;
    const struct wire_type *reply;
};
extern const struct wire_method_info wire_methods[WIRE_METHODS];

/* The method with this name, without the interface's; WIRE_METHODS: there is none. */
enum wire_method wire_method_find(const char *name, size_t n);

/* Write `message`, a struct of `type`, as an object; absent members are left out. */
void wire_encode(struct json_writer *w, const struct wire_type *type, const void *message);

enum wire_strictness {
    WIRE_STRICT,  /* calls from untrusted clients: an unknown member is refused, arrays are bounded
                   */
    WIRE_LENIENT, /* replies of a daemon that may be newer: an unknown member is skipped */
};

/* What is wrong with a message, for InvalidParameter. */
struct wire_fault {
    char member[96];  /* "request.amounts[2].bytes"; "" : the message as a whole */
    char reason[128]; /* "must be a whole number from 0 to 9223372036854775807" */
};

/*
 * Read one object into `ret`, a struct of `type`. -EBADMSG: not JSON, or nested too deeply;
 * -EINVAL: JSON, but no message of this type: a member is missing, unknown, duplicate or of another
 * type; -ENOMEM. `fault` says which and is untouched on success.
 */
int wire_decode(void *ret, const struct wire_type *type, enum wire_strictness strictness,
                struct json_reader *reader, struct store *store, struct wire_fault *fault);
