"""The tables of a run and those of the trace that it wrote are the same, but for what formats/report/summary.h says that a file does not hold."""
import json

import pytest

from conftest import SUPPORT
from simulated_runs import run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

TABLES = "ops", "modules", "python", "kernels", "steps", "step_times", "calls", "comms", "threads"
# What only the raw records have.
RECORDS_ONLY = {
    "ops": {"source"},
    "modules": {"optimizer_ns", "gpu_forward_self_ns", "gpu_forward_total_ns", "gpu_backward_self_ns", "gpu_backward_total_ns",
                "gpu_recompute_self_ns", "gpu_recompute_total_ns", "gpu_optimizer_ns",
                "parameters", "own_parameters", "parameter_bytes", "cpu_peak_bytes", "gpu_peak_bytes"},
    "kernels": {"occupancy_percent"},  # files have whole percents
    "comms": {"bytes", "gb_per_s", "group"},  # of gloo: shapes of lists of tensors, without their types; groups
}
OF_PERFETTO = {"ops": {"source", "self_cpu_mem_bytes", "cpu_mem_bytes", "self_cuda_mem_bytes", "cuda_mem_bytes"},
               "kernels": {"occupancy_percent", "blocks_per_sm"}}

CROSSING = """
import torch
first, second = torch.profiler.record_function("first"), torch.profiler.record_function("second")
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(6):
    with torch.profiler.record_function("around both"):
        first.__enter__()
        net(torch.ones(4, 8)).sum().backward()
        second.__enter__()
        torch.ones(3).add(1)
        first.__exit__(None, None, None)
        torch.ones(3).mul(1)
        second.__exit__(None, None, None)
        optimizer.step()
        optimizer.zero_grad()
torch.ones(5).add(2)
"""
GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)), bucket_cap_mb=0.01)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(6):
    optimizer.zero_grad()
    net(torch.ones(4, 64)).sum().backward()
    optimizer.step()
work = [dist.all_reduce(torch.ones(5000), async_op=True) for _ in range(3)]
with torch.profiler.record_function("meanwhile"):
    torch.ones(100).sum()
for each in work:
    each.wait()
dist.barrier()
dist.destroy_process_group()
"""
GPU = """
import torch
from simulated_gpu import sim
sim.simInit(1)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    with torch.profiler.record_function("launching"):
        for _ in range(3):
            sim.simLaunch(b"_Z11slow_kernelPf", 7, 20000)
    net(torch.ones(2, 4)).sum().backward()
    sim.simLaunch(b"_Z11slow_kernelPf", 7, 20000)
    sim.simDeviceSynchronize()
    optimizer.step()
"""


@pytest.fixture
def tables_of(torchprof):
    """Rows of the report on a run or a file, by table and by what names a row."""
    def tables(path):
        done = torchprof("report", path, "--json", "-n", 99999, "-t", ",".join(t for t in TABLES if t != "step_times"))
        assert done.returncode == 0, done.stderr
        found = {}
        for table in json.loads(done.stdout)["tables"]:
            if table["name"] in TABLES:
                rows = [({k: v for k, v in row.items() if isinstance(v, str) and k != "slowest" or k == "step"}, row) for row in table["rows"]]
                found[table["name"]] = {tuple(sorted((k, str(v)) for k, v in name.items() if k not in ("source", "group"))): row for name, row in rows}
        return found
    return tables


def assert_alike(of_run, of_file, missing):
    for table in TABLES:
        left, right = of_run.get(table, {}), of_file.get(table, {})
        assert left.keys() == right.keys(), table
        for name, row in left.items():
            ignored = missing.get(table, RECORDS_ONLY.get(table, set()))
            if table == "ops" and not dict(name)["name"].startswith("aten::"):
                ignored = ignored | {"self_cpu_mem_bytes", "cpu_mem_bytes"}  # an annotation's own, in its __enter__ and __exit__
            if row.get("slowest_percent") == 50:  # of two ranks each was it as often: which is named depends on their order
                ignored = ignored | {"slowest"}
            differ = {key: (row.get(key), right[name].get(key)) for key in row.keys() | right[name].keys()
                      if row.get(key) != right[name].get(key) and key not in ignored}
            assert differ == {}, (table, name)


@pytest.fixture(params=["crossing annotations", "two ranks with gloo", "a GPU"])
def run(request, run_torchprof, run_simulated, program, torch_python):  # noqa: F811
    if request.param == "a GPU":
        run, _ = run_simulated(GPU, options=["-q"])
    elif request.param == "crossing annotations":
        run = run_torchprof([torch_python, program(CROSSING)], options=["-q"])
    else:
        run = run_torchprof([torch_python, SUPPORT / "ranks.py", 2, program(GLOO, "gloo.py")], options=["-q"], env={"GLOO_SOCKET_IFNAME": "lo"})
    assert run.status == 0, run.stderr
    return run


def test_a_run_and_its_trace_have_the_same_tables(run, tables_of):
    of_run = tables_of(run.directory)
    assert_alike(of_run, tables_of(run.directory / "trace.json.gz"), {})
    # It is about something.
    assert len(of_run["ops"]) > 20 and of_run["steps"] and len(of_run["step_times"]) >= 4
    assert any("second" in str(name) for name in of_run["ops"]) or of_run["comms"] or of_run["calls"]


def test_a_run_and_its_trace_for_perfetto_have_the_same_tables(run, tables_of, torchprof, tmp_path):
    done = torchprof("export", run.directory, "-f", "perfetto", "-o", tmp_path / "x.pftrace")
    assert done.returncode == 0, done.stderr
    assert_alike(tables_of(run.directory), tables_of(tmp_path / "x.pftrace"), OF_PERFETTO)


def test_a_range_that_ends_elsewhere_takes_no_time_from_others(torchprof, tables_of, tmp_path):
    """As torch.profiler writes a range of gloo: on the thread that began it, across what comes next."""
    def span(category, name, begin, end):
        return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": begin, "dur": end - begin}
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": [
        span("cpu_op", "c10d::allreduce_", 0, 10), span("user_annotation", "gloo:all_reduce", 5, 60), span("user_annotation", "gloo:all_reduce", 8, 50),
        span("cpu_op", "aten::linear", 20, 50), span("cpu_op", "aten::mm", 30, 45)]}))
    ops = {dict(name)["name"]: (row["self_cpu_ns"], row["cpu_total_ns"]) for name, row in tables_of(tmp_path / "x.json")["ops"].items()}
    assert ops == {"c10d::allreduce_": (10_000, 10_000), "gloo:all_reduce": (0, 55_000 + 42_000), "aten::linear": (15_000, 30_000), "aten::mm": (15_000, 15_000)}
