"""clang-format 14 has nothing to change and clang-tidy 14 nothing to say."""
import concurrent.futures
import json
import pathlib
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT

SHALLOW = ["--extra-arg=" + word for word in ("-Xclang", "-analyzer-config", "-Xclang", "mode=shallow")]


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


@pytest.mark.slow
def test_clang_tidy_has_nothing_to_say():
    compiled = {str((pathlib.Path(entry["directory"]) / entry["file"]).resolve()) for entry in
                json.loads((BUILD / "compile_commands.json").read_text())}
    files = [name for name in sources(".cpp") if not name.startswith("tests/") and str(ROOT / name) in compiled]
    assert len(files) > 20

    def check(name):
        # What runs in the program's process is searched deeply, which takes twice as long.
        options = [] if name.startswith(("tracer/", "inject/", "cupti/")) else SHALLOW
        done = subprocess.run([tool("clang-tidy"), "--quiet", "-p", BUILD, *options, ROOT / name], capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = "".join(pool.map(check, files))
    assert said == ""
