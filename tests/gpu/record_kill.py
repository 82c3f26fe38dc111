"""Part `kill`: how many seconds of GPU work are not in the trace of a program that is killed.

The programs say what they know to be done, and when.
"""
import bisect
import os
import pathlib
import signal
import time

import record_counts
import record_results
import record_runs
from record_results import DIFFERS, MEASURED, OK, Result, Table

# say(N): N more kernels have ended. The first line is the process.
SAY = """
import os, time
os.write(1, b'%d\\n' % os.getpid())
n = 0
def say(more):
    global n
    n += more
    os.write(1, b'%d %d\\n' % (n, time.monotonic_ns()))
"""
TORCH = "import torch\nx = torch.randn(%d, %d, device='cuda')\ntorch.cuda.synchronize()\n"
SYNCHRONISED = SAY + TORCH % (64, 64) + """
say(1)
while True:
    for _ in range(20): x + 1
    torch.cuda.synchronize()
    say(20)
"""
GPU_BOUND = SAY + TORCH % (4096, 4096) + """
events, i = [torch.cuda.Event() for _ in range(8)], 0
say(1)
while True:
    events[i % 8].synchronize()
    if i >= 8: say(4)
    for _ in range(4): x @ x
    events[i % 8].record()
    i += 1
"""
SPINNING = SAY + TORCH % (64, 64) + """
other = torch.cuda.Stream()
for i in range(100): x + 1
torch.cuda._sleep(100_000_000_000)
say(101)
with torch.cuda.stream(other):
    while True:
        for _ in range(20): x + 1
        other.synchronize()
        say(20)
"""
ASSERT = SAY + TORCH % (64, 64) + """
say(1)
end = time.monotonic() + 3
while time.monotonic() < end:
    for _ in range(20): x + 1
    torch.cuda.synchronize()
    say(20)
torch.zeros(4, device='cuda')[torch.tensor([9], device='cuda')].cpu()
"""
SIMULATED = SAY + """
from simulated_gpu import sim
sim.simInit(1)
while True:
    for _ in range(20): sim.simLaunch(b'k', 7, 1000)
    sim.simDeviceSynchronize()
    say(20)
"""
# {name: (program, signal or None, the most seconds that may be lost or None)}. What has ended is fetched each tenth of
# a second, and that takes a moment. CUPTI has no times for what is launched behind a kernel that does not end: only the
# launches can be there.
CASES = {
    "SIGKILL": (SYNCHRONISED, signal.SIGKILL, 0.15),
    "SIGTERM": (SYNCHRONISED, signal.SIGTERM, 0.15),
    "SIGKILL, GPU-bound": (GPU_BOUND, signal.SIGKILL, 0.15),
    "device-side assert": (ASSERT, None, 0.2),
    "SIGKILL, behind a kernel that spins": (SPINNING, signal.SIGKILL, None),
}
SIMULATED_CASES = {"SIGKILL": (SIMULATED, signal.SIGKILL, None), "SIGTERM": (SIMULATED, signal.SIGTERM, None)}
AFTER = 2.7  # seconds


def lost(announced, recorded):
    """(pieces, seconds) of what was announced, [(pieces so far, ns)], and is not among those recorded."""
    so_far = [n for n, _ in announced]
    if recorded >= so_far[-1]:
        return 0, 0.0
    # What was there before is as old as the first line, if nothing was recorded.
    at = max(bisect.bisect_right(so_far, recorded) - 1, 0)
    return so_far[-1] - recorded, (announced[-1][1] - announced[at][1]) / 1e9


def read_announced(text):
    """(process, [(pieces so far, ns)]). A last line that was cut is left out."""
    lines = text[:text.rfind("\n") + 1].splitlines()
    return int(lines[0]), [tuple(map(int, line.split())) for line in lines[1:]]


def wait_for_lines(path, process, least=2, seconds=120):
    end = time.monotonic() + seconds
    while (text := path.read_text(errors="replace")).count("\n") < least:
        if process.poll() is not None or time.monotonic() > end:
            raise record_runs.Failed("%s\nit ended, or had no kernel within %d s" % (path.with_suffix(".stderr").read_text(errors="replace"), seconds))
        time.sleep(0.05)
    return read_announced(text)[0]


def kill_once(machine, text, how):
    directory, out = machine.directory() / "run", machine.directory() / "kill"
    command = [*machine.under_torchprof(directory, "--python", "off"), machine.python, machine.script(text)]
    with machine.started(command, out) as process:
        pid = wait_for_lines(pathlib.Path("%s.stdout" % out), process)
        if how is not None:
            time.sleep(AFTER)
            os.kill(pid, how)
        process.wait(machine.timeout)
    _, announced = read_announced(pathlib.Path("%s.stdout" % out).read_text(errors="replace"))
    found = [e for path in record_runs.traces(directory) for e in record_counts.events(path)]
    kernels, launches = (sum(1 for e in found if record_counts.group_of(e) == group) for group in ("kernels", "launches"))
    pieces, seconds = lost(announced, kernels)
    return {"announced": announced[-1][0], "kernels": kernels, "launches": launches, "lost": pieces, "seconds": seconds,
            "seconds of launches": lost(announced, launches)[1], "status": process.returncode}


def judged(name, runs, most):
    worst = max(run["seconds"] for run in runs)
    said = "lost: %s s of GPU work, of launches at most %.3f s%s" % (
        ", ".join("%.3f" % run["seconds"] for run in runs), max(run["seconds of launches"] for run in runs), "" if most is None else "; at most %.2f s" % most)
    keys = list(runs[0])
    rows = [["%.3f" % run[key] if isinstance(run[key], float) else run[key] for key in keys] for run in runs]
    return Result("kill", name, MEASURED if most is None else OK if worst <= most else DIFFERS, said, [Table(name, keys, rows)], runs)


def measure(machine, options):
    for name, (text, how, most) in (CASES if machine.has_gpu else SIMULATED_CASES).items():
        if not options.only or name in options.only:
            yield record_results.attempt("kill", name, lambda: judged(name, [kill_once(machine, text, how) for _ in range(options.rounds)], most))
