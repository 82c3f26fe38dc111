"""Times of several processes stand side by side in one trace: their clocks agree."""
import json
import sys

CLOCKS = """
import json, subprocess, sys, time

def marks(): pass

def mark(rounds):
    seen = []
    for _ in range(rounds):
        before = time.monotonic_ns()
        marks()
        seen.append([before, time.monotonic_ns()])
        time.sleep(0.001)
    return seen

seen = mark(200)
if len(sys.argv) == 1:
    child = subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True, check=True)
    time.sleep(0.3)
    print(json.dumps([seen, json.loads(child.stdout)]))
else:
    print(json.dumps(seen))
"""


def test_clocks_of_processes_agree_to_a_microsecond(run_torchprof, program):
    """Each call begins between two looks at the clock, however busy the machine is: so each look gives the least and the most that the trace's clock
    can be ahead of the process's, and a quick call among 200 makes the two nearly equal. (Whole numbers: a double has 256 ns at today's dates.)"""
    run = run_torchprof([sys.executable, program(CLOCKS)])
    seen, traces = json.loads(run.stdout), sorted(run.traces(), key=lambda trace: min(e["ts"] for e in trace.spans("python_function")))
    ahead = []
    for looks, trace in zip(seen, traces):
        begins = [e["ts"] for e in trace.spans("python_function") if e["name"].endswith("): marks")]
        assert len(begins) == len(looks) == 200
        base = int(trace.doc["baseTimeNanoseconds"])
        times = [base + round(ts * 1000) for ts in begins]
        ahead.append((max(time - after for time, (_, after) in zip(times, looks)), min(time - before for time, (before, _) in zip(times, looks))))
    assert all(most - least < 20_000 for least, most in ahead), ahead
    assert max(least for least, _ in ahead) - min(most for _, most in ahead) < 1000, ahead
