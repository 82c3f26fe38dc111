"""Everything that the command starts is traced, however it is started; what cannot be reached is named."""
import json
import platform
import re
import shutil
import subprocess
import sys

import pytest

from conftest import SUPPORT

PYTHON = "/usr/bin/python3" if sys.executable.startswith("/usr/bin") else sys.executable
CHILD = "def child(): pass\nchild()"
# How a program starts another one so that the child would not have our environment.
LOSING = {
    "env -i": "subprocess.run(['env', '-i', PYTHON, '-c', CHILD], check=True)",
    "subprocess with an empty environment": "subprocess.run([PYTHON, '-c', CHILD], env={}, check=True)",
    "bash and env -i": "subprocess.run(['bash', '-c', 'env -i \"$0\" -c \"$1\"; true', PYTHON, CHILD], check=True)",
    "subprocess without vfork": "subprocess.run([PYTHON, '-c', CHILD], env={}, preexec_fn=int, check=True)",
    "posix_spawn": "os.waitpid(os.posix_spawn(PYTHON, [PYTHON, '-c', CHILD], {}), 0)",
    "posix_spawnp": "os.waitpid(os.posix_spawnp('python3', [PYTHON, '-c', CHILD], {'PATH': os.path.dirname(PYTHON)}), 0)",
    "execve": "os.fork() or os.execve(PYTHON, [PYTHON, '-c', CHILD], {}); os.wait()",
    "execvpe": "os.fork() or os.execvpe('python3', [PYTHON, '-c', CHILD], {'PATH': os.path.dirname(PYTHON)}); os.wait()",
    "fexecve": "os.fork() or os.execve(os.open(PYTHON, os.O_RDONLY), [PYTHON, '-c', CHILD], {}); os.wait()",
    "system after clearing the environment": "os.environ.clear(); os.system(PYTHON + ' -c \"def child(): pass\nchild()\"')",
    "popen of libc after clearing the environment": "os.environ.clear(); libc.pclose(libc.popen((PYTHON + ' -c \"def child(): pass\nchild()\"').encode(), b'w'))",
    "execl of libc": "os.fork() or (os.environ.clear(), libc.execl(PYTHON.encode(), PYTHON.encode(), b'-c', CHILD.encode(), None)); os.wait()",
    "execlp of libc": "os.fork() or (os.environ.clear(), libc.execlp(PYTHON.encode(), PYTHON.encode(), b'-c', CHILD.encode(), None)); os.wait()",
    "execveat of libc": "os.fork() or libc.execveat(-100, PYTHON.encode(), (ctypes.c_char_p * 4)(PYTHON.encode(), b'-c', CHILD.encode(), None), (ctypes.c_char_p * 1)(None), 0); os.wait()",
    "execle of libc": "os.fork() or libc.execle(PYTHON.encode(), PYTHON.encode(), b'-c', CHILD.encode(), None, (ctypes.c_char_p * 1)(None)); os.wait()",
}
HEAD = "import ctypes, os, subprocess\nPYTHON, CHILD = %r, %r\nlibc = ctypes.CDLL(None); libc.popen.restype = ctypes.c_void_p; libc.pclose.argtypes = [ctypes.c_void_p]\n"


@pytest.mark.parametrize("way", LOSING)
def test_a_child_that_loses_its_environment_is_traced(run_torchprof, program, check_trace, way):
    run = run_torchprof([PYTHON, program(HEAD % (PYTHON, CHILD) + LOSING[way].replace("\n", "\\n"))])
    assert run.status == 0, run.stderr
    assert [True for trace in run.traces() if "<string>(1): child" in trace.names("python_function")] == [True], run.stderr
    check_trace(run.merged_path, merged=True)


def test_a_child_sees_its_own_variables_and_ours_only(run_torchprof, program):
    text = "import subprocess; print(subprocess.run(['env'], env={'MINE': 'a b', 'LD_PRELOAD': ''}, capture_output=True, text=True).stdout)"
    run = run_torchprof([PYTHON, program(text)])
    seen = dict(line.split("=", 1) for line in run.stdout.split("\n") if line)
    assert seen.pop("MINE") == "a b" and seen.pop("LD_PRELOAD").endswith("libtorchprof.so")
    assert all(name.startswith("TORCHPROF_") or name == "NVTX_INJECTION64_PATH" for name in seen), seen


def test_torchprof_disable_in_a_childs_environment_keeps_us_out(run_torchprof, program):
    text = "import subprocess; print(subprocess.run(['env'], env={'TORCHPROF_DISABLE': '1'}, capture_output=True, text=True).stdout, end='')"
    assert run_torchprof([PYTHON, program(text)]).stdout == "TORCHPROF_DISABLE=1\n"


def test_errors_of_starting_a_program_are_libcs_own(run_torchprof, run_bare, program, tmp_path):
    (tmp_path / "text").write_text("no program")
    text = """
import ctypes, os, subprocess
def tried(f, *args):
    try: return f(*args)
    except OSError as e: return e.errno, e.filename
print(tried(os.execve, '/no/such', ['x'], {}), tried(os.execve, 'text', ['x'], {}), tried(os.execvp, 'no-such-program', ['x']))
print(tried(os.posix_spawn, '/no/such', ['x'], {}), tried(os.posix_spawnp, 'no-such-program', ['x'], {}))
print(tried(subprocess.run, ['/no/such']), os.system('exit 3'), os.system('kill -9 $$'), ctypes.CDLL(None).system(None))
"""
    command = [PYTHON, program(text)]
    bare, run = run_bare(command), run_torchprof(command)
    assert bare.returncode == 0 and (run.status, run.stdout_bytes) == (0, bare.stdout), run.stderr


def test_what_cannot_be_reached_is_named(run_torchprof, program, tmp_path):
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", tmp_path / "static", tmp_path / "x.c"], check=True)
    (tmp_path / "script").write_text("#! %s -x\n" % (tmp_path / "static"))
    (tmp_path / "script").chmod(0o755)
    text = "import subprocess\nfor name in 'static', 'static', 'script': subprocess.run(['./' + name], env={}, check=True)"
    run = run_torchprof([PYTHON, program(text)], cwd=tmp_path)
    reason = "is statically linked, so nothing can be preloaded into it"
    listed = json.loads((run.directory / "run.json").read_text())["untraced"]
    assert listed == [{"program": "./static", "reason": reason, "times": 2}, {"program": str(tmp_path / "static"), "reason": reason, "times": 1}]
    assert "untraced: ./static (2 times) " + reason in run.stderr


def test_ldconfig_is_no_program_that_could_not_be_traced(run_torchprof, program):
    """It is static, and ctypes.util and Triton ask it where libraries lie."""
    run = run_torchprof([PYTHON, program("import subprocess\nsubprocess.run(['/sbin/ldconfig', '-p'], stdout=subprocess.DEVNULL, check=True)")])
    assert run.status == 0 and "untraced" not in run.stderr
    assert json.loads((run.directory / "run.json").read_text()).get("untraced", []) == []


def test_a_shim_that_runs_many_helpers_leaves_the_program_alone(run_torchprof, program, tmp_path):
    """As pyenv's: a script of bash that asks some ninety small programs which Python it is, and becomes that."""
    (tmp_path / "shims").mkdir()
    shim = program("#!/usr/bin/env bash\nfor i in $(seq 30); do where=$(dirname \"$(readlink -f %s)\"); true | cat; done\nexec %s \"$@\"\n" % (PYTHON, PYTHON), "shims/python3")
    shim.chmod(0o755)
    run = run_torchprof(["python3", program(CHILD)], env={"PATH": "%s:/usr/bin:/bin" % shim.parent})
    assert run.status == 0, run.stderr
    listed = json.loads((run.directory / "run.json").read_text())
    assert len(listed["processes"]) == 1 and listed["untraced"] == []
    assert sorted(p.suffix or p.name for p in (run.directory / "spool").iterdir()) == [".spool", "uncaptured", "used"] and "child" in run.trace().text


def test_a_program_for_musl_starts_without_us(run_torchprof, program, tmp_path):
    """A program whose dynamic linker says ld-musl: a link to glibc's, which shows what is preloaded."""
    (tmp_path / "x.c").write_text('#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv("LD_PRELOAD") ? "preloaded" : "clean"); }\n')
    linker = tmp_path / ("ld-musl-%s.so.1" % platform.machine())
    linker.symlink_to({"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}[platform.machine()])
    subprocess.run(["cc", "-o", tmp_path / "musl", tmp_path / "x.c", "-Wl,--dynamic-linker=%s" % linker], check=True)
    run = run_torchprof([PYTHON, program("import subprocess; subprocess.run(['./musl'], check=True)")], cwd=tmp_path)
    assert run.stdout == "clean\n" and "is built for musl" in run.stderr


BAD_POINTERS = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
for name in 'execve', 'execvpe', 'fexecve', 'execveat', 'posix_spawn', 'posix_spawnp':
    getattr(libc, name).argtypes = None
page = libc.mmap(None, 8192, 3, 0x22, -1, 0)
libc.mprotect(page + 4096, 4096, 0)  # nothing can be read behind the first page
ctypes.memmove(page + 4096 - 16, b'ENDLESS=........', 16)
ctypes.c_void_p.from_address(page + 4096 - 24).value = page + 100
good = (ctypes.c_char_p * 2)(b'true', None)
def array(*values): return ctypes.cast((ctypes.c_void_p * 4)(*values), ctypes.c_void_p)
MANY = array(page, 8)
UNENDED = ctypes.c_void_p(page + 4096 - 24)  # an entry, then no pointer; then no null pointer
CASES = {'no pointer': ctypes.c_void_p(8), 'of the kernel': ctypes.c_void_p(-4096), 'an entry that is none': MANY, 'unended': UNENDED,
         'an entry that is unended': array(page + 4096 - 16), 'not aligned': ctypes.c_void_p(page + 4096 - 4)}
file = os.open('/bin/true', os.O_RDONLY)
pid = ctypes.c_int()
for case, bad in CASES.items():
    for which in 'argv', 'envp':
        argv, envp = (bad, array(None)) if which == 'argv' else (good, bad)
        results = []
        calls = [lambda: libc.execve(b'/bin/true', argv, envp), lambda: libc.execvpe(b'true', argv, envp), lambda: libc.fexecve(file, argv, envp),
                 lambda: libc.execveat(-100, b'/bin/true', argv, envp, 0)]
        if which == 'envp':  # libc itself counts what is in argv
            calls += [lambda: libc.posix_spawn(ctypes.byref(pid), b'/bin/true', None, None, argv, envp),
                      lambda: libc.posix_spawnp(ctypes.byref(pid), b'true', None, None, argv, envp)]
        for call in calls:
            ctypes.set_errno(0)
            results.append((call(), ctypes.get_errno()))
        print(case, which, *results)
for path in 8, None: print(libc.execve(ctypes.c_void_p(path), good, None), ctypes.get_errno(), libc.execveat(-100, ctypes.c_void_p(path), good, None, 0), ctypes.get_errno())
"""


def test_pointers_that_are_none_are_the_kernels_to_answer(run_torchprof, run_bare, program):
    command = [PYTHON, program(BAD_POINTERS)]
    bare, run = run_bare(command), run_torchprof(command)
    assert bare.returncode == 0 and bare.stdout.count(b"(-1, 14)") == 48 and bare.stdout.count(b"(14, ") == 12, bare  # EFAULT
    assert (run.status, run.stdout_bytes) == (0, bare.stdout), run.stderr


EXEC = ["execv", "execve", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat"]
WAYS = [(way, maker) for way in EXEC for maker in ("fork", "vfork", "fork inside", "vfork inside")] + [("posix_spawn", "spawn"), ("posix_spawnp", "spawn")]


@pytest.fixture(scope="module")
def on_small_stack(tmp_path_factory):
    """The program of exec_stack.c. With every symbol bound at its start: the linker's own use of stack would hide ours."""
    directory = tmp_path_factory.mktemp("exec_stack")
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-Wl,-z,now", "-o", directory / "exec_stack", SUPPORT / "exec_stack.c"], check=True)
    (directory / "x.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", directory / "static", directory / "x.c"], check=True)
    (directory / "script").write_text("#! %s -x\n" % (directory / "static"))
    (directory / "script").chmod(0o755)
    return directory / "exec_stack"


@pytest.mark.parametrize("target, is_gone", [("/bin/true", False), ("static", False), ("script", False), ("/bin/true", True)])
def test_programs_start_from_a_handler_on_a_stack_of_8_kib(run_bare, prefix, on_small_stack, tmp_path, target, is_gone):
    """Where there is little else on it (of AVX-512's registers a signal's frame alone has 3 KiB) ours is below 1 KiB."""
    directory = on_small_stack.parent
    path = "%s:%s" % (directory, "/bin:/usr/bin")
    library = prefix / "lib" / "torchprof" / "libtorchprof.so"
    ours = {"LD_PRELOAD": library, "TORCHPROF_OUTPUT": tmp_path / "run", "PATH": path}
    if is_gone: ours["LD_PRELOAD"] = ours["GONE"] = tmp_path / "libtorchprof.so"
    (tmp_path / "run" / "spool").mkdir(parents=True)
    for way, maker in WAYS:
        command = [on_small_stack, way, maker, 8192, target if target[0] == "/" else directory / target, target.split("/")[-1]]
        if is_gone: shutil.copy(library, tmp_path)
        bare, run = run_bare(command, env={"PATH": path}), run_bare(command, env=ours)
        assert b"ld.so" not in run.stderr
        assert (bare.returncode, run.returncode, run.stdout) == (0, 0, bare.stdout), (run, bare)
        touched = [int(re.search(rb"touched (\d+)", r.stderr)[1]) for r in (bare, run)]
        assert touched[1] <= touched[0] + 1024, (command, touched)
    assert (tmp_path / "run" / "spool" / "untraced").exists() == (is_gone or target != "/bin/true")


FORKS = r"""
import os, sys
import torch
DEPTH = 5
def functions(depth):  # more than a chunk of definitions in each process
    text = "".join("def function_%03d_of_depth_%d_with_a_name_that_takes_room(x): return x\n" % (n, depth) for n in range(400))
    made = {}
    exec(compile(text, "depth %d" % depth, "exec"), made)
    return [f for name, f in made.items() if name.startswith("function")]
known = []
for depth in range(DEPTH + 1):
    known += functions(depth)
    for f in known: f(0)
    torch.ones(2).add(depth)
    if depth == DEPTH or os.fork() != 0: break
if depth < DEPTH: assert os.wait()[1] == 0
"""


@pytest.mark.once
def test_forks_of_forks_know_every_name(run_torchprof, torch_python, check_trace, program):
    run = run_torchprof([torch_python, program(FORKS)])
    assert run.status == 0 and "damaged" not in run.stderr, run.stderr
    counts = []
    for trace in run.traces():
        names = check_trace(trace).names("python_function")
        assert not [name for name in names if "<unknown" in name] and trace.names("cpu_op")["aten::add"] == 1
        counts.append(sum(n for name, n in names.items() if "_with_a_name_that_takes_room" in name))
    assert sorted(counts) == [400 * n for n in range(1, 7)]
