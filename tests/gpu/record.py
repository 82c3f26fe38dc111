#!/usr/bin/env python3
"""What torchprof sees of a GPU beside what torch.profiler sees, what that costs, and what CUPTI delivers:
in a directory to take home.

    tests/gpu/record.py [PART]... [--out DIR]        all parts, about half an hour; --help has the options

    counts   each workload: as many kernels, copies, sets and launches as torch.profiler has, by name, stream and what they say
    cost     what is added to a launch-bound and a GPU-bound step, in turns with bare steps: torchprof's modes and torch.profiler's
    clock    no kernel before its launch, for minutes; with --set-clock while the wall clock is stepped and slewed (as root)
    kill     how many seconds of GPU work are lost of a program that is killed
    raw      CUPTI's own records of each workload, for tests/unit/files/gpu_golden_test.cpp

It wants a build of torchprof (`meson setup build && meson compile -C build`), the Python that has torch (the one it
runs under, or --python) and a quiet machine. DIR/record.md has a table of all results and one for each, DIR/record.json
the same and every number. What fails is in the table with its error and does not stop the rest. The exit status is 1
if something failed, differs or costs more than it may.

Without a GPU everything that does not need one runs against tests/cupti_sim (of a build with -Dtests=true), and the
first line says so.
"""
import argparse
import pathlib
import signal
import sys
import tempfile
import time

import record_clock
import record_cost
import record_counts
import record_kill
import record_raw
import record_results
import record_runs

PARTS = {"counts": record_counts, "cost": record_cost, "clock": record_clock, "kill": record_kill, "raw": record_raw}
NO_GPU = "NO GPU: against tests/cupti_sim; nothing here has been seen on a GPU"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="%s or all [all]" % ", ".join(PARTS))
    parser.add_argument("--build", type=pathlib.Path, default=record_runs.ROOT / "build", help="a build directory [build/]")
    parser.add_argument("--launcher", type=pathlib.Path, help="torchprof [BUILD/launcher/torchprof]")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch [the one that runs this]")
    parser.add_argument("--out", type=pathlib.Path, help="[gpu-record-TIME]")
    parser.add_argument("--only", action="append", metavar="NAME", help="a workload, a mode, or a way to be killed; may be given more than once")
    parser.add_argument("--seconds", type=float, default=10, help="of each mode of cost in each round [10]")
    parser.add_argument("--rounds", type=int, default=2, help="of cost and kill [2]")
    parser.add_argument("--minutes", type=float, default=3, help="of clock [3]")
    parser.add_argument("--set-clock", action="store_true", help="step and slew the wall clock of this machine by seconds, and put it back")
    parser.add_argument("--timeout", type=int, default=600, help="seconds that a program may take [600]")
    options = parser.parse_args()
    options.parts = list(PARTS) if not options.parts or "all" in options.parts else options.parts
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error("no part is called %s" % ", ".join(unknown))
    options.build = options.build.resolve()
    options.launcher = (options.launcher or options.build / "launcher" / "torchprof").absolute()
    options.out = (options.out or pathlib.Path(time.strftime("gpu-record-%Y%m%d-%H%M%S"))).absolute()
    return options


def measured(part, machine, options):
    """The results of a part. An error between two measurements ends this part and no other."""
    try:
        yield from PARTS[part].measure(machine, options)
    except Exception as error:
        yield record_results.failed(part, "all of it", error)


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that programs end and the wall clock is put back
    with tempfile.TemporaryDirectory(prefix="torchprof-record-") as scratch:
        try:
            machine = record_runs.Machine(options.python, options.launcher, options.build, scratch, options.timeout)
        except (OSError, record_runs.Failed) as error:
            sys.exit("record.py: nothing can be measured: %s\n(--launcher %s, --python %s)" % (error, options.launcher, options.python))
        print("a GPU: %s" % ", ".join(machine.gpus) if machine.has_gpu else NO_GPU, flush=True)
        book = record_results.Book(options.out, machine.about, "" if machine.has_gpu else NO_GPU)
        for part in options.parts:
            for result in measured(part, machine, options):
                book.add(result)
    bad = [result for result in book.results if result.is_bad]
    print("%d results, %d of them bad%s: %s" % (len(book.results), len(bad), "".join("\n  %s %s: %s: %s" % (r.part, r.name, r.state, r.said) for r in bad), options.out / "record.md"))
    if not book.results:
        sys.exit("record.py: nothing is called %s in %s" % (", ".join(options.only or []), ", ".join(options.parts)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
