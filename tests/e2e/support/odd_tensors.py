"""usage: odd_tensors.py OUT.json: tensors whose sizes are not where a plain tensor has them, under torch.profiler, which says what it saw.

OUT.json: [[span, operator, dims, strides or null, types, concrete inputs or null], ...], of torch 1 without spans.
"""
import json
import os
import sys
import tempfile

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile, record_function

LISTS = "Input Dims", "Input Strides", "Input type", "Concrete Inputs"
IS_TORCH_1 = torch.__version__.startswith("1.")


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*[x.inner if isinstance(x, Wrapper) else x for x in args], **(kwargs or {}))


def fake():
    with FakeTensorMode():
        return torch.ones(2, 3) + 1


def symbolic():
    from torch.fx.experimental.proxy_tensor import make_fx
    return make_fx(lambda x: x.reshape(-1) * 2, tracing_mode="symbolic")(torch.ones(4, 6))


def nested(**layout):
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], **layout) * 2


def matrix():
    return torch.arange(6.0).reshape(2, 3)


ODD = {
    "plain": lambda: matrix().t() + matrix().t(),
    "no dimensions": lambda: torch.tensor(2.5) * 3,
    "no elements": lambda: torch.zeros(0, 4).sum(),
    "six dimensions": lambda: torch.zeros(1, 2, 1, 2, 1, 2) + 1,
    "expanded": lambda: matrix()[0].expand(5, 3) + 1,
    "overlapping": lambda: matrix().as_strided((2, 2), (1, 1)) + 1,
    "bfloat16": lambda: matrix().bfloat16() @ matrix().bfloat16().t(),
    "complex": lambda: torch.full((2,), 3 - 0.25j).abs(),
    "list": lambda: torch.cat([matrix(), matrix()]),
    "list with none": lambda: matrix()[:, torch.tensor([0, 1])],
    "generator": lambda: torch.rand(3, generator=torch.Generator()),
    "undefined": lambda: torch.nn.functional.layer_norm(matrix().requires_grad_(), (3,)).sum().backward(),
    "sparse": lambda: torch.sparse.mm(torch.eye(3).to_sparse(), torch.ones(3, 2)),
    "compressed sparse": lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3, 2),
    "quantized": lambda: torch.quantize_per_tensor(matrix(), 0.1, 0, torch.quint8).dequantize(),
    "mkldnn": lambda: matrix().to_mkldnn().to_dense() if torch.backends.mkldnn.is_available() else None,
    "meta": lambda: torch.empty(2, 3, device="meta") + 1,
    "more elements than memory": lambda: torch.empty(1 << 40, 1 << 20, device="meta").t(),
    "nested": nested,
    "fake": fake,
    "subclass": lambda: Wrapper(matrix()) + 1,
}
if not IS_TORCH_1:
    ODD["jagged"] = lambda: nested(layout=torch.jagged)
    ODD["float8"] = lambda: matrix().to(torch.float8_e4m3fn)
    ODD["vmap"] = lambda: torch.func.vmap(torch.sin)(matrix())
    ODD["list of nested"] = lambda: torch.cat([nested(), nested()])
    ODD["vmap of nothing"] = lambda: torch.func.vmap(lambda x: x.sum())(torch.ones(0, 3))
    ODD["functionalized"] = lambda: torch.func.functionalize(lambda x: x.clone().add_(1).view(-1))(matrix())
    ODD["grad"] = lambda: torch.func.grad(lambda x: x.sin().sum())(matrix())
    ODD["symbolic"] = symbolic


def run():
    for name, make in ODD.items():
        with record_function("odd: " + name):
            make()


def seen_by_torch_2(profiler):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as file:
            events = [e for e in json.load(file)["traceEvents"] if e.get("cat") in ("cpu_op", "user_annotation")]
    spans = [e for e in events if e["name"].startswith("odd: ")]
    for span in spans:
        for e in events:
            if e is not span and e["tid"] == span["tid"] and span["ts"] <= e["ts"] <= e["ts"] + e["dur"] <= span["ts"] + span["dur"]:
                yield [span["name"], e["name"], *[e["args"].get(key, []) for key in LISTS]]


def main():
    run()  # what is looked up and made at first use is not compared
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    if IS_TORCH_1:
        seen = [["", e.name(), e.shapes(), None, e.dtypes(), None] for e in profiler.profiler.kineto_results.events()]
    else:
        seen = list(seen_by_torch_2(profiler))
    with open(sys.argv[1], "w") as file:
        json.dump(seen, file)


main()
