/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Credit fixture: the guard's credits over a fake liballot (tests/fake/fake-lease.h). The guard
 * attaches once in a process, so each test is a process of its own, as Check makes it, and so is
 * each case of fixture_each().
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/note.h"
#include "tests/fake/fake-lease.h"
#include "tests/support/suite.h"

#define MIB     (UINT64_C(1) << 20)
#define GIB     (UINT64_C(1) << 30)
#define GPU     "GPU-11111111-2222-3333-4444-555555555555"
#define OTHER   "GPU-99999999-2222-3333-4444-555555555555"
#define NOTHING "GPU-77777777-2222-3333-4444-555555555555"
#define MIG     "MIG-GPU-88888888-2222-3333-4444-555555555555/3/1"
#define CONTEXT (300 * MIB)

extern struct fake_lease *fixture_daemon; /* of the library that the guard loads */
extern unsigned fixture_n_notes[N_NOTES]; /* what the guard would have printed */
extern char fixture_note[1024];           /* the last of it */

/* The library, before the guard attaches; a share is added to its lease. */
void fixture_begin(void);
void fixture_add_share(const char *device, uint64_t limit_bytes, uint64_t guaranteed_bytes);
/* credit_share() of the device whose UUID begins with this byte, four times. */
int fixture_share_of(uint8_t first);
/* One share, of GPU, attached. */
int fixture_lease_of(uint64_t limit_bytes);

/* The daemon sends a notice. */
void fixture_tell(enum allot_lease_event event, const char *device);
/* Whether the guard's thread gives something back within this time. */
bool fixture_gives_back(unsigned msec);

void fixture_check_calls(const struct fake_call *calls, unsigned n_calls, const uint64_t *mib,
                         unsigned n);
/* What was asked of the daemon so far, in MiB. */
#define ASKED(...)                                                                                 \
    fixture_check_calls(fixture_daemon->growths, fixture_daemon->n_growths,                        \
                        (uint64_t[]){ __VA_ARGS__ }, ELEMENTSOF(((uint64_t[]){ __VA_ARGS__ })))
#define GIVEN(...)                                                                                 \
    fixture_check_calls(fixture_daemon->shrinks, fixture_daemon->n_shrinks,                        \
                        (uint64_t[]){ __VA_ARGS__ }, ELEMENTSOF(((uint64_t[]){ __VA_ARGS__ })))

/* Exit status of a child, or 1000 and its signal. */
int fixture_ends_with(pid_t pid);
void fixture_each(unsigned n, void (*try_case)(unsigned which));
