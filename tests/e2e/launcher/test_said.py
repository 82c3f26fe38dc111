"""The commands' messages and help texts, word for word. TORCHPROF_UPDATE_GOLDEN=1 writes tests/e2e/launcher/golden/ anew, for people to look at the difference."""
import os
import pathlib
import re
import subprocess

import pytest

from conftest import PATIENCE, SUBCOMMANDS, clean_environment, setting

pytestmark = pytest.mark.once

GOLDEN = pathlib.Path(__file__).parent / "golden"
UPDATE = setting("UPDATE_GOLDEN")


def assert_golden(name, text):
    if UPDATE:
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize("subcommand", ["", *SUBCOMMANDS])
def test_help(torchprof, subcommand):
    assert_golden("help-%s.txt" % (subcommand or "of-all"), torchprof("help", *[subcommand] if subcommand else []).stdout)


def test_doctor_of_a_python_with_torch(torchprof, torch_python):
    done = torchprof("doctor", "--", torch_python)
    assert done.returncode == 0, done.stderr
    # Lines that differ on other machines.
    text = re.sub(r"^(machine|torchprof|library|clock|output|gpu|nvtx|python) +.*", r"\1 ...", done.stdout, flags=re.MULTILINE)
    text = re.sub(r"/\S+/libtorch_cpu\S*|1\.13\.\d\S*", "...", text)
    assert_golden("doctor.txt", text)


def test_merge(torchprof, run_torchprof, torch_python, program, tmp_path):
    for name in ("on_one", "on_two"):
        program("def f(): pass\nfor _ in range(10): f()\n", name + ".py")
        run = run_torchprof([torch_python, name + ".py"],  # as short as it is where the temporary directory has a long name: lines are cut
                            directory=tmp_path / name, options=["-q", "--python", "functions", "--ops", "off", "--memory", "off"])
        assert run.status == 0, run.stderr
    done = torchprof("merge", tmp_path / "on_one", tmp_path / "on_two", "-o", tmp_path / "all", "--format", "kineto")
    assert (done.returncode, done.stdout) == (0, "")
    text = done.stderr.replace(str(tmp_path), "TMP").replace(str(torch_python), "PYTHON")
    text = re.sub(r"(\n(?:Python functions|Functions of the program).*?\n).*?\n(?=\n)", r"\1...\n", text, flags=re.DOTALL)
    text = re.sub(r"\nAdvice:? .*?\n(?=\n)", "", text, flags=re.DOTALL)  # of a program that took long enough, as a busy machine makes it
    text = re.sub(r"[\d.]+ (ms|s)\b|(?<=process )\d+|[\d,]+(?= Python calls)", "N", text)
    assert_golden("merge.txt", text)


# Whatever a terminal acts upon: ESC, C1 as UTF-8 (U+009B is ESC [ to xterm) and as bytes, characters that turn the direction of text, line breaks.
ODD = b"\x1b[31m-\xc2\x9b31m-\xc2\x85-\xe2\x80\xae-\xe2\x81\xa6-\xe2\x80\xa8-\x7f-\x07-\n-\xff-\xc2-\x9b"
ACTED_UPON = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ODD_NAMES = """
import ctypes, sys, threading, time, torch
odd, text = %r, %r
ctypes.CDLL(None).prctl(15, odd[:15], 0, 0, 0)
def work():
    for i in range(3):
        with torch.autograd.profiler.record_function(text + "range"):
            model(torch.ones(2, 2))
        function()
        optimizer.step()
model = type("Module" + text, (torch.nn.Linear,), {})(2, 2)
optimizer = type("Optimizer" + text, (torch.optim.SGD,), {})(model.parameters(), lr=0.1)
scope = {}
exec(compile("def function():\\n  return [[] for _ in range(1000)]", "/a/" + text + ".py", "exec"), scope)
function = scope["function"]
function.__code__ = function.__code__.replace(co_name="function" + text)
thread = threading.Thread(target=work, name=text)
thread.start(); thread.join(); work()
with torch.autograd.profiler.record_function(text + "open"):
    import os; os.kill(os.getpid(), 9)
""" % (ODD, ODD[:-4].decode("utf-8", "replace"))


def test_a_terminal_survives_all_that_is_said_of_odd_names(launcher, torch_python, tmp_path):
    place = os.fsencode(tmp_path) + b"/" + ODD.replace(b"/", b"")
    os.mkdir(place)
    run = place + b"/run"
    (tmp_path / "program.py").write_text(ODD_NAMES)

    def say(*arguments):
        done = subprocess.run([os.fsencode(launcher), *arguments], capture_output=True, env=clean_environment(), cwd=tmp_path, timeout=PATIENCE)
        shown = done.stdout.replace(b"\r\n", b"\n") if b"--csv" in arguments else done.stdout  # how its lines end
        for text in (shown.decode(), done.stderr.decode()):  # UTF-8, or this throws
            assert not (found := ACTED_UPON.search(text)), (arguments, text[max(0, found.start() - 60):found.end() + 60])
        assert len(done.stderr) < 20_000, arguments
        return done

    first = say(b"run", b"-o", run, b"--python", b"calls", torch_python, b"program.py", ODD)
    assert first.returncode == -9, first.stderr
    damaged, other = place + b"/damaged.json", place + b"/trace.json"
    with open(damaged, "wb") as file:
        file.write(b'{"traceEvents": [{"name": "' + b"\xc2\x9b31m" * 500_000 + b"\xff")
    say(b"export", run, b"-f", b"kineto", b"-o", other)
    tables = b"ops,kernels,calls,modules,memory,python,steps,comms,threads,gpu,launches,critical,processes,profiler,advice"
    for source in (run, other):
        for way in ([], [b"--json"], [b"--csv"], [b"--markdown"], [b"-g", b"stack:3"], [b"-g", b"shape"], [b"-g", b"module"], [b"-g", b"thread"]):
            say(b"report", source, b"-t", tables, b"--top", b"10000", *way)
        say(b"diff", source, other)
        say(b"diff", source, other, b"--markdown")
    assert b"31m" in say(b"where", run).stdout and b"31m" in say(b"top", run, b"--once").stdout
    for path in (damaged, run + b"/nothing", place, ODD):
        for command in ([b"report", path], [b"where", path], [b"top", path], [b"ctl", path, b"start"], [b"export", path], [b"diff", path, run],
                        [b"merge", path, b"-o", place + b"/merged"], [b"run", b"-o", damaged, b"true"], [b"run", path], [b"doctor", b"--", path], [path],
                        [b"run", b"--" + ODD, b"true"], [b"run", b"-w", ODD, b"true"], [b"report", run, b"-t", ODD], [b"help", ODD]):
            say(*command)
    say(b"run", b"-o", run, b"sh", b"-c", b"true")
