"""The commands that write messages to files and read them from files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..control.messages import Seen, packed, packs_of, unpacked
from ..control.wire import Report
from ..errors import Error, Unroutable
from ..places import Start, text_of
from ..terminal import EXIT_DAMAGE, complain, errors_told
from .reading import BadRow, LinesSource, ParquetSource, Source
from .shared import PLACE, directory, json_option, place, print_report, progress_shown, reached
from .writing import LinesSink, ParquetSink, Sink, check_free, new_file

__all__ = ["export", "import_"]

_FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_format = click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "jsonl"]),
    help="Of the file, where its name does not say: .parquet, .jsonl or .ndjson.",
)


def _form_of(path: Path, given: str | None) -> str:
    """UsageError: nothing says it."""
    form = given or ("jsonl" if str(path) == "-" else _FORMATS.get(path.suffix.lower()))
    if form is None:
        raise click.UsageError(
            f"{path} ends neither in .parquet nor in .jsonl or .ndjson: say --format"
        )
    if form == "parquet" and str(path) == "-":
        raise click.UsageError("Parquet needs a file")
    return form


@click.command()
@directory
@click.argument("queue", metavar="QUEUE")
@click.argument("out", type=click.Path(path_type=Path))
@_format
@click.option("--limit", type=click.IntRange(min=0), help="At most so many messages.")
@click.option("--from", "start", type=place, metavar=PLACE, help="Of a stream: where to begin.")
@click.option("--to", "stop", type=place, metavar=PLACE, help="Of a stream: where to end before.")
@click.option("--force", is_flag=True, help="Replace OUT if it is there.")
@json_option
def export(
    directory: Path,
    queue: str,
    out: Path,
    form: str | None,
    limit: int | None,
    start: Start | None,
    stop: Start | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the messages of a queue or a stream to OUT, as Parquet or JSON lines.

    They stay where they are: nothing is delivered, and nothing is counted.  OUT is there when all
    of it is on the disk, and not before; "-" is the standard output.  --from and --to are as of
    `pyqstore dump`.  A damaged message is left out, and named on stderr; exit status 1 then.
    """
    form = _form_of(out, form)
    arguments = {
        "queue": queue,
        "limit": limit,
        "start": None if start is None else text_of(start),
        "stop": None if stop is None else text_of(stop),
        "times": True,
    }
    with errors_told():
        if str(out) != "-":
            check_free(out, force)
        with (
            progress_shown(f"exporting {queue}", in_bytes=False) as progress,
            new_file(out, force) as file,
        ):
            sink: Sink = ParquetSink(file) if form == "parquet" else LinesSink(file)
            report = _written(directory, arguments, sink, progress)
    if str(out) != "-":
        text = f"{report['count']} messages of {queue} exported to {out}"
        print_report({"exported": report["count"], "damages": report["damages"]}, as_json, text)
    sys.exit(EXIT_DAMAGE if report["damages"] else 0)


def _written(directory: Path, arguments: Report, sink: Sink, progress: Any) -> Report:
    count = done = 0

    def told(report: Report, payload: bytes) -> None:
        nonlocal count, done
        if "count" in report:
            count = report["count"]
            sink.begin(report["stream"])
        elif "damaged" in report:
            complain(report["damaged"])
        else:
            messages = unpacked(report, payload)
            sink.write(messages)
            done += len(messages)
        progress(done, max(count, done))

    report = reached(directory, "dump", arguments, told=told)
    sink.end()
    return report


@click.command("import")
@directory
@click.argument("words", nargs=-1, metavar="[QUEUE] FILE")
@_format
@click.option("--exchange", help="Publish there by each row's routing_key, instead of to QUEUE.")
@click.option("--skip", type=click.IntRange(min=0), default=0, help="Pass over so many rows.")
@click.option("--ignore-unknown", is_flag=True, help="Pass over columns that mean nothing here.")
@json_option
def import_(
    directory: Path,
    words: tuple[str, ...],
    form: str | None,
    exchange: str | None,
    skip: int,
    ignore_unknown: bool,
    as_json: bool,
) -> None:
    """Publish the rows of FILE, Parquet or JSON lines, to QUEUE, or to an exchange.

    FILE is what `pyqstore export` wrote, or has at least a column "body"; "-" is the standard
    input, of JSON lines.  Rows go in order, in packs, each of which is durable before the next one
    is sent.  A row that cannot be a message ends the command: stderr names it, and says how many
    rows are in, so that --skip can go on.
    """
    if len(words) != (2 if exchange is None else 1):
        raise click.UsageError("say QUEUE and FILE, or --exchange and FILE")
    path = Path(words[-1])
    form = _form_of(path, form)
    queue = words[0] if exchange is None else None
    to = exchange if queue is None else queue
    with errors_told():
        make = ParquetSource if form == "parquet" else LinesSource
        count = _published(directory, queue, exchange, make(path, skip, ignore_unknown), skip)
    print_report({"imported": count}, as_json, f"{count} messages imported into {to}")


def _published(
    directory: Path, queue: str | None, exchange: str | None, source: Source, skip: int
) -> int:
    rows = _Rows(source)
    packs = packs_of(rows)
    done = 0
    arguments = {"queue": queue, "exchange": exchange or "", "key": queue}
    name = exchange if queue is None else queue
    is_bytes = isinstance(source, LinesSource)
    with progress_shown(f"importing into {name}", in_bytes=is_bytes) as progress:

        def asked(report: Report) -> tuple[Report, bytes]:
            nonlocal done
            done = report["published"]
            progress(source.done, source.total)
            pack = next(packs, [])
            if not pack and rows.wrong is not None:
                raise BadRow(f"{rows.wrong}; {_so_far(done, skip)}")
            return packed(pack)

        try:
            report = reached(directory, "publish", arguments, asked=asked)
        except BadRow:
            raise
        except (Error, OSError, ValueError, KeyboardInterrupt) as error:
            if done > 0 and not isinstance(error, Unroutable):  # which has told it
                complain(f"at least {done} rows are imported: look how many, and go on with --skip")
            raise
    count: int = report["published"]
    return count


class _Rows:
    """Messages of a source; a row that is none ends them, and is kept as ``wrong``: those before
    it are published."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.wrong: BadRow | None = None

    def __iter__(self) -> Iterator[Seen]:
        try:
            yield from self._source
        except BadRow as error:
            self.wrong = error


def _so_far(done: int, skip: int) -> str:
    return f"{done} rows before it are imported; --skip {done + skip} goes on behind them"
