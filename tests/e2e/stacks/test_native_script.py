"""Functions of TorchScript in native stacks, with the lines that they run."""
import collections
import json
import re
import subprocess

import pytest

from conftest import PATIENCE, profile, torch_here

# Scripted functions are called until torch has optimised them; after that their optimised graphs run.
PROGRAM = """
import sys, torch

@torch.jit.script
def innermost(x):
    return torch.atan(x)

@torch.jit.script
def inner(x):
    y = torch.neg(x)
    return innermost(
        y)

@torch.jit.script
def outer(x, n: int):
    for i in range(n):
        if i > 0:
            x = inner(x)
    return torch.sin(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return torch.tanh(self.layer(x))

@torch.jit.script
def allocate(n: int):
    return torch.zeros(n)

net = torch.jit.script(Net())

def work():
    for i in range(4):
        outer(torch.ones(2), 2)
        net(torch.ones(1, 2)).sum().backward()
    allocate(1 << 20)

def main():
    if len(sys.argv) == 1:
        return work()
    with torch.profiler.profile(with_stack=True) as p:
        work()
    p.export_chrome_trace(sys.argv[1])

main()
"""
BINDINGS = re.compile(r"torch::jit::(?:runAndInsertCall\(|invokeScriptMethodFromPython|initJitScriptBindings\()")
OPERATORS = ("atan", "sin", "tanh", "addmm")


def lines(stack):
    """Of TorchScript and Python: the base name of the file, the line and the function."""
    found = [re.fullmatch(r"(?:.*/)?([^/]+\.py|<[^/]*>)\((\d+)\): (.*)", frame) for frame in stack]
    return [(m[1], int(m[2]), m[3]) for m in found if m]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("native_script") / "script.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def recorded(launcher, torch_python, program):
    run = profile(launcher, program.with_name("run"), [torch_python, program], options=["--native", "on"])
    assert run.status == 0 and "TorchScript" not in run.stderr, run.stderr
    return run


@pytest.fixture
def stacks(recorded, check_trace):
    found = collections.defaultdict(list)
    for e in check_trace(recorded.trace()).spans("cpu_op"):
        found[e["name"]].append(e["args"]["stack"])
    return found


def line_of(text):
    return 1 + next(i for i, line in enumerate(PROGRAM.splitlines()) if text in line)


def test_functions_of_torchscript_stand_with_their_lines_inside_of_those_of_python_that_call_them(stacks):
    work = [("script.py", line_of("outer(torch.ones"), "work"), ("script.py", line_of("return work()"), "main")]
    for stack in stacks["aten::atan"]:
        assert lines(stack)[:5] == [("script.py", line_of("torch.atan"), "innermost"), ("script.py", line_of("return innermost("), "inner"),
                                    ("script.py", line_of("x = inner(x)"), "outer"), *work], stack
    for stack in stacks["aten::sin"]:
        assert lines(stack)[:3] == [("script.py", line_of("torch.sin"), "outer"), *work], stack
    # Later torches fuse what has been called twice.
    assert stacks["aten::atan"] and stacks["aten::sin"]


def test_operators_stand_inside_and_the_interpreter_nowhere(stacks):
    for operator in OPERATORS:
        for stack in stacks["aten::" + operator]:
            script = stack.index(next(frame for frame in stack if lines([frame])))
            # The functions of Python follow those of TorchScript, with nothing between them but torch's bindings, where those have names (PyPI's torch).
            rest = [frame for frame in stack[script:] if not BINDINGS.match(frame)]
            assert len(lines(rest)) == len(rest), stack


def test_an_allocation_in_torchscript_has_them_too(recorded, check_trace):
    stack, = (e["args"]["stack"] for e in check_trace(recorded.trace()).events
              if e["name"] == "[memory]" and e["args"]["Bytes"] == 4 << 20)
    assert lines(stack)[0] == ("script.py", line_of("torch.zeros"), "allocate"), stack


def test_all_formats_have_them(recorded, torchprof, tmp_path):
    for form in ("stacks", "speedscope"):
        done = torchprof("export", recorded.directory, "--format", form, "-o", tmp_path / form)
        assert done.returncode == 0, done.stderr
        assert re.search(r"script\.py\(%d\):[ _]innermost" % line_of("torch.atan"), (tmp_path / form).read_text())


def test_they_are_those_of_torch_profiler(stacks, torch_python, program, tmp_path):
    if torch_here()[0] in ((1, 13), (2, 6)):
        pytest.skip("Debian's torch 1.13 is built without Kineto, its 2.6 crashes in with_stack")
    subprocess.run([torch_python, program, tmp_path / "theirs.json"], check=True, timeout=PATIENCE)
    theirs = collections.defaultdict(list)
    for e in json.loads((tmp_path / "theirs.json").read_text())["traceEvents"]:
        if "Call stack" in e.get("args", {}):
            theirs[e["name"]].append(lines(e["args"]["Call stack"].split(";")))
    for operator in OPERATORS:
        # After optimising graphs torch mixes up the operators' sources (2.14).
        ours, expected = lines(stacks["aten::" + operator][0]), theirs["aten::" + operator][0]
        assert expected and ours[:len(expected)] == expected, operator
