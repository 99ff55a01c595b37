"""Single messages, for trying things out: exchanges/.../publish and queues/.../get."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from ...channel import Channel
from ...message import Message
from ...properties import Properties
from ...serve.declared import plain
from ..context import Context
from ..errors import BadRequest, Missing
from ..given import PROPERTIES, PROPERTY_NUMBERS
from ..rights import check_user_id
from .calls import Call, is_confirmed, render, resource
from .exchanges import exchange_name

__all__ = ["routes"]

_GET_MAX = 10_000
_TAKEN_BYTES_MAX = 64 << 20  # memory for taken messages
_ANSWER_BYTES_MAX = 8 << 20
# Whether a message returns to the queue.
_MODES = {
    "ack_requeue_true": True,
    "reject_requeue_true": True,
    "ack_requeue_false": False,
    "reject_requeue_false": False,
}


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    return [
        resource("exchanges/{vhost}/{exchange}/publish", context, POST=_publish),
        resource("queues/{vhost}/{queue}/get", context, POST=_get),
    ]


def _publish(call: Call) -> Any:
    name = exchange_name(call)
    store = call.acting(("write", name))
    body = call.body("properties", "routing_key", "payload", "payload_encoding")
    payload = _payload(body["payload"], body["payload_encoding"])
    key, properties = body["routing_key"], _properties(body["properties"])
    if not isinstance(key, str):
        raise BadRequest(f"routing_key must be text, not {key!r:.80}")
    check_user_id(call.login, properties)
    if name not in store.exchanges():
        raise BadRequest(f"404 NOT_FOUND - no exchange '{name}' in vhost '{call.vhost}'")
    returned: list[Message] = []
    with store.channel() as channel:
        channel.confirm_select()
        channel.add_return_listener(returned.append)
        try:
            channel.basic_publish(name, key, payload, properties, mandatory=True)
        except ValueError as error:
            raise BadRequest(f"routing_key: {error}") from None
        if not is_confirmed(channel):
            raise BadRequest("a queue that it led to is full, and refused it")
    return {"routed": not returned}


def _payload(payload: Any, encoding: Any) -> bytes:
    if not isinstance(payload, str):
        raise BadRequest(f"payload must be text, not {payload!r:.80}")
    if encoding == "string":
        return payload.encode("utf-8", "surrogateescape")
    if encoding != "base64":
        raise BadRequest(f"unsupported payload_encoding {encoding!r:.80}: string or base64")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("the payload is no base64") from None


def _properties(given: Any) -> Properties | None:
    if given in ([], {}, None):
        return None
    if not isinstance(given, dict):
        raise BadRequest(f"properties must be an object, not {given!r:.80}")
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in PROPERTIES:
            raise BadRequest(f"unknown property {name!r:.80}: there are {', '.join(PROPERTIES)}")
        found[name] = _property(name, value)
    try:
        return Properties(**found)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"properties: {error}") from None


def _property(name: str, value: Any) -> Any:
    if name in PROPERTY_NUMBERS and (not isinstance(value, int) or isinstance(value, bool)):
        raise BadRequest(f"not_int: {name} must be a whole number, not {value!r:.80}")
    if name == "timestamp":
        try:
            return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            raise BadRequest(f"timestamp: {value} is no time in seconds") from None
    return value


def _get(call: Call) -> Any:
    name = call.name("queue")
    store = call.acting(("read", name))
    if name not in store.queues():
        raise Missing
    body = call.body("ackmode", "count", "encoding")
    mode, encoding = body["ackmode"], body["encoding"]
    if not isinstance(mode, str) or mode not in _MODES:
        raise BadRequest(f"unknown ackmode {mode!r:.80}: there are {', '.join(_MODES)}")
    if encoding not in ("auto", "base64"):
        raise BadRequest(f"unsupported encoding {encoding!r:.80}: auto or base64")
    count, truncate = _count(body, "count"), _count(body, "truncate")
    most = _GET_MAX if count is None else min(count, _GET_MAX)
    with store.channel() as channel:
        shown, tags = _take(channel, name, most, encoding, truncate)
        _settle(channel, tags, mode)
    headers = {"Cache-Control": "no-cache"}
    return Response(b"[" + b",".join(shown) + b"]", 200, headers, "application/json")


def _count(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise BadRequest(f"{name} must be a whole number, not {value!r:.80}") from None
    if number < 0:
        raise BadRequest(f"{name} must not be negative")
    return number


def _take(
    channel: Channel, queue: str, count: int, encoding: str, truncate: int | None
) -> tuple[list[bytes], list[int]]:
    """Takes messages; returns them in the form of the answer, and their tags.  A message that does
    not fit into the answer is put back; BadRequest: it is the first one."""
    left = channel.queue_declare(queue, passive=True).message_count
    shown: list[bytes] = []
    tags: list[int] = []
    taken_bytes = answer_bytes = 0
    while len(shown) < count and taken_bytes < _TAKEN_BYTES_MAX:
        message = channel.basic_get(queue)
        if message is None:
            break
        one = _rendered(message, max(left - len(shown) - 1, 0), encoding, truncate)
        answer_bytes += 0 if one is None else len(one) + 1
        if one is None or answer_bytes > _ANSWER_BYTES_MAX:
            channel.basic_reject(message.delivery_tag, requeue=True)
            if not shown:
                raise BadRequest(_too_long(message))
            break
        taken_bytes += len(message.body)
        shown.append(one)
        tags.append(message.delivery_tag)
    return shown, tags


def _too_long(message: Message) -> str:
    return (
        f"the first message has {len(message.body)} bytes, and an answer at most"
        f" {_ANSWER_BYTES_MAX >> 20} MiB: ask with truncate, or by AMQP"
    )


def _settle(channel: Channel, tags: list[int], mode: str) -> None:
    for tag in tags:
        if mode == "ack_requeue_false":
            channel.basic_ack(tag)
        elif mode == "ack_requeue_true":
            channel.basic_nack(tag, requeue=True)
        else:
            channel.basic_reject(tag, requeue=_MODES[mode])


def _rendered(message: Message, left: int, encoding: str, truncate: int | None) -> bytes | None:
    """None: the body alone is larger than an answer may be."""
    length = len(message.body) if truncate is None else min(len(message.body), truncate)
    if length > _ANSWER_BYTES_MAX:
        return None
    return render(_shown(message, left, encoding, truncate))


def _shown(message: Message, left: int, encoding: str, truncate: int | None) -> dict[str, Any]:
    body = bytes(message.body)
    payload, told = _text(body if truncate is None else body[:truncate], encoding)
    properties = {
        name: plain(value)
        for name in PROPERTIES
        if (value := getattr(message.properties, name)) is not None
    }
    return {
        "payload_bytes": len(body),
        "redelivered": message.redelivered,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "message_count": left,
        "properties": properties or [],  # Erlang's form of an empty object
        "payload": payload,
        "payload_encoding": told,
    }


def _text(body: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return body.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode("ascii"), "base64"
