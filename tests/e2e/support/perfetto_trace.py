"""A Perfetto trace as Perfetto sees it: decoded by protoc with the definitions of perfetto.proto, events sorted by time (equal times in the order of the
file, as src/trace_processor/sorter does), slices matched on each track's stack, flows bound to the slice that is open.
"""
import ast
import collections
import dataclasses
import pathlib
import subprocess

PROTO = pathlib.Path(__file__).with_name("perfetto.proto")
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def decode(data, message, proto=PROTO):
    """Messages as dictionaries of lists. Unknown fields have numbers for names, which a caller does not expect."""
    done = subprocess.run(["protoc", "--decode=" + message, "--proto_path=%s" % proto.parent, proto.name], input=data, capture_output=True, check=True)
    stack = [collections.defaultdict(list)]
    for line in done.stdout.decode().splitlines():
        line = line.strip()
        if line == "}":
            stack.pop()
        elif line.endswith(" {"):
            inner = collections.defaultdict(list)
            stack[-1][line[:-2]].append(inner)
            stack.append(inner)
        else:
            name, value = line.split(": ", 1)
            stack[-1][name].append(value_of(value))
    return stack[0]


def value_of(text):
    if text[0] == '"':
        return text_of(text)
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def text_of(quoted):
    """protoc escapes bytes beyond ASCII in octal. What is no text (a build id) stays as it is."""
    data = ast.literal_eval("b" + quoted)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


@dataclasses.dataclass
class Slice:
    name: str
    category: str
    track: int
    begin: int     # ns since the epoch
    end: int = None
    args: dict = dataclasses.field(default_factory=dict)
    frames: list = None  # its native stack


class Trace:
    def __init__(self, path):
        self.packets = decode(path.read_bytes(), "Trace")["packet"]
        names = set().union(*self.packets)
        assert names and not any(map(str.isdecimal, names)), "fields that perfetto.proto does not know"
        self.tracks, self.processes, self.threads = {}, {}, {}
        self.slices, self.instants, self.flows, self.counters = [], [], [], collections.defaultdict(list)
        self.state = collections.defaultdict(lambda: collections.defaultdict(dict))
        self.clock = {}
        events = [row for row in map(self._read, self.packets) if row]
        self._replay(sorted(events, key=lambda row: row[0]))  # a stable sort

    def _read(self, p):
        state = self.state[p["trusted_packet_sequence_id"][0]]
        if p["clock_snapshot"]:
            clocks = {c["clock_id"][0]: c["timestamp"][0] for c in p["clock_snapshot"][0]["clocks"]}
            assert p["clock_snapshot"][0]["primary_trace_clock"] == [1] and p["trace_packet_defaults"][0]["timestamp_clock_id"] == [64]
            state["offset"] = clocks[1] - clocks[64]
        for interned in p["interned_data"]:
            for table, entries in interned.items():
                for entry in entries:
                    assert entry["iid"][0] not in state[table]
                    state[table][entry["iid"][0]] = (entry["name"] or entry["str"] or [entry])[0]
        for track in p["track_descriptor"]:
            self.tracks[track["uuid"][0]] = track
            for process in track["process"]:
                self.processes[process["pid"][0]] = process
            for thread in track["thread"]:
                self.threads[thread["tid"][0]] = thread
        for e in p["track_event"]:
            name, category = (state[table][e[key][0]] if e[key] else None
                              for table, key in (("event_names", "name_iid"), ("event_categories", "category_iids")))
            args = {state["debug_annotation_names"][a["name_iid"][0]]: self._value(a, state) for a in e["debug_annotations"]}
            return p["timestamp"][0] + state["offset"], e, name, category, args, self._stack(e, state)

    @staticmethod
    def _stack(e, state):
        """Of names and objects' paths, outermost first; None without one."""
        if not e["callstack_iid"]:
            return None
        def path(frame):
            mapping = state["mappings"][frame["mapping_id"][0]] if frame["mapping_id"] else None
            return mapping and "".join("/" + state["mapping_paths"][part] for part in mapping["path_string_ids"])
        frames = [state["frames"][i] for i in state["callstacks"][e["callstack_iid"][0]]["frame_ids"]]
        return [(state["function_names"][frame["function_name_id"][0]], path(frame)) for frame in frames]

    @staticmethod
    def _value(a, state):
        if a["string_value_iid"]:
            return state["debug_annotation_string_values"][a["string_value_iid"][0]]
        return (a["int_value"] or a["double_value"] or a["bool_value"])[0]

    def _replay(self, events):
        # As src/trace_processor/importers/common/flow_tracker.cc: one table, in which legacy flows have numbers of their own, from 0.
        open_slices, chains, legacy_ids = collections.defaultdict(list), {}, {}
        for time, e, name, category, args, frames in events:
            stack = open_slices[e["track_uuid"][0]]
            kind = e["type"][0] if e["type"] else None
            if kind == BEGIN:
                stack.append(Slice(name, category, e["track_uuid"][0], time, None, args, frames))
                for flow in e["flow_ids"]:  # each leads on from the one before
                    assert flow >= 1 << 32, "a legacy flow may have this id"
                    if flow in chains:
                        self.flows.append((chains[flow], name))
                    chains.setdefault(flow, name)
            elif kind == INSTANT:
                self.instants.append(Slice(name, category, e["track_uuid"][0], time, time, args, frames))
            elif kind == END:
                stack[-1].end = time
                stack[-1].args.update(args)
                self.slices.append(stack.pop())
            elif kind == COUNTER:
                self.counters[self.tracks[e["track_uuid"][0]]["name"][0]].append((time, e["counter_value"][0]))
            elif kind is None:
                legacy = e["legacy_event"][0]
                flow = legacy_ids.setdefault((legacy["unscoped_id"][0], category, name), len(legacy_ids))
                if legacy["phase"] == [ord("s")]:
                    assert flow not in chains, "a flow that begins twice is lost"
                    chains[flow] = stack[-1].name
                else:
                    assert legacy["phase"] == [ord("f")] and legacy["bind_to_enclosing"] == [True]
                    self.flows.append((chains.pop(flow), stack[-1].name))
        assert not any(open_slices.values())

    def path(self, track):
        """Names of the tracks from below the process down."""
        t = self.tracks[track]
        return (*self.path(t["parent_uuid"][0]), t["name"][0]) if t["name"] else ()

    def tid(self, track):
        """Of the thread, also of what crosses on a track below it; None for other tracks."""
        while not self.tracks[track]["thread"]:
            if self.tracks[track]["process"]:
                return None
            track = self.tracks[track]["parent_uuid"][0]
        return self.tracks[track]["thread"][0]["tid"][0]
