"""The command ``pyqstore shovel``."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

import click

from ..places import Start
from ..shovels import Shovelled
from ..shovels import shovel as shovelled
from ..terminal import errors_told
from .shared import PLACE, json_option, place, print_report, status_shown, stopping

__all__ = ["shovel"]


@click.command()
@click.option("--from", "source", required=True, metavar="SOURCE", envvar="PYQSTORE_SHOVEL_FROM",
              help="Where messages are; or the variable PYQSTORE_SHOVEL_FROM says it.")  # fmt: skip
@click.option("--to", "target", required=True, metavar="TARGET", envvar="PYQSTORE_SHOVEL_TO",
              help="Where they go; or PYQSTORE_SHOVEL_TO.")  # fmt: skip
@click.option("--name", help="Under which it is remembered how far it is.")
@click.option(
    "--start",
    type=place,
    default="first",
    metavar=PLACE,
    help="Of a stream or a topic: where to begin.",
)
@click.option(
    "--idle", type=click.FloatRange(min=0), help="End when nothing came for so many seconds."
)
@click.option("--tries", type=click.IntRange(1, 1000), default=5, show_default=True,
              help="How often a message is tried that TARGET refuses.")  # fmt: skip
@click.option("--dead", metavar="QUEUE", help="Where it goes then; else the command ends.")
@json_option
def shovel(
    source: str,
    target: str,
    name: str | None,
    start: Start,
    idle: float | None,
    tries: int,
    dead: str | None,
    as_json: bool,
) -> None:
    """Move messages from SOURCE to TARGET until SIGTERM or Ctrl-C, or until --idle.

    SOURCE and TARGET are a queue or a stream of a store, as DIRECTORY#QUEUE, or at a server as
    grpc://HOST:PORT#QUEUE, or of a broker, as amqp://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME, or a
    topic of Kafka, as kafka://HOST:PORT/TOPIC; TARGET also as amqp://...?exchange=NAME&key=KEY,
    without key with the messages' own.  One of the two is of a store.

    Into a store each message comes once, and from a stream into Kafka.  Else it comes at least
    once: it leaves its store when the broker has confirmed it.  Lost connections are made again.
    """
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # what it logs is told in the report
    with errors_told(), stopping() as stop, _shown() as progress:
        report = shovelled(
            source,
            target,
            name=name,
            start=start,
            idle=idle,
            tries=tries,
            dead=dead,
            stop=stop,
            progress=progress,
        )
    text = f"{report.moved} messages moved in {report.seconds:.1f} s, {report.rate:.0f}/s"
    for count, what in ((report.repeated, "came again"), (report.dead, "are dead letters")):
        text += f"; {count} {what}" if count else ""
    print_report(report.to_dict(), as_json, text)


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[Shovelled], None]]:
    """A line on stderr, if that is a terminal."""
    with status_shown("connecting") as show_text:

        def show(report: Shovelled) -> None:
            lag = "?" if report.lag is None else report.lag
            text = f"{report.moved} moved, {report.rate:.0f}/s, {lag} waiting"
            if report.repeated:
                text += f", {report.repeated} came again"
            if report.dead:
                text += f", {report.dead} dead"
            if report.error is not None:
                text += f"; last trouble: {report.error}"
            show_text(text)

        yield show
