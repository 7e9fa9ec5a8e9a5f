/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marker: what tells a simulated library from the vendor's. Allot's own loader refuses to take a
 * library that carries it for a real driver.
 */
extern const char gpusimMarker[];

__attribute__((visibility("default"))) const char gpusimMarker[] =
    "gpusim: simulated GPUs, not a driver";
