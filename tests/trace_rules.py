"""A trace file as its readers see it, and the rules that they need kept.

Written for the tests alone, from what Kineto writes and what Perfetto, HTA, Chakra and torch's own tools read; it shares nothing
with the writer under test. Each rule is a function that takes a Trace and yields a line for each time the rule is broken.
"""
import bisect
import collections
import copy
import gzip
import heapq
import json
import pathlib
import re

CPU_CATEGORIES = {"cpu_op", "user_annotation", "python_function"}
# ts and dur have three decimals: two ends that should meet may differ by one unit of the last place each.
ROUNDING_US = 0.0021


class Trace:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        raw = self.path.read_bytes()
        self.text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
        self.doc = json.loads(self.text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)
        self.use(self.doc["traceEvents"])

    def use(self, events):
        self.events = events
        self._spans = None  # by category, with their places

    @property
    def pid(self):
        """The process of a trace of one process."""
        pids = {e["pid"] for e in self.events if e["ph"] == "M" and e["name"] == "process_labels" and str(e["args"].get("labels")).split(",")[0] == "CPU"}
        assert len(pids) == 1, "%s: process ids %s" % (self.path, pids)
        return pids.pop()

    def spans(self, *categories):
        if self._spans is None:
            self._spans = collections.defaultdict(list)
            for n, e in enumerate(self.events):
                if e.get("ph") == "X":
                    self._spans[e.get("cat")].append((n, e))
        found = [self._spans[category] for category in set(categories)]
        return [e for _, e in (found[0] if len(found) == 1 else heapq.merge(*found, key=lambda span: span[0]))]

    def names(self, *categories):
        """How often each name comes."""
        return collections.Counter(e["name"] for e in self.spans(*categories))

    def named(self, name, *categories):
        return [e for e in self.spans(*(categories or CPU_CATEGORIES)) if e["name"] == name]

    def inside(self, span, *categories):
        """The spans of the same thread that lie in `span`, without itself."""
        begin, end = span["ts"], span["ts"] + span["dur"]
        return [e for e in self.spans(*categories)
                if e is not span and (e["pid"], e["tid"]) == (span["pid"], span["tid"])
                and begin - ROUNDING_US <= e["ts"] and e["ts"] + e["dur"] <= end + ROUNDING_US]

    def without_imports(self):
        """The same trace without the Python calls inside of long imports: a million in that of torch, which are no different from others."""
        imports = [e for e in self.spans("python_function") if e["dur"] > 50_000 and "_find_and_load" in e["name"]]
        begins, ends = collections.defaultdict(list), collections.defaultdict(list)  # of the outermost, by thread
        for e in sorted(imports, key=lambda e: (e["ts"], -e["dur"])):
            row = e["pid"], e["tid"]
            if not ends[row] or _end(e) > ends[row][-1]:
                begins[row].append(e["ts"])
                ends[row].append(_end(e))

        def is_inside(e):
            row = e["pid"], e["tid"]
            before = bisect.bisect_left(begins[row], e["ts"])
            return before > 0 and e["ts"] < ends[row][before - 1]
        kept = copy.copy(self)
        kept.use([e for e in self.events if e.get("cat") != "python_function" or not is_inside(e)])
        return kept

    def parents(self):
        """For each python_function the name of its parent, by parent id: a list of (name, name of parent or None)."""
        by_id = {e["args"]["Python id"]: e for e in self.spans("python_function")}
        return [(e["name"], by_id[p]["name"] if (p := e["args"].get("Python parent id")) is not None else None)
                for e in by_id.values()]

    def flows(self, category, starting=lambda event: True):
        """How often each pair of slices (name where it starts, name where it ends) is joined; `starting` picks them by their start."""
        at = collections.defaultdict(list)
        for e in self.spans("cpu_op", "user_annotation"):
            at[e["pid"], e["tid"], e["ts"]].append(e["name"])
        ends = collections.defaultdict(dict)
        for e in self.events:
            if e.get("ph") in ("s", "f") and e.get("cat") == category:
                # Of several slices that begin in the same nanosecond the outermost comes first.
                ends[e["id"]][e["ph"]] = at.get((e["pid"], e["tid"], e["ts"]), ["?"])[0]
                if e["ph"] == "s" and not starting(e):
                    ends[e["id"]]["unwanted"] = True
        return collections.Counter((pair.get("s"), pair.get("f")) for pair in ends.values() if "unwanted" not in pair)


def _refuse_constant(word):
    raise ValueError("%s is not JSON" % word)


def _refuse_duplicates(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key comes twice: %s" % [k for k, _ in pairs])
    return members


def broken_rules(trace, merged=False, limit=20, imports=True):
    """Lines that name a rule and where it is broken; empty for a good trace. `merged`: more than one process in one file."""
    if not imports:
        trace = trace.without_imports()
    rules = [top_level, shape, rows, nesting, flows, python_parents]
    if not merged:
        rules += [ids, tail]
    lines = []
    for rule in rules:
        for n, line in enumerate(rule(trace)):
            if n < limit:
                lines.append("%s: %s" % (rule.__name__, line))
    return lines


def top_level(trace):
    keys = list(trace.doc)
    for key in ("schemaVersion", "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents", "traceName"):
        if key not in keys:
            yield "%s is missing" % key
            return
    if keys[0] != "schemaVersion" or trace.doc["schemaVersion"] != 1:
        yield "schemaVersion 1 does not come first"
    if keys[-1] != "traceName":
        yield "traceName does not come last"
    if keys.index("baseTimeNanoseconds") > keys.index("traceEvents"):
        yield "baseTimeNanoseconds comes after traceEvents"
    if trace.doc["baseTimeNanoseconds"] % (86400 * 10**9):
        yield "baseTimeNanoseconds %s is not a midnight" % trace.doc["baseTimeNanoseconds"]
    if "distributedInfo" in trace.doc and not re.search(r'"rank":\s+\d', trace.text):
        yield "HTA finds no rank: a space is missing after the colon"
    if not re.match(r'\s*\{\s*"', trace.text):
        yield "Perfetto does not take the file for JSON"


def shape(trace):
    def is_negative(number):
        return isinstance(number, int) and number < 0

    for e in trace.events:
        if not isinstance(e.get("name"), str) or "ph" not in e:
            yield "an event has no name or no ph: %s" % e
        elif e["ph"] == "X":
            if not isinstance(e.get("cat"), str) or not _is_number(e.get("dur")) or e["dur"] < 0:
                yield "a slice wants a category and a duration: %s" % e
            if not isinstance(e.get("args"), dict):
                yield "a slice wants args: %s" % e
        if e.get("ph") in ("X", "i", "s", "f") and not (_is_number(e.get("ts")) and e["ts"] >= 0):
            yield "ts is not a number from 0 on: %s" % e
        if is_negative(e.get("pid")) or is_negative(e.get("tid")):
            yield "a pid or tid is negative: %s" % e
    for match in re.finditer(r'"(?:ts|dur)":\s*"?-?\d+\.(?!\d{3}(?!\d))\d*', trace.text):
        yield "a time has not three decimals: %s" % match[0]


def rows(trace):
    """Each row has a name, each process its three lines, once."""
    meta = collections.Counter((e["name"], e["pid"], e["tid"] if e["name"].startswith("thread") else None)
                               for e in trace.events if e["ph"] == "M")
    for key, n in meta.items():
        if n > 1 and not (key[0] == "process_sort_index" and key[1] == "Spans"):
            yield "%s of %s comes %d times" % (key[0], key[1:], n)
    slices = {(e["pid"], e["tid"]) for e in trace.spans(*CPU_CATEGORIES)}
    for pid, tid in slices:
        if not meta["thread_name", pid, tid]:
            yield "thread %s of process %s has no name" % (tid, pid)
    for pid in {pid for pid, _ in slices}:
        for name in ("process_name", "process_labels", "process_sort_index"):
            if not meta[name, pid, None]:
                yield "process %s has no %s" % (pid, name)


def nesting(trace):
    """On one thread slices nest or lie apart."""
    threads = collections.defaultdict(list)
    for e in trace.spans(*CPU_CATEGORIES):
        threads[e["pid"], e["tid"]].append(e)
    for row, spans in threads.items():
        open_spans = []
        for e in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
            while open_spans and _end(open_spans[-1]) <= e["ts"] + ROUNDING_US / 2:
                open_spans.pop()
            if open_spans and _end(e) > _end(open_spans[-1]) + ROUNDING_US:
                yield "%s of %s ends %.3f us after %s, in which it began" % (
                    e["name"], row, _end(e) - _end(open_spans[-1]), open_spans[-1]["name"])
            open_spans.append(e)


def recorded(e):
    """Begin and end of a slice, which may be drawn shorter so that its row nests."""
    cut = [e["args"].get(key, 0) / 1000 for key in ("Cut at begin, ns", "Cut at end, ns")]
    return e["ts"] - cut[0], _end(e) + cut[1]


def python_parents(trace):
    """A parent id names a slice of the same thread that holds the child."""
    by_id = {}
    for e in trace.spans("python_function"):
        key = e["pid"], e["args"].get("Python id")
        if key[1] is None or "Python parent id" not in e["args"]:
            yield "a Python slice has no id or no parent id: %s" % e
        elif key in by_id:
            yield "Python id %s comes twice" % (key,)
        by_id[key] = e
    for (pid, _), e in by_id.items():
        parent_id = e["args"].get("Python parent id")
        if parent_id is None:
            continue
        parent = by_id.get((pid, parent_id))
        if parent is None:
            yield "%s: its parent %s is nowhere" % (e["name"], parent_id)
            continue
        (begin, end), (first, last) = recorded(e), recorded(parent)
        if parent["tid"] != e["tid"] or begin < first - ROUNDING_US or end > last + ROUNDING_US:
            yield "%s does not lie in its parent %s" % (e["name"], parent["name"])


def ids(trace):
    for key, categories in (("External id", ("cpu_op", "user_annotation")), ("Ev Idx", CPU_CATEGORIES)):
        seen = collections.Counter(e["args"].get(key) for e in trace.spans(*categories))
        for value, n in seen.items():
            if value is None:
                yield "%d slices have no %s" % (n, key)
            elif n > 1:
                yield "%s %s comes %d times" % (key, value, n)


def flows(trace):
    slice_starts = collections.defaultdict(list)
    sequence = {}
    position = {}
    any_position = {}
    for n, e in enumerate(trace.events):
        if e.get("ph") == "X":
            any_position.setdefault((e["pid"], e["tid"], e["ts"]), n)
            slice_starts[e["pid"], e["tid"]].append((e["ts"], _end(e)))
        if e.get("ph") == "X" and e.get("cat") == "cpu_op":
            key = e["pid"], e["tid"], e["ts"]
            sequence.setdefault(key, set()).add(e["args"].get("Sequence number"))
            position.setdefault(key, n)
    for spans in slice_starts.values():
        spans.sort()
    ends = collections.defaultdict(lambda: collections.defaultdict(list))
    for n, e in enumerate(trace.events):
        if e.get("ph") not in ("s", "f"):
            continue
        ends[e.get("cat"), e.get("id")][e["ph"]].append((n, e))
        if e["ph"] == "f" and e.get("bp") != "e":
            yield "a flow that ends wants bp e: %s" % e
        spans = slice_starts[e["pid"], e["tid"]]
        before = bisect.bisect_right(spans, (e["ts"] + ROUNDING_US, float("inf")))
        if not any(spans[n][1] >= e["ts"] - ROUNDING_US for n in range(before - 1, -1, -1)):
            yield "a flow lies in no slice: %s" % e
    for (cat, flow_id), pair in ends.items():
        if cat == "ac2g":  # from a call, where it is a launch, to what it started: several kernels of a graph, or none
            for n, e in pair["s"] + pair["f"]:
                if any_position.get((e["pid"], e["tid"], e["ts"]), n) >= n:
                    yield "flow ac2g %s: no slice earlier in the file begins where it does" % flow_id
            if len(pair["s"]) > 1:
                yield "flow ac2g %s starts %d times" % (flow_id, len(pair["s"]))
            continue
        if len(pair["s"]) != 1 or len(pair["f"]) != 1:
            yield "flow %s %s starts %d times and ends %d times" % (cat, flow_id, len(pair["s"]), len(pair["f"]))
            continue
        keys = []
        for n, e in (pair["s"][0], pair["f"][0]):
            key = e["pid"], e["tid"], e["ts"]
            if position.get(key, n) >= n:
                yield "flow %s %s: no operator earlier in the file begins where it does" % (cat, flow_id)
            keys.append(sequence.get(key, set()) - {None})
        if cat == "fwdbwd" and not keys[0] & keys[1]:
            yield "flow %s joins operators of sequence numbers %s and %s" % (flow_id, *keys)


def tail(trace):
    """The last four events, and nothing outside the window that they name."""
    last = trace.events[-4:]
    wanted = [("X", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler"), ("M", "process_sort_index", "Spans", 0),
              ("i", "Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler"), ("i", "Record Window End", "", "")]
    for e, want in zip(last, wanted):
        if (e.get("ph"), e.get("name"), e.get("pid"), e.get("tid")) != want:
            yield "%s stands where %s was expected" % (e, want)
            return
    begin, end = last[0]["ts"], last[3]["ts"]
    for e in trace.events[:-4]:
        if e["ph"] in ("X", "i", "s", "f") and not begin - ROUNDING_US <= e["ts"] <= e["ts"] + e.get("dur", 0) <= end + ROUNDING_US:
            yield "outside the window: %s" % e


def _end(e):
    return e["ts"] + e["dur"]


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)
