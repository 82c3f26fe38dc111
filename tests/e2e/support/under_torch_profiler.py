"""usage: under_torch_profiler.py stacks|flat|off OUT.json SCRIPT [ARG...]: runs a script as `python3 SCRIPT ARG...` would, under
torch.profiler with stacks or without; off: in the same way, but without torch.profiler.

OUT.json holds what was recorded, before any export:
    operators   [[name, scope, torch thread, forward thread, sequence number, start, end], ...]
    tree        with stacks alone: [[kind, name, torch thread, [child, ...]], ...], kind "op", "annotation", "python" or "c"

A Python function's line in the tree is the one at which the frame stood, so a generator that is resumed has the line of its yield.
Threads that Python starts are not there: torch.profiler sees its own thread and those of autograd.
"""
import contextlib
import json
import os
import sys
import types

import torch

KINDS = {"TorchOp": "op", "PyCall": "python", "PyCCall": "c"}
USER_SCOPE = 7


def all_of(events):
    for e in events:
        yield e
        yield from all_of(e.children)


def operators(results):
    events = [e for e in results.events() if not hasattr(e, "activity_type") or e.activity_type() in ("cpu_op", "user_annotation")]
    if hasattr(events[0], "start_ns"):
        times = [(e.start_ns(), e.end_ns()) for e in events]
    else:  # torch 1: these have microseconds, the tree has nanoseconds; both are in order of time
        precise = sorted((e for e in all_of(results.experimental_event_tree()) if KINDS.get(str(e.tag).rpartition(".")[2]) == "op"),
                         key=lambda e: e.start_time_ns)
        assert [e.name() for e in events] == [p.name for p in precise]
        times = [(p.start_time_ns, p.end_time_ns) for p in precise]
    return [[e.name(), int(e.scope()), e.start_thread_id(), e.fwd_thread_id(), e.sequence_nr(), *time] for e, time in zip(events, times)]


def name_of(event):
    try:
        return event.name
    except UnicodeDecodeError:  # of a code object that is gone
        return "?"


def tree(events):
    rows = []
    for e in events:
        kind = KINDS.get(str(e.tag).rpartition(".")[2])
        if kind == "op" and str(e.extra_fields.scope).endswith("USER_SCOPE"):
            kind = "annotation"
        children = tree(e.children)
        rows.extend([[kind, name_of(e), e.start_tid, children]] if kind else children)
    return rows


def record():
    mode, out, script = sys.argv[1:4]
    sys.argv = sys.argv[3:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    # Module and code stay alive until the names were read: torch.profiler 1.13 keeps pointers to them.
    sys.modules["__main__"] = program = types.ModuleType("__main__")
    program.__file__ = script
    with open(script) as text:
        code = compile(text.read(), script, "exec")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        pass  # what it imports and looks up at its first use is then there in all modes
    status = 0
    profiler = None
    if mode != "off":
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=mode == "stacks")
    with profiler or contextlib.nullcontext():
        try:
            exec(code, program.__dict__)
        except SystemExit as end:
            status = end.code
    if not profiler:
        return status
    sys.setrecursionlimit(10000)
    results = profiler.profiler.kineto_results
    recorded = {"operators": operators(results), "tree": tree(results.experimental_event_tree()) if mode == "stacks" else None}
    with open(out, "w") as file:
        json.dump(recorded, file)
    return status


if __name__ == "__main__":
    sys.exit(record())
