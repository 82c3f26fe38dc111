"""However a program ends, and whatever still runs in it by then: stdout, stderr and status are those of the run without us."""
import collections
import os
import re
import subprocess
import textwrap

import pytest

import delay_campaign
import kill_campaign

# What every CPython can do; each prints what it can and ends in its own way.
PLAIN = {
    "returns": "work()",
    "sys.exit with a text": "work(); sys.exit('the end')",
    "an exception with a chain": """
        try: work(); {}['first']
        except KeyError: raise ValueError('second')
        """,
    "an exception in a thread": "threading.Thread(target=lambda: 1 / 0, name='fails').start(); work()",
    "an exception in atexit": "atexit.register(lambda: 1 / 0); work()",
    "SIGINT once caught, once not": """
        try: signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt: print('caught', flush=True)
        work()
        signal.raise_signal(signal.SIGINT)
        """,
    "SIGTERM turned into sys.exit": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); work(); os.kill(os.getpid(), signal.SIGTERM); work()",
    "SIGABRT with a handler of faulthandler": "faulthandler.enable(); work(); os.abort()",
    "a segmentation fault with faulthandler": "faulthandler.enable(); work(); ctypes.string_at(0)",
    "SIGKILL while threads run": "background(); os.kill(os.getpid(), signal.SIGKILL)",
    "os._exit while threads run": "background(); os._exit(6)",
    "daemon threads at the end": "background(); print('main is done', flush=True)",
    "threads that outlive the main thread": """
        def outlives():
            threading.main_thread().join()
            work()
        threading.Thread(target=outlives).start()
        """,
    "the main thread ends, the process does not": """
        def ends():
            time.sleep(0.1)
            work()
            os._exit(5)
        threading.Thread(target=ends).start()
        ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread alone
        """,
    "atexit handlers that start threads' work": "pool = concurrent.futures.ThreadPoolExecutor(2); list(pool.map(work, range(4))); atexit.register(work)",
    "exec over itself": """
        if len(sys.argv) < 2:
            background()
            work()
            os.execv(sys.executable, [sys.executable, __file__, 'again'])
        work()
        sys.exit(4)
        """,
    "fork in a thread": """
        def forks():
            pid = os.fork()
            if pid == 0:
                work()
                os._exit(3)
            print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        thread = threading.Thread(target=forks)
        thread.start()
        thread.join()
        """,
    "a forked child that returns": """
        if os.fork():
            os.wait()
        work()
        """,
    "recursion without end": """
        def deeper(n): return deeper(n + 1)
        try: deeper(0)
        except RecursionError as error: print(str(error)[:32])
        """,
    "memory at its limit": """
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, -1))
        work()
        bytearray(3 << 30)
        """,
    "finalizers at the end": """
        class Late:
            def work(self, write=os.write): write(1, b'worked late\\n')  # by then print() has nowhere to write to
            __del__ = work
        kept = Late()
        sys.kept = Late()
        """,
    "a generator left open": """
        def generator():
            try: yield 1
            finally: print('closed', flush=True); work()
        kept = generator()
        next(kept)
        """,
}
HEAD = """
import atexit, concurrent.futures, ctypes, faulthandler, os, resource, signal, sys, threading, time, warnings
warnings.simplefilter('ignore')
def inner(n): return n + 1
def work(*_):
    n = 0
    for _ in range(100): n = inner(n)
    print('worked %d\\n' % n, end='', flush=True)  # of threads as well: one write each
def forever():
    while True: inner(sum(range(20000)))
def background():
    for _ in range(3): threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.05)
"""


def what_is_said(stderr):
    """Without what differs from run to run: addresses, and how many threads of a program call std::terminate() at the same time."""
    return re.sub("(terminate called (recursively|without an active exception)\n)+", "terminate called\n", re.sub("0x[0-9a-f]+", "0x", stderr))


def assert_same(bare, run):
    """`run` was started with --quiet, so that nothing on stderr is ours unless something went wrong."""
    assert b"SyntaxError" not in bare.stderr and b"No such file" not in bare.stderr, bare.stderr
    assert (run.status, run.stdout_bytes) == (bare.returncode, bare.stdout)
    assert what_is_said(run.stderr) == what_is_said(bare.stderr.decode())


# Which thread is where decides how these end, also without us: CPython 3.10 alone crashes in one of 150 runs. So the end of most of three counts.
BY_CHANCE = {"daemon threads at the end", "daemon threads in operators at the end"}


def both_ways(ending, run_bare, run_torchprof, command, options=()):
    """The run without us and the one with us, which end alike."""
    def most(run, end):
        runs = [run() for _ in range(3 if ending in BY_CHANCE else 1)]
        usual = collections.Counter(map(end, runs)).most_common(1)[0][0]
        return next(run for run in runs if end(run) == usual)
    bare = most(lambda: run_bare(command), lambda run: (run.returncode, run.stdout, what_is_said(run.stderr.decode())))
    run = most(lambda: run_torchprof(command, options=["--quiet", *options]), lambda run: (run.status, run.stdout_bytes, what_is_said(run.stderr)))
    assert_same(bare, run)
    return bare, run


@pytest.mark.parametrize("ending", PLAIN)
def test_a_program_ends_as_it_does_without_us(python, run_torchprof, run_bare, check_trace, program, ending):
    command = [python.path, program(HEAD + textwrap.dedent(PLAIN[ending]))]
    bare, run = both_ways(ending, run_bare, run_torchprof, command)
    traces = [check_trace(trace) for trace in run.traces()]
    worked = sum(n for trace in traces for name, n in trace.names("python_function").items() if name.endswith(": work"))
    assert worked == bare.stdout.count(b"worked"), [trace.path.name for trace in traces]


# The same, with an operator in each call of inner(), and what only libraries can do.
WITH_OPERATORS = PLAIN | {
    "abort in an operator's caller": "work(); operators.aborts()",
    "libraries that come and go while stacks are taken": """
        import _ctypes
        background()
        for _ in range(50):
            library = ctypes.CDLL(os.path.dirname(__file__) + '/comes_and_goes.so')
            library.calls(2)
            _ctypes.dlclose(library._handle)
        work()
        os._exit(6)
        """,
    "C++ exceptions in flight": "operators.throws(); work()",
    # At that time objects that torch made after the handler are destroyed: its table of the CPU's blocks, too.
    "operators in a handler of the exit": "operators.at_the_end(); work()",
}
OPERATORS = """
#include <ATen/ops/neg.h>
#include <ATen/ops/ones.h>
#include <cstdlib>
#include <stdexcept>
extern "C" void neg_() { at::neg(at::ones({2})); }
extern "C" void aborts() { neg_(); std::abort(); }
struct Unwinding { ~Unwinding() { neg_(); } };  // an operator while an exception looks for who catches it
static void throws_through(int n) {
    Unwinding one;
    if (n == 0) throw std::runtime_error("on its way");
    throws_through(n - 1);
}
extern "C" void throws() {
    try { throws_through(20); } catch (const std::exception&) { neg_(); }
}
extern "C" void at_the_end() { std::atexit(throws); }
"""
OPERATORS_HEAD = HEAD.replace("def inner(n): return n + 1", """
operators = ctypes.CDLL(os.path.dirname(__file__) + "/operators.so")
import mmap  # an extension module: the recorder looks whether there is torch
def inner(n):
    operators.neg_()
    return n + 1
""")


@pytest.fixture(scope="module")
def operators(tmp_path_factory):
    """A directory with libraries that need no Python module of torch."""
    if not os.path.exists("/usr/include/ATen/ops/neg.h"):
        pytest.skip("torch's headers are not installed (libtorch-dev)")
    directory = tmp_path_factory.mktemp("operators")
    (directory / "operators.cpp").write_text(OPERATORS)
    (directory / "comes_and_goes.c").write_text("int calls(int n) { return n ? 1 + calls(n - 1) : 0; }\n")
    subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", "-o", "operators.so", "operators.cpp", "-ltorch_cpu", "-lc10"], cwd=directory, check=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "comes_and_goes.so", "comes_and_goes.c"], cwd=directory, check=True)
    return directory


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.parametrize("ending", WITH_OPERATORS)
def test_a_program_whose_stacks_are_taken_ends_as_it_does_without_us(torch_python, run_torchprof, run_bare, check_trace, operators, ending):
    script = operators / "ends.py"
    script.write_text(OPERATORS_HEAD + textwrap.dedent(WITH_OPERATORS[ending]))
    bare, run = both_ways(ending, run_bare, run_torchprof, [torch_python, script], ["--native", "on"])
    traces = [check_trace(trace) for trace in run.traces()]
    stacks = [e["args"]["stack"] for trace in traces for e in trace.spans("cpu_op") if e["name"] == "aten::neg"]
    assert len(stacks) >= 100 * bare.stdout.count(b"worked 100")
    assert all("neg_" in stack for stack in stacks)
    if "generator" in ending:
        return  # an interpreter that ends tells nothing of its functions
    whole = [stack for stack in stacks if any(frame.endswith(": inner") for frame in stack)]
    assert len(whole) >= 100 * bare.stdout.count(b"worked 100"), stacks[0]


# What only a program with torch can do at its end.
WITH_TORCH = {
    "an exception of an operator": "torch.ones(2) @ torch.ones(3)",
    "an exception in backward": """
        class Fails(torch.autograd.Function):
            forward = staticmethod(lambda ctx, x: x.clone())
            backward = staticmethod(lambda ctx, g: 1 / 0)
        Fails.apply(x).sum().backward()
        """,
    "more memory than there is": """
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, -1))
        torch.empty(1 << 40)
        """,
    "atexit handlers that use torch": "atexit.register(step)",
    "finalizers that use torch": """
        class Late:
            def __del__(self): step()
        torch.kept = Late()
        """,
    "daemon threads in operators at the end": "background()",
    "os._exit with threads in operators": "background(); os._exit(6)",
    "SIGTERM with threads in operators": "background(); os.kill(os.getpid(), signal.SIGTERM)",
    "abort in an open range": """
        with torch.profiler.record_function('open'): step(); os.abort()
        """,
    "fork in a thread": """
        def forks():
            pid = os.fork()
            if pid == 0:
                step()
                os._exit(3)
            print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        thread = threading.Thread(target=forks)
        thread.start()
        thread.join()
        """,
    "a child of a thread that returns": """
        def forks():
            pid = os.fork()
            if pid: print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        thread = threading.Thread(target=forks)
        thread.start()
        thread.join()
        """,
    "the first thread ends first": """
        def later():
            time.sleep(0.2)
            step()
        threading.Thread(target=later).start()
        ctypes.CDLL(None).pthread_exit(None)
        """,
    "exec over itself": """
        if len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, __file__, 'again'])
        """,
}
TORCH_HEAD = HEAD + """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(8, 8, requires_grad=True)
def step():
    (x @ x).relu().sum().backward()
    print('stepped', x.grad.sum().item(), flush=True)
def forever():
    y = torch.ones(1 << 18)
    while True: y.add(1)
step()
"""


# Those in which no code of torch's runs at the end are the same with every torch. Without its first thread a program stays where torch has
# threads of its own, as 2.14 does: it ends with 1.13.
WITHOUT_IT_AT_THE_END = {"an exception of an operator", "more memory than there is", "SIGTERM with threads in operators", "abort in an open range",
                         "exec over itself", "the first thread ends first"}


@pytest.mark.parametrize("ending", [pytest.param(ending, marks=[pytest.mark.once] if ending in WITHOUT_IT_AT_THE_END else []) for ending in WITH_TORCH])
def test_a_program_with_torch_ends_as_it_does_without_us(torch_python, run_torchprof, run_bare, check_trace, program, ending):
    command = [torch_python, program(TORCH_HEAD + textwrap.dedent(WITH_TORCH[ending]))]
    bare, run = both_ways(ending, run_bare, run_torchprof, command)
    backward = sum(check_trace(trace).names("cpu_op")["autograd::engine::evaluate_function: MmBackward0"] for trace in run.traces())
    assert backward == bare.stdout.count(b"stepped")


@pytest.mark.once
@pytest.mark.parametrize("kind", kill_campaign.KINDS)
def test_kill_9_at_random_moments_loses_nothing(launcher, capfd, kind):
    """The long form: tests/kill_campaign.py --rounds 200."""
    figures = kill_campaign.campaign(launcher, 2, 1, [kind])[kind]
    assert figures["failed"] == 0, capfd.readouterr().out
    assert figures["calls"] > 0


@pytest.mark.once
@pytest.mark.parametrize("number", [4, 5, 11])
def test_system_calls_that_are_held_up_lose_nothing(launcher, capfd, number):
    """Trees of forks, four and five deep. The long form: tests/delay_campaign.py."""
    _, calls, failed = delay_campaign.campaign(launcher, programs=1, seeds=1, first=number)
    assert failed == 0, capfd.readouterr().out
    assert calls > 0


@pytest.mark.slow
def test_a_busy_machine_loses_nothing(launcher, capfd):
    """The long form: tests/delay_campaign.py --load 8 --processes 200."""
    _, calls, failed = delay_campaign.campaign(launcher, programs=1, seeds=1, load=8, processes=20)
    assert failed == 0, capfd.readouterr().out
    assert calls > 0
