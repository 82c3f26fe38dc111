"""Steps that are asked for while a job runs (`ctl RUN steps=N..M`, `next=K`): all ranks record the same ones, whole, on whatever hosts they run."""
import collections
import contextlib
import gzip
import json
import re
import subprocess
import time

import pytest
from conftest import PATIENCE, SUPPORT, clean_environment

# Each rank says how many steps it has ended.
JOB = """
import os, sys, time
import torch
import torch.distributed as dist
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stop = torch.zeros(1)
said = os.open("at.%d" % dist.get_rank(), os.O_WRONLY | os.O_CREAT)
step = 0
def pause(): time.sleep(0.002)
while not stop.item():
    optimizer.zero_grad()
    with torch.autograd.profiler.record_function("loss"):
        loss = model(torch.ones(4, 8)).sum()
    pause()
    loss.backward()
    stop[0] = float(dist.get_rank() == 0 and os.path.exists("stop"))
    dist.all_reduce(stop)
    optimizer.step()
    step += 1
    os.pwrite(said, b"%9d" % step, 0)
"""
PARTS = {"loss", "Optimizer.zero_grad#SGD.zero_grad", "Optimizer.step#SGD.step", "gloo:all_reduce"}  # of a step


class Job:
    def __init__(self, launcher, python, program, directory, ranks, hosts, window, options, env):
        directory.mkdir(exist_ok=True)
        self.directory, self.cwd = directory / "run", directory
        self.process = subprocess.Popen([launcher, "run", "-q", "-o", self.directory, "-w", window, *options, "--", python, SUPPORT / "hosts.py", ranks, hosts, program],
                                        stderr=subprocess.PIPE, text=True, env=clean_environment(env), cwd=directory)

    def steps(self):
        """That all ranks have ended; 0 as long as there are none."""
        return min([int(path.read_text() or 0) for path in self.cwd.glob("at.*")], default=0)

    def wait_for(self, step):
        end = time.monotonic() + PATIENCE
        while self.steps() < step and self.process.poll() is None:
            assert time.monotonic() < end, self.steps()
            time.sleep(0.02)

    def end(self):
        (self.cwd / "stop").touch()
        _, stderr = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, stderr

    def processes(self):
        return json.loads((self.directory / "run.json").read_text())["processes"]

    def recorded(self):
        """{"rank 0": the numbers of the steps that it has whole}"""
        with gzip.open(self.directory / "trace.json.gz") as file:
            events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
        found = {}
        for process in self.processes():
            if not process.get("role", "").startswith("rank "):
                continue
            own = [e for e in events if e["pid"] == process["pid"]]
            marks = [e for e in own if e["name"].startswith("ProfilerStep#")]
            parts = collections.defaultdict(set)
            for e in own:
                if e["name"] in PARTS:
                    parts.update({m["name"]: parts[m["name"]] | {e["name"]} for m in marks if m["ts"] <= e["ts"] < m["ts"] + m["dur"]})
            found[process["role"]] = sorted(int(m["name"].partition("#")[2]) for m in marks if parts[m["name"]] == PARTS)
        return found


@pytest.fixture
def job(launcher, torch_python, program, tmp_path):
    if subprocess.run(["unshare", "--map-root-user", "--uts", "true"], capture_output=True).returncode != 0:
        pytest.skip("no process may have a host name of its own here")
    with contextlib.ExitStack() as stack:
        def start(ranks, hosts, window, options=(), text=JOB, name="job", env=None):
            job = Job(launcher, torch_python, program(text), tmp_path / name, ranks, hosts, window, options, env)
            stack.callback(lambda: job.process.poll() is None and (job.process.kill(), job.process.communicate()))
            stack.callback((job.cwd / "stop").touch)
            return job
        yield start


def asked(said):
    assert said.returncode == 0 and not said.stderr, said
    first, last = re.match(r"steps? (\d+)(?: to (\d+))?: ", said.stdout).groups()
    return list(range(int(first), int(last or first) + 1))


@pytest.mark.parametrize("window, options", [("manual", []), ("auto", ["--budget-events", "2K"])], ids=["manual", "auto"])
def test_all_ranks_of_all_hosts_record_the_steps_that_come_next(job, torchprof, window, options):
    run = job("4", "nodeA,nodeB", window, options)
    run.wait_for(300)  # with auto the beginning is over by then
    wanted = []
    for count in (3, 1, 7):
        steps = asked(torchprof("ctl", run.directory, "next=%d" % count))
        assert len(steps) == count
        wanted += steps
        run.wait_for(wanted[-1] + 2)
    run.end()
    recorded = run.recorded()
    assert {p["host"] for p in run.processes() if p.get("role", "").startswith("rank")} == {"nodeA", "nodeB"} and len(recorded) == 4
    for steps in recorded.values():
        assert steps == wanted if window == "manual" else set(wanted) <= set(steps), (wanted, recorded)


def test_hosts_with_a_run_of_their_own_record_the_same_steps_by_the_same_numbers(job, torchprof):
    env = {"MASTER_PORT": "28731"}
    runs = [job("%s/4" % ranks, host, "manual", name=host, env=env) for ranks, host in (("0..1", "nodeA"), ("2..3", "nodeB"))]
    runs[0].wait_for(50)
    # Far enough: some seconds, and the ranks wait for each other where one is held up.
    first = runs[0].steps() + 800
    for run in runs:
        assert asked(torchprof("ctl", run.directory, "steps=%d..%d" % (first, first + 4))) == list(range(first, first + 5))
    for run in runs:
        run.wait_for(first + 6)
    (runs[1].cwd / "stop").touch()
    for run in runs:
        run.end()
    assert {role: steps for run in runs for role, steps in run.recorded().items()} == {"rank %d" % rank: list(range(first, first + 5)) for rank in range(4)}


def test_processes_that_cannot_be_told_read_the_request_by_themselves(job, torchprof):
    """As those of another host. What is damaged, or of a later version, is passed over, and noted."""
    run = job("2", "nodeA,nodeB", "manual")
    run.wait_for(50)
    control = run.directory / "spool" / "control"
    control.write_text("window 7\nlater version=2\nwindow 8 steps=5..")
    doors = list((run.directory / "spool").glob("*.ctl"))
    assert len(doors) >= 2
    for door in doors:
        door.unlink()
    steps = asked(torchprof("ctl", run.directory, "next=4"))
    run.wait_for(steps[-1] + 2)
    run.end()
    assert run.recorded() == {"rank 0": steps, "rank 1": steps}
    assert all(p["metadata"]["control.unknown"] == "window 8 steps=5.." for p in run.processes())
    assert control.read_text().splitlines()[2] == "window 8 steps=5.."


# Once it is asked it hides the request until it has passed the first of those steps. Nobody is there to be told of it.
HURRIES = JOB.replace("def pause(): time.sleep(0.002)", """
import glob
control, first = "run/spool/control", 10**9
def pause():
    global first
    if step == 50:
        for door in glob.glob("run/spool/*.ctl"): os.unlink(door)
    if step == 60:
        while not os.path.exists(control): pass
        os.rename(control, "hidden")
        while not (text := open("hidden").read()).endswith("\\n"): pass
        first = int(text.partition("steps=")[2].partition("..")[0])
    elif step == first + 2:
        os.rename("hidden", control)
    elif step < 60:
        time.sleep(0.02)
    elif step > first + 2:
        # The second request is for a step that it comes to at the speed which was seen: on a busy machine at any.
        again = int(open(control).read().rpartition("steps=")[2].partition("..")[0])
        if step > again - 200 or again == first: time.sleep(0.02)
""")


@pytest.mark.once
def test_where_a_rank_was_late_the_request_is_taken_back_and_made_again(job, torchprof):
    run = job("1", "-", "manual", text=HURRIES)
    run.wait_for(60)
    steps = asked(torchprof("ctl", run.directory, "next=2"))
    run.wait_for(steps[-1] + 2)
    run.end()
    lines = (run.directory / "spool" / "control").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["window", "drop", "window"] and lines[0].split()[1] == lines[1].split()[1]
    (process,) = [p for p in run.processes() if p["windows"]]
    assert [(w["step"], w["closed"]) for w in process["windows"]] == [(steps[0], True)]
    assert process["metadata"]["control." + lines[0].split()[1]].startswith("late at ")


@pytest.mark.once
def test_what_cannot_be_asked_is_refused(job, torchprof):
    run = job("1", "-", "manual")
    run.wait_for(20)
    said = torchprof("ctl", run.directory, "steps=3..5")
    assert said.returncode == 125 and re.fullmatch(r"torchprof: step 3 has begun: a rank is in step \d+; `next=3` takes the next steps that all can record\n", said.stderr)
    (pid,) = [int(spool.name.split(".")[-3]) for spool in run.directory.glob("spool/*.spool")][:1]
    assert "give the run directory" in torchprof("ctl", pid, "next=3").stderr
    for wrong in ("next=0", "next=", "next=x", "steps=", "steps=9..3", "steps=x", "nxt=3"):
        assert torchprof("ctl", run.directory, wrong).returncode == 125, wrong
    assert not (run.directory / "spool" / "control").exists()
    run.end()
    assert "none of its processes runs any more" in torchprof("ctl", run.directory, "next=3").stderr
    run = job("1", "-", "steps=1000000", name="other")
    run.wait_for(20)
    assert "its window is steps=1000000; only `manual` and `auto` are opened by hand" in torchprof("ctl", run.directory, "next=3").stderr
    run.end()


@pytest.mark.once
def test_a_window_that_is_started_begins_with_a_step(job, torchprof):
    run = job("2", "-", "manual")
    run.wait_for(20)
    for i in range(5):
        assert torchprof("ctl", run.directory, "start").stdout.count("open, window %d\n" % (i + 1)) == 3  # the program that starts them has one, too
        run.wait_for(run.steps() + 3)
        assert torchprof("ctl", run.directory, "stop").returncode == 0
    run.end()
    recorded, processes = run.recorded(), {p["role"]: p for p in run.processes() if p.get("role", "").startswith("rank")}
    for role, process in processes.items():
        firsts = [w["step"] for w in process["windows"]]
        assert len(firsts) == 5 and set(firsts) <= set(recorded[role]), (firsts, recorded)


@pytest.mark.once
def test_typical_windows_of_hosts_that_know_nothing_of_each_other_are_those_of_one_grid(job):
    """-w auto goes by the numbers of steps: where one host has twice the distance of another, each of its windows is one of the other's, too."""
    env = {"MASTER_PORT": "28741"}
    runs = [job("%s/4" % ranks, host, "auto", ["--budget-events", "20K"], name=host, env=env) for ranks, host in (("0..1", "nodeA"), ("2..3", "nodeB"))]
    runs[0].wait_for(1500)
    (runs[1].cwd / "stop").touch()
    for run in runs:
        run.end()
    typical = [{w["step"] for w in p["windows"] if w["reason"] == "typical"} for run in runs for p in run.processes() if p.get("role", "").startswith("rank")]
    # How far they are apart goes by what they cost, which is much on a busy machine.
    assert len(typical) == 4 and all(typical), typical
    # The coarsest grid. A rank on a busy machine misses a window where it has one in the midst of a long step, which is its own.
    fewest = min(typical, key=len)
    for steps in typical:
        assert len(fewest & steps) >= max(1, len(fewest) / 2), typical


# A rank for itself: those of two containers have no network in common.
ALONE = """
import os, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
said = os.open("at." + os.environ["RANK"], os.O_WRONLY | os.O_CREAT)
step = 0
while not os.path.exists("stop"):
    with torch.autograd.profiler.record_function("loss"):
        loss = model(torch.ones(4, 8)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
    step += 1
    os.pwrite(said, b"%9d" % step, 0)
"""


def armed_variables(torchprof, directory):
    """What arms a program without a launcher."""
    lines = torchprof("env", "-o", directory, "--format", "docker").stdout.splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def marks_in(path):
    with gzip.open(path) as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    found = collections.defaultdict(set)
    for e in events:
        if e["name"].startswith("ProfilerStep#"):
            found[e["pid"]].add(int(e["name"].partition("#")[2]))
    return found


@pytest.mark.once
def test_the_same_steps_of_some_ranks_in_containers_are_captured_as_one_trace(torchprof, torch_python, program, tmp_path):
    """Armed, without a launcher; two containers with process ids and networks of their own, one host name each, and one directory."""
    container = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
    if subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        pytest.skip("no namespaces may be made here")
    armed = clean_environment(armed_variables(torchprof, tmp_path / "run"))
    script = program(ALONE)
    start = "hostname pod%d; for r in %s; do RANK=$r WORLD_SIZE=4 \"$0\" \"$1\" & done; wait"
    with contextlib.ExitStack() as stack:
        jobs = [subprocess.Popen([*container, "sh", "-c", start % (n, ranks), torch_python, script], env=armed, cwd=tmp_path) for n, ranks in enumerate(("0 1", "2 3"))]
        for job in jobs:
            stack.callback(job.wait)
        stack.callback((tmp_path / "stop").touch)
        end = time.monotonic() + PATIENCE
        while min([int(path.read_text() or 0) for path in tmp_path.glob("at.*")], default=0) < 20 or len(list(tmp_path.glob("at.*"))) < 4:
            assert time.monotonic() < end and all(job.poll() is None for job in jobs)
            time.sleep(0.05)
        assert torchprof("ctl", tmp_path / "run", "status").stdout.count("closed, 0 windows so far") == 4
        done = torchprof("ctl", tmp_path / "run", "capture", "--steps", "5", "--ranks", "1,3", "-o", tmp_path / "trace.json.gz")
        assert done.returncode == 0, done
        first, last = map(int, re.match(r"steps (\d+) to (\d+): 2 processes", done.stdout).groups())
        assert last - first == 4 and all(job.poll() is None for job in jobs)
        captured = marks_in(tmp_path / "trace.json.gz")
        assert list(captured.values()) == [set(range(first, last + 1))] * 2
        # From one of the containers, where neither the other's processes nor its own name are those of the spools.
        status = subprocess.run(["unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--uts", "sh", "-c", "hostname pod7; \"$0\" ctl \"$1\" status",
                                 torchprof("version").args[0], tmp_path / "run"], capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
        assert status.stdout.count("closed, ") == 4, status
    # The others have recorded nothing, and no socket is left.
    rows = json.loads(torchprof("report", tmp_path / "run", "-t", "ops", "--all-processes", "--json").stdout)["tables"][0]["rows"]
    assert rows and not list((tmp_path / "run" / "spool").glob("*.ctl"))


@pytest.mark.once
def test_no_socket_is_left_by_a_process_whose_end_takes_long(torchprof, torch_python, program, tmp_path):
    """Libraries end after ours for two seconds, in which the thread of ours reads RUN/control again."""
    (tmp_path / "slow.c").write_text("#include <unistd.h>\n__attribute__((destructor)) static void end(void) { sleep(2); }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "slow.so", tmp_path / "slow.c"], check=True)
    script = program("""
import ctypes, glob, torch
ctypes.CDLL("./slow.so")
torch.ones(2).add(1)
while not glob.glob("run/spool/*.ctl"): pass
""")
    began = time.monotonic()
    subprocess.run([torch_python, script], env=clean_environment(armed_variables(torchprof, tmp_path / "run")), cwd=tmp_path, check=True, timeout=PATIENCE)
    assert time.monotonic() - began >= 2 and not list((tmp_path / "run" / "spool").glob("*.ctl"))


@pytest.mark.once
def test_what_cannot_be_captured_is_said(job, torchprof):
    run = job("2", "-", "manual")
    run.wait_for(20)
    for wrong in (["capture", "--ranks", "x"], ["capture", "--ranks", "0,"], ["start", "--ranks", "0"], ["next=2", "-o", "x"], ["start", "--steps", "3"]):
        assert torchprof("ctl", run.directory, *wrong).returncode == 125, wrong
    refused = torchprof("ctl", run.directory, "capture", "--ranks", "7,9..11")
    assert refused.returncode == 125 and "none of its processes is of rank 7,9..11" in refused.stderr
    done = torchprof("ctl", run.directory, "capture", "--ranks", "0..1", cwd=run.cwd)
    first, last = map(int, re.match(r"steps (\d+) to (\d+): 2 processes", done.stdout).groups())
    assert (done.returncode, last - first) == (0, 4) and set(map(frozenset, marks_in(run.cwd / ("steps-%d-%d.json.gz" % (first, last))).values())) == {frozenset(range(first, last + 1))}
    run.end()
    assert set(run.recorded()["rank 0"]) == set(range(first, last + 1)) and not list((run.directory / "spool").glob("*.ctl"))


@pytest.mark.once
def test_a_capture_that_cannot_be_written_is_one_line(job, torchprof):
    run = job("1", "-", "manual")
    run.wait_for(20)
    output = run.cwd / "nowhere" / "trace.json.gz"
    done = torchprof("ctl", run.directory, "capture", "--steps", "1", "-o", output)
    assert done.returncode == 125 and re.fullmatch(r"torchprof: .*%s.*: No such file or directory\n" % re.escape(str(output)), done.stderr), done
    run.end()
