"""Runs that earlier versions recorded are read for ever. tests/e2e/files/kept/VERSION has their run directories (run.json and spool, packed)
and what that version itself said of them (facts.json): neither is ever made anew. A version that writes what none before it wrote adds its own.
Where that version was wrong, corrected.json has what is right, and nothing else:
    0.2.0    ranges were cut to the functions in which they began; they have their recorded times;
             the table of threads counted collections of garbage as calls of Python

0.2.0 is commit 998d056, spool version 3, on Debian 12 with Python 3.11.2 and torch 1.13.1:
    whole    torchprof run -- python3 train.py
    window   torchprof run -w steps=1..2 --native on --native-threshold 1 --python calls -- python3 train.py
    last     torchprof run -w all --keep last --max-size 1M --python calls -- python3 calls.py
In run.json the name of the kernel was replaced."""
import collections
import json
import pathlib
import tarfile

import pytest

from spool_records import records

pytestmark = pytest.mark.once

KEPT = pathlib.Path(__file__).parent / "kept"
KINDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 22, 24, 25, 32, 33, 34, 37, 38, 39, 40, 64, 68, 91, 96, 97, 98, 99]
RUNS = [(version.name, run) for version in sorted(KEPT.iterdir()) for run in ("whole", "window", "last")]


@pytest.fixture(scope="module", params=RUNS, ids=" ".join)
def kept(request, tmp_path_factory):
    """A run of an earlier version, and what it said of it."""
    version, name = request.param
    directory = tmp_path_factory.mktemp("kept")
    with tarfile.open(KEPT / version / (name + ".tar.xz")) as packed:
        packed.extractall(directory)
    said, right = (json.loads((KEPT / version / file).read_text()).get(name, {}) for file in ("facts.json", "corrected.json"))
    return directory / name, corrected(said, right)


def corrected(said, right):
    both_are_tables = {key for key in right if isinstance(right[key], dict)}
    return {**said, **right, **{key: corrected(said[key], right[key]) for key in both_are_tables}}


def facts(torchprof, load_trace, run, place):
    """Names, counts and sums, in no form that a later version may give up."""
    def rows(table, *keys, own=None):
        return {row["name"]: [row[key] for key in keys] for row in tables.get(table, []) if own is None or row["name"].startswith(own)}

    done = torchprof("report", run, "-t", "ops,modules,memory,python,steps,threads,processes,profiler", "--json", "-n", 100000)
    assert (done.returncode, done.stderr) == (0, "")
    tables = {table["name"]: table["rows"] for table in json.loads(done.stdout)["tables"]}
    done = torchprof("export", run, "-f", "kineto", "-o", place / "trace.json.gz")
    assert done.returncode == 0, done.stderr
    trace = load_trace(place / "trace.json.gz")
    complete = [e for e in trace.events if e.get("ph") == "X"]
    return {
        "operators": rows("ops", "calls", "self_cpu_ns", "cpu_total_ns", "self_cpu_mem_bytes", "flops"),
        "modules": rows("modules", "calls", "forward_total_ns", "backward_total_ns", "optimizer_ns", "parameters", "path"),
        "functions": rows("python", "calls", "self_ns", "total_ns", own=("train.py(", "calls.py(", "<built-in", "nn.Module", "Optimizer")),
        "threads": sorted([row["name"], row["operators"], row["python_calls"], row["operator_ns"]] for row in tables.get("threads", [])),
        "steps": [[row[key] for key in ("steps", "min_ns", "max_ns", "ends_with")] for row in tables.get("steps", [])],
        "memory": [[row[key] for key in ("device", "bytes", "blocks")] for row in tables.get("memory", [])],
        "processes": [[row[key] for key in ("events", "operator_ns", "ended", "command")] for row in tables.get("processes", [])],
        "trouble": [[row[key] for key in ("lost", "recycled_bytes", "damaged_bytes")] for row in tables.get("profiler", [])],
        "slices": dict(sorted(collections.Counter(e["cat"] for e in complete).items())),
        "slices_us": dict(sorted((category, round(sum(e["dur"] for e in complete if e["cat"] == category), 3))
                                 for category in {e["cat"] for e in complete})),
        "allocations": len([e for e in trace.events if e.get("name") == "[memory]"]),
        "shapes": sorted({json.dumps(e["args"]["Input Dims"]) for e in complete if e["cat"] == "cpu_op" and e["name"] == "aten::mm"}),
    }


def test_a_kept_run_says_what_it_always_said(kept, torchprof, load_trace, check_trace, tmp_path):
    run, said = kept
    assert facts(torchprof, load_trace, run, tmp_path) == said
    check_trace(tmp_path / "trace.json.gz", merged=len(said["processes"]) > 1)


@pytest.mark.parametrize("command", [
    ["report", "RUN"], ["report", "RUN", "--html", "OUT"], ["export", "RUN", "-f", "perfetto", "-o", "OUT"], ["export", "RUN", "-f", "sqlite", "-o", "OUT"],
    ["export", "RUN", "-f", "memory-snapshot", "-o", "OUT"], ["export", "RUN", "-f", "stacks", "-o", "OUT"], ["where", "RUN"], ["merge", "RUN", "-o", "OUT"]], ids=" ".join)
def test_every_command_reads_a_kept_run(kept, torchprof, tmp_path, command):
    run, _ = kept
    done = torchprof(*[{"RUN": run, "OUT": tmp_path / "out"}.get(word, word) for word in command])
    assert done.returncode == 0 and (tmp_path / "out").exists() == ("OUT" in command), done.stderr


def test_the_kept_runs_have_these_kinds_of_records(tmp_path):
    """Of those that are not in a short form: definitions, Python, operators, memory, stacks, steps and what restates open spans."""
    kinds = set()
    for packed in KEPT.glob("0.2.0/*.tar.xz"):
        with tarfile.open(packed) as runs:
            runs.extractall(tmp_path)
    for spool in tmp_path.glob("*/spool/*.spool"):
        kinds |= {kind for kind, _ in records(spool)}
    assert sorted(kinds) == KINDS
