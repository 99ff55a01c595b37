"""The command ``pyqstore salvage``."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from .. import salvaging
from ..terminal import EXIT_DAMAGE, complain, errors_told, visible
from .shared import directory, json_option, print_json, progress_shown

__all__ = ["salvage"]

_SHOWN = 20  # damaged places, without --json


@click.command()
@directory
@click.argument("out", type=click.Path(path_type=Path))
@json_option
def salvage(directory: Path, out: Path, as_json: bool) -> None:
    """Copy what is whole of a damaged store to a new store OUT, and say what is lost.

    DIRECTORY is not changed; no process may have it open.  OUT must not be there.  Exit status 1
    when anything is lost.
    """
    logging.getLogger("pyqstore").addHandler(logging.NullHandler())  # the report tells it all
    with errors_told(), _stages() as progress:
        for path in salvaging.leftovers(out):
            complain(f"{path} was left by a salvage that was killed; remove it")
        report = salvaging.salvage(directory, out, progress)
    if as_json:
        print_json(report.to_dict())
    else:
        for line in _lines(report):
            click.echo(visible(line))
    sys.exit(0 if report.is_lossless else EXIT_DAMAGE)


@contextlib.contextmanager
def _stages() -> Iterator[salvaging.Progress]:
    """A bar for each thing that is done, one at a time."""
    with contextlib.ExitStack() as stack:
        running = ""
        bar = None

        def progress(what: str, done: int, total: int) -> None:
            nonlocal running, bar
            if bar is None or what != running:
                stack.close()
                running = what
                bar = stack.enter_context(progress_shown(what, in_bytes=what != "reading"))
            bar(done, total)

        yield progress


def _lines(report: salvaging.Report) -> Iterator[str]:
    for place in report.damage[:_SHOWN]:
        yield place.text
    if report.damages > _SHOWN:
        yield f"and {_of(report.damages - _SHOWN, 'more damaged place')}; --json names them"
    yield from _losses(report)
    whole = "nothing is lost" if report.is_lossless else "the original is unchanged; keep it"
    if report.damages:
        made = f"{report.messages} messages in {_of(report.queues, 'queue')} are"
    else:
        made = "no damage was found: all files are"
    yield f"{made} in {report.directory}; {whole}"


def _losses(report: salvaging.Report) -> Iterator[str]:
    for unread in report.unread:
        yield f"{unread.path}: {unread.bytes} bytes at {unread.offset} cannot be read"
    for path in report.passed_over:
        yield f"lost: {path}, which is no regular file"
    if report.manifest_made_again:
        yield "lost: MANIFEST, which was made again; where the journal ended, and whether the"
        yield "      checkpoint is whole, is not known for sure"
    if report.lost_checkpoint:
        yield "lost: the checkpoint, and all that the journal did not have any more"
    if report.lost_ranges or report.lost_bytes:
        places = _of(report.lost_ranges, "place")
        yield f"lost: {report.lost_bytes} bytes of the journal, in {places}"
    if report.torn_bytes:
        yield f"cut off: {report.torn_bytes} bytes of an unfinished write at the journal's end"
    if report.lost_segments:
        segments = _of(report.lost_segments, "segment")
        yield f"lost: {segments} of queues, with {_of(report.lost_segment_messages, 'message')}"
    for queue, count in report.lost_messages.items():
        yield f"lost: {_of(count, 'message')} of queue {queue}"
    for stream, count in report.lost_offsets.items():
        messages = _of(count, "message")
        yield f"lost: {messages} of stream {stream}; the offsets stay, and cannot be read"
    for name in report.recovered_queues:
        yield f"without its declaration: queue {name}"


def _of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
