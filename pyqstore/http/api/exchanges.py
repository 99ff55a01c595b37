"""/api/exchanges: listing, declaring and deleting exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from ...listings import ExchangeInfo
from ...serve.declared import plain
from ..context import Context
from ..errors import BadRequest, Missing
from ..rights import to_declare_exchange
from ..sampler import View
from .calls import Call, created, done, resource
from .figures import message_stats
from .lists import listed
from .queues import arguments_of, flags_of

__all__ = ["exchange_name", "routes"]

_DEFAULT = "amq.default"  # the default exchange in paths


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    return [
        resource("exchanges", context, GET=_list),
        resource("exchanges/{vhost}", context, GET=_list),
        resource("exchanges/{vhost}/{exchange}", context, GET=_show, PUT=_declare, DELETE=_delete),
    ]


def exchange_name(call: Call, part: str = "exchange") -> str:
    """The name of the exchange in a path."""
    name = call.name(part)
    return "" if name == _DEFAULT else name


def _list(call: Call) -> Any:
    items = []
    for vhost, store in call.seen().items():
        view = call.context.sampler.look(vhost)
        items += [_item(vhost, info, view) for info in store.exchanges().values()]
    return listed(call, items)


def _item(vhost: str, info: ExchangeInfo, view: View) -> dict[str, Any]:
    item = {
        "name": info.name,
        "vhost": vhost,
        "type": info.type,
        "durable": info.durable,
        "auto_delete": info.auto_delete,
        "internal": info.internal,
        "arguments": plain(info.arguments),
    }
    counts = view.stats.exchanges.get(info.name, {})
    if not any(counts.values()):
        return item
    return item | {"message_stats": message_stats(counts, view.exchange(info.name))}


def _show(call: Call) -> Any:
    name = exchange_name(call)
    info = call.store.exchanges().get(name)
    if info is None:
        raise Missing
    view = call.context.sampler.look(call.vhost)
    outgoing = [
        {"stats": message_stats(counts, {}), "queue": {"name": queue, "vhost": call.vhost}}
        for queue, counts in view.stats.routes.get(name, {}).items()
    ]
    return _item(call.vhost, info, view) | {"incoming": [], "outgoing": outgoing}


def _declare(call: Call) -> Any:
    name = exchange_name(call)
    body = call.body()
    flags = flags_of(body, "durable", "auto_delete", "internal")
    arguments, kind = arguments_of(body), body.get("type", "direct")
    if not isinstance(kind, str):
        raise BadRequest(f"type must be text, not {kind!r:.80}")
    store = call.acting(*to_declare_exchange(name, arguments))
    was_there = name in store.exchanges()
    with store.channel() as channel:
        try:
            channel.exchange_declare(name, kind, **flags, arguments=arguments)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRequest(f"exchange and arguments: {error}") from None
    return done() if was_there else created()


def _delete(call: Call) -> Any:
    name = exchange_name(call)
    store = call.acting(("configure", name))
    if name not in store.exchanges():
        raise Missing
    with store.channel() as channel:
        channel.exchange_delete(name, if_unused=call.query.get("if-unused") == "true")
    return done()
