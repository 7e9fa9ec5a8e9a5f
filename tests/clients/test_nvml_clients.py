# SPDX-License-Identifier: Apache-2.0
"""NVML's clients over the simulated box: what they show is what the box holds.

The truth is `gpusim show --json`. Holders are CUDA programs (box.hold) where the test is about
memory, and simhold where it is about something that CUDA cannot be told to do exactly.
"""
import contextlib
import csv
import fcntl
import getpass
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as ElementTree

import pytest

from conftest import BUILD

pynvml = pytest.importorskip("pynvml")
MIB = 1 << 20
BIN = os.path.dirname(sys.executable)


def truth(box):
    return json.loads(box.gpusim("show", "--json"))


def simhold(box, gpu, mib, busy=0):
    return box.start([BUILD / "tests/support/simhold", gpu, mib, busy], ready="holds")


def hold(box, gpu, mib):
    """A CUDA program that holds memory; what it holds in all, its context included."""
    before = truth(box)["gpus"][gpu]["used_bytes"]
    holder = box.hold(f"{mib}MiB", device=gpu)
    holder.bytes = truth(box)["gpus"][gpu]["used_bytes"] - before
    assert holder.bytes >= mib * MIB
    return holder


@contextlib.contextmanager
def nvml_of(box, monkeypatch):
    """nvidia-ml-py in this very process, on the box."""
    library = BUILD / "sim/lib/libnvidia-ml.so.1"
    monkeypatch.setenv("GPUSIM_BOX", str(box.path))
    import ctypes

    real = ctypes.CDLL
    monkeypatch.setattr(pynvml, "CDLL", lambda name, *a, **k: real(str(library) if "nvidia-ml" in name else name))
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


# nvidia-ml-py


def test_nvidia_ml_py_values_are_the_boxs(box, monkeypatch):
    one, other = hold(box, 1, 256), hold(box, 1, 512)
    with nvml_of(box, monkeypatch):
        facts = truth(box)
        assert pynvml.nvmlDeviceGetCount() == len(facts["gpus"])
        assert pynvml.nvmlSystemGetDriverVersion() == facts["driver_version"]
        assert pynvml.nvmlSystemGetCudaDriverVersion() == facts["cuda_driver_version"]
        for gpu in facts["gpus"]:
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu["index"])
            assert pynvml.nvmlDeviceGetName(handle) == gpu["name"]
            assert pynvml.nvmlDeviceGetUUID(handle) == gpu["uuid"]
            assert pynvml.nvmlDeviceGetSerial(handle) == gpu["serial"]
            assert pynvml.nvmlDeviceGetMinorNumber(handle) == gpu["minor"]
            assert pynvml.nvmlDeviceGetPciInfo(handle).busId == gpu["bus_id"]
            by_name = pynvml.nvmlDeviceGetHandleByUUID(gpu["uuid"])
            assert pynvml.nvmlDeviceGetIndex(by_name) == gpu["index"]
            v1 = pynvml.nvmlDeviceGetMemoryInfo(handle)
            v2 = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            assert (v1.total, v1.used) == (gpu["total_bytes"], gpu["used_bytes"] + gpu["reserved_bytes"])
            assert (v2.used, v2.free, v2.reserved) == (gpu["used_bytes"], gpu["free_bytes"], gpu["reserved_bytes"])
            assert pynvml.nvmlDeviceGetPowerUsage(handle) == gpu["power_mw"]
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)
        for call in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetComputeRunningProcesses_v2):
            seen = {p.pid: p.usedGpuMemory for p in call(handle)}
            assert seen == {one.pid: one.bytes, other.pid: other.bytes}
        box.kill(one)
        assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [other.pid]


# What a healthy A100 does not answer; everything else that takes a handle alone must.
NOT_ON_AN_A100 = {
    "AddressingMode", "AutoBoostedClocksEnabled", "BBXTimeData_v1", "BridgeChipInfo", "C2cModeInfo", "Capabilities",
    "ConfCompute", "CoolerInfo", "CurrentClockFreqs", "DramEncryptionMode", "DriverModel", "FanSpeed", "GpuOperationMode",
    "GridLicensableFeatures", "LastBBXFlushTime", "MarginTemperature", "NumaNodeId", "PerformanceModes", "Vgpu", "GpcClk",
    "MemClk", "PgpuMetadata", "GpuFabricInfo", "BankRemapper", "Hostname", "NvLinkInfo", "Nvlink", "PlatformInfo", "RepairStatus",
    "PowerMizer", "AdaptiveT", "AdaptiveClock", "UnrepairableMemory", "AccountingPids", "RetiredPages", "Attributes", "InstanceId",
    "DeviceHandleFromMig", "ClkMonStatus", "SramUnique", "ClockOffsets", "PerfMetrics",
}  # fmt: skip


def test_nvidia_ml_py_every_getter_of_a_handle_answers(box, monkeypatch):
    import inspect

    answered = 0
    with nvml_of(box, monkeypatch):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        for name in sorted(vars(pynvml)):
            function = getattr(pynvml, name)
            if not name.startswith("nvmlDeviceGet") or not inspect.isfunction(inspect.unwrap(function)):
                continue
            parameters = inspect.signature(function).parameters.values()
            if [p.name for p in parameters if p.default is p.empty] not in (["handle"], ["device"]):
                continue
            if any(word in name for word in NOT_ON_AN_A100):
                with contextlib.suppress(pynvml.NVMLError, TypeError, AttributeError):
                    function(handle)
                continue
            function(handle)
            answered += 1
    assert answered > 50


def test_nvidia_ml_py_readings_of_clocks_links_and_fields(box, monkeypatch):
    with nvml_of(box, monkeypatch):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1410
        assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 1215)[0] == 1410
        assert pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU) == truth(box)["gpus"][0]["temperature_c"]
        assert pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU) > 0
        assert pynvml.nvmlDeviceGetNvLinkState(handle, 11) == 1
        assert pynvml.nvmlDeviceGetP2PStatus(handle, pynvml.nvmlDeviceGetHandleByIndex(1), pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == 0
        energy, links = pynvml.nvmlDeviceGetFieldValues(
            handle, [pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT]
        )
        assert energy.nvmlReturn == 0 and links.value.uiVal == 12
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetFanSpeed(handle)


def test_nvidia_ml_py_event_of_an_injected_xid(box, monkeypatch):
    with nvml_of(box, monkeypatch):
        handle = pynvml.nvmlDeviceGetHandleByIndex(2)
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        box.gpusim("inject", "--gpu", "2", "xid", "48")
        event = pynvml.nvmlEventSetWait_v2(events, 5000)
        assert (event.eventType, event.eventData) == (pynvml.nvmlEventTypeXidCriticalError, 48)
        pynvml.nvmlEventSetFree(events)


def test_nvidia_ml_py_mig(make_box, monkeypatch):
    box = make_box("--gpus", "1", "--model", "a100-40g", "--mig", "0:3g.20gb+2x1c.3g.20gb")
    with nvml_of(box, monkeypatch):
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMigMode(parent) == [1, 1]
        devices = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, i) for i in range(3)]
        names = [pynvml.nvmlDeviceGetName(device).split(" MIG ")[1] for device in devices]
        assert names == ["3g.20gb", "1c.3g.20gb", "1c.3g.20gb"]
        assert pynvml.nvmlDeviceGetAttributes_v2(devices[0]).multiprocessorCount == 42
        assert pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(devices[2]) is not None


# gpustat, nvitop


def test_gpustat_shows_bytes_pids_and_users(box):
    one, other = hold(box, 0, 300), hold(box, 3, 700)

    def processes():
        report = json.loads(box.run([f"{BIN}/gpustat", "--json"]).stdout)
        return {
            (gpu["index"], p["pid"]): (p["gpu_memory_usage"], p["username"])
            for gpu in report["gpus"]
            for p in gpu["processes"]
        }

    me = getpass.getuser()
    assert processes() == {(0, one.pid): (one.bytes // MIB, me), (3, other.pid): (other.bytes // MIB, me)}
    box.kill(one)
    assert processes() == {(3, other.pid): (other.bytes // MIB, me)}


def test_nvitop_once_shows_devices_and_processes(box):
    one, busy = hold(box, 0, 300), simhold(box, 2, 512, 60)
    time.sleep(1.2)
    screen = box.run([f"{BIN}/nvitop", "-1", "--no-unicode"], env={"COLUMNS": "120"}).stdout
    for gpu in truth(box)["gpus"]:
        assert gpu["bus_id"] in screen
    line = next(line for line in screen.splitlines() if f" {one.pid} " in line)
    assert f"{one.bytes // MIB}" in line and getpass.getuser()[:7] in line
    line = next(line for line in screen.splitlines() if f" {busy.pid} " in line)
    assert "512" in line
    assert 30 <= int(re.search(r"(\d+)%\s+Default", screen.split("SIM A100")[3]).group(1)) <= 75
    box.kill(one)
    assert f" {one.pid} " not in box.run([f"{BIN}/nvitop", "-1", "--no-unicode"]).stdout


def test_nvitop_api_agrees_with_the_box(box):
    holder = hold(box, 1, 300)
    code = """if True:
        import json
        from nvitop import Device
        print(json.dumps([[d.index, d.uuid(), d.bus_id(), d.memory_used(), sorted(d.processes())] for d in Device.all()]))
    """
    seen = json.loads(box.python(code))
    expected = [
        [gpu["index"], gpu["uuid"], gpu["bus_id"], gpu["used_bytes"], [holder.pid] if gpu["index"] == 1 else []]
        for gpu in truth(box)["gpus"]
    ]
    assert seen == expected


@pytest.mark.parametrize("visible, expected", [("2,0", [2, 0]), ("", []), ("3,9,1", [3])])
def test_nvitop_reads_cuda_visible_devices_as_cuda_does(box, visible, expected):
    code = "from nvitop import Device; print([d.physical_index for d in Device.cuda.all()])"
    env = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert json.loads(box.python(code, env=env)) == expected
    uuids = ",".join(gpu["uuid"] for gpu in truth(box)["gpus"] if gpu["index"] in expected[:1])
    if uuids:
        assert json.loads(box.python(code, env=env | {"CUDA_VISIBLE_DEVICES": uuids})) == expected[:1]


# nvtop


def screen_of(argv, env, seconds, rows=40, columns=140):
    """What a full-screen program shows after a while."""
    pyte = pytest.importorskip("pyte")
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, env | {"TERM": "xterm", "LINES": str(rows), "COLUMNS": str(columns)})
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    try:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
            try:
                stream.feed(os.read(fd, 65536))
            except OSError:
                break
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(fd)
    return "\n".join(screen.display)


def test_nvtop_shows_devices_and_processes(box, nvtop, tmp_path):
    one, other = hold(box, 0, 1024), hold(box, 1, 2048)
    env = box.env | {"HOME": str(tmp_path)}
    screen = screen_of([nvtop], env, 4)
    assert screen.count("SIM A100-SXM4-40GB") == 4, screen
    for holder in (one, other):
        line = next(line for line in screen.splitlines() if re.search(rf"\b{holder.pid}\b", line))
        assert f"{holder.bytes // MIB}MiB" in line, screen
    box.kill(one)
    assert not re.search(rf"\b{one.pid}\b", screen_of([nvtop], env, 3))


# nvidia-smi


def smi_csv(box, nvidia_smi, query):
    out = box.run([nvidia_smi, query, "--format=csv,noheader,nounits"]).stdout
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(out)) if row]


def test_nvidia_smi_lists_every_gpu_and_mig_device(make_box, nvidia_smi):
    box = make_box("--gpus", "2", "--model", "a100-40g", "--mig", "0:3g.20gb+1g.5gb")
    facts = truth(box)["gpus"]
    text = box.run([nvidia_smi, "-L"]).stdout
    for gpu in facts:
        assert f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})" in text
    assert "MIG 3g.20gb     Device  0: (UUID: MIG-" in text
    assert "MIG 1g.5gb      Device  1: (UUID: MIG-" in text
    assert "MIG 3g.20gb          9        1          0:4" in box.run([nvidia_smi, "mig", "-lgi"]).stdout


def test_nvidia_smi_shows_a_cuda_program_on_a_mig_device(make_box, nvidia_smi):
    box = make_box("--gpus", "1", "--model", "a100-40g", "--mig", "0:3g.20gb+1g.5gb")
    uuid = re.search(r"MIG 1g.5gb .*(MIG-[-0-9a-f]+)", box.run([nvidia_smi, "-L"]).stdout).group(1)
    holder = box.hold("100MiB", env={"CUDA_VISIBLE_DEVICES": uuid})
    screen = box.run([nvidia_smi]).stdout
    row = re.search(rf"\|\s+0\s+(\d+)\s+(\d+)\s+{holder.pid}\s+C\s+.*hold\s+(\d+)MiB", screen)
    assert row, screen
    gi, ci, mib = map(int, row.groups())
    instances = box.run([nvidia_smi, "mig", "-lgi"]).stdout
    assert re.search(rf"MIG 1g.5gb\s+19\s+{gi}\s", instances) and ci == 0 and mib >= 100
    assert re.search(rf"\|\s+0\s+{gi}\s+0\s+1\s+\|\s+{mib}MiB /", screen), screen


def test_nvidia_smi_default_view(box, nvidia_smi):
    one, other = hold(box, 0, 1024), hold(box, 0, 2048)
    screen = box.run([nvidia_smi]).stdout
    facts = truth(box)
    assert f"Driver Version: {facts['driver_version']}" in screen
    used = facts["gpus"][0]["used_bytes"] // MIB
    assert re.search(rf"\b{used}MiB / 40960MiB", screen)
    for holder in (one, other):
        assert re.search(rf"\|\s+0\s+N/A\s+N/A\s+{holder.pid}\s+C\s+.*hold\s+{holder.bytes // MIB}MiB \|", screen), screen
    box.kill(one)
    screen = box.run([nvidia_smi]).stdout
    assert str(other.pid) in screen and str(one.pid) not in screen


def test_nvidia_smi_queries(box, nvidia_smi):
    holder = hold(box, 2, 777)
    facts = truth(box)["gpus"]
    rows = smi_csv(box, nvidia_smi, "--query-gpu=index,name,uuid,pci.bus_id,serial,memory.total,memory.used,memory.free,temperature.gpu")
    assert rows == [
        [
            str(gpu["index"]), gpu["name"], gpu["uuid"], gpu["bus_id"], gpu["serial"], str(gpu["total_bytes"] // MIB),
            str(gpu["used_bytes"] // MIB), str(gpu["free_bytes"] // MIB), str(gpu["temperature_c"]),
        ]
        for gpu in facts
    ]  # fmt: skip
    apps = smi_csv(box, nvidia_smi, "--query-compute-apps=gpu_uuid,pid,used_memory")
    assert apps == [[facts[2]["uuid"], str(holder.pid), str(holder.bytes // MIB)]]


def test_nvidia_smi_xml(box, nvidia_smi):
    holder = hold(box, 1, 512)
    root = ElementTree.fromstring(box.run([nvidia_smi, "-q", "-x"]).stdout)
    facts = truth(box)["gpus"]
    assert [gpu.get("id") for gpu in root.iter("gpu")] == [gpu["bus_id"] for gpu in facts]
    for gpu, element in zip(facts, root.iter("gpu")):
        assert element.findtext("uuid") == gpu["uuid"]
        assert element.findtext("fb_memory_usage/used") == f"{gpu['used_bytes'] // MIB} MiB"
        assert element.findtext("mig_mode/current_mig") == "Disabled"
    processes = list(list(root.iter("gpu"))[1].iter("process_info"))
    assert [(p.findtext("pid"), p.findtext("used_memory")) for p in processes] == [
        (str(holder.pid), f"{holder.bytes // MIB} MiB")
    ]
    assert "ERR!" not in ElementTree.tostring(root, encoding="unicode")


def test_nvidia_smi_topology_and_monitors(make_box, nvidia_smi):
    box = make_box("--gpus", "4", "--model", "a100-40g", "--nvlink", "pairs")
    rows = [line.split() for line in box.run([nvidia_smi, "topo", "-m"]).stdout.splitlines() if line.startswith("GPU")]
    assert rows[0][1:5] == ["X", "NV12", "SYS", "SYS"]
    assert rows[3][1:5] == ["SYS", "SYS", "NV12", "X"]
    busy = simhold(box, 1, 64, 50)
    time.sleep(1.2)
    monitor = box.run([nvidia_smi, "dmon", "-c", "1"]).stdout.splitlines()
    assert len([line for line in monitor if not line.startswith("#")]) == 4
    assert str(busy.pid) in box.run([nvidia_smi, "pmon", "-c", "1"]).stdout
    shares = [int(row[0]) for row in smi_csv(box, nvidia_smi, "--query-gpu=utilization.gpu")]
    assert shares[0] == 0 and 25 <= shares[1] <= 60


def test_nvidia_smi_sets_modes(box, nvidia_smi):
    if os.geteuid() != 0:
        pytest.skip("only root may set them")
    box.run([nvidia_smi, "-i", "1", "-pl", "250"])
    box.run([nvidia_smi, "-i", "1", "-c", "EXCLUSIVE_PROCESS"])
    rows = smi_csv(box, nvidia_smi, "--query-gpu=power.limit,compute_mode")
    assert rows[1] == ["250.00", "Exclusive_Process"] and rows[0] == ["400.00", "Default"]


def test_nvidia_smi_says_that_a_gpu_is_lost(box, nvidia_smi):
    box.gpusim("inject", "--gpu", "1", "lost")
    done = box.run([nvidia_smi, "-L"], check=False)
    assert "GPU is lost" in done.stdout + done.stderr
    box.gpusim("inject", "recover")
    assert box.run([nvidia_smi, "-L"]).stdout.count("UUID") == 4


def test_nvidia_smi_without_a_box_finds_no_driver(box, nvidia_smi):
    done = box.run([nvidia_smi], env={"GPUSIM_BOX": "/nonexistent/box"}, check=False)
    assert done.returncode == 9
    assert "couldn't communicate with the NVIDIA driver" in done.stdout
