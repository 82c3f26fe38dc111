#!/usr/bin/env python3
"""Runs made-up programs under `torchprof run` while system calls are held up at random, and looks whether anything is missing.

Each round makes a program from its number (threads, forks up to five deep, new interpreters, more names than a chunk holds, different
ends) and lets strace hold up some of its system calls (`--delays`), or lets spinning threads take the processors (`--load N`). Each
process writes down how often it called which function before it ends. Checked: all of these calls are in its trace, the traces keep the
rules of the format, and nothing that is printed or written says "damaged" or "<unknown".

usage: delay_campaign.py --launcher BIN/torchprof [--programs N] [--seeds N] [--first N] [--load THREADS] [--processes N]

The exit status is 1 if a round failed. Needs strace, unless --load is given.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import trace_rules

# argv: the file of announcements, the specification of this process.
PROGRAM = """
import json, os, signal, subprocess, sys, threading
def be(spec):
    # Long, so that many of them are more definitions than a chunk holds.
    names, made = ["mark_%s_%d_%s" % (spec["path"], n, "x" * 180) for n in range(spec["names"])], {}
    exec(compile("".join("def %s(n): return 1\\n" % name for name in names), "<made>", "exec"), made)
    functions = [made[name] for name in names]
    def work(rounds):
        for _ in range(rounds):
            for function in functions: function(0)
    work(spec["calls"])
    children = []
    for child in spec["children"]:
        if child["by"] == "fork":
            pid = os.fork()
            if pid == 0: be(child)
            children.append(pid)
        else:
            children.append(subprocess.Popen([sys.executable, *sys.orig_argv[1:-1], json.dumps(child)]).pid)
    threads = [threading.Thread(target=work, args=(spec["calls"],)) for _ in range(spec["threads"])]
    for thread in threads: thread.start()
    work(spec["calls"])
    for thread in threads: thread.join()
    for child in children: os.waitpid(child, 0)
    said = json.dumps({"pid": os.getpid(), "each": spec["calls"] * (2 + spec["threads"]), "names": names})
    with open(sys.argv[1], "ab", 0) as file: file.write(said.encode() + b"\\n")
    {"return": lambda: sys.exit(0), "_exit": lambda: os._exit(0), "kill": lambda: os.kill(os.getpid(), signal.SIGKILL)}[spec["end"]]()
be(json.loads(sys.argv[2]))
"""
# System calls of the recorder and the interpreter. They are delayed at their entry, so that other threads go on meanwhile.
HELD_UP = ("openat close mmap munmap madvise fallocate pwritev fstat newfstatat fcntl clone clone3 vfork futex gettid getpid uname prctl flock mkdir "
           "rt_sigprocmask set_robust_list exit exit_group wait4 write read getdents64 ioctl lseek brk mprotect").split()


def specification(chance, depth, path="0"):
    """A process and its children."""
    children = 0 if depth == 0 else chance.choice((1, 1, 2))
    return {"path": path, "names": chance.choice((1, 5, 40, 400)), "calls": chance.randint(1, 20), "threads": chance.choice((0, 0, 1, 4)),
            "end": chance.choice(("return", "return", "_exit", "kill")),
            "children": [dict(specification(chance, depth - 1, path + str(n)), by=chance.choice(("fork", "fork", "fork", "exec")))
                         for n in range(children)]}


def wide(chance, processes):
    """One process with many children."""
    return {"path": "0", "names": 40, "calls": 3, "threads": 1, "end": "return",
            "children": [dict(specification(chance, 0, "0_%d" % n), by="fork") for n in range(processes)]}


def count(spec):
    return 1 + sum(map(count, spec["children"]))


def delays(chance):
    """strace's own command line: three kinds of calls, held up for some milliseconds at some of their moments."""
    calls = chance.sample(HELD_UP, 3)
    inject = [word for call in calls for word in ("-e", "inject=%s:delay_enter=%d:when=%d+%d" % (
        call, chance.choice((1000, 5000, 30000)), chance.randint(1, 20), chance.randint(3, 40)))]
    return ["strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=" + ",".join(calls), *inject]


def faults_of(run, announced):
    """Lines that say what is missing or called damaged in the run."""
    traces, out = {t.pid: t for t in map(trace_rules.Trace, run.glob("process*.pt.trace.json.gz"))}, []
    for process in announced:
        trace = traces.get(process["pid"])
        if trace is None:
            out.append("process %d has no trace" % process["pid"])
            continue
        found = trace.names("python_function")
        missing = [name for n, name in enumerate(process["names"]) if found["<made>(%d): %s" % (n + 1, name)] != process["each"]]
        if missing:
            out.append("process %d: %d of %d functions have not their %d calls, among them %s" % (
                process["pid"], len(missing), len(process["names"]), process["each"], missing[:3]))
    for pid, trace in traces.items():
        out += ["process %d: %s" % (pid, line) for line in trace_rules.broken_rules(trace)[:5]]
        out += ["the trace of process %d has %r" % (pid, word) for word in ("<unknown",) if word in trace.text]
    return out


def play(launcher, spec, around, directory):
    """One round in an empty directory: what went wrong, as lines, and how many calls were announced."""
    run, announcements, program = directory / "run", directory / "announced", directory / "program.py"
    program.write_text(PROGRAM)
    announcements.touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHPROF_")}
    command = [*around, sys.executable, "-S", "-E", program, announcements, json.dumps(spec)]
    done = subprocess.run([launcher, "run", "-o", run, "--format", "kineto-ranks,kineto,table", "--", *command], env=env, capture_output=True, text=True, timeout=600)
    announced = [json.loads(line) for line in announcements.read_text().splitlines()]
    wanted = 0 if spec["end"] != "kill" else -9
    faults = [] if done.returncode in (wanted, 137 if wanted else 0) else ["status %d: %s" % (done.returncode, done.stderr[-2000:])]
    if len(announced) != count(spec):
        faults.append("%d of %d processes came to their end" % (len(announced), count(spec)))
    report = subprocess.run([launcher, "report", run], env=env, capture_output=True, text=True, timeout=600)
    written = {"stderr": done.stderr, "report": report.stdout + report.stderr, "run.json": (run / "run.json").read_text()}
    faults += ["%s says %r" % (where, word) for where, text in written.items() for word in ("damage", "<unknown") if word in text]
    faults += faults_of(run, announced)
    return faults, sum(len(p["names"]) * p["each"] for p in announced)


@contextlib.contextmanager
def spinning(threads):
    """Processes that take the processors meanwhile."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(threads)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def campaign(launcher, programs, seeds, first=0, load=0, processes=0):
    """(rounds, calls announced, rounds that failed); what went wrong is printed."""
    rounds = calls = failed = 0
    with spinning(load):
        for program in range(first, first + programs):
            spec = specification(random.Random("program %d" % program), program % 6)
            if processes:
                spec = wide(random.Random("wide %d" % program), processes)
            for seed in range(seeds):
                directory = pathlib.Path(tempfile.mkdtemp(prefix="torchprof-delay-"))
                around = [] if load else delays(random.Random("delays %d %d" % (program, seed)))
                faults, announced = play(launcher, spec, around, directory)
                rounds, calls, failed = rounds + 1, calls + announced, failed + bool(faults)
                if faults:
                    print("program %d, seed %d (kept in %s), %s:\n  %s" % (program, seed, directory, " ".join(around), "\n  ".join(faults[:10])), flush=True)
                else:
                    shutil.rmtree(directory)
    return rounds, calls, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True, type=pathlib.Path)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--load", type=int, default=0, help="spinning threads instead of delays")
    parser.add_argument("--processes", type=int, default=0, help="one process with so many children, instead of trees")
    options = parser.parse_args()
    rounds, calls, failed = campaign(options.launcher, options.programs, options.seeds, options.first, options.load, options.processes)
    print("%d rounds, %d calls announced, %d failed" % (rounds, calls, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
