"""--gpu off, kernels, on and full: what each records, and how little of CUPTI it asks for."""
import pytest

import spool_records as spool
from simulated_runs import counts, gpu_lines, gpu_source, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

# A launch as torch makes it: 21 calls, half of them of the driver; now and then what else a training step does.
STEP = """
import time
from simulated_gpu import sim
sim.simInit(1)
for _ in range(100):
    for _ in range(10): sim.simLaunch(b"k", 7, 1000)
    event = sim.simEventCreate()
    sim.simEventRecord(event, 7)
    sim.simStreamWaitEvent(9, event)
    sim.simMemcpy(1, 4096, 7)
    sim.simMemset(0, 64, 7)
    sim.simStreamSynchronize(7)
"""
LAUNCHES = 1000


def made(reports, *kinds):
    """Records that CUPTI made: each is a callback of its own to begin with."""
    report, = reports.values()
    return sum(report.get(str(kind), [0])[0] for kind in kinds)


@pytest.mark.parametrize("gpu, version, most", [("on", "13.0", 3), ("on", "12.4", 23), ("full", "13.0", 23), ("kernels", "13.0", 1.3)])
def test_of_the_calls_of_a_launch_those_are_watched_that_tell_something(run_simulated, check_trace, gpu, version, most):  # noqa: F811
    run, reports = run_simulated(STEP, sim="calls=21", version=version, gpu=gpu)
    assert run.status == 0 and not gpu_lines(run), run.stderr
    records = made(reports, 1, 2, 4, 5, 10, 36, 38) / LAUNCHES
    assert records <= most and (most < 20 or records > 20), records
    trace = check_trace(run.trace())
    assert len(trace.spans("kernel")) == LAUNCHES and len(trace.spans("gpu_memcpy")) == len(trace.spans("gpu_memset")) == 100
    calls = trace.names("cuda_runtime")
    if gpu == "kernels":
        assert not calls
    else:  # waits come from the calls that wait, events from those that record them
        assert {name: calls[name] for name in ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamSynchronize", "cudaEventRecord",
                                               "cudaStreamWaitEvent")} == {"cudaLaunchKernel": LAUNCHES} | dict.fromkeys(
            ("cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamSynchronize", "cudaEventRecord", "cudaStreamWaitEvent"), 100)
    assert bool(trace.spans("cuda_sync")) == (gpu == "full")


@pytest.mark.parametrize("version", ["11.8", "12.4", "13.0"])
def test_a_window_that_opens_late_has_its_launches(run_simulated, check_trace, version):  # noqa: F811
    """After the context, again and again: where calls are watched one by one, one of them was watched when it was made."""
    run, _ = run_simulated("from torch.autograd.profiler import record_function\n" + STEP.replace(
        "for _ in range(100):", "sim.simLaunch(b'before', 7, 1000)\nfor n in range(30):\n  with record_function('on' if n % 3 == 0 else 'off'):").replace(
        "\n    ", "\n        "), version=version, gpu="on", options=["-w", "range=on", "--python", "off"])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    trace = check_trace(run.trace())
    assert trace.names("kernel") == {"k": 100} and trace.names("cuda_runtime")["cudaLaunchKernel"] == 100


def test_off_asks_cupti_for_nothing(run_simulated):  # noqa: F811
    run, reports = run_simulated(STEP, gpu="off")
    assert run.status == 0 and gpu_source(run)["state"] == "off"
    assert not reports or not made(reports, 1, 2, 4, 5, 10, 36, 38)


@pytest.mark.parametrize("gpu", ["on", "full"])
def test_without_a_window_no_call_is_recorded(run_simulated, gpu):  # noqa: F811
    run, _ = run_simulated(STEP.replace("range(100)", "range(3)"), version="13.0", gpu=gpu, options=["-w", "range=never", "--python", "off"])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    found = spool.gpu_records(spool.spools(run)[0])
    assert not found[spool.API] and not found[spool.KERNEL]


def test_where_single_calls_turn_out_to_have_no_records_all_are_watched(run_simulated, check_trace):  # noqa: F811
    """However it comes that CUPTI says yes and gives none."""
    run, _ = run_simulated("""
from simulated_gpu import sim
sim.simInit(1)
while not sim.simIsEnabled(5): sim.simLaunch(b"before", 7, 1000)
for _ in range(100): sim.simLaunch(b"after", 7, 1000)
""", sim="deaf=1", version="13.0", gpu="on", options=["--python", "off"])
    assert run.status == 0 and not gpu_lines(run) and "all calls" in gpu_source(run)["detail"], run.stderr
    trace = check_trace(run.trace())
    assert trace.names("kernel")["after"] == 100 and trace.names("cuda_runtime")["cudaLaunchKernel"] >= 100
