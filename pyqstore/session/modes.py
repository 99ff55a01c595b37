"""The rules of the acknowledgement modes for consumers, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

__all__ = ["Mode", "Rules", "check_mode", "optimizes", "rules_of"]

Mode = Literal["auto", "client", "dups_ok", "transacted", "individual"]
"""When a session acknowledges: "auto": each message after its use; "client": all messages so far by
a call; "dups_ok": late and in batches; "transacted": with the transaction; "individual": each
message by a call."""

_MODES: tuple[str, ...] = get_args(Mode)
_OPTIMIZED_PERCENT = 65
_DUPS_OK_PERCENT = 50
_GROWTH_PERCENT = 50

Failure = Literal["redeliver", "redeliver unacknowledged", "pass over", "leave"]
"""The action for a message whose listener raised."""


@dataclass(frozen=True)
class Rules:
    """The rules of one consumer."""

    mode: Mode
    prefetch: int
    batch: int
    """Acknowledges after this many consumed messages; 0: never by itself."""
    timeout: float | None
    """Also acknowledges with the first message consumed this many seconds after the last time."""
    growth: int
    """After this many unacknowledged deliveries the limit is prefetch plus this number."""
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
