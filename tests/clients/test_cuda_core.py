# SPDX-License-Identifier: Apache-2.0
"""cuda-core and cuda-bindings: C++ compiled by NVRTC to PTX, launched on the simulated GPU."""
import pathlib

import pytest

pytest.importorskip("cuda.core")

HERE = pathlib.Path(__file__).resolve().parent

PRELUDE = """
import ctypes
import numpy as np
from cuda.bindings import driver as cu
from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, ObjectCode, Program, ProgramOptions, launch

def ok(result):
    assert result[0] == cu.CUresult.CUDA_SUCCESS, result[0]
    return result[1] if len(result) == 2 else result[1:]

def compiled(source, *names, **options):
    program = Program(source, "c++", ProgramOptions(arch="compute_" + Device().arch, std="c++17", **options))
    return program.compile("ptx", name_expressions=names)

def put(buffer, array, stream):
    ok(cu.cuMemcpyHtoDAsync(int(buffer.handle), array.ctypes.data, array.nbytes, stream.handle))

def get(array, buffer, stream):
    ok(cu.cuMemcpyDtoHAsync(array.ctypes.data, int(buffer.handle), array.nbytes, stream.handle))
    stream.sync()
    return array
"""


def run(box, code, **env):
    env |= {"PYTHONPATH": str(HERE / "nojitlink"), "PYTHONWARNINGS": "ignore"}
    return box.python(PRELUDE + code, env=env)


def test_a_template_is_compiled_and_launched(box):
    out = run(box, '''
device = Device(0)
device.set_current()
stream = device.create_stream()
source = """
template <typename T> __global__ void saxpy(T a, const T *x, const T *y, T *out, size_t n) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = a * x[i] + y[i];
}"""
module = compiled(source, "saxpy<float>", "saxpy<double>")
for name, kind in ("saxpy<float>", np.float32), ("saxpy<double>", np.float64):
    kernel = module.get_kernel(name)
    n = 50001
    x, y, out = np.random.rand(n).astype(kind), np.random.rand(n).astype(kind), np.zeros(n, kind)
    bx, by, bo = (device.allocate(x.nbytes, stream=stream) for _ in range(3))
    put(bx, x, stream)
    put(by, y, stream)
    launch(stream, LaunchConfig(grid=32, block=256), kernel, kind(2), bx, by, bo, np.uint64(n))
    assert np.allclose(get(out, bo, stream), 2 * x + y, rtol=1e-6)
    assert kernel.attributes.max_threads_per_block == 1024 and kernel.num_arguments == 5
print("fine")
''')
    assert out == "fine\n"


def test_two_sources_are_linked_by_the_driver(box):
    out = run(box, '''
device = Device(0)
device.set_current()
stream = device.create_stream()
a = compiled('extern __device__ int twice(int); extern "C" __global__ void k(int *p) { p[threadIdx.x] = twice(threadIdx.x); }',
             relocatable_device_code=True)
b = compiled("__device__ int twice(int x) { return 2 * x; }", relocatable_device_code=True)
kernel = Linker(a, b, options=LinkerOptions(arch="sm_" + device.arch)).link("cubin").get_kernel("k")
buffer = device.allocate(256, stream=stream)
launch(stream, LaunchConfig(grid=1, block=64), kernel, buffer)
assert (get(np.zeros(64, np.int32), buffer, stream) == 2 * np.arange(64)).all()
print("fine")
''')
    assert out == "fine\n"


def test_the_jit_log_says_what_is_wrong(box):
    out = run(box, '''
Device(0).set_current()
log = bytearray(4096)
options = [cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, cu.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
text = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k()\\n{\\n nonsense.u32;\\n}\\n\\0"
error, _ = cu.cuModuleLoadDataEx(text, 2, options, [log, len(log)])
print(error.name, bytes(log).split(b"\\0")[0].decode().splitlines()[0])
''')
    assert out.startswith("CUDA_ERROR_INVALID_PTX ptxas application ptx input, line 6; error")
    assert "nonsense" in out
