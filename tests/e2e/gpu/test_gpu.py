"""The GPU, simulated: CUPTI's records reach the spool, each one or a count of it, whatever CUPTI does."""
import collections
import math
import os

import pytest

import spool_records as spool
from conftest import BUILD, SUPPORT
from simulated_runs import EVERYTHING, ONE_OF_EACH, SIM, counts, gpu_lines, gpu_source, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

def delivered(report):
    sums = collections.Counter()
    for kind, ours in spool.OF_CUPTI.items():
        sums[ours] += report.get(str(kind), [0, 0])[1]
    return {kind: n for kind, n in sums.items() if n}


@pytest.mark.parametrize("version", ["11.8", "12.4", "13.0", "13.1"])
def test_each_kind_of_activity_is_recorded_with_every_cupti(run_simulated, check_trace, version):
    run, _ = run_simulated(EVERYTHING, version=version)
    assert (run.status, run.stdout) == (0, "done\n"), run.stderr
    assert gpu_source(run)["state"] == "on" and not gpu_lines(run)
    check_trace(run.trace())
    path, = spool.spools(run)
    found = spool.gpu_records(path)
    assert counts(found) == ONE_OF_EACH
    assert not found[spool.DROPPED] and len(found[spool.CLOCK]) >= 2
    assert set(spool.correlations(found, spool.KERNEL)) <= set(spool.correlations(found, spool.API))
    starts_and_ends = spool.fields("QQ", found[spool.KERNEL], 8)
    # But for what CUPTI rounds when it converts a device's times to the clock that it was given.
    assert all(abs(end - start - ns) <= ns / 100 for (start, end), ns in zip(sorted(starts_and_ends, key=lambda times: times[1] - times[0]), [1000] * 6 + [20000] * 3))
    graphs = collections.Counter(spool.fields("I", found[spool.KERNEL], 56))
    assert graphs == {(0,): 5, (5,): 4}


def test_every_record_of_a_million_kernels_is_there(run_simulated):
    """And of 20,000 copies, 10,000 memsets and 4,004 waits. 8 threads, 64 streams, 4 devices; completion in any order."""
    run, reports = run_simulated("from simulated_gpu import sim; sim.simInit(4); sim.simMixedStorm(8, 125000, 64, 4)",
                                 options=["-w", "all", "--format", "none"])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    path, = spool.spools(run)
    found = spool.gpu_records(path)
    report, = reports.values()
    assert report["dropped"] == 0
    assert counts(found) == delivered(report)
    assert [len(found[kind]) for kind in (spool.KERNEL, spool.COPY, spool.SET, spool.SYNC, spool.EVENT)] == [1_000_000, 20_000, 10_000, 4_004, 2_000]
    calls = spool.correlations(found, spool.API)
    work = [number for kind in (spool.KERNEL, spool.COPY, spool.SET, spool.SYNC, spool.EVENT) for number in spool.correlations(found, kind)]
    assert len(set(work)) == len(work) == len(set(calls)) == len(calls) and set(work) == set(calls)
    assert len(set(spool.fields("III", found[spool.KERNEL], 60))) >= 64


@pytest.mark.parametrize("fault", ["drop=7", "unknown=10", "cut=1", "late=1", "zero=3", "nokind=49"])
def test_what_cupti_loses_or_garbles_is_counted(run_simulated, fault):
    run, reports = run_simulated("from simulated_gpu import *; sim.simInit(2); sim.simStorm(2, 3000, 8, 2); everything()", sim=fault)
    assert run.status == 0 and not gpu_lines(run), run.stderr
    path, = spool.spools(run)
    found, (report,) = spool.gpu_records(path), reports.values()
    lost = spool.dropped(found)
    assert lost[1] == report["dropped"] and (lost[1] > 500) == (fault == "drop=7")
    assert lost[3] == report["unknown"] and (lost[3] > 500) == (fault == "unknown=10")
    assert lost[2] == report["cut"] and (lost[2] > 0) == (fault == "cut=1")
    late = 1 if fault == "late=1" else 0
    assert sum(counts(found).values()) + lost[2] + late == sum(delivered(report).values())
    if fault == "nokind=49":
        assert "not kind 49" in gpu_source(run)["detail"]


@pytest.mark.parametrize("fault, why", [("taken=1", "another tool has CUPTI"), ("cuptiActivityEnable=15", "CUPTI_ERROR_NOT_INITIALIZED"),
                                        ("cuptiActivityRegisterCallbacks=1", "cuptiActivityRegisterCallbacks"),
                                        ("cuptiGetVersion=2", "does not tell its version")])
def test_where_cupti_cannot_be_had_one_line_says_why(run_simulated, fault, why):
    run, _ = run_simulated(EVERYTHING, sim=fault)
    assert (run.status, run.stdout) == (0, "done\n"), run.stderr
    line = [line for line in run.stderr.splitlines() if line.startswith("torchprof: the GPU is not recorded: ")]
    assert len(line) == 1 and why in line[0], run.stderr
    assert gpu_source(run)["state"] == "failed" and why in gpu_source(run)["detail"]
    assert not counts(spool.gpu_records(spool.spools(run)[0]))


def test_where_no_buffer_comes_back_what_has_no_room_is_counted_and_said(run_simulated):
    """Each thread has a buffer of its own. A CUPTI that bears it is refused more than a quarter of a gigabyte of them."""
    run, reports = run_simulated("from simulated_gpu import sim; sim.simInit(1); sim.simStorm(200, 1, 1, 1)", version="13.0", sim="withhold=1")
    found, (report,) = spool.gpu_records(spool.spools(run)[0]), reports.values()
    assert run.status == 0 and report["dropped"] >= 200 - 128 and spool.dropped(found)[1] == report["dropped"], run.stderr
    assert "%d GPU records dropped by CUPTI, which had no buffer for them" % report["dropped"] in run.stderr


def test_an_unknown_cupti_is_refused(run_simulated):
    run, _ = run_simulated(EVERYTHING, version="99")
    assert run.status == 0 and "this version of CUPTI is not one that this torchprof knows" in run.stderr
    assert gpu_source(run)["state"] == "failed"


@pytest.mark.parametrize("function", ["cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
                                      "cuptiGetTimestamp", "cuptiActivityDisable", "cuptiSubscribe"])
def test_a_program_runs_on_whatever_fails_in_cupti(run_simulated, function):
    run, _ = run_simulated(EVERYTHING, sim=function + "=1")
    assert (run.status, run.stdout) == (0, "done\n"), run.stderr
    assert not gpu_lines(run)


def test_whoever_comes_later_may_subscribe(run_simulated):
    """Kineto does when torch.profiler is first used, and gives up where it cannot."""
    run, _ = run_simulated("import ctypes\nfrom simulated_gpu import *\neverything()\n"
                           "print(sim.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None), sim.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None))")
    assert (run.status, run.stdout) == (0, "0 39\n") and not gpu_lines(run), run.stderr
    assert counts(spool.gpu_records(spool.spools(run)[0])) == ONE_OF_EACH


def test_gpu_off_leaves_cupti_alone(run_simulated):
    run, reports = run_simulated(EVERYTHING, options=["--gpu", "off"])
    assert run.status == 0 and gpu_source(run)["state"] == "off"
    assert list(reports.values()) == [{"dropped": 0, "unknown": 0, "cut": 0}]


def test_a_program_that_never_initialises_cuda_is_not_initialised_by_us(run_simulated):
    run, reports = run_simulated("from simulated_gpu import sim; print(sim.simLaunch(b'k', 7, 1))")
    assert run.stdout == "3\n" and not gpu_lines(run)  # CUDA_ERROR_NOT_INITIALIZED
    assert list(reports.values()) == [{"dropped": 0, "unknown": 0, "cut": 0}]


def test_a_child_forked_before_cuda_records_its_own(run_simulated):
    run, _ = run_simulated("import os\nfrom simulated_gpu import *\npid = os.fork()\neverything()\nif pid: os.waitpid(pid, 0)")
    assert run.status == 0 and not gpu_lines(run), run.stderr
    assert [counts(spool.gpu_records(path)) for path in spool.spools(run)] == [ONE_OF_EACH] * 2


def test_a_child_forked_after_cuda_records_none(run_simulated):
    run, _ = run_simulated("import os\nfrom simulated_gpu import *\neverything()\npid = os.fork()\n"
                           "if pid: print(os.waitpid(pid, 0)[1])\nelse: len('recorded'); exit(sim.simLaunch(b'k', 7, 1))")
    assert run.stdout == "%d\n" % (3 << 8) and not gpu_lines(run), run.stderr
    assert sorted(len(spool.gpu_records(path)[spool.API]) for path in spool.spools(run)) == [0, 20]


@pytest.mark.parametrize("sim", ["", "slowflush=10"], ids=["", "each flush takes long"])
def test_what_is_older_than_a_second_survives_an_exit_without_handlers(run_simulated, sim):
    run, _ = run_simulated("import os\nfrom simulated_gpu import *\neverything()\nassert sim.simUntilWritten()\nos.kill(os.getpid(), 9)", sim=sim)
    assert run.status == -9 and not gpu_lines(run), run.stderr
    assert counts(spool.gpu_records(spool.spools(run)[0])) == ONE_OF_EACH


def test_another_tools_injection_stays_and_torch_cuda_is_waited_for(run_simulated):
    run, _ = run_simulated(EVERYTHING + "; import os; print(os.environ['CUDA_INJECTION64_PATH'])", env={"CUDA_INJECTION64_PATH": "/other.so"})
    assert (run.status, run.stdout) == (0, "done\n/other.so\n") and not gpu_lines(run), run.stderr
    assert gpu_source(run)["state"] == "off" and "CUDA_INJECTION64_PATH names another tool" in gpu_source(run)["detail"]


def test_the_library_that_cuda_loads_outside_of_a_run_does_nothing(run_bare, torch_python, program, library):
    done = run_bare([torch_python, program(EVERYTHING)], env={"SIM": SIM, "PYTHONPATH": SUPPORT, "CUDA_INJECTION64_PATH": library})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")


TORCH = """
import torch
from torch.autograd.profiler import record_function
from simulated_gpu import doubled, sim
Doubled = doubled()
sim.simInit(1)

x = torch.ones(4, requires_grad=True)
for i in range(5):
    with record_function("step %d" % i):
        Doubled.apply(x).sum().backward()
        sim.simDeviceSynchronize()
"""


def test_operators_of_torch_launch_kernels_forward_and_backward(run_simulated, check_trace):
    run, _ = run_simulated(TORCH)
    assert run.status == 0 and not gpu_lines(run), run.stderr
    found = spool.gpu_records(spool.spools(run)[0])
    assert len(found[spool.KERNEL]) == 10 and len(found[spool.SYNC]) == 5
    trace = check_trace(run.trace())
    operators = {e["args"]["External id"]: e["name"] for e in trace.spans("cpu_op")}
    launched_by = collections.Counter((e["name"], operators[e["args"]["External id"]]) for e in trace.spans("kernel"))
    assert launched_by == {("double_forward()", "Doubled"): 5, ("double_backward()", "DoubledBackward"): 5}


def test_kernels_lie_in_the_window_alone(run_simulated):
    run, _ = run_simulated(TORCH, options=["-w", "range=step 2"])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    found = spool.gpu_records(spool.spools(run)[0])
    assert len(found[spool.KERNEL]) == 2 and len(found[spool.SYNC]) == 1
    assert len(found[spool.CONTEXT]) == len(found[spool.DEVICE]) == 1


def test_a_cpp_program_without_torch_is_recorded(run_simulated):
    run, reports = run_simulated("", command=[BUILD / "tests" / "cupti_sim" / "launches", 8, 500, 64, 4])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    found, (report,) = spool.gpu_records(spool.spools(run)[0]), reports.values()
    assert len(found[spool.KERNEL]) == 4000 and counts(found) == delivered(report)


@pytest.mark.timed
def test_a_kernel_launch_costs_less_than_150_ns_more_than_with_a_client_that_does_nothing(run_simulated, run_bare, torch_python, program):
    rounds = """
import sys
from simulated_gpu import sim
if sys.argv[1:]: sim.simUseIdleClient()
sim.simInit(1)
print(min(sim.simStorm(1, 2000, 4, 1) for _ in range(60)))
"""
    # What else the machine does only adds to a time, to whole programs at once: the least of each counts, of programs that take turns.
    ours = idle = math.inf
    for _ in range(10):
        run, _ = run_simulated(rounds, options=["--format", "none", "--python", "off"])
        bare = run_bare([torch_python, program(rounds), "idle"], env={"SIM": SIM, "PYTHONPATH": SUPPORT})
        ours, idle = min(ours, float(run.stdout)), min(idle, float(bare.stdout))
        # A launch takes 2 us on a slow machine and 6 under an emulator, and what we do in it takes as many times longer.
        if ours - idle < max(150, idle / 10):
            return
    pytest.fail("%.0f ns with us, %.0f without" % (ours, idle))


@pytest.mark.skipif(not os.path.exists("/usr/local/cuda/lib/libcupti.so.13"), reason="there is no CUPTI 13 in /usr/local/cuda")
def test_the_real_cupti_without_a_driver_gives_a_note_and_nothing_else(torch_python, program, run_torchprof, library):
    """As the driver would do it, had the machine one."""
    run = run_torchprof([torch_python, program(
        "import ctypes, sys\nctypes.CDLL('/usr/local/cuda/lib/libcupti.so.13')\nprint(ctypes.CDLL(sys.argv[1]).InitializeInjection())"), library])
    assert (run.status, run.stdout) == (0, "1\n") and "GPU" not in run.stderr, run.stderr
    assert gpu_source(run)["state"] == "off" and "999" in gpu_source(run)["detail"]


@pytest.fixture
def library(prefix):
    return prefix / "lib" / "torchprof" / "libtorchprof.so"
