#!/usr/bin/env python3
"""Kills programs under `torchprof run` with SIGKILL at random moments and looks whether anything that was recorded is missing.

Each round starts one of KINDS, lets it publish its progress in a mapped file, kills what the kind says after a random time, and then
demands: the launcher ends as the command did and writes the trace (if it was the launcher that was killed, `torchprof report` and
`torchprof export` do that from the spool); every trace keeps the rules of the format; every call that was published as done is in it.

usage: kill_campaign.py --launcher BIN/torchprof [--rounds N] [--seed N] [--kinds KIND,...]      the exit status is 1 if a round failed
"""
import argparse
import collections
import json
import mmap
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import trace_rules

FORMATS = ["--format", "kineto-ranks,kineto,table"]  # without ranks: a file for each process, and one for all
SLOTS = 8
# Slot n holds two words: the process that fills it, and how many of its calls are done. The word after the last slot says "stop".
PROGRAM = """
import mmap, os, sys, threading, time
words = memoryview(mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)).cast("Q")
kind, slots = sys.argv[2], len(words) // 2
def inner(n): return n
def call(n):
    for i in range(10): inner(i)
def work(slot):
    words[2 * slot] = os.getpid()
    n = 0
    while not words[-1]:
        call(n)
        n += 1
        words[2 * slot + 1] = n
        time.sleep(0.0003)
def work_torch(slot):
    import torch
    torch.set_num_threads(1)
    words[2 * slot] = os.getpid()
    x, n = torch.ones(4), 0
    while not words[-1]:
        with torch.profiler.record_function("call %d" % n): x.add(1)
        n += 1
        words[2 * slot + 1] = n
        time.sleep(0.0003)
def work_long(slot):
    import torch
    torch.set_num_threads(1)
    weight, n = torch.ones(4, requires_grad=True), 0
    optimizer = torch.optim.SGD([weight], lr=0.1)
    words[2 * slot] = os.getpid()
    while not words[-1]:
        if n % 50 == 20: time.sleep(0.02)
        optimizer.zero_grad()
        (weight * 2).sum().backward()
        optimizer.step()
        n += 1
        words[2 * slot + 1] = n
def worker(slot, parent):
    threading.Thread(target=work, args=(slot,), daemon=True).start()
    while not words[-1] and os.getppid() == parent: time.sleep(0.01)
    time.sleep(0.02)
    os._exit(0)
def tree():
    parent = os.getpid()
    for slot in 1, 2, 3:
        os.fork() or worker(slot, parent)
    threading.Thread(target=work, args=(0,)).start()
    os.wait()
    words[-1] = 1
{"python": lambda: work(0), "torch": lambda: work_torch(0), "long": lambda: work_long(0), "tree": tree}[kind]()
"""
OPTIONS = {"torch": ["--python", "off"],  # importing torch is a million calls that nobody asks for here
           "long": ["-w", "auto", "--budget-events", "4K", "--budget-overhead", "10"]}
# Kind: the program, what is killed ("command", "one", "all": the command and its children, "launcher", "everything"), and the longest
# time until then.
KINDS = {
    "python": ("python", "command", 0.6),
    "torch": ("torch", "command", 3.0),
    "a long run": ("long", "command", 6.0),  # of which only windows are kept: the program's calls are steps, whose times are
    "all of a long run": ("long", "everything", 6.0),
    "one of a tree": ("tree", "one", 0.8),
    "a whole tree": ("tree", "all", 0.8),
    "the launcher": ("tree", "launcher", 0.8),
    "everything": ("tree", "everything", 0.8),
}


class Progress:
    def __init__(self, path):
        path.write_bytes(bytes(8 * (2 * SLOTS + 1)))
        self.file = open(path, "r+b")
        self.words = memoryview(mmap.mmap(self.file.fileno(), 0)).cast("Q")

    def pids(self):
        return [self.words[2 * n] for n in range(SLOTS) if self.words[2 * n]]

    def calls(self):
        """{pid: calls that were done}"""
        return {self.words[2 * n]: self.words[2 * n + 1] for n in range(SLOTS) if self.words[2 * n]}

    def stop(self):
        self.words[2 * SLOTS] = 1


def is_running(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid):
    try:
        return [int(p) for p in pathlib.Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def victims(target, launcher, chance):
    command = children_of(launcher)[:1]  # the other one is ours: launcher/run/witness.h
    tree = command + [p for parent in command for p in children_of(parent)]
    return {"command": command, "one": chance.sample(tree, min(1, len(tree))), "all": tree, "launcher": [launcher],
            "everything": [launcher] + tree}[target]


def faults_of(trace, done):
    """Lines that say what is wrong with the trace of a process that had published `done` calls."""
    out = trace_rules.broken_rules(trace)
    annotations = trace.names("user_annotation")
    if "call 0" in annotations:
        missing = [n for n in range(done) if "call %d" % n not in annotations]
        return out + ["calls %s are missing" % missing[:5]] * bool(missing)
    calls = sum(n for name, n in trace.names("python_function").items() if name.endswith(": call"))
    inner = sum(n for name, n in trace.names("python_function").items() if name.endswith(": inner"))
    if done and (calls < done or inner < 10 * done):
        out.append("%d calls were published, the trace has %d and %d of 10 inner ones each" % (done, calls, inner))
    return out


def faults_of_steps(launcher, run, env, done):
    """What is wrong with a run of a single process that had published `done` steps."""
    asked = subprocess.run([launcher, "report", run, "-t", "steps", "--json"], env=env, capture_output=True, text=True, timeout=60)
    if asked.returncode != 0:
        return ["no steps of %d: %s" % (done, asked.stderr)] * bool(done)
    rows = [row for table in json.loads(asked.stdout)["tables"] if table["name"] == "steps" for row in table["rows"]]
    steps = sum(row["steps"] for row in rows)
    return ["%d steps were published, the table has %d" % (done, steps)] * (steps < done)


def play(kind, launcher, directory, chance):
    """One round in an empty directory: what went wrong, as lines; how many calls were published; how many traces there are."""
    program, target, longest = KINDS[kind]
    progress, run, faults = Progress(directory / "progress"), directory / "run", []
    (directory / "program.py").write_text(PROGRAM)
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHPROF_")}
    options = OPTIONS.get(program, [])
    command = [sys.executable, directory / "program.py", directory / "progress", program]
    process = subprocess.Popen([launcher, "run", "-q", "-o", run, *FORMATS, *options, "--", *command], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    # A quarter of the moments lie anywhere from the very beginning on, the others where the program is at work.
    is_ready = (lambda: children_of(process.pid)) if chance.random() < 0.25 else (lambda: any(progress.calls().values()))
    while process.poll() is None and not is_ready():
        time.sleep(0.001)
    time.sleep(chance.uniform(0, longest))
    killed = victims(target, process.pid, chance)
    kill(killed)
    time.sleep(0.05)
    progress.stop()
    stderr = process.communicate(timeout=60)[1].decode()
    deadline = time.monotonic() + 20
    while any(map(is_running, progress.pids())) and time.monotonic() < deadline:
        time.sleep(0.01)
    faults += ["process %d did not end" % pid for pid in progress.pids() if is_running(pid)]
    if target != "one" and process.returncode != -signal.SIGKILL:
        faults.append("the launcher's status is %d: %s" % (process.returncode, stderr))
    if target in ("launcher", "everything") and run.exists() and list(run.glob("spool/*.spool")):
        for command in (["report", run], ["export", run, *FORMATS]):
            done = subprocess.run([launcher, *command], env=env, capture_output=True, text=True, timeout=60)
            if done.returncode != 0:
                faults.append("%s: %s" % (command[0], done.stderr))
    traces = {t.pid: t for t in map(trace_rules.Trace, run.glob("process*.pt.trace.json.gz"))}
    for pid, done in progress.calls().items():
        if program == "long":
            faults += faults_of_steps(launcher, run, env, done)
        elif pid in traces:
            faults += ["process %d: %s" % (pid, line) for line in faults_of(traces[pid], done)]
        elif done:
            faults.append("process %d published %d calls and has no trace: %s" % (pid, done, stderr))
    if (run / "trace.json.gz").exists():
        faults += trace_rules.broken_rules(trace_rules.Trace(run / "trace.json.gz"), merged=len(traces) > 1)
    return faults, sum(progress.calls().values()), len(traces)


def campaign(launcher, rounds, seed, kinds=tuple(KINDS)):
    """Plays the kinds in turn. {kind: Counter of rounds, calls, traces, failed}; what went wrong is printed."""
    figures = collections.defaultdict(collections.Counter)
    for number in range(rounds):
        kind = kinds[number % len(kinds)]
        directory = pathlib.Path(tempfile.mkdtemp(prefix="torchprof-kill-"))
        faults, calls, traces = play(kind, launcher, directory, random.Random("%d %d" % (seed, number)))
        figures[kind].update(rounds=1, calls=calls, traces=traces, failed=bool(faults))
        if faults:
            print("round %d of seed %d, %s (kept in %s):\n  %s" % (number, seed, kind, directory, "\n  ".join(faults[:10])), flush=True)
        else:
            shutil.rmtree(directory)
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    figures = campaign(options.launcher, options.rounds, options.seed, options.kinds.split(","))
    for kind, of in figures.items():
        print("%-16s %4d rounds, %4d traces, %8d calls published before the kill, %d failed" % (
            kind, of["rounds"], of["traces"], of["calls"], of["failed"]))
    failed = sum(of["failed"] for of in figures.values())
    print("%d rounds, %d failed" % (sum(of["rounds"] for of in figures.values()), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
