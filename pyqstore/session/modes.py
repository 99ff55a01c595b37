"""The rules of the acknowledgement modes for consumers, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

__all__ = ["Mode", "Rules", "check_mode", "optimizes", "rules_of"]

Mode = Literal["auto", "client", "dups_ok", "transacted", "individual"]
"""How a session acknowledges: by itself, all at once by hand, late and in batches, with its
transactions, or one by one by hand."""

_MODES: tuple[str, ...] = get_args(Mode)
_OPTIMIZED_PERCENT = 65
_DUPS_OK_PERCENT = 50
_GROWTH_PERCENT = 50

Failure = Literal["redeliver", "redeliver unacknowledged", "pass over", "leave"]
"""What becomes of a message whose listener raised."""


@dataclass(frozen=True)
class Rules:
    """The rules of one consumer."""

    mode: Mode
    prefetch: int
    batch: int
    """It acknowledges so many consumed messages at once; 0: not by itself."""
    timeout: float | None
    """Or when it consumes a message so many seconds after it acknowledged the last time."""
    growth: int
    """Once so many are delivered and not acknowledged, so many more are pushed than prefetch."""
    failure: Failure


def check_mode(mode: str) -> Mode:
    """ValueError: there is no such mode."""
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    return cast("Mode", mode)


def optimizes(mode: Mode, is_topic: bool, optimize: bool) -> bool:
    """Whether larger batches of acknowledgements are possible, if requested."""
    return optimize and (mode == "auto" or (mode == "dups_ok" and not is_topic))


def rules_of(
    mode: Mode, is_topic: bool, prefetch: int, optimize: bool, timeout: float | None
) -> Rules:
    """The rules of a consumer.  ``optimize`` has an effect if ``optimizes``."""
    if mode == "dups_ok" and is_topic:
        batch = _percent(prefetch, _DUPS_OK_PERCENT)
        return Rules(mode, prefetch, batch, None, 0, "pass over")
    if mode in ("auto", "dups_ok"):
        batch = _percent(prefetch, _OPTIMIZED_PERCENT) if optimize else 1
        return Rules(mode, prefetch, batch, timeout if optimize else None, 0, "redeliver")
    growth = _percent(prefetch, _GROWTH_PERCENT)
    failure: Failure = "redeliver unacknowledged" if mode == "individual" else "leave"
    return Rules(mode, prefetch, 0, None, growth, failure)


def _percent(prefetch: int, percent: int) -> int:
    return max(1, -(-prefetch * percent // 100)) if prefetch else 1
