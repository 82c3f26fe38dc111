"""A model that waits for its data: each picture is brightened pixel by pixel, in Python, by one worker. `cured`: by one operation of torch."""
import sys

import torch

CURED = "cured" in sys.argv


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        picture = torch.full((3, 48, 48), index % 7 / 7)
        return brighten(picture), index % 10


def brighten(picture):
    if CURED:
        return (picture * 1.2 + 0.1).clamp(max=1)
    pixels = [min(1.0, pixel * 1.2 + 0.1) for pixel in picture.flatten().tolist()]
    return torch.tensor(pixels).view(picture.shape)


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 48 * 48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for pictures, labels in torch.utils.data.DataLoader(Pictures(), batch_size=8, num_workers=1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
