#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every placement problem of tests/cases/placer through place-case, as its `expect` says.

usage: place-cases.py PLACE-CASE FOLDER
"""
import json
import pathlib
import random
import subprocess
import sys


def judge(expect, answer, nodes):
    """What is wrong with an answer; nothing if it is right."""
    wrong = []
    if "error" in expect:
        error = answer.get("error")
        if error is None:
            return [f"no error, but {answer}"]
        if error["code"] != expect["error"]["code"]:
            wrong.append(f"code {error['code']} instead of {expect['error']['code']}")
        wrong += [f"{part!r} is not in {error['message']!r}" for part in expect["error"]["contains"] if part not in error["message"]]
        return wrong
    if "devices" not in answer:
        return [f"{answer}"]
    devices = answer["devices"]
    if set(devices) != set(nodes):
        wrong.append(f"nodes {sorted(set(nodes) ^ set(devices))}")
    for node, device in expect.get("devices", {}).items():
        if devices[node] != device:
            wrong.append(f"{node} on {devices[node]} instead of {device}")
    for node, kind in expect.get("types", {}).items():
        if devices[node].split("device:")[1].split(":")[0] != kind:
            wrong.append(f"{node} on {devices[node]}, which is no {kind}")
    for a, b in expect.get("same", []):
        if devices[a] != devices[b]:
            wrong.append(f"{a} on {devices[a]}, {b} on {devices[b]}")
    for a, b in expect.get("different", []):
        if devices[a] == devices[b]:
            wrong.append(f"{a} and {b} both on {devices[a]}")
    return wrong


def variants(case):
    """The case itself, and what must not matter: the order of devices and of ops, names of nodes."""
    yield "", case
    shuffled = json.loads(json.dumps(case))
    random.Random(1).shuffle(shuffled["devices"])
    yield " (devices in another order)", shuffled
    reversed_ops = json.loads(json.dumps(case))
    reversed_ops["ops"] = dict(reversed(list(case["ops"].items())))
    yield " (ops in another order)", reversed_ops


def main():
    program, folder = sys.argv[1:]
    passed = failed = 0
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        case = json.loads(path.read_text())
        for what, variant in variants(case):
            done = subprocess.run([program], input=json.dumps(variant), capture_output=True, text=True)
            wrong = [done.stderr or f"exit {done.returncode}"] if done.returncode else judge(
                case["expect"], json.loads(done.stdout), [node["name"] for node in case["nodes"]])
            for line in wrong:
                print(f"{case['name']}{what}: {line}")
            passed += not wrong
            failed += bool(wrong)
    print(f"{100 * passed // max(passed + failed, 1)}%: Checks: {passed + failed}, Failures: {failed}, Errors: 0")
    return failed > 0 or passed == 0


sys.exit(main())
