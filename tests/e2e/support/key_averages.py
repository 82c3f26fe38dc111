"""usage: key_averages.py FILE: training steps under torch.profiler, all of it inside the annotation `measured`; what key_averages() gives of it,
by shapes, is written to FILE, and the memory of each operator's own as torch.profiler's events have it, by their nanoseconds.

    {"rows": [...], "self_mem": {operator: bytes allocated less bytes freed in it}}
"""
import collections
import json
import sys

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                            torch.nn.Linear(8 * 32 * 32, 64))
head = torch.nn.Linear(64, 4)
large = torch.randn(600, 600)
images, labels = torch.randn(4, 3, 32, 32), torch.tensor([1, 3, 0, 2])
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)


def step():
    optimizer.zero_grad()
    hidden = model(images)
    joined = torch.cat([hidden, hidden + 1, hidden * 2])
    F.cross_entropy(head(joined)[:4], labels).backward()
    optimizer.step()
    for _ in range(20):
        torch.mm(large, large)
    torch.bmm(large.view(6, 100, 600), large.view(6, 600, 100)).sum().item()


step()  # what is done once
with record_function("measured"):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_flops=True) as profiler:
        with record_function("first"):  # torch.profiler does what it does once
            pass
        for _ in range(3):
            step()
rows = [{"name": e.key, "shapes": e.input_shapes, "calls": e.count, "flops": e.flops, "self_mem": e.self_cpu_memory_usage,
         "mem": e.cpu_memory_usage, "self_ns": e.self_cpu_time_total * 1000, "total_ns": e.cpu_time_total * 1000}
        for e in profiler.key_averages(group_by_input_shape=True)]
self_mem = collections.Counter()


def count_memory(events, operator):
    for e in events:
        kind = str(e.tag).rpartition(".")[2]
        if kind == "Allocation":
            self_mem[operator] += e.extra_fields.alloc_size
        count_memory(e.children, e.name if kind == "TorchOp" else operator)


count_memory(profiler.profiler.kineto_results.experimental_event_tree(), "[memory]")
with open(sys.argv[1], "w") as file:
    json.dump({"rows": rows, "self_mem": self_mem}, file)
