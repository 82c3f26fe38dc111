"""`torchprof env`: what it prints arms commands that no launcher starts, in each shell and each format, and a run without a launcher is read like any other.
The commands without an argument list the runs that are alive."""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile

import pytest

from conftest import PATIENCE, clean_environment

pytestmark = pytest.mark.once

SHELLS = {"sh": "sh", "dash": "sh", "bash": "sh", "zsh": "sh", "fish": "fish", "tcsh": "csh"}
# What means something to one of them, and what is more than ASCII.
ODD = "'\"\\$`!*?[]{}()<>|&;~#^=,. \tab@:-é\U0001f600\n"
LIBRARY_VARIABLES = {"NVTX_INJECTION64_PATH", "PYTHONPATH", "LD_PRELOAD"}


def odd_names(count, alphabet=ODD):
    generator = random.Random(7)
    return ["x" + "".join(generator.choices(alphabet, k=12)) + "x" for _ in range(count)]


def in_shell(shell, text, directory, env):
    """The environment of what a shell starts that has read the text."""
    script = directory / "armed"
    script.write_text(text)
    line = "source %s; env -0" if SHELLS[shell] == "csh" else ". %s; env -0"
    more = ["-f"] if shell in ("tcsh", "zsh") else ["--no-config"] if shell == "fish" else []
    done = subprocess.run([shutil.which(shell), *more, "-c", line % script], capture_output=True, env=clean_environment(env), cwd=directory, timeout=PATIENCE)
    assert done.returncode == 0 and not done.stderr, (text, done)
    return {name: value for name, _, value in (entry.partition("=") for entry in os.fsdecode(done.stdout).split("\0")) if name}


def of_interest(environment):
    return {name: value for name, value in environment.items() if name.startswith("TORCHPROF_") or name in LIBRARY_VARIABLES}


def expected(prefix, output, **more):
    library = prefix / "lib" / "torchprof"
    so = str(library / "libtorchprof.so")
    return {"TORCHPROF_OUTPUT": str(output), "TORCHPROF_WINDOW": "manual", "NVTX_INJECTION64_PATH": so, "PYTHONPATH": str(library / "python"), "LD_PRELOAD": so, **more}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_takes_what_is_printed_for_it_whatever_a_name_holds_and_takes_it_back(torchprof, prefix, tmp_path, shell):
    if not shutil.which(shell):
        pytest.skip("there is no %s here" % shell)
    mine = {"PYTHONPATH": "/mine:/other", "TORCHPROF_OUTPUT": None}
    for name in odd_names(8):
        said = torchprof("env", "--format", SHELLS[shell], "-o", name + "/%h-%j", env=mine)
        assert said.returncode == 0, said.stderr
        wanted = expected(prefix, tmp_path / (name + "/%h-%j"))
        wanted["PYTHONPATH"] += ":/mine:/other"
        found = in_shell(shell, said.stdout, tmp_path, mine)
        assert of_interest(found) == wanted
        back = torchprof("env", "--unset", "--format", SHELLS[shell], env=of_interest(found))
        assert of_interest(in_shell(shell, said.stdout + back.stdout, tmp_path, mine)) == {"PYTHONPATH": "/mine:/other"}


def test_what_is_printed_twice_is_the_same(torchprof, prefix, tmp_path):
    first = torchprof("env", "-o", "runs/%j", "--python", "off", "-w", "every=1000steps,for=3steps").stdout
    found = of_interest(in_shell("sh", first, tmp_path, {}))
    assert found == expected(prefix, tmp_path / "runs/%j", TORCHPROF_PYTHON="off", TORCHPROF_WINDOW="every=1000steps,for=3steps")
    assert torchprof("env", env=found, cwd="/").stdout == first


def test_an_env_file_of_docker(torchprof, prefix, tmp_path):
    """Its lines are taken as they are: opts/envfile of docker/cli."""
    for name in odd_names(5, ODD.replace("\n", "")):
        said = torchprof("env", "--format", "docker", "-o", name, env={"LD_PRELOAD": None, "PYTHONPATH": "/of/this/machine"})
        assert dict(line.split("=", 1) for line in said.stdout.splitlines()) == expected(prefix, tmp_path / name)
    refused = torchprof("env", "--format", "docker", "-o", "a\nb")
    assert refused.returncode == 125 and "has a line break, which this format cannot hold" in refused.stderr


def as_kubernetes_expands(value):
    """third_party/forked/golang/expansion/expand.go of Kubernetes: $$ is $, and $(NAME) a variable."""
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", value), value
    return value.replace("$$", "$")


def test_the_env_of_a_container_of_kubernetes(torchprof, prefix, tmp_path):
    for name in odd_names(5) + ["$(HOME)", "$$(HOME)"]:
        said = torchprof("env", "--format", "k8s", "-o", name)
        lines = said.stdout.splitlines()
        assert lines[0] == "env:" and len(lines) % 2 == 1
        names = [re.fullmatch(r"- name: (\w+)", line)[1] for line in lines[1::2]]
        values = [json.loads(re.fullmatch(r'  value: (".*")', line)[1]) for line in lines[2::2]]
        assert {n: as_kubernetes_expands(v) for n, v in zip(names, values)} == expected(prefix, tmp_path / name)
        with contextlib.suppress(ImportError):
            import yaml
            assert yaml.safe_load(said.stdout) == {"env": [{"name": n, "value": v} for n, v in zip(names, values)]}


def test_a_task_prolog_of_slurm_adds_to_what_a_task_has(torchprof, prefix, tmp_path):
    """Slurm takes the lines "export NAME=value" that it prints into the task's environment: slurm.conf(5), TaskProlog."""
    for name in odd_names(5, ODD.replace("\n", "")):
        script = tmp_path / "prolog"
        script.write_text(torchprof("env", "--format", "slurm", "-o", name).stdout)
        script.chmod(0o755)
        for mine in ({}, {"PYTHONPATH": "/task's own:/x", "LD_PRELOAD": "libm.so.6"}):
            printed = subprocess.run([script], capture_output=True, text=True, env=clean_environment(mine), check=True).stdout
            wanted = expected(prefix, tmp_path / name)
            wanted["PYTHONPATH"] += ":" + mine["PYTHONPATH"] if mine else ""
            wanted["LD_PRELOAD"] = "libm.so.6:" + wanted["LD_PRELOAD"] if mine else wanted["LD_PRELOAD"]
            assert dict(re.fullmatch(r"export (\w+)=(.*)", line).groups() for line in printed.splitlines()) == wanted


def test_a_directory_for_each_process_is_refused(torchprof):
    for pattern in ("%p", "a/%t", "%q{A:-%}/%p"):
        refused = torchprof("env", "-o", pattern)
        assert refused.returncode == 125 and "each process would have a directory of its own" in refused.stderr and not refused.stdout
    assert "%z is not a placeholder" in torchprof("env", "-o", "%z").stderr
    assert "--unset is for sh, fish and csh" in torchprof("env", "--unset", "--format", "k8s").stderr
    assert "only one of them" in torchprof("env", "--pth", ".", "--format", "sh").stderr
    assert torchprof("env", "-o", "%q{A:-%%p}-100%%").returncode == 0


TRAIN = """
import subprocess, sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def unmistakable(): return [[] for _ in range(10)]
def steps(count):
    for _ in range(count):
        with torch.autograd.profiler.record_function("of_the_armed"):
            unmistakable()
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
if sys.argv[1:]: steps(3)
else:
    steps(10)
    print("ready", flush=True)
    while not sys.stdin.readline().startswith("end"): steps(5)
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def rows_of(torchprof, directory, table="ops"):
    said = torchprof("report", directory, "-t", table, "--json")
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)["tables"][0]["rows"]


def operators(torchprof, directory):
    return {row["name"]: row for row in rows_of(torchprof, directory)}


def test_a_run_without_a_launcher_is_read_like_any_other(torchprof, torch_python, program, tmp_path):
    armed = in_shell("sh", torchprof("env", "-w", "all", "-o", "runs/%q{NOBODY_SETS_THIS:-of all}").stdout, tmp_path, {})
    script = program(TRAIN)
    done = subprocess.run([torch_python, script], env=armed, cwd="/", input="go\nend\n", capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
    rows = operators(torchprof, tmp_path / "runs" / "of all")
    assert rows["of_the_armed"]["calls"] == 15 + 3
    assert len(rows_of(torchprof, tmp_path / "runs" / "of all", "processes")) == 2  # the child, too


@pytest.fixture
def alive(torchprof, torch_python, program, tmp_path):
    """A program that was armed, has made 10 steps, and makes 5 more for each line."""
    with contextlib.ExitStack() as stack:
        def start(output, *options, command=None):
            armed = in_shell("sh", torchprof("env", "-o", output, *options).stdout, tmp_path, {})
            job = subprocess.Popen([torch_python, program(TRAIN)], env=armed, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(job.communicate)
            stack.callback(job.kill)
            assert job.stdout.readline() == "ready\n"
            return job
        yield start


def listed(said, tmp_path):
    assert said.returncode == 0, said
    head, *lines = said.stdout.splitlines()
    assert head.split() == ["ranks", "step", "window", "since", "processes", "run,", "command"]
    # Other runs of this machine are listed, too.
    pattern = r" +(.+?)  +(\S+(?: to \d+)?)  +(open|closed|open in \d+)  +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  +([\d, ]+(?:and \d+ more)?)  (/.*?)  (.*)"
    return {pathlib.Path(m[5]).relative_to(tmp_path): (m[1], m[2], m[3], m[4], m[6]) for line in lines if str(tmp_path) in line and (m := re.fullmatch(pattern, line))}


def test_without_an_argument_the_runs_that_are_alive_are_listed(torchprof, alive, tmp_path):
    closed, whole = alive("one/%j", "-w", "manual"), alive("two", "-w", "all")
    for command, goes_on in (("ctl", "torchprof ctl RUN capture|start|stop|status"), ("top", "torchprof top RUN"), ("where", "torchprof where RUN"), ("report", "torchprof report RUN")):
        said = torchprof(command)
        found = listed(said, tmp_path)
        assert said.stderr.startswith("torchprof: go on with one of them: " + goes_on)
        (one,) = [path for path in found if path.parts[0] == "one"]
        ranks, step, window, pids, line = found[one]
        assert (ranks, step, window, pids) == ("-", "10", "closed", str(closed.pid)) and line.endswith("program.py")
        assert found[pathlib.Path("two")][2:4] == ("open", str(whole.pid))
    assert torchprof("ctl", tmp_path / one, "start").returncode == 0
    closed.stdin.write("go\n")
    closed.stdin.flush()
    closed.communicate("go\nend\n", timeout=PATIENCE)
    assert closed.returncode == 0
    assert one not in listed(torchprof("ctl"), tmp_path)
    assert operators(torchprof, tmp_path / one)["of_the_armed"]["calls"] == 10


def test_where_none_is_alive_that_is_said(launcher, tmp_path):
    alone = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("no PID namespace may be made here")
    for command in ("ctl", "top", "where", "report"):
        done = subprocess.run([*alone, launcher, command], capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "torchprof: no run of this user is alive here\n")


@pytest.fixture
def site(torch_python, tmp_path):
    """A Python of its own that has torch, and its site directory."""
    subprocess.run([torch_python, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "venv"], check=True, env=clean_environment())
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    return tmp_path / "venv" / "bin" / "python", packages


def test_a_pth_arms_a_python_and_nothing_else(torchprof, launcher, site, program, tmp_path):
    python, packages = site
    script = program(TRAIN)
    def run(*command, env=None):
        done = subprocess.run(command, env=clean_environment(env), cwd=tmp_path, input="end\n", capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout
    name = odd_names(1)[0]
    assert torchprof("env", "--pth", packages, "-o", name, "-w", "all").returncode == 0
    assert sorted(path.name for path in packages.glob("*.pth")) == ["torchprof.pth"] and (packages / "torchprof.pth").stat().st_mode & 0o777 == 0o644
    run(python, "-I", script)
    rows = operators(torchprof, tmp_path / name)
    assert rows["of_the_armed"]["calls"] == 13 and rows["aten::linear"]["calls"] == 13
    # Memory, too, although nothing was preloaded.
    assert rows_of(torchprof, tmp_path / name, "memory")
    shown = run(python, "-c", "import os; print(os.environ['TORCHPROF_WINDOW'], 'LD_PRELOAD' in os.environ, 'PYTHONPATH' in os.environ)")
    assert shown == "all False False\n"
    assert run(python, "-c", "import os; print('TORCHPROF_WINDOW' in os.environ)", env={"TORCHPROF_DISABLE": "1"}) == "False\n"
    # The environment, as of `torchprof run`, says all where it says anything.
    run(launcher, "run", "-q", "-o", tmp_path / "launched", "-w", "steps=1..2", "--", python, script)
    assert operators(torchprof, tmp_path / "launched")["of_the_armed"]["calls"] == 4
    # Again, and back.
    assert torchprof("env", "--pth", packages).returncode == 0
    assert torchprof("env", "--unset", "--pth", packages).returncode == 0
    assert not list(packages.glob("*.pth")) and run(python, "-c", "import os; print('TORCHPROF_WINDOW' in os.environ)") == "False\n"
    assert "is not there" in torchprof("env", "--unset", "--pth", packages).stderr
    (packages / "torchprof.pth").write_text("import os\n")
    for refused in (torchprof("env", "--pth", packages), torchprof("env", "--unset", "--pth", packages)):
        assert refused.returncode == 125 and "it stays as it is" in refused.stderr
    assert "is no directory" in torchprof("env", "--pth", tmp_path / "nowhere").stderr


def test_a_python_that_loads_no_torch_leaves_nothing(torchprof, python, program, tmp_path):
    """Thousands of short ones start in a job."""
    armed = in_shell("sh", torchprof("env", "-o", "run").stdout, tmp_path, {})
    script = program("import os, subprocess, sys\nos.fork() or os._exit(0)\nos.wait()\n"
                     "subprocess.run([sys.executable, '-c', 'pass'], check=True)\nsubprocess.run(['true'], check=True)\n")
    done = subprocess.run([python.path, script], env=armed, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "") and not (tmp_path / "run").exists()
    # Whoever asked for a window by a signal has it, also without torch.
    waits = program("import os, signal, time\nos.kill(os.getpid(), signal.SIGUSR2)\nwhile not os.path.isdir('signalled/spool'): time.sleep(0.01)\n", "waits.py")
    armed = in_shell("sh", torchprof("env", "-o", "signalled", "-w", "signal=USR2").stdout, tmp_path, {})
    done = subprocess.run([python.path, waits], env=armed, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), done


def test_what_a_later_version_says_is_noted_and_not_refused(torchprof, torch_python, program, tmp_path):
    """Images of different ages are armed by one environment."""
    armed = in_shell("sh", torchprof("env", "-o", "run").stdout, tmp_path, {})
    for name, value in (("TORCHPROF_NEWER", "1"), ("TORCHPROF_PYTHON", "everything"), ("TORCHPROF_WINDOW", "at-night=yes")):
        directory = tmp_path / name
        done = subprocess.run([torch_python, program(TRAIN)], env={**armed, name: value, "TORCHPROF_OUTPUT": str(directory)}, cwd=tmp_path, input="end\n",
                              capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
        assert name in torchprof("report", directory).stdout.partition("Not in the trace")[2]
        assert "of_the_armed" not in operators(torchprof, directory)  # nothing that nobody asks for, whatever its window was to be


def test_where_the_place_cannot_be_written_one_line_says_so(torchprof, torch_python, program, tmp_path):
    (tmp_path / "file").write_text("")
    armed = in_shell("sh", torchprof("env", "-o", "file/run").stdout, tmp_path, {})
    script = program(TRAIN)
    said = [subprocess.run([torch_python, script], env=armed, cwd=tmp_path, input="go\nend\n", capture_output=True, text=True, timeout=PATIENCE) for _ in range(2)]
    assert [done.returncode for done in said] == [0, 0]
    lines = "".join(done.stderr for done in said).splitlines()  # two programs and a child of each
    assert len(lines) == 1 and lines[0].startswith("torchprof: cannot write to " + str(tmp_path / "file/run/spool"))
    armed = in_shell("sh", torchprof("env", "-o", "%q{NOT_SET}/" + tmp_path.name).stdout, tmp_path, {})
    said = [subprocess.run([torch_python, "-c", "pass"], env=armed, capture_output=True, text=True, timeout=PATIENCE).stderr for _ in range(3)]
    assert len("".join(said).splitlines()) == 1 and "variable NOT_SET is not set; this process is not profiled" in said[0]


def test_a_child_goes_where_its_parent_goes(torchprof, torch_python, program, tmp_path):
    """Also where the pattern, which somebody has set by hand, says something else for it."""
    armed = in_shell("sh", torchprof("env", "-w", "all").stdout, tmp_path, {})
    script = program("import os\n" + TRAIN.replace("    subprocess", "    os.chdir('/')\n    subprocess"))
    for pattern in ("of-%p-%h", "relative 100%%"):
        work = tmp_path / pattern.replace("%", "")
        work.mkdir()
        done = subprocess.run([torch_python, script], env={**armed, "TORCHPROF_OUTPUT": pattern}, cwd=work, input="end\n", capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (0, "")
        (run,) = work.iterdir()
        assert operators(torchprof, run)["of_the_armed"]["calls"] == 13


def test_another_user_has_a_directory_beside_it(torchprof, prefix, program):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can be another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # that others may look into
        work = pathlib.Path(place)
        work.chmod(0o1777)
        shutil.copytree(prefix, work / "installed")
        script = work / "program.py"
        script.write_text(TRAIN)
        armed = subprocess.run([work / "installed" / "bin" / "torchprof", "env", "-w", "all", "-o", "run"], cwd=work, capture_output=True, text=True, check=True).stdout
        env = in_shell("sh", armed, work, {"HOME": place})
        for command in ([], ["setpriv", "--reuid", "1234", "--regid", "1234", "--clear-groups"]):
            done = subprocess.run([*command, "/usr/bin/python3", script], env=env, cwd=work, input="end\n", capture_output=True, text=True, timeout=PATIENCE)
            assert (done.returncode, done.stderr) == (0, ""), done
        for run, user in (("run", 0), ("run-1234", 1234)):
            assert (work / run).stat().st_uid == user
            assert operators(torchprof, work / run)["of_the_armed"]["calls"] == 13
