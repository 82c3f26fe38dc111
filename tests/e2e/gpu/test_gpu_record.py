"""What tests/gpu/record.py compares and judges, on a real GPU's trace and on made-up numbers: each fault is planted."""
import copy
import json
import sys
import types

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import record  # noqa: E402
import record_clock  # noqa: E402
import record_cost  # noqa: E402
import record_counts  # noqa: E402
import record_kill  # noqa: E402
import record_raw  # noqa: E402
import record_results  # noqa: E402
import wall_clock  # noqa: E402
import workloads  # noqa: E402

pytestmark = pytest.mark.once

REAL = ROOT / "tests" / "e2e" / "files" / "golden" / "gpt2-h100.pt.trace.json.gz"
RAW = ROOT / "tests" / "unit" / "golden" / "gpu"


@pytest.fixture(scope="module")
def real_events():
    """Of three steps of GPT-2 on an H100."""
    return record_counts.events(REAL)


def of_group(events, group):
    return [e for e in events if record_counts.group_of(e) == group]


# counts

def test_a_trace_has_what_it_has_itself(real_events):
    work = record_counts.work_of(real_events)
    result = record_counts.compared("gpt2", work, work)
    assert result.state == "ok" and result.said == "1791 pieces of work, what torch.profiler has" and len(result.tables) == 1
    rows = {row[0]: row[1:] for row in result.tables[0].rows}
    assert rows["kernels"] == [1680, 1680, "the same"] and rows["copies: bytes"] == [3, 3, "the same"] and rows["sets"][0] == 108
    assert rows["kernels: grid"] == rows["kernels: registers per thread"] == [1680, 1680, "the same"] and rows["launches"][2] == "the same"


def kernel_missing(events):
    gone = of_group(events, "kernels")[7]
    return [e for e in events if e is not gone], ["kernels", gone["name"], gone["args"]["stream"]]


def copy_twice(events):
    twice = of_group(events, "copies")[0]
    return [*events, twice], ["copies", twice["name"], twice["args"]["stream"]]


def launch_missing(events):
    gone = of_group(events, "launches")[0]
    return [e for e in events if e is not gone], ["launches", gone["name"], ""]


def other_stream(events):
    moved = of_group(events, "sets")[0]
    elsewhere = copy.deepcopy(moved)
    elsewhere["args"]["stream"] = 77
    return [elsewhere if e is moved else e for e in events], ["sets", moved["name"], 77]


def other_grid(events):
    changed = of_group(events, "kernels")[0]
    larger = copy.deepcopy(changed)
    larger["args"]["grid"] = [3, 2, 1]
    return [larger if e is changed else e for e in events], ["kernels: grid", changed["name"], "[3, 2, 1]"]


@pytest.mark.parametrize("plant", [kernel_missing, copy_twice, launch_missing, other_stream, other_grid])
def test_a_planted_difference_is_in_the_table(real_events, plant):
    changed, (what, name, where) = plant(real_events)
    result = record_counts.compared("gpt2", record_counts.work_of(changed), record_counts.work_of(real_events))
    assert result.state == "DIFFERS" and what in result.said
    compared, different = result.tables
    assert [row[3] for row in compared.rows if row[0] == what][0].endswith("names differ")
    row, = [row for row in different.rows if row[:3] == [what, name, where]]
    assert row[3] != row[4]
    assert "| %s |" % record_results.cell(name) in different.markdown()


@pytest.mark.parametrize("name", workloads.REAL)
def test_each_workload_is_a_program_also_within_a_torch_profiler(name):
    text = workloads.REAL[name] + workloads.TIMES
    for program in (text + record_counts.END, record_counts.PROFILED % (record_counts.indented(text), "trace.json")):
        assert "work" in compile(program, name, "exec").co_names
    assert "recorded_by_torch" not in text


def test_a_torch_profiler_that_saw_nothing_is_no_equal():
    result = record_counts.compared("nothing", record_counts.work_of([]), record_counts.work_of([]))
    assert result.is_bad and "no kernel" in result.said


# cost

def steps(bare, adds, turns=40, jitter=0.2):
    """As steps.py prints them: the machine gets slower and slower, and each other turn is a little off."""
    base = [bare + 0.3 * turn for turn in range(turns)]
    return {"bare": [[ms] * 12 for ms in base], "on": [[ms + adds + (jitter if turn % 2 else -jitter)] * 12 for turn, ms in enumerate(base)], "edges": [[0.7, 12.0]] * turns}


def judge(**adds):
    """State and text of each verdict, by its name. Of each mode: what it adds, or (that, how much turns differ)."""
    names = {"on": ("launch-bound", "gpu on"), "cuda": ("launch-bound", "torch.profiler CUDA"), "all": ("launch-bound", "everything"),
             "both": ("launch-bound", "torch.profiler CPU+CUDA"), "bound": ("GPU-bound", "everything")}
    of = {"launch-bound": {}, "GPU-bound": {}}
    for key, ms in adds.items():
        step, mode = names[key]
        ms, jitter = ms if isinstance(ms, tuple) else (ms, 0.2)
        of[step][mode] = record_cost.summary([steps(30 if step == "GPU-bound" else 15, ms, jitter=jitter)])
    return {result.name: (result.state, result.said) for result in record_cost.verdicts(of)}


def test_what_is_added_is_seen_through_a_machine_that_gets_slower():
    found = record_cost.summary([steps(15, 1.0), steps(25, 1.0)])
    assert found["turns"] == 80 and found["adds"] == pytest.approx(1.0) and 0.8 <= found["from"] + 1e-9 and found["to"] <= 1.2 + 1e-9
    assert record_cost.row("gpu on", found)[3] == "1.00"


def test_the_interval_of_a_median_has_nothing_in_it_of_few_outliers():
    assert record_cost.median_between([1.0] * 90 + [1000.0] * 10) == (1, 1, 1) and record_cost.median_between([3, 1, 2]) == (2, 1, 3)


def test_each_verdict_is_met_and_is_not():
    assert {name: state for name, (state, _) in judge(on=1, cuda=5, all=7, both=10, bound=0.1).items()} == dict.fromkeys(
        ("the GPU part", "everything on", "a GPU-bound step"), "ok")
    assert {name: state for name, (state, _) in judge(on=1, cuda=3.5, all=11, both=10, bound=0.9).items()} == dict.fromkeys(
        ("the GPU part", "everything on", "a GPU-bound step"), "NOT MET")


def test_a_verdict_says_when_the_spread_is_too_large_for_it_and_what_is_missing():
    found = judge(on=(1, 1), cuda=(4.5, 3), all=7, both=10)
    assert found["the GPU part"][0] == "ok" and "room for the opposite" in found["the GPU part"][1]
    assert "room" not in found["everything on"][1] and found["a GPU-bound step"] == ("not run", "not measured: everything, GPU-bound")


# clock

def launches_and_kernels(seconds=40, drift_us=0.0, early_us=0.0):
    """100 a second, each in its operator; the last kernel is later by drift_us than the first, and one is early."""
    made = []
    for n in range(100 * seconds):
        at, of = n * 1e4, {"correlation": n}
        made += [{"cat": "cpu_op", "name": "aten::add", "tid": 1, "ts": at, "dur": 20.0, "args": {}},
                 {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": at + 5, "dur": 5.0, "args": of},
                 {"cat": "kernel", "name": "k", "tid": 7, "ts": at + 10 + drift_us * n / (100 * seconds) - (early_us if n == 77 else 0), "dur": 1.0, "args": of}]
    return made


def test_kernels_of_a_real_gpu_begin_after_their_launches(real_events):
    result = record_clock.judged(record_clock.buckets(real_events), "left alone")
    assert result.state == "ok" and result.data["before"] == 0 and result.data["kernels"] > 1000 and result.data["outside_us"] <= 5


@pytest.mark.parametrize("made, state, said", [
    (dict(), "ok", "0 of 4000 kernels before their launch, drift 0.00 us"),
    (dict(drift_us=20), "DIFFERS", "0 of 4000 kernels before their launch, drift 15.00 us"),
    (dict(early_us=30), "DIFFERS", "1 of 4000 kernels before their launch")], ids=["good", "drifts", "early"])
def test_a_clock_that_drifts_or_jumps_is_seen(made, state, said):
    result = record_clock.judged(record_clock.buckets(launches_and_kernels(**made)), "7.25 s forward")
    assert result.state == state and result.said.startswith(said) and "7.25 s forward" in result.said
    assert [row[0] for row in result.tables[0].rows] == [0, 10, 20, 30]


def test_launches_that_leave_their_operators_are_seen():
    events = launches_and_kernels()
    for e in events:
        e["ts"] += 40 if e["cat"] != "cpu_op" else 0
    assert record_clock.judged(record_clock.buckets(events), "left alone").data["outside_us"] == 30


class Clock:
    """A machine's clock that tests may set."""
    def __init__(self, may=True):
        self.may, self.wall, self.raw, self.freq = may, 1000.0, 50.0, 1234

    def now(self): return self.wall
    def elapsed(self): return self.raw

    def passes(self, seconds):
        self.wall, self.raw = self.wall + seconds, self.raw + seconds

    def set(self, seconds):
        if not self.may:
            raise PermissionError("not permitted")
        self.wall = seconds

    def frequency(self, freq=None):
        if freq is not None and not self.may:
            raise PermissionError("not permitted")
        self.freq = self.freq if freq is None else freq
        return self.freq


@pytest.mark.parametrize("times", [0, 1, 2, 3, 4, 6])
def test_the_wall_clock_is_put_back(times):
    machine, left = Clock(), iter([False] * times + [True])
    seen = set()

    def is_done(seconds):
        seen.add((round(machine.wall - machine.raw - 950, 2), machine.freq))
        machine.passes(seconds)
        return next(left)
    with pytest.raises(KeyboardInterrupt), wall_clock.WallClock(machine) as clock:
        record_clock.disturb_until(is_done, clock)
        raise KeyboardInterrupt
    assert len(seen) == min(times, 7) + 1 if times < 4 else len(seen) > 4
    assert (machine.wall - machine.raw, machine.freq) == (950, 1234) and len(clock.done) == times


def test_a_wall_clock_that_may_not_be_set_says_so():
    """The script goes on without."""
    with pytest.raises(PermissionError), wall_clock.WallClock(Clock(may=False)):
        pass


# kill

def test_what_was_lost_is_the_time_since_the_last_that_is_recorded():
    announced = [(20 * n, n * 1_000_000) for n in range(1, 1001)]
    assert record_kill.lost(announced, 20000) == record_kill.lost(announced, 20001) == (0, 0.0)
    assert record_kill.lost(announced, 18000) == (2000, 0.1) and record_kill.lost(announced, 0) == (20000, 0.999)
    assert record_kill.read_announced("42\n20 1000\n40 2000\n6") == (42, [(20, 1000), (40, 2000)])


def test_to_lose_more_than_allowed_is_bad():
    run = {"announced": 10, "seconds": 0.3, "seconds of launches": 0.1}
    assert record_kill.judged("SIGKILL", [run, {**run, "seconds": 0.01}], 0.15).state == "DIFFERS"
    assert record_kill.judged("SIGKILL", [{**run, "seconds": 0.01}], 0.15).state == "ok" and record_kill.judged("spins", [run], None).state == "measured"


# raw, and how it is written down

def test_saved_records_are_counted_by_kind():
    version, kinds = record_raw.kinds((RAW / "matmul.gpu.records").read_bytes())
    assert version == 130001 and kinds[10] >= 3
    with pytest.raises(AssertionError):
        record_raw.kinds((RAW / "matmul.gpu.records").read_bytes()[:-3])


def test_a_measurement_that_fails_is_in_the_table_with_its_error_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def measure(machine, options):
        def fails():
            raise ValueError("some | text\nthe last line")
        yield record_results.attempt("counts", "first", fails)
        yield record_results.Result("counts", "second", "ok", "fine")
        raise OSError("no more")
    monkeypatch.setitem(record.PARTS, "counts", types.SimpleNamespace(measure=measure))
    book = record_results.Book(tmp_path, {"gpus": ["one", "two"]})
    for result in record.measured("counts", None, None):
        book.add(result)
    assert [(r.name, r.state, r.said) for r in book.results] == [("first", "FAILED", "the last line"), ("second", "ok", "fine"), ("all of it", "FAILED", "no more")]
    text = (tmp_path / "record.md").read_text()
    assert "| counts | first | FAILED | the last line |" in text and "| gpus | one, two |" in text and "some | text" in text
    assert "in fails" in json.loads((tmp_path / "record.json").read_text())["results"][0]["error"] and "FAILED" in capsys.readouterr().out
    assert record_results.Table("t", ["a"], [["void f<a | b>()"]]).markdown().splitlines()[-1] == r"| void f<a \| b>() |"
