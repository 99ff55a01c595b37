"""Raising at a chosen step of what pyqstore does, as a signal handler may at any."""

import dis
import inspect
import opcode
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import pyqstore

_PACKAGE = str(Path(pyqstore.__file__).parent)
_JUMPS = {number for name, number in opcode.opmap.items() if name.startswith("JUMP_BACKWARD")}
_CALLS = {
    opcode.opmap[name] for name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX") if name in opcode.opmap
}
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


def _handler_of(code: CodeType, offset: int) -> int | None:
    """Where an exception at this offset goes on; None: out of the function."""
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        if entry.start <= offset < entry.end:
            return int(entry.target)
    return None


def interrupted(step: int, call: Callable[[], _T]) -> tuple[_T | None, bool]:
    """What ``call`` returns, and whether a signal came: at the ``step``-th moment in pyqstore's
    Python at which CPython runs handlers.  That is the begin of a function, the return of one that
    is no Python, and a jump backward.  The last but one is left out where what is raised behind
    the call and what is raised in the call go on in different places.
    """
    left = step
    is_raised = False
    calling: dict[FrameType | None, int] = {}  # the offset of the call that each frame is in

    def count(frame: FrameType) -> None:
        nonlocal left, is_raised
        left -= 1
        if left <= 0 and not is_raised and not _is_swallowed(frame):
            is_raised = True
            signal.raise_signal(signal.SIGUSR1)

    def trace(frame: FrameType, event: str, detail: Any) -> Any:
        code = frame.f_code
        is_generator = bool(code.co_flags & inspect.CO_GENERATOR)
        if event == "call" and not is_generator and code.co_name != "__init__":
            calling.pop(frame.f_back, None)  # Python that returns to Python runs no handler
        if not code.co_filename.startswith(_PACKAGE):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if event == "call" and not is_generator:
            # The end of a generator is a call of it as well, and swallows what is raised.
            count(frame)
        elif event == "opcode":
            at = calling.pop(frame, None)
            if at is not None and _handler_of(code, at) == _handler_of(code, frame.f_lasti):
                count(frame)
            operation = code.co_code[frame.f_lasti]
            if operation in _CALLS:
                calling[frame] = frame.f_lasti
            elif operation in _JUMPS:
                count(frame)
        return trace

    with handler_that_raises():
        sys.settrace(trace)
        try:
            return call(), is_raised
        except Interrupt:
            return None, True
        finally:
            sys.settrace(None)
