# SPDX-License-Identifier: Apache-2.0
"""A process of a job, which does what the test tells it: a JSON object a line in, one a line out.

    {"do": "open", "as": "a"}                      connect to the daemon
    {"do": "send", "as": "a", "message": {…}}      one message
    {"do": "bytes", "as": "a", "hex": "…"}         any bytes, as far as the daemon reads them
    {"do": "receive", "as": "a"}                   the next reply
    {"do": "shut", "as": "a"}                      end its sending half
    {"do": "close", "as": "a"}
    {"do": "alloc", "device": 0, "bytes": N}       take memory of a device, as a CUDA program does
    {"do": "free"}                                 give all of it back
    {"do": "drop"}                                 and the contexts, too
    {"do": "fork"}                                 a child that lives on; its pid

Runs under any uid: it is passed to the interpreter as text, so no file has to be readable.
"""
import ctypes
import json
import os
import signal
import socket
import sys

connections = {}
buffers = {}
memory = []
libcuda = None
contexts = {}
children = []


def cuda(name, *args):
    result = getattr(libcuda, name)(*args)
    if result != 0:
        raise RuntimeError(f"{name}: CUresult {result}")


def alloc(device, size):
    global libcuda
    if libcuda is None:
        libcuda = ctypes.CDLL("libcuda.so.1")
        cuda("cuInit", 0)
    if device not in contexts:
        handle = ctypes.c_int()
        context = ctypes.c_void_p()
        cuda("cuDeviceGet", ctypes.byref(handle), device)
        cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        contexts[device] = context
    cuda("cuCtxSetCurrent", contexts[device])
    pointer = ctypes.c_uint64()
    if size:
        cuda("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        memory.append((device, pointer))


def receive(name):
    while b"\0" not in buffers[name]:
        chunk = connections[name].recv(1 << 16)
        if not chunk:
            return {"closed": True}
        buffers[name] += chunk
    message, buffers[name] = buffers[name].split(b"\0", 1)
    return {"reply": json.loads(message)}


def handle(order):
    what, name = order["do"], order.get("as")
    if what == "open":
        connections[name] = socket.socket(socket.AF_UNIX)
        connections[name].connect(order.get("path") or os.environ["ALLOT_SOCKET"])
        connections[name].settimeout(order.get("timeout", 120))
        buffers[name] = b""
    elif what == "send":
        connections[name].sendall(json.dumps(order["message"]).encode() + b"\0")
    elif what == "bytes":
        connections[name].sendall(bytes.fromhex(order["hex"]))
    elif what == "receive":
        return receive(name)
    elif what == "shut":
        connections[name].shutdown(socket.SHUT_WR)
    elif what == "deafen":
        connections[name].shutdown(socket.SHUT_RD)
    elif what == "close":
        connections.pop(name).close()
    elif what == "alloc":
        alloc(order["device"], order["bytes"])
    elif what == "free":
        for device, pointer in memory:
            cuda("cuCtxSetCurrent", contexts[device])
            cuda("cuMemFree_v2", pointer)
        memory.clear()
    elif what == "drop":  # everything on the devices, contexts too
        for device in contexts:
            cuda("cuDevicePrimaryCtxReset_v2", device)
        contexts.clear()
        memory.clear()
    elif what == "fork":
        pid = os.fork()
        if pid == 0:
            os.close(0)
            while True:
                signal.pause()
        children.append(pid)
        return {"pid": pid}
    else:
        raise ValueError(what)
    return {}


def main():
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        try:
            answer = handle(json.loads(line))
        except Exception as problem:  # the test shows it
            answer = {"failed": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(answer), flush=True)


try:
    main()
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
