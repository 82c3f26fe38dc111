"""-w auto: the last steps before a program ends are there, in whatever way it ends, where recording them costs next to nothing."""
import concurrent.futures
import json

import pytest

pytestmark = pytest.mark.once

JOB = """
import os, signal, sys, time, torch
torch.set_num_threads(1)
STEPS = %(steps)d
a = torch.ones(4, 4)

def work(i):
    time.sleep(0.01)
    for _ in range(3_000 if i < 20 else 1):  # the beginning uses its half of the budget soon
        a + a

def the_last_thing(i):
    return a * i

for i in range(STEPS):
    with torch.autograd.profiler.record_function("ProfilerStep#%%d" %% i):
        work(i)
        if i == STEPS - 1:
            the_last_thing(i)
%(end)s
"""
OPTIONS = ["-w", "auto", "--budget-events", "100K", "--budget-overhead", "10"]


ENDS = {"raise ValueError('a batch is empty')": 1, "os.kill(os.getpid(), signal.SIGKILL)": -9, "os.kill(os.getpid(), signal.SIGTERM)": -15, "": 0}


@pytest.mark.timed  # beside others a window costs too much for them
def test_the_last_steps_are_in_the_trace(torch_python, program, run_torchprof, check_trace):
    """Two programs at a time, which sleep most of theirs."""
    scripts = [program(JOB % {"steps": 500, "end": end}, "end%d/program.py" % n) for n, end in enumerate(ENDS)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # What a window costs is measured, and twice as much beside others that are busy: it may cost half of the time.
        options = [*OPTIONS[:-1], "50"]
        runs = list(pool.map(lambda script: run_torchprof([torch_python, script], options=options), scripts))
    for run, status in zip(runs, ENDS.values()):
        assert run.status == status, run.stderr
        windows = json.loads((run.directory / "run.json").read_text())["processes"][0]["windows"]
        # The last one may have begun when the last step had ended.
        assert windows[-1]["step"] <= 500 and any(w["reason"] == "the last steps" for w in windows[-2:]), windows
        trace = check_trace(run.trace())
        annotations = trace.names("user_annotation")
        # One is left out before a window of another kind, of which there are many on a busy machine.
        there = [i for i in range(440, 500) if annotations["ProfilerStep#%d" % i]]
        assert len(there) > 10 and there[-1] == 499, there
        assert any(name.endswith(": the_last_thing") for name in trace.names("python_function"))
        # They make way for what is typical.
        assert sum(w["reason"] == "typical" for w in windows) >= 3, windows


def test_steps_of_many_events_are_not_recorded_for_their_end(torch_python, program, run_torchprof):
    job = JOB.replace("range(3_000 if i < 20 else 1)", "range(3_000)")
    run = run_torchprof([torch_python, program(job % {"steps": 300, "end": ""})], options=OPTIONS)
    assert run.status == 0, run.stderr
    windows = json.loads((run.directory / "run.json").read_text())["processes"][0]["windows"]
    assert windows[0]["reason"] == "the beginning" and all(w["reason"] != "the last steps" for w in windows), windows
