"""`torchprof where`: what hangs is named, in a process that lives, and in one that was killed."""
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import clean_environment

pytestmark = pytest.mark.once

PYTHON = sys.executable
RANK = """
import os, sys, threading, time
import torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath(sys.argv[2]), rank=rank, world_size=4)
def waits_for_a_lock(lock):
    lock.acquire()
def never_joins():
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=waits_for_a_lock, args=(lock,), daemon=True).start()
    print("ready\\n", end="", flush=True)
    time.sleep(1000)
class Head(torch.nn.Module):
    def forward(self, x):
        dist.all_reduce(x)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()
    def forward(self, x):
        self.head(x)
print("ready\\n", end="", flush=True) if rank != 2 else never_joins()
with torch.autograd.profiler.record_function("epoch 7"):
    Net()(torch.ones(3))
"""


@pytest.fixture
def hanging_ranks(launcher, tmp_path, program):
    """Four ranks of which one never comes to the collective, under one torchprof run; it and the shell's process group end with the test."""
    program(RANK, "rank.py")
    command = "for r in 0 1 2 3; do %s rank.py $r rendezvous & done; wait" % PYTHON
    run = subprocess.Popen([launcher, "run", "-o", tmp_path / "run", "--", "bash", "-c", command], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=clean_environment({"GLOO_SOCKET_IFNAME": "lo"}),
                           start_new_session=True)
    for _ in range(4):
        assert run.stdout.readline() == "ready\n"
    # Until all of them hang.
    deadline, hang = time.monotonic() + 60, ""
    while (hang.count("): all_reduce") < 3 or "): waits_for_a_lock" not in hang) and time.monotonic() < deadline:
        hang = subprocess.run([launcher, "where", tmp_path / "run"], capture_output=True, text=True, env=clean_environment()).stdout
        time.sleep(0.2)
    yield run, tmp_path / "run"
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
    run.communicate()


def processes(text):
    """The paragraphs of the output by the last argument but one of their command: the rank."""
    paragraphs = ["process " + part for part in text.split("process ") if part]
    return {part.splitlines()[0].split()[-2]: part for part in paragraphs if "rank.py" in part.splitlines()[0]}


def check(ranks, state):
    assert sorted(ranks) == ["0", "1", "2", "3"]
    for rank in "013":
        lines = ranks[rank].splitlines()
        names = [line.split(" s  ", 1)[-1].strip() for line in lines]
        assert state in lines[0]
        at = [next(i for i, name in enumerate(names) if part in name) for part in ("epoch 7", "nn.Module: Net_0", "nn.Module: Head_0", "all_reduce")]
        assert at == sorted(at), ranks[rank]
    assert "waits_for_a_lock" in ranks["2"] and "never_joins" in ranks["2"] and "epoch 7" not in ranks["2"]


def test_the_hanging_rank_and_the_thread_in_a_lock_are_named(hanging_ranks, torchprof):
    _, directory = hanging_ranks
    begin = time.monotonic()
    where = torchprof("where", directory)
    assert where.returncode == 0 and where.stderr == "" and time.monotonic() - begin < 1
    ranks = processes(where.stdout)
    check(ranks, "running:")
    pid = ranks["2"].split()[1].rstrip(",:")
    one = torchprof("where", pid).stdout
    assert "never_joins" in one and one.count("process ") == 1


def test_what_was_open_is_known_after_a_kill_too(hanging_ranks, torchprof):
    run, directory = hanging_ranks
    pids = [int(paragraph.split()[1].rstrip(",:")) for paragraph in processes(torchprof("where", directory).stdout).values()]
    # Where one dies the others leave the collective: they must not have the time.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    run.communicate(timeout=60)
    assert not list(directory.rglob("*.spool"))
    check(processes(torchprof("where", directory).stdout), "dead:")


def test_what_is_no_process_and_no_run_is_one_line(torchprof, tmp_path):
    for target, line in (("4194999", "there is no process 4194999"), ("1", "process 1 has recorded nothing"), (tmp_path / "no", "No such file")):
        where = torchprof("where", target)
        assert where.returncode == 125 and line in where.stderr and where.stderr.count("\n") == 1


def test_an_orderly_end_leaves_nothing_open(run_torchprof, torchprof, program):
    run = run_torchprof([PYTHON, program("pass")])
    assert "nothing was open" in torchprof("where", run.directory).stderr
