"""Programs that do unusual things with threads, stacks, signals, memory and the interpreter: they run as they do without us, and are traced."""
import ctypes.util
import re
import subprocess
import sys
import textwrap

import pytest

PYTHON = sys.executable


@pytest.fixture
def same(run_torchprof, run_bare, program):
    """same(TEXT, python) runs a program both ways, compares status and output, and gives the run under torchprof back."""
    def compare(text, python=PYTHON, arguments=(), env=None, stdin=None):
        command = [python, *arguments, program(textwrap.dedent(text))]
        bare, run = run_bare(command, env=env, stdin=stdin), run_torchprof(command, env=env, stdin=stdin)
        assert (run.status, without_addresses(run.stdout)) == (bare.returncode, without_addresses(bare.stdout.decode())), run.stderr
        assert bare.stdout, bare.stderr
        return run
    return compare


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]{8,}", "0x", text)


def function_of(name):
    return name and name.rpartition("): ")[2]


def parents_of(trace, function):
    return {function_of(parent) for name, parent in trace.parents() if function_of(name) == function}


# ---- several stacks on one thread -------------------------------------------------------------------------------------------

GREENLETS = """
    import greenlet
    def leaf_of_left(): return 1
    def leaf_of_right(): return 1
    def left():
        for n in range(5):
            leaf_of_left()
            other.switch()
    def right():
        try:
            while True:
                leaf_of_right()
                main.switch()
        finally:
            leaf_of_right()
    def around():
        one.switch()
        leaf_of_main()
    def leaf_of_main(): return 1
    main = greenlet.getcurrent()
    one, other = greenlet.greenlet(left), greenlet.greenlet(right)
    for n in range(4):
        around()
    other.throw(greenlet.GreenletExit)
    print(one.dead, other.dead)
    """


@pytest.mark.parametrize("level", ["functions", "calls"])
def test_calls_of_a_greenlet_stand_in_its_own_stack(run_torchprof, check_trace, program, level):
    pytest.importorskip("greenlet", reason="greenlet (Debian: python3-gevent) is not installed for this Python")
    run = run_torchprof([PYTHON, program(textwrap.dedent(GREENLETS))], options=["--python", level])
    assert (run.status, run.stdout) == (0, "False True\n"), run.stderr
    trace = check_trace(run.trace())
    callers = {leaf: parents_of(trace, "leaf_of_" + leaf) for leaf in ("left", "right", "main")}
    assert callers == {"left": {"left"}, "right": {"right"}, "main": {"around"}}
    assert parents_of(trace, "left") == parents_of(trace, "right") == {None}  # no stack begins inside of another
    assert parents_of(trace, "around") == {"<module>"}


def test_gevent_with_everything_patched(same, check_trace):
    pytest.importorskip("gevent", reason="gevent (Debian: python3-gevent) is not installed for this Python")
    run = same("""
        from gevent import monkey
        monkey.patch_all()
        import gevent, threading, time
        def leaf(n): return n
        def worker(n):
            for _ in range(10):
                leaf(n)
                time.sleep(0.001)
            return n
        def in_thread(): print("thread", worker(7))
        jobs = [gevent.spawn(worker, n) for n in range(5)]
        thread = threading.Thread(target=in_thread)
        thread.start()
        gevent.joinall(jobs)
        thread.join()
        print([job.value for job in jobs], gevent.getcurrent().dead)
        """)
    trace = check_trace(run.trace())
    assert parents_of(trace, "leaf") == {"worker"}
    assert sum(function_of(name) == "leaf" for name, _ in trace.parents()) == 60
    assert parents_of(trace, "in_thread") == {"run"}


def test_threads_tasks_and_executors_of_asyncio(same, python, check_trace):
    run = same("""
        import asyncio, concurrent.futures, signal, os
        def blocking(n): return n
        async def task(n):
            await asyncio.sleep(0.001)
            return await asyncio.get_running_loop().run_in_executor(None, blocking, n)
        async def main():
            loop = asyncio.get_running_loop()
            woken = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, woken.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await woken.wait()
            child = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
            print((await child.communicate())[0], await asyncio.gather(*map(task, range(20))))
            try:
                await asyncio.wait_for(asyncio.sleep(10), 0.01)
            except asyncio.TimeoutError:
                print("timeout")
        asyncio.run(main())
        """, python=python.path)
    names = check_trace(run.trace()).names("python_function")
    assert sum(n for name, n in names.items() if function_of(name) == "blocking") == 20


# ---- signals ----------------------------------------------------------------------------------------------------------------

def test_a_timer_that_profiles_the_program_and_signal_masks_are_its_own(same, python, check_trace):
    run = same("""
        import signal, threading, time
        ticks = 0
        def on_tick(number, frame):
            global ticks
            ticks += 1
        def work(): return sum(range(100))
        signal.signal(signal.SIGPROF, on_tick)
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        end = time.process_time() + 0.3
        while time.process_time() < end:
            work()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGPROF])
        def in_thread(): print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()
        print(ticks > 10, sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), signal.getsignal(signal.SIGPROF) is on_tick)
        """, python=python.path)
    trace = check_trace(run.trace())
    ticks = [name for name in trace.names("python_function").elements() if function_of(name) == "on_tick"]
    assert len(ticks) > 10


# As gperftools' and other profilers in C do it: a stack from within the handler, wherever the thread is, and on its own stack if it has one.
SAMPLER = """
    #define _GNU_SOURCE
    #include <execinfo.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <sys/time.h>
    static volatile long ticks, frames;
    static char stack[1 << 16];
    static void on_tick(int number) {
      void* pcs[64];
      int n = backtrace(pcs, 64);
      ticks = ticks + 1, frames = frames + n;
    }
    void sampler_start(void) {
      void* pcs[4];
      backtrace(pcs, 4);
      stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
      sigaltstack(&own, NULL);
      struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART | SA_ONSTACK};
      sigaction(SIGPROF, &action, NULL);
      struct itimerval timer = {{0, 500}, {0, 500}};
      setitimer(ITIMER_PROF, &timer, NULL);
    }
    long sampler_ticks(void) { return ticks; }
    long sampler_stop(void) {
      struct itimerval none = {};
      setitimer(ITIMER_PROF, &none, NULL);
      return frames > ticks ? ticks : -1;
    }
    """


@pytest.mark.once
@pytest.mark.parametrize("native", ["off", "on"])
def test_a_profiler_in_c_takes_its_stacks_in_the_middle_of_our_work(run_torchprof, check_trace, torch_python, program, tmp_path, native):
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "sampler.so", program(textwrap.dedent(SAMPLER), "sampler.c")], check=True)
    script = program(textwrap.dedent("""
        import ctypes, threading, torch
        sampler = ctypes.CDLL("./sampler.so")
        sampler.sampler_stop.restype = ctypes.c_long
        def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
        def work():
            for n in range(100):
                fib(10)
                torch.ones(300_000 + n).add(1)  # a large allocation has a stack of its own
        sampler.sampler_start()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads: t.start()
        work()
        for t in threads: t.join()
        def more(n): return n if n < 2 else more(n - 1) + more(n - 2)
        while sampler.sampler_ticks() <= 10: more(10)  # a fast machine with a coarse clock
        ticks = sampler.sampler_stop()
        print(ticks > 10 or ticks)
        """))
    run = run_torchprof([torch_python, script], options=["--native", native], cwd=tmp_path)
    assert (run.status, run.stdout) == (0, "True\n"), run.stderr
    trace = check_trace(run.trace())
    assert trace.names("cpu_op")["aten::add"] == 400
    calls = [name for name in trace.names("python_function").elements() if function_of(name) == "fib"]
    assert len(calls) == 400 * 177


def test_a_signal_does_not_stop_threads_that_the_main_thread_waits_for(same, python, check_trace):
    run = same("""
        import ctypes, os, signal, threading, time
        libc = ctypes.CDLL(None)
        mutex = ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        handled = []
        signal.signal(signal.SIGUSR1, lambda *args: handled.append(len(done)))
        done = []
        def leaf(n): done.append(n)
        def in_thread():
            time.sleep(0.2)  # the main thread waits by then
            os.kill(os.getpid(), signal.SIGUSR1)
            for n in range(100):
                leaf(n)
            libc.pthread_mutex_unlock(mutex)
        threading.Thread(target=in_thread).start()
        libc.pthread_mutex_lock(mutex)  # no signal wakes it
        print(len(done), handled)
        """, python=python.path)
    assert run.stdout == "100 [100]\n"
    assert parents_of(check_trace(run.trace()), "leaf") == {"in_thread"}


FAULTS = {"a crash": "faulthandler._sigsegv()", "a timeout": "faulthandler.dump_traceback_later(0.2, exit=True); time.sleep(10)",
          "on request": "faulthandler.register(signal.SIGUSR2, chain=False); os.kill(os.getpid(), signal.SIGUSR2)"}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulthandler_shows_the_stack_that_it_shows_without_us(same, python, check_trace, fault):
    text = "import faulthandler, os, signal, time\nfaulthandler.enable(sys.stdout)\ndef in_fault():\n    %s\ndef outer():\n    in_fault()\nouter()\n"
    run = same("import sys\n" + (text % FAULTS[fault]).replace("register(signal.SIGUSR2,", "register(signal.SIGUSR2, sys.stdout,")
               .replace("(0.2,", "(0.2, file=sys.stdout,"), python=python.path, env={"PYTHONUNBUFFERED": "1"})
    assert "in in_fault" in run.stdout
    assert parents_of(check_trace(run.trace()), "in_fault") == {"outer"}


# ---- the interpreter, and what runs programs --------------------------------------------------------------------------------

def test_import_time_is_said_of_the_same_modules(run_torchprof, run_bare, python, program):
    command = [python.path, "-X", "importtime", program("import json\nprint(json.dumps(1))\n")]
    run, bare = run_torchprof(command, options=["-q"]), run_bare(command)
    ours, theirs = ([line.rpartition("|")[2] for line in text.splitlines()] for text in (run.stderr, bare.stderr.decode()))
    assert run.status == bare.returncode == 0 and len(theirs) > 20
    assert ours == theirs or [name for name in ours if name.strip() != "gc"] == theirs  # docs/limits.md, Python


def test_pythonhome_is_the_programs(same, python):
    prefix = subprocess.run([python.path, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True).stdout.strip()
    same("import sys\nprint(sys.prefix, sys.path[1:], sys.flags)\n", python=python.path, env={"PYTHONHOME": prefix})


OWN_DATA_OF_CODE = """
    import ctypes, gc, sys
    def api(name, result, *kinds):
        for symbol in "PyUnstable_" + name, "_Py" + name:
            if hasattr(ctypes.pythonapi, symbol):
                function = getattr(ctypes.pythonapi, symbol)
                function.restype, function.argtypes = result, kinds
                return function
    freed = []
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(freed.append)
    index = api("Eval_RequestCodeExtraIndex", ctypes.c_ssize_t, type(free))(free)
    set_extra = api("Code_SetExtra", ctypes.c_int, ctypes.py_object, ctypes.c_ssize_t, ctypes.c_void_p)
    get_extra = api("Code_GetExtra", ctypes.c_int, ctypes.py_object, ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_void_p))
    def make():
        names = {}
        exec("def made(): return 1", names)
        return names["made"]
    for _ in range(100):
        make()()  # the program says nothing of these
    before, after = make(), make()
    set_extra(before.__code__, index, 17)
    before(), after()
    set_extra(after.__code__, index, 18)
    before(), after()
    for function in before, after:
        kept = ctypes.c_void_p()
        get_extra(function.__code__, index, ctypes.byref(kept))
        print("kept", kept.value)
    del before, after, function
    gc.collect()
    print("freed", sorted(freed, key=str))
    # The function that frees is gone before the last code objects of the interpreter are.
"""


def test_what_a_program_keeps_at_code_objects_is_its_own(same, python):
    run = same(OWN_DATA_OF_CODE, python.path)
    assert run.stdout.splitlines() == ["kept 17", "kept 18", "freed [17, 18]"]
    calls, = (trace.names("python_function") for trace in run.traces())
    assert sum(n for name, n in calls.items() if name.endswith(": made")) == 104


def test_pdb_stops_where_it_is_told_and_we_see_the_rest(same, python, check_trace):
    run = same("""
        def leaf(n): return n
        def work():
            for n in range(3):
                leaf(n)
        work()
        print("done")
        """, python=python.path, arguments=["-m", "pdb"], stdin=b"break 5\ncontinue\nwhere\nnext\nstep\np n\nclear 1\ncontinue\nquit\n")
    assert "done" in run.stdout
    assert parents_of(check_trace(run.trace()), "leaf") == {"work"}


@pytest.mark.once
def test_pytest_with_xdist_passes_on_every_worker(run_torchprof, run_bare, check_trace, program, tmp_path):
    pytest.importorskip("xdist", reason="pytest-xdist (Debian: python3-pytest-xdist) is not installed for this Python")
    program("import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_of_mine(n): assert n != 7\n", "test_mine.py")
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--tb=no", "--confcutdir=.", "test_mine.py"]
    run = run_torchprof(command, cwd=tmp_path)
    assert run.status == run_bare(command).returncode == 1 and "1 failed, 19 passed" in run.stdout, run.stdout + run.stderr
    found = [sum(function_of(name) == "test_of_mine" for name in check_trace(t).names("python_function").elements()) for t in run.traces()]
    assert sum(found) == 20 and sum(map(bool, found)) == 2  # none in the process that hands them out


# ---- other libraries that are preloaded -------------------------------------------------------------------------------------

def test_jemalloc_serves_the_program_and_we_record_it(same, torch_python, check_trace):
    if not ctypes.util.find_library("jemalloc"):
        pytest.skip("jemalloc (Debian: libjemalloc2) is not installed")
    run = same("""
        import ctypes, threading, torch
        def work():
            for n in range(50):
                torch.ones(100 + n).add(1)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        print("jemalloc" in open("/proc/self/maps").read(), hasattr(ctypes.CDLL(None), "mallctl"))
        """, python=torch_python, env={"LD_PRELOAD": "libjemalloc.so.2"})
    assert run.stdout == "True True\n"
    trace = check_trace(run.trace())
    assert trace.names("cpu_op")["aten::add"] == 200
    assert sum(e["name"] == "[memory]" for e in trace.events) > 400


SANITIZED = """
    #include <stdio.h>
    #include <stdlib.h>
    int main(void) {
      char* p = malloc(10);
      puts(getenv("ASAN_OPTIONS") ? getenv("ASAN_OPTIONS") : "fine");
      free(p);
      return 3;
    }
    """


@pytest.mark.parametrize("sanitizer", ["address", "undefined", "thread"])
def test_a_program_under_a_sanitizer_runs_as_it_does_alone(run_torchprof, run_bare, program, tmp_path, sanitizer):
    subprocess.run(["gcc", "-fsanitize=" + sanitizer, "-o", tmp_path / "x", program(SANITIZED, "x.c")], check=True)
    script = program("import subprocess, sys\nsys.exit(subprocess.run(['./x'], env={'A': '1'}).returncode)\n")
    for command in ([tmp_path / "x"], ["sh", "-c", "./x; exit $?"], [PYTHON, script]):
        run, bare = run_torchprof(command, cwd=tmp_path), run_bare(command)
        told = b"verify_asan_link_order=0\n" if sanitizer == "address" else b"fine\n"
        assert (bare.returncode, bare.stdout) == (3, b"fine\n")
        assert (run.status, run.stdout_bytes) == (3, told), run.stderr


def test_address_sanitizer_finds_what_it_finds_without_us(run_torchprof, program, tmp_path):
    source = program('#include <stdlib.h>\nint main(int n, char** v) { char* p = malloc(10); return p[9 + n]; }\n', "x.c")
    subprocess.run(["gcc", "-fsanitize=address", "-o", tmp_path / "x", source], check=True)
    run = run_torchprof([tmp_path / "x"], env={"ASAN_OPTIONS": "exitcode=42"})
    assert run.status == 42 and "heap-buffer-overflow" in run.stderr
