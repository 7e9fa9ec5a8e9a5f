# SPDX-License-Identifier: Apache-2.0
"""cuda-bindings over the simulated driver: memory by every way that the driver has, streams, graphs.

Each test runs a program with NVIDIA's own Python bindings, unmodified, and compares what it sees
with the box's truth as gpusim shows it.
"""
import json
import pathlib
import re

import pytest

pytest.importorskip("cuda.bindings")

MIB = 1 << 20

# What every program begins with: a call that must succeed, and the truth of the box.
PRELUDE = """
import ctypes, json, os, subprocess, sys
from cuda.bindings import driver as cu

MIB = 1 << 20
GPUSIM = sys.argv[1]

def ok(result):
    error, *values = result if isinstance(result, tuple) else (result,)
    if error != cu.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{error}: " + repr(cu.cuGetErrorString(error)[1]))
    return values[0] if len(values) == 1 else tuple(values)

def fails(result, name):
    error = result[0] if isinstance(result, tuple) else result
    assert error == getattr(cu.CUresult, "CUDA_ERROR_" + name), error

def truth(gpu=0):
    shown = json.loads(subprocess.run([GPUSIM, "show", "--json"], capture_output=True, check=True).stdout)
    return shown["gpus"][gpu]

def used(gpu=0):
    return truth(gpu)["used_bytes"]

def use(ordinal=0):
    ok(cu.cuInit(0))
    context = ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(ordinal))))
    ok(cu.cuCtxSetCurrent(context))
    return context

def put(pointer, data):
    ok(cu.cuMemcpyHtoD(pointer, data, len(data)))

def get(pointer, n):
    data = bytearray(n)
    ok(cu.cuMemcpyDtoH(data, pointer, n))
    return bytes(data)

def location(ordinal=0):
    place = cu.CUmemLocation()
    place.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    place.id = ordinal
    return place
"""


@pytest.fixture
def run(box):
    """run(code): its output; the program gets the path of gpusim."""
    from conftest import GPUSIM

    def run(code, *args, **options):
        return box.python(PRELUDE + code, GPUSIM, *args, **options)

    run.box = box
    run.gpusim = str(GPUSIM)
    return run


def test_devices_are_those_of_the_box(run):
    out = run(
        """
ok(cu.cuInit(0))
seen = []
for i in range(ok(cu.cuDeviceGetCount())):
    device = ok(cu.cuDeviceGet(i))
    seen.append({
        "name": ok(cu.cuDeviceGetName(96, device)).split(b"\\0")[0].decode(),
        "uuid": ok(cu.cuDeviceGetUuid(device)).bytes.hex(),
        "total": ok(cu.cuDeviceTotalMem(device)),
        "bus": ok(cu.cuDeviceGetPCIBusId(32, device)).split(b"\\0")[0].decode(),
    })
print(json.dumps([seen, ok(cu.cuDriverGetVersion())]))
""",
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )
    seen, version = json.loads(out)
    box = json.loads(run.box.gpusim("show", "--json"))
    assert version == box["cuda_driver_version"]
    assert len(seen) == len(box["gpus"]) == 4
    for device, gpu in zip(seen, box["gpus"]):
        assert device["name"] == gpu["name"]
        assert device["uuid"] == gpu["uuid"].removeprefix("GPU-").replace("-", "")
        assert device["total"] == gpu["capacity_bytes"]
        assert gpu["bus_id"].endswith(device["bus"])


def test_visible_devices_by_uuid(run):
    gpus = json.loads(run.box.gpusim("show", "--json"))["gpus"]
    out = run(
        """
ok(cu.cuInit(0))
print(*(ok(cu.cuDeviceGetUuid(ok(cu.cuDeviceGet(i)))).bytes.hex() for i in range(ok(cu.cuDeviceGetCount()))))
""",
        env={"CUDA_VISIBLE_DEVICES": f"{gpus[2]['uuid']},{gpus[0]['uuid']}"},
    )
    assert out.split() == [gpus[i]["uuid"].removeprefix("GPU-").replace("-", "") for i in (2, 0)]


def test_plain_memory(run):
    run(
        """
assert used() == 0
use()
empty = used()
assert empty == truth()["context_bytes"]
p = ok(cu.cuMemAlloc(1000))
q = ok(cu.cuMemAlloc(10 * MIB + 1))
pitched, pitch = ok(cu.cuMemAllocPitch(1000, 8, 4))
assert pitch % 512 == 0
assert used() == empty + 2 * MIB + 12 * MIB
assert ok(cu.cuMemGetInfo()) == (truth()["free_bytes"], truth()["capacity_bytes"])
put(p, b"some bytes")
ok(cu.cuMemcpyDtoD(int(q) + 7, p, 10))
assert get(int(q) + 7, 10) == b"some bytes"
ok(cu.cuMemsetD32(q, 0x01020304, 4))
assert get(q, 8) == bytes([4, 3, 2, 1] * 2)
base, size = ok(cu.cuMemGetAddressRange(int(q) + 99))
assert int(base) == int(q) and size == 10 * MIB + 1
fails(cu.cuMemcpyDtoD(q, p, 1001), "INVALID_VALUE")
fails(cu.cuMemAlloc(1 << 45), "OUT_OF_MEMORY")
for pointer in (p, q, pitched):
    ok(cu.cuMemFree(pointer))
fails(cu.cuMemFree(q), "INVALID_VALUE")
assert used() == empty
"""
    )


def test_memory_is_out_exactly_at_capacity(run):
    run(
        """
use()
free = ok(cu.cuMemGetInfo())[0] // (2 * MIB) * (2 * MIB)
fails(cu.cuMemAlloc(free + 1), "OUT_OF_MEMORY")
ok(cu.cuMemAlloc(free))
fails(cu.cuMemAlloc(1), "OUT_OF_MEMORY")
"""
    )


def test_managed_and_host_memory(run):
    run(
        """
use()
empty = used()
managed = ok(cu.cuMemAllocManaged(8 * MIB, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
view = (ctypes.c_char * (8 * MIB)).from_address(int(managed))
view[5] = b"x"
assert get(int(managed) + 5, 1) == b"x"
assert used() == empty
ok(cu.cuMemPrefetchAsync(managed, 8 * MIB, location(), 0, 0))
ok(cu.cuCtxSynchronize())
assert used() == empty + 8 * MIB
ok(cu.cuMemAdvise(managed, 8 * MIB, cu.CUmem_advise.CU_MEM_ADVISE_SET_READ_MOSTLY, location()))
assert ok(cu.cuMemRangeGetAttribute(4, cu.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, 8 * MIB)) == 1
ok(cu.cuMemFree(managed))

host = ok(cu.cuMemHostAlloc(1000, 0))
assert int(ok(cu.cuMemHostGetDevicePointer(host, 0))) == int(host)
ok(cu.cuMemsetD8(host, 7, 1000))
assert (ctypes.c_ubyte * 1000).from_address(int(host))[999] == 7
ok(cu.cuMemFreeHost(host))
own = ctypes.create_string_buffer(1 << 16)
ok(cu.cuMemHostRegister(ctypes.addressof(own), 1 << 16, 0))
kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
assert ok(cu.cuPointerGetAttribute(kind, ctypes.addressof(own))) == cu.CUmemorytype.CU_MEMORYTYPE_HOST
ok(cu.cuMemHostUnregister(ctypes.addressof(own)))
assert used() == empty
"""
    )


def test_pools(run):
    run(
        """
use()
empty = used()
stream = ok(cu.cuStreamCreate(0))
pool = ok(cu.cuDeviceGetDefaultMemPool(0))
attribute = cu.CUmemPool_attribute
p = ok(cu.cuMemAllocAsync(3 * MIB, stream))
reserved = int(ok(cu.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)))
assert used() == empty + reserved
assert int(ok(cu.cuMemPoolGetAttribute(pool, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))) == 4 * MIB
put(p, b"pool")
assert get(p, 4) == b"pool"
ok(cu.cuMemFreeAsync(p, stream))
ok(cu.cuStreamSynchronize(stream))
assert used() == empty

props = cu.CUmemPoolProps()
props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location = location(1)
mine = ok(cu.cuMemPoolCreate(props))
ok(cu.cuMemPoolSetAttribute(mine, attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cu.cuuint64_t(16 * MIB)))
p = ok(cu.cuMemAllocFromPoolAsync(20 * MIB, mine, stream))
ok(cu.cuMemFreeAsync(p, stream))
ok(cu.cuStreamSynchronize(stream))
ok(cu.cuMemPoolTrimTo(mine, 4 * MIB))
assert used(1) == 4 * MIB
ok(cu.cuMemPoolDestroy(mine))
assert used(1) == 0
""",
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )


def test_virtual_memory(run):
    run(
        """
use()
empty = used()
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location = location()
granule = ok(cu.cuMemGetAllocationGranularity(prop, cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
assert granule == 2 * MIB
va = ok(cu.cuMemAddressReserve(64 * granule, 0, 0, 0))
assert used() == empty
for i in range(3):
    handle = ok(cu.cuMemCreate(granule, prop, 0))
    ok(cu.cuMemMap(int(va) + i * granule, granule, 0, handle, 0))
    ok(cu.cuMemRelease(handle))
assert used() == empty + 3 * granule
fails(cu.cuMemsetD8(va, 1, 1), "INVALID_VALUE")
access = cu.CUmemAccessDesc()
access.location = location()
access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
ok(cu.cuMemSetAccess(va, 3 * granule, [access], 1))
ok(cu.cuMemsetD8(va, 9, 3 * granule))
assert get(int(va) + granule - 2, 4) == b"\\x09" * 4
ok(cu.cuMemUnmap(va, 3 * granule))
ok(cu.cuMemAddressFree(va, 64 * granule))
assert used() == empty
"""
    )


def test_arrays(run):
    run(
        """
use()
empty = used()
desc = cu.CUDA_ARRAY_DESCRIPTOR()
desc.Width, desc.Height = 32, 4
desc.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
desc.NumChannels = 4
array = ok(cu.cuArrayCreate(desc))
assert used() == empty + 2 * MIB
data = bytes(range(128)) * 4
copy = cu.CUDA_MEMCPY2D()
copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
copy.srcHost = data
copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
copy.dstArray = array
copy.WidthInBytes, copy.Height = 128, 4
ok(cu.cuMemcpy2D(copy))
back = bytearray(128)
copy = cu.CUDA_MEMCPY2D()
copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
copy.srcArray = array
copy.srcY = 3
copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
copy.dstHost = back
copy.WidthInBytes, copy.Height = 128, 1
ok(cu.cuMemcpy2D(copy))
assert bytes(back) == bytes(range(128))
ok(cu.cuArrayDestroy(array))
assert used() == empty
"""
    )


def test_streams_and_events(run):
    run(
        """
import time
use()
a, b = (ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value)) for _ in range(2))
start, end = (ok(cu.cuEventCreate(0)) for _ in range(2))
p = ok(cu.cuMemAlloc(64 * MIB))
host = ok(cu.cuMemHostAlloc(64 * MIB, 0))
view = (ctypes.c_ubyte * (64 * MIB)).from_address(int(host))

# A callback that waits for us holds up its stream, not us.
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
opened = []
def wait(_):
    while not opened:
        time.sleep(0.001)
gate = FUNCTION(wait)
ok(cu.cuEventRecord(start, a))
ok(cu.cuLaunchHostFunc(a, cu.CUhostFn(_ptr=ctypes.addressof(gate)), 0))
ok(cu.cuMemsetD8Async(p, 5, 64 * MIB, a))
ok(cu.cuEventRecord(end, a))
ok(cu.cuStreamWaitEvent(b, end, 0))
ok(cu.cuMemcpyDtoHAsync(host, p, 64 * MIB, b))
fails(cu.cuStreamQuery(a), "NOT_READY")
fails(cu.cuStreamQuery(b), "NOT_READY")
fails(cu.cuEventQuery(end), "NOT_READY")
opened.append(True)
ok(cu.cuStreamSynchronize(b))
assert view[0] == view[64 * MIB - 1] == 5
first = ok(cu.cuEventElapsedTime(start, end))
assert 0.01 < first < 10, first

# The same again takes the same modelled time.
ok(cu.cuEventRecord(start, a))
ok(cu.cuMemsetD8Async(p, 6, 64 * MIB, a))
ok(cu.cuEventRecord(end, a))
ok(cu.cuEventSynchronize(end))
assert abs(ok(cu.cuEventElapsedTime(start, end)) - first) < 0.01

library = ctypes.CDLL("libcuda.so.1")
library.gpusimHostClock.restype = ctypes.c_ulonglong
before = library.gpusimHostClock()
library.gpusimHostWork(ctypes.c_ulonglong(12345))
assert library.gpusimHostClock() == before + 12345
"""
    )


def test_graphs(run):
    run(
        """
use()
stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
p = ok(cu.cuMemAlloc(MIB))
q = ok(cu.cuMemAlloc(MIB))
put(p, bytes(MIB))
ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(cu.cuMemsetD8Async(p, 3, MIB, stream))
ok(cu.cuMemcpyDtoDAsync(q, p, MIB, stream))
fails(cu.cuMemAlloc(1), "STREAM_CAPTURE_UNSUPPORTED")
fails(cu.cuStreamEndCapture(stream), "STREAM_CAPTURE_INVALIDATED")
ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(cu.cuMemsetD8Async(p, 3, MIB, stream))
ok(cu.cuMemcpyDtoDAsync(q, p, MIB, stream))
graph = ok(cu.cuStreamEndCapture(stream))
assert get(p, 1) == b"\\0"
nodes, n = ok(cu.cuGraphGetNodes(graph, 8))
assert n == 2
assert ok(cu.cuGraphNodeGetType(nodes[0])) == cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
run = ok(cu.cuGraphInstantiate(graph, 0))
for _ in range(3):
    put(q, bytes(MIB))
    ok(cu.cuGraphLaunch(run, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert get(int(q) + MIB - 1, 1) == b"\\3"
ok(cu.cuGraphExecDestroy(run))
ok(cu.cuGraphDestroy(graph))
"""
    )


EXPORTER = """
use()
p = ok(cu.cuMemAlloc(4 * MIB))
put(p, b"shared bytes")
handle = ok(cu.cuIpcGetMemHandle(p))
print("handle", ctypes.string_at(handle.getPtr(), 64).hex(), flush=True)
sys.stdin.readline()
assert get(p, 12) == b"other bytes!"
print("seen", flush=True)
sys.stdin.readline()
"""


def test_two_processes_share_memory_that_is_charged_once(run):
    box = run.box
    context = json.loads(box.gpusim("show", "--json"))["gpus"][0]["context_bytes"]
    exporter = box.start_python(PRELUDE + EXPORTER, run.gpusim, ready="handle")
    handle = exporter.said.split("handle ")[1].split()[0]
    run(
        """
use()
handle = cu.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[2]), 64)
p = ok(cu.cuIpcOpenMemHandle(handle, 1))
assert get(p, 12) == b"shared bytes"
assert used() == 2 * truth()["context_bytes"] + 4 * MIB
put(p, b"other bytes!")
ok(cu.cuIpcCloseMemHandle(p))
""",
        handle,
    )
    exporter.stdin.write("\n")
    exporter.stdin.flush()
    box.wait_for(exporter, "seen")
    gpu = json.loads(box.gpusim("show", "--json"))["gpus"][0]
    assert gpu["used_bytes"] == context + 4 * MIB
    box.kill(exporter)
    assert json.loads(box.gpusim("show", "--json"))["gpus"][0]["used_bytes"] == 0


def test_a_handle_crosses_a_socket(run):
    run(
        """
import array, socket
ours, theirs = socket.socketpair()
kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
pid = os.fork()  # before CUDA is used: a child of a process that used it cannot

def mapped(handle):
    va = ok(cu.cuMemAddressReserve(2 * MIB, 0, 0, 0))
    ok(cu.cuMemMap(va, 2 * MIB, 0, handle, 0))
    access = cu.CUmemAccessDesc()
    access.location = location()
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemSetAccess(va, 2 * MIB, [access], 1))
    return va

use()
if pid == 0:
    _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
    va = mapped(ok(cu.cuMemImportFromShareableHandle(fds[0], kind)))
    assert get(va, 6) == b"parent"
    put(va, b"child!")
    os._exit(0)
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.requestedHandleTypes = kind
prop.location = location()
handle = ok(cu.cuMemCreate(2 * MIB, prop, 0))
va = mapped(handle)
put(va, b"parent")
fd = ok(cu.cuMemExportToShareableHandle(handle, kind, 0))
socket.send_fds(ours, [b"x"], [fd])
assert os.waitpid(pid, 0)[1] == 0
assert get(va, 6) == b"child!"
assert used() == truth()["context_bytes"] + 2 * MIB
"""
    )


def test_a_killed_program_gives_its_bytes_back(run):
    box = run.box
    holder = box.start_python(PRELUDE + "use(); ok(cu.cuMemAlloc(100 * MIB)); print('holds', flush=True); sys.stdin.read()",
                              run.gpusim, ready="holds")
    gpu = json.loads(box.gpusim("show", "--json"))["gpus"][0]
    assert gpu["used_bytes"] == gpu["context_bytes"] + 100 * MIB
    box.kill(holder)
    assert json.loads(box.gpusim("show", "--json"))["gpus"][0]["used_bytes"] == 0


def test_every_name_of_the_driver_resolves(run):
    """cuda-bindings looks up some 530 names; only those newer than the driver's list may be missing."""
    names = pathlib.Path(__file__).resolve().parents[2] / "vendor" / "cuda_names.def"
    known = set(re.findall(r"^FUNCTION\((\w+)\)", names.read_text(), re.M))
    out = run(
        """
ok(cu.cuInit(0))
from cuda.bindings._internal import driver as internal
found = internal._inspect_function_pointers()
print(json.dumps({name.removeprefix("__"): bool(pointer) for name, pointer in found.items()}))
"""
    )
    found = json.loads(out)
    missing = {name for name, there in found.items() if not there}
    assert sum(found.values()) > 450
    assert not missing & known
