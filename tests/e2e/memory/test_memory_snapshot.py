"""The memory snapshot at the peak: what pickle and torch's own tools for such files make of it."""
import importlib
import json
import pickle
import sys

import pytest

from conftest import profile, torch_here

PROGRAM = """
import torch
class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x, x])  # line 5
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner_layer = Inner()
    def forward(self, x):
        return self.inner_layer(x)
def before():
    return [torch.ones(1000, 256) for _ in range(3)]
kept = torch.zeros(512, 1024)
before()
peak = Outer()(torch.ones(1024, 1024))
del peak
after = torch.ones(10, 10)
"""


@pytest.fixture(scope="module")
def recorded(launcher, tmp_path_factory):
    directory = tmp_path_factory.mktemp("snapshot")
    (directory / "peak.py").write_text(PROGRAM)
    run = profile(launcher, directory / "run", [sys.executable, "peak.py"], cwd=directory,
                  options=["--format", "memory-snapshot", "-q"])
    assert run.status == 0, run.stderr
    file, = run.directory.glob("*.memory.pickle")
    return run, pickle.loads(file.read_bytes())


def blocks_of(snapshot):
    return [block for segment in snapshot["segments"] for block in segment["blocks"]]


def test_what_lives_in_it_is_the_peak_of_the_report(recorded, torchprof):
    run, snapshot = recorded
    done = torchprof("report", run.directory, "--json", "-t", "memory")
    assert done.returncode == 0, done.stderr
    table = next(t for t in json.loads(done.stdout)["tables"] if t["name"] == "memory")
    assert sum(block["size"] for block in blocks_of(snapshot)) == table["totals"]["peak_bytes"]
    device, = snapshot["torchprof"]
    assert (device["name"], device["peak_bytes"], device["unknown_bytes"]) == ("CPU", table["totals"]["peak_bytes"], 0)


def test_the_trace_leads_to_the_blocks(recorded):
    _, snapshot = recorded
    trace, = snapshot["device_traces"]
    live = {}
    for event in trace:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"]) == event["size"]
    assert live == {block["address"]: block["size"] for block in blocks_of(snapshot)}
    assert [e["time_us"] for e in trace] == sorted(e["time_us"] for e in trace)
    assert {e["action"] for e in trace} == {"segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"}


def test_a_block_has_operator_line_and_module(recorded):
    _, snapshot = recorded
    largest = max(blocks_of(snapshot), key=lambda block: block["size"])
    assert largest["size"] == 8 << 20
    names = [frame["name"] for frame in largest["frames"]]
    line = next(i for i, frame in enumerate(largest["frames"]) if frame["filename"].endswith("peak.py"))
    assert largest["frames"][line]["line"] == 5
    assert names.index("aten::cat") <= line < names.index("nn.Module: Outer_0")
    assert "nn.Module: Inner_0 (inner_layer)" in names


def test_torchs_own_tools_read_it(recorded):
    _, snapshot = recorded
    viz = importlib.import_module("torch.cuda._memory_viz")
    peak = sum(block["size"] for block in blocks_of(snapshot))
    of_all = snapshot["segments"] if torch_here()[0] < (2, 0) else snapshot
    assert viz.memory(of_all, format_flamegraph=lambda text: text).count("active_allocated") >= len(snapshot["segments"])
    if torch_here()[0] < (2, 0):  # of segments alone
        assert viz.stats(of_all)["total_size"].value == peak
        return
    assert "segments: %d" % len(snapshot["segments"]) in viz.segsum(snapshot)
    assert "Device 0" in viz.trace(snapshot)
    page = viz.trace_plot(snapshot)
    assert "Active Memory Timeline" in page or "MemoryViz" in page
