"""/api/overview, /api/nodes and related paths: the whole server."""

from __future__ import annotations

import os
import platform
import resource as _resource
import shutil
import time
from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from ... import store as _store
from ..clients import channels_of, connections_of, consumers_of
from ..context import Context
from ..errors import Missing
from ..node import NODE
from ..sampler import View, added
from .calls import Call, resource
from .figures import with_rate
from .lists import listed
from .totals import of_messages, of_queues
from .versions import EXCHANGE_TYPES, RABBITMQ

__all__ = ["routes"]

_EMPTY = (
    *("parameters", "parameters/{component}", "parameters/{component}/{vhost}", "policies"),
    *("policies/{vhost}", "operator-policies", "operator-policies/{vhost}", "vhost-limits"),
    *("vhost-limits/{vhost}", "user-limits", "user-limits/{user}", "topic-permissions"),
    *("users/{user}/topic-permissions", "global-parameters", "federation-links", "feature-flags"),
)


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    return [
        resource("whoami", context, GET=_whoami),
        resource("auth", context, GET=_auth),
        resource("overview", context, GET=_overview),
        resource("cluster-name", context, GET=_cluster),
        resource("extensions", context, GET=_nothing),
        resource("nodes", context, GET=_nodes),
        resource("nodes/{node}", context, GET=_node),
        *(resource(each, context, GET=_nothing) for each in _EMPTY),
    ]


def _whoami(call: Call) -> Any:
    return {"name": call.login.name, "tags": list(call.login.tags)}


def _auth(_call: Call) -> Any:
    return {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


def _cluster(_call: Call) -> Any:
    return {"name": NODE}


def _nothing(_call: Call) -> Any:
    return []


# ---- the overview ----


def _overview(call: Call) -> Any:
    stores = call.seen()
    views = {vhost: call.context.sampler.look(vhost) for vhost in stores}
    listeners = _listeners(call.context)
    return {
        "management_version": RABBITMQ,
        "product_name": "RabbitMQ",
        "product_version": RABBITMQ,
        "rabbitmq_version": RABBITMQ,
        "cluster_name": NODE,
        "node": NODE,
        "rates_mode": "basic",
        "disable_stats": False,
        "enable_queue_totals": False,
        "statistics_db_event_queue": 0,
        "exchange_types": [
            {"name": name, "description": f"AMQP {name} exchange", "enabled": True}
            for name in EXCHANGE_TYPES
        ],
        "listeners": listeners,
        "contexts": _contexts(listeners),
        "message_stats": of_messages(list(views.values())),
        "queue_totals": of_queues(list(views.values())),
        "object_totals": added(_object_totals(store) for store in stores.values()),
        "churn_rates": _churn(list(views.values())),
        "pyqstore": {vhost: _storage(view) for vhost, view in views.items()},
    }


def _listeners(context: Context) -> list[dict[str, Any]]:
    places = [("amqp", each) for each in context.amqp_addresses()] + [("http", context.address)]
    return [
        {"node": NODE, "protocol": protocol, "ip_address": host.strip("[]"), "port": int(port)}
        for protocol, place in places
        if not place.startswith("unix:")
        for host, _, port in [place.rpartition(":")]
    ]


def _contexts(listeners: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The HTTP listeners; RabbitMQ has the port as text."""
    return [
        {
            "node": NODE,
            "description": "RabbitMQ Management",
            "path": "/",
            "ip": each["ip_address"],
            "port": str(each["port"]),
            "ssl_opts": [],
        }
        for each in listeners
        if each["protocol"] == "http"
    ]


def _object_totals(store: _store.Store) -> dict[str, int]:
    return {
        "channels": len(channels_of(store)),
        "connections": len(connections_of(store)),
        "consumers": len(consumers_of(store)),
        "exchanges": len(store.exchanges()),
        "queues": len(store.queues()),
    }


def _churn(views: list[View]) -> dict[str, Any]:
    """Counts of opened and closed objects, and their rates."""
    found: dict[str, Any] = {}
    for kind, what in (
        ("connection", ("opened", "closed")),
        ("channel", ("opened", "closed")),
        ("queue", ("declared", "created", "deleted")),
    ):
        for each in what:
            counter = f"{kind}s_{each}"
            count = sum(view.stats[counter] for view in views)
            rate = sum(view.total(counter) for view in views)
            name = f"{kind}_created" if each == "opened" else f"{kind}_{each}"
            found |= with_rate(name, count, rate)
    return found


def _storage(view: View) -> dict[str, Any]:
    """Figures of the store that RabbitMQ does not have, and their rates."""
    own = {
        name: value
        for name, value in view.stats.to_dict().items()
        if name not in ("channels", "connections", "queues", "exchanges", "routes")
    }
    rates = ("commits", "fdatasyncs", "bytes_journalled", "bytes_stored", "messages_published")
    own["rates"] = {name: view.total(name) for name in rates}
    return own


# ---- nodes ----


def _nodes(call: Call) -> Any:
    call.login.require("monitoring")
    return listed(call, [_node_item(call.context)])


def _node(call: Call) -> Any:
    call.login.require("monitoring")
    if call.name("node") != NODE:
        raise Missing
    return _node_item(call.context)


def _node_item(context: Context) -> dict[str, Any]:
    soft, _ = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    directory = context.store.directory
    usage = shutil.disk_usage(directory if os.path.isdir(directory) else "/")
    stores = list(context.stores().values())
    used = sum(store.stats().ram_bytes for store in stores)
    limit = sum(store.options["memory_budget"] for store in stores)
    return {
        "name": NODE,
        "type": "disc",
        "running": True,
        "partitions": [],
        "os_pid": str(os.getpid()),
        "uptime": int((time.monotonic() - context.started) * 1000),
        "processors": os.cpu_count() or 1,
        "rates_mode": "basic",
        "db_dir": directory,
        "mem_used": used,
        "mem_limit": limit,
        "mem_alarm": used > limit,
        "disk_free": usage.free,
        "fd_used": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        "fd_total": soft,
        "sockets_used": sum(each.stats()["connections"] for each in context.listeners()),
        "exchange_types": [
            {"name": name, "description": f"AMQP {name} exchange", "enabled": True}
            for name in EXCHANGE_TYPES
        ],
        "applications": [
            {"name": "python", "description": "Python", "version": platform.python_version()}
        ],
        "cluster_links": [],
    }
