/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Vmm: memory by handle. As pool_settle(), for memory that was handed to other processes: see
 * there. Any thread.
 */
void vmm_settle(int share);
