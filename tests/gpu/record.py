#!/usr/bin/env python3
"""What torchprof sees of a GPU beside what torch.profiler sees, what it costs, and raw records of CUPTI for the tests.

    tests/gpu/record.py BUILD [--python PYTHON] [--out DIR] [--only NAME]...

BUILD is a build directory, PYTHON an interpreter with torch. For each workload: a run under torchprof, one under
torch.profiler, and one in which raw_records.c saves what CUPTI delivered into DIR/NAME.VERSION.records; those are what
tests/unit/files/gpu_golden_test.cpp decodes from tests/unit/golden/gpu. Of the first two the kernels, copies and sets are
compared by name and stream, and the runtime's and the driver's calls that launch by name: as many in one as in the
other, neither less nor more. Then the time of a launch-bound training step bare, under torchprof and under
torch.profiler. CUPTI serves one at a time, so each is a run of its own and durations are not compared.

Without a GPU all that does not need one runs against tests/cupti_sim, and the first line says so.
"""
import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
# Not cudaDeviceSynchronize: torch.profiler adds some of its own.
CALLS = re.compile("Launch|Memcpy|Memset|StreamSynchronize|EventSynchronize|EventRecord|StreamWaitEvent")
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
    "nccl": TORCH + "import os, torch.distributed as d\nos.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29533')\n"
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
    "ddp": TORCH + "import os, torch.distributed as d\nos.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29534')\n"
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
NEEDS_TWO = {"peer"}
RUN = "\nfor _ in range(3): work()\n"
PROFILED = """
import torch
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as p:
%s
    torch.cuda.synchronize()
p.export_chrome_trace(%r)
"""
STEPS = """
import time%s
for i in range(%d):
    if i == 5: begin = time.perf_counter_ns()
    work()
print((time.perf_counter_ns() - begin) / %d)
"""
MANY = 205


def indented(text):
    return "".join("    %s\n" % line for line in text.splitlines())


def events(path):
    data = path.read_bytes()
    return [e for e in json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)["traceEvents"] if e["ph"] == "X"]


def work_of(path):
    """What ran on devices by category, name and stream, and calls that started something."""
    found = collections.Counter()
    for e in events(path):
        if e.get("cat") in WORK:
            found[e["cat"], e["name"], e["args"]["stream"]] += 1
        elif e.get("cat") in ("cuda_runtime", "cuda_driver") and CALLS.search(e["name"]):
            found["call", e["name"], None] += 1
    return found


def differences(ours, theirs):
    """"missing: ..., more: ..." of two results of work_of(); empty: they are the same."""
    sides = {"missing": theirs - ours, "more": ours - theirs}
    return ", ".join("%s: %s" % (side, dict(work)) for side, work in sides.items() if work)


class Runner:
    def __init__(self, options, scratch):
        self.python, self.scratch = options.python, scratch
        self.launcher = options.launcher or options.build.resolve() / "launcher" / "torchprof"
        self.sim = options.build.resolve() / "tests" / "cupti_sim" / "libcupti.so.12"
        self.env = {**os.environ, "SIM": str(self.sim), "PYTHONPATH": str(HERE.parent / "e2e" / "support")}
        self.gpus = int(self.run("import torch; print(torch.cuda.device_count())").stdout)
        self.has_gpu = self.gpus > 0

    def run(self, text, prefix=(), **env):
        program = self.scratch / "workload.py"
        program.write_text(text)
        # What an earlier run has compiled and measured is not made again.
        caches = {"TORCHINDUCTOR_CACHE_DIR": tempfile.mkdtemp(dir=self.scratch), "TRITON_CACHE_DIR": tempfile.mkdtemp(dir=self.scratch)}
        done = subprocess.run([*prefix, self.python, program], env={**self.env, **caches, **env}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    def torchprof(self, text, name, *options):
        directory = self.scratch / name
        done = self.run(text, [self.launcher, "run", "-q", "-o", directory, *options, "--"])
        return directory, done

    def save_raw(self, text, library, path, version=None):
        self.run(text, CUDA_INJECTION64_PATH=str(library), RAW_RECORDS=str(path), CUPTI_LIBRARY=str(self.sim), **({"CUPTI_SIM_VERSION": version} if version else {}))
        return path.stat().st_size

    def cost(self, text):
        """ns a step: bare, what torchprof adds, what torch.profiler adds (None without a GPU)."""
        bare = float(self.run(text + STEPS % ("", MANY, MANY - 5)).stdout)
        ours = float(self.torchprof(text + STEPS % ("", MANY, MANY - 5), "cost", "--python", "off", "--format", "none")[1].stdout)
        if not self.has_gpu:
            return bare, ours - bare, None
        begin = ", torch\ntorch.profiler.profile(activities=list(torch.profiler.supported_activities())).__enter__()"
        return bare, ours - bare, float(self.run(text + STEPS % (begin, MANY, MANY - 5)).stdout) - bare


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--launcher", type=pathlib.Path, help="torchprof [BUILD/launcher/torchprof]")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", action="append", metavar="NAME")
    options = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(options, pathlib.Path(scratch))
        print("a GPU" if runner.has_gpu else "NO GPU: against tests/cupti_sim; nothing here has been seen on a GPU")
        library = runner.scratch / "libraw.so"
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, HERE / "raw_records.c", "-ldl", "-lpthread"], check=True)
        workloads = REAL if runner.has_gpu else SIMULATED
        for name in options.only or workloads:
            if name in NEEDS_TWO and runner.gpus < 2:
                print("%-12s NOT RUN: it needs two GPUs" % name)
                continue
            text = workloads[name] + RUN
            # Programs have processes of their own that compile kernels; they have no work on the device.
            traces = runner.torchprof(text, "run-" + name)[0].glob("*.json.gz")
            ours = sum((work_of(trace) for trace in traces), collections.Counter())
            theirs = None
            if runner.has_gpu:
                path = runner.scratch / (name + ".json")
                runner.run(PROFILED % (indented(text), str(path)))
                theirs = work_of(path)
                different = differences(ours, theirs)
                wrong += [name] * bool(different)
            said = "no torch.profiler without a GPU" if theirs is None else different or "what torch.profiler has"
            print("%-12s %4d pieces of work, %s" % (name, sum(n for (category, *_), n in ours.items() if category in WORK), said))
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                for version in (None,) if runner.has_gpu else ("11.8", "12.4", "13.0"):
                    file = options.out / ("%s.%s.records" % (name, version or "gpu"))
                    print("%-12s %d bytes in %s" % ("", runner.save_raw(text, library, file, version), file))
        bare, ours, theirs = runner.cost(workloads["autograd"])
        print("a step: %.1f us bare, torchprof adds %.1f us, torch.profiler %s" % (
            bare / 1e3, ours / 1e3, "%.1f us: ratio %.2f" % (theirs / 1e3, ours / theirs) if theirs else "is not there"))
    if wrong:
        sys.exit("not what torch.profiler has: %s" % ", ".join(wrong))


if __name__ == "__main__":
    main()
