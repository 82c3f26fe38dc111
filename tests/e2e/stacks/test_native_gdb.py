"""Native stacks are those that gdb finds at the same place: names and order."""
import re
import shutil
import subprocess

import pytest

from conftest import PATIENCE, clean_environment

pytestmark = pytest.mark.once

COMPARED = 20  # stacks of a program, those that it takes first
PROGRAMS = {
    "C++": ["/usr/lib/libtorch-test/basic", "--gtest_filter=BasicTest.BasicTestCPU"],
    "Python": ["PYTHON", "-c", """if 1:
        import torch
        def inner(x): return x.neg()
        def items(x): yield inner(x)
        class Module(torch.nn.Module):
            def forward(self, x): return torch.nn.functional.softmax(x, 0)
        x = torch.ones(3)
        inner(x)
        sorted([1, 2], key=lambda n: x.abs() is n)
        list(items(x))
        Module()(x)
        x.tolist()"""],
    "Python called from C": ["PYTHON", "-c", """if 1:
        import ctypes, torch
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(context, x): return x.clone()
            @staticmethod
            def backward(context, gradient): return gradient.neg()
        Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        numbers = (ctypes.c_int * 2)(2, 1)
        ctypes.CDLL(None).qsort(numbers, 2, 4, Compare(lambda a, b: int(torch.ones(1).item())))
        Square.apply(torch.ones(1, requires_grad=True)).backward()"""],
}


def short(name):
    """gdb has the names without their arguments where it knows these as values, and tells no template's."""
    return re.sub(r"[<(@].*", "", name.replace("(anonymous namespace)", "anonymous")).split(" ")[-1]


def of_gdb(command, library, output, level):
    """One list for each time that a stack is taken, from the frame that calls the recorder on: None for a frame without a name."""
    script = ["set breakpoint pending on", "set debuginfod enabled off", "set print frame-arguments none", "set backtrace past-main on",
              "set environment LD_PRELOAD %s" % library, "set environment TORCHPROF_OUTPUT %s" % output,
              "set environment TORCHPROF_NATIVE on", "set environment TORCHPROF_PYTHON %s" % level, "break torchprof::native::take_stack", "run",
              *["backtrace", "continue"] * COMPARED, "kill"]
    done = subprocess.run([shutil.which("gdb"), "-nx", "-batch", *(a for line in script for a in ("-ex", line)), "--args", *command],
                          capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
    stacks = []
    for number, frame in re.findall(r"^#(\d+) +(?:0x[0-9a-f]+ in )?(.*?) \(.*$", done.stdout, flags=re.M):
        if number == "0":
            stacks.append([])
        if stacks[-1] or not frame.startswith("torchprof::"):
            stacks[-1].append(None if frame == "??" else short(frame))
    assert stacks, done.stdout[-3000:] + done.stderr[-3000:]
    return stacks


@pytest.mark.parametrize("program, level", [("C++", "off"), *((program, level) for program in ("Python", "Python called from C") for level in ("off", "functions"))])
def test_stacks_are_those_that_gdb_finds(program, level, run_torchprof, prefix, tmp_path, torch_python):
    assert shutil.which("gdb"), "gdb is missing: apt-get install gdb"
    command = [torch_python if a == "PYTHON" else a for a in PROGRAMS[program]]
    run = run_torchprof(command, options=["--native", "on", "--native-frames", "all", "--python", level])
    assert run.status == 0, run.stderr
    operators = sorted(run.trace().spans("cpu_op"), key=lambda e: e["ts"])[:COMPARED]
    theirs = of_gdb(command, prefix / "lib" / "torchprof" / "libtorchprof.so", tmp_path, level)
    assert len(operators) == len(theirs)
    for event, expected in zip(operators, theirs):
        stack = [frame for frame in event["args"]["stack"] if not re.search(r"\(\d+\): ", frame)]  # without Python's
        assert (len(stack) < len(event["args"]["stack"])) == (level == "functions")
        ours = [None if re.search(r"\+0x[0-9a-f]+$", name) else short(name) for name in stack]
        assert len(ours) == len(expected), (event["name"], ours, expected)
        named = [(a, b) for a, b in zip(ours, expected) if a and b]
        assert len(named) >= 5 and [a for a, _ in named] == [b for _, b in named], (event["name"], list(zip(ours, expected)))
    different = {tuple(event["args"]["stack"]) for event in operators}
    assert len(different) >= 8, different
