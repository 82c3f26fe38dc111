"""torchprof.profile: a part of the program is recorded, and what was recorded is asked for."""
from __future__ import annotations

import functools
import inspect
import json
import os
from typing import Any, Callable, Dict, List, Optional, Set, Tuple, TypeVar, Union, cast

from torchprof import _library
from torchprof._library import Setting

F = TypeVar("F", bound=Callable[..., Any])
Path = Union[str, "os.PathLike[str]"]


class _Recording:
    """What the process records for all profiles together: the first one that starts begins it, the last one that stops ends it. With the lock."""

    def __init__(self) -> None:
        self.users = 0
        self.directory: Optional[str] = None
        self._ends: Optional[Callable[[], None]] = None
        self._used: Set[str] = set()

    def begin(self, output: Optional[str], settings: Dict[str, Setting]) -> None:
        self.directory, self._ends = None, None
        native = _library.load()
        if native is None:
            return
        self.directory = native.recorded()
        if self.directory is None:
            self._attach(native, output, settings)
        else:
            self._open_window(native)

    def end(self) -> None:
        ends, self._ends = self._ends, None
        if ends is not None:
            ends()

    def _attach(self, native: _library.Native, output: Optional[str], settings: Dict[str, Setting]) -> None:
        directory = self._unused(_library.check(native, output, settings))
        answer = native.attach(_library.settings_text(directory.replace("%", "%%"), settings))
        if answer is None:
            return _library.warn("nothing is recorded: somebody else attaches to this process just now")
        status, _, lines = answer.partition("\n")
        if status != "ok":
            return _library.warn("nothing is recorded: " + status[len("error: "):])
        self.directory, self._ends = directory, lambda: self._leave(native)
        for line in lines.splitlines():
            _library.warn(line[len("torchprof: "):] if line.startswith("torchprof: ") else line)

    def _unused(self, directory: str) -> str:
        """Nothing is written into what is there already: DIRECTORY-2, DIRECTORY-3. Only the ranks of a job share one directory."""
        is_shared = "RANK" in os.environ
        found, number = directory, 1
        while found in self._used or (not is_shared and os.path.lexists(found)):
            number += 1
            found = "%s-%d" % (directory, number)
        self._used.add(found)
        return found

    @staticmethod
    def _leave(native: _library.Native) -> None:
        if not native.leave():
            _library.warn("the recording cannot be ended now, and goes on")

    def _open_window(self, native: _library.Native) -> None:
        """In a run that somebody else has begun."""
        answer = self._set_window(native, True)
        if answer == "done":
            self._ends = lambda: cast(None, self._set_window(native, False))
        elif answer == "busy":
            _library.warn("the window of this run was being changed by others, and was not opened")
        elif answer != "same":
            _library.warn("this run is recorded already, and %s" % answer)

    @staticmethod
    def _set_window(native: _library.Native, opens: bool) -> str:
        import time

        pause, most = 0.001, 1000
        for _ in range(most):
            answer = native.set_window(opens)
            if answer != "busy":
                break
            time.sleep(pause)
        return answer


_recording = _Recording()


class profile:
    """Records a part of the program: a context manager, a decorator, and start() and stop().

    `output` is the run directory [torchprof-%t-%p], and each setting is a long option of `torchprof run`: python="calls", shapes=False, memory=True,
    sample=100. A wrong one is a ValueError; nothing else that goes wrong is raised into the program, but a warning.

    Alone, start() loads the recorder into the process, and stop() leaves the process as it was. Where the process is recorded already, under `torchprof run`
    and the like, it opens the window of that run and closes it again; the run's settings hold. Each recording has a directory of its own, which stays:
    where one is there already, the next is DIRECTORY-2. Profiles may be nested, used again, and used by several threads: all that are started at the same
    time record the same.
    """

    def __init__(self, output: Optional[Path] = None, **settings: Setting) -> None:
        self._output = None if output is None else os.fspath(output)
        self._settings: Dict[str, Setting] = dict(settings)
        self._depth = 0
        self._directory: Optional[str] = None
        self._steps = 0
        self._mark: Optional[Tuple[str, int]] = None
        if self._output is not None or settings:
            native = _library.load()
            if native is not None:
                _library.check(native, self._output, self._settings)

    def start(self) -> None:
        """Begins to record. Each start() wants a stop()."""
        with _library._lock:
            self._depth += 1
            _recording.users += 1
            try:
                if _recording.users == 1:
                    _recording.begin(self._output, self._settings)
            except Exception as error:  # whatever it is, the program must go on
                _library.warn("nothing is recorded: %s" % error)
            self._directory = _recording.directory

    def stop(self) -> None:
        """Ends what start() has begun."""
        with _library._lock:
            if self._depth == 0:
                return
            native = _library.load() if self._mark else None
            if native is not None and self._mark is not None:
                native.end(*self._mark)  # the rest after the last step, which is none: it does not end in a call of step()
            self._mark, self._steps = None, 0
            self._depth -= 1
            _recording.users -= 1
            try:
                if _recording.users == 0:
                    _recording.end()
            except Exception as error:
                _library.warn("the recording was not ended: %s" % error)

    def step(self) -> None:
        """A step of the program has ended, as with torch.profiler: from here to the next call is the mark ProfilerStep#N, by which all tables count steps.
        What is before the first call is step 0, and has no mark."""
        native = _library.load() if self._depth else None
        if native is None:
            return
        if self._mark is not None:
            native.end(*self._mark)
        self._steps += 1
        name = "ProfilerStep#%d" % self._steps
        self._mark = name, native.begin(name)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __call__(self, function: F) -> F:
        inner: Callable[..., Any]
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def inner(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)
        else:
            @functools.wraps(function)
            def inner(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)
        return cast(F, inner)

    # What was recorded. Also while it goes on: then it is what there is so far.

    @property
    def directory(self) -> Optional[str]:
        """The run directory, for `torchprof report` and the other commands; None: nothing was recorded."""
        return self._directory

    def table(self, name: str, **options: Setting) -> List[Dict[str, Any]]:
        """The rows of a table of `torchprof report`, times in ns, sizes in bytes. `options`: those of the command, as group_by="module"."""
        text = self._ask("report", "--tables=" + name, "--json", *_library.options_of(options))
        tables = json.loads(text)["tables"] if text else []
        return [row for table in tables if table["name"] == name for row in table["rows"]]

    def advice(self) -> List[Dict[str, Any]]:
        """What would make the program faster, and by how much: the table `advice`."""
        return self.table("advice")

    def summary(self) -> str:
        """What `torchprof run` prints at its end."""
        return self._ask("report") or ""

    def html(self, path: Optional[Path] = None) -> Optional[str]:
        """Writes the page with all tables, and gives its name. Without a path it is report.html in the run directory."""
        if self._directory is None:
            return None
        file = os.path.join(self._directory, "report.html") if path is None else os.fspath(path)
        return None if self._ask("report", "--html=" + file) is None else file

    def export(self, path: Path, format: Optional[str] = None, **slice: Setting) -> Optional[str]:
        """Writes a trace, kineto without a format, and gives its name. `slice`: options of `torchprof export`, as steps="2..4"."""
        file = os.fspath(path)
        options = _library.options_of({"format": format or "kineto", "output": file, **slice})
        return None if self._ask("export", *options) is None else file

    def _ask(self, command: str, *arguments: str) -> Optional[str]:
        return None if self._directory is None else _library.run(command, self._directory, *arguments)
