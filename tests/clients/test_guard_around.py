# SPDX-License-Identifier: Apache-2.0
"""Ways around the guard: held by it all the same, or seen by the watch. docs/enforcement.md has the table."""
import json
import shutil
import sys
import textwrap
import time

import pytest

from conftest import BUILD
from jobs import CONTEXT, PATIENCE, PRELUDE, WITHIN, jobs, make_jobs  # noqa: F401

pytest.importorskip("cuda.bindings")


def far_too_much(call="libcuda.cuMemAlloc_v2"):
    return f"""
    import ctypes
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert libcuda.cuInit(0) == 0
    assert libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert libcuda.cuCtxSetCurrent(context) == 0
    print({call}(ctypes.byref(pointer), ctypes.c_size_t(5 << 30)), flush=True)
    """


def test_libcuda_by_its_path_and_a_copy_of_it(jobs, tmp_path):
    real = (BUILD / "sim" / "lib" / "libcuda.so.1").resolve()
    copy = tmp_path / "innocent.so"
    shutil.copy(real, copy)
    for path in (real, copy):
        out = jobs.run(["--mem", "1G"], f"libcuda = __import__('ctypes').CDLL('{path}')\n" + textwrap.dedent(far_too_much()))
        assert out.stdout.strip() == "2", path


def test_the_driver_s_names_of_another_library(jobs):
    """tests/fake/loader.c has them and loads the driver when they are called; what it has not is the driver's."""
    code = PRELUDE + textwrap.dedent("""
    loader, driver = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libcuda.so.1")
    class libcuda:
        cuInit, cuMemAlloc_v2 = loader.cuInit, loader.cuMemAlloc_v2
        cuDevicePrimaryCtxRetain, cuCtxSetCurrent = driver.cuDevicePrimaryCtxRetain, driver.cuCtxSetCurrent
    """) + textwrap.dedent(far_too_much()) + textwrap.dedent("""
    print(loader.loader_alloc(ctypes.byref(pointer), ctypes.c_size_t(5 << 30)))
    print(loader.loader_alloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)))
    """)
    said = jobs.box.run_within(
        jobs.command(["--mem", "1G"], [sys.executable, "-c", code, BUILD / "tests" / "fake" / "libfake-loader.so"]), WITHIN,
        env=jobs.env)
    assert [line for line in said.splitlines() if line.isdigit()] == ["2", "2", "0"], said


def test_a_pointer_from_rtld_next_and_one_from_the_driver_itself(jobs):
    out = jobs.run(["--mem", "1G"], "libcuda = __import__('ctypes').CDLL('libcuda.so.1')\n" + textwrap.dedent(far_too_much()) + textwrap.dedent("""
    libc = ctypes.CDLL(None)
    libc.dlsym.restype = ctypes.c_void_p
    libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    alloc = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    next_one = libc.dlsym(ctypes.c_void_p(-1), b"cuMemAlloc_v2")
    print(alloc(next_one)(ctypes.addressof(pointer), 5 << 30))
    found = ctypes.c_void_p()
    for version in (3020, 12000, 13000):
        for flags in (0, 1, 2):
            assert libcuda.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(found), version, ctypes.c_uint64(flags), None) == 0
            assert alloc(found.value)(ctypes.addressof(pointer), 5 << 30) == 2
    again = ctypes.c_void_p()
    assert libcuda.cuGetProcAddress_v2(b"cuGetProcAddress", ctypes.byref(again), 12000, ctypes.c_uint64(0), None) == 0
    ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)(again.value)
    assert ask(b"cuMemAlloc", ctypes.addressof(found), 12000, 0, None) == 0
    print(alloc(found.value)(ctypes.addressof(pointer), 5 << 30))
    """))
    assert out.stdout.split() == ["2", "2", "2"]


CLONES = {
    "fork": "os.fork()",
    # The system call itself: neither the C library nor the guard hears of it.
    "clone": "ctypes.CDLL(None).syscall(56 if os.uname().machine == 'x86_64' else 220, signal.SIGCHLD, 0, 0, 0, 0)",
}


@pytest.mark.parametrize("way", CLONES)
def test_a_clone_without_exec(jobs, way):
    out = jobs.run(["--mem", "1G"], f"""
    def child():
        pid = {CLONES[way]}
        if pid == 0:
            use()
            print(cu.cuMemAlloc(5 << 30)[0].name, 2 * len(fill(cu.cuMemAlloc, 2 * MIB)), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
    child()
    """)
    assert out.stdout.split() == ["CUDA_ERROR_OUT_OF_MEMORY", str(1024 - CONTEXT)]


@pytest.mark.parametrize("way", CLONES)
def test_a_clone_takes_no_credit_along(jobs, way):
    """Its parent has 600 MiB in hand that it does not use. Over all no more than the share is to be had."""
    job = jobs.start(["--mem", "1G"], f"""
    use()
    must(cu.cuMemFree(must(cu.cuMemAlloc(600 * MIB))))
    pid = {CLONES[way]}
    if pid == 0:
        r, pointer = cu.cuMemAlloc(300 * MIB)
        print("child", r.name, flush=True)
        sys.stdin.read()
        os._exit(0)
    got = [cu.cuMemAlloc(610 * MIB)[0].name]
    print("parent", *got, flush=True)
    os.waitpid(pid, 0)
    """)
    jobs.box.wait_for(job, "child", PATIENCE)
    jobs.box.wait_for(job, "parent", PATIENCE)
    assert max(jobs.used()) <= 1024
    job.stdin.close()
    assert job.wait(PATIENCE) == 0


# ---- The environment -------------------------------------------------------------------------------

def test_a_lease_that_is_not_its_own_gives_no_memory(jobs):
    other = jobs.start(["--mem", "8G"], "print('holds', os.environ['ALLOT_LEASE'], flush=True)\nsys.stdin.read()", ready="holds")
    for lease in (other.said.split()[1], "4711", "-1", "x"):
        out = jobs.run(["--mem", "1G"], """
        os.environ["ALLOT_LEASE"] = sys.argv[1]
        os.environ["ALLOT_TOKEN"] = "0" * 48
        must(cu.cuInit(0))
        print(cu.cuDevicePrimaryCtxRetain(0)[0].name)
        """, lease)
        assert out.stdout.strip() in ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_DEVICE"), lease
    other.stdin.close()
    assert other.wait(PATIENCE) == 0


def test_what_the_guard_says_harms_no_terminal(jobs):
    out = jobs.run(["--mem", "1G"], """
    os.environ["ALLOT_LEASE"] = "\x1b]0;pwned\x07\u202e"
    must(cu.cuInit(0))
    print(cu.cuDevicePrimaryCtxRetain(0)[0].name)
    """)
    assert "lease \\x1b]0;pwned\\x07\\u202e cannot be used" in out.stderr and "\x1b" not in out.stderr, out.stderr


def test_without_visible_devices_the_lease_s_card_is_all_there_is(jobs):
    uuids = [gpu["uuid"].replace("-", "")[3:] for gpu in json.loads(jobs.box.gpusim("show", "--json"))["gpus"]]
    out = jobs.run(["--mem", "1G", "--devices", "1"], """
    del os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"]
    must(cu.cuInit(0))
    print(must(cu.cuDeviceGetCount()), must(cu.cuDeviceGetUuid(0)).bytes.hex())
    """)
    assert out.stdout.split() == ["1", uuids[1]]


# ---- Around it, and seen --------------------------------------------------------------------------

TAKES_TOO_MUCH = """
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert calls["cuInit"](0) == 0
assert calls["cuDevicePrimaryCtxRetain"](ctypes.byref(context), 0) == 0
assert calls["cuCtxSetCurrent"](context) == 0
assert calls["cuMemAlloc_v2"](ctypes.byref(pointer), ctypes.c_size_t(5 << 30)) == 0
print("got it", flush=True)
sys.stdin.read()
"""

AGAIN = """
code = "import ctypes, sys; libcuda = ctypes.CDLL('libcuda.so.1'); calls = {n: getattr(libcuda, n) for n in ('cuInit', 'cuDevicePrimaryCtxRetain', 'cuCtxSetCurrent', 'cuMemAlloc_v2')}" + sys.argv[1]
os.execve(sys.executable, [sys.executable, "-u", "-c", code], env)
"""

WATCHED = {
    # The program is started again without what makes the guard work.
    "without the guard": "env = {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}\n" + AGAIN,
    "without its lease": "env = {k: v for k, v in os.environ.items() if k != 'ALLOT_LEASE'}\n" + AGAIN,
    # A second driver in a namespace of its own.
    "dlmopen": """
libc = ctypes.CDLL(None)
libc.dlmopen.restype = ctypes.c_void_p
libc.dlmopen.argtypes = [ctypes.c_long, ctypes.c_char_p, ctypes.c_int]
handle = libc.dlmopen(-1, b"libcuda.so.1", 2)
assert handle, "dlmopen"
""",
    # A copy of the driver that does not call itself libcuda.
    "another soname": """
real = open(os.path.join(os.environ["LD_LIBRARY_PATH"].split(":")[0], "libcuda.so.1"), "rb").read()
assert real.count(b"\\0libcuda.so.1\\0") == 1
file = os.memfd_create("copy")
os.write(file, real.replace(b"\\0libcuda.so.1\\0", b"\\0libcopy.so.1\\0"))
libcuda = ctypes.CDLL(f"/proc/self/fd/{file}")
calls = {n: getattr(libcuda, n) for n in ("cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2")}
exec(sys.argv[1])
""",
    # The driver's functions out of its file, by their offsets.
    "walked by hand": """
import re
libcuda = ctypes.CDLL("libcuda.so.1")
base, path = next((int(line.split("-")[0], 16), line.split()[-1]) for line in open("/proc/self/maps") if "libcuda.so" in line)
offsets = dict((m[2], int(m[1], 16)) for m in re.finditer(r"^([0-9a-f]+) T (\\w+)", subprocess.run(["nm", "-D", path], capture_output=True, text=True).stdout, re.M))
calls = {n: ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(base + offsets[n]) for n, kinds in {
    "cuInit": [ctypes.c_uint], "cuDevicePrimaryCtxRetain": [ctypes.c_void_p, ctypes.c_int],
    "cuCtxSetCurrent": [ctypes.c_void_p], "cuMemAlloc_v2": [ctypes.c_void_p, ctypes.c_size_t]}.items()}
exec(sys.argv[1])
""",
}
# Symbols of the other namespace come from dlsym, which the guard answers; from its table they do not.
WATCHED["dlmopen"] += WATCHED["walked by hand"].replace('libcuda = ctypes.CDLL("libcuda.so.1")\n', "")


def until_seen(jobs):
    """Until the watch has marked whoever has more than 4 GiB; what status says of it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        processes = [p for p in jobs.status()["processes"] if (p["used_bytes"] or 0) > 4 << 30]
        if processes and (processes[0]["offence"] or processes[0]["lease"] is None):
            return processes[0]
        assert time.monotonic() < deadline, jobs.status()
        time.sleep(0.1)


def end(job):
    job.stdin.close()
    assert job.wait(PATIENCE) == 0


@pytest.mark.parametrize("way", WATCHED)
def test_who_gets_around_the_guard_is_seen_by_the_watch(jobs, way):
    job = jobs.start(["--mem", "1G"], WATCHED[way], TAKES_TOO_MUCH, ready="got it")
    until_seen(jobs)
    end(job)


def test_a_static_program_is_seen_by_the_watch(jobs):
    """It speaks to the driver without libcuda, and nothing can be preloaded into it."""
    bare = BUILD / "tests" / "clients" / "bare"
    if not bare.exists():
        pytest.skip("builds with sanitizers have no static programs")
    job = jobs.box.start(jobs.command(["--mem", "1G", "--devices", "0"], [bare, "5000"]), env=jobs.env, ready="got it",
                         timeout=PATIENCE)
    seen = until_seen(jobs)
    assert seen["command"] == f"{bare} 5000"
    end(job)


def test_another_card_is_seen_by_the_watch(jobs):
    """Where no device filter keeps it away: without the guard, and with the other card made visible."""
    uuids = [gpu["uuid"] for gpu in json.loads(jobs.box.gpusim("show", "--json"))["gpus"]]
    job = jobs.start(["--mem", "8G", "--devices", "0"], """
    env = {k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'} | {"CUDA_VISIBLE_DEVICES": sys.argv[2]}
    """ + AGAIN.replace("\n", "\n    "), TAKES_TOO_MUCH, uuids[1], ready="got it")
    seen = until_seen(jobs)
    assert seen["device"] == uuids[1]
    end(job)
