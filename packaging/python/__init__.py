"""torchprof: profiles PyTorch programs without a change to their code, with `torchprof run python train.py`. For who wants to say in the code what is
recorded:

    with torchprof.profile() as p:             # also a decorator, and p.start(), p.stop()
        train()
    p.table("ops")                             # rows as dicts; p.summary(), p.advice(), p.html(), p.export(PATH)

    with torchprof.annotate("forward"):        # a range of the program, without torch; costs next to nothing while nothing is recorded
        ...
    torchprof.mark("epoch")                    # a moment

Nothing is loaded before it is asked for, and where nothing can be recorded every call does nothing. docs/python.md has the rest.
"""
from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchprof._annotations import annotate as annotate
    from torchprof._annotations import mark as mark
    from torchprof._profile import profile as profile

__all__ = ["annotate", "mark", "path", "profile"]


def __getattr__(name: str) -> object:
    if name in ("annotate", "mark"):
        from torchprof import _annotations as module
    elif name == "profile":
        from torchprof import _profile as module  # type: ignore[no-redef]
    else:
        raise AttributeError("module 'torchprof' has no attribute %r" % name)
    found: object = getattr(module, name)
    globals()[name] = found
    return found


def path() -> str:
    """The program's file, where pip put it."""
    import importlib.metadata

    for file in importlib.metadata.distribution("torchprof-cli").files or ():
        if file.name == "torchprof" and file.parent.name == "bin":
            return os.path.realpath(file.locate())
    raise FileNotFoundError("the program is missing from the installation of torchprof; install it again")


def load_ipython_extension(shell: Any) -> None:
    """%load_ext torchprof: the magic %%torchprof of a notebook's cell."""
    from torchprof import _notebook

    _notebook.load(shell)


def main() -> None:
    """Becomes the program, with the arguments of this one."""
    try:
        os.execv(path(), ["torchprof", *sys.argv[1:]])
    except OSError as error:
        sys.exit("torchprof: %s" % error)
