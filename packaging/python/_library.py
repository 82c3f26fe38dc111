"""The recorder in this process, libtorchprof.so, and the program `torchprof`: where they are, and how they are called.

The library is loaded once, the first time that somebody needs it: the one that the process has already (under `torchprof run`, armed, attached), otherwise
the one beside the program. Where that is refused, one warning says why, and load() gives None from then on.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import warnings
from typing import List, Mapping, Optional, Protocol, Sequence, Set, Union

# What a setting may be: True and False stand for on and off, a list for its elements with commas.
Setting = Union[bool, int, float, str, Sequence[str], None]


class Native(Protocol):
    """inject/program/functions.h"""

    def attach(self, settings: bytes, /) -> Optional[str]: ...
    def check(self, settings: bytes, /) -> str: ...
    def recorded(self) -> Optional[str]: ...
    def leave(self) -> bool: ...
    def set_window(self, opens: bool, /) -> str: ...
    def begin(self, name: str, /) -> int: ...
    def end(self, name: str, key: int, /) -> None: ...
    def mark(self, name: str, /) -> None: ...
    def annotate(self, decorate: object, /) -> object: ...


LIBRARY = "libtorchprof.so"
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_lock = threading.RLock()
_native: Optional[Native] = None
_is_refused = False
_said: Set[str] = set()


def _new_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def warn(text: str) -> None:
    """Once for each text, at the line of the program that called us. Raises nothing, also where warnings are errors."""
    if text in _said:
        return
    _said.add(text)
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER + os.sep):
        level, frame = level + 1, frame.f_back
    try:
        warnings.warn("torchprof: " + text, RuntimeWarning, stacklevel=level)
    except Warning as warning:
        print(warning, file=sys.stderr)


def _mapped_library() -> Optional[str]:
    """The file of the library that this process has; None: it has none. OSError: it has one that has no file any more, so that it cannot be asked for."""
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            if LIBRARY.encode() not in line:
                continue
            fields = line.rstrip(b"\n").split(None, 5)
            file = os.fsdecode(fields[5]) if len(fields) == 6 else ""
            if os.path.basename(file) == LIBRARY and os.path.exists(file):
                return file
            if os.path.basename(file.partition(" (deleted)")[0]).endswith(LIBRARY):  # replaced since, or never a file: memfd:libtorchprof.so
                raise OSError("the recorder of this process has no file here: %s" % file)
    return None


def program() -> str:
    """The program's file: beside the library that is in this process, where pip put it, or on PATH."""
    import torchprof

    try:
        library = _mapped_library()
    except OSError:
        library = None
    if library:
        above = os.path.dirname(os.path.dirname(library))
        for place in (os.path.join(os.path.dirname(above), "bin", "torchprof"), os.path.join(above, "launcher", "torchprof")):
            if os.access(place, os.X_OK):
                return place
    try:
        return torchprof.path()
    except ImportError:  # PackageNotFoundError: it was not pip who brought us
        found = shutil.which("torchprof")
        if found is None:
            raise FileNotFoundError("the program `torchprof` is neither installed by pip nor on PATH") from None
        return os.path.realpath(found)


def _library_beside(program_file: str) -> str:
    above = os.path.dirname(os.path.dirname(program_file))
    places = [os.path.join(above, "lib", "torchprof", LIBRARY), os.path.join(above, "inject", LIBRARY)]
    for place in places:
        if os.path.exists(place):
            return place
    raise FileNotFoundError("%s is not beside the program: looked for %s" % (LIBRARY, places[0]))


def is_disabled() -> bool:
    return os.environ.get("TORCHPROF_DISABLE", "0") not in ("", "0")


def load() -> Optional[Native]:
    """The library; None: it is refused, which has been said."""
    global _native, _is_refused
    if is_disabled():
        warn("nothing is recorded: TORCHPROF_DISABLE is set")
        return None
    with _lock:
        if _native is None and not _is_refused:
            try:
                _native = _load()
            except Exception as error:  # whatever it is, the program must go on
                _is_refused = True
                warn("nothing is recorded: %s" % error)
        return _native


def _load() -> Native:
    import _imp  # type: ignore[import-not-found,unused-ignore]
    from importlib.machinery import ModuleSpec

    if not sys.platform.startswith("linux") or sys.implementation.name != "cpython":
        raise OSError("it works with CPython on Linux")
    file = _mapped_library() or _library_beside(program())
    module: Native = _imp.create_dynamic(ModuleSpec("_torchprof", None, origin=file))
    if not hasattr(module, "set_window"):
        raise OSError("%s is of another version than this package" % file)
    return module


_FLAGS = ("quiet", "discard", "keep_spool")  # their variables are 1 or 0


def _value(name: str, value: Setting) -> str:
    if isinstance(value, bool):
        return str(int(value)) if name in _FLAGS else "on" if value else "off"
    return value if isinstance(value, str) else str(value) if isinstance(value, (int, float)) else ",".join(value or ())


def settings_text(output: Optional[str], settings: Mapping[str, Setting]) -> bytes:
    """The options of `torchprof run` as lines of its variables. What is wrong with them is the library's to say."""
    lines = [b""]
    for name, value in {"window": "all", **settings, "output": output}.items():
        if value is not None:
            line = "TORCHPROF_%s=%s" % (name.upper(), _value(name, value))
            if "\n" in line or "\0" in line:
                raise ValueError("%s: %r has more than one line" % (name, value))
            lines.append(os.fsencode(line))
    return b"\n".join(lines) + b"\n"


def check(native: Native, output: Optional[str], settings: Mapping[str, Setting]) -> str:
    """The run directory. ValueError: what is wrong, in the words that the library has for it, about the setting as the caller has written it."""
    try:
        return native.check(settings_text(output, settings))
    except ValueError as error:
        variable, _, what = str(error).partition(": ")
        name = variable[len("TORCHPROF_"):].lower()
        if not variable.startswith("TORCHPROF_") or name not in settings:
            raise
        raise ValueError("%s: %s" % (name, what.replace("no such variable", "no such setting"))) from None


def options_of(settings: Mapping[str, Setting]) -> List[str]:
    """group_by="module" -> --group-by=module; True: the option takes no value."""
    options = []
    for name, value in settings.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            options.append(option)
        elif value is not None and value is not False:
            options.append("%s=%s" % (option, _value(name, value)))
    return options


def environment() -> "dict[str, str]":
    """For the program itself, which is not to be recorded."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHPROF_")}
    for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        if os.path.basename(env.get(name, "")) == LIBRARY:
            del env[name]
    preloaded = [entry for entry in env.pop("LD_PRELOAD", "").replace(" ", ":").split(":") if entry and os.path.basename(entry) != LIBRARY]
    if preloaded:
        env["LD_PRELOAD"] = ":".join(preloaded)
    env["TORCHPROF_DISABLE"] = "1"
    return env


def run(command: str, *arguments: str) -> Optional[str]:
    """What `torchprof COMMAND ARGUMENTS` prints. ValueError: the arguments are wrong; any other trouble is a warning, and None."""
    try:
        done = subprocess.run([program(), command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    except OSError as error:
        warn("%s: %s" % (command, error))
        return None
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    said = [line[len("torchprof: "):] for line in done.stderr.decode("utf-8", "replace").splitlines() if line.startswith("torchprof: ")]
    why = said[-1] if said else "%s ended with status %d" % (command, done.returncode)
    about = why[len(command) + 2:] if why.startswith(command + ": ") else why if why.startswith("--") else None
    if about is not None:  # so the program speaks of its arguments
        raise ValueError(about)
    warn(why)
    return None
