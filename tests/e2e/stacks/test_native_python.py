"""Functions of Python in native stacks: those that the program itself finds on its stack, where it calls the operator."""
import collections
import json
import re

import pytest

from conftest import profile

# Each operator stands in the line of its note(): the program's frames are the same for both.
PROGRAM = """
import ctypes, functools, json, os, sys, threading
import torch
x = torch.ones(2)

def note(operator):
    frames, frame = [], sys._getframe(1)
    while frame:
        frames.append([os.path.basename(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    with open(sys.argv[1], "a") as file: file.write(json.dumps(["aten::" + operator, frames]) + "\\n")

def outer():
    return inner(
        x)
def inner(x):
    x.neg(); note("neg")

def key(n): x.abs(); note("abs")
def of_partial(n, m): x.sin(); note("sin")
def items(): x.cos(); yield note("cos")
class Made:
    def __init__(self, is_last):
        if is_last: x.exp(); note("exp")
class Net(torch.nn.Module):
    def forward(self, x): x.tanh(); note("tanh")
class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x): return x * x
    @staticmethod
    def backward(context, gradient): x.atan(); note("atan"); return gradient
def differentiate(): Square.apply(torch.ones(2, requires_grad=True)).sum().backward()
def recurse(n):
    if n: return recurse(n - 1)
    x.erf(); note("erf")
def compare(a, b): x.ceil(); note("ceil"); return 0
def on_thread(argument): x.floor(); note("floor")
def in_child(): x.sign(); note("sign")
def raises():
    try: raise KeyError
    except KeyError: x.round(); note("round")

outer()
sorted([1], key=key)
list(map(functools.partial(of_partial, 1), [2]))
sum(1 for _ in items())
for i in range(100): Made(i == 99)
Net()(x)
differentiate()
recurse(300)
raises()
thread = threading.Thread(target=lambda: x.sqrt() is note("sqrt"))
thread.start()
thread.join()
libc = ctypes.CDLL(None)
libc.qsort((ctypes.c_int * 2)(), 2, 4, ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(compare))
begin, number = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(on_thread), ctypes.c_ulong()
libc.pthread_create(ctypes.byref(number), None, begin, None)
libc.pthread_join(number, None)
child = os.fork()
if child == 0:
    in_child()
    os._exit(0)
os.waitpid(child, 0)
"""


def noted(path):
    found = collections.defaultdict(list)
    for line in path.read_text().splitlines():
        operator, frames = json.loads(line)
        found[operator].append([tuple(frame) for frame in frames])
    return found


def python_functions(stack):
    found = [re.fullmatch(r"(.*/)?([^/]+\.py|<[^/]*>)\((\d+)\): (.*)", frame) for frame in stack]
    return [(m[2], int(m[3]), m[4]) for m in found if m]


def stacks_of(run, check_trace, operators):
    found = collections.defaultdict(list)
    for trace in run.traces():
        for e in check_trace(trace).spans("cpu_op"):
            if e["name"] in operators:
                found[e["name"]].append(e["args"]["stack"])
    return found


@pytest.fixture(scope="module")
def recorded(launcher, torch_python, tmp_path_factory):
    """The run, and what the program noted."""
    directory = tmp_path_factory.mktemp("native_python")
    (directory / "frames.py").write_text(PROGRAM)
    run = profile(launcher, directory / "run", [torch_python, directory / "frames.py", directory / "notes"],
                  options=["--native", "on"])
    assert run.status == 0, run.stderr
    return run, noted(directory / "notes")


def test_a_stack_has_the_functions_and_lines_that_the_program_finds(recorded, check_trace):
    run, expected = recorded
    found = stacks_of(run, check_trace, expected)
    assert len(expected) == 13
    for operator, frames in expected.items():
        assert {tuple(python_functions(stack)) for stack in found[operator]} == set(map(tuple, frames)), operator


def test_what_is_the_interpreters_and_the_bindings_is_folded(recorded, check_trace):
    run, expected = recorded
    for operator, found in stacks_of(run, check_trace, expected).items():
        for stack in found:
            outermost = stack[-1]
            assert python_functions([outermost]) or operator == "aten::floor", stack
            assert not [f for f in stack if re.match(r"_?Py[A-Z]|python3|pybind11::|c10::Dispatcher|at::RecordFunction", f)], stack
            assert stack[0].startswith(("at::", "libtorch_cpu")), stack


def test_native_functions_stand_between_those_of_python_that_they_call_and_that_call_them(recorded, check_trace):
    run, expected = recorded
    found = stacks_of(run, check_trace, expected)
    for operator, inner, between, outer in (("aten::ceil", "compare", "qsort", "<module>"),
                                            ("aten::atan", "backward", "torch::autograd::Engine::", "differentiate")):
        stack, = found[operator]
        names = [frame.rpartition(": ")[2] if python_functions([frame]) else frame for frame in stack]
        native = next(i for i, name in enumerate(names) if between in name)
        assert names.index(inner) < native < names.index(outer), stack


def test_all_frames_are_kept_where_all_are_wanted(recorded, torchprof, tmp_path, check_trace):
    run, expected = recorded
    done = torchprof("export", run.directory, "--format", "kineto", "--native-frames", "all", "-o", tmp_path / "all.json")
    assert done.returncode == 0, done.stderr
    by_name = collections.defaultdict(list)
    for e in check_trace(tmp_path / "all.json", merged=True).spans("cpu_op"):
        by_name[e["name"]].append(e["args"]["stack"])
    for operator in expected:
        assert {tuple(python_functions(stack)) for stack in by_name[operator]} == set(map(tuple, expected[operator]))
    stack, = by_name["aten::neg"]
    assert stack[0].startswith(("at::RecordFunction", "c10::Dispatcher", "libtorch_cpu")) and stack[-1] == "_start", stack
    # All three run in one interpreter loop, which is the caller of the outermost. The loop's cold part has no name.
    first = next(i for i, frame in enumerate(stack) if python_functions([frame]))
    assert len(python_functions(stack[first:first + 3])) == 3 and re.search("EvalFrame|python3", stack[first + 3]), stack
