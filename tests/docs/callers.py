#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every external function of the product is used by the product, not by tests or benchmarks alone.

A use is its name in a source file, besides its definition and its declarations. EXCUSED have reasons.
"""
import collections
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["base", "driver", "wire", "allocator", "libclient", "guard", "daemon", "ctl", "sim"]
# Exported: their callers are programs that are not ours.
FOREIGN = re.compile(r"^(cu[A-Z]|cublas[A-Z]|nccl[A-Z]|nvml[A-Z]|allot_|gpusim[A-Z]|main$|dl(v?sym|open)$|_|ISA$|LEVEL$)")
EXCUSED = {
    **dict.fromkeys(["arena_check", "broker_check_books"], "walks all that there is and finds what is wrong"),
    **dict.fromkeys(["cublas_check_codes", "cuda_check_codes", "nvml_check_codes"], "for the compiler alone"),
    **dict.fromkeys(["crc32c_by_table", "loops_baseline"],
                    "what the product does on older CPUs: without it no test reaches that on a newer one"),
    "config_parse": "the fuzzer's way in: a text instead of files",
    **dict.fromkeys(["hand_n_readers_replaced", "hand_n_replaced", "hand_stale_since"],
                    "what a test waits for, of a struct that nobody else sees"),
}
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
ATTRIBUTE = re.compile(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)\s*")
DEFINITION = re.compile(r"^(?!static\b|extern\b|typedef\b|return\b|else\b|#|/)[A-Za-z_][\w\s*]*?[\s*](\w+)\(", re.MULTILINE)


def main():
    uses, defined, declared = collections.Counter(), {}, collections.Counter()
    for folder in FOLDERS:
        for source in (path for ending in ("[ch]", "def", "cu") for path in (TOP / folder).rglob(f"*.{ending}")):
            text = ATTRIBUTE.sub("", TEXT.sub('""', COMMENT.sub(" ", source.read_text(encoding="utf-8"))))
            uses.update(re.findall(r"\b[A-Za-z_]\w*", text))
            for match in DEFINITION.finditer(text):
                end = re.compile(r"[{;]").search(text, match.end())
                if end is None:
                    continue
                declared[match.group(1)] += 1
                if end.group() == "{" and source.suffix == ".c":
                    defined.setdefault(match.group(1), source.relative_to(TOP))
    unused = {name for name in defined if not FOREIGN.match(name) and uses[name] <= declared[name]}
    wrong = [f"{defined[name]}: {name}() has no caller in the product"
             for name in sorted(unused - set(EXCUSED), key=lambda name: (defined[name], name))]
    wrong += [f"{name}() is excused in {pathlib.Path(__file__).name}, and has a caller or is gone"
              for name in sorted(set(EXCUSED) - unused)]
    if wrong:
        sys.exit("\n".join(wrong))


main()
