"""A dataset (`export --format parquet`) as DuckDB, Dask, Spark, pyarrow and pandas read it, and the questions of examples/sql to each: the numbers of our tables.

DuckDB and pyarrow are Debian's, of sid. Dask is PyPI's, in an environment that is made for the slow tests, with a DuckDB whose rows are compared with those
of the other engines. Spark is 460 MB and wants Java: it is tried where its spark-submit is on PATH, as of an environment with `pip install pyspark`."""
import contextlib
import csv
import importlib.util
import itertools
import json
import math
import shutil
import subprocess
import time

import pytest

import read_parquet
from conftest import PATIENCE, ROOT
from datasets import database, dataset, talked  # noqa: F401  fixtures
from pypi_python import python_with
from simulated_runs import run_simulated  # noqa: F401  the fixture

SQL = ROOT / "examples" / "sql"
QUESTIONS = sorted(file.stem for file in (SQL / "dataset").glob("*.sql") if file.stem != "views")
needs_duckdb = pytest.mark.skipif(not shutil.which("duckdb"), reason="tests with DuckDB run where Debian's duckdb is installed (sid)")
needs_spark = pytest.mark.skipif(not shutil.which("spark-submit"), reason="tests with Spark run where its spark-submit is on PATH (pip install pyspark, and Java 17)")
GPU = """
from simulated_gpu import sim
sim.simInit(2)
for device in 0, 1:
    sim.simSetDevice(device)
    for n in range(100):
        sim.simLaunch([b"_Z4gemmv", b"_Z4reluv"][n % 2], 7, 20000 + n * 100)
        if n % 3 == 0: sim.simLaunch(b"ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 30000)
        if n % 5 == 0: sim.simMemcpy(1, 4096, 7)
    sim.simDeviceSynchronize()
"""


@needs_duckdb
def test_duckdb_gives_the_numbers_of_the_tables(dataset, database):  # noqa: F811
    query = ("SELECT rank, name, count(*), sum(duration_ns) FILTER (WHERE is_outermost), sum(self_ns) FROM read_parquet('%s/host=*/rank=*.parquet') "
             "WHERE kind IN ('op', 'backward', 'annotation') GROUP BY ALL" % dataset[1])
    done = subprocess.run(["duckdb", "-json", "-c", query], capture_output=True, text=True, check=True)
    ours = {tuple(map(str, row.values())) for row in json.loads(done.stdout)}
    wanted = database.execute("SELECT rank, name, calls, total_ns, self_ns FROM op_totals WHERE rank IS NOT NULL")
    assert ours == {tuple(map(str, row)) for row in wanted}


@pytest.fixture(scope="module")
def python_with_engines(tmp_path_factory):
    """A Python with Dask, pandas, pyarrow and DuckDB: this one, or an environment with them from PyPI (120 MB)."""
    return python_with(["dask.bag", "distributed", "duckdb", "pandas", "pyarrow"], ["dask", "distributed", "pandas", "pyarrow", "duckdb"],
                       tmp_path_factory.mktemp("engines") / "venv")


def said(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def lines_of_json(text):
    return {line["question"]: line["rows"] for line in map(json.loads, text.splitlines())}


@contextlib.contextmanager
def duckdb_cli(ask, directory):
    def answers(datasets):
        found = {}
        for question in QUESTIONS:
            command = ["duckdb", "-json", "-c", "SET VARIABLE dataset = '%s'" % datasets]
            for file in "views", question:
                command += ["-c", (SQL / "dataset" / (file + ".sql")).read_text()]
            found[question] = json.loads(said(command) or "[]")
        return found
    yield answers


@contextlib.contextmanager
def dask(ask, directory):
    """A scheduler and two workers."""
    python, file = ask("python_with_engines"), directory / "scheduler.json"
    with contextlib.ExitStack() as stack:
        def start(what, *options):
            process = stack.enter_context(subprocess.Popen([python, "-m", "distributed.cli." + what, *map(str, options)], cwd=directory,
                                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            return process
        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file)
        deadline = time.monotonic() + PATIENCE
        while not file.exists():
            assert scheduler.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        for _ in range(2):
            start("dask_worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard", "--no-nanny")
        yield lambda datasets: lines_of_json(said([python, SQL / "dataset-dask", "--json", "--scheduler-file", file, datasets]))


@contextlib.contextmanager
def spark(ask, directory):
    yield lambda datasets: lines_of_json(said(
        ["spark-submit", "--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
         "--conf", "spark.driver.bindAddress=127.0.0.1", SQL / "dataset-spark", "--json", datasets]))


@pytest.fixture(scope="module", params=[pytest.param(duckdb_cli, marks=needs_duckdb, id="duckdb"), pytest.param(dask, marks=[pytest.mark.slow, pytest.mark.once], id="dask"),
                                        pytest.param(spark, marks=[pytest.mark.slow, pytest.mark.once, needs_spark], id="spark")])
def answers(request, tmp_path_factory):
    """{question: its rows} of a dataset. The earlier run that it is compared with is the same."""
    with request.param(request.getfixturevalue, tmp_path_factory.mktemp("engine")) as answers:
        yield answers


@pytest.fixture
def datasets(dataset, talked, torchprof, run_simulated, tmp_path):  # noqa: F811
    """(run, dataset) of a training, of ranks that talk, and of one with GPUs."""
    gpu, _ = run_simulated(GPU)
    for name, run in ("talk", talked), ("gpu", gpu.directory):
        done = torchprof("export", run, "--format", "parquet", "-o", tmp_path / (name + ".dataset"))
        assert done.returncode == 0, done.stderr
    return (dataset[0].directory, dataset[1]), (talked, tmp_path / "talk.dataset"), (gpu.directory, tmp_path / "gpu.dataset")


def table_of(torchprof, run, table):
    """The rows of the first one that is printed."""
    lines = torchprof("report", run, "-t", table, "--csv").stdout.splitlines()
    return list(csv.DictReader(itertools.takewhile(lambda line: "," in line, lines)))


def test_the_questions_of_the_examples_are_answered_with_the_numbers_of_the_tables(answers, datasets, database, torchprof):  # noqa: F811
    (_, training), (talk_run, talk), (gpu_run, gpu) = datasets
    of_one = answers(training)
    assert sorted(of_one) == QUESTIONS
    for question, table in (("operators", "op_totals"), ("python", "python_totals")):
        wanted = {row[0]: row[1:] for row in database.execute("SELECT name, sum(calls), sum(total_ns), sum(self_ns) FROM %s GROUP BY name" % table)}
        rows = of_one[question]
        assert len(rows) == min(20, len(wanted)) and {row["name"]: (row["calls"], int(row["total_ns"]), int(row["self_ns"])) for row in rows}.items() <= wanted.items(), question
    times = database.execute("SELECT rank, count(*), max(duration_ns) FROM step_times WHERE number > 0 GROUP BY rank").fetchall()
    assert {(row["rank"], row["steps"], round(row["longest_ms"] * 1e6)) for row in of_one["steps"]} == set(times)
    assert {row["module"]: row["steps"] for row in of_one["modules"]} == {"0": 24, "1": 24, "2": 24}
    assert of_one["slow_steps"] and all(row["more_ms"] == 0 for row in of_one["changed"]) and of_one["changed"]
    assert of_one["kernels"] == of_one["exposed_communication"] == []  # there is no GPU
    of_talk = answers(talk)
    wanted = {line["name"]: tuple(int(line[column] or 0) for column in ("calls", "total_ns", "bytes", "waiting_ns")) for line in table_of(torchprof, talk_run, "comms")}
    assert {row["name"]: tuple(int(row[column] or 0) for column in ("calls", "total_ns", "bytes", "waiting_ns")) for row in of_talk["collectives"]} == wanted
    slowest = of_talk["slowest_rank"]
    assert slowest and all(0 <= row["slowest"] < 3 and row["waited_ms"] >= row["longest_wait_ms"] for row in slowest)
    of_gpu = answers(gpu)
    shares = {(int(line["pid"]), int(line["gpu"])): (int(line["communication_ns"]), int(line["only_communication_ns"]) + int(line["communication_memory_ns"]))
              for line in table_of(torchprof, gpu_run, "gpu")}
    assert {(row["pid"], row["device"]): (row["communication_ns"], row["exposed_ns"]) for row in of_gpu["exposed_communication"]} == shares and len(shares) == 2
    assert {row["name"]: row["calls"] for row in of_gpu["kernels"] if "Memcpy" not in row["name"]} == {
        "gemm()": 100, "relu()": 100, "ncclDevKernel_AllReduce_Sum_f32_RING_LL": 68}


DUCKDB = """
import duckdb, json, pathlib, sys
connection, questions = duckdb.connect(), pathlib.Path(sys.argv[1])
connection.execute("SET VARIABLE dataset = '%s'" % sys.argv[2])
connection.execute((questions / "views.sql").read_text())
for question in sys.argv[3:]:
    asked = connection.execute((questions / (question + ".sql")).read_text())
    names = [column[0] for column in asked.description]
    print(json.dumps({"question": question, "rows": [dict(zip(names, row)) for row in asked.fetchall()]}, default=float))
"""


def same(one, other):
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return one == other


@pytest.mark.slow
@pytest.mark.once
def test_each_engine_has_the_rows_of_duckdb(answers, datasets, python_with_engines):
    for _, of in datasets:
        wanted, found = lines_of_json(said([python_with_engines, "-c", DUCKDB, SQL / "dataset", of, *QUESTIONS])), answers(of)
        for question in QUESTIONS:
            assert len(found[question]) == len(wanted[question]), question
            for one, other in zip(found[question], wanted[question]):
                assert one.keys() == other.keys() and all(same(one[name], other[name]) for name in one), (question, one, other)


@pytest.mark.skipif(not importlib.util.find_spec("pyarrow"), reason="tests with pyarrow run where Debian's python3-pyarrow is installed (sid)")
def test_pyarrow_and_pandas_read_what_our_reader_reads(dataset):  # noqa: F811
    import pyarrow.parquet
    for file in dataset[1].rglob("*.parquet"):
        table = pyarrow.parquet.ParquetFile(file).read()
        assert table.to_pydict() == read_parquet.columns(file)
        assert table.to_pandas().shape == (table.num_rows, table.num_columns)
