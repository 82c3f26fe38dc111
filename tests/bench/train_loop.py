"""usage: train_loop.py step|edges|empty|full BATCHES [FILE]: prints the median nanoseconds of one step of training of a transformer with small tensors, or of its edges alone:
an annotation, zero_grad() and the step of an optimizer with nothing to do. Then the time on the wall.
`empty` is a step with a callback that is given the operators' inputs and does nothing, from the library FILE. `full` is a step under torch.profiler with everything that it has.
"""
import statistics
import sys
import time

import torch
from empty_callback import add_empty_callback

PER_BATCH = {"step": 10, "empty": 10, "full": 10, "edges": 500}


def main():
    mode, batches = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    optimizer = torch.optim.SGD(model.parameters() if mode != "edges" else [torch.zeros(1)], lr=0.1)
    x = torch.randn(2, 8, 16)

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def edges():
        with torch.autograd.profiler.record_function("step"):
            optimizer.zero_grad()
            optimizer.step()

    def batch():
        one = edges if mode == "edges" else step
        begin = time.perf_counter_ns()
        for _ in range(PER_BATCH[mode]):
            one()
        return (time.perf_counter_ns() - begin) / PER_BATCH[mode]

    def measure():
        batch()
        print(statistics.median(batch() for _ in range(batches)), time.time(), flush=True)
    if mode == "empty":
        add_empty_callback(sys.argv[3], True)
    if mode != "full":
        return measure()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True,
                                with_flops=True, with_modules=True):
        measure()


main()
