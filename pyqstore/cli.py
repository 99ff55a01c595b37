"""The command line: ``pyqstore``, or ``python -m pyqstore``.

Results go to stdout, as text for people or, with ``--json``, as JSON; errors are one line on
stderr, where progress is shown, too, if that is a terminal.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import importlib.util
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Never

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from . import _core
from . import store as _store
from .errors import Error, NotFound, StoreCorrupt
from .figures import QueueStatus
from .message import Message
from .peeking import peeks
from .properties import _NAMES
from .stream import microseconds_of
from .terminal import EXIT_DAMAGE, EXIT_FAILED, Paper, visible, visible_json

__all__ = ["main"]

_COUNTS = ("ready", "unacked", "delayed")
_STATES = ("alpha", "beta", "gamma", "delta")
_OFFSETS = ("first", "next", "segments")
_FOLDERS = ("journal", "checkpoint", "index", "transient", "messages", "streams")
_POSITION_MAX = 2**64 - 1
_KINDS = ("lazy", "stream")
_BENCH_NEEDS = ("jinja2", "matplotlib", "psutil")
_EPILOG = """Exit status: 0 done; 1 the store is damaged; 2 wrong arguments; 3 anything else (no
store, open elsewhere, no such queue, an input/output error).

inspect, verify, dump and stats read and change nothing.  The store must not be open elsewhere."""

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_directory = click.argument("directory", type=click.Path(path_type=Path))


@contextlib.contextmanager
def _usage() -> Iterator[None]:
    """What is wrong with arguments repeats them, and a script may take them from a name."""
    try:
        yield
    except click.ClickException as error:
        error.message = "\n".join(map(visible, error.message.split("\n")))  # type: ignore[misc]
        raise


class _Place(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An offset, or a time."""

    name = "OFFSET|TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | datetime.datetime:
        try:
            place = place_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return place


def place_of(text: str) -> int | datetime.datetime:
    """ValueError: it is neither."""
    try:
        if not text.isdecimal():
            return datetime.datetime.fromisoformat(text)
        if int(text) < _POSITION_MAX:
            return int(text)
    except ValueError:
        pass
    raise ValueError(f"{text!r} is neither an offset nor a time such as 2026-01-31T12:00")


class Commands(click.Group):
    """Commands whose errors a terminal can be shown."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """The command's own arguments are read here."""
        with _usage():
            return super().invoke(ctx)


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pyqstore")
def main() -> None:
    """Look into pyqstore stores, and measure pyqstore."""


@main.command()
@_directory
@_json_option
def inspect(directory: Path, as_json: bool) -> None:
    """Show queues with their counts, and files with their bytes."""
    with _opened(directory) as store:
        queues = {name: _queue(store, name) for name in store.queues()}
        report = {
            "path": str(directory),
            "segment_entries": store.options["segment_entries"],
            "queues": queues,
            "segments": _count(directory / "index")[0],
            "files": {name: _count(directory / name)[0] for name in _FOLDERS},
            "bytes": {name: _count(directory / name)[1] for name in _FOLDERS},
            "staging": _staging(directory / "staging"),
        }
    if as_json:
        _print_json(report)
        return
    table = _table("queue", *_COUNTS, *_STATES, "RAM", "disk")
    for name, status in queues.items():
        table.add_row(
            visible(name) + next((f" ({kind})" for kind in _KINDS if status[kind]), ""),
            *(str(status[f"messages_{key}"]) for key in _COUNTS),
            *(str(status[key]) for key in _STATES),
            _size(status["ram_bytes"]),
            _size(status["disk_bytes"]),
        )
    streams = _table("stream", *_OFFSETS)
    for name, status in queues.items():
        if status["stream"]:
            streams.add_row(visible(name), *(str(status[key]) for key in _OFFSETS))
    files = _table("directory", "files", "bytes")
    for name in _FOLDERS:
        files.add_row(name, str(report["files"][name]), _size(report["bytes"][name]))
    _print(table, *([streams] if streams.row_count else []), files)
    if report["staging"]:
        staged = _table("staged by Spark job", "files", "bytes", "age")
        for job in report["staging"]:
            age = str(datetime.timedelta(seconds=job["age_s"]))
            staged.add_row(visible(job["job"]), str(job["files"]), _size(job["bytes"]), age)
        _print(staged)


@main.command()
@_directory
@_json_option
def verify(directory: Path, as_json: bool) -> None:
    """Read every file that the store needs and check every checksum.

    Changes nothing.  Exit status 1 when anything is damaged: file and offset of each place are
    printed.
    """
    with _errors(), _progress("verifying") as progress:
        found = _store.verify(directory, progress=progress)
    if as_json:
        _print_json(
            {
                **{name: value for name, value in vars(found).items() if name != "damage"},
                "damage": [place._asdict() for place in found.damage],
            }
        )
    else:
        for place in found.damage:
            click.echo(visible(place.text))
        click.echo(
            f"{found.damages or 'no'} damaged place{'' if found.damages == 1 else 's'} in"
            f" {found.queues} queues, {found.checkpoint_records} checkpoint records,"
            f" {found.journal_records} journal records, {found.segments} segments,"
            f" {found.bodies} bodies"
        )
    sys.exit(EXIT_DAMAGE if found.damages else 0)


@main.command()
@_directory
@click.argument("queue")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many messages.")
@click.option("--from", "start", type=_Place(), help="Of a stream: the first offset, or a time.")
@click.option("--to", "stop", type=_Place(), help="Of a stream: the offset or time to end before.")
@click.option("--json", is_flag=True, expose_value=False, help="As it is: JSON lines.")
def dump(
    directory: Path,
    queue: str,
    limit: int | None,
    start: int | datetime.datetime | None,
    stop: int | datetime.datetime | None,
) -> None:
    """Print a queue's messages as JSON lines, first to last, "unacked" or "delayed" where they are.

    Those of a stream have their "offset". A time is ISO 8601 (2026-01-31T12:00), and local without
    a zone.

    The body is "body", or "body_base64" when it is not UTF-8.  Nothing is delivered, and nothing in
    the store changes.  A damaged message is left out, and named on stderr with file and offset;
    exit status 1 then.
    """
    damages = 0

    def complain(error: StoreCorrupt) -> None:
        nonlocal damages
        damages += 1
        _complain(str(error))

    with _opened(directory) as store:
        status = store.queue_status(queue)
        begin, end = _range(store, queue, status, start, stop)
        count = sum(int(status[f"messages_{key}"]) for key in _COUNTS)
        count = count if not status.stream else max(0, min(end, status.next) - begin)
        count = count if limit is None else min(limit, count)
        with _progress(f"dumping {queue}", in_bytes=False) as progress:
            for number, (message, state) in enumerate(peeks(store, queue, complain, begin)):
                if (limit is not None and number >= limit) or message.delivery_tag >= end:
                    break
                line = _message(message) | ({} if state == "ready" else {state: True})
                if status.stream:
                    line = {"offset": message.delivery_tag} | line
                sys.stdout.write(visible_json(json.dumps(line, default=_plain)) + "\n")
                if number % 1000 == 0:
                    progress(number, count)
            sys.stdout.flush()
    sys.exit(EXIT_DAMAGE if damages else 0)


@main.command()
@_directory
@_json_option
def stats(directory: Path, as_json: bool) -> None:
    """Show the store's numbers: of its recovery, its files, its memory."""
    with _opened(directory) as store:
        report = {
            **store.stats().to_dict(),
            "options": dict(store.options),
            "recovery_report": store.recovery_report.to_dict(),
        }
    if as_json:
        _print_json(report)
        return
    table = _table("name", "value")
    for name, value in report.items():
        if not isinstance(value, dict):
            table.add_row(name, visible(str(value)))
        elif name != "recovery_report":  # its numbers stand there already
            for part, number in value.items():
                table.add_row(f"{name}.{part}", visible(str(number)))
    _print(table)


# What `pyqstore bench` takes is known to the extra alone: all of it is passed on.
@main.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> None:
    """Measure pyqstore beside what the disk does alone (pyqstore[bench])."""
    missing = [name for name in _BENCH_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        _fail(f"{', '.join(missing)} missing: pip install 'pyqstore[bench]'", EXIT_FAILED)
    from .bench.command import bench as workloads

    with _errors():
        workloads.main(list(arguments), prog_name="pyqstore bench")


# Stores and their errors.


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except StoreCorrupt as error:
        _fail(str(error), EXIT_DAMAGE)
    except NotFound as error:
        _fail(error.reply_text, EXIT_FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except (Error, OSError, ValueError) as error:
        _fail(str(error), EXIT_FAILED)


def _complain(text: str) -> None:
    click.echo(f"pyqstore: {visible(' '.join(text.split()))}", err=True)


def _fail(text: str, status: int) -> Never:
    _complain(text)
    sys.exit(status)


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[_store.Store]:
    """The store, to look into: nothing of it changes."""
    with _errors():
        with _progress("opening") as progress:
            store = _store.open(
                directory,
                read_only=True,
                progress=progress,
            )
        with store:
            yield store


@contextlib.contextmanager
def _progress(what: str, *, in_bytes: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A callback that draws a bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    unit = DownloadColumn() if in_bytes else TextColumn("{task.completed}/{task.total}")
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        unit,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
        redirect_stdout=False,  # else what is printed meanwhile goes to stderr
    ) as bar:
        task = bar.add_task(visible(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# What is printed.


def _queue(store: _store.Store, name: str) -> dict[str, Any]:
    return store.queue_status(name).to_dict()


def _range(
    store: _store.Store,
    name: str,
    status: QueueStatus,
    start: int | datetime.datetime | None,
    stop: int | datetime.datetime | None,
) -> tuple[int, int]:
    """Positions: the first, and behind the last."""
    if not status.stream and (start is not None or stop is not None):
        raise ValueError(f"queue {name!r} is no stream: --from and --to are about offsets")
    return _offset(store, name, start, status.first), _offset(store, name, stop, _POSITION_MAX)


def _offset(
    store: _store.Store, name: str, place: int | datetime.datetime | None, otherwise: int
) -> int:
    if isinstance(place, datetime.datetime):
        return int(_core.stream_offset_at(store, name, microseconds_of(place)))
    return otherwise if place is None else place


def _staging(folder: Path) -> list[dict[str, Any]]:
    """What Spark jobs left or are leaving: jobs that run, and jobs whose driver was killed."""
    if not folder.is_dir():
        return []
    jobs = sorted((entry for entry in os.scandir(folder) if entry.is_dir()), key=lambda e: e.name)
    now = time.time()
    return [
        {
            "job": job.name,
            "files": _count(Path(job.path))[0],
            "bytes": _count(Path(job.path))[1],
            "age_s": max(0, int(now - job.stat().st_mtime)),
        }
        for job in jobs
    ]


def _count(folder: Path) -> tuple[int, int]:
    """Files in a folder, and the bytes they take on the disk."""
    if not folder.is_dir():  # a store without streams was made before there were any
        return 0, 0
    sizes = [entry.stat().st_blocks * 512 for entry in os.scandir(folder) if entry.is_file()]
    return len(sizes), sum(sizes)


def _message(message: Message) -> dict[str, Any]:
    given = ((name, getattr(message.properties, name)) for name in _NAMES)
    line: dict[str, Any] = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "properties": _finite({name: value for name, value in given if value not in (None, {})}),
    }
    try:
        line["body"] = message.body.decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(message.body).decode()
    return line


def _plain(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(value)


def _finite(value: Any) -> Any:
    """The same without infinity, which JSON has no word for either."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_json(report: dict[str, Any]) -> None:
    click.echo(visible_json(json.dumps(_finite(report), default=_plain, indent=2)))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return table


def _print(*tables: Table) -> None:
    console = Paper(soft_wrap=False, highlight=False, markup=False, emoji=False)
    for index, table in enumerate(tables):
        if index:
            console.print()
        console.print(table)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
