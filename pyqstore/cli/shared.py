"""What the commands share: options, reaching the store, and what is printed."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..control.plain import plain
from ..control.reaching import reach
from ..control.talk import Asked, Told
from ..control.wire import Report
from ..places import Start, place_of
from ..terminal import errors_told, visible, visible_json

if TYPE_CHECKING:  # it is imported where something is drawn
    from rich.table import Table

__all__ = [
    "PLACE",
    "ask_store",
    "directory",
    "json_option",
    "named_value",
    "place",
    "print_json",
    "print_report",
    "print_tables",
    "progress_shown",
    "reached",
    "size",
    "status_shown",
    "stopping",
    "table",
]

_TWICE_S = 0.3  # between two signals that are two
PLACE = "OFFSET|TIME|AGE|first|last|next"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def place(text: str) -> Start:
    """A type of options: an offset, a time, how long ago, or a word."""
    try:
        return place_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def json_option(command: _Command) -> _Command:
    """The option ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def directory(command: _Command) -> _Command:
    """The argument DIRECTORY, of a store."""
    return click.argument("directory", type=click.Path(path_type=Path))(command)


def named_value(text: str) -> tuple[str, Any]:
    """A type of options: NAME=VALUE, whose value is JSON where it is some, else text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r}: say NAME=VALUE")
    try:
        return name, json.loads(value, parse_constant=str)
    except (ValueError, RecursionError):
        return name, value


def ask_store(
    folder: Path,
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    told: Told = lambda _report, _payload: None,
    asked: Asked | None = None,
) -> Report:
    """``reached``, whose errors are told, and end the command."""
    with errors_told():
        return reached(folder, name, arguments, told=told, asked=asked)


def reached(
    folder: Path,
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    told: Told = lambda _report, _payload: None,
    asked: Asked | None = None,
) -> Report:
    """``reach``, with a bar while the store is opened."""
    with _opening() as progress:
        return reach(folder, name, arguments, told=told, asked=asked, progress=progress)


@contextlib.contextmanager
def _opening() -> Iterator[Callable[[int, int], None]]:
    """A bar that is there while it is called, and not before."""
    with contextlib.ExitStack() as stack:
        shown: list[Callable[[int, int], None]] = []

        def progress(done: int, total: int) -> None:
            if not shown:
                shown.append(stack.enter_context(progress_shown("opening")))
            shown[0](done, total)
            if done >= total:
                stack.close()

        yield progress


@contextlib.contextmanager
def progress_shown(what: str, *, in_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A callback that draws a bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    unit = DownloadColumn() if in_bytes else TextColumn("{task.completed}/{task.total}")
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        unit,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # else what is printed meanwhile goes to stderr
    ) as bar:
        task = bar.add_task(visible(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(report: object) -> None:
    """One JSON document."""
    click.echo(visible_json(json.dumps(plain(report), indent=2)))


def print_report(report: Report, as_json: bool, text: str) -> None:
    """What was done, as JSON or as a line."""
    if as_json:
        print_json(report)
    else:
        click.echo(visible(text))


def table(*columns: str) -> Table:
    """An empty one."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return made


def print_tables(*tables: Table) -> None:
    """Tables, with a line between them."""
    from ..paper import Paper

    console = Paper(soft_wrap=False, highlight=False, markup=False, emoji=False)
    for index, each in enumerate(tables):
        if index:
            console.print()
        console.print(each)


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; SIGINT interrupts when they have done so before.

    ``timeout`` and service managers send a signal to a process and to its group: two at once are
    one.
    """
    stop = threading.Event()
    asked_at = 0.0

    def handle(number: int, _frame: Any) -> None:
        nonlocal asked_at
        if not stop.is_set():
            asked_at = time.monotonic()
            stop.set()
        elif number == signal.SIGINT and time.monotonic() - asked_at >= _TWICE_S:
            raise KeyboardInterrupt

    before = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextlib.contextmanager
def status_shown(first: str) -> Iterator[Callable[[str], None]]:
    """A callback that shows a line on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(first)) as status:
        yield lambda text: status.update(Text(visible(text)))
