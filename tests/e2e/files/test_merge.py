"""Runs that were made apart, as on two machines, become one."""
import json

import pytest

pytestmark = pytest.mark.once

PROGRAM = "import sys\ndef {name}(): return sum(range(1000))\nfor _ in range({calls}): {name}()\nsys.exit({status})\n"


@pytest.fixture
def two_runs(run_torchprof, program, torch_python, tmp_path):
    """Two run directories, whose programs call `on_one` 3 times and `on_two` 5 times; the second fails."""
    for name, calls, status in (("on_one", 3, 0), ("on_two", 5, 7)):
        run = run_torchprof([torch_python, program(PROGRAM.format(name=name, calls=calls, status=status), name + ".py")],
                            directory=tmp_path / name, options=["-q"])
        assert run.status == status, run.stderr
    return tmp_path / "on_one", tmp_path / "on_two"


def calls_in(trace):
    return {name.rpartition(": ")[2]: n for name, n in trace.names("python_function").items() if name.rpartition(": ")[2] in ("on_one", "on_two")}


def test_two_runs_are_one_with_all_of_both(two_runs, torchprof, check_trace, tmp_path):
    done = torchprof("merge", *two_runs, "-o", tmp_path / "all")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "torchprof: 2 processes, " in done.stderr
    merged = check_trace(tmp_path / "all" / "trace.json.gz", merged=True)
    assert calls_in(merged) == {"on_one": 3, "on_two": 5}
    info = json.loads((tmp_path / "all" / "run.json").read_text())
    assert [run["run"] for run in info["merged"]] == list(map(str, two_runs)) and info["merged"][1]["exit_status"] == 7
    assert info["start"] == info["merged"][0]["start"] and info["end"] == info["merged"][1]["end"]
    assert len(info["processes"]) == 2 and info["exported"]
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"run.json", "spool", "summary.txt", "trace.json.gz"}
    # The raw records are links: they take no room.
    assert all(spool.stat().st_nlink == 2 for spool in (tmp_path / "all" / "spool").glob("*.spool"))
    # What was merged is a run like any other.
    assert "on_two" in torchprof("report", tmp_path / "all", "-t", "python", "-n", 9999).stdout


def test_what_was_merged_is_merged_again_and_discards_its_own_records(two_runs, torchprof, tmp_path):
    assert torchprof("merge", two_runs[0], "-o", tmp_path / "a", "-f", "none").returncode == 0
    done = torchprof("merge", tmp_path / "a", two_runs[1], "-o", tmp_path / "b", "--format", "perfetto", "--discard")
    assert done.returncode == 0 and not (tmp_path / "b" / "spool").exists() and (tmp_path / "a" / "spool").exists(), done.stderr
    assert (tmp_path / "b" / "trace.perfetto-trace").exists() and not list((tmp_path / "b").glob("*.json.gz"))


def test_the_same_run_twice_is_refused_and_leaves_nothing_behind(two_runs, torchprof, tmp_path):
    done = torchprof("merge", two_runs[0], two_runs[0], "-o", tmp_path / "all")
    assert done.returncode == 125 and "is one of them given twice?" in done.stderr
    assert not (tmp_path / "all").exists()


def test_a_run_is_not_merged_into_itself(two_runs, torchprof):
    done = torchprof("merge", *two_runs, "-o", two_runs[1])
    assert (done.returncode, done.stderr) == (
        125, "torchprof: merge: %s is one of the runs and the output; choose another with -o\n" % two_runs[1])
    assert list((two_runs[1] / "spool").glob("*.spool"))


@pytest.mark.parametrize("source", ["spool", "spool/*.spool", "link"])
def test_a_part_of_the_output_is_not_merged_into_it(source, two_runs, torchprof, tmp_path):
    run, other = two_runs
    (tmp_path / "link").symlink_to(run / "spool")
    part, *_ = (tmp_path if source == "link" else run).glob(source)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = torchprof("merge", other, part, "-o", run)
    assert done.returncode == 125 and done.stderr.count("\n") == 1, done.stderr
    assert ".spool lies in the output %s, which the new run replaces; choose another with -o" % run in done.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_an_earlier_run_stays_until_all_has_been_taken(two_runs, torchprof, tmp_path):
    all_of = tmp_path / "all"
    (two_runs[0] / "spool" / "untraced").write_text("7 /bin/unmistakable: it is static\n")
    assert torchprof("merge", *two_runs, "-o", all_of).returncode == 0
    before = {path: path.read_bytes() for path in all_of.rglob("*") if path.is_file()}
    done = torchprof("merge", *two_runs, two_runs[0], "-o", all_of)
    assert done.returncode == 125 and "is one of them given twice?" in done.stderr
    assert {path: path.read_bytes() for path in all_of.rglob("*") if path.is_file()} == before
    # The same again replaces it, lists included.
    assert torchprof("merge", *two_runs, "-o", all_of).returncode == 0
    assert {path for path in all_of.rglob("*") if path.is_file()} == set(before)
    assert (all_of / "spool" / "untraced").read_text().count("unmistakable") == 1


def test_a_run_without_raw_records_says_what_removed_them(run_torchprof, torchprof, torch_python, tmp_path):
    run = run_torchprof([torch_python, "-c", "pass"], options=["-q", "--discard"])
    done = torchprof("merge", run.directory, "-o", tmp_path / "all")
    assert done.returncode == 125 and "the raw records are gone" in done.stderr and "--discard" in done.stderr
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize("command", ["merge", "where", "ctl"])
def test_a_file_that_is_no_trace_is_not_called_one(command, torchprof, tmp_path):
    (tmp_path / "notes.txt").write_text("hello\n")
    (tmp_path / "empty").touch()
    for name in "notes.txt", "empty":
        more = {"merge": ["-o", "all"], "where": [], "ctl": ["status"]}[command]
        done = torchprof(command, name, *more)
        assert (done.returncode, done.stderr) == (125, "torchprof: %s: is neither a run directory nor a spool nor a trace\n" % name)


def test_a_spool_that_cannot_be_read_is_named_where_it_is(two_runs, torchprof, tmp_path):
    spool, *_ = (two_runs[0] / "spool").glob("*.spool")
    spool.write_bytes(b"x" * 10000)
    done = torchprof("merge", *two_runs, "-o", tmp_path / "all")
    assert done.returncode == 125 and "torchprof: %s: " % spool in done.stderr and str(tmp_path / "all" / "spool" / spool.name) not in done.stderr
