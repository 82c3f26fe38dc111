"""Ranges that cross Python's functions and each other: each has its recorded times, and sums are those of the recorded times."""
import json
import textwrap

import pytest

from conftest import SUPPORT

# What a reading of one clock and the conversion to the other are off by.
CLOCKS_NS = 20_000


@pytest.fixture
def crossed(run_torchprof, torch_python, tmp_path):
    """crossed(SEED, PROGRAMS): the run, and what the programs' own clock says."""
    def run(seed, programs, options=()):
        out = tmp_path / "own.json"
        done = run_torchprof([torch_python, SUPPORT / "crossing_ranges.py", str(seed), str(programs), out], options=["-w", "all", *options])
        assert done.status == 0, done.stderr
        return done, json.loads(out.read_text())
    return run


def is_between(time, before, after):
    return before - CLOCKS_NS <= time <= after + CLOCKS_NS


def differing(trace, own):
    """Lines for what is not where the program's own clock saw it; `own`: as crossing_ranges.py writes it."""
    base = trace.doc["baseTimeNanoseconds"]
    spans = {}
    marks = []
    for e in trace.spans("user_annotation"):
        begin, ns = base + round(e["ts"] * 1000), round(e["dur"] * 1000)
        if e["name"].startswith("range "):
            if e["name"] in spans:
                yield "%s comes twice" % e["name"]
            spans[e["name"]] = begin, begin + ns
        elif e["name"].startswith("ProfilerStep#"):
            marks.append((begin, begin + ns, e["name"]))
    for name, *read in own["ranges"]:
        begin, end = spans.pop(name, (0, 0))
        if not (is_between(begin, *read[:2]) and is_between(end, *read[2:])):
            yield "%s is %d to %d, %s" % (name, begin, end, read)
    for name in spans:
        yield "%s is not known to the program" % name
    marks.sort()
    if len(marks) != len(own["steps"]) - 1:
        yield "%d steps, %d known to the program" % (len(marks), len(own["steps"]) - 1)
    for (begin, end, name), before, after in zip(marks, own["steps"], own["steps"][1:]):
        if not (is_between(begin, *before) and is_between(end, *after)):
            yield "%s is %d to %d, %s, %s" % (name, begin, end, before, after)


def wrong_sums(tables, trace, own):
    """Lines for self times that are negative or more than their thread's time, and for totals that are not the ranges' times."""
    wall = max(e["ts"] + e["dur"] for e in trace.spans("user_annotation", "cpu_op", "python_function")) - min(
        e["ts"] for e in trace.spans("user_annotation", "cpu_op", "python_function"))
    for kind in "ops", "python":
        for row in tables[kind]:
            time = row["self_cpu_ns" if kind == "ops" else "self_ns"]
            if time < 0:
                yield "self time of %s is %d" % (row["name"], time)
    for row in tables["threads"]:
        for time in "operator_ns", "python_ns":
            if not 0 <= row[time] <= wall * 1000:
                yield "thread %s: %s" % (row["name"], row)
    ops = {row["name"]: row for row in tables["ops"]}
    for name, entering, entered, leaving, left in own["ranges"]:
        row = ops.get(name, {"cpu_total_ns": -1, "self_cpu_ns": 0})
        if not leaving - entered - CLOCKS_NS <= row["cpu_total_ns"] <= left - entering + CLOCKS_NS or row["self_cpu_ns"] > row["cpu_total_ns"]:
            yield "%s: %s" % (name, row)


def tables_of(torchprof, path):
    done = torchprof("report", path, "--json", "-n", 999999, "-t", "ops,python,threads,steps")
    assert done.returncode == 0, done.stderr
    return {table["name"]: table["rows"] for table in json.loads(done.stdout)["tables"]}


def test_each_range_and_step_of_random_programs_has_the_times_of_the_programs_own_clock(crossed, check_trace, torchprof):
    run, own = crossed(1, 60)
    trace = check_trace(run.trace())
    assert len(own["ranges"]) > 100
    assert list(differing(trace, own)) == []
    tables = tables_of(torchprof, run.directory)
    assert list(wrong_sums(tables, trace, own)) == []
    of_file = tables_of(torchprof, run.trace_paths[0])
    times = [{row["name"]: (row["cpu_total_ns"], row["self_cpu_ns"]) for row in t["ops"]} for t in (tables, of_file)]
    assert times[0] == times[1]


def test_a_range_under_a_dispatch_mode_holds_its_operators(run_torchprof, check_trace, torch_python, program):
    run = run_torchprof([torch_python, program(textwrap.dedent("""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode
        class Mode(TorchDispatchMode):
            def handle(self, f, args, kwargs): return f(*args, **kwargs)
            def __torch_dispatch__(self, f, types, args=(), kwargs=None): return self.handle(f, args, kwargs or {})
        with Mode():
            for _ in range(3):
                with torch.profiler.record_function("mine"): torch.ones(8).relu()
    """))])
    assert run.status == 0, run.stderr
    trace = check_trace(run.trace())
    mine = trace.named("mine", "user_annotation")
    assert len(mine) == 3
    assert all("aten::relu" in [e["name"] for e in trace.inside(each, "cpu_op")] for each in mine)


def test_a_range_goes_beside_its_functions_only_where_it_outlives_one_that_does_more_than_begin_it(run_torchprof, check_trace, torch_python, program):
    run = run_torchprof([torch_python, program(textwrap.dedent("""
        import contextlib, torch
        from torch.profiler import record_function
        class Profiler:  # as Lightning's
            def start(self, name): self.range = record_function(name); self.range.__enter__()
            def stop(self): self.range.__exit__(None, None, None)
            @contextlib.contextmanager
            def profile(self, name):
                self.start(name)
                try: yield
                finally: self.stop()
        def train():
            with Profiler().profile("managed"): torch.ones(3).add(1)
            profiler = Profiler()
            profiler.start("by hand")
            torch.ones(3).mul(1)
            profiler.stop()
            def numbers():
                with record_function("in a generator"): torch.ones(3).sub(1); yield
            list(numbers())
            for _ in numbers(): break
        train()
    """))])
    assert run.status == 0, run.stderr
    trace = check_trace(run.trace())
    own = {e["tid"] for e in trace.spans("python_function")}
    managed, = trace.named("managed")
    assert managed["tid"] in own and "aten::add" in [e["name"] for e in trace.inside(managed, "cpu_op")]
    (by_hand,), generators = trace.named("by hand"), trace.named("in a generator")
    assert len(generators) == 2
    names = {e["tid"]: e["args"]["name"] for e in trace.events if e["ph"] == "M" and e["name"] == "thread_name"}
    for each in by_hand, *generators:
        assert each["tid"] not in own and names[each["tid"]].endswith(", overlapping annotations")
