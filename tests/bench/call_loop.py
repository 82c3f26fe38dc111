"""usage: call_loop.py BATCHES [torch.profiler|DIRECTORY [clock]]: prints the median nanoseconds of one Python call (recursive Fibonacci) and the time
on the wall at which the work was done. With a directory: under the empty callback that was built there, or one that reads the clock.
"""
import contextlib
import statistics
import sys
import time

N, CALLS = 20, 21891


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def batch():
    begin = time.perf_counter_ns()
    fib(N)
    return (time.perf_counter_ns() - begin) / CALLS


def main():
    profiler = contextlib.nullcontext()
    if sys.argv[2:] == ["torch.profiler"]:
        import torch
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True)
    elif len(sys.argv) > 2:
        sys.path.insert(0, sys.argv[2])
        import empty_profile
        empty_profile.start(len(sys.argv) > 3)
    with profiler:
        batch()
        cost, done = statistics.median(batch() for _ in range(int(sys.argv[1]))), time.time()
    print(cost, done)


main()
