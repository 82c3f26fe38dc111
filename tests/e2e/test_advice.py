"""What `torchprof report -t advice` finds: each rule in a program that wastes its time so, and not in one that does not."""
import json

import pytest

from test_gpu import run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

STEPS = """
import sys, time, torch
weights = [torch.nn.Parameter(torch.ones(1 << 18)) for _ in range(4)]
optimizer = torch.optim.SGD(weights, lr=0.1)
def step():
    sum(w.sum() for w in weights).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=%s)
"""
LOADS = STEPS % True + """
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        time.sleep(0.05)
        return i
if %d:
    for _ in torch.utils.data.DataLoader(Slow()): step()
else:
    for _ in range(12):
        time.sleep(0.05)
        step()
"""
GPU = "from simulated_gpu import sim\nsim.simInit(1)\n" + STEPS % True + "for _ in range(12):\n    %s\n    step()\n"
RANKS = """
import os, subprocess, sys, time
if len(sys.argv) == 1:
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank)]) for rank in range(2)]
    sys.exit(sum(rank.wait() for rank in ranks))
import torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=rank, world_size=2)
x = torch.ones(4)
for i in range(20):
    if rank == %s: time.sleep(0.05)
    dist.all_reduce(x)
dist.barrier()
dist.destroy_process_group()
"""


def findings(torchprof, run):
    done = torchprof("report", run.directory, "-t", "advice", "--json")
    assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
    table, = json.loads(done.stdout)["tables"]
    return {row["rule"]: row for row in table["rows"]}


@pytest.mark.parametrize("waits", [True, False])
def test_loading(waits, torchprof, run_torchprof, torch_python, program):
    run = run_torchprof([torch_python, program(LOADS % waits)], options=["--keep-spool"])
    found = findings(torchprof, run)
    assert ("loading" in found) == waits
    assert not waits or "DataLoader" in found["loading"]["finding"] and found["loading"]["share_percent"] > 10


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad(to_none, torchprof, run_torchprof, torch_python, program):
    text = STEPS % to_none + "def training():\n    for _ in range(12): step()\ntraining()"
    found = findings(torchprof, run_torchprof([torch_python, program(text)], options=["--keep-spool"]))
    assert ("zero_grad" in found) == (not to_none)
    assert to_none or "set_to_none" in found["zero_grad"]["finding"] and "zero_grad" in found["zero_grad"]["where"]


WASTES = {
    "sync": ("sim.simLaunch(b'_Z1kv', 7, 2000000); sim.simDeviceSynchronize()", "sim.simLaunch(b'_Z1kv', 7, 2000000)", ""),
    "pageable": ("sim.simMemcpy(1, 50000000, 7)", "sim.simMemcpy(8, 50000000, 7)", "pageable=1"),
    "host bound": ("sim.simLaunch(b'_Z1kv', 7, 1000); time.sleep(0.03)", "sim.simLaunch(b'_Z1kv', 7, 300000000); sim.simStreamSynchronize(7)", ""),
}


@pytest.mark.parametrize("rule", WASTES)
def test_waste_of_a_gpu(rule, torchprof, run_simulated):  # noqa: F811
    wasteful, careful, sim = WASTES[rule]
    found, spared = (findings(torchprof, run_simulated(GPU % line, sim=sim)[0]) for line in (wasteful, careful))
    assert rule in found and rule not in spared, (found, spared)
    assert found[rule]["share_percent"] > 0


@pytest.mark.parametrize("slow, is_found", [("1", True), ("i % 2", False)])
def test_slow_rank(slow, is_found, torchprof, run_torchprof, torch_python, program, tmp_path):
    run = run_torchprof([torch_python, program(RANKS % slow)], options=["--keep-spool"], cwd=tmp_path)
    found = findings(torchprof, run)
    assert ("slow rank" in found) == is_found
    assert not is_found or "rank 1" in found["slow rank"]["finding"]


def test_advice_is_text_for_people_and_wants_raw_records(torchprof, run_torchprof, torch_python, program):
    run = run_torchprof([torch_python, program(STEPS % False + "for _ in range(12): step()")], options=["--keep-spool"])
    done = torchprof("report", run.directory, "-t", "advice")
    assert done.returncode == 0 and "Advice\n" in done.stdout and "zero_grad" in done.stdout
    done = torchprof("report", run.trace_paths[0], "-t", "advice")
    assert done.returncode == 125 and "wants the raw records" in done.stderr
