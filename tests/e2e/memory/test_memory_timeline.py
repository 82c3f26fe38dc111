"""The memory timeline of a real training: parameters, gradients and activations are where they belong."""
import gzip
import json

import pytest

pytestmark = pytest.mark.once

PROGRAM = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 256))
optimizer = torch.optim.Adam(net.parameters())
for i in range(4):
    data = torch.ones(128, 256)
    loss = net(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""
PARAMETERS = (256 * 512 + 512 + 512 * 256 + 256) * 4
CATEGORIES = ["parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown"]


def test_categories_of_a_training(run_torchprof, program, torch_python):
    run = run_torchprof([torch_python, program(PROGRAM)], options=["--format", "memory-timeline,memory-timeline-raw,memory-timeline-html"])
    assert run.status == 0, run.stderr
    timeline, = run.directory.glob("*.memory.json")
    times, sizes = json.loads(timeline.read_text())
    assert len(times) == len(sizes) and times == sorted(times) and {len(row) for row in sizes} == {9}
    most = dict(zip(CATEGORIES, map(max, list(zip(*sizes))[1:])))
    assert PARAMETERS <= most["parameter"] < PARAMETERS * 1.01
    assert PARAMETERS * 2 <= most["optimizer state"] < PARAMETERS * 2.01
    assert PARAMETERS <= most["gradient"] < PARAMETERS * 2  # a temporary block at a gradient's address counts as a gradient
    assert 128 * 512 * 4 <= most["activation"] and 128 * 256 * 4 <= most["input"]
    assert all(size >= 0 for row in sizes for size in row)
    raw, = run.directory.glob("*.memory.raw.json.gz")
    events = json.loads(gzip.decompress(raw.read_bytes()))
    assert gzip.decompress(raw.read_bytes()).decode() == json.dumps(events)  # as torch writes it
    assert events == sorted(events, key=lambda event: event[:2])
    sums = [0] * 8
    for time, action, size, category in events:
        assert (size < 0) == (action == 4) and (time == -1) == (action == 1)
        sums[category] += size
    assert sums == sizes[-1][1:]
    in_order = [time for time, *_ in events]
    assert in_order == sorted(in_order) and [time // 1000 for time in in_order if time >= 0][-1] == times[-1]
    page = (run.directory / "trace.memory.html").read_text()
    assert "<title>parameter</title>" in page and "<script" not in page
