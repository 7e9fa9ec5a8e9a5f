/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Note: messages of the guard on the program's standard error, in lines that begin with "allot: ".
 *
 * The guard runs inside a foreign program, so it prints each kind of message once, and nothing if
 * ALLOT_GUARD_LOG is "none"; "all" prints everything. It prints nothing where descriptor 2 is not
 * what it was when the program started: it may be a data file. Names that users chose are escaped
 * (base/safe_text.h). Any thread; allocates nothing; keeps errno.
 */
enum note {
    NOTE_REFUSED, /* an allocation was refused */
    NOTE_DAEMON,  /* the lease cannot be reached */
    NOTE_UNKNOWN, /* a call that is newer than the guard */
    NOTE_OVER,    /* the driver took more than was asked for */
    N_NOTES,
};

void note(enum note kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
