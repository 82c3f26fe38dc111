"""Times of several processes stand side by side in one trace: their clocks agree."""
import json
import statistics
import sys

CLOCKS = """
import json, subprocess, sys, time

def marks(): pass

def mark(rounds):
    seen = []
    for _ in range(rounds):
        before = time.monotonic_ns()
        marks()
        seen.append((before + time.monotonic_ns()) // 2)
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
    run = run_torchprof([sys.executable, program(CLOCKS)])
    seen, traces = json.loads(run.stdout), sorted(run.traces(), key=lambda trace: min(e["ts"] for e in trace.spans("python_function")))
    behind = []
    for monotonic, trace in zip(seen, traces):
        begins = [e["ts"] for e in trace.spans("python_function") if e["name"].endswith("): marks")]
        assert len(begins) == len(monotonic) == 200
        base = int(trace.doc["baseTimeNanoseconds"])
        behind.append(statistics.median(base + round(ts * 1000) - ns for ts, ns in zip(begins, monotonic)))
    assert abs(behind[0] - behind[1]) < 1000, behind
