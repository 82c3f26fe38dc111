"""Each of scenarios.py under torchprof and, in another process, under torch.profiler: equal operators with their inputs, sequence numbers,
forward-backward flows and memory.

BY_DESIGN is all that is allowed to differ, each with its reason.
"""
import collections
import json
import re
import subprocess

import pytest

import recordings
from conftest import PATIENCE, SUPPORT, clean_environment, profile, torch_here

SCRIPT = SUPPORT / "scenarios.py"
SCENARIOS = re.findall(r"(?m)^@scenario\ndef (\w+)", SCRIPT.read_text())
LISTS = ("dims", "types", "strides", "concrete")  # an entry for each input
INPUTS = (*LISTS, "overload")


# ---- what differs by design ---------------------------------------------------------------------------------------------
# Each function takes (ours, theirs) and removes one difference from both, and no other.

def without_kineto(ours, theirs):
    """Its events have no strides and values, no types of lists of numbers and no sizes of lists of tensors, and have nothing where we have []."""
    for o in ours.operators + ours.on_python_threads + theirs.operators:
        o.strides = o.concrete = None
        o.dims = [[] if size and isinstance(size[0], list) else size for size in o.dims or []]
        o.types = ["" if kind == "ScalarList" else kind for kind in o.types or []]


def overloads(ours, theirs):
    for recording in (ours, theirs):
        for o in recording.operators:
            o.overload = None


def marks_of_steps(ours, theirs):
    ours.operators = [o for o in ours.operators if not re.fullmatch(r"ProfilerStep#\d+", o.name)]


def inputs(o):
    return json.dumps([getattr(o, key) for key in LISTS])


def interpreter_stack(ours, theirs):
    """Keeps only the last inputs of theirs, if these are the inputs of an operator of ours."""
    known = collections.defaultdict(set)
    for o in ours.operators:
        known[o.name].add(inputs(o))
    for o in theirs.operators:
        for skipped in range(len(o.dims or [])):
            rest = [None if getattr(o, key) is None else getattr(o, key)[skipped:] for key in LISTS]
            if json.dumps(rest) in known[o.name]:
                o.dims, o.types, o.strides, o.concrete = rest
                break


def long_lists(ours, theirs):
    """Nothing of lists of more than 30 tensors."""
    for o in ours.operators:
        for i, kind in enumerate(o.types or []):
            left_out = o.args.get("Inputs left out", [0] * len(o.types))[i]
            if kind == "TensorList" and len(o.dims[i]) + left_out > 30:
                o.dims[i] = o.strides[i] = []


def weak_references(ours, theirs):
    for recording in (ours, theirs):
        recording.allocations = [a for a in recording.allocations if a.bytes > 0]


def gated_ranges(ours, theirs):
    gated = ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue")
    for recording in (ours, theirs):
        recording.operators = [o for o in recording.operators if o.name not in gated]


def whose_thread(ours, theirs):
    """All on one thread; frees are not counted, and allocations belong to no operator."""
    for recording in (ours, theirs):
        recording.allocations = [a for a in recording.allocations if a.bytes > 0]
        for o in recording.operators:
            o.thread = o.sequence = None
        for a in recording.allocations:
            a.thread = "whichever"


def threads_of_gloo(ours, theirs):
    for recording in (ours, theirs):
        recording.operators = [o for o in recording.operators if o.thread == recording.main_thread]
        recording.allocations = [a for a in recording.allocations if a.thread == recording.main_thread and a.bytes > 0]


HAS_KINETO, HAS_NONE = (lambda torch, kineto: kineto), (lambda torch, kineto: not kineto)
ALWAYS = lambda torch, kineto: True  # noqa: E731
# (what is removed, in which scenarios, with which torch, the reason)
BY_DESIGN = [
    (without_kineto, SCENARIOS, HAS_NONE, "torch was built without Kineto: what torch.profiler keeps is less"),
    (overloads, SCENARIOS, lambda torch, kineto: torch < (2, 7), "torch.profiler has no overloads before torch 2.7, we have those of every torch"),
    (marks_of_steps, SCENARIOS, ALWAYS, "torch.profiler marks steps where the program calls its step(), we mark an optimizer's as well"),
    (interpreter_stack, ["torchscript", "cpp_threads", "tensors_of_all_kinds"], ALWAYS,
     "torch.profiler takes all that lies on the interpreter's stack for inputs of a boxed call; we take the operator's own"),
    (long_lists, ["lists_of_many_tensors"], HAS_KINETO, "torch.profiler leaves out the sizes of a list of more than 30 tensors; we keep those that fit"),
    (weak_references, ["tensors_of_all_kinds"], HAS_KINETO,
     "torch.profiler's weak references keep alive what sparse tensors and functorch's wrappers hold, until it stops"),
    (gated_ranges, ["compiled"], lambda torch, kineto: torch >= (2, 7), "torch makes these ranges only while its own profiler is on"),
    (whose_thread, ["cpp_threads"], ALWAYS, "which thread runs what, and where memory is freed, is another in each run"),
    (threads_of_gloo, ["ddp_over_gloo"], ALWAYS,
     "torch.profiler is not told of gloo's own threads; and who is the last to let go of a tensor is another in each run"),
]


# ---- the tests ----------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def runs(launcher, torch_python, tmp_path_factory):
    """(the run under torchprof, {scenario: its trace}, where torch.profiler wrote, {scenario: why it failed}): all scenarios, under both at the
    same time."""
    directory = tmp_path_factory.mktemp("scenarios")
    names = [name for name in SCENARIOS if torch_here()[0] >= (2, 0) or name != "compiled"]
    (directory / "theirs").mkdir()
    (directory / "ours").mkdir()
    with open(directory / "errors", "wb") as errors:
        theirs = subprocess.Popen([torch_python, SCRIPT, directory / "theirs", "theirs", *names], env=clean_environment(), stdout=errors, stderr=errors)
        run = profile(launcher, directory / "run", [torch_python, SCRIPT, directory / "ours", *names], options=["--python", "off"])
        theirs.wait(PATIENCE)
    failed = {}
    for status, said in (run.status, run.stderr), (theirs.returncode, (directory / "errors").read_text()):
        named = re.search(r"(?m)^failed: (.*)$", said)
        assert status == (1 if named else 0), said
        failed.update(dict.fromkeys(named[1].split() if named else (), said))
    traces = {e["name"][len(recordings.WINDOW):]: trace for trace in run.traces() for e in trace.spans("user_annotation")
              if e["name"].startswith(recordings.WINDOW)}
    return run, traces, directory / "theirs", failed


@pytest.fixture(scope="module")
def record(runs):
    """record(NAME): what (torchprof, torch.profiler) recorded."""
    def read(name):
        if name == "compiled" and torch_here()[0] < (2, 0):
            pytest.skip("there is no torch.compile before torch 2")
        assert name not in runs[3], runs[3][name]
        return recordings.of_trace(runs[1][name]), recordings.of_file(runs[2] / (name + ".json"))
    return read


@pytest.fixture(params=SCENARIOS, scope="module")
def both(request, record):
    """(our recording, torch.profiler's) without what differs by design."""
    ours, theirs = record(request.param)
    for remove, scenarios, applies, _ in BY_DESIGN:
        if request.param in scenarios and applies(*torch_here()):
            remove(ours, theirs)
    assert ours.operators
    return ours, theirs


def counted(operators, *keys):
    return collections.Counter((o.name, *(json.dumps(getattr(o, key)) for key in keys)) for o in operators)


def test_operators_are_the_same_and_as_many(both):
    ours, theirs = (counted(recording.operators, "is_annotation") for recording in both)
    assert ours == theirs


@pytest.mark.parametrize("what", INPUTS)
def test_inputs_of_operators_are_the_same(both, what):
    ours, theirs = (counted(recording.operators, what) for recording in both)
    assert ours - theirs == theirs - ours == collections.Counter()


def test_sequence_numbers_have_the_same_structure(both):
    ours, theirs = both
    assert ours.sequences() == theirs.sequences()
    assert ours.order_of_sequences() == theirs.order_of_sequences()


def test_forward_and_backward_are_joined_in_the_same_way(both):
    ours, theirs = both
    assert ours.joined == theirs.joined


def test_operators_allocate_and_free_the_same_bytes(both):
    ours, theirs = both
    assert ours.memory_by_operator() == theirs.memory_by_operator()


def what_is_compared(recording):
    return [counted(recording.operators, "is_annotation", *INPUTS), recording.sequences(), recording.order_of_sequences(), recording.joined,
            recording.memory_by_operator()]


# A difference that is not in every run may be missing by chance.
@pytest.mark.parametrize("row", [row for row in BY_DESIGN if "in each run" not in row[3]], ids=lambda row: row[0].__name__)
def test_each_difference_by_design_is_one(record, row):
    applicable = [r for r in BY_DESIGN if r[2](*torch_here())]
    if row not in applicable:
        pytest.skip("not with this torch")

    def differs(name):
        ours, theirs = record(name)
        for remove, scenarios, *_ in applicable:
            if name in scenarios and remove is not row[0]:
                remove(ours, theirs)
        return what_is_compared(ours) != what_is_compared(theirs)
    assert any(differs(name) for name in row[1])


def test_the_traces_of_all_processes_keep_the_rules(runs, check_trace):
    run, traces, _, failed = runs
    assert not failed
    assert len(run.trace_paths) > len(traces)  # that of the other rank, of a worker
    for path in run.trace_paths:
        check_trace(path)
    check_trace(run.merged_path, merged=True)


def test_each_of_eight_threads_has_what_torch_profiler_has_of_the_one_that_it_sees(record):
    ours, theirs = record("eight_threads")
    if not torch_here()[1]:
        without_kineto(ours, theirs)
    by_thread = collections.defaultdict(list)
    for o in ours.on_python_threads:
        by_thread[o.thread].append(o)
    assert len(by_thread) == 8
    for operators in by_thread.values():
        assert counted(operators, "dims", "types") == counted(theirs.operators, "dims", "types")


VALIDATE = """
import sys
from torch.profiler._trace_validator import validate_trace
for path in sys.argv[1:]:
    for violation in validate_trace(path)[1]:
        print(path, violation)
"""


def test_torch_itself_finds_nothing_wrong_with_the_traces(runs, torch_python):
    if torch_here()[0] < (2, 7):
        pytest.skip("torch validates traces from 2.7 on")
    done = subprocess.run([torch_python, "-c", VALIDATE, *runs[0].trace_paths], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
