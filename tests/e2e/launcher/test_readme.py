"""What README.md, docs/install.md and docs/recipes.md tell their reader to type works as it stands there: from source, then every recipe."""
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from conftest import BUILD, INSTALLED, PATIENCE, ROOT, clean_environment

pytestmark = pytest.mark.once

README, RECIPES, INSTALL = ((ROOT / name).read_text() for name in ("README.md", "docs/recipes.md", "docs/install.md"))


def section(document, heading):
    return re.search(r"^## %s\n(.*?)^## " % heading, document, re.M | re.S)[1]


def commands(text):
    """The indented lines that are commands, without their comments."""
    return [line.partition(" #")[0].strip() for line in re.findall(r"^    (\S.*)", text, re.M) if re.match(r"torchprof|examples/|meson", line)]


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


# Copies what was built instead of compiling it again.
NINJA = """
case " $* " in *" -t "*|*" --version "*|*" -n "*) exec %(ninja)s "$@";; esac
while [ $# -gt 0 ]; do [ "$1" != -C ] || cd "$2"; shift; done
for file in launcher/torchprof inject/libtorchprof.so; do cp %(build)s/"$file" "$file"; done
"""


@pytest.mark.skipif(bool(INSTALLED), reason="nothing is built here")
def test_what_is_installed_for_good_after_the_example_is_on_path(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/") or name.endswith("meson.build") or name == "tests/bench/run":
            (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "checkout" / name)
    executable(tmp_path / "bin" / "ninja", NINJA % {"ninja": shutil.which("ninja"), "build": shlex.quote(str(BUILD))})
    env = clean_environment({"PATH": "%s:%s" % (tmp_path / "bin", os.environ["PATH"])})
    example, install = commands(section(INSTALL, "From source"))
    assert example == "examples/try" and install.startswith("meson setup ")

    def run(command, **more):
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path / "checkout", env={**env, **more}, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done
    tried = run(example)
    assert "trained 20 steps" in tried.stdout and re.search(r"^trace: ", tried.stderr, re.M)
    run(install, DESTDIR=str(tmp_path / "root"))
    installed = tmp_path / "root" / "usr" / "local" / "bin" / "torchprof"
    assert installed.exists(), [str(path) for path in tmp_path.rglob("bin/torchprof")]
    assert subprocess.run([installed, "--version"], capture_output=True, text=True).stdout.startswith("torchprof ")
    compiled = json.loads((tmp_path / "checkout" / "build" / "compile_commands.json").read_text())
    assert compiled and not [entry["file"] for entry in compiled if "tests/" in entry["file"]]
    # tests/run leaves the prefix alone as well.
    assert "--prefix" not in (ROOT / "tests" / "run").read_text()


TRAIN = """
import os
import torch
import torch.distributed as dist
from torch.profiler import record_function

model = torch.nn.Linear(64, 64)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(16):
    optimizer.zero_grad()
    with record_function("step %d" % step):
        model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
"""


def test_every_recipe_does_what_it_says(launcher, torch_python, load_trace, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    executable(tmp_path / "bin" / "python3", 'exec %s "$@"\n' % torch_python)
    executable(tmp_path / "bin" / "torchrun", 'exec %s -m torch.distributed.run --master_addr 127.0.0.1 --master_port 29655 "$@"\n' % torch_python)
    env = clean_environment({"PATH": "%s:%s:%s" % (tmp_path / "bin", launcher.parent, os.environ["PATH"])})

    def run(command):
        return subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE)
    recipes = dict.fromkeys([*commands(section(README, "Recipes")), *commands(RECIPES)])
    assert len(commands(section(README, "Recipes"))) >= 8 and len(recipes) >= 12
    assert run("torchprof run -q -o base python3 train.py").returncode == 0
    said = {}
    # What looks at a run stands before the recipe that makes it.
    for command in sorted(recipes, key=lambda command: command.startswith(("torchprof where", "torchprof top"))):
        done = said[command] = run(command)
        assert done.returncode in ([0, 1] if " diff " in command else [0]), (command, done.stderr[-2000:])
    # Which operators are in the table's first rows depends on their times; each has its shapes.
    by_shape = next(command for command in said if "--group-by shape" in command)
    assert re.search(r" aten::\w+  \[\[\d+", said[by_shape].stdout)
    assert "aten::sum  [[8,64],[]]" in run(by_shape + " -n 9999").stdout
    steps = {name for trace in (tmp_path / "ten").glob("*.gz") for name in load_trace(trace).names("user_annotation") if name.startswith("step ")}
    assert steps == {"step %d" % n for n in range(10, 15)}
    assert re.search(r"^Limits: \d+ checks", next(done.stdout for command, done in said.items() if " diff " in command), re.M)
    assert "gloo:all_reduce" in next(done.stdout for command, done in said.items() if "-t comms" in command)
    assert "every process ended in an orderly way" in next(done.stderr for command, done in said.items() if " where " in command)
    assert (tmp_path / "ranks" / "trace.json.gz").exists()
    assert "<html" in (tmp_path / "run.html").read_text() and (tmp_path / "run.json").stat().st_size > 1000
