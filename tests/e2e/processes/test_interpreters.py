"""Processes with several interpreters, and with one that is not the program's own: embedded, and loaded where nobody else finds it."""
import collections
import json
import pathlib
import subprocess
import textwrap

import pytest
from conftest import SUPPORT, clean_environment

# Of the child: which library has the interpreter, and where its modules are.
ABOUT = "import sys, sysconfig as s; print(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME'), sys.base_prefix, sep='\\n')"
WORK = """
def leaf(n): return len([n])
def work():
    for n in range(3): leaf(n)
work()
"""


def function_of(name):
    return name and name.rpartition("): ")[2]


def calls_of(trace, *names):
    found = collections.Counter(function_of(name) for name, _ in trace.parents())
    return tuple(found[name] for name in names)


def said_by_us(run):
    """What is on stderr besides the tables."""
    return [line for line in run.stderr.splitlines() if line.startswith("torchprof: cannot") or "not recorded" in line or "not profiled" in line]


def sources(run):
    (process,) = json.loads((run.directory / "run.json").read_text())["processes"]
    return process["sources"]


@pytest.fixture
def same(run_torchprof, run_bare, check_trace):
    def compare(command, env=None, options=()):
        run, bare = run_torchprof(command, env=env, options=options), run_bare(command, env=env)
        assert (run.status, run.stdout_bytes) == (bare.returncode, bare.stdout), run.stderr
        assert run.status == 0 and bare.stdout and not said_by_us(run), run.stderr
        return run, check_trace(run.trace())
    return compare


SUBINTERPRETERS = """
    import os, sys, threading
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    TEXT = '''
    import json, os, sys
    def inside(n): return n and inside(n - 1)
    def generate(): yield from range(3)
    for _ in range(10):
        inside(50)
        list(generate())
    if hasattr(sys, "monitoring"):
        m = sys.monitoring
        m.use_tool_id(3, "mine")
        seen = []
        m.register_callback(3, m.events.PY_START, lambda code, offset: seen.append(code.co_name))
        m.set_events(3, m.events.PY_START)
        inside(3)
        m.set_events(3, 0)
        m.free_tool_id(3)
        assert (seen, m.get_tool(4), m._all_events()) == (["inside"] * 4, None, {}), seen
    else:
        inside(3)
    os.write(1, b"sub ")
    '''
    def before(): pass
    def after(): pass
    def run_one():
        one = interpreters.create()
        interpreters.run_string(one, TEXT)
        interpreters.destroy(one)
    before()
    run_one()
    threads = [threading.Thread(target=run_one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after()
    """


@pytest.mark.parametrize("level", ["functions", "calls"])
def test_calls_of_subinterpreters_are_recorded(same, python, program, level):
    run, trace = same([python.path, program(textwrap.dedent(SUBINTERPRETERS))], options=["--python", level])
    assert calls_of(trace, "before", "after", "run_one", "inside", "generate") == (1, 1, 4, 4 * (10 * 51 + 4), 4 * 10 * 4)
    assert {function_of(parent) for name, parent in trace.parents() if function_of(name) == "inside"} == {"inside", "<module>"}
    assert sources(run)["subinterpreters"]["state"] == "on"


def test_modules_alone_are_those_of_the_first_interpreter(run_torchprof, python, program):
    run = run_torchprof([python.path, program(textwrap.dedent(SUBINTERPRETERS))], options=["--python", "modules"])
    assert (run.status, run.stdout, said_by_us(run)) == (0, "sub " * 4, [])


def test_a_process_with_one_interpreter_says_nothing_of_others(run_torchprof, python):
    assert "subinterpreters" not in sources(run_torchprof([python.path, "-c", "import json"]))


def test_a_window_opens_where_there_was_a_subinterpreter(run_torchprof, python, program):
    """PyGILState_Check() then says to every thread that it has the GIL."""
    run = run_torchprof([python.path, program(textwrap.dedent("""
        import time
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        interpreters.destroy(interpreters.create())
        def leaf(): return 1
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            leaf()
        print("end")
        """))], options=["--window", "every=100ms,for=50ms"])
    assert (run.status, run.stdout) == (0, "end\n"), run.stderr


@pytest.fixture(scope="module")
def embed(tmp_path_factory):
    program = tmp_path_factory.mktemp("embed") / "embed"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", program, SUPPORT / "embed.c", "-ldl"], check=True)
    return program


@pytest.mark.parametrize("mode", ["global", "local"])
def test_an_interpreter_that_the_program_loads_while_it_runs(same, python, embed, mode):
    about = subprocess.run([python.path, "-c", ABOUT], capture_output=True, text=True, check=True, env=clean_environment())
    directory, library, home = about.stdout.splitlines()
    path = pathlib.Path(directory, library)
    if not library.startswith("libpython") or not path.exists():
        pytest.skip("this Python has no shared library")
    text = WORK + "import os; os.write(1, b'ran ')"
    own = "own" if python.version >= (3, 12) else "new"
    life = ["run", text, "new", "run", text, "new", "run", text, "end", "end", own, "run", text, "end", "run", text]
    run, trace = same([embed, path, mode, *life, "again", *life], env={"PYTHONHOME": home})
    assert calls_of(trace, "work", "leaf") == (10, 30)
    assert (run.stdout, sources(run)["python"]["state"]) == ("ran " * 10, "on")
