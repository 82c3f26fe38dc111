"""-w auto: a long run keeps its beginning, typical steps and what was unusual, and the time of every step; a short one is whole."""
import functools
import json
import re
import struct

import pytest
from conftest import SUPPORT, profile

JOB = """
import os, signal, sys, time, torch
torch.manual_seed(0); torch.set_num_threads(1)
STEPS = %(steps)d
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []

def slow_load_batch():
    time.sleep(0.06)

def evaluate_the_model():
    model.eval()
    with torch.no_grad():
        for _ in range(%(evaluated)d):
            model(torch.ones(2, 16))
    model.train()

def train_step(i):
    if STEPS // 2 <= i < STEPS // 2 + 20:
        slow_load_batch()
    optimizer.zero_grad()
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    kept.append(torch.ones(30_000))

for i in range(STEPS):
    train_step(i)
    if i %% (STEPS // 4) == STEPS // 8:
        evaluate_the_model()
%(end)s
print("done")
"""
BUDGET = ("-w", "auto", "--budget-events", "100K", "--budget-overhead", "10")


@pytest.fixture(scope="module")
def long_run(torch_python, launcher, tmp_path_factory):
    """long_run(...) is a run of such a job; there is one of each kind."""
    @functools.cache
    def run(steps, end="", options=BUDGET, status=0, evaluated=600):
        directory = tmp_path_factory.mktemp("job")
        (directory / "program.py").write_text(JOB % {"steps": steps, "end": end, "evaluated": evaluated})
        run = profile(launcher, directory / "run", [torch_python, directory / "program.py"], options=[*options, "--keep-spool"])
        assert run.status == status, run.stderr
        return run
    return run


def process_of(run):
    return json.loads((run.directory / "run.json").read_text())["processes"][0]


@pytest.mark.once
def test_where_outside_of_windows_says_what_is_recorded_there(long_run, torchprof):
    run = long_run(steps=400, end="os.kill(os.getpid(), signal.SIGKILL)", options=("-w", "auto", "--budget-events", "3K"), status=-9)
    said = torchprof("where", run.directory).stdout
    assert "  outside of its window (auto)\n  operators and Python calls are recorded in windows only\n" in said
    assert re.search(r"  step 399 was the last to end; it took [0-9.]+ [mu]?s, the median is [0-9.]+ [mu]?s\n", said)


def test_a_short_program_is_whole(long_run, check_trace):
    run = long_run(steps=40, options=("-w", "auto"), evaluated=6)
    assert "windows" not in process_of(run)
    assert check_trace(run.trace()).names("python_function")["nn.Module: Linear_0"] >= 40


def test_a_long_program_has_windows_and_the_time_of_every_step(long_run, check_trace):
    run = long_run(steps=2000)
    process = process_of(run)
    reasons = [w["reason"] for w in process["windows"]]
    assert reasons[0] == "the beginning" and reasons.count("typical") >= 3, reasons
    steps = [w["step"] for w in process["windows"] if w["reason"] == "typical"]
    # At even distances, but where a window for something unusual was open.
    distance = min(b - a for a, b in zip(steps, steps[1:]))
    assert distance >= 10 and all(step % distance == 0 for step in steps), steps
    trace = check_trace(run.trace())
    calls = trace.names("python_function")["nn.Module: Linear_0"]
    assert 60 < calls < 1500
    # A window in the midst of a step has operators a little before Python calls: these wait for the interpreter's lock.
    assert trace.names("cpu_op")["aten::addmm"] >= 8 * (calls - len(process["windows"]))


@pytest.mark.once
def test_what_was_unusual_is_named(long_run, torchprof):
    run = long_run(steps=2000)
    # A row ends where the next one begins; long ones are broken at spaces.
    summary = re.sub(r"\n {5,}(?=[^\s\d])", " ", run.stderr)
    assert re.search(r"2,000 +\d+ ", summary), summary
    assert re.search(r"in full: 0-\d+, .*; the time of every step", summary), summary
    tables = json.loads(torchprof("report", run.directory, "-t", "steps", "--json").stdout)["tables"]
    rows, = (table["rows"] for table in tables if table["name"] == "step_times")
    others = [row["step"] for row in rows if not 1000 <= row["step"] < 1021 and (row["ns"] or 0) > 20e6]
    # Where the machine made other steps as slow, they may have taken the places.
    assert re.search(r"times the median.* in .*: slow_load_batch", summary) or len(others) > 20, summary
    assert re.search(r"the process's memory grows by 1\d\d\.\d+ KiB a step", summary), summary


@pytest.mark.once
@pytest.mark.parametrize("end, status", [("os.kill(os.getpid(), signal.SIGKILL)", -9), ("raise SystemExit(3)", 3), ("os._exit(0)", 0)])
def test_all_step_times_and_windows_are_there_however_it_ends(long_run, end, status):
    run = long_run(steps=800, end=end, status=status)
    assert re.search(r" 800 +\d+ ", run.stderr), run.stderr
    assert process_of(run)["windows"][0]["reason"] == "the beginning"


@pytest.mark.once
def test_the_spool_stays_small_because_given_up_windows_are_written_anew(long_run):
    short, long = (long_run(steps=steps) for steps in (800, 2000))
    size = lambda run: sum(f.stat().st_blocks * 512 for f in (run.directory / "spool").iterdir())
    # 2.5 times the steps are 1,200 step times of 24 bytes more, and a few chunks.
    assert size(long) < 1.7 * size(short), (size(long), size(short))


FORKS = """
import os, torch
exec(open(%r).read().replace('print("done")', ''))
pid = os.fork()
for i in range(30):
    torch.ones(3).child_was_here = model(torch.ones(2, 16))
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("done")
"""


def test_a_fork_in_the_midst_of_it_is_survived(torch_python, program, run_torchprof):
    job = program(JOB % {"steps": 600, "end": "", "evaluated": 600}, "job.py")
    run = run_torchprof([torch_python, program(FORKS % str(job))], options=[*BUDGET, "--keep-spool"])
    assert run.status == 0 and run.stdout.endswith("done\n"), run.stderr
    assert re.search(r" 600 +\d+ ", run.stderr), run.stderr


RANK = """
import os, sys, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="env://")
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(int(sys.argv[1])):
    if os.environ["RANK"] == "1" and 700 <= i < 720:
        time.sleep(0.15)
    optimizer.zero_grad()
    model(torch.ones(2, 16)).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
"""


@pytest.fixture
def windows_of_ranks(torch_python, program, run_torchprof):
    """windows_of_ranks(STEPS...) runs jobs of two ranks one after another, of so many steps each: the windows of each rank, and the run."""
    def run(*steps):
        run = run_torchprof([torch_python, SUPPORT / "ranks.py", 2, *("%s %d" % (program(RANK), n) for n in steps)],
                            options=["-w", "auto", "--budget-events", "20K", "--budget-overhead", "10", "--keep-spool"])
        assert run.status == 0, run.stderr
        processes = json.loads((run.directory / "run.json").read_text())["processes"]
        ranks = [p["windows"] for p in processes if "windows" in p]
        assert len(ranks) == 2 * len(steps), run.stderr
        return ranks, run
    return run


def steps_of(windows, reason):
    return {w["step"] for w in windows if w["reason"] == reason}


def assert_they_follow(distance, steps, *ranks):
    """Of typical windows: a rank on a busy machine misses one where it has a window in the midst of a long step, which is its own. On a
    very busy one windows are so expensive that the plan has next to none."""
    a, b = (steps_of(windows, "typical") for windows in ranks)
    assert len(a & b) >= max(1, max(len(a), len(b)) / 2) or steps < 4 * distance, (a, b, distance)


def distances_of(run):
    """Of typical windows, in steps, as the ranks of each job agreed on (tracer/plan/window_plan.h, SharedPlan), in the order of the jobs."""
    return [struct.unpack_from("<4Q", file.read_bytes())[3] for file in sorted((run.directory / "spool").glob("windows.*"))]


def test_ranks_have_the_same_windows_typical_and_unusual_ones(windows_of_ranks):
    ranks, run = windows_of_ranks(1500)
    distance, = distances_of(run)
    assert_they_follow(distance, 1500, *ranks)
    for windows in ranks:
        # None is typical here. On a busy machine one after a step that something else has slowed down may cover it.
        assert any(696 < w["step"] <= 737 for w in windows), windows


@pytest.mark.once
def test_a_job_that_follows_another_one_has_a_plan_of_its_own(windows_of_ranks):
    ranks, run = windows_of_ranks(600, 300)
    first, second = distances_of(run)
    assert_they_follow(first, 600, *ranks[:2])
    assert_they_follow(second, 300, *ranks[2:])
