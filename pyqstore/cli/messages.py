"""The commands about messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from ..control.messages import Seen, packed, packs_of, unpacked
from ..control.wire import Report
from ..places import Start, text_of
from ..properties import Properties
from ..terminal import EXIT_DAMAGE, complain
from . import lines
from .shared import (
    PLACE,
    ask_store,
    directory,
    json_option,
    named_value,
    place,
    print_report,
    progress_shown,
)

__all__ = ["consume", "dump", "move", "peek", "publish", "purge"]

_PEEKED_MOST = 200  # characters of a body
_READ_BYTES = 1 << 20


@click.command()
@directory
@click.argument("queue")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many messages.")
@click.option("--from", "start", type=place, metavar=PLACE, help="Of a stream: where to begin.")
@click.option("--to", "stop", type=place, metavar=PLACE, help="Of a stream: where to end before.")
@click.option("--json", is_flag=True, expose_value=False, help="As it is: JSON lines.")
def dump(
    directory: Path,
    queue: str,
    limit: int | None,
    start: Start | None,
    stop: Start | None,
) -> None:
    """Print a queue's messages as JSON lines, first to last, "unacked" or "delayed" where they are.

    Those of a stream have their "offset".  --from and --to are an offset; a time in ISO 8601
    (2026-01-31T12:00), local without a zone; how long ago (1h, with Y M D h m or s); first; last,
    the last block; or next, what would be published next.

    The body is "body", or "body_base64" when it is not UTF-8.  Nothing is delivered, and nothing in
    the store changes.  A damaged message is left out, and named on stderr with file and offset;
    exit status 1 then.
    """
    arguments = {
        "queue": queue,
        "limit": limit,
        "start": None if start is None else text_of(start),
        "stop": None if stop is None else text_of(stop),
    }
    with progress_shown(f"dumping {queue}", in_bytes=False) as progress:
        is_stream = False
        count = done = 0

        def told(report: Report, payload: bytes) -> None:
            nonlocal is_stream, count, done
            if "count" in report:
                is_stream, count = report["stream"], report["count"]
            elif "damaged" in report:
                complain(report["damaged"])
            else:
                for message in unpacked(report, payload):
                    sys.stdout.write(lines.json_of(message, is_stream=is_stream) + "\n")
                    done += 1
                progress(done, count)

        report = ask_store(directory, "dump", arguments, told=told)
        sys.stdout.flush()
    sys.exit(EXIT_DAMAGE if report["damages"] else 0)


@click.command()
@directory
@click.argument("queue")
@click.option("--limit", type=click.IntRange(min=0), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def peek(directory: Path, queue: str, limit: int, as_json: bool) -> None:
    """Show the first messages of a queue that are ready, and leave them as they are.

    Nothing is delivered, and no delivery is counted.  In JSON a message is as `pyqstore dump`
    prints it.
    """
    found: list[Seen] = []
    is_stream = False

    def told(report: Report, payload: bytes) -> None:
        nonlocal is_stream
        if "count" in report:
            is_stream = report["stream"]
        elif "damaged" in report:
            complain(report["damaged"])
        else:
            found.extend(unpacked(report, payload))

    arguments = {"queue": queue, "limit": limit, "ready": True}
    report = ask_store(directory, "dump", arguments, told=told)
    if as_json:
        rows = ",\n".join(lines.json_of(each, is_stream=is_stream) for each in found)
        click.echo(f"[\n{rows}\n]" if rows else "[]")
    else:
        for each in found:
            click.echo(lines.text_of(each, _PEEKED_MOST))
    sys.exit(EXIT_DAMAGE if report["damages"] else 0)


@click.command()
@directory
@click.argument("queue", required=False)
@click.option("--body", help="The message's body, as UTF-8.")
@click.option(
    "--file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Its body is this."
)
@click.option("--exchange", help="Publish there, instead of to QUEUE.")
@click.option("--key", default="", help="With --exchange: the routing key.")
@click.option(
    "--header",
    "headers",
    type=named_value,
    metavar="NAME=VALUE",
    multiple=True,
    help="Numbers, true and false as such.",
)
@click.option(
    "--property",
    "properties",
    type=named_value,
    metavar="NAME=VALUE",
    multiple=True,
    help="As priority=3.",
)
@click.option("--transient", is_flag=True, help="It need not survive a restart.")
@json_option
def publish(
    directory: Path,
    queue: str | None,
    body: str | None,
    file: Path | None,
    exchange: str | None,
    key: str,
    headers: tuple[tuple[str, Any], ...],
    properties: tuple[tuple[str, Any], ...],
    transient: bool,
    as_json: bool,
) -> None:
    """Publish a message to QUEUE, or to an exchange, and return when it is durable.

    Without --body and --file each line of the standard input is one, without its end.  Exit status
    3 when no queue takes it.
    """
    if (queue is None) == (exchange is None):
        raise click.UsageError("say either QUEUE or --exchange")
    if body is not None and file is not None:
        raise click.UsageError("say either --body or --file")
    try:
        shared = Properties(
            delivery_mode=1 if transient else 2, headers=dict(headers) or None, **dict(properties)
        )
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    if body is not None:
        bodies = iter([[body.encode("utf-8", "surrogateescape")]])
    elif file is not None:
        bodies = iter([[file.read_bytes()]])
    else:
        bodies = _lines_of(sys.stdin.buffer)
    packs = (pack for each in bodies for pack in packs_of(Seen(body, shared) for body in each))
    arguments = {
        "exchange": "" if exchange is None else exchange,
        "key": queue if exchange is None else key,
    }
    report = ask_store(directory, "publish", arguments, asked=lambda _: packed(next(packs, [])))
    count = report["published"]
    print_report(report, as_json, f"{count} message{'' if count == 1 else 's'} published")


def _lines_of(file: BinaryIO) -> Iterator[list[bytes]]:
    """Its lines, without their ends: those that can be read at once together, so that none waits
    for others that come later."""
    begun: list[bytes] = []  # of a line whose end is not there
    while data := file.read1(_READ_BYTES):  # type: ignore[attr-defined]
        first, *others = data.split(b"\n")
        begun.append(first)
        if others:
            yield [b"".join(begun), *others[:-1]]
            begun = [others[-1]]
    if last := b"".join(begun):
        yield [last]


@click.command()
@directory
@click.argument("queue")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds to wait for a message when there is none.",
)
@click.option("--follow", is_flag=True, help="Wait for messages until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, as dump does.")
def consume(
    directory: Path, queue: str, limit: int | None, timeout: float, follow: bool, as_json: bool
) -> None:
    """Print messages and remove them from the queue.

    A message is acknowledged when it was written to the standard output.  When the command is
    killed before, it stays in the queue, and is redelivered.
    """

    def told(report: Report, payload: bytes) -> None:
        for message in unpacked(report, payload):
            text = lines.json_of(message) if as_json else lines.text_of(message)
            sys.stdout.write(text + "\n")

    def asked(_report: Report) -> tuple[Report, bytes]:
        sys.stdout.flush()
        return {}, b""

    arguments = {"queue": queue, "limit": limit, "timeout": None if follow else timeout}
    try:
        ask_store(directory, "consume", arguments, told=told, asked=asked)
    except KeyboardInterrupt:
        sys.exit(0 if follow else 130)


@click.command()
@directory
@click.argument("queue")
@json_option
def purge(directory: Path, queue: str, as_json: bool) -> None:
    """Remove the ready messages of a queue."""
    report = ask_store(directory, "purge", {"queue": queue})
    print_report(report, as_json, f"{report['messages']} messages removed from {queue}")


@click.command()
@directory
@click.argument("queue")
@click.argument("to")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many messages.")
@json_option
def move(directory: Path, queue: str, to: str, limit: int | None, as_json: bool) -> None:
    """Move the ready messages of QUEUE to the queue TO.

    Each pack of 500 is one transaction: whatever is killed, a message is in one of the queues, and
    not in both.
    """
    arguments = {"queue": queue, "to": to, "limit": limit}
    with progress_shown(f"moving {queue}", in_bytes=False) as progress:

        def told(report: Report, _payload: bytes) -> None:
            progress(report["moved"], report["count"])

        report = ask_store(directory, "move", arguments, told=told)
    print_report(report, as_json, f"{report['moved']} messages moved")
