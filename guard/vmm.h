/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Vmm: memory that the program allocates by handle (cuMemCreate). Any thread.
 *
 * A handle that was exported may live on in another process. So its charge is kept for a few
 * seconds after this process dropped it; vmm_settle() gives back those whose time is over, of one
 * share of the lease: what the lease has of one device, by the index that credit_share() returns.
 */
void vmm_settle(int share);
