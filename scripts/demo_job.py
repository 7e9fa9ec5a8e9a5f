# SPDX-License-Identifier: Apache-2.0
"""A CUDA program as anybody might write it with cuda-bindings. It knows nothing of Allot.

    demo_job.py work GIB      take so much memory, then work on it until SIGTERM
    demo_job.py greedy        take memory until there is no more
"""
import signal
import sys
import time

from cuda.bindings import driver as cu

GIB = 1 << 30
BLOCK = 64 << 20


def check(answer):
    error, *values = answer
    if error != cu.CUresult.CUDA_SUCCESS:
        sys.exit(f"{sys.argv[1]}: {error.name}")
    return values[0] if values else None


def main():
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    check(cu.cuInit(0))
    device = check(cu.cuDeviceGet(0))
    context = check(cu.cuDevicePrimaryCtxRetain(device))
    check(cu.cuCtxSetCurrent(context))
    error, free, total = cu.cuMemGetInfo()
    check((error,))
    print(f"the card has {total / GIB:.1f} GiB, {free / GIB:.1f} GiB free", flush=True)

    if sys.argv[1] == "greedy":
        n = 0
        while True:
            error, _ = cu.cuMemAlloc(BLOCK)
            if error != cu.CUresult.CUDA_SUCCESS:
                break
            n += 1
        print(f"took {n * BLOCK / GIB:.2f} GiB in blocks of {BLOCK >> 20} MiB, then: {error.name}", flush=True)
    else:
        size = int(float(sys.argv[2]) * GIB)
        memory = check(cu.cuMemAlloc(size))
        print(f"holds {size / GIB:.1f} GiB", flush=True)
        steps = 0
        while not stop:
            check(cu.cuMemsetD8(memory, steps % 256, BLOCK))
            check(cu.cuCtxSynchronize())
            steps += 1
            print(f"step {steps}", flush=True)
            time.sleep(0.02)
        check(cu.cuMemFree(memory))
        print(f"done after {steps} steps", flush=True)
    check(cu.cuDevicePrimaryCtxRelease(device))


main()
