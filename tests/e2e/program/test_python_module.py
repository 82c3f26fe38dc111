"""The package `torchprof`: what a program records of itself, and what it asks of the records."""
import json
import os
import shutil
import struct
import textwrap

import pytest

import spool_records
from conftest import ROOT
from pypi_python import python_with

MEMORY, OF_PYTHON = 68, 100  # tracer/spool/record.h

STATE = """
import gc, json, os, sys, threading, time, warnings
def state(wanted=None):
    # Whoever joins a thread may come before the kernel has taken it off its list: what is wanted is waited for.
    until = time.monotonic() + 60
    while (now := state_now()) != wanted and wanted is not None and time.monotonic() < until: pass
    return now
def state_now():
    return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), sum(".spool" in line for line in open("/proc/self/maps")), len(gc.callbacks),
            sorted(name for name in os.environ if "TORCHPROF" in name)]
def first(): return 1
def second(): return 2
def third(): return 3
def calls(p): return {row["name"].rpartition("): ")[2]: row["calls"] for row in p.table("python")}
"""
FIRST = "program.py(%d): first" % (1 + STATE[:STATE.index("def first")].count("\n"))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder to be put on PYTHONPATH."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "packaging" / "python", folder / "torchprof", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture
def environment(package, launcher):
    return {"PYTHONPATH": package, "PATH": "%s:%s" % (launcher.parent, os.environ["PATH"]), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def run(run_bare, program, environment, tmp_path):
    """run(PYTHON, TEXT, ...) runs a program that has STATE and torchprof, and gives what it prints last, as JSON; its stderr is expected to be empty, or is
    given, too."""
    def go(python, text, env={}, has_stderr=False, options=()):
        script = program(STATE + "import torchprof\n" + textwrap.dedent(text), "program.py")
        done = run_bare([python, *options, script], env={**environment, **env})
        err = done.stderr.decode()
        assert done.returncode == 0 and (has_stderr or err == ""), err
        said = json.loads(done.stdout.splitlines()[-1])
        return (said, err) if has_stderr else said
    return go


def test_a_program_records_a_part_of_itself_and_is_left_as_it_was(python, run, tmp_path):
    before, during, after, found, place = run(python.path, """
        before = state()
        first()
        with torchprof.profile("run", python="calls") as p:
            second()
            gc.collect()
            during = state()
        third()
        after = state(before)
        print(json.dumps([before, during, after, calls(p), p.directory]))
    """)
    assert after == before != during
    assert found["second"] == 1 and found["<built-in function collect>"] == 1 and "first" not in found and "third" not in found, found
    assert place == str(tmp_path / "run")


def test_each_recording_has_a_directory_of_its_own(python, run, tmp_path):
    """However often, nested, and whoever stops first."""
    (tmp_path / "run").mkdir()
    said = run(python.path, """
        p, other = torchprof.profile("run"), torchprof.profile(memory=False)
        said = []
        p.stop()
        for function in first, second:
            with p:
                function()
            said.append([os.path.basename(p.directory), sorted(set(calls(p)) & {"first", "second", "third"})])
        other.start()
        with p, p:
            first()
        second()
        other.stop()
        third()
        said.append([p.directory == other.directory, sorted(set(calls(p)) & {"first", "second", "third"})])
        p.start(); other.start(); p.stop()
        third()
        other.stop()
        said.append([os.path.basename(other.directory), sorted(set(calls(other)) & {"first", "second", "third"})])
        print(json.dumps(said))
    """)
    assert said == [["run-2", ["first"]], ["run-3", ["second"]], [True, ["first", "second"]], ["run-4", ["third"]]]


def test_a_decorated_function_is_recorded_whenever_it_is_called(python, run):
    said = run(python.path, """
        import asyncio
        p = torchprof.profile("run")
        @p
        def work(n):
            return first() + (work(n - 1) if n else 0)
        @p
        async def later():
            second()
            await asyncio.sleep(0)
            return third()
        work(2)
        once = calls(p)["first"]
        result = asyncio.run(later())
        print(json.dumps([work.__name__, once, result, calls(p)["third"], "first" in calls(p)]))
    """)
    assert said == ["work", 3, 3, 1, False]


def test_a_wrong_setting_is_said_in_the_librarys_words(python, run):
    said = run(python.path, """
        said = []
        for settings in {"python": "all"}, {"pythn": "calls"}, {"sample": -1}, {"window": "auto"}, {"output": "%x"}, {"quiet": 2}, {"format": ["kineto", "x"]}:
            try:
                torchprof.profile(**settings)
                said.append(None)
            except ValueError as error:
                said.append(str(error).partition(":")[0])
        good = torchprof.profile(python="off", shapes=False, memory=True, quiet=True, sample=100, format=["kineto", "table"], max_size="8M", window="manual")
        with torchprof.profile("run") as p:
            first()
        for ask in (lambda: p.table("nothing"), lambda: p.table("python", sort="nothing"), lambda: p.export("x", "nothing"), lambda: p.export("x", stepps="1"), lambda: p.export("x", thread="nobody")):
            try:
                said.append(ask())
            except ValueError as error:
                said.append(str(error).partition(":")[0])
        print(json.dumps(said))
    """)
    assert said == ["python", "pythn", "sample", "window", "output '%x'", "quiet", "format",
                    "--tables", "--sort", "--format", "--stepps=1", "--thread nobody"]


def test_what_was_recorded_is_asked_for(python, run, load_trace, tmp_path):
    said = run(python.path, """
        with torchprof.profile("run") as p:
            for _ in range(3): first()
            live = calls(p)["first"]
        rows = p.table("python", sort="calls", top=2, columns="all")
        print(json.dumps([live, len(rows), rows[0]["calls"] >= rows[1]["calls"], type(p.advice()).__name__, "Python functions" in p.summary(), p.html(), p.html("page.html"),
                          p.export("trace.json.gz"), p.export("trace.pb", "perfetto", time="0s..60s")]))
    """)
    assert said == [3, 2, True, "list", True, str(tmp_path / "run" / "report.html"), "page.html", "trace.json.gz", "trace.pb"]
    assert load_trace(tmp_path / "trace.json.gz").names("python_function")[FIRST] == 3
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>") and (tmp_path / "trace.pb").stat().st_size > 100


UNDER = """
first()
p = torchprof.profile("elsewhere", python="off")
for function in second, third:
    with p, torchprof.profile():
        function()
    first()
found = calls(p)
print(json.dumps([p.directory, {name: found.get(name, 0) for name in ("first", "second", "third")}]))
"""


@pytest.mark.parametrize("window, first, warnings", [("manual", 0, 0), ("all", 3, 0), ("auto", 3, 0), ("steps=1000", None, 1)])
def test_under_the_launcher_it_opens_the_window_of_that_run(python, launcher, program, environment, run_torchprof, window, first, warnings):
    run = run_torchprof([python.path, program(STATE + "import torchprof\n" + UNDER)], options=["-w", window, "-q"], env=environment)
    directory, found = json.loads(run.stdout.splitlines()[-1])
    assert run.status == 0 and directory == str(run.directory)
    assert run.stderr.count("torchprof: this run is recorded already, and its window is steps=1000; only `manual` and `auto` are opened by hand") == warnings, run.stderr
    assert run.stderr.count("RuntimeWarning") == warnings
    if first is not None:
        assert found == {"first": first, "second": 1, "third": 1}
    # What it has asked the program itself is no process of the run.
    assert len(json.loads((run.directory / "run.json").read_text())["processes"]) == 1


@pytest.mark.parametrize("options", [(), ("-W", "error")])
@pytest.mark.parametrize("env, why", [({"TORCHPROF_DISABLE": "1"}, "TORCHPROF_DISABLE is set"), ({"PATH": "/nothing"}, "neither installed by pip nor on PATH")])
def test_where_the_library_is_refused_every_call_does_nothing(python, run, tmp_path, options, env, why):
    said, err = run(python.path, """
        with torchprof.profile("run", python="nothing at all") as p:
            with torchprof.annotate("range"):
                torchprof.mark("moment")
            p.step()
        @torchprof.profile()
        @torchprof.annotate("range")
        def work(): return 1
        print(json.dumps([work(), p.directory, p.table("python"), p.advice(), p.summary(), p.html(), p.export("x")]))
    """, env=env, has_stderr=True, options=options)
    assert said == [1, None, [], [], "", None, None] and err.count("torchprof: nothing is recorded: ") == 1 and why in err
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_a_forked_child_records_and_stops_for_itself(python, run):
    said = run(python.path, """
        with torchprof.profile("run") as p:
            first()
            child = os.fork()
            if child == 0: second()
            else: third()
        if child == 0:
            first()
            before = len(os.listdir("/proc/self/task"))
            with torchprof.profile("child") as q: first()
            os._exit(0 if before == 1 and set(calls(q)) & {"first", "second", "third"} == {"first"} else 1)
        status = os.waitpid(child, 0)[1]
        found = calls(p)
        print(json.dumps([status, found["first"], found["second"], found["third"], len(p.table("processes"))]))
    """)
    assert said == [0, 1, 1, 1, 2]


def test_where_a_recording_has_ended_no_thread_of_ours_is_left(python, run):
    """Not even for a moment: from 3.12 on os.fork() warns where there is a second thread."""
    said = run(python.path, """
        left = 0
        for _ in range(150):
            with torchprof.profile("run"): pass
            left += len(os.listdir("/proc/self/task")) - 1
            child = os.fork()
            if child == 0: os._exit(0)
            os.waitpid(child, 0)
        print(left)
    """, options=["-W", "default"])
    assert said == 0


def test_threads_record_at_the_same_time_and_each_as_often_as_it_likes(python, run):
    said = run(python.path, """
        before = state()
        wrong = []
        def work(number):
            p = torchprof.profile("run%d" % number)
            for _ in range(5):
                with p:
                    first()
                if p.directory is None: wrong.append(number)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        with torchprof.profile("last") as p: first()
        print(json.dumps([wrong, calls(p)["first"], state(before) == before]))
    """)
    assert said == [[], 1, True]


# ---- annotate and mark ----------------------------------------------------------------------------------------------

RANGES = """
import asyncio, torch
%s
torch.set_num_threads(1)
@annotate("decorated")
def work(): return torch.ones(2) + 1
async def task(name, event, other):
    with annotate(name):
        torch.ones(3)
        event.set()
        await other.wait()
        torch.ones(4)
async def tasks():
    events = asyncio.Event(), asyncio.Event()
    await asyncio.gather(task("left", *events), task("right", *reversed(events)))
for i in range(4):
    with annotate("iteration"):
        with annotate("inner %%d" %% i):
            work()
        with annotate("moment"): pass
asyncio.run(tasks())
try:
    with annotate("failing"): raise ValueError
except ValueError: pass
"""
OF_TORCH = 'annotate = torch.profiler.record_function'
OURS = 'import torchprof\nannotate = torchprof.annotate'


@pytest.fixture
def recorded(torch_python, program, environment, run_torchprof, check_trace):
    """recorded(TEXT, OPTIONS): the run and its trace."""
    def record(text, *options):
        run = run_torchprof([torch_python, program(text)], options=["-w", "all", "--python", "off", "--sample", "off", *options], env=environment)
        assert run.status == 0, run.stderr
        return run, check_trace(run.trace())
    return record


def ranges(trace):
    """[(name, the program's operators in it, what it says)] in the order of their begins. record_function makes tensors of its own."""
    spans = sorted((e for e in trace.events if e.get("cat") == "user_annotation"), key=lambda e: (e["ts"], -e["dur"]))
    return [(e["name"], [inner["name"] for inner in trace.inside(e, "cpu_op") if inner["name"] in ("aten::ones", "aten::add")], sorted(e["args"])) for e in spans]


def test_a_range_is_recorded_as_torchs_own_is(recorded):
    _, expected = recorded(RANGES % OF_TORCH)
    _, trace = recorded(RANGES % OURS)
    assert ranges(trace) == ranges(expected) and len(ranges(trace)) == 19
    assert [name for name, _, _ in ranges(trace)][:4] == ["iteration", "inner 0", "decorated", "moment"]


def test_a_range_opens_a_window_and_is_a_step(torch_python, program, environment, run_torchprof, torchprof):
    text = program(RANGES % OURS)
    run = run_torchprof([torch_python, text], options=["-w", "range=iteration#3", "--python", "off"], env=environment)
    assert [name for name, _, _ in ranges(run.trace())] == ["iteration", "inner 2", "decorated", "moment"]
    run = run_torchprof([torch_python, text], options=["-w", "all", "--python", "off"], env=environment)
    steps = json.loads(torchprof("report", run.directory, "-t", "steps", "--step", "range=iteration", "--json").stdout)["tables"][0]["rows"]
    assert [(row["steps"], row["ends_with"]) for row in steps] == [(4, 'a range "iteration"')]


def test_a_moment_takes_no_time(python, run, load_trace, tmp_path):
    run(python.path, """
        with torchprof.profile("run") as p:
            with torchprof.annotate("around"):
                torchprof.mark("moment")
        p.export("trace.json")
        print("null")
    """)
    trace = load_trace(tmp_path / "trace.json")
    around, = trace.named("around", "user_annotation")
    assert [(e["name"], e["dur"]) for e in trace.inside(around, "user_annotation")] == [("moment", 0)]


def test_one_annotation_is_used_again_by_several_threads_and_tasks(python, run, load_trace, tmp_path):
    """Made before anything was recorded, by the same name, and entered in another order than it is left."""
    is_same, wrong = run(python.path, """
        import contextlib
        one = torchprof.annotate("one")
        is_same = one is torchprof.annotate("one") and one.name == "one"
        barrier = threading.Barrier(3)
        def work(i):
            with one:
                barrier.wait()
                with torchprof.annotate("inner"), one: barrier.wait()
        with torchprof.profile("run") as p:
            threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            with contextlib.ExitStack() as stack:
                stack.enter_context(one)
                stack.enter_context(torchprof.annotate("in a stack"))
        with one: pass
        wrong = []
        for name in None, 1, b"one":
            try: torchprof.annotate(name)
            except TypeError: wrong.append(name is None or 1)
        with torchprof.annotate("lone \\ud800 surrogate"): pass
        p.export("trace.json")
        print(json.dumps([is_same, len(wrong)]))
    """)
    assert is_same and wrong == 3
    names = load_trace(tmp_path / "trace.json").names("user_annotation")
    assert names == {"one": 7, "inner": 3, "in a stack": 1}




STEPS = """
import torch, torchprof
torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torchprof.profile("steps") as p:
    for _ in range(5):
        model(torch.ones(4, 4)).sum().backward()
        optimizer.step()
        p.step()
import json
print(json.dumps([[(row["steps"], row["ends_with"]) for row in p.table("steps")], p.export("trace.json")]))
"""


def test_steps_are_marked_as_torch_profiler_marks_them(run_bare, torch_python, program, environment, load_trace, tmp_path):
    done = run_bare([torch_python, program(STEPS)], env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    steps, _ = json.loads(done.stdout)
    assert steps == [[4, "ProfilerStep"]]
    trace = load_trace(tmp_path / "trace.json")
    names = [e["name"] for e in trace.events if e["name"].startswith("ProfilerStep#")]
    assert names == ["ProfilerStep#%d" % i for i in (1, 2, 3, 4, 5)]  # the last is the rest, as torch.profiler has it


# ---- pytest and notebooks -------------------------------------------------------------------------------------------

TESTS = """
import pytest, torch
def load(): return torch.ones(2)
def test_plain(): assert load().sum() == 2
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.torchprof(max_calls={"aten::add": 2, "load": 1})
def test_named(n):
    x = load()
    for _ in range(n): x = x + 1
@pytest.mark.torchprof(max_calls=1)
def test_all(): load() + load()
@pytest.mark.torchprof(max_ms=1)
def test_slow():
    import time
    time.sleep(0.005)
@pytest.mark.torchprof(max_ms=600000, max_calls=1000)
def test_within(): load()
"""


def test_pytest_records_each_test_and_holds_it_to_its_budget(run_bare, torch_python, program, environment, torchprof, tmp_path):
    path = program(TESTS, "test_it.py")
    command = [torch_python, "-m", "pytest", "-q", "-p", "torchprof.pytest_plugin", "-p", "no:cacheprovider", path.name]
    done = run_bare([*command, "--torchprof=runs"], env=environment)
    text = done.stdout.decode()
    assert done.returncode == 1 and "3 failed, 3 passed" in text, text + done.stderr.decode()
    for said in (r"test_named[3]: more than its marker `torchprof` allows: called aten::add 3 times, of 2\n", "test_all: more than its marker `torchprof` allows: called ",
                 "test_slow: more than its marker `torchprof` allows: took ", "report runs/NAME"):
        assert said.replace(r"\n", "\n") in text, text
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert runs == ["test_it.py_test_" + name for name in ("all", "named[1]", "named[3]", "plain", "slow", "within")]
    rows = json.loads(torchprof("report", tmp_path / "runs" / runs[2], "-t", "ops", "--json").stdout)["tables"][0]["rows"]
    assert {row["name"]: row["calls"] for row in rows}["aten::add"] == 3
    # Without the option those with a marker alone are recorded, and leave nothing.
    before = sorted(tmp_path.iterdir())
    done = run_bare(command, env={**environment, "TMPDIR": tmp_path})
    assert "3 failed, 3 passed" in done.stdout.decode() and sorted(tmp_path.iterdir()) == before


CELLS = ["%load_ext torchprof", "%%torchprof --python calls\ndef work():\n    sum(range(2_000_000))\n    return sum(range(10))\nwork()", "%%torchprof -t python,advice\nwork()", "%%torchprof --python all\nwork()"]
RUN_NOTEBOOK = """
import json, nbclient, nbformat
cells = [nbformat.v4.new_code_cell(cell) for cell in %r]
notebook = nbclient.NotebookClient(nbformat.v4.new_notebook(cells=cells), allow_errors=True, timeout=600).execute()
print(json.dumps([cell["outputs"] for cell in notebook["cells"]]))
"""


@pytest.fixture(scope="module")
def notebook_python(tmp_path_factory):
    """A Python with ipykernel and nbclient: this one, or an environment with them from PyPI."""
    return python_with(["nbclient", "ipykernel"], ["nbclient", "ipykernel"], tmp_path_factory.mktemp("notebook") / "venv")


@pytest.mark.slow
def test_a_cell_of_a_notebook_shows_its_page_or_a_table(run_bare, notebook_python, program, environment, tmp_path):
    done = run_bare([notebook_python, program(RUN_NOTEBOOK % CELLS)], env={**environment, "TMPDIR": tmp_path, "IPYTHONDIR": tmp_path / "ipython"})
    assert done.returncode == 0, done.stderr
    loaded, page, table, wrong = json.loads(done.stdout.splitlines()[-1])
    assert loaded == []
    result, shown = page
    assert result["data"]["text/plain"] == "45" and "Python functions" in shown["data"]["text/plain"]
    assert shown["data"]["text/html"].startswith("<iframe srcdoc=") and "work" in shown["data"]["text/html"]
    assert [output["output_type"] for output in table] == ["execute_result", "display_data"] and "work" in table[1]["data"]["text/plain"]
    assert "python: &#x27;all&#x27; is not allowed" in json.dumps(wrong).replace("'", "&#x27;")
    assert not list(tmp_path.glob("torchprof-*"))


def test_that_the_end_of_an_older_tracemalloc_took_our_hooks_away_is_said(python, run, torchprof):
    """And once it is over, the next recording has them again."""
    text = """
        import tracemalloc
        for i in range(2):
            if i == 0: tracemalloc.start()
            with torchprof.profile("run%d" % i, memory="python") as p:
                kept = [[i] * 1000 for i in range(1000)]
                tracemalloc.stop()
                del kept
        print(json.dumps([p.directory.replace("run1", "run0"), p.directory]))
        """
    notes = [torchprof("report", directory).stdout for directory in run(python.path, text)]
    assert ["our hooks were taken away" in each for each in notes] == [True, False], notes


def test_what_an_earlier_window_had_of_python_s_memory_is_none_of_the_next_one_s(python, run_torchprof, program, environment):
    """Between windows blocks are freed, and others have their addresses."""
    path = program(textwrap.dedent("""
        import torchprof
        with torchprof.profile():
            kept = [[i] * 600 for i in range(3000)]
        del kept
        kept = [[i] * 600 for i in range(3000)]
        with torchprof.profile():
            mark = bytearray(7_000_000)
            del kept
        """))
    run = run_torchprof([python.path, path], env=environment, options=["-w", "manual", "--memory", "python"])
    assert run.status == 0, run.stderr
    spool, = spool_records.spools(run)
    blocks = [struct.unpack_from("<Qq", record, 8) for kind, record in spool_records.records(spool) if kind == MEMORY and record[40] == OF_PYTHON]
    mark, = [i for i, (_, size) in enumerate(blocks) if size >= 7_000_000]
    assert sum(size for _, size in blocks[:mark]) > 10_000_000
    known = {address for address, size in blocks[mark:] if size > 0}
    assert {address for address, size in blocks[mark:] if size < 0} <= known
