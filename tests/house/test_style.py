"""clang-format 14 has nothing to change and clang-tidy 14 nothing to say."""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT

WITHOUT_ANALYZER = ["--checks=-clang-analyzer-*"]
INTO_FILES_OF_A_ROOM = ["-Xclang", "-analyzer-opt-analyze-headers"]  # without it paths are searched in the main file alone
OF_THE_PRODUCT = r"(tracer|inject|cupti|formats|launcher)/.*\.(h|cpp)$"


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
    """[(source, arguments, directory, {file}, is in the program's process)] of the product: a room is one source, which includes its files (meson.build)."""
    found = []
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if entry["output"].startswith("tests/"):
            continue
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        included = re.findall(r'(?m)^#include<(.*\.cpp)>$', source.read_text()) or [source]
        files = {os.path.relpath(os.path.realpath(file), ROOT) for file in included}
        # Not what the compiler writes: -MQ and the like name the library.
        keep = [word for word in shlex.split(entry["command"]) if word.startswith(("-I", "-isystem", "-D", "-std=", "-W", "-f", "-m", "-O", "-g", "-pthread"))]
        is_theirs = any(file.startswith(("tracer/", "inject/", "cupti/")) for file in files)
        found.append((str(source), ["-x", "c++", *keep], entry["directory"], files, is_theirs))
    return found


@pytest.mark.slow
def test_clang_tidy_has_nothing_to_say():
    rooms = compiled()
    looked_at = set().union(*(files for _, _, _, files, _ in rooms))
    missing = {name for name in sources(".cpp") if not name.startswith(("tests/", "examples/"))} - looked_at
    # What this processor or this libc has no use for.
    assert all(name.startswith(("inject/syscall_", "tracer/libc/")) or name.endswith(("_aarch64.cpp", "_x86_64.cpp")) for name in missing), missing

    def check(room):
        source, arguments, directory, _, is_theirs = room
        # What runs in the program's process is also searched path by path, which takes twice as long. The rest has the fuzzers.
        return tidy(source, arguments + (INTO_FILES_OF_A_ROOM if is_theirs else []), directory, ["--header-filter=" + OF_THE_PRODUCT, *([] if is_theirs else WITHOUT_ANALYZER)])

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = "".join(pool.map(check, sorted(rooms, key=lambda room: -room[4])))
    assert said == ""


@pytest.mark.slow
def test_clang_tidy_looks_into_the_files_of_a_room(tmp_path):
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "x.cpp").write_text('int f(int* p) { delete p; return *p; }\n')
    (tmp_path / "room.cpp").write_text('#include<%s/formats/x.cpp>\n' % tmp_path)
    shutil.copy(ROOT / ".clang-tidy", tmp_path)
    said = tidy(str(tmp_path / "room.cpp"), ["-x", "c++", "-std=c++20", *INTO_FILES_OF_A_ROOM], tmp_path, ["--header-filter=" + OF_THE_PRODUCT])
    assert "formats/x.cpp:1:" in said and "clang-analyzer-cplusplus.NewDelete" in said


@pytest.mark.slow
def test_clang_tidy_would_complain_about_a_planted_line(tmp_path):
    (tmp_path / "x.cpp").write_text('int f(int* p) { delete p; return *p; }\n')
    shutil.copy(ROOT / ".clang-tidy", tmp_path)
    for _ in range(2):  # a complaint is not kept
        assert "clang-analyzer-cplusplus.NewDelete" in tidy(str(tmp_path / "x.cpp"), ["-x", "c++", "-std=c++20"], tmp_path, [])
