"""`export --format parquet`: a directory of tables with the numbers of ours, for whatever reads Parquet."""
import collections
import csv
import importlib.util
import io
import json
import shutil
import sqlite3
import subprocess

import pytest

import read_parquet
from conftest import PATIENCE, ROOT, SUPPORT, profile
from simulated_hosts import move_ranks

pytestmark = pytest.mark.once

QUESTIONS = ROOT / "examples" / "sql" / "dataset"
TRAINING = """
import os, subprocess, sys, threading, torch
if len(sys.argv) == 1:
    for rank in "01": subprocess.run([sys.executable, __file__, "rank"], env={**os.environ, "RANK": rank, "WORLD_SIZE": "2"}, check=True)
    sys.exit()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    with torch.autograd.profiler.record_function("a \\u2028 range, \\x1b[31m"):
        model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
for _ in range(12): step()
thread = threading.Thread(target=lambda: [torch.ones(n % 7 + 1) + 1 for n in range(int(os.environ["MANY"]))])
thread.start()
thread.join()
"""


@pytest.fixture(scope="module")
def dataset(launcher, torch_python, tmp_path_factory):
    """(the run, its dataset): two ranks and their launcher, the second rank's slices in several row groups."""
    directory = tmp_path_factory.mktemp("dataset")
    (directory / "train.py").write_text(TRAINING)
    run = profile(launcher, directory / "run", [torch_python, directory / "train.py"], env={"MANY": "50000"}, options=["-q", "--format", "sqlite"])
    assert run.status == 0, run.stderr
    done = subprocess.run([launcher, "export", run.directory, "--format", "parquet", "-o", directory / "out"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.endswith("torchprof: %s: written\n" % (directory / "out")), done.stderr
    return run, directory / "out"


@pytest.fixture(scope="module")
def database(dataset):
    return sqlite3.connect(dataset[0].directory / "trace.sqlite")


def slices_of(directory, host_and_file):
    return read_parquet.columns(directory / host_and_file)


def rows(columns, *names):
    return list(zip(*(columns[name] for name in names)))


def test_there_is_a_file_for_each_process_and_tables_of_all(dataset):
    run, directory = dataset
    processes = read_parquet.columns(directory / "processes.parquet")
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*.parquet"))
    assert files == sorted(["steps.parquet", "processes.parquet", "collectives.parquet", *processes["file"]])
    assert {(rank, role, file.rpartition("/")[2]) for rank, role, file in rows(processes, "rank", "role", "file") if rank is not None} == {
        (0, "rank 0", "rank=0.parquet"), (1, "rank 1", "rank=1.parquet")}
    assert {file.partition("/")[0] for file in processes["file"]} == {"host=" + host for host in processes["host"]}
    known = {process["pid"] for process in json.loads((run.directory / "run.json").read_text())["processes"]}
    assert set(processes["pid"]) == known


def test_every_slice_has_its_row(dataset, database):
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


def test_slices_have_their_step_module_and_shapes(dataset):
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


TALK = """
import time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, small, large = dist.get_rank(), torch.ones(8), torch.ones(64, dtype=torch.float64)
for step in range(20):
    time.sleep(0.02 * (rank == step % 3))
    dist.all_reduce(small)
    dist.broadcast(large, 0)
    if rank == 0: dist.send(small, 2)
    if rank == 2: dist.recv(small, 0)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def talked(launcher, torch_python, tmp_path_factory):
    """A job of three ranks that talk to each other."""
    directory = tmp_path_factory.mktemp("talk")
    (directory / "talk.py").write_text(TALK)
    run = profile(launcher, directory / "run", [torch_python, SUPPORT / "ranks.py", 3, directory / "talk.py"], options=["-q", "--format", "table"],
                  env={"GLOO_SOCKET_IFNAME": "lo"})
    assert run.status == 0, run.stderr
    return run.directory


@pytest.mark.parametrize("hosts", [1, 2])
def test_collectives_add_up_to_the_table_comms(talked, torchprof, tmp_path, hosts):
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
    assert len(table) == len(calls)
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


def test_a_collective_of_all_ranks_is_one(talked, torchprof, tmp_path):
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


def test_a_part_of_a_run_has_the_collectives_of_its_processes(talked, torchprof, tmp_path):
    assert torchprof("export", talked, "--format", "parquet", "-o", tmp_path / "out", "--process", "1", "--process", "2").returncode == 0
    columns = read_parquet.columns(tmp_path / "out" / "collectives.parquet")
    assert set(columns["rank"]) == {1, 2} and set(columns["ranks"]) == {2, None}
    assert all(collective is None for name, collective in rows(columns, "name", "collective") if name == "gloo:recv")


def test_row_groups_can_be_skipped_by_time(dataset):
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


def test_it_takes_few_bytes(dataset):
    file = next(dataset[1].glob("host=*/rank=1.parquet"))
    rows = read_parquet.footer_of(file.read_bytes())[3]
    assert rows > 100000 and file.stat().st_size / rows < 9


@pytest.mark.parametrize("arguments, says", [
    (["--format", "parquet"], "export: parquet is a directory of files: name one directory with -o"),
    (["--format", "parquet,table", "-o", "A", "-o", "B"], "export: parquet is a directory of files: name one directory with -o")])
def test_it_wants_a_directory(dataset, torchprof, arguments, says):
    done = torchprof("export", dataset[0].directory, *arguments)
    assert done.returncode == 125 and done.stderr == "torchprof: %s\n" % says


def test_files_that_are_there_stay(dataset, torchprof):
    run, directory = dataset
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*.parquet")}
    done = torchprof("export", run.directory, "--format", "parquet", "-o", directory)
    assert done.returncode == 125 and "exists" in done.stderr and {path: path.stat().st_mtime_ns for path in directory.rglob("*.parquet")} == before


def test_run_says_what_writes_it(torchprof):
    done = torchprof("run", "--format", "parquet", "true")
    assert done.returncode == 125 and "`torchprof export RUN --format parquet -o DIRECTORY` writes it" in done.stderr


@pytest.mark.skipif(not shutil.which("duckdb"), reason="tests with DuckDB run where Debian's duckdb is installed (sid)")
def test_duckdb_gives_the_numbers_of_the_tables(dataset, database):
    query = ("SELECT rank, name, count(*), sum(duration_ns) FILTER (WHERE is_outermost), sum(self_ns) FROM read_parquet('%s/host=*/rank=*.parquet') "
             "WHERE kind IN ('op', 'backward', 'annotation') GROUP BY ALL" % dataset[1])
    done = subprocess.run(["duckdb", "-json", "-c", query], capture_output=True, text=True, check=True)
    ours = {tuple(map(str, row.values())) for row in json.loads(done.stdout)}
    wanted = database.execute("SELECT rank, name, calls, total_ns, self_ns FROM op_totals WHERE rank IS NOT NULL")
    assert ours == {tuple(map(str, row)) for row in wanted}


def answers(datasets, question):
    """{file of examples/sql/dataset: its rows}; the earlier run that it is compared with is the same."""
    asked = ["duckdb", "-json", "-c", "SET VARIABLE dataset = '%s'" % datasets, "-c", "SET VARIABLE base = '%s'" % datasets]
    for file in "views", question:
        asked += ["-c", (QUESTIONS / (file + ".sql")).read_text()]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), (question, done.stderr)
    return json.loads(done.stdout or "[]")


@pytest.mark.skipif(not shutil.which("duckdb"), reason="tests with DuckDB run where Debian's duckdb is installed (sid)")
def test_the_questions_of_the_examples_are_answered_with_the_numbers_of_the_tables(dataset, database, talked, torchprof, tmp_path):
    of_one = {question: answers(dataset[1], question) for question in ("operators", "python", "modules", "steps", "slow_steps", "changed", "kernels", "exposed_communication")}
    for question, table in (("operators", "op_totals"), ("python", "python_totals")):
        wanted = {row[0]: row[1:] for row in database.execute("SELECT name, sum(calls), sum(total_ns), sum(self_ns) FROM %s GROUP BY name" % table)}
        rows = of_one[question]
        assert len(rows) == min(20, len(wanted)) and {row["name"]: (row["calls"], int(row["total_ns"]), int(row["self_ns"])) for row in rows}.items() <= wanted.items(), question
    times = database.execute("SELECT rank, count(*), max(duration_ns) FROM step_times WHERE number > 0 GROUP BY rank").fetchall()
    assert {(row["rank"], row["steps"], round(row["longest_ms"] * 1e6)) for row in of_one["steps"]} == set(times)
    assert of_one["modules"] and of_one["slow_steps"] and all(row["more_ms"] == 0 for row in of_one["changed"]) and of_one["changed"]
    assert of_one["kernels"] == of_one["exposed_communication"] == []  # there is no GPU
    assert torchprof("export", talked, "--format", "parquet", "-o", tmp_path / "talked").returncode == 0
    table = csv.DictReader(io.StringIO(torchprof("report", talked, "-t", "comms", "--csv").stdout))
    wanted = {line["name"]: tuple(int(line[column] or 0) for column in ("calls", "total_ns", "bytes", "waiting_ns")) for line in table}
    found = {row["name"]: tuple(int(row[column] or 0) for column in ("calls", "total_ns", "bytes", "waiting_ns")) for row in answers(tmp_path / "talked", "collectives")}
    assert found == wanted
    slowest = answers(tmp_path / "talked", "slowest_rank")
    assert slowest and all(0 <= row["slowest"] < 3 and row["waited_ms"] >= row["longest_wait_ms"] for row in slowest)
    assert {file.stem for file in QUESTIONS.glob("*.sql")} == {"views", "collectives", "slowest_rank", *of_one}


@pytest.mark.skipif(not importlib.util.find_spec("pyarrow"), reason="tests with pyarrow run where Debian's python3-pyarrow is installed (sid)")
def test_pyarrow_and_pandas_read_what_our_reader_reads(dataset):
    import pyarrow.parquet
    for file in dataset[1].rglob("*.parquet"):
        table = pyarrow.parquet.ParquetFile(file).read()
        assert table.to_pydict() == read_parquet.columns(file)
        assert table.to_pandas().shape == (table.num_rows, table.num_columns)
