"""Processes that Python libraries start: all are traced, each says what it is, and those of one rank stand together."""
import json
import re
import sys

import pytest

from conftest import torch_here

LOADS = """
import sys, torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.ones(2) * i

if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]): pass
"""
EPOCHS = """
import sys, torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        x = torch.ones(2)
        for _ in range(1000): x = x + 1
        return x

def train():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
            model(batch).sum().backward()
            optimizer.step()

if __name__ == "__main__":
    train()
"""
POOLS = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor

def works_in_a_pool(x): return x
def works_for_an_executor(x): return x

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(1) as pool: pool.map(works_in_a_pool, range(3))
    with ProcessPoolExecutor(1, mp_context=context) as executor: list(executor.map(works_for_an_executor, range(3)))
"""
DIES = """
import multiprocessing, os, sys

def dies(): os.kill(os.getpid(), 9)

if __name__ == "__main__":
    child = multiprocessing.get_context(sys.argv[1]).Process(target=dies, name="unmistakable")
    child.start()
    child.join()
"""
HELPERS = {"fork": [], "spawn": ["resource tracker"], "forkserver": ["fork server", "resource tracker"]}
PREFIX = {"fork": "Fork", "spawn": "Spawn", "forkserver": "ForkServer"}


def rows(merged):
    """(name, labels) of each process of a merged trace, from the top."""
    said = {}
    for e in merged.events:
        if e["ph"] == "M" and e["name"].startswith("process_") and e["pid"] != "Spans":
            said.setdefault(e["pid"], {}).update(e["args"])
    return [(row["name"], row["labels"]) for row in sorted(said.values(), key=lambda row: row["sort_index"])]


def processes(run):
    """{role: process as run.json has it}"""
    assert run.status == 0, run.stderr
    return {process.get("role", ""): process for process in json.loads((run.directory / "run.json").read_text())["processes"]}


@pytest.mark.parametrize("how", HELPERS)
def test_dataloader_workers_are_traced_and_named_by_their_number(how, run_torchprof, torch_python, program, check_trace):
    run = run_torchprof([torch_python, program(LOADS), how], options=["--python", "modules"])
    roles = processes(run)
    assert sorted(roles) == ["", "DataLoader worker 0", "DataLoader worker 1"]
    for number in (0, 1):
        trace = run.trace_of(roles["DataLoader worker %d" % number]["pid"])
        assert trace.names("cpu_op")["aten::mul"] == 4
    merged = rows(check_trace(run.merged_path, merged=True))
    assert merged[0][1] == "CPU" and all(name.startswith("%s (python3" % label.partition("CPU, ")[2]) for name, label in merged[1:])
    assert [label for _, label in merged if "DataLoader" in label] == ["CPU, DataLoader worker 0", "CPU, DataLoader worker 1"]
    assert re.search(r"^2 DataLoader workers: ", run.stderr, re.M), run.stderr


@pytest.mark.parametrize("how", ["fork", "forkserver"])
def test_the_work_of_workers_is_credited_to_what_they_do_and_they_are_counted_once(how, run_torchprof, torchprof, torch_python, program):
    run = run_torchprof([torch_python, program(EPOCHS), how], options=["--format", "none"])
    assert run.status == 0, run.stderr
    tables = {table["name"]: table["rows"] for table in json.loads(torchprof("report", run.directory, "-t", "advice,python", "--waits", "--json").stdout)["tables"]}
    loading, = [row for row in tables["advice"] if row["rule"] == "loading"]
    assert re.search(r"Of the work of its 2 workers \(4 in all, one after the other\) [\d.]+ % is in __getitem__[,.]", loading["evidence"]), loading
    assert "): __getitem__" in loading["where"]
    # The frames that a fork left in its children are none of what these do.
    by_name = {row["name"].rpartition(": ")[2]: row for row in tables["python"]}
    assert by_name["_worker_loop"]["calls"] == 4
    assert how != "fork" or by_name["_launch"]["total_ns"] < by_name["_worker_loop"]["total_ns"], by_name
    helpers = {re.sub(r"\(\d+\)", "", row["name"]): row["waits"] for row in tables["python"]}
    assert how != "forkserver" or helpers["multiprocessing/forkserver.py: read_signed"] == helpers["multiprocessing/resource_tracker.py: main"] == "yes", helpers


@pytest.mark.parametrize("how", HELPERS)
def test_workers_of_pools_are_traced_and_have_their_names(how, run_torchprof, program):
    run = run_torchprof([sys.executable, program(POOLS), how])
    roles = {re.sub(r"(Process|PoolWorker)-\d+$", r"\1", role): process for role, process in processes(run).items()}
    pool, executor = ("multiprocessing worker %s%s" % (PREFIX[how], kind) for kind in ("PoolWorker", "Process"))
    assert sorted(roles) == sorted(["", pool, executor, *HELPERS[how]])
    for role, function in ((pool, "works_in_a_pool"), (executor, "works_for_an_executor")):
        names = run.trace_of(roles[role]["pid"]).names("python_function")
        assert sum(n for name, n in names.items() if name.endswith("): " + function)) == 3, role
    assert re.search(r"^ +\d+ +%s-\d+ " % pool, (run.directory / "summary.txt").read_text(), re.M)


@pytest.mark.parametrize("how", HELPERS)
def test_a_worker_that_is_killed_keeps_its_name(how, run_torchprof, program):
    run = run_torchprof([sys.executable, program(DIES), how])
    assert "multiprocessing worker unmistakable" in processes(run)


COMPILES = """
import torch
from torch._inductor.async_compile import AsyncCompile

def f(x): return torch.nn.functional.gelu(x).softmax(-1).sum()

if __name__ == "__main__":
    print(AsyncCompile.process_pool().submit(abs, -1).result())
    x = torch.linspace(-1, 1, 64).reshape(8, 8)
    print(torch.compile(f)(x).item(), f(x).item(), flush=True)
"""


def test_torch_compile_has_its_compiler_and_its_workers(torch_python, run_torchprof, run_bare, program, tmp_path):
    if torch_here()[0] < (2, 0):
        pytest.skip("there is no torch.compile before torch 2")
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": 2, "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": 0}
    command = [torch_python, program(COMPILES)]
    bare = run_bare(command, env={**environment, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "bare"})
    assert bare.returncode == 0, bare.stderr.decode()
    run = run_torchprof(command, env={**environment, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "ours"}, options=["--python", "modules"])
    assert run.stdout_bytes == bare.stdout, run.stderr
    roles = processes(run)
    # Of the compiler and what it starts nothing is left behind; the helper that only forks the workers may have nothing to show.
    kinds = {re.sub(r"-\d+$", "", role) for role in roles}
    assert {"", "compile worker ForkProcess"} <= kinds <= {"", "compile worker ForkProcess", "compile worker"}
    info = json.loads((run.directory / "run.json").read_text())
    # On a busy machine torch's compiler outlives the program by more than we wait for it.
    assert info["untraced"] == [] and {left["role"] for left in info["still_running"]} <= {"compile worker"}, info
    said = "the raw records stay in" in run.stderr
    # Not the other way round: it may end between the look at what runs and the look at the spools.
    assert info["still_running"] or not said, run.stderr
    assert run.trace_of(roles[""]["pid"]).names("cpu_op")["aten::gelu"] > 0
