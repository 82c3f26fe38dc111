"""What `torchprof export` writes of a real program in each format: it agrees with the Kineto trace of the same run."""
import collections
import contextlib
import gzip
import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import time

import pytest

import perfetto_trace
import trace_rules
from conftest import SUPPORT, clean_environment

pytestmark = pytest.mark.once

PROGRAM = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(6):
    with torch.autograd.profiler.record_function("unmistakable"):
        net(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def recorded(launcher, torch_python, tmp_path_factory):
    """A kept run in which a window was captured: what is on the stack when the window opens begins at the same time as the window."""
    import conftest
    directory = tmp_path_factory.mktemp("formats")
    (directory / "train.py").write_text(PROGRAM)
    run = conftest.profile(launcher, directory / "run", [torch_python, directory / "train.py"], ["-w", "steps=1..4", "--python", "calls"])
    assert run.status == 0, run.stderr
    return run


@pytest.fixture
def export(torchprof, recorded, tmp_path):
    """export(FORMAT, OPTION...) gives the path of the file that was written."""
    def write(form, *options, name="written"):
        done = torchprof("export", recorded.directory, "--format", form, "-o", tmp_path / name, *options)
        assert (done.returncode, done.stderr) == (0, "torchprof: %s: written\n" % (tmp_path / name))
        return tmp_path / name
    return write


def test_the_stream_is_readable_wherever_it_is_cut(export, recorded):
    lines = export("json-stream").read_text().splitlines()
    trace = recorded.trace()
    assert lines[0] == "["
    for end in (2, len(lines) // 2, len(lines)):
        events = json.loads("".join(lines[:end]).rstrip(",") + "]")
        assert len(events) == end - 1
    spans = collections.Counter(e["name"] for e in events if e["ph"] == "X")
    assert spans == trace.names(*trace_rules.CPU_CATEGORIES)


def test_the_legacy_array_has_the_operators(export, recorded):
    events = json.loads(export("chrome-legacy").read_text())
    # Without the rest after the last step, which would look like one.
    expected = [(e["name"], e["tid"], e["dur"]) for e in recorded.trace().spans("cpu_op", "user_annotation") if e["args"].get("Step ends with", "no mark")]
    assert [(e["name"], e["tid"], e["dur"]) for e in events] == expected
    assert {e["pid"] for e in events} == {"CPU functions"} and min(e["ts"] for e in events) > 0


def test_several_formats_go_into_a_directory(torchprof, recorded, tmp_path):
    done = torchprof("export", recorded.directory, "--format", "kineto,table,chrome-legacy", "-o", tmp_path / "new" / "directory")
    assert done.returncode == 0, done.stderr
    names = {p.name for p in (tmp_path / "new" / "directory").iterdir()}
    assert names == {recorded.trace_paths[0].name, "summary.txt", "trace.chrome-legacy.json"}


def test_each_format_may_have_its_own_file(torchprof, recorded, tmp_path):
    done = torchprof("export", recorded.directory, "--format", "table,kineto", "-o", tmp_path / "a.txt", "-o", tmp_path / "b.json")
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 2
    assert (tmp_path / "a.txt").read_text().splitlines()[0] and json.loads((tmp_path / "b.json").read_text())


def test_a_format_that_cannot_be_written_does_not_keep_the_others_back(torchprof, recorded, tmp_path):
    done = torchprof("export", recorded.directory, "--format", "table,kineto", "-o", tmp_path / "no" / "a.txt", "-o", tmp_path / "b.json")
    assert done.returncode == 125 and (tmp_path / "b.json").exists()
    assert "a.txt" in done.stderr and len(done.stderr.splitlines()) == 1


def test_run_writes_every_format_that_it_is_asked_for(run_torchprof, program, torch_python):
    run = run_torchprof([torch_python, program(PROGRAM)], options=["--imports", "full", "--format", "json-stream,chrome-legacy,perfetto,kineto"])
    assert run.status == 0 and json.loads((run.directory / "trace.chrome-legacy.json").read_text())
    assert (run.directory / "trace.stream.json").read_text().startswith("[\n{")
    assert "trace: %s\n" % (run.directory / "trace.perfetto-trace") in run.stderr
    # About a fifth (docs/formats.md). How much exactly hangs on the paths and on how many digits the times have.
    assert (run.directory / "trace.perfetto-trace").stat().st_size * 4 < len(run.trace().text.encode())


# ---- perfetto ---------------------------------------------------------------------------------------------------------------------


def in_ns(trace):
    """The events of a Kineto trace; numbers with decimals, which are microseconds, as whole nanoseconds. A double would not be exact."""
    return json.loads(trace.text, parse_float=lambda text: int(text.replace(".", "")))["traceEvents"]


def test_perfetto_has_the_slices_of_the_kineto_trace(export, recorded):
    kineto, perfetto = recorded.trace(), perfetto_trace.Trace(export("perfetto"))
    base = kineto.doc["baseTimeNanoseconds"]
    steps = [s for s in perfetto.slices if perfetto.tid(s.track) is None]
    assert [s.name for s in steps] == ["ProfilerStep#%d" % i for i in range(1, 6)]
    assert {perfetto.tracks[s.track]["name"][0] for s in steps} == {"Steps"}
    expected = collections.Counter((e["name"], e["cat"], e["tid"], e["ts"], e["dur"]) for e in in_ns(kineto)
                                   if e.get("cat") in trace_rules.CPU_CATEGORIES and "ProfilerStep" not in e["name"])
    found = collections.Counter((s.name, s.category, perfetto.tid(s.track), s.begin - base, s.end - s.begin) for s in perfetto.slices if s not in steps)
    assert found == expected


def test_the_critical_path_is_a_row_that_adds_up_to_the_steps(export, recorded):
    """Each instant of a step is in one slice of it. Without the option there is none."""
    trace = trace_rules.Trace(export("kineto", "--critical-path", name="critical.json"))
    path = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in in_ns(trace) if e.get("cat") == "critical_path")
    assert all(before[1] <= after[0] for before, after in zip(path, path[1:])) and not recorded.trace().names("critical_path")
    steps = [e for e in in_ns(trace) if e["name"].startswith("ProfilerStep#") and e["args"]["Step ends with"]]
    steps = sorted((e["ts"], e["ts"] + e["dur"]) for e in steps)[1:]  # the first one chooses for the others
    for begin, end in steps:
        inside = [(max(b, begin), min(e, end)) for b, e, _ in path if b < end and e > begin]
        assert sum(e - b for b, e in inside) == end - begin
    assert any(name.startswith("host: aten::") for _, _, name in path)
    perfetto = perfetto_trace.Trace(export("perfetto", "--critical-path"))
    found = [s for s in perfetto.slices if s.category == "critical_path"]
    assert sorted((s.begin, s.end, s.name) for s in found) == [(b + trace.doc["baseTimeNanoseconds"], e + trace.doc["baseTimeNanoseconds"], name) for b, e, name in path]
    assert {perfetto.tracks[s.track]["name"][0] for s in found} == {"Critical path"}


def test_perfetto_has_the_arguments_flows_and_names(export, recorded):
    kineto, perfetto = recorded.trace(), perfetto_trace.Trace(export("perfetto"))
    def described(args, text):
        return tuple(text(args.get(key)) for key in ("Input Dims", "Input type", "Module path", "Sequence number", "FLOPs", "Backward"))
    def as_text(value):
        return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else value
    expected = collections.Counter((e["name"], described(e["args"], as_text)) for e in kineto.spans("cpu_op"))
    assert collections.Counter((s.name, described(s.args, as_text)) for s in perfetto.slices if s.category == "cpu_op") == expected
    assert collections.Counter(perfetto.flows) == kineto.flows("fwdbwd") and perfetto.flows
    assert {p["process_name"][0] for p in perfetto.processes.values()} == {"python3"} and list(perfetto.processes) == [kineto.pid]
    names = {e["tid"]: e["args"]["name"] for e in kineto.events if e["name"] == "thread_name"}
    assert {tid: "thread " + t["thread_name"][0] for tid, t in perfetto.threads.items()} == {tid: names[tid] for tid in perfetto.threads}


def test_perfetto_counts_memory(export, recorded):
    kineto, perfetto = recorded.trace(), perfetto_trace.Trace(export("perfetto"))
    base = kineto.doc["baseTimeNanoseconds"]
    expected = [(base + e["ts"], e["args"]["Total Allocated"]) for e in in_ns(kineto) if e["name"] == "[memory]"]
    assert perfetto.counters["Memory allocated, CPU"] == expected and expected


# ---- sqlite -----------------------------------------------------------------------------------------------------------------------


def test_sqlite_has_the_slices_of_the_kineto_trace(export, recorded):
    kineto, db = recorded.trace(), sqlite3.connect(export("sqlite", name="x.sqlite"))
    base, marks = kineto.doc["baseTimeNanoseconds"], [e for e in in_ns(kineto) if "Step ends with" in e.get("args", {})]
    found = collections.Counter(db.execute("SELECT name, tid, start_ns - ?, duration_ns FROM op_events", (base,)))
    assert found == collections.Counter((e["name"], e["tid"], e["ts"], e["dur"]) for e in in_ns(kineto)
                                        if e.get("cat") in ("cpu_op", "user_annotation") and e not in marks)
    found = collections.Counter(db.execute("SELECT name, tid, start_ns - ?, duration_ns FROM python_events", (base,)))
    def recorded_times(e):
        cut = [e["args"].get(key, 0) for key in ("Cut at begin, ns", "Cut at end, ns")]
        return e["ts"] - cut[0], e["dur"] + sum(cut)
    assert found == collections.Counter((e["name"], e["tid"], *recorded_times(e)) for e in in_ns(kineto) if e.get("cat") == "python_function")
    assert [n for n, in db.execute("SELECT number FROM steps ORDER BY number")] == [1, 2, 3, 4, 5]
    shapes = collections.Counter(json.dumps(json.loads(text)) for text, in db.execute("SELECT shapes FROM op_events WHERE shapes IS NOT NULL"))
    assert shapes == collections.Counter(json.dumps(e["args"]["Input Dims"]) for e in kineto.spans("cpu_op", "user_annotation") if "Input Dims" in e["args"])
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_sqlite_has_the_memory_and_the_tree_of_the_kineto_trace(export, recorded):
    kineto, db = recorded.trace(), sqlite3.connect(export("sqlite", name="x.sqlite"))
    base = kineto.doc["baseTimeNanoseconds"]
    expected = [(base + e["ts"], e["args"]["Bytes"], e["args"]["Total Allocated"]) for e in in_ns(kineto) if e["name"] == "[memory]"]
    assert db.execute("SELECT time_ns, bytes, allocated FROM memory ORDER BY rowid").fetchall() == expected != []
    callers = db.execute("SELECT o.name, p.name, c.name FROM op_events o JOIN op_events p ON p.id = o.parent JOIN python_events c ON c.id = o.python").fetchall()
    assert {row[:2] for row in callers if "linear" in row[2]} >= {("aten::addmm", "aten::linear")}
    modules = {row[0]: row[1:] for row in db.execute("SELECT path, calls, backward_self_ns > 0 FROM module_totals")}
    assert modules == {"": (4, 0), "0": (4, 1), "1": (4, 1), "2": (4, 1)}


# ---- call paths -------------------------------------------------------------------------------------------------------------------


def own_times(kineto):
    """Of a Kineto trace: {(thread, path): (own time in ns, calls)}, without the marks of steps that torchprof made."""
    spans = [e for e in in_ns(kineto) if e.get("cat") in trace_rules.CPU_CATEGORIES and "Step ends with" not in e["args"] and e["tid"] < 1 << 30]
    found, stacks = collections.defaultdict(lambda: [0, 0]), collections.defaultdict(list)
    # Of slices with equal begins and ends, the one that was written first is the inner one: they are written when they end.
    for i, e in sorted(enumerate(spans), key=lambda row: (row[1]["ts"], -row[1]["dur"], -row[0])):
        stack = stacks[e["tid"]]
        while stack and stack[-1][1] <= e["ts"]:
            stack.pop()
        if stack:
            found[e["tid"], stack[-1][0]][0] -= e["dur"]
        path = (stack[-1][0] if stack else ()) + (e["name"],)
        found[e["tid"], path][0] += e["dur"]
        found[e["tid"], path][1] += 1
        stack.append((path, e["ts"] + e["dur"]))
    return {key: tuple(both) for key, both in found.items()}


def test_stacks_add_up_to_the_times_of_the_kineto_trace(export, recorded):
    lines = [line.rsplit(" ", 1) for line in export("stacks").read_text().splitlines()]
    found = {tuple(path.split(";")): int(us) for path, us in lines}
    assert len(found) == len(lines)
    expected = {}
    threads = {e["tid"]: e["args"]["name"] for e in recorded.trace().events if e["name"] == "thread_name"}
    for (tid, path), (ns, _) in own_times(recorded.trace()).items():
        head = "python3 %d" % recorded.trace().pid, threads[tid].replace("thread ", "")
        expected[tuple(name.replace(" ", "_").replace(";", "_") for name in (*head, *path))] = ns
    assert abs(sum(found.values()) * 1000 - sum(expected.values())) < 1000
    assert all(abs(us * 1000 - expected[path]) < 1000 for path, us in found.items())
    assert {path for path, ns in expected.items() if ns >= 1000} <= set(found)
    assert any("nn.Module:_Linear_0" in path and path[-1] == "aten::addmm" for path in found)


def test_speedscope_has_a_profile_for_each_thread(export, recorded):
    doc = json.loads(export("speedscope").read_text())
    names = [frame["name"] for frame in doc["shared"]["frames"]]
    found = collections.Counter()
    for profile in doc["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] == "nanoseconds" and sum(profile["weights"]) == profile["endValue"]
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
            found[re.search(r"thread (\d+)", profile["name"])[1], tuple(names[i] for i in sample)] += weight
    assert found == {(str(tid), path): ns for (tid, path), (ns, _) in own_times(recorded.trace()).items() if ns}


def test_pprof_has_time_and_calls_with_their_thread(export, recorded):
    profile = perfetto_trace.decode(gzip.decompress(export("pprof", name="x.pb.gz").read_bytes()), "Profile", SUPPORT / "pprof.proto")
    text = profile["string_table"]
    assert [(text[t["type"][0]], text[t["unit"][0]]) for t in profile["sample_type"]] == [
        ("time", "nanoseconds"), ("calls", "count"), ("cuda", "nanoseconds"), ("launched", "count")]
    functions = {f["id"][0]: f for f in profile["function"]}
    def name_of(location):
        f = functions[location["line"][0]["function_id"][0]]
        name, file = text[f["name"][0]], text[f["filename"][0]] if f["filename"] else ""
        return "%s(%d): %s" % (file, (f["start_line"] or [0])[0], name) if file else name
    names = {location["id"][0]: name_of(location) for location in profile["location"]}
    found = {}
    for sample in profile["sample"]:
        labels = {text[label["key"][0]]: text[label["str"][0]] for label in sample["label"]}
        assert labels["process"] == "python3 %d" % recorded.trace().pid
        found[int(labels["thread"].split()[0]), tuple(names[i] for i in reversed(sample["location_id"]))] = tuple(sample["value"][:2])
    assert found == own_times(recorded.trace())


# ---- a part of a run --------------------------------------------------------------------------------------------------------------


def test_steps_are_the_same_part_in_every_format(export, recorded, load_trace, check_trace):
    whole, part = recorded.trace(), load_trace(export("kineto", "--steps", "2..3", name="part.json"))
    check_trace(part)
    steps = [e for e in in_ns(whole) if e["name"] in ("ProfilerStep#2", "ProfilerStep#3")]
    begin, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    def operators(trace):
        return [(e["name"], e["tid"], e["ts"], e["dur"]) for e in in_ns(trace) if e.get("cat") == "cpu_op" and begin < e["ts"] + e["dur"] and e["ts"] < end]
    assert operators(part) == operators(whole) == [(e["name"], e["tid"], e["ts"], e["dur"]) for e in in_ns(part) if e.get("cat") == "cpu_op"]
    assert part.names("cpu_op")["aten::addmm"] == 4 and part.flows("fwdbwd")
    frame, = {(e["ts"], e["ts"] + e["dur"]) for e in in_ns(part) if e["name"].endswith("train.py(1): <module>")}
    assert frame == (begin, end)
    perfetto = perfetto_trace.Trace(export("perfetto", "--steps", "2..3"))
    assert collections.Counter(s.name for s in perfetto.slices) == part.names(*trace_rules.CPU_CATEGORIES)
    stacks = [line.rsplit(" ", 1) for line in export("stacks", "--steps", "2..3").read_text().splitlines()]
    main = [int(us) for path, us in stacks if path.split(";")[2] == "train.py(1):_<module>"]
    assert abs(sum(main) * 1000 - (end - begin)) < 1000


WRONG_PARTS = {
    "no such step": (["--steps", "90..99"], "--steps: none of these was captured, but steps 1-5; the nearest is 5"),
    "no such thread": (["--thread", "nobody"], "--thread nobody: the run has no thread with this id or name"),
    "no such process": (["--process", "1"], "--process 1: the run has no process with this id or rank"),
    "no steps": (["--steps", "5..2"], "export: --steps: '5..2' is not FIRST..LAST, steps count from 0"),
    "no time": (["--time", "5..6"], "export: --time: '5..6' is not FROM..TO with ns, us, ms, s or m"),
    "no duration": (["--min-duration", "3"], "export: --min-duration: '3' is not a time with ns, us, ms, s or m"),
}


@pytest.mark.parametrize("case", WRONG_PARTS)
def test_a_part_that_is_none_is_one_line(torchprof, recorded, tmp_path, case):
    options, message = WRONG_PARTS[case]
    done = torchprof("export", recorded.directory, "--format", "stacks", "-o", tmp_path / "x", *options)
    assert (done.returncode, done.stderr) == (125, "torchprof: %s\n" % message) and not (tmp_path / "x").exists()


@pytest.mark.parametrize("surroundings", [{"TERM": "xterm"}, {"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, None], ids=str)
def test_a_long_export_shows_its_progress_on_a_terminal_alone_that_takes_escape_sequences(surroundings, launcher, recorded, tmp_path):
    is_terminal = surroundings == {"TERM": "xterm"}
    os.mkfifo(tmp_path / "slow")  # nobody reads for a while
    ours, theirs = pty.openpty() if surroundings else os.pipe()
    command = [launcher, "export", recorded.directory, "--format", "kineto", "-o", tmp_path / "slow"]
    process = subprocess.Popen(command, stderr=theirs, env=clean_environment(surroundings))
    os.close(theirs)
    with open(tmp_path / "slow", "rb") as reader:
        time.sleep(1.8)
        reader.read()
    said = b""
    with contextlib.suppress(OSError):  # a terminal whose other side is gone
        while more := os.read(ours, 65536):
            said += more
    os.close(ours)
    assert process.wait() == 0
    assert (b"\r\x1b[Ktorchprof: writing the trace, " in said) == (b"\x1b" in said) == is_terminal, said
    assert said.replace(b"\r\n", b"\n").endswith((b"\x1b[K" if is_terminal else b"") + b"torchprof: %s: written\n" % bytes(tmp_path / "slow")), said


@pytest.mark.parametrize("form", ["stacks", "kineto", "pprof", "sqlite", "table"])
def test_an_export_to_stdout_is_what_a_file_has_and_stdout_has_nothing_else(form, launcher, recorded, export):
    written = export(form).read_bytes()
    done = subprocess.run([launcher, "export", recorded.directory, "-f", form, "-o", "-"], capture_output=True, env=clean_environment())
    assert (done.returncode, done.stderr) == (0, b"")
    if form == "pprof":
        assert gzip.decompress(done.stdout) == written
    elif form == "sqlite":
        assert done.stdout.startswith(b"SQLite format 3\0") and len(done.stdout) == len(written)
    else:
        without_name = [re.sub(rb'"traceName":"[^"]*"', b"", text) for text in (done.stdout, written)]  # kineto says what file it is
        assert without_name[0] == without_name[1]


@pytest.mark.parametrize("form", ["pprof", "perfetto", "sqlite", "stacks"])
def test_a_terminal_gets_no_binary_format(form, launcher, recorded):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([launcher, "export", recorded.directory, "-f", form, "-o", "-"], stdout=theirs, stderr=subprocess.PIPE, env=clean_environment())
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):
        while more := os.read(ours, 65536):
            shown += more
    os.close(ours)
    said = process.communicate()[1].decode()
    if form == "stacks":
        assert (process.returncode, said) == (0, "") and b"unmistakable" in shown
    else:
        assert (process.returncode, shown) == (125, b"")
        assert said == "torchprof: export: -o -: %s is binary, and stdout is a terminal: `> FILE`, or -o FILE\n" % form


def test_of_a_trace_that_another_tool_wrote_no_records_are_said_to_be_gone(torchprof, tmp_path):
    (tmp_path / "foreign.json").write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}')
    for more, what in ((["-f", "perfetto"], "perfetto cannot be written from a trace"),
                       (["-f", "kineto", "--steps", "1..2"], "a part of it cannot be selected")):
        done = torchprof("export", "foreign.json", "-o", "x", *more)
        assert (done.returncode, done.stderr) == (125, "torchprof: foreign.json: a trace file has no raw records, which a run of torchprof has: %s\n" % what)
    assert torchprof("export", "foreign.json", "-f", "kineto", "-o", "-").stdout == (tmp_path / "foreign.json").read_text()


@pytest.mark.slow
def test_a_long_export_says_in_a_log_each_ten_seconds_how_far_it_is(launcher, recorded):
    command = [launcher, "export", recorded.directory, "--format", "kineto", "-o", "/dev/stdout"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
    # Nobody reads the pipe, which is full: it is writing until we do.
    lines = []
    while len(lines) < 2 and select.select([process.stderr], [], [], 120)[0]:
        lines.append(os.read(process.stderr.fileno(), 1000))
    end = process.communicate()[1]
    assert len(lines) == 2 and all(re.fullmatch(rb"torchprof: writing the trace, [\d.]+ \w+ so far\n", line) for line in lines), lines
    assert (end, process.returncode) == (b"torchprof: /dev/stdout: written\n", 0)


def test_a_fifo_in_place_of_a_runs_file_is_a_line(run_torchprof, torchprof, torch_python):
    run = run_torchprof([torch_python, "-c", "pass"], options=["-q"])
    (run.directory / "summary.txt").unlink()
    os.mkfifo(run.directory / "summary.txt")
    done = torchprof("export", run.directory)
    said = "torchprof: %s: is not a file any more; remove it, or name a file with -o" % (run.directory / "summary.txt")
    assert done.returncode == 125 and done.stderr.splitlines()[-1] == said


def test_what_a_dead_writer_left_is_taken_away_by_the_next_export(run_torchprof, torchprof, torch_python, tmp_path):
    run = run_torchprof([torch_python, "-c", "pass"], options=["-q"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    names = ["old.torchprof-%d.tmp" % gone.pid, "written_to.torchprof-%d.tmp" % gone.pid, "alive.torchprof-%d-3.tmp" % os.getpid(), "notes.tmp"]
    for name in names:
        (run.directory / name).touch()
        os.utime(run.directory / name, None if name.startswith("written") else (1, 1))
    (run.directory / ("link.torchprof-%d.tmp" % gone.pid)).symlink_to("notes.tmp")
    assert torchprof("export", run.directory).returncode == 0
    assert sorted(path.name for path in run.directory.glob("*.tmp")) == sorted(names[1:] + ["link.torchprof-%d.tmp" % gone.pid])
