"""Raising at a chosen step of what pyqstore does, as a signal handler may at any."""

import inspect
import opcode
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pyqstore

_PACKAGE = str(Path(pyqstore.__file__).parent)
_JUMPS = {number for name, number in opcode.opmap.items() if name.startswith("JUMP_BACKWARD")}
_T = TypeVar("_T")


class Interrupt(BaseException):
    """What the handler raises."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupt


def _is_swallowed(frame: FrameType | None) -> bool:
    """Whether what is raised here is printed and forgotten: in the end of an object."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@contextmanager
def handler_that_raises() -> Iterator[None]:
    """SIGUSR1 raises Interrupt in the main thread."""
    before = signal.signal(signal.SIGUSR1, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupted(step: int, call: Callable[[], _T]) -> tuple[_T | None, bool]:
    """What ``call`` returns, and whether a signal came: at the ``step``-th moment in pyqstore's
    Python at which CPython runs handlers.  That is the begin of a function, the return of one that
    is no Python, and a jump backward.
    """
    left = step
    is_raised = False

    def count(frame: FrameType) -> None:
        nonlocal left, is_raised
        left -= 1
        if left <= 0 and not is_raised and not _is_swallowed(frame):
            is_raised = True
            signal.raise_signal(signal.SIGUSR1)

    def trace(frame: FrameType, event: str, detail: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        # The end of a generator is a call of it as well, and swallows what is raised.
        is_begin = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if is_begin or (event == "opcode" and frame.f_code.co_code[frame.f_lasti] in _JUMPS):
            count(frame)
        return trace

    def profile(frame: FrameType, event: str, detail: Any) -> None:
        if event == "c_return" and frame.f_code.co_filename.startswith(_PACKAGE):
            count(frame)

    with handler_that_raises():
        sys.setprofile(profile)
        sys.settrace(trace)
        try:
            return call(), is_raised
        except Interrupt:
            return None, True
        finally:
            sys.settrace(None)
            sys.setprofile(None)
