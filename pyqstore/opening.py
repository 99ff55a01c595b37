"""What opening a store tells: a report, a line of the log, warnings."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from . import _core
from .errors import ClockJump, UnsafeFilesystem
from .findings import RecoveryReport
from .listings import text_of
from .options import StoreOptions, word_of

__all__ = ["filesystem_of", "log_opened", "report_of", "warn_of_surroundings"]

_log = logging.getLogger("pyqstore")
_LOSSES = ("torn_bytes", "lost_ranges", "lost_bytes", "lost_segments", "lost_messages")
_CLOCK_JUMP_S = 3600
_FILESYSTEM_KINDS = {"local": 0, "volatile": 1, "network": 2, "unknown": 3}


def report_of(store: _core.Store) -> RecoveryReport:
    """What opening it found."""
    numbers = store._stats()
    ready = {text_of(row[0]): int.from_bytes(row[5], sys.byteorder) for row in store._queues()}
    return RecoveryReport(
        records=numbers["recovered_records"],
        bytes=numbers["recovered_bytes"],
        torn_bytes=numbers["torn_bytes"],
        lost_ranges=numbers["lost_ranges"],
        lost_bytes=numbers["lost_bytes"],
        ignored_arguments=numbers["ignored_arguments"],
        lost_segments=numbers["lost_segments"],
        lost_messages=numbers["lost_messages"],
        recovered_queues=numbers["recovered_queues"],
        clock_ahead_s=numbers["clock_ahead_us"] / 1e6,
        checkpoint_lsn=numbers["recovered_lsn"],
        messages=numbers["recovered_messages"],
        queues=dict(sorted(ready.items())),
        ms=numbers["recovery_us"] / 1000,
    )


def log_opened(path: str, options: StoreOptions, report: RecoveryReport) -> None:
    """Tell the logger what was opened, and what a recovery found."""
    given = ", ".join(f"{name}={value!r}" for name, value in sorted(options.items()))
    _log.info("%s: opened%s", path, f" with {given}" if given else "")
    lost = {name: report[name] for name in _LOSSES if report[name]}
    if report.records or report.messages or report.checkpoint_lsn or lost:  # it is not new
        _log.log(
            logging.WARNING if lost.keys() - {"torn_bytes"} else logging.INFO,
            "%s: recovered %d records of %d bytes, %d messages, in %.0f ms%s",
            path,
            report.records,
            report.bytes,
            report.messages,
            report.ms,
            "".join(f", {name} {count}" for name, count in lost.items()),
        )


def warn_of_surroundings(path: str, store: _core.Store, ahead_s: float) -> None:
    """Of what surrounds the store: its file system and the clock.  In the name of who called
    ``open``."""
    name, kind = filesystem_of(store._stats()["file_system"])
    if kind in {"network", "unknown"}:
        warnings.warn(
            f"{path}: file system {name or '?'}: what survives a power cut, and whether "
            "another machine can open the store at the same time, is up to it",
            UnsafeFilesystem,
            stacklevel=4,
        )
    if abs(ahead_s) > _CLOCK_JUMP_S:
        warnings.warn(
            f"{path}: the machine's clock is {abs(ahead_s):.0f} s "
            f"{'ahead of' if ahead_s > 0 else 'behind'} the store's, by which messages go on "
            "to expire; accept_clock() sets it",
            ClockJump,
            stacklevel=4,
        )


def filesystem_of(told: dict[str, Any]) -> tuple[str, str]:
    """Name and kind of the file system that the engine tells of."""
    return told["name"].rstrip(b"\0").decode(), word_of(_FILESYSTEM_KINDS, told["kind"])
