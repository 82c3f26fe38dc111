"""What the first use of CUDA and of a library costs is shown as that, and not as the time of whichever operator came first."""
import re

import pytest

from simulated_runs import run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

PROGRAM = """
import time, torch
from simulated_gpu import sim
sim.simInit(1)
class Empty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if first: sim.simSlowCall(5, 205, 60_000_000)  # cudaDeviceGetStreamPriorityRange, in which the context is made
        return x * 2
class Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if first: sim.simSlowCall(4, 678, 30_000_000)  # cuLibraryLoadData
        if first: sim.simSlowCall(5, 15, 15_000_000)  # cudaFuncGetAttributes
        sim.simLaunch(b"gemm", 7, 1000)
        return x * 2
class Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if first: time.sleep(0.2)  # cuDNN tries its algorithms
        return x * 2
x = torch.ones(4, requires_grad=True)
first = True
for _ in range(5):
    for f in (Empty, Multiply, Convolve): f.apply(x)
    first = False
sim.simDeviceSynchronize()
"""


@pytest.mark.parametrize("version", ["12.4", "13.0"])
def test_a_table_says_what_the_first_use_cost(run_simulated, check_trace, torchprof, version):  # noqa: F811
    run, _ = run_simulated(PROGRAM, version=version, gpu="on")
    assert run.status == 0, run.stderr
    cuda = re.search(r"^ +first use of CUDA: (\S+) ms to make it ready \(Empty\), (\S+) ms to load code of kernels \(Multiply\)$", run.stderr, re.M)
    assert cuda and 59 < float(cuda[1]) and 44 < float(cuda[2]), run.stderr
    calls = re.search(r"^ +first calls: (.*)$", run.stderr, re.M)
    assert calls and re.match(r"Convolve (\S+) ms of (\S+) ms$", calls[1]), run.stderr
    # What Empty and Multiply take is in calls of CUDA, which are not their self time.
    trace = check_trace(run.trace())
    assert trace.names("cuda_driver") == {"cuLibraryLoadData": 1}
    assert {"cudaDeviceGetStreamPriorityRange", "cudaFuncGetAttributes", "cudaLaunchKernel"} <= set(trace.names("cuda_runtime"))
    text = torchprof("report", run.directory, "-t", "ops").stdout
    assert "first use of CUDA: " in text and "first calls: Convolve " in text
