"""Programs that waste time in one known way: the first finding names it and its line, and what a step would take without it is what it takes when it is cured.

What stands for other work sleeps, so that a busy machine changes neither side of the comparison much."""
import concurrent.futures
import json
import re

import pytest

from simulated_runs import run_simulated  # noqa: F401  the fixture

pytestmark = pytest.mark.once

HEAD = """
import gc, os, subprocess, sys, time, torch
CURED = "cured" in sys.argv
weights = [torch.nn.Parameter(torch.ones(1 << 10))]
optimizer = torch.optim.SGD(weights, lr=0.1)
times = []
def other_work(): time.sleep(0.05)
def update():
    weights[0].sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
def train(steps, one):
    begin = time.perf_counter()
    for batch in steps:
        one(batch)
        update()
        times.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    # At once: print() writes its parts one by one where Python does not buffer, and ranks share a pipe.
    os.write(1, b"step %r\\n" % (sum(times[1:]) / len(times[1:])))
"""
LOADING = HEAD + """
class Images(torch.utils.data.Dataset):
    def __len__(self): return 10
    def __getitem__(self, i):
        return vignette(i)
def vignette(i):
    if not CURED: time.sleep(0.4)
    return i
train(torch.utils.data.DataLoader(Images(), num_workers=2), lambda batch: other_work())
"""
TINY = HEAD + """
def normalise(x):
    if CURED: return x * 2
    for i in range(12000): x[i] = x[i] * 2
def one(batch):
    normalise(torch.ones(12000))
    other_work()
train(range(6), one)
"""
COLLECTING = HEAD + """
kept = [[i] for i in range(1_500_000)]
def clean_up():
    if not CURED: gc.collect()
def one(batch):
    clean_up()
    other_work()
gc.freeze() if CURED else None
train(range(8), one)
"""
PYTHON = HEAD + """
def augment():
    n = 0 if not CURED else 3_000_000
    while n < 3_000_000: n += 1
def one(batch):
    augment()
    other_work()
train(range(8), one)
"""
LEAK = HEAD + """
kept = []
x = torch.ones(1 << 20)
def measure():
    loss = x * 2
    if not CURED: kept.append(loss)
def one(batch):
    measure()
    torch.mm(torch.ones(600, 600), torch.ones(600, 600))
train(range(16), one)
"""
GPU = "from simulated_gpu import sim\nsim.simInit(1)\n" + HEAD
SYNC = GPU + """
def prepare(): time.sleep(0.004)
def read_loss(): sim.simDeviceSynchronize()
def one(batch):
    for _ in range(10):
        prepare()
        sim.simLaunch(b"_Z1kv", 7, 5_000_000)
        if not CURED: read_loss()
    sim.simDeviceSynchronize()
train(range(8), one)
"""
HOST_BOUND = GPU + """
def augment():
    if not CURED: time.sleep(0.08)
def one(batch):
    augment()
    sim.simLaunch(b"_Z1kv", 7, 40_000_000)
    sim.simDeviceSynchronize()
train(range(8), one)
"""
PAGEABLE = GPU + """
def fetch(): sim.simMemcpy(1, 300_000_000, 13 if CURED else 7)
def one(batch):
    fetch()
    sim.simLaunch(b"_Z1kv", 7, 60_000_000)
    sim.simDeviceSynchronize()
train(range(8), one)
"""
RANKS = """
import os, subprocess, sys
if "rank" not in sys.argv:
    ranks = [subprocess.Popen([sys.executable, *sys.argv, "rank", str(rank)]) for rank in range(4)]
    sys.exit(sum(rank.wait() for rank in ranks))
""" + HEAD + """
import torch.distributed as dist
rank = int(sys.argv[-1])
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet" + str(CURED)), rank=rank, world_size=4)
"""
SLOW_RANK = RANKS + """
x = torch.ones(4)
def augment():
    if rank == 2 and not CURED: time.sleep(0.12)
def one(batch):
    augment()
    other_work()
    dist.all_reduce(x)
train(range(12), one)
dist.barrier()
"""
COMMUNICATION = RANKS + """
gradients = torch.ones(1 << 24)
def exchange():
    if not CURED: dist.all_reduce(gradients)
def one(batch):
    exchange()
    other_work()
train(range(12), one)
dist.barrier()
"""

# Rule: the program, words of the line that is to be named, and its function. Of a function that calls nothing it is the line that was looked at.
PLANTED = {
    "loading": (LOADING, "if not CURED: time.sleep(0.4)", "vignette"),
    "tiny operators": (TINY, "for i in range(", "normalise"),
    "collecting": (COLLECTING, "gc.collect()", "clean_up"),
    "python": (PYTHON, "while n < 3_000_000", "augment"),
    "slow rank": (SLOW_RANK, "    augment()", "one"),
    "communication": (COMMUNICATION, "dist.all_reduce(gradients)", "exchange"),
}
PLANTED_ON_GPU = {
    "sync": (SYNC, "def read_loss", "read_loss", ("", "")),
    "host bound": (HOST_BOUND, "if not CURED: time.sleep(0.08)", "augment", ("", "")),
    "pageable": (PAGEABLE, "def fetch", "fetch", ("pageable=1", "")),
}


def first_finding(torchprof, run):
    done = torchprof("report", run.directory, "-t", "advice", "--json")
    assert run.status == 0 and done.returncode == 0, run.stderr + done.stderr
    rows = json.loads(done.stdout)["tables"][0]["rows"]
    return rows[0] if rows else {"rule": None}


def is_named(finding, text, words, function):
    number, = [n for n, line in enumerate(text.splitlines(), 1) if words in line]
    return re.search(r"program\.py\(%d\): %s$" % (number, function), finding["where"] or "")


def step_ns(run):
    """What the program took for a step, on average over its processes."""
    steps = [float(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("step ")]
    return 1e9 * sum(steps) / len(steps)


# Four processes that reduce leave no processor to another program.
ALONE = {"communication"}


def both_runs(run, rule):
    """run(WORDS) of the planted and of the cured program: at the same time, where they use one processor each at the most."""
    with concurrent.futures.ThreadPoolExecutor(1 if rule in ALONE else 2) as pool:
        return list(pool.map(run, ([], ["cured"])))


def check(rule, torchprof, run_both, text, words, function):
    """`run_both` gives the planted and the cured run, of its next try. What else the machine does may fall into one of the two: of three
    comparisons one has to hold. Gives the planted run."""
    compared = []
    for number in range(3):
        planted, cured = run_both(number)
        found = first_finding(torchprof, planted)
        assert found["rule"] == rule, found
        assert is_named(found, text, words, function), found
        compared.append((found["without_ns"], step_ns(cured), step_ns(planted)))
        if found["without_ns"] == pytest.approx(step_ns(cured), rel=0.2):
            return planted
    pytest.fail("without it a step would take, takes when cured, and took (ns): %s" % compared)


@pytest.mark.timed
@pytest.mark.parametrize("rule", PLANTED)
def test_what_is_planted_comes_first_and_costs_what_its_cure_saves(rule, torchprof, run_torchprof, torch_python, program, tmp_path):
    text, words, function = PLANTED[rule]

    def run_both(number):
        place = tmp_path / ("try%d" % number)
        place.mkdir()
        script = program(text)
        return both_runs(lambda more: run_torchprof([torch_python, script, *more], cwd=place), rule)

    planted = check(rule, torchprof, run_both, text, words, function)
    # The end of the run says it, too, before anything else.
    assert re.search(r"^torchprof: \d+ process(es)?, .*\n\nAdvice: a step takes ", planted.stderr, re.M), planted.stderr


@pytest.mark.timed
@pytest.mark.parametrize("rule", PLANTED_ON_GPU)
def test_what_is_planted_on_a_gpu_comes_first(rule, torchprof, run_simulated, torch_python, program):  # noqa: F811
    text, words, function, sims = PLANTED_ON_GPU[rule]
    script = program(text)
    check(rule, torchprof, lambda _: both_runs(lambda more: run_simulated("", sim=sims[len(more)], command=[torch_python, script, *more])[0], rule),
          text, words, function)


def test_a_leak_comes_first_with_its_rate(torchprof, run_torchprof, torch_python, program):
    leaking, cured = both_runs(lambda more, script=program(LEAK): run_torchprof([torch_python, script, *more]), "leak")
    found = first_finding(torchprof, leaking)
    assert found["rule"] == "leak" and is_named(found, LEAK, "loss = x * 2", "measure"), found
    assert "4.00 MiB a step" in found["finding"]
    spared = first_finding(torchprof, cured)
    assert spared["rule"] != "leak", spared
