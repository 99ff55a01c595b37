"""Backlogs larger than memory: time, memory and disk, with a budget of 64 MiB.

Filling and draining backlogs of small and of large bodies; churn that never becomes a backlog;
nearly everything consumed; confirms beside checkpoints.  Every store is in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from . import child, floor, paging_loads
from .backlogs import BUDGET, drain, fill, reopen
from .plots import MIB, Plot
from .runs import Case, Options, Result, Sample

TITLE = "Backlogs larger than memory"
ROUNDS, QUICK_ROUNDS = 3, 1
SMALL = "Backlog of bodies of 100 B, budget 64 MiB"
LARGE = "Backlog of bodies of 8 KiB, budget 64 MiB"
CHURN = "Through the store, the backlog never more than 1 MiB"
SPARSE = "All consumed but one in every 16,384"
PAUSE = "Publish and wait, beside checkpoints"
_RSS_AIM = BUDGET + (64 << 20)
_BACKLOGS = {SMALL: (20_000_000, 100), LARGE: (250_000, 8192)}
_CHURN_BYTES = 4 << 30
_CHURN_BODY_BYTES = 1024
_SPARSE_MESSAGES = 5_000_000
_PAUSE_WAITS = 4000
_PAUSE_BACKLOG = 1_000_000
_RAW_BYTES_MOST = 2 << 30
_MEMORY_LINES = {"budget + 64 MiB": _RSS_AIM / MIB}

OPTIONS = [
    click.Option(
        ["--only"],
        type=click.Choice(["backlog", "large", "churn", "sparse", "pause"]),
        multiple=True,
        help="This part alone, and others that are named so.  Default: all.",
    )
]

_X = "messages"
PLOTS = [
    Plot("Publishing into a growing backlog: bodies of 100 B", "", "messages_per_s",
         group=f"{SMALL}: publish", x_label=_X),
    Plot("Draining a cold backlog: bodies of 100 B", "", "messages_per_s",
         group=f"{SMALL}: drain", x_label=_X),
    Plot("Publishing into a growing backlog: bodies of 8 KiB", "", "messages_per_s",
         group=f"{LARGE}: publish", x_label=_X),
    Plot("Draining a cold backlog: bodies of 8 KiB", "", "messages_per_s",
         group=f"{LARGE}: drain", x_label=_X),
    Plot("Memory over the idle process, publishing 100 B", "", "rss_over_idle_bytes",
         group=f"{SMALL}: publish", x_label=_X, lines=_MEMORY_LINES),
    Plot("Memory over the idle process, draining 100 B", "", "rss_over_idle_bytes",
         group=f"{SMALL}: drain", x_label=_X, lines=_MEMORY_LINES),
    Plot("The most memory over the idle process", "case", "peak_rss_over_idle_bytes",
         lines=_MEMORY_LINES),
    Plot("Disk over what lives: bodies, properties, slots", "case", "disk_over_live",
         unit="times the bytes that live"),
    Plot("Publish and wait, with and without checkpoints: p99", "case", "p99_us", group=PAUSE),
]  # fmt: skip


def cases(options: Options) -> list[Case]:
    """The parts that were asked for."""
    parts: dict[str, Callable[[Options], list[Case]]] = {
        "backlog": partial(backlog, SMALL),
        "large": partial(backlog, LARGE),
        "churn": churn,
        "sparse": sparse,
        "pause": pause,
    }
    only: Any = options.chosen.get("only")
    names: Sequence[str] = only or tuple(parts)
    return [case for name in parts if name in names for case in parts[name](options)]


def backlog(group: str, options: Options) -> list[Case]:
    """Filled; then, of another one, opened after a kill, and drained."""
    most, body_bytes = _BACKLOGS[group]
    messages = options.count(most, 100)
    raw_bytes = max(4 * MIB, min(messages * body_bytes, _RAW_BYTES_MOST))
    publishing, draining = f"{group}: publish", f"{group}: drain"
    parameters = {"messages": messages, "body_bytes": body_bytes}
    publish_run = partial(_run_fill, messages, body_bytes)
    drain_run = partial(_run_drain, messages, body_bytes)
    return [
        floor.stream(raw_bytes, group=publishing),
        floor.new_files(raw_bytes, group=publishing),
        Case("publish", publish_run, parameters, floor.NEW_FILES, publishing),
        floor.read(raw_bytes, group=draining),
        Case("drain", drain_run, parameters, floor.READ, draining),
    ]


def _run_fill(messages: int, body_bytes: int, directory: Path) -> Sample:
    filled = child.call(fill, path=directory / "store", messages=messages, body_bytes=body_bytes)
    curves = filled.pop("curves")
    seconds = filled.pop("seconds")
    return Sample(seconds, messages, messages * body_bytes, figures=filled, curves=curves)


def _run_drain(messages: int, body_bytes: int, directory: Path) -> Sample:
    path = directory / "store"
    child.call(fill, path=path, messages=messages, body_bytes=body_bytes)
    warm = child.call(reopen, path=path, messages=messages, cold=False)
    cold = child.call(reopen, path=path, messages=messages, cold=True)
    drained = child.call(drain, path=path, messages=messages, body_bytes=body_bytes)
    curves = drained.pop("curves")
    seconds = drained.pop("seconds")
    figures = {"open_warm_s": warm["open_s"], "open_cold_s": cold["open_s"], **drained}
    return Sample(seconds, messages, messages * body_bytes, figures=figures, curves=curves)


def churn(options: Options) -> list[Case]:
    """Published and consumed at once: no segment is to be written, and disk use is to stay."""
    messages = max(1, options.count(_CHURN_BYTES, 1) // _CHURN_BODY_BYTES)
    raw_bytes = max(4 * MIB, min(messages * _CHURN_BODY_BYTES, _RAW_BYTES_MOST))

    def run(directory: Path) -> Sample:
        figures = child.call(
            paging_loads.churn,
            path=directory / "store",
            messages=messages,
            body_bytes=_CHURN_BODY_BYTES,
        )
        seconds = figures.pop("seconds")
        return Sample(seconds, messages, messages * _CHURN_BODY_BYTES, figures=figures)

    parameters = {"messages": messages}
    return [
        floor.stream(raw_bytes, group=CHURN),
        Case("churn", run, parameters, floor.STREAM, CHURN),
    ]


def sparse(options: Options) -> list[Case]:
    """What a few messages that stay cost on the disk and in memory."""
    messages = options.count(_SPARSE_MESSAGES, 100)

    def run(directory: Path) -> Sample:
        path = directory / "store"
        figures = child.call(paging_loads.sparse, path=path, messages=messages)
        return Sample(figures.pop("seconds"), messages, figures=figures)

    return [Case("consume all but few", run, {"messages": messages}, group=SPARSE)]


def pause(options: Options) -> list[Case]:
    """Publish and wait while checkpoints are made one after another, and without."""
    waits = options.count(_PAUSE_WAITS, 10)
    backlog_messages = options.count(_PAUSE_BACKLOG, 100)
    found = [floor.sync(100, waits, PAUSE)]
    for name, checkpoints in (("no checkpoint", False), ("checkpoint after checkpoint", True)):
        run = partial(_run_pause, backlog_messages, waits, checkpoints)
        found.append(Case(name, run, {}, found[0].name, PAUSE))
    return found


def _run_pause(messages: int, waits: int, checkpoints: bool, directory: Path) -> Sample:
    figures = child.call(
        paging_loads.pause,
        path=directory / "store",
        messages=messages,
        waits=waits,
        checkpoints=checkpoints,
    )
    latencies = figures.pop("latencies_us")
    return Sample(figures.pop("seconds"), waits, waits * 100, latencies, figures)


def notes(results: list[Result]) -> list[str]:
    """What to know to read the numbers."""
    told = [
        "Memory is resident set over what the process had idle: pyarrow imported, and its batch"
        " made where it publishes; the peak is the kernel's own (VmHWM).",
        "Disk use is what files occupy, over bodies, properties and a slot of 32 bytes each.",
        "Cold: files are synced, and the kernel is asked to forget them (posix_fadvise).",
        "Publishing is held against new files: a growing backlog cannot but make some.",
    ]
    for result in results:
        peak = result.metrics.get("peak_rss_over_idle_bytes")
        if peak is not None:
            verdict = "within" if peak.high <= _RSS_AIM else "ABOVE"
            told.append(
                f"{result.case.group}: at most {peak.high / MIB:,.0f} MiB over idle,"
                f" {verdict} budget + 64 MiB."
            )
    return told
