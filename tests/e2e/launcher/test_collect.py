"""`torchprof collect`: one file that has a run, also while the job goes on."""
import json
import os
import pathlib
import subprocess
import tarfile

import pytest

from conftest import PATIENCE, clean_environment

pytestmark = pytest.mark.once

# Takes a line for each part of what it does; `inside` is called within the window alone.
PROGRAM = """
import sys, torch
def inside(): pass
def outside(): pass
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(1000): inside() if line == "inside\\n" else outside()
    print("done", flush=True)
"""


@pytest.fixture
def job(launcher, program, torch_python, tmp_path):
    """A job that is armed by the environment alone, and what has it do something."""
    printed = subprocess.run([launcher, "env", "-o", tmp_path / "j:ob", "--format", "docker"], capture_output=True, text=True, check=True,
                             env=clean_environment())
    variables = dict(line.split("=", 1) for line in printed.stdout.splitlines())
    process = subprocess.Popen([torch_python, program(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment(variables))
    assert process.stdout.readline() == "ready\n"

    def do(what):
        process.stdin.write(what + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
    process.do = do
    yield process
    process.kill()
    process.communicate()


def unpacked(archive, where):
    with tarfile.open(archive) as tar:
        assert all(member.isdir() or member.isfile() for member in tar)
        tar.extractall(where)
    (run,) = where.iterdir()
    return run


def calls(torchprof, run):
    done = torchprof("export", run, "-f", "kineto", "-o", "-")
    assert done.returncode == 0, done.stderr
    names = [e["name"].partition(": ")[2] for e in json.loads(done.stdout)["traceEvents"] if e.get("cat") == "python_function"]
    return names.count("inside"), names.count("outside")


def test_a_job_that_goes_on_is_packed_with_its_closed_windows(job, launcher, torchprof, tmp_path):
    run = tmp_path / "j:ob"
    assert torchprof("ctl", job.pid, "start").returncode == 0
    job.do("inside")
    assert torchprof("ctl", job.pid, "stop").returncode == 0
    job.do("outside")
    (run / "spool" / "somebody else's").write_text("x")
    (run / "spool" / "link.1.2.spool").symlink_to("/etc/passwd")
    done = torchprof("collect", run)
    assert done.returncode == 0 and "1 process, " in done.stderr and "j:ob.tar.gz, which holds j:ob/" in done.stderr, done.stderr
    first = unpacked(tmp_path / "j:ob.tar.gz", tmp_path / "first")
    assert first.name == "j:ob" and len(list((first / "spool").glob("*.spool"))) == 1 and not list(first.rglob("some*")) and not list(first.rglob("*.ctl"))
    assert calls(torchprof, first) == (1000, 0)
    # In the midst of the next window: what the first one had is there.
    assert torchprof("ctl", job.pid, "start").returncode == 0
    job.do("outside")
    with open(tmp_path / "second.tgz", "wb") as out:
        done = subprocess.run([launcher, "collect", run, "-o", "-"], stdout=out, stderr=subprocess.PIPE, text=True, env=clean_environment(), timeout=PATIENCE)
    assert done.returncode == 0 and "just being recorded: process %d; of that window there is what it had" % job.pid in done.stderr, done.stderr
    assert calls(torchprof, unpacked(tmp_path / "second.tgz", tmp_path / "second"))[0] == 1000
    # The job has noticed nothing.
    job.do("inside")
    assert torchprof("ctl", job.pid, "stop").returncode == 0
    assert calls(torchprof, run) == (2000, 1000)


def test_a_run_of_the_launcher_keeps_what_run_json_says(run_torchprof, torchprof, torch_python, tmp_path):
    run = run_torchprof([torch_python, "-c", "pass"]).directory
    done = torchprof("collect", run, "-o", tmp_path / "run.tar")
    assert done.returncode == 0, done.stderr
    there = unpacked(tmp_path / "run.tar", tmp_path / "there")
    assert json.loads((there / "run.json").read_text()) == json.loads((run / "run.json").read_text())
    assert [spool.read_bytes() for spool in (there / "spool").glob("*.spool")] == [spool.read_bytes() for spool in (run / "spool").glob("*.spool")]
    report = torchprof("report", there)
    assert report.returncode == 0 and torchprof("report", run).stdout.replace(str(run), "") == report.stdout.replace(str(there), "")


def test_files_of_any_size_are_what_tar_takes(torchprof, run_torchprof, torch_python, tmp_path):
    run = run_torchprof([torch_python, "-c", "pass"]).directory
    (spool,) = (run / "spool").glob("*.spool")
    for size in (0, 511, 512, 513, (256 << 10) + 1):
        (run / "run.json").write_bytes(os.urandom(size))
        (tmp_path / "run.tar").unlink(missing_ok=True)
        assert torchprof("collect", run, "-o", tmp_path / "run.tar").returncode == 0
        with tarfile.open(tmp_path / "run.tar") as tar:
            assert tar.extractfile("%s/run.json" % run.name).read() == (run / "run.json").read_bytes()
            assert tar.extractfile("%s/spool/%s" % (run.name, spool.name)).read() == spool.read_bytes()


@pytest.mark.parametrize("arguments, said", [
    ([], "collect: RUN is required"),
    (["none"], "none: is not a run directory"),
    (["."], "has no spool/"),
])
def test_what_cannot_be_packed_is_one_line(torchprof, arguments, said, tmp_path):
    done = torchprof("collect", *arguments, cwd=tmp_path)
    assert done.returncode == 125 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not list(pathlib.Path(tmp_path).iterdir())
