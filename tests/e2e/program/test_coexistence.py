"""Programs that profile or trace themselves: their tool sees what it sees without us, and our trace has all of the program.

Before Python 3.12 a thread has only one profile function. There the program's own profiler has priority: until it stops, the calls of that
thread are not recorded, and the run says for how long.
"""
import collections
import json
import re
import subprocess
import sys
import textwrap

import pytest
from conftest import clean_environment, profile

# Each tool is a module: start(), stop(), run(FUNCTION) where the tool looks, seen() what it was told of the program and of the tool itself.
ALL_TOOLS = """
    import os, sys, threading
    FILES = ("program.py", "tool.py")
    events = []
    def is_ours(code): return os.path.basename(code.co_filename) in FILES
    def run(function): function()
    def run_in_thread(function):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    def seen(): return list(events)
    def profile(frame, event, arg):
        if is_ours(frame.f_code):
            events.append((event, frame.f_code.co_name, arg.__name__ if event.startswith("c_") else None))
    def trace(frame, event, arg):
        if is_ours(frame.f_code):
            events.append((event, frame.f_code.co_name, frame.f_lineno))
        return trace
    """
TOOLS = {
    "sys.setprofile": """
    def start(): sys.setprofile(profile)
    def stop(): sys.setprofile(None)
    """,
    "threading.setprofile": """
    run = run_in_thread
    def start(): threading.setprofile(profile)
    def stop(): threading.setprofile(None)
    """,
    "sys.settrace": """
    def start(): sys.settrace(trace)
    def stop(): sys.settrace(None)
    """,
    "threading.settrace": """
    run = run_in_thread
    def start(): threading.settrace(trace)
    def stop(): threading.settrace(None)
    """,
    "cProfile": """
    import cProfile
    profile = cProfile.Profile()
    def start(): profile.enable()
    def stop(): profile.disable()
    def name(code): return code if isinstance(code, str) else code.co_name
    def seen():
        return sorted((name(e.code), e.callcount, sorted((name(c.code), c.callcount) for c in e.calls or ()))
                      for e in profile.getstats() if isinstance(e.code, str) or is_ours(e.code))
    """,
}
# As coverage.py and debuggers use it: one id, or all that there are.
MONITORING = """
    import collections
    monitoring = sys.monitoring
    NAMES = ("PY_START", "PY_RETURN", "LINE", "CALL", "C_RETURN")
    ids = %s
    events = collections.Counter()
    def callback(tool, name):
        def count(code, where, *more):
            if os.path.basename(code.co_filename) == "program.py":
                events[tool, name, code.co_name, where] += 1
        return count
    def start():
        for n in ids:
            monitoring.use_tool_id(n, "mine")
            for name in NAMES:
                monitoring.register_callback(n, getattr(monitoring.events, name), callback(n, name))
            monitoring.set_events(n, sum(getattr(monitoring.events, name) for name in NAMES if name != "C_RETURN"))
    def stop():
        for n in ids:
            monitoring.set_events(n, 0)
            for name in NAMES:
                monitoring.register_callback(n, getattr(monitoring.events, name), None)
            monitoring.free_tool_id(n)
    def seen(): return sorted(events.items())
    """
MONITORING_TOOLS = {"one id": MONITORING % "(1,)", "five ids": MONITORING % "(0, 1, 2, 3, 4)", "every id": MONITORING % "range(6)"}
WORK = """
    import time, tool
    def leaf(n): return len([n])
    def work():
        for n in range(5):
            leaf(n)
        time.sleep(0.05)
    def before(): work()
    def inside(): work()
    def after(): work()
    """
# When the tool is on, as the lines of the program; and which phases there are.
WHEN = {
    "from before the program": ("tool.run(inside); tool.stop(); after(); print(tool.seen())", {"inside", "after"}),
    "in the middle": ("before(); tool.start(); tool.run(inside); tool.stop(); after(); print(tool.seen())", {"before", "inside", "after"}),
    "to the end": ("before(); tool.start(); tool.run(inside); print(tool.seen())", {"before", "inside"}),
}
WAYS = [("from before the program", "functions"), ("in the middle", "functions"), ("in the middle", "calls"), ("to the end", "functions")]
# Where there is one profile function for a thread, these take it.
TAKES_OUR_PLACE = {"sys.setprofile": "sys.setprofile", "threading.setprofile": "sys.setprofile", "cProfile": "cProfile"}


def text_of(part):
    return textwrap.dedent(part)


def function_of(name):
    return name and name.rpartition("): ")[2]


def phases(trace):
    """How often leaf() was called by work() in each of before(), inside() and after(), by where it lies."""
    found = collections.Counter()
    for phase in ("before", "inside", "after"):
        for span in trace.spans("python_function"):
            if function_of(span["name"]) == phase:
                found[phase] += sum(function_of(e["name"]) == "leaf" for e in trace.inside(span, "python_function"))
    return dict(found)


def without_addresses(text):
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def blind(run):
    """What run.json says of the calls that were not recorded: {who had Python's hook: seconds}"""
    processes = json.loads((run.directory / "run.json").read_text())["processes"]
    return {b["by"]: b["seconds"] for p in processes for b in p.get("blind", ())}


def both_ways(python, tool, when, level, run_torchprof, run_bare, program):
    """The run under torchprof, and what the tool says in it and in one without."""
    program(text_of(ALL_TOOLS) + text_of(tool), "tool.py")
    path = program(text_of(WORK) + WHEN[when][0] + "\n")
    env = {}
    if when == "from before the program":
        path_of_mine = program("import tool\ntool.start()\n", "mine/sitecustomize.py").parent
        env["PYTHONPATH"] = "%s:%s" % (path_of_mine, path.parent)
    run = run_torchprof([python.path, path], options=["--python", level], env=env)
    bare = run_bare([python.path, path], env=env)
    assert run.status == bare.returncode == 0, run.stderr
    return run, without_addresses(run.stdout), without_addresses(bare.stdout.decode())


@pytest.mark.parametrize("when, level", WAYS)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_sees_what_it_sees_without_us_and_we_miss_only_what_python_denies(python, run_torchprof, run_bare, check_trace, program,
                                                                                 tool, when, level):
    run, said, without = both_ways(python, TOOLS[tool], when, level, run_torchprof, run_bare, program)
    if tool == "sys.setprofile" and level == "calls" and python.version >= (3, 12):
        # If C calls are watched already, this Python reports to a new hook the end of the very call that set it.
        said = said.replace("[('c_return', 'start', 'setprofile'), ", "[", 1)
    assert said == without
    expected = dict.fromkeys(WHEN[when][1], 5)
    by = TAKES_OUR_PLACE.get(tool) if python.version < (3, 12) else None
    trace = check_trace(run.trace())
    if not by:
        assert phases(trace) == expected and blind(run) == {}
        return
    expected.pop("inside")
    assert {k: n for k, n in phases(trace).items() if n} == expected
    assert list(blind(run)) == [by] and 0.05 <= blind(run)[by] < 30
    assert re.search(r"Python calls not recorded for .*: Python's hook was taken by %s, 1 time\b" % re.escape(by), run.stderr)


LIBRARY = """
void PyEval_SetProfile(int (*)(void*, void*, int, void*), void*);
static int seen(void* self, void* frame, int what, void* arg) { return 0; }
void start(void) { PyEval_SetProfile(seen, 0); }
void stop(void) { PyEval_SetProfile(0, 0); }
"""


# A libpython of its own comes between: there the interpreter's own calls are redirected, too.
def test_who_takes_the_hook_in_c_is_named_by_its_library(python, run_torchprof, program):
    if python.version >= (3, 12):
        pytest.skip("sys.monitoring has room for all")
    library = program(LIBRARY, "hook.c").with_name("libtorch_hook.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, library.with_name("hook.c")], check=True)
    path = program(text_of(WORK).replace("import time, tool", "import ctypes, time") + textwrap.dedent("""
        tool = ctypes.PyDLL(%r)
        import _decimal  # an extension module: what is loaded by now is looked at
        before(); tool.start(); inside(); tool.stop(); after()
        """ % str(library)))
    run = run_torchprof([python.path, path])
    assert run.status == 0 and list(blind(run)) == ["torch.profiler"], run.stderr


@pytest.mark.since(3, 12)
@pytest.mark.parametrize("when, level", WAYS)
@pytest.mark.parametrize("tool", MONITORING_TOOLS)
def test_monitoring_tools_have_their_ids_and_events_and_we_take_one_that_is_left(python, run_torchprof, run_bare, check_trace, program, tool, when, level):
    run, said, without = both_ways(python, MONITORING_TOOLS[tool], when, level, run_torchprof, run_bare, program)
    assert said == without
    expected = dict.fromkeys(WHEN[when][1], 5)
    trace = check_trace(run.trace())
    if tool != "every id":
        assert phases(trace) == expected and blind(run) == {}
        return
    expected.pop("inside")
    assert {k: n for k, n in phases(trace).items() if n} == expected
    (seconds,) = blind(run).values()
    assert 0.05 <= seconds < 30


COVERED = """
    import threading
    def leaf(n):
        return len([n]) if n else never()
    def never():
        return 0
    def work():
        for n in range(5):
            leaf(n)
        if n > 5:
            never()
    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    """


def test_coverage_py_counts_the_same_lines_and_we_miss_nothing(run_torchprof, run_bare, check_trace, program, tmp_path):
    pytest.importorskip("coverage", reason="coverage.py (Debian: python3-coverage) is not installed for this Python")
    path = program(text_of(COVERED))
    said = {}
    for run_it in (run_torchprof, run_bare):
        run = run_it([sys.executable, "-m", "coverage", "run", "--branch", "--data-file", tmp_path / "data", path])
        subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "--data-file", tmp_path / "data", "-o", tmp_path / "json"], check=True,
                       cwd=tmp_path)
        said[run_it] = json.loads((tmp_path / "json").read_text())["files"]
        if run_it is run_torchprof:
            names = collections.Counter(map(function_of, check_trace(run.trace()).names("python_function").elements()))
            assert (names["leaf"], names["never"], names["work"]) == (10, 2, 2) and blind(run) == {}
    assert said[run_torchprof] == said[run_bare]
    assert said[run_bare]["program.py"]["missing_lines"] == [11]


# ---- debuggers, and what a program may ask of sys.monitoring ------------------------------------------------------------------

TRACED = """
    import sys
    def trace(frame, event, arg):
        frame.f_trace_opcodes = True
        print(frame.f_code.co_name, event, frame.f_lineno, frame.f_lasti)
        return trace
    def start(frame, all_threads):
        frame.f_trace, frame.f_trace_opcodes = trace, True
        (sys._settraceallthreads if all_threads else sys.settrace)(trace)
    def inner(): return 1
    def work(all_threads):
        start(sys._getframe(), all_threads)
        n = inner()
        sys.settrace(None)
        return n
    def other(all_threads):
        work(all_threads)
        start(sys._getframe(), all_threads)
        n = 1
        sys.settrace(None)
    other(False)
    if sys.version_info >= (3, 12):
        other(True)
    """
DEBUGGED = """
    import pdb
    def inner(n):
        breakpoint()
        return n + 1
    def outer(n):
        n = inner(n)
        pdb.set_trace()
        n += 1
        return n
    def generate():
        yield outer(1)
        breakpoint()
        yield 2
    for n in generate():
        print("got", n)
    """


@pytest.mark.parametrize("text", [TRACED, DEBUGGED], ids=["sys.settrace with opcodes", "breakpoint"])
def test_a_debugger_stops_where_it_stops_without_us(python, run_torchprof, run_bare, check_trace, program, text):
    command = [python.path, program(text_of(text))]
    commands = b"".join(b"where\nstep\nnext\nargs\n" for _ in range(4)) + b"until\nreturn\ncontinue\ncontinue\ncontinue\n"
    run, bare = run_torchprof(command, stdin=commands), run_bare(command, stdin=commands)
    assert (run.status, without_addresses(run.stdout)) == (bare.returncode, without_addresses(bare.stdout.decode())), run.stderr
    assert len(bare.stdout.splitlines()) > 20 and blind(run) == {}
    assert "inner" in map(function_of, check_trace(run.trace()).names("python_function"))


@pytest.mark.since(3, 12)
def test_sys_monitoring_does_not_show_our_tool(python, run_torchprof, run_bare, program):
    command = [python.path, program(text_of("""
        import sys
        monitoring, e = sys.monitoring, sys.monitoring.events
        def seen():
            print([(monitoring.get_tool(n), monitoring.get_events(n)) for n in range(6)], monitoring._all_events())
        seen()
        monitoring.use_tool_id(1, "mine")
        monitoring.set_events(1, e.PY_START | e.RAISE | e.CALL)
        seen()
        monitoring.set_events(1, 0)
        monitoring.free_tool_id(1)
        seen()
        """))]
    run, bare = run_torchprof(command, options=["--python", "calls"]), run_bare(command)
    assert run.stdout == bare.stdout.decode() and "'PY_START': 2" in run.stdout, run.stderr


@pytest.mark.since(3, 13)
@pytest.mark.parametrize("level", ["modules", "functions", "calls"])
def test_monitoring_events_of_an_extension_may_be_of_any_object(python, run_torchprof, check_trace, program, level):
    run = run_torchprof([python.path, program(text_of("""
        import ctypes, sys
        api = ctypes.pythonapi
        class NoCode: pass
        no_code, state = NoCode(), (ctypes.c_uint8 * 2)()
        enter, leave = api.PyMonitoring_EnterScope, api.PyMonitoring_ExitScope
        enter.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p, ctypes.c_ssize_t]
        def fire(name, number, *values):
            function = getattr(api, "_PyMonitoring_Fire" + name + "Event")
            function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_int32, *[ctypes.py_object] * len(values)]
            enter(state, ctypes.byref(ctypes.c_uint64()), (ctypes.c_uint8 * 1)(number), 1)
            result = function(state, no_code, 1, *values) if state[0] else 0
            leave()
            return result
        def known(): return [fire("PyStart", 0), fire("PyReturn", 2, 1), fire("Call", 4, len, "text"), fire("PyYield", 3, 1), fire("PyResume", 1)]
        print(known())
        """))], options=["--python", level])
    assert (run.status, run.stdout) == (0, "[0, 0, 0, 0, 0]\n"), run.stderr
    if level != "modules":
        assert "known" in map(function_of, check_trace(run.trace()).names("python_function"))


# ---- torch.profiler ---------------------------------------------------------------------------------------------------------

TORCH = """
import collections, json, re, sys, threading
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
marks = {phase: torch.ones(n) for n, phase in enumerate(("first", "first profiled", "before", "inside", "after"))}
def step():
    optimizer.zero_grad()
    with torch.autograd.profiler.record_function("forward"):
        loss = net(torch.ones(5, 8)).sum()
    loss.backward()
    optimizer.step()
def work():
    for _ in range(3):
        step()
def in_thread():
    work()
def both_threads(phase):
    kept.append(torch.sinh(marks[phase]))
    work()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    kept.append(torch.sinh(marks[phase]))
def all_events(events):
    for e in events:
        yield e
        yield from all_events(e.children)
def without_address(name):
    return re.sub(" at 0x[0-9a-f]+", "", name)
def in_its_trace(profiler):
    profiler.export_chrome_trace("its.json")
    with open("its.json") as file:
        for e in json.load(file)["traceEvents"]:
            args = e.get("args", {})
            yield e["ph"], e.get("cat"), without_address(e["name"]), str(args.get("Input Dims")), args.get("Bytes"), "Sequence number" in args
def in_its_events(results):  # torch without Kineto writes a poor trace
    for e in all_events(results.experimental_event_tree()):
        kind = str(e.tag).rpartition(".")[2]
        yield kind, e.extra_fields.alloc_size if kind == "Allocation" else without_address(e.name)
    for e in results.events():
        yield e.name(), str(e.shapes()), e.sequence_nr() >= 0
def seen(profiler):
    events = in_its_trace(profiler) if torch.profiler.kineto_available() else in_its_events(profiler.profiler.kineto_results)
    return sorted(collections.Counter(map(str, events)).items())
def profile(phase):
    with torch.profiler.profile(with_stack=sys.argv[1] == "stacks", profile_memory=True, record_shapes=True,
                                activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        both_threads(phase)
    return profiler
both_threads("first")
profile("first profiled")  # what is looked up at first use is there from now on
both_threads("before")
profiler = profile("inside")
both_threads("after")
sys.setrecursionlimit(10000)
print(json.dumps(seen(profiler)))
"""


@pytest.fixture(scope="module")
def torch_runs(launcher, torch_python, tmp_path_factory):
    """(the run under torchprof, what torch.profiler saw in it, what it saw in one without)"""
    directory = tmp_path_factory.mktemp("torch_profiler")
    path = directory / "program.py"
    path.write_text(TORCH)
    for stacks in ("stacks", "flat"):
        bare = subprocess.run([torch_python, path, stacks], capture_output=True, text=True, env=clean_environment(), cwd=directory)
        if bare.returncode >= 0:  # torch.profiler 2.6 with stacks dies of Python 3.13
            break
    run = profile(launcher, directory / "run", [torch_python, path, stacks], options=["--python", "calls"])
    assert run.status == bare.returncode == 0, run.stderr + bare.stderr
    return run, *(json.loads(text.splitlines()[-1]) for text in (run.stdout, bare.stdout))  # others may print there as well


def bounds(trace, phase):
    """What lies between the phase's two marks, which know it by their shape."""
    shape = [[["before", "inside", "after"].index(phase) + 2]]
    first, last = sorted((e for e in trace.named("aten::sinh", "cpu_op") if e["args"]["Input Dims"] == shape), key=lambda e: e["ts"])
    return first["ts"] + first["dur"], last["ts"]


def in_phase(trace, phase, *categories):
    """Of both threads: how often each (name, shapes) comes in the phase."""
    begin, end = bounds(trace, phase)
    return collections.Counter((e["name"], json.dumps(e.get("args", {}).get("Input Dims"))) for e in trace.spans(*categories)
                               if begin <= e["ts"] and e["ts"] + e["dur"] <= end
                               and not e["name"].startswith("ProfilerStep#"))  # these are numbered


def memory_in_phase(trace, phase):
    begin, end = bounds(trace, phase)
    return collections.Counter(e["args"]["Bytes"] for e in trace.events if e["name"] == "[memory]" and begin <= e["ts"] <= end)


def test_torch_profiler_in_the_program_sees_what_it_sees_without_us(torch_runs):
    _, with_us, without = torch_runs
    assert with_us == without
    assert sum(n for _, n in without) > 400


def test_operators_and_memory_have_no_gap_where_torch_profiler_runs(torch_runs, check_trace):
    trace = check_trace(torch_runs[0].trace())
    before = in_phase(trace, "before", "cpu_op", "user_annotation")
    assert sum(before.values()) > 100
    for phase in ("inside", "after"):
        assert in_phase(trace, phase, "cpu_op", "user_annotation") == before
        assert memory_in_phase(trace, phase) == memory_in_phase(trace, "before") != {}


def test_python_calls_have_no_gap_but_the_one_that_is_told(torch_runs, check_trace):
    run = torch_runs[0]
    trace = check_trace(run.trace())
    before, inside, after = (in_phase(trace, phase, "python_function") for phase in ("before", "inside", "after"))
    assert sum(before.values()) > 100 and after == before
    if sys.version_info >= (3, 12):
        assert inside == before and blind(run) == {}
    else:  # the thread that torch.profiler began in; it never sees the other
        assert inside <= before and sum(inside.values()) > 50
        assert list(blind(run)) == ["torch.profiler"] and blind(run)["torch.profiler"] > 0
        assert "taken by torch.profiler, 2 times" in run.stderr
