"""Runs somebody else's tests bare and under torchprof, and compares the results test by test: what passes without us has to pass with us."""
import fnmatch
import os
import pathlib
import signal
import subprocess
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]


def add_options(parser, timeout):
    parser.add_argument("--launcher", type=pathlib.Path, default=ROOT / "build" / "launcher" / "torchprof")
    parser.add_argument("--timeout", type=int, default=timeout, help="seconds for each run (%(default)s)")
    parser.add_argument("--short", action="store_true", help="only the quick ones")
    parser.add_argument("--keep", type=pathlib.Path, help="a new directory for what the tests print")


def run(command, directory, timeout):
    """The exit status, or None where it had to be killed; `directory`/output has what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHPROF_")}
    with open(directory / "output", "wb") as output:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=directory, start_new_session=True)
        try:
            return program.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    return None


def results_in(path):
    """{test: whether it passed} of a report in JUnit's form, without what was skipped; empty if there is none."""
    try:
        cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
    except (FileNotFoundError, xml.etree.ElementTree.ParseError):
        return {}
    skipped = [case for case in cases if case.find("skipped") is not None or "skipped" in (case.get("result"), case.get("status"))]
    return {".".join(filter(None, (case.get("classname"), case.get("name")))): case.find("error") is None and case.find("failure") is None
            for case in cases if case not in skipped}


def compare(name, bare, ours, inherent, output):
    """(how many passed, how many failed); says it as well."""
    passing = [test for test, passed in bare.items() if passed]
    failed = [test for test in passing if not ours.get(test, False)]
    excused = [test for test in failed if any(fnmatch.fnmatchcase(test, pattern) for pattern in inherent)]
    if not passing:
        print("%-40s NOT MEASURED: nothing passes without us, or it does not end in time" % name)
    print("%-40s %5d pass without us, %d of them fail with us, of these %d by design" % (name, len(passing), len(failed), len(excused)), flush=True)
    for test in sorted(set(failed) - set(excused)):
        print("    FAILED %s (%s)" % (test, output))
    return len(passing) - len(failed), len(failed) - len(excused)


def run_all(options, names, command_of, inherent=()):
    """command_of(name, report) is what runs one set of tests and writes their results to the file `report`. Returns the script's exit status."""
    top = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="torchprof-foreign-"))
    launch = [options.launcher.resolve(), "run", "-q", "--format", "none", "-o", "run", "--"]  # writing the trace is not part of what is tested
    passed = failed = 0
    for name in names:
        found = []
        for way, before in ("bare", []), ("torchprof", launch):
            directory = top / name / way
            directory.mkdir(parents=True)
            status = run(before + command_of(name, directory / "report.xml"), directory, options.timeout + 30)  # they have a timeout of their own
            results = results_in(directory / "report.xml")
            # Where a test fails the status says no more than that.
            found.append({**results, "the end of " + name: status == 0 or (status is not None and False in results.values())})
            subprocess.run(["rm", "-rf", directory / "run"], check=True)
        good, bad = compare(name, *found, inherent, directory / "output")
        passed, failed = passed + good, failed + bad
    if not failed and not options.keep:
        subprocess.run(["rm", "-rf", top], check=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0
