# SPDX-License-Identifier: Apache-2.0
"""Programs nobody here wrote, under `gpuctl run` on a simulated box: they reach their share exactly.

Each test runs a program that takes device memory by some way of the driver, and compares what it
got, and what the box says it has, with its lease.
"""
import json
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import BUILD
from jobs import CONTEXT, HERE, MAKERS, PATIENCE, PRELUDE, WITHIN, jobs, make_jobs  # noqa: F401

pytest.importorskip("cuda.bindings")

TOP = pathlib.Path(__file__).resolve().parents[2]

# ---- Every way to take memory -----------------------------------------------------------------------

WAYS = {
    "alloc": "lambda n: cu.cuMemAlloc(n)",
    "managed": "lambda n: cu.cuMemAllocManaged(n, cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value)",
    "async": "lambda n: cu.cuMemAllocAsync(n, 0)",
    "pitch": "lambda n: cu.cuMemAllocPitch(2048, n // 2048, 4)",
    "pool": "pool_alloc()",
    "vmm": "vmm_alloc()",
    "array": "array_alloc()",
    "array3d": "array3d_alloc()",
}

@pytest.mark.parametrize("way", WAYS)
def test_a_program_reaches_its_share_exactly_and_not_a_byte_more(jobs, way):
    job = jobs.start(["--mem", "1G"], f"""
    use()
    got = fill({WAYS[way]}, 2 * MIB)
    print("got", len(got) * 2, *info(), flush=True)
    sys.stdin.read()
    """)
    got, free, total = map(int, jobs.box.wait_for(job, "got ", PATIENCE).split()[1:])
    assert got == 1024 - CONTEXT
    assert (free, total) == (0, 1024)
    # What the box itself has given away; managed memory comes to the card when it is touched.
    assert max(jobs.used()) == (CONTEXT if way == "managed" else 1024)
    job.stdin.close()
    assert job.wait(PATIENCE) == 0


@pytest.mark.parametrize("asked", (700, 2000))
def test_a_refusal_says_what_the_context_took_and_names_the_card_in_short(jobs, asked):
    done = jobs.run(["--mem", "1G"], f"""
    use()
    assert cu.cuMemAlloc({asked} * MIB)[0] == OOM
    print(os.environ["CUDA_VISIBLE_DEVICES"])
    """)
    uuid = done.stdout.strip()
    said = [line for line in done.stderr.splitlines() if "refused" in line]
    assert len(said) == 1
    assert uuid not in said[0] and said[0].count(uuid[:12]) == 1, said
    assert f"a context takes {CONTEXT} MiB" in said[0], said
    assert said[0].count("1 GiB") == 1, said


def test_memory_that_is_freed_can_be_had_again_and_many_times(jobs):
    out = jobs.run(["--mem", "1G"], """
    use()
    for size in (2, 32, 300, 604) * 20:
        got = fill(cu.cuMemAlloc, size * MIB)
        assert len(got) == 610 // size, (size, len(got))
        for pointer in got:
            must(cu.cuMemFree(pointer))
    print(info())
    """)
    assert out.stdout.strip() == str((1024 - CONTEXT, 1024))


def test_small_allocations_share_pages_as_the_driver_packs_them(jobs):
    out = jobs.run(["--mem", "512M"], """
    use()
    got = fill(cu.cuMemAlloc, 4096)
    print(len(got) * 4096 // MIB, info()[0])
    """)
    assert out.stdout.split() == [str(512 - CONTEXT), "0"]


def test_a_free_of_what_is_not_ours_reaches_the_driver(jobs):
    out = jobs.run(["--mem", "1G"], """
    use()
    print(cu.cuMemFree(0x1234500)[0].name, cu.cuMemFree(0)[0].name)
    """)
    assert out.stdout.split() == ["CUDA_ERROR_INVALID_VALUE", "CUDA_SUCCESS"]


def test_a_mapped_handle_is_charged_until_its_last_use_is_gone(jobs):
    out = jobs.run(["--mem", "1G"], """
    use()
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location = place()
    handle = must(cu.cuMemCreate(512 * MIB, prop, 0))
    address = must(cu.cuMemAddressReserve(512 * MIB, 0, 0, 0))
    must(cu.cuMemMap(address, 512 * MIB, 0, handle, 0))
    seen = [info()[0]]
    must(cu.cuMemRelease(handle))
    seen.append(info()[0])
    again = must(cu.cuMemRetainAllocationHandle(int(address)))
    must(cu.cuMemUnmap(address, 512 * MIB))
    seen.append(info()[0])
    must(cu.cuMemRelease(again))
    seen.append(info()[0])
    print(*seen)
    """, setup=MAKERS)
    assert out.stdout.split() == ["98", "98", "98", "610"]


def test_a_pool_gives_back_what_it_no_longer_keeps(jobs):
    out = jobs.run(["--mem", "1G"], """
    use()
    stream = must(cu.cuStreamCreate(0))
    for _ in range(10):
        got = [must(cu.cuMemAllocAsync(100 * MIB, stream)) for _ in range(6)]
        for pointer in got:
            must(cu.cuMemFreeAsync(pointer, stream))
        must(cu.cuStreamSynchronize(stream))
    pointer = must(cu.cuMemAlloc(600 * MIB))
    print(info()[0])
    """)
    assert out.stdout.strip() == "10"


def test_what_is_freed_on_a_busy_stream_is_not_there_for_another_one(jobs):
    out = jobs.run(["--mem", "1G"], """
    use()
    flag = must(cu.cuMemHostAlloc(4, 0))
    ctypes.c_uint.from_address(int(flag)).value = 0
    device_flag = must(cu.cuMemHostGetDevicePointer(flag, 0))
    got = []
    streams = [must(cu.cuStreamCreate(1)) for _ in range(4)]
    for stream in streams:
        must(cu.cuStreamWaitValue32(stream, device_flag, 1, cu.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ.value))
        r, pointer = cu.cuMemAllocAsync(400 * MIB, stream)
        if r == OK:
            must(cu.cuMemFreeAsync(pointer, stream))
        got.append(r == OK)
    ctypes.c_uint.from_address(int(flag)).value = 1
    for stream in streams:
        must(cu.cuStreamSynchronize(stream))
    print(got, cu.cuMemAllocAsync(400 * MIB, streams[3])[0].name)
    """)
    assert out.stdout.strip() == "[True, False, False, False] CUDA_SUCCESS"


def test_a_reset_takes_pools_and_heaps_along(jobs):
    out = jobs.run(["--mem", "1G"], """
    device = use()
    for _ in range(4):
        use()
        must(cu.cuMemAllocAsync(400 * MIB, 0))
        heap = cu.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE
        for size in (100, 8, 100):
            must(cu.cuCtxSetLimit(heap, size * MIB))
        must(cu.cuDevicePrimaryCtxReset(device))
    use()
    print(info()[0])
    """)
    assert out.stdout.strip() == "610"


# ---- Graphs --------------------------------------------------------------------------------------------

GRAPH = MAKERS + """
def graph_of(mib):
    params = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    params.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    params.poolProps.location = place()
    params.bytesize = mib * MIB
    graph = must(cu.cuGraphCreate(0))
    return cu.cuGraphAddMemAllocNode(graph, None, 0, params)[0], graph

def captured(mib):
    must(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    r = cu.cuMemAllocAsync(mib * MIB, stream)[0]
    return r, must(cu.cuStreamEndCapture(stream))

device = use()
stream = must(cu.cuStreamCreate(1))
room = info()[0]
"""


@pytest.mark.parametrize("way", ["graph_of", "captured"])
def test_a_graph_that_allocates_too_much_is_not_launched(jobs, way):
    out = jobs.run(["--mem", "1G"], f"""
    r, graph = {way}(700)
    assert r == OK, r.name
    ready = cu.cuGraphInstantiate(graph, 0)
    r = cu.cuGraphLaunch(ready[1], stream)[0] if ready[0] == OK else ready[0]
    print(r.name, room - info()[0])
    """, setup=GRAPH)
    assert out.stdout.split() == ["CUDA_ERROR_OUT_OF_MEMORY", "0"]


@pytest.mark.parametrize("way", ["graph_of", "captured"])
def test_a_graph_is_launched_again_and_again_and_gives_back(jobs, way):
    out = jobs.run(["--mem", "1G"], f"""
    r, graph = {way}(600)
    assert r == OK, r.name
    ready = must(cu.cuGraphInstantiate(graph, cu.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
    for _ in range(5):
        must(cu.cuGraphLaunch(ready, stream))
    must(cu.cuStreamSynchronize(stream))
    held = room - info()[0]
    must(cu.cuGraphExecDestroy(ready))
    must(cu.cuGraphDestroy(graph))
    must(cu.cuDeviceGraphMemTrim(device))
    reserved = must(cu.cuDeviceGetGraphMemAttribute(device, cu.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
    print(held, room - info()[0], int(reserved) // MIB)
    """, setup=GRAPH)
    held, after, reserved = map(int, out.stdout.split())
    assert 600 <= held < 640
    # What the driver still keeps stays charged, and nothing else does.
    assert after == reserved


# ---- Modules -------------------------------------------------------------------------------------------

def test_variables_of_a_module_are_charged_before_it_is_loaded(jobs):
    out = jobs.run(["--mem", "1G"], """
    use()
    ptx = lambda mib: f".version 7.0\\n.target sm_75\\n.address_size 64\\n.visible .global .align 16 .b8 big[{mib * MIB}];\\n.visible .entry f() {{ ret; }}\\n\\0".encode()
    print(cu.cuModuleLoadData(ptx(700))[0].name)
    module = must(cu.cuModuleLoadData(ptx(500)))
    held = info()[0]
    must(cu.cuModuleUnload(module))
    print(held, info()[0])
    """)
    first, second = out.stdout.splitlines()
    assert first == "CUDA_ERROR_OUT_OF_MEMORY"
    held, after = map(int, second.split())
    assert 98 <= held <= 112 and after == 610


def test_an_image_that_is_none_is_the_drivers_business(jobs):
    out = jobs.run(["--mem", "1G"], """
    use()
    image = bytearray(64)
    image[:6] = b"\\x7fELF\\x02\\x01"
    image[40:48] = (1 << 46).to_bytes(8, "little")
    image[58:62] = (64).to_bytes(2, "little") + (9).to_bytes(2, "little")
    print(cu.cuModuleLoadData(bytes(image))[0] != OK)
    """)
    assert out.stdout.strip() == "True"


# ---- Green contexts ------------------------------------------------------------------------------------

GREEN = """
import ctypes, json, os, subprocess, sys
cuda = ctypes.CDLL("libcuda.so.1")
green, context, pointer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()

def held():
    box = json.loads(subprocess.run([sys.argv[1], "status", "--json"], capture_output=True, text=True).stdout)["box"]
    return sum(share["held_bytes"] for share in box["leases"][0]["shares"]) >> 20

print(cuda.cuInit(0), cuda.cuGreenCtxCreate(ctypes.byref(green), None, 0, 1))
if green:
    print(held())
    cuda.cuCtxFromGreenCtx(ctypes.byref(context), green)
    cuda.cuCtxSetCurrent(context)
    print([cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(n << 20)) for n in (300, 400, 300)], held())
    cuda.cuGreenCtxDestroy(green)
    # All of it is to be had again.
    cuda.cuGreenCtxCreate(ctypes.byref(green), None, 0, 1)
    cuda.cuCtxSetCurrent(context)
    print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(610 << 20)), held())
"""


def test_green_contexts_cost_what_a_context_costs(jobs):
    """The simulated driver has none: tests/clients/green.c stands for it."""
    env = jobs.env | {"LD_LIBRARY_PATH": f"{BUILD / 'tests' / 'clients'}:{jobs.box.env['LD_LIBRARY_PATH']}"}
    run = lambda size: jobs.box.run(
        jobs.command(["--mem", size], [sys.executable, "-c", GREEN, jobs.gpuctl]), env=env, timeout=PATIENCE).stdout.splitlines()
    assert run("1G") == ["0 0", str(CONTEXT), "[0, 2, 0] 1014", "0 1024"]


# ---- The limit is the job's ------------------------------------------------------------------------------

def test_children_and_threads_share_one_limit(jobs):
    out = jobs.run(["--mem", "4G"], """
    code = sys.argv[1]
    children = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    use()
    for child in children:
        assert child.stdout.readline() == "ready\\n"
    for child in children:
        child.stdin.write("go\\n")
        child.stdin.flush()
    got = []
    threads = [threading.Thread(target=lambda: (must(cu.cuCtxSetCurrent(must(cu.cuDevicePrimaryCtxRetain(must(cu.cuDeviceGet(0)))))), got.extend(fill(cu.cuMemAlloc, 2 * MIB)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(2 * len(got) + sum(int(child.stdout.readline()) for child in children), info()[0], flush=True)
    for child in children:
        child.communicate()
    """, PRELUDE + textwrap.dedent("""
    use()
    print("ready", flush=True)
    sys.stdin.readline()
    print(2 * len(fill(cu.cuMemAlloc, 2 * MIB)), flush=True)
    sys.stdin.read()
    """))
    got, free = map(int, out.stdout.split())
    assert (got, free) == (4096 - 4 * CONTEXT, 0)


def test_credits_that_a_sibling_does_not_use_are_recalled(jobs):
    out = jobs.run(["--mem", "2G"], """
    use()
    pointer = must(cu.cuMemAlloc(1000 * MIB))
    must(cu.cuMemFree(pointer))        # in hand, but not used
    child = subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True)
    print(child.stdout, child.stderr)
    """, PRELUDE + textwrap.dedent("""
    use()
    print(2 * len(fill(cu.cuMemAlloc, 2 * MIB)))
    """))
    assert out.stdout.split()[0] == str(2048 - 2 * CONTEXT)


def test_a_killed_process_gives_its_bytes_back_to_the_job(jobs):
    out = jobs.run(["--mem", "2G"], """
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    use()
    before = 2 * len(fill(cu.cuMemAlloc, 2 * MIB))
    child.kill()
    child.wait()
    deadline = time.monotonic() + 100
    while info()[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    more = before
    while more < 2048 - 414 and time.monotonic() < deadline:
        more += 2 * len(fill(cu.cuMemAlloc, 2 * MIB))
    print(before, more)
    """, PRELUDE + textwrap.dedent("""
    use()
    must(cu.cuMemAlloc(500 * MIB))
    print("holds", flush=True)
    sys.stdin.read()
    """))
    before, after = map(int, out.stdout.split())
    assert before == 2048 - 2 * CONTEXT - 500
    assert after == 2048 - CONTEXT


def test_a_forked_child_that_did_not_touch_the_card_yet_attaches_itself(jobs):
    out = jobs.run(["--mem", "1G"], """
    if os.fork() == 0:
        use()
        print(2 * len(fill(cu.cuMemAlloc, 2 * MIB)), flush=True)
        os._exit(0)
    os.wait()
    """)
    assert out.stdout.strip() == str(1024 - CONTEXT)


def test_siblings_at_the_limit_survive_a_killed_daemon(jobs):
    job = jobs.start(["--mem", "2G"], """
    children = [subprocess.Popen([sys.executable, "-u", "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for child in children:
        child.stdout.readline()
    for child in children:
        child.stdin.write("go\\n")
        child.stdin.flush()
    print("all at it", flush=True)
    print("done", *[child.wait() for child in children], flush=True)
    """, PRELUDE + textwrap.dedent("""
    use()
    print("ready")
    sys.stdin.readline()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        for pointer in fill(cu.cuMemAlloc, 64 * MIB):
            must(cu.cuMemFree(pointer))
    """), ready="all at it")
    jobs.box.kill(jobs.daemon)
    jobs.start_daemon()
    assert jobs.box.wait_for(job, "done", PATIENCE) == "done 0 0 0"
    assert job.wait(PATIENCE) == 0


def test_the_daemon_is_killed_and_the_job_goes_on(jobs):
    job = jobs.start(["--mem", "1G"], """
    use()
    got = [must(cu.cuMemAlloc(2 * MIB)) for _ in range(100)]
    print("first", flush=True)
    sys.stdin.readline()
    got += fill(cu.cuMemAlloc, 2 * MIB)
    print("second", 2 * len(got), flush=True)
    """, ready="first")
    jobs.box.kill(jobs.daemon)
    jobs.start_daemon()
    job.stdin.write("\n")
    job.stdin.flush()
    assert jobs.box.wait_for(job, "second", PATIENCE) == f"second {1024 - CONTEXT}"
    assert job.wait(PATIENCE) == 0


def test_a_program_that_begins_while_there_is_no_daemon_waits_for_it(jobs):
    job = jobs.start(["--mem", "1G"], """
    print("started", flush=True)
    sys.stdin.readline()
    print("asks", flush=True)
    use()
    print("got", 2 * len(fill(cu.cuMemAlloc, 2 * MIB)), flush=True)
    """, ready="started")
    jobs.box.kill(jobs.daemon)
    job.stdin.write("\n")
    job.stdin.flush()
    jobs.box.wait_for(job, "asks", PATIENCE)
    jobs.start_daemon()
    assert jobs.box.wait_for(job, "got", PATIENCE) == f"got {1024 - CONTEXT}"
    assert job.wait(PATIENCE) == 0


def test_what_is_in_hand_needs_no_daemon(jobs):
    """Memory is freed and taken again, and the driver asked, while the daemon is dead; more waits for it."""
    job = jobs.start(["--mem", "1G"], """
    use()
    got = [must(cu.cuMemAlloc(100 * MIB)) for _ in range(4)]
    print("first", flush=True)
    sys.stdin.readline()
    must(cu.cuMemFree(got.pop()))
    got.append(must(cu.cuMemAlloc(100 * MIB)))
    print("again", len(got), flush=True)
    must(cu.cuMemAlloc(200 * MIB))
    print("more", info()[0], flush=True)
    """, ready="first")
    jobs.box.kill(jobs.daemon)
    job.stdin.write("\n")
    job.stdin.flush()
    assert jobs.box.wait_for(job, "again", PATIENCE) == "again 4"
    jobs.start_daemon()
    assert jobs.box.wait_for(job, "more", PATIENCE) == f"more {1024 - CONTEXT - 600}"
    assert job.wait(PATIENCE) == 0


# ---- What a program sees -----------------------------------------------------------------------------------

def test_an_nvml_that_calls_itself_by_name_ends(jobs, tmp_path):
    """tests/clients/inward.c: the guard's count asks for handles, for which the library counts, for which …"""
    (tmp_path / "libnvidia-ml.so.1").symlink_to(BUILD / "tests" / "clients" / "libinward.so")
    said = jobs.box.run_within(jobs.command(["--mem", "1G"], [sys.executable, "-c", textwrap.dedent("""
    import ctypes
    nvml, n, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint(), ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    print(nvml.nvmlDeviceGetCount_v2(ctypes.byref(n)), n.value)
    print(*(nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device)) for i in (1, 0)))
    print(nvml.nvmlDeviceGetUUID(device, name, 96), name.value != b"GPU-00000000-0000-0000-0000-000000000000")
    """)]), WITHIN, env=jobs.env | {"LD_LIBRARY_PATH": f"{tmp_path}:{jobs.box.env['LD_LIBRARY_PATH']}"})
    assert said.splitlines() == ["0 1", "2 0", "0 True"]


def test_nvml_inside_a_job_shows_its_card_and_its_share(jobs, nvidia_smi):
    listed = jobs.box.run(jobs.command(["--mem", "3G"], [nvidia_smi, "-L"]), env=jobs.env).stdout.splitlines()
    assert len(listed) == 1 and listed[0].startswith("GPU 0:")
    asked = jobs.box.run(
        jobs.command(["--mem", "3G"], [nvidia_smi, "--query-gpu=memory.total,index", "--format=csv,noheader,nounits"]),
        env=jobs.env).stdout
    assert asked.replace(" ", "").strip() == "3072,0"


def test_visible_devices_count_within_the_lease(jobs):
    code = """
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
    r = cu.cuInit(0)[0]
    print(must(cu.cuDeviceGetCount()), must(cu.cuDeviceGetUuid(0)).bytes.hex()) if r == OK else print(r.name)
    """
    every = [gpu["uuid"].replace("-", "")[3:] for gpu in json.loads(jobs.box.gpusim("show", "--json"))["gpus"]]
    out = jobs.run(["--mem", "1G", "--devices", "1"], code, "0").stdout.split()
    assert out == ["1", every[1]], "0 is the lease's first card, which is the box's second"
    assert jobs.run(["--mem", "1G", "--devices", "1"], code, "5").stdout.split() == ["CUDA_ERROR_NO_DEVICE"]
    assert jobs.run(["--mem", "1G", "--devices", "0,1"], code, "1,0").stdout.split() == ["2", every[1]]


def test_total_memory_is_the_share(jobs):
    out = jobs.run(["--fraction", "0.25"], """
    device = use()
    print(must(cu.cuDeviceTotalMem(device)) == must(cu.cuMemGetInfo())[1], must(cu.cuDeviceTotalMem(device)) // MIB)
    """)
    same, total = out.stdout.split()
    assert same == "True" and 9000 < int(total) < 10240


# ---- Any program runs under it -----------------------------------------------------------------------------------

def test_programs_without_a_gpu_do_not_notice(jobs):
    env = jobs.env | {"LD_PRELOAD": str(BUILD / "guard" / "liballot-guard.so")}
    assert jobs.box.run(["sh", "-c", "echo $((6 * 7)) | cat; ls / >/dev/null"], env=env).stdout.strip() == "42"
    assert jobs.box.run([sys.executable, "-c", "import ctypes, ssl, sqlite3; print(ctypes.CDLL(None).cuMemAlloc_v2 is None)"],
                        env=env, check=False).returncode != 0, "no driver: no such symbol"
    assert jobs.box.run(["mount", "--version"], env=env).stdout.startswith("mount")


DRIVER_OF_TOMORROW = """
typedef int CUresult;
int cuMemAllocTomorrow(void) { return 0; }
int cuMemHostAllocTomorrow(void) { return 0; }
int cuDriverGetVersion(int *version) { *version = 99000; return 0; }
int cuGetExportTable(void) { return 801; }
int cuGetProcAddress_v2(const char *name, void **ret, int version, unsigned long flags, int *status) {
    *ret = name[5] == 'A' ? (void *)cuMemAllocTomorrow : (void *)cuMemHostAllocTomorrow;
    if (status)
        *status = 0;
    return 0;
}
"""


@pytest.mark.parametrize("strict", ["0", "1"])
def test_a_call_that_is_newer_than_the_guard_is_told_or_refused(box, tmp_path, strict):
    (tmp_path / "driver.c").write_text(DRIVER_OF_TOMORROW)
    box.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"])
    out = box.run([sys.executable, "-c", """
import ctypes, sys
libcuda = ctypes.CDLL(sys.argv[1])
found, status = ctypes.c_void_p(), ctypes.c_int(7)
r = libcuda.cuGetProcAddress_v2(b"cuMemAllocTomorrow", ctypes.byref(found), 99000, ctypes.c_uint64(0), ctypes.byref(status))
print(r, bool(found.value), status.value, hasattr(libcuda, "cuMemAllocTomorrow"))
r = libcuda.cuGetProcAddress_v2(b"cuMemHostAllocTomorrow", ctypes.byref(found), 99000, ctypes.c_uint64(0), ctypes.byref(status))
print(r, bool(found.value), status.value, hasattr(libcuda, "cuMemHostAllocTomorrow"))
""", tmp_path / "libcuda.so.1"], env={"LD_PRELOAD": str(BUILD / "guard" / "liballot-guard.so"), "ALLOT_GUARD_STRICT": strict})
    ours, hosts = out.stdout.splitlines()
    assert ours == ("0 False 1 False" if strict == "1" else "0 True 0 True")
    assert hosts == "0 True 0 True", "host memory is nobody's business"
    assert "cuMemAllocTomorrow is newer than this guard" in out.stderr


def test_the_table_of_hooks_has_every_name_of_the_newest_headers():
    headers = [path for path in pathlib.Path(sys.prefix).glob("lib/python3*/site-packages/nvidia/**/cuda.h")]
    assert headers
    done = subprocess.run([TOP / "tests" / "docs" / "hooks.py", *headers], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# ---- Programs of other makers ---------------------------------------------------------------------------------------

def test_numba_programs_stay_within_their_share(jobs):
    pytest.importorskip("numba_cuda")
    out = jobs.run(["--mem", "1G"], """
    import numpy as np
    from numba import cuda
    from numba.cuda.cudadrv.driver import CudaAPIError
    held = []
    try:
        while True:
            held.append(cuda.device_array(4 * MIB, dtype=np.float32))
    except CudaAPIError as error:
        assert "OUT_OF_MEMORY" in str(error), error
    print(len(held) * 16)
    held.pop()
    @cuda.jit
    def add(a, b):
        i = cuda.grid(1)
        if i < a.size:
            a[i] += b[i]
    a, b = cuda.to_device(np.arange(1000.0)), cuda.to_device(np.ones(1000))
    add[8, 128](a, b)
    print(a.copy_to_host()[999])
    """, env={"PYTHONPATH": str(HERE / "nojitlink"), "NUMBA_CACHE_DIR": str(jobs.folder)})
    got, last = out.stdout.split()
    assert 1024 - CONTEXT - 64 <= int(got) <= 1024 - CONTEXT
    assert last == "1000.0"


def test_cuda_core_programs_stay_within_their_share(jobs):
    pytest.importorskip("cuda.core")
    out = jobs.run(["--mem", "1G"], """
    try:
        from cuda.core import Device
    except ImportError:
        from cuda.core.experimental import Device
    device = Device()
    device.set_current()
    stream = device.create_stream()
    held = []
    try:
        while True:
            held.append(device.allocate(16 * MIB, stream=stream))
    except Exception as error:
        assert "OUT_OF_MEMORY" in str(error), error
    print(len(held) * 16)
    """)
    assert 1024 - CONTEXT - 64 <= int(out.stdout) <= 1024 - CONTEXT


def test_two_of_four_tenths_run_and_the_third_waits(jobs):
    code = """
    use()
    print("runs", flush=True)
    sys.stdin.read()
    """
    first = jobs.start(["--fraction", "0.4", "--devices", "0"], code, ready="runs")
    second = jobs.start(["--fraction", "0.4", "--devices", "0"], code, ready="runs")
    third = jobs.start(["--fraction", "0.4", "--devices", "0", "--wait"], code)
    deadline = time.monotonic() + PATIENCE
    while len(jobs.status()["queue"]) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "runs" not in third.said
    first.stdin.close()
    assert first.wait(PATIENCE) == 0
    jobs.box.wait_for(third, "runs", PATIENCE)
    for job in (second, third):
        job.stdin.close()
        assert job.wait(PATIENCE) == 0
