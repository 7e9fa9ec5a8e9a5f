# SPDX-License-Identifier: Apache-2.0
"""The shape that an installed box has: allotd and its reader are users without any rights, and its hand is root's; both
helpers are behind sockets of root's that allotd alone may open. Where the tests have no root, allotd starts its own
helpers, as on a private box."""
import os
import pathlib
import re
import socket
import subprocess
import threading

SYS_ADMIN = 1 << 21
UID = 64700 # of allotd; no user database knows it
READER_UID = 64701
COMMAND = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]


def impossible(program):
    """Why allotd cannot run in this shape; None: it can."""
    if os.geteuid() != 0:
        return "root is needed for a hand of root's"
    # An unprivileged allotd takes no other root for an administrator (daemon/enforce/privilege.c).
    whole = all(pathlib.Path(f"/proc/self/{kind}_map").read_text("ascii").split() == ["0", "0", "4294967295"]
                for kind in ("uid", "gid", "projid"))
    rights = int(re.search(r"^CapEff:\s*(\w+)", pathlib.Path("/proc/self/status").read_text("utf-8"), re.M)[1], 16)
    if not whole or not rights & SYS_ADMIN:
        return "root of a container is no administrator"
    done = subprocess.run([*COMMAND, "test", "-x", str(program)], stdin=subprocess.DEVNULL, check=False)
    return f"other users cannot run {program}" if done.returncode else None


class HelperSocket:
    """In place of allot-hand.socket or allot-reader.socket: each connection has a process, of user `uid`."""

    def __init__(self, path, program, uid, env, log):
        self.path, self.program, self.env, self.log = path, program, env, log
        self.user = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        self.processes = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        os.chown(path, 0, UID)
        os.chmod(path, 0o660)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError: # closed
                return
            number = connection.fileno()
            with connection, self.log.open("ab") as log:
                self.processes.append(subprocess.Popen(
                    ["bash", "-c", f'exec "$0" 3<&{number}' + (f" {number}<&-" if number != 3 else ""), self.program],
                    pass_fds=(number,), env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self.user))

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for process in self.processes: # each ends with its connection; one that is stuck does not see that
            process.kill()
            process.wait()
