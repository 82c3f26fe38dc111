"""The packages themselves: what is in them, that they install and go away, and that the same tree gives the same bytes."""
import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import pytest

from artefacts import dist, tree, wheel  # noqa: F401
from conftest import ROOT, setting

MOST_BYTES = 6 << 20


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_wheel_is_as_its_specification_says(dist, machine):
    wheel, = dist.glob("*_%s.whl" % machine)
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(n.partition("/")[0] for n in names if ".dist-info/" in n)
        record = list(csv.reader(io.StringIO(archive.read(info + "/RECORD").decode())))
        assert sorted(row[0] for row in record) == sorted(names) and len(set(names)) == len(names)
        for name, digest, size in record:
            if name == info + "/RECORD":
                assert digest == size == ""
                continue
            data = archive.read(name)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() and int(size) == len(data)
        assert not [n for n in names if n.endswith(".pth")]
        assert {n.partition("/")[0] for n in names} == {"torchprof", info, info.replace(".dist-info", ".data")}
        assert {"torchprof/py.typed", "torchprof/_profile.py", "torchprof/pytest_plugin.py"} <= set(names)
        assert archive.read(info + "/entry_points.txt") == b"[pytest11]\ntorchprof = torchprof.pytest_plugin\n"
        metadata = archive.read(info + "/METADATA").decode()
        assert "\nName: torchprof-cli\n" in metadata and "Requires-Dist" not in metadata
        version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
        assert "\nVersion: %s\n" % version in metadata and wheel.name.startswith("torchprof_cli-%s-py3-none-manylinux_2_28_" % version)
        programs = [i.filename for i in archive.infolist() if i.external_attr >> 16 & 0o111]
        assert programs == [info.replace(".dist-info", ".data") + "/scripts/" + name for name in ("torchprof", "torchprof-cli")]


def test_pip_installs_and_takes_away_the_wheel(wheel, python, tmp_path):
    """In a virtual environment, without the network. What was there before is there afterwards, and no other file."""
    place = tmp_path / "venv"
    made = subprocess.run([python.path, "-m", "venv", place], capture_output=True, text=True)
    if made.returncode:  # Debian's own has no ensurepip unless python3-venv is there
        subprocess.run([sys.executable, "-m", "virtualenv", "-q", "-p", python.path, place], check=True)
    files = lambda: {p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file() and "__pycache__" not in p.parts}  # noqa: E731
    before = files()
    pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", "--no-index", wheel], check=True)
    program = place / "bin" / "torchprof"
    assert subprocess.run([place / "bin" / "python", "-c", "import torchprof; print(torchprof.path())"], check=True, capture_output=True,
                          text=True).stdout.strip() == str(program)
    for number, command in enumerate(([program], [place / "bin" / "python", "-m", "torchprof"])):
        run = tmp_path / str(number)
        done = subprocess.run([*command, "run", "-o", run, place / "bin" / "python", "-c", "import json; print(json.dumps([1]))"],
                              capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout == "[1]\n" and (run / "trace.json.gz").exists(), done.stderr
    script = ("import torchprof\nwith torchprof.profile('alone') as p:\n    with torchprof.annotate('range'): pass\n"
              "print([row['name'] for row in p.table('ops')])")
    done = subprocess.run([place / "bin" / "python", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['range']\n", "")
    subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*pip, "uninstall", "-y", "torchprof-cli"], check=True)
    assert files() == before
    assert not [p for p in place.rglob("*torchprof*") if p.is_file() or "site-packages" in p.parts]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_user_without_rights_installs_the_wheel(wheel):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        shutil.copy(wheel, place)
        os.makedirs(place + "/home")
        shutil.chown(place + "/home", "nobody")
        script = ("cd home; %s -m venv venv; venv/bin/pip -q --disable-pip-version-check install --no-index ../*.whl; "
                  "venv/bin/torchprof run -q -o run venv/bin/python -c 'import json; print(json.dumps([1]))'; ls run; "
                  "venv/bin/pip -q --disable-pip-version-check uninstall -y torchprof-cli; find venv -name '*torchprof*'" % "/usr/bin/python3")
        done = subprocess.run(["setpriv", "--reuid", "nobody", "--clear-groups", "sh", "-euc", script], cwd=place, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": place + "/home"})
        assert done.returncode == 0 and done.stdout.split() == ["[1]", "run.json", "spool", "summary.txt", "trace.json.gz"], done.stdout + done.stderr


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_package_of_debian_has_no_complaint_of_lintian(dist, architecture):
    deb, = dist.glob("*_%s.deb" % architecture)
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", deb], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stdout
    fields = subprocess.run(["dpkg-deb", "--field", deb, "Depends"], check=True, capture_output=True, text=True).stdout
    assert fields == "libc6 (>= 2.28)\n"


def test_the_same_tree_gives_the_same_bytes(dist, tree, tmp_path):
    """Elsewhere, with other times, rights and order of files."""
    copy = tmp_path / "copy"
    for path in sorted((p for p in tree.rglob("*") if p.is_file()), reverse=True):
        target = copy / path.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        os.chmod(target, 0o700 if os.access(path, os.X_OK) else 0o600)
    (copy / "lib" / "torchprof" / "python" / "__pycache__").mkdir()
    (copy / "lib" / "torchprof" / "python" / "__pycache__" / "sitecustomize.cpython-311.pyc").write_bytes(b"x")
    for kind in "wheel", "tarball", "deb":
        subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", sys.executable, ROOT / "packaging" / (kind + ".py"), copy, "amd64", tmp_path / "dist"],
                       check=True, stdout=subprocess.DEVNULL, cwd=tmp_path)
    made = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "dist").iterdir()}
    said = dict(reversed(line.split()) for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert made == {name: said[name] for name in made} and len(made) == 3


def test_the_bill_of_materials_is_whole(tree):
    documents = tree / "share" / "doc" / "torchprof"
    bill = json.loads((documents / "sbom.spdx.json").read_text())
    assert bill["spdxVersion"] == "SPDX-2.3"
    packages = {p["name"]: p for p in bill["packages"]}
    # What the linker took of is asked of it (documents.py), so a new library is an error there; these are in for sure.
    assert {"torchprof", "libstdc++", "libgcc", "glibc", "elfutils", "zlib", "bzip2", "liblzma", "sqlite", "nlohmann-json", "CLI11", "Boost", "protozero"} == set(packages)
    related = {r["relatedSpdxElement"] for r in bill["relationships"]}
    assert related == {p["SPDXID"] for p in packages.values()}
    assert all(re.fullmatch(r"[\w.+~-]+", p["versionInfo"]) and p["licenseDeclared"] for p in packages.values())
    notice = (documents / "NOTICE").read_text()
    assert all(name in notice for name in set(packages) - {"torchprof"}) and "GNU LESSER GENERAL PUBLIC LICENSE" in notice


@pytest.mark.parametrize("suite", ["bullseye", "trixie", "sid", "bookworm-arm64"])
def test_each_package_works_in_a_bare_root(dist, suite):
    """Debian 11, 13 and sid, and 12 for AArch64; the other tests here run in Debian 12."""
    done = subprocess.run([sys.executable, ROOT / "tests" / "roots" / "roots.py", suite, dist, "packages"], capture_output=True, text=True,
                          env={**os.environ, "TORCHPROF_ROOTS": setting("ROOTS") or ""})
    if done.returncode == 75:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^OK (\w+) \d+$", done.stdout, re.MULTILINE) == ["tarball", "wheel", "module", "deb"]


def test_nothing_names_the_directories_of_the_build(tree):
    for name in "bin/torchprof", "lib/torchprof/libtorchprof.so":
        data = (tree / name).read_bytes()
        assert str(ROOT).encode() not in data and b"build-release" not in data and b"/sysroot/" not in data


def test_another_directory_gives_the_same_library(tree, tmp_path):
    """Compiled anew, without a cache of what was compiled."""
    other = tmp_path / "somewhere" / "else"
    release = other / "build-release" / "amd64"
    release.mkdir(parents=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        if (ROOT / name).is_file() and not name.startswith("tests/unit/golden/"):
            (other / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, other / name)
    for name in "sysroot", "packages":
        subprocess.run(["cp", "-a", tree.parent / name, release], check=True)
    for command in ([other / "packaging" / "sysroot", "amd64"],
                    ["meson", "setup", release / "build", "--cross-file", release / "meson.ini"],
                    ["ninja", "-C", release / "build", "inject/libtorchprof.so"],
                    ["x86_64-linux-gnu-strip", release / "build" / "inject" / "libtorchprof.so"]):
        subprocess.run(command, cwd=other, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "CCACHE_DISABLE": "1"})
    assert (release / "build" / "inject" / "libtorchprof.so").read_bytes() == (tree / "lib" / "torchprof" / "libtorchprof.so").read_bytes()
