"""What torchprof costs, compared with the bare program and with other tools that record the same.

    meson compile -C build bench            # or: tests/bench/bench.py [--rounds N] [--build DIR]
    tests/roots/roots.py sid build bench    # with the torch of another Debian

Each figure is the median over rounds; in a round every way runs once, one after another, so that a machine that is slower for a
while is slower for all of them. A ratio is that of one round; the figure is the median of the ratios. The table at the end has all figures.
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

median = statistics.median


class Bench:
    def __init__(self, launcher, directory, rounds, environment):
        self.launcher, self.directory, self.rounds, self.environment = str(launcher), directory, rounds, environment
        self.output = directory / "run"
        self.rows = []

    def row(self, what, *cells):
        self.rows.append([what, *map(str, cells)])
        print("  ".join([what, *map(str, cells)]), file=sys.stderr, flush=True)

    def run(self, command):
        """(stdout, seconds, time on the wall at the end)"""
        shutil.rmtree(self.output, ignore_errors=True)
        begin = time.perf_counter()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=self.environment, cwd=self.directory)
        seconds = time.perf_counter() - begin
        if done.returncode != 0:
            sys.exit("%s\nended with %d\n%s" % (" ".join(map(str, command)), done.returncode, done.stderr))
        return done.stdout, seconds, time.time()

    def profiled(self, command, *options):
        """The command under `torchprof run`, whole unless the options have a window."""
        whole = [] if "-w" in options else ["-w", "all"]
        return [self.launcher, "run", "--quiet", "-o", self.output, *whole, *options, "--", *command]

    def interleaved(self, ways):
        """ways: {name: command}. For each way the list of numbers that its runs printed first, round by round."""
        numbers = {name: [] for name in ways}
        for _ in range(self.rounds):
            for name, command in ways.items():
                numbers[name].append(float(self.run(command)[0].split()[0]))
        return numbers

    def compare(self, what, ways, limits):
        """Rows: what torchprof adds, what each of the others adds, and whether the ratio is within its limit (None: no limit)."""
        numbers = self.interleaved(ways)
        bare = numbers["bare"]
        added = {name: [n - b for n, b in zip(numbers[name], bare)] for name in ways}
        for other, limit in limits.items():
            ratio = median(ours / theirs for ours, theirs in zip(added["torchprof"], added[other]))
            self.row(what, "%.0f ns" % median(bare), "+%.0f" % median(added["torchprof"]), "+%.0f (%s)" % (median(added[other]), other),
                     "%.2f" % ratio, verdict(ratio, limit))


BATCHES = 59  # and one to warm up, of 5000 operators each


def kineto():
    import torch
    return torch.profiler.kineto_available()


def verdict(ratio, limit):
    return "" if limit is None else "<= %.2f: %s" % (limit, "kept" if ratio <= limit else "MISSED")


def operators(bench, python):
    loop = [python, HERE / "op_loop.py"]
    empty = bench.directory / "empty_callback.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", empty, HERE / "empty_callback.c"], check=True)
    off = ["--python", "off", "--shapes", "off", "--memory", "off", "--format", "none"]
    bench.compare("torch.add, operators alone", {
        "bare": [*loop, "bare", 20],
        "torchprof": bench.profiled([*loop, "bare", 20], *off),
        "an empty callback": [*loop, "empty", 20, empty],
        "torch.profiler": [*loop, "operators", 20]}, {"torch.profiler": 0.6, "an empty callback": None})
    bench.compare("torch.add, shapes and memory", {
        "bare": [*loop, "bare", 20],
        "torchprof": bench.profiled([*loop, "bare", 20], "--python", "off", "--format", "none"),
        "an empty callback with inputs": [*loop, "empty-inputs", 20, empty],
        "torch.profiler": [*loop, "shapes+memory", 20]}, {"torch.profiler": 0.5 if kineto() else None, "an empty callback with inputs": None})
    everything(bench, python, empty)
    loop = [python, HERE / "call_loop.py", 20]
    if not kineto():
        return
    bench.compare("fib, Python calls", {
        "bare": loop,
        "torchprof": bench.profiled(loop, "--python", "calls", "--format", "none"),
        "torch.profiler": [*loop, "torch.profiler"]}, {"torch.profiler": 0.5})


def everything(bench, python, empty):
    """Beside all that torch.profiler has, stacks included."""
    loop = [python, HERE / "op_loop.py"]
    if subprocess.run([*loop, "full", "1"], capture_output=True, env=bench.environment, cwd=bench.directory).returncode != 0:
        bench.row("torch.add, everything", "", "", "torch.profiler with stacks crashes here")  # torch 2.6 with Python 3.13
        return
    bench.compare("torch.add, everything", {
        "bare": [*loop, "bare", 20],
        "torchprof": bench.profiled([*loop, "bare", 20], "--python", "calls", "--format", "none"),
        "torch.profiler": [*loop, "full", 20]}, {"torch.profiler": 0.28 if kineto() else 0.45})
    step = [python, HERE / "train_loop.py"]
    numbers = bench.interleaved({"bare": [*step, "step", 20], "torchprof": bench.profiled([*step, "step", 20], "--format", "none"),
                                 "an empty callback with inputs": [*step, "empty", 20, empty], "torch.profiler": [*step, "full", 20]})
    times = {name: median(n / b for n, b in zip(numbers[name], numbers["bare"])) for name in numbers}
    for other in ("torch.profiler", "an empty callback with inputs"):
        bench.row("step of a small transformer, everything", "%.0f us" % (median(numbers["bare"]) / 1e3), "%.2f times bare" % times["torchprof"],
                  "%.2f times bare (%s)" % (times[other], other), "%.2f" % ((times["torchprof"] - 1) / (times[other] - 1)))


def outside_of_a_window(bench, python, pythons):
    """What a program pays while it waits for its window: its time divided by the bare program's."""
    # The cost of such a step is only at its edges, too little to see in the noise of the whole step. So the edges are measured alone.
    # `-w auto` has closed its beginning after 500 events, here 50 steps, and then has windows of three steps, in few of the batches.
    loop = [python, HERE / "train_loop.py"]
    windows = {"a window of steps": ["-w", "steps=1000000..1000001"], "-w auto": ["-w", "auto", "--budget-events", "1000"]}
    numbers = bench.interleaved({"step": [*loop, "step", 20], "bare": [*loop, "edges", 20],
                                 **{name: bench.profiled([*loop, "edges", 20], *window, "--format", "none") for name, window in windows.items()}})
    for name in windows:
        added = [o - b for o, b in zip(numbers[name], numbers["bare"])]
        ratio = median(a / step for a, step in zip(added, numbers["step"]))
        bench.row("step of a small transformer, outside of %s" % name, "%.0f ns" % median(numbers["step"]), "%+.0f ns" % median(added), "", "%.4f" % ratio,
                  verdict(ratio, 0.003))
    for python in pythons:
        name, command = "fib, Python %s" % python, [python.path, HERE / "call_loop.py", 100]
        numbers = bench.interleaved({"bare": command, "ours": bench.profiled(command, "-w", "manual", "--format", "none")})
        ratio = median(o / b for o, b in zip(numbers["ours"], numbers["bare"])) - 1
        bench.row("%s, outside of a window" % name, "%.0f ns" % median(numbers["bare"]), "%+.1f %%" % (ratio * 100), "", "%.3f" % ratio,
                  verdict(ratio, 0.01))


def build_empty_profile(python, directory):
    """None if this Python's headers are not here."""
    paths = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"], capture_output=True, text=True,
                           check=True).stdout.strip()
    if not os.path.exists(os.path.join(paths, "Python.h")):
        return None
    directory.mkdir()
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", paths, "-o", directory / "empty_profile.so", HERE / "empty_profile.c"], check=True)
    return directory


def python_calls(bench, pythons):
    for python in pythons:
        name = "fib, Python %s" % python
        built = build_empty_profile(python.path, bench.directory / ("empty-%s" % python))
        if not built:
            bench.row(name, "SKIPPED: no Python.h for", python.path)
            continue
        loop = [python.path, HERE / "call_loop.py", 100]
        bench.compare(name, {
            "bare": loop,
            "torchprof": bench.profiled(loop, "--python", "functions", "--format", "none"),
            "an empty PyEval_SetProfile": [*loop, built],
            "one that reads the clock": [*loop, built, "clock"]
            }, {"an empty PyEval_SetProfile": 0.6 if python.version >= (3, 12) else 1.25, "one that reads the clock": None})


def flight_recorder(bench, pythons):
    """What it costs to overwrite the oldest events, compared with appending: the run writes several times what it may keep."""
    for python in pythons:
        loop = [python.path, HERE / "call_loop.py", 100]
        bench.compare("fib, Python %s, recycling" % python, {
            "bare": loop,
            "torchprof": bench.profiled(loop, "--format", "none", "--keep", "last", "--max-size", "8M"),
            "--keep first": bench.profiled(loop, "--format", "none")}, {"--keep first": 1.05})


def native_stacks(bench, python):
    """What the stack of an operator costs on top of the operator's records, and on top of a step of training with the default options."""
    loop, off = [python, HERE / "op_loop.py", "deep"], ["--python", "off", "--shapes", "off", "--memory", "off"]
    bench.run(bench.profiled([*loop, 1], *off, "--native", "on", "--native-frames", "all"))
    trace, = bench.output.glob("trace.json.gz")
    frames = median(len(e["args"]["stack"]) for e in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] if e["name"] == "aten::add")
    numbers = bench.interleaved({"bare": [*loop, 20], "off": bench.profiled([*loop, 20], *off, "--format", "none"),
                                 "on": bench.profiled([*loop, 20], *off, "--format", "none", "--native", "on")})
    added = {name: median(n - b for n, b in zip(numbers[name], numbers["bare"])) for name in ("off", "on")}
    bench.row("torch.add in a stack of %d frames, --native on" % frames, "%.0f ns" % median(numbers["bare"]), "+%.0f" % added["on"],
              "+%.0f (--native off)" % added["off"], "%.2f us a stack" % ((added["on"] - added["off"]) / 1e3), verdict((added["on"] - added["off"]) / 1e3, 1.5))
    loop = [python, HERE / "train_loop.py", "step", 20]
    numbers = bench.interleaved({"bare": loop, "off": bench.profiled(loop, "--format", "none"), "on": bench.profiled(loop, "--format", "none", "--native", "on")})
    ratio = median(on / off for on, off in zip(numbers["on"], numbers["off"]))
    added = {name: median(n - b for n, b in zip(numbers[name], numbers["bare"])) / 1e3 for name in ("off", "on")}
    bench.row("step of a small transformer, --native on", "%.0f us" % (median(numbers["bare"]) / 1e3), "+%.0f us" % added["on"], "+%.0f us (--native off)" % added["off"],
              "%.2f" % ratio)
    program, seconds = [python, HERE.parents[1] / "examples" / "transformer.py"], {name: [] for name in ("bare", "off", "on")}
    ways = {"bare": program, "off": bench.profiled(program, "--format", "none"), "on": bench.profiled(program, "--format", "none", "--native", "on")}
    for _ in range(max(3, bench.rounds // 3)):
        for name, command in ways.items():
            seconds[name].append(bench.run(command)[1])
    ratio = median(on / off for on, off in zip(seconds["on"], seconds["off"]))
    added = {name: median(n - b for n, b in zip(seconds[name], seconds["bare"])) for name in ("off", "on")}
    bench.row("examples/transformer.py, --native on", "%.2f s" % median(seconds["bare"]), "+%.2f s" % added["on"], "+%.2f s (--native off)" % added["off"],
              "%.2f" % ratio, verdict(ratio, 1.6))


def from_end_to_trace(bench, python):
    """A million events (two records each) of the cheapest kind, and the same number of operators as torch.profiler can hold."""
    seconds, bare_seconds, sizes = [], [], None
    command = [python, HERE / "call_loop.py", 45]
    for _ in range(max(3, bench.rounds // 3)):
        stdout, _, ended = bench.run(command)
        bare_seconds.append(ended - float(stdout.split()[1]))
        stdout, _, ended = bench.run(bench.profiled(command, "--python", "functions", "--keep-spool", "--format", "kineto"))
        seconds.append(ended - float(stdout.split()[1]))
        trace, = bench.output.glob("trace.json.gz")
        spool = sum(f.stat().st_size for f in bench.output.rglob("*.spool"))
        with gzip.open(trace, "rb") as text:
            events = sum(line.count(b'"ph":') for line in text)
        sizes = events, spool / events, trace.stat().st_size / events
    bench.row("end of program to trace, %.2f million events" % (sizes[0] / 1e6), "%.2f s" % median(bare_seconds), "+%.2f s" %
              (median(seconds) - median(bare_seconds)), "%.2f s a million" % ((median(seconds) - median(bare_seconds)) / sizes[0] * 1e6))
    bench.row("bytes an event", "", "spool %.1f" % sizes[1], "trace.json.gz %.1f" % sizes[2])

    # What both write is the same: operators without shapes. The end of the program itself is taken off both.
    loop = [python, HERE / "op_loop.py"]
    ways = {"bare": [*loop, "bare", BATCHES],
            "ours": bench.profiled([*loop, "bare", BATCHES], "--python", "off", "--shapes", "off", "--memory", "off", "--format", "kineto"),
            "theirs": [*loop, "operators", BATCHES, bench.directory / "theirs.json"]}
    took = {name: [] for name in ways}
    for _ in range(max(3, bench.rounds // 3)):
        for name, command in ways.items():
            stdout, _, ended = bench.run(command)
            took[name].append(ended - float(stdout.split()[1]))
    ours, theirs = ([n - bare for n, bare in zip(took[name], took["bare"])] for name in ("ours", "theirs"))
    ratio = median(o / t for o, t in zip(ours, theirs))
    bench.row("end of program to trace, %d,000 operators" % ((BATCHES + 1) * 5), "%.2f s" % median(took["bare"]), "+%.2f s" % median(ours),
              "+%.2f s (torch.profiler, .json)" % median(theirs), "%.2f" % ratio, verdict(ratio, 1 / 6 if kineto() else None))


def reports(bench, python):
    """Ten million events of a training, on one core: the slowest table, all of them as a page, and Perfetto's format."""
    bench.run(bench.profiled([python, HERE / "train_loop.py", "step", 470], "--python", "calls", "--keep-spool", "--format", "none"))
    run = bench.directory / "reported"
    bench.output.rename(run)
    (table,) = json.loads(bench.run([bench.launcher, "report", run, "-t", "profiler", "--json"])[0])["tables"]
    events = sum(row["operators"] + row["python_calls"] + row["c_calls"] for row in table["rows"]) / 1e6

    def on_one_core(*arguments):
        """(seconds, seconds of CPU, megabytes)"""
        begin = time.perf_counter()
        process = subprocess.Popen([bench.launcher, *map(str, arguments)], stdout=subprocess.DEVNULL, env=bench.environment, cwd=bench.directory,
                                   preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit("%s: %d" % (arguments, status))
        return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

    took = {table: on_one_core("report", run, "-t", table)
            for table in ("ops", "modules", "memory", "python", "steps", "comms", "threads", "processes", "profiler", "advice")}
    slowest = max(took, key=took.get)
    bench.row("report of %.1f million events, slowest table: %s" % (events, slowest), "", "%.1f s" % took[slowest][0],
              "%.0f MB" % max(megabytes for *_, megabytes in took.values()), "", "10 s, 1 GB: %s" % (
                  "kept" if took[slowest][0] <= 10 and max(megabytes for *_, megabytes in took.values()) <= 1000 else "MISSED"))
    seconds, _, megabytes = on_one_core("report", run, "--html", bench.directory / "page.html")
    bench.row("the same as a page", "", "%.1f s" % seconds, "%.0f MB" % megabytes)
    _, cpu, megabytes = on_one_core("export", run, "--format", "perfetto", "-o", bench.directory / "reported.perfetto-trace")
    bench.row("the same in Perfetto's format", "", "%.1f million/s" % (events / cpu), "%.0f MB" % megabytes, "", "3 million/s: %s" % (
        "kept" if events / cpu >= 3 else "MISSED"))
    shutil.rmtree(run)


def start_up(bench, python):
    for name, command, most in (("true", ["true"], 5), ("python3 -c pass", [python, "-c", "pass"], 15)):
        bare, ours = [], []
        for _ in range(3 * bench.rounds):
            bare.append(bench.run(command)[1] * 1e3)
            ours.append(bench.run(bench.profiled(command))[1] * 1e3)
        more = median(o - b for o, b in zip(ours, bare))
        bench.row("start and end of %s" % name, "%.1f ms" % median(bare), "+%.1f ms" % more, "", "", "%d ms: %s" % (most, "kept" if more <= most else "MISSED"))


def print_table(rows):
    head = ["", "bare", "torchprof adds", "the other adds", "ratio", "target"]
    rows = [head] + [row + [""] * (len(head) - len(row)) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return "%s, %d cores, Linux %s" % (model[1] if model else "?", len(os.sched_getaffinity(0)), os.uname().release)


def main():
    from conftest import BUILD, INSTALLED, clean_environment, find_pythons  # fixes TORCHPROF_BUILD
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--build", type=pathlib.Path, default=BUILD)
    parser.add_argument("--only", choices=["operators", "calls", "recycling", "window", "native", "trace", "reports", "start"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        if not INSTALLED:
            subprocess.run(["meson", "install", "-C", args.build, "--no-rebuild", "--quiet", "--destdir", scratch / "tree"], check=True)
        launcher, = pathlib.Path(INSTALLED or scratch / "tree").rglob("bin/torchprof")
        bench = Bench(launcher, scratch, args.rounds, clean_environment())
        parts = {"operators": lambda: operators(bench, sys.executable), "calls": lambda: python_calls(bench, find_pythons()),
                 "recycling": lambda: flight_recorder(bench, find_pythons()),
                 "window": lambda: outside_of_a_window(bench, sys.executable, find_pythons()),
                 "native": lambda: native_stacks(bench, sys.executable),
                 "trace": lambda: from_end_to_trace(bench, sys.executable),
                 "reports": lambda: reports(bench, sys.executable), "start": lambda: start_up(bench, sys.executable)}
        for name, part in parts.items():
            if args.only in (None, name):
                part()
    import torch
    print("%s; torch %s%s; %d rounds" % (machine(), torch.__version__, "" if kineto() else " without Kineto", args.rounds))
    print_table(bench.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
