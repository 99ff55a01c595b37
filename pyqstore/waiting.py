"""Waiting in slices: a call into C cannot be interrupted, so each is short and Python looks around
between two."""

import math
import time

__all__ = ["SLICE_NS", "Deadline", "check_timeout"]

SLICE_NS = 100_000_000
_FOR_EVER = 2**62 / 1e9  # seconds whose nanoseconds a clock can count: 146 years


def check_timeout(timeout: float | None) -> float:
    """The seconds to wait, infinite for None and for what no clock can count.

    ValueError for a timeout that is negative or not a number; TypeError for one of another type.
    """
    if timeout is None:
        return math.inf
    try:
        waits = timeout >= 0
    except ArithmeticError:  # decimal's NaN compares with nothing
        waits = False
    except TypeError:
        kind = type(timeout).__name__
        raise TypeError(f"timeout must be None or seconds, not {kind}") from None
    if not waits:
        raise ValueError(f"timeout must be None or 0 seconds or more, not {timeout}")
    return float(timeout) if timeout < _FOR_EVER else math.inf


class Deadline:
    """When a wait is over: ``timeout`` seconds from now, or never when that is None."""

    __slots__ = ("_end_ns",)

    def __init__(self, timeout: float | None) -> None:
        """ValueError for a timeout that is negative or not a number."""
        seconds = check_timeout(timeout)
        self._end_ns: int | None = None
        if seconds != math.inf:
            self._end_ns = time.monotonic_ns() + int(seconds * 1e9)

    def slice_ns(self) -> int:
        """How long the next call may wait, in nanoseconds; 0 when the time is over."""
        if self._end_ns is None:
            return SLICE_NS
        return max(0, min(SLICE_NS, self._end_ns - time.monotonic_ns()))

    def left_s(self) -> float:
        """How many seconds are left, infinite or 0 or more."""
        if self._end_ns is None:
            return math.inf
        return max(0.0, (self._end_ns - time.monotonic_ns()) / 1e9)

    def end(self) -> None:
        """The time is over.  Any thread may call it."""
        self._end_ns = 0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self._end_ns is not None and time.monotonic_ns() >= self._end_ns
