# SPDX-License-Identifier: Apache-2.0
"""Frameworks as their makers ship them, under the guard, with NVIDIA's own libcuda, a simulated one and none.

TensorFlow's framework library exports libcuda's names and loads libcuda when one of them is called; the guard once
took it for the driver, and the two called each other without end.
"""
import os
import pathlib
import textwrap

import pytest

from conftest import BUILD
from jobs import WITHIN, jobs, make_jobs  # noqa: F401

TOLD = """
loaded = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print("guard", any("liballot-guard.so" in path for path in loaded))
print("driver", *sorted({path for path in loaded if "/libcuda.so" in path}))
"""


def python_of(variable, why):
    venv = os.environ.get(variable)
    if not venv:
        pytest.skip(why)
    return pathlib.Path(venv) / "bin" / "python"


@pytest.fixture
def tensorflow():
    return python_of("ALLOT_TENSORFLOW", "the pinned wheels of TensorFlow are for Debian 12 on amd64")


@pytest.fixture
def torch():
    return python_of("ALLOT_TORCH", "PyTorch is not in the cache (ALLOT_TEST_TORCH=yes fetches it: 5 GB)")


@pytest.fixture(params=["real", "simulated", "none"])
def library_path(request, tmp_path):
    """What the job has on its library path, and the folder that its libcuda must come from."""
    if request.param == "real":
        folder = request.getfixturevalue("real_driver")
    elif request.param == "simulated":
        folder = BUILD / "sim" / "lib"
    else:
        folder = tmp_path / "none"
        folder.mkdir()
        (folder / "libcuda.so.1").touch()  # no library: the search ends here, also where one is installed
        return folder, None
    return folder, folder.resolve()


def look(jobs, python, library_path, code):
    """Run code in a job; what it said itself and where its libcuda is from, if it loaded one."""
    folder, expected = library_path
    said = jobs.box.run_within(jobs.command(["--fraction", "0.4"], [python, "-c", textwrap.dedent(code) + TOLD]), WITHIN,
                               env=jobs.env | {"LD_LIBRARY_PATH": str(folder)}).splitlines()
    assert "guard True" in said
    drivers = next(line for line in said if line.startswith("driver")).split()[1:]
    assert [pathlib.Path(path).parent for path in drivers] == ([expected] if expected else []), said
    return said


def test_tensorflow_looks_for_gpus_and_returns(jobs, tensorflow, library_path):
    """It finds none, for want of a card or of CUDA's other libraries; it must say so soon."""
    assert "gpus []" in look(jobs, tensorflow, library_path, """
    import tensorflow
    print("gpus", tensorflow.config.list_physical_devices("GPU"))
    """)


def test_memory_through_tensorflow_s_names_is_charged(jobs, tensorflow):
    """The names of its framework library lead to the driver by way of the guard."""
    library = next(tensorflow.parents[1].glob("lib/python3*/site-packages/tensorflow/libtensorflow_framework.so.2"))
    said = jobs.box.run_within(jobs.command(["--mem", "1G"], [tensorflow, "-c", textwrap.dedent(f"""
    import ctypes
    framework, context, pointer = ctypes.CDLL("{library}"), ctypes.c_void_p(), ctypes.c_uint64()
    print(framework.cuInit(0), framework.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
          framework.cuCtxSetCurrent(context), framework.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(5 << 30)),
          framework.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)))
    """)]), WITHIN, env=jobs.env)
    assert "0 0 0 2 0" in said.splitlines()


def test_torch_looks_for_gpus_and_returns(jobs, torch, library_path):
    said = look(jobs, torch, library_path, """
    import torch
    print("available", torch.cuda.is_available())
    """)
    assert any(line.startswith("available ") for line in said)
