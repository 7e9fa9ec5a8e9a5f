/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_ERROR_H
#define ALLOT_ERROR_H
/*
 * An error of liballot: a code for the program and a message for the person. The caller owns it,
 * usually on the stack, and has nothing to free. Every function also accepts NULL.
 */
#ifndef ALLOT_ERROR_DEFINED
#define ALLOT_ERROR_DEFINED
struct allot_error {
    int code;       /* -errno; 0: no error was set */
    char text[512]; /* what happened, to what, and what to do */
};
#endif
#endif
