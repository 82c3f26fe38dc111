"""Programs that lose time inside operators of torch, in ways that names, shapes and autograd's numbers show: each is told with its place; and programs that
look like them and are fine. tests/unit/analysis/operator_advice_test.cpp has the cases."""
import concurrent.futures
import json
import re
import subprocess

import pytest

from conftest import clean_environment, profile, torch_here

HEAD = """
import copy, os, torch
from torch import nn
F = nn.functional
torch.manual_seed(0)
def layers(n, d): return nn.Sequential(*[m for _ in range(n) for m in (nn.Linear(d, d), nn.ReLU())])
def train(model, optimizer, loss_of, steps=8, after=None):
    for step in range(steps):
        loss_of(model).backward()
        if after: after(model)
        optimizer.step()
        optimizer.zero_grad()
"""
OPTIMIZER = HEAD + """
m = layers(100, 8)
def make(m):
    return torch.optim.Adam(m.parameters(), lr=1e-3, foreach=False)
train(m, make(m), lambda m: m(torch.randn(4, 8)).sum())
"""
AVERAGE = HEAD + """
m = layers(100, 8)
average = copy.deepcopy(m)
@torch.no_grad()
def follow(m):
    for a, p in zip(average.parameters(), m.parameters()):
        a.mul_(0.9).add_(p, alpha=0.1)
train(m, torch.optim.SGD(m.parameters(), lr=1e-3, foreach=True), lambda m: m(torch.randn(4, 8)).sum(), after=follow)
"""
ATTENTION = HEAD + """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
    def forward(self, x):
        q, k, v = (f(x).view(2, 300, 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        w = torch.softmax(torch.einsum("bhtd,bhsd->bhts", q, k) / 3, dim=-1)
        return torch.einsum("bhts,bhsd->bhtd", w, v)
m = Attention()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(2, 300, 32)).square().mean())
"""
ANOMALY = HEAD + """
def look_for_nan():
    torch.autograd.set_detect_anomaly(True)
look_for_nan()
m = layers(20, 8)
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(4, 8)).sum())
"""
EMBEDDING = HEAD + """
class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(60_000, 32), nn.Linear(32, 1)
    def forward(self, i):
        return self.out(self.table(i).mean(1))
m = Scores()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randint(0, 60_000, (64, 4))).square().mean())
"""
POSITIONS = HEAD + """
class Next(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(2000, 32), nn.Linear(32, 2000)
    def forward(self, i):
        return self.head(self.words(i).cumsum(1))
m = Next()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: F.cross_entropy(m(torch.randint(0, 2000, (8, 60)))[:, -1], torch.zeros(8).long()))
"""
GRADIENTS = HEAD + """
m = layers(4, 200)
def norms(m):
    loss = m(torch.randn(300, 200)).square().mean()
    return [g.norm().item() for g in torch.autograd.grad(loss, list(m.parameters()))]
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(300, 200)).square().mean(), after=norms)
"""
PRINTING = HEAD + """
m = layers(2, 64)
sink = open(os.devnull, "w")
def show(m):
    for p in m.parameters(): print(p.grad, file=sink)
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(4, 64)).sum(), after=show)
"""
ROWS = HEAD + """
m = layers(6, 64)
@torch.no_grad()
def classify(page):
    return [m(row.unsqueeze(0)).argmax(1) for row in page]
for page in torch.randn(20, 16, 64):
    classify(page)
"""
EVALUATION = HEAD + """
m = layers(4, 64)
held_back = torch.randn(10, 200, 64)
@torch.no_grad()
def validate(m):
    m.eval()
    found = [m(part).square().mean() for part in held_back]
    m.train()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(64, 64)).square().mean(), after=validate)
"""
CELLS = HEAD + """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(16, 16)
    def forward(self, x):
        state = torch.zeros(2, 8, 16).unbind()
        for i in range(60):
            state = self.cell(x[:, i], state)
        return state[0]
m = Reader()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(8, 60, 16)).square().mean())
"""
PARTS = HEAD + """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.state = nn.Linear(32, 32), nn.Linear(32, 32)
    def forward(self, x):
        x, s = self.words(x), torch.zeros(16, 32)
        for i in range(100):
            s = torch.tanh(x[:, i] + self.state(s))
        return s
m = Reader()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(16, 100, 32)).square().mean())
"""
ONE_HOT = HEAD + """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(2000, 32))
    def forward(self, i):
        rows = F.one_hot(i, 2000).float() @ self.table
        return rows.mean(1)
m = Words()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randint(0, 2000, (32, 10))).square().mean())
"""
NET = HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = layers(6, 128), nn.Linear(128, 8)
    def forward(self, x):
        features = self.body(x)
        return self.head(features)
m = Net()
loss_of = lambda m: m(torch.randn(100, 128)).square().mean()
"""
NEW_OPTIMIZER = HEAD + """
m = layers(6, 512)
def step(i):
    optimizer = torch.optim.Adam(m.parameters(), lr=1e-3 / (i + 1))
    m(torch.randn(8, 512)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
for i in range(10): step(i)
"""
FROZEN = NET + "train(m, torch.optim.Adam(m.head.parameters(), lr=1e-3), loss_of)"
# Rule: the program, and words of the line or of the function's first line that may be named.
LOST = {
    "optimizer": (OPTIMIZER, ("def make", "return torch.optim")),
    "new optimizer": (NEW_OPTIMIZER, ("def step", "optimizer = torch.optim")),
    "parameter loop": (AVERAGE, ("@torch.no_grad", "def follow", "a.mul_")),
    "attention": (ATTENTION, ("def forward", "w = torch.softmax")),
    "anomaly detection": (ANOMALY, ("def look_for_nan", "set_detect_anomaly(True)")),
    "dense gradient": (EMBEDDING, ("def forward", "return self.out")),
    "unused gradient": (FROZEN, ("def forward", "features = self.body(x)")),
    "unused positions": (POSITIONS, ("def forward", "return self.head")),
    "second backward": (GRADIENTS, ("def norms", "return [g.norm")),
    "evaluation": (EVALUATION, ("def validate", "@torch.no_grad", "found = [m(part)")),
    "part by part": (PARTS, ("def forward", "s = torch.tanh")),
    "one-hot product": (ONE_HOT, ("def forward", "rows = F.one_hot")),
    "printing": (PRINTING, ("def show", "for p in m.parameters(): print")),
}

ACCUMULATION = HEAD + """
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(8):
    for part in range(2):
        F.cross_entropy(net(torch.randn(8, 3, 32, 32)), torch.zeros(8).long()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PENALTY = HEAD + """
net = nn.Sequential(nn.Linear(64, 300), nn.Softplus(), nn.Linear(300, 1))
def loss_of(net):
    x = torch.randn(64, 64, requires_grad=True)
    gradient, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return (gradient.norm(dim=1) - 1).square().mean() - net(x).mean()
train(net, torch.optim.SGD(net.parameters(), lr=1e-3), loss_of)
"""
TIED = HEAD + """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn = nn.Embedding(5000, 32), nn.GRU(32, 32, batch_first=True)
    def forward(self, i):
        return F.linear(self.rnn(self.table(i))[0], self.table.weight)
m = Words()
def loss_of(m):
    i = torch.randint(0, 5000, (4, 21))
    return F.cross_entropy(m(i[:, :-1]).reshape(-1, 5000), i[:, 1:].reshape(-1))
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), loss_of)
"""
ROLLOUT = HEAD + """
policy = layers(2, 32)
def play(m):
    with torch.no_grad():
        return [m(torch.randn(64, 32)).argmax(1) for _ in range(30)]
train(policy, torch.optim.SGD(policy.parameters(), lr=1e-3), lambda m: m(torch.randn(512, 32)).square().mean(), after=play)
"""
# The same part of many tensors, and parts of what needs no gradient.
LAST = HEAD + """
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(40))
    def forward(self, x):
        given = torch.randn(40, 64, 32)
        return sum(layer(x + given[i])[:, -1] for i, layer in enumerate(self.layers))
m = Deep()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), lambda m: m(torch.randn(64, 32)).square().mean())
"""
SMOOTHED = HEAD + """
m = nn.Sequential(nn.Linear(64, 2000))
def loss_of(m):
    wanted = F.one_hot(torch.randint(0, 2000, (64,)), 2000).float() * 0.9 + 0.1 / 2000
    return -(wanted * m(torch.randn(64, 64)).log_softmax(1)).sum()
train(m, torch.optim.SGD(m.parameters(), lr=1e-3), loss_of)
"""
# Gradients of the body that no optimizer takes, and something else does.
CLIPPED = NET + """
train(m, torch.optim.Adam(m.head.parameters(), lr=1e-3), loss_of, after=lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1.0))
"""
BY_HAND = NET + """
@torch.no_grad()
def follow(m):
    for p in m.body.parameters(): p -= 1e-3 * p.grad
train(m, torch.optim.SGD(m.head.parameters(), lr=1e-3), loss_of, after=follow)
"""
BY_TURNS = NET + """
body, head = torch.optim.SGD(m.body.parameters(), lr=1e-3), torch.optim.SGD(m.head.parameters(), lr=1e-3)
for step in range(12):
    loss_of(m).backward()
    (body if step % 6 == 5 else head).step()
    m.zero_grad()
"""
# Each input of the cell is made from what it gave before.
WRITER = CELLS.replace("self.cell(x[:, i], state)", "self.cell(torch.tanh(state[0] * 2) + x[:, 0], state)")
FINE = {"accumulation": ACCUMULATION, "penalty": PENALTY, "tied": TIED, "rollout": ROLLOUT, "writer": WRITER, "last": LAST, "smoothed": SMOOTHED,
        "clipped": CLIPPED, "by hand": BY_HAND, "by turns": BY_TURNS}


@pytest.fixture(scope="module")
def findings(launcher, torch_python, tmp_path_factory):
    """The findings of each program, by its name."""
    base = tmp_path_factory.mktemp("operators")  # pytest makes its own folder at the first call: not from two threads

    def look(name, text):
        place = base / name.replace(" ", "_")
        place.mkdir()
        (place / "program.py").write_text(text)
        for attempt in range(3):
            run = profile(launcher, place / ("run%d" % attempt), [torch_python, place / "program.py"], options=["--format", "none"])
            done = subprocess.run([launcher, "report", run.directory, "-t", "advice", "--json"], capture_output=True, text=True,
                                  env=clean_environment())
            assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
            rows = json.loads(done.stdout)["tables"][0]["rows"]
            # On a busy machine a step may take so long, or so differently, that nothing is told of it.
            if name not in {*LOST, "cell by cell"} or any(row["rule"] == name for row in rows): break
        return rows

    programs = {**{rule: text for rule, (text, _) in LOST.items()}, **FINE,
                "cell by cell": CELLS, "batch of one": ROWS, "a batch": ROWS.replace("[m(row.unsqueeze(0)).argmax(1) for row in page]", "m(page).argmax(1)")}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(programs, pool.map(look, programs, programs.values())))


def line_of(found, text):
    """The line of the program that a finding names."""
    return text.splitlines()[int(re.search(r"program\.py\((\d+)\)", found["where"])[1]) - 1]


@pytest.mark.parametrize("rule", LOST)
def test_what_operators_lose_is_told_with_its_place(rule, findings):
    text, words = LOST[rule]
    found, = [f for f in findings[rule] if f["rule"] == rule] or [None]
    assert found, findings[rule]
    assert any(each in line_of(found, text) for each in words), found
    assert found["share_percent"] > 3


@pytest.mark.parametrize("name", FINE)
def test_what_only_looks_like_it_is_not_told(name, findings):
    """Rules that look at the structure alone, at any share: what an operator takes of a step, and the calls of an optimizer, are the machine's."""
    told = (set(LOST) - {"optimizer"}) | {"second forward", "cell by cell", "float64", "checking", "reading values", "sparse as dense"}
    assert not [f for f in findings[name] if f["rule"] in told]


def test_rows_that_go_through_a_model_one_by_one_are_told_without_a_cost(findings):
    found, = [f for f in findings["batch of one"] if f["rule"] == "batch of one"]
    assert "for row in page" in line_of(found, ROWS), found
    assert found["finding"] == "Sequential_0 is called 16 times in a step, each time for one row." and found["cost_ns"] is None
    assert not [f for f in findings["a batch"] if f["rule"] == "batch of one"]


def test_cells_that_are_called_one_by_one_are_told_where_the_whole_layer_is_quicker(findings):
    """From torch 2.0 on: nn.LSTM of 1.13 takes as long."""
    version, _ = torch_here()
    found = [f for f in findings["cell by cell"] if f["rule"] == "cell by cell"]
    assert bool(found) == (version >= (2, 0)), (version, findings["cell by cell"])
    for f in found:
        assert "state = self.cell(" in line_of(f, CELLS) and f["share_percent"] > 10, f
