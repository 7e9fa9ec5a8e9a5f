# SPDX-License-Identifier: Apache-2.0
"""The numbers of tests/support/formula.h, bit for bit."""
import numpy as np


def bits(seed, n, first=0):
    with np.errstate(over="ignore"):
        x = np.arange(first, first + n, dtype=np.uint32) * np.uint32(2654435761) \
            + np.uint32(seed * 40503 + 1 & 0xFFFFFFFF)
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B)
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B)
        return x ^ (x >> np.uint32(16))


def floats(seed, shape, scale):
    n = int(np.prod(shape, dtype=np.int64))
    numbers = (bits(seed, n) >> np.uint32(8)).astype(np.float32) / np.float32(2 ** 23) - np.float32(1)
    return (numbers * np.float32(scale)).reshape(shape)
