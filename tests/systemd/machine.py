# SPDX-License-Identifier: Apache-2.0
"""A really booted systemd 252 in a container, with Allot installed in it and two simulated GPUs.

The tree is a Debian from the cache under an overlay in memory; `meson install` puts the build into it
before it is booted, as a package would be in a system's image. `Bare` is booted without Allot, with the
clone and its build to install from. GPUs are simulated, their device nodes are not: they have NVIDIA's number and no
driver, so opening one gives ENXIO where the device filter lets it through and EPERM where it does not.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

PATIENCE = 120 * int(os.environ.get("ALLOT_TIME_SCALE") or 1)
BOX = "/run/gpusim/box"
# Debian's. A machine to install in gets it from here: the list of what to install is for this version alone.
MESON = ["/usr/bin/meson", "/usr/lib/python3/dist-packages/mesonbuild"]

TARGET = """[Unit]
Requires=basic.target dbus.service systemd-logind.service
After=basic.target dbus.service systemd-logind.service
AllowIsolate=yes
"""
# The simulator is no driver: it is found by the environment, its box must be written, and where a driver knows its
# processes by itself, the simulator looks for them in /proc.
SIMULATED = """[Service]
Environment=GPUSIM_BOX=%s ALLOT_SIM_DIR=%s
ReadWritePaths=-/run/gpusim
ProtectProc=default
"""
SOCKETS = ["allotd.socket", "allot-hand.socket", "allot-reader.socket"]


def cgroup2():
    """Where cgroup2 is mounted here; None: nowhere."""
    for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        done = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False)
        if done.stdout.strip() == "cgroup2fs":
            return pathlib.Path(folder)
    return None


def impossible_here():
    """Why no machine can be booted here, whatever it is; None: one can."""
    if os.geteuid() != 0:
        return "root is needed to boot a container"
    for program in ("systemd-nspawn", "nsenter", "meson"):
        if not shutil.which(program):
            return f"{program} is not installed"
    if not cgroup2():
        return "cgroup2 is not mounted here"
    trial = "mount -t tmpfs t /mnt && mkdir /mnt/l /mnt/u /mnt/w /mnt/m && " \
        "mount -t overlay o -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w /mnt/m"
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", trial],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        return f"mounts are not to be had here: {done.stderr.strip()}"
    group = cgroup2() / f"allot-trial-{os.urandom(4).hex()}"
    try:
        group.mkdir()
        group.rmdir()
    except OSError as error:
        return f"cgroups cannot be made here: {error}"
    return None


def impossible():
    """Why the machine cannot be booted; None: it can."""
    tree = os.environ.get("ALLOT_TREE")
    if not tree or not pathlib.Path(tree, "lib/systemd/systemd").exists():
        return "there is no Debian tree to boot: ./run test systemd makes it"
    return impossible_here()


def until(what, condition, patience=PATIENCE):
    """Wait for `condition` to give something true, and return that."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience} s for: {what}")
        time.sleep(0.05)


def is_first(pid):
    """Whether the process is number 1 of a pid namespace below ours."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return re.search(r"^NSpid:\s.*\s1$", status, re.M) is not None
    return False


class Machine:
    """The container, from its boot to its end."""

    def __init__(self, work, tree, build):
        self.work = pathlib.Path(work)
        self.root = self.work / "root"
        self.name = f"allot-test-{os.urandom(4).hex()}" # pids are small in a namespace of their own
        self.group = cgroup2() / self.name
        self.nspawn = self.leader = None
        self.sessions = 0
        self.mounts = []
        self.binds = []
        self.memory = self.work / "memory"
        self.memory.mkdir()
        self.mount("-t", "tmpfs", "-o", "size=1g", "tmpfs", self.memory)
        self.overlay(tree, self.root)
        self.furnish()
        self.install(pathlib.Path(build))

    def mount(self, *args):
        subprocess.run(["mount", *map(str, args)], check=True)
        self.mounts.append(args[-1])

    def overlay(self, lower, target):
        """`lower` at `target`, where writing does not change it."""
        upper, work = (self.memory / f"{kind}-{target.name}" for kind in ("upper", "work"))
        for folder in (upper, work, target):
            folder.mkdir()
        self.mount("-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", target)

    def furnish(self):
        """What makes a machine of the tree, with or without Allot."""
        (self.root / "etc/systemd/system/test.target").write_text(TARGET)
        (self.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        (self.root / "etc/machine-id").write_text("")

    def simulate(self, libraries):
        """Have allotd and its helpers take the simulated libraries for the driver."""
        self.libraries = libraries
        for unit in ("allotd.service", "allot-hand@.service", "allot-reader@.service"):
            self.write(f"/etc/systemd/system/{unit}.d/simulated.conf", SIMULATED % (BOX, libraries))

    def install(self, build):
        subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", self.root], check=True,
                       capture_output=True)
        found = next(path for path in (self.root / "usr/local").rglob("libnvidia-ml.so.1"))
        self.simulate("/" + str(found.parent.relative_to(self.root)))
        with open(self.root / "etc/passwd", "a", encoding="utf-8") as users:
            users.write("ada:x:1000:1000::/tmp:/bin/bash\nbob:x:1001:1001::/tmp:/bin/bash\n")
        with open(self.root / "etc/group", "a", encoding="utf-8") as groups:
            groups.write("ada:x:1000:\nbob:x:1001:\n")
        with open(self.root / "etc/shadow", "a", encoding="utf-8") as shadow:
            shadow.write("ada:*:19000:0:99999:7:::\nbob:*:19000:0:99999:7:::\n")
        subprocess.run(["chroot", self.root, "ldconfig"], check=True)

    def boot(self):
        command = [
            "systemd-nspawn", f"--directory={self.root}", f"--machine={self.name}", "--register=no", "--keep-unit",
            "--private-network", "--capability=all", "--system-call-filter=bpf", "--resolv-conf=off", "--timezone=off",
            "--link-journal=no", "--console=pipe", *self.binds, "--boot", "systemd.unit=test.target",
        ]
        self.group.mkdir()

        def enter():
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

        self.log = open(self.work / "nspawn.log", "w", encoding="utf-8")
        self.nspawn = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=enter,
            env=os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        until("a process in the container", self.find_leader)
        until("a booted system", lambda: self.try_run("systemctl", "is-system-running").stdout.strip() in
              ("running", "degraded"))
        for uid in (1000, 1001): # a slice goes with its last unit: these stay
            self.run("systemd-run", "--quiet", f"--slice=user-{uid}.slice", f"--unit=keeper-{uid}", "sleep", "infinity")
        self.plug("gpusim")

    def plug(self, gpusim):
        """Put the GPUs in."""
        for minor in (0, 1):
            self.run("mknod", "-m", "666", f"/dev/nvidia{minor}", "c", "195", str(minor))
        self.run("mknod", "-m", "666", "/dev/nvidiactl", "c", "195", "255")
        self.run("mkdir", "-m", "777", "/run/gpusim")
        self.run(gpusim, "create", "--box", BOX, "--gpus", "2", "--model", "a100-40g", "--mode", "0666", "--seed", "7")

    def find_leader(self):
        if self.nspawn.poll() is not None:
            raise AssertionError(f"systemd-nspawn ended: {(self.work / 'nspawn.log').read_text()}")
        children = pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
        self.leader = next(filter(is_first, children), None) # nspawn's first child goes once it has made this one
        return self.leader

    def end(self):
        if self.nspawn:
            if self.leader and self.nspawn.poll() is None:
                self.try_run("systemctl", "poweroff", "--no-block")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.nspawn.wait(20)
            if self.nspawn.poll() is None:
                self.nspawn.kill()
                self.nspawn.wait()
            self.log.close()
        for path in reversed(self.mounts):
            subprocess.run(["umount", "-l", path], check=False)
        for top in (self.group, pathlib.Path("/sys/fs/cgroup/systemd") / self.name):
            with contextlib.suppress(AssertionError): # its last processes may still be on their way out
                until("the end of its cgroups", lambda top=top: self.remove(top), 10)

    @staticmethod
    def remove(top):
        """Remove a cgroup and those below it; whether it is gone."""
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not top.exists()

    # ---- Inside ----

    def inside(self, *argv):
        return ["nsenter", "-t", str(self.leader), "-a", "--", *map(str, argv)]

    def try_run(self, *argv, **options):
        options = {"capture_output": True, "text": True, "timeout": PATIENCE, "stdin": subprocess.DEVNULL} | options
        return subprocess.run(self.inside(*argv), check=False, **options)

    def run(self, *argv, **options):
        """Run as root to its end; its output."""
        done = self.try_run(*argv, **options)
        assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def in_session(self, uid, *argv):
        """The command that runs `argv` as user `uid`, in a session of its own in the user's slice."""
        self.sessions += 1
        return ["systemd-run", "--quiet", "--scope", "--collect", f"--slice=user-{uid}.slice",
                f"--unit=session-{100 + self.sessions}.scope", "setpriv", f"--reuid={uid}", f"--regid={uid}",
                "--clear-groups", "env", f"GPUSIM_BOX={BOX}", f"LD_LIBRARY_PATH={self.libraries}", "HOME=/tmp", *argv]

    def as_user(self, uid, *argv, **options):
        return self.try_run(*self.in_session(uid, *argv), **options)

    def start(self, uid, *argv):
        """Start something of a user's that lives on: its output is a pipe."""
        return subprocess.Popen(self.inside(*self.in_session(uid, *argv)), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def kill(self, signal, pid):
        self.run("bash", "-c", f"kill -{signal} {pid}")

    def show(self, unit, name):
        return self.run("systemctl", "show", unit, "-p", name, "--value")

    def is_active(self, unit):
        return self.try_run("systemctl", "is-active", unit).stdout.strip()

    def journal(self, *match):
        return self.run("journalctl", "--no-pager", "-o", "cat", *match)

    def write(self, path, text):
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def helpers(self, name):
        """The running instances of allot-hand@.service or allot-reader@.service."""
        listed = self.run("systemctl", "list-units", "--plain", "--no-legend", "--state=active", f"{name}@*")
        return re.findall(rf"{name}@\S+\.service", listed)

    def hands(self):
        return self.helpers("allot-hand")

    def readers(self):
        return self.helpers("allot-reader")

    # ---- Allot ----

    def status(self):
        """What gpuctl shows, as data. Starts allotd where it does not run."""
        return json.loads(self.run("gpuctl", "status", "--json"))["box"]

    def tiers(self):
        """The tiers that are proven."""
        return {tier["number"] for tier in self.status()["tiers"] if tier["proven"]}

    def leases(self):
        return {lease["id"]: lease for lease in self.status()["leases"]}

    def device(self, index):
        return next(device for device in self.status()["devices"] if device["index"] == index)

    def restart(self):
        self.run("systemctl", "restart", "allotd.service")
        self.run("gpuctl", "status", "--json")

    def pid(self):
        return int(self.show("allotd.service", "MainPID"))

    def pids(self, words):
        """The processes whose command line has these words."""
        script = "import glob, sys\nfor p in glob.glob('/proc/[0-9]*'):\n" \
            "  try: t = open(p + '/cmdline').read().replace(chr(0), ' ')\n  except OSError: continue\n" \
            "  if sys.argv[1] in t and 'glob' not in t: print(p[6:])"
        return self.run("python3", "-c", script, words).split()

    def job(self, uid, *request):
        """A job of a user's that says where it is and lives until its input ends."""
        return Job(self, uid, request)


@contextlib.contextmanager
def booted(work, prepare=lambda machine: None):
    """A machine with Allot, its sockets enabled; `prepare` changes its files before it is booted."""
    machine = Machine(work, os.environ["ALLOT_TREE"], os.environ["ALLOT_BUILD"])
    try:
        prepare(machine)
        machine.boot()
        machine.run("systemctl", "enable", "--now", *SOCKETS)
        yield machine
    finally:
        machine.end()


def add_journal(report, item, names=("served", "machine")):
    """A failure shows what the daemon said."""
    found = next((item.funcargs[name] for name in names if name in item.funcargs), None)
    if report.failed and found and found.leader:
        tail = found.try_run("journalctl", "--no-pager", "-n", "60", "-o", "short-monotonic").stdout
        report.sections.append(("journal", tail))


class Bare(Machine):
    """A machine without Allot. The clone and its build are at their usual place in it; what is written
    there is gone with the machine."""

    def install(self, build):
        source = build.parent
        self.overlay(source, self.work / "source")
        self.binds.append(f"--bind={self.work / 'source'}:{source}")
        self.binds += [f"--bind-ro={path}" for path in MESON]
        # The driver, as it were: it is there first, and not a part of what is installed.
        shutil.copytree(build / "sim", self.root / "opt/gpusim", symlinks=True,
                        ignore=shutil.ignore_patterns("*.p", "*.a"))
        self.simulate("/opt/gpusim/lib")

    def plug(self, gpusim):
        super().plug("/opt/gpusim/gpusim")

    def type(self, command, folder):
        """What root types at a prompt in `folder`."""
        kept = [f"{name}={os.environ[name]}" for name in ("CC",) if name in os.environ]
        return self.try_run("env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                            "HOME=/root", "TERM=dumb", *kept, "bash", "-c", f"cd '{folder}' && {command}")


# What a job says of itself: lease, cgroup, and what opening the nodes gives; again for each line it gets.
JOB = """
while true; do
    echo "lease $ALLOT_LEASE"
    echo "cgroup $(sed -n 's/^0:://p' /proc/self/cgroup)"
    for node in nvidia0 nvidia1 nvidiactl null; do
        if error=$( { : <"/dev/$node"; } 2>&1); then echo "$node open"; else echo "$node ${error##*: }"; fi
    done
    echo .
    read -r line || exit 0
done
"""


# Speak to allotd without gpuctl.
CALL = r"""
import json, os, socket, sys
def call(method, **parameters):
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/allot/io.allot")
    try:
        s.sendall(json.dumps({"method": "io.allot.Manager." + method, "parameters": parameters}).encode() + b"\0")
    except BrokenPipeError:
        pass # it was turned away, and told why
    data = b""
    while not data.endswith(b"\0"):
        data += s.recv(65536) or sys.exit(method + ": closed")
    return json.loads(data[:-1]), s
"""


class Job:
    """Something a user runs under a lease: a shell that tells what it may open."""

    def __init__(self, machine, uid, request, before=()):
        self.machine = machine
        self.process = machine.start(uid, *before, "gpuctl", "run", "--quiet", *request, "--", "bash", "-c", JOB)
        self.told = self.read()
        self.lease = int(self.told["lease"])
        self.scope = self.told["cgroup"].rsplit("/", 1)[-1]

    def read(self):
        told = {}
        while True:
            line = self.process.stdout.readline().strip()
            if line == ".":
                return told
            assert line or self.process.poll() is None, f"the job ended: {told}"
            if line.startswith("gpuctl:"):
                continue
            key, _, value = line.partition(" ")
            told[key] = value

    def ask(self):
        """Have it look again."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


if __name__ == "__main__": # for ./run: the reason, or nothing
    print(impossible_here() or "")
