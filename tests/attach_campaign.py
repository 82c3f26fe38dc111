#!/usr/bin/env python3
"""Attaches many times to programs that run and looks whether one of them crashes, hangs, computes something else or ends otherwise.

Each Python runs each of KINDS until it is told to stop, while `torchprof attach` comes again and again, with other options each time. The programs check
themselves: sums, hashes, sleeps that are not too short. At the end each says how far it came; one that trains is run once more without us, for as many steps,
and must have the same loss. Of --blocked programs the main thread waits, and each is attached to once, within a second.

usage: attach_campaign.py --launcher BIN/torchprof [--python PYTHON]... [--attaches N] [--kinds KIND,...] [--blocked N] [--any-time]     the exit status is 1 if something
failed. `trains` wants a Python with torch and is left out of the others. --any-time: how long something takes is no failure, as on a busy machine.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PATIENCE = 120  # seconds: a program that has been told to stop and goes on is stuck

PROGRAM = r'''
import hashlib, json, os, queue, select, socket, sys, threading, time
kind, told = sys.argv[1], sys.argv[2]
WANTED = "c59d3c0480cc2d71d8f646e735e92da65450311eec46e81a5db8c7e6e8a92054"
end = lambda: os.path.exists(told)
def work(n): return sum(i * i for i in range(n))
def busy():
    n = 0
    while not end():
        assert work(2000) == 2664667000
        n += 1
    return n
def threads():
    done, inbox = [0] * 4, queue.Queue(10)
    def take(i):
        while (x := inbox.get()) is not None:
            assert hashlib.sha256(x).hexdigest() == WANTED
            done[i] += 1
    those = [threading.Thread(target=take, args=(i,)) for i in range(4)]
    for t in those: t.start()
    n = 0
    while not end():
        inbox.put(b"x" * 5000)
        n += 1
        time.sleep(0.0002)
    for t in those: inbox.put(None)
    for t in those: t.join()
    assert sum(done) == n
    return n
def loads():
    import _ctypes, ctypes.util
    library = ctypes.util.find_library("bz2") or ctypes.util.find_library("z")
    stop = threading.Event()
    def load():
        while not stop.is_set(): _ctypes.dlclose(_ctypes.dlopen(library, 2))
    those = [threading.Thread(target=load) for _ in range(2)]
    for t in those: t.start()
    n = 0
    while not end():
        blocks = [bytearray(3000 + i * 700) for i in range(200)]
        copy = json.loads(json.dumps([{"k": i, "v": [i] * 5} for i in range(100)]))
        assert copy[99]["v"] == [99] * 5 and len(blocks) == 200
        n += 1
    stop.set()
    for t in those: t.join()
    return n
def sleeps():
    a, b = socket.socketpair()
    a.settimeout(0.02)
    n = 0
    while not end():
        begin = time.perf_counter()
        time.sleep(0.02)
        assert time.perf_counter() - begin >= 0.0199
        begin = time.perf_counter()
        assert not select.select([a], [], [], 0.02)[0] and time.perf_counter() - begin >= 0.0199
        try:
            a.recv(1)
            assert False, "nobody has sent anything"
        except TimeoutError: pass
        n += 1
    return n
def trains():
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    n, most = 0, int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 60
    print("ready", flush=True)
    while n < most and not end():
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += 1
    return n, float(loss.detach()).hex()
if kind != "trains": print("ready", flush=True)
result = {"busy": busy, "threads": threads, "loads": loads, "sleeps": sleeps, "trains": trains}[kind]()
print("done", *(result if isinstance(result, tuple) else (result,)), flush=True)
'''
KINDS = ["busy", "threads", "loads", "sleeps", "trains"]

WAITING = r'''
import select, sys, threading, time
def busy():
    while True: sum(range(100))
def join(target):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join()
def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire(timeout=3600)
print("ready", flush=True)
{"sleep": lambda: time.sleep(3600), "join": lambda: join(lambda: time.sleep(3600)), "join-busy": lambda: join(busy), "lock": lock,
 "epoll": lambda: select.epoll().poll(3600)}[sys.argv[1]]()
'''
WAITS = ["sleep", "join", "join-busy", "lock", "epoll"]

OPTIONS = [[], ["--python", "calls"], ["--python", "modules", "--memory", "off"], ["--native", "on"], ["--sample", "100"], ["--memory", "python"], ["--python", "off"]]


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def attach(launcher, pid, directory, options):
    """The seconds until it was attached, for how many us a thread stood still (None: nothing was stopped), what went wrong (None: nothing)."""
    shutil.rmtree(directory, ignore_errors=True)
    begin = time.monotonic()
    process = subprocess.Popen([launcher, "attach", str(pid), "-o", directory, "--format", "none", *options], stderr=subprocess.PIPE, text=True)
    first = process.stderr.readline()
    seconds = time.monotonic() - begin
    try:
        _, rest = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return seconds, None, "the launcher is stuck: " + first.strip()
    stood = re.search(r"stood still for (\d+) us", first)
    failed = process.returncode != 0 or "attached to" not in first
    return seconds, int(stood[1]) if stood and "rests" not in first else None, (first + rest).strip() if failed else None


class Campaign:
    def __init__(self, launcher, directory, seed, any_time):
        self.launcher, self.directory, self.random, self.any_time = launcher, pathlib.Path(directory), random.Random(seed), any_time
        self.failures = 0

    def fail(self, text):
        self.failures += 1
        print("FAILED:", text, flush=True)

    def run(self, python, kind, attaches):
        told, script = self.directory / "stop", self.directory / "program.py"
        script.write_text(PROGRAM)
        told.unlink(missing_ok=True)
        program = subprocess.Popen([python, script, kind, told], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        what = "%s %s" % (python, kind)
        if program.stdout.readline() != "ready\n":
            return self.fail("%s did not begin: %s" % (what, program.communicate()[1][-300:]))
        stood, seconds, done, busy = [], [], 0, 0
        for i in range(attaches):
            window = ["--steps", "2"] if kind == "trains" else ["--for", "10ms"]
            took, stopped, wrong = attach(self.launcher, program.pid, self.directory / "run", [*window, *self.random.choice(OPTIONS)])
            if program.poll() is not None:
                break
            if wrong:
                busy += 1
                print("    %s, attach %d: %s" % (what, i, wrong[-200:]), flush=True)
                if busy > attaches // 20 + 2:
                    break
                continue
            done += 1
            seconds.append(took)
            stood += [stopped] if stopped is not None else []
        alive = program.poll() is None
        told.touch()
        try:
            out, err = program.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            program.communicate()
            return self.fail("%s is stuck after %d attaches" % (what, done))
        if not alive or program.returncode != 0 or err or not out.startswith("done "):
            return self.fail("%s after %d attaches: status %s, %r %r" % (what, done, program.returncode, out[-200:], err[-300:]))
        if kind == "trains":
            told.unlink()
            again = subprocess.run([python, script, kind, told, out.split()[1]], capture_output=True, text=True)
            if again.stdout != "ready\n" + out:
                self.fail("%s computes something else: %r, without us %r" % (what, out, again.stdout))
        if busy:
            self.fail("%s: %d of %d attaches failed" % (what, busy, attaches))
        text = "nothing was stopped" if not stood else "stopped for %d us in the median, %d at most" % (statistics.median(stood), max(stood))
        print("%s: %d attached, %s; attached after %.0f ms in the median; %s" % (what, done, text, 1e3 * statistics.median(seconds or [0]), out.strip()), flush=True)
        if stood and statistics.median(stood) > 2000 and not self.any_time:
            self.fail("%s: stopped for too long" % what)

    def block(self, python, wait, times):
        script = self.directory / "waiting.py"
        script.write_text(WAITING)
        seconds = []
        for _ in range(times):
            program = subprocess.Popen([python, script, wait], stdout=subprocess.PIPE, text=True)
            program.stdout.readline()
            time.sleep(0.05)  # so that it waits by now; if not, this is an attach like the others
            took, _, wrong = attach(self.launcher, program.pid, self.directory / "run", ["--for", "10ms"])
            if wrong or program.poll() is not None:
                self.fail("%s %s: %s" % (python, wait, wrong or "it has ended"))
            else:
                seconds.append(took)
            program.kill()
            program.communicate()
        late = sum(s > 1 for s in seconds)
        print("%s %s: %d of %d attached, %d later than after 1 s, %.0f ms in the median" % (python, wait, len(seconds), times, late, 1e3 * statistics.median(seconds or [0])),
              flush=True)
        if late and not self.any_time:
            self.fail("%s %s: %d were late" % (python, wait, late))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("     the")[0])
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--python", action="append")
    parser.add_argument("--attaches", type=int, default=300)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--blocked", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--any-time", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        campaign = Campaign(os.path.abspath(arguments.launcher), directory, arguments.seed, arguments.any_time)
        for python in arguments.python or [sys.executable]:
            for kind in arguments.kinds.split(",") if arguments.kinds else []:
                if kind != "trains" or has_torch(python):
                    campaign.run(python, kind, arguments.attaches)
            for wait in WAITS if arguments.blocked else []:
                campaign.block(python, wait, arguments.blocked)
    print("%d failed" % campaign.failures if campaign.failures else "all is well")
    return campaign.failures != 0


if __name__ == "__main__":
    sys.exit(main())
