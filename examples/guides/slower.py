"""Steps that get slower: the mean loss is computed anew of all losses there were, and each keeps its graph. `cured`: a running sum of numbers."""
import sys

import torch

CURED = "cured" in sys.argv


class Progress:
    def __init__(self):
        self.losses, self.sum, self.count = [], 0.0, 0

    def add(self, loss):
        if CURED:
            self.sum, self.count = self.sum + loss.item(), self.count + 1
            return self.sum / self.count
        self.losses.append(loss)
        return sum(self.losses).item() / len(self.losses)


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    progress = Progress()
    for _ in range(300):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        mean = progress.add(loss)
    print("mean loss %.3f" % mean)


if __name__ == "__main__":
    main()
