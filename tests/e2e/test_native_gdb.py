"""Native stacks are those that gdb finds at the same place: names and order."""
import re
import shutil
import subprocess

import pytest

from conftest import clean_environment

pytestmark = pytest.mark.once

PROGRAMS = {
    "C++": ["/usr/lib/libtorch-test/basic", "--gtest_filter=BasicTest.BasicTestCPU"],
    "Python": ["PYTHON", "-c", "import torch; torch.ones(3)"],
    "Python called from C": ["PYTHON", "-c", """if 1:
        import ctypes, torch
        Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        numbers = (ctypes.c_int * 2)(2, 1)
        ctypes.CDLL(None).qsort(numbers, 2, 4, Compare(lambda a, b: int(torch.ones(1).item())))"""],
}


def short(name):
    """gdb has the names without their arguments where it knows these as values, and tells no template's."""
    return re.sub(r"[<(@].*", "", name.replace("(anonymous namespace)", "anonymous")).split(" ")[-1]


def of_gdb(command, library, output, level):
    """From the frame that calls the recorder on: None for one without a name."""
    script = ["set breakpoint pending on", "set debuginfod enabled off", "set print frame-arguments none", "set backtrace past-main on",
              "set environment LD_PRELOAD %s" % library, "set environment TORCHPROF_OUTPUT %s" % output,
              "set environment TORCHPROF_NATIVE on", "set environment TORCHPROF_PYTHON %s" % level, "break torchprof::native::take_stack", "run", "backtrace", "kill"]
    done = subprocess.run([shutil.which("gdb"), "-nx", "-batch", *(a for line in script for a in ("-ex", line)), "--args", *command],
                          capture_output=True, text=True, env=clean_environment(), timeout=300)
    frames = re.findall(r"^#\d+ +(?:0x[0-9a-f]+ in )?(.*?) \(.*$", done.stdout, flags=re.M)
    assert frames, done.stdout[-3000:] + done.stderr[-3000:]
    while frames[0].startswith("torchprof::"):
        frames.pop(0)
    return [None if name == "??" else short(name) for name in frames]


@pytest.mark.parametrize("level", ["off", "functions"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_first_stack_is_the_one_that_gdb_finds(program, level, run_torchprof, prefix, tmp_path, torch_python):
    assert shutil.which("gdb"), "gdb is missing: apt-get install gdb"
    command = [torch_python if a == "PYTHON" else a for a in PROGRAMS[program]]
    run = run_torchprof(command, options=["--native", "on", "--native-frames", "all", "--python", level])
    assert run.status == 0, run.stderr
    first = min(run.trace().spans("cpu_op"), key=lambda e: e["ts"])
    stack = [frame for frame in first["args"]["stack"] if not re.search(r"\(\d+\): ", frame)]  # without Python's
    assert (len(stack) < len(first["args"]["stack"])) == (level == "functions" and program != "C++")
    ours = [None if re.search(r"\+0x[0-9a-f]+$", name) else short(name) for name in stack]
    theirs = of_gdb(command, prefix / "lib" / "torchprof" / "libtorchprof.so", tmp_path, level)
    assert len(ours) == len(theirs)
    named = [(a, b) for a, b in zip(ours, theirs) if a and b]
    assert len(named) >= 5 and [a for a, _ in named] == [b for _, b in named], list(zip(ours, theirs))
