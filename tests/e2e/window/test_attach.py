"""Attaching to programs that run: what is recorded is what a run from the start records, and the program is left as it was."""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import textwrap
import time

import pytest

from conftest import PATIENCE, ROOT, clean_environment

# Says "ready" before the first step, and takes a step for each line that it is told; then says what it has of itself.
TRAINING = textwrap.dedent("""
    import gc, json, os, sys, threading
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor): return x * factor
        @staticmethod
        def backward(ctx, gradient): return gradient * 2, None
    def step():
        optimizer.zero_grad()
        loss = Double.apply(model(torch.randn(8, 16)), 2).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss)
    def name_of(task):
        try:
            with open("/proc/self/task/%s/comm" % task) as file: return file.read().strip()
        except OSError: return "has ended"
    def state():
        return {"tasks": sorted(map(name_of, os.listdir("/proc/self/task"))), "descriptors": len(os.listdir("/proc/self/fd")), "variables": sorted(k for k in os.environ if "TORCHPROF" in k),
                "spools": sum(".spool" in line for line in open("/proc/self/maps")), "gc": len(gc.callbacks),
                "tools": [sys.monitoring.get_tool(i) for i in range(6)] if sys.version_info >= (3, 12) else [], "profile": str(sys.getprofile())}
    print("ready", flush=True)
    losses = []
    for line in sys.stdin:
        if line != "state\\n": losses.append(step())
        print(json.dumps(state() if line == "state\\n" else losses[-1]), flush=True)
    print(json.dumps(losses), flush=True)
""")

WAITS = {
    "sleep": "time.sleep(3600)",
    "join": "t = threading.Thread(target=lambda: time.sleep(3600), daemon=True); t.start(); t.join()",
    "join of a busy thread": "t = threading.Thread(target=busy, daemon=True); t.start(); t.join()",
    "lock": "lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=3600)",
    "epoll": "select.epoll().poll(3600)",
    "nothing": "busy()",
}
WAITING = """
import select, sys, threading, time
def busy():
    while True: sum(range(100))
def deep():
    print("ready", flush=True)
    %s
deep()
"""


@pytest.fixture
def start(tmp_path):
    """start(COMMAND, ENVIRONMENT) starts a program and waits until it has said "ready"; what still runs at the end is killed."""
    started = []

    def run(command, env=None):
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                                   env=clean_environment(env))
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process
    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        if not process.stdin.closed:
            process.communicate()


def ask(process, what):
    process.stdin.write(what + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def is_again(process, before):
    """Whoever joins a thread may come before the kernel has taken it off its list: what is to hold is waited for."""
    until = time.monotonic() + 60
    while (now := ask(process, "state")) != before and time.monotonic() < until:
        pass
    return now == before


def recorded(trace):
    """What of the events is the same in every run: names, shapes, sizes of blocks. How much of its input the program reads at a time is not."""
    events = (e for e in trace.events if e["ph"] in "Xi" and e.get("cat") in ("cpu_op", "user_annotation", "python_function", "cpu_instant_event")
              and "codecs" not in e["name"])
    return collections.Counter((re.sub("ProfilerStep#.*", "ProfilerStep", e["name"]), str(e["args"].get("Input Dims")), str(e["args"].get("Concrete Inputs")), e["args"].get("Bytes")) for e in events)


def attach_while_it_trains(launcher, process, directory, *options):
    """Attaches, and has the program take steps until the recording is over. The launcher's stderr."""
    attached = subprocess.Popen([launcher, "attach", str(process.pid), "-o", directory, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=clean_environment())
    while attached.poll() is None:
        ask(process, "step")
    out, err = attached.communicate()
    assert attached.returncode == 0, err
    return err


def test_an_attached_run_has_the_events_of_one_from_the_start_and_leaves_nothing_behind(start, launcher, run_torchprof, load_trace, program, torch_python,
                                                                                       tmp_path):
    script = program(TRAINING)
    process = start([torch_python, "-u", script])
    for _ in range(10):
        ask(process, "step")
    before = ask(process, "state")
    err = attach_while_it_trains(launcher, process, tmp_path / "attached", "--steps", "50")
    assert "Not in the trace" in err and "memory" not in err.partition("Not in the trace")[2]
    assert is_again(process, before)
    # Again, with other options: those of this time hold.
    attach_while_it_trains(launcher, process, tmp_path / "again", "--steps", "3", "--python", "calls", "--memory", "off")
    assert is_again(process, before)
    process.stdin.close()
    losses = json.loads(process.stdout.read().splitlines()[-1])
    assert process.wait() == 0
    trace = load_trace(tmp_path / "attached" / "trace.json.gz")
    run = run_torchprof([torch_python, "-u", script], options=["-w", "steps=50..99"], stdin=b"step\n" * len(losses))
    assert run.stdout.splitlines()[-1] == json.dumps(losses), "the program computes something else"
    # Only the outermost functions differ: they are there from the start in one, and stated in both.
    assert recorded(trace) == recorded(run.trace())
    again = load_trace(tmp_path / "again" / "trace.json.gz")
    assert len([e for e in again.named("Optimizer.step#SGD.step", "user_annotation")]) == 3
    assert not [e for e in again.events if e["name"] == "[memory]"]
    assert [name for name in again.names("python_function") if name.startswith("<built-in ")]


@pytest.mark.parametrize("wait", WAITS)
def test_a_main_thread_that_waits_is_attached_to(python, start, torchprof, program, load_trace, tmp_path, wait):
    process = start([python.path, program(WAITING % WAITS[wait])])
    done = torchprof("attach", process.pid, "--for", "100ms", "-o", tmp_path / "run")
    assert done.returncode == 0 and "1 process" in done.stderr, done.stderr
    # By what we come is not the program's.
    ours = ("torchprof", "<string>")
    assert not [e for e in load_trace(tmp_path / "run" / "trace.json.gz").events if e.get("cat") == "python_function" and e["name"].startswith(ours)]
    assert process.poll() is None


def test_where_shows_the_lines_of_a_process_that_was_not_being_profiled(python, start, torchprof, program):
    process = start([python.path, program(WAITING % WAITS["lock"])])
    refused = torchprof("where", "--no-attach", process.pid)
    assert refused.returncode == 125 and "has recorded nothing" in refused.stderr
    shown = torchprof("where", process.pid)
    assert shown.returncode == 0, shown.stderr
    if python.version >= (3, 11):
        assert re.search(r"program.py\(5\): deep, line 7", shown.stdout), shown.stdout
        assert "(torchprof)" not in shown.stdout
    else:
        assert "its stacks cannot be read" in shown.stdout
    assert process.poll() is None


# Says "ready" when its child runs as well; both end with their stdin.
FAMILY = """
import os, sys, threading
def working():
    while True: sum(range(100))
if os.fork():
    print("ready", flush=True)
threading.Thread(target=working, daemon=True).start()
sys.stdin.read()
"""


@pytest.mark.once
def test_all_ranks_of_a_job_and_the_children_of_a_process(start, torchprof, program, torch_python, tmp_path):
    script = program(FAMILY)
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555"}
    ranks = [start([torch_python, script], {"RANK": str(rank), **job}) for rank in range(2)]
    start([torch_python, script], {"RANK": "0", **job, "MASTER_PORT": "29556"})

    def recorded_processes(directory, *options):
        done = torchprof("attach", ranks[1].pid, "--for", "100ms", "-o", tmp_path / directory, *options)
        assert done.returncode == 0, done.stderr
        return {process["pid"] for process in json.loads((tmp_path / directory / "run.json").read_text())["processes"]}

    pids = {rank.pid for rank in ranks}
    children = {int(pid) for rank in ranks for pid in pathlib.Path("/proc/%d/task/%d/children" % (rank.pid, rank.pid)).read_text().split()}
    assert len(children) == 2
    assert recorded_processes("one") == {ranks[1].pid}
    assert recorded_processes("ranks", "--all-ranks") == pids
    assert len(recorded_processes("children", "--children") - {ranks[1].pid}) == 1
    assert recorded_processes("all", "--all-ranks", "--children") == pids | children
    alone = start([torch_python, script])
    refused = torchprof("attach", alone.pid, "--all-ranks")
    assert refused.returncode == 125 and "has a RANK and a MASTER_PORT" in refused.stderr


@pytest.mark.once
def test_ctrl_c_ends_the_recording_and_keeps_it(start, launcher, program, torch_python, tmp_path):
    process = start([torch_python, program(WAITING % "busy()")])
    attached = subprocess.Popen([launcher, "attach", str(process.pid), "-w", "all", "-o", tmp_path / "run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=clean_environment())
    assert "attached to process %d" % process.pid in attached.stderr.readline()
    attached.send_signal(signal.SIGINT)
    out, err = attached.communicate(timeout=PATIENCE)
    assert attached.returncode == 0 and "1 process" in err, err
    assert process.poll() is None


@pytest.mark.once
def test_a_launcher_that_was_killed_does_not_keep_the_next_one_out(start, launcher, torchprof, program, torch_python, tmp_path):
    process = start([torch_python, program(WAITING % "busy()")])
    attached = subprocess.Popen([launcher, "attach", str(process.pid), "-w", "all", "-o", tmp_path / "run"], stderr=subprocess.PIPE, text=True,
                                env=clean_environment())
    attached.stderr.readline()
    second = torchprof("attach", process.pid, "--for", "100ms", "-o", tmp_path / "second")
    assert second.returncode == 125 and "is being profiled already, into %s" % (tmp_path / "run") in second.stderr
    attached.kill()
    attached.communicate()
    third = torchprof("attach", process.pid, "--for", "100ms", "-o", tmp_path / "third")
    assert third.returncode == 0, third.stderr


@pytest.mark.once
@pytest.mark.parametrize("how", ["killed", "moved", "removed"])
def test_a_program_that_nobody_can_leave_any_more_leaves_by_itself(start, launcher, torchprof, program, torch_python, tmp_path, how):
    """Whoever attached was killed, or the run directory went with all by which the program could be reached."""
    process = start([torch_python, "-u", program(TRAINING)])
    ask(process, "step")
    before = ask(process, "state")
    attached = subprocess.Popen([launcher, "attach", str(process.pid), "-w", "all", "-o", tmp_path / "run"], stderr=subprocess.PIPE, text=True,
                                env=clean_environment())
    assert "attached to process" in attached.stderr.readline()
    ask(process, "step")
    if how == "killed":
        attached.kill()
    else:
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        if how == "removed":
            shutil.rmtree(tmp_path / "elsewhere")
    _, err = attached.communicate(timeout=PATIENCE)
    assert how == "killed" or (attached.returncode == 1 and "was %s" % how in err), err
    assert is_again(process, before)
    again = torchprof("attach", process.pid, "--for", "100ms", "-o", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert is_again(process, before)


@pytest.mark.once
def test_a_child_that_maps_its_parents_removed_spool_is_attached_to_and_left(start, torchprof, launcher, program, torch_python, tmp_path):
    process = start([torch_python, "-u", program(textwrap.dedent("""
        import os, sys, time
        parent = os.getpid()
        print("ready", flush=True)
        for line in sys.stdin:
            child = os.fork()
            if child == 0:
                while os.getppid() == parent: time.sleep(0.01)
            print(child, flush=True)
    """))])
    attached = subprocess.Popen([launcher, "attach", str(process.pid), "-w", "all", "-o", tmp_path / "run"], stderr=subprocess.PIPE, text=True,
                                env=clean_environment())
    assert "attached to process" in attached.stderr.readline()
    child = ask(process, "fork")
    attached.send_signal(signal.SIGINT)
    _, err = attached.communicate(timeout=PATIENCE)
    assert attached.returncode == 0, err
    shutil.rmtree(tmp_path / "run")
    mapped = pathlib.Path("/proc/%d/maps" % child).read_text()
    assert ".spool (deleted)" in mapped  # of its parent
    of_child = torchprof("attach", child, "--for", "100ms", "-o", tmp_path / "of child")
    assert of_child.returncode == 0 and "1 process" in of_child.stderr, of_child.stderr


@pytest.mark.once
@pytest.mark.parametrize("ended_by", ["SIGINT", "SIGKILL"])
def test_a_look_that_is_ended_leaves_the_program(start, launcher, torchprof, program, torch_python, tmp_path, ended_by):
    process = start([torch_python, "-u", program(TRAINING)])
    ask(process, "step")
    before = ask(process, "state")
    # At its first word to the program it has attached to: that it be left.
    at_leaving = ["strace", "-f", "-o", "/dev/null", "-e", "trace=connect", "-e", "inject=connect:signal=%s:when=1" % ended_by]
    (tmp_path / "tmp").mkdir()
    done = subprocess.run([*at_leaving, launcher, "where", str(process.pid)], capture_output=True, text=True, timeout=PATIENCE,
                          env=clean_environment({"TMPDIR": str(tmp_path / "tmp")}))
    assert done.returncode != 0, done.stderr
    assert is_again(process, before)
    until = time.monotonic() + PATIENCE
    while list((tmp_path / "tmp").iterdir()):
        assert time.monotonic() < until
    again = torchprof("attach", process.pid, "--for", "100ms", "-o", tmp_path / "again")
    assert again.returncode == 0, again.stderr


@pytest.mark.once
def test_a_program_that_ends_while_it_is_recorded_has_its_trace(start, launcher, load_trace, program, torch_python, tmp_path):
    process = start([torch_python, "-u", program(TRAINING)])
    attached = subprocess.Popen([launcher, "attach", str(process.pid), "--steps", "1000", "-o", tmp_path / "run"], stderr=subprocess.PIPE, text=True,
                                env=clean_environment())
    ask(process, "step")
    assert "attached to process" in attached.stderr.readline()
    process.communicate("step\n" * 20)
    assert process.returncode == 0
    _, err = attached.communicate(timeout=PATIENCE)
    assert attached.returncode == 0, err
    assert load_trace(tmp_path / "run" / "trace.json.gz").named("Optimizer.step#SGD.step", "user_annotation")


@pytest.mark.once
def test_a_process_in_other_namespaces_gets_the_library_from_us(mount_namespace, launcher, load_trace, tmp_path, torch_python, prefix):
    hidden = pathlib.Path(prefix)
    # Its own mounts, processes and network; the installed tree is not there.
    inside = "mount -t tmpfs none %s; exec %s -c 'def inner(): return 1\nprint(\"ready\", flush=True)\nwhile True: inner()'" % (hidden, torch_python)
    process = subprocess.Popen([*mount_namespace, "--pid", "--fork", "--net", "sh", "-c", inside], stdout=subprocess.PIPE, text=True, env=clean_environment())
    try:
        assert process.stdout.readline() == "ready\n"
        children = (pathlib.Path("/proc") / str(process.pid) / "task" / str(process.pid) / "children").read_text().split()
        done = subprocess.run([launcher, "attach", children[0], "--for", "200ms", "-o", tmp_path / "run"], capture_output=True, text=True,
                              env=clean_environment(), timeout=PATIENCE)
        assert done.returncode == 0 and "1 process" in done.stderr, done.stderr
        assert load_trace(tmp_path / "run" / "trace.json.gz").named("<string>(1): inner", "python_function")
    finally:
        process.kill()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        process.communicate()


def test_a_few_rounds_of_the_campaign(launcher, torch_python):
    done = subprocess.run([torch_python, ROOT / "tests" / "attach_campaign.py", "--launcher", launcher, "--attaches", "4", "--kinds", "threads,loads,trains",
                           "--blocked", "1", "--any-time"], capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
    assert done.returncode == 0 and done.stdout.endswith("all is well\n"), done.stdout + done.stderr


@pytest.mark.once
def test_doctor_says_whether_a_process_can_be_attached_to(start, torchprof, program, torch_python):
    process = start([torch_python, program(WAITING % "busy()")])
    good = torchprof("doctor", process.pid)
    assert good.returncode == 0 and good.stdout.endswith("\nIt can be attached to.\n")
    shell = subprocess.Popen(["sleep", "3600"])
    try:
        bad = torchprof("doctor", shell.pid)
        assert bad.returncode == 1 and "It cannot be attached to: it runs no Python of 3.10 or later." in bad.stdout
        refused = torchprof("attach", shell.pid)
        assert (refused.returncode, refused.stderr) == (125, "torchprof: process %d: it runs no Python of 3.10 or later\n" % shell.pid)
        os.kill(process.pid, signal.SIGSTOP)
        stopped = torchprof("attach", process.pid)
        assert stopped.returncode == 125 and "it is stopped (SIGSTOP): kill -CONT %d" % process.pid in stopped.stderr
    finally:
        shell.kill()
        shell.wait()


@pytest.mark.once
@pytest.mark.parametrize("arguments, said", [
    ([], "attach: PID is required"),
    (["x"], "attach: 'x' is not the id of a process"),
    (["1", "--steps", "3", "--for", "1s"], "attach: only one of --steps, --for and -w"),
    (["1", "-w", "auto"], "attach: -w auto is for programs that are run"),
    (["1", "--for", "soon"], "attach: --for: 'after=0s,for=soon' is not a window"),
    (["999999999"], "process 999999999: there is no such process"),
])
def test_what_cannot_be_is_one_line(torchprof, arguments, said):
    done = torchprof("attach", *arguments)
    assert done.returncode == 125 and done.stderr.startswith("torchprof: " + said) and done.stderr.count("\n") == 1, done.stderr
