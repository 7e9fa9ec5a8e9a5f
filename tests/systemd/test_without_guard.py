# SPDX-License-Identifier: Apache-2.0
"""Programs into which the guard does not come, or not whole. Each holds a lease of 1 GiB and takes 5 GB, in a scope,
where the driver's own limit holds, and without one. docs/enforcement.md has a row for each.
"""
import os
import pathlib
import re
import subprocess

import pytest

import machine as machines
from machine import until

REASON = machines.impossible()
if REASON:
    pytest.skip(REASON, allow_module_level=True)

ADA = 1000
BUILD = pathlib.Path(os.environ.get("ALLOT_BUILD") or pathlib.Path(__file__).resolve().parents[2] / "build")
SOURCE = pathlib.Path(__file__).resolve().parent / "takes.c"
ASK = ["--devices", "0", "--mem", "1G"]
CONTAINER = "/opt/container"
# A container is another root of the file system, in namespaces of ADA's own.
ENTER = f"mount --bind /run/gpusim {CONTAINER}/run/gpusim && mount --rbind /proc {CONTAINER}/proc && " \
    f"exec chroot {CONTAINER} /takes plain 5000"

# What came of it without a scope: refused by the guard, or got by a process that counts as one without a guard.
WAYS = {
    "plain": (["takes", "plain"], "refused"),
    "RTLD_DEEPBIND, dlsym": (["takes", "deepbind"], "refused"),
    "RTLD_DEEPBIND of a library that is linked to libcuda": (["env", "PLUGIN=/usr/local/lib/plugin.so", "takes", "plugin"],
                                                             "unguarded"),
    "seccomp": (["takes", "seccomp"], "refused"),
    "user namespace": (["unshare", "-Ur", "takes", "plain"], "refused"),
    "static": (["bare"], "unguarded"),
    "container": (["unshare", "-Urm", "bash", "-c", ENTER], "unguarded"),
    "setuid": (["raised", "takes", "plain"], "unguarded"),
}


def compiled(served, compiler, *options, name, mode="755"):
    target = served.root / "usr/local/bin" / name
    subprocess.run([compiler, "-O1", str(SOURCE), *options, "-o", str(target)], check=True)
    served.run("chmod", mode, f"/usr/local/bin/{name}")


@pytest.fixture(scope="module")
def programs(served):
    library = pathlib.Path(served.libraries, "libcuda.so.1")
    compiled(served, "cc", name="takes")
    compiled(served, "cc", "-DRAISED", f"-DLIBRARIES=\"{served.libraries}\"", name="raised", mode="4755")
    served.run("chown", "1002:1002", "/usr/local/bin/raised")
    served.run("chmod", "4755", "/usr/local/bin/raised")
    compiled(served, "cc", "-DPLUGIN", "-shared", "-fPIC", f"-L{served.root / served.libraries.lstrip('/')}",
             "-l:libcuda.so.1", name="plugin.so")
    served.run("mv", "/usr/local/bin/plugin.so", "/usr/local/lib/plugin.so")
    (served.root / "usr/local/bin/bare").write_bytes((BUILD / "tests/clients/bare").read_bytes())
    served.run("chmod", "755", "/usr/local/bin/bare")
    # A root file system with a program, the C library and the driver, and without Allot.
    needed = set(re.findall(r"(/\S+\.so[.\d]*)", served.run("ldd", library, "/usr/local/bin/takes")))
    served.run("mkdir", "-p", *(f"{CONTAINER}{folder}" for folder in ("/lib64", "/lib", "/run/gpusim", "/proc")))
    served.run("cp", "-L", "/usr/local/bin/takes", f"{CONTAINER}/takes")
    for path in needed | {str(library)}:
        served.run("cp", "-L", path, f"{CONTAINER}/lib64/")
    return served


def started(served, argv, *options):
    argv = argv if argv[-1] == ENTER else [*argv, "5000"]
    return served.start(ADA, "gpuctl", "run", "-q", "--no-wait", *options, *ASK, "--", "env",
                        f"LD_LIBRARY_PATH={served.libraries}:/lib64", *argv)


def outcome(running):
    """What the program says of its memory, past what else is said."""
    said = ""
    for line in running.stdout:
        said += line
        if re.match("got it|refused", line):
            return line.split()[0], said
    raise AssertionError(f"it ended: {said}")


@pytest.fixture
def taker(programs):
    """Start one under a lease; what it said first of its memory. It holds that until the test ends."""
    running = []

    def start(argv, *options):
        running.append(started(programs, argv, *options))
        return outcome(running[0])
    yield start
    for process in running:
        process.stdin.close()
        process.wait(machines.PATIENCE)
        process.stdout.close()
    until("an empty box", lambda: not programs.leases() and not programs.status()["processes"])


def large(served):
    """The process that has more than its lease."""
    return next((process for process in served.status()["processes"] if (process["used_bytes"] or 0) > 4 << 30), None)


@pytest.mark.parametrize("way", WAYS)
def test_without_a_scope(programs, taker, way):
    argv, expected = WAYS[way]
    word, said = taker(argv, "--no-confine")
    assert word == ("refused" if expected == "refused" else "got"), said
    if expected == "refused":
        assert not large(programs)
        return
    until("the watch", lambda: (seen := large(programs)) and seen["lease"] and seen["offence"] == "over its limit")
    assert programs.device(0)["unguarded_processes"] == 1


@pytest.mark.parametrize("way", WAYS)
def test_in_a_scope_the_driver_refuses(programs, taker, way):
    assert 1 in programs.tiers()
    word, said = taker(WAYS[way][0])
    assert word == "refused", said


def test_a_program_of_musl(programs):
    """The guard needs the GNU C library, so the program does not start; without the guard it cannot load libcuda."""
    headers = [word for folder in ("/usr/include", f"/usr/include/{os.uname().machine}-linux-gnu")
               for word in ("-idirafter", folder)]
    compiled(programs, "musl-gcc", "-static", *headers, name="takes-musl-static")
    compiled(programs, "musl-gcc", *headers, name="takes-musl")
    loader = f"/lib/ld-musl-{os.uname().machine}.so.1"
    (programs.root / loader.lstrip("/")).write_bytes(pathlib.Path(loader).resolve().read_bytes())
    programs.run("chmod", "755", loader)
    running = started(programs, ["takes-musl", "plain"])
    said, _ = running.communicate(timeout=machines.PATIENCE)
    assert running.returncode == 127 and "liballot-guard.so" in said, said
    for argv, text in ((["env", "-u", "LD_PRELOAD", "takes-musl", "plain"], "no library: Error"),
                       (["takes-musl-static", "plain"], "no library: Dynamic loading not supported")):
        running = started(programs, argv)
        said, _ = running.communicate(timeout=machines.PATIENCE)
        assert text in said, said
    until("an empty box", lambda: not programs.leases())
