"""What lies in a run directory: one trace, names that a person can type, the raw records, of which everything else is made; and directories of earlier versions."""
import json
import shutil

import pytest

from conftest import profile

pytestmark = pytest.mark.once

RANKS = """
import os, subprocess, sys, torch
def unmistakable(): return torch.ones(3) + 1
if len(sys.argv) > 1:
    unmistakable()
else:
    for rank in "01": subprocess.run([sys.executable, __file__, "rank"], env={**os.environ, "RANK": rank, "WORLD_SIZE": "2"}, check=True)
"""


@pytest.fixture(scope="module")
def ranks(launcher, torch_python, tmp_path_factory):
    """A run without an option: two ranks and their launcher."""
    directory = tmp_path_factory.mktemp("files")
    (directory / "ranks.py").write_text(RANKS)
    run = profile(launcher, directory / "run", [torch_python, directory / "ranks.py"])
    assert run.status == 0, run.stderr
    return run


@pytest.fixture
def copy(ranks, tmp_path):
    shutil.copytree(ranks.directory, tmp_path / "copy")
    return tmp_path / "copy"


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_run_of_several_processes_has_one_trace_of_all(ranks, check_trace):
    assert names_in(ranks.directory) == ["run.json", "spool", "summary.txt", "trace.json.gz"]
    check_trace(ranks.directory / "trace.json.gz", merged=True)
    assert {process["trace"] for process in json.loads((ranks.directory / "run.json").read_text())["processes"]} == {"trace.json.gz"}
    assert "\ntrace: %s\n" % (ranks.directory / "trace.json.gz") in ranks.stderr


@pytest.mark.parametrize("command", [
    ["report", "RUN", "-t", "advice"], ["report", "RUN", "-t", "ops", "--group-by", "shape"], ["report", "RUN", "--html", "OUT"],
    ["export", "RUN", "-f", "speedscope", "-o", "OUT"], ["export", "RUN", "-f", "kineto", "--process", "1", "-o", "OUT"],
    ["export", "RUN", "-f", "memory-snapshot", "-o", "OUT"], ["where", "RUN"], ["diff", "RUN", "RUN"], ["merge", "RUN", "-o", "OUT"]], ids=" ".join)
def test_everything_is_made_of_a_run_that_had_no_option(ranks, torchprof, tmp_path, command):
    done = torchprof(*[{"RUN": ranks.directory, "OUT": tmp_path / "out"}.get(word, word) for word in command])
    assert done.returncode == 0 and (tmp_path / "out").exists() == ("OUT" in command), done.stderr


def test_files_of_ranks_are_named_by_them_and_leave_out_the_launcher(ranks, torchprof, load_trace, tmp_path):
    done = torchprof("export", ranks.directory, "-f", "kineto-ranks", "-o", tmp_path / "apart")
    assert done.returncode == 0 and names_in(tmp_path / "apart") == ["rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz"], done.stderr
    for rank in 0, 1:
        trace = load_trace(tmp_path / "apart" / ("rank%d.pt.trace.json.gz" % rank))
        assert trace.doc["distributedInfo"]["rank"] == rank and trace.names("cpu_op")["aten::add"] == 1
    two = torchprof("export", ranks.directory, "-f", "kineto-ranks,table", "-o", tmp_path / "a", "-o", tmp_path / "b")
    assert (two.returncode, two.stderr) == (125, "torchprof: export: kineto-ranks has a file for each rank: name one directory with -o\n")


@pytest.mark.parametrize("older", ["merged.pt.trace.json.gz", "vm_1459.1795251740280752060.pt.trace.json.gz", "merged.perfetto-trace"])
def test_a_run_of_an_earlier_version_is_read_as_before(copy, torchprof, older):
    """Without its raw records, as they left it."""
    if older.endswith("perfetto-trace"):
        assert torchprof("export", copy, "-f", "perfetto", "-o", copy / older).returncode == 0
        (copy / "trace.json.gz").unlink()
    else:
        (copy / "trace.json.gz").rename(copy / older)
    if older.startswith("merged.pt"):
        for number in 1, 2:
            (copy / ("vm_%d.1795251740280752060.pt.trace.json.gz" % number)).write_bytes(b"of one process")
    shutil.rmtree(copy / "spool")
    done = torchprof("report", copy, "-t", "python", "-n", "99999")
    assert done.returncode == 0 and "unmistakable" in done.stdout, done.stderr
    assert torchprof("diff", copy, copy).returncode == 0


def test_a_new_run_takes_away_what_an_earlier_version_wrote(run_torchprof, torch_python, tmp_path):
    first = run_torchprof([torch_python, "-c", "pass"], directory=tmp_path / "run", options=["-q", "--discard"]).directory
    info = (first / "run.json").read_text()
    (first / "trace.json.gz").rename(first / "merged.pt.trace.json.gz")
    (first / "vm_1.2.pt.trace.json.gz").touch()
    (first / "run.json").write_text(info.replace('"trace.json.gz",', '"merged.pt.trace.json.gz", "vm_1.2.pt.trace.json.gz",'))
    again = run_torchprof([torch_python, "-c", "pass"], directory=tmp_path / "run")
    assert again.status == 0 and names_in(first) == ["run.json", "spool", "summary.txt", "trace.json.gz"], again.stderr


def test_traces_of_single_processes_alone_ask_which_one(copy, torchprof):
    shutil.rmtree(copy / "spool")
    shutil.copy(copy / "trace.json.gz", copy / "rank0.pt.trace.json.gz")
    (copy / "trace.json.gz").rename(copy / "rank1.pt.trace.json.gz")
    done = torchprof("report", copy)
    assert (done.returncode, done.stderr) == (125, "torchprof: %s: holds 2 traces and none of the whole run: name one of them\n" % copy)


def test_what_discarded_runs_lack_names_the_option(run_torchprof, torchprof, torch_python, tmp_path):
    run = run_torchprof([torch_python, "-c", "pass"], options=["--discard", "-q"])
    assert names_in(run.directory) == ["run.json", "summary.txt", "trace.json.gz"]
    for command in (["report", run.directory, "-t", "profiler"], ["export", run.directory, "-f", "speedscope", "-o", tmp_path / "x"],
                    ["export", run.directory, "-f", "kineto-ranks", "-o", tmp_path], ["export", run.directory, "-f", "kineto", "--steps", "1", "-o", tmp_path / "x"],
                    ["merge", run.directory, "-o", tmp_path / "x"]):
        done = torchprof(*command)
        assert done.returncode == 125 and "raw records" in done.stderr and "--discard" in done.stderr and not (tmp_path / "x").exists(), (command, done.stderr)
