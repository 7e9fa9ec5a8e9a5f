#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets liballot, TensorFlow and ONNX Runtime take turns: graph-table.py ALLOT PEERS_PYTHON [--gpu GRAPH_GPU]
[--rounds N] [--clock wall|cpu] [--rows ROW,…] [--json FILE] [--log FILE]

Each is a process that answers lines (graph-allot.c, graph-peers.py); only one computes at a time. Every
row goes round all of them several times. Ratios are of medians, and of the best; goals are met or missed
by the better of the two, as a busy machine makes any single figure worse and none better.

--clock cpu  CPU time of the processes: on a machine that others use
--gpu        graph-gpu.c, for what liballot itself costs for each op on a GPU; by CPU time, whatever the clock
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = ("tf", "tf-single", "ort")
BLAS = ("openblas", "openblas-fit")     # as it comes, and with the code for the CPU that liballot has it take
FLOOR = "multiply"                      # of the MLP: as many multiply-adds, in registers: what no library can be below
OTHER_ROWS = {name: "matmul" for name in BLAS} | {FLOOR: "mlp"}     # engines that answer one row, by their own name

# row, words, threads, steps each time, ops to divide by, unit, goal: at most, times faster than peers
ROWS = [
    ("chain", "chain of 10,000 scalar adds, 1 thread", 1, 10, 10000, "ns per op", 80, 3),
    ("wide", "10,000 independent adds, 1 thread", 1, 5, 10000, "ns per op", 80, 3),
    ("layered", "random layers of 20,000 small ops, 1 thread", 1, 3, 20001, "ns per op", None, 5),
    ("layered", "random layers of 20,000 small ops, 2 threads", 2, 3, 20001, "ns per op", None, 5),
    ("build-chain", "build and first run, chain of 10,000", 1, 2, 1e6, "ms", 60, None),
    ("build-wide", "build and first run, 10,000 independent", 1, 2, 1e6, "ms", 60, None),
    ("mlp", "MLP 784-512-512-10, batch 128, SGD step, 1 thread", 1, 4, 1e6, "ms", None, 1.25),
    ("matmul", "matmul 1024, 1 thread", 1, 2, 1e6, "ms", None, None),
]
COLUMNS = ("allot",) + PEERS + BLAS + (FLOOR,)
PEAKS = [("branches", "16 wide branches"), ("mlp", "MLP, SGD step"), ("transformer", "transformer of 4 blocks, Adam step"),
         ("layered", "random layers")]
# row, words, threads, value on the simulator, goal: at most, ns per op
GPU_ROWS = [
    ("gpu-chain", "chain of 10,000 scalar adds, 1 thread", 1, 10000, 1000),
    ("gpu-wide", "10,000 independent adds, 1 thread", 1, 1, 1000),
    ("gpu-chain", "chain of 10,000 scalar adds, 2 threads", 2, 10000, 1000),
    ("gpu-wide", "10,000 independent adds, 2 threads", 2, 1, 1000),
    ("gpu-mlp", "MLP 784-512-512-10, batch 128, SGD step, 1 thread", 1, None, 1000),
]


class Engine:
    def __init__(self, command, stderr=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                        text=True)
        self.command = command

    def ask(self, row, threads, steps):
        try:
            self.process.stdin.write("%s %d %d\n" % (row, threads, steps))
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            sys.exit("graph-table.py: %s ended, with status %s" % (" ".join(self.command), self.process.wait()))
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def table(head, lines):
    lines = [head] + lines
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(w) if n == 0 else cell.rjust(w)
                        for n, (cell, w) in enumerate(zip(line, widths))).rstrip())


def figure(number):
    return "%.3g" % number if number < 1000 else "%.0f" % number


def verdict(goals):
    """Goals as (words, whether they are met)."""
    return "; ".join("%s: %s" % (words, "met" if met else "MISSED") for words, met in goals) or "-"


def measure(engines, row, threads, steps, rounds):
    """Answers of each engine, all rounds together."""
    answers = {}
    for _ in range(rounds):
        for name, engine in engines.items():
            if row != OTHER_ROWS.get(name, row):
                continue
            if name == "tf-single" and threads > 1:
                continue
            answer = engine.ask(name if name in OTHER_ROWS else row, threads, steps)
            if "error" in answer:
                continue
            kept = answers.setdefault(name, dict(answer, wall=[], cpu=[]))
            kept["wall"] += answer["wall"]
            kept["cpu"] += answer["cpu"]
    return answers


def same_value(answers):
    values = {name: a["value"] for name, a in answers.items()}
    ours = values["allot"]
    return [name for name, v in values.items() if abs(v - ours) > 1e-3 * max(1, abs(ours))]


def per_op(answer, name):
    """How many more there are for each op of the longer graph; where there is one graph, for each op of it."""
    (short, long), (first, last) = answer["kernels"], answer[name]
    # With two threads who wakes whom is not the same in every step: a few a step are no one an op.
    return max(0, round((last - first) / (long - short), 3)) if long > short else last / long


def measure_gpu(command, wanted, rounds, kept):
    """On a driver that does nothing: all that is left is ours."""
    engine, lines = Engine([command]), []
    for row, words, threads, value, most in GPU_ROWS:
        if wanted and row not in wanted:
            continue
        answer = engine.ask(row, threads, max(10, 2 * rounds))
        if value is not None and answer["value"] != value:
            sys.exit("graph-table.py: %s computed %g instead of %g" % (row, answer["value"], value))
        nsec = [t / answer["kernels"][1] for t in answer["cpu"]]
        goals = [("≤ %g µs" % (most / 1000), min(nsec) <= most)]
        if row != "gpu-mlp":
            goals += [("none %s per op" % words_of, per_op(answer, name) == 0)
                      for name, words_of in (("allocations", "allocated"), ("locks", "locked"))]
        lines.append([words, "%s (%s)" % (figure(statistics.median(nsec)), figure(min(nsec)))] +
                     ["%.3g, %d a step" % (per_op(answer, name), answer[name][0])
                      for name in ("allocations", "locks")] +
                     ["%.4g" % per_op(answer, "calls"), verdict(goals)])
        kept.append({"row": row, "threads": threads, "unit": "ns per op", "clock": "cpu",
                     "median": {"allot": statistics.median(nsec)}, "best": {"allot": min(nsec)},
                     "kernels": answer["kernels"], "allocations": answer["allocations"], "locks": answer["locks"],
                     "calls": answer["calls"], "other_calls": answer["other_calls"],
                     "goals": {w: bool(m) for w, m in goals}})
        print("  measured: on a GPU, " + words, flush=True)
    engine.end()
    if lines:
        print("\nOn a GPU: CPU time outside the driver for each op launched, ns")
        table(["", "liballot", "allocations", "locks", "driver calls per op", "goals"], lines)


def write_json(path, kept):
    if path:
        with open(path, "w") as file:
            json.dump(kept, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description="see the head of the file")
    parser.add_argument("allot")
    parser.add_argument("python")
    parser.add_argument("--gpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--rows", default="")
    parser.add_argument("--json")
    parser.add_argument("--log", default=os.devnull)
    given = parser.parse_args()
    wanted = [r for r in given.rows.split(",") if r]
    unknown = set(wanted) - {r[0] for r in ROWS + GPU_ROWS} - {"peaks"}
    if unknown:
        sys.exit("graph-table.py: no row %s; there are %s, peaks" % (
            ", ".join(sorted(unknown)), ", ".join(dict.fromkeys(r[0] for r in ROWS + GPU_ROWS))))
    if wanted and not set(wanted) - {r[0] for r in GPU_ROWS}:
        kept = []
        measure_gpu(given.gpu, wanted, given.rounds, kept)
        write_json(given.json, kept)
        return

    engines = {"allot": Engine([given.allot])}
    for other in OTHER_ROWS:    # not in the process above: one has but one BLAS
        engines[other] = Engine([given.allot])
    for peer in PEERS:      # what TensorFlow says of itself while it starts is not for here
        engines[peer] = Engine([given.python, os.path.join(HERE, "graph-peers.py"), peer], open(given.log, "a"))

    clock, kept, lines, floors = given.clock, [], [], []
    print("%s; %d rounds, load %s, %s" % (
        "CPU time" if clock == "cpu" else "wall clock", given.rounds, " ".join("%.1f" % n for n in os.getloadavg()),
        "median (best)"), flush=True)
    for row, words, threads, steps, per, unit, most, times in ROWS:
        if wanted and row not in wanted:
            continue
        # A peer takes seconds to build a graph: three rounds will do.
        answers = measure(engines, row, threads, 1 if row.startswith("build") else steps,
                          min(given.rounds, 3) if row.startswith("build") else given.rounds)
        wrong = [] if row == "mlp" else same_value(answers)
        if wrong:
            print("%s: %s computed another value than liballot" % (row, ", ".join(wrong)))
        median = {n: statistics.median(a[clock]) for n, a in answers.items()}
        best = {n: min(a[clock]) for n, a in answers.items()}
        faster = {n: max(median[n] / median["allot"], best[n] / best["allot"]) for n in answers}
        goals = []
        if most:
            goals.append(("≤ %d %s" % (most, unit), best["allot"] / per <= most))
        if times and row == "mlp":
            goals.append(("≤ 0.8 × TensorFlow", min(faster["tf"], faster["tf-single"]) >= times))
            if FLOOR in answers:
                least = best[FLOOR] / min(best["tf"], best["tf-single"])
                floors.append("The multiplications of the MLP's step alone take %s %s of this CPU, %.1f GFLOP/s: nothing "
                              "is below %.2f × TensorFlow here; liballot is at %.2f." % (
                                  figure(best[FLOOR] / per), unit, answers[FLOOR]["value"] / best[FLOOR], least,
                                  best["allot"] / min(best["tf"], best["tf-single"])))
        elif times:
            goals.append(("≥ %g× faster" % times, all(faster[n] >= times for n in PEERS if n in faster)))
        if row == "matmul" and BLAS[0] in answers:
            goals.append(("≥ 0.97 × OpenBLAS", min(faster[n] for n in BLAS) >= 0.97))
        if row in ("chain", "wide"):
            goals.append(("10,000 kernel calls", answers["allot"]["kernels"] == 10000))
        cells = []
        for name in COLUMNS:
            if name not in answers:
                cells.append("-")
                continue
            cell = "%s (%s)" % (figure(median[name] / per), figure(best[name] / per))
            if name != "allot":
                cell += " [%.2f]" % (median[name] / median["allot"])
            cells.append(cell)
        lines.append([words, unit] + cells + [verdict(goals)])
        kept.append({"row": row, "threads": threads, "unit": unit, "clock": clock,
                     "median": {n: v / per for n, v in median.items()},
                     "best": {n: v / per for n, v in best.items()},
                     "kernels": answers["allot"].get("kernels"), "goals": {w: bool(m) for w, m in goals}})
        print("  measured: " + words, flush=True)
    if lines:
        print("\nIn brackets: how many times liballot's median.")
        table(["", "unit", "liballot"] + list(COLUMNS[1:]) + ["goals"], lines)
        for floor in floors:
            print(floor)

    if not wanted or "peaks" in wanted:
        peaks = []
        for row, words in PEAKS:
            for threads in (1, 2):
                answer = engines["allot"].ask(row, threads, 1)
                peaks.append(["%s, %d thread%s" % (words, threads, "s" if threads > 1 else ""),
                              "%d" % (answer["bytes"] >> 10), "%d" % (answer["ready_bytes"] >> 10),
                              "%.2f" % (answer["bytes"] / answer["ready_bytes"]) if answer["ready_bytes"] else "-"])
                kept.append({"row": "peak " + row, "threads": threads, "bytes": answer["bytes"],
                             "ready_bytes": answer["ready_bytes"]})
        print("\nMemory of a step, KiB: as planned, and had as many threads run ops in the order in which they "
              "become ready")
        table(["", "planned", "ready order", "ratio"], peaks)
    for engine in engines.values():
        engine.end()
    if given.gpu:
        measure_gpu(given.gpu, wanted, given.rounds, kept)
    write_json(given.json, kept)


main()
