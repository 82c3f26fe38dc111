"""What docs/guides.md tells its reader to type names the cause, and no longer does after the cure."""
import os
import re
import shlex
import shutil
import subprocess
import time

import pytest

from conftest import PATIENCE, ROOT, clean_environment, torch_here

TEXT = (ROOT / "docs" / "guides.md").read_text()
SECTIONS = dict(re.findall(r"(?m)^## (.*)\n((?:(?!## ).*\n?)*)", TEXT))
# Heading: what names the cause.
CAUSES = {
    "My GPU is idle": r"idle\.py\(15\): (normalise|<listcomp>)",
    "The DataLoader starves": r"starving\.py\(21\): (brighten|<listcomp>)",
    "My steps got slower over the night": r"aten::add slower\.py\(18\): add",
    "Out of memory": r"aten::mul, memory\.py\(11\): remember",
    "One rank is late": r"wait [\d.]+ .?s for rank 1, in gloo:all_reduce.* late_rank\.py\(17\)",
    "It hangs": r"hangs\.py\(18\): next_batch",
    "torch.compile recompiles": r"torch\.compile compiles again.* recompiles\.py\(20\): main",
    "CI got slower": r"aten::norm: calls per step 1 -> 64",
    "Where did the import time go": r"import guide_tables",
}
NEEDS = {"torch.compile recompiles": (2, 1)}


def commands(text):
    return re.findall(r"(?m)^    \$ (.*)$", text)


def one_line(text):
    """Findings are broken into lines, in the guide and on the terminal alike."""
    return re.sub(r"\s+", " ", text)


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


class Shell:
    def __init__(self, place, launcher, torch_python):
        self.place, self.started, self.statuses = place, None, []
        shutil.copytree(ROOT / "examples" / "guides", place / "examples" / "guides")
        executable(place / "bin" / "python3", 'exec %s "$@"\n' % torch_python)
        executable(place / "bin" / "torchrun", 'exec %s -m torch.distributed.run --master_addr 127.0.0.1 --master_port 29671 "$@"\n' % torch_python)
        self.env = clean_environment({"PATH": "%s:%s:%s" % (place / "bin", launcher.parent, os.environ["PATH"]), "PYTHONDONTWRITEBYTECODE": "1",
                                      "OMP_NUM_THREADS": "1"})  # threads of torch that wait for each other take for ever on a busy machine

    def type(self, command, cause):
        """What it says. Of a program in the background it is asked until it has come to where it hangs."""
        if command.endswith("&"):
            self.started = subprocess.Popen(shlex.split(command[:-1]), cwd=self.place, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return ""
        if command == "kill %1":
            self.started.terminate()
            self.started.wait(PATIENCE)
            self.started = None
            return ""
        end = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(["sh", "-c", command], cwd=self.place, env=self.env, capture_output=True, text=True, timeout=PATIENCE)
            said = done.stdout + done.stderr
            if not self.started or re.search(cause, one_line(said)) or time.monotonic() > end:
                self.statuses.append(done.returncode)
                return said

    def close(self):
        if self.started:
            self.started.kill()
            self.started.wait()


@pytest.fixture
def shell(tmp_path, launcher, torch_python):
    made = Shell(tmp_path, launcher, torch_python)
    yield made
    made.close()


@pytest.mark.parametrize("heading", [pytest.param(heading, marks=[] if heading in NEEDS else pytest.mark.once) for heading in CAUSES])
def test_the_cause_is_named_before_the_cure_and_not_after_it(heading, shell):
    if torch_here()[0] < NEEDS.get(heading, (0,)):
        pytest.skip("this torch is too old for the guide")
    cause = CAUSES[heading]
    sick, cured = SECTIONS[heading].split("**The cure**")
    before = one_line("".join(shell.type(command, cause) for command in commands(sick)))
    assert re.search(cause, before), before
    # It exits with 1 where something got slower; nothing else fails.
    assert [status for status in shell.statuses if status] == ([1] if heading == "CI got slower" else []), before
    shell.statuses = []
    after = one_line("".join(shell.type(command, cause) for command in commands(cured)))
    assert not re.search(cause, after), after
    assert not any(shell.statuses), after


@pytest.mark.once
def test_every_guide_is_tried_and_shows_what_it_says():
    assert set(CAUSES) == set(SECTIONS)
    for heading, text in SECTIONS.items():
        sick, cured = text.split("**The cure**")
        assert re.search(CAUSES[heading], one_line(sick).replace(" ... ", " ")), heading
        assert any(command.startswith("torchprof ") for command in commands(sick)) and commands(cured), heading
        assert "](#%s)" % re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") in TEXT
    used = set(re.findall(r"examples/guides/(\w+\.py)", TEXT))
    assert used == {path.name for path in (ROOT / "examples" / "guides").glob("*.py")} - {"guide_tables.py"}
