# SPDX-License-Identifier: Apache-2.0
"""pycuda over the simulated driver, by the one of its ways that takes PTX.

pycuda comes as source; scripts/pycuda.sh compiles it and ALLOT_PYCUDA says where. Without that, this
runs where it is installed.
"""
import os
import sys
import textwrap

import pytest

from jobs import CONTEXT, PATIENCE, jobs, make_jobs  # noqa: F401

PYCUDA = os.environ.get("ALLOT_PYCUDA")
if PYCUDA:
    sys.path.append(PYCUDA)
pytest.importorskip("pycuda", reason="pycuda is not installed: it has no wheel")


@pytest.fixture(autouse=True)
def path_of_pycuda(monkeypatch):
    if PYCUDA:
        monkeypatch.setenv("PYTHONPATH", PYCUDA)


PTX = """
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 bias = 5;
.visible .entry add_bias(.param .u64 p)
{
    .reg .b64 %rd<5>;
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 4;
    ld.param.u64 %rd2, [p];
    cvta.to.global.u64 %rd3, %rd2;
    add.u64 %rd4, %rd3, %rd1;
    ld.global.u32 %r2, [%rd4];
    ld.global.u32 %r3, [bias];
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd4], %r2;
    ret;
}
"""


def test_a_module_from_ptx_is_launched(box):
    out = box.python(
        """
import sys
import numpy as np
import pycuda.driver as cuda

cuda.init()
context = cuda.Device(0).make_context()
try:
    module = cuda.module_from_buffer(sys.argv[1].encode())
    data = np.arange(64, dtype=np.int32)
    module.get_function("add_bias")(cuda.InOut(data), block=(64, 1, 1), grid=(1, 1))
    assert (data == np.arange(64) + 5).all(), data
    assert module.get_global("bias")[1] == 4
    print("fine")
finally:
    context.pop()
""",
        PTX,
    )
    assert out == "fine\n"


# ---- Under gpuctl run ---------------------------------------------------------------------------

FILL = """
import subprocess, sys, threading
import pycuda.driver as cuda
from pycuda.tools import DeviceMemoryPool

def fill(take):
    got = []
    try:
        while True:
            got.append(take(2 << 20))
    except cuda.MemoryError:
        return got

cuda.init()
context = cuda.Device(0).make_context()
"""

# What each has of the share, beside its context, in pieces of 2 MiB.
WAYS = {
    "in a loop": "got = fill(cuda.mem_alloc)",
    "again and again": """
        for _ in range(3):
            got = fill(cuda.mem_alloc)
            for piece in got:
                piece.free()
            got.clear()
        got = fill(cuda.mem_alloc)
        """,
    "by a pool": "pool = DeviceMemoryPool()\ngot = fill(pool.allocate)",
    "in threads": """
        got = []
        def work():
            context.push()
            got.extend(fill(cuda.mem_alloc))
            context.pop()
        context.pop()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        context.push()
        """,
}


def under_run(jobs, code):
    program = FILL + textwrap.dedent(code) + textwrap.dedent("""
        print(2 * len(got), *[n >> 20 for n in cuda.mem_get_info()])
        got.clear()
        context.pop()
        """)
    out = jobs.box.run(jobs.command(["--mem", "1G"], [sys.executable, "-c", program]), env=jobs.env, timeout=PATIENCE)
    return [int(word) for word in out.stdout.split()]


@pytest.mark.parametrize("way", WAYS)
def test_a_job_reaches_its_share_exactly_and_not_a_byte_more(jobs, way):
    share = 1024 - CONTEXT
    # The pool takes the largest size of its bin, just below 2.5 MiB, which is two granules.
    want = [share // 4 * 2, share % 4, 1024] if way == "by a pool" else [share, 0, 1024]
    assert under_run(jobs, WAYS[way]) == want


def test_a_module_from_ptx_is_launched_under_run(jobs):
    program = textwrap.dedent("""
        import sys
        import numpy as np
        import pycuda.driver as cuda

        cuda.init()
        context = cuda.Device(0).make_context()
        module = cuda.module_from_buffer(sys.argv[1].encode())
        stream = cuda.Stream()
        data = np.arange(64, dtype=np.int32)
        held = cuda.mem_alloc(data.nbytes)
        cuda.memcpy_htod_async(held, data, stream)
        module.get_function("add_bias")(held, block=(64, 1, 1), grid=(1, 1), stream=stream)
        stream.synchronize()
        cuda.memcpy_dtoh(data, held)
        assert (data == np.arange(64) + 5).all(), data
        print("fine", cuda.mem_get_info()[1] >> 20)
        context.pop()
        """)
    out = jobs.box.run(jobs.command(["--mem", "1G"], [sys.executable, "-c", program, PTX]), env=jobs.env,
                       timeout=PATIENCE)
    assert out.stdout == "fine 1024\n"


def test_a_child_takes_of_the_same_share(jobs):
    child = FILL + "got = fill(cuda.mem_alloc)\nprint(2 * len(got))\ngot.clear()\ncontext.pop()\n"
    got, free, total = under_run(jobs, f"""
        got = [cuda.mem_alloc(2 << 20) for _ in range(50)]
        said = subprocess.run([sys.executable, "-c", {child!r}], capture_output=True, text=True, check=True).stdout
        assert int(said) == 1024 - 2 * {CONTEXT} - 100, said
        """)
    assert (got, total) == (100, 1024)
