#!/usr/bin/env python3
"""usage: tests/hostile.py [PYTEST ARG...]: runs tests in surroundings that do not suit them; they are to pass as ever (default: all end-to-end tests).

TORCHPROF_BUILD names the build directory, as for pytest itself. The tests run from a copy of this checkout whose path has a space and our name in it
and which belongs to somebody else where that is possible, with a home and a folder for temporary files of that kind, standard input closed, umask 077, few
descriptors, signals ignored, and an environment full of what shells, CI, torch's launchers and other tools set. What reaches a program that a
test starts is seen: Python and bash print LEAKED then.
"""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SAYS_SO = {"sitecustomize.py": "import sys\nsys.stdout.write('LEAKED\\n')\n", "bashrc": "echo LEAKED\n"}
AT_HOME = {".gdbinit": "echo LEAKED\\n\n", ".gitconfig": "[alias\n", ".bashrc": "echo LEAKED\n", ".pythonrc": "print('LEAKED')\n"}


def environment(there, home, temporary):
    """Each value is one that somebody has, or one that a program notices."""
    nowhere = "/nonexistent/torchprof"
    told = {name: os.environ[name] for name in ("TORCHPROF_BUILD", "TORCHPROF_INSTALLED") if os.environ.get(name)}
    return {
        "PATH": os.environ["PATH"], "HOME": home, "TMPDIR": temporary, "TORCHPROF_BUILD": ROOT / "build", **told,
        # ours
        "TORCHPROF_OUTPUT": nowhere, "TORCHPROF_DISABLE": "1", "TORCHPROF_PYTHON": "calls", "TORCHPROF_NO_SUCH_SETTING": "1",
        # Python
        "PYTHONPATH": there, "PYTHONSTARTUP": there / "sitecustomize.py", "PYTHONHASHSEED": "7", "PYTHONMALLOC": "debug", "PYTHONIOENCODING": "latin-1",
        "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1", "PYTHONDEVMODE": "1", "PYTHONWARNINGS": "always", "VIRTUAL_ENV": nowhere,
        # libc and compilers
        "LD_BIND_NOW": "1", "LD_LIBRARY_PATH": nowhere, "MALLOC_PERTURB_": "85", "GLIBC_TUNABLES": "glibc.malloc.arena_max=1", "POSIXLY_CORRECT": "1",
        "CFLAGS": "-no-such-option", "CXXFLAGS": "-no-such-option", "CPATH": nowhere, "LIBRARY_PATH": nowhere,
        # torch, its launchers, and the GPU
        "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "7", "MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "1", "SLURM_PROCID": "2", "SLURM_NTASKS": "9",
        "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_SHOW_CPP_STACKTRACES": "1",
        "TORCH_LOGS": "+dynamo", "TORCH_COMPILE_DISABLE": "1", "KINETO_LOG_LEVEL": "0", "KINETO_USE_DAEMON": "1", "CUDA_VISIBLE_DEVICES": "",
        "CUDA_INJECTION64_PATH": nowhere, "NVTX_INJECTION64_PATH": nowhere, "CUPTI_SIM": "pageable=1", "CUPTI_SIM_VERSION": "11.8",
        # terminals, locales, clocks
        "COLUMNS": "20", "LINES": "5", "TERM": "no-such-terminal", "NO_COLOR": "1", "CLICOLOR_FORCE": "1", "PAGER": "false", "LANG": "C", "LC_ALL": "C",
        "LC_NUMERIC": "de_DE.UTF-8", "LANGUAGE": "de", "TZ": "Pacific/Chatham", "SHELL": "/bin/false", "BASH_ENV": there / "bashrc", "ENV": there / "bashrc",
        # CI, and other tools
        "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": nowhere, "DEBUGINFOD_URLS": "http://127.0.0.1:9", "GIT_DIR": nowhere,
        "GIT_PAGER": "false", "XDG_RUNTIME_DIR": nowhere, "XDG_CONFIG_HOME": nowhere, "XDG_DATA_HOME": nowhere, "DISPLAY": "nowhere:9", "DESTDIR": nowhere,
    }


def write(directory, files):
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def copy_checkout(to):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    subprocess.run(["git", "init", "--quiet"], cwd=to, check=True)
    subprocess.run(["git", "add", "--all"], cwd=to, check=True)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "65534:65534", to], check=True)


def before_exec():
    os.close(0)
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def main():
    with tempfile.TemporaryDirectory() as place:
        top = pathlib.Path(place)
        top.chmod(0o755)
        checkout = top / "the torchprof of somebody else"
        copy_checkout(checkout)
        env = environment(write(top / "there", SAYS_SO), write(top / "home of torchprof", AT_HOME), write(top / "temporary-torchprof-files", {}))
        command = [sys.executable, "-m", "pytest", "-q", *(sys.argv[1:] or ["tests/e2e"])]
        return subprocess.run(command, cwd=checkout, env={name: str(value) for name, value in env.items()}, preexec_fn=before_exec).returncode


if __name__ == "__main__":
    sys.exit(main())
