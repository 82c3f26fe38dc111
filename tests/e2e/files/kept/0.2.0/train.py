import gc
import os
import threading

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))


def generate(n):
    for i in range(n):
        yield i * i


def work():
    with torch.autograd.profiler.record_function("unmistakable range"):
        torch.ones(3, 5).mm(torch.ones(5, 7))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(16, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    sum(generate(3))
thread = threading.Thread(target=work, name="second thread")
thread.start()
thread.join()
gc.collect()
if os.fork() == 0:
    torch.zeros(2, 3).add_(1)
    os._exit(0)
os.wait()
