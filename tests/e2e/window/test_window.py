"""Windows: what lies in them is recorded as if they were the whole run, what lies outside is not, and the program does not notice."""
import datetime
import fcntl
import functools
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import time

import pytest

from conftest import PATIENCE, clean_environment, find_pythons, torch_here
from trace_rules import Trace

TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
head = torch.nn.Linear(8, 1)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(head.parameters(), lr=0.1)]
old = [torch.ones(1000) for _ in range(50)]
def iteration(i):
    for o in optimizers:
        o.zero_grad()
    with torch.autograd.profiler.record_function("loss"):
        loss = head(model(torch.ones(4, 8))).sum()
    loss.backward()
    for o in optimizers:
        o.step()
    del old[:5]
    return loss.item()
print([iteration(i) for i in range(%d)])
"""


@pytest.fixture(scope="module")
def alone(torch_python, tmp_path_factory):
    """alone(TEXT) is the run of a program without us, which is made once."""
    @functools.cache
    def run(text):
        path = tmp_path_factory.mktemp("alone") / "program.py"
        path.write_text(text)
        return subprocess.run([torch_python, path], capture_output=True, env=clean_environment(), cwd=path.parent, timeout=PATIENCE)
    return run


@pytest.fixture
def train(torch_python, program, run_torchprof, alone, check_trace):
    """Trains under a window, compares what the program says with the bare run, and gives the run and its checked trace."""
    def run(window, iterations=12, text=TRAIN, options=()):
        bare = alone(text % iterations)
        run = run_torchprof([torch_python, program(text % iterations)], options=["-w", window, *options])
        assert bare.returncode == run.status == 0, run.stderr
        assert run.stdout_bytes == bare.stdout
        assert len(run.said_by_the_program()) == len(bare.stderr.splitlines()), run.stderr
        return run, check_trace(run.trace())
    return run


def steps(trace):
    """Numbers of the marks, without the last of each window: what came after its last step."""
    marks = sorted(trace.spans("user_annotation"), key=lambda e: e["ts"])
    numbers = [int(e["name"].partition("#")[2]) for e in marks if e["name"].startswith("ProfilerStep#")]
    return [n for n, after in zip(numbers, numbers[1:]) if after == n + 1]


def windows(run):
    process, = json.loads((run.directory / "run.json").read_text())["processes"]
    return process["windows"]


# With every torch those that say what it does; the others are our own arithmetic.
@pytest.mark.parametrize("window, expected", [
    ("steps=4..6", [[4, 5, 6]]), ("schedule=wait:1,warmup:1,active:2,repeat:2", [[2, 3], [6, 7]]),
    pytest.param("steps=0..1", [[0, 1]], marks=pytest.mark.once),
    pytest.param("every=4steps,for=1steps,repeat=2", [[4], [8]], marks=pytest.mark.once),
    pytest.param("steps=10..99", [[10, 11]], marks=pytest.mark.once)])
def test_a_window_of_steps_has_those_steps_and_no_others(train, window, expected):
    run, trace = train(window)
    numbers = [n for part in expected for n in part]
    assert [(w["step"], w["closed"]) for w in windows(run)] == [(part[0], part[-1] < 11) for part in expected]
    assert steps(trace) == numbers and "Window #1" not in {e["name"] for e in trace.events}
    count = len(numbers)
    assert trace.names("user_annotation")["loss"] == count
    assert trace.names("cpu_op")["aten::addmm"] == 2 * count == trace.flows("fwdbwd")["aten::addmm", "AddmmBackward0"]
    modules = {name: n for name, n in trace.names("python_function").items() if name.startswith("nn.Module: ")}
    assert set(modules.values()) == {count} and len(modules) == 4


def test_steps_of_torch_profiler_are_the_steps_of_the_window(train):
    text = TRAIN.replace("print([iteration(i) for i in range(%d)])", """
schedule = torch.profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=1)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as p:
    for i in range(%d):
        iteration(i)
        p.step()
""")
    if not torch_here()[1]:
        pytest.skip("this torch.profiler has no schedule: it is built without Kineto")
    _, trace = train("steps=6..7", text=text)
    assert {name for name in trace.names("user_annotation") if name.startswith("ProfilerStep#")} == {"ProfilerStep#6", "ProfilerStep#7"}
    assert trace.names("user_annotation")["loss"] == 2


@pytest.mark.once
def test_a_range_opens_the_window_the_third_time_that_it_is_entered(train):
    _, trace = train("range=loss#3")
    assert trace.names("user_annotation") == {"loss": 1}
    assert trace.names("cpu_op")["aten::addmm"] == 2
    assert not [name for name in trace.names("cpu_op") if "Backward" in name]


def test_a_window_that_opens_inside_of_a_module_has_the_module_that_was_running(train):
    text = TRAIN.replace("model = torch.nn", """
class Net(torch.nn.Module):
    def forward(self, x):
        with torch.autograd.profiler.record_function("inner"):
            return torch.relu(x)
net = Net()
model = torch.nn""", 1).replace("head(model(torch.ones(4, 8)))", "head(net(model(torch.ones(4, 8))))")
    _, trace = train("range=inner#2", iterations=3, text=text)
    parents = {child.rpartition(": ")[2]: parent and parent.rpartition(": ")[2] for child, parent in trace.parents()}
    assert trace.names("user_annotation") == {"inner": 1} and trace.names("cpu_op")["aten::relu"] == 1 and "aten::addmm" not in trace.names("cpu_op")
    assert [name for name in trace.names("python_function") if name.startswith("nn.Module: ")] == ["nn.Module: Net_0"]
    assert parents["Net_0"] == "iteration", parents


@pytest.mark.once
def test_every_time_that_a_range_is_entered_is_a_window_where_no_number_is_given(train):
    run, trace = train("range=loss")
    assert len(windows(run)) == trace.names("user_annotation")["loss"] == 12
    assert trace.names("cpu_op")["aten::addmm"] == 24


def test_memory_of_a_window_names_no_block_from_before_it(train):
    """torch prints a warning when a profiler that started later sees such a block freed, and train() compares stderr."""
    _, trace = train("steps=4..6")
    freed = allocated = 0
    seen = set()
    for e in sorted((e for e in trace.events if e["name"] == "[memory]"), key=lambda e: e["ts"]):
        args = e["args"]
        if args["Bytes"] > 0:
            seen.add(args["Addr"])
            allocated += 1
        else:
            assert args["Addr"] in seen
            freed += 1
    assert allocated >= freed > 20


@pytest.mark.once
def test_a_window_that_never_opens_is_said_and_leaves_a_trace_without_events(train):
    run, trace = train("steps=1000..1002", iterations=2)
    assert "window steps=1000..1002: never opened, nothing was recorded" in run.stderr
    assert trace.names("cpu_op", "python_function", "user_annotation") == {} and windows(run) == []


@pytest.mark.once
def test_disk_that_three_steps_of_a_long_run_need_is_that_of_three_steps(train):
    run, _ = train("steps=3..5", iterations=400)
    spool, = (run.directory / "spool").glob("*.spool")
    assert spool.stat().st_blocks * 512 < 2_000_000


# ---- time, signals, commands: Python alone -----------------------------------------------------------------------------

WORK = """
import sys, threading, time
def leaf(): pass
def loop(stop):
    while not stop.is_set():
        leaf()
        time.sleep(0.001)
def main():
    stop = threading.Event()
    threads = [threading.Thread(target=loop, args=(stop,)) for _ in range(int(sys.argv[1]) - 1)]
    for t in threads: t.start()
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    loop(stop)
    for t in threads: t.join()
main()
"""


class Running:
    def __init__(self, launcher, directory, command, window, options=()):
        self.directory = directory
        self.process = subprocess.Popen([launcher, "run", "-o", directory, "-w", window, *options, "--", *command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
        assert self.process.stdout.readline() == "ready\n"
        self.pid = int(pathlib.Path("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)).read_text().split()[0])

    def end(self):
        _, stderr = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, stderr
        trace, = self.directory.glob("*.json.gz")
        return Trace(trace)


@pytest.fixture
def work(launcher, tmp_path, program):
    """Starts WORK on some threads under a window; the test ends it."""
    started = []

    def start(python, window, threads=1, options=()):
        running = Running(launcher, tmp_path / "run", [python.path, program(WORK), str(threads)], window, options)
        started.append(running)
        return running
    yield start
    for running in started:
        if running.process.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            running.process.communicate()


def leaves(trace):
    return sorted(e["ts"] for e in trace.spans("python_function") if e["name"].endswith(": leaf"))


def times_of_windows(running, trace):
    """[(begin, end)] as run.json has them, in microseconds since the run began. Each call lies in one of them and each of them has calls, however slow the
    machine is."""
    run = json.loads((running.directory / "run.json").read_text())
    process, = run["processes"]

    def us(text):
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6
    began, base = us(run["start"]), trace.doc["baseTimeNanoseconds"] / 1000
    assert all(w["closed"] for w in process["windows"]), process["windows"]
    windows = [(us(w["begin"]) - began, us(w["end"]) - began) for w in process["windows"]]
    calls = [base + ts - began for ts in leaves(trace)]
    inside = [[time for time in calls if begin - 1 <= time <= end + 1] for begin, end in windows]
    assert all(inside) and sum(map(len, inside)) == len(calls), (windows, calls)
    assert windows[-1][1] < us(process["end"]) - began
    return windows


def test_commands_open_and_close_the_window_of_every_thread(python, work, torchprof, check_trace):
    running = work(python, "manual", threads=3)
    answers = []
    for command in ("status", "start", "start", "status", "stop", "status", "start", "stop"):
        answers.append(torchprof("ctl", running.pid, command))
        time.sleep(0.1)
    prefix = "process %d: " % running.pid
    assert [a.stdout for a in answers] == [prefix + text + "\n" for text in (
        "closed, 0 windows so far", "open, window 1", "open, window 1", "open, window 1", "closed, 1 window so far", "closed, 1 window so far",
        "open, window 2", "closed, 2 windows so far")]
    assert "\n  outside of its window (manual)\n" in torchprof("where", running.pid).stdout
    assert torchprof("ctl", running.directory, "status").stdout == prefix + "closed, 2 windows so far\n"
    # The launcher's id means all of its run, as the directory does.
    assert torchprof("ctl", running.process.pid, "status").stdout == prefix + "closed, 2 windows so far\n"
    assert torchprof("where", running.process.pid).stdout.startswith("process %d, running:" % running.pid)
    assert "/run: 1 process\n" in torchprof("top", running.process.pid, "--once").stdout
    trace = check_trace(running.end())
    chains = {(child.rpartition(": ")[2], parent and parent.rpartition(": ")[2]) for child, parent in trace.parents()}
    assert {("leaf", "loop"), ("loop", "main"), ("main", "<module>"), ("loop", "run")} <= chains
    threads = {e["tid"] for e in trace.spans("python_function") if e["name"].endswith(": leaf")}
    assert len(threads) == 3
    marks = sorted((e["ts"], e["name"], e["s"]) for e in trace.events if e["ph"] == "i" and e["name"].startswith("Window #"))
    assert [mark[1:] for mark in marks] == [("Window #1", "t"), ("Window #2", "t")]
    run_json = json.loads((running.directory / "run.json").read_text())
    assert [w["number"] for w in run_json["processes"][0]["windows"]] == [1, 2]
    assert len(times_of_windows(running, trace)) == 2


def test_where_shows_what_is_open_in_the_window(python, work, torchprof):
    running = work(python, "manual")
    for command in ("start", "stop", "start"):
        torchprof("ctl", running.pid, command)
        time.sleep(0.1)
    said = torchprof("where", running.pid).stdout
    # The other thread that reads stdin may have had the first event.
    of_main = re.search(r"^  thread %d .*\n((?:   .*\n)*)" % running.pid, said, re.M)[1]
    assert re.findall(r"program.py\(\d+\): ([^,\n]+)", of_main)[:3] == ["<module>", "main", "loop"], said


@pytest.mark.once
def test_a_signal_opens_the_window_and_the_next_closes_it(python, work, check_trace):
    running = work(python, "signal=USR2")
    for _ in range(2):
        os.kill(running.pid, signal.SIGUSR2)
        time.sleep(0.2)
    time.sleep(0.3)
    assert len(times_of_windows(running, check_trace(running.end()))) == 1


@pytest.mark.once
def test_a_window_of_time_opens_and_closes_by_the_clock(python, work, check_trace):
    running = work(python, "after=500ms,for=300ms")
    time.sleep(1.2)
    (begin, end), = times_of_windows(running, check_trace(running.end()))
    assert begin >= 0.5e6 and end >= 0.8e6


@pytest.mark.parametrize("after", ["1ms", "3ms"])
def test_a_window_that_opens_while_python_starts_has_its_calls(python, run_torchprof, check_trace, program, after):
    text = "import time\ndef called_late(): return 1\nend = time.monotonic() + 0.2\nwhile time.monotonic() < end: called_late(); time.sleep(0.001)\n"
    run = run_torchprof([python.path, program(text)], options=["-w", "after=%s,for=1h" % after])
    names = check_trace(run.trace()).names("python_function")
    assert sum(n for name, n in names.items() if name.endswith("called_late")) > 0, run.stderr


@pytest.mark.once
@pytest.mark.timed
def test_a_window_of_time_comes_again_in_the_period(python, work, check_trace):
    running = work(python, "every=400ms,for=100ms,repeat=2")
    time.sleep(1.8)
    (first, first_end), (second, second_end) = times_of_windows(running, check_trace(running.end()))
    assert 0.3e6 < second - first < 0.5e6 and 0.3e6 < second_end - first_end < 0.5e6


@pytest.mark.once
@pytest.mark.timed
def test_opening_and_closing_take_less_than_50_ms_with_64_threads(python, work, torchprof, check_trace):
    running = work(python, "manual", threads=64)

    def seconds(command):
        begin = time.perf_counter()
        assert torchprof("ctl", running.pid, command).returncode == 0
        return time.perf_counter() - begin
    # What starting `torchprof ctl` takes is not part of it; the quickest of a few tries, on a machine that does other things.
    rounds = [[seconds(command) for command in ("status", "start", "stop")] for _ in range(5)]
    status, start, stop = (min(column) for column in zip(*rounds))
    assert start - status < 0.05 and stop - status < 0.05, rounds
    assert torchprof("ctl", running.pid, "start").returncode == 0
    time.sleep(0.5)
    trace = check_trace(running.end())
    assert len({e["tid"] for e in trace.spans("python_function") if e["name"].endswith(": leaf")}) == 64


@pytest.mark.once
def test_ctl_says_why_it_cannot(work, torchprof):
    running = work(find_pythons()[0], "signal=USR1")
    refused = torchprof("ctl", running.pid, "start")
    assert (refused.returncode, refused.stderr) == (
        1, "torchprof: process %d: its window is signal=USR1; only `manual` and `auto` are opened by hand\n" % running.pid)
    assert torchprof("ctl", running.pid, "status").stdout == "process %d: closed, 0 windows so far\n" % running.pid
    stranger = torchprof("ctl", os.getpid(), "status")
    assert stranger.returncode == 1 and "process %d: it does not listen" % os.getpid() in stranger.stderr
    assert torchprof("ctl", 2**22, "status").stderr == "torchprof: there is no process 4194304\n"


LISTENS = ("`ctl` is for windows of time, `signal`, `manual` and, once a long run has windows, `auto`; until then everything is "
           "recorded")


@pytest.mark.once
@pytest.mark.parametrize("other", ["a dead process's number", "another run's, by a lock", "another run's, by its door", "another machine's"])
def test_a_process_is_commanded_only_by_its_own_run(work, torchprof, launcher, tmp_path, other):
    """A run whose process had the number that a process of another run has now, here or on another machine."""
    running = work(find_pythons()[0], "manual")
    stranger = tmp_path / "stranger"
    subprocess.run([launcher, "run", "-q", "-o", stranger, "-w", "manual", sys.executable, "-c", "import os; os._exit(0)"], check=True, env=clean_environment())
    spool, = stranger.glob("spool/*.spool")
    host, _, start, _ = spool.name.rsplit(".", 3)
    data = bytearray(spool.read_bytes())  # pid and host of its header, as tracer/spool/layout.h has them
    struct.pack_into("<I", data, 16, running.pid)
    if other == "another machine's":
        struct.pack_into("64s", data, 144, host := b"elsewhere")
        host = host.decode()
    spool.unlink()
    spool = spool.with_name("%s.%d.%s.spool" % (host, running.pid, start))
    spool.write_bytes(data)
    if other == "another run's, by its door":
        door, = (running.directory / "spool").glob("*.ctl")
        spool.with_suffix(".ctl").hardlink_to(door)
    with open(spool) as locked:
        if other != "a dead process's number":
            fcntl.flock(locked, fcntl.LOCK_EX)  # as another host holds it on NFS
        said = {command: torchprof("ctl", stranger, command) for command in ("start", "status")}
        picture = torchprof("top", stranger, "--once").stdout
    gone = "torchprof: %s: none of its processes runs here any more\n" % stranger
    expected = {"a dead process's number": (125, gone),
                "another run's, by a lock": (1, "torchprof: process %d: it does not listen: %s\n" % (running.pid, LISTENS)),
                "another run's, by its door": (1, "torchprof: process %d: it is a process of another run\n" % running.pid),
                "another machine's": (125, "torchprof: 1 process of host elsewhere skipped: `torchprof ctl` reaches those of its own machine\n" + gone)}
    assert {command: (done.returncode, done.stderr) for command, done in said.items()} == dict.fromkeys(said, expected[other])
    assert re.search(r"process %d +- +- +-( |$)" % running.pid, picture, re.MULTILINE), "the stranger's memory: " + picture
    assert torchprof("ctl", running.directory, "status").stdout == "process %d: closed, 0 windows so far\n" % running.pid


def test_a_forked_child_has_a_window_of_its_own(python, run_torchprof, check_trace, program):
    path = program("""
import os, time
def in_child(): time.sleep(0.01)
def in_parent(): time.sleep(0.01)
def loop(work, until):
    while time.time() < until: work()
until = time.time() + 1.0
pid = os.fork()
loop(in_parent if pid else in_child, until)
if pid: os.waitpid(pid, 0)
""")
    run = run_torchprof([python.path, path], options=["-w", "after=300ms,for=300ms"])
    assert run.status == 0, run.stderr
    counts = [check_trace(t).names("python_function") for t in run.traces()]
    found = sorted(name.rpartition(": ")[2] for names in counts for name in names if name.endswith((": in_child", ": in_parent")))
    assert found == ["in_child", "in_parent"]
    assert all(10 < n < 40 for names in counts for name, n in names.items() if name.endswith((": in_child", ": in_parent")))


@pytest.mark.once
def test_a_window_of_time_counts_from_the_start_of_each_process(python, run_torchprof, check_trace, program):
    """A forked child's start is its fork, in a window of its parent's or after it."""
    path = program("""
import os, time
def begin(): return time.time()
def first(): time.sleep(0.01)
def second(): time.sleep(0.01)
def parent(): time.sleep(0.01)
def loop(work, seconds):
    end = time.time() + seconds
    while time.time() < end: work()
def child(work):
    if os.fork() == 0:
        loop(work, 0.8)
        os._exit(0)
loop(parent, 0.5)
child(first)
loop(parent, 0.3)
child(second)
os.wait(), os.wait()
""")
    run = run_torchprof([python.path, path], options=["-w", "after=400ms,for=200ms"])
    assert run.status == 0, run.stderr
    processes = json.loads((run.directory / "run.json").read_text())["processes"]
    assert [[w["closed"] for w in process["windows"]] for process in processes] == [[True]] * 3
    counts = [check_trace(t).names("python_function") for t in run.traces()]
    found = {name.rpartition(": ")[2]: n for names in counts for name, n in names.items() if name.endswith((": first", ": second", ": parent"))}
    assert set(found) == {"first", "second", "parent"} and all(3 < n < 45 for n in found.values()), found


@pytest.mark.parametrize("window", ["manual", "auto", "after=0s,for=1h"])
def test_a_program_that_forks_again_and_again_is_not_warned_of_a_thread_of_ours(python, run_torchprof, program, window):
    """From 3.12 on os.fork() warns where there is a second thread; ours may have been started a moment before."""
    script = program("""
import os
for i in range(100):
    pid = os.fork()
    if pid == 0: os._exit(i)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == i
print("done")
""")
    done = run_torchprof([python.path, "-W", "error", script], options=["-w", window])
    assert done.status == 0 and done.stdout == "done\n" and "Warning" not in done.stderr, done.stderr


WAITS_FIRST = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def load():
    time.sleep(0.03)
    return torch.ones(4, 4)
def iteration():
    x = load()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
for _ in range(24): %s
"""


@pytest.mark.parametrize("body", ["iteration()", "x = load(); optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()"], ids=["function", "loop"])
@pytest.mark.parametrize("window, steps", [("steps=10..10", [10]), ("steps=10..13", [10, 11, 12, 13]), ("every=8steps,for=2steps", [8, 9, 16, 17])])
def test_each_step_has_its_whole_time_also_the_first_of_a_window(torch_python, program, run_torchprof, torchprof, check_trace, body, window, steps):
    """Nothing runs while a step waits for its data: where it begins is known from the step before."""
    run = run_torchprof([torch_python, program(WAITS_FIRST % body)], options=["-w", window])
    assert run.status == 0, run.stderr
    tables = {t["name"]: t for t in json.loads(torchprof("report", run.directory, "-t", "steps", "--json").stdout)["tables"]}
    rows = tables["step_times"]["rows"]
    assert [row["step"] for row in rows] == steps
    assert all(row["ns"] >= 30_000_000 for row in rows), rows
    assert tables["steps"]["rows"][0]["min_ns"] >= 30_000_000
    check_trace(run.trace())


EXITS_SLOWLY = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.on_exit(ctypes.cast(libc.sleep, ctypes.c_void_p), None)  # of as many seconds as the status says; torch, which comes later, has gone by then
import torch
a = torch.ones(4)
for _ in range(2000): a + a
print("done", flush=True)
sys.exit(1)
"""


@pytest.mark.once
def test_windows_leave_torch_alone_when_it_has_been_destroyed(torch_python, program, run_torchprof):
    for _ in range(5):
        run = run_torchprof([torch_python, program(EXITS_SLOWLY)], options=["-w", "every=4ms,for=2ms"])
        assert (run.status, run.stdout) == (1, "done\n"), run.stderr
