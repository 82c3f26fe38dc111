"""Native stacks at ten thousand random moments: every one is there, and the program does not notice."""
import collections
import subprocess

import pytest

pytestmark = [pytest.mark.once, pytest.mark.slow]

PROGRAM = """
import _ctypes, ctypes, gc, mmap, os, random, signal, sys, threading, torch

x = torch.ones(2)
counts = {"neg": 0, "children": 0}
lock = threading.RLock()
libc = ctypes.CDLL(None)
CALLBACK, COMPARE = ctypes.CFUNCTYPE(None), ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
# push rbp; mov rbp, rsp; call rdi; pop rbp; ret, in memory of no file and without unwind information: what a JIT compiler leaves.
page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("554889e5ffd75dc3"))
jit = ctypes.CFUNCTYPE(None, CALLBACK)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

def leaf():
    torch.neg(x)
    with lock:
        counts["neg"] += 1

class Dying:
    def __del__(self):
        leaf()

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        leaf()
        return value.clone()
    @staticmethod
    def backward(ctx, gradient):
        leaf()
        return gradient

def deep(rng, depth):
    deep(rng, depth - 1) if depth else moment(rng)

def in_exception(rng):
    try:
        torch.mm(x, x)  # thrown in C++
    except Exception:
        moment(rng)

def in_generator(rng):
    def generate():
        try:
            yield
        finally:
            moment(rng)
    next(generate())

def in_callback(rng):
    def compare(a, b):
        leaf()
        return 0
    numbers = (ctypes.c_int * 2)(2, 1)
    libc.qsort(numbers, 2, 4, COMPARE(compare))

def in_another_object(rng):
    library = ctypes.CDLL(sys.argv[1])
    leaf()
    _ctypes.dlclose(library._handle)
    moment(rng)

def in_backward(rng):
    value = torch.ones(1, requires_grad=True)
    Function.apply(value).register_hook(lambda g: leaf())
    Function.apply(value).sum().backward()

def in_thread(rng):
    thread = threading.Thread(target=leaf)
    thread.start()
    thread.join()

MOMENTS = [lambda rng: leaf(), lambda rng: deep(rng, rng.randrange(60)), in_exception, in_generator, in_callback, in_backward,
           lambda rng: sorted([1, 2], key=lambda i: leaf() or i), lambda rng: jit(CALLBACK(lambda: moment(rng))), lambda rng: Dying() and None]

def moment(rng):
    rng.choice(MOMENTS)(rng)

def work(seed, least):
    rng = random.Random(seed)
    for i in range(least):
        moment(rng)
        if i % 100 == 0:
            in_thread(rng)
            in_another_object(rng)

signal.signal(signal.SIGUSR1, lambda *args: leaf())
threads = [threading.Thread(target=work, args=(seed, int(sys.argv[2]))) for seed in range(3)]
for t in threads:
    t.start()
work(9, int(sys.argv[2]))
for i in range(50):
    signal.raise_signal(signal.SIGUSR1)
for t in threads:
    t.join()
for i in range(3):
    if os.fork() == 0:
        for k in range(20):
            leaf()
        os._exit(0)
    os.wait()
    counts["children"] += 20
print(counts["neg"], counts["children"])
"""


def test_ten_thousand_stacks_of_random_moments(run_torchprof, run_bare, torch_python, program, check_trace, tmp_path):
    script, library = program(PROGRAM), tmp_path / "comes_and_goes.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, program("int answer(void) { return 42; }", "own.c")], check=True)
    run = run_torchprof([torch_python, script, library, 1600], options=["--native", "on", "--format", "kineto"])
    assert run.status == 0, run.stderr
    own, children = map(int, run.stdout.split())
    assert own >= 10_000 and run.stdout_bytes == run_bare([torch_python, script, library, 1600]).stdout
    stacks = [collections.Counter(tuple(e["args"]["stack"]) for e in check_trace(path).spans("cpu_op") if e["name"] == "aten::neg")
              for path in run.trace_paths]
    assert sorted(map(sum, (s.values() for s in stacks))) == [20, 20, 20, own], "an operator without its stack would have failed above"
    of_parent = max(stacks, key=len)
    assert len(of_parent) > 500
    # Each goes through leaf(), and where JIT code has cut a stack short what Python knows of it follows.
    assert all(any(frame.endswith(": leaf") for frame in stack) for stack in of_parent)
    cut = [stack for stack in of_parent if "..." in stack]
    assert cut and all(stack[stack.index("...") + 1:] for stack in cut)
