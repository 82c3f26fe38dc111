"""Steps of training: what counts as one, where its mark lies, and what a program's own torch.profiler does to them."""
import json
import re
import subprocess
import textwrap

import pytest

from conftest import clean_environment

HEAD = """
import torch
from torch import nn
def net(): return nn.Linear(4, 4)
def learn(model, *optimizers):
    for o in optimizers:
        model(torch.ones(2, 4)).sum().backward()
        o.step()
def sgd(model): return torch.optim.SGD(model.parameters(), lr=0.1)
def adam(model): return torch.optim.Adam(model.parameters())
"""


@pytest.fixture
def stepped(run_torchprof, check_trace, program, torch_python):
    """stepped(TEXT) runs a program: (its trace, the row of its steps in the summary, as {column: text})."""
    def run(text, options=()):
        run = run_torchprof([torch_python, program(HEAD + textwrap.dedent(text))], options=options)
        assert run.status == 0, run.stderr
        summary = (run.directory / "summary.txt").read_text()
        table = re.search(r"^Steps\n +(pid .*)\n +(\d.*)$", summary, re.M)
        row = dict(zip(re.split(r"  +", table[1]), re.split(r"  +", table[2]))) if table else {}
        return check_trace(run.trace()), row
    return run


def marks(trace):
    """[(number, begin, end, span)] as HTA finds them: user annotations whose names say ProfilerStep#N."""
    spans = sorted((e for e in trace.spans("user_annotation") if e["name"].startswith("ProfilerStep")), key=lambda e: e["ts"])
    return [(int(re.fullmatch(r"ProfilerStep\s*#\s*(\d+)", e["name"])[1]), e["ts"], e["ts"] + e["dur"], e) for e in spans]


def inside(trace, name, mark):
    return sum(mark[1] <= e["ts"] and e["ts"] + e["dur"] <= mark[2] + 0.001 for e in trace.spans("cpu_op") if e["name"] == name)


@pytest.mark.once
def test_a_program_that_only_imports_optimizers_has_no_steps(stepped):
    trace, row = stepped("learn(net())")
    assert (marks(trace), row) == ([], {})


@pytest.mark.parametrize("level", ["functions", "modules", "off"])
def test_one_mark_a_step_and_one_for_the_rest_all_closed(stepped, level):
    trace, row = stepped("""
        def train():
            model = net()
            o = sgd(model)
            for _ in range(5):
                learn(model, o)
            model(torch.ones(1, 4))
        train()
        """, ["--python", level])
    found = marks(trace)
    assert [number for number, *_ in found] == [0, 1, 2, 3, 4, 5] and row["steps"] == "5"
    # HTA reads up to the begin of the last: five whole steps. None is left open, none overlaps the next.
    assert not [e for *_, e in found if e["args"].get("finished") is False]
    assert all(a[2] <= b[1] + 0.001 for a, b in zip(found, found[1:]))
    assert [inside(trace, "aten::addmm", mark) for mark in found[:5]] == [1, 1, 1, 1, 1]


def test_two_optimizers_in_one_iteration_are_one_step(stepped):
    trace, row = stepped("""
        def train():
            model = net()
            both = sgd(model), adam(model)
            for _ in range(4):
                learn(model, *both)
        train()
        """)
    found = marks(trace)
    assert [number for number, *_ in found] == [0, 1, 2, 3, 4] and row["steps"] == "4" and "jumps" not in row
    assert [inside(trace, "aten::addmm", mark) for mark in found[:4]] == [2, 2, 2, 2]


def test_two_optimizers_of_one_class_are_told_apart(stepped):
    _, row = stepped("""
        def train():
            one, two = net(), net()
            a, b = sgd(one), sgd(two)
            for _ in range(3):
                learn(one, a)
                learn(two, b)
        train()
        """)
    assert row["steps"] == "3" and row["a step ends with"] == "Optimizer: SGD_0"


def test_an_optimizer_that_takes_over_goes_on_counting_from_its_first_step(stepped):
    trace, row = stepped("""
        def train():
            model = net()
            a, b = sgd(model), adam(model)
            for _ in range(3):
                learn(model, a)
            for _ in range(3):
                learn(model, b)
        train()
        """)
    assert row["steps"] == "6" and "jumps" not in row
    assert [number for number, *_ in marks(trace)] == list(range(7))  # the last one is the rest


def test_marks_of_the_programs_own_profiler_are_the_only_ones(stepped):
    trace, row = stepped("""
        from torch.profiler import ProfilerActivity, profile, schedule
        def train():
            model = net()
            o = sgd(model)
            with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2)) as p:
                for _ in range(6):
                    learn(model, o)
                    p.step()
        train()
        """)
    numbers = [number for number, *_ in marks(trace)]
    assert numbers in ([0, 1, 2, 3, 4, 5, 6], [0, 0, 1, 2, 3, 4, 5])  # torch 1.13 gives the first number twice
    assert row["steps"] == "6" and row["a step ends with"] == "ProfilerStep"


def test_its_step_counts_also_where_it_marks_nothing_and_optimizers_step_twice(stepped):
    trace, row = stepped("""
        from torch.profiler import ProfilerActivity, profile
        def train():
            model = net()
            o = sgd(model)
            with profile(activities=[ProfilerActivity.CPU]) as p:
                for _ in range(3):
                    learn(model, o, o)
                    p.step()
        train()
        """)
    assert row["steps"] == "3" and re.fullmatch(r"torch/profiler/profiler\.py\(\d+\): step", row["a step ends with"])
    assert [number for number, *_ in marks(trace)] == [0, 1, 2, 3]


@pytest.mark.parametrize("schedule, steps", [("torch.profiler.schedule(wait=0, warmup=0, active=100)", 5), ("torch.profiler.schedule(wait=1, warmup=1, active=3)", 3)])
def test_what_torch_profiler_leaves_after_the_last_step_is_none(torchprof, program, torch_python, tmp_path, schedule, steps):
    text = """
        model = net()
        o = sgd(model)
        with torch.profiler.profile(schedule=%s, on_trace_ready=lambda p: p.export_chrome_trace("own.json")) as p:
            for _ in range(5):
                learn(model, o)
                p.step()
        """ % schedule
    subprocess.run([torch_python, program(HEAD + textwrap.dedent(text))], cwd=tmp_path, check=True, env=clean_environment())
    done = torchprof("report", tmp_path / "own.json", "-t", "steps", "--json")
    table, *_ = json.loads(done.stdout)["tables"]
    assert [row["steps"] for row in table["rows"]] == [steps], done.stdout
