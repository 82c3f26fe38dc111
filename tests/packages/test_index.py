"""The wheel from an index, as PyPI is one: pip, uv and pipx find it by the name of the distribution; and what is so where another project's `torchprof` is
installed, too, which has that name on PyPI since 2021 and a module of the same name."""
import functools
import hashlib
import http.server
import subprocess
import sys
import threading
import zipfile

import pytest

from artefacts import dist, wheel  # noqa: F401
from conftest import clean_environment

SHOW_PYTHON = "import shutil, sys; print(shutil.which('python3'))"
# What theirs has of files, in short.
THEIRS = {"torchprof/__init__.py": "from torchprof.profile import Profile\n__version__ = '1.4.0'\n", "torchprof/profile.py": "class Profile: pass\n",
          "torchprof-1.4.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchprof\nVersion: 1.4.0\n",
          "torchprof-1.4.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}


def run(*command, **env):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=clean_environment(env))


def good(*command, **env):
    done = run(*command, **env)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def index(wheel, tmp_path_factory):
    """The address of an index (packaging.python.org, "Simple repository API") with our wheel and theirs."""
    root = tmp_path_factory.mktemp("index")
    theirs = root / "torchprof-1.4.0-py3-none-any.whl"
    with zipfile.ZipFile(theirs, "w") as archive:
        for name, text in {**THEIRS, "torchprof-1.4.0.dist-info/RECORD": "".join("%s,,\n" % name for name in THEIRS) + "torchprof-1.4.0.dist-info/RECORD,,\n"}.items():
            archive.writestr(name, text)
    (root / wheel.name).write_bytes(wheel.read_bytes())
    for project, file in (("torchprof-cli", root / wheel.name), ("torchprof", theirs)):
        (root / "simple" / project).mkdir(parents=True)
        (root / "simple" / project / "index.html").write_text(
            '<!DOCTYPE html><html><body><a href="../../%s#sha256=%s">%s</a></body></html>' % (file.name, hashlib.sha256(file.read_bytes()).hexdigest(), file.name))
    handler = functools.partial(type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None}), directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "http://127.0.0.1:%d/simple/" % server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """The directory with uv, uvx and pipx, which Debian 12 does not have."""
    place = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", place], check=True)
    done = run(place / "bin" / "pip", "-q", "install", "uv==0.13.9", "pipx==1.18.4")
    if done.returncode:
        pytest.skip("uv and pipx cannot be fetched: " + done.stderr.strip()[-200:])
    return place / "bin"


@pytest.fixture
def environment(tmp_path, index):
    """A virtual environment: (its bin, install(DISTRIBUTION...))."""
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", tmp_path / "venv"], check=True)
    bin_ = tmp_path / "venv" / "bin"
    return bin_, lambda *words: good(bin_ / "pip", "-q", "--disable-pip-version-check", "install", "--no-cache-dir", "--index-url", index, *words)


def test_pip_finds_it(environment, tmp_path):
    bin_, install = environment
    install("torchprof-cli")
    assert good(bin_ / "torchprof", "--version").startswith("torchprof ")
    assert good(bin_ / "python", "-c", "import torchprof; print(torchprof.path())") == str((bin_ / "torchprof").resolve())


WAYS = {"uvx": ["uvx", "torchprof-cli"], "uvx --from": ["uvx", "--from", "torchprof-cli", "torchprof"], "uv tool run": ["uv", "tool", "run", "torchprof-cli"],
        "pipx run": ["pipx", "run", "torchprof-cli"], "pipx run --spec": ["pipx", "run", "--spec", "torchprof-cli", "torchprof"]}


@pytest.mark.parametrize("way", WAYS)
def test_it_runs_without_being_installed(way, tools, index, tmp_path):
    command = [tools / WAYS[way][0], *WAYS[way][1:]]
    env = {"UV_DEFAULT_INDEX": index, "UV_CACHE_DIR": tmp_path / "cache", "PIPX_HOME": tmp_path / "pipx", "PATH": "%s:/usr/bin:/bin" % tools}
    assert good(*command, "--version", **env).startswith("torchprof ")
    (tmp_path / "show.py").write_text(SHOW_PYTHON)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to("/usr/bin/python3")
    found = good(*command, "run", "-q", "-o", tmp_path / "run", "python3", tmp_path / "show.py", **{**env, "PATH": "%s:%s" % (tmp_path / "bin", env["PATH"])})
    # By the name of the distribution it is the python3 of who typed the command, with their torch.
    assert (found == str(tmp_path / "bin" / "python3")) or way == "uvx --from"
    assert (tmp_path / "run" / "trace.json.gz").exists()


def of_whom(bin_):
    return good(bin_ / "python", "-c", "import torchprof; print('theirs' if hasattr(torchprof, 'Profile') else 'ours' if 'annotate' in getattr(torchprof, '__all__', ()) else 'nobody')")


@pytest.mark.parametrize("order", ["ours last", "theirs last"])
def test_beside_the_other_torchprof_the_command_is_ours_and_the_module_that_of_the_last(order, environment, tmp_path):
    bin_, install = environment
    for name in ("torchprof", "torchprof-cli") if order == "ours last" else ("torchprof-cli", "torchprof"):
        install(name)
    assert of_whom(bin_) == order.split()[0]
    good(bin_ / "torchprof", "run", "-q", "-o", tmp_path / "run", bin_ / "python", "-c", "import json")
    assert (tmp_path / "run" / "trace.json.gz").exists()
    # Taking theirs away takes the file that both have; the command stays, and installing ours anew mends the module.
    good(bin_ / "pip", "-q", "uninstall", "-y", "torchprof")
    assert of_whom(bin_) == "nobody"
    assert good(bin_ / "torchprof", "--version").startswith("torchprof ")
    install("--force-reinstall", "torchprof-cli")
    assert of_whom(bin_) == "ours"
