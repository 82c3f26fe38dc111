"""usage: op_loop.py bare|torch.profiler|stack BATCHES: prints the median nanoseconds of one torch.add of two 4x4 tensors.

`torch.profiler` records operators alone, `stack` the Python calls as well. After the number comes the time on the wall at which the work was
done, for who wants to know how long the rest takes; torch.profiler then writes its trace before the process ends.
"""
import statistics
import sys
import time

import torch

PER_BATCH = 5000


def batch(a, b):
    add = torch.add
    begin = time.perf_counter_ns()
    for _ in range(PER_BATCH):
        add(a, b)
    return (time.perf_counter_ns() - begin) / PER_BATCH


def measure(batches):
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    batch(a, b)
    return statistics.median(batch(a, b) for _ in range(batches))


def main():
    mode, batches = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    if mode == "bare":
        print(measure(batches), time.time())
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=mode == "stack") as profiler:
        cost = measure(batches)
        done = time.time()
    print(cost, done)
    if len(sys.argv) > 3:
        profiler.export_chrome_trace(sys.argv[3])


main()
