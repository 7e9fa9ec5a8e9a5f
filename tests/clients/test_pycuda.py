# SPDX-License-Identifier: Apache-2.0
"""pycuda over the simulated driver, by the one of its ways that takes PTX.

pycuda comes as source and takes minutes to compile against cuda.h and libcuda.so, so it is not among
the wheels of scripts/requirements; where it is installed, this runs.
"""
import pytest

pytest.importorskip("pycuda", reason="pycuda is not installed: it has no wheel")

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
