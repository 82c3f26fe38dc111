"""Golden dumps are kept as digests: a planted change is named by the test that fails and, record by record, by tests/golden_diff.py."""
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

import golden_diff
from conftest import BUILD, ROOT, clean_environment

GPU = ROOT / "tests" / "unit" / "golden" / "gpu"
DUMP = ["CUPTI version=18", "kernel duration=20 stream=7 _Z3onev", "copy duration=5 bytes=4096", "kernel duration=30 stream=8 _Z3twov"]


def dumps(folder, **texts):
    for name, lines in texts.items():
        file = folder / "gpu" / (name + ".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(line + "\n" for line in lines))
    return folder


def golden_diff_of(*arguments, program=ROOT / "tests" / "golden_diff.py", cwd=ROOT):
    done = subprocess.run([sys.executable, program, *map(str, arguments)], capture_output=True, text=True, env=clean_environment(), cwd=cwd)
    return done.returncode, done.stdout, done.stderr


# The tool alone

def changed(number, line):
    return [*DUMP[:number], line, *DUMP[number + 1:]]


PLANTED = {
    "a number": (changed(1, "kernel duration=21 stream=7 _Z3onev"), """\
gpu/x: 4 -> 4 lines, 1 different
  kernel: 1 changed, 1 in duration
  line 2: kernel duration=20 stream=7 _Z3onev
      duration: 20 -> 21
"""),
    "a name": (changed(3, "kernel duration=30 stream=8 _Z5threev"), """\
gpu/x: 4 -> 4 lines, 1 different
  kernel: 1 changed, 1 in text
  line 4: kernel duration=30 stream=8 _Z3twov
      text: _Z3twov -> _Z5threev
"""),
    "a field more, and two changed": (changed(2, "copy duration=6 bytes=4097 kind=1"), """\
gpu/x: 4 -> 4 lines, 1 different
  copy: 1 changed, 1 in duration, 1 in bytes, 1 in kind
  line 3: copy duration=5 bytes=4096
      duration: 5 -> 6
      bytes: 4096 -> 4097
      kind: nothing -> 1
"""),
    "a record less": (DUMP[:2] + DUMP[3:], """\
gpu/x: 4 -> 3 lines, 1 different
  copy: 1 only old
  - line 3: copy duration=5 bytes=4096
"""),
    "a record more, before one that changed": ([DUMP[0], "event stream=7", *DUMP[1:3], "kernel duration=31 stream=8 _Z3twov"], """\
gpu/x: 4 -> 5 lines, 2 different
  event: 1 only new
  kernel: 1 changed, 1 in duration
  + line 2: event stream=7
  line 4, now 5: kernel duration=30 stream=8 _Z3twov
      duration: 30 -> 31
"""),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_change_is_named(tmp_path, case):
    lines, said = PLANTED[case]
    old, new = dumps(tmp_path / "old", x=DUMP, same=DUMP), dumps(tmp_path / "new", x=lines, same=DUMP)
    assert golden_diff_of(old, new) == (1, said, "")
    assert golden_diff_of(old, new, "-k", "same") == (0, "dumps: 1, all the same\n", "")


def test_a_dump_that_one_side_has_alone_is_named(tmp_path):
    old, new = dumps(tmp_path / "old", x=DUMP), dumps(tmp_path / "new", x=DUMP, y=DUMP)
    assert golden_diff_of(old, new) == (1, "gpu/y: only in NEW\n", "")
    assert golden_diff_of(new, old) == (1, "gpu/y: only in OLD\n", "")


def test_of_many_changes_the_first_are_shown_and_all_are_counted(tmp_path):
    old, new = (dumps(tmp_path / side, x=["call duration=%d" % (n + more) for n in range(3000)]) for side, more in (("old", 0), ("new", 10000)))
    status, text, _ = golden_diff_of(old, new, "--most", 2)
    assert status == 1 and text.splitlines()[:2] == ["gpu/x: 3000 -> 3000 lines, 3000 different", "  call: 3000 changed, 3000 in duration"]
    assert text.splitlines()[-2:] == ["      duration: 1 -> 10001", "  ... and 2998 more; --most shows more"]


def test_what_cannot_be_compared_is_said(tmp_path):
    old = dumps(tmp_path / "old", x=DUMP)
    assert golden_diff_of(old, old, "-k", "z") == (2, "", "golden_diff.py: no dump has z in its name; there are gpu/x\n")
    for nothing in (tmp_path / "nowhere", "no-such-commit"):
        status, _, said = golden_diff_of(old, nothing)
        assert status == 2 and said == "golden_diff.py: %s is no build folder, no folder of dumps and no commit\n" % nothing


# Two commits

TEST = """
#include <cstdlib>
#include <fstream>
#include <string>
void check_digest(const char* name, const char* dump) { std::ofstream(std::getenv("TORCHPROF_DUMP_GOLDEN") + std::string("/") + name + ".txt") << dump; }
int main() { check_digest("x", "kernel duration=%d stream=7 _Z3onev\\n"); }
"""


def test_two_commits_are_built_and_compared(tmp_path):
    """Of a project of one small test, which takes seconds to build."""
    project = tmp_path / "project"
    unit = project / "tests" / "unit"
    unit.mkdir(parents=True)
    (project / "meson.build").write_text("project('small', 'cpp')\nif get_option('tests')\n  executable('of_a_room', 'tests/unit/small_test.cpp')\nendif\n")
    (project / "meson_options.txt").write_text("option('tests', type: 'boolean', value: false)\n")
    tool = shutil.copy(ROOT / "tests" / "golden_diff.py", project / "tests")

    def git(*arguments):
        return subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments], cwd=project, check=True, capture_output=True, text=True).stdout
    git("init", "--quiet")
    for duration in (20, 21):
        (unit / "small_test.cpp").write_text(TEST % duration)
        git("add", ".")
        git("commit", "--quiet", "-m", "tests: x")
    status, text, said = golden_diff_of("HEAD~1", "HEAD", program=tool, cwd=tmp_path)
    assert (status, text) == (1, """\
x: 1 -> 1 lines, 1 different
  kernel: 1 changed, 1 in duration
  line 1: kernel duration=20 stream=7 _Z3onev
      duration: 20 -> 21
"""), said
    assert len(git("worktree", "list").splitlines()) == 1 and git("status", "--porcelain") == ""
    # A commit that has no test with a dump.
    (unit / "small_test.cpp").write_text("int main() {}\n")
    git("commit", "--quiet", "-a", "-m", "tests: none")
    status, _, said = golden_diff_of("HEAD", "HEAD~1", program=tool, cwd=tmp_path)
    assert status == 2 and "has no test with a dump" in said


# The unit test and the tool

@pytest.fixture(scope="module")
def build():
    """The build folder, with the program that decodes the GPU's records up to date."""
    (program, source), = golden_diff.programs(BUILD)
    golden_diff.run(["ninja", "-C", BUILD, program.relative_to(BUILD)])

    def test(golden, **settings):
        return subprocess.run([program, "--source-file=*" + source.name], capture_output=True, text=True,
                              env=clean_environment({"TORCHPROF_GOLDEN": golden, **settings}))
    return test


def plant(records):
    """Makes the first kernel of a file of CUPTI's records end 5 ns later; gives its name. The layout: tests/gpu/raw_records.c, cupti/cupti_abi.h."""
    data = bytearray(records.read_bytes())
    at = 4
    while True:
        size, name = struct.unpack_from("II", data, at)
        kind, = struct.unpack_from("I", data, at + 8)
        if kind == 10:
            end, = struct.unpack_from("Q", data, at + 8 + 24)
            struct.pack_into("Q", data, at + 8 + 24, end + 5)
            records.write_bytes(data)
            return data[at + 8 + size:at + 8 + size + name].decode()
        at += 8 + size + name


def test_a_record_that_is_decoded_otherwise_is_named_and_can_be_accepted(build, tmp_path):
    golden = tmp_path / "golden"
    shutil.copytree(GPU, golden / "gpu")
    assert build(golden).returncode == 0
    kernel = plant(golden / "gpu" / "matmul.gpu.records")
    written = tmp_path / "written"
    written.mkdir()

    failed = build(golden, TORCHPROF_DUMP_GOLDEN=written)
    assert failed.returncode == 1 and failed.stdout.count(".digest differs") == 1
    lines = failed.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if "gpu/matmul.gpu.digest differs:" in line)
    assert lines[at + 1] == "all: as many lines, another text"
    before, after = (int(number) for number in lines[at + 2].removeprefix("kernel: duration ").split(" -> "))
    assert after == before + 5
    dump = pathlib.Path(lines[at + 3].removeprefix("the whole dump: "))
    assert dump.read_text() == (written / "gpu" / "matmul.gpu.txt").read_text()

    status, text, said = golden_diff_of(BUILD, written)
    assert status == 1, said
    first, kinds, record, field = text.splitlines()
    assert first.startswith("gpu/matmul.gpu: ") and first.endswith(" lines, 1 different") and kinds == "  kernel: 1 changed, 1 in duration"
    assert record.endswith(kernel) and field.startswith("      duration: ")

    assert build(golden, TORCHPROF_UPDATE_GOLDEN=1).returncode == 0
    assert build(golden).returncode == 0 and not dump.exists()
    changed = [path.name for path in sorted((golden / "gpu").iterdir()) if path.read_bytes() != (GPU / path.name).read_bytes()]
    assert changed == ["matmul.gpu.digest", "matmul.gpu.records"]
