#!/usr/bin/env python3
"""usage: roots.py SUITE BUILD [PYTEST ARG...]: runs tests in a Debian of another release, with what was built here.
       roots.py SUITE BUILD bench [ARG...]: runs the benchmark there.
       roots.py SUITE DIST packages: installs and tries each package of DIST (packaging/release) there.
       roots.py SUITE make: makes its root and runs nothing.

SUITE is a release of Debian with a torch of its own: trixie (Python 3.13, torch 2.6) or sid (Python 3.14, torch 2.14; and Python 3.15); bullseye, which has
none (Python 3.9, glibc 2.31), for tests/release with a tree of packaging/build -Dtests=true; bookworm-arm64, Debian 12 (Python 3.11, torch
1.13) for AArch64, for a tree of packaging/build arm64: qemu-user emulates it where the processor is another one; or trixie-cuda, which is trixie with Debian's
CUDA build of that torch, CUPTI 12.4 and the library of the driver: 4 GB, for tests by hand. Where its root is
not there yet, debootstrap makes it, from the mirror that this machine's own apt uses, in TORCHPROF_ROOTS (default:
torchprof-roots in $XDG_CACHE_HOME or /var/cache). It stays there; delete it to have a newer one. A root without its stamp was
interrupted and is made anew.

The tests see this checkout, read-only, and the tree that `meson install` makes of BUILD. They run in namespaces of their own:
nothing stays mounted and nothing stays running. BUILD/roots/SUITE/ has what they wrote: pytest.xml, and tmp/ for the data of those that failed.

Wants root. The exit status is pytest's, or 75 where the root cannot be made; stderr then says why.
"""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging"))

from mirror import environment, find_mirror  # noqa: E402: the line above says where it lies
# OpenBLAS: see .ci/setup.sh.
PACKAGES = "python3-torch libopenblas0-serial python3-numpy python3-pytest python3-pytest-xdist libtorch-test gcc g++ libc6-dev libtorch-dev python3-dev python3-setuptools python3-venv binutils strace mount protobuf-compiler"
# Without libtorch's own tests: too much for an emulator.
ARM64_PACKAGES = ("python3-torch python3-numpy python3-pytest python3-pytest-xdist gcc g++ libc6-dev libtorch-dev python3-dev python3-setuptools python3-venv binutils strace mount protobuf-compiler "
                  "libdw-dev libelf-dev zlib1g-dev libbz2-dev liblzma-dev libsqlite3-dev")
# Debian's package qemu-user-static has both; F among the flags: the kernel keeps the emulator open, so that roots need no copy of it.
EMULATOR = pathlib.Path("/usr/bin/qemu-aarch64-static")
EMULATOR_ENTRY = pathlib.Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc")
# Debian 11 has no torch, and Python 3.9, of which nothing is recorded. So Debian 13's Python is built there, and its pytest unpacked.
PACKAGES_OF = {"bookworm-arm64": ARM64_PACKAGES,
               "bullseye": "python3 gcc g++ libc6-dev binutils strace mount make xz-utils zlib1g-dev libffi-dev libsqlite3-dev git protobuf-compiler"}
UNIT_PROGRAMS = {"bullseye": ["old_libc_test", "tracer_test", "launcher_test"]}
ADD_PYTHON = r"""
sources=$(mktemp -d)
cd "$sources"
mkdir -p lists/partial
sed -n '1{s/^deb \(\S*\) .*/deb \1 trixie main/p;s/^deb/deb-src/p}' /etc/apt/sources.list > sources.list
apt="$apt -o APT::Sandbox::User=root -o Dir::State::lists=$sources/lists -o Dir::Etc::sourcelist=$sources/sources.list -o Dir::Etc::sourceparts=-"
$apt update
$apt --download-only source python3.13
tar -xf python3.13_*.orig.tar.xz --strip-components 1
./configure --quiet --enable-shared LDFLAGS=-Wl,-rpath,/usr/local/lib
make -s -j "$(nproc)"
make -s install
$apt download python3-pytest python3-pluggy python3-iniconfig python3-packaging python3-pytest-xdist python3-execnet
for package in *.deb; do dpkg -x "$package" unpacked; done
cp -r unpacked/usr/lib/python3/dist-packages/* /usr/local/lib/python3.13/site-packages
cd /
rm -r "$sources"
"""
# Packages that one test each needs, which is skipped without them: the root is made even if a suite lacks them today.
WISHES = {"sid": "duckdb python3-pandas python3-pyarrow python3.15"}  # beside its own Python, which has torch
# What python3-torch-cuda loads. Unpacked into the root, as two of its dependencies cannot be installed: cuDNN is not in Debian,
# and the driver's own packages want a kernel module. A stub has cuDNN's name and functions: without a GPU none of them is called.
CUDA_PACKAGES = ("python3-torch-cuda libtorch-cuda-2.6 libcublas12 libcublaslt12 libcudart12 libcufft11 libcurand10 libcusolver11 libcusparse12 "
                 "libnvjitlink12 libnccl2 libgloo-cuda-0 libtensorpipe-cuda-0 libnvtoolsext1 libnvrtc12 libnvrtc-builtins12.4 libcupti12 libcuda1")
ADD_CUDA = r"""
sed -i 's/ main$/ main contrib non-free/' /etc/apt/sources.list
$apt update
cd "$(mktemp -d)"
$apt -o APT::Sandbox::User=root download $packages
for package in *.deb; do dpkg -x "$package" /; done
libraries=/usr/lib/x86_64-linux-gnu
for name in $(nm -D --undefined-only $libraries/libtorch*.so.2.6 | sed -n 's/.* U \(cudnn[^@]*\).*/\1/p' | sort -u); do echo "int $name(void) { return 1; }"; done > cudnn.c
echo 'libcudnn.so.9 { global: cudnn*; };' > cudnn.map
gcc -shared -fPIC -Wl,-soname,libcudnn.so.9 -Wl,--version-script=cudnn.map -o $libraries/libcudnn.so.9 cudnn.c
ldconfig
rm -r "$PWD"
"""
NOT_MADE = 75
# A mirror may be a snapshot, whose Release file has outlived its date.
APT = "apt-get -qq -y -o Acquire::Check-Valid-Until=false -o Dpkg::Use-Pty=0"

# As process 1 of its own PID namespace: what a test leaves running ends with it, and so do the mounts.
IN_NAMESPACE = """
set -e
root=$1 checkout=$2 results=$3
shift 3
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,bind,ro "$root/dev"  # the driver's library would make its nodes there
[ ! -d "$root/dev/shm" ] || mount -t tmpfs -o mode=1777 tests "$root/dev/shm"  # what was said of a place (torchprof.said.UID) was of another /tmp
mount -t sysfs -o ro sysfs "$root/sys"
if [ -n "$results" ]; then
    mkdir -p "$root/srv/checkout" "$root/srv/results"
    mount --bind "$checkout" "$root/srv/checkout"
    mount -o remount,bind,ro "$root/srv/checkout"
    mount --bind "$results" "$root/srv/results"
    mount --bind "$results/tmp" "$root/tmp"
fi
set +e
chroot "$root" "$@"
exit $?
"""


class NotMade(Exception):
    """The root cannot be made here; the text says why."""


def enter(root, command, results="", **more):
    """Runs a command in a root; gives its status and, with stdout=subprocess.PIPE, its output."""
    return subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", IN_NAMESPACE, "sh",
                           root, CHECKOUT, results, *command], **more)


def is_emulated(suite):
    return suite.endswith("-arm64") and os.uname().machine != "aarch64"


def allow_emulation():
    """Programs for AArch64 run on this machine afterwards, for as long as it runs."""
    if not EMULATOR.exists() or not EMULATOR_ENTRY.exists():
        raise NotMade("the emulator is missing: apt-get install qemu-user-static")
    try:
        if not (BINFMT / "register").exists():
            subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], check=True, capture_output=True)
        known = BINFMT / EMULATOR.name.removesuffix("-static")
        if not known.exists():
            (BINFMT / "register").write_text(EMULATOR_ENTRY.read_text())
        text = known.read_text()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotMade("the kernel may not be told of the emulator here (binfmt_misc): %s" % error) from None
    if not text.startswith("enabled") or "F" not in text.partition("flags: ")[2].split("\n")[0]:
        raise NotMade("%s is switched off or lacks the flag F" % known)


def make(cache, suite):
    """The root of a suite, which is there and complete afterwards."""
    if os.geteuid() != 0:
        raise NotMade("only root may make one and enter it")
    root, stamp, log = cache / suite, cache / suite / "etc" / "torchprof-root", cache / (suite + ".log")
    release, _, variant = suite.partition("-")
    addition = ADD_CUDA if variant == "cuda" else ADD_PYTHON if suite == "bullseye" else ""
    packages, wishes = PACKAGES_OF.get(suite, PACKAGES), WISHES.get(suite, "")
    contents = packages + wishes + (CUDA_PACKAGES if variant == "cuda" else "") + addition
    if is_emulated(suite):
        allow_emulation()
    if stamp.exists() and stamp.read_text() == contents:
        return root
    if not shutil.which("debootstrap"):
        raise NotMade("debootstrap is missing: apt-get install debootstrap")
    mirror = find_mirror()
    print("== %s: making its root in %s from %s; this takes minutes and 2 GB" % (suite, root, mirror), file=sys.stderr)
    with open(log, "wb") as output:
        def step(command, run=subprocess.run, **more):
            if run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, **more).returncode:
                raise NotMade("%s failed, %s ends with\n%s" % (command[0], log, "".join(
                    "    " + line for line in open(log, errors="replace").readlines()[-5:])))
        if not stamp.exists():
            if os.path.ismount(root / "proc"):  # of a debootstrap that was killed
                step(["umount", root / "proc"])
            step(["rm", "-rf", "--one-file-system", "--", root])
            architecture = ["--arch=arm64"] if variant == "arm64" else []
            step(["debootstrap", *architecture, "--variant=minbase", "--include=ca-certificates", release, root, mirror], env=environment())
        stamp.unlink(missing_ok=True)
        step(["sh", "-ec", "apt='%s --no-install-recommends'; $apt update; $apt install %s; [ -z '%s' ] || $apt install %s || true; apt-get clean"
              % (APT, packages, wishes, wishes)],
             run=lambda command, **more: enter(root, command, **more), env=environment(DEBIAN_FRONTEND="noninteractive"))
        step(["env", "apt=" + APT, "packages=" + CUDA_PACKAGES, "sh", "-ec", addition],
             run=lambda command, **more: enter(root, command, **more), env=environment(DEBIAN_FRONTEND="noninteractive"))
    stamp.write_text(contents)
    return root


def run(root, suite, build, arguments):
    results = build / "roots" / suite
    shutil.rmtree(results, ignore_errors=True)
    (results / "tmp").mkdir(parents=True)
    (results / "tmp").chmod(0o1777)
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", results / "installed"], check=True,
                   stdout=subprocess.DEVNULL)
    launcher, = (results / "installed").rglob("bin/torchprof")
    (results / "unit").mkdir()
    programs = UNIT_PROGRAMS.get(suite, ())
    if programs:  # those of a release are compiled when they are wanted
        subprocess.run(["ninja", "-C", build, "--quiet", *("tests/unit/" + name for name in programs)], check=True)
    for name in programs:
        shutil.copy(build / "tests" / "unit" / name, results / "unit")
    installed = pathlib.Path("/srv/results") / launcher.parents[1].relative_to(results)
    if arguments[0] == "bench":
        program = ["python3", "-B", "tests/bench/bench.py", *arguments[1:]]
    else:
        program = ["tests/two_passes", "python3 -B", "/srv/results/pytest.xml", "-o", "junit_suite_name=%s" % suite, *arguments]
    more = {"TORCHPROF_EMULATED": "1"} if is_emulated(suite) else {}
    if build.is_relative_to(CHECKOUT):  # it has simulated libraries for the tests
        more["TORCHPROF_BUILD"] = str("/srv/checkout" / build.relative_to(CHECKOUT))
    return enter(root, ["sh", "-c", "cd /srv/checkout && exec \"$@\"", "sh", *program], results,
                 env=environment(HOME="/tmp", TORCHPROF_INSTALLED=str(installed), **more)).returncode


def try_packages(root, suite, dist):
    """With the transformer example; where there is no torch, with what Python has."""
    trial = ["python3", "examples/transformer.py", "Operators by self time"]
    if suite == "bullseye":
        trial = ["/usr/local/bin/python3.13", "tests/packages/program.py", "Python functions by self time"]
    with tempfile.TemporaryDirectory() as results:
        shutil.copytree(dist, pathlib.Path(results) / "dist")
        (pathlib.Path(results) / "tmp").mkdir(mode=0o777)
        return enter(root, ["sh", "-c", "cd /srv/checkout && exec sh tests/packages/in_root.sh /srv/results/dist \"$@\"", "sh", *trial], results,
                     env=environment(HOME="/tmp")).returncode


def main():
    suite, build, arguments = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
    cache = pathlib.Path(os.environ.get("TORCHPROF_ROOTS") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "/var/cache", "torchprof-roots"))
    try:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            lock = open(cache / (".%s.lock" % suite), "w")
        except OSError as error:
            raise NotMade(error) from None
        # One makes it, the others wait; then all may use it at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = make(cache, suite)
        fcntl.flock(lock, fcntl.LOCK_SH)
    except NotMade as why:
        print("\n*** NOT TESTED on Debian %s: its root cannot be made: %s\n" % (suite, why), file=sys.stderr)
        return NOT_MADE
    if sys.argv[2:] == ["make"]:
        return 0
    if arguments == ["packages"]:
        return try_packages(root, suite, build)
    return run(root, suite, build, arguments or ["tests/e2e"])


if __name__ == "__main__":
    sys.exit(main())
