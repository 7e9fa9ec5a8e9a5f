/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake NCCL: what a test reads and sets, the symbol `fake_nccl` of the library.
 */
struct fake_nccl {
    int n_comms; /* communicators that there are */
    int n_sums, n_aborts;
    int fail_init; /* what ncclCommInitAll() answers; 0: it works */
    int fail_at;   /* the group, from 1, that ends with: */
    int fail_group;
    int n_groups; /* counted while fail_at is set */
};
