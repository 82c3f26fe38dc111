"""Programs that hang on a GPU, and what `torchprof where` says of them: while they run, and after kill -9."""
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import PATIENCE, SUPPORT, clean_environment
from simulated_runs import SIM

pytestmark = pytest.mark.once

SPINS = """
import torch, time
from simulated_gpu import sim
class Head(torch.nn.Module):
    def forward(self, x):
        sim.simLaunch(b"_Z11spin_kernell", 7, 10 ** 12)
        return x * 2
class Net(torch.nn.Module):
    def __init__(self): super().__init__(); self.head = Head()
    def forward(self, x): return self.head(x)
def waits():
    print("ready\\n", end="", flush=True)
    time.sleep(1000)
def train():
    for n in range(20): sim.simLaunch(b"_Z5quickv", 7, 1000)
    sim.simDeviceSynchronize()
    Net()(torch.ones(4))
    for n in range(5): sim.simLaunch(b"_Z6behindv", 7, 1000)
    for n in range(3): sim.simLaunch(b"_Z5otherv", 9, 1000)
    waits()
sim.simInit(1)
train()
"""
ENDS_LATE = """
import torch, time
from torch.autograd.profiler import record_function
from simulated_gpu import sim
sim.simInit(1)
with record_function("on"):
    sim.simLaunch(b"_Z5quickv", 7, 1000)
    sim.simLaunch(b"_Z4slowv", 7, 5 * 10 ** 9)
print("ready\\n", end="", flush=True)
sim.simDeviceSynchronize()
print("ready\\n", end="", flush=True)
time.sleep(1000)
"""
RANK = """
import os, time, torch
from simulated_gpu import sim
from param_comms import collective
rank = int(os.environ["RANK"])
sim.simInit(1)
def does_not_come():
    print("ready\\n", end="", flush=True)
    time.sleep(1000)
def step(n):
    with collective("allreduce", 12, 12, rank=rank):
        sim.simLaunch(b"ncclDevKernel_AllReduce_Sum_f32_RING_LL", 7, 1000 if n < 2 else 10 ** 12)
for n in range(3):
    if (rank, n) == (1, 2): does_not_come()
    step(n)
does_not_come()
"""


@pytest.fixture
def hanging(launcher, torch_python, program, tmp_path, torchprof):
    """Starts a command that hangs, and waits until `where` shows what it is to show; gives its run directory, what `where` says, and kill(), after which it says it again."""
    started = []

    def hang(command, lines, until, options=(), and_not=()):
        env = clean_environment({"SIM": SIM, "PYTHONPATH": SUPPORT, "CUPTI_SIM_VERSION": "13.0"})
        run = subprocess.Popen([launcher, "run", "-o", tmp_path / "run", "--discard", *options, "--", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=tmp_path, env=env, start_new_session=True)
        started.append(run)
        for _ in range(lines):
            assert run.stdout.readline() == "ready\n"
        deadline, said = time.monotonic() + PATIENCE, ""
        while (any(part not in said for part in until) or any(part in said for part in and_not)) and time.monotonic() < deadline:
            time.sleep(0.1)
            said = torchprof("where", tmp_path / "run").stdout

        def kill():
            pids = [int(pid) for pid in re.findall(r"^process (\d+)", said, re.M)]
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    os.kill(pid, number)
            run.communicate(timeout=PATIENCE)
            assert not list((tmp_path / "run").rglob("*.spool"))
            return torchprof("where", tmp_path / "run").stdout
        return said, kill
    yield hang
    for run in started:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def test_a_kernel_that_does_not_end_is_named_with_who_launched_it(hanging, torch_python, program):
    said, kill = hanging([torch_python, program(SPINS)], 1, ["spin_kernel"])
    for text, ending in ((said, "not ended for"), (kill(), "had not ended after")):
        stuck = re.search(r"^  GPU 0, stream 7: spin_kernel, %s (?!0.0 ms)\d.*; 5 or more wait behind it\n    launched by thread \d+ in\n((?:      .*\n)+)" % ending, text, re.M)
        assert stuck, text
        names = stuck[1]
        at = [names.find(part) for part in ("train", "nn.Module: Net_0", "nn.Module: Head_0", "forward")]
        assert -1 not in at and at[:3] == sorted(at[:3]), names
        assert "stream 9" not in text  # what ran there has ended


def test_a_collective_that_one_rank_never_enters_is_named_with_that_rank(hanging, torch_python, program):
    each = "for r in 0 1; do RANK=$r WORLD_SIZE=2 %s %s & done; wait" % (torch_python, program(RANK))
    said, kill = hanging(["bash", "-c", each], 2, ["nccl AllReduce", "\ncollective "])
    for text in (said, kill()):
        assert re.search(r"^collective allreduce, number 2.*: begun by rank 0; not yet by rank 1, which is at number 1$", text, re.M), text
        assert "nccl AllReduce sum fp32 ring LL" in text and re.search(r"^    collective allreduce", text, re.M), text
        assert "does_not_come" in text


def test_what_ends_long_after_its_window_is_not_stuck_and_is_recorded(hanging, torch_python, program, load_trace, tmp_path):
    said, kill = hanging([torch_python, program(ENDS_LATE)], 2, ["process "], options=["-w", "range=on"], and_not=["slow"])
    assert "slow" not in said, said
    assert "slow" not in kill()
    trace, = (tmp_path / "run").glob("*.json.gz")
    assert load_trace(trace).names("kernel") == {"quick()": 1, "slow()": 1}
