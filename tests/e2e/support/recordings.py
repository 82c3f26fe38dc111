"""What a profiler recorded of `the window` of one of scenarios.py, in a form in which torchprof's trace, torch.profiler's and the list of its events
can be compared: operators, and allocations with the innermost operator around each.

Numbers that are free to differ are not in it: process and thread ids, times and addresses. Sequence numbers are kept as they are.
"""
import collections
import copy
import dataclasses
import json
import re

import trace_rules

WINDOW = "the window of "
PYTHON_THREAD = "python thread"


@dataclasses.dataclass
class Operator:
    name: str
    is_annotation: bool
    thread: object           # whatever tells threads apart
    start: float
    end: float
    dims: object             # None: not recorded, as without arguments
    types: object
    strides: object
    concrete: object
    sequence: object         # None or a number
    fwd_thread: object       # None, or on a backward operator torch's number of the thread of its forward operator
    overload: str
    args: dict


@dataclasses.dataclass
class Allocation:
    thread: object
    time: float
    bytes: int               # negative: a free
    address: int
    operator: str = None     # the innermost one around it on its thread


class Recording:
    """`joined` counts the (forward operator, backward operator) that a flow joins."""

    def __init__(self, operators, allocations, find_joined):
        window, = (o for o in operators if o.name.startswith(WINDOW))
        self.main_thread = window.thread
        of_python = {o.thread: o for o in operators if o.name == PYTHON_THREAD}
        inside = sorted((o for o in operators if o is not window and window.start <= o.start <= window.end), key=lambda o: (o.start, -o.end))
        self.on_python_threads = [o for o in inside if o.thread in of_python and of_python[o.thread].start < o.start <= of_python[o.thread].end]
        self.operators = [o for o in inside if o.thread not in of_python]
        self.allocations = freed_inside([a for a in allocations if window.start <= a.time <= window.end and a.thread not in of_python])
        self.joined = find_joined(self.operators)

    def memory_by_operator(self):
        """{operator: (bytes allocated, bytes freed)}"""
        sums = collections.defaultdict(lambda: [0, 0])
        find_operators(self.operators, self.allocations)
        for a in self.allocations:
            sums[a.operator][a.bytes < 0] += abs(a.bytes)
        return {name: tuple(both) for name, both in sums.items()}

    def sequences(self):
        """How often each group of operators comes that has one sequence number, in order; the numbers count from wherever the process was."""
        groups = collections.defaultdict(list)
        for o in self.operators:
            if o.sequence is not None:
                groups[o.thread, o.fwd_thread, o.sequence].append(o.name)
        return collections.Counter((key[1] is not None, *names) for key, names in groups.items())

    def order_of_sequences(self):
        """The main thread's operators that have a sequence number; numbers count from 0, in the order in which they come."""
        numbers = {}
        return [(o.name, numbers.setdefault((o.fwd_thread, o.sequence), len(numbers)))
                for o in self.operators if o.sequence is not None and o.thread == self.main_thread]


def freed_inside(allocations):
    """Without the frees of what was allocated earlier: of those torch.profiler does not know."""
    live, kept = set(), []
    for a in sorted(allocations, key=lambda a: a.time):
        if a.bytes > 0:
            live.add(a.address)
        elif a.address in live:
            live.remove(a.address)
        else:
            continue
        kept.append(a)
    return kept


def find_operators(operators, allocations):
    by_thread = collections.defaultdict(list)
    for o in operators:
        by_thread[o.thread].append((o.start, 0, o))
    for a in allocations:
        by_thread[a.thread].append((a.time, 1, a))
    for events in by_thread.values():
        open_operators = []
        # An operator that begins where another ends is not in it; of two that begin together the longer one is outside.
        for _, is_allocation, e in sorted(events, key=lambda row: (row[0], row[1], 0 if row[1] else -row[2].end)):
            while open_operators and open_operators[-1].end < (e.time if is_allocation else e.start):
                open_operators.pop()
            if is_allocation:
                e.operator = open_operators[-1].name if open_operators else None
            else:
                open_operators.append(e)


def of_trace(trace):
    """A trace file, of either. torch.profiler, asked for overloads, has them in the name: aten::add.Tensor."""
    operators = []
    for e in trace.spans("cpu_op", "user_annotation"):
        args = copy.deepcopy(e["args"])  # the trace may be read again
        if with_overload := re.fullmatch(r"(\w+::\w+)\.(\w+)", e["name"]):
            e["name"], args["Overload name"] = with_overload.groups()
        operators.append(Operator(e["name"], e["cat"] == "user_annotation", e["tid"], e["ts"], e["ts"] + e["dur"], args.get("Input Dims"),
                                  args.get("Input type"), args.get("Input Strides"), args.get("Concrete Inputs"),
                                  args.get("Sequence number"), args.get("Fwd thread id") or None, args.get("Overload name", ""), args))
    allocations = [Allocation(e["tid"], e["ts"], e["args"]["Bytes"], e["args"]["Addr"]) for e in trace.events if e["name"] == "[memory]"]

    def joined(wanted):
        starts = {(o.thread, o.start) for o in wanted}
        return trace.flows("fwdbwd", lambda e: (e["tid"], e["ts"]) in starts)
    return Recording(operators, allocations, joined)


def of_events(path):
    """What scenarios.py writes where torch has no Kineto."""
    operators, allocations = [], []
    for kind, name, thread, start, end, more in json.loads(path.read_text()):
        if kind == "TorchOp":
            operators.append(Operator(name, more["scope"].endswith("USER_SCOPE"), thread, start, end, more["dims"], more["types"], None, None,
                                      more["sequence"] if more["sequence"] >= 0 else None, more["fwd_thread"] or None, None, more))
        elif kind == "Allocation":
            allocations.append(Allocation(thread, start, more["bytes"], more["address"]))
    return Recording(operators, allocations, forward_backward_pairs)


def forward_backward_pairs(operators):
    """torch.profiler's own rule, applied to what it recorded: operators in the order in which they end; the forward operator of a sequence
    number is the one that began last; the first backward operator takes it."""
    forward, pairs = {}, collections.Counter()
    for o in sorted(operators, key=lambda o: o.end):
        if o.sequence is None:
            continue
        if o.fwd_thread is None:
            key = o.args["torch_thread"], o.sequence
            if key not in forward or o.start >= forward[key].start:
                forward[key] = o
        elif (o.fwd_thread, o.sequence) in forward:
            pairs[forward.pop((o.fwd_thread, o.sequence)).name, o.name] += 1
    return pairs


def of_file(path):
    return of_events(path) if path.read_bytes()[:2] == b"[[" else of_trace(trace_rules.Trace(path))
