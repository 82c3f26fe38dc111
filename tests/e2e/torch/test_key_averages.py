"""The table of operators against torch.profiler's key_averages, both of the same operators: torch.profiler records inside of the window."""
import collections
import functools
import json
import subprocess

import pytest

from conftest import SUPPORT, profile, torch_here

SCRIPT = SUPPORT / "key_averages.py"
# What torch leaves out of its tables, or sums up without an operator, and what lies around its recording. aten::sum calls another overload of
# itself and nothing else: torch then leaves out the outer one. 1.13 makes a tensor for a record_function, with aten::empty.
NOT_COMPARED = ("[memory]", "measured", "first", "aten::is_leaf", "aten::output_nr", "aten::_version", "profiler::", "aten::sum")


def is_compared(name):
    return not name.startswith(NOT_COMPARED) and (torch_here()[0] >= (2, 0) or not name.startswith("aten::empty"))


def shapes(lists):
    """Lists of tensors are lists of shapes here, [] in some torches."""
    return json.dumps([[] if size and isinstance(size[0], list) else size for size in lists])


@pytest.fixture(scope="module")
def record(launcher, torch_python, tmp_path_factory):
    """record(N): ({(name, shapes): row} of ours, of torch's, {name: bytes} as torch.profiler's events have them) in the Nth run"""
    return functools.lru_cache(None)(lambda n: run_under_both(launcher, torch_python, tmp_path_factory))


@pytest.fixture
def both(record):
    return record(0)[:2]


def run_under_both(launcher, torch_python, tmp_path_factory):
    directory = tmp_path_factory.mktemp("averages")
    run = profile(launcher, directory / "run", [torch_python, SCRIPT, directory / "theirs.json"],
                  options=["-w", "range=measured", "--python", "off"])
    assert run.status == 0, run.stderr
    report = subprocess.run([launcher, "report", run.directory, "--json", "--tables", "ops", "--group-by", "shape"], capture_output=True,
                            check=True)
    (table,) = json.loads(report.stdout)["tables"]
    ours, theirs = {}, {}
    for row in table["rows"]:
        ours[row["name"], shapes(json.loads(row["input_shapes"] or "[]"))] = {
            "calls": row["calls"], "flops": row["flops"] or 0, "self_mem": row["self_cpu_mem_bytes"], "mem": row["cpu_mem_bytes"],
            "self_ns": row["self_cpu_ns"], "total_ns": row["cpu_total_ns"]}
    recorded = json.loads((directory / "theirs.json").read_text())
    for row in recorded["rows"]:
        theirs[row.pop("name"), shapes(row.pop("shapes"))] = row
    ours, theirs = ({key: row for key, row in rows.items() if is_compared(key[0])} for rows in (ours, theirs))
    return ours, theirs, {name: bytes_ for name, bytes_ in recorded["self_mem"].items() if is_compared(name)}


def column(rows, key):
    return {group: row[key] for group, row in rows.items() if row[key]}


def test_calls_by_shape_are_those_of_key_averages(both):
    ours, theirs = (column(rows, "calls") for rows in both)
    assert ours == theirs and len(ours) > 100


def test_flops_by_shape_are_those_of_key_averages(both):
    ours, theirs = (column(rows, "flops") for rows in both)
    assert {key: ours[key] for key in theirs} == theirs and len(theirs) > 5
    assert {name for name, _ in ours.keys() - theirs.keys()} <= {"aten::linear", "aten::convolution"}  # torch has no formula for them


def test_memory_of_its_own_is_what_torch_profiler_recorded_in_each_operator(record):
    """By nanoseconds, where key_averages of 2.6 and earlier divides them by 1000 first: an allocation near the edge of an operator falls into
    another one there, not the same in each run."""
    ours, _, events = record(0)
    self_mem = collections.Counter()
    for (name, _), row in ours.items():
        self_mem[name] += row["self_mem"]
    assert {name: bytes_ for name, bytes_ in self_mem.items() if bytes_} == {name: bytes_ for name, bytes_ in events.items() if bytes_}


def test_memory_is_that_of_key_averages(both):
    if torch_here()[0] < (2, 7):
        pytest.skip("key_averages itself is wrong there, see the test above")
    for what in ("self_mem", "mem"):
        ours, theirs = (column(rows, what) for rows in both)
        assert ours == theirs and ours


@pytest.mark.parametrize("what", ["self_ns", "total_ns"])
def test_times_are_those_of_key_averages(record, what):
    """Those of each name in one of five runs: if the machine stops the thread between the reading of our clock and of torch's, only one of the
    two sees the pause. At the end of an optimizer's step more lies between them, the look at the processor's times (tracer/processor_time.h)."""
    differ = None
    for n in range(5):
        sums = []
        ours, theirs, _ = record(n)
        for rows in (ours, theirs):
            by_name = collections.Counter()
            for (name, _), row in rows.items():
                by_name[name] += row[what]
            sums.append(by_name)
        assert sums[1]["aten::mm"] > 0
        calls = collections.Counter()
        for (name, _), row in theirs.items():
            calls[name] += row["calls"]
        # Both measure around the same work: what differs is what the two cost themselves.
        here = {name: (sums[0][name], sums[1][name]) for name in sums[1]
                if abs(sums[0][name] - sums[1][name]) > 0.25 * sums[1][name] + 1e4 * calls[name] + 5e6}
        differ = {name: [*(differ or {}).get(name, []), here[name]] for name in here if differ is None or name in differ}
        if not differ:
            return
    pytest.fail("%s" % differ)
