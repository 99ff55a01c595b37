"""What the write option ``stream`` means: rows go where those go that ``Stream.publish_batch`` has.

With routing keys, by which readers filter, there is an exchange in between, as one message has one
key only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .options import OptionError, WriteOptions

_PREFIX = "pyqstore.stream."
_NAME_BYTES_MAX = 255


def aimed(options: WriteOptions, names: Sequence[str]) -> WriteOptions:
    """With the exchange and the routing key that lead to the stream, if one is named.

    OptionError: the columns say otherwise, or the name leaves no room for that of an exchange.
    """
    if not options.stream:
        return options
    if "exchange" in names:
        raise OptionError(
            f"option 'stream' sends every row to the stream '{options.stream}', and column "
            f"'exchange' says where each goes: leave one of them out"
        )
    if options.routing_key is None and "routing_key" not in names:
        return replace(options, routing_key=options.stream)
    exchange = f"{_PREFIX}{options.stream}"
    if len(exchange.encode()) > _NAME_BYTES_MAX:
        most = _NAME_BYTES_MAX - len(_PREFIX)
        raise OptionError(
            f"rows with routing keys need a stream whose name has at most {most} bytes"
        )
    return replace(options, exchange=exchange, routing_key=options.routing_key or options.stream)


def lead(store: Any, channel: Any, options: WriteOptions) -> None:
    """See that ``aimed`` options lead to the stream, which option ``create`` makes.

    ``store`` and ``channel`` are those of this process, or both a client of Arrow Flight.
    Raises OptionError: it is a queue.  pyqstore.NotFound: it is not there.
    """
    if not options.stream:
        return
    if options.create:
        store.stream(options.stream)
    if not store.queue_status(options.stream).stream:
        raise OptionError(
            f"option 'stream' is '{options.stream}', which is a queue: give the option "
            f"'routing_key' in its place"
        )
    if options.exchange:
        channel.exchange_declare(options.exchange, "fanout", durable=True, auto_delete=True)
        channel.queue_bind(options.stream, options.exchange)
