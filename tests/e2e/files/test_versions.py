"""What is said of runs that a newer version recorded, and that those of older ones are read as before (docs/formats.md, "Runs of other versions")."""
import json
import pathlib
import struct
import tarfile

import pytest

from spool_records import CHUNK_HEADER, chunks

pytestmark = pytest.mark.once

KEPT = pathlib.Path(__file__).parent / "kept" / "0.2.0"
THIS, RUN_VERSION = 3, 1  # kSpoolVersion, kRunVersion


@pytest.fixture
def run(tmp_path):
    """A kept run of two processes."""
    with tarfile.open(KEPT / "whole.tar.xz") as packed:
        packed.extractall(tmp_path)
    return tmp_path / "whole"


def set_spool_version(spool, version):
    with spool.open("r+b") as file:
        file.seek(8)
        assert struct.unpack("<I", file.read(4)) == (THIS,)
        file.seek(8)
        file.write(struct.pack("<I", version))


def set_run_version(run, **more):
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, **more}))


def spools(run):
    return sorted((run / "spool").glob("*.spool"))


def test_a_run_says_its_versions(run_torchprof, torch_python):
    run = run_torchprof([torch_python, "-c", "pass"], options=["-q"]).directory
    assert json.loads((run / "run.json").read_text())["version"] == RUN_VERSION
    assert struct.unpack_from("<I", spools(run)[0].read_bytes(), 8) == (THIS,)


@pytest.mark.parametrize("version", range(1, THIS + 1))
def test_a_spool_of_an_older_version_is_read(run, torchprof, version):
    said = torchprof("report", run, "--json")
    for spool in spools(run):
        set_spool_version(spool, version)
    assert torchprof("report", run, "--json").stdout == said.stdout and said.returncode == 0


@pytest.mark.parametrize("command", [["report", "RUN"], ["export", "RUN"], ["export", "RUN", "-f", "kineto", "-o", "OUT"], ["diff", "RUN", "RUN"]], ids=" ".join)
def test_of_a_newer_version_no_spool_is_read_and_one_line_says_why(run, torchprof, tmp_path, command):
    for spool in spools(run):
        set_spool_version(spool, THIS + 1)
    done = torchprof(*[{"RUN": run, "OUT": tmp_path / "out"}.get(word, word) for word in command])
    reason = "it is of version %d, this torchprof reads versions up to %d" % (THIS + 1, THIS)
    assert done.returncode == 125 and reason in done.stderr and not (tmp_path / "out").exists(), done.stderr
    if command != ["export", "RUN"]:  # which writes what there is, and says of each file what is not
        assert done.stderr == "torchprof: %s: none of its spools can be read: %s\n" % (run, reason)


def test_spools_of_this_version_are_read_beside_one_of_a_newer_one(run, torchprof):
    newer = spools(run)[1]
    set_spool_version(newer, THIS + 1)
    done = torchprof("report", run)
    reason = "it is of version %d, this torchprof reads versions up to %d" % (THIS + 1, THIS)
    assert done.returncode == 0 and "1 process," in done.stdout and "spool %s cannot be read: %s" % (newer.name, reason) in done.stdout
    assert done.stderr == "torchprof: %s: %s\n" % (newer, reason)


def test_records_of_a_newer_version_are_counted(run, torchprof):
    """In a spool of this version: a new kind of record raises no version."""
    for spool in spools(run):
        data = bytearray(spool.read_bytes())
        at, committed = next(chunks(data))
        room = at + CHUNK_HEADER + committed
        assert data[room:room + 32] == bytes(32)
        for number in range(2):
            struct.pack_into("<QQ", data, room + 16 * number, 30 | 2 << 8, 7)
        struct.pack_into("<I", data, at + 16, committed + 32)
        spool.write_bytes(data)
    done = torchprof("report", run)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 records of kinds that this version does not know: a newer one wrote them (all processes)" in done.stdout


def test_facts_of_a_newer_run_json_are_not_used_and_the_spools_are_read(run, torchprof, tmp_path):
    before = torchprof("report", run, "-t", "ops", "--json").stdout
    set_run_version(run, version=RUN_VERSION + 1, command={"what": "nobody knows"}, start_ns="later")
    line = "torchprof: %s: is of version %d, this torchprof reads versions up to %d: its facts about the run are missing\n" % (
        run / "run.json", RUN_VERSION + 1, RUN_VERSION)
    done = torchprof("report", run, "-t", "ops", "--json")
    assert (done.returncode, done.stderr) == (0, line) and done.stdout == before
    done = torchprof("export", run, "-f", "kineto", "-o", tmp_path / "out.json.gz")
    assert done.returncode == 0 and done.stderr.startswith(line) and (tmp_path / "out.json.gz").exists()


def test_into_a_run_of_a_newer_version_nothing_is_written(run_torchprof, torchprof, torch_python):
    run = run_torchprof([torch_python, "-c", "pass"], options=["-q"]).directory
    set_run_version(run, version=RUN_VERSION + 1)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = torchprof("export", run)
    assert done.returncode == 125 and done.stderr.splitlines()[-1] == (
        "torchprof: %s: its run.json is of version %d, this torchprof reads versions up to %d; -o FILE writes elsewhere" % (
            run, RUN_VERSION + 1, RUN_VERSION))
    again = run_torchprof([torch_python, "-c", "pass"], directory=run)
    assert again.status == 125 and "its run.json was written by another version" in again.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("version", ["2", 1.5, None, -1, [2], 2 ** 40])
def test_a_version_that_is_none_is_no_version(run, torchprof, version):
    set_run_version(run, version=version)
    done = torchprof("report", run, "-t", "ops")
    assert done.returncode == 0 and "is of version" not in done.stderr
