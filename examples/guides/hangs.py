"""A program that hangs: it waits for a queue that nobody fills any more, since the thread that should has ended. `cured`: the thread says that it has."""
import queue
import sys
import threading

import torch

CURED = "cured" in sys.argv


def read(batches):
    for _ in range(20):
        batches.put(torch.ones(16, 64))
    if CURED:
        batches.put(None)


def next_batch(batches):
    return batches.get()


def main():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = queue.Queue()
    threading.Thread(target=read, args=(batches,), daemon=True).start()
    while (batch := next_batch(batches)) is not None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    print("done")


if __name__ == "__main__":
    main()
