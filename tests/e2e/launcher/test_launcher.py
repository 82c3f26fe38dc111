"""What torchprof says and does before and after the command: options, environment, run directory, doctor, report, export."""
import gzip
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import PATIENCE, ROOT, SUBCOMMANDS, clean_environment

pytestmark = pytest.mark.once

PYTHON = sys.executable
ON_OFF = "is not allowed: off or on"
FORMATS = "kineto, kineto-ranks, perfetto, perfetto-ranks, chrome-legacy, json-stream, stacks, stacks-cuda, speedscope, pprof, " \
    "memory-timeline, memory-timeline-raw, memory-timeline-html, memory-snapshot, sqlite, table"

# Arguments after `torchprof`, variables, the line on stderr. The command would leave a file named "started".
REFUSED = {
    "no subcommand": ([], {}, "the subcommand is missing: torchprof run COMMAND; see `torchprof help`"),
    "a command without run": (["touch", "started"], {},
                              "'touch' is not a subcommand; to profile it: torchprof run touch ...; see `torchprof help`"),
    "a mistyped subcommand": (["reprot", "run"], {}, "'reprot' is not a subcommand (did you mean 'report'?); to profile it: torchprof run reprot ...; "
                              "see `torchprof help`"),
    "a mistyped table": (["report", ".", "-t", "kernel"], {},
                         "report: --tables: 'kernel' is not a table: ops, kernels, calls, modules, memory, python, steps, comms, threads, gpu, launches, critical, processes, profiler, advice (did you mean 'kernels'?)"),
    "the beginning of a table": (["report", ".", "-t", "ops,mo"], {},
                                 "report: --tables: 'mo' is not a table: ops, kernels, calls, modules, memory, python, steps, comms, threads, gpu, launches, critical, processes, profiler, advice (did you mean 'modules'?)"),
    "a mistyped order": (["report", ".", "--sort", "slef"], {},
                         "report: --sort: 'slef' is not self, total, calls, average or a column of `torchprof help report` (did you mean 'self'?)"),
    "a mistyped column": (["report", ".", "-t", "ops", "-c", "cals"], {},
                          "report: --columns: 'cals' is not a column of `torchprof help report` for ops (did you mean 'calls'?)"),
    "a mistyped grouping": (["report", ".", "-g", "shapes"], {},
                            "report: --group-by: 'shapes' is not shape, stack:N, module, thread, overload or line (did you mean 'shape'?)"),
    "a mistyped format": (["run", "--format", "perfeto", "touch", "started"], {},
                          "--format: 'perfeto' is not a format of this version: %s or none (did you mean 'perfetto'?)" % FORMATS),
    "a mistyped level": (["run", "--python", "call", "touch", "started"], {},
                         "--python: 'call' is not allowed: off, modules, functions or calls (did you mean 'calls'?)"),
    "a mistyped format to export": (["export", ".", "-f", "perfeto", "-o", "x"], {},
                                    "export: --format: 'perfeto' is not a format of this version: %s, parquet (did you mean 'perfetto'?)" % FORMATS),
    "a mistyped metric": (["diff", ".", ".", "--fail-over", "1", "--metric", "op"], {},
                          "diff: --metric: 'op' is not a metric: step, total, ops, modules, kernels, cuda, python, calls, allocated, memory (did you mean 'ops'?)"),
    "run without a command": (["run"], {}, "run: the command is missing: torchprof run [OPTIONS] [--] COMMAND [ARG...]"),
    "options without a command": (["run", "--ops", "off", "--"], {},
                                  "run: the command is missing: torchprof run [OPTIONS] [--] COMMAND [ARG...]"),
    "an unknown option": (["run", "--pyhton", "off", "touch", "started"], {}, "run: --pyhton: no such option (did you mean '--python'?); see `torchprof help run`"),
    "an unknown letter": (["run", "-x", "touch", "started"], {}, "run: -x: no such option; see `torchprof help run`"),
    "a bad level": (["run", "--python", "all", "touch", "started"], {},
                    "--python: 'all' is not allowed: off, modules, functions or calls"),
    "a bad switch": (["run", "--ops=yes", "touch", "started"], {}, "--ops: 'yes' " + ON_OFF),
    "a bad size": (["run", "--max-size", "lots", "touch", "started"], {},
                   "--max-size: 'lots' is not a size: a whole number with K, M, G or T, from 1M"),
    "too small a size": (["run", "--max-size", "1023K", "touch", "started"], {},
                         "--max-size: '1023K' is not a size: a whole number with K, M, G or T, from 1M"),
    "a bad format": (["run", "--format", "kineto,xml", "touch", "started"], {},
                     "--format: 'xml' is not a format of this version: %s or none" % FORMATS),
    "a window that is none": (["run", "-w", "steps=5..2", "touch", "started"], {},
                              "--window: 'steps=5..2' is not a window: FIRST..LAST, steps count from 0"),
    "a line break in a value": (["run", "--ops", "a\nb", "touch", "started"], {}, "--ops: 'a?b' " + ON_OFF),
    "an option without its value": (["run", "--python"], {},
                                    "run: --python: the value is missing: off|modules|functions|calls; see `torchprof help run`"),
    "an empty value": (["run", "--output=", "touch", "started"], {}, "run: --output=: the value is missing; see `torchprof help run`"),
    "a bad variable": (["run", "touch", "started"], {"TORCHPROF_GPU": "maybe"}, "TORCHPROF_GPU: 'maybe' is not allowed: off, kernels, on or full"),
    "a bad flag variable": (["run", "touch", "started"], {"TORCHPROF_QUIET": "yes"}, "TORCHPROF_QUIET: 'yes' is not allowed: 0 or 1"),
    "an unknown variable": (["run", "touch", "started"], {"TORCHPROF_PYHTON": "off"},
                            "TORCHPROF_PYHTON: no such variable; `torchprof help run` lists them"),
    "an unknown placeholder": (["run", "-o", "x%z", "touch", "started"], {},
                               "output 'x%z': %z is not a placeholder: %h, %j, %p, %t, %u, %q{NAME} or %%"),
    "a lone percent sign": (["run", "-o", "x%", "touch", "started"], {}, "output 'x%': a lone % at its end: %% is a percent sign"),
    "a placeholder without its variable": (["run", "-o", "%q{NOT_SET}", "touch", "started"], {},
                                           "output '%q{NOT_SET}': variable NOT_SET is not set"),
    "nowhere to merge to": (["merge", "1"], {}, "merge: --output is required; see `torchprof help merge`"),
    "a table that is none": (["report", ".", "--tables", "ops,colours"], {},
                             "report: --tables: 'colours' is not a table: ops, kernels, calls, modules, memory, python, steps, comms, threads, gpu, launches, critical, processes, profiler, advice"),
    "an order that is none": (["report", ".", "--sort", "age"], {},
                              "report: --sort: 'age' is not self, total, calls, average or a column of `torchprof help report`"),
    "a column that is none": (["report", ".", "--tables", "steps", "--columns", "pid,age"], {},
                              "report: --columns: 'age' is not a column of `torchprof help report` for steps"),
    "columns of several tables": (["report", ".", "--columns", "pid"], {}, "report: --columns needs one table: --tables ops --columns ..."),
    "two styles": (["report", ".", "--json", "--csv"], {}, "report: only one of --json, --csv and --markdown"),
    "rows that are no number": (["report", ".", "--top", "-3"], {},
                                "report: --top: '-3' is not a whole number of 1 or more; see `torchprof help report`"),
    "one argument too many": (["report", "a", "b"], {}, "report: b: one argument too many; see `torchprof help report`"),
    "a format that is none": (["export", ".", "--format", "xml", "-o", "x"], {},
                              "export: --format: 'xml' is not a format of this version: %s, parquet" % FORMATS),
    "as many outputs as formats": (["export", ".", "--format", "kineto,table,json-stream", "-o", "x", "-o", "y"], {},
                                   "export: -o was given 2 times for 3 formats: once for each, or one directory"),
    "an input that is not there": (["report", "nowhere"], {}, "nowhere: No such file or directory"),
    "an output that is a file": (["run", "-o", "a_file", "touch", "started"], {},
                                 "{dir}/a_file: exists and is not a directory; choose another with -o"),
    "an output below a file": (["run", "-o", "a_file/run", "touch", "started"], {},
                               "{dir}/a_file/run: cannot make the run directory: Not a directory"),
    "an output that cannot be made": (["run", "-o", "/proc/run", "touch", "started"], {},
                                      "/proc/run: cannot make the run directory: No such file or directory"),
    "somebody else's directory": (["run", "-o", "theirs", "touch", "started"], {},
                                  "{dir}/theirs: is not empty and not a run directory of torchprof; choose another with -o"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_clear_line_before_the_command_starts(torchprof, tmp_path, case):
    arguments, variables, line = REFUSED[case]
    (tmp_path / "a_file").touch()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "run.json").write_text("{}")
    done = torchprof(*arguments, env=variables)
    assert done.stderr == "torchprof: %s\n" % line.replace("{dir}", str(tmp_path))
    assert (done.returncode, done.stdout) == (125, "")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a_file", "run.json", "theirs"]


NOT_STARTED = {
    "no such command": (["nowhere-to-be-found"], 127,
                        "cannot start 'nowhere-to-be-found': No such file or directory: no directory of PATH has it"),
    "a file here": (["a_file"], 127,
                    "cannot start 'a_file': No such file or directory: no directory of PATH has it; the one in this directory is ./a_file"),
    "no such file": (["./none"], 127, "cannot start './none': No such file or directory: there is no such file in ."),
    "no such directory": (["none/at/all"], 127, "cannot start 'none/at/all': No such file or directory: there is no directory none/at"),
    "not executable": (["./a_file"], 126,
                       "cannot start './a_file': Permission denied: it is not executable: `chmod +x` it, or put its interpreter before it"),
    "a directory": (["/tmp"], 126, "cannot start '/tmp': Permission denied: it is a directory"),
    "begins with a dash": (["--", "--none"], 127, "cannot start '--none': No such file or directory: no directory of PATH has it"),
}


@pytest.mark.parametrize("case", NOT_STARTED)
def test_a_command_that_cannot_be_started_leaves_nothing_behind(torchprof, tmp_path, case):
    command, status, line = NOT_STARTED[case]
    (tmp_path / "a_file").touch()
    done = torchprof("run", *command)
    assert (done.returncode, done.stderr) == (status, "torchprof: %s\n" % line)
    bare = subprocess.run(["env", *command], cwd=tmp_path, capture_output=True)
    assert bare.returncode == status
    assert [path.name for path in tmp_path.iterdir()] == ["a_file"]


def test_what_follows_the_command_belongs_to_it(run_torchprof):
    words = ["[a,b]", "", "{}", "--", "-o", "--help", "run", "%p", "a b", "--ops=off"]
    assert run_torchprof(["printf", "<%s>", *words]).stdout == "".join("<%s>" % word for word in words)


def test_an_option_wins_over_its_variable(run_torchprof):
    show = ["sh", "-c", "echo $TORCHPROF_OPS $TORCHPROF_PYTHON $TORCHPROF_QUIET $TORCHPROF_SHAPES"]
    run = run_torchprof(show, options=["--ops", "on", "--python=calls"], env={"TORCHPROF_OPS": "off", "TORCHPROF_QUIET": "1"})
    assert (run.stdout, run.stderr) == ("on calls 1\n", "")


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_fits_a_terminal(torchprof, subcommand):
    text = torchprof("help", subcommand).stdout
    assert text.startswith("Usage: torchprof %s " % subcommand) and max(map(len, text.splitlines())) <= 120


def test_help_and_manual_page_know_every_option_and_variable(torchprof):
    configuration = (ROOT / "tracer" / "config" / "config.cpp").read_text()
    settings = re.findall(r'{"(TORCHPROF_\w+)",\s*"(--[\w-]+)"', configuration)
    assert len(settings) > 10
    help_text = torchprof("help", "run").stdout
    manual = (ROOT / "launcher" / "torchprof.1").read_text().replace("\\-", "-")
    assert help_text == torchprof("run", "--help").stdout
    for variable, option in settings:
        assert option in help_text and variable in manual and option in manual, option
    assert max(map(len, torchprof("help").stdout.splitlines())) <= 120
    for subcommand in SUBCOMMANDS:
        assert re.search(r"^\.B torchprof %s\b" % subcommand, manual, re.M), subcommand


def test_version_is_the_projects(torchprof):
    version = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
    assert re.fullmatch(r"torchprof %s( \([0-9a-f]{12}\))?\n" % re.escape(version), torchprof("--version").stdout)


# ---- environment --------------------------------------------------------------------------------------------------------


@pytest.fixture
def library(launcher):
    return launcher.parents[1] / "lib" / "torchprof"


@pytest.fixture
def preloadable(program, tmp_path):
    """Somebody's own library for LD_PRELOAD, which says so."""
    source = program("#include <unistd.h>\n__attribute__((constructor)) static void hello(void) { (void)!write(1, \"loaded \", 7); }", "own.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "own.so", source], check=True)
    return tmp_path / "own.so"


def test_ld_preload_and_pythonpath_keep_the_users_entries_in_their_order(run_torchprof, library, preloadable, tmp_path, program):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("print('customized')")
    script = program("import os, sys\nprint(os.environ['LD_PRELOAD'])\nprint(os.environ['PYTHONPATH'])")
    run = run_torchprof([PYTHON, script], env={"LD_PRELOAD": preloadable, "PYTHONPATH": ":%s:mine" % (tmp_path / "mine")})
    assert run.stdout.splitlines() == [
        "loaded loaded customized",  # into the launcher and into the command
        "%s:%s" % (preloadable, library / "libtorchprof.so"),
        "%s::%s:mine" % (library / "python", tmp_path / "mine"),
    ]


def test_a_terminal_survives_paths_that_dry_run_and_the_library_name(launcher, library):
    name = "a\x1b[31m\u009b\u202eb"
    ours, theirs = os.openpty()
    subprocess.run([launcher, "run", "--dry-run", "-o", "/" + name], stdout=theirs, stderr=subprocess.DEVNULL, env=clean_environment(), check=True)
    os.close(theirs)
    assert b"TORCHPROF_OUTPUT=/a?[31m??b\r\n" in os.read(ours, 1 << 16)
    os.close(ours)
    exact = subprocess.run([launcher, "run", "--dry-run", "-o", "/" + name], capture_output=True, env=clean_environment(), check=True)
    assert ("TORCHPROF_OUTPUT=/%s\n" % name).encode() in exact.stdout
    warned = subprocess.run([PYTHON, "-c", "1"], capture_output=True,
                            env=clean_environment({"LD_PRELOAD": "%s/libtorchprof.so" % library, "TORCHPROF_OUTPUT": "/proc/%s%d" % (name, time.time_ns())}))
    assert b"torchprof: " in warned.stderr and b"/proc/a?[31m" in warned.stderr and b"\x1b" not in warned.stderr, warned.stderr


def test_dry_run_prints_an_environment_for_plain_env(torchprof, launcher, library, tmp_path, program):
    dry = torchprof("run", "--dry-run", "--ops", "off", "-o", "by_env", env={"PYTHONPATH": "a:b"})
    assert (dry.returncode, dry.stderr) == (0, "")
    assert dry.stdout.splitlines() == [
        "TORCHPROF_OUTPUT=%s/by_env" % tmp_path,
        "TORCHPROF_OPS=off",
        "NVTX_INJECTION64_PATH=%s/libtorchprof.so" % library,
        "PYTHONPATH=%s/python:a:b" % library,
        "LD_PRELOAD=%s/libtorchprof.so" % library,
    ]
    assert not (tmp_path / "by_env").exists()
    script = program("def unmistakable(): pass\nunmistakable()")
    subprocess.run(["sh", "-c", "env $(\"$0\" run --dry-run -o by_env) \"$@\"", launcher, PYTHON, script], cwd=tmp_path,
                   env=clean_environment(), check=True)
    assert "unmistakable" in torchprof("report", "by_env", "--tables", "python", "--top", "1000").stdout
    completed = torchprof("export", "by_env")
    assert completed.returncode == 0 and list((tmp_path / "by_env").glob("trace.json.gz")), completed.stderr


def test_disabled_means_that_nothing_is_captured(run_torchprof, program):
    run = run_torchprof([PYTHON, program("raise SystemExit(4)")], env={"TORCHPROF_DISABLE": "1"})
    assert (run.status, run.stderr) == (4, "torchprof: TORCHPROF_DISABLE is set: nothing is captured\n")
    assert not run.directory.exists()


def test_a_missing_library_is_one_line(launcher, tmp_path):
    alone = tmp_path / "bin" / "torchprof"
    alone.parent.mkdir()
    shutil.copy(launcher, alone)
    done = subprocess.run([alone, "run", "true"], capture_output=True, text=True, env=clean_environment(), cwd=tmp_path)
    assert done.returncode == 125
    assert done.stderr == ("torchprof: libtorchprof.so is not beside this program: looked for %s/lib/torchprof/libtorchprof.so; "
                           "install torchprof again\n" % tmp_path)


# ---- what cannot be traced ------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(program, tmp_path):
    def compile_with(*options):
        source = program("int main(void) { return 5; }", "main.c")
        subprocess.run(["cc", "-o", tmp_path / "main", source, *options], check=True)
        return tmp_path / "main"
    return compile_with


def test_a_musl_program_is_refused(run_torchprof, compiled):
    target = compiled("-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    run = run_torchprof([target])
    assert run.status == 125 and not run.directory.exists()
    assert run.stderr == ("torchprof: %s: is built for musl (Alpine); libtorchprof.so needs glibc, and with it preloaded the program "
                          "would not start\n" % target)


def test_a_script_for_a_musl_program_is_refused(run_torchprof, compiled, program):
    target = compiled("-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    script = program("#!%s -x\n" % target, "script")
    script.chmod(0o755)
    assert run_torchprof([script]).status == 125


def test_a_static_program_runs_untraced_and_is_said_to(run_torchprof, compiled):
    target = compiled("-static")
    run = run_torchprof([target])
    assert run.status == 5
    assert run.stderr.splitlines()[0] == "torchprof: %s: is statically linked, so nothing can be preloaded into it: it will run untraced" % target
    assert "torchprof: no process of the command was traced." in run.stderr


def test_a_setuid_program_runs_untraced_and_is_said_to(run_torchprof, compiled):
    target = compiled()
    if os.getuid() == 0:
        os.chown(target, 65534, 65534)
        target.chmod(0o4755)
    else:
        target = shutil.which("mount")  # setuid root everywhere
    assert "is setuid, setgid or has capabilities, for which ld.so ignores LD_PRELOAD" in run_torchprof([target]).stderr


# ---- the run directory ------------------------------------------------------------------------------------------------------


def test_run_json_says_what_was_run_and_what_came_of_it(run_torchprof, program, tmp_path):
    command = [PYTHON, program("def f(): pass\nf()"), "an argument"]
    run = run_torchprof(command, options=["--ops", "off"])
    info = json.loads((run.directory / "run.json").read_text())
    assert info["command"] == list(map(str, command)) and info["directory"] == str(tmp_path)
    assert info["environment"]["TORCHPROF_OPS"] == "off" and info["environment"]["TORCHPROF_OUTPUT"] == str(run.directory)
    assert info["host"] == os.uname().nodename and os.uname().release in info["kernel"]
    assert info["start"] < info["end"] and 0 < info["seconds"] < 60
    assert info["exported"] and info["unreadable"] == [] and info["still_running"] == []
    assert sorted(info["files"]) == ["summary.txt", "trace.json.gz"]
    (process,) = info["processes"]
    assert process["trace"] == run.trace_paths[0].name and process["clean_exit"] and process["lost"] == {}
    assert process["events"]["python"] > 0 and process["events"]["operators"] == 0
    assert process["sources"]["python"]["state"] == "on"


def test_an_exported_run_is_replaced_and_what_lies_beside_it_stays(run_torchprof, program, tmp_path):
    script = program("print(1)")
    first = run_torchprof([PYTHON, script], directory=tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    second = run_torchprof([PYTHON, script], directory=tmp_path / "run")
    assert "torchprof: %s: the earlier run in it was replaced\n" % (tmp_path / "run") in second.stderr
    assert len(second.trace_paths) == 1 and first.trace_paths == second.trace_paths
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_a_run_that_was_not_exported_is_never_replaced(run_torchprof, program, tmp_path):
    script = program("print(1)")
    run_torchprof([PYTHON, script], directory=tmp_path / "run", options=["--format", "none"])
    before = sorted(tmp_path.rglob("*.spool"))
    again = run_torchprof([PYTHON, script], directory=tmp_path / "run")
    assert again.status == 125 and "holds an earlier run that was not exported" in again.stderr
    assert len(before) == 1 and sorted(tmp_path.rglob("*.spool")) == before


def test_the_default_directory_is_named_by_time_and_process(torchprof, program, tmp_path):
    torchprof("run", PYTHON, program("pass"))
    (run,) = tmp_path.glob("torchprof-*")
    assert re.fullmatch(r"torchprof-\d{8}-\d{6}-\d+", run.name)


def test_placeholders_and_percent_signs_of_the_output(run_torchprof, program, tmp_path):
    run_torchprof([PYTHON, program("pass")], directory=tmp_path / "100%%" / "%h-%q{JOB}", env={"JOB": "7"}, cwd=tmp_path)
    assert list((tmp_path / "100%" / ("%s-7" % os.uname().nodename)).glob("trace.json.gz"))


WHAT_IS_WRITTEN = {
    "everything": ([], {"summary.txt", "trace.json.gz", "spool"}),
    "no table": (["--format", "kineto"], {"trace.json.gz", "spool"}),
    "a table alone": (["--format", "table"], {"summary.txt", "spool"}),
    "nothing": (["--format", "none"], {"spool"}),
    "nothing to be discarded": (["--format", "none", "--discard"], {"spool"}),
    "a file for each process": (["--format", "kineto-ranks"], {"processN.pt.trace.json.gz", "spool"}),
    "both": (["--format", "kineto,kineto-ranks"], {"trace.json.gz", "processN.pt.trace.json.gz", "spool"}),
    "without the raw records": (["--discard"], {"summary.txt", "trace.json.gz"}),
    "with them, said twice": (["--discard", "--keep-spool"], {"summary.txt", "trace.json.gz", "spool"}),
}


@pytest.mark.parametrize("case", WHAT_IS_WRITTEN)
def test_the_formats_decide_what_is_written(run_torchprof, program, case):
    options, expected = WHAT_IS_WRITTEN[case]
    run = run_torchprof([PYTHON, program("import os; print(os.getpid())")], options=options)
    names = {path.name.replace("process" + run.stdout.strip(), "processN") for path in run.directory.iterdir()}
    assert names == expected | {"run.json"}, run.stderr
    listed = json.loads((run.directory / "run.json").read_text()).get("files", [])
    assert {name.replace(run.stdout.strip(), "N") for name in listed} == expected - {"spool"}


def test_several_processes_are_merged(run_torchprof, check_trace, program):
    run = run_torchprof([PYTHON, program("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])")])
    assert len(run.trace_paths) == 2
    check_trace(run.merged_path, merged=True)


def test_the_end_says_where_the_trace_is_and_what_took_the_time(run_torchprof, torch_python, program):
    run = run_torchprof([torch_python, program("import torch\nmodel = torch.nn.Linear(4, 4)\nmodel(torch.ones(1, 4))")])
    lines = run.stderr.splitlines()
    assert [line for line in lines if line.startswith("torchprof: ")] == lines[:1] and re.match("torchprof: 1 process, ", lines[0]), run.stderr
    for part in ["trace: %s\n" % run.trace_paths[0], "https://ui.perfetto.dev", "chrome://tracing", "aten::linear", "Linear_0"]:
        assert part in run.stderr, part
    assert (run.directory / "summary.txt").read_text().strip()


def test_quiet_says_nothing(run_torchprof, program):
    run = run_torchprof([PYTHON, program("pass")], options=["-q"])
    assert run.stderr == "" and len(run.trace_paths) == 1


def test_nothing_traced_is_said_with_the_likely_causes(run_torchprof):
    run = run_torchprof(["true"])
    assert run.status == 0
    assert "torchprof: no process of the command was traced." in run.stderr and "torchprof doctor" in run.stderr


def test_a_disk_without_room_for_run_json_stops_before_the_command(launcher, mount_namespace, program, tmp_path):
    (tmp_path / "disk").mkdir()
    script = program(textwrap.dedent("""
        mount -t tmpfs -o size=4k,nr_inodes=8 none disk || exit 99
        head -c 4096 /dev/zero > disk/full
        exec "$1" run -o disk/run -- touch started
        """), "script.sh")
    done = subprocess.run([*mount_namespace, "bash", script, launcher], cwd=tmp_path, capture_output=True, text=True,
                          env=clean_environment(), timeout=PATIENCE)
    assert done.returncode == 125 and "No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "started").exists()


def test_a_disk_without_room_for_the_trace_keeps_the_spool_and_the_status(launcher, mount_namespace, program, tmp_path):
    (tmp_path / "disk").mkdir()
    calls = program("import random\nfor _ in range(30000): random.random(), random.choice('ab')\nprint('over')\nraise SystemExit(6)")
    script = program(textwrap.dedent("""
        mount -t tmpfs -o size=64m none disk || exit 99
        "$1" run -o disk/run -- "$2" "$3" fills
        echo "status $?"
        ls disk/run disk/run/spool
        """), "script.sh")
    fill = "\nimport os\nos.system('head -c 100m /dev/zero > disk/full 2>/dev/null')\nraise SystemExit(6)"
    calls.write_text(calls.read_text().replace("\nraise SystemExit(6)", fill))
    done = subprocess.run([*mount_namespace, "bash", script, launcher, PYTHON, calls], cwd=tmp_path,
                          capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
    assert done.stdout.startswith("over\nstatus 6\n") and ".spool\n" in done.stdout, done.stdout + done.stderr
    assert "No space left on device" in done.stderr and done.stderr.count("; the raw records stay in ") == 1, done.stderr
    assert ".tmp" not in done.stdout


@pytest.mark.parametrize("command", ["export", "run"])
def test_a_disk_without_room_for_run_json_later_tells_all_the_same(command, launcher, mount_namespace, program, tmp_path):
    (tmp_path / "disk").mkdir()
    calls = program("""
        import os, sys
        def f(): pass
        for _ in range(1000): f()
        fill = os.open("disk/fill", os.O_WRONLY | os.O_CREAT)
        for size in 65536, 4096, 1:
            try:
                while os.write(fill, b"x" * size): pass
            except OSError: pass
        child = os.fork()
        if not child:
            f()
            os._exit(0)
        os.waitpid(child, 0)
        print(child)
        sys.exit(6)
        """.replace("\n        ", "\n"))
    script = program(textwrap.dedent("""
        mount -t tmpfs -o size=16m none disk || exit 99
        "$1" run -o disk/run $3 -- "$2" program.py
        echo "status $?"
        [ -z "$3" ] || "$1" export disk/run
        echo "status $?"
        ls disk/run
        """), "script.sh")
    options = "--format=none" if command == "export" else ""
    done = subprocess.run([*mount_namespace, "bash", script, launcher, PYTHON, options], cwd=tmp_path,
                          capture_output=True, text=True, env=clean_environment(), timeout=PATIENCE)
    child, *others = done.stdout.split("\n", 1)
    assert others == ["status 6\nstatus %d\nrun.json\nspool\n" % (125 if options else 0)], done.stdout + done.stderr
    assert "1 process, " in done.stderr and "process %s, started by" % child in done.stderr, done.stderr
    said, = [line for line in done.stderr.splitlines() if "run.json: No space left on device" in line and "kineto" in line]
    assert "disk/run --format kineto -o FILE` writes the trace elsewhere" in said, said


# ---- report and export ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(run_torchprof, program):
    return run_torchprof([PYTHON, program("def unmistakable(): pass\nfor _ in range(7): unmistakable()")])


def test_report_reads_a_run_its_spools_its_traces_and_each_of_them(torchprof, finished):
    (spool,) = finished.directory.glob("spool/*.spool")
    for what in [finished.directory, finished.directory / "spool", spool, finished.trace_paths[0]]:
        done = torchprof("report", what, "--tables", "python", "--top", "1000")
        assert (done.returncode, done.stderr) == (0, ""), what
        assert re.search(r"\b7\b.*unmistakable|unmistakable.*\b7\b", done.stdout), what
    shutil.rmtree(finished.directory / "spool")
    assert "unmistakable" in torchprof("report", finished.directory, "--tables", "python", "--top", "1000").stdout


def test_run_json_and_the_profiler_table_say_what_writing_took(torchprof, finished):
    took = json.loads((finished.directory / "run.json").read_text())["took_ns"]
    assert list(took) == ["load", "symbols", "kineto", "table"] and all(0 <= ns < 60e9 for ns in took.values()) and took["kineto"] > 0
    done = torchprof("report", finished.directory, "-t", "profiler")
    assert re.search(r"^  writing it took: load [\d.]+ \w+, symbols [\d.]+ \w+, kineto [\d.]+ \w+, table [\d.]+ \w+$", done.stdout, re.M), done.stdout


def test_what_stdout_does_not_take_is_one_line(launcher, finished):
    out, trace = finished.directory, finished.trace_paths[0]
    commands = (["report", out], ["report", out, "--json"], ["diff", trace, trace], ["help"], ["help", "run"], ["--version"],
                ["run", "--dry-run", "true"], ["doctor", "--", "true"])
    for command in commands:
        with open("/dev/full", "w") as full:
            done = subprocess.run([launcher, *command], stdout=full, stderr=subprocess.PIPE, text=True, env=clean_environment())
        assert (done.returncode, done.stderr) == (125, "torchprof: stdout: No space left on device\n"), command
        # As with `| head`. With SIGPIPE ignored nothing is printed either.
        for ignored in (False, True):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([launcher, *command], stdout=writer, stderr=subprocess.PIPE, text=True, env=clean_environment(),
                                  restore_signals=not ignored)
            os.close(writer)
            assert (done.returncode, done.stderr) == (125 if ignored else -signal.SIGPIPE, ""), command


def test_where_on_a_full_stdout_is_one_line(launcher, run_torchprof, program):
    run = run_torchprof([PYTHON, program("import os, signal\ndef killed(): os.kill(os.getpid(), signal.SIGKILL)\nkilled()")])
    with open("/dev/full", "w") as full:
        done = subprocess.run([launcher, "where", run.directory], stdout=full, stderr=subprocess.PIPE, text=True, env=clean_environment())
    assert (done.returncode, done.stderr) == (125, "torchprof: stdout: No space left on device\n")


@pytest.mark.parametrize("key", ["self", "total", "calls", "average"])
def test_report_sorts_by_any_column(torchprof, finished, key):
    lines = torchprof("report", finished.directory, "--tables", "python", "--top", "1000", "--sort", key).stdout.splitlines()
    unit = {"us": 1e3, "ms": 1e6, "s": 1e9}
    title = lines.index("Python functions by " + {"calls": "calls"}.get(key, key + " time"))
    rows = [re.match(r" *([\d.]+) (\w+) +([\d.]+) % +([\d.]+) (\w+) +([\d,]+) +([\d.]+) (\w+)", line)
            for line in itertools.takewhile(bool, lines[title + 2:])]
    assert len(rows) > 20 and all(rows)
    self_ns, total_ns, average_ns = ([float(row[i]) * unit[row[i + 1]] for row in rows] for i in (1, 4, 7))
    values = {"self": self_ns, "total": total_ns, "average": average_ns, "calls": [int(row[6].replace(",", "")) for row in rows]}[key]
    assert values == sorted(values, reverse=True)


def test_export_writes_the_same_trace_from_spools_and_from_traces(torchprof, check_trace, finished, tmp_path):
    torchprof("export", finished.directory, "--format", "kineto", "-o", "from_spool.json")
    shutil.rmtree(finished.directory / "spool")
    done = torchprof("export", finished.directory, "--format", "kineto", "-o", "from_trace.json")
    assert done.returncode == 0, done.stderr
    from_spool, from_trace = [json.loads((tmp_path / name).read_text()) for name in ("from_spool.json", "from_trace.json")]
    assert from_spool["traceEvents"] == from_trace["traceEvents"]
    check_trace(tmp_path / "from_trace.json")


BROKEN_TRACES = {
    "empty": b"", "no JSON": b"hello", "cut": b'{"traceEvents": [{"ph": "X"', "not gzip": b"\x00" * 100,
    "cut gzip": gzip.compress(b'{"traceEvents": []}' * 1000, mtime=0)[:-40],
}


@pytest.mark.parametrize("case", BROKEN_TRACES)
def test_a_broken_trace_is_one_line(torchprof, tmp_path, case):
    for name in ("broken.json", "broken.json.gz"):
        (tmp_path / name).write_bytes(BROKEN_TRACES[case])
        done = torchprof("report", name)
        assert done.returncode == 125 and done.stdout == ""
        assert re.fullmatch(r"torchprof: (cannot read the trace )?broken\.json(\.gz)?: .+\n", done.stderr), done.stderr


def test_a_broken_spool_beside_a_good_one_is_named_and_the_good_one_is_shown(torchprof, finished):
    (finished.directory / "spool" / "host.1.2.spool").write_bytes(b"\x00" * 5000)
    done = torchprof("report", finished.directory)
    assert done.returncode == 0 and "unmistakable" in torchprof("report", finished.directory, "-t", "python", "-n", "999").stdout
    assert re.fullmatch(r"torchprof: \S+/host\.1\.2\.spool: .+\n", done.stderr)


def test_an_export_that_cannot_be_written_is_one_line(torchprof, finished):
    done = torchprof("export", finished.directory, "--format", "kineto", "-o", "nowhere/x.json")
    assert done.returncode == 125 and "nowhere/x.json" in done.stderr and "No such file or directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---- doctor -----------------------------------------------------------------------------------------------------------------------


def test_doctor_says_what_would_be_captured_of_a_python_with_torch(torchprof, torch_python):
    done = torchprof("doctor", "--", torch_python)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nA capture would work.\n")
    for pattern in [r"(?m)^python +%s, version 3\." % re.escape(torch_python), r"(?m)^torch +[12]\.", r"(?m)^  python +on", r"(?m)^  operators +on",
                    r"(?m)^library +/.*libtorchprof\.so$", r"(?m)^clock ", r"(?m)^output .* free",
                    r"(?m)^gpu +(no NVIDIA|a) driver", r"(?m)^nvtx +the program's own"]:
        assert re.search(pattern, done.stdout), pattern + "\n" + done.stdout


def test_doctor_names_the_tools_that_are_there_already(torchprof):
    done = torchprof("doctor", "--", "sh", env={"NVTX_INJECTION64_PATH": "/opt/libtheirs.so", "TORCHPROF_GPU": "off"})
    assert "\ngpu           switched off (--gpu off)\n" in done.stdout
    assert "\nnvtx          off: NVTX_INJECTION64_PATH names /opt/libtheirs.so, which keeps them\n" in done.stdout


def test_doctor_of_every_python(torchprof, python):
    done = torchprof("doctor", "--", python.path)
    assert done.returncode == 0, done.stdout
    assert ("sys.monitoring" if python.version >= (3, 12) else "PyEval_SetProfile") in done.stdout


DOCTOR_SAYS_NO = {
    "no such command": (["nowhere-to-be-found"], {}, "there is no such command"),
    "a broken python": (["./python3"], {}, "ended with status 9: broken"),
    "nowhere to write": ([PYTHON], {"TORCHPROF_OUTPUT": "/proc/x"}, "/proc: nothing can be stored there; name another place"),
    "all switched off": ([PYTHON], {"TORCHPROF_PYTHON": "off", "TORCHPROF_OPS": "off", "TORCHPROF_MEMORY": "off"}, "the library recorded nothing in it"),
    "disabled": ([PYTHON], {"TORCHPROF_DISABLE": "1"}, "TORCHPROF_DISABLE is set: nothing is captured"),
}


@pytest.mark.parametrize("case", DOCTOR_SAYS_NO)
def test_doctor_says_why_not(torchprof, program, case):
    command, variables, part = DOCTOR_SAYS_NO[case]
    program("#!/bin/sh\necho broken\nexit 9\n", "python3").chmod(0o755)
    done = torchprof("doctor", "--", *command, env=variables)
    assert done.returncode == 1 and part in done.stdout and done.stdout.endswith("A capture would not work.\n"), done.stdout


def test_doctor_leaves_nothing_behind(torchprof, torch_python, tmp_path):
    (tmp_path / "tmp").mkdir()
    torchprof("doctor", "--", torch_python, env={"TMPDIR": str(tmp_path / "tmp")})
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]


def test_a_short_command_costs_few_system_calls(launcher, tmp_path):
    """Of `run true`, where nothing is recorded: the launcher starts the command and a witness of signals, and does not ask every process of the machine."""
    for attempt in range(20):
        calls, run = tmp_path / ("calls%d" % attempt), tmp_path / ("run%d" % attempt)
        done = subprocess.run(["strace", "-f", "-qq", "-o", calls, "--seccomp-bpf", "-e", "trace=openat,clone,clone3,fork,vfork", launcher, "run", "-q", "-o", run, "true"],
                              capture_output=True, text=True, env=clean_environment({"PATH": "/usr/bin:/bin"}))
        assert done.returncode == 0, done.stderr
        # After 0.2 s, as on a busy machine, every process is asked.
        if json.loads((run / "run.json").read_text())["seconds"] < 0.1:
            break
    else:
        pytest.fail("`true` took longer than 0.1 s each time")
    lines = calls.read_text().splitlines()
    assert sum(bool(re.search(r"\b(clone3?|v?fork)\(", line)) for line in lines) == 2, lines
    asked = [line for line in lines if "/environ" in line]
    assert len(asked) < min(30, len(list(pathlib.Path("/proc").glob("[0-9]*"))) / 2), asked
    assert len(lines) - len(asked) < 60, lines


BEFALL = {
    "removed": ("shutil.rmtree('run')", "{run} was removed while the command ran, with all that was recorded"),
    "its spool is removed": ("shutil.rmtree('run/spool')", "{run}/spool was removed while the command ran, with all that was recorded"),
    "another one is in its place": ("shutil.rmtree('run'); os.mkdir('run')", "{run} was removed while the command ran, with all that was recorded"),
    "moved": ("os.rename('run', 'there')", "{run} was moved to {there} while the command ran: `torchprof export {there}` writes what was recorded until then"),
}


@pytest.mark.parametrize("what", BEFALL)
def test_the_end_says_what_befell_the_run_directory_and_nothing_else(torchprof, tmp_path, what):
    act, said = BEFALL[what]
    done = torchprof("run", "-o", "run", PYTHON, "-c", "import os, shutil\ndef work(): pass\nwork()\n" + act)
    assert done.returncode == 0
    assert done.stderr == "torchprof: " + said.format(run=tmp_path / "run", there=tmp_path / "there") + "\n"
    if what == "moved":
        assert torchprof("export", "there").returncode == 0 and "<string>(2): work" in torchprof("report", "there", "--top", 10_000).stdout


@pytest.mark.parametrize("pages", [1, 2, 3, 4])
def test_without_room_from_the_start_the_end_names_no_records_that_are_not_there(launcher, mount_namespace, program, tmp_path, pages):
    script = program("""mount -t tmpfs -o size=%dk none full && "$1" run -o full/run "$2" -c pass; find full/run/spool -name '*.spool'\n""" % (4 * pages), "script.sh")
    (tmp_path / "full").mkdir()
    done = subprocess.run([*mount_namespace, "bash", script, launcher, PYTHON], cwd=tmp_path, capture_output=True, text=True, env=clean_environment())
    assert "Likely causes" not in done.stderr and done.stderr.count("No space left on device") >= 1, done.stderr
    has_records = done.stdout != ""
    assert ("never captured (the disk was full)" in done.stderr) == has_records, done.stderr
    assert has_records or ("the raw records" not in done.stderr and "torchprof export" not in done.stderr), done.stderr
