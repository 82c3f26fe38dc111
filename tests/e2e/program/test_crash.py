"""Programs that die, disks that fill up: what was recorded until then is there, and the trace is whole."""
import os
import signal
import subprocess
import textwrap
import time

import pytest

import trace_rules
from conftest import PATIENCE, SUPPORT, clean_environment

pytestmark = pytest.mark.once


@pytest.fixture
def start_training(launcher, torch_python, examples, tmp_path):
    """Starts the transformer for longer than anybody waits; the file that it writes its finished steps to comes with it."""
    started = []

    def start(directory):
        log = tmp_path / "steps.log"
        log.touch()
        command = [launcher, "run", "-o", directory, "--", torch_python, examples / "transformer.py", "--steps", "100000"]
        process = subprocess.Popen(command, env=clean_environment({"EXAMPLE_LOG": log}), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        return process, log
    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_steps(process, log, count):
    deadline = time.monotonic() + PATIENCE
    while len(log.read_text().splitlines()) < count:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "%d steps did not come" % count
        time.sleep(0.01)


def pid_of_child(process):
    with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as children:
        return int(children.read().split()[0])


def exported(torchprof, directory, tmp_path):
    done = torchprof("export", directory, "--format", "kineto", "-o", tmp_path / "exported.json.gz")
    assert done.returncode == 0, done.stderr
    return trace_rules.Trace(tmp_path / "exported.json.gz")


def assert_every_step_is_there(trace, log):
    finished = len(log.read_text().splitlines())
    assert finished <= trace.names("user_annotation")["Optimizer.step#AdamW.step"] <= finished + 1
    # The step in which it died is shown as far as it came.
    assert finished <= trace.names("user_annotation")["train_step"] <= finished + 1


def test_kill_9_of_the_program_keeps_every_step_but_the_torn_moment(start_training, torchprof, check_trace, tmp_path):
    process, log = start_training(tmp_path / "run")
    wait_for_steps(process, log, 25)
    os.kill(pid_of_child(process), signal.SIGKILL)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    traces = list((tmp_path / "run").glob("trace.json.gz"))
    assert len(traces) == 1, stderr
    assert_every_step_is_there(check_trace(traces[0]), log)
    report = torchprof("report", tmp_path / "run")
    assert report.returncode == 0 and "aten::addmm" in report.stdout, report.stderr


def test_kill_9_of_everything_leaves_spools_that_report_and_export_read(start_training, torchprof, check_trace, tmp_path):
    process, log = start_training(tmp_path / "run")
    wait_for_steps(process, log, 25)
    child = pid_of_child(process)
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.wait()
    report = torchprof("report", tmp_path / "run")
    assert report.returncode == 0 and "aten::addmm" in report.stdout, report.stderr
    assert_every_step_is_there(check_trace(exported(torchprof, tmp_path / "run", tmp_path)), log)


DEATHS = {
    "os.abort": ("os.abort()", signal.SIGABRT),
    "a segmentation fault": ("import ctypes; ctypes.string_at(0)", signal.SIGSEGV),
    "SIGKILL of itself": ("os.kill(os.getpid(), signal.SIGKILL)", signal.SIGKILL),
    "SIGTERM of itself": ("os.kill(os.getpid(), signal.SIGTERM)", signal.SIGTERM),
}


@pytest.mark.parametrize("death", DEATHS)
def test_the_last_call_before_death_is_in_the_trace(python, run_torchprof, check_trace, program, death):
    statement, sign = DEATHS[death]
    run = run_torchprof([python.path, program("import os, signal\ndef lives(): pass\ndef dies():\n    lives()\n    %s\ndies()\n" % statement)])
    assert run.status == -sign
    calls = [(name.rpartition(" ")[2], parent and parent.rpartition(" ")[2]) for name, parent in check_trace(run.trace()).parents()]
    assert ("lives", "dies") in calls and ("dies", "<module>") in calls


MANY_CALLS = """
    def counts(n):
        return n + 1
    total = 0
    for _ in range(%d):
        total = counts(total)
    print(total)
    """


def test_at_max_size_capture_stops_and_says_so(python, run_torchprof, check_trace, program):
    run = run_torchprof([python.path, program(textwrap.dedent(MANY_CALLS % 300000))], options=["--max-size", "2M"])
    assert (run.status, run.stdout) == (0, "300000\n")
    assert "--max-size" in run.stderr
    trace = check_trace(run.trace())
    assert 10000 < sum(n for name, n in trace.names("python_function").items() if name.endswith("): counts")) < 300000
    assert sum(f.stat().st_size for f in run.directory.rglob("*.spool")) <= 2 << 20


def counted(trace):
    return sum(n for name, n in trace.names("python_function").items() if name.endswith("): counts"))


def told_of_the_disk(stderr):
    """What we say of it: in a line of its own, or in the summary, which comes last."""
    return [line for line in stderr.partition("torchprof: ")[2].splitlines() if "disk" in line]


def test_a_full_disk_is_a_message_and_not_the_end_of_the_program(python, launcher, torchprof, check_trace, mount_namespace, program, tmp_path):
    """The run directory is a disk of 3 MiB, which nobody else sees and which goes with the command."""
    (tmp_path / "disk").mkdir()
    in_namespace = program(textwrap.dedent("""
        mount -t tmpfs -o size=3m none "$1" || exit 99
        "$2" run -o "$1/run" -- "$3" "$4"
        echo "status $?"
        "$2" report "$1/run" || exit 98
        "$2" export "$1/run" --format kineto -o "$5" || exit 97
        """), "in_namespace.sh")
    script = program(textwrap.dedent(MANY_CALLS % 300000))
    done = subprocess.run([*mount_namespace, "bash", in_namespace, tmp_path / "disk", launcher, python.path, script,
                           tmp_path / "exported.json.gz"], capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("300000\nstatus 0\n"), done.stdout + done.stderr
    assert told_of_the_disk(done.stderr), done.stderr
    assert counted(check_trace(tmp_path / "exported.json.gz")) > 1000


def test_a_disk_that_fills_up_later_keeps_what_was_recorded_until_then(python, run_torchprof, check_trace, program, tmp_path):
    """Needs no rights: from the third time on that the spool grows, the system call fails for lack of space."""
    library = tmp_path / "no_space.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SUPPORT / "no_space.c"], check=True)
    run = run_torchprof([python.path, program(textwrap.dedent(MANY_CALLS % 300000))], options=["-w", "all"], env={"LD_PRELOAD": library})
    assert (run.status, run.stdout) == (0, "300000\n"), run.stderr
    assert told_of_the_disk(run.stderr), run.stderr
    assert 1000 < counted(check_trace(run.trace())) < 300000
