"""A GPU that waits for Python: each batch is normalised value by value before the model gets it. `cured`: on the device, by one operation.

Where there is no GPU it runs on the processor, which then does the waiting."""
import sys

import torch

CURED = "cured" in sys.argv
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def normalise(batch):
    if CURED:
        return batch.to(DEVICE) / 255
    return torch.tensor([[value / 255 for value in row] for row in batch.tolist()]).to(DEVICE)


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(256, 16).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randint(256, (256, 256)).float()
    for _ in range(30):
        optimizer.zero_grad()
        model(normalise(batch)).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
