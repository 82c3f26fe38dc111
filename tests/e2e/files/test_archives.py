"""The archive of a run in the place of a run: what `torchprof collect` and tar pack is read as it is; one that is damaged or hostile harms nobody."""
import gzip
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile
import time

import pytest

from conftest import PATIENCE, clean_environment, profile

pytestmark = pytest.mark.once

PROGRAM = """
import torch
def kept(): return torch.ones(2) + 1
for _ in range(40): kept()
"""


@pytest.fixture(scope="module")
def recorded(launcher, torch_python, tmp_path_factory):
    directory = tmp_path_factory.mktemp("recorded")
    (directory / "program.py").write_text(PROGRAM)
    return profile(launcher, directory / "run", [torch_python, directory / "program.py"]).directory


@pytest.fixture
def temporary(tmp_path):
    """Where archives are unpacked: empty again after each test, whatever it did."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    yield directory
    deadline = time.monotonic() + PATIENCE
    while list(directory.iterdir()) and time.monotonic() < deadline:  # a process that was killed has a child that tidies up
        time.sleep(0.01)
    assert list(directory.iterdir()) == []


@pytest.fixture
def reader(launcher, temporary):
    def read(*arguments):
        done = subprocess.run([launcher, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, env=clean_environment({"TMPDIR": str(temporary)}))
        assert "torchprof-unpacked-" not in done.stdout + done.stderr, "nobody knows that place"
        return done
    return read


def calls(exported):
    names = [e["name"].partition(": ")[2] for e in json.loads(exported)["traceEvents"] if e.get("cat") == "python_function"]
    return names.count("kept")


def of_tar(form):
    def pack(run, archive, launcher):
        with tarfile.open(archive, "w:gz", format=form) as tar:
            tar.add(run, arcname="./" + "deep/" * 60 + "run")  # longer than a head of ustar has room for
    return pack


def of_collect(run, archive, launcher):
    subprocess.run([launcher, "collect", run, "-o", archive], check=True, env=clean_environment(), timeout=PATIENCE)


def of_the_spool_alone(run, archive, launcher):
    with tarfile.open(archive, "w") as tar:
        for spool in (run / "spool").glob("*.spool"):
            tar.add(spool, arcname=spool.name)


def of_the_trace_alone(run, archive, launcher):
    with tarfile.open(archive, "w") as tar:
        for trace in run.glob("*.json.gz"):
            tar.add(trace, arcname="x/" + trace.name)


def short(pack):
    """Names of the parts of a path that both formats without extensions have room for."""
    def packed(run, archive, launcher):
        with tarfile.open(archive, "w", format=pack) as tar:
            tar.add(run, arcname=".")
    return packed


PACKERS = {"collect": of_collect, "pax": of_tar(tarfile.PAX_FORMAT), "gnu": of_tar(tarfile.GNU_FORMAT), "ustar": short(tarfile.USTAR_FORMAT), "spools": of_the_spool_alone}


@pytest.mark.parametrize("packer", PACKERS)
def test_it_reads_like_the_run(packer, recorded, reader, launcher, tmp_path):
    archive = tmp_path / "pod7.whatever"
    PACKERS[packer](recorded, archive, launcher)
    report, of_run = reader("report", archive, "-t", "ops,python", "-n", "200"), reader("report", recorded, "-t", "ops,python", "-n", "200")
    assert report.returncode == 0 and "kept" in report.stdout, report.stderr
    if packer != "spools":  # these have no run.json
        assert report.stdout.replace(str(archive), "RUN") == of_run.stdout.replace(str(recorded), "RUN")
    exported = reader("export", archive, "-f", "kineto", "-o", "-")
    assert exported.returncode == 0 and calls(exported.stdout) == 40, exported.stderr
    for command in (["diff", recorded, archive], ["where", archive], ["merge", archive, "-o", tmp_path / "merged"], ["export", archive, "-f", "table", "-o", tmp_path / "t"]):
        done = reader(*command)
        assert done.returncode == 0, (command, done.stderr)
    assert "kept" in reader("report", tmp_path / "merged", "-t", "python", "--filter", "kept").stdout
    merged = json.loads((tmp_path / "merged" / "run.json").read_text())["merged"]
    assert [source["run"] for source in merged] == [str(archive)]


def test_traces_in_an_archive_are_read(recorded, reader, launcher, tmp_path):
    of_the_trace_alone(recorded, tmp_path / "x.tar", launcher)
    report = reader("report", tmp_path / "x.tar", "-t", "python", "--filter", "kept")
    assert report.returncode == 0 and "kept" in report.stdout, report.stderr


def test_two_archives_become_one_run(recorded, run_torchprof, torch_python, reader, launcher, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    other = run_torchprof([torch_python, tmp_path / "program.py"]).directory
    for run, name in ((recorded, "a.tar.gz"), (other, "b.tar.gz")):
        of_collect(run, tmp_path / name, launcher)
    done = reader("merge", tmp_path / "a.tar.gz", tmp_path / "b.tar.gz", "-o", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "both" / "spool").glob("*.spool"))) == 2


def test_who_wants_a_run_that_goes_on_is_told_so(recorded, reader, launcher, tmp_path):
    archive = tmp_path / "pod7.tar.gz"
    of_collect(recorded, archive, launcher)
    for command in (["ctl", archive, "start"], ["ctl", archive, "next=3"], ["ctl", archive, "capture"], ["top", "--once", archive], ["metrics", archive, "--once"],
                    ["collect", archive], ["export", archive]):
        done = reader(*command)
        assert done.returncode == 125 and re.fullmatch("torchprof: " + re.escape(str(archive)) + ": is the archive of a run: .*\n", done.stderr), (command, done.stderr)


def entry(name, content=b"x", **more):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info, io.BytesIO(content)


def packed(archive, *entries, mode="w:gz"):
    with tarfile.open(archive, mode) as tar:
        for info, content in entries:
            tar.addfile(info, content)


HOSTILE = {
    "a name above": (entry("../../planted"), "leads out of it"),
    "a name above, within": (entry("run/spool/../../../planted"), "leads out of it"),
    "an absolute name": (entry("/tmp/planted.spool"), "leads out of it"),
    "a link in the place of a spool": (entry("run/spool/h.1.1.spool", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a link or a device"),
    "a hard link": (entry("run/run.json", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "a link or a device"),
    "a FIFO": (entry("run/run.json", b"", type=tarfile.FIFOTYPE), "a link or a device"),
    "a device": (entry("run/run.json", b"", type=tarfile.CHRTYPE), "a link or a device"),
    "a directory in the place of a file": (entry("run/spool/a/b/c.spool/x.spool", b""), None),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_one_line(what, recorded, reader, tmp_path):
    """Behind a directory that is a link elsewhere, which is not followed."""
    archive, outside = tmp_path / "pod7.tar.gz", tmp_path / "outside"
    outside.mkdir()
    (spool,) = (recorded / "spool").glob("*.spool")
    packed(archive, entry("run/linked", b"", type=tarfile.SYMTYPE, linkname=str(outside)), entry("run/linked/planted.spool", spool.read_bytes()),
           entry("run/spool/" + spool.name, spool.read_bytes()), HOSTILE[what][0])
    done = reader("report", archive)
    assert list(outside.iterdir()) == [] and not any("planted" in p.name for p in [*tmp_path.rglob("*"), *pathlib.Path("/tmp").glob("planted*")])
    if HOSTILE[what][1] is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 125 and re.fullmatch("torchprof: " + re.escape(str(archive)) + ": .*" + HOSTILE[what][1] + ".*\n", done.stderr), done.stderr


def test_more_than_there_is_room_for_is_refused_at_once(reader, tmp_path):
    """A petabyte, which a head may state; of a bomb of zeros nothing is written."""
    info, _ = entry("run/spool/h.1.1.spool")
    info.size = 1 << 50
    (tmp_path / "bomb.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096)
    done = reader("report", tmp_path / "bomb.tar")
    assert done.returncode == 125 and re.fullmatch(r"torchprof: .*bomb\.tar: needs more than the .* that are free in .*\n", done.stderr), done.stderr


def test_a_million_files_are_no_run(reader, tmp_path):
    head = entry("run/spool/h.1.1.spool", b"")[0].tobuf(tarfile.USTAR_FORMAT)
    with gzip.open(tmp_path / "bomb.tar.gz", "wb", compresslevel=1) as out:
        for _ in range(1000):
            out.write(head * 200)
    done = reader("report", tmp_path / "bomb.tar.gz")
    assert done.returncode == 125 and re.fullmatch(r"torchprof: .*bomb\.tar\.gz: has more than 100000 files: that is no run\n", done.stderr), done.stderr


@pytest.mark.parametrize("compressed", [True, False])
def test_a_cut_off_archive_gives_what_comes_before(compressed, recorded, reader, tmp_path):
    (spool,) = (recorded / "spool").glob("*.spool")
    archive = tmp_path / "pod7"
    packed(archive, entry("run/spool/" + spool.name, spool.read_bytes()), entry("run/spool/h.1.1.spool", os.urandom(200_000)), mode="w:gz" if compressed else "w")
    whole = archive.read_bytes()
    for kept in (len(whole) - 150_000, 2000, 700, 511, 100, 1):
        archive.write_bytes(whole[:kept])
        done = reader("report", archive, "-t", "python", "--filter", "kept")
        lines = done.stderr.splitlines()
        assert done.returncode in (0, 125) and 1 <= len(lines) <= 3 and all(line.startswith("torchprof: ") for line in lines), (kept, lines)
        if kept > 150_000:
            assert done.returncode == 0 and "kept" in done.stdout and "cut off" in lines[0] and "what comes before is read" in lines[0], lines


def test_random_damage_never_ends_in_a_signal(recorded, reader, tmp_path):
    import random
    (spool,) = (recorded / "spool").glob("*.spool")
    archive = tmp_path / "pod7.tar"
    of_short = io.BytesIO()
    with tarfile.open(fileobj=of_short, mode="w") as tar:
        for info, content in (entry("run/run.json", (recorded / "run.json").read_bytes()), entry("run/" + "d/" * 80 + "spool/x.spool"), entry("run/spool/" + spool.name, spool.read_bytes())):
            tar.addfile(info, content)
    whole = of_short.getvalue()
    heads = [at for at in range(0, len(whole), 512) if whole[at + 257:at + 262] == b"ustar"]
    for seed in range(40):
        rng = random.Random(seed)
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 3])):
            head = rng.choice(heads)
            at = head + rng.choice([0, 124, 156, 257, 345, 512]) + rng.randrange(8)
            damaged[at] = rng.randrange(256)
            if rng.random() < 0.7:  # a sum that fits
                damaged[head + 148:head + 156] = b" " * 8
                damaged[head + 148:head + 156] = b"%06o\0 " % sum(damaged[head:head + 512])
        archive.write_bytes(damaged)
        done = reader("report", archive)
        assert done.returncode in (0, 125), (seed, done.returncode, done.stderr)
        assert all(line.startswith("torchprof: ") for line in done.stderr.splitlines()), (seed, done.stderr)


def test_an_archive_without_a_run_and_one_with_two_say_so(recorded, reader, tmp_path):
    packed(tmp_path / "none.tar.gz", entry("holiday/picture.jpg"))
    done = reader("report", tmp_path / "none.tar.gz")
    assert done.returncode == 125 and done.stderr.endswith("none.tar.gz: is an archive that holds no run of torchprof\n"), done.stderr
    with tarfile.open(tmp_path / "two.tar.gz", "w:gz") as tar:
        tar.add(recorded, "first")
        tar.add(recorded, "second")
    done = reader("report", tmp_path / "two.tar.gz")
    assert done.returncode == 125 and done.stderr.endswith("two.tar.gz: holds 2 runs, first, second: unpack it and name one of them\n"), done.stderr


def test_other_packings_are_named(recorded, reader, tmp_path):
    import bz2
    import lzma
    import zipfile
    with zipfile.ZipFile(tmp_path / "zip", "w") as out:
        out.writestr("x", "x")
    (tmp_path / "bzip2").write_bytes(bz2.compress(b"x" * 1000))
    (tmp_path / "xz").write_bytes(lzma.compress(b"x" * 1000))
    (tmp_path / "zstd").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    for name in ("zip", "bzip2", "xz", "zstd"):
        for command in (["report"], ["export", "-f", "table", "-o", tmp_path / "out"], ["where"]):
            done = reader(*command, tmp_path / name)
            assert done.returncode == 125 and "/%s: is packed by %s, which is not read: `" % (name, name) in done.stderr, done.stderr


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_who_interrupts_it_leaves_nothing(sign, recorded, launcher, temporary, tmp_path):
    """`temporary` looks after it. The archive ends in a run.json that makes a FIFO of its reader: it is killed while it holds everything."""
    archive = tmp_path / "pod7.tar.gz"
    of_collect(recorded, archive, launcher)
    out = tmp_path / "out"
    os.mkfifo(out)
    keep = os.open(out, os.O_RDWR)
    os.set_blocking(keep, False)
    try:
        while True:
            os.write(keep, b"x" * 4096)
    except BlockingIOError:
        pass  # it is full: who writes to it waits
    process = subprocess.Popen([launcher, "report", archive], stdout=open(out, "w"), env=clean_environment({"TMPDIR": str(temporary)}))
    deadline = time.monotonic() + PATIENCE
    while not list(temporary.glob("*/*/run.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(temporary.glob("*/*/run.json"))
    process.send_signal(sign)
    assert process.wait(PATIENCE) == -sign
    os.close(keep)


def test_an_archive_of_a_few_kib_that_lacks_its_end_is_read(recorded, reader, launcher, tmp_path):
    """zlib says that it is cut off together with the last of what it has. A tar without an end is perhaps cut off between two files."""
    archive = tmp_path / "pod7.tar.gz"
    of_collect(recorded, archive, launcher)
    whole = archive.read_bytes()
    without_end = gzip.decompress(whole).rstrip(b"\0")
    for data in whole[:-1], whole[:-5], without_end + bytes(-len(without_end) % 512):
        archive.write_bytes(data)
        done = reader("report", archive, "-t", "python", "--filter", "kept")
        assert done.returncode == 0 and "kept" in done.stdout and "cut off" in done.stderr and "what comes before is read" in done.stderr, done.stderr


def test_what_is_not_of_the_run_does_not_matter(recorded, reader, tmp_path):
    """A sparse file of many pieces, as a core is, names that no file system has, and tar's label."""
    here = tmp_path / "here"
    shutil.copytree(recorded, here / "run")
    with open(here / "core", "wb") as core:
        for piece in range(12):
            core.seek(piece << 20)
            core.write(b"x" * 4096)
    for options in ["-S"], ["-V", "of pod 7"], ["-S", "--format=posix"]:
        subprocess.run(["tar", *options, "-czf", tmp_path / "pod7.tar.gz", "-C", here, "core", "run"], check=True)
        if options == ["-S"]:
            assert gzip.decompress((tmp_path / "pod7.tar.gz").read_bytes())[156:157] == b"S"
        done = reader("report", tmp_path / "pod7.tar.gz", "-t", "python", "--filter", "kept")
        assert (done.returncode, done.stderr) == (0, "") and "kept" in done.stdout, (options, done.stderr)
    with tarfile.open(tmp_path / "long.tar.gz", "w:gz") as tar:
        tar.addfile(*entry("of/somebody/" + "x" * 300))
        tar.addfile(*entry("d/" * 300 + "else"))
        tar.add(recorded, "of/run")
    done = reader("report", tmp_path / "long.tar.gz")
    assert "leads out" not in done.stderr and done.returncode in (0, 125), done.stderr


def test_directories_count_as_files(reader, tmp_path):
    packed(tmp_path / "deep.tar", *(entry("run/%d/%sa.spool" % (i, "d/" * 50)) for i in range(2500)), mode="w")
    done = reader("report", tmp_path / "deep.tar")
    assert done.returncode == 125 and "has more than 100000 files: that is no run" in done.stderr, done.stderr


def test_a_place_for_temporary_files_that_is_not_there_is_named(recorded, launcher, tmp_path):
    of_collect(recorded, tmp_path / "pod7.tar.gz", launcher)
    done = subprocess.run([launcher, "report", tmp_path / "pod7.tar.gz"], capture_output=True, text=True, env=clean_environment({"TMPDIR": "/nowhere"}))
    assert done.returncode == 125 and done.stderr == "torchprof: there is no directory for temporary files: TMPDIR is /nowhere: No such file or directory\n"


def test_who_interrupts_it_at_its_begin_leaves_nothing(recorded, launcher, temporary, tmp_path):
    """`temporary` looks after it. A Ctrl-C goes to all processes of the terminal, at any time."""
    archive = tmp_path / "pod7.tar.gz"
    of_collect(recorded, archive, launcher)
    for number in range(60):
        process = subprocess.Popen([launcher, "report", archive], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   env=clean_environment({"TMPDIR": str(temporary)}))
        while not list(temporary.iterdir()) and process.poll() is None: pass
        time.sleep(number % 6 / 2000)
        try:
            os.killpg(process.pid, signal.SIGINT)
        except ProcessLookupError:
            pass
        process.wait(PATIENCE)
