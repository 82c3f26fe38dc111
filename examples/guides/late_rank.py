"""Two ranks, of which the second prepares its batches in Python and is late at every all-reduce. `cured`: it prepares them as the first does.

    torchrun --nproc_per_node 2 late_rank.py
"""
import os
import sys

import torch
import torch.distributed as dist

CURED = "cured" in sys.argv


def prepare(rank):
    batch = torch.ones(32, 256)
    if rank == 1 and not CURED:
        return torch.tensor([[value * 0.5 for value in row] for _ in range(20) for row in batch.tolist()])[:32]
    return batch * 0.5


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(24):
        optimizer.zero_grad()
        model(prepare(int(os.environ["RANK"]))).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
