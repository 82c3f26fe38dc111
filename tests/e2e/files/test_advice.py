"""What `torchprof report -t advice` finds: each rule in a program that wastes its time so, and not in one that does not."""
import collections
import json
import re

import pytest

from simulated_runs import run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

# Large tensors: on a busy machine what a step is kept waiting is then shared by all that it does.
STEPS = """
import sys, time, torch
weights = [torch.nn.Parameter(torch.ones(1 << 21)) for _ in range(4)]
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
def training():
    if %d:
        for _ in torch.utils.data.DataLoader(Slow()): step()
    else:
        for _ in range(12):
            time.sleep(0.05)
            step()
training()
"""
WORKERS = STEPS % True + """
class Quick(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return i
def training():
    loader = torch.utils.data.DataLoader(Quick(), num_workers=1, persistent_workers=True)
    for _ in range(6):
        if %d: loader = torch.utils.data.DataLoader(Quick(), num_workers=1)
        for _ in loader: step()
training()
"""
# What the host does takes next to nothing: a busy machine makes it take many times as long.
GPU = "from simulated_gpu import sim\nsim.simInit(1)\n" + STEPS.replace("1 << 21", "1 << 4") % True + """
def wasteful():
    pass
    %s
for _ in range(12):
    wasteful()
    step()
"""
RANKS = """
import os, subprocess, sys, time
if len(sys.argv) == 1:
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank)]) for rank in range(2)]
    sys.exit(sum(rank.wait() for rank in ranks))
import torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=rank, world_size=2)
x = torch.ones(4)
def exchange():
    dist.all_reduce(x)
for i in range(20):
    if rank == %s: time.sleep(0.05)
    exchange()
dist.barrier()
dist.destroy_process_group()
"""


def line_of(text, words, function, before=0):
    """What a place is called: the file that the fixture `program` writes, the line so many before the one with these words, its function."""
    number, = [n - before for n, line in enumerate(text.splitlines(), 1) if words in line]
    return r"program\.py\(%d\): %s$" % (number, function)


def findings(torchprof, run):
    done = torchprof("report", run.directory, "-t", "advice", "--json")
    assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
    table, = json.loads(done.stdout)["tables"]
    found = collections.defaultdict(list)
    for row in table["rows"]:
        found[row["rule"]].append(row)
    return dict(found)


def the_one(rows, where):
    """Of the places that a rule found. On a busy machine it may find another one beside that which was planted, and which of them costs most is up to it."""
    there = [row for row in rows if re.search(where, row["where"])]
    assert len(there) == 1, (where, rows)
    return there[0]


@pytest.mark.parametrize("waits", [True, False])
def test_loading(waits, torchprof, run_torchprof, torch_python, program):
    run = run_torchprof([torch_python, program(LOADS % waits)])
    found = findings(torchprof, run)
    assert ("loading" in found) == waits
    if waits:
        row = the_one(found["loading"], line_of(LOADS, "    return i", "__getitem__", before=1))
        assert "DataLoader" in row["finding"] and row["share_percent"] > 10


@pytest.mark.parametrize("anew", [True, False])
def test_workers_of_a_loader_that_are_started_anew_are_the_cause(anew, torchprof, run_torchprof, torch_python, program):
    text = WORKERS % anew
    rows = findings(torchprof, run_torchprof([torch_python, program(text)])).get("loading", [])
    assert any("anew" in row["finding"] for row in rows) == anew
    if anew:
        assert "persistent_workers" in the_one(rows, line_of(text, "for _ in loader", "training"))["todo"]


@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad(to_none, torchprof, run_torchprof, torch_python, program):
    text = STEPS % to_none + "def training():\n    for _ in range(60): step()\ntraining()"
    found = findings(torchprof, run_torchprof([torch_python, program(text)]))
    assert ("zero_grad" in found) == (not to_none)
    if not to_none:
        row = the_one(found["zero_grad"], line_of(text, "zero_grad", "step"))  # not the optimizer's own function
        assert "set_to_none" in row["todo"]


def launches(kernel, times, us):
    return "for _ in range(%d): sim.simLaunch(b'%s', 7, %d)" % (times, kernel, us * 1000)


WASTES = {  # rule: what triggers it, what must not, settings of the simulation
    # The host could sleep while the GPU works.
    "sync": ("sim.simLaunch(b'_Z1kv', 7, 30000000); sim.simDeviceSynchronize(); time.sleep(0.03)", "sim.simLaunch(b'_Z1kv', 7, 30000000); time.sleep(0.03)", ""),
    "pageable": ("sim.simMemcpy(1, 50000000, 7)", "sim.simMemcpy(8, 50000000, 7)", "pageable=1"),
    "host bound": ("sim.simLaunch(b'_Z1kv', 7, 1000); time.sleep(0.1)", "sim.simStreamSynchronize(7); sim.simLaunch(b'_Z1kv', 7, 300000000)", ""),
    "tiny kernels": (launches("_Z3addv", 800, 9), launches("_Z3addv", 80, 90), ""),
    "autocast": (launches("ampere_sgemm_128x64_tn", 20, 1000), launches("ampere_s1688gemm_128x64_tn", 20, 1000), ""),
    "layout": (launches("_ZN5cudnn3ops16nchwToNhwcKernelIfEEvv", 20, 1000), launches("_ZN5cudnn3ops10convKernelIfEEvv", 20, 1000), ""),
}


@pytest.mark.parametrize("rule", WASTES)
def test_waste_of_a_gpu(rule, torchprof, run_simulated):  # noqa: F811
    wasteful, careful, sim = WASTES[rule]
    found, spared = (findings(torchprof, run_simulated(GPU % line, sim=sim)[0]) for line in (wasteful, careful))
    assert rule in found and rule not in spared, (found, spared)
    assert the_one(found[rule], r"program\.py\(\d+\): (wasteful|<module>)$")["share_percent"] > 0


def test_the_line_is_named_where_calls_are_recorded(torchprof, run_simulated):  # noqa: F811
    text = GPU % "sim.simLaunch(b'_Z1kv', 7, 20000000)\n    next(map(sim.simStreamSynchronize, [7]))\n    time.sleep(0.02)"
    found = findings(torchprof, run_simulated(text, options=["--python", "calls"])[0])
    the_one(found["sync"], line_of(text, "next(map", "wasteful"))


def test_the_line_is_named_where_native_stacks_are_recorded(torchprof, run_torchprof, torch_python, program):
    text = STEPS % False + "for _ in range(60): step()"
    run = run_torchprof([torch_python, program(text)], options=["--native", "on"])
    the_one(findings(torchprof, run)["zero_grad"], line_of(text, "zero_grad", "step"))


@pytest.mark.parametrize("slow, is_found", [("1", True), ("i % 2", False)])
def test_slow_rank(slow, is_found, torchprof, run_torchprof, torch_python, program, tmp_path):
    run = run_torchprof([torch_python, program(RANKS % slow)], cwd=tmp_path)
    found = findings(torchprof, run)
    assert ("slow rank" in found) == is_found
    if is_found:
        row = the_one(found["slow rank"], r"program\.py\(\d+\): (<module>|exchange)$")
        assert "rank 1" in row["finding"] and "more than they" in row["evidence"]


def test_advice_is_text_for_people_and_of_trace_files_too(torchprof, run_torchprof, torch_python, program):
    run = run_torchprof([torch_python, program(STEPS % False + "for _ in range(60): step()")])
    done = torchprof("report", run.directory, "-t", "advice")
    assert done.returncode == 0 and "Advice: a step takes " in done.stdout and "zero_grad" in done.stdout
    done = torchprof("report", run.trace_paths[0], "-t", "advice")
    assert done.returncode == 0 and "Advice: a step takes " in done.stdout and "zero_grad" in done.stdout


def test_a_program_of_python_alone_has_nothing_to_gain_but_what_it_waits_for(torchprof, run_torchprof, torch_python, program):
    """That it prepares data in Python is its work: nothing tells that it could do less. A wait is told from work by the sampler's looks."""
    text = """
import sys, time, torch
def words(n):
    for i in range(n): yield " ".join(chr(97 + (i * k & 15)) * (1 + (k & 3)) for k in range(90))
def prepare(line):
    %s
    return [word.upper() for word in line.split()]
until = time.monotonic() + 1.5
for line in words(10**9):
    prepare(line)
    if time.monotonic() > until: break
"""
    works, waits = (run_torchprof([torch_python, program(text % line)], options=["--sample", "200"]) for line in ("pass", "time.sleep(0.002)"))
    assert not findings(torchprof, works)
    assert "no findings; " in works.stderr
    the_one(findings(torchprof, waits)["waiting"], line_of(text % "time.sleep(0.002)", "sleep(0", "prepare"))
