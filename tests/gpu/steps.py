"""Times the steps of one model bare and under a profiler, in turns in this process: what changes with the minute is in
both.

    steps.py launch|device|simulated torchprof|none|cuda|cpu+cuda|all SECONDS     prints what it measured as JSON
    steps.py size                                                                 prints a batch that the GPU limits

`torchprof`: this process runs under `torchprof run -w range=bench` and opens that window by an NVTX range. `none`:
nothing is switched on. The others are torch.profiler's: of the GPU alone, of both, and of both with stacks, shapes and
memory. Each is closed before the process ends. BATCH is that of `device`. SIM and RANGES name tests/cupti_sim's library
and one with NVTX in it, for `simulated`.
"""
import contextlib
import ctypes
import json
import os
import sys
import time

STEPS = 12  # of each turn
WIDTH = {"launch": 256, "device": 1024}
SIMULATED_LAUNCHES, SIMULATED_NS = 100, 1000


def model(width):
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
            x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(512, width), *[Block() for _ in range(8)], torch.nn.Linear(width, 512)).cuda()


def training_step(width, batch):
    """450 kernels: with a width of 256 and a batch of 8 a GPU waits for the launches."""
    import torch
    m = model(width)
    o = torch.optim.AdamW(m.parameters(), 3e-4, fused=True)
    x = torch.randint(0, 512, (batch, 128), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(m(x).flatten(0, 1), x.flatten())
        loss.backward()
        o.step()
        o.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
    return step


def simulated_step():
    sim = ctypes.CDLL(os.environ["SIM"])
    sim.simLaunch.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64]
    sim.simInit(1)

    def step():
        for _ in range(SIMULATED_LAUNCHES):
            sim.simLaunch(b"simulated", 7, SIMULATED_NS)
        sim.simDeviceSynchronize()
    return step


def make_step(kind):
    if kind == "simulated":
        return simulated_step()
    return training_step(WIDTH[kind], 8 if kind == "launch" else int(os.environ["BATCH"]))


@contextlib.contextmanager
def nvtx_range(name):
    if "RANGES" in os.environ:
        library = ctypes.CDLL(os.environ["RANGES"])
        push, pop = (lambda: library.push(name.encode())), library.pop
    else:
        import torch
        push, pop = (lambda: torch.cuda.nvtx.range_push(name)), torch.cuda.nvtx.range_pop
    push()
    yield
    pop()


def profiler(what):
    if what == "none":
        return contextlib.nullcontext()
    if what == "torchprof":
        return nvtx_range("bench")
    import torch
    of = torch.profiler.ProfilerActivity
    everything = what == "all"
    return torch.profiler.profile(activities=[of.CUDA] if what == "cuda" else [of.CPU, of.CUDA], with_stack=everything, record_shapes=everything,
                                  profile_memory=everything)


def timed(f):
    begin = time.perf_counter()
    f()
    return (time.perf_counter() - begin) * 1e3


def turn(step):
    step()
    return [timed(step) for _ in range(STEPS)]


def measure(step, what, seconds):
    """Milliseconds of steps, a list for each turn, and of opening and closing."""
    bare, on, edges = [], [], []
    for _ in range(3 if seconds < 1 else 20):
        step()
    end = time.monotonic() + seconds
    while not on or time.monotonic() < end:
        bare.append(turn(step))
        profile = profiler(what)
        opening = timed(profile.__enter__)
        try:
            on.append(turn(step))
        finally:
            edges.append([opening, timed(lambda: profile.__exit__(None, None, None))])
    return {"bare": bare, "on": on, "edges": edges}


def batch_that_the_gpu_limits():
    """One whose step takes three times as long as that of a batch of 1, which has as many launches: what a profiler
    adds to them stays hidden."""
    def median_of(batch):
        step = training_step(WIDTH["device"], batch)
        for _ in range(5):
            step()
        return sorted(timed(step) for _ in range(9))[4]
    launching, batch = median_of(1), 32
    while batch <= 512:
        try:
            if (took := median_of(batch)) > 3 * launching:
                return {"batch": batch, "step": took, "launching": launching}
        except RuntimeError as error:  # no memory
            return {"batch": None, "why": str(error).splitlines()[0]}
        batch *= 2
    return {"batch": None, "why": "a batch of %d takes %.1f ms, launching %.1f" % (batch // 2, took, launching)}


if __name__ == "__main__":
    if sys.argv[1] == "size":
        print(json.dumps(batch_that_the_gpu_limits()))
    else:
        print(json.dumps(measure(make_step(sys.argv[1]), sys.argv[2], float(sys.argv[3]))), flush=True)
        if sys.argv[2] != "torchprof":
            os._exit(0)  # torch 2.11 may crash at the end of a process that had a torch.profiler
