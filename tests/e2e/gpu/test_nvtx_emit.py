"""--nvtx emit: operators as NVTX ranges of another tool, with the very text of torch.autograd.profiler.emit_nvtx."""
import re
import subprocess

import pytest

from conftest import ROOT

TRAINING = """
import torch
a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3, 2)
def step():
    c = a @ b
    d = torch.cat([c, c], 1)
    with torch.autograd.profiler.record_function("mine"):
        d.sum().backward()
"""

# torch without CUDA has no NVTX of its own: it is given one, by the table of functions in which CUDA builds register theirs
# (ProfilerStubs in torch/csrc/profiler/stubs/base.h, 1.13 to 2.14: record, elapsed, mark, rangePush, rangePop, enabled, onEachDevice,
# synchronize, two destructors).
THEIRS = TRAINING + """
import ctypes, glob, os, sys
torch.cuda.synchronize = lambda *args: None
library = next(line.split()[-1] for line in open("/proc/self/maps") if "/libtorch_cpu" in line)
lines = []
push = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)(lambda self, text: lines.append("push " + text.decode()))
pop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda self: lines.append("pop"))
enabled = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda self: True)
nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda self: None)
table = (ctypes.c_void_p * 10)(*[ctypes.cast(f, ctypes.c_void_p) for f in [nothing, nothing, nothing, push, pop, enabled] + [nothing] * 4])
stubs = ctypes.c_void_p(ctypes.addressof(table))
getattr(ctypes.CDLL(library), "_ZN5torch8profiler4impl19registerCUDAMethodsEPNS1_13ProfilerStubsE")(ctypes.byref(stubs))
with torch.autograd.profiler.emit_nvtx(record_shapes=%s):
    step()
print("\\n".join(lines))
"""


@pytest.fixture
def listener(tmp_path):
    """What a tool in NVTX_INJECTION64_PATH is told: the environment of a run, and afterwards its lines without their thread."""
    library, file = tmp_path / "listener.so", tmp_path / "told"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, ROOT / "tests" / "nvtx" / "listener.c"], check=True)
    return ({"NVTX_INJECTION64_PATH": library, "LISTENER_FILE": file},
            lambda: [line.partition(" ")[2] for line in file.read_text().splitlines()] if file.exists() else [])


@pytest.mark.parametrize("shapes", ["on", "off"])
def test_the_text_is_that_of_emit_nvtx(shapes, torch_python, listener, program, run_torchprof):
    env, told = listener
    done = run_torchprof([torch_python, program(THEIRS % (shapes == "on"))], options=["--nvtx", "emit", "--shapes", shapes], env=env)
    assert done.status == 0, done.stderr
    theirs = [re.sub(r", input_op_ids = .*", "", line) for line in done.stdout.splitlines()]
    assert any(line.startswith("push MmBackward0, seq = ") for line in theirs) and any(line.startswith("push mine, op_id") for line in theirs)
    assert any("sizes = [[2, 2], [2, 2], []]" in line for line in theirs) == (shapes == "on")
    ours = told()
    begin = ours.index(theirs[0])
    assert ours[begin:begin + len(theirs)] == theirs


def test_pushes_and_pops_agree_on_every_thread_and_lie_in_windows_alone(torch_python, listener, program, run_torchprof):
    env, told = listener
    text = TRAINING + """
from torch.autograd.profiler import record_function
import threading
step()
with record_function("window"):
    threads = [threading.Thread(target=step) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
torch.ones(1) + torch.ones(1)
"""
    done = run_torchprof([torch_python, program(text)], options=["--nvtx", "emit", "-w", "range=window"], env=env)
    assert done.status == 0, done.stderr
    lines = told()
    assert lines.count("pop") == len(lines) - lines.count("pop") > 0
    assert sum(line.startswith("push aten::cat") for line in lines) == 3 and not any("aten::add," in line for line in lines[-4:])


def test_where_nobody_listens_one_line_says_so(torch_python, program, run_torchprof):
    done = run_torchprof([torch_python, program(TRAINING + "step(); step()")], options=["--nvtx", "emit"])
    assert done.status == 0 and done.stderr.count("--nvtx emit: nobody listens") == 1


def test_without_emit_the_tool_is_told_nothing(torch_python, listener, program, run_torchprof):
    env, told = listener
    assert run_torchprof([torch_python, program(TRAINING + "step()")], env=env).status == 0 and told() == []
