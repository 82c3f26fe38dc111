"""The Dockerfile and the conda recipe of examples/: they are read as their tools read them, and what they run is run, on the release's tarball."""
import json
import os
import re
import subprocess

import jinja2
import pytest
import yaml

from artefacts import dist, packed  # noqa: F401
from conftest import ROOT

DOCKERFILE = ROOT / "examples" / "container" / "Dockerfile"
CONDA = ROOT / "examples" / "conda"
VERSION = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
PROGRAM = "import json; print(json.dumps([1]))"


def instructions():
    """[(instruction, its text)] of the Dockerfile, lines that go on joined. Source: docs.docker.com/reference/dockerfile."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines()]


def test_the_dockerfile_is_one():
    found = instructions()
    assert [name for name, _ in found] == ["ARG", "FROM", "ARG", "COPY", "RUN", "ENV"]
    assert dict(text.split("=", 1) for name, text in found if name == "ARG")["VERSION"] == VERSION


def as_in_the_image(tmp_path, dist, machine_change=""):
    """What the Dockerfile does, with /tmp and /usr/local of its own. Gives the status and what was said."""
    texts = dict(instructions())
    files = re.sub(r"\$\{VERSION\}", VERSION, texts["COPY"]).split()
    local, scratch = tmp_path / "local", tmp_path / "scratch"
    for directory in local / "bin", scratch / "torchprof":
        directory.mkdir(parents=True)
    for pattern in files[:-1]:
        matching = list(dist.glob(pattern))
        assert matching, pattern
        for path in matching:
            (scratch / "torchprof" / path.name).write_bytes(path.read_bytes())
    assert files[-1] == "/tmp/torchprof/"
    if machine_change:
        subprocess.run(["sh", "-c", machine_change], cwd=scratch / "torchprof", check=True)
    script = 'mount --bind "$1" /usr/local; mount --bind "$2" /tmp; cd /; exec sh -euc "$3"'
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh", local, scratch, texts["RUN"]],
                          capture_output=True, text=True, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "VERSION": VERSION})
    return done, local, scratch


def test_the_image_has_torchprof(dist, tmp_path):
    done, local, scratch = as_in_the_image(tmp_path, dist)
    assert done.returncode == 0 and done.stdout.startswith("torchprof " + VERSION), done.stderr
    assert not (scratch / "torchprof").exists()
    variable, value = dict(instructions())["ENV"].split("=", 1)
    assert value.startswith("/runs/")
    done = subprocess.run([local / "bin" / "torchprof", "run", "/usr/bin/python3", "-c", PROGRAM], capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", variable: value.replace("/runs", str(tmp_path / "runs"))})
    run, = (tmp_path / "runs").iterdir()
    assert done.returncode == 0 and done.stdout == "[1]\n" and (run / "trace.json.gz").exists(), done.stderr


def test_a_tarball_that_was_changed_gives_no_image(dist, tmp_path):
    done, local, _ = as_in_the_image(tmp_path, dist, "for tarball in *.tar.gz; do printf x >>$tarball; done")
    assert done.returncode != 0 and list(local.rglob("*torchprof*")) == []


@pytest.mark.parametrize("platform, machine", [("linux-64", "x86_64"), ("linux-aarch64", "aarch64")])
def test_the_conda_recipe_is_of_the_release(dist, platform, machine):
    def load_file_regex(load_file, regex_pattern):
        return re.search(regex_pattern, open(load_file).read())
    text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string((CONDA / "meta.yaml").read_text()).render(
        environ={"TORCHPROF_DIST": str(dist)}, target_platform=platform, load_file_regex=load_file_regex)
    recipe = yaml.safe_load(text)
    assert str(recipe["package"]["version"]) == VERSION
    tarball = dist / ("torchprof-%s-linux-%s.tar.gz" % (VERSION, machine))
    assert recipe["source"]["url"] == "file://%s" % tarball and tarball.exists()
    said = dict(reversed(line.split()) for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert recipe["source"]["sha256"] == said[tarball.name]
    assert set(recipe) == {"package", "source", "build", "requirements", "test", "about"}


def test_what_conda_builds_works(packed, tmp_path):
    text = jinja2.Environment().from_string((CONDA / "meta.yaml").read_text()).render(
        environ={}, target_platform="linux-64", load_file_regex=lambda **_: re.search("(x)", "x"))
    recipe = yaml.safe_load(text)
    prefix = tmp_path / "prefix"
    subprocess.run([CONDA / "build.sh"], cwd=packed, check=True, env={"PATH": os.environ["PATH"], "PREFIX": str(prefix)})
    for name in recipe["about"]["license_file"]:
        assert (packed / name).is_file()
    bin_of_python = tmp_path / "bin"
    bin_of_python.mkdir()
    (bin_of_python / "python").symlink_to("/usr/bin/python3")
    for command in recipe["test"]["commands"]:
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True,
                              env={"PATH": "%s:%s:/usr/bin:/bin" % (prefix / "bin", bin_of_python), "HOME": str(tmp_path)})
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["processes"]
