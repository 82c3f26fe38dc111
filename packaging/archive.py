"""What the packages have in common: the product's version and time, the files of the installed tree, and archives that depend on nothing else."""
import gzip
import io
import os
import pathlib
import re
import subprocess
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# ARCH as Debian has it: as wheels and tarballs have it.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# On PyPI and in pip: torchprof there is another project, of 2021. The command and the module are `torchprof`.
DISTRIBUTION = "torchprof-cli"
SUMMARY = "Profiles PyTorch programs without a change to their code"


def version():
    return re.search(r"(?m)^  version: '([^']+)'", (ROOT / "meson.build").read_text())[1]


def epoch():
    """When it was made, in seconds since 1970: $SOURCE_DATE_EPOCH, else the time of the commit."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    said = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True).stdout
    return int(said) if said else int(time.time())


def files_of(tree):
    """{path: bytes, is it a program}, sorted; __pycache__ is none of ours."""
    return {path.relative_to(tree).as_posix(): (path.read_bytes(), path.parent.name == "bin")
            for path in sorted(tree.rglob("*")) if path.is_file() and "__pycache__" not in path.parts}


def compressed(data):
    return gzip.compress(data, 9, mtime=0)


def tarball(files, top):
    """The bytes of a .tar.gz with `files` (as files_of) in the directory `top`: sorted, of root, all of one time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        made = set()
        for name, (data, is_program) in sorted(files.items()):
            path = pathlib.PurePosixPath(top, name)
            for directory in [*reversed(path.parents)][1:]:
                if directory in made:
                    continue
                made.add(directory)
                entry = tarfile.TarInfo(str(directory))
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, epoch()
                archive.addfile(entry)
            entry = tarfile.TarInfo(str(path))
            entry.size, entry.mode, entry.mtime = len(data), 0o755 if is_program else 0o644, epoch()
            archive.addfile(entry, io.BytesIO(data))
    return compressed(out.getvalue())
