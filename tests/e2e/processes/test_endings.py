"""How the processes that Python libraries start have ended: what they always do is no death, and what has failed stands out."""
import json
import re
import sys

import pytest

from conftest import profile

METHODS = ["fork", "spawn", "forkserver"]
WAYS = """
import multiprocessing, os, signal, sys, time

def returns(ready): pass
def raises(ready): raise ValueError("planted")
def exits(ready): sys.exit(3)
def waits(ready):
    ready.set()
    time.sleep(600)
def dies(ready): os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    for way in (returns, raises, exits, waits, dies):
        ready = context.Event()
        child = context.Process(target=way, args=(ready,), name=way.__name__)
        child.start()
        if way is waits:
            ready.wait()
            child.terminate()
        child.join()
"""
ALSO = {"raises": "exit 1", "exits": "exit 3", "waits": "ended", "dies": "killed by SIGKILL"}


def ended(run):
    """{role: how it ended}, as run.json has it"""
    assert run.status == 0, run.stderr
    return {process.get("role", ""): process["ended"] for process in json.loads((run.directory / "run.json").read_text())["processes"]}


def process_rows(report):
    """The rows of the table of processes, with one space between words."""
    tables = report.stdout.split("\n\n")
    return [" ".join(row.split()) for table in tables if table.startswith("Processes\n") for row in table.splitlines()[2:]]


@pytest.mark.parametrize("how", METHODS)
def test_children_of_multiprocessing_have_ended_as_their_parent_saw_it(how, python, run_torchprof, program):
    said = ended(run_torchprof([python.path, program(WAYS), how]))
    workers = {role.rpartition(" ")[2]: how for role, how in said.items() if role.startswith("multiprocessing worker ")}
    # What is spawned reaches Python's exit handlers, what is forked leaves by os._exit.
    assert workers == {"returns": "clean" if how == "spawn" else "ended", **ALSO}
    assert said[""] == "clean"


def test_children_of_subprocess_have_ended_as_their_parent_saw_it(python, run_torchprof, program):
    run = run_torchprof([python.path, program("""
import subprocess, sys

if len(sys.argv) > 1:
    print("ready", flush=True)
    exec(sys.argv[1])
else:
    for code, signals in (("sys.exit(4)", False), ("import time; time.sleep(600)", True), ("import os; os.abort()", False)):
        child = subprocess.Popen([sys.executable, __file__, code], stdout=subprocess.PIPE)
        child.stdout.readline()
        if signals: child.terminate()
        child.wait()
""")])
    assert run.status == 0, run.stderr
    found = {process["command"][-1]: process["ended"] for process in json.loads((run.directory / "run.json").read_text())["processes"]}
    # Such a child is no worker whose usual end is known: what its parent did to it is said.
    assert [found[code] for code in ("sys.exit(4)", "import time; time.sleep(600)", "import os; os.abort()")] == \
        ["exit 4", "SIGTERM by parent", "killed by SIGABRT"]


POOLS = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor

def meets(barrier): barrier.wait()  # none of them is ended before it has begun
def works(x): return x

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(3, meets, [context.Barrier(3)]) as pool: pool.map(works, range(9), chunksize=1)
    with ProcessPoolExecutor(2, mp_context=context, initializer=works, initargs=(0,)) as executor:
        list(executor.map(works, range(9)))
"""


@pytest.mark.parametrize("how", METHODS)
def test_the_workers_of_pools_are_one_row_and_none_of_them_was_killed(how, run_torchprof, torchprof, program):
    run = run_torchprof([sys.executable, program(POOLS), how], options=["--keep-spool"])
    said = {how for role, how in ended(run).items() if role.startswith("multiprocessing worker ")}
    assert said <= {"ended", "clean"} and said, said
    rows = process_rows(torchprof("report", run.directory, "-t", "processes"))
    # An executor may start a second worker only if the first one is busy.
    assert sum(row.startswith("3 of them 3 pool workers ") for row in rows) == 1, rows
    every = process_rows(torchprof("report", run.directory, "-t", "processes", "--all-processes"))
    assert sum("PoolWorker-" in row for row in every) == 3, every


LOADS = """
import os, signal, sys, torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        info = torch.utils.data.get_worker_info()
        if sys.argv[3] == "dies" and info.id == 1: os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[3] == "raises" and info.id == 1: raise ValueError("planted")
        return torch.ones(1000) * i

if __name__ == "__main__":
    inherited = torch.ones(8 << 20)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1], persistent_workers=sys.argv[2] == "persistent")
    try:
        for epoch in range(2):
            for batch in loader: pass
    except (RuntimeError, ValueError) as error: print(type(error).__name__)
"""


# How they are started and how long they stay have nothing to do with each other: each is here with one of the other.
@pytest.mark.parametrize("how, stays, size, name", [("fork", "persistent", 2, "DataLoader workers"), ("fork", "anew", 4, "DataLoader workers, 2 epochs"),
                                                    ("spawn", "anew", 4, "DataLoader workers, 2 epochs"), ("forkserver", "persistent", 2, "DataLoader workers")])
def test_dataloader_workers_are_one_row_that_says_the_epochs(how, stays, size, name, run_torchprof, torchprof, torch_python, program, load_trace):
    run = run_torchprof([torch_python, program(LOADS), how, stays, "works"], options=["--keep-spool", "--python", "modules"])
    said = ended(run)
    epochs = ["DataLoader worker %d%s" % (number, of) for number in (0, 1) for of in ([""] if stays == "persistent" else [", epoch 1", ", epoch 2"])]
    workers = {role: how for role, how in said.items() if role.startswith("DataLoader")}
    assert sorted(workers) == epochs and set(workers.values()) <= {"ended", "clean"}, said
    assert "\n%d %s: " % (size, name) in run.stderr and "\nprocess " in run.stderr
    table = json.loads(torchprof("report", run.directory, "-t", "processes", "--json").stdout)["tables"][0]
    assert sum(row["group"] == name for row in table["rows"]) == size  # for programs: each process
    report = torchprof("report", run.directory, "-t", "processes,threads,memory")
    text = report.stdout
    assert any(row.startswith("%d of them %d %s " % (size, size, name)) for row in process_rows(report)) and "Operators by self time in %d %s: " % (size, name) in text, text
    labels = {e["args"]["labels"] for e in load_trace(run.merged_path).events if e["ph"] == "M" and e["name"] == "process_labels"}
    assert {"CPU, " + role for role in epochs} <= labels


@pytest.mark.parametrize("how, fault, end", [("fork", "dies", "killed by SIGKILL"), ("fork", "raises", None), ("spawn", "dies", "killed by SIGKILL")])
def test_a_dataloader_worker_that_was_killed_stands_on_its_own(how, fault, end, run_torchprof, torchprof, torch_python, program):
    run = run_torchprof([torch_python, program(LOADS), how, "anew", fault], options=["--keep-spool"])
    assert run.stdout in ("RuntimeError\n", "ValueError\n"), run.stderr
    said = ended(run)
    # An exception of the data set is sent to the parent and raised there: the worker itself ends as always.
    assert said["DataLoader worker 1"] == end if end else said["DataLoader worker 1"] in ("ended", "clean"), said
    # The parent may end the other one before it has said who it is.
    assert said.get("DataLoader worker 0", "ended") in ("ended", "clean"), said
    rows = process_rows(torchprof("report", run.directory, "-t", "processes"))
    assert any("DataLoader worker 1" in row and end in row for row in rows) if end else any("2 DataLoader workers" in row for row in rows), rows
    assert ("DataLoader worker 1, killed by SIGKILL: " in run.stderr) == bool(end)


@pytest.fixture(scope="module")
def forked_anew(launcher, torch_python, tmp_path_factory):
    """The run of a program with two workers in each of two epochs."""
    directory = tmp_path_factory.mktemp("workers")
    (directory / "program.py").write_text(LOADS)
    return profile(launcher, directory / "run", [torch_python, directory / "program.py", "fork", "anew", "works"], options=["--keep-spool"])


def test_the_page_has_one_flame_graph_and_one_line_of_memory_for_the_workers(forked_anew, torchprof, tmp_path):
    run = forked_anew

    def page(*options):
        assert torchprof("report", run.directory, "--html", tmp_path / "page.html", *options).returncode == 0
        data = json.loads(re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text(), re.S)[1])
        processes, = (table for table in data["report"]["tables"] if table["name"] == "processes")
        # {label: ns of all and of the function that only workers run}
        flames = {thread["label"]: (thread["frames"][0][2], sum(own for _, name, _, own, _ in thread["frames"][1:] if data["flame"]["names"][name].endswith("__getitem__")))
                  for thread in data["flame"]["threads"] if "QueueFeeder" not in thread["label"] and "_serve" not in thread["label"]}
        return len(processes["rows"]), flames, [line["label"] for line in data["memory"]]
    rows, flames, memory = page()
    all_rows, all_flames, all_memory = page("--all-processes")
    assert (rows, all_rows, len(memory), len(all_memory)) == (2, 5, 2, 5)
    group, = (flame for label, flame in flames.items() if label.startswith("4 DataLoader workers, 2 epochs: "))
    workers = [flame for label, flame in all_flames.items() if "DataLoader worker " in label]
    assert len(workers) == 4 and group == tuple(map(sum, zip(*workers))) and group[1] > 0
    assert memory[1].endswith(", the most of 4 DataLoader workers, 2 epochs")


def test_what_a_worker_inherited_is_not_its_memory(forked_anew, torchprof):
    tables = json.loads(torchprof("report", forked_anew.directory, "-t", "memory,processes", "--json").stdout)["tables"]
    roles = {row["pid"]: row["role"] for table in tables if table["name"] == "processes" for row in table["rows"]}
    peaks = {roles[table["rows"][0]["pid"]]: table["totals"]["peak_bytes"] for table in tables if table["name"] == "memory" and table["rows"]}
    assert len(peaks) == 5 and peaks.pop(None) >= 32 << 20, peaks
    assert all(0 < peak < 1 << 20 for peak in peaks.values()), peaks
    assert not any(row["allocated_by"] == "(allocated before the capture)" for table in tables if table["name"] == "memory" for row in table["rows"])
