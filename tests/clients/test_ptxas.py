# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's assembler takes, the simulated driver takes: thousands of spellings of instructions.

Each is a kernel of its own. Those that ptxas takes must load; that others are refused too is asserted of
the kinds that people get wrong.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = (
    ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .pred %p<9>; .reg .b16 %rs<9>;"
)
# The registers that hold a type.
OF = {"u16": "%rs", "s16": "%rs", "b16": "%rs", "f16": "%rs", "bf16": "%rs"}
OF |= {"u32": "%r", "s32": "%r", "b32": "%r", "f16x2": "%r", "bf16x2": "%r", "f32": "%f"}
OF |= {"u64": "%rd", "s64": "%rd", "b64": "%rd", "f64": "%fd", "pred": "%p"}


def find_ptxas():
    pinned = pathlib.Path(sys.prefix).glob("lib/python*/site-packages/nvidia/**/bin/ptxas")
    found = [*map(str, pinned), shutil.which("ptxas"), "/usr/local/cuda/bin/ptxas"]
    return next((path for path in found if path and os.access(path, os.X_OK)), None)


def spellings():
    """Instructions, right and wrong."""
    wide = {"%rs": "%r", "%r": "%rd"}
    for rounding in ("", ".rn", ".rz", ".rni", ".rzi", ".rn.ftz", ".rzi.ftz", ".ftz", ".sat", ".rn.sat"):
        for to in OF:
            for source in OF:
                if not {to, source} & {"pred", "b16", "b32", "b64", "f16x2", "bf16x2"}:
                    yield f"cvt{rounding}.{to}.{source} {OF[to]}1, {OF[source]}2;"
    two = {
        "add": ("", ".sat", ".rn", ".rz", ".ftz", ".rn.ftz.sat", ".cc"),
        "sub": ("", ".rn", ".cc"),
        "mul": ("", ".lo", ".hi", ".wide", ".rn", ".rp.ftz.sat"),
        "min": ("", ".ftz", ".NaN"),
        "max": ("", ".ftz", ".NaN"),
        "div": ("", ".rn", ".approx", ".full", ".approx.ftz", ".rz"),
        **{name: ("",) for name in ("rem", "and", "or", "xor", "copysign")},
    }
    one = {
        **{name: ("", ".ftz") for name in ("abs", "neg")},
        **{name: ("",) for name in ("not", "cnot", "popc", "clz", "brev", "bfind")},
        **{name: ("", ".rn", ".approx", ".approx.ftz") for name in ("rcp", "sqrt")},
        **{name: ("", ".approx", ".approx.ftz") for name in ("rsqrt", "sin", "lg2", "ex2", "tanh")},
    }
    three = {"fma": ("", ".rn", ".rz", ".rn.ftz.sat", ".rn.relu"), "mad": ("", ".lo", ".hi", ".wide", ".rn"), "sad": ("",)}
    for kind, reg in OF.items():
        for name, modifiers in two.items():
            for mod in modifiers:
                yield f"{name}{mod}.{kind} {wide.get(reg, reg) if mod == '.wide' else reg}1, {reg}2, {reg}3;"
        for name, modifiers in one.items():
            for mod in modifiers:
                yield f"{name}{mod}.{kind} {'%r' if name in ('popc', 'clz', 'bfind') else reg}1, {reg}2;"
        for name, modifiers in three.items():
            for mod in modifiers:
                to = wide.get(reg, reg) if mod == ".wide" else reg
                yield f"{name}{mod}.{kind} {to}1, {reg}2, {reg}3, {to}4;"
        for compare in ("eq", "ne", "lt", "ge", "lo", "hs", "equ", "gtu", "num", "nan"):
            yield f"setp.{compare}.{kind} %p1, {reg}2, {reg}3;"
            yield f"setp.{compare}.ftz.{kind} %p1, {reg}2, {reg}3;"
            yield f"set.{compare}.u32.{kind} %r1, {reg}2, {reg}3;"
        for space in (".global", ".shared", ".local", ""):
            yield f"ld{space}.{kind} {reg}1, [%rd1];"
            yield f"st{space}.v2.{kind} [%rd1], {{{reg}1, {reg}2}};"
            for name in ("add", "min", "and", "exch", "inc"):
                yield f"atom{space}.{name}.{kind} {reg}1, [%rd1], {reg}2;"
            yield f"atom{space}.cas.{kind} {reg}1, [%rd1], {reg}2, {reg}3;"
        yield f"selp.{kind} {reg}1, {reg}2, {reg}3, %p1;"
        yield f"mov.{kind} {reg}1, {reg}2;"
        yield f"shl.{kind} {reg}1, {reg}2, %r3;"
        yield f"add.{kind} {reg}1, {reg}2, 1;"
        yield f"add.{kind} {reg}1, {reg}2, 1.5;"


def kernel(number, instruction):
    return f".visible .entry k{number}() {{ {REGISTERS} {instruction} ret; }}\n"


def taken_by_ptxas(ptxas, tmp_path, cases):
    taken = [True] * len(cases)
    for first in range(0, len(cases), 300):
        part = range(first, min(first + 300, len(cases)))
        text = tmp_path / "part.ptx"
        text.write_text(HEAD + "".join(kernel(i, cases[i]) for i in part))
        done = subprocess.run([ptxas, "-arch=sm_80", text, "-o", "/dev/null"], capture_output=True, text=True, timeout=300)
        for line in re.findall(r"line (\d+); error", done.stderr):
            taken[first + int(line) - 4] = False
        assert "Parsing error" not in done.stderr, done.stderr  # what comes after it was not looked at
    return taken


LOADER = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, answers = ctypes.c_void_p(), []
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for text in json.load(open(sys.argv[1])):
    module = ctypes.c_void_p()
    answers.append(cuda.cuModuleLoadData(ctypes.byref(module), text.encode()))
    if answers[-1] == 0:
        cuda.cuModuleUnload(module)
json.dump(answers, sys.stdout)
"""


@pytest.mark.timeout(400)
def test_what_the_assembler_takes_is_taken(box, tmp_path):
    ptxas = find_ptxas()
    if not ptxas:
        pytest.skip("no ptxas: it comes with a CUDA toolkit")
    cases = list(spellings())
    taken = taken_by_ptxas(ptxas, tmp_path, cases)
    texts = tmp_path / "texts.json"
    texts.write_text(json.dumps([HEAD + kernel(i, case) for i, case in enumerate(cases)]))
    answers = json.loads(box.run([sys.executable, "-c", LOADER, texts], timeout=300).stdout)
    assert set(answers) == {0, 218}
    refused = [case for case, good, answer in zip(cases, taken, answers) if good and answer]
    assert not refused, refused
    wrong = sum(not good for good in taken)
    passed = sum(not good and not answer for good, answer in zip(taken, answers))
    print(f"{len(cases)} spellings, {wrong} of them wrong, {passed} of these are taken all the same")
    assert wrong > 1000 and passed < wrong / 5
