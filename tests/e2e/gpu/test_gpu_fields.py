"""Each field that Kineto writes of each kind of record, from the record in CUPTI's buffer to the trace, for four versions of CUPTI."""
import perfetto_trace
import pytest
from simulated_runs import EVERYTHING, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

VERSIONS = pytest.mark.parametrize("version, number, driver", [("11.8", 18, 11080), ("12.4", 22, 12040), ("13.0", 130000, 13000), ("13.1", 130100, 13010)])
ON_STREAM = {"device": 0, "context": 1, "stream": 7}
GRAPH = {"graph id": 0, "graph node id": 0, "channel": 0, "channel_type": 0}


@pytest.fixture
def traced(run_simulated, check_trace):  # noqa: F811
    def run(text, version="12.4", **more):
        done, _ = run_simulated(text, version=version, **more)
        assert done.status == 0, done.stderr
        return check_trace(done.trace())
    return run


def without(args, *keys):
    return {key: value for key, value in args.items() if key not in ("correlation", "queue time (us)", *keys)}


def by_name(trace, category):
    return {e["name"]: e for e in trace.spans(category)}


@VERSIONS
def test_kernels(traced, version, number, driver):
    found = by_name(traced(EVERYTHING, version), "kernel")
    newer = {**(GRAPH if number > 18 else {}), **({"priority": 0} if number >= 130100 else {})}
    assert without(found["driven()"]["args"], "occupancy") == {
        **ON_STREAM, "queued": 0, "registers per thread": 32, "shared memory": 1024, "grid": [32, 1, 1], "block": [256, 1, 1],
        "blocks per SM": pytest.approx(32 / 108), "warps per SM": pytest.approx(32 * 8 / 108), "est. achieved occupancy %": 4, **newer}
    assert found["driven()"]["args"]["occupancy"] == {
        "activeBlocksPerMultiprocessor": 8, "limitingFactors": "WARPS|REGS", "blockLimitRegs": 8, "blockLimitSharedMem": 82, "blockLimitWarps": 8,
        "blockLimitBlocks": 32, "blockLimitBarriers": 2147483647, "allocatedRegistersPerBlock": 8192, "allocatedSharedMemPerBlock": 2048}
    node = found["node()"]["args"]
    assert (node["graph id"], node["graph node id"] >> 32, node["stream"]) == (5, 5, 13)
    assert (found["driven()"]["pid"], found["driven()"]["tid"]) == (0, 7)
    assert found["driven()"]["dur"] == pytest.approx(1, abs=0.0015)  # begin and end are rounded to a nanosecond each
    assert (found["other()"]["pid"], found["other()"]["args"]["device"], found["other()"]["args"]["context"]) == (1, 1, 2)


def test_a_kernel_has_the_priority_that_it_was_launched_with(traced):
    text = "from simulated_gpu import sim; sim.simInit(1); sim.simStreamPriority(13, -5)\nfor stream in (7, 13): sim.simLaunch(b'k%d' % stream, stream, 1000)"
    assert {name: e["args"]["priority"] for name, e in by_name(traced(text, "13.1"), "kernel").items()} == {"k7": 0, "k13": -5}
    args = list(by_name(traced(text, "13.1"), "kernel")["k13"]["args"])
    assert args.index("graph node id") + 1 == args.index("priority") == args.index("channel") - 1  # where Kineto has it


@VERSIONS
def test_copies_and_sets(traced, version, number, driver):
    trace = traced(EVERYTHING, version)
    found = {**by_name(trace, "gpu_memcpy"), **by_name(trace, "gpu_memset")}
    newer = GRAPH if number > 18 else {}
    rate = {name: {"bytes": n, "memory bandwidth (GB/s)": pytest.approx(n / (found[name]["dur"] * 1000), rel=1e-4)} for name, n in {
        "Memcpy HtoD (Pinned -> Device)": 4096, "Memcpy DtoH (Device -> Pinned)": 8192, "Memcpy PtoP (Device -> Device)": 2048, "Memset (Device)": 1024}.items()}
    places = {"fromDevice": 0, "inDevice": 0, "toDevice": 1, "fromContext": 1, "inContext": 1, "toContext": 2, "stream": 7}
    assert {name: without(e["args"]) for name, e in found.items()} == {
        name: {**(places if "PtoP" in name else ON_STREAM), **rate[name], **newer} for name in rate}


@VERSIONS
def test_calls_of_the_driver_and_the_runtime(traced, version, number, driver):
    trace = traced(EVERYTHING, version)
    calls = {(e["cat"], e["name"]): e["args"]["cbid"] for e in trace.spans("cuda_runtime", "cuda_driver")}
    assert calls == {("cuda_driver", "cuLaunchKernelEx"): 652, ("cuda_driver", "cuMemCreate"): 549, **{("cuda_runtime", name): cbid for name, cbid in {
        "cudaLaunchKernel": 211, "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51, "cudaGraphLaunch": 311, "cudaEventRecord": 135, "cudaStreamWaitEvent": 147,
        "cudaEventSynchronize": 137, "cudaMalloc": 20, "cudaFree": 22, "cudaMemcpyPeerAsync": 161, "cudaMemPoolCreate": 383, "cudaStreamSynchronize": 131,
        "cudaDeviceSynchronize": 165}.items()}}
    call, kernel = by_name(trace, "cuda_driver")["cuLaunchKernelEx"], by_name(trace, "kernel")["driven()"]
    assert call["args"]["correlation"] == kernel["args"]["correlation"] and call["tid"] == trace.pid
    assert sorted((e["ph"], e["pid"], e["tid"], e["ts"]) for e in trace.events if e.get("cat") == "ac2g" and e["id"] == kernel["args"]["correlation"]) == [
        ("f", 0, 7, kernel["ts"]), ("s", trace.pid, trace.pid, call["ts"])]


def test_what_kineto_leaves_out_of_calls_is_left_out_and_what_fails_says_so(traced):
    text = ("from simulated_gpu import sim; sim.simInit(1)\nfor cbid in (10, 16, 17, 133, 134, 136, 20): sim.simCall(5, cbid, 0)\n"
            "for cbid in (4, 307, 550, 551, 552, 554, 555, 114): sim.simCall(4, cbid, 0)\nsim.simLaunchThroughBoth(b'k', 7, 1000); sim.simCall(5, 211, 98)")
    trace = traced(text)
    assert [e["name"] for e in sorted(trace.spans("cuda_runtime"), key=lambda e: e["ts"])] == ["cudaMalloc", "cudaLaunchKernel", "cudaLaunchKernel"]
    assert sorted(trace.names("cuda_driver")) == ["cuLaunchKernel", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemMap",
                                                  "cuMemRelease", "cuMemUnmap"]
    assert [e["args"].get("result") for e in trace.spans("cuda_runtime")] == [None, None, 98]
    assert all("launch" not in str(e.get("id")) for e in trace.events) and len(trace.spans("kernel")) == 1


@VERSIONS
def test_waits_and_events(traced, version, number, driver):
    trace = traced(EVERYTHING, version)
    recorded = by_name(trace, "cuda_runtime")["cudaEventRecord"]["args"]["correlation"]
    event, = (e for e in trace.events if e.get("cat") == "cuda_event")
    assert (event["name"], event["ph"], event.get("dur")) == ("cudaEvent", "i", None)  # HTA drops what has no duration
    assert event["args"] == {"event_id": 1, "stream": 13, "correlation": recorded, "device": 0, "context": 1}
    waits = sorted((without(e["args"]) for e in trace.spans("cuda_sync")), key=str)
    on_event = {"wait_on_stream": 13, "wait_on_cuda_event_record_corr_id": recorded, "wait_on_cuda_event_id": 1, "device": 0, "context": 1}
    assert waits == sorted([{"cuda_sync_kind": "Event Sync", **on_event, "stream": -1}, {"cuda_sync_kind": "Stream Wait Event", **on_event, "stream": 7},
                            {"cuda_sync_kind": "Stream Sync", "stream": 7, "device": 0, "context": 1},
                            {"cuda_sync_kind": "Context Sync", "stream": -1, "device": 0, "context": 1},
                            {"cuda_sync_kind": "Context Sync", "stream": -1, "device": 1, "context": 2}], key=str)


@VERSIONS
def test_overhead_has_a_row_of_its_own(traced, version, number, driver):
    kinds = {0: "Unknown", 1: "Driver Compiler", 1 << 16: "Buffer Flush", 2 << 16: "Instrumentation", 3 << 16: "Resource", 4 << 16: "Runtime Triggered Module Loading",
             5 << 16: "Lazy Function Loading", 6 << 16: "Command Buffer Full", 7 << 16: "Activity Buffer Request", 99 << 16: "Unrecognized"}
    trace = traced("from simulated_gpu import sim; sim.simInit(1); sim.simLaunch(b'k', 7, 1000)\n" +
                   "".join("sim.simOverhead(%d, %d)\n" % (kind, 1000 + 10 * n) for n, kind in enumerate(kinds)), version)
    found = {e["name"]: e["dur"] * 1000 for e in trace.spans("overhead")}
    assert found == pytest.approx({name: 1000 + 10 * n for n, name in enumerate(kinds.values())}, abs=1.5)
    row, = {e["pid"] for e in trace.spans("overhead")}
    assert {e["name"]: e["args"] for e in trace.events if e["ph"] == "M" and e["pid"] == row} == {
        "process_name": {"name": "CUPTI Overhead"}, "process_sort_index": {"sort_index": 0x100000A}}


@VERSIONS
def test_the_top_of_the_file_and_the_rows(traced, version, number, driver):
    trace = traced(EVERYTHING, version)
    assert {key: trace.doc[key] for key in ("cupti_version", "cuda_runtime_version", "cuda_driver_version")} == {
        "cupti_version": number, "cuda_runtime_version": driver, "cuda_driver_version": driver}
    assert trace.doc["deviceProperties"] == [{
        "id": n, "name": "Simulated A100", "totalGlobalMem": 80 << 30, "computeMajor": 8, "computeMinor": 0, "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 48 << 10, "numSms": 108,
        "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": (163 - n) << 10, "sharedMemPerMultiprocessor": 164 << 10} for n in (0, 1)]
    said = [(e["name"], e["pid"], e["tid"], *e["args"].values()) for e in trace.events if e["ph"] == "M"]
    for n in (0, 1):
        assert ("process_labels", n, 0, "GPU %d" % n) in said and ("process_sort_index", n, 0, 5000000 + n) in said
        assert ("thread_name", n, 7, "stream 7 ") in said and ("thread_sort_index", n, 7, 7) in said
    assert ("thread_name", 0, 1000007, "stream 7 (sync)") in said


@pytest.mark.parametrize("init, more, optin", [("slowinit=300", "", 163 << 10), ("slowinit=300", "sim.simUntilWritten(); os._exit(0)", 163 << 10), ("cuDeviceGetAttribute=1", "", 0)],
                         ids=["known at the exit", "known while it runs", "never"])
def test_what_only_the_driver_knows_of_a_device_is_asked_when_it_is_initialised(traced, init, more, optin):
    """CUPTI delivers the device while cuInit still runs, and the driver answers nothing until that has returned."""
    trace = traced("import os, time\nfrom simulated_gpu import sim; sim.simInit(1); sim.simLaunch(b'k', 7, 1000)\n" + more, sim=init)
    device, = trace.doc["deviceProperties"]
    assert (device["name"], device["sharedMemPerBlockOptin"]) == ("Simulated A100", optin)


COUNTED = """
from simulated_gpu import sim
sim.simInit(2)
sim.simLaunch(b"k", 7, 1000)
for sm, reasons in ((1410, 0), (1200, 4), (900, 12)): sim.simEnvironment(1, sm, 1215, 4, 16, reasons)
sim.simEnvironment(2, 61, 0, 0, 0, 0); sim.simEnvironment(3, 250000, 400000, 0, 0, 0); sim.simEnvironment(4, 30, 0, 0, 0, 0); sim.simEnvironment(9, 1, 0, 0, 0, 0)
sim.simMalloc(0x1000, 4096, 0); sim.simMalloc(0x9000, 100, 0); sim.simMalloc(0x1000, 4096, 1); sim.simMalloc(0x5000, 7, 1)
sim.simMemoryPool(1, 1, 1000, 0); sim.simMemoryPool(1, 2, 50, 0); sim.simMemoryPool(3, 1, 600, 0); sim.simMemoryPool(2, 1, 600, 0)
sim.simSetDevice(1); sim.simEnvironment(2, 45, 0, 0, 0, 0)
"""
COUNTERS = {(0, "SM clock (MHz)"): [1410, 1200, 900], (0, "memory clock (MHz)"): [1215] * 3, (0, "temperature (C)"): [61], (0, "power (mW)"): [250000],
            (0, "fan (%)"): [30], (0, "driver memory (bytes)"): [4096, 4196, 100, 100], (0, "memory pools (bytes)"): [1000, 1050, 650, 50],
            (1, "temperature (C)"): [45]}


@VERSIONS
def test_counters_of_devices_and_of_what_the_driver_gave(run_simulated, check_trace, version, number, driver):  # noqa: F811
    done, _ = run_simulated(COUNTED, version=version, options=["--format", "kineto,perfetto"])
    assert done.status == 0, done.stderr
    trace, found = check_trace(done.trace()), {}
    for e in sorted((e for e in trace.events if e["ph"] == "C"), key=lambda e: e["ts"]):
        found.setdefault((e["pid"], e["name"]), []).append(*e["args"].values())
    assert found == COUNTERS
    perfetto = perfetto_trace.Trace(done.directory / "trace.perfetto-trace")
    for (device, name), values in COUNTERS.items():
        if name != "temperature (C)":  # which both devices have
            assert [value for _, value in perfetto.counters[name]] == values, name
    assert "2 samples of 3 found the clock of GPU 0 throttled by its power limit" in done.stderr
    assert "1 sample of 3 found the clock of GPU 0 throttled by the hardware" in done.stderr
    said = trace.doc["torchprof"]["processes"][0]["gpu"]
    assert said["devices"]["0"]["SM clock (MHz)"] == {"least": 900, "most": 1410} and said["driver_memory_pool_operations"] == 4
