"""What a step is: one definition in windows and outside, for all optimizers and threads, with as many rows as steps."""
import json

import pytest

PROGRAM = """
import json, sys, threading, time, torch
torch.set_num_threads(1)
MODE, N = sys.argv[1], int(sys.argv[2])
x = torch.ones(2, 4)
log = []  # when each optimizer's step was over, and whose it was

def make():
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def step(pair, who):
    model, optimizer = pair
    optimizer.zero_grad()
    model(x).sum().backward()
    if len(sys.argv) > 3:
        time.sleep(len(log) * 7 % 11 / 1000)  # each step takes another time than its neighbours
    optimizer.step()
    log.append((time.monotonic_ns(), who))

def anew(pair):
    return pair[0], torch.optim.SGD(pair[0].parameters(), lr=0.1)

one, two = make(), make()
many = [make() for _ in range(70)] if MODE == "many" else []

def iteration(i):
    if MODE == "critic":  # five steps of one to one of the other
        for _ in range(5): step(one, 1)
        step(two, 2)
    elif MODE == "together":
        step(one, 1); step(two, 2)
    elif MODE == "in turns":
        step(two, 2) if i % 2 else step(one, 1)
    elif MODE == "tasks":  # an optimizer for each, and one around them
        inner = make()
        for _ in range(5): step(inner, 100 + i)
        step(one, 1)
    elif MODE in ("anew", "two anew", "one of two anew"):  # an optimizer for each iteration, of the same parameters
        step(anew(one), 1)
        if MODE != "anew": step(two if MODE == "one of two anew" else anew(two), 2)
    elif MODE == "many":
        for k, pair in enumerate(many): step(pair, k)
    elif MODE == "after another":
        step(one, 1) if i < N // 2 else step(two, 2)

if MODE == "threads":
    threads = [threading.Thread(target=lambda pair=pair: [step(pair, 0) for _ in range(N)]) for pair in (one, two)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
else:
    for i in range(N):
        iteration(i)
print(json.dumps(log))
"""
# Mode, iterations, steps; of threads one may make many before the other one comes to its turn.
MODES = [("critic", 100, 500), ("together", 200, 200), ("in turns", 400, 200), ("tasks", 100, 500), ("many", 12, 12),
         ("after another", 300, 300), ("anew", 50, 50), ("two anew", 50, 50), ("one of two anew", 50, 50), ("threads", 200, None)]


def tables(torchprof, run):
    report = torchprof("report", run.directory, "-t", "steps", "--json")
    assert report.returncode == 0, report.stderr
    tables = {table["name"]: table for table in json.loads(report.stdout)["tables"]}
    return tables["steps"]["rows"][0], tables["step_times"]["rows"]


@pytest.mark.parametrize("options", [("-w", "auto", "--budget-events", "10K"), ("-w", "all")], ids=["auto", "all"])
@pytest.mark.parametrize("mode, iterations, expected", MODES, ids=[mode for mode, _, _ in MODES])
def test_there_is_a_row_for_every_step(torch_python, program, run_torchprof, torchprof, mode, iterations, expected, options):
    run = run_torchprof([torch_python, program(PROGRAM), mode, iterations], options=options)
    assert run.status == 0, run.stderr
    steps, rows = tables(torchprof, run)
    assert steps["steps"] == expected or (expected is None and iterations <= steps["steps"] < 2 * iterations), steps
    assert [row["step"] for row in rows] == list(range(steps["steps"]))
    times = [row["ns"] for row in rows[1:]]
    # Two threads' steps may be counted in another order than they ended in: then the later one of two has no time left,
    # and that of a step without detail is empty.
    assert sum(not time for time in times) <= (len(times) // 2 if mode == "threads" else 0), times


@pytest.mark.once
@pytest.mark.parametrize("mode, options", [("critic", ("-w", "auto", "--budget-events", "10K")), ("tasks", ("-w", "all"))])
def test_every_row_has_the_time_of_its_own_step(torch_python, program, run_torchprof, torchprof, mode, options):
    run = run_torchprof([torch_python, program(PROGRAM), mode, 30, "sleeps"], options=options)
    assert run.status == 0, run.stderr
    # Five steps a round, each an optimizer's; the sixth belongs to the step after it.
    ends = [end for i, (end, _) in enumerate(json.loads(run.stdout)) if i % 6 != 5]
    _, rows = tables(torchprof, run)
    assert len(rows) == len(ends) == 150
    # A pause of the machine between the border and the program's look at the clock is in the one and not in the other.
    apart = [abs(row["ns"] - (end - begin)) for row, begin, end in zip(rows[1:], ends, ends[1:])]
    assert sorted(apart)[len(apart) // 2] < 500_000, apart


@pytest.mark.once
def test_a_window_of_steps_has_a_row_for_each_of_them(torch_python, program, run_torchprof, torchprof):
    run = run_torchprof([torch_python, program(PROGRAM), "critic", 10], options=["-w", "steps=20..29"])
    assert run.status == 0, run.stderr
    steps, rows = tables(torchprof, run)
    assert steps["steps"] == 10 and [row["step"] for row in rows] == list(range(20, 30))


OWN_MARKS = """
import sys, torch
from torch.autograd.profiler import record_function
torch.set_num_threads(1)
x = torch.ones(2)
for training in range(4):
    for i in range(int(sys.argv[1])):
        with record_function("ProfilerStep#%d" % i):
            for _ in range(10):
                torch.add(x, 1)
"""
SCHEDULE = """
import sys, torch
from torch.profiler import profile, schedule
torch.set_num_threads(1)
x = torch.ones(2)
for training in range(4):
    with profile(schedule=schedule(wait=1000, warmup=1, active=1)) as profiler:
        for i in range(int(sys.argv[1])):
            for _ in range(10):
                torch.add(x, 1)
            profiler.step()
"""


@pytest.mark.parametrize("source", [OWN_MARKS, SCHEDULE], ids=["own", "schedule"])
@pytest.mark.parametrize("options", [("-w", "all"), ("-w", "auto", "--budget-events", "2K")], ids=["all", "auto"])
def test_trainings_that_count_anew_keep_their_last_steps(torch_python, program, run_torchprof, torchprof, source, options):
    run = run_torchprof([torch_python, program(source), 100], options=options)
    assert run.status == 0, run.stderr
    steps, rows = tables(torchprof, run)
    assert steps["steps"] == 400 and len(rows) == 400
    if source == OWN_MARKS:  # torch 1.13 gives the first number twice
        assert sorted(row["step"] for row in rows) == sorted(list(range(100)) * 4)
