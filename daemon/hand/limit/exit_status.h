/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What allot-limit ends with, for the hand. */
enum {
    LIMIT_DONE = 0,
    LIMIT_FAILED = 1, /* its output says why */
    LIMIT_USAGE = 2,
    LIMIT_UNKNOWN = 3, /* likewise: the driver has no limits */
    LIMIT_GRANTED = 10,
    LIMIT_REFUSED = 11,
    LIMIT_NOT_TRIED = 12,
};
