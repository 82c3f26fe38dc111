"""`export --format parquet`: a directory of tables with the numbers of ours, for whatever reads Parquet."""
import collections
import csv
import io
import json
import shutil

import pytest

import read_parquet
from datasets import database, dataset, rows, talked  # noqa: F401  fixtures
from simulated_hosts import move_ranks

pytestmark = pytest.mark.once


def slices_of(directory, host_and_file):
    return read_parquet.columns(directory / host_and_file)


def test_there_is_a_file_for_each_process_and_tables_of_all(dataset):  # noqa: F811
    run, directory = dataset
    processes = read_parquet.columns(directory / "processes.parquet")
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*.parquet"))
    assert files == sorted(["steps.parquet", "processes.parquet", "collectives.parquet", *processes["file"]])
    assert {(rank, role, file.rpartition("/")[2]) for rank, role, file in rows(processes, "rank", "role", "file") if rank is not None} == {
        (0, "rank 0", "rank=0.parquet"), (1, "rank 1", "rank=1.parquet")}
    assert {file.partition("/")[0] for file in processes["file"]} == {"host=" + host for host in processes["host"]}
    known = {process["pid"] for process in json.loads((run.directory / "run.json").read_text())["processes"]}
    assert set(processes["pid"]) == known


def test_every_slice_has_its_row(dataset, database):  # noqa: F811
    directory = dataset[1]
    for file, pid in rows(read_parquet.columns(directory / "processes.parquet"), "file", "pid"):
        slices = slices_of(directory, file)
        ours = collections.Counter(rows(slices, "tid", "name", "kind", "start_ns", "duration_ns", "self_ns", "is_outermost"))
        theirs = collections.Counter()
        for table, own in ("ops", "e.self_ns - e.calls_ns"), ("python", "e.self_ns"):
            theirs.update(database.execute(
                "SELECT t.tid, n.text, e.kind, e.start_ns, e.duration_ns, %s, e.is_outermost FROM %s e JOIN threads t ON t.id = e.thread "
                "JOIN strings n ON n.id = e.name JOIN processes p ON p.id = e.process WHERE p.pid = ?" % (own, table), [pid]))
        assert ours == theirs and ours


def test_slices_have_their_step_module_and_shapes(dataset):  # noqa: F811
    directory = dataset[1]
    steps = read_parquet.columns(directory / "steps.parquet")
    assert collections.Counter(steps["rank"]).keys() == {0, 1} and set(steps["ended_by"]) == {"Optimizer: SGD_0"}
    for rank in 0, 1:
        slices = slices_of(directory, "%s/rank=%d.parquet" % (next(directory.glob("host=*")).name, rank))
        spans = {step: (start, start + took) for of, step, start, took in rows(steps, "rank", "step", "start_ns", "duration_ns") if of == rank}
        assert len(spans) >= 11
        for start, step in rows(slices, "start_ns", "step"):
            inside = [number for number, (begin, end) in spans.items() if begin <= start < end]
            assert inside == ([] if step is None else [step])
        linear = [(module, step) for name, module, step in rows(slices, "name", "module", "step") if name == "aten::addmm"]
        assert collections.Counter(module for module, _ in linear) == {"0": 12, "2": 12}
        assert all(json.loads(shapes)[1] == [4, 8] for name, shapes in rows(slices, "name", "shapes") if name == "aten::addmm")
        assert sum(name.startswith("a ") and "\x1b" not in name for name in slices["name"]) == 12


@pytest.mark.parametrize("hosts", [1, 2])
def test_collectives_add_up_to_the_table_comms(talked, torchprof, tmp_path, hosts):  # noqa: F811
    """On two hosts, too, where waits within the clocks' error are none."""
    shutil.copytree(talked, tmp_path / "run")
    if hosts == 2:
        move_ranks(tmp_path / "run", {2}, "elsewhere", 5_000_000, 20e-6)
    assert torchprof("export", tmp_path / "run", "--format", "parquet", "-o", tmp_path / "out").returncode == 0
    calls = collections.defaultdict(list)
    columns = read_parquet.columns(tmp_path / "out" / "collectives.parquet")
    for row in rows(columns, *columns):
        row = dict(zip(columns, row))
        calls[row["name"]].append(row)
    assert calls.keys() == {"gloo:all_reduce", "gloo:broadcast", "gloo:send", "gloo:recv"}
    assert {call["host"] == "elsewhere" for of in calls.values() for call in of if call["rank"] == 2} == {hosts == 2}
    table = list(csv.DictReader(io.StringIO(torchprof("report", tmp_path / "run", "-t", "comms", "--csv").stdout)))
    assert len(table) == len(calls) and not any(key.endswith("?") for key in table[0])  # lines end with \\r\\n
    for line in table:
        of = calls[line["name"]]
        assert (len(of), sum(c["duration_ns"] for c in of), sum(c["bytes"] or 0 for c in of)) == (
            int(line["calls"]), int(line["total_ns"]), int(line["bytes"]))
        if line["name"] == "gloo:send":  # is compared on the side that waits
            assert not line["waiting_ns"] and {(c["is_last"], c["waiting_ns"]) for c in of} == {(True, None)}
            continue
        assert sum(c["waiting_ns"] or 0 for c in of) == int(line["waiting_ns"])
        collective = {c["collective"]: c for c in of if c["collective"]}
        last = collections.Counter(c["rank"] for all_of in calls.values() for c in all_of if c["is_last"] and c["collective"] in collective)
        if not last:
            assert not line["slowest"]
            continue
        assert int(line["slowest"].removeprefix("rank ")) in [rank for rank in last if last[rank] == max(last.values())]
        assert float(line["slowest_percent"]) == pytest.approx(100 * max(last.values()) / len(collective))


def test_a_collective_of_all_ranks_is_one(talked, torchprof, tmp_path):  # noqa: F811
    assert torchprof("export", talked, "--format", "parquet", "-o", tmp_path / "out").returncode == 0
    columns = read_parquet.columns(tmp_path / "out" / "collectives.parquet")
    of = collections.defaultdict(dict)
    for collective, rank, name, *rest in rows(columns, "collective", "rank", "name", "start_ns", "duration_ns", "matched_by", "ranks", "bytes", "dtype", "peer"):
        of[collective][rank] = (name, *rest)
    reduce = [ranks for ranks in of.values() if ranks[max(ranks)][0] == "gloo:all_reduce"]
    assert len(reduce) == 20 and all(ranks.keys() == {0, 1, 2} for ranks in reduce)
    for ranks in reduce:
        assert max(start for _, start, *_ in ranks.values()) <= min(start + took for _, start, took, *_ in ranks.values())
        assert {call[3:] for call in ranks.values()} == {("begin", 3, 32, "Float", None)}
    assert {call[6] for ranks in of.values() for call in ranks.values() if call[0] == "gloo:broadcast"} == {"Double"}
    pairs = [ranks for ranks in of.values() if ranks.keys() == {0, 2}]
    assert len(pairs) == 20 and all((ranks[0][0], ranks[0][7], ranks[2][0], ranks[2][7]) == ("gloo:send", 2, "gloo:recv", 0) for ranks in pairs)


def test_a_part_of_a_run_has_the_collectives_of_its_processes(talked, torchprof, tmp_path):  # noqa: F811
    assert torchprof("export", talked, "--format", "parquet", "-o", tmp_path / "out", "--process", "1", "--process", "2").returncode == 0
    columns = read_parquet.columns(tmp_path / "out" / "collectives.parquet")
    assert set(columns["rank"]) == {1, 2} and set(columns["ranks"]) == {2, None}
    assert all(collective is None for name, collective in rows(columns, "name", "collective") if name == "gloo:recv")


def test_row_groups_can_be_skipped_by_time(dataset):  # noqa: F811
    """Each is sorted, and they follow each other but for what lasts longer than one."""
    directory = dataset[1]
    file = next(directory.glob("host=*/rank=1.parquet"))
    footer = read_parquet.footer_of(file.read_bytes())
    sizes = [group[3] for group in footer[4]]
    assert len(sizes) > 1 and set(sizes[:-1]) == {122880}
    starts, first = read_parquet.columns(file)["start_ns"], 0
    for size in sizes:
        assert starts[first:first + size] == sorted(starts[first:first + size])
        first += size


def test_steps_of_processes_share_row_groups(dataset):  # noqa: F811
    footer = read_parquet.footer_of((dataset[1] / "steps.parquet").read_bytes())
    assert len(footer[4]) == 1 and set(read_parquet.columns(dataset[1] / "steps.parquet")["rank"]) == {0, 1}


def test_it_takes_few_bytes(dataset):  # noqa: F811
    file = next(dataset[1].glob("host=*/rank=1.parquet"))
    rows = read_parquet.footer_of(file.read_bytes())[3]
    assert rows > 100000 and file.stat().st_size / rows < 9


@pytest.mark.parametrize("arguments, says", [
    (["--format", "parquet"], "export: parquet is a directory of files: name one directory with -o"),
    (["--format", "parquet,table", "-o", "A", "-o", "B"], "export: parquet is a directory of files: name one directory with -o")])
def test_it_wants_a_directory(dataset, torchprof, arguments, says):  # noqa: F811
    done = torchprof("export", dataset[0].directory, *arguments)
    assert done.returncode == 125 and done.stderr == "torchprof: %s\n" % says


def test_files_that_are_there_stay(dataset, torchprof):  # noqa: F811
    run, directory = dataset
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*.parquet")}
    done = torchprof("export", run.directory, "--format", "parquet", "-o", directory)
    assert done.returncode == 125 and "exists" in done.stderr and {path: path.stat().st_mtime_ns for path in directory.rglob("*.parquet")} == before


def test_run_says_what_writes_it(torchprof):
    done = torchprof("run", "--format", "parquet", "true")
    assert done.returncode == 125 and "`torchprof export RUN --format parquet -o DIRECTORY` writes it" in done.stderr
