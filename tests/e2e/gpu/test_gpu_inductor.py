"""Kernels of torch.compile's inductor: in the range that torch would make, with what inductor says of them in the module that it generated."""
import pytest

from simulated_runs import run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

KERNEL = "triton_poi_fused_add_relu_0"
MODULE = '''
from simulated_gpu import sim
async_compile = type("", (), {"triton": lambda *_: None})()

# kernel path: /cache/xg/cxgt.py
# Topologically Sorted Source Nodes: [add, y], Original ATen: [aten.add, aten.relu]
# Source node to ATen node mapping:
#   add => add
# File: train.py:12 in forward, code: y = F.relu(x + 1)
# File: train.py:12 in forward, code: y = F.relu(x + 1)
# File: train.py:13 in forward, code: return y
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0')
class Runner:
    def call(self, args):
        sim.simDriverLaunch(652, b"triton_poi_fused_add_relu_0", 7, 2000)
        sim.simDriverLaunch(652, b"triton_red_fused_sum_1", 7, 2000)
        sim.simLaunch(b"gemm", 7, 1000)
'''
PROGRAM = """
import torch, generated
from simulated_gpu import sim
sim.simInit(1)
class Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): generated.Runner().call([x]); return x * 2
for _ in range(3): Compiled.apply(torch.ones(4, requires_grad=True))
with torch.autograd.profiler.record_function("triton_red_fused_sum_1"): sim.simDriverLaunch(652, b"triton_red_fused_sum_1", 7, 2000)
sim.simDeviceSynchronize()
"""


def test_its_kernels_have_their_range_and_their_source(run_simulated, check_trace, program):  # noqa: F811
    program(MODULE, "generated.py")
    run, _ = run_simulated(PROGRAM, version="13.0", gpu="on")
    assert run.status == 0, run.stderr
    trace = check_trace(run.trace(), expect={"kernel": 10})
    ranges = trace.named(KERNEL, "cpu_op")
    kernels = {e["args"]["External id"]: e for e in trace.named(KERNEL, "kernel")}
    assert len(ranges) == len(kernels) == 3
    for e in ranges:
        args = e["args"]
        assert args["External id"] in kernels
        assert (args["kernel_file"], args["Source nodes"], args["Original ATen"]) == ("/cache/xg/cxgt.py", "add, y", "aten.add, aten.relu")
        assert args["Source lines"] == "train.py:12 in forward; train.py:13 in forward"
        launch, = (call for call in trace.spans("cuda_driver") if e["ts"] <= call["ts"] and call["ts"] + call["dur"] <= e["ts"] + e["dur"])
        assert launch["name"] == "cuLaunchKernelEx"
    # One that torch has in a range of that name already gets no second one; one of which nothing is known has a range without a source.
    others = trace.named("triton_red_fused_sum_1", "cpu_op")
    assert len(others) == 3 and not any("Source nodes" in e["args"] for e in others)
    assert len(trace.named("triton_red_fused_sum_1", "user_annotation")) == 1
    gemms = trace.named("gemm", "kernel")
    assert {e["args"]["External id"] for e in gemms}.isdisjoint(kernels)
