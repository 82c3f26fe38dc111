"""`torchprof where`: what hangs is named, in a process that lives, and in one that was killed."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from conftest import PATIENCE, clean_environment

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


LATE = "\ncollective c10d::allreduce_, number 0: begun by ranks 0, 1 and 3; not yet by rank 2, which has begun none\n"


@pytest.fixture
def hanging_ranks(launcher, tmp_path, program):
    """Four ranks of which one never comes to the collective, under one torchprof run; it and the shell's process group end with the test."""
    program(RANK, "rank.py")
    command = "for r in 0 1 2 3; do %s rank.py $r rendezvous & done; wait" % PYTHON
    run = subprocess.Popen([launcher, "run", "-o", tmp_path / "run", "--discard", "--", "bash", "-c", command], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=clean_environment({"GLOO_SOCKET_IFNAME": "lo"}),
                           start_new_session=True)
    for _ in range(4):
        assert run.stdout.readline() == "ready\n"
    # Until all of them hang.
    deadline, hang = time.monotonic() + PATIENCE, ""
    while (hang.count("): all_reduce") < 3 or "): waits_for_a_lock" not in hang or "\ncollective " not in hang) and time.monotonic() < deadline:
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


@pytest.mark.timed
def test_the_hanging_rank_and_the_thread_in_a_lock_are_named(hanging_ranks, torchprof):
    run, directory = hanging_ranks
    begin = time.monotonic()
    where = torchprof("where", directory)
    assert where.returncode == 0 and where.stderr == "" and time.monotonic() - begin < 1
    ranks = processes(where.stdout)
    check(ranks, "running:")
    assert where.stdout.endswith(LATE)
    check(processes(torchprof("where", run.pid).stdout), "running:")  # the launcher's id means all of its run
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
    run.communicate(timeout=PATIENCE)
    assert not list(directory.rglob("*.spool"))
    where = torchprof("where", directory).stdout
    check(processes(where), "dead:")
    assert where.endswith(LATE)


FORKING = """
import os, time
def child_with_records():
    print(os.getpid(), flush=True)
    time.sleep(1000)
def of_the_parent():
    if os.fork() == 0:
        child_with_records()
    time.sleep(1000)
of_the_parent()
"""
FORKING_LATER = """
import os, time
print(os.getpid(), flush=True)
while not os.path.exists("closed"): time.sleep(0.01)  # the window: nothing is recorded in the child
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(1000)
"""


@contextlib.contextmanager
def running(command, cwd):
    """In a session of its own, which ends with the test; what it prints can be read."""
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=clean_environment(),
                          start_new_session=True) as run:
        try:
            yield run
        finally:
            os.killpg(run.pid, signal.SIGKILL)


def parent_of(pid):
    return int(pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[1])


def test_a_forked_child_is_not_taken_for_its_parent(launcher, torchprof, program, tmp_path):
    with running([launcher, "run", "-o", tmp_path / "run", PYTHON, program(FORKING)], tmp_path) as run:
        child = int(run.stdout.readline())
        of_child, of_parent = torchprof("where", child).stdout, torchprof("where", parent_of(child)).stdout
        assert "process %d, " % child in of_child and "): child_with_records" in of_child
        assert "process %d, running:" % parent_of(child) in of_parent and "): child_with_records" not in of_parent
        of_run = torchprof("where", tmp_path / "run").stdout
        assert of_run.count("process ") == of_run.count("running:") == 2, of_run


def test_a_forked_child_without_records_has_none_of_its_parent(launcher, torchprof, program, tmp_path):
    with running([launcher, "run", "-o", tmp_path / "run", "-w", "manual", PYTHON, program(FORKING_LATER)], tmp_path) as run:
        parent = int(run.stdout.readline())
        for command in ("start", "stop"):
            assert torchprof("ctl", parent, command).returncode == 0
        (tmp_path / "closed").touch()
        child = int(run.stdout.readline())
        assert "process %d, running:" % parent in torchprof("where", parent).stdout
        where = torchprof("where", child)
        assert (where.returncode, where.stdout) == (125, "") and "process %d has recorded nothing" % child in where.stderr


def test_a_process_of_another_pid_namespace_is_known_by_its_number_there(launcher, torchprof, tmp_path):
    unshare = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        pytest.skip("no PID namespace may be made here")
    program = "import time\ndef waits():\n    print('ready', flush=True)\n    time.sleep(1000)\nwaits()"
    with running([*unshare, launcher, "run", "-o", tmp_path / "run", PYTHON, "-c", program], tmp_path) as run:
        assert run.stdout.readline() == "ready\n"
        where = torchprof("where", tmp_path / "run")
        assert "running:" in where.stdout and "): waits" in where.stdout, where


@pytest.mark.timed
def test_it_takes_less_than_a_second_for_eight_ranks(launcher, torchprof, tmp_path):
    program = "import time\ndef hangs():\n    print('ready\\n', end='', flush=True)\n    time.sleep(1000)\nhangs()"
    command = "for r in 0 1 2 3 4 5 6 7; do %s -c \"$0\" & done; wait" % PYTHON
    with running([launcher, "run", "-o", tmp_path / "run", "--", "bash", "-c", command, program], tmp_path) as run:
        for _ in range(8):
            assert run.stdout.readline() == "ready\n"
        begin = time.monotonic()
        where = torchprof("where", tmp_path / "run").stdout
        assert time.monotonic() - begin < 1
        assert where.count("running:") == where.count("): hangs") == 8, where


def test_what_is_no_process_and_no_run_is_one_line(torchprof, tmp_path):
    for target, line in (("4194999", "there is no process 4194999"), ("1", "process 1 has recorded nothing"), (tmp_path / "no", "No such file")):
        where = torchprof("where", target)
        assert where.returncode == 125 and line in where.stderr and where.stderr.count("\n") == 1


@pytest.mark.parametrize("open_threads, found", [('[{"tid": "x"}]', "'processes/0/open/0/tid' is a text, not a whole number in its range"),
                                                 ('[7]', "'processes/0/open/0' is a number, not an object"), ('7', "'processes/0/open' is a number, not a list")])
def test_what_somebody_changed_in_a_run_json_is_one_line(torchprof, tmp_path, open_threads, found):
    run = tmp_path / "run"
    run.mkdir()
    (run / "a.pt.trace.json").touch()
    (run / "run.json").write_text('{"torchprof": "0.1", "processes": [{"windows": [], "open": %s}]}' % open_threads)
    where = torchprof("where", run)
    assert where.returncode == 0 and "torchprof: %s: %s: not read\n" % (run / "run.json", found) in where.stderr, where
    assert where.stderr.count("\n") <= 2 and "exception" not in where.stderr, where


DEAD = {"torchprof": "1", "processes": [
    {"pid": 1, "command": ["true"], "clean_exit": True},
    {"pid": 7, "role": "rank 0", "command": ["python3", "train.py", "--red\x1b[31m"], "clean_exit": False, "metadata": {}, "windows": [{"closed": False}],
     "open": [{"tid": 8, "name": "main", "last": 0.5, "deeper": 1200, "spans": [
                  {"name": "train.py(3): <module>", "seconds": 72.25}, {"name": "train.py(9): step", "seconds": 0.75}, {"name": "aten::mm", "seconds": 0.0125}]},
              {"tid": 9, "name": "pt_autograd_0", "last": 12.0, "spans": []}]},
    {"pid": 11, "command": ["python3", "worker.py"], "clean_exit": False, "metadata": {"window": "steps=3..4"}, "windows": [], "open": []}]}
SAID = """\
process 7, rank 0, dead: python3 train.py --red?[31m
  thread 8 (main), last event 500.0 ms before the end
      72.2 s  train.py(3): <module>
    750.0 ms   train.py(9): step
     12.5 ms    aten::mm
              ... and 1200 calls inside it
  thread 9 (pt_autograd_0), last event 12.0 s before the end
              nothing recorded is open
process 11, dead: python3 worker.py
  outside of its window (steps=3..4)
"""


def test_what_it_says_to_the_letter(torchprof, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(DEAD))
    (tmp_path / "a.pt.trace.json").write_text('{"traceEvents":[]}')
    done = torchprof("where", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


def test_an_orderly_end_leaves_nothing_open(run_torchprof, torchprof, program):
    run = run_torchprof([PYTHON, program("pass")])
    assert "nothing was open" in torchprof("where", run.directory).stderr


def test_a_discarded_run_with_a_trace_for_each_rank_says_what_was_open(run_torchprof, torchprof, program):
    children = "import os, signal\ndef unmistakable():\n    os.kill(os.getpid(), signal.SIGKILL)\n" \
               "for child in range(2):\n    if os.fork() == 0:\n        unmistakable()\n    os.wait()\n"
    run = run_torchprof([PYTHON, program(children)], options=["-q", "--discard", "--format", "kineto-ranks"])
    assert len(list(run.directory.glob("*.pt.trace.json.gz"))) > 1
    done = torchprof("where", run.directory)
    assert done.returncode == 0 and done.stdout.count("unmistakable") == 2 and done.stderr == "", done.stderr
    for needs_one in (["report"], ["export", "-f", "kineto", "-o", run.directory / "x.json"], ["diff", run.directory]):
        asks = torchprof(*needs_one, run.directory)
        assert asks.returncode == 125 and "none of the whole run: name one of them" in asks.stderr, asks.stderr
