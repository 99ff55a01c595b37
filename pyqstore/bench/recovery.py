"""Opening after SIGKILL: over the journal that is replayed, and over the backlog that is not.

Journals of single messages and of record batches, warm and cold, against a sequential read of as
many bytes in the same rounds; backlogs behind a checkpoint, which opening should not notice.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

from . import child, floor
from .backlogs import fill, fill_journal, reopen
from .plots import MIB, Plot
from .runs import Case, Options, Result, Sample

TITLE = "Opening after a kill"
ROUNDS, QUICK_ROUNDS = 3, 1
JOURNAL = "Opening over the journal that is replayed"
BACKLOG = "Opening over the backlog behind a checkpoint"
BODY_BYTES = 100
_JOURNALS = (1 << 20, 10 << 20, 100 << 20, 500 << 20)
_BACKLOGS = (10_000, 100_000, 1_000_000, 10_000_000, 20_000_000)
_LEAST_JOURNAL = 64 << 10
_AIM_SECONDS = 2.0

_X = "journal since the last checkpoint"
PLOTS = [
    Plot("Replay of the journal", "journal_bytes", "bytes_per_s", group=JOURNAL, log_x=True,
         log_y=True, x_label=_X),
    Plot("Time to open over the journal", "journal_bytes", "open_s", group=JOURNAL, log_x=True,
         log_y=True, x_label=_X, unit="seconds"),
    Plot("Time to open over the backlog behind a checkpoint", "messages", "open_s", group=BACKLOG,
         log_x=True, log_y=True, x_label="messages ready", unit="seconds",
         lines={"aim for 20 M": _AIM_SECONDS}),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """Both sweeps."""
    return [*journals(options), *backlogs(options)]


def journals(options: Options) -> list[Case]:
    """From one megabyte to a journal of twice the default checkpoint_bytes."""
    found = []
    for most in options.sweep(*_JOURNALS):
        journal_bytes = options.count(most, _LEAST_JOURNAL)
        read = floor.read(max(journal_bytes, MIB), group=JOURNAL)
        read = replace(read, name=f"{floor.READ} {journal_bytes} B")
        found.append(read)
        for singly, cold in itertools.product((True, False), _temperatures(options)):
            written = "single messages" if singly else "batches"
            run = partial(_run_journal, journal_bytes, singly, cold)
            name = f"{written}, {_temperature(cold)}"
            found.append(Case(name, run, {"journal_bytes": journal_bytes}, read.name, JOURNAL))
    return found


def _run_journal(journal_bytes: int, singly: bool, cold: bool, directory: Path) -> Sample:
    path = directory / "store"
    filled = child.call(
        fill_journal, path=path, journal_bytes=journal_bytes, body_bytes=BODY_BYTES, singly=singly
    )
    opened = child.call(reopen, path=path, messages=filled["messages"], cold=cold)
    replayed = opened.pop("replayed_bytes")
    return Sample(opened["open_s"], filled["messages"], replayed, figures=opened)


def backlogs(options: Options) -> list[Case]:
    """From thousands to millions, all in segments that a checkpoint names."""
    found = []
    for most, cold in itertools.product(options.sweep(*_BACKLOGS), _temperatures(options)):
        messages = options.count(most, 100)
        run = partial(_run_backlog, messages, cold)
        found.append(Case(_temperature(cold), run, {"messages": messages}, group=BACKLOG))
    return found


def _run_backlog(messages: int, cold: bool, directory: Path) -> Sample:
    path = directory / "store"
    child.call(fill, path=path, messages=messages, body_bytes=BODY_BYTES, checkpoint=True)
    opened = child.call(reopen, path=path, messages=messages, cold=cold)
    del opened["replayed_bytes"]  # hardly anything, and it is in no proportion to what opens
    return Sample(opened["open_s"], figures=opened)


def _temperatures(options: Options) -> tuple[bool, ...]:
    """Cold or not: quick runs leave the easier one out."""
    return (True,) if options.quick else (True, False)


def _temperature(cold: bool) -> str:
    return "cold" if cold else "warm"


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers, and how opening grows."""
    told = [
        "Every store was killed with SIGKILL, and is opened in a new process with a budget of"
        " 64 MiB: what does not fit is paged out while it is replayed.",
        "Cold: files are synced, and the kernel is asked to forget them (posix_fadvise).",
    ]
    behind = [each for each in results if each.case.group == BACKLOG and each.case.name == "cold"]
    if len(behind) > 1:
        first, last = behind[0], behind[-1]
        growth = last.metrics["open_s"].median / first.metrics["open_s"].median
        more = float(last.case.parameters["messages"]) / float(first.case.parameters["messages"])
        told.append(f"{more:,.0f} times the backlog takes {growth:.1f} times as long to open.")
    return told
