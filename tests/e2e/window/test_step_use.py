"""What steps spent their time with, outside of windows and in them: on a processor, waiting for one, asleep (tracer/processor_time.h)."""
import statistics
import struct

import pytest

import spool_records

PROCESSOR_TIME, MACHINE_TIME = 100, 101
MS = 1_000_000

# Each part has steps of its own kind. All run on one processor, so that the machine's size does not matter.
PROGRAM = """
import os, subprocess, sys, time, torch
torch.set_num_threads(1)
one = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {one})
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 4)

def compute(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds: pass

def part(name, steps, what):
    for i in range(steps):
        began, ran = time.monotonic_ns(), time.thread_time_ns()
        what()
        model(x).sum().backward()
        optimizer.step()
        print(name, began, time.monotonic_ns(), time.thread_time_ns() - ran, flush=True)

part("first", 5, lambda: compute(0.005))
part("sleeps", 12, lambda: time.sleep(0.05))
part("computes", 12, lambda: compute(0.05))
others = [subprocess.Popen([sys.executable, "-S", "-c", "print(flush=True)\\nwhile True: pass"], stdout=subprocess.PIPE) for _ in range(3)]
for other in others: other.stdout.readline()
torch.set_num_threads(3)
part("crowded", 8, lambda: compute(0.05))
for other in others: other.kill()
for other in others: other.wait()
if len(sys.argv) > 1:
    exec(sys.argv[1])
"""


def looks(path):
    """[(monotonic ns, tid, ran, queued, process ran)] and [(idle, processors, allowed, operator_threads)] of a spool."""
    data = path.read_bytes()
    ticks, monotonic = struct.unpack_from("<Qq", data, 24)
    last_ticks, last_monotonic = struct.unpack_from("<Qq", data, 120)
    per_ns = (last_ticks - ticks) / (last_monotonic - monotonic)
    found, machine = [], []
    for at, committed in spool_records.chunks(data):
        base, = struct.unpack_from("<Q", data, at + 24)
        for kind, record in spool_records.records_of(data, at, committed):
            if kind == PROCESSOR_TIME:
                time = base + (struct.unpack_from("<Q", record)[0] >> 20)
                found.append((monotonic + (time - ticks) / per_ns, *struct.unpack_from("<I4xQQQ", record, 8)))
            elif kind == MACHINE_TIME:
                machine.append(struct.unpack_from("<QIII", record, 8))
    return found, machine


def steps_of(run):
    """What the program said of its steps: (part, begin, end, time on the processor)."""
    return [(name, *map(int, rest)) for name, *rest in map(str.split, run.stdout.splitlines()) if len(rest) == 3]


def main_spool(run):
    best = max(spool_records.spools(run), key=lambda path: len(looks(path)[0]))
    return looks(best)


def shares(found, steps, name):
    """Of the steps of a part: medians of how much of the time was run, queued and slept, where two looks lie around one step alone."""
    kept = []
    for before, now in zip(found, found[1:]):
        inside = [s for s in steps if before[0] - MS <= s[1] and s[2] <= now[0] + MS and s[0] == name]
        if len(inside) != 1 or now[0] - before[0] > 1.2 * (inside[0][2] - inside[0][1]) + 5 * MS:
            continue
        wall, ran, queued = now[0] - before[0], now[2] - before[2], now[3] - before[3]
        assert ran + queued < wall * 1.01 + MS
        assert ran >= inside[0][3] - 2 * MS  # the program's own clock of the same thread
        kept.append((ran / wall, queued / wall, (wall - ran - queued) / wall))
    assert len(kept) >= 3, (name, found, steps)
    return [statistics.median(column) for column in zip(*kept)]


@pytest.mark.once
@pytest.mark.parametrize("options", [("-w", "auto", "--budget-events", "2K"), ("-w", "steps=8..30")], ids=["auto", "steps"])
def test_steps_that_sleep_compute_and_wait_for_a_processor_are_told_apart(torch_python, program, run_torchprof, options):
    run = run_torchprof([torch_python, program(PROGRAM)], options=options)
    assert run.status == 0, run.stderr
    steps = steps_of(run)
    assert len(steps) == 37
    found, machine = main_spool(run)
    assert len({tid for _, tid, _, _, _ in found}) == 1
    assert all(a[2] <= b[2] and a[3] <= b[3] and a[4] <= b[4] for a, b in zip(found, found[1:])), found
    ran, queued, slept = shares(found, steps, "sleeps")
    assert slept > ran  # on a busy machine it may have to wait for a processor after each sleep
    ran, queued, slept = shares(found, steps, "computes")
    assert slept < ran / 4
    ran, queued, slept = shares(found, steps, "crowded")
    assert queued > ran and slept < ran  # one of four has a quarter
    assert machine and all(processors >= 1 and allowed == 1 for _, processors, allowed, _ in machine), machine
    assert machine[0][3] == 1 and machine[-1][3] == 3, machine


# What a kept descriptor would not survive, and what leaves none to open one.
@pytest.mark.once
def test_looks_go_on_whatever_the_program_does_to_its_descriptors(torch_python, program, run_torchprof):
    what = """
import ctypes, resource
os.closerange(3, 4096)
part("closerange", 6, lambda: compute(0.01))
getattr(ctypes.CDLL(None), "close_range", os.closerange)(3, 4095, 0)
part("close_range", 6, lambda: compute(0.01))
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
part("none_left", 6, lambda: compute(0.01))
"""
    run = run_torchprof([torch_python, program(PROGRAM), what])
    assert run.status == 0, run.stderr
    found, _ = main_spool(run)
    for name in "closerange", "close_range", "none_left":
        steps = [s for s in steps_of(run) if s[0] == name]
        assert len(steps) == 6 and sum(steps[0][1] < time < steps[-1][2] + MS for time, *_ in found) >= 3, (name, found)


@pytest.mark.once
def test_a_forked_child_has_totals_of_its_own(torch_python, program, run_torchprof):
    what = """
child = os.fork()
part("child" if child == 0 else "parent", 6, lambda: compute(0.01))
if child != 0: os.waitpid(child, 0)
"""
    run = run_torchprof([torch_python, program(PROGRAM), what])
    assert run.status == 0, run.stderr
    of_child, = [found for found, _ in map(looks, spool_records.spools(run)) if 0 < len(found) < 10]
    assert len(of_child) >= 3
    assert of_child[0][2] < main_spool(run)[0][-1][2]  # it has run for less time
