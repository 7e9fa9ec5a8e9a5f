# SPDX-License-Identifier: Apache-2.0
"""A program under the guard closes all descriptors, as daemons do, and uses the numbers for its own files."""
import json

import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA = 1000

# 400 MiB and back, before and after; then more than the lease has, which the guard refuses with a message.
PROGRAM = r"""
import ctypes, json, os, socket
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
def take(mib):
    r = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20))
    return r if r else cuda.cuMemFree_v2(pointer)
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
said = {"before": take(400)}
out = os.dup2(1, 200)
os.dup2(os.open("/tmp/descriptors-data", os.O_RDWR | os.O_CREAT | os.O_TRUNC), 2)
os.closerange(3, 200)
files, pairs = [], []
for i in range(40):
    files.append(os.memfd_create("mine"))
    pairs.append(socket.socketpair())
for pair in pairs:
    for end in pair:
        end.setblocking(False)
said["after"] = take(400)
said["again"] = [take(200) for _ in range(20)]
said["refused"] = take(6000)
said["bytes"] = sum(os.fstat(fd).st_size for fd in files)
said["data"] = os.fstat(2).st_size
said["heard"] = 0
for pair in pairs:
    for end in pair:
        try:
            said["heard"] += len(end.recv(4096)) or 1
        except BlockingIOError:
            pass
os.write(out, json.dumps(said).encode())
"""


def test_a_program_that_closes_everything_keeps_its_files(served):
    done = served.as_user(ADA, "gpuctl", "run", "-q", "--devices", "0", "--mem", "2G", "--", "python3", "-c", PROGRAM)
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    assert said.pop("refused") != 0
    assert said == {"before": 0, "after": 0, "again": [0] * 20, "bytes": 0, "data": 0, "heard": 0}
    until("an empty box", lambda: not served.leases())
