"""%load_ext torchprof: the magic %%torchprof records a cell, and shows what was recorded below it.

    %%torchprof [options of `torchprof run`] [-t TABLE[,TABLE]]

Without -t it is the page with all tables, inline. Without -o the records go when they have been shown.
"""
from __future__ import annotations

import html
import os
import shlex
import tempfile
from typing import Any, Dict, List, Optional, Tuple

from torchprof import _library
from torchprof._library import Setting
from torchprof._profile import profile

_SHORT = {"-o": "output", "-t": "tables", "-w": "window"}


def parse(line: str) -> Tuple[Optional[str], Dict[str, Setting]]:
    """The tables, and the settings. A word that is no option is the value of the one before it."""
    found: Dict[str, Setting] = {}
    words: List[str] = shlex.split(line)
    while words:
        option, equals, value = words.pop(0).partition("=")
        if not option.startswith("-"):
            raise ValueError("%s: an option was expected; see `torchprof help run`" % option)
        name = _SHORT.get(option) or option.lstrip("-").replace("-", "_")
        if equals or (words and not words[0].startswith("-")):
            found[name] = value if equals else words.pop(0)
        else:
            found[name] = True
    tables = found.pop("tables", None)
    return (tables if isinstance(tables, str) else None), found


def _show(p: profile, tables: Optional[str]) -> None:
    import IPython.display  # type: ignore[import-not-found,unused-ignore]

    display: Any = IPython.display.display

    if p.directory is None:
        return
    if tables is not None:
        text = _library.run("report", p.directory, "--tables=" + tables)
        if text is not None:
            display({"text/plain": text, "text/html": "<pre>%s</pre>" % html.escape(text)}, raw=True)
        return
    page = p.html()
    if page is not None:
        with open(page, encoding="utf-8") as file:
            inner = html.escape(file.read())
        frame = '<iframe srcdoc="%s" sandbox="allow-scripts allow-downloads" style="width: 100%%; height: 40em; border: 0"></iframe>' % inner
        display({"text/html": frame, "text/plain": p.summary()}, raw=True)


class Magic:
    """Of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, line: str, cell: str) -> None:
        """%%torchprof [options of `torchprof run`] [-t TABLE[,TABLE]]: records the cell, and shows the page or the tables."""
        from IPython.core.error import UsageError  # type: ignore[import-not-found,unused-ignore]

        with tempfile.TemporaryDirectory(prefix="torchprof-") as scratch:
            try:
                tables, settings = parse(line)
                settings.setdefault("output", os.path.join(scratch, "run"))
                output = settings.pop("output")
                p = profile(str(output), **settings)
                with p:
                    self._shell.run_cell(cell)
                _show(p, tables)
            except ValueError as error:
                raise UsageError("%%%%torchprof: %s" % error) from None


def load(shell: Any) -> None:
    shell.register_magic_function(Magic(shell), "cell", "torchprof")
