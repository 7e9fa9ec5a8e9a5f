#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The results of bench-allocator.sh as tables: allocator-table.py RESULTS.json"""
import glob
import json
import os
import sys

path = sys.argv[1]
GIB = 1 << 30


def table(title, head, lines):
    print("\n" + title)
    lines = [head] + lines
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(w) if n == 0 else cell.rjust(w)
                        for n, (cell, w) in enumerate(zip(line, widths))))


rows = json.load(open(path)) if os.path.exists(path) else []
by = {(r["engine"], r["trace"].removesuffix(".trace")): r for r in rows}
traces = list(dict.fromkeys(r["trace"].removesuffix(".trace") for r in rows))
engines = list(dict.fromkeys(r["engine"] for r in rows))


def cell(engine, trace, function):
    row = by.get((engine, trace))
    return function(row) if row else "-"


if rows:
    table("ns per allocate and free: median (best); in brackets, how many times allot's",
          ["trace"] + engines,
          [[t] + [cell(e, t, lambda r: "%.0f (%.0f)%s" % (
              r["ns_per_pair"], r["ns_per_pair_best"],
              "" if e == "allot" else " [%.1f]" % (r["ns_per_pair"] / by["allot", t]["ns_per_pair"])))
              for e in engines] for t in traces])
    table("peak reserved / peak live", ["trace"] + engines + ["peak live GiB"],
          [[t] + [cell(e, t, lambda r: "%.3f%s" % (r["peak_reserved"] / r["peak_live"],
                                                   " (%d failed)" % r["failures"] if r["failures"] else ""))
                  for e in engines] + ["%.2f" % (by["allot", t]["peak_live"] / GIB)] for t in traces])
    table("host memory that the engine itself took, MiB", ["trace"] + engines,
          [[t] + [cell(e, t, lambda r: "%.1f" % (r["engine_rss_kib"] / 1024)) for e in engines] for t in traces])
    table("allot: pages mapped or moved in all warm laps", ["trace", "MiB", "of all that was reserved"],
          [[t, "%d" % (by["allot", t]["mapped_warm_bytes"] >> 20),
            "%.1f %%" % (100 * by["allot", t]["mapped_warm_bytes"] / by["allot", t]["peak_reserved"])] for t in traces])

    if ("allot", "holes-1k") in by and ("allot", "holes-10k") in by:
        print("\n10k holes against 1k holes: " + ", ".join(
            "%s %.2f times slower" % (e, by[e, "holes-10k"]["ns_per_pair"] / by[e, "holes-1k"]["ns_per_pair"])
            for e in engines))

rounds = len(glob.glob(glob.escape(path) + ".2.*"))
if rounds:
    def load(threads, n):
        return {(r["engine"], r["trace"]): r for r in json.load(open("%s.%d.%d" % (path, threads, n)))}

    def spread(values):
        values = sorted(values)
        return "%.2f (%.2f to %.2f)" % (values[len(values) // 2], values[0], values[-1])

    one, two = ([load(threads, n + 1) for n in range(rounds)] for threads in (1, 2))
    def alone(engine, trace):
        """Two processes at once against one thread: no allocator can do better."""
        pairs = [[json.load(open("%s.alone.%s.%d.%s" % (path, trace, n + 1, k)))[0] for k in "ab"]
                 for n in range(rounds) if os.path.exists("%s.alone.%s.%d.b" % (path, trace, n + 1))]
        if engine != "allot" or len(pairs) < rounds:
            return "-"
        return spread(sum(r["pairs_per_second"] for r in pair) / a[engine, trace + ".trace"]["pairs_per_second"]
                      for a, pair in zip(one, pairs))

    table("two threads against one, on %d CPUs: median and spread of %d rounds" % (os.cpu_count(), rounds),
          ["engine, trace", "by CPU time", "by the wall clock", "two processes"],
          [["%s, %s" % (e, t.removesuffix(".trace")),
            spread(2 * a[e, t]["ns_per_pair_best"] / b[e, t]["ns_per_pair_best"] for a, b in zip(one, two)),
            spread(b[e, t]["pairs_per_second"] / a[e, t]["pairs_per_second"] for a, b in zip(one, two)),
            alone(e, t.removesuffix(".trace"))]
           for e, t in one[0] if all((e, t) in r for r in one + two)])

ratios = sorted(row["peak_reserved"] / row["peak_live"] for file in glob.glob(glob.escape(path) + ".shift.*")
                for row in json.load(open(file)))
if ratios:
    print("\npeak reserved / peak live, size shift in %d ways: %.3f to %.3f, median %.3f; above 1.25: %d" % (
        len(ratios), ratios[0], ratios[-1], ratios[len(ratios) // 2], sum(r > 1.25 for r in ratios)))

fit = [row for file in glob.glob(glob.escape(path) + ".fit.*") for row in json.load(open(file))]
if fit:
    found = {(r["engine"], r["trace"].removesuffix(".trace")): r for r in fit}
    order = ["allot", "tf", "tf-fixed", "ort", "ort-asked", "torch"]
    names = sorted({e for e, t in found}, key=order.index)
    order = ["lifo", "random", "training", "shift", "holes-1k", "holes-10k", "live-1k", "live-10k", "live-100k",
             "live-1m", "serving"]

    def need(engine, trace):
        row = found.get((engine, trace))
        return row["smallest_capacity"] or float("inf") if row else None

    table("smallest capacity on which the trace completes / peak live", ["trace"] + names,
          [[t] + ["-" if need(e, t) is None else "never" if need(e, t) == float("inf") else
                  "%.3f" % (need(e, t) / found[e, t]["peak_live"]) for e in names]
           for t in sorted({t for e, t in found}, key=order.index)])
    above = ["%s on %s" % (e, t) for e, t in sorted(found)
             if need("allot", t) is not None and need(e, t) < need("allot", t)]
    print("completes in less than allot: " + (", ".join(above) or "nobody"))
