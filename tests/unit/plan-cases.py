#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every planning problem of tests/cases/plan through plan-case, and damaged variants of them.

usage: plan-cases.py PLAN-CASE FOLDER
"""
import json
import pathlib
import random
import subprocess
import sys

DAMAGED = 150


def run(tool, text, *options):
    return subprocess.run([tool, "--events", "100000", *options], input=text, capture_output=True, text=True, timeout=60)


def check(case, answer):
    """What is wrong with an answer; nothing if it keeps to the case."""
    nodes, count = case["nodes"], len(case["devices"])
    where, order = answer["assignment"], answer["order"]
    wrong = []
    if sorted(v for o in order for v in o) != list(range(len(nodes))):
        return ["the order has not every node once"]
    if any(where[v] != d for d, o in enumerate(order) for v in o):
        wrong.append("order and assignment disagree")
    for v, node in enumerate(nodes):
        if node["pin"] not in (None, where[v]) or node["cost_us"][where[v]] is None:
            wrong.append(f"node {v} may not be on device {where[v]}")
    for group in {n["colocate"] for n in nodes} - {None}:
        if len({where[v] for v, n in enumerate(nodes) if n["colocate"] == group}) > 1:
            wrong.append(f"group {group} is on several devices")
    busy = max(sum(nodes[v]["cost_us"][d] for v in o) for d, o in enumerate(order))
    if answer["makespan_us"] < busy:
        wrong.append("the step is shorter than what one device computes")
    for d, peak in enumerate(answer["peak_bytes"]):
        cap = case["devices"][d]["memory_bytes"]
        kept = sum(nodes[v]["resident_bytes"] for v in order[d])
        if peak < kept or (cap is not None and peak > cap) or len(answer["peak_bytes"]) != count:
            wrong.append(f"device {d}: {peak} bytes")
    return wrong


def damage(case, chance):
    """The case with one value replaced by something that may not be there."""
    case = json.loads(json.dumps(case))
    places = []

    def walk(value):
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            places.append((value, key))
            walk(value[key])

    walk(case)
    place, key = chance.choice(places)
    place[key] = chance.choice([None, -1, 10**18, 1e308, "x", [], {}, True, [[]], 2**70, 0.5])
    return json.dumps(case)


def main():
    tool, folder = sys.argv[1:]
    failures, done = [], 0
    cases = {path.stem: json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))}
    for name, case in cases.items():
        results = [run(tool, json.dumps(case), "--threads", threads) for threads in ("1", "2")]
        answer = json.loads(results[0].stdout) if results[0].returncode == 0 else {"error": {"code": results[0].stderr}}
        done += 1
        if results[0].stdout != results[1].stdout:
            failures.append(f"{name}: another plan with two threads")
        if name == "infeasible":
            if answer.get("error", {}).get("code") != "infeasible" or "missing" not in answer["error"]["message"]:
                failures.append(f"{name}: {answer}")
        elif "error" in answer:
            failures.append(f"{name}: {answer}")
        else:
            failures += [f"{name}: {what}" for what in check(case, answer)]
    chance = random.Random(1)
    for text in ["", "{", "[]", "null", "{}"] + [damage(chance.choice(list(cases.values())), chance) for _ in range(DAMAGED)]:
        result = run(tool, text)
        done += 1
        if result.returncode not in (0, 2) or (result.returncode == 2 and not result.stderr.startswith("plan-case: ")):
            failures.append(f"exit {result.returncode}, {result.stderr!r}: {text[:300]}")
    for failure in failures:
        print(failure)
    print(f"{done - len(failures)} passed, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
