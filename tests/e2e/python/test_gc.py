"""Python's garbage collections are slices of the thread that they interrupt, and the program's own gc.callbacks are as without us."""
import textwrap

import pytest


@pytest.fixture
def profiled(run_torchprof, check_trace, program):
    """profiled(PYTHON, TEXT): (the run, its trace)"""
    def run(python, text):
        run = run_torchprof([python.path, program(textwrap.dedent(text))])
        assert run.status == 0, run.stderr
        return run, check_trace(run.trace())
    return run


def test_a_collection_is_a_slice_with_its_generation_and_what_it_found(python, profiled):
    _, trace = profiled(python, """
        import gc
        gc.collect()
        gc.disable()
        class Circle:
            def __init__(self): self.me = self
            def __del__(self): deleted()
        def deleted(): pass
        def collects(): gc.collect(1)
        Circle(), Circle()
        collects()
        """)
    (collects,) = [e for e in trace.spans("python_function") if e["name"].endswith("): collects")]
    (collection,) = [e for e in trace.inside(collects, "python_function") if e["name"] == "Python GC"]
    assert collection["args"]["generation"] == 1 and collection["args"]["collected"] >= 2
    assert len([e for e in trace.inside(collection, "python_function") if e["name"].endswith("): deleted")]) == 2


CALLBACKS = """
    import gc, sys
    def one(phase, info): seen.append(("one", phase, info["generation"]))
    def two(phase, info): raise KeyError("of the program")
    seen = []
    print(gc.callbacks, sys.getrefcount(gc.callbacks), len(gc.get_referrers(gc.callbacks)))
    gc.callbacks.append(one)
    gc.collect()
    gc.callbacks.insert(0, two)
    sys.unraisablehook = lambda e: print(e.object is two, str(e.err_msg).split(" at ")[0], repr(e.exc_value))
    gc.collect()
    gc.callbacks.clear()
    gc.collect()
    del sys.modules["gc"]
    import gc as again
    print(seen, gc.callbacks, again.callbacks, again.callbacks is gc.callbacks)
    """


def test_the_programs_callbacks_are_called_as_without_us(python, run_torchprof, run_bare, program):
    path = program(textwrap.dedent(CALLBACKS))
    run, bare = run_torchprof([python.path, path]), run_bare([python.path, path])
    assert run.status == 0, run.stderr
    assert run.stdout == bare.stdout.decode()
