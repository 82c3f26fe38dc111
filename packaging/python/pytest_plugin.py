"""pytest --torchprof[=DIR]: each test is recorded by itself, into DIR/NAME-OF-THE-TEST.

    @pytest.mark.torchprof(max_ms=200, max_calls=50)                  # operators of torch in all
    @pytest.mark.torchprof(max_calls={"aten::copy_": 0, "load": 1})   # operators and Python functions by name

A test with this marker is recorded also without --torchprof, and fails where it takes longer or calls more. Where nothing can be recorded, calls are not
counted, and a warning says why.
"""
from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from typing import Any, Dict, Generator, List, Optional, Union

import pytest

_OPTION, _USUAL = "torchprof", "torchprof-tests"


def pytest_addoption(parser: Any) -> None:
    parser.getgroup("torchprof").addoption("--torchprof", dest=_OPTION, nargs="?", const=_USUAL, metavar="DIR",
                                           help="record each test by itself, into DIR/NAME [%s]; torchprof report DIR/NAME" % _USUAL)


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "torchprof(max_ms=None, max_calls=None): the test is recorded, and may take so long, and call so many operators "
                                       "(a number for all, or {name: number} of operators and Python functions)")


class _Watch:
    """One test."""

    def __init__(self, item: Any) -> None:
        import torchprof

        budget = item.get_closest_marker("torchprof")
        self.max_ms: Optional[float] = budget.kwargs.get("max_ms") if budget else None
        self.max_calls: Union[int, Dict[str, int], None] = budget.kwargs.get("max_calls") if budget else None
        folder = item.config.getoption(_OPTION)
        self.scratch = None if folder else tempfile.mkdtemp(prefix="torchprof-")
        name = re.sub(r"[^\w.\[\]-]+", "_", item.nodeid)[-200:]
        place = os.path.join(str(folder or self.scratch), name)
        self.profile = torchprof.profile(place.replace("%", "%%"))
        self.ms = 0.0

    def excess(self) -> List[str]:
        """What is more than the marker allows."""
        found = []
        if self.max_ms is not None and self.ms > self.max_ms:
            found.append("took %.1f ms, of %g" % (self.ms, self.max_ms))
        if self.max_calls is None or self.profile.directory is None:
            return found
        operators = self.profile.table("ops")
        if not isinstance(self.max_calls, dict):
            count = sum(row["calls"] for row in operators)
            return found + (["called %d operators, of %d" % (count, self.max_calls)] if count > self.max_calls else [])
        counts: Dict[str, int] = {}
        for row in operators + (self.profile.table("python", waits=True)):
            name = row["name"].rpartition("): ")[2]
            counts[name] = counts.get(name, 0) + row["calls"]
        return found + ["called %s %d times, of %d" % (name, counts[name], most) for name, most in self.max_calls.items() if counts.get(name, 0) > most]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, None]:
    if not item.config.getoption(_OPTION) and item.get_closest_marker("torchprof") is None:
        yield
        return
    watch = item._torchprof = _Watch(item)
    watch.profile.start()
    began = time.perf_counter()
    yield
    watch.ms = 1000 * (time.perf_counter() - began)
    watch.profile.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, None]:
    outcome = yield
    watch: Optional[_Watch] = getattr(item, "_torchprof", None)
    if call.when != "call" or watch is None:
        return
    report = outcome.get_result()
    if report.passed and (excess := watch.excess()):
        report.outcome = "failed"
        report.longrepr = "%s: more than its marker `torchprof` allows: %s" % (item.nodeid, "; ".join(excess))
    if watch.profile.directory is not None and watch.scratch is None:
        report.sections.append(("torchprof", watch.profile.directory))
    if watch.scratch is not None:
        shutil.rmtree(watch.scratch, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    folder = config.getoption(_OPTION)
    if folder and os.path.isdir(folder):
        terminalreporter.write_line("torchprof: the runs of the tests are in %s: torchprof report %s/NAME" % (folder, folder))
