"""CUPTI's clock: sampled at the start, at each edge of a window and every second; converted by the samples; where it is wrong, that is said."""
import re

import pytest
import spool_records as spool
from simulated_runs import gpu_lines, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

WINDOW = 9  # WindowDef
SHORT_WINDOWS = """
import torch
from torch.autograd.profiler import record_function
from simulated_gpu import sim
sim.simInit(1)
for _ in range(20):
    with record_function('on'): sim.simLaunch(b'k', 7, 1000); sim.simDeviceSynchronize()
    sim.simLaunch(b'between', 7, 1000)
"""


def test_each_edge_of_a_window_has_a_sample_of_the_clock(run_simulated):  # noqa: F811
    """However short it is: the thread that samples every second has no time to see the window."""
    run, _ = run_simulated(SHORT_WINDOWS, options=["-w", "range=on", "--format", "none"])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    path, = spool.spools(run)
    windows = {}
    for kind, record in spool.records(path):
        if kind == WINDOW:
            number, _, _, begin, end = spool.fields("IIQQQ", [record], 8)[0]
            windows[number] = begin, end
    found = spool.gpu_records(path)
    samples = spool.fields("QQQ", found[spool.CLOCK], 8)
    first_calls = sorted(start for start, in spool.fields("Q", found[spool.API], 8))[::2]
    assert len(windows) == len(first_calls) == 20 and len(samples) >= 40
    nexts = [windows[n + 1][0] for n in range(1, 20)] + [1 << 64]
    for (begin, end), next_begin, call in zip(windows.values(), nexts, first_calls):
        assert any(begin <= before and after <= end and cupti <= call for before, after, cupti in samples)
        assert any(end <= before and after <= next_begin for before, after, _ in samples)


@pytest.mark.parametrize("ppm", [20_000, -20_000], ids=["too fast", "too slow"])
def test_a_clock_that_drifts_is_converted(run_simulated, check_trace, ppm):  # noqa: F811
    """By a fiftieth of the time: after two seconds and a half it is 50 ms off."""
    run, _ = run_simulated("import torch, time\nfrom torch.autograd.profiler import record_function\nfrom simulated_gpu import sim\nsim.simInit(1)\n"
                           "for _ in range(25):\n with record_function('step'): sim.simLaunch(b'k', 7, 1000000); sim.simDeviceSynchronize()\n time.sleep(0.1)",
                           sim="noclock=1,drift=%d" % ppm, options=["--python", "off"])
    assert run.status == 0 and "launch" not in run.stderr, run.stderr
    trace = check_trace(run.trace(), expect={"kernel": 25, "ac2g": 100})
    assert "clock_faults" not in trace.doc["torchprof"]["processes"][0]["gpu"]
    steps, kernels = (sorted(trace.spans(category), key=lambda e: e["ts"]) for category in ("user_annotation", "kernel"))
    assert len(steps) == len(kernels) == 25
    for step, kernel in zip(steps, kernels):  # it was launched in the step, which waits for its end
        assert step["ts"] - 200 < kernel["ts"] and kernel["ts"] + kernel["dur"] < step["ts"] + step["dur"] + 200


SET_CLOCK = """
import time
import torch
from torch.autograd.profiler import record_function
from simulated_gpu import sim
sim.simInit(1)
for i in range(30):
    with record_function('step'): sim.simLaunch(b'k', 7, 1000000); sim.simDeviceSynchronize()
    if i in (10, 20): sim.simSetWallClock({10: 3900000000, 20: -7000000000}[i])
    time.sleep(0.02)
"""


def test_setting_the_wall_clock_moves_no_kernel(run_simulated, check_trace):  # noqa: F811
    run, _ = run_simulated(SET_CLOCK, options=["--python", "off"])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    trace = check_trace(run.trace(), expect={"kernel": 30})
    assert "clock_faults" not in trace.doc["torchprof"]["processes"][0]["gpu"]
    steps, kernels = (sorted(trace.spans(category), key=lambda e: e["ts"]) for category in ("user_annotation", "kernel"))
    for step, kernel in zip(steps, kernels):
        assert step["ts"] < kernel["ts"] and kernel["ts"] + kernel["dur"] < step["ts"] + step["dur"]


def test_where_cupti_takes_no_clock_what_that_moves_is_said(run_simulated):  # noqa: F811
    run, _ = run_simulated(SET_CLOCK, sim="noclock=1", options=["--python", "off"])
    assert run.status == 0 and re.search(r"begin.* before .*launch", run.stderr), run.stderr


def test_a_device_whose_clock_is_wrong_is_said_and_not_hidden(run_simulated, check_trace):  # noqa: F811
    run, _ = run_simulated("from simulated_gpu import sim; sim.simInit(1)\nfor _ in range(5): sim.simLaunch(b'k', 7, 1000); sim.simDeviceSynchronize()", sim="early=2000000")
    assert run.status == 0 and re.search(r"5 .*begin.* before .*launch", run.stderr), run.stderr
    trace = check_trace(run.trace(), expect={"kernel": 5})
    faults = trace.doc["torchprof"]["processes"][0]["gpu"]["clock_faults"]
    assert faults["begin_before_launch"] == 5 and 1_900_000 < faults["most_ns"] <= 2_000_000
    before = [kernel["args"]["before launch (us)"] for kernel in trace.spans("kernel")]
    assert min(before) > 0 and abs(max(before) - faults["most_ns"] / 1000) < 1, before  # a busy machine's launch takes a while itself
