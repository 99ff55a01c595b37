"""The commands about queues, exchanges and bindings; and ``checkpoint``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .shared import ask_store, directory, json_option, named_value, print_report

__all__ = ["bind", "checkpoint", "declare", "delete", "unbind"]

_arguments = click.option(
    "--argument",
    "arguments",
    type=named_value,
    metavar="NAME=VALUE",
    multiple=True,
    help="As x-max-length=1000.",
)
_key = click.option("--key", default="", help="The routing key.")
_is_exchange = click.option("--exchange", is_flag=True, help="NAME is an exchange.")
_to_exchange = click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange.")


@click.command()
@directory
@click.argument("name", metavar="QUEUE")
@click.option("--stream", is_flag=True, help="Declare a stream.")
@click.option("--exchange", "exchange_type", metavar="TYPE", help="Declare an exchange.")
@click.option("--transient", is_flag=True, help="It ends with the process that has the store open.")
@click.option("--auto-delete", is_flag=True, help="It ends with its last consumer or binding.")
@_arguments
@json_option
def declare(
    directory: Path,
    name: str,
    stream: bool,
    exchange_type: str | None,
    transient: bool,
    auto_delete: bool,
    arguments: tuple[tuple[str, Any], ...],
    as_json: bool,
) -> None:
    """Declare a durable queue, a stream or an exchange.

    A store that is not there is made.  What is there already must be the same.
    """
    if stream and exchange_type is not None:
        raise click.UsageError("say either --stream or --exchange")
    extra = dict(arguments)
    if stream:
        extra["x-queue-type"] = "stream"
    report = ask_store(
        directory,
        "declare",
        {
            "kind": "queue" if exchange_type is None else "exchange",
            "name": name,
            "type": exchange_type,
            "durable": not transient,
            "auto_delete": auto_delete,
            "arguments": extra,
        },
    )
    what = "exchange" if exchange_type else "stream" if stream else "queue"
    print_report(report, as_json, f"{what} {report.get('queue', name)} is declared")


@click.command()
@directory
@click.argument("name")
@_is_exchange
@click.option("--if-unused", is_flag=True, help="Refuse if it has consumers or bindings.")
@click.option("--if-empty", is_flag=True, help="Refuse if the queue has messages.")
@json_option
def delete(
    directory: Path, name: str, exchange: bool, if_unused: bool, if_empty: bool, as_json: bool
) -> None:
    """Delete a queue with its messages, a stream or an exchange."""
    arguments = {
        "kind": "exchange" if exchange else "queue",
        "name": name,
        "if_unused": if_unused,
        "if_empty": if_empty,
    }
    report = ask_store(directory, "delete", arguments)
    text = f"exchange {name} is deleted"
    if not exchange:
        text = f"queue {name} is deleted, with {report['messages']} messages"
    print_report(report, as_json, text)


def _bound(
    directory: Path,
    source: str,
    destination: str,
    key: str,
    to_exchange: bool,
    arguments: tuple[tuple[str, Any], ...],
    *,
    unbind: bool,
) -> dict[str, Any]:
    given = {
        "kind": "exchange" if to_exchange else "queue",
        "source": source,
        "destination": destination,
        "key": key,
        "arguments": dict(arguments),
        "unbind": unbind,
    }
    return ask_store(directory, "bind", given)


@click.command()
@directory
@click.argument("exchange")
@click.argument("destination")
@_key
@_to_exchange
@_arguments
@json_option
def bind(
    directory: Path,
    exchange: str,
    destination: str,
    key: str,
    to_exchange: bool,
    arguments: tuple[tuple[str, Any], ...],
    as_json: bool,
) -> None:
    """Bind the queue DESTINATION to EXCHANGE."""
    report = _bound(directory, exchange, destination, key, to_exchange, arguments, unbind=False)
    print_report(report, as_json, f"{destination} is bound to {exchange}")


@click.command()
@directory
@click.argument("exchange")
@click.argument("destination")
@_key
@_to_exchange
@_arguments
@json_option
def unbind(
    directory: Path,
    exchange: str,
    destination: str,
    key: str,
    to_exchange: bool,
    arguments: tuple[tuple[str, Any], ...],
    as_json: bool,
) -> None:
    """Take a binding away."""
    report = _bound(directory, exchange, destination, key, to_exchange, arguments, unbind=True)
    print_report(report, as_json, f"{destination} is not bound to {exchange} any more")


@click.command()
@directory
@json_option
def checkpoint(directory: Path, as_json: bool) -> None:
    """Make a checkpoint: the next open has nothing to replay, and files that are done with go."""
    report = ask_store(directory, "checkpoint")
    print_report(report, as_json, f"checkpoint at {report['checkpoint_lsn']}")
