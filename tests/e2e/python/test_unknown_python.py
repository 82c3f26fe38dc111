"""A CPython that is newer than we know: used with one line where all checks hold, refused with one line where one does not. The program runs.

It is a real interpreter with other bytes in its copy: what Py_GetVersion() says, and what _Py_DebugOffsets says.
"""
import collections
import json
import os
import pathlib
import re
import struct
import subprocess

import pytest

from conftest import clean_environment

pytestmark = pytest.mark.since(3, 13)
KNOWN = "newer than this version knows (3.10 to 3.15)"
PROGRAM = """
import gc, subprocess, sys, threading
def odd_leaf(n): return n
def odd_thread(): return odd_leaf(1)
def odd_main():
    thread = threading.Thread(target=odd_thread)
    thread.start(), thread.join()
    gc.collect()
    if sys.argv[1:] == ["parent"]: subprocess.run([sys.executable, __file__], check=True)
    print(sys.version_info[:2], len("".join(map(str, range(20)))))
odd_main()
"""


class Copy:
    """An interpreter's program and its libpython, if it has one; what is changed is changed in that which has _PyRuntime."""

    def __init__(self, python, place):
        self.version, self.program = python.version, place / "bin" / "python3"
        self.program.parent.mkdir(parents=True)
        self.program.write_bytes(pathlib.Path(python.path).read_bytes())
        self.program.chmod(0o755)
        self.code = self.program
        self.env = {"PYTHONHOME": subprocess.run([python.path, "-c", "import sys; print(sys.prefix + ':' + sys.exec_prefix)"], capture_output=True, text=True, check=True,
                                                 env=clean_environment()).stdout.strip()}
        if python.is_shared:
            linked = subprocess.run(["ldd", python.path], capture_output=True, text=True, check=True, env=clean_environment()).stdout
            library, = re.findall(r"=> (\S+/libpython\S+)", linked)
            self.code = place / "lib" / os.path.basename(library)
            self.code.parent.mkdir()
            self.code.write_bytes(pathlib.Path(library).read_bytes())
            self.env["LD_LIBRARY_PATH"] = str(self.code.parent)
        whole = self.code.read_bytes()
        says = struct.pack("<8sI", b"xdebugpy", self.version[0] << 24 | self.version[1] << 16 | self.version[2] << 8)
        self.at, = [m.start() for m in re.finditer(re.escape(says[:8]), whole) if whole[m.start() + 9:m.start() + 12] == says[9:12]]
        self.words = list(struct.unpack_from("<48Q", whole, self.at))

    def pretend(self, minor):
        """It says that it is 3.MINOR."""
        whole, was, now = self.code.read_bytes(), b"%d.%d.%d\0" % self.version, b"%d.%d.%d\0" % (3, minor, self.version[2])
        assert len(was) == len(now) and was in whole
        self.code.write_bytes(whole.replace(was, now))
        self.set(1, self.words[1] & ~0xff0000 | minor << 16)

    def set(self, word, value):
        with open(self.code, "r+b") as code:
            code.seek(self.at + 8 * word)
            code.write(struct.pack("<Q", value))

    def first(self, after, is_it):
        """The first section of _Py_DebugOffsets behind word `after` that begins like this."""
        return next(i for i in range(after + 1, 48) if is_it(*self.words[i:i + 4]))

    def thread(self):
        return self.first(6, lambda size, previous, following, interpreter: (previous, following, interpreter) == (0, 8, 16))

    def frame(self):
        return self.first(self.thread() + 4, lambda size, previous, code, instruction: (previous, code) == (8, 0))


@pytest.fixture
def copy(python, tmp_path):
    return Copy(python, tmp_path / "copy")


@pytest.fixture
def run_copy(copy, run_torchprof, run_bare, program):
    def run(arguments=(), **more):
        command = [copy.program, program(PROGRAM), *arguments]
        bare = run_bare(command, env=copy.env)
        run = run_torchprof(command, env=copy.env, **more)
        assert (run.status, run.stdout_bytes) == (bare.returncode, bare.stdout) and bare.returncode == 0, run.stderr
        processes = json.loads((run.directory / "run.json").read_text())["processes"]
        about = re.findall(r"(?m)^torchprof: (Python (?:3|calls).*)", run.stderr)
        return run, about, [p["sources"]["python"] for p in processes]
    return run


def test_a_version_that_is_not_known_is_used_and_said_once_a_run(copy, run_copy):
    copy.pretend(97)
    run, about, sources = run_copy(["parent"])
    assert about == ["Python 3.97.%d is %s: it is used, since all checks of it hold" % (copy.version[2], KNOWN)]
    assert [s["state"] for s in sources] == ["on", "on"]
    for trace in run.traces():
        names = collections.Counter(name.rpartition(": ")[2] for name in trace.names("python_function").elements())
        assert names["odd_leaf"] == names["odd_thread"] == names["odd_main"] == 1 and names["Python GC"] > 0


def test_who_is_quiet_is_not_told_of_it(copy, run_copy):
    copy.pretend(97)
    run, _, sources = run_copy(options=["-q"])
    assert run.stderr == "" and sources[0]["state"] == "on"


# Where a word of _Py_DebugOffsets says something else, it is never read as if it were true.
LIES = {"the current frame": lambda c: (c.thread() + 4, 8), "the current frame, far away": lambda c: (c.thread() + 4, 1 << 40),
        "the caller's frame": lambda c: (c.frame() + 1, 40), "the instruction": lambda c: (c.frame() + 3, -8), "the owner": lambda c: (c.frame() + 5, -1),
        "the size of the interpreter": lambda c: (6, 1 << 40), "the first thread": lambda c: (9, 16), "the size of it all": lambda c: (3, 8),
        "another build": lambda c: (2, 1), "another version": lambda c: (1, 1 << 16)}


@pytest.mark.parametrize("lie", LIES)
def test_a_version_that_is_not_known_and_whose_offsets_lie_is_refused_and_said_once_a_run(copy, run_copy, lie):
    copy.pretend(97)
    word, by = LIES[lie](copy)
    copy.set(word, (copy.words[word] if word != 1 else copy.words[1] & ~0xff0000 | 97 << 16) + by & (1 << 64) - 1)
    run, about, sources = run_copy(["parent"] if lie == "the current frame" else [])
    assert len(about) == 1 and about[0].startswith("Python calls are not recorded: Python 3.97.%d is %s, and " % (copy.version[2], KNOWN)), run.stderr
    assert all(s["state"] == "failed" and s["detail"] in about[0] for s in sources)


def test_a_version_that_is_known_and_whose_offsets_lie_has_its_calls(copy, run_copy):
    word, by = LIES["the current frame"](copy)
    copy.set(word, copy.words[word] + by)
    run, about, sources = run_copy()
    assert about == [] and sources[0]["state"] == "on"
    assert "odd_leaf" in str(run.trace().names("python_function"))
