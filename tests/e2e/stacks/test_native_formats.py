"""Native stacks in the formats other than Kineto's."""
import collections
import gzip
import json
import sqlite3

import pytest

import perfetto_trace
from conftest import SUPPORT, profile

pytestmark = pytest.mark.once

PROGRAM = """
import torch
def outer(): return inner()
def inner(): return torch.ones(3)
outer()
large = torch.empty(1 << 20)
"""


@pytest.fixture(scope="module")
def recorded(launcher, torch_python, tmp_path_factory):
    directory = tmp_path_factory.mktemp("native_formats")
    (directory / "program.py").write_text(PROGRAM)
    run = profile(launcher, directory / "run", [torch_python, directory / "program.py"], ["--native", "on"])
    assert run.status == 0, run.stderr
    return run


@pytest.fixture
def export(torchprof, recorded, tmp_path):
    def write(form, name="written"):
        done = torchprof("export", recorded.directory, "--format", form, "-o", tmp_path / name)
        assert done.returncode == 0, done.stderr
        return tmp_path / name
    return write


def without_arguments(frame):
    return frame.split("(")[0]


def check_path_of_empty(path):
    """Of the tensor that ones() makes: the frames in between, and those of the interpreter outside of all."""
    begin = next(i for i, frame in enumerate(path) if frame.endswith("inner"))
    inside = [without_arguments(frame) for frame in path[begin + 1:]]
    ones, empty = inside.index("aten::ones"), inside.index("aten::empty")
    assert "at::_ops::ones::call" in inside[:ones], inside
    assert any(frame.startswith("at::_ops::empty") for frame in inside[ones:empty]), inside
    assert inside.count("at::_ops::ones::call") == 1 and empty == len(inside) - 1, inside
    assert not any("Py_RunMain" in frame or "_start" in frame or "libtorchprof" in frame for frame in path)


def test_speedscope_has_native_frames_in_the_paths_and_all_of_the_time(export, recorded):
    doc = json.loads(export("speedscope").read_text())
    names = [frame["name"] for frame in doc["shared"]["frames"]]
    paths = collections.Counter()
    for p in doc["profiles"]:
        for sample, weight in zip(p["samples"], p["weights"], strict=True):
            paths[tuple(names[i] for i in sample)] += weight
    path, = (p for p in paths if p[-1] == "aten::empty" and any(frame.endswith("inner") for frame in p))
    check_path_of_empty(path)
    stacks = [line.rsplit(" ", 1) for line in export("stacks").read_text().splitlines()]
    assert len({path for path, _ in stacks}) == len(stacks)
    assert abs(sum(int(us) for _, us in stacks) * 1000 - sum(paths.values())) < 1000


def test_pprof_has_addresses_in_objects_with_their_build_ids(export, recorded):
    profile = perfetto_trace.decode(gzip.decompress(export("pprof", "x.pb.gz").read_bytes()), "Profile", SUPPORT / "pprof.proto")
    text = profile["string_table"]
    known = {line.split("\t")[2].strip(): line.split("\t")[1] for line in (recorded.directory / "spool" / "symbols").read_text().splitlines() if line.startswith("object")}
    mappings = {m["id"][0]: m for m in profile["mapping"]}
    files = {i: text[m["filename"][0]] for i, m in mappings.items()}
    assert any("libtorch_cpu" in file for file in files.values())
    assert all(text[m["build_id"][0] if m["build_id"] else 0] == known[files[i]].replace("-", "") for i, m in mappings.items())
    functions = {f["id"][0]: text[f["name"][0]] for f in profile["function"]}
    locations = {location["id"][0]: location for location in profile["location"]}
    native = [location for location in locations.values() if location["mapping_id"]]
    assert native and all(mappings[n["mapping_id"][0]]["memory_start"][0] <= n["address"][0] < mappings[n["mapping_id"][0]]["memory_limit"][0] for n in native)
    def path_of(sample):
        return [functions[line["function_id"][0]] for i in reversed(sample["location_id"]) for line in reversed(locations[i]["line"])]
    path, = (p for p in map(path_of, profile["sample"]) if p[-1] == "aten::empty" and "inner" in p)
    check_path_of_empty(path)


def test_perfetto_has_the_stacks_of_the_kineto_trace(export, recorded):
    def described(name):
        return without_arguments(name).strip()
    expected = collections.Counter((e["name"], tuple(map(described, e["args"]["stack"]))) for e in recorded.trace().spans("cpu_op"))
    slices = [s for s in perfetto_trace.Trace(export("perfetto")).slices if s.category == "cpu_op"]
    assert collections.Counter((s.name, tuple(described(name) for name, _ in reversed(s.frames))) for s in slices) == expected
    assert {path.split("/")[-1].split(".")[0] for s in slices for _, path in s.frames if path} >= {"libtorch_cpu"}


def test_a_large_allocation_has_its_stack_in_every_format_that_shows_allocations(export, recorded, torchprof):
    expected, = (e["args"] for e in recorded.trace().events if e["name"] == "[memory]" and "stack" in e["args"] and e["args"]["Bytes"] > 0)
    assert any(frame.startswith("at::") for frame in expected["stack"])
    instant, = (i for i in perfetto_trace.Trace(export("perfetto")).instants if i.name == "[memory]")
    assert instant.args["Bytes"] == expected["Bytes"] == 4 << 20
    assert [without_arguments(name).strip() for name, _ in reversed(instant.frames)] == [without_arguments(f).strip() for f in expected["stack"]]


def test_sqlite_has_the_lines_that_call_operators_and_allocate(export):
    db = sqlite3.connect(export("sqlite", name="x.sqlite"))
    assert db.execute("SELECT line FROM op_events WHERE name = 'aten::ones'").fetchall() == [("program.py(4): inner",)]
    assert db.execute("SELECT place FROM memory_events WHERE bytes = 4 << 20").fetchall() == [("program.py(6): <module>",)]


def test_operators_by_the_native_frames_that_call_them(torchprof, recorded):
    done = torchprof("report", recorded.directory, "--group-by", "stack:6", "--csv", "--tables", "ops")
    assert done.returncode == 0, done.stderr
    empty = [line for line in done.stdout.splitlines() if "aten::empty" in line]
    assert empty and all("at::_ops::empty" in line for line in empty), done.stdout
