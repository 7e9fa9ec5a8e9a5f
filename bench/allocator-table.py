#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The results of bench-allocator.sh as tables: allocator-table.py RESULTS.json"""
import glob
import json
import os
import sys

path = sys.argv[1]
rows = json.load(open(path))
by = {(r["engine"], r["trace"].removesuffix(".trace")): r for r in rows}
traces = list(dict.fromkeys(r["trace"].removesuffix(".trace") for r in rows))
engines = list(dict.fromkeys(r["engine"] for r in rows))
GIB = 1 << 30


def table(title, head, lines):
    print("\n" + title)
    lines = [head] + lines
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(w) if n == 0 else cell.rjust(w)
                        for n, (cell, w) in enumerate(zip(line, widths))))


def cell(engine, trace, function):
    row = by.get((engine, trace))
    return function(row) if row else "-"


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
    table("two threads against one, on %d CPUs: median and spread of %d rounds" % (os.cpu_count(), rounds),
          ["engine, trace", "by CPU time", "by the wall clock"],
          [["%s, %s" % (e, t.removesuffix(".trace")),
            spread(2 * a[e, t]["ns_per_pair_best"] / b[e, t]["ns_per_pair_best"] for a, b in zip(one, two)),
            spread(b[e, t]["pairs_per_second"] / a[e, t]["pairs_per_second"] for a, b in zip(one, two))]
           for e, t in one[0] if all((e, t) in r for r in one + two)])

if os.path.exists(path + ".shifts"):
    ratios = sorted(r["peak_reserved"] / r["peak_live"] for r in json.load(open(path + ".shifts")))
    print("\npeak reserved / peak live, size shift in %d ways: %.3f to %.3f, median %.3f; above 1.25: %d" % (
        len(ratios), ratios[0], ratios[-1], ratios[len(ratios) // 2], sum(r > 1.25 for r in ratios)))

if os.path.exists(path + ".fit"):
    fit = json.load(open(path + ".fit"))
    names = list(dict.fromkeys(r["engine"] for r in fit))
    found = {(r["engine"], r["trace"]): r for r in fit}
    table("smallest capacity on which the trace completes / peak live", ["trace"] + names,
          [[t.removesuffix(".trace")] + [
              "%.3f" % (found[e, t]["smallest_capacity"] / found[e, t]["peak_live"])
              if found[e, t]["smallest_capacity"] else "never" for e in names]
           for t in dict.fromkeys(r["trace"] for r in fit)])
