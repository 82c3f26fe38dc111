"""A program of which a commit made a step slower: the norm of the weights is taken of each row by itself. `before`: of all rows at once."""
import sys

import torch

BEFORE = "before" in sys.argv


def norm(weights):
    if BEFORE:
        return weights.norm(dim=1).sum()
    return sum(row.norm() for row in weights)


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(128, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 128)).square().mean() + 1e-4 * norm(model.weight)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
