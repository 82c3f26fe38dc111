"""usage: op_loop.py bare|deep|empty|empty-inputs|operators|shapes+memory|full BATCHES [FILE]: prints the median nanoseconds of one torch.add of two 4x4 tensors.

`deep` calls it inside of calls that go through C and back to Python. `empty` has a callback of at::RecordFunction that does nothing, from the library FILE; for `empty-inputs` torch prepares the inputs, too. `operators`, `shapes+memory` and `full`, with everything that it has, are torch.profiler's ways.
After the number comes the wall-clock time at which the work was done, so that the time for the rest can be computed;
torch.profiler then writes its trace to FILE before the process ends.
"""
import statistics
import sys
import time

import torch
from empty_callback import add_empty_callback

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


def nested(depth, work):
    return work() if depth == 0 else next(map(lambda _: nested(depth - 1, work), [0]))


def main():
    mode, batches = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    if mode.startswith("empty"):
        add_empty_callback(sys.argv[3], mode == "empty-inputs")
    if mode in ("bare", "deep", "empty", "empty-inputs"):
        print(nested(3 if mode == "deep" else 0, lambda: measure(batches)), time.time())
        return
    is_full = mode == "full"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=mode != "operators",
                                profile_memory=mode != "operators", with_stack=is_full, with_flops=is_full, with_modules=is_full) as profiler:
        cost = measure(batches)
        print(cost, time.time(), flush=True)
    if len(sys.argv) > 3:
        profiler.export_chrome_trace(sys.argv[3])


main()
