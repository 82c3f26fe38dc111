"""nn.Modules and optimizers: which is which, where it stands in its model, what it holds; and whose backward an operator is."""
import json
import textwrap

import pytest

from simulated_runs import run_simulated  # noqa: F401  the fixture


@pytest.fixture
def profiled(run_torchprof, check_trace, program, torch_python, tmp_path):
    """profiled(TEXT) runs a program that may tell what is true by truth(...): (our trace, what it told)."""
    head = "import json, torch\nfrom torch import nn\n" \
           "def truth(**told): json.dump(told, open(%r, 'w'))\n" \
           "def tensor(t): return {'shape': list(t.shape), 'strides': list(t.stride()), 'data_ptr': t.data_ptr()}\n" % str(tmp_path / "truth")

    def run(text, options=()):
        run = run_torchprof([torch_python, program(head + textwrap.dedent(text))], options=options)
        assert run.status == 0, run.stderr
        told = tmp_path / "truth"
        return check_trace(run.trace()), json.loads(told.read_text()) if told.exists() else None
    return run


def process(trace):
    return trace.doc["torchprof"]["processes"][0]


def paths(trace, root):
    return [m["path"] for m in process(trace)["modules"] if m["root"] == "nn.Module: " + root]


def tensors(trace, root, kind="parameters"):
    """{"layer.weight": ...} as named_parameters() has it."""
    return {(m["path"] + "." if m["path"] else "") + p["name"]: p
            for m in process(trace)["modules"] if m["root"] == "nn.Module: " + root for p in m.get(kind, [])}


def plain(tensor):
    return {key: tensor[key] for key in ("shape", "strides", "data_ptr")}


NET = """
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
            self.bn = nn.BatchNorm2d(4)
        def forward(self, x):
            return self.bn(self.conv1(x)) + x
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 1).to(memory_format=torch.channels_last)
            self.layer1 = nn.Sequential(Block(), Block())
            self.heads = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2, bias=False)])
            self.act = nn.ReLU()
            self.same = self.layer1
            self.never_called = nn.Linear(2, 2)
            self.none = None
        def forward(self, x):
            x = self.act(self.layer1(self.stem(x)).mean((2, 3)))
            return sum(head(x) for head in self.heads)
    net = Net()
    optimizer = torch.optim.Adam([{"params": net.stem.parameters()}, {"params": net.layer1.parameters(), "lr": 0.5}], betas=(0.5, 0.75))
    """


def test_modules_and_optimizers_are_what_python_says(profiled):
    trace, told = profiled(textwrap.dedent(NET) + textwrap.dedent("""
        for step in range(2):
            optimizer.zero_grad()
            net(torch.randn(2, 3, 4, 4)).sum().backward()
            before = {n: tensor(p.grad) for n, p in net.named_parameters() if p.grad is not None}
            optimizer.step()
        state = [{k: tensor(v) for k, v in optimizer.state[p].items() if torch.is_tensor(v)} for g in optimizer.param_groups for p in g["params"]]
        truth(parameters={n: tensor(p) for n, p in net.named_parameters()}, buffers={n: tensor(b) for n, b in net.named_buffers()},
              paths=[n for n, _ in net.named_modules()], gradients=before, state=state)
        """))
    assert paths(trace, "Net_0") == told["paths"]
    parameters = tensors(trace, "Net_0")
    assert {name: plain(p) for name, p in parameters.items()} == told["parameters"]
    assert {name: plain(p) for name, p in tensors(trace, "Net_0", "buffers").items()} == told["buffers"]
    assert {p["type"] for p in parameters.values()} == {"float"} and {p["device"] for p in parameters.values()} == {"cpu"}
    optimizer, = process(trace)["optimizers"]
    first, second = optimizer["groups"]
    assert (optimizer["name"], first["lr"], second["lr"], first["betas"], first["amsgrad"]) == ("Optimizer: Adam_0", 0.001, 0.5, [0.5, 0.75], False)
    held = first["params"] + second["params"]
    gradients = {name: p["grad"] for name, p in parameters.items() if "grad" in p}
    # The second step's: what zero_grad() freed may come back at another place.
    assert {name: (g["shape"], g["strides"]) for name, g in gradients.items() if "stem" in name or "layer1" in name} == \
        {name: (g["shape"], g["strides"]) for name, g in told["gradients"].items() if "stem" in name or "layer1" in name}
    assert {p["grad"]["data_ptr"] for p in held} == {g["data_ptr"] for n, g in told["gradients"].items() if "stem" in n or "layer1" in n}
    assert [{k: plain(v) for k, v in p["state"].items() if isinstance(v, dict)} for p in held] == told["state"]


def test_a_module_gets_the_number_in_which_it_was_first_called(profiled):
    trace, _ = profiled("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            def forward(self, x):
                return self.a(self.b(x))
        Net()(torch.ones(1, 2))
        """)
    assert {m["path"]: m["name"] for m in process(trace)["modules"]} == {
        "": "nn.Module: Net_0", "b": "nn.Module: Linear_0", "a": "nn.Module: Linear_1"}


def test_nothing_of_the_program_runs_to_find_out(profiled):
    trace, told = profiled("""
        seen = []
        class Meta(type):
            def __getattribute__(cls, name):
                seen.append(name)
                return super().__getattribute__(name)
        class Secret(nn.Module, metaclass=Meta):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(2, 2)
            def __getattribute__(self, name):
                seen.append(name)
                return super().__getattribute__(name)
            def __hash__(self): seen.append("hash"); return 1
            def __eq__(self, other): seen.append("eq"); return False
            def forward(self, x): return self.inner(x)
        import os
        secret = Secret()
        seen.clear()
        secret(torch.ones(1, 2))
        first = list(seen)
        seen.clear()
        secret(torch.ones(1, 2))
        truth(first=first, second=seen)
        """)
    assert paths(trace, "Secret_0") == ["", "inner"]
    assert told["first"] == told["second"]


def test_an_address_that_is_used_again_gets_no_dead_name(profiled):
    trace, told = profiled("""
        reused = 0
        addresses = set()
        for i in range(500):
            module = nn.Sequential(nn.Identity()) if i % 2 else nn.Tanh()
            reused += id(module) in addresses
            addresses.add(id(module))
            module(torch.ones(1))
            del module
        truth(reused=reused)
        """)
    assert told["reused"] > 100
    assert {name: trace.names("python_function")[name] for name in ("nn.Module: Tanh_249", "nn.Module: Sequential_249", "nn.Module: Identity_249")} \
        == {"nn.Module: Tanh_249": 1, "nn.Module: Sequential_249": 1, "nn.Module: Identity_249": 1}
    assert len(process(trace)["modules"]) == 750


def test_a_module_that_comes_later_gets_its_path(profiled):
    trace, told = profiled("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.kept = nn.ModuleDict({"first": nn.Linear(2, 2)})
            def forward(self, x):
                for layer in self.kept.values(): x = layer(x)
                return nn.Tanh()(x)
        net = Net()
        net(torch.ones(1, 2))
        net.kept["second"] = nn.Sequential(nn.Linear(2, 2))
        net(torch.ones(1, 2))
        truth(paths=[n for n, _ in net.named_modules()])
        """)
    assert paths(trace, "Net_0") == told["paths"]
    assert [paths(trace, "Tanh_%d" % i) for i in range(2)] == [[""], [""]]


def test_a_part_that_was_called_alone_before_gets_its_path_in_the_whole(profiled):
    trace, told = profiled(textwrap.dedent(NET) + textwrap.dedent("""
        net.layer1[0](torch.randn(2, 4, 4, 4))
        net(torch.randn(2, 3, 4, 4))
        truth(paths=[n for n, _ in net.named_modules()])
        """))
    assert sorted(paths(trace, "Net_0")) == sorted(told["paths"])


def test_many_parameters_come_in_several_parts(profiled):
    trace, told = profiled("""
        many = nn.ParameterList([nn.Parameter(torch.ones(1, i + 1)) for i in range(3000)])
        optimizer = torch.optim.SGD(many, lr=0.1, momentum=0.9)
        for step in range(2):
            sum(p.sum() for p in many).backward()
            optimizer.step()
        truth(shapes=[list(p.shape) for p in many])
        """)
    optimizer, = process(trace)["optimizers"]
    held = optimizer["groups"][0]["params"]
    assert [p["shape"] for p in held] == told["shapes"]
    assert [p["state"]["momentum_buffer"]["shape"] for p in held] == told["shapes"]


def test_without_shapes_only_names_and_paths_are_kept(profiled):
    trace, _ = profiled("nn.Sequential(nn.Linear(2, 2))(torch.ones(1, 2))", options=["--shapes", "off"])
    assert [sorted(m) for m in process(trace)["modules"]] == [["name", "path", "root"]] * 2
    assert process(trace)["sources"]["modules"]["state"] == "on"


# ---- whose backward an operator is ------------------------------------------------------------------------------------------

def owners(trace, backward):
    """{operator: the paths of the modules that it ran for}"""
    found = {}
    for e in trace.spans("cpu_op"):
        if e["args"].get("Backward", False) == backward:
            found.setdefault(e["name"], set()).add(e["args"].get("Module path"))
    return found


def test_operators_know_the_module_that_called_them_and_their_backward_too(profiled):
    trace, _ = profiled("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.norm, self.fc = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 1)
            def forward(self, x):
                return self.fc(self.norm(self.conv(x)).tanh().mean((2, 3)))
        Net()(torch.randn(2, 1, 5, 5)).sigmoid().sum().backward()
        """)
    forward, backward = owners(trace, False), owners(trace, True)
    assert (forward["aten::conv2d"], forward["aten::native_batch_norm"], forward["aten::addmm"]) == ({"conv"}, {"norm"}, {"fc"})
    assert (forward["aten::tanh"], forward["aten::sigmoid"]) == ({""}, {None})
    assert {name: backward[name] for name in ("ConvolutionBackward0", "NativeBatchNormBackward0", "AddmmBackward0", "TanhBackward0", "SigmoidBackward0")} == {
        "ConvolutionBackward0": {"conv"}, "NativeBatchNormBackward0": {"norm"}, "AddmmBackward0": {"fc"}, "TanhBackward0": {""}, "SigmoidBackward0": {None}}
    assert backward["autograd::engine::evaluate_function: ConvolutionBackward0"] == {"conv"}
    assert backward["aten::convolution_backward"] == {"conv"}


def test_a_shared_layer_a_kept_graph_and_the_backward_of_a_backward(profiled):
    trace, _ = profiled("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.shared, self.other = nn.Linear(3, 3), nn.Softmax(-1)
            def forward(self, x):
                return self.other(self.shared(self.shared(x)))
        net = Net()
        x = torch.randn(2, 3, requires_grad=True)
        y = net(x).pow(2).sum()
        y.backward(retain_graph=True)
        y.backward(retain_graph=True)
        g, = torch.autograd.grad(y, x, create_graph=True)
        g.sum().backward()
        """)
    backward = owners(trace, True)
    assert backward["AddmmBackward0"] == {"shared"}
    assert len(trace.named("AddmmBackward0", "cpu_op")) == 2 * 4  # twice kept, once to make a graph, once in the double backward
    assert backward["SoftmaxBackward0"] == {"other"}
    assert backward["SoftmaxBackwardDataBackward0"] == {"other"}


def test_what_checkpointing_computes_again_is_marked_and_belongs_to_its_modules(profiled):
    trace, _ = profiled("""
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid())
            def forward(self, x):
                return checkpoint(self.body, x, use_reentrant=True).sum()
        Net()(torch.randn(2, 3, requires_grad=True)).backward()
        """)
    sigmoids = [e["args"] for e in trace.named("aten::sigmoid", "cpu_op")]
    assert [(s["Module path"], s.get("Backward", False), s.get("Recompute", False)) for s in sigmoids] == [("body.1", False, False), ("body.1", False, True)]
    calls = [e["args"].get("Recompute", False) for e in trace.named("nn.Module: Sigmoid_0", "python_function")]
    assert calls == [False, True]
    backward = owners(trace, True)
    assert (backward["SigmoidBackward0"], backward["AddmmBackward0"]) == ({"body.1"}, {"body.0"})
    assert backward["CheckpointFunctionBackward"] == {""}


def test_modules_in_ddp_stand_below_it(profiled):
    trace, _ = profiled("""
        import os
        import torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
        store = dist.HashStore()
        dist.init_process_group("gloo", rank=0, world_size=1, store=store)
        ddp = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
        ddp(torch.randn(2, 3)).sum().backward()
        dist.destroy_process_group()
        """)
    assert paths(trace, "DistributedDataParallel_0") == ["", "module", "module.0", "module.1"]
    assert owners(trace, True)["ReluBackward0"] == {"module.1"}


def test_the_table_has_a_backward_column_from_the_run_and_from_its_trace(run_torchprof, torchprof, torch_python, program):
    run = run_torchprof([torch_python, program("import torch\nnet = torch.nn.Sequential(torch.nn.Linear(3, 3))\nnet(torch.ones(1, 3)).sum().backward()")])
    assert run.status == 0, run.stderr
    summary = (run.directory / "summary.txt").read_text()
    table = summary[summary.index("Modules by"):].split("\n\n")[0].rstrip("\n")
    assert [line.split()[-2:] for line in table.splitlines()[2:]] == [["nn.Module:", "Sequential_0"], ["Linear_0", "0"]]
    outer, inner = (line.split() for line in table.splitlines()[2:])
    assert outer[4:6] == ["0.000", "us"] and outer[6:8] == inner[6:8] != ["0.000", "us"]  # self, total
    assert table in torchprof("report", run.trace_paths[0], "--tables", "modules").stdout


def module_rows(torchprof, run):
    done = torchprof("report", run.directory, "-t", "modules", "--json", "-n", 1000)
    assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
    table, = json.loads(done.stdout)["tables"]
    return {row["path"] or "": row for row in table["rows"]}


def test_parameters_and_the_optimizer_s_time_of_each_module(run_torchprof, torchprof, torch_python, program, tmp_path):
    told = tmp_path / "truth"
    run = run_torchprof([torch_python, program(textwrap.dedent("""
        import json, sys, torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.body, self.head = nn.Embedding(50, 8), nn.Sequential(nn.Linear(8, 80), nn.Linear(80, 8)), nn.Linear(8, 50)
                self.head.weight = self.words.weight
            def forward(self, x):
                return self.head(self.body(self.words(x)))
        net = Net()
        optimizer = torch.optim.Adam(net.body.parameters())
        for _ in range(3):
            net(torch.arange(50)).sum().backward()
            optimizer.step()
        json.dump({name: sum(p.numel() for p in m.parameters()) for name, m in net.named_modules()}, open(sys.argv[1], "w"))
        """)), str(told)])
    rows = module_rows(torchprof, run)
    assert {path: row["parameters"] for path, row in rows.items()} == json.loads(told.read_text())
    assert rows["body"]["optimizer_ns"] == rows[""]["optimizer_ns"] > 0 == rows["head"]["optimizer_ns"]
    parts = [rows["body.%d" % i]["optimizer_ns"] / rows["body"]["optimizer_ns"] for i in (0, 1)]
    assert parts == pytest.approx([720 / 1368, 648 / 1368], rel=0.01)
    # What the first layer gave is kept for the backward: 50 by 80 floats.
    assert rows[""]["cpu_peak_bytes"] >= rows["body"]["cpu_peak_bytes"] >= rows["body.0"]["cpu_peak_bytes"] >= 16000
    assert rows["body.0"]["parent"] == rows["body"]["name"]


def test_gpu_time_of_modules_forward_backward_and_in_the_optimizer(run_simulated, torchprof):  # noqa: F811
    run, _ = run_simulated("""
import torch
from simulated_gpu import doubled, sim
Doubled = doubled()
sim.simInit(1)

class Double(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        return Doubled.apply(x * self.weight)

class Sgd(torch.optim.SGD):
    def step(self):
        sim.simLaunch(b"_Z6updatev", 7, 6000)
        super().step()

net = torch.nn.Sequential(Double(), Double())
optimizer = Sgd(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.ones(4)).sum().backward()
    optimizer.step()
sim.simDeviceSynchronize()
""")
    rows = module_rows(torchprof, run)
    gpu = {path: tuple(row["gpu_%s_ns" % key] for key in ("forward_self", "forward_total", "backward_total", "optimizer")) for path, row in rows.items()}
    expected = {"": (0, 20000, 20000, 12000), "0": (10000, 10000, 10000, 6000), "1": (10000, 10000, 10000, 6000)}
    assert gpu == {path: pytest.approx(times, abs=4) for path, times in expected.items()}  # at most four kernels, whose begins and ends are rounded


# ---- what is computed again -------------------------------------------------------------------------------------------------

CHECKPOINTED = """
import json, sys, time, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.set_num_threads(1)
PATTERN, REENTRANT = sys.argv[1], sys.argv[2] == "True"
in_backward, told = False, {}

class Leaf(nn.Module):
    # Takes known times: a function of autograd's waits in its forward and in its backward.
    def __init__(self, ms):
        super().__init__()
        self.ms, self.weight = ms, nn.Parameter(torch.ones(4))
    def forward(self, x):
        times = told.setdefault(self.name, [0, 0])
        times[in_backward] += 1
        time.sleep(self.ms / 1000)
        return x * self.weight

class Block(nn.Module):
    def __init__(self, ms):
        super().__init__()
        self.first, self.second = Leaf(ms), Leaf(2 * ms)
    def forward(self, x):
        if PATTERN == "nested":
            return checkpoint(self.first, checkpoint(self.second, x, use_reentrant=REENTRANT), use_reentrant=REENTRANT)
        return self.second(self.first(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(2), Block(3)])
        self.head = Leaf(1)
    def forward(self, x):
        for block in self.blocks:
            x = block(x) if PATTERN == "none" else checkpoint(block, x, use_reentrant=REENTRANT)
        if PATTERN == "function":
            x = checkpoint(lambda x: self.head(x).sin(), x, use_reentrant=REENTRANT)
        else:
            x = self.head(x)
        return x.sum()

net = Net()
for name, module in net.named_modules():
    module.name = name
began = time.perf_counter_ns()
for _ in range(2):
    loss = net(torch.ones(2, 4, requires_grad=True))
    in_backward = True
    if PATTERN == "create_graph" and not REENTRANT:
        torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    else:
        loss.backward()
    in_backward = False
print(time.perf_counter_ns() - began)
print(json.dumps({name: [times[0], times[1], net.get_submodule(name).ms] for name, times in told.items()}))
"""


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("pattern", ["none", "blocks", "nested", "function", "create_graph"])
def test_what_a_backward_computes_again_is_a_time_of_its_own_in_modules_and_what_they_are_in(run_torchprof, torchprof, torch_python, program, pattern, reentrant):
    run = run_torchprof([torch_python, program(CHECKPOINTED), pattern, reentrant])
    assert run.status == 0, run.stderr
    took, told = map(json.loads, run.stdout.splitlines())
    rows = module_rows(torchprof, run)
    ms = lambda path, key: rows[path][key] / 1e6
    for path, (forward, again, each) in told.items():
        # Sleeps are at least as long as asked for; what they take longer is in none of the others' times.
        assert rows[path]["calls"] == forward
        assert ms(path, "forward_self_ns") >= forward * each
        assert ms(path, "recompute_self_ns") >= again * each and (again != 0) == (rows[path]["recompute_self_ns"] != 0)
    assert any(again for _, again, _ in told.values()) == (pattern != "none")
    for path, row in rows.items():
        inside = [other for name, other in rows.items() if name == path or name.startswith(path + ".") or path == ""]
        assert row["recompute_total_ns"] == sum(other["recompute_self_ns"] for other in inside)
        assert row["backward_total_ns"] == sum(other["backward_self_ns"] for other in inside)
        assert row["total_ns"] == row["forward_total_ns"] + row["backward_total_ns"] + row["recompute_total_ns"]
        # What is inside of it takes no longer than it does.
        assert row["total_ns"] >= sum(other["self_ns"] for other in inside) * 0.999
    # No time counts twice, as the sleeps of the recomputation would if they were the backward's, too: the model's is at most the program's.
    assert rows[""]["total_ns"] <= took
    # The trace file tells the same.
    of_trace = torchprof("report", run.trace_paths[0], "-t", "modules", "--json", "-n", 1000)
    assert of_trace.returncode == 0, of_trace.stderr
    table, = json.loads(of_trace.stdout)["tables"]
    for row in table["rows"]:
        for key in ("forward_self_ns", "backward_self_ns", "recompute_self_ns", "recompute_total_ns", "calls"):
            assert abs(row[key] - rows[row["path"] or ""][key]) <= 1e-3 * rows[row["path"] or ""]["total_ns"], (key, row)
