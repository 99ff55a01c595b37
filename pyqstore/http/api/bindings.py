"""/api/bindings: listing, creating and deleting bindings."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote_plus, unquote

from starlette.responses import Response
from starlette.routing import BaseRoute

from ... import store as _store
from ...listings import Binding
from ...serve.declared import binding_entry, plain
from ..context import Context
from ..errors import BadRequest, Missing
from .calls import Call, created, done, resource
from .exchanges import exchange_name
from .lists import listed
from .queues import arguments_of

__all__ = ["binding_item", "properties_key", "routes"]

_KINDS = {"q": False, "e": True}


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    pair = "bindings/{vhost}/e/{source}/{kind}/{destination}"
    return [
        resource("bindings", context, GET=_list),
        resource("bindings/{vhost}", context, GET=_list),
        resource(pair, context, GET=_of_pair, POST=_bind),
        resource(f"{pair}/{{key}}", context, GET=_show, DELETE=_unbind),
        resource("queues/{vhost}/{queue}/bindings", context, GET=_of_queue),
        resource("exchanges/{vhost}/{exchange}/bindings/source", context, GET=_of_source),
        resource("exchanges/{vhost}/{exchange}/bindings/destination", context, GET=_to_exchange),
    ]


def _bindings(store: _store.Store) -> Iterator[Binding]:
    """All bindings, including those of the default exchange to each queue."""
    yield from (Binding("", name, name, {}, False) for name in store.queues())
    yield from store.bindings()


def binding_item(vhost: str, binding: Binding) -> dict[str, Any]:
    """A binding as an item of a list."""
    entry = binding_entry(binding)
    return {**entry, "vhost": vhost, "properties_key": properties_key(binding)}


def properties_key(binding: Binding) -> str:
    """The key of a binding among those of the same pair: its routing key, and a hash of its
    arguments if it has any; "~" if both are empty."""
    key = quote_plus(binding.routing_key, errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key or "~"
    packed = json.dumps(plain(binding.arguments), sort_keys=True).encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(packed).digest()[:6]).decode()
    return f"{key}~{digest}"


def _list(call: Call) -> Any:
    seen = call.seen().items()
    return listed(
        call, (binding_item(vhost, each) for vhost, store in seen for each in _bindings(store))
    )


def _of_queue(call: Call) -> Any:
    name = call.name("queue")
    if name not in call.store.queues():
        raise Missing
    return _those(call, lambda each: each.destination == name and not each.to_exchange)


def _of_source(call: Call) -> Any:
    name = exchange_name(call)
    if name not in call.store.exchanges():
        raise Missing
    return _those(call, lambda each: each.source == name)


def _to_exchange(call: Call) -> Any:
    name = exchange_name(call)
    if name not in call.store.exchanges():
        raise Missing
    return _those(call, lambda each: each.destination == name and each.to_exchange)


def _those(call: Call, chosen: Any) -> Any:
    found = (binding_item(call.vhost, each) for each in _bindings(call.store) if chosen(each))
    return listed(call, found)


def _pair(call: Call) -> tuple[str, str, bool]:
    """Source, destination, and whether the destination is an exchange."""
    kind = call.name("kind")
    if kind not in _KINDS:
        raise Missing
    to_exchange = _KINDS[kind]
    source = exchange_name(call, "source")
    destination = exchange_name(call, "destination") if to_exchange else call.name("destination")
    if source not in call.store.exchanges():
        raise Missing
    if destination not in (call.store.exchanges() if to_exchange else call.store.queues()):
        raise Missing
    return source, destination, to_exchange


def _of_pair(call: Call) -> Any:
    pair = _pair(call)
    return _those(call, lambda each: (each.source, each.destination, each.to_exchange) == pair)


def _one(call: Call) -> Binding:
    pair, key = _pair(call), call.request.path_params["key"]
    for each in _bindings(call.store):
        if (each.source, each.destination, each.to_exchange) == pair and _is_key(each, key):
            return each
    raise Missing


def _is_key(binding: Binding, key: str) -> bool:
    """Keys contain escapes; some clients escape them again as a part of a path."""
    return properties_key(binding) in (key, unquote(key))


def _show(call: Call) -> Any:
    return binding_item(call.vhost, _one(call))


def _bind(call: Call) -> Any:
    source, destination, to_exchange = _pair(call)
    body = call.body()
    key, arguments = body.get("routing_key", ""), arguments_of(body)
    if not isinstance(key, str):
        raise BadRequest(f"routing_key must be text, not {key!r:.80}")
    store = call.acting(("write", destination), ("read", source))
    with store.channel() as channel:
        bind = channel.exchange_bind if to_exchange else channel.queue_bind
        try:
            bind(destination, source, key, arguments)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRequest(f"arguments: {error}") from None
    answer: Response = created()
    made = Binding(source, destination, key, arguments, to_exchange)
    place = quote_plus(destination, errors="surrogateescape")  # the key contains escapes
    answer.headers["Location"] = f"{place}/{quote_plus(properties_key(made))}"
    return answer


def _unbind(call: Call) -> Any:
    found = _one(call)
    store = call.acting(("write", found.destination), ("read", found.source))
    with store.channel() as channel:
        unbind = channel.exchange_unbind if found.to_exchange else channel.queue_unbind
        unbind(found.destination, found.source, found.routing_key, found.arguments)
    return done()
