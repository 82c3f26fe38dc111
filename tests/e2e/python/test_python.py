"""Python calls, on every Python that is here: each test is a program, and what its trace must hold. None of them needs torch.

The functions of the programs have names that come nowhere else, so that a call that is missing is missing and one that is there
was made.
"""
import collections
import re
import textwrap

import pytest


@pytest.fixture
def profiled(run_torchprof, check_trace, program):
    """profiled(PYTHON, TEXT) runs a program of one process and gives its trace, which keeps all the rules."""
    def run(python, text, options=(), **more):
        run = run_torchprof([python.path, program(textwrap.dedent(text))], options=options, **more)
        assert run.status == 0, run.stderr
        return check_trace(run.trace())
    return run


def bare(name):
    """The function alone, of "program.py(3): outer"; the names of C functions stay as they are."""
    return name and name.rpartition("): ")[2]


def calls(trace):
    """How often each function of the test's own program is entered or resumed."""
    return collections.Counter(bare(e["name"]) for e in trace.spans("python_function") if "program.py(" in e["name"])


def chains(trace):
    """How often each (function, its caller) comes among the program's own."""
    return collections.Counter((bare(name), bare(parent)) for name, parent in trace.parents() if "program.py(" in name)


# ---- what a call is -----------------------------------------------------------------------------------------------------

def test_calls_have_the_caller_as_their_parent(python, profiled):
    trace = profiled(python, """
        def outer():
            middle()
            middle()
        def middle():
            inner()
        def inner():
            pass
        outer()
        inner()
        """)
    assert chains(trace) == {("<module>", None): 1, ("outer", "<module>"): 1, ("middle", "outer"): 2, ("inner", "middle"): 2,
                             ("inner", "<module>"): 1}


def test_names_are_path_line_and_function_with_the_import_prefix_cut(python, profiled, program):
    program("def imported():\n    pass\n", "package/module.py")
    trace = profiled(python, """
        import json, package.module
        class Here:
            def method(self): pass
        Here().method()
        package.module.imported()
        json.loads("1")
        """)
    names = trace.names("python_function")
    assert names["program.py(4): method"] == 1
    assert names["package/module.py(1): imported"] == 1
    assert [n for n in names if re.fullmatch(r"json/__init__\.py\(\d+\): loads", n)]


def test_recursion_900_deep_is_a_chain_of_900(python, profiled):
    trace = profiled(python, """
        def deep(n):
            return 0 if n == 1 else 1 + deep(n - 1)
        assert deep(900) == 899
        """)
    assert chains(trace) == {("<module>", None): 1, ("deep", "<module>"): 1, ("deep", "deep"): 899}


def test_a_generator_is_entered_each_time_it_runs(python, profiled):
    trace = profiled(python, """
        def drained():
            yield 1
            yield 2
        def closed():
            try:
                yield 1
            except GeneratorExit:  # without a handler 3.13 does not run it again
                return
        def thrown():
            yield 1
        def dropped():
            try:
                yield 1
            finally:
                finished()
        def finished():
            pass
        def outer_half():
            yield from inner_half()
        def inner_half():
            yield 1
        def run():
            list(drained())
            g = closed(); next(g); g.close()
            g = thrown(); next(g)
            try:
                g.throw(KeyError)
            except KeyError:
                pass
            g = dropped(); next(g); del g
            list(outer_half())
        run()
        """)
    assert chains(trace) == {("<module>", None): 1, ("run", "<module>"): 1, ("drained", "run"): 3, ("closed", "run"): 2,
                             ("thrown", "run"): 2, ("dropped", "run"): 2, ("finished", "dropped"): 1, ("outer_half", "run"): 2,
                             ("inner_half", "outer_half"): 2}


def test_a_generator_that_never_ran_leaves_nothing_open(python, profiled):
    trace = profiled(python, """
        def never():
            yield 1
        def after():
            pass
        g = never(); g.close()
        g = never()
        try:
            g.throw(ValueError)
        except ValueError:
            pass
        never()
        after()
        """)
    assert chains(trace)["after", "<module>"] == 1


def test_coroutines_are_entered_each_time_they_run(python, profiled):
    trace = profiled(python, """
        import asyncio
        async def parent():
            await asyncio.gather(child(), child())
        async def child():
            await asyncio.sleep(0)
            leaf()
        def leaf():
            pass
        asyncio.run(parent())
        """)
    assert calls(trace)["leaf"] == 2
    assert chains(trace)["leaf", "child"] == 2
    assert calls(trace)["child"] == 4 and calls(trace)["parent"] == 2


def test_exceptions_end_every_function_that_they_leave(python, profiled):
    trace = profiled(python, """
        def raises(n):
            if n == 0:
                raise ValueError
            raises(n - 1)
        def catches():
            try:
                raises(3)
            except ValueError:
                handles()
        def handles():
            pass
        def from_c():
            raise LookupError
        catches()
        try:
            sorted([1, 2], key=lambda _: from_c())
        except LookupError:
            handles()
        handles()
        """)
    assert chains(trace) == {("<module>", None): 1, ("catches", "<module>"): 1, ("raises", "catches"): 1, ("raises", "raises"): 3,
                             ("handles", "catches"): 1, ("<lambda>", "<module>"): 1, ("from_c", "<lambda>"): 1, ("handles", "<module>"): 2}


def test_a_program_that_ends_by_an_exception_says_so_and_is_traced(python, run_torchprof, run_bare, check_trace, program):
    path = program("def fails():\n    raise RuntimeError('as always')\nfails()\n")
    run, without = run_torchprof([python.path, path]), run_bare([python.path, path])
    assert run.status == without.returncode == 1
    assert without.stderr.decode() in run.stderr
    assert calls(check_trace(run.trace()))["fails"] == 1


def test_code_objects_that_die_never_lend_their_name_to_another(python, profiled):
    trace = profiled(python, """
        import gc
        def make(n):
            scope = {}
            exec(compile("def unmistakable_%d(): return %d" % (n, n), "program.py", "exec"), scope)
            assert scope["unmistakable_%d" % n]() == n
        for n in range(3000):
            make(n)
            if n % 400 == 0:
                gc.collect()
        """)
    spans = [e for e in trace.spans("python_function") if "unmistakable_" in e["name"]]
    spans.sort(key=lambda e: e["ts"])
    assert [e["name"] for e in spans] == ["program.py(1): unmistakable_%d" % n for n in range(3000)]


def test_equal_names_in_different_files_and_lines_stay_apart(python, profiled):
    trace = profiled(python, """
        for n in range(500):
            scope = {}
            exec(compile("\\n" * (n % 7) + "def same(): pass", "<made in %d>" % (n % 5), "exec"), scope)
            scope["same"]()
        """)
    same = {name: n for name, n in trace.names("python_function").items() if name.endswith("): same")}
    assert same == collections.Counter("<made in %d>(%d): same" % (n % 5, n % 7 + 1) for n in range(500))


def test_names_of_any_characters_reach_the_trace_whole(python, profiled):
    trace = profiled(python, '''
        scope = {}
        exec(compile("def grüße_世界(): pass", 'quo"te\\\\back\\nnew\\ttab', "exec"), scope)
        scope["grüße_世界"]()
        ''')
    assert [n for n in trace.names("python_function") if n.endswith("(1): grüße_世界")]


# ---- levels -------------------------------------------------------------------------------------------------------------

LEVELS = """
    def has_c_calls():
        return len(sorted([3, 1, 2]))
    for _ in range(10):
        has_c_calls()
    """


@pytest.mark.parametrize("level", ["off", "modules"])
def test_levels_off_and_modules_record_no_plain_functions(python, run_torchprof, program, level):
    run = run_torchprof([python.path, program(textwrap.dedent(LEVELS))], options=["--python", level])
    assert run.status == 0, run.stderr
    assert [t.names("python_function") for t in run.traces()] in ([], [{}])  # without an event there is no trace at all


def test_level_functions_records_no_c_functions(python, profiled):
    trace = profiled(python, LEVELS, options=["--python", "functions"])
    assert calls(trace)["has_c_calls"] == 10
    assert not [name for name in trace.names("python_function") if name.startswith("<built-in")]


def test_level_calls_records_c_functions_under_their_callers(python, profiled):
    trace = profiled(python, LEVELS, options=["--python", "calls"])
    counts = collections.Counter((bare(name), bare(parent)) for name, parent in trace.parents())
    assert counts["<built-in function len>", "has_c_calls"] == 10
    assert counts["<built-in function sorted>", "has_c_calls"] == 10


def test_c_functions_that_call_back_or_raise_stay_balanced(python, profiled):
    trace = profiled(python, """
        class Odd:
            as_class = classmethod(repr)
            def __call__(self): return called()
        def called(): return 1
        def key(n): return -n
        def stops(): raise ValueError
        for _ in range(20):
            sorted([1, 2], key=key)
            Odd().as_class()
            Odd()()
            try:
                list(map(lambda _: stops(), [1]))
            except ValueError:
                pass
            try:
                len(3)
            except TypeError:
                pass
        def last(): pass
        last()
        """, options=["--python", "calls"])
    assert chains(trace)["last", "<module>"] == 1
    assert chains(trace)["key", "<built-in function sorted>"] == 40
    assert calls(trace)["called"] == calls(trace)["stops"] == 20


def test_c_functions_bound_as_methods_end_where_they_began(python, profiled):
    """3.12.0 to 3.12.4 tell PyEval_SetProfile of the end of such a call alone (cpython#122029), 3.10 tells of none of it."""
    trace = profiled(python, """
        class Odd:
            as_class = classmethod(repr)
        def calls_it():
            Odd.as_class()
            sibling()
        def sibling():
            abs(-1)
        for _ in range(100):
            calls_it()
        """, options=["--python", "calls"])
    counts = collections.Counter((bare(name), bare(parent)) for name, parent in trace.parents())
    assert counts["<built-in function repr>", "calls_it"] == (100 if python.version >= (3, 11) else 0)
    assert counts["sibling", "calls_it"] == counts["<built-in function abs>", "sibling"] == 100
    assert counts["calls_it", "<module>"] == 100


def test_c_calls_know_the_line_that_they_are_called_from(python, profiled):
    trace = profiled(python, """
        def caller():
            len([1])
            return [len([n]) for n in range(3)]
        caller()
        """, options=["--python", "calls"])
    places = collections.Counter(e["args"]["CallFrom"] for e in trace.named("<built-in function len>"))
    assert {place: n for place, n in places.items() if "program.py" in place} == {"program.py:3": 1, "program.py:4": 3}


# ---- threads ------------------------------------------------------------------------------------------------------------

def threads_of(trace, function):
    return {e["tid"] for e in trace.spans("python_function") if bare(e["name"]) == function}


def test_threads_of_threading_are_traced_on_rows_of_their_own(python, profiled):
    trace = profiled(python, """
        import threading
        def work():
            for _ in range(10):
                leaf()
        def leaf(): pass
        together = threading.Barrier(4)
        def start():
            together.wait()
            work()
        threads = [threading.Thread(target=start) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        """)
    assert calls(trace)["leaf"] == 40 and chains(trace)["leaf", "work"] == 40
    assert len(threads_of(trace, "work")) == 4


def test_threads_have_the_names_that_python_gave_them_last(python, profiled):
    trace = profiled(python, """
        import threading
        go = threading.Event()
        def named(): pass
        def renamed():
            threading.current_thread().name = "a new name for itself, which is long"
        def waits():
            go.wait()
        threading.Thread(target=named, name="named at birth").start()
        threading.Thread(target=renamed, name="old").start()
        other = threading.Thread(target=waits, name="old too")
        other.start()
        other.name = "named by another"
        go.set()
        """)
    names = {e["tid"]: e["args"]["name"] for e in trace.events if e["ph"] == "M" and e["name"] == "thread_name"}
    (first,), (second,), (third,) = (threads_of(trace, f) for f in ("named", "renamed", "waits"))
    assert "named at birth" in names[first]
    assert "a new name for itself, which is long" in names[second]
    assert "named by another" in names[third]


def test_threads_that_threading_does_not_know_are_traced(python, profiled):
    trace = profiled(python, """
        import _thread
        def work(lock):
            leaf()
            lock.release()
        def leaf(): pass
        for _ in range(3):
            lock = _thread.allocate_lock()
            lock.acquire()
            _thread.start_new_thread(work, (lock,))
            lock.acquire()
        """)
    assert chains(trace)["leaf", "work"] == 3
    assert not threads_of(trace, "work") & threads_of(trace, "<module>")


def test_five_hundred_short_lived_threads_lose_nothing(python, profiled):
    trace = profiled(python, """
        import threading
        def brief(): leaf()
        def leaf(): pass
        for _ in range(50):
            threads = [threading.Thread(target=brief) for _ in range(10)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        """)
    assert chains(trace)["leaf", "brief"] == 500


@pytest.mark.parametrize("daemon", [True, False], ids=["daemon", "joined at exit"])
def test_a_thread_that_runs_when_the_program_ends_leaves_a_balanced_row(python, profiled, daemon):
    trace = profiled(python, """
        import threading, time
        running = threading.Event()
        def keeps_running():
            running.set()
            for _ in range(10000 if %r else 3):
                naps()
        def naps(): time.sleep(0.01)
        threading.Thread(target=keeps_running, daemon=%r).start()
        running.wait()
        time.sleep(0.05)
        """ % (daemon, daemon))
    assert calls(trace)["keeps_running"] == 1
    assert calls(trace)["naps"] >= 1 if daemon else calls(trace)["naps"] == 3


def test_threads_that_end_while_others_start_and_switch_do_no_harm(python, profiled):
    trace = profiled(python, """
        import sys, threading
        sys.setswitchinterval(1e-5)
        def spins(n):
            for _ in range(n):
                turn()
        def turn(): pass
        threads = [threading.Thread(target=spins, args=(200 + n,)) for n in range(40)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        """)
    assert calls(trace)["turn"] == sum(200 + n for n in range(40))


# ---- how Python is started ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("flags", ["-I", "-S", "-E", "-s", "-I -S -E", "-O", "-X dev"])
def test_every_way_to_start_the_interpreter_is_traced(python, run_torchprof, check_trace, program, flags):
    run = run_torchprof([python.path, *flags.split(), program("def here(): pass\nhere()\n")])
    assert run.status == 0, run.stderr
    assert chains(check_trace(run.trace()))["here", "<module>"] == 1


def test_a_module_a_command_and_a_script_on_stdin_are_traced(python, run_torchprof, check_trace, program, tmp_path):
    text = "def here(): pass\nhere()\n"
    program(text)
    for arguments, stdin in ((["-m", "program"], None), (["-c", text], None), (["-"], text.encode()), ([], text.encode())):
        run = run_torchprof([python.path, *arguments], stdin=stdin, cwd=tmp_path)
        assert run.status == 0, run.stderr
        names = [bare(name) for name, _ in check_trace(run.trace()).parents()]
        assert names.count("here") == 1, arguments


def test_a_virtual_environment_is_traced(python, run_torchprof, run_bare, check_trace, program, tmp_path):
    made = run_bare([python.path, "-m", "venv", "--without-pip", tmp_path / "venv"])
    assert made.returncode == 0, made.stderr
    path = program("import sys\ndef here(): print(sys.prefix)\nhere()\n")
    run = run_torchprof([tmp_path / "venv" / "bin" / "python", path])
    assert run.stdout == "%s\n" % (tmp_path / "venv"), run.stderr
    assert calls(check_trace(run.trace()))["here"] == 1


SEEN_FROM_INSIDE = """
    import gc, os, signal, sys, threading, warnings
    ours = ("LD_PRELOAD", "PYTHONPATH", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
    environment = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith("TORCHPROF_")}
    print("path", sys.path)
    print("argv", sys.argv, sys.orig_argv[1:], __name__, sys.flags)
    print("modules", sorted(sys.modules))
    print("sitecustomize", getattr(sys.modules.get("sitecustomize"), "__file__", None))
    print("environment", sorted(environment.items()))
    print("hooks", sys.getprofile(), sys.gettrace(), sys.excepthook, sys.displayhook, gc.callbacks, sys.meta_path)
    print("threads", threading.enumerate(), len(os.listdir("/proc/self/task")))
    print("signals", [(s, signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGSEGV)])
    print("warnings", warnings.filters)
    print("limits", sys.getrecursionlimit(), sys.getswitchinterval())
    """


def without_addresses(text):
    return re.sub(rb" at 0x[0-9a-f]+|\d{10,}", b"", text)


def test_a_program_that_looks_around_sees_what_it_sees_without_us(python, run_torchprof, run_bare, program):
    path = program(textwrap.dedent(SEEN_FROM_INSIDE))
    run, without = run_torchprof([python.path, path, "an argument"]), run_bare([python.path, path, "an argument"])
    assert run.status == 0, run.stderr
    assert without_addresses(run.stdout_bytes).decode().splitlines() == without_addresses(without.stdout).decode().splitlines()


def test_the_users_sitecustomize_and_usercustomize_run_once(python, run_torchprof, run_bare, program, tmp_path):
    program("print('the site is customized')\ndef in_sitecustomize(): pass\nin_sitecustomize()\n", "mine/sitecustomize.py")
    program("print('the user is customized')\n", "mine/usercustomize.py")
    path = program("import sys\nprint(sys.modules['sitecustomize'].__file__)\n")
    env = {"PYTHONPATH": tmp_path / "mine"}
    run, without = run_torchprof([python.path, path], env=env, options=["--imports", "full"]), run_bare([python.path, path], env=env)
    assert run.stdout_bytes == without.stdout, run.stderr
    assert run.stdout.count("the site is customized") == 1
    assert [n for n in run.trace().names("python_function") if n.endswith("): in_sitecustomize")]


def test_a_sitecustomize_that_fails_fails_as_without_us(python, run_torchprof, run_bare, program, tmp_path):
    program("raise RuntimeError('not today')\n", "mine/sitecustomize.py")
    path = program("print('on we go')\n")
    env = {"PYTHONPATH": tmp_path / "mine"}
    run, without = run_torchprof([python.path, path], env=env), run_bare([python.path, path], env=env)
    assert (run.status, run.stdout_bytes) == (without.returncode, without.stdout)
    assert without.stderr.decode() in run.stderr


# ---- programs that look closely (profilers: test_coexistence.py) ---------------------------------------------------------------------------------------

OTHER_TOOLS = {
    "tracemalloc": """
        import tracemalloc
        tracemalloc.start()
        kept = [work() for _ in range(100)]
        print(tracemalloc.is_tracing())
        tracemalloc.stop()
        """,
    "weakrefs to functions and frames": """
        import gc, sys, weakref
        def temporary(): return sys._getframe()
        frame = temporary()
        reference = weakref.ref(temporary)
        print(frame.f_code.co_name, frame.f_back, sys.getrefcount(work.__code__))
        del temporary, frame
        gc.collect()
        print(reference())
        """,
}
WORK = """
        def leaf(n):
            return len([n])
        def work():
            total = 0
            for n in range(5):
                total += leaf(n)
            return total
        def after(): pass
        """


@pytest.mark.parametrize("tool", OTHER_TOOLS)
@pytest.mark.parametrize("level", ["functions", "calls"])
def test_other_tools_in_the_program_work_as_without_us(python, run_torchprof, run_bare, check_trace, program, tool, level):
    path = program(textwrap.dedent(WORK) + textwrap.dedent(OTHER_TOOLS[tool]) + "after()\n")
    run, without = run_torchprof([python.path, path], options=["--python", level]), run_bare([python.path, path])
    assert run.status == without.returncode == 0, run.stderr
    assert without_addresses(run.stdout_bytes) == without_addresses(without.stdout)
    assert calls(check_trace(run.trace()))["after"] == 1


@pytest.mark.since(3, 12)
def test_monitoring_ids_3_and_4_held_before_us_are_left_alone(python, run_torchprof, check_trace, program, tmp_path):
    program("import sys\nheld = []\nfor n in (3, 4):\n    if sys.monitoring.get_tool(n) is None:\n"
            "        sys.monitoring.use_tool_id(n, 'held by the user'); held.append(n)\n", "mine/sitecustomize.py")
    path = program("import sys, sitecustomize\ndef work(): pass\nwork()\n"
                   "assert all(sys.monitoring.get_tool(n) == 'held by the user' for n in sitecustomize.held)\n")
    run = run_torchprof([python.path, path], env={"PYTHONPATH": tmp_path / "mine"})
    assert run.status == 0, run.stderr
    assert calls(check_trace(run.trace()))["work"] == 1


AUDITED = """
    import sys, threading, time
    heard = []
    def hook(name, arguments):
        if name == "sys.setprofile":
            heard.append(threading.get_ident() == main)
            time.sleep(0.002)  # others run meanwhile
    def child(): leaf()
    def leaf(): pass
    def begin_others():
        for _ in range(40):
            thread = threading.Thread(target=child)
            thread.start()
            thread.join()
    main = threading.get_ident()
    sys.addaudithook(hook)
    beginners = [threading.Thread(target=begin_others) for _ in range(4)]
    for beginner in beginners: beginner.start()
    for _ in range(20): sys.setprofile(None)
    for beginner in beginners: beginner.join()
    print(heard)
    """


def test_an_audit_hook_that_lets_others_run_hears_nothing_of_ours(python, run_torchprof, run_bare, check_trace, program):
    """In 3.10 and 3.11 of two calls that set a profile function at a time one fails, and its exception is another thread's."""
    path = program(textwrap.dedent(AUDITED))
    bare, run = run_bare([python.path, path]), run_torchprof([python.path, path])
    assert (run.status, run.stdout) == (bare.returncode, bare.stdout.decode()) == (0, str([True] * 20) + "\n"), run.stderr
    counts = calls(check_trace(run.trace()))
    assert counts["leaf"] == counts["child"] == 160


@pytest.mark.since(3, 12)
def test_our_monitoring_id_is_free_for_the_program_as_a_number_of_any_class(python, run_torchprof, check_trace, program):
    path = program(textwrap.dedent("""
        import enum, sys
        class Tool(enum.IntEnum):
            THREE = 3
            FOUR = 4
        class Number(int): pass
        def work(): pass
        for tool in Tool.THREE, Number(4):
            assert sys.monitoring.get_tool(tool) is None and sys.monitoring.get_tool(int(tool)) is None
            sys.monitoring.use_tool_id(tool, "mine")
            assert sys.monitoring.get_events(tool) == 0
            work()
        """))
    run = run_torchprof([python.path, path])
    assert run.status == 0, run.stderr
    assert calls(check_trace(run.trace()))["work"] == 2


# ---- more than one process --------------------------------------------------------------------------------------------------

CHILDREN = """
    import multiprocessing, os, sys
    def child_work(n): child_leaf(n)
    def child_leaf(n): pass
    def parent_leaf(): pass
    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        children = [context.Process(target=child_work, args=(n,)) for n in range(2)]
        [c.start() for c in children]
        parent_leaf()
        [c.join() for c in children]
        print(os.getpid(), *[c.pid for c in children])
        assert [c.exitcode for c in children] == [0, 0]
    """


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_have_traces_of_their_own(python, run_torchprof, check_trace, program, method):
    run = run_torchprof([python.path, program(textwrap.dedent(CHILDREN)), method])
    assert run.status == 0, run.stderr
    for trace in run.traces():
        check_trace(trace)
    parent, *children = [calls(run.trace_of(pid)) for pid in run.stdout.split()]
    assert parent["parent_leaf"] == 1 and parent["child_leaf"] == 0
    assert [c["child_leaf"] for c in children] == [1, 1] and [c["parent_leaf"] for c in children] == [0, 0]
    merged = check_trace(run.merged_path, merged=True)
    assert calls(merged)["child_leaf"] == 2 and calls(merged)["parent_leaf"] == 1


def test_a_forked_child_shows_the_frames_that_it_was_forked_in(python, run_torchprof, check_trace, program):
    path = program(textwrap.dedent("""
        import os
        def forks():
            pid = os.fork()
            if pid == 0:
                in_child()
                os._exit(7)
            print(pid)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            in_parent()
        def in_child(): pass
        def in_parent(): pass
        forks()
        """))
    run = run_torchprof([python.path, path])
    assert run.status == 0, run.stderr
    child = check_trace(run.trace_of(run.stdout))
    assert chains(child) == {("<module>", None): 1, ("forks", "<module>"): 1, ("in_child", "forks"): 1}
    parents = [check_trace(t) for t in run.traces() if t.pid != child.pid]
    assert [chains(t)["in_parent", "forks"] for t in parents] == [1]


def test_subprocesses_are_traced_without_the_environment_as_well(python, run_torchprof, check_trace, program):
    path = program(textwrap.dedent("""
        import subprocess, sys
        for env in (None, {}):
            subprocess.run([sys.executable, "-c", "def in_subprocess(): print('here')\\nin_subprocess()"], env=env, check=True)
        """))
    run = run_torchprof([python.path, path])
    assert (run.status, run.stdout) == (0, "here\nhere\n"), run.stderr
    names = [bare(name) for t in run.traces() for name, _ in check_trace(t).parents()]
    assert names.count("in_subprocess") == 2


def test_os_exit_loses_nothing(python, run_torchprof, check_trace, program):
    path = program("import os\ndef before(): pass\ndef exits():\n    before()\n    os._exit(5)\nexits()\n")
    run = run_torchprof([python.path, path])
    assert run.status == 5
    assert chains(check_trace(run.trace())) == {("<module>", None): 1, ("exits", "<module>"): 1, ("before", "exits"): 1}


def test_what_runs_at_exit_is_traced(python, profiled):
    trace = profiled(python, """
        import atexit
        def at_exit(): pass
        atexit.register(at_exit)
        """)
    assert calls(trace)["at_exit"] == 1
