"""`torchprof collect`: one file that has a run, also while the job goes on."""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import textwrap

import pytest
import trace_rules

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


BUSY = """
import sys, threading
def leaf(n): return n if n < 2 else leaf(n - 1) + leaf(n - 2)
def round_number(i): leaf(8)
def short(): leaf(3)
def work():
    i = 0
    while True:
        i += 1
        exec("def name_%d(): pass\\nname_%d()" % (i, i))  # names that are new while others copy
        round_number(i)
        thread = threading.Thread(target=short)  # a piece of a chunk
        thread.start()
        thread.join()
        if i == 300: print("goes round", flush=True)
threading.Thread(target=work, daemon=True).start()
sys.stdin.read()
import os
os._exit(0)
"""


@pytest.mark.parametrize("options", [["--keep", "last", "--max-size", "2M"], ["-w", "all"], ["-w", "auto", "--max-size", "8M"]], ids=["last", "all", "auto"])
def test_records_that_are_written_over_while_they_are_copied(options, launcher, torchprof, program, check_trace, tmp_path):
    """Four copies of a process that never stops writing: of each everything can be read, slices nest, and all names are there."""
    command = [launcher, "run", "-q", "-o", tmp_path / "run", *options, "--format", "none", "--", sys.executable, program(BUSY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()) as job:
        assert job.stdout.readline() == "goes round\n"
        for n in range(4):
            archive = tmp_path / ("%d.tar.gz" % n)
            done = torchprof("collect", tmp_path / "run", "-o", archive)
            assert done.returncode == 0 and "1 process, " in done.stderr, done.stderr
        job.communicate()
    recycled = 0
    for n in range(4):
        run = unpacked(tmp_path / ("%d.tar.gz" % n), tmp_path / str(n))
        done = torchprof("export", run, "-f", "kineto", "-o", tmp_path / ("%d.json" % n))
        assert done.returncode == 0 and done.stderr.count("\n") == 1, done.stderr  # "written", and no complaint
        trace = check_trace(trace_rules.Trace(tmp_path / ("%d.json" % n)))
        names = trace.names("python_function")
        assert sum(count for name, count in names.items() if name.endswith(": leaf")) > 100, names
        assert not any(name.startswith(("?", "unknown")) or "): " not in name and name.endswith(".py") for name in names), names
        csv = torchprof("report", run, "-t", "profiler", "--csv").stdout.splitlines()
        row = dict(zip(csv[0].split(","), csv[1].split(",")))
        assert not any(int(row[key] or 0) for key in row if key.startswith("damaged")), row
        recycled += int(row["recycled_bytes"] or 0)
    assert "--keep" not in options or recycled > 0


def test_windows_that_have_closed_are_whole_while_the_next_ones_are_recorded(launcher, torchprof, program, tmp_path):
    """-w steps=2..4 of a loop that goes on: the archive has these three steps and what they called."""
    text = """
    import sys, torch
    def inside(): pass
    for i in range(10):
        with torch.autograd.profiler.record_function("ProfilerStep#%d" % i):
            for _ in range(100): inside()
    print("ready", flush=True)
    sys.stdin.read()
    """
    command = [launcher, "run", "-q", "-o", tmp_path / "run", "-w", "steps=2..4", "--format", "none", "--", sys.executable, program(textwrap.dedent(text))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment()) as job:
        assert job.stdout.readline() == "ready\n"
        done = torchprof("collect", tmp_path / "run", "-o", tmp_path / "run.tar.gz")
        assert done.returncode == 0 and "just being recorded" not in done.stderr, done.stderr
        job.communicate()
    assert calls(torchprof, tmp_path / "run.tar.gz") == (300, 0)


@pytest.mark.parametrize("arguments, said", [
    ([], "collect: RUN is required"),
    (["none"], "none: is not a run directory"),
    (["."], "has no spool/"),
])
def test_what_cannot_be_packed_is_one_line(torchprof, arguments, said, tmp_path):
    done = torchprof("collect", *arguments, cwd=tmp_path)
    assert done.returncode == 125 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not list(pathlib.Path(tmp_path).iterdir())
