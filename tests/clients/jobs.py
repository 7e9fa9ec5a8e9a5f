# SPDX-License-Identifier: Apache-2.0
"""Jobs of a test: a box of two cards, a daemon, and Python programs under `gpuctl run`."""
import json
import pathlib
import sys
import textwrap

import pytest

from conftest import BUILD, PATIENCE

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
GIB = 1 << 30
CONTEXT = 414  # MiB that a context costs on a simulated A100
WITHIN = PATIENCE  # for what may hang, or a framework that starts

PRELUDE = """
import ctypes, os, signal, subprocess, sys, threading, time
from cuda.bindings import driver as cu

MIB = 1 << 20
OK = cu.CUresult.CUDA_SUCCESS
OOM = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY

def must(result):
    error, *values = result if isinstance(result, tuple) else (result,)
    if error != OK:
        raise SystemExit(f"{error.name}")
    return values[0] if len(values) == 1 else tuple(values)

def use(ordinal=0):
    must(cu.cuInit(0))
    device = must(cu.cuDeviceGet(ordinal))
    must(cu.cuCtxSetCurrent(must(cu.cuDevicePrimaryCtxRetain(device))))
    return device

def fill(alloc, bytes):
    '''Allocate until it is refused; what was got.'''
    got = []
    while True:
        result = alloc(bytes)
        if result[0] != OK:
            assert result[0] == OOM, result[0].name
            return got
        got.append(result[1])

def info():
    free, total = must(cu.cuMemGetInfo())
    return free // MIB, total // MIB
"""


MAKERS = """
def place():
    where = cu.CUmemLocation()
    where.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    where.id = 0
    return where

def pool_alloc():
    props = cu.CUmemPoolProps()
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location = place()
    pool = must(cu.cuMemPoolCreate(props))
    return lambda n: cu.cuMemAllocFromPoolAsync(n, pool, 0)

def vmm_alloc():
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location = place()
    return lambda n: cu.cuMemCreate(n, prop, 0)

def array_alloc():
    def make(n):
        shape = cu.CUDA_ARRAY_DESCRIPTOR()
        shape.Width, shape.Height = 1024, n // 4096
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        return cu.cuArrayCreate(shape)
    return make

def array3d_alloc():
    def make(n):
        shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
        shape.Width, shape.Height, shape.Depth = 256, 64, n // 65536
        shape.Format, shape.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        return cu.cuArray3DCreate(shape)
    return make
"""


class Jobs:
    """A box of two cards with a daemon, and jobs on it."""

    def __init__(self, box, folder):
        self.box, self.folder = box, folder
        self.env = {"ALLOT_SOCKET": str(folder / "io.allot")}
        self.gpuctl = BUILD / "ctl" / "gpuctl"
        self.start_daemon()

    def start_daemon(self):
        self.daemon = self.box.start_allotd(self.folder, PATIENCE)

    def command(self, options, argv):
        return [self.gpuctl, "run", "--no-wait" if "--wait" not in options else "--wait",
                *[o for o in options if o != "--wait"], "--", *argv]

    def run(self, options, code, *args, check=True, env=None, setup=""):
        program = [sys.executable, "-c", PRELUDE + setup + textwrap.dedent(code), *args]
        return self.box.run(self.command(options, program), env=self.env | (env or {}), check=check, timeout=PATIENCE)

    def start(self, options, code, *args, ready=None):
        program = [sys.executable, "-u", "-c", PRELUDE + MAKERS + textwrap.dedent(code), *args]
        return self.box.start(self.command(options, program), env=self.env, ready=ready, timeout=PATIENCE)

    def status(self):
        return json.loads(self.box.run([self.gpuctl, "status", "--json"], env=self.env).stdout)["box"]

    def used(self):
        """MiB that processes have, by card, as the box itself says."""
        shown = json.loads(self.box.gpusim("show", "--json"))
        return [gpu["used_bytes"] // MIB for gpu in shown["gpus"]]


@pytest.fixture
def make_jobs(make_box, tmp_path):
    def make(config="", gpus=2):
        folder = tmp_path / "allot"
        folder.mkdir()
        (folder / "allotd.conf").write_text("[defaults]\nsmall-leases = yes\n\n" + textwrap.dedent(config))
        return Jobs(make_box("--gpus", str(gpus), "--model", "a100-40g"), folder)

    return make


@pytest.fixture
def jobs(make_jobs):
    return make_jobs()
