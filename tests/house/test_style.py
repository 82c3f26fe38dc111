"""clang-format 14 has nothing to change and clang-tidy 14 nothing to say."""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT

WITHOUT_ANALYZER = ["--checks=-clang-analyzer-*"]


def tool(name):
    path = shutil.which(name + "-14")
    assert path, "%s-14 is missing: apt-get install %s-14" % (name, name)
    return path


def sources(*suffixes):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in listed if name.endswith(suffixes) and (ROOT / name).exists()]


def test_clang_format_has_nothing_to_change():
    files = sources(".h", ".cpp", ".c")
    assert len(files) > 20
    done = subprocess.run([tool("clang-format"), "--dry-run", "-Werror", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_clang_format_would_complain_about_a_planted_line(tmp_path):
    shutil.copy(ROOT / ".clang-format", tmp_path)
    (tmp_path / "x.cpp").write_text("int  x=1 ;\n")
    assert subprocess.run([tool("clang-format"), "--dry-run", "-Werror", "x.cpp"], cwd=tmp_path, capture_output=True).returncode == 1


CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "torchprof-tidy"


@functools.cache
def contents(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def tidy(file, arguments, directory, options):
    """What clang-tidy says of one file, compiled by `arguments`. What it once found good is not looked at again while all that it reads is the same."""
    command = [tool("clang-tidy"), "--quiet", *options, file, "--", *arguments]
    reads = subprocess.run([tool("clang"), "-M", *arguments, file], cwd=directory, capture_output=True, text=True)
    if reads.returncode != 0:
        return reads.stderr
    names = [os.path.join(directory, name) for name in reads.stdout.replace("\\\n", " ").split()[1:]]
    # Wherever this checkout lies: CI makes a new directory for each run.
    asked = [word.replace(str(ROOT), "") for word in command]
    key = hashlib.sha256("\n".join([tidy_version(), contents(ROOT / ".clang-tidy"), *asked, *map(contents, names)]).encode()).hexdigest()
    good = CACHE / key[:2] / key
    if good.exists():
        return ""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode == 0:
        good.parent.mkdir(parents=True, exist_ok=True)
        good.touch()
        return ""
    return done.stdout + done.stderr


@functools.cache
def tidy_version():
    return subprocess.run([tool("clang-tidy"), "--version"], capture_output=True, text=True, check=True).stdout


def compiled():
    """{file: (arguments, directory)}, each once: as the product has it, if it is in a library of the tests as well."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        is_of_tests = entry["output"].startswith("tests/")
        words = shlex.split(entry["command"])
        file = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        if is_of_tests and file in found:
            continue
        # Not what the compiler writes: -MQ and the like name the library.
        keep = [word for word in words if word.startswith(("-I", "-isystem", "-D", "-std=", "-W", "-f", "-m", "-O", "-g", "-pthread"))]
        found[file] = (["-x", "c++", *keep], entry["directory"])
    return found


@pytest.mark.slow
def test_clang_tidy_has_nothing_to_say():
    commands = compiled()
    files = [str(ROOT / name) for name in sources(".cpp") if not name.startswith("tests/") and str(ROOT / name) in commands]
    assert len(files) > 20

    def check(file):
        # What runs in the program's process is also searched path by path, which takes twice as long. The rest has the fuzzers.
        is_theirs = os.path.relpath(file, ROOT).startswith(("tracer/", "inject/", "cupti/"))
        return tidy(file, *commands[file], [] if is_theirs else WITHOUT_ANALYZER)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = "".join(pool.map(check, files))
    assert said == ""


@pytest.mark.slow
def test_clang_tidy_would_complain_about_a_planted_line(tmp_path):
    (tmp_path / "x.cpp").write_text('int f(int* p) { delete p; return *p; }\n')
    shutil.copy(ROOT / ".clang-tidy", tmp_path)
    for _ in range(2):  # a complaint is not kept
        assert "clang-analyzer-cplusplus.NewDelete" in tidy(str(tmp_path / "x.cpp"), ["-x", "c++", "-std=c++20"], tmp_path, [])
