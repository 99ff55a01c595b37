"""The command ``pyqstore archive``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..archive_reports import Archived
from ..options import bytes_of
from .shared import ask_store, directory, json_option, print_report, size, status_shown, stopping

__all__ = ["archive", "byte_count", "choices_of"]

_Command = Callable[..., Any]


def byte_count(text: str) -> int:
    """A type of options: a size such as 64MiB."""
    try:
        return bytes_of("the value", text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def choices_of(command: _Command) -> _Command:
    """The options that say how an archive works."""
    for each in reversed(_CHOICES):
        command = each(command)
    return command


_CHOICES = (
    click.option(
        "--seconds",
        "part_seconds",
        type=click.FloatRange(min=0.1),
        default=5.0,
        show_default=True,
        help="What is durable is sent so long after, or sooner.",
    ),
    click.option(
        "--lag-bytes",
        type=byte_count,
        default="1GiB",
        show_default=True,
        metavar="SIZE",
        help="Of the journal that waits for TARGET; with more, a checkpoint gives it up, and the"
        " archive begins anew.",
    ),
    click.option(
        "--base-hours",
        type=click.FloatRange(min=0, min_open=True),
        default=24.0,
        show_default=True,
        help="A snapshot at which a restore begins is sent so often, or sooner.",
    ),
    click.option(
        "--keep-days",
        type=click.FloatRange(min=0),
        help="Remove what only older moments need; else nothing is removed.",
    ),
    click.option(
        "--temporary",
        type=click.Path(file_okay=False, exists=True, resolve_path=True),
        help="Where a snapshot is made; else beside the store, where it takes least.",
    ),
)


@click.command()
@directory
@click.argument("target")
@choices_of
@json_option
def archive(directory: Path, target: str, as_json: bool, **choices: Any) -> None:
    """Archive the store, open or not, in TARGET, until SIGTERM or Ctrl-C: a snapshot, and then
    what is published, within seconds.

    TARGET is a directory, or a URL as s3://BUCKET/PATH.  Each store has a TARGET of its own.  The
    process that has the store open does the work; if none has, this one opens it.
    """
    if "://" not in target:
        target = str(Path(target).absolute())
    with stopping() as stop, _shown() as show:

        def asked(report: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
            show(Archived(**report["archive"]))
            return {"stop": stop.is_set()}, b""

        arguments = {"to": target, "choices": choices}
        report = ask_store(directory, "archive", arguments, asked=asked)
    done = Archived(**report)
    text = (
        f"{done.bases} bases and {done.parts} parts, {size(done.sent_bytes)}, sent to {target} in"
        f" {done.seconds:.1f} s"
    )
    if done.lag_bytes:
        text += f"; {size(done.lag_bytes)} of the journal were not sent any more"
    print_report(report, as_json, text)


@contextmanager
def _shown() -> Iterator[Callable[[Archived], None]]:
    with status_shown("reading") as show:

        def shown(report: Archived) -> None:
            text = f"{report.parts} parts, {size(report.sent_bytes)}"
            text += f"; {size(report.lag_bytes)} and {report.lag_seconds:.1f} s behind"
            if not report.restorable:
                text += "; the first base is on its way"
            if report.error is not None:
                text += f"; trouble: {report.error}"
            show(text)

        yield shown
