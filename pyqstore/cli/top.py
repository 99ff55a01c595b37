"""The command ``pyqstore top``."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.live import Live

from ..control.reaching import reach
from ..control.wire import Report
from ..paper import Paper
from ..terminal import complain, errors_told
from .picture import SORTS, picture, rates_of
from .shared import directory, json_option, print_json, reached

__all__ = ["top"]

_WIDE = 10_000  # columns of what is no terminal
_EXIT_TERMINATED = 128 + signal.SIGTERM


@click.command()
@directory
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    help="Seconds from one picture to the next, over which rates are measured.",
)
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="ready", show_default=True, help="Of queues."
)
@click.option("--once", is_flag=True, help="Print one picture, with all queues.")
@json_option
def top(directory: Path, interval: float, sort: str, once: bool, as_json: bool) -> None:
    """Show what the process that has the store open does, until q or Ctrl-C.

    Rates are messages a second: of a queue what came in, what was delivered or fetched, and what
    was acknowledged.  Where the standard output is no terminal, and with --json, it is as --once.
    A store that no process has open does nothing: it is shown once.
    """
    paper = Paper(highlight=False, markup=False, emoji=False)
    if not sys.stdout.isatty():
        paper.width = _WIDE
    with errors_told():
        before = reached(directory, "overview")
        if not _is_alive(before):
            complain("no process has the store open to write: this is what is in it")
            _show_once(paper, before, None, sort, as_json)
        elif once or as_json or not sys.stdout.isatty():
            time.sleep(interval)
            _show_once(paper, reached(directory, "overview"), before, sort, as_json)
        else:
            _show(paper, directory, before, sort, interval)


def _is_alive(report: Report) -> bool:
    """Whether a process has it, which answered: this command opens it to read alone."""
    return not report["read_only"]


def _show_once(paper: Paper, now: Report, before: Report | None, sort: str, as_json: bool) -> None:
    rates = rates_of(before, now)
    if as_json:
        print_json({**now, "rates": rates})
    else:
        paper.print(picture(now, rates, sort, None))


def _show(paper: Paper, directory: Path, before: Report, sort: str, interval: float) -> None:
    now, rates = before, None
    live = Live(console=paper, screen=True, auto_refresh=False)
    with _ended_by_signals(), _keys() as quits, live:
        while _is_alive(now):
            live.update(picture(now, rates, sort, paper.size), refresh=True)
            if quits(interval):
                return
            before, now = now, reach(directory, "overview")
            rates = rates_of(before, now)
    complain(f"process {before['pid']} has closed the store, or ended")


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM leaves the terminal as it was."""
    old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_EXIT_TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


_Quits = Callable[[float], bool]


@contextlib.contextmanager
def _keys() -> Iterator[_Quits]:
    """A function that waits so many seconds, or until q is pressed: whether it was."""
    if not sys.stdin.isatty():
        yield _slept
        return
    number = sys.stdin.fileno()
    old = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield _pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, old)


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _pressed(seconds: float) -> bool:
    end = time.monotonic() + seconds
    number = sys.stdin.fileno()
    while (left := end - time.monotonic()) > 0:
        readable, _, _ = select.select([number], [], [], left)
        if readable and os.read(number, 64).lower() in (b"q", b""):  # or the terminal is gone
            return True
    return False
