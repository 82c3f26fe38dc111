"""usage: scenarios.py DIRECTORY [theirs] NAME...: scenarios of training and inference, each twice: to warm up, then inside the annotation
`the window of NAME`.

With `theirs` torch.profiler records the second time, with shapes and memory. What it recorded is exported to DIRECTORY/NAME.json; where
this torch was built without Kineto, whose export leaves most of it out, that is a list of what its events hold (see recordings.py).

Each is a process of its own, forked once torch is imported, with its data in a directory of its own. Where one has not ended after PATIENCE
seconds, stderr says where its threads stand, and it is ended with all that it started; the last line then names it like any that failed.

All is done from the same seed and without garbage collection, so that two processes do the same. A thread that Python starts is marked by the
annotation `python thread`, around what it does like the others.
"""
import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
import torch.utils.data
from torch.autograd.profiler import record_function

if hasattr(torch, "compile"):
    import torch._dynamo  # what optimizers and torch.compile import, once

SCENARIOS = {}
HAS_KINETO = torch.profiler.kineto_available()
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
PATIENCE = 200


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def train(model, loss, optimizer, steps=2):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


@scenario
def cnn_with_batchnorm():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                                torch.nn.Conv2d(8, 8, 3, groups=2, bias=False), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                                torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
    images, labels = torch.randn(2, 3, 16, 16), torch.tensor([1, 3])
    train(model, lambda model: F.cross_entropy(model(images), labels), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    with torch.no_grad():
        model.eval()(images).argmax(1)


@scenario
def transformer_with_attention():
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    words = torch.randn(2, 5, 16)
    mask = torch.ones(5, 5).tril() == 0
    train(model, lambda model: model(words, mask).square().mean(), torch.optim.AdamW(model.parameters()))
    with torch.inference_mode():
        model.eval()(words)


@scenario
def lstm():
    model, head = torch.nn.LSTM(4, 8, num_layers=2, bidirectional=True), torch.nn.Linear(16, 2)
    words = torch.randn(5, 3, 4)
    parameters = [*model.parameters(), *head.parameters()]
    packed = torch.nn.utils.rnn.pack_padded_sequence(words, torch.tensor([5, 3, 2]))
    train(model, lambda model: head(model(words)[0]).sum() + model(packed)[0].data.sum(), torch.optim.RMSprop(parameters))


@scenario
def embedding_with_sparse_gradients():
    table, bag = torch.nn.Embedding(50, 4, sparse=True), torch.nn.EmbeddingBag(50, 4, mode="sum", sparse=True)
    words = torch.tensor([[1, 2, 2], [4, 49, 0]])
    train(table, lambda table: table(words).sum() * bag(words).sum(), torch.optim.SparseAdam([*table.parameters(), *bag.parameters()]))


@scenario
def custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x)
            ctx.scale = scale
            return scale * x ** 3

        @staticmethod
        def backward(ctx, gradient):
            x, = ctx.saved_tensors
            return 3 * ctx.scale * x ** 2 * gradient, None

    x = torch.randn(4, requires_grad=True)
    (Cube.apply(x, 2.0) + Cube.apply(x * 2, 3.0)).sum().backward()

    class Any(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            ctx.count = len(arguments)
            return next((a.clone() for a in arguments if isinstance(a, torch.Tensor)), torch.ones(2))

        @staticmethod
        def backward(ctx, gradient):
            return (gradient,) + (None,) * (ctx.count - 1)

    class Integer(int):
        pass

    class WithSetup(torch.autograd.Function):
        @staticmethod
        def forward(x, scale, shift=3):
            return x * scale + shift

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None, None

    class WithKeywords(Any):
        @staticmethod
        def forward(ctx, first, second, third=3):
            return second.clone()

    Any.apply(x, None).sum().backward()
    for arguments in ([None, x], [x, None, x], [None], [], [x, 1], [2, x, 2.5], [x, True, False], [x, "text"], ["text", x], [x, b"bytes"], [x, 1 + 2j],
                      [x, float("nan"), -0.0, 1e300], [x, 2 ** 62], [x, -5], [x, Integer(7)], [x, torch.nn.Parameter(torch.ones(5))],
                      [x, (1, 2)], [x, ()], [x, (1, (2, 3))], [x, ("a",)], [x, (x,)], [x, torch.Size([2, 3])],
                      [x, [1, 2]], [[True, False], x], [x, [1.5, 2.5]], [x, [1 + 1j]], [x, [1, 2.5]], [x, [1, True]], [x, []], [x, [None]], [x, [None, 1]],
                      [x, [(1, 2)]], [x, [[1], [2, 3]]], [x, ["a"]], [x, [x]], [x, list(range(30))], [x, list(range(31))],
                      [x, {}], [x, {1: 2}], [x, {1: 2, 3: 4.0}], [x, {"a": 1}],
                      [x, torch.float32], [x, torch.device("cpu")], [x, torch.strided], [x, slice(1, 2)], [x, len], [x, object()], [x] * 20 + [3]):
        Any.apply(*arguments)
    if TORCH >= (2, 0):
        WithSetup.apply(x, 5.0), WithSetup.apply(x, 5.0, 7), WithSetup.apply(torch.ones(2), 2)
    if TORCH >= (2, 14):
        WithSetup.apply(x, shift=None or 4, scale=2), WithKeywords.apply(1, third=False, second=x), WithKeywords.apply(second=x, first=None)


@scenario
def double_backward():
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    y = (x @ weight).tanh().sum()
    gradient, = torch.autograd.grad(y, x, create_graph=True)
    gradient.square().sum().backward()
    torch.autograd.functional.hessian(lambda v: (v ** 3).sum(), torch.ones(2))


@scenario
def checkpointing():
    block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    for reentrant in (True, False):
        torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    torch.utils.checkpoint.checkpoint_sequential(block, 2, x, **({"use_reentrant": False} if TORCH >= (2, 0) else {})).sum().backward()


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(3):
            x = torch.relu(self.inner(x)) + 1
        return x


def scripted_function(x, n: int):
    total = x
    for i in range(n):
        total = total * x + i
    return total


@scenario
def torchscript(kept={}):
    if not kept:  # compiled and specialised once
        kept.update(module=torch.jit.script(Scripted()), function=torch.jit.script(scripted_function),
                    traced=torch.jit.trace(Scripted(), torch.ones(2, 4)), frozen=torch.jit.freeze(torch.jit.script(Scripted().eval())))
        for _ in range(5):
            torchscript()
    x = torch.randn(2, 4, requires_grad=True)
    (kept["module"](x).sum() + kept["function"](x, 3).sum() + kept["traced"](x).sum()).backward()
    with torch.no_grad():
        kept["frozen"](x)


@scenario
def compiled(kept={}):
    if not kept:
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
        kept["model"] = torch.compile(model, backend="aot_eager")
        for _ in range(3):
            compiled()
    kept["model"](torch.randn(3, 4, requires_grad=True)).sum().backward()


@scenario
def autocast():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Softmax(1), torch.nn.Linear(8, 2))
    x = torch.randn(4, 8)
    for cache in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache):
            loss = F.mse_loss(model(x), torch.zeros(4, 2))
        loss.backward()


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, n):
        return torch.full((3,), float(n)).square(), n


@scenario
def dataloader():
    generator = torch.Generator().manual_seed(1)
    for data, n in torch.utils.data.DataLoader(Squares(), batch_size=3, shuffle=True, generator=generator):
        data.mul(2)
    # One worker: what of several arrives first is another in each run.
    for data, n in torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=1):
        data.mul(3)


@scenario
def exceptions_inside_operators():
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            gradient.add(1)
            raise ValueError("in backward")

    def hook(gradient):
        raise KeyError("in a hook")

    def hooked():
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        y.register_hook(hook)
        y.sum().backward()

    failing = [lambda: torch.mm(torch.ones(2, 3), torch.ones(2, 3)), lambda: torch.ones(3)[torch.tensor([7])],
               lambda: torch.nn.Linear(3, 4)(torch.ones(2, 2)), lambda: torch.cat([torch.ones(2, 2), torch.ones(3)]),
               lambda: torch.linalg.cholesky(torch.zeros(2, 2)), lambda: torch.ones(3).view(2, 2),
               lambda: Raises.apply(torch.ones(2, requires_grad=True)).sum().backward(), hooked,
               lambda: torch.ones(2, requires_grad=True).add_(1)]
    for fail in failing:
        try:
            with record_function("an attempt"):
                fail()
        except (RuntimeError, ValueError, IndexError, KeyError):
            pass
        torch.ones(1).neg()


def work_of_a_thread():
    x = torch.ones(4, 4, requires_grad=True)
    (x.matmul(x).sigmoid().sum() * 2).backward()


def python_thread():
    work_of_a_thread()  # torch does more the first time in a thread
    with record_function("python thread"):
        work_of_a_thread()


@scenario
def eight_threads():
    threads = [threading.Thread(target=python_thread) for _ in range(8)]
    for thread in threads:
        thread.start()
    work_of_a_thread()
    for thread in threads:
        thread.join()


@torch.jit.script
def on_cpp_threads(x):
    futures = [torch.jit.fork(torch.mul, x, float(n)) for n in range(4)]
    total = torch.zeros(1)
    for future in futures:
        total = total + torch.jit.wait(future).sum()
    return total


@scenario
def cpp_threads(held=[]):
    if not held:  # compiled and specialised once
        held.append(None)
        for _ in range(5):
            cpp_threads()
    # A thread of torch's that lets go of a tensor last, once Python has begun to end, aborts the program, with us and without.
    held.append(torch.ones(8))
    on_cpp_threads(held[-1])


@scenario
def backward_inside_backward():
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if ctx.depth:  # past a depth of 60 torch goes on in threads of its own
                with torch.enable_grad():
                    Nested.apply(torch.ones(2, requires_grad=True), ctx.depth - 1).sum().backward()
            return gradient, None

    Nested.apply(torch.ones(2, requires_grad=True), 70).sum().backward()


@scenario
def arguments_of_all_kinds():
    x, grid = torch.randn(2, 3, 4), torch.arange(24.).view(2, 3, 4)
    torch.cat([x, grid], 1), torch.stack((x, x)), torch.einsum("bij,bkj->bik", x, grid), torch.block_diag(x[0], x[1])
    x[0, 1:, ::2], x[:, [0, 2]], x[torch.tensor([0, 1]), None, torch.tensor([1, 1])], x[x > 0], x.index_put((torch.tensor([0]),), torch.tensor(1.))
    x.clone().index_put_((torch.tensor([1]), torch.tensor([0])), torch.tensor(2.)), torch.ops.aten.index_put(x, [None, torch.tensor([0])], torch.tensor(1.))
    torch.ops.aten._index_put_impl_(x.clone(), [torch.tensor([0]), None], torch.tensor(1.)), torch.ops.aten.index(x, [None, None, torch.tensor([1])])
    x.clone().__setitem__((slice(None), torch.tensor([0])), 0.), torch.broadcast_tensors(), torch.full((1,), -0.0), x * -0.0
    if TORCH >= (2, 0):
        torch.ops.aten._unsafe_index(x, [None, torch.tensor([1])])
    torch.full((2, 2), 7, dtype=torch.int16), torch.full([], 2.5), torch.full((2,), 1 + 2j), torch.full((2,), True), torch.empty(0, 3)
    torch.add(x, 1, alpha=3), x + 2.5, x * 10 ** 17, x.add(torch.tensor(2)), torch.where(x > 0, x, 0.), x.clamp(min=-1.), x.sum((0, 2), keepdim=True)
    x.to(torch.float64), x.to("cpu", torch.half, copy=True), x.contiguous(memory_format=torch.contiguous_format), x.transpose(0, 2).flatten()
    torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), torch.ones((1,) * 7).sum(), torch.tensor([float("inf"), float("nan")])
    torch.nn.functional.interpolate(torch.ones(1, 1, 4, 4), scale_factor=(1.5, 2.)), torch.nn.functional.pad(x, (1, 1), "reflect")
    torch.normal(0., 1., (2, 2), generator=torch.Generator().manual_seed(3)), torch.div(x, 2, rounding_mode="floor"), x.quantile(0.5)
    torch.split(x, [1, 2], dim=1), torch.meshgrid(torch.ones(2), torch.ones(3), indexing="ij"), torch.histc(x, 4), x.unique(return_counts=True)
    torch.add(x, x, out=torch.empty(2, 3, 4)), x.clone().mul_(2).zero_(), torch._foreach_add([x, grid], 2.), torch.linalg.svd(x[0])
    x.bernoulli(0.5), x.fill_diagonal_(float("-inf")) if x.dim() == 2 else None, torch.fft.rfft(x), torch.tensor(5).item(), x.max(dim=1)
    torch.fill(torch.ones(2).double(), 1e300), torch.ones(2) * 1e-7, torch.ones(2) - 123456789.125, torch.arange(-3, 2 ** 40, 2 ** 39)
    with record_function("with a string"), torch.profiler.record_function("args", "of its own"):
        x.relu()


@scenario
def tensors_of_all_kinds():
    coordinates, values = torch.tensor([[0, 1], [1, 0]]), torch.tensor([3., 4.])
    sparse = torch.sparse_coo_tensor(coordinates, values, (2, 2))
    (sparse @ torch.ones(2, 2)), sparse.coalesce().to_dense(), (sparse + sparse), sparse.to_sparse_csr().matmul(torch.ones(2, 1))
    half, complex_, boolean = torch.ones(2, dtype=torch.half), torch.ones(2, dtype=torch.cfloat), torch.ones(2, dtype=torch.bool)
    half.float(), complex_.conj().mul(complex_), complex_.real.neg(), boolean.logical_not(), boolean.any(), torch.view_as_real(complex_)
    quantized = torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 10, torch.quint8)
    quantized.dequantize(), quantized.int_repr()
    on_meta = torch.ones(2, 3, device="meta")
    (on_meta @ torch.ones(3, 4, device="meta")).sum()
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16, torch.double, torch.cdouble):
        torch.ones(2, dtype=dtype).add(1)
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]) if hasattr(torch, "nested") else None
    nested.relu(), nested.to_padded_tensor(0.)
    functional = torch.func if hasattr(torch, "func") else None
    if functional:
        functional.vmap(torch.dot)(torch.ones(3, 2), torch.ones(3, 2)), functional.grad(lambda x: x.sin().sum())(torch.ones(2))
        functional.jvp(torch.sin, (torch.ones(2),), (torch.ones(2),))
        functional.vmap(lambda x: x.t() + 1, in_dims=1)(torch.ones(2, 3, 4)), functional.vmap(functional.vmap(torch.sin))(torch.ones(2, 3, 4))
        functional.vmap(lambda x, n: x[n])(torch.ones(3, 5), torch.tensor([[0, 1], [1, 2], [2, 3]]))
        functional.hessian(lambda x: (x.sin() * x).sum())(torch.ones(3))

        def in_place(x):
            x = x.clone()
            x.add_(1).view(-1).mul_(2)
            return x.t_() * 3
        functional.functionalize(in_place)(torch.ones(2, 3)), functional.vmap(functional.functionalize(in_place))(torch.ones(4, 2, 3))
    torch.autograd.functional.jacobian(torch.sin, torch.ones(3), vectorize=True)
    with torch.autograd.forward_ad.dual_level():
        torch.autograd.forward_ad.make_dual(torch.ones(2, 3), torch.ones(2, 3)).sin()
    if TORCH >= (2, 0):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            torch.ones(2, 3).matmul(torch.ones(3, 2))
    torch.nn.Parameter(torch.ones(2)).mul(2), torch.ones(2)[0:0].sum(), torch.empty(2, 0).t()


@scenario
def optimizers():
    for kind in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "LBFGS"):
        model = torch.nn.Linear(3, 2)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(1, 3)).square().sum()
            loss.backward()
            return loss
        optimizer.step(closure)


@scenario
def lists_of_many_tensors():
    for count in (30, 31, 600):
        rows = [torch.ones(1, 3) for _ in range(count)]
        torch.cat(rows, dim=0)
        torch._foreach_add(rows, 2.0)
    if TORCH >= (2, 4):
        layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(40)])
        train(layers, lambda layers: sum(layer(torch.ones(2, 4)).sum() for layer in layers), torch.optim.AdamW(layers.parameters(), lr=0.25, fused=True))


@scenario
def ddp_over_gloo(kept=[]):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    torch.manual_seed(int(os.environ["RANK"]))
    train(model, lambda model: model(torch.randn(3, 4)).sum(), torch.optim.SGD(model.parameters(), lr=0.1))
    total, gathered = torch.ones(3), [torch.empty(3), torch.empty(3)]
    # Held until the group has ended: torch then waits for gloo's threads while it has the interpreter's lock, which they want in order
    # to free a tensor of Python's that only they still hold.
    kept.append((total, gathered))
    torch.distributed.all_reduce(total)
    torch.distributed.broadcast(total, 0)
    torch.distributed.all_gather(gathered, total)
    torch.distributed.barrier()


def fork():
    """os.fork(). The child has its engine of autograd when it returns: torch makes that anew in a forked child, where it is first needed,
    with no lock (PythonEngine::get_python_engine), so that threads that need it at the same time can wait for ever on a mutex that has been
    overwritten (seen with torch 1.13, with us and without). To ask for it takes no sequence number, as an operator would."""
    pid = os.fork()
    if not pid:
        torch.autograd._is_checkpoint_valid()
    return pid


@contextlib.contextmanager
def ranks():
    """Gives the rank, 0 of 2; and 1 in another process, which does the same."""
    with tempfile.TemporaryDirectory() as directory:
        pid = fork()
        os.environ.update(RANK="0" if pid else "1", WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo")
        store = torch.distributed.FileStore(os.path.join(directory, "store"), 2)
        torch.distributed.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)
        yield int(os.environ["RANK"])
        torch.distributed.destroy_process_group()
        if not pid:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0


def rows_of(events):
    """Where there is no Kineto: [kind, name, thread, start, end, what else] of each event; start and end in nanoseconds."""
    for e in events:
        kind, more = str(e.tag).rpartition(".")[2], {}
        if kind == "TorchOp":
            more = {"dims": e.extra_fields.inputs.shapes, "types": e.extra_fields.inputs.dtypes, "scope": str(e.extra_fields.scope)}
        elif kind == "Allocation":
            more = {"bytes": e.extra_fields.alloc_size, "address": e.extra_fields.ptr}
        yield [kind, e.name, e.start_tid, e.start_time_ns, e.end_time_ns, more]
        yield from rows_of(e.children)


def export(profiler, out):
    if HAS_KINETO:
        profiler.export_chrome_trace(out)
        return
    results = profiler.profiler.kineto_results
    rows = sorted(rows_of(results.experimental_event_tree()), key=lambda row: row[3])
    operators = [e for e in results.events() if e.name() != "[memory]"]
    in_tree = [row for row in rows if row[0] == "TorchOp"]
    assert [e.name() for e in operators] == [row[1] for row in in_tree]
    for e, row in zip(operators, in_tree):
        row[5].update(sequence=e.sequence_nr(), fwd_thread=e.fwd_thread_id(), torch_thread=e.start_thread_id())
    with open(out, "w") as file:
        json.dump(rows, file)


def torch_profiler():
    more = {"experimental_config": torch._C._profiler._ExperimentalConfig(capture_overload_names=True)} if TORCH >= (2, 7) else {}
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True, **more)


def wait_until_the_other_threads_sleep():
    """A thread of torch's reports a result before its operator has ended. torch.profiler, stopped in between, loses the operator's inputs
    or ends the process with a segmentation fault (seen with torch 2.6, once in some 2,000 runs)."""
    me, deadline = str(threading.get_native_id()), time.monotonic() + 60

    def is_awake(thread):
        try:
            with open("/proc/self/task/%s/stat" % thread) as file:
                return file.read().rpartition(")")[2].split()[0] != "S"
        except OSError:  # it has ended
            return False
    while any(is_awake(thread) for thread in os.listdir("/proc/self/task") if thread != me) and time.monotonic() < deadline:
        time.sleep(0.001)


def record(name, out):
    """`out`: where to write what torch.profiler recorded, if it is to record."""
    gc.disable()
    with ranks() if name.startswith("ddp") else contextlib.nullcontext(0) as rank:
        profiler = torch_profiler() if out and rank == 0 else contextlib.nullcontext()
        torch.manual_seed(0)
        SCENARIOS[name]()
        torch.manual_seed(0)
        with profiler:
            with record_function("the window of " + name if rank == 0 else "the other rank"):
                SCENARIOS[name]()
            wait_until_the_other_threads_sleep()
        if out and rank == 0:
            export(profiler, out)


def give_up(*_):
    raise TimeoutError


def wait_for(pid):
    """The status in which a child ends, or is ended."""
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    try:
        return os.waitpid(pid, 0)[1]
    except TimeoutError:
        print("does not end:", pid, file=sys.stderr, flush=True)
        os.kill(pid, signal.SIGABRT)  # its threads are listed by faulthandler
        time.sleep(5)
        os.killpg(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    finally:
        signal.alarm(0)


def main(directory, *names):
    theirs = names[0] == "theirs"
    failed = []
    for name in names[theirs:]:
        pid = fork()
        if not pid:
            os.setpgid(0, 0)
            faulthandler.enable()
            os.mkdir(os.path.join(directory, name))
            os.chdir(os.path.join(directory, name))
            return record(name, "../%s.json" % name if theirs else None)
        if wait_for(pid):
            failed.append(name)
    return " ".join(["failed:", *failed]) if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
