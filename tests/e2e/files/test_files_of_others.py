"""Right numbers for trace files that others wrote, each of a kind that was wrong once. What holds for all files: read_properties_test.cpp."""
import gzip
import json
import sqlite3

import pytest


def span(name, category, ts, dur, tid=1, pid=1, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, correlation, device=0, pid=0):
    return span(name, "kernel", ts, dur, 7, pid, correlation=correlation, stream=7, device=device)


@pytest.fixture
def tables(torchprof, tmp_path):
    """The tables of a file, or of a list of events: rows by the table's name, and `notes`."""
    def of(what, names):
        path = what
        if isinstance(what, list):
            path = tmp_path / "trace.json"
            path.write_text(json.dumps({"traceEvents": what}))
        done = torchprof("report", path, "-t", names, "--json")
        assert done.returncode == 0, done.stderr
        read = json.loads(done.stdout)
        return {"notes": read["notes"], "headline": read["headline"], **{table["name"]: table["rows"] for table in read["tables"]}}
    return of


def row(rows, name):
    return next(each for each in rows if each["name"] == name)


def rank(pid, operator, device, gpu):
    return [span(operator, "cpu_op", 1000, 50, pid, pid), span("cudaLaunchKernel", "cuda_runtime", 1010, 5, pid, pid, correlation=1),
            kernel("k_" + operator, 1100, 40, 1, device, gpu)]


@pytest.mark.parametrize("gpus", [(0, 1), (0, 0)], ids=["a GPU each", "numbered alike"])
def test_ranks_in_one_file_have_their_own_kernels(tables, gpus):
    read = tables(rank(10, "aten::mm", gpus[0], gpus[0]) + rank(20, "aten::bmm", gpus[1], gpus[1]), "ops,kernels")
    assert [row(read["ops"], name)["self_cuda_ns"] for name in ("aten::mm", "aten::bmm")] == [40_000, 40_000]
    assert [gpu["busy_ns"] for gpu in read["gpus"]] == [40_000, 40_000]


def test_ranks_that_a_merger_has_labelled_have_a_gpu_each(tables):
    def labelled(events, label):
        return [dict(event, pid=f"{label} {event['pid']}") for event in events]
    read = tables(labelled(rank(10, "aten::mm", 0, 0), "[TP00]") + labelled(rank(20, "aten::bmm", 0, 0), "[TP01]"), "ops,kernels")
    assert row(read["ops"], "aten::bmm")["self_cuda_ns"] == 40_000 and len(read["gpus"]) == 2


def test_what_a_range_launches_in_no_operator_is_its_own(tables):
    read = tables([span("decode", "user_annotation", 1000, 200), span("cudaGraphLaunch", "cuda_runtime", 1010, 20, correlation=5),
                   kernel("a", 1100, 300, 5), kernel("b", 1400, 200, 5)], "ops")
    assert row(read["ops"], "decode")["cuda_total_ns"] == 500_000


def test_a_file_of_devices_alone_has_its_kernels_and_calls(tables):
    events = [span("cudaLaunchKernel", "cuda_runtime", 1000, 5, correlation=1), kernel("gemm", 1010, 40, 1)]
    read = tables(events, "kernels,calls")
    assert row(read["kernels"], "gemm")["total_ns"] == 40_000 and row(read["calls"], "cudaLaunchKernel")["calls"] == 1
    assert row(tables(events[1:], "kernels")["kernels"], "gemm")["total_ns"] == 40_000


def test_a_file_ends_with_the_work_of_its_devices(tables):
    events = [span("decode", "user_annotation", 0, 100), span("aten::mm", "cpu_op", 5, 40),
              span("cudaGraphLaunch", "cuda_runtime", 10, 20, correlation=5), kernel("k", 35, 565, 5)]
    read = tables(events, "critical,kernels")
    path = {each["class"]: each["step_ns"] for each in read["critical"]}
    assert 500_000 <= path["kernel"] <= 570_000 and path.get("idle", 0) <= 1_000, path
    assert read["gpus"][0]["busy_percent"] == pytest.approx(565 / 6)
    assert "600.000 us" in read["headline"]


def test_a_graph_that_nsys_recorded_as_a_whole_is_work(tables, tmp_path):
    pid = 77 << 24
    with sqlite3.connect(tmp_path / "x.sqlite") as db:
        db.executescript("""
            CREATE TABLE StringIds(id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES(1, 'cudaGraphLaunch_v10000');
            CREATE TABLE NVTX_EVENTS(start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, globalTid INT, correlationId INT, nameId INT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT);""")
        for i in range(3):
            t = 1_000_000 * i
            db.execute("INSERT INTO NVTX_EVENTS VALUES(?,?,59,'decode',?,NULL)", (t, t + 50_000, pid | 5))
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(?,?,?,?,1)", (t + 10_000, t + 20_000, pid | 5, i + 1))
            db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES(?,?,0,7,?,?)", (t + 60_000, t + 360_000, i + 1, pid))
    db.close()
    read = tables(tmp_path / "x.sqlite", "ops,kernels")
    assert sum(gpu["busy_ns"] for gpu in read["gpus"]) == 900_000 and row(read["ops"], "decode")["cuda_total_ns"] == 900_000


@pytest.mark.parametrize("category", ["xpu_runtime", "privateuse1_driver", "mtia_runtime", "hip_runtime", "Runtime"])
def test_calls_of_other_devices_are_calls(tables, category):
    read = tables([span("aten::mm", "cpu_op", 1000, 50), span("enqueue", category, 1010, 20, correlation=1), kernel("gemm", 1100, 40, 1)],
                  "ops,calls")
    operator = row(read["ops"], "aten::mm")
    assert (operator["self_cpu_ns"], operator["self_cuda_ns"], len(read["calls"])) == (30_000, 40_000, 1)


def test_slices_of_an_unknown_category_are_counted(tables):
    read = tables([span("aten::mm", "cpu_op", 1000, 50), span("what", "quantum_op", 1000, 5), span("GPU", "gpu_user_annotation", 1, 5)], "ops")
    assert any("1 slice of categories" in note and "'quantum_op'" in note for note in read["notes"]), read["notes"]


def test_a_call_ends_with_its_caller(tables):
    read = tables([span("a.py(1): f", "python_function", 1000, 200), span("<built-in function next>", "python_function", 1010, 300)], "python")
    assert row(read["python"], "a.py(1): f")["self_ns"] == 10_000
    assert row(read["python"], "<built-in function next>")["self_ns"] == 190_000


def test_functions_of_torch_around_a_range_do_not_hide_what_runs_in_it(tables):
    """record_function begins inside its own helpers: what ran in the range is no time of the function around them."""
    helper = "torch/autograd/profiler.py(751): __enter__"
    events = [span("train.py(1): main", "python_function", 1000, 5000), span(helper, "python_function", 1010, 40),
              span("<built-in method _record_function_enter_new>", "python_function", 1020, 25), span("work", "user_annotation", 1030, 4000)]
    for i in range(100):
        at = 1100 + 35 * i
        events += [span("torch/nn/functional.py(1): linear", "python_function", at, 30), span("aten::linear", "cpu_op", at + 20, 9),
                   span("cudaLaunchKernel", "cuda_runtime", at + 22, 5, correlation=i + 1), kernel("gemm", at + 28, 2, i + 1)]
    read = tables(events, "advice")
    assert read["advice"][0]["rule"] == "launch bound", read["advice"]


def test_a_stream_that_has_no_end_is_read(run_torchprof, program, torch_python, torchprof, tables, tmp_path):
    run = run_torchprof([torch_python, program("import torch\nfor _ in range(3): torch.ones(4).sum()\n")])
    assert run.status == 0, run.stderr
    stream = tmp_path / "x.stream.json"
    assert torchprof("export", run.directory, "-f", "json-stream", "-o", stream).returncode == 0
    whole, read = tables(run.directory / "trace.json.gz", "ops,python"), tables(stream, "ops,python")
    assert (read["ops"], read["python"]) == (whole["ops"], whole["python"])
    assert any("has no end" in note for note in read["notes"])
    # Cut in the midst of an event, as by kill -9 of whoever wrote it.
    text = stream.read_text()
    stream.write_text(text[:-30])
    assert tables(stream, "ops")["ops"]
    with gzip.open(run.directory / "trace.json.gz") as file:
        text = file.read()
    (tmp_path / "cut.json").write_bytes(text[:text.rindex(b"},") + 1])
    assert "it is cut off" in torchprof("report", tmp_path / "cut.json").stderr
