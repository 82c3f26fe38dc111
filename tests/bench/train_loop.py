"""usage: train_loop.py BATCHES: prints the median nanoseconds of one step of training of a transformer with small tensors, then the time on the wall."""
import statistics
import sys
import time

import torch

PER_BATCH = 10


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(2, 8, 16)

    def batch():
        begin = time.perf_counter_ns()
        for _ in range(PER_BATCH):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        return (time.perf_counter_ns() - begin) / PER_BATCH
    batch()
    print(statistics.median(batch() for _ in range(int(sys.argv[1]))), time.time())


main()
