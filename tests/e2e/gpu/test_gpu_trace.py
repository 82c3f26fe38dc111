"""What traces and tables show of the simulated GPU: each piece of work once, under the call, operator and module that it came from."""
import collections
import gzip
import json
import subprocess

import perfetto_trace
import pytest
from conftest import SUPPORT
from simulated_runs import EVERYTHING, run_simulated  # noqa: F401  the fixture

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
MODULES = """
import torch
from simulated_gpu import doubled, sim
Doubled = doubled()
sim.simInit(1)

class Double(torch.nn.Module):
    def forward(self, x):
        return Doubled.apply(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Double(), Double()
    def forward(self, x):
        return self.second(self.first(x))

net = Net()
with torch.profiler.record_function("training"):
    net(torch.ones(4, requires_grad=True)).sum().backward()
    sim.simDeviceSynchronize()
"""


def by_correlation(spans):
    found = collections.defaultdict(list)
    for span in spans:
        found[span["args"]["correlation"]].append(span)
    return found


def mixed_storm(each):
    return "from simulated_gpu import sim; sim.simInit(4); sim.simMixedStorm(8, %d, 64, 4)" % each


def test_launches_and_work_pair_one_to_one_whatever_the_order(run_simulated, check_trace):  # noqa: F811
    """8 threads, 64 streams, 4 devices; kernels, copies, memsets and waits; completion in any order. As HolisticTraceAnalysis pairs them."""
    run, _ = run_simulated(mixed_storm(500))
    trace = check_trace(run.trace(), expect={"kernel": 4000, "gpu_memcpy": 80, "gpu_memset": 40, "cuda_sync": 20, "cuda_event": 8, "ac2g": 8240})
    work, calls = by_correlation(trace.spans(*WORK)), by_correlation(trace.spans("cuda_runtime"))
    assert len(trace.spans("kernel")) == 4000 and len(work) == 4120 and all(len(found) == 1 for found in work.values())
    assert all(len(calls[number]) == 1 for number in work)
    assert all(span["ts"] >= calls[number][0]["ts"] for number, (span,) in work.items())
    assert {calls[number][0]["name"] for number, (span,) in work.items() if span["cat"] == "kernel"} == {"cudaLaunchKernel"}
    assert len({(span["pid"], span["tid"]) for (span,) in work.values()}) >= 64
    flows = collections.Counter((e["ph"], e["id"]) for e in trace.events if e.get("cat") == "ac2g" and e["id"] in work)
    assert flows == {(phase, number): 1 for phase in "sf" for number in work}
    waits = collections.Counter(span["name"] for span in trace.spans("cuda_sync"))
    assert waits == {"Stream Sync": 8, "Stream Wait Event": 8, "Context Sync": 4}


@pytest.mark.slow
def test_a_million_kernels_of_a_trace_pair_with_their_launches(run_simulated):  # noqa: F811
    """The file is read line by line: as a whole it is larger than many a machine's memory."""
    run, _ = run_simulated(mixed_storm(125000), options=["-w", "all", "--python", "off"])
    path, = run.trace_paths
    seen, names = collections.defaultdict(bytearray), collections.Counter()  # of each correlation: calls, pieces of work, flows that start, that end
    place = {"cuda_runtime": 0, **{category: 1 for category in (*WORK, "cuda_sync", "cuda_event")}}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if not line.startswith('{"ph":"'):
                continue
            e = json.loads(line.rstrip("\n,"))
            number = e["id"] if e.get("cat") == "ac2g" else e["args"]["correlation"] if e.get("cat") in place else None
            if number is not None:
                names[e["cat"], e["name"]] += 1
                seen.setdefault(number, bytearray(4))[2 + "sf".index(e["ph"]) if e["cat"] == "ac2g" else place[e["cat"]]] += 1
    assert {name: names["kernel", name] for name in ("even()", "odd()")} == {"even()": 500_000, "odd()": 500_000}
    assert sum(n for (category, _), n in names.items() if category in ("gpu_memcpy", "gpu_memset", "cuda_sync")) == 34_004
    assert collections.Counter(map(tuple, seen.values())) == {(1, 1, 1, 1): 1_034_004, (1, 1, 0, 0): 2_000}  # events have no flow


def test_each_kind_of_work_is_in_the_trace(run_simulated, check_trace):  # noqa: F811
    run, _ = run_simulated(EVERYTHING)
    trace = check_trace(run.trace())
    names = collections.Counter(e["name"] for category in WORK for e in trace.spans(category))
    assert {name: n for name, n in names.items() if "emcpy" not in name and "emset" not in name} == {
        "matmul(float*, float*)": 3, "node()": 4, "other()": 1, "driven()": 1}
    assert len(list(trace.spans("gpu_memcpy"))) == 3 and len(list(trace.spans("gpu_memset"))) == 1
    assert {e["pid"] for e in trace.spans("kernel")} == {0, 1}
    assert len({e["args"]["graph node id"] for e in trace.spans("kernel") if e["args"]["graph id"]}) == 4
    recorded, = (e["args"]["correlation"] for e in trace.spans("cuda_runtime") if e["name"] == "cudaEventRecord")
    waits = [e for e in trace.spans("cuda_sync") if e["args"]["cuda_sync_kind"] in ("Event Sync", "Stream Wait Event")]
    assert [e["args"]["wait_on_cuda_event_record_corr_id"] for e in waits] == [recorded] * 2
    assert [d["id"] for d in trace.doc["deviceProperties"]] == [0, 1]


def test_kernels_have_the_module_of_their_operator_forward_and_backward(run_simulated, check_trace):  # noqa: F811
    run, _ = run_simulated(MODULES)
    trace = check_trace(run.trace())
    paths = sorted((e["name"], e["args"].get("Module path")) for e in trace.spans("kernel"))
    assert paths == [(name, path) for name in ("double_backward()", "double_forward()") for path in ("first", "second")]
    annotation, = (e for e in trace.spans("gpu_user_annotation") if e["name"] == "training")
    first = min(e["ts"] for e in trace.spans("kernel"))
    assert abs(annotation["ts"] - first) < 0.002


def test_annotations_span_their_work_on_each_stream(run_simulated, check_trace):  # noqa: F811
    run, _ = run_simulated("import torch\nfrom torch.autograd.profiler import record_function\nfrom simulated_gpu import sim\nsim.simInit(2)\n"
                           "def launch(name, stream): sim.simLaunch(name, stream, 20000)\n"
                           "with record_function('outer'):\n launch(b'a', 7)\n"
                           " with record_function('inner'): launch(b'b', 7); launch(b'c', 9); launch(b'b', 7)\n"
                           " sim.simSetDevice(1); launch(b'd', 7); sim.simMemset(0, 64, 11)\n"
                           "launch(b'e', 7)")
    trace = check_trace(run.trace(), expect={"kernel": 6, "gpu_memset": 1})
    work = {name: [e for e in trace.spans(*WORK) if e["name"].rstrip("()") in names]
            for name, names in (("outer", ["a", "b", "c", "d", "Memset (Device"]), ("inner", ["b", "c"]))}
    expected = {}
    for name, spans in work.items():
        for e in spans:
            begin, end = expected.get((name, e["pid"], e["tid"]), (e["ts"], 0))
            expected[name, e["pid"], e["tid"]] = min(begin, e["ts"]), max(end, e["ts"] + e["dur"])
    found = {(e["name"], e["pid"], e["tid"]): (e["ts"], e["ts"] + e["dur"]) for e in trace.spans("gpu_user_annotation")}
    assert sorted(found) == sorted(expected) == [("inner", 0, 7), ("inner", 0, 9), ("outer", 0, 7), ("outer", 0, 9), ("outer", 1, 7), ("outer", 1, 11)]
    for row, (begin, end) in expected.items():  # Kineto's margin is a nanosecond at each end
        assert abs(found[row][0] - (begin - 0.001)) < 0.0015 and abs(found[row][1] - (end + 0.001)) < 0.0015
    ids = {e["args"]["External id"]: e["name"] for e in trace.spans("user_annotation")}
    assert all(ids[e["args"]["External id"]] == e["name"] for e in trace.spans("gpu_user_annotation"))


def test_tables_of_the_trace_are_those_of_the_run(run_simulated, prefix):  # noqa: F811
    run, _ = run_simulated(EVERYTHING)
    report = [subprocess.run([prefix / "bin" / "torchprof", "report", what, "--tables", "kernels"], capture_output=True, text=True,
                             check=True).stdout.partition("GPU kernels by")[2].partition("\n\n")[0].rstrip()
              for what in (run.directory, next(run.directory.glob("*.json.gz")))]
    assert report[0] == report[1] and "  matmul\n" in report[0]


@pytest.mark.slow
def test_perfetto_has_calls_work_flows_annotations_and_counters_of_the_kineto_trace(run_simulated):  # noqa: F811
    run, _ = run_simulated(MODULES + EVERYTHING, options=["--format", "kineto,perfetto"])
    kineto, perfetto = run.trace(), perfetto_trace.Trace(run.directory / "trace.perfetto-trace")
    events = json.loads(kineto.text, parse_float=lambda text: int(text.replace(".", "")))["traceEvents"]
    base = kineto.doc["baseTimeNanoseconds"]
    for category in ("cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"):
        expected = collections.Counter((e["name"], e["ts"], e["dur"], e["args"].get("Module path")) for e in events if e.get("cat") == category)
        found = collections.Counter((s.name, s.begin - base, s.end - s.begin, s.args.get("Module path")) for s in perfetto.slices if s.category == category)
        assert found == expected and found, category
    theirs, ours = kineto.spans("gpu_user_annotation")[0], [s for s in perfetto.slices if s.category == "gpu_user_annotation"]
    assert [(s.name, perfetto.path(s.track)[1:]) for s in ours] == [("training", ("stream 7", "annotations"))]
    assert abs(theirs["dur"] - (ours[0].end - ours[0].begin) / 1000) < 0.003  # Kineto's margin
    streams = {perfetto.path(s.track) for s in perfetto.slices if s.category == "kernel"}
    assert {(gpu.split(",")[0], stream) for gpu, stream in streams} == {("GPU 0", "stream 7"), ("GPU 0", "stream 13"), ("GPU 1", "stream 7")}
    flows = collections.Counter(f for f in perfetto.flows if f[1] in ("double_forward()", "node()"))
    assert flows == {("cudaLaunchKernel", "double_forward()"): 2, ("cudaGraphLaunch", "node()"): 4}
    kernel = next(s for s in perfetto.slices if s.name == "matmul(float*, float*)")
    assert kernel.args.items() >= {"grid": "32x1x1", "block": "256x1x1", "registers per thread": 32}.items() and kernel.args["queue time (us)"] >= 0
    assert max(value for _, value in perfetto.counters["busy"]) > 0 and {value for _, value in perfetto.counters["queue depth"]} >= {0, 1}


@pytest.mark.once
def test_formats_of_call_paths_have_the_time_on_gpus(run_simulated):  # noqa: F811
    run, _ = run_simulated(MODULES + EVERYTHING, options=["--format", "kineto,stacks-cuda,speedscope,pprof,chrome-legacy"])
    expected = collections.Counter()
    for category in WORK:
        for e in run.trace().spans(category):
            expected[e["name"]] += e["dur"] / 1e3
    stacks = [line.rsplit(" ", 1) for line in (run.directory / "trace.stacks-cuda.txt").read_text().splitlines()]
    assert abs(sum(int(us) for _, us in stacks) - sum(expected.values()) * 1e3) < 1
    path, = (path for path, _ in stacks if path.endswith(";double_backward()"))
    assert ";Doubled" in path and "Module:_Net_0;" not in path
    path, = {path for path, _ in stacks if path.endswith(";double_forward()") and "Double_1" in path}
    assert ";training;" in path and "nn.Module:_Net_0;" in path and "nn.Module:_Double_1;" in path
    scope = json.loads((run.directory / "trace.speedscope.json").read_text())
    on_gpus = [p for p in scope["profiles"] if p["name"].endswith(", on GPUs")]
    assert abs(sum(p["endValue"] for p in on_gpus) / 1e6 - sum(expected.values())) < 1e-3
    profile = perfetto_trace.decode(gzip.decompress((run.directory / "trace.pb.gz").read_bytes()), "Profile", SUPPORT / "pprof.proto")
    assert abs(sum(s["value"][2] for s in profile["sample"]) / 1e6 - sum(expected.values())) < 1e-3
    legacy = json.loads((run.directory / "trace.chrome-legacy.json").read_text())
    kernels = [e for e in legacy if e["pid"] == "CUDA functions" and e["ph"] == "X"]
    assert collections.Counter(e["name"] for e in kernels) == collections.Counter(e["name"] for c in WORK for e in run.trace().spans(c))
    assert collections.Counter(e["ph"] for e in legacy) == {"X": len(legacy) - 2 * len(kernels), "s": len(kernels), "f": len(kernels)}


@pytest.mark.slow
def test_a_launch_has_the_native_stack_of_the_operator_that_made_it(run_simulated, torchprof, check_trace):  # noqa: F811
    run, _ = run_simulated(MODULES, options=["--native", "on", "--format", "kineto,perfetto"])
    assert run.status == 0, run.stderr
    trace = check_trace(run.trace())
    stacks = {e["args"]["External id"]: e["args"]["stack"] for e in trace.spans("cpu_op")}
    launched = {e["args"]["correlation"] for e in trace.spans("kernel")}
    launches = [e for category in ("cuda_runtime", "cuda_driver") for e in trace.spans(category) if e["args"]["correlation"] in launched]
    assert len(launches) == len(launched) >= 4
    for launch in launches:
        assert launch["args"]["stack"] == stacks[launch["args"]["External id"]]
        assert any(frame.endswith(": <module>") for frame in launch["args"]["stack"]), launch
    perfetto = [s for s in perfetto_trace.Trace(run.directory / "trace.perfetto-trace").slices if s.name == launches[0]["name"]]
    assert len(perfetto) == len(launches) and all(any(name == "<module>" or name.endswith(": <module>") for name, _ in s.frames) for s in perfetto)
    other, _ = run_simulated(MODULES)
    assert not any("stack" in e["args"] for e in other.trace().spans("cuda_runtime"))
