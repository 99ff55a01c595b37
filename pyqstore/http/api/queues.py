"""/api/queues: listing, declaring, purging and deleting queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from ...errors import Error, NotFound
from ...fields import decode_table
from ...serve.declared import plain
from ..clients import QueueRow
from ..context import Context
from ..errors import BadRequest, Missing
from ..node import NODE
from ..rights import to_declare_queue
from ..sampler import View
from .calls import Call, created, done, resource
from .clients import consumers_by_queue, owners
from .figures import message_stats, with_rate
from .lists import listed

__all__ = ["arguments_of", "flags_of", "queue_item", "routes"]


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    one = "queues/{vhost}/{queue}"
    return [
        resource("queues", context, GET=_list),
        resource("queues/{vhost}", context, GET=_list),
        resource(one, context, GET=_show, PUT=_declare, DELETE=_delete),
        resource(f"{one}/contents", context, DELETE=_purge),
        resource(f"{one}/actions", context, POST=_act),
    ]


def _list(call: Call) -> Any:
    views = {vhost: call.context.sampler.look(vhost) for vhost in call.seen()}
    items = [_counts(vhost, row) for vhost, view in views.items() for row in _rows(view)]

    def with_figures(item: dict[str, Any]) -> dict[str, Any]:
        view = views[item["vhost"]]
        return queue_item(item["vhost"], view.now.rows[item["name"]], view)

    def with_state(item: dict[str, Any]) -> dict[str, Any]:
        store = call.context.stores().get(item["vhost"])
        return item if store is None else item | _state(store, item["name"])

    return listed(call, items, with_figures, with_state)


def _rows(view: View) -> list[QueueRow]:
    return sorted(view.now.rows.values(), key=lambda row: row.name)


def _counts(vhost: str, row: QueueRow) -> dict[str, Any]:
    """The values that are available at once for thousands of queues."""
    return {
        "name": row.name,
        "vhost": vhost,
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive,
        "consumers": row.consumers,
        "memory": row.ram_bytes,
        "messages": row.ready + row.unacked,
        "messages_ready": row.ready,
        "messages_unacknowledged": row.unacked,
        "messages_delayed": row.delayed,
    }


def queue_item(vhost: str, row: QueueRow, view: View) -> dict[str, Any]:
    """The item of a list, without a call of the store for each queue."""
    arguments = decode_table(row.arguments)
    name = row.name
    ready_rate, unacked_rate = view.lengths(name)
    lengths = {
        **with_rate("messages", row.ready + row.unacked, ready_rate + unacked_rate),
        **with_rate("messages_ready", row.ready, ready_rate),
        **with_rate("messages_unacknowledged", row.unacked, unacked_rate),
    }
    item = {
        **_counts(vhost, row),
        "arguments": plain(arguments),
        "type": "stream" if arguments.get("x-queue-type") == "stream" else "classic",
        "node": NODE,
        "state": "running",
        **lengths,
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
    }
    stats = message_stats(view.stats.queues.get(name, {}), view.queue(name))
    return item | ({"message_stats": stats} if stats else {})


def _state(store: Any, name: str) -> dict[str, Any]:
    """The states of its messages; {} if it was deleted meanwhile, or its name is not UTF-8."""
    try:
        status = store.queue_status(name)
    except (Error, UnicodeEncodeError):
        return {}
    target = status.target_ram_count
    ready = status.messages_ready
    return {
        "messages_ram": status.alpha,
        "messages_paged_out": status.gamma + status.delta,
        "backing_queue_status": {
            "mode": "lazy" if status.lazy else "default",
            "q1": status.q1,
            "q2": status.q2,
            "delta": ["delta", "undefined", status.delta_len, 0, "undefined"],
            "q3": status.q3,
            "q4": status.q4,
            "len": ready,
            "target_ram_count": "infinity" if math.isinf(target) else target,
            "avg_ingress_rate": status.ingress_rate,
            "avg_egress_rate": status.egress_rate,
        },
        "pyqstore": {key: value for key, value in status.items() if key != "target_ram_count"},
    }


def _show(call: Call) -> Any:
    view = call.context.sampler.look(call.vhost)
    name = call.name("queue")
    if name not in view.now.rows:  # it may be newer than the sample
        call.context.sampler.forget_newest()
        view = call.context.sampler.look(call.vhost)
    row = view.now.rows.get(name)
    if row is None:
        raise Missing
    item = queue_item(call.vhost, row, view) | _state(call.store, name)
    consumers = consumers_by_queue(call.context, call.vhost, call.store).get(name, [])
    exclusive = [each["consumer_tag"] for each in consumers if each["exclusive"]]
    single = "x-single-active-consumer" in item["arguments"]
    active = [each["consumer_tag"] for each in consumers if each["active"]]
    incoming = [
        {
            "stats": message_stats(counts[name], {}),
            "exchange": {"name": exchange, "vhost": call.vhost},
        }
        for exchange, counts in view.stats.routes.items()
        if name in counts
    ]
    return item | {
        "consumer_details": consumers,
        "exclusive_consumer_tag": exclusive[0] if exclusive else None,
        "single_active_consumer_tag": active[0] if single and active else None,
        "incoming": incoming,
        **owners(call.store, row),
    }


def _declare(call: Call) -> Any:
    name = call.name("queue")
    body = call.body()
    flags = flags_of(body, "durable", "auto_delete")
    arguments = arguments_of(body)
    store = call.acting(*to_declare_queue(name, arguments))
    was_there = _is_there(store, name)
    with store.channel() as channel:
        try:
            channel.queue_declare(name, **flags, arguments=arguments)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRequest(f"queue and arguments: {error}") from None
    return done() if was_there else created()


def _is_there(store: Any, name: str) -> bool:
    try:
        store.queue_status(name)
    except (NotFound, ValueError):  # or no queue can have the name
        return False
    return True


def _delete(call: Call) -> Any:
    name = call.name("queue")
    store = call.acting(("configure", name))
    _require(store, name)
    if_unused, if_empty = (call.query.get(key) == "true" for key in ("if-unused", "if-empty"))
    with store.channel() as channel:
        channel.queue_delete(name, if_unused=if_unused, if_empty=if_empty)
    return done()


def _purge(call: Call) -> Any:
    name = call.name("queue")
    store = call.acting(("read", name))
    _require(store, name)
    with store.channel() as channel:
        channel.queue_purge(name)
    return done()


def _act(call: Call) -> Any:
    """RabbitMQ's "sync" and "cancel_sync" are for mirrors, which do not exist here."""
    store = call.acting(("configure", call.name("queue")))
    _require(store, call.name("queue"))
    action = call.body("action")["action"]
    if action not in ("sync", "cancel_sync"):
        raise BadRequest(f"unknown action {action!r}: there are sync and cancel_sync")
    return done()


def _require(store: Any, name: str) -> None:
    if not _is_there(store, name):
        raise Missing


def flags_of(body: dict[str, Any], *keys: str) -> dict[str, bool]:
    """Boolean values of a body; a missing one is False.  BadRequest."""
    flags = {key: body.get(key, False) for key in keys}
    for key, value in flags.items():
        if value in ("true", "false"):  # in rabbitmqadmin's form
            flags[key] = value == "true"
        elif not isinstance(value, bool):
            raise BadRequest(f"{key} must be true or false, not {value!r:.80}")
    return flags


def arguments_of(body: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a body; none if they are missing.  BadRequest."""
    arguments = body.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise BadRequest(f"arguments must be an object, not {arguments!r:.80}")
    return arguments
