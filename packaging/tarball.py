#!/usr/bin/env python3
"""usage: tarball.py TREE ARCH DIRECTORY: torchprof-VERSION-linux-MACHINE.tar.gz, which runs wherever it is unpacked."""
import pathlib
import sys

import archive


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in archive.MACHINES:
        sys.exit(__doc__)
    tree, directory = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[3])
    name = "torchprof-%s-linux-%s" % (archive.version(), archive.MACHINES[sys.argv[2]])
    directory.mkdir(parents=True, exist_ok=True)
    out = directory / (name + ".tar.gz")
    out.write_bytes(archive.tarball(archive.files_of(tree), name))
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
