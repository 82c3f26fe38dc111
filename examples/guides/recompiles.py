"""torch.compile compiles anew again and again: a Python number that changes each step is part of the graph. `cured`: it is a tensor."""
import sys

import torch

CURED = "cured" in sys.argv


@torch.compile(backend="eager", dynamic=False)
def scaled(x, factor):
    return (x * factor).relu().sum()


def main():
    weights = torch.nn.Parameter(torch.ones(64, 64))
    optimizer = torch.optim.SGD([weights], lr=1e-3)
    for step in range(12):
        factor = 1 + step
        optimizer.zero_grad()
        scaled(weights, torch.tensor(float(factor)) if CURED else factor).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
