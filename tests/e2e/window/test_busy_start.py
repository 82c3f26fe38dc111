"""-w auto: what runs before the first step takes nothing from the steps, and the longest step is kept whatever else happens."""
import functools
import json
import random

import pytest
from conftest import profile

pytestmark = pytest.mark.once

JOB = """
import sys, time, torch
torch.set_num_threads(1)
calls, steps, long_steps = int(sys.argv[1]), int(sys.argv[2]), dict(tuple(map(float, each.split(":"))) for each in sys.argv[3:])

def token(i):
    return i

def load_the_text():
    for i in range(calls):
        token(i)

def wait_for_the_disk(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)
        torch.ones(1)

load_the_text()
a = torch.ones(4, 4, requires_grad=True)
optimizer = torch.optim.SGD([a], lr=0.1)
for i in range(steps):
    wait_for_the_disk(long_steps.get(i, 0))
    for _ in range(40):
        a + a
    time.sleep(0.002)
    a.sum().backward()
    optimizer.step()
"""


@pytest.fixture
def job(torch_python, program, run_torchprof, torchprof):
    """job(EVENTS, ARGUMENT...): the process of run.json, and which steps are in full."""
    def run(events, *arguments):
        run = run_torchprof([torch_python, program(JOB), *arguments], options=["--budget-events", events])
        assert run.status == 0, run.stderr
        process, = json.loads((run.directory / "run.json").read_text())["processes"]
        tables = json.loads(torchprof("report", run.directory, "-t", "steps", "--json").stdout)["tables"]
        rows = [row for table in tables if table["name"] == "step_times" for row in table["rows"]]
        return process, {row["step"] for row in rows if row.get("in_full") == "yes"}
    return run


def test_a_busy_start_leaves_the_first_steps_their_half_of_the_budget(job):
    process, in_full = job("60K", 180_000, 400)
    beginnings = [w["step"] for w in process["windows"] if w["reason"] == "the beginning"]
    assert len(beginnings) == 2  # with the first sign of a step, which is its optimizer
    # Of some 165 events each. Events are counted when a chunk is full, so thousands of those before count as theirs.
    assert in_full >= set(range(1, 120)), in_full
    assert len(process["windows"]) > 2, process["windows"]  # the rest has windows as any other run


SLOW_START = """
import sys, time, torch
from torch.autograd.profiler import record_function
torch.set_num_threads(1)
sign, seconds = sys.argv[1], int(sys.argv[2])

def token(i):
    return i

def load_the_text():
    for i in range(60_000):
        token(i)

def clean_the_text():
    for i in range(200):
        with record_function("clean"):
            for k in range(300):
                token(k)

def wait_for_the_disk():
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        token(time.sleep(0.001))

load_the_text()
clean_the_text()
wait_for_the_disk()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(400, 4)), batch_size=4)
for i, (x,) in enumerate(data) if sign == "loader" else ((i, (torch.ones(4, 4),)) for i in range(100)):
    if sign == "optimizer":
        optimizer.zero_grad()
    elif sign == "range":
        with record_function("forward"):
            model(x)
    exec("def forward_of_step_%d(x): return model(x).sum()" % i)
    globals()["forward_of_step_%d" % i](x).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def slow_start(torch_python, launcher, tmp_path_factory):
    """slow_start(SIGN, SECONDS): the run of such a program; there is one of each kind and number."""
    @functools.cache
    def run(sign, seconds, number=0):
        directory = tmp_path_factory.mktemp("slow")
        (directory / "program.py").write_text(SLOW_START)
        run = profile(launcher, directory / "run", [torch_python, directory / "program.py", sign, seconds], options=["--budget-events", "20K"])
        assert run.status == 0, run.stderr
        return run
    return run


@pytest.mark.parametrize("sign, seconds", [("optimizer", 5), ("loader", 0), ("range", 0)])
def test_the_first_step_is_there_from_its_first_sign_on(slow_start, check_trace, sign, seconds):
    """Whatever ran before it, also annotations that were no sign of a step."""
    for number in range(3):
        names = check_trace(slow_start(sign, seconds, number).trace()).names("python_function")
        shown = {name.split(": ")[1] for name in names if "forward_of_step_" in name}
        # A program never waits for our thread: on a busy machine that may close the window of an earlier sign just then.
        if shown >= {"forward_of_step_%d" % i for i in range(4)}:
            break
    else:
        assert shown >= {"forward_of_step_%d" % i for i in range(4)}, shown


def test_of_a_slow_start_there_is_what_it_does(slow_start, check_trace):
    """Also after its budget is used."""
    run = slow_start("optimizer", 5)
    process, = json.loads((run.directory / "run.json").read_text())["processes"]
    assert any(w["reason"] == "typical" and w["step"] == 0 for w in process["windows"]), process["windows"]
    assert any("wait_for_the_disk" in name for name in check_trace(run.trace()).names("python_function"))


def test_a_run_of_fewer_events_than_the_budget_is_whole(job):
    assert "windows" not in job("200K", 100_000, 300)[0]


def test_a_beginning_of_many_events_has_three_steps(job):
    process, in_full = job("10K", 9_000, 300)
    assert in_full >= {0, 1, 2}, in_full


def test_long_steps_are_kept_and_those_after_them(job):
    """They wait: that costs nothing, however long it takes."""
    lasts = {250: 3, 300: 0.7, 330: 0.7, 390: 0.7}
    process, in_full = job("20K", 0, 450, *("%d:%g" % each for each in lasts.items()))
    midst = {w["step"] for w in process["windows"] if w["reason"] == "in the midst of a long step"}
    for step in lasts:
        assert step in midst | in_full, (step, midst, in_full)
        assert {step + 2, step + 3} <= in_full, (step, in_full)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_step_is_kept_wherever_it_comes(job, seed):
    """Soon after a window, in the first second after the beginning, or in a quiet time: a third of a second is enough to be seen."""
    generator = random.Random(seed)
    steps = [190]
    while len(steps) < 10:
        steps.append(steps[-1] + generator.randint(5, 30))
    process, in_full = job("30K", 0, steps[-1] + 20, *("%d:%g" % (step, generator.uniform(0.3, 0.5)) for step in steps))
    midst = {w["step"] for w in process["windows"] if w["reason"] == "in the midst of a long step"}
    kept = midst | in_full
    assert set(steps) <= kept, (sorted(set(steps) - kept), process["windows"])
