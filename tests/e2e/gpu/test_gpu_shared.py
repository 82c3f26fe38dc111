"""torch.profiler on a GPU in a traced program: both have everything. The stand-in for libkineto stops in the real one's order, in that of three versions of torch."""
import pytest

import spool_records as spool
from simulated_runs import SIM, gpu_lines, gpu_source, run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

CLIENT = {"CLIENT": SIM.with_name("libother_client.so")}
BEGIN = """
import ctypes, os, sys, threading, time
from simulated_gpu import sim
client = ctypes.CDLL(os.environ["CLIENT"])
import _lsprof  # an extension module: there torchprof looks what has been loaded
def launch(n, ns=1000, wait=True, stream=7):
    for _ in range(n):
        sim.simLaunch(b"k", stream, ns)
    if wait: sim.simDeviceSynchronize()
def session():  # what it has of kernels, calls of the runtime, identifiers and what is not its own
    kernels = client.clientStop()
    print(kernels, client.clientSeen(5), client.clientSeen(39), client.clientStrange(), client.clientBuffersOut(), flush=True)
"""
ONE_BY_ONE = "2.14, calls one by one"  # where we have CUPTI watch single calls, and Kineto wants all of them
KINETO = pytest.mark.parametrize("kineto", ["1.13", "2.6", "2.14", ONE_BY_ONE])


@pytest.fixture
def run_shared(run_simulated):  # noqa: F811
    """Runs Python code with the stand-in; gives the run, its records, and what the simulator delivered."""
    def run(text, kineto="2.14", env=None, status=0, **options):
        if kineto == ONE_BY_ONE:
            options = {"version": "13.0", "gpu": "on", **options}
        run, reports = run_simulated(BEGIN + text, env={**CLIENT, "KINETO": kineto.split(",")[0], **(env or {})}, **options)
        assert run.status == status and not gpu_lines(run), run.stderr
        return run, spool.gpu_records(spool.spools(run)[0]), reports
    return run


def numbers(found, *kinds):
    return tuple(len(found[kind]) for kind in kinds or (spool.KERNEL, spool.API))


def check_whole(run, found, reports):
    """No gap, nothing dropped, no second registration."""
    assert not found[spool.DROPPED] and gpu_source(run)["detail"].startswith("CUPTI's activity records, version")
    assert "GPU not recorded" not in run.stderr and "gaps" not in run.trace().doc["torchprof"]["processes"][0]["gpu"]
    assert all("registrations" not in report for report in reports.values())


@KINETO
def test_both_have_all_of_sessions_in_a_row(run_shared, check_trace, kineto):
    """Three kernels before, four in a session, five after, again and again."""
    run, found, reports = run_shared("""
sim.simInit(1)
for _ in range(3):
    launch(3)
    client.clientStart()
    sim.cuptiActivityPushExternalCorrelationId(4, ctypes.c_uint64(9))
    launch(4)
    sim.cuptiActivityPopExternalCorrelationId(4, None)
    session()
    launch(5)
""", kineto)
    assert run.stdout == "4 5 5 0 0\n" * 3
    assert numbers(found) == (36, 45)
    check_whole(run, found, reports)
    trace = check_trace(run.trace(), expect={"kernel": 36, "cuda_runtime": 45})
    assert "clock_faults" not in trace.doc["torchprof"]["processes"][0]["gpu"]


@KINETO
def test_a_warm_up_is_thrown_away_by_kineto_and_kept_by_us(run_shared, kineto):
    run, found, reports = run_shared("""
sim.simInit(1)
client.clientStart(); launch(6); client.clientClear(); launch(4); session()
client.clientStart(); client.clientClear(); launch(2); session()
client.clientStart(); session()
""", kineto)
    assert run.stdout == "4 5 0 0 0\n2 3 0 0 0\n0 0 0 0 0\n"
    assert numbers(found) == (12, 15)
    check_whole(run, found, reports)


@KINETO
def test_what_runs_when_a_session_begins_or_ends_goes_to_those_who_were_there_at_its_launch(run_shared, kineto):
    """Kernels of 50 ms, launched before the session and run in it, launched in it and run after it began to stop."""
    run, found, reports = run_shared("""
sim.simInit(1)
launch(5, 50_000_000, wait=False)
client.clientStart()
launch(3, 1000, wait=False)
sim.simDeviceSynchronize()
session()
launch(2)
""", kineto)
    assert run.stdout == "3 4 0 0 0\n"
    assert numbers(found) == (10, 12) and all(end for end, in spool.fields("Q", found[spool.KERNEL], 16))
    check_whole(run, found, reports)


def test_what_was_launched_long_before_a_session_and_runs_in_it_is_not_kinetos(run_shared):
    """Our thread has taken the launching calls out of CUPTI, a second and more ago."""
    run, found, reports = run_shared("sim.simInit(1)\nlaunch(5, 400_000_000, wait=False)\ntime.sleep(1.3)\nclient.clientStart()\nlaunch(3)\nsession()")
    assert run.stdout == "3 4 0 0 0\n" and numbers(found) == (8, 9), (run.stdout, numbers(found), gpu_source(run), reports, run.directory)


@KINETO
def test_what_runs_on_when_it_is_disabled_is_with_both(run_shared, kineto):
    run, found, reports = run_shared("""
sim.simInit(1)
client.clientStart()
launch(3, 30_000_000, wait=False)
client.clientDisable()
launch(2, 1000, wait=False)
sim.simDeviceSynchronize()
session()
""", kineto)
    assert run.stdout == "3 3 0 0 0\n"
    assert numbers(found) == (5, 6)
    check_whole(run, found, reports)


WINDOW = "import torch\nfrom torch.autograd.profiler import record_function\nsim.simInit(1)\n"


@KINETO
def test_a_session_may_begin_before_our_window_and_end_after_it(run_shared, kineto):
    """Its kinds stay enabled when our window closes; what is outside of the window is not recorded by us."""
    run, found, reports = run_shared(WINDOW + """
launch(1)
client.clientStart()
launch(3)
for _ in range(2):
    with record_function('on'): launch(4)
    launch(2)
session()
launch(5)
""", kineto, options=["-w", "range=on"])
    assert run.stdout == "15 20 0 0 0\n"
    assert numbers(found) == (8, 10)
    check_whole(run, found, reports)


@KINETO
def test_a_window_may_open_before_a_session_and_close_in_it(run_shared, kineto):
    run, found, reports = run_shared(WINDOW + """
with record_function('on'):
    launch(2)
    client.clientStart()
    launch(3)
    launch(1, 30_000_000, wait=False)
launch(4)
session()
with record_function('on'): launch(6)
""", kineto, options=["-w", "range=on"])
    assert run.stdout == "8 10 0 0 0\n"
    assert numbers(found) == (12, 15)
    check_whole(run, found, reports)


def test_threads_launch_and_buffers_are_full_while_sessions_come_and_go(run_shared):
    """Buffers of ours and of a client with small ones, our thread and his own, all at once: each kernel is once with each."""
    run, found, reports = run_shared("""
sim.simInit(2)
total = 0
for _ in range(3):
    client.clientStart()
    sim.simStorm(4, 10000, 8, 2)
    total += client.clientStop()
    sim.simStorm(2, 1000, 8, 2)
print(total, client.clientStrange(), client.clientBuffersOut())
""", env={"KINETO_BUFFER": "20000"}, options=["--format", "none"])
    assert run.stdout == "120000 0 0\n"
    assert numbers(found, spool.KERNEL) == (126000,) and not found[spool.DROPPED]
    work = spool.correlations(found, spool.KERNEL)
    assert len(set(work)) == len(work)


def test_a_client_that_wants_one_kind_is_given_that_one(run_shared):
    run, found, reports = run_shared("sim.simInit(1)\nclient.clientStart(); launch(4); session(); launch(1)", env={"KINETO_KINDS": "10"})
    assert run.stdout == "4 0 0 0 0\n"
    assert numbers(found) == (5, 7)
    check_whole(run, found, reports)


@pytest.mark.parametrize("end", ["", "os._exit(0)", "client.clientDisable()", "client.clientDisable(); launch(2); client.clientStart(); launch(2)"],
                         ids=["exit", "os._exit", "disabled alone", "begun again"])
def test_a_session_that_is_never_flushed_takes_nothing_from_us(run_shared, end):
    run, found, reports = run_shared("sim.simInit(1)\nlaunch(2)\nclient.clientStart()\nlaunch(4)\n" + end)
    assert numbers(found, spool.KERNEL) == (10 if "launch" in end else 6,)
    check_whole(run, found, reports)


@pytest.mark.parametrize("sim", ["", "held_up=20"], ids=["", "whoever reads the clock is held up"])
def test_kineto_is_given_full_buffers_by_our_thread_and_the_rest_when_it_flushes(run_shared, sim):
    run, found, _ = run_shared("""
sim.simInit(1)
client.clientStart()
sim.simStorm(1, 30000, 4, 1)
print(client.clientStop(), client.clientSeen(5), client.clientStrange())
""", sim=sim, options=["--format", "none"])
    assert run.stdout == "30000 30001 0\n"
    assert numbers(found) == (30000, 30001)


def test_a_fork_in_a_session_leaves_it_whole(run_shared):
    run, _, _ = run_shared("""
sim.simInit(1)
client.clientStart()
launch(3)
pid = os.fork()
if pid == 0:
    client.clientStop()
    os._exit(5)
print(os.waitpid(pid, 0)[1] >> 8, flush=True)
launch(4)
session()
""")
    assert run.stdout == "5\n7 9 0 0 0\n"
    assert sorted(len(spool.gpu_records(path)[spool.KERNEL]) for path in spool.spools(run)) in ([7], [0, 7])


def test_a_session_may_be_older_than_our_use_of_cupti(run_shared):
    """Another tool's injection is in CUDA's way, so that torch's own initialisation tells; here nobody tells, and it has all."""
    run, found, _ = run_shared("client.clientStart()\nsim.simInit(1)\nlaunch(4)\nsession()\nlaunch(2)", env={"CUDA_INJECTION64_PATH": "/other.so"})
    assert run.stdout == "4 5 0 0 0\n" and not found[spool.KERNEL]


@KINETO
def test_cupti_may_be_started_by_us_within_a_session(run_shared, kineto):
    run, found, reports = run_shared("client.clientStart()\nsim.simInit(1)\nlaunch(4)\nsession()\nlaunch(2)\nclient.clientStart(); launch(3); session()", kineto)
    assert run.stdout == "4 5 0 0 0\n3 4 0 0 0\n"
    assert numbers(found) == (9, 12)
    check_whole(run, found, reports)


@pytest.mark.parametrize("gpu", ["kernels", "on", "full"])
def test_a_client_that_asks_for_single_calls_has_them(run_shared, gpu):
    """Before our window, in it and after it; and no others."""
    run, found, _ = run_shared("""
from torch.autograd.profiler import record_function
os.environ["KINETO_KINDS"] = "10"
sim.simInit(1)
client.clientStartLaunches()
launch(4)
with record_function("on"): launch(2)
launch(3)
time.sleep(0.3)
launch(1)
session()
""", version="13.0", gpu=gpu, options=["-w", "range=on", "--python", "off"])
    assert run.stdout == "10 10 0 10 0\n"  # the calls are not of its kinds: it did not enable these as a whole
    assert numbers(found, spool.KERNEL) == (2,)


@pytest.mark.parametrize("kineto", ["2.14", ONE_BY_ONE])
def test_after_a_clients_finalize_we_are_back_when_it_is(run_shared, kineto):
    """TEARDOWN_CUPTI=1: CUPTI knows neither of us then. What is missing is said."""
    run, found, _ = run_shared("""
sim.simInit(1)
def launch_and_wait(n):
    launch(n, wait=False)
    sim.simStreamSynchronize(7)
for n in range(3):
    client.clientStart(); launch_and_wait(4); session()
    launch_and_wait(2)
    launch(1, ns=10 ** 12, wait=False, stream=8 + n)  # CUPTI still has the records of this one and of those before it
    print(client.clientFinalize())
    launch_and_wait(5)
client.clientStart(); launch_and_wait(3); session()
launch_and_wait(2)
""", sim="finalize=1", kineto=kineto)
    assert run.stdout == "4 5 0 0 0\n0\n" * 3 + "3 4 0 0 0\n"
    kernels, = numbers(found, spool.KERNEL)
    assert 3 * 4 + 5 <= kernels <= 3 * 6 + 5  # at cuptiFinalize nobody may flush: what CUPTI had not filled in is lost, and the gap is said
    assert [cause for cause, in spool.fields("B", found[spool.DROPPED], 24)] == [4, 5] * 3
    assert "not after another client's cuptiFinalize" in gpu_source(run)["detail"]
