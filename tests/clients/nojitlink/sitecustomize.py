# SPDX-License-Identifier: Apache-2.0
"""On PYTHONPATH for programs that would link with nvJitLink where they find it.

nvJitLink makes machine code, which nothing here can run. Without it cuda-core, and numba through
it, hand their PTX to the driver's own linker, as on machines that do not have the library.
"""
import cuda.pathfinder

_load = cuda.pathfinder.load_nvidia_dynamic_lib


def load_nvidia_dynamic_lib(name):
    if name == "nvJitLink":
        raise cuda.pathfinder.DynamicLibNotFoundError("nvJitLink is kept away from this program")
    return _load(name)


cuda.pathfinder.load_nvidia_dynamic_lib = load_nvidia_dynamic_lib
