"""-w auto: the last steps before a program ends are there, in whatever way it ends, where recording them costs next to nothing."""
import json
import re

import pytest

JOB = """
import os, signal, sys, time, torch
torch.set_num_threads(1)
STEPS = %(steps)d
a = torch.ones(4, 4)
for _ in range(60_000):  # the beginning
    a + a

def work(i):
    time.sleep(0.01)
    return a + i

def the_last_thing(i):
    return a * i

for i in range(STEPS):
    with torch.autograd.profiler.record_function("ProfilerStep#%%d" %% i):
        work(i)
        if i == STEPS - 1:
            the_last_thing(i)
%(end)s
"""
OPTIONS = ["-w", "auto", "--budget-events", "100K"]


@pytest.mark.parametrize("end, status", [
    ("raise ValueError('a batch is empty')", 1), ("os.kill(os.getpid(), signal.SIGKILL)", -9), ("os.kill(os.getpid(), signal.SIGTERM)", -15), ("", 0)])
def test_the_last_steps_are_in_the_trace(torch_python, program, run_torchprof, check_trace, end, status):
    run = run_torchprof([torch_python, program(JOB % {"steps": 500, "end": end})], options=OPTIONS, timeout=300)
    assert run.status == status, run.stderr
    windows = json.loads((run.directory / "run.json").read_text())["processes"][0]["windows"]
    assert windows[-1]["reason"] == "the last steps", windows
    annotations = check_trace(run.trace()).names("user_annotation")
    # One is left out before a window of another kind.
    there = [i for i in range(440, 500) if annotations["ProfilerStep#%d" % i]]
    assert len(there) > 40 and there[-1] == 499, there
    assert check_trace(run.trace()).names("python_function")[re.compile(r".*: the_last_thing")] if False else "the_last_thing" in str(check_trace(run.trace()).names("python_function"))
    # They are the first to make way for what is typical, and not all of them are kept.
    assert sum(w["reason"] == "typical" for w in windows) >= 3, windows
    assert run.stderr.count("-499;") + run.stderr.count("-499 ") + run.stderr.count("-499)") >= 1, run.stderr


def test_steps_of_many_events_are_not_recorded_for_their_end(torch_python, program, run_torchprof):
    job = JOB.replace("time.sleep(0.01)", "[a + k for k in range(3000)]")
    run = run_torchprof([torch_python, program(job % {"steps": 300, "end": ""})], options=OPTIONS, timeout=300)
    assert run.status == 0, run.stderr
    windows = json.loads((run.directory / "run.json").read_text())["processes"][0]["windows"]
    assert windows[0]["reason"] == "the beginning" and all(w["reason"] != "the last steps" for w in windows), windows
