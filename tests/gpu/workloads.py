"""What record.py runs: small programs, each with a function work(). On a GPU, or against tests/cupti_sim.

A program must not use the name `recorded_by_torch`: record_counts.py wraps it in a torch.profiler of that name.
"""
TORCH = "import torch\nx = torch.randn(256, 256, device='cuda')\ntorch.cuda.synchronize()\n"
# Each is run three times, so that what is made once (a context, a choice of algorithm) is not all there is.
REAL = {
    "matmul": TORCH + "def work(): (x @ x).sum().item()",
    "convolution": TORCH + "c = torch.nn.Conv2d(3, 8, 3).cuda()\ndef work(): c(torch.randn(2, 3, 32, 32, device='cuda'))",
    "streams": TORCH + "a, b, e = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()\n"
                       "def work():\n with torch.cuda.stream(a): y = x @ x; e.record()\n"
                       " with torch.cuda.stream(b): e.wait(); y + x\n e.synchronize()",
    "copies": TORCH + "pinned, h = torch.ones(4096).pin_memory(), torch.ones(4096)\n"
                      "def work():\n d = pinned.cuda(non_blocking=True); d.cpu(); pinned.copy_(d, non_blocking=True); h.cuda().clone()",
    "peer": TORCH + "def work(): x.to('cuda:1').to('cuda:0')",
    "memset": TORCH + "def work(): x.zero_()",
    "graph": TORCH + "s = torch.cuda.Stream()\nwith torch.cuda.stream(s): y = x @ x\ntorch.cuda.synchronize()\n"
                     "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g): y = (x @ x).relu()\ndef work(): g.replay()",
    "autograd": TORCH + "m = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()).cuda()\no = torch.optim.SGD(m.parameters(), 0.1)\n"
                        "def work(): m(x).sum().backward(); o.step(); o.zero_grad()",
    "threads": TORCH + "import threading\ndef many():\n for i in range(50): x + 1\ndef work():\n"
                       " t = [threading.Thread(target=many) for i in range(4)]\n [i.start() for i in t]; [i.join() for i in t]",
    "nccl": TORCH + "import torch.distributed as d\n"
                    "d.init_process_group('nccl', rank=0, world_size=1)\ndef work(): d.all_reduce(x)",
    "compile": TORCH + "f = torch.compile(lambda v: (v * 2).relu() + 1)\nf(x)\ndef work(): f(x)",
    "reduce_overhead": TORCH + "f = torch.compile(lambda v: ((v * 2).relu() + 1) @ v, mode='reduce-overhead')\n"
                               "for _ in range(3): f(x)\ndef work(): f(x).sum()",
    "resnet": TORCH + "import torchvision\nm = torchvision.models.resnet18().cuda()\no = torch.optim.SGD(m.parameters(), 0.1)\n"
                      "s = torch.amp.GradScaler('cuda')\ni = torch.randn(4, 3, 64, 64, device='cuda')\ndef work():\n"
                      " with torch.autocast('cuda'): loss = m(i).sum()\n"
                      " s.scale(loss).backward(); s.step(o); s.update(); o.zero_grad()",
    "attention": TORCH + "q = torch.randn(2, 4, 64, 64, device='cuda', dtype=torch.bfloat16, requires_grad=True)\ndef work():\n"
                         " with torch.autograd.graph.save_on_cpu(pin_memory=True):\n"
                         "  y = torch.nn.functional.scaled_dot_product_attention(q, q, q)\n y.sum().backward()",
    "triton": TORCH + "import triton, triton.language as tl\n@triton.jit\ndef add(p, n: tl.constexpr):\n i = tl.arange(0, n)\n"
                      " tl.store(p + i, tl.load(p + i) + 1)\ndef work(): add[(4,)](x, 64)",
    "ddp": TORCH + "import torch.distributed as d\n"
                   "d.init_process_group('nccl', rank=0, world_size=1)\n"
                   "m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).cuda())\ndef work():\n"
                   " m(x).sum().backward(); d.all_reduce(x); d.broadcast(x, 0); d.all_gather_into_tensor(x.clone(), x)",
    "script": TORCH + "@torch.jit.script\ndef f(v):\n return (v * 2).relu() + v.sum()\ndef work(): f(x)",
}
SIMULATED = {
    "everything": "from simulated_gpu import everything\ndef work(): everything()",
    "autograd": "from simulated_gpu import doubled, sim\nimport torch\nsim.simInit(1)\nD = doubled()\n"
                "def work(): D.apply(torch.ones(4, requires_grad=True)).sum().backward(); sim.simDeviceSynchronize()",
    "threads": "from simulated_gpu import sim\nsim.simInit(2)\ndef work(): sim.simStorm(4, 50, 8, 2)",
}

TIMES = "\nfor _ in range(3): work()\n"
NEEDS_GPUS = {"peer": 2}
NEEDS_MODULE = {"resnet": "torchvision", "triton": "triton", "nccl": "torch.distributed", "ddp": "torch.distributed"}


def workloads(machine):
    """{name: the whole program}"""
    return {name: text + TIMES for name, text in (REAL if machine.has_gpu else SIMULATED).items()}


def why_not(name, machine):
    """Why a workload cannot run here; empty: it can."""
    if (needed := NEEDS_GPUS.get(name, 0)) > len(machine.gpus) and machine.has_gpu:
        return "it needs %d GPUs" % needed
    if machine.has_gpu and (module := NEEDS_MODULE.get(name)) and module not in machine.modules:
        return "this Python has no %s" % module
    return ""
