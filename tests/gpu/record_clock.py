"""Part `clock`: kernels beside the calls that launched them, over minutes, while the wall clock is stepped and slewed.

The least time between a launch and its kernel is as long in the tenth minute as in the first, if both clocks agree. A
launch lies in its operator, which is stamped by torchprof's own clock. The wall clock is the whole machine's: it is
touched with --set-clock alone, and put back.
"""
import bisect
import collections
import contextlib
import subprocess
import time

import record_counts
import record_results
import record_runs
import wall_clock
from record_results import DIFFERS, FAILED, MEASURED, OK, Result, Table

REAL = """
import sys, time, torch
x = torch.ones(8, 8, device="cuda")
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(5): x + 1
    torch.cuda.synchronize()
    time.sleep(0.01)
"""
SIMULATED = """
import sys, time, torch
from simulated_gpu import doubled, sim
sim.simInit(1)
D, x = doubled(), torch.ones(4)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(5): D.apply(x)
    sim.simDeviceSynchronize()
    time.sleep(0.01)
"""
DISTURBED_EVERY = 20  # seconds
BUCKET_US = 10e6
LEAST_OF_A_BUCKET = 50  # kernels; fewer say nothing of the least
MOST_DRIFT_US = 5


def buckets(events):
    """Of each ten seconds: how long after their launches kernels began, how far launches lie outside operators; us."""
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver") and "Launch" in e["name"]}
    operators = collections.defaultdict(list)
    for e in events:
        if e.get("cat") == "cpu_op":
            operators[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for thread, found in operators.items():
        operators[thread] = outermost = []
        for operator in sorted(found, key=lambda o: (o[0], -o[1])):
            if not outermost or operator[0] >= outermost[-1][1]:
                outermost.append(operator)
    begin = min((c["ts"] for c in calls.values()), default=0)
    after, outside = collections.defaultdict(list), collections.defaultdict(list)
    for e in events:
        if e.get("cat") == "kernel" and (call := calls.get(e["args"]["correlation"])):
            bucket = int((call["ts"] - begin) // BUCKET_US)
            after[bucket].append(e["ts"] - call["ts"])
            of_thread = operators[call["tid"]]
            at = bisect.bisect_right(of_thread, (call["ts"], float("inf")))
            around = of_thread[max(at - 1, 0):at + 1]  # that in which it is, or was; the next one, if it is the clock that is wrong
            if around:
                outside[bucket].append(min(max(begins - call["ts"], call["ts"] + call["dur"] - ends, 0.0) for begins, ends in around))
    return [(bucket, sorted(after[bucket]), sorted(outside[bucket])) for bucket in sorted(after)]


def judged(found, disturbed, judges_drift=True):
    """The Result of what buckets() found. `disturbed`: what was done to the wall clock, as text."""
    rows = [[10 * bucket, len(after), *("%.2f" % us for us in (after[0], after[len(after) // 2], after[-1])), sum(us < 0 for us in after),
             "%.2f" % outside[int(len(outside) * 0.99)] if outside else "no operator"] for bucket, after, outside in found]
    kernels, before = sum(len(after) for _, after, _ in found), sum(row[5] for row in rows)
    leasts = [after[0] for _, after, _ in found if len(after) >= LEAST_OF_A_BUCKET]
    drift = max(leasts) - min(leasts) if leasts else None
    beyond = max((outside[int(len(outside) * 0.99)] for _, _, outside in found if outside), default=None)
    table = Table("kernels after their launches", ["from (s)", "kernels", "least (us)", "median", "most", "before their launch", "launches outside their operators (us, 99 of 100 less)"],
                  rows, "The wall clock: %s." % disturbed)
    data = {"rows": rows, "kernels": kernels, "before": before, "drift_us": drift, "outside_us": beyond, "wall clock": disturbed}
    if not kernels or drift is None:
        return Result("clock", "launches and kernels", FAILED, "%d kernels are too few" % kernels, [table], data)
    is_bad = before > 0 or judges_drift and (drift > MOST_DRIFT_US or (beyond or 0) > MOST_DRIFT_US)
    said = "%d of %d kernels before their launch, drift %.2f us, launches outside their operators by %s us; the wall clock: %s" % (
        before, kernels, drift, "?" if beyond is None else "%.2f" % beyond, disturbed)
    return Result("clock", "launches and kernels", DIFFERS if is_bad else OK if judges_drift else MEASURED, said, [table], data)


def disturb_until(is_done, clock, every=DISTURBED_EVERY):
    """Until is_done(seconds), which waits as long as that, says so."""
    while not is_done(every):
        clock.disturb()


def has_ended(process, within):
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def run(machine, seconds, set_clock):
    """The directory of the run and what was done to the wall clock."""
    directory, out = machine.directory() / "run", machine.directory() / "clock"
    command = [*machine.under_torchprof(directory, "--python", "off"), machine.python, machine.script(REAL if machine.has_gpu else SIMULATED), seconds]
    said = "left alone (--set-clock steps and slews it)"
    with contextlib.ExitStack() as stack:
        clock = None
        if set_clock:
            try:
                clock = stack.enter_context(wall_clock.WallClock())
            except PermissionError as error:
                said = "left alone, it may not be set here (%s)" % error
        process = stack.enter_context(machine.started(command, out, CUPTI_SIM_VERSION="13.0"))
        end = time.monotonic() + seconds + machine.timeout
        if clock:
            disturb_until(lambda within: has_ended(process, within) or time.monotonic() > end, clock)
            said = "; ".join(clock.done) or "left alone, the run was too short"
        process.wait(max(end - time.monotonic(), 1))
    if process.returncode != 0:
        raise record_runs.Failed(out.with_suffix(".stderr").read_text(errors="replace"))
    return directory, said


def measure(machine, options):
    def one():
        directory, disturbed = run(machine, options.minutes * 60, options.set_clock)
        found = [e for path in record_runs.traces(directory) for e in record_counts.events(path)]
        return judged(buckets(found), disturbed, judges_drift=machine.has_gpu)
    if not options.only:
        yield record_results.attempt("clock", "launches and kernels", one)
