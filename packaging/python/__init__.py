"""torchprof: profiles PyTorch programs without a change to their code. This package only says where the program is.

    $ torchprof run python train.py            # or: python -m torchprof run python train.py
    >>> subprocess.run([torchprof.path(), "run", ...])
"""
import importlib.metadata
import os
import sys

__all__ = ["path"]


def path():
    """The program's file, where pip put it."""
    for file in importlib.metadata.distribution("torchprof").files or ():
        if file.name == "torchprof" and file.parent.name == "bin":
            return os.path.realpath(file.locate())
    raise FileNotFoundError("the program is missing from the installation of torchprof; install it again")


def main():
    """Becomes the program, with the arguments of this one."""
    try:
        os.execv(path(), ["torchprof", *sys.argv[1:]])
    except OSError as error:
        sys.exit("torchprof: %s" % error)
