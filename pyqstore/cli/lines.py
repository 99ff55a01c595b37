"""A message as a line of JSON, and as one for people."""

from __future__ import annotations

import base64
import datetime
import json
from typing import Any

from ..control.messages import Seen
from ..control.plain import plain
from ..terminal import visible, visible_json

__all__ = ["json_of", "row_of", "text_of"]


def row_of(message: Seen, *, is_stream: bool = False) -> dict[str, Any]:
    """Words of JSON: the body is "body", or "body_base64" when it is not UTF-8."""
    given = message.properties.asdict()
    row: dict[str, Any] = {"offset": message.position} if is_stream else {}
    if message.time_us is not None:
        row["timestamp"] = _time_text(message.time_us)
    row |= {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "properties": plain({name: value for name, value in given.items() if value != {}}),
    }
    try:
        row["body"] = message.body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(message.body).decode()
    if message.state != "ready":
        row[message.state] = True
    return row


def _time_text(microseconds: int) -> str:
    """ISO 8601, which sorts."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%dT%H:%M:%S}.{rest:06}Z"


def json_of(message: Seen, *, is_stream: bool = False) -> str:
    """One line of JSON."""
    return visible_json(json.dumps(row_of(message, is_stream=is_stream)))


def text_of(message: Seen, body_most: int | None = None) -> str:
    """One line for people: the body, at most so many characters of it, and what it came with before
    it.  Nothing in it moves a cursor."""
    words = []
    if message.exchange:
        words.append(f"{message.exchange}:{message.routing_key}")
    if message.state != "ready":
        words.append(message.state)
    if message.redelivered:
        words.append("redelivered")
    headers = message.properties.headers
    words += [f"{name}={plain(value)}" for name, value in headers.items()]
    before = f"[{' '.join(words)}] " if words else ""
    return visible(before) + _body(message.body, body_most)


def _body(body: bytes, most: int | None) -> str:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = repr(body)[2:-1]
    shown = visible(text[:most].replace("\n", "\\n"))
    return shown if most is None or len(text) <= most else f"{shown}... ({len(body)} bytes)"
