"""Traces of many ranks: a file for each rank on one clock, or of some ranks that are worth looking at."""
import gzip
import importlib.util
import json
import re
import shutil

import pytest

from conftest import SUPPORT, profile
from perfetto_trace import Trace
from simulated_hosts import move_ranks

pytestmark = pytest.mark.once

RANKS = 10
# Each is a program of its own that makes steps of a length of its own: rank 4 the longest. In the middle are the odd ones.
SEPARATE = """
import os, subprocess, sys, time, torch
if len(sys.argv) == 1:
    for rank in range(%d): subprocess.run([sys.executable, __file__, "rank"], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "%d"}, check=True)
    sys.exit()
rank = int(os.environ["RANK"])
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.ones(2, 4)).sum().backward()
    time.sleep(0.4 if rank == 4 else 0.1 if rank %% 2 else 0.001)
    optimizer.step()
""" % (RANKS, RANKS)


@pytest.fixture(scope="module")
def many(launcher, torch_python, tmp_path_factory):
    directory = tmp_path_factory.mktemp("many")
    (directory / "train.py").write_text(SEPARATE)
    run = profile(launcher, directory / "run", [torch_python, directory / "train.py"], options=["--format", "kineto,perfetto,table"])
    assert run.status == 0, run.stderr
    return run


def ranks_of(run, trace):
    """Those of a Kineto trace (a trace of a single process does not say its rank); None: of a process that is none."""
    doc = json.loads(gzip.decompress(trace.read_bytes()))
    roles = {process["pid"]: process.get("role") for process in json.loads((run.directory / "run.json").read_text())["processes"]}
    return {roles[e["pid"]] and int(roles[e["pid"]].removeprefix("rank ")) for e in doc["traceEvents"] if e.get("name") == "process_name"}


def test_run_writes_some_of_many_and_says_so(many):
    line = next(line for line in many.stderr.splitlines() if ": ranks " in line)
    chosen = re.fullmatch(r"torchprof: trace\.json\.gz, trace\.perfetto-trace: ranks (0), (4) \(slowest\) and (\d) \(typical\) of %d; "
                          r"`torchprof export .* --format kineto-ranks -o DIR` writes a file for each, run --ranks all one of all" % RANKS, line)
    if not chosen:
        chosen = re.search(r"ranks (0), (\d) \(typical\) and (4) \(slowest\) of %d; " % RANKS, line)
    assert chosen, line
    assert ranks_of(many, many.directory / "trace.json.gz") == {int(rank) for rank in chosen.groups()}
    said = json.loads((many.directory / "run.json").read_text())["processes"]
    with_trace = {process["role"] for process in said if "trace" in process}
    assert with_trace == {"rank " + rank for rank in chosen.groups()} and len(said) == RANKS + 1
    # The tables are of all.
    assert all("rank %d" % rank in (many.directory / "summary.txt").read_text() for rank in range(RANKS))


def test_export_writes_those_that_are_asked_for(many, torchprof, tmp_path):
    for ranks, wanted in (("7,2", {2, 7}), ("slowest", {4}), ("3,slowest", {3, 4})):
        done = torchprof("export", many.directory, "-f", "kineto", "-o", tmp_path / "a.json.gz", "--ranks", ranks)
        assert done.returncode == 0 and ranks_of(many, tmp_path / "a.json.gz") == wanted, done.stderr
    assert "ranks 3 and 4 (slowest)\n" in done.stderr
    done = torchprof("export", many.directory, "-f", "kineto", "-o", tmp_path / "all.json.gz")
    assert ranks_of(many, tmp_path / "all.json.gz") == {None, *range(RANKS)}
    shutil.copytree(many.directory, tmp_path / "copy")
    for ranks, status, says in (("99", 125, "--ranks 99: the run has no such rank (slowest and typical name two that it has)"),
                                ("1,x", 125, "export: --ranks: 'x' is not a rank, slowest, typical or all; see `torchprof help export`")):
        done = torchprof("export", many.directory, "-f", "kineto", "-o", tmp_path / "b.json.gz", "--ranks", ranks)
        assert (done.returncode, done.stderr) == (status, "torchprof: %s\n" % says) and not (tmp_path / "b.json.gz").exists()


def test_a_file_for_each_rank_and_how_perfetto_merges_them(many, torchprof, tmp_path):
    shutil.copytree(many.directory, tmp_path / "run")
    move_ranks(tmp_path / "run", {8, 9}, "else\"where", 0)
    assert torchprof("export", tmp_path / "run", "-f", "perfetto-ranks", "-o", tmp_path / "out", "--ranks", "1,8").returncode == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"rank1.perfetto-trace", "rank8.perfetto-trace", "perfetto_manifest.json"}
    text = (tmp_path / "out" / "perfetto_manifest.json").read_text()
    assert text.startswith('{"perfetto_manifest"')  # by which Perfetto knows it
    manifest = json.loads(text)["perfetto_manifest"]
    assert manifest["version"] == 1 and manifest["trace_time"] == {"clock": "REALTIME"}
    machines = {file["path"]: file["machine"]["name"] for file in manifest["files"]}
    assert machines["rank8.perfetto-trace"] == "else\"where" != machines["rank1.perfetto-trace"] and len(machines) == 2
    for rank in 1, 8:
        found = Trace(tmp_path / "out" / ("rank%d.perfetto-trace" % rank))
        assert all("rank %d" % rank in str(process) for process in found.processes.values()) and found.processes


def test_any_number_of_threads_gives_the_same_bytes(many, torchprof, tmp_path):
    tables = torchprof("report", many.directory, "-t", "wrong").stderr.partition("is not a table: ")[2].split(", ")
    tables[-1] = tables[-1].split()[0]
    assert len(tables) > 8
    said, files = [], []
    for jobs in 1, 2, 7:
        report = torchprof("report", many.directory, "--json", "--all-processes", "-t", ",".join(tables), "-j", jobs)
        assert report.returncode == 0, report.stderr
        said.append(re.sub(r'"read_ns":\d+', "", report.stdout))  # how long reading took
        out = tmp_path / "out"  # a trace says where it was written
        for format in "kineto-ranks", "parquet":
            assert torchprof("export", many.directory, "-f", format, "-o", out, "-j", jobs).returncode == 0
        files.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()})
        shutil.rmtree(out)
        assert len(files[0]) > 2 * RANKS
    assert said[0] == said[1] == said[2] and files[0] == files[1] == files[2]
    assert "-j" in torchprof("report", many.directory, "-j", "0").stderr


@pytest.mark.skipif(not importlib.util.find_spec("hta"), reason="tests with HTA run where the package HolisticTraceAnalysis is installed")
def test_hta_knows_the_ranks_of_a_directory(many, torchprof, tmp_path):
    from hta.trace_analysis import TraceAnalysis
    assert torchprof("export", many.directory, "-f", "kineto-ranks", "-o", tmp_path / "out").returncode == 0
    assert set(TraceAnalysis(trace_dir=str(tmp_path / "out")).t.get_all_traces()) == set(range(RANKS))
