"""The library where LD_PRELOAD did not bring it: what is recorded is the same."""
import collections
import re
import textwrap

import pytest

TRAINING = textwrap.dedent("""
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor): return x * factor
        @staticmethod
        def backward(ctx, gradient): return gradient * 2, None
    for i in range(6):
        optimizer.zero_grad()
        Double.apply(model(torch.randn(8, 16)), 2).square().mean().backward()
        optimizer.step()
""")


def recorded(trace):
    """What of the events is the same in every run: names, shapes, sizes of blocks."""
    events = (e for e in trace.events if e["ph"] in "Xi" and e.get("cat") in ("cpu_op", "user_annotation", "python_function", "cpu_instant_event"))
    return collections.Counter((e["name"], str(e["args"].get("Input Dims")), str(e["args"].get("Concrete Inputs")), e["args"].get("Bytes")) for e in events)


@pytest.fixture
def record(launcher, prefix, run_bare, program, torch_python, torchprof, tmp_path, load_trace):
    """record(NAME, is_preloaded): the trace of TRAINING's steps 2 to 4, without a launcher around it."""
    def run(name, is_preloaded):
        library = prefix / "lib" / "torchprof"
        env = {"TORCHPROF_OUTPUT": tmp_path / name, "TORCHPROF_WINDOW": "steps=2..4", "PYTHONPATH": library / "python"}
        if is_preloaded:
            env["LD_PRELOAD"] = library / "libtorchprof.so"
        done = run_bare([torch_python, program(TRAINING)], env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        written = torchprof("export", tmp_path / name, "--format", "kineto", "-o", tmp_path / (name + ".json"))
        assert written.returncode == 0, written.stderr
        return load_trace(tmp_path / (name + ".json")), torchprof("report", tmp_path / name).stdout
    return run


def test_with_pythonpath_alone_the_same_is_recorded(record):
    trace, summary = record("late", is_preloaded=False)
    expected, _ = record("preloaded", is_preloaded=True)
    assert recorded(trace) == recorded(expected)
    assert recorded(trace)["[memory]", "None", "None", 4], "no block of the loss"
    assert not re.search(r"Not in the trace:.*memory", summary, re.S)
