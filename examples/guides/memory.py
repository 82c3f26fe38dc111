"""Memory that grows: the predictions of each step are kept, with the graph that made them. `cured`: their largest value is, as a number."""
import sys

import torch

CURED = "cured" in sys.argv
history = []


def remember(prediction):
    history.append(prediction.max().item() if CURED else prediction * 1.0)


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(32, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(40):
        optimizer.zero_grad()
        prediction = model(torch.randn(512, 32))
        prediction.square().mean().backward()
        optimizer.step()
        remember(prediction)


if __name__ == "__main__":
    main()
