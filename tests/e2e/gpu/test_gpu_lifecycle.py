"""The GPU's records however the program begins, forks, opens windows and ends; kernels still run and buffers are not yet delivered when it does."""
import collections
import re

import pytest
import spool_records as spool
from conftest import SUPPORT
from simulated_runs import ONE_OF_EACH, SIM, counts, gpu_lines, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

BEGIN = """
import atexit, ctypes, os, signal, sys, threading, time
from simulated_gpu import everything, sim
sim.simInit(1)
def launch(n, ns):
    for _ in range(n): sim.simLaunch(b"k", 7, ns)
launch(5, 1000)
sim.simDeviceSynchronize()
"""
IN_FLIGHT = "launch(3, 30 * 10**9)\n"
WITH_HANDLERS = {"its end": "", "exit()": "exit(3)", "an exception": "raise SystemError('at the end')", "exit while a thread runs":
                 "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "exit in a signal handler":
                 "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); os.kill(os.getpid(), signal.SIGTERM)",
                 "SIGINT": "signal.raise_signal(signal.SIGINT)",
                 "SIGINT twice": "try: signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt: print('caught')\nsignal.raise_signal(signal.SIGINT)",
                 "the libraries closed": "handle = sim._handle; del sim; ctypes.CDLL(None).dlclose(ctypes.c_void_p(handle))",
                 "a fork in a thread": """
def forks():
    pid = os.fork()
    if pid == 0: os._exit(7)
    print(os.waitpid(pid, 0)[1] >> 8)
thread = threading.Thread(target=forks); thread.start(); thread.join()
""",
                 "os._exit()": "os._exit(3)"}
WITHOUT = {"_exit": "ctypes.CDLL(None)._exit(3)", "SIGKILL": "os.kill(os.getpid(), 9)", "SIGTERM": "os.kill(os.getpid(), 15)", "abort": "os.abort()",
           "a crash": "ctypes.string_at(0)", "exec": "os.execl('/bin/true', 'true')",
           "exec over itself": "os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
           "the main thread first": "threading.Thread(target=lambda: (time.sleep(0.1), os._exit(5))).start(); ctypes.CDLL(None).syscall(60, 0)"}


def check_same_end(run, bare):
    assert (run.status, run.stdout_bytes) == (bare.returncode, bare.stdout)
    assert run.said_by_the_program() == bare.stderr.decode().splitlines()


@pytest.fixture
def run_both(run_simulated, run_bare, torch_python, program):  # noqa: F811
    """The run, which ends as it does without us."""
    def run(text):
        bare = run_bare([torch_python, program(text)], env={"SIM": SIM, "PYTHONPATH": SUPPORT})
        run, reports = run_simulated(text)
        check_same_end(run, bare)
        return run, reports
    return run


@pytest.mark.parametrize("end", WITH_HANDLERS)
def test_all_is_there_when_a_process_ends_with_its_handlers(run_both, check_trace, end):
    run, _ = run_both(BEGIN + IN_FLIGHT + WITH_HANDLERS[end])
    assert not gpu_lines(run), run.stderr
    # A forked child may have the devices' definitions, of before.
    found, = (records for records in map(spool.gpu_records, spool.spools(run)) if records[spool.KERNEL])
    assert (len(found[spool.KERNEL]), len(found[spool.API]), len(found[spool.SYNC])) == (8, 9, 1)
    assert sorted(e == 0 for e, in spool.fields("Q", found[spool.KERNEL], 16)) == [False] * 5 + [True] * 3
    assert sum(len(check_trace(trace).spans("kernel")) for trace in run.traces()) == 8


def test_killed_for_memory_it_has_what_is_older_than_a_second(run_simulated, memory_limit, check_trace):  # noqa: F811
    group = memory_limit(256 << 20)
    run, _ = run_simulated(BEGIN + "open('%s/cgroup.procs', 'w').write(str(os.getpid()))\nsim.simUntilWritten()\n" % group + IN_FLIGHT + "kept = [b'x' * (1 << 20) for _ in range(10000)]")
    assert run.status == -9 and "the kernel killed" in run.stderr and not gpu_lines(run), run.stderr
    found = spool.gpu_records(spool.spools(run)[0])
    assert 5 <= len(found[spool.KERNEL]) == len(check_trace(run.trace()).spans("kernel")) <= 8 and len(found[spool.SYNC]) == 1


@pytest.mark.parametrize("end", ["signal.raise_signal(signal.SIGINT)", "os._exit(-2)"], ids=["SIGINT", "os._exit()"])
def test_no_python_loses_records_where_it_ends_without_exit_handlers(python, program, run_simulated, end):  # noqa: F811
    run, _ = run_simulated("", command=[python.path, program(BEGIN + end)])
    found = spool.gpu_records(spool.spools(run)[0])
    assert run.status == (-2 if "SIGINT" in end else 254) and (len(found[spool.KERNEL]), len(found[spool.SYNC])) == (5, 1), run.stderr


def test_all_is_there_of_a_child_of_multiprocessing_that_was_forked(run_both, check_trace):
    """It ends by os._exit(), and CUDA was initialised in it alone."""
    run, _ = run_both("import multiprocessing\ndef work():\n" + "".join(" %s\n" % line for line in ("global sim, launch\n" + BEGIN + "launch(3, 1000)").splitlines())
                      + "child = multiprocessing.get_context('fork').Process(target=work)\nchild.start()\nchild.join()\nprint(child.exitcode)")
    assert run.stdout == "0\n" and not gpu_lines(run), run.stderr
    assert sorted(len(check_trace(trace).spans("kernel")) for trace in run.traces()) == [0, 8]


UNWRITTEN = "the last records of the GPU were not written, as CUPTI did not come back in time"


def test_where_cupti_hangs_an_exit_at_once_is_not_kept_for_long(run_both):
    run, _ = run_both(BEGIN + "sim.simHang()\nos._exit(3)")
    assert run.status == 3 and UNWRITTEN in run.stderr, run.stderr


@pytest.mark.slow
def test_where_cupti_hangs_at_the_end_a_line_says_what_is_missing(run_simulated):  # noqa: F811
    run, _ = run_simulated(BEGIN + "sim.simHang()\nsim.simUntilHung()\nsys.exit(3)")
    assert run.status == 3 and UNWRITTEN in run.stderr, run.stderr


def test_what_exit_handlers_of_python_launch_is_there(run_both, check_trace):
    run, _ = run_both(BEGIN + "atexit.register(lambda: (launch(2, 1000), sim.simDeviceSynchronize()))")
    assert len(check_trace(run.trace(), expect={"kernel": 7, "cuda_sync": 2}).spans("kernel")) == 7 and not gpu_lines(run), run.stderr


@pytest.mark.parametrize("end", ["", "exit(3)", "os._exit(3)"], ids=["its end", "exit()", "os._exit()"])
def test_where_each_buffer_that_is_written_brings_another_the_process_ends(run_simulated, end):  # noqa: F811
    run, reports = run_simulated(BEGIN + "time.sleep(0.1)\nlaunch(3, 1000)\n" + end, sim="endless=1")
    assert run.status == (3 if end else 0) and not gpu_lines(run), run.stderr
    file, = spool.spools(run)
    found = spool.gpu_records(file)
    assert len(found[spool.KERNEL]) == 8 and not found[spool.DROPPED]
    assert b"gpu.records" in file.read_bytes(), "whoever ended the process gave up waiting for our thread"


def test_a_thread_that_launches_while_the_process_ends_harms_nothing(run_simulated):  # noqa: F811
    """ctypes releases the GIL, so the thread runs until the last moment."""
    run, reports = run_simulated(BEGIN + "threading.Thread(target=lambda: sim.simStorm(1, 10**9, 4, 1), daemon=True).start()\ntime.sleep(0.1)\nsys.exit(3)",
                                 options=["--format", "none"])
    assert run.status == 3 and not gpu_lines(run), run.stderr
    found, (report,) = spool.gpu_records(spool.spools(run)[0]), reports.values()
    lost = spool.dropped(found)  # where the process takes seconds to end, the storm may fill all buffers that CUPTI has
    assert set(lost) <= {1} and lost[1] <= report["dropped"], lost
    assert 5 <= len(found[spool.KERNEL]) <= report["10"][1]
    assert len(set(spool.correlations(found, spool.KERNEL))) == len(found[spool.KERNEL])


CLIENT = {"CLIENT": SIM.with_name("libother_client.so")}
# Of another client: each buffer is for both. torchprof sees it at the import of an extension module.
IN_A_SESSION = "client = ctypes.CDLL(os.environ['CLIENT'])\nimport _lsprof\nclient.clientStart()\n"


@pytest.mark.parametrize("before, end, slow", [("", "os._exit(3)", 200), (IN_A_SESSION, "os._exit(3)", 200), pytest.param("", "exit(3)", 1000, marks=pytest.mark.slow)],
                         ids=["os._exit()", "os._exit() beside another client", "exit()"])
def test_where_buffers_are_written_slowly_all_of_them_are_waited_for(run_simulated, before, end, slow):  # noqa: F811
    """Longer than for a CUPTI that hangs: 1 s at an exit at once, 5 s at each of the two ends of a program."""
    run, _ = run_simulated(BEGIN + before + "sim.simStorm(1, 120_000, 4, 1)\n" + end, sim="slow=%d" % slow, env=CLIENT, options=["--format", "none"])
    assert run.status == 3 and not gpu_lines(run), run.stderr
    found = spool.gpu_records(spool.spools(run)[0])
    assert len(found[spool.KERNEL]) == 120_005 and not found[spool.DROPPED]


@pytest.mark.slow
@pytest.mark.parametrize("end", WITHOUT)
def test_what_is_older_than_a_second_is_there_when_it_ends_without(run_both, check_trace, end):
    run, _ = run_both(BEGIN + "sim.simUntilWritten()\n" + IN_FLIGHT + WITHOUT[end])
    assert not gpu_lines(run), run.stderr
    found = spool.gpu_records(spool.spools(run)[0])
    assert 5 <= len(found[spool.KERNEL]) <= 8 and len(found[spool.SYNC]) == 1
    # A program that replaced itself has two traces of the same process.
    assert sum(len(check_trace(trace).spans("kernel")) for trace in run.traces()) == len(found[spool.KERNEL])


def test_processes_that_share_a_device_each_have_their_own_records(run_simulated, check_trace):  # noqa: F811
    run, _ = run_simulated("import subprocess, sys\nfrom simulated_gpu import everything\n"
                           "if len(sys.argv) > 1: everything()\n"
                           "else:\n ps = [subprocess.Popen([sys.executable, __file__, 'child']) for _ in range(3)]\n everything()\n"
                           " print([p.wait() for p in ps])")
    assert run.stdout == "[0, 0, 0]\n" and not gpu_lines(run), run.stderr
    assert [counts(spool.gpu_records(path)) for path in spool.spools(run)] == [ONE_OF_EACH] * 4
    assert [len(check_trace(trace).spans("kernel")) for trace in run.traces()] == [9] * 4


def test_a_fork_while_kernels_run_leaves_the_parents_records_whole(run_simulated):  # noqa: F811
    run, _ = run_simulated(BEGIN + IN_FLIGHT + "pid = os.fork()\nif pid == 0: print(sim.simLaunch(b'k', 7, 1)); exit(4)\n"
                           "print(os.waitpid(pid, 0)[1] >> 8)\nlaunch(2, 1000)")
    assert run.stdout == "3\n4\n" and not gpu_lines(run), run.stderr
    assert [len(spool.gpu_records(path)[spool.KERNEL]) for path in spool.spools(run)] in ([10], [0, 10], [10, 0])


@pytest.mark.parametrize("first, second", [("import torch", "sim.simInit(1)"), ("sim.simInit(1)", "import torch")], ids=["torch first", "CUDA first"])
def test_torch_may_come_before_cuda_or_after(run_simulated, check_trace, first, second):  # noqa: F811
    run, _ = run_simulated("from simulated_gpu import doubled, sim\n%s\n%s\nD = doubled()\n"
                           "for _ in range(3): D.apply(torch.ones(4, requires_grad=True)).sum().backward()\nsim.simDeviceSynchronize()" % (first, second))
    assert run.status == 0 and not gpu_lines(run), run.stderr
    trace = check_trace(run.trace())
    operators = {e["args"]["External id"]: e["name"] for e in trace.spans("cpu_op")}
    assert collections.Counter(operators[e["args"]["External id"]] for e in trace.spans("kernel")) == {"Doubled": 3, "DoubledBackward": 3}


def test_windows_open_and_close_and_cupti_stays(run_simulated, check_trace):  # noqa: F811
    """Five windows: in each two kernels and a wait; between them as much that is not recorded."""
    run, reports = run_simulated("import torch\nfrom torch.autograd.profiler import record_function\nfrom simulated_gpu import sim\nsim.simInit(1)\n"
                                 "def work():\n sim.simLaunch(b'k', 7, 1000); sim.simLaunch(b'k', 9, 1000); sim.simDeviceSynchronize()\n"
                                 "for _ in range(5):\n work()\n with record_function('on'): torch.ones(1); work()\nwork()", options=["-w", "range=on"])
    assert run.status == 0 and not gpu_lines(run), run.stderr
    found = spool.gpu_records(spool.spools(run)[0])
    assert (len(found[spool.KERNEL]), len(found[spool.SYNC])) == (10, 5) and not found[spool.DROPPED]
    trace, (report,) = check_trace(run.trace()), reports.values()
    assert len(trace.named("on", "user_annotation")) == 5 and trace.names("cuda_runtime") == {"cudaLaunchKernel": 10, "cudaDeviceSynchronize": 5}
    assert report["10"] == [10, 10]  # what the window does not want is not even made


@pytest.mark.parametrize("late", [0, 1200])
def test_what_a_window_launched_is_there_when_it_is_delivered_after_its_end(run_simulated, check_trace, late):  # noqa: F811
    """A kernel that runs on for half a second, and records that come still later; then the process is killed."""
    run, _ = run_simulated("import os, time, torch\nfrom torch.autograd.profiler import record_function\nfrom simulated_gpu import sim\nsim.simInit(1)\n"
                           "with record_function('on'):\n for n in range(4): sim.simLaunch(b'k', 7, 1000)\n sim.simLaunch(b'long', 9, 500000000)\n"
                           "sim.simLaunch(b'outside', 7, 1000)\ntime.sleep(%g)\nsim.simUntilWritten()\nos.kill(os.getpid(), 9)" % ((500 + late) / 1000), sim="late_records=%d" % late, options=["-w", "range=on"])
    assert run.status == -9 and not gpu_lines(run), run.stderr
    trace = check_trace(run.trace(), expect={"kernel": 5, "ac2g": 10})
    assert trace.names("kernel") == {"k": 4, "long": 1}
    long, = (e for e in trace.spans("kernel") if e["name"] == "long")
    assert abs(long["dur"] - 500_000) < 5  # the simulator's readings of the clock are good to 2 us


def test_a_replayed_graph_belongs_to_the_operator_that_replays_it(run_simulated, check_trace):  # noqa: F811
    run, _ = run_simulated("import torch\nfrom torch.autograd.profiler import record_function\nfrom simulated_gpu import sim\nsim.simInit(1)\n"
                           "class Replay(torch.autograd.Function):\n"
                           " @staticmethod\n def forward(ctx, x): sim.simGraphLaunch(b'_Z4nodev', 4, 13, 1000); return x * 2\n"
                           "for _ in range(3): Replay.apply(torch.ones(4, requires_grad=True))\nsim.simDeviceSynchronize()")
    assert run.status == 0 and not gpu_lines(run), run.stderr
    trace = check_trace(run.trace())
    replays = {e["args"]["External id"] for e in trace.spans("cpu_op") if e["name"] == "Replay"}
    calls = {e["args"]["correlation"]: e["args"]["External id"] for e in trace.spans("cuda_runtime") if e["name"] == "cudaGraphLaunch"}
    nodes = collections.Counter((e["args"]["correlation"], e["args"]["External id"]) for e in trace.spans("kernel"))
    assert len(replays) == 3 and set(calls.values()) == replays and nodes == {pair: 4 for pair in calls.items()}


def test_a_callback_after_the_end_and_records_without_times_are_said(run_simulated):  # noqa: F811
    run, _ = run_simulated(BEGIN, sim="zero=2,late=1")
    assert run.status == 0 and "2 GPU operations without a time from CUPTI" in run.stderr
    assert re.search(r"CUPTI delivered after the program's end were not read: 1 buffers, \d+ bytes\n", run.stderr), run.stderr


@pytest.mark.parametrize("fault, line", [("drop=3", "dropped by CUPTI, which had no buffer for them"), ("cut=1", "of CUPTI could not be read"),
                                         ("unknown=2", "of kinds that were not asked for")])
def test_what_is_lost_is_said_in_the_summary_and_in_the_trace(run_simulated, fault, line):  # noqa: F811
    run, reports = run_simulated(BEGIN, sim=fault)
    (report,), key = reports.values(), fault.partition("=")[0]
    lost = report[{"drop": "dropped", "cut": "cut", "unknown": "unknown"}[key]]
    assert run.status == 0 and lost > 0 and "%d GPU record%s %s" % (lost, "s" if lost > 1 else "", line) in run.stderr, run.stderr
    said = run.trace().doc["torchprof"]["processes"][0]["gpu"]
    assert said[{"drop": "dropped", "cut": "malformed", "unknown": "unknown"}[key]] == lost
