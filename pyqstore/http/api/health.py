"""/api/health/checks and /api/aliveness-test: for monitoring."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.routing import BaseRoute

from ...properties import Properties
from ...serve.certificates import expires_at
from ..context import Context
from ..errors import BadRequest
from ..node import NODE
from .calls import Call, Json, is_confirmed, resource

__all__ = ["routes"]

_QUEUE = "aliveness-test"
_STALLED_MS = 30_000  # a commit that has waited for the disk for that long
_PROTOCOLS = {"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp": "amqp", "http": "http"}
_PORT_DIGITS = 5
_DAY_S = 86_400.0
_UNITS = {"days": _DAY_S, "weeks": 7 * _DAY_S, "months": 365 / 12 * _DAY_S, "years": 365 * _DAY_S}
_WITHIN_DIGITS = 6
_OK = {"status": "ok"}


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    checks = "health/checks"
    alone = ("node-is-mirror-sync-critical", "node-is-quorum-critical")
    return [
        resource("aliveness-test/{vhost}", context, GET=_is_alive),
        resource("healthchecks/node", context, GET=_has_no_alarm),
        resource("healthchecks/node/{node}", context, GET=_has_no_alarm),
        resource(f"{checks}/alarms", context, GET=_has_no_alarm),
        resource(f"{checks}/local-alarms", context, GET=_has_no_alarm),
        resource(f"{checks}/virtual-hosts", context, GET=_has_all_vhosts),
        resource(f"{checks}/port-listener/{{port}}", context, GET=_has_port),
        resource(f"{checks}/protocol-listener/{{protocol}}", context, GET=_has_protocol),
        resource(f"{checks}/certificate-expiration/{{within}}/{{unit}}", context, GET=_are_valid),
        *(resource(f"{checks}/{each}", context, GET=_is_alone) for each in alone),
    ]


def _is_alive(call: Call) -> Any:
    """Publishes and gets a message through a queue that stays, like RabbitMQ."""
    store = call.acting(("configure", _QUEUE), ("write", ""), ("read", _QUEUE))
    with store.channel() as channel:
        channel.queue_declare(_QUEUE)
        channel.confirm_select()
        channel.basic_publish("", _QUEUE, b"test_message", Properties())
        is_confirmed(channel)
        message = channel.basic_get(_QUEUE, auto_ack=True)
    return _OK if message is not None else _failed("the message did not come")


def _failed(reason: str, **more: Any) -> Json:
    return Json({"status": "failed", "reason": reason, **more}, 503)


def _has_no_alarm(call: Call) -> Any:
    for vhost, store in call.context.stores().items():
        stats = store.stats()
        if stats.failed:
            return _failed(f"the store of vhost {vhost!r} has failed: open it again")
        if stats.commit_running_ms >= _STALLED_MS:
            waited = stats.commit_running_ms // 1000
            return _failed(f"the disk of vhost {vhost!r} has not answered for {waited} s")
    return _OK


def _has_all_vhosts(call: Call) -> Any:
    down = [name for name, store in call.context.stores().items() if store.closed]
    return _failed("Some virtual hosts are down", **{"virtual-hosts": down}) if down else _OK


def _has_port(call: Call) -> Any:
    port = call.name("port")
    if not (port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS):
        raise BadRequest(f"{port!r:.80} is no port")
    ports = [int(each.rpartition(":")[2]) for each in _addresses(call) if ":" in each]
    if int(port) in ports:
        return {**_OK, "port": int(port)}
    return _failed("No active listener", missing=int(port), ports=ports)


def _addresses(call: Call) -> list[str]:
    found = [*call.context.amqp_addresses(), call.context.address]
    return [each for each in found if not each.startswith("unix:")]


def _has_protocol(call: Call) -> Any:
    protocol = call.name("protocol")
    known = _PROTOCOLS.get(protocol, protocol)
    protocols = ["http", *(["amqp"] if call.context.listeners() else [])]
    if known in protocols:
        return {**_OK, "protocol": known}
    return _failed("No active listener", missing=protocol, protocols=protocols)


def _is_alone(_call: Call) -> Any:
    return {**_OK, "reason": "single node cluster"}


def _are_valid(call: Call) -> Any:
    """Whether no certificate of a listener expires within the given days, weeks, months or
    years."""
    within, unit = call.name("within"), call.name("unit")
    if not (within.isascii() and within.isdigit() and len(within) <= _WITHIN_DIGITS):
        raise BadRequest("Invalid expiration value.")
    if unit not in _UNITS:
        units = ", ".join(_UNITS)
        raise BadRequest(f"Time unit not recognised. Supported units: {units}.")
    until = time.time() + int(within) * _UNITS[unit]
    expired = []
    for protocol, address, tls in _with_tls(call):
        try:
            at = expires_at(tls)
        except ssl.SSLError as error:
            return _failed(f"the certificate of {address} cannot be looked at: {error}")
        if at <= until:
            host, _, port = address.rpartition(":")
            told = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
            listener = {"protocol": protocol, "interface": host.strip("[]"), "port": int(port)}
            expired.append({"node": NODE, **listener, "certfile_expires_on": told})
    return _failed("Certificates expiring", expired=expired) if expired else _OK


def _with_tls(call: Call) -> Iterator[tuple[str, str, ssl.SSLContext]]:
    """Protocol, address and context of each listener with TLS."""
    for each in call.context.listeners():
        if each._tls is not None:
            yield "amqp/ssl", each.address, each._tls
    if call.context.tls is not None:
        yield "https", call.context.address, call.context.tls
