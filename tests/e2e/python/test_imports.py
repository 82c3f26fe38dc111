"""Imports and the compiler in brief, on every Python that is here: one span a module while it is imported, and everything that the program does in full.

The functions of the programs have names that come nowhere else, so that a call that is missing is missing and one that is there
was made.
"""
import collections
import json
import re
import textwrap

import pytest

from conftest import torch_here


@pytest.fixture
def profiled(run_torchprof, check_trace, program):
    """profiled(PYTHON, TEXT, FILE=TEXT...) runs a program of one process beside the modules FILE.py, and gives its trace, which keeps all the rules."""
    def run(python, text, options=(), arguments=(), **modules):
        for name, body in modules.items():
            program(textwrap.dedent(body), name + ".py")
        run = run_torchprof([python.path, program(textwrap.dedent(text)), *arguments], options=options)
        assert run.status == 0, run.stderr
        return check_trace(run.trace(), imports=True)
    return run


def bare(name):
    """The function alone, of "program.py(3): outer"; the names of imports stay as they are."""
    return name and name.rpartition("): ")[2]


def chains(trace):
    """How often each (span, the span around it) comes, of those whose names have a part that is nowhere else."""
    return collections.Counter((bare(name), bare(parent)) for name, parent in trace.parents() if "odd_" in name)


# ---- what an import is ----------------------------------------------------------------------------------------------------

MODULES = {
    "odd_outer": """
        import odd_inner
        class Class: pass
        def odd_helper(): return 1
        odd_helper()
        """,
    "odd_inner": """
        def odd_called_later(): pass
        [odd_called_later() for _ in range(10)]
        """}


def test_an_import_is_one_span_a_module_and_nested_as_the_imports_are(python, profiled):
    trace = profiled(python, """
        def odd_lazy():
            import odd_outer
            import odd_outer, odd_inner
            odd_inner.odd_called_later()
        odd_lazy()
        odd_lazy()
        """, **MODULES)
    assert chains(trace) == {("odd_lazy", "<module>"): 2, ("import odd_outer", "odd_lazy"): 1, ("import odd_inner", "import odd_outer"): 1,
                             ("odd_called_later", "odd_lazy"): 2}
    (outer,), (inner,) = trace.named("import odd_outer"), trace.named("import odd_inner")
    assert (outer["args"]["File"], inner["args"]["File"]) == ("odd_outer.py", "odd_inner.py")
    assert [e for e in trace.inside(outer, "python_function") if e["name"] != "Python GC"] == [inner]
    assert not [name for name in trace.names("python_function") if name.endswith(": _find_and_load")]


def test_the_time_of_an_import_is_its_own_without_the_imports_within(python, run_torchprof, torchprof, program):
    for name, body in MODULES.items():
        program(textwrap.dedent(body), name + ".py")
    run = run_torchprof([python.path, program("import gc\ngc.disable()\nimport odd_outer\n")], options=["--keep-spool"])
    table = json.loads(torchprof("report", run.directory, "-t", "python", "--json").stdout)["tables"][0]
    rows = {row["name"]: row for row in table["rows"]}
    outer, inner = rows["import odd_outer"], rows["import odd_inner"]
    assert outer["calls"] == inner["calls"] == 1
    assert outer["self_ns"] == outer["total_ns"] - inner["total_ns"] > 0 and inner["self_ns"] == inner["total_ns"]


def test_imports_in_full_have_every_function(python, profiled):
    trace = profiled(python, "import odd_outer", options=["--imports", "full"], **MODULES)
    assert {key: n for key, n in chains(trace).items() if "odd_helper" in key or "odd_called_later" in key} == {
        ("odd_helper", "<module>"): 1, ("odd_called_later", "<listcomp>" if python.version < (3, 12) else "<module>"): 10}
    assert not [name for name in trace.names("python_function") if name.startswith("import ")]
    assert [name for name in trace.names("python_function") if name.endswith(": _find_and_load")]


@pytest.mark.parametrize("level", ["off", "modules"])
def test_levels_without_functions_have_no_imports(python, run_torchprof, program, level):
    run = run_torchprof([python.path, program("import html.parser\n")], options=["--python", level])
    assert run.status == 0, run.stderr
    assert [t.names("python_function") for t in run.traces()] in ([], [{}])


def test_each_way_to_import_is_an_import(python, profiled):
    trace = profiled(python, """
        import importlib
        def odd_ways():
            importlib.import_module("odd_one")
            __import__("odd_two")
            exec("import odd_three")
            from odd_four import value
            for name in ("odd_one", "odd_two", "odd_three"):
                importlib.import_module(name)
                __import__(name)
        odd_ways()
        """, odd_one="", odd_two="", odd_three="", odd_four="value = 1")
    assert chains(trace) == {("odd_ways", "<module>"): 1, ("import odd_one", "_gcd_import"): 1, ("import odd_two", "odd_ways"): 1,
                             ("import odd_three", "<module>"): 1, ("import odd_four", "odd_ways"): 1}


def test_c_functions_in_an_import_are_brief_too(python, profiled):
    trace = profiled(python, """
        def odd_calls():
            __import__("odd_sorts")
            abs(-1)
        odd_calls()
        """, options=["--python", "calls"], odd_sorts="sorted([2, 1])\n")
    assert chains(trace) == {("odd_calls", "<module>"): 1, ("import odd_sorts", "<built-in function __import__>"): 1}
    (imported,), (calls,) = trace.named("import odd_sorts"), [e for e in trace.spans("python_function") if bare(e["name"]) == "odd_calls"]
    assert [e["name"] for e in trace.inside(imported, "python_function") if e["name"] != "Python GC"] == []
    # From 3.15 on the module's lock goes after the import, and importlib has a function told of it.
    locks = [e for e in trace.inside(calls, "python_function") if re.fullmatch(r"<frozen importlib._bootstrap>\(\d+\): cb", e["name"])]
    of_locks = [e for lock in locks for e in trace.inside(lock, "python_function")]
    assert [e["name"] for e in trace.inside(calls, "python_function") if e["name"].startswith("<built-in") and e not in of_locks] == [
        "<built-in function __import__>", "<built-in function abs>"]
    assert not locks or python.version >= (3, 15)


@pytest.mark.since(3, 15)
@pytest.mark.parametrize("level", ["functions", "calls"])
def test_a_deferred_import_is_one_span_where_its_module_is_wanted_first(python, profiled, program, level):
    """PEP 810: the loop's step that first wants the module has the import, not the line that says `lazy import`."""
    program("def odd_called(): pass\nodd_called()\n", "odd_package/__init__.py")
    program("def odd_leaf(): pass\nodd_leaf()\n", "odd_package/odd_sub.py")
    trace = profiled(python, """
        lazy import odd_outer
        lazy from odd_named import odd_name
        lazy import odd_package.odd_sub
        lazy import odd_raises, odd_unwanted
        def odd_step(i):
            if i == 1: odd_inner_is_called()
            if i == 2: odd_name()
            if i == 3: odd_package.odd_sub.odd_leaf()
            if i == 4:
                try: odd_raises.anything
                except ImportError: odd_handles()
        def odd_inner_is_called(): odd_outer.odd_inner.odd_called_later()
        def odd_handles(): pass
        for i in range(6):
            odd_step(i)
        """, options=["--python", level], odd_named="def odd_name(): pass\nodd_name()\n", odd_raises="raise ImportError\n", odd_unwanted="", **MODULES)
    assert chains(trace) == {
        ("odd_step", "<module>"): 6, ("odd_inner_is_called", "odd_step"): 1, ("import odd_outer", "odd_inner_is_called"): 1,
        ("import odd_inner", "import odd_outer"): 1, ("odd_called_later", "odd_inner_is_called"): 1, ("import odd_named", "odd_step"): 1,
        ("odd_name", "odd_step"): 1, ("import odd_package", "odd_step"): 1, ("import odd_package.odd_sub", "odd_step"): 1,
        ("odd_leaf", "odd_step"): 1, ("import odd_raises", "odd_step"): 1, ("odd_handles", "odd_step"): 1}


def test_an_import_that_fails_ends_and_what_follows_is_there(python, profiled):
    trace = profiled(python, """
        def odd_tries():
            for name in ("odd_raises", "odd_is_nowhere", "odd_around"):
                try:
                    __import__(name)
                except (ValueError, ImportError):
                    odd_handles()
        def odd_handles(): pass
        odd_tries()
        odd_handles()
        """, odd_raises="def odd_unseen(): raise ValueError\nodd_unseen()\n", odd_around="import odd_raises")
    assert chains(trace) == {("odd_tries", "<module>"): 1, ("import odd_raises", "odd_tries"): 1, ("import odd_is_nowhere", "odd_tries"): 1,
                             ("import odd_around", "odd_tries"): 1, ("import odd_raises", "import odd_around"): 1,
                             ("odd_handles", "odd_tries"): 3, ("odd_handles", "<module>"): 1}


def test_generators_that_run_in_an_import_go_on_after_it(python, profiled):
    trace = profiled(python, """
        import asyncio
        def odd_generator():
            for n in range(6):
                yield n
        generator = odd_generator()
        next(generator)
        import odd_drains
        next(generator)
        async def odd_task():
            import odd_loop
            await asyncio.sleep(0)
            odd_leaf()
        def odd_leaf(): pass
        asyncio.run(odd_task())
        """, odd_drains="import __main__\nassert next(__main__.generator) == 1\n", odd_loop="async def odd_never(): pass\nodd_never().close()\n")
    assert chains(trace)["odd_generator", "<module>"] == 2
    assert chains(trace)["import odd_loop", "odd_task"] == chains(trace)["odd_leaf", "odd_task"] == 1
    assert len([e for e in trace.spans("python_function") if bare(e["name"]) == "odd_task"]) == 2


# ---- what counts in full ---------------------------------------------------------------------------------------------------

def test_the_main_module_of_a_package_counts_in_full(python, run_torchprof, check_trace, program):
    program("def odd_of_package(): pass\nodd_of_package()\n", "odd_package/__init__.py")
    main = program("def odd_of_main(): pass\nodd_of_main()\n", "odd_package/__main__.py")
    run = run_torchprof([python.path, "-m", "odd_package"], cwd=main.parent.parent)
    assert run.status == 0, run.stderr
    counts = chains(check_trace(run.trace(), imports=True))
    assert counts["odd_of_main", "<module>"] == 1 and not [key for key in counts if key[0] == "odd_of_package"]
    assert [key for key in counts if key[0] == "import odd_package"]


def test_other_threads_count_in_full_while_one_imports(python, profiled):
    trace = profiled(python, """
        import threading
        begin, end = threading.Event(), threading.Event()
        def odd_work():
            begin.wait()
            for _ in range(50):
                odd_leaf()
            end.set()
        def odd_leaf(): pass
        thread = threading.Thread(target=odd_work)
        thread.start()
        import odd_waits
        thread.join()
        """, odd_waits="import __main__\n__main__.begin.set()\n__main__.odd_leaf()\n__main__.end.wait()\n")
    assert chains(trace)["odd_leaf", "odd_work"] == 50 and len([e for e in trace.spans("python_function") if bare(e["name"]) == "odd_leaf"]) == 50
    (imported,) = trace.named("import odd_waits")
    assert [e for e in trace.inside(imported, "python_function") if e["name"] != "Python GC"] == []


def test_a_program_that_is_imported_counts_in_full_after_many_calls(python, profiled):
    trace = profiled(python, "import odd_program", odd_program="""
        def odd_program_main():
            for _ in range(1_050_000):
                odd_leaf()
            odd_last()
        def odd_leaf(): pass
        def odd_last():
            import odd_lazy_module
        odd_program_main()
        """, odd_lazy_module="def odd_unseen(): pass\nodd_unseen()\n")
    counts = chains(trace)
    assert 45_000 < counts.pop(("odd_leaf", "odd_program_main")) < 60_000
    assert counts == {("import odd_program", "<module>"): 1, ("<module>", "_call_with_frames_removed"): 1, ("odd_program_main", "<module>"): 1,
                      ("odd_last", "odd_program_main"): 1, ("import odd_lazy_module", "odd_last"): 1}


# ---- torch: a training that is imported -------------------------------------------------------------------------------------

def begun(trace, name):
    """How often the function begins where it is recorded."""
    return len([e for e in trace.spans("python_function") if bare(e["name"]) == name and not e["args"].get("preexisting")])


def test_a_training_that_is_imported_counts_in_full_from_its_first_call_of_a_module(torch_python, run_torchprof, check_trace, program):
    training = program(textwrap.dedent("""
        import torch
        def odd_main():
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                odd_step(model, optimizer)
        def odd_step(model, optimizer):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            import odd_part_of_a_step
        odd_main()
        """), "odd_training.py")
    program("def odd_unseen(): pass\nodd_unseen()\n", "odd_part_of_a_step.py")
    run = run_torchprof([torch_python, "-c", "import odd_training"], cwd=training.parent)
    assert run.status == 0, run.stderr
    trace = check_trace(run.trace(), imports=True)
    assert begun(trace, "odd_step") == 4 and chains(trace)["odd_step", "odd_main"] == 5
    assert chains(trace)["import odd_part_of_a_step", "odd_step"] == 1 and begun(trace, "odd_unseen") == 0
    assert len(trace.named("nn.Module: Linear_0")) == 5 and len(trace.named("import torch")) == 1
    assert len([name for name, parent in trace.parents() if parent == "import torch"]) > 20


def test_operators_in_an_import_are_recorded_and_many_of_them_make_it_count_in_full(torch_python, run_torchprof, check_trace, program):
    training = program(textwrap.dedent("""
        import torch
        def odd_product(w): return w @ w
        w = torch.ones(4, 4)
        for _ in range(150): w = odd_product(w)
        """), "odd_training.py")
    run = run_torchprof([torch_python, "-c", "import odd_training"], cwd=training.parent)
    assert run.status == 0, run.stderr
    trace = check_trace(run.trace(), imports=True)
    (imported,) = trace.named("import odd_training")
    products = trace.named("aten::matmul")
    assert len(products) == 150 and all(imported["ts"] <= e["ts"] < imported["ts"] + imported["dur"] for e in products)
    assert begun(trace, "odd_product") == 51


# ---- torch.compile ---------------------------------------------------------------------------------------------------------

# Functions that are what the compiler's are to the recorder: by their files and their names.
COMPILER = """
DYNAMO = '''
def _compile(code, globals):
    def uses_code(): return code
    odd_traces(uses_code)
    compile_fx_inner(1_100_000)
    import odd_lazy
    odd_traces(uses_code)
def odd_traces(f): return f()
'''
INDUCTOR = '''
def compile_fx_inner(gm):
    for _ in range(gm): odd_lowers()
def odd_lowers(): pass
'''
for file, text in (("torch/_inductor/compile_fx.py", INDUCTOR), ("torch/_dynamo/convert_frame.py", DYNAMO)):
    exec(compile(text, "/odd/" + file, "exec"))

def odd_function(): pass
def odd_backward(): compile_fx_inner(3)
def odd_step():
    _compile(odd_function.__code__, globals())
    odd_function()
for _ in range(2): odd_step()
odd_backward()
"""


def test_the_compiler_is_in_brief_however_much_it_calls(python, profiled):
    trace = profiled(python, COMPILER, odd_lazy="def odd_unseen(): pass\nfor _ in range(1_100_000): odd_unseen()\n")
    spans = collections.Counter((bare(name), bare(parent)) for name, parent in trace.parents())
    assert {key: n for key, n in spans.items() if "odd" in key[0] or "odd" in str(key[1])} == {
        ("odd_step", "<module>"): 2, ("odd_function", "odd_step"): 2, ("compile odd_function", "odd_step"): 2,
        ("compile_fx_inner", "compile odd_function"): 2, ("compile_fx_inner", "odd_backward"): 1, ("odd_backward", "<module>"): 1,
        ("import odd_lazy", "compile odd_function"): 1}
    assert trace.names("python_function")["program.py(%d): compile odd_function" % (COMPILER[:COMPILER.index("def odd_function")].count("\n") + 1)] == 2


def test_the_compiler_in_full_has_every_function(python, profiled):
    trace = profiled(python, COMPILER.replace("1_100_000", "3"), options=["--imports", "full"], odd_lazy="")
    assert (begun(trace, "odd_traces"), begun(trace, "odd_lowers")) == (4, 9)
    # Python's own `re` has a function of this name, too.
    assert sum(n for name, n in trace.names("python_function").items() if re.search(r"convert_frame\.py.*: _compile$", name)) == 2
    assert not [name for name in trace.names("python_function") if "compile odd" in name]


COMPILES = """
import torch
@torch.compile
def odd_loss(w, x): return (x @ w).relu().sum()
w, x = torch.ones(8, 8, requires_grad=True), torch.ones(4, 8)
for _ in range(3): odd_loss(w, x).backward()
"""


def test_a_program_that_compiles_stays_below_its_budget(torch_python, run_torchprof, check_trace, program):
    if torch_here()[0] < (2, 0):
        pytest.skip("there is no torch.compile before torch 2")
    run = run_torchprof([torch_python, program(COMPILES)],
                        env={"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"})
    assert run.status == 0, run.stderr
    # PyPI's torch tries in processes of their own what the compiler can make of the processor.
    (trace,) = [check_trace(t, imports=True) for t in run.traces() if t.names("cpu_op")]
    (compiled,) = [e for e in trace.spans("python_function") if bare(e["name"]) == "compile odd_loss"]
    graphs = [e for e in trace.spans("python_function") if bare(e["name"]) == "compile_fx_inner"]
    assert len(graphs) == 2 and len([e for e in trace.inside(compiled, "python_function") if e in graphs]) == 1
    assert sum(trace.names("python_function").values()) < 100_000


# ---- windows and processes -------------------------------------------------------------------------------------------------

def test_a_window_that_opens_in_an_import_has_the_span_of_the_import(python, profiled, launcher):
    trace = profiled(python, "import odd_around\ndef odd_after(): pass\nodd_after()\n", options=["-w", "manual"], arguments=[launcher],
                     odd_around="def odd_unseen(): pass\nimport odd_opens\nodd_unseen()\n", odd_opens="""
        import os, subprocess, sys
        def odd_unseen(): pass
        subprocess.run([sys.argv[1], "ctl", str(os.getpid()), "start"], check=True)
        odd_unseen()
        """)
    assert chains(trace) == {("import odd_around", "<module>"): 1, ("import odd_opens", "import odd_around"): 1, ("odd_after", "<module>"): 1}
    assert all(e["args"]["preexisting"] for e in trace.spans("python_function") if e["name"].startswith("import odd_"))


def test_a_child_that_is_forked_in_an_import_is_in_that_import(python, run_torchprof, check_trace, program):
    program("""import os
def odd_unseen(): pass
child = os.fork()
odd_unseen()
if child: os.waitpid(child, 0)
""", "odd_forks.py")
    run = run_torchprof([python.path, program("import odd_forks\ndef odd_after(): pass\nodd_after()\n")])
    assert run.status == 0, run.stderr
    traces = [check_trace(trace, imports=True) for trace in run.traces()]
    assert [chains(trace) for trace in traces] == [{("import odd_forks", "<module>"): 1, ("odd_after", "<module>"): 1}] * 2
