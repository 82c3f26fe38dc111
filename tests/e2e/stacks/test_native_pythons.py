"""Functions of Python in native stacks on CPythons that have no torch: a library calls its operators for them."""
import collections
import json
import pathlib
import re
import subprocess

import pytest

from conftest import find_pythons, find_tail_call_python, profile

LIBRARY = "".join("#include <ATen/ops/%s.h>\n" % name for name in ("ones", "neg", "abs", "sin", "cos", "exp", "sqrt")) + """
#define OPERATOR(name) extern "C" void name##_() { at::name(at::ones({2})); }
OPERATOR(neg) OPERATOR(abs) OPERATOR(sin) OPERATOR(cos) OPERATOR(exp) OPERATOR(sqrt)
"""
# The second import is of an extension module: then the recorder looks whether there is torch.
PROGRAM = """
import ctypes, functools, json, os, sys
operators = ctypes.CDLL(sys.argv[1])
import mmap

def run(operator):
    frames, frame = [], sys._getframe()
    getattr(operators, operator + "_")(); frames.append(["mixed.py", frame.f_lineno, "run"])
    while frame := frame.f_back:
        frames.append([os.path.basename(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name])
    with open(sys.argv[2], "a") as file: file.write(json.dumps(["aten::" + operator, frames]) + "\\n")

def outer():
    return inner(
        1)
def inner(x): run("neg")
def key(n): run("abs"); return n
def items(): yield run("sin")
class Made:
    def __init__(self): run("cos")
def recurse(n): return recurse(n - 1) if n else run("exp")
def compare(a, b): run("sqrt"); return 0

outer()
sorted([1], key=functools.partial(key))
list(items())
Made()
recurse(100)
ctypes.CDLL(None).qsort((ctypes.c_int * 2)(), 2, 4, ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(compare))
"""
PYTHONS = [p for p in find_pythons() if not p.has_torch and pathlib.Path("/usr/include/ATen/ops/neg.h").exists()]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    directory = tmp_path_factory.mktemp("native_pythons")
    (directory / "operators.cpp").write_text(LIBRARY)
    (directory / "mixed.py").write_text(PROGRAM)
    subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", "-o", "operators.so", "operators.cpp", "-ltorch_cpu", "-lc10"], cwd=directory, check=True)
    return directory / "mixed.py"


@pytest.fixture
def recorded(program, launcher, tmp_path):
    """The run under a Python, and what the program noted."""
    def run(python):
        done = profile(launcher, tmp_path / "run", [python, program, program.with_name("operators.so"), tmp_path / "notes"],
                       options=["--native", "on"])
        assert done.status == 0, done.stderr
        return done, {name: [tuple(frame) for frame in frames] for name, frames in map(json.loads, (tmp_path / "notes").read_text().splitlines())}
    return run


def stacks_of(trace):
    stacks = collections.defaultdict(list)
    for e in trace.spans("cpu_op"):
        stacks[e["name"]].append(e["args"]["stack"])
    return stacks


def check_stacks(stacks, expected):
    assert len(expected) == 6
    for operator, frames in expected.items():
        assert stacks[operator]
        for stack in stacks[operator]:  # also of those by which the operator is made
            found = [re.fullmatch(r"(?:.*/)?([^/]+\.py)\((\d+)\): (.*)", frame) for frame in stack]
            assert [(m[1], int(m[2]), m[3]) for m in found if m] == frames, stack
            assert operator.removeprefix("aten::") + "_" in stack, stack
            assert not any(frame.startswith(("_PyEval", "_TAIL_CALL_")) for frame in stack), stack
    names = [frame.rpartition(": ")[2].split(" ")[0] for frame in stacks["aten::sqrt"][0]]
    assert names.index("compare") < next(i for i, name in enumerate(names) if "qsort" in name) < names.index("<module>"), names


@pytest.mark.parametrize("without_torch", PYTHONS, ids=str)
def test_a_stack_has_the_functions_that_the_program_finds_and_c_between_them(without_torch, recorded, check_trace):
    run, expected = recorded(without_torch.path)
    check_stacks(stacks_of(check_trace(run.trace())), expected)


def test_an_interpreter_of_tail_calls_has_them_too(recorded, torchprof, tmp_path, check_trace):
    """Its interpreter loop is one function for each instruction; the function that calls them holds the frame."""
    python = find_tail_call_python()
    if not python:
        pytest.skip("NOT TESTED: there is no CPython 3.14 configured --with-tail-call-interp (clang 19), neither on PATH nor in TORCHPROF_TAIL_CALL_PYTHON")
    run, expected = recorded(python)
    check_stacks(stacks_of(check_trace(run.trace())), expected)
    done = torchprof("export", run.directory, "--format", "kineto", "--native-frames", "all", "-o", tmp_path / "all.json")
    assert done.returncode == 0, done.stderr
    for stack in stacks_of(check_trace(tmp_path / "all.json", merged=True))["aten::neg"]:
        run = next(i for i, frame in enumerate(stack) if frame.endswith(": run"))
        assert stack[run - 1].startswith("_TAIL_CALL_") and stack[run + len(expected["aten::neg"])].startswith("_PyEval_EvalFrameDefault"), stack
