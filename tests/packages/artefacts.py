"""What packaging/release makes, for the tests of it. TORCHPROF_DIST names the directory (default: build-release/dist)."""
import pathlib
import subprocess

import pytest

from conftest import ROOT, setting

DIST = pathlib.Path(setting("DIST") or ROOT / "build-release" / "dist").resolve()
TREE = DIST.parent / "amd64" / "installed"


@pytest.fixture(scope="session")
def dist():
    assert DIST.is_dir(), "packaging/release makes %s" % DIST
    return DIST


@pytest.fixture(scope="session")
def tree():
    """What is packed."""
    assert TREE.is_dir(), "packaging/release makes %s" % TREE
    return TREE


@pytest.fixture(scope="session")
def wheel(dist):
    return next(dist.glob("*_x86_64.whl"))


@pytest.fixture(scope="session")
def packed(dist, tmp_path_factory):
    """The program as the tarball has it."""
    directory = tmp_path_factory.mktemp("tarball")
    subprocess.run(["tar", "-xzf", next(dist.glob("*-linux-x86_64.tar.gz")), "-C", directory], check=True)
    top, = directory.iterdir()
    return top
