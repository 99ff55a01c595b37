"""Exchanges beyond direct, fanout and topic: what leads where, what is refused and in which words.

The words and answers are those of a RabbitMQ 3.10 broker that was asked the same.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

import pyqstore

from ..support import bodies, get

Do = Callable[[pyqstore.Channel], object]


@pytest.fixture
def said(store: pyqstore.Store) -> Callable[[Do], str]:
    """The reply code and text of a refusal; it ends a channel of its own."""

    def refusal(do: Do) -> str:
        with store.channel() as channel:
            with pytest.raises(pyqstore.ChannelError) as caught:
                do(channel)
            assert channel.closed
        return f"{caught.value.reply_code} {caught.value.reply_text}"

    return refusal


@pytest.fixture
def queues(channel: pyqstore.Channel) -> Callable[[], str]:
    """Queues a, b and c; the call tells, and empties, those that have messages."""
    for name in "abc":
        channel.queue_declare(name, durable=True)

    def reached() -> str:
        return "".join(name * len(bodies(channel, name)) for name in "abc")

    return reached


def headers(**fields: Any) -> pyqstore.Properties:
    return pyqstore.Properties(headers={name.replace("_", "-"): v for name, v in fields.items()})


# Declaring and deleting.


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda c: c.exchange_declare("x", "nope"), "503 .*unknown exchange type 'nope'"),
        (lambda c: c.exchange_declare(""), "403 .*operation not permitted on the default exchange"),
        (
            lambda c: c.exchange_declare("", passive=True),
            "403 .*operation not permitted on the default exchange",
        ),
        (
            lambda c: c.exchange_declare("amq.x"),
            r"403 .*exchange name 'amq.x' contains reserved prefix 'amq.\*'",
        ),
        (
            lambda c: c.exchange_declare("amq.direct", "topic", durable=True),
            "406 .*inequivalent arg 'type' for exchange 'amq.direct'.*: received 'topic' but"
            " current is 'direct'",
        ),
        (lambda c: c.exchange_declare("no", passive=True), "404 .*no exchange 'no' in"),
        (lambda c: c.exchange_declare("no", "nope", passive=True), "404 .*no exchange 'no' in"),
        (
            lambda c: c.exchange_declare("e", durable=True, internal=True),
            "406 .*inequivalent arg 'durable' for exchange 'e'.*: received 'true' but current is"
            " 'false'",
        ),
        (
            lambda c: c.exchange_declare("e", auto_delete=True),
            "406 .*inequivalent arg 'auto_delete' for exchange 'e'.*: received 'true'",
        ),
        (
            lambda c: c.exchange_declare("e", internal=True),
            "406 .*inequivalent arg 'internal' for exchange 'e'.*: received 'true'",
        ),
        (
            lambda c: c.exchange_declare("e", arguments={"alternate-exchange": "z"}),
            "406 .*inequivalent arg 'alternate-exchange' for exchange 'e'.*: received the value"
            " 'z' of type 'longstr' but current is none",
        ),
        (
            lambda c: c.exchange_declare("aside"),
            "406 .*inequivalent arg 'alternate-exchange' for exchange 'aside'.*: received none"
            " but current is the value 'e' of type 'longstr'",
        ),
        (
            lambda c: c.exchange_declare("aside", arguments={"alternate-exchange": "z"}),
            "406 .*inequivalent arg 'alternate-exchange' for exchange 'aside'.*: received 'z' but"
            " current is 'e'",
        ),
        (
            lambda c: c.exchange_declare("new", arguments={"alternate-exchange": None}),
            "406 .*invalid type 'void' for arg 'alternate-exchange' in exchange 'new'",
        ),
        (
            lambda c: c.exchange_declare("new", arguments={"alternate-exchange": ["a"]}),
            "406 .*invalid type 'array' for arg 'alternate-exchange' in exchange 'new'",
        ),
        (lambda c: c.exchange_delete(""), "403 .*operation not permitted on the default exchange"),
        (
            lambda c: c.exchange_delete("amq.direct"),
            "403 .*deletion of system exchange 'amq.direct'.* not allowed",
        ),
        (
            lambda c: c.exchange_delete("amq.no"),
            "403 .*deletion of system exchange 'amq.no'.* not allowed",
        ),
        (lambda c: c.exchange_delete("e", if_unused=True), "406 .*exchange 'e'.* in use"),
    ],
)
def test_declare_and_delete_are_refused_as_by_a_broker(
    channel: pyqstore.Channel, said: Callable[[Do], str], do: Do, expected: str
) -> None:
    channel.exchange_declare("e")
    channel.exchange_declare("aside", arguments={"alternate-exchange": "e"})
    channel.exchange_bind("aside", "e", "k")
    assert re.fullmatch(expected + ".*", said(do))


def test_what_a_broker_takes_is_taken(channel: pyqstore.Channel) -> None:
    channel.exchange_declare("e")
    channel.exchange_declare("e", arguments={"other": "z"})
    channel.exchange_declare("self", arguments={"alternate-exchange": "self"})
    channel.exchange_declare("empty", arguments={"alternate-exchange": ""})
    for name in ("amq.headers", "amq.match"):
        channel.exchange_declare(name, "headers", durable=True)
    channel.exchange_delete("never")
    channel.exchange_bind("self", "e", "k")
    channel.exchange_delete("self", if_unused=True)  # leading to it is no use


# Binding.


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        (lambda c: c.queue_bind("no", "none"), "404 .*no exchange 'none'"),
        (lambda c: c.queue_bind("a", "none"), "404 .*no exchange 'none'"),
        (lambda c: c.queue_bind("no", "e"), "404 .*no queue 'no'"),
        (lambda c: c.queue_bind("no", ""), "403 .*operation not permitted on the default"),
        (lambda c: c.queue_unbind("a", ""), "403 .*operation not permitted on the default"),
        (lambda c: c.exchange_bind("no", "none"), "404 .*no exchange 'none'"),
        (lambda c: c.exchange_bind("no", "e"), "404 .*no exchange 'no'"),
        (lambda c: c.exchange_bind("", "none"), "403 .*operation not permitted on the default"),
        (lambda c: c.exchange_bind("e", ""), "403 .*operation not permitted on the default"),
        (lambda c: c.exchange_unbind("", "e"), "403 .*operation not permitted on the default"),
        (
            lambda c: c.queue_bind("a", "amq.headers", "", {"x-match": "foo"}),
            '406 .*Invalid x-match field value <<"foo">>; expected all, any, all-with-x, or'
            " any-with-x",
        ),
        (
            lambda c: c.queue_bind("a", "amq.headers", "", {"x-match": True}),
            r"406 .*Invalid x-match field type bool \(value true\); expected longstr",
        ),
        (lambda c: c.queue_bind("no", "amq.match", "", {"x-match": "foo"}), "404 .*no queue"),
    ],
)
def test_bindings_are_refused_as_by_a_broker(
    channel: pyqstore.Channel,
    queues: Callable[[], str],
    said: Callable[[Do], str],
    do: Do,
    expected: str,
) -> None:
    channel.exchange_declare("e")
    assert re.match(expected, said(do))
    assert queues() == ""


def test_unbinding_what_is_not_there_is_no_error(
    channel: pyqstore.Channel, queues: Callable[[], str]
) -> None:
    channel.exchange_declare("e")
    for destination, source in (("no", "none"), ("no", "e"), ("a", "none"), ("a", "e")):
        channel.queue_unbind(destination, source, "k")
    for destination, source in (("no", "none"), ("no", "e"), ("e", "none"), ("e", "e")):
        channel.exchange_unbind(destination, source, "k")
    channel.queue_unbind("a", "amq.match", "", {"x-match": "foo"})
    assert queues() == ""


def test_bindings_lists_both_kinds(
    store: pyqstore.Store, channel: pyqstore.Channel, queues: Callable[[], str]
) -> None:
    channel.exchange_bind("amq.topic", "amq.direct", "k", {"n": 1})
    channel.queue_bind("a", "amq.topic", "#")
    assert [tuple(binding) for binding in store.bindings()] == [
        ("amq.direct", "amq.topic", "k", {"n": 1}, True),
        ("amq.topic", "a", "#", {}, False),
    ]
    channel.exchange_unbind("amq.topic", "amq.direct", "k", {"n": 1})
    assert [binding.source for binding in store.bindings()] == ["amq.topic"]
    assert queues() == ""


# Headers exchanges.


@pytest.mark.parametrize(
    ("arguments", "message", "matches"),
    [
        ({}, None, True),
        ({}, {"a": "b"}, True),
        ({"x-match": "any"}, {}, False),
        ({"x-match": "any"}, None, False),
        ({"x-match": "all", "x-a": "1"}, {}, True),
        ({"x-match": "any", "x-a": "1"}, {"x-a": "1"}, False),
        ({"x-match": "all-with-x", "x-a": "1"}, {"x-a": "1"}, True),
        ({"x-match": "all-with-x", "x-a": "1"}, {}, False),
        ({"x-match": "any-with-x", "x-a": "1"}, {"x-a": "1"}, True),
        ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
        ({"a": None}, {"a": "z"}, True),
        ({"a": None}, {"b": "z"}, False),
        ({"x-match": "any", "a": "1", "b": "2"}, {"b": "2"}, True),
        ({"a": "1", "b": "2"}, {"b": "2"}, False),
        ({"a": "1", "b": "2"}, {"b": "2", "a": "1", "c": "3"}, True),
        ({"a": "q"}, {"a": None}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": b"1"}, {"a": "1"}, True),
        ({"a": 2**53 + 1}, {"a": float(2**53)}, False),
        ({"a": [1, "x"]}, {"a": [1, "x"]}, True),
        ({"a": [1, "x"]}, {"a": ["x", 1]}, False),
        ({"a": {}}, {"a": []}, True),
        ({"CC": None}, {"CC": ["z"]}, True),
        ({"BCC": None}, {"BCC": ["z"]}, False),
    ],
)
def test_headers_match_as_with_a_broker(
    channel: pyqstore.Channel,
    queues: Callable[[], str],
    arguments: dict[str, Any],
    message: dict[str, Any] | None,
    matches: bool,
) -> None:
    channel.queue_bind("a", "amq.headers", "", arguments)
    properties = pyqstore.Properties(headers=message)
    channel.basic_publish("amq.headers", "ignored", b"", properties)
    assert queues() == ("a" if matches else "")


# Bindings between exchanges.


def test_exchanges_pass_on_and_each_queue_gets_one(
    channel: pyqstore.Channel, queues: Callable[[], str]
) -> None:
    channel.exchange_declare("in", "direct")
    channel.exchange_declare("out", "topic", internal=True)
    channel.exchange_bind("out", "in", "k.1")
    channel.exchange_bind("amq.headers", "out", "#")
    channel.exchange_bind("in", "out", "#")  # a circle
    channel.queue_bind("a", "out", "k.*")
    channel.queue_bind("a", "in", "k.1")
    channel.queue_bind("b", "amq.headers", "", {"h": 1})
    channel.basic_publish("in", "k.1", b"")
    assert queues() == "a"
    channel.basic_publish("in", "k.1", b"", headers(h=1))
    assert queues() == "ab"
    channel.basic_publish("in", "k.2", b"", headers(h=1))
    assert queues() == ""
    channel.exchange_unbind("out", "in", "k.1")
    channel.basic_publish("in", "k.1", b"", headers(h=1))
    assert queues() == "a"


def test_internal_exchange_is_reached_through_others_only(
    channel: pyqstore.Channel, queues: Callable[[], str], said: Callable[[Do], str]
) -> None:
    channel.exchange_declare("inner", "fanout", internal=True)
    channel.queue_bind("c", "inner")
    channel.exchange_declare("outer", arguments={"alternate-exchange": "inner"})
    bad = headers(CC="not a list")  # the exchange is looked at first
    assert "403" in said(lambda c: c.basic_publish("inner", "", b"", bad))
    assert "cannot publish to internal exchange 'inner'" in said(
        lambda c: c.basic_publish("inner", "", b"")
    )
    channel.basic_publish("outer", "", b"")
    assert queues() == "c"


def test_auto_delete_goes_by_what_leads_from_it(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("first", auto_delete=True, durable=True)
    channel.exchange_declare("second", auto_delete=True, durable=True)
    channel.exchange_declare("last", durable=True)
    channel.exchange_bind("second", "first", "k")
    channel.exchange_bind("last", "second", "k")
    channel.exchange_bind("second", "last", "k")
    channel.exchange_unbind("second", "last", "k")
    assert "second" in store.exchanges()
    channel.exchange_delete("last")
    assert not {"first", "second", "last"} & set(store.exchanges())
    assert store.bindings() == []


# Alternate exchanges.


def test_alternate_takes_what_matches_nothing(
    channel: pyqstore.Channel, queues: Callable[[], str]
) -> None:
    returned: list[object] = []
    channel.add_return_listener(returned.append)
    channel.exchange_declare("e", arguments={"alternate-exchange": "later"})
    channel.queue_bind("a", "e", "k")
    channel.basic_publish("e", "other", b"", mandatory=True)
    channel.process_events()
    assert (queues(), len(returned)) == ("", 1)
    channel.exchange_declare("later", arguments={"alternate-exchange": "e"})  # a circle
    channel.basic_publish("e", "other", b"", mandatory=True)
    channel.process_events()
    assert (queues(), len(returned)) == ("", 2)
    channel.queue_bind("b", "later", "other")
    channel.basic_publish("e", "other", b"", mandatory=True)
    channel.basic_publish("e", "k", b"", mandatory=True)
    channel.process_events()
    assert (queues(), len(returned)) == ("ab", 2)


def test_the_exchange_of_traces_is_there_and_takes_nothing(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("amq.rabbitmq.trace", "topic", passive=True)
    found = store.exchanges()["amq.rabbitmq.trace"]
    assert (found.type, found.durable, found.internal) == ("topic", True, True)
    channel.queue_declare("traced", durable=True)
    channel.queue_bind("traced", "amq.rabbitmq.trace", "publish.#")
    for refused in (
        lambda channel: channel.basic_publish("amq.rabbitmq.trace", "publish.e", b""),
        lambda channel: channel.exchange_delete("amq.rabbitmq.trace"),
    ):
        with pytest.raises(pyqstore.AccessRefused), store.channel() as other:
            refused(other)
    assert store.queue_status("traced").messages_ready == 0


# Carbon copies.


def test_copies_are_further_keys(channel: pyqstore.Channel, queues: Callable[[], str]) -> None:
    for exchange in ("", "amq.direct", "amq.topic"):
        for name in "abc" if exchange else "":
            channel.queue_bind(name, exchange, name)
        channel.basic_publish(exchange, "a", b"", headers(CC=["b", "b", 5, None], BCC=["no"]))
        assert queues() == "ab"
        channel.basic_publish(exchange, "no", b"", headers(CC=[], BCC=["c"]))
        assert queues() == "c"


@pytest.mark.parametrize("size", [10, 10_000])
def test_blind_copies_do_not_go_with_the_message(channel: pyqstore.Channel, size: int) -> None:
    for name in "abc":
        channel.queue_declare(name, durable=True)
    properties = pyqstore.Properties(
        delivery_mode=2, message_id="m", headers={"BCC": ["c"], "CC": ["b"], "o": 1}
    )
    channel.basic_publish("", "a", b"x" * size, properties)
    for name in "abc":
        message = get(channel, name)
        assert message.routing_key == "a"
        assert message.properties.headers == {"CC": ["b"], "o": 1}
        assert message.properties.message_id == "m"
        assert message.body == b"x" * size


def test_returned_message_has_no_blind_copies(channel: pyqstore.Channel) -> None:
    returned: list[Any] = []
    channel.add_return_listener(returned.append)
    channel.basic_publish("", "no", b"", headers(BCC=["none"], a=1), mandatory=True)
    channel.process_events()
    assert [message.properties.headers for message in returned] == [{"a": 1}]


def test_copies_in_a_transaction(channel: pyqstore.Channel, queues: Callable[[], str]) -> None:
    channel.tx_select()
    channel.basic_publish("", "a", b"", headers(BCC=["c"]))
    channel.tx_commit()
    assert queues() == "ac"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"CC": "a"}, '{unacceptable_type_in_header,"CC",longstr}'),
        ({"CC": None}, '{unacceptable_type_in_header,"CC",void}'),
        ({"CC": {}}, '{unacceptable_type_in_header,"CC",table}'),
        ({"CC": b"x"}, '{unacceptable_type_in_header,"CC",binary}'),
        ({"BCC": "a"}, '{unacceptable_type_in_header,"BCC",longstr}'),
        ({"CC": ["a"], "BCC": "b"}, '{unacceptable_type_in_header,"BCC",longstr}'),
        ({"CC": True, "BCC": "b"}, '{unacceptable_type_in_header,"CC",bool}'),
    ],
)
def test_copies_that_are_no_list_are_refused(
    queues: Callable[[], str], said: Callable[[Do], str], message: dict[str, Any], expected: str
) -> None:
    properties = pyqstore.Properties(headers=message)
    text = said(lambda c: c.basic_publish("", "a", b"", properties))
    assert text.startswith("406")
    assert f"invalid message: {expected}" in text
    assert said(lambda c: c.basic_publish("no", "a", b"", properties)).startswith("404")
    assert queues() == ""
