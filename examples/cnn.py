"""A small CNN learns to tell squares, discs and crosses apart. The pictures are drawn here; nothing is downloaded.

    torchprof run python3 examples/cnn.py                 # batches made in the process itself
    torchprof run python3 examples/cnn.py --workers 2     # batches made by two worker processes

What to expect in the trace of the main process, for every one of the 40 steps:
    user_annotation   enumerate(DataLoader)#..., train_step, Optimizer.zero_grad#SGD..., Optimizer.step#SGD.step
    python_function   nn.Module: ShapeNet_0, in it Conv2d_0, Conv2d_1, Linear_0
    cpu_op            aten::conv2d twice, ConvolutionBackward0 twice, joined by fwdbwd flows
With --workers 2 each worker is a process of its own in trace.json.gz, in which ShapeData.__getitem__ draws.
"""
import argparse
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 16
CLASSES = ("square", "disc", "cross")


class ShapeData(Dataset):
    """Picture n is the same in every run and in every worker: its number is its seed."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        label = index % len(CLASSES)
        random = torch.Generator().manual_seed(index)
        x, y = (torch.randint(5, SIZE - 5, (2,), generator=random) - torch.arange(SIZE).view(-1, 1)).abs().float().t()
        x, y = x.view(1, -1), y.view(-1, 1)
        radius = 2.0 + 2.0 * torch.rand((), generator=random)
        inside = {"square": torch.maximum(x, y) <= radius,
                  "disc": x * x + y * y <= radius * radius,
                  "cross": (torch.minimum(x, y) < 1) & (torch.maximum(x, y) <= radius + 1)}[CLASSES[label]]
        noise = 0.1 * torch.randn(SIZE, SIZE, generator=random)
        return (inside.float() + noise).unsqueeze(0), label


class ShapeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.Conv2d(1, 8, kernel_size=3, padding=1)
        self.wide = nn.Conv2d(8, 16, kernel_size=3, padding=1)
        self.classify = nn.Linear(16 * (SIZE // 4) ** 2, len(CLASSES))

    def forward(self, pictures):
        features = nn.functional.max_pool2d(torch.relu(self.narrow(pictures)), 2)
        features = nn.functional.max_pool2d(torch.relu(self.wide(features)), 2)
        return self.classify(features.flatten(1))


def train_step(model, optimizer, pictures, labels):
    with torch.autograd.profiler.record_function("train_step"):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        return loss.item()


def log_step(step, loss):
    """One line a step, on stdout and, if EXAMPLE_LOG names a file, safely on the disk."""
    print("step %2d  loss %.4f" % (step, loss), flush=True)
    if "EXAMPLE_LOG" in os.environ:
        with open(os.environ["EXAMPLE_LOG"], "a") as log:
            log.write("%d\n" % step)
            log.flush()
            os.fsync(log.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, choices=(0, 2), default=0, help="processes that draw pictures")
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = ShapeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(ShapeData(32 * args.steps), batch_size=32, num_workers=args.workers)
    losses = []
    for step, (pictures, labels) in enumerate(loader):
        losses.append(train_step(model, optimizer, pictures, labels))
        log_step(step, losses[-1])
    print("trained %d steps: loss %.4f -> %.4f" % (len(losses), losses[0], losses[-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
