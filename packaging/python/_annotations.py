"""annotate() and mark(): ranges and moments of the program, recorded as torch.profiler.record_function's are, without torch.

Both are functions of the library, made there so that they cost next to nothing while nothing is recorded. In Python is what the library has no answer for:
where it is refused, in an interpreter other than the first, and the decorator.
"""
from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, List, Protocol, Tuple, TypeVar, cast

from torchprof import _library

F = TypeVar("F", bound=Callable[..., Any])


class Annotation(Protocol):
    """What annotate(name) gives: a context manager and a decorator of functions, also of `async def`. It may be used again and again, on several threads."""

    @property
    def name(self) -> str: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def __call__(self, function: F, /) -> F: ...


def _decorate(annotation: Annotation, function: F) -> F:
    """Each call has an annotation of its own: calls that wait end each their own."""
    name = annotation.name
    inner: Callable[..., Any]
    if inspect.iscoroutinefunction(function):
        @functools.wraps(function)
        async def inner(*args: Any, **kwargs: Any) -> Any:
            with annotate(name):
                return await function(*args, **kwargs)
    else:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            with annotate(name):
                return function(*args, **kwargs)
    return cast(F, inner)


class _Annotation:
    """In Python."""

    __slots__ = ("name", "_native", "_keys")

    def __init__(self, name: str, native: "_library.Native | None") -> None:
        self.name = name
        self._native = native
        self._keys: List[int] = []

    def __enter__(self) -> None:
        if self._native is not None:
            self._keys.append(self._native.begin(self.name))

    def __exit__(self, *error: object) -> None:
        if self._native is not None and self._keys:
            self._native.end(self.name, self._keys.pop())

    def __call__(self, function: F, /) -> F:
        return _decorate(self, function)


def _nothing(name: str, /) -> None:
    """Where nothing can be recorded."""


def _make() -> Tuple[Callable[[str], Annotation], Callable[[str], None]]:
    native = _library.load()
    if native is None:
        return lambda name: _Annotation(name, None), _nothing
    made = native.annotate(_decorate)
    if made is None:
        return lambda name: _Annotation(name, native), native.mark
    return cast(Callable[[str], Annotation], made), native.mark


annotate, mark = _make()
