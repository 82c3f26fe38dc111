"""nn.Modules and optimizers: which is which, where it stands in its model, what it holds; and whose backward an operator is."""
import json
import textwrap

import pytest


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
