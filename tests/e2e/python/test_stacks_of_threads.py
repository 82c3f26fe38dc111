"""Every thread's Python stack with its lines, of a program in which no thread has an event any more: from its memory, and as it was recorded."""
import collections
import contextlib
import ctypes
import json
import os
import random
import re
import signal
import subprocess
import textwrap
import time

import pytest

from conftest import PATIENCE, clean_environment

# 3.10 does not say which thread a state belongs to.
pytestmark = pytest.mark.since(3, 11)

# Each thread hangs in another way, at the end of a chain of calls of all kinds. The program says itself where each of them is.
PROGRAM = """
import json, os, socket, sys, threading, time
threading.excepthook = lambda error: (sys.__excepthook__(*error[:3]), os._exit(3))
lock = threading.Lock()
lock.acquire()
ours, theirs = socket.socketpair()
hangs = []
def in_lock(): hangs.append(1), lock.acquire()
def in_sleep(): hangs.append(1), time.sleep(1000)
def in_socket(): hangs.append(1), ours.recv(1)
def in_event():
    hangs.append(1)
    threading.Event().wait()
def in_generator():
    yield from (in_lock() for _ in range(3))
%s
names = [%s]
threads = [threading.Thread(target=globals()[name], daemon=True) for name in names]
for t in threads: t.start()
while len(hangs) < len(threads): time.sleep(0.001)
def said(frame):
    lines = []
    while frame:
        lines.append("%%s(%%d): %%s, line %%d" %% (os.path.basename(frame.f_code.co_filename), frame.f_code.co_firstlineno, frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return lines[::-1]
def still():
    # Each has to come from its mark to where it waits.
    seen = None
    while True:
        now = {t.native_id: said(sys._current_frames()[t.ident]) for t in threads}
        if now == seen: return now
        seen = now
        time.sleep(0.2)
def main_hangs():
    text = json.dumps({**still(), threading.get_native_id(): said(sys._getframe())})
    with open("said", "w") as out: out.write(text)
    os.replace("said", "stacks"); %s
main_hangs()
"""
HOLDS_THE_GIL = "import ctypes; print('ready', flush=True); ctypes.PyDLL(None).sleep(1000)"
SLEEPS = "print('ready', flush=True); time.sleep(1000)"


def made_up(seed):
    """The text of a program with chains of functions, methods, generators, coroutines, code of `exec` and callbacks of C."""
    chance = random.Random(seed)
    functions, names = [], []
    for chain in range(chance.randint(1, 6)):
        calls = chance.choice(["in_lock()", "in_sleep()", "in_socket()", "in_event()", "list(in_generator())"])
        for link in range(chance.randint(1, 12)):
            name = "%s_%d_%d" % (chance.choice("fghäλq"), chain, link)
            blank, tail = "\n" * chance.choice([0, 0, 1, 40, 300]), "\n    " + chance.choice(["pass", "return None", "a = [b for b in range(3)]"])
            kind = chance.randrange(8)
            if kind == 0:
                text = "def %s():\n    x = [1,\n         %s,\n         3]" % (name, calls)
            elif kind == 1:
                text = "class C%s:\n    def __init__(self):\n        self.x = 1\n        %s\ndef %s():\n    C%s()" % (name, calls, name, name)
            elif kind == 2:
                text = "def g%s():\n    yield 1\n    yield %s\ndef %s():\n    for _ in g%s(): pass" % (name, calls, name, name)
            elif kind == 3:
                text = "async def a%s():\n    return %s\ndef %s():\n    try: a%s().send(None)\n    except StopIteration: pass" % (name, calls, name, name)
            elif kind == 4:
                text = "exec(compile(%r, 'made up %s', 'exec'))" % ("\n\ndef %s():\n    with open('/dev/null'):\n        %s" % (name, calls), name)
            elif kind == 5:
                text = "def %s():\n    sorted([1, 2], key=lambda x:\n      %s)" % (name, calls)
            elif kind == 6:
                text = "def %s(n=%d):\n    if n: %s(n - 1)\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        %s" % (
                    name, chance.choice([0, 3, 90]), name, calls)
            else:
                text = "def %s():\n    %s" % (name, calls)
            functions.append(blank + text + (tail if kind in (0, 7) else ""))
            calls = name + "()"
        names.append(repr(name))
    return PROGRAM % ("\n".join(functions), ", ".join(names), chance.choice([HOLDS_THE_GIL, SLEEPS]))


def stacks_in(text):
    """{thread: [frame, outermost first]} of what `where` says; of a file its name alone."""
    stacks = {}
    for line in text.splitlines():
        if thread := re.match(r"  thread (\d+)", line):
            frames = stacks.setdefault(thread[1], [])
        elif frame := re.match(r" +(?:[\d.]+ m?s +)?(\S.*\(\d+\): \S+, line \d+)$", line):
            frames.append(frame[1].rsplit("/", 1)[-1])
    return stacks


@contextlib.contextmanager
def hanging(launcher, python, path, tmp_path, options):
    """(its run, its process' id, what it says of its stacks)"""
    with subprocess.Popen([launcher, "run", "-o", tmp_path / "run", *options, "--", python.path, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          cwd=tmp_path, env=clean_environment(), start_new_session=True) as run:
        try:
            assert run.stdout.readline() == "ready\n", run.stderr.read()
            said = json.loads((tmp_path / "stacks").read_text())
            pid = next(int(pid) for pid in said if os.path.exists("/proc/" + pid + "/exe") and is_leader(pid))
            wait_until_it_sleeps(pid)
            yield run, pid, said
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
            run.communicate(timeout=PATIENCE)


def wait_until_it_sleeps(pid):
    """Its main thread still has to come from what it prints to where it hangs."""
    until = time.monotonic() + PATIENCE
    # nanosleep and clock_nanosleep of x86-64 and AArch64
    while open("/proc/%d/syscall" % pid).read().split()[0] not in ("35", "230", "101", "115"):
        assert time.monotonic() < until, "it does not hang"
        time.sleep(0.005)


def is_leader(tid):
    return re.search(r"^Tgid:\t(\d+)$", open("/proc/%s/status" % tid).read(), re.M)[1] == tid


def check(python, where, said):
    found = stacks_in(where.stdout)
    for tid, frames in said.items():
        seen = found.get(tid, [])
        if tid == max(said, key=lambda t: "main_hangs" in str(said[t])):  # it went on from that line to where it hangs
            frames, seen = frames[:-1], seen[:len(frames) - 1]
        assert seen == frames, where.stdout


@pytest.mark.parametrize("seed", range(6))
def test_what_hangs_in_made_up_programs_is_shown_as_python_itself_says_it(python, launcher, torchprof, program, tmp_path, seed):
    options = [["-w", "manual"], [], ["-w", "steps=3..4"]][seed % 3]
    with hanging(launcher, python, program(made_up(seed)), tmp_path, options) as (_, pid, said):
        check(python, torchprof("where", pid), said)


@pytest.mark.parametrize("seed", range(100, 103))
def test_a_window_that_opens_in_a_hang_tells_it_after_kill_9(python, launcher, torchprof, program, check_trace, tmp_path, seed):
    with hanging(launcher, python, program(made_up(seed)), tmp_path, ["-w", "manual", "--discard"]) as (run, pid, said):
        # Where the GIL is held it waits for it, and the stacks are stated before.
        with subprocess.Popen([launcher, "ctl", str(pid), "start"], stderr=subprocess.DEVNULL, env=clean_environment()):
            pass
        os.kill(pid, signal.SIGKILL)
        run.wait(timeout=PATIENCE)
        assert not list((tmp_path / "run").rglob("*.spool"))
        check(python, torchprof("where", tmp_path / "run"), said)
        trace, = (tmp_path / "run").glob("*.json.gz")
        check_open_slices(check_trace(trace), said)


def check_open_slices(trace, said):
    """In the trace, too, each thread has its stack, and each frame once."""
    found = collections.defaultdict(list)
    for span in sorted(trace.spans("python_function"), key=lambda span: span["args"]["Python id"]):
        if span["args"].get("preexisting") and span["args"].get("finished") is False:
            found[str(span["tid"])].append(span["name"].rsplit("/", 1)[-1])
    assert found == {tid: [frame.rpartition(", line ")[0] for frame in frames] for tid, frames in said.items()}


def without_ptrace():
    """Drops CAP_SYS_PTRACE, with which root reads any memory; what is started keeps it out."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(24, 19, 0, 0, 0) == 0  # PR_CAPBSET_DROP


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a capability to lose")
def test_where_its_memory_may_not_be_read_a_process_states_its_stacks_itself(python, launcher, program, tmp_path):
    with hanging(launcher, python, program(made_up(200)), tmp_path, ["-w", "manual"]) as (_, pid, said):
        where = subprocess.run([launcher, "where", str(pid)], capture_output=True, text=True, env=clean_environment(), preexec_fn=without_ptrace, timeout=PATIENCE)
        check(python, where, said)


# Threads that run all the time, in two chains that never mix: what is shown of them must be one of them.
BUSY = textwrap.dedent("""
    import threading
    def a3(n): return [n for n in range(3)]
    def a2(n): return a3(n) and a3(n)
    def a1(n): return sorted(range(3), key=a2)
    def b3(n): yield from range(n)
    def b2(n): return sum(b3(n))
    def b1(n): return b2(3) + b2(n)
    def runs(of):
        while True: of(3)
    for of in (a1, b1) * 2: threading.Thread(target=runs, args=(of,), daemon=True).start()
    print("ready", flush=True)
    runs(a1)
    """)
CALLERS = {"a1": {"runs"}, "a2": {"a1"}, "a3": {"a2"}, "b1": {"runs"}, "b2": {"b1"}, "b3": {"b2"}, "<listcomp>": {"a3"}}


def test_no_frame_is_shown_that_was_not_there_while_threads_run(python, launcher, torchprof, program, tmp_path):
    with subprocess.Popen([launcher, "run", "-o", tmp_path / "run", "-w", "manual", "--", python.path, program(BUSY)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=clean_environment(), start_new_session=True) as run:
        try:
            assert run.stdout.readline() == "ready\n", run.stderr.read()
            frames = 0
            for _ in range(20):
                for stack in stacks_in(torchprof("where", tmp_path / "run").stdout).values():
                    names = [frame.split("): ")[1].split(",")[0] for frame in stack]
                    for caller, name in zip(names, names[1:]):
                        assert caller in CALLERS.get(name, {caller}), stack
                        frames += name in CALLERS
            assert frames > 50
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
            run.communicate(timeout=PATIENCE)
