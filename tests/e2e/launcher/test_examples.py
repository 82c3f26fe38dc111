"""The examples train, say what they say without torchprof, and leave the traces that their headers promise."""
import collections
import functools
import importlib.util
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

import perfetto_trace
from conftest import clean_environment, profile


@pytest.fixture(scope="module")
def run_example(launcher, torch_python, examples, tmp_path_factory):
    """Runs an example with and without torchprof, the first time that it is asked for; the two must say the same."""
    @functools.cache
    def run(script, *arguments, level="functions"):
        directory = tmp_path_factory.mktemp("example")
        command = [torch_python, examples / script, *arguments]
        run = profile(launcher, directory / "run", command, options=["--python", level])
        bare = subprocess.run(command, capture_output=True, cwd=directory, env=clean_environment())
        assert run.status == bare.returncode == 0, run.stderr
        assert run.stdout_bytes == bare.stdout
        return run
    return run


def losses(stdout):
    return [float(loss) for loss in re.findall(r"^step +\d+  loss ([\d.]+)$", stdout, re.M)]


def functions(trace):
    """How often each Python function is entered, by its bare name."""
    return collections.Counter(e["name"].rpartition(" ")[2] for e in trace.spans("python_function"))


@pytest.mark.once
def test_the_cnn_learns_and_its_steps_are_in_the_trace(run_example, check_trace):
    run = run_example("cnn.py")
    assert len(losses(run.stdout)) == 40 and losses(run.stdout)[-1] < losses(run.stdout)[0]
    trace = check_trace(run.trace(), imports=True)
    annotations, operators, python = trace.names("user_annotation"), trace.names("cpu_op"), trace.names("python_function")
    assert annotations["train_step"] == annotations["Optimizer.step#SGD.step"] == 40
    assert annotations["Optimizer.zero_grad#SGD.zero_grad"] == 40
    # The last one finds the end of the data.
    assert annotations["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == 41
    for module in ("ShapeNet_0", "Conv2d_0", "Conv2d_1", "Linear_0"):
        assert python["nn.Module: " + module] == 40
    assert operators["aten::conv2d"] == operators["ConvolutionBackward0"] == 80
    assert trace.flows("fwdbwd")["aten::convolution", "ConvolutionBackward0"] == 80
    assert functions(trace)["__getitem__"] >= 40 * 32


@pytest.mark.once
def test_the_cnn_with_workers_leaves_a_trace_of_all_its_processes(run_example, check_trace):
    run = run_example("cnn.py", "--workers", "2")
    traces = [check_trace(path) for path in run.trace_paths]
    # From 3.14 on workers are children of a fork server, which has a resource tracker.
    helpers = [0, 0] if sys.version_info >= (3, 14) else []
    steps = [t.names("user_annotation")["train_step"] for t in traces]
    assert sorted(steps) == [*helpers, 0, 0, 40]
    drawn = [sum(n for name, n in t.names("python_function").items() if re.search(r"cnn\.py\(\d+\): __getitem__$", name)) for t in traces]
    assert sorted(drawn) == [*helpers, 0, 640, 640]
    assert all(d == 0 or s == 0 for d, s in zip(drawn, steps))
    merged = check_trace(run.merged_path, merged=True)
    for category in ("cpu_op", "user_annotation", "python_function"):
        assert merged.names(category) == sum((t.names(category) for t in traces), collections.Counter())
    assert merged.flows("fwdbwd") == sum((t.flows("fwdbwd") for t in traces), collections.Counter())


def test_the_transformer_learns_and_its_steps_are_in_the_trace(run_example, check_trace):
    run = run_example("transformer.py")
    assert len(losses(run.stdout)) == 20 and losses(run.stdout)[-1] < losses(run.stdout)[0]
    trace = check_trace(run.trace())
    annotations, operators, python = trace.names("user_annotation"), trace.names("cpu_op"), trace.names("python_function")
    for name in ("train_step", "forward", "backward", "Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad"):
        assert annotations[name] == 20
    modules = {name: n for name, n in python.items() if name.startswith("nn.Module: ")}
    assert modules == {"nn.Module: %s_%d" % (kind, n): 20 for kind, count in (
        ("LanguageModel", 1), ("Embedding", 1), ("Block", 2), ("Attention", 2), ("LayerNorm", 4), ("Linear", 9)) for n in range(count)}
    assert operators["aten::bmm"] - operators["BmmBackward0"] * 2 == operators["BmmBackward0"] == 80
    assert trace.flows("fwdbwd")["aten::bmm", "BmmBackward0"] == 80


@pytest.mark.once
@pytest.mark.parametrize("script, workers", [("cnn.py", 2), ("transformer.py", 0)])
def test_perfetto_finds_each_flow_of_the_examples_once(script, workers, run_example, torchprof, check_trace, tmp_path):
    """Decoded as trace_processor does: slices nest, no two flows share an id, none begins twice, and they are those of Kineto's trace."""
    run = run_example(script, *(["--workers", str(workers)] if workers else []))
    done = torchprof("export", run.directory, "-f", "perfetto", "-o", tmp_path / "x.perfetto-trace")
    assert done.returncode == 0, done.stderr
    merged = check_trace(run.merged_path, merged=True) if workers else check_trace(run.trace(), imports=True)
    assert collections.Counter(perfetto_trace.Trace(tmp_path / "x.perfetto-trace").flows) == merged.flows("fwdbwd")


@pytest.mark.once
@pytest.mark.parametrize("level", ["functions", "calls"])
def test_mixed_has_every_call_that_its_header_counts(run_example, check_trace, level):
    trace = check_trace(run_example("mixed.py", level=level).trace())
    counted = functions(trace)
    assert {name: counted[name] for name in HEADER_OF_MIXED} == HEADER_OF_MIXED
    annotations = trace.names("user_annotation")
    assert annotations == {"mixed outer": 2, "mixed middle": 2, "mixed inner": 2, "mixed raised": 1, "mixed thread": 3}
    for outer, inner in (("mixed outer", "mixed middle"), ("mixed middle", "mixed inner")):
        assert all([e["name"] for e in trace.inside(span, "user_annotation")].count(inner) == 1 for span in trace.named(outer))
    for span in trace.named("mixed thread"):
        assert [e["name"] for e in trace.inside(span, "cpu_op")].count("aten::add_") == 1


HEADER_OF_MIXED = {"thread_worker": 3, "raw_thread_worker": 2, "thread_leaf": 40, "count_up": 15, "delegate": 3, "drop_me": 2,
                   "raise_deep": 6, "recurse": 150, "square_forward": 1, "square_backward": 1, "nested_forward": 71, "nested_backward": 71}


@pytest.mark.once
def test_mixed_runs_on_as_many_threads_as_it_says(run_example):
    trace = run_example("mixed.py").trace()
    by_function = collections.defaultdict(set)
    for e in trace.spans("python_function"):
        by_function[e["name"].rpartition(" ")[2]].add(e["tid"])
    assert len(by_function["thread_worker"]) == 3
    assert len(by_function["raw_thread_worker"]) == 2
    assert by_function["nested_backward"] - by_function["main"], "torch's own thread is missing"
    assert len(by_function["nested_backward"]) == 2


@pytest.fixture(scope="module")
def databases(launcher, torch_python, tmp_path_factory):
    """Those of rank 0, of three steps, and of rank 7, of four."""
    text = "import torch\nw = torch.nn.Parameter(torch.zeros(2))\no = torch.optim.SGD([w], lr=1)\nfor i in range(%d):\n    o.zero_grad(); w.sum().backward(); o.step()\n"
    directory = tmp_path_factory.mktemp("databases")
    runs = [profile(launcher, directory / ("rank%d" % rank), [torch_python, "-c", text % steps], options=["--format", "sqlite", "--python", "modules"],
                    env={"RANK": str(rank), "WORLD_SIZE": "12"}) for rank, steps in ((0, 3), (7, 4))]
    return [str(run.directory / "trace.sqlite") for run in runs]


@pytest.mark.once
def test_databases_of_ranks_are_read_at_once(databases, torch_python, examples):
    # More files than SQLite attaches at a time.
    done = subprocess.run([torch_python, examples / "sql/ranks.py", *databases * 6], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps, spread = done.stdout.split("\n\n")
    assert {tuple(line.split()[1:4:2]) for line in steps.splitlines()[1:]} == {("0", "18"), ("7", "24")}
    lines = [line.split()[:3] for line in spread.splitlines()[1:]]
    assert len(lines) == 10 and all(ranks == "12" and float(most) >= float(least) for ranks, least, most in lines)


def calls_of(database):
    """{rank: calls of aten::sum}"""
    return dict(sqlite3.connect(database).execute("SELECT rank, calls FROM op_totals WHERE name = 'aten::sum'"))


@pytest.mark.skipif(not shutil.which("duckdb"), reason="tests with DuckDB run where Debian's duckdb is installed (sid)")
def test_duckdb_reads_databases_of_ranks_and_makes_a_dataset(databases, examples, tmp_path):
    dataset = tmp_path / "the user's dataset"
    done = subprocess.run([examples / "sql/ranks-duckdb", dataset, *databases * 6], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps, spread = ([line.split(",") for line in table.splitlines()[1:]] for table in done.stdout.split("\n\n"))
    assert {(rank, steps) for rank, _, steps, *_ in steps} == {("0", "18"), ("7", "24")}
    assert len(spread) == 10 and all(ranks == "12" and float(most) >= float(least) for ranks, least, most, *_ in spread)
    assert sorted(path.name for path in (dataset / "ops").iterdir()) == ["rank=0", "rank=7"]
    query = "SELECT rank, sum(calls)::BIGINT FROM '%s/ops/*/*.parquet' WHERE name = 'aten::sum' GROUP BY rank" % str(dataset).replace("'", "''")
    done = subprocess.run(["duckdb", "-csv", "-noheader", "-c", query], capture_output=True, text=True, check=True)
    wanted = {rank: calls * 6 for database in databases for rank, calls in calls_of(database).items()}
    assert {int(rank): int(calls) for rank, calls in (line.split(",") for line in done.stdout.split())} == wanted
    if importlib.util.find_spec("pyarrow"):
        pandas = pytest.importorskip("pandas")
        ops = pandas.read_parquet(dataset / "ops")
        assert {int(rank): calls for rank, calls in ops[ops.name == "aten::sum"].groupby("rank", observed=True).calls.sum().items()} == wanted


def test_pandas_reads_databases_of_ranks(databases):
    pandas = pytest.importorskip("pandas", reason="tests with pandas run where Debian's python3-pandas is installed")
    ops = pandas.concat(pandas.read_sql("SELECT rank, name, calls, self_ns FROM op_totals", sqlite3.connect(path)) for path in databases)
    assert ops[ops.name == "aten::sum"].groupby("rank").calls.sum().to_dict() == {**calls_of(databases[0]), **calls_of(databases[1])}


@pytest.mark.skipif(not pathlib.Path("/usr/include/ATen/record_function.h").exists(), reason="torch's headers are not installed (libtorch-dev)")
def test_a_program_of_libtorch_has_its_annotations_threads_and_functions_in_the_trace(run_torchprof, run_bare, check_trace, examples, tmp_path):
    program = tmp_path / "train"
    subprocess.run(["c++", "-std=c++20", "-O2", "-g", examples / "cpp" / "train.cpp", "-o", program, "-ltorch_cpu", "-lc10", "-pthread"], check=True)
    run = run_torchprof([program], options=["--native", "on"])
    assert (run.status, run.stdout_bytes) == (0, run_bare([program]).stdout) and len(losses(run.stdout)) == 4
    trace = check_trace(run.trace())
    annotations = {name: [e for e in trace.spans("user_annotation") if e["name"] == name] for name in ("step", "check")}
    assert {name: len(found) for name, found in annotations.items()} == {"step": 200, "check": 20}
    assert {e["tid"] for e in annotations["step"]} == {e["pid"] for e in annotations["step"]}  # the main thread
    assert not {e["tid"] for e in annotations["step"]} & {e["tid"] for e in annotations["check"]}
    checked = next(e for e in trace.spans("cpu_op") if e["name"] == "aten::mse_loss" and e["tid"] == annotations["check"][0]["tid"])
    assert re.search(r"at::mse_loss\(.* \(mse_loss\.h:\d+\)\nloss_of\(.* \(train\.cpp:\d+\)\nmain::\{lambda\(\)#1\}::operator\(\)\(\) const \(train\.cpp:\d+\)\n.*"
                     r"\n(clone3[^\n]*|libc\.so\.6\+0x\w+)$", "\n".join(checked["args"]["stack"]), re.S)
    # What has no debug information has no line, whatever stands before it.
    outermost = next(e for e in annotations["step"])["args"]["stack"][-1]
    assert outermost == "_start"
