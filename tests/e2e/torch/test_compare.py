"""The same program under torchprof and under torch.profiler: the same operators, annotations, flows and Python calls, as often."""
import collections
import functools
import json
import re
import subprocess

import pytest

from conftest import ROOT, SUPPORT, clean_environment, profile, torch_here
from trace_rules import recorded

UNDER_TORCH_PROFILER = SUPPORT / "under_torch_profiler.py"
PROGRAMS = {
    "cnn": ("cnn.py", "--steps", "5"),
    "cnn with workers": ("cnn.py", "--steps", "5", "--workers", "2"),
    "transformer": ("transformer.py", "--steps", "4"),
    "mixed": ("mixed.py",),
}
USER_SCOPE = 7


# Which Python functions run there depends on which thread waits for which, and when.
WITHOUT_WORKERS = pytest.mark.parametrize("both", [name for name in PROGRAMS if name != "cnn with workers"], indirect=True)


@pytest.fixture(scope="module")
def record(launcher, torch_python, tmp_path_factory):
    """record(NAME) runs a program of PROGRAMS under both, the first time that it is asked for."""
    @functools.lru_cache(None)
    def run(name):
        script, *arguments = PROGRAMS[name]
        command = [ROOT / "examples" / script, *arguments]
        # From 2 on torch imports parts of itself in a program's first steps, which torch.profiler shows in full.
        imports = ["--imports", "full"] if torch_here()[0] >= (2, 0) else []
        directory = tmp_path_factory.mktemp("both")
        out = directory / "theirs.json"
        run = profile(launcher, directory / "run", [torch_python, UNDER_TORCH_PROFILER, "off", out, *command], options=["-w", "all", "--python", "calls", *imports])
        assert run.status == 0, run.stderr
        theirs = [subprocess.run([torch_python, UNDER_TORCH_PROFILER, "stacks", out, *command], env=clean_environment(), capture_output=True)]
        if theirs[0].returncode < 0:  # torch.profiler 2.6 with stacks dies of Python 3.13
            theirs.append(subprocess.run([torch_python, UNDER_TORCH_PROFILER, "flat", out, *command], env=clean_environment(), capture_output=True))
        assert theirs[-1].returncode == 0, theirs[-1].stderr.decode()
        # Worker processes have `main` on their stack as well, but they do not optimize.
        training, = (t for t in run.traces() if t.names("user_annotation")["mixed outer"] or t.names("user_annotation")["train_step"])
        return training, json.loads(out.read_text())
    return run


@pytest.fixture(params=PROGRAMS)
def both(request, record):
    """(our trace of the process that trains, what torch.profiler recorded of it)"""
    return record(request.param)


def main_span(ours):
    spans = [e for e in ours.spans("python_function") if re.search(r"/examples/\w+\.py\(\d+\): main$|^\w+\.py\(\d+\): main$", e["name"])]
    assert len(spans) == 1, [e["name"] for e in spans]
    return spans[0]


def seen_by_torch_profiler(ours, *categories):
    """Our slices during main() on the threads that torch.profiler sees: those that were not started by Python."""
    main = main_span(ours)
    started = {e["tid"] for e in ours.spans("python_function") if re.search(r"threading\.py\(\d+\): _bootstrap$", e["name"])}
    return [e for e in ours.spans(*categories)
            if e["tid"] not in started and main["ts"] <= e["ts"] and e["ts"] + e["dur"] <= main["ts"] + main["dur"]]


# We show an optimizer's step as the optimizer's, torch.profiler as the function that torch wraps around it.
STEP = "torch/optim/optimizer.py: wrapper"


def walk(tree):
    for kind, name, thread, children in tree:
        yield kind, name, thread, children
        yield from walk(children)


def main_call(theirs):
    if theirs["tree"] is None:
        pytest.skip("torch.profiler itself crashes here when it records stacks")
    call, = (row for row in walk(theirs["tree"]) if row[0] == "python" and row[1].endswith("): main"))
    return call


# How often a lock is looked at there depends on which thread comes first.
UNSTEADY = "): use_threads"


def in_main_of_theirs(theirs, kind):
    def steady(tree):
        return [[k, name, thread, steady(children)] for k, name, thread, children in tree if not name.endswith(UNSTEADY)]
    return [name for k, name, *_ in walk(steady(main_call(theirs)[3])) if k == kind]


def in_main_of_ours(ours):
    main = main_span(ours)
    unsteady = [(e["ts"], e["ts"] + e["dur"]) for e in ours.inside(main, "python_function") if e["name"].endswith(UNSTEADY)]
    return [e["name"] for e in ours.inside(main, "python_function")
            if not any(begin <= e["ts"] and e["ts"] + e["dur"] <= end for begin, end in unsteady)]


def is_python(name):
    return bool(re.search(r"\(\d+\): ", name)) or name.startswith(("nn.Module: ", "Optimizer: "))


def without_line(name):
    """torch.profiler names the line at which a frame stands when it is entered; for generators that is not where they begin."""
    return re.sub(r"\(\d+\): ", ": ", name)


def without_object(name):
    """torch.profiler looks at a method once, so the object and the class that it names are the first that it met."""
    return re.sub(r" of .*", "", name)


def forward_backward_pairs(operators):
    """torch.profiler's own rule, applied to what it recorded: operators in the order in which they end; the forward operator of a sequence
    number is the one that began last; the first backward operator takes it."""
    forward, pairs = {}, collections.Counter()
    for name, _, thread, forward_thread, sequence, start, end in sorted(operators, key=lambda row: row[6]):
        if sequence < 0:
            continue
        if not forward_thread:
            key = thread, sequence
            if key not in forward or start >= forward[key][0]:
                forward[key] = start, name
        elif (forward_thread, sequence) in forward:
            pairs[forward.pop((forward_thread, sequence))[1], name] += 1
    return pairs


def test_operators_are_the_same_and_as_many(both):
    ours, theirs = both
    assert collections.Counter(e["name"] for e in seen_by_torch_profiler(ours, "cpu_op")) == collections.Counter(
        row[0] for row in theirs["operators"] if row[1] != USER_SCOPE)


def test_annotations_are_the_same_and_as_many(both):
    ours, theirs = both
    made_here = "Step ends with"  # torch.profiler marks steps only where the program calls its step()
    assert collections.Counter(e["name"] for e in seen_by_torch_profiler(ours, "user_annotation") if made_here not in e["args"]) == collections.Counter(
        row[0] for row in theirs["operators"] if row[1] == USER_SCOPE)


def test_forward_and_backward_operators_are_joined_in_the_same_way(both):
    ours, theirs = both
    assert ours.flows("fwdbwd") == forward_backward_pairs(theirs["operators"])


@WITHOUT_WORKERS
def test_python_functions_and_modules_are_called_as_often(both):
    ours, theirs = both
    names = [re.sub(r"^Optimizer: \w+$", STEP, name) for name in in_main_of_ours(ours) if is_python(name)]
    assert collections.Counter(map(without_line, names)) == collections.Counter(map(without_line, in_main_of_theirs(theirs, "python")))


@WITHOUT_WORKERS
def test_c_functions_are_called_as_often(both):
    ours, theirs = both
    names = [name for name in in_main_of_ours(ours) if not is_python(name) and name != "Python GC"]  # theirs is off
    assert collections.Counter(map(without_object, names)) == collections.Counter(map(without_object, in_main_of_theirs(theirs, "c")))


def test_operators_lie_in_the_same_python_functions(both):
    ours, theirs = both
    assert operators_by_caller_in_ours(ours) == operators_by_caller_in_theirs(theirs)


def operators_by_caller_in_theirs(theirs):
    """Only on main()'s thread: torch.profiler gives Python calls of other threads wrong parents."""
    main = main_call(theirs)
    counts = collections.Counter()

    def visit(tree, caller):
        for kind, name, thread, children in tree:
            if kind == "op" and thread == main[2]:
                counts[caller, name] += 1
            visit(children, without_line(name) if kind == "python" else caller)
    visit([main], None)
    return counts


def operators_by_caller_in_ours(ours):
    """By recorded times: the function that begins or ends a range is drawn beside it, and torch 1.13 makes a tensor in there."""
    main = main_span(ours)
    counts, stack = collections.Counter(), []
    spans = [e for e in [main] + ours.inside(main, "python_function", "cpu_op") if e["cat"] == "cpu_op" or is_python(e["name"])]
    timed = [([round(1000 * t) for t in recorded(e)], e) for e in spans]
    for (begin, end), e in sorted(timed, key=lambda span: (span[0][0], -span[0][1])):
        stack = [(until, name) for until, name in stack if until > begin]
        if e["cat"] == "cpu_op":
            counts[re.sub(r"^Optimizer: \w+$", STEP, without_line(stack[-1][1])), e["name"]] += 1
        else:
            stack.append((end, e["name"]))
    return counts