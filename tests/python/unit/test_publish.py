"""Publishing: routing, forms of body, confirms and their order, returns, refusals."""

import array
from pathlib import Path

import pytest

import pyqstore

from ..support import PERSISTENT, bodies, get, wait_until


def test_default_exchange_leads_to_the_queue_of_that_name(channel: pyqstore.Channel) -> None:
    channel.queue_declare("a")
    channel.queue_declare("b")
    channel.basic_publish("", "a", b"1")
    channel.basic_publish("", "nowhere", b"2")
    assert bodies(channel, "a") == [b"1"]
    assert bodies(channel, "b") == []


def test_direct_exchange_compares_keys(channel: pyqstore.Channel) -> None:
    channel.exchange_declare("e", "direct")
    for queue, key in (("a", "k"), ("b", "k"), ("c", "K")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "e", key)
    channel.basic_publish("e", "k", b"1")
    assert [bodies(channel, queue) for queue in "abc"] == [[b"1"], [b"1"], []]


def test_fanout_exchange_leads_everywhere_once(channel: pyqstore.Channel) -> None:
    channel.exchange_declare("e", "fanout")
    for queue in "ab":
        channel.queue_declare(queue)
        channel.queue_bind(queue, "e", "one")
        channel.queue_bind(queue, "e", "two")
    channel.basic_publish("e", "whatever", b"1")
    assert [bodies(channel, queue) for queue in "ab"] == [[b"1"], [b"1"]]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c", "a.b.c.d", ""]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab", ""]),
        ("#", ["", "a", "a.b"], []),
        ("#.z", ["z", "a.z", "a.b.z"], ["z.a", ""]),
        ("*", ["a"], ["a.b"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z"]),
        ("*.#", ["a", "a.b"], []),
        ("a.b", ["a.b"], ["a", "a.b.c", "a.*"]),
    ],
)
def test_topic_exchange_matches_words(
    channel: pyqstore.Channel, pattern: str, matching: list[str], others: list[str]
) -> None:
    channel.exchange_declare("e", "topic")
    channel.queue_declare("q")
    channel.queue_bind("q", "e", pattern)
    for key in matching + others:
        channel.basic_publish("e", key, key)
    assert bodies(channel, "q") == [key.encode() for key in matching]


def test_unbound_queue_gets_no_more(channel: pyqstore.Channel) -> None:
    channel.exchange_declare("e", "topic")
    channel.queue_declare("q")
    channel.queue_bind("q", "e", "a.*", {"n": 1})
    channel.queue_unbind("q", "e", "a.*")  # other arguments: another binding
    channel.basic_publish("e", "a.b", b"1")
    channel.queue_unbind("q", "e", "a.*", {"n": 1})
    channel.basic_publish("e", "a.b", b"2")
    assert bodies(channel, "q") == [b"1"]


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"", b""),
        (b"a\0b", b"a\0b"),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abcdef")[1:3], b"bc"),
        (array.array("H", [1, 2]), array.array("H", [1, 2]).tobytes()),
        ("grüß", "grüß".encode()),
        (b"x" * 4095, b"x" * 4095),
        (b"x" * 4096, b"x" * 4096),
        (b"x" * 1_000_000, b"x" * 1_000_000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_body_may_be_any_buffer(
    channel: pyqstore.Channel, queue: str, body: bytes, read: bytes
) -> None:
    channel.basic_publish("", queue, body, PERSISTENT)
    message = get(channel, queue)
    assert message.body == read
    assert type(message.body) is bytes


def test_body_may_be_changed_after_the_call(channel: pyqstore.Channel, queue: str) -> None:
    body = bytearray(b"before")
    channel.basic_publish("", queue, body)
    body[:] = b"after!!!"
    message = get(channel, queue)
    assert message.body == b"before"


@pytest.mark.parametrize("body", [7, None, ["x"], memoryview(b"abcdef")[::2]])
def test_other_bodies_are_refused(channel: pyqstore.Channel, queue: str, body: object) -> None:
    with pytest.raises((TypeError, BufferError, ValueError)):
        channel.basic_publish("", queue, body)  # type: ignore[arg-type]
    assert channel.basic_get(queue) is None


def test_wrong_properties_are_refused(channel: pyqstore.Channel, queue: str) -> None:
    with pytest.raises(TypeError, match="properties must be Properties, not dict"):
        channel.basic_publish("", queue, b"x", {"delivery_mode": 2})  # type: ignore[arg-type]


def test_properties_arrive_as_they_were(channel: pyqstore.Channel, queue: str) -> None:
    properties = pyqstore.Properties(
        content_type="a/b",
        headers={"list": [1, "two", None], "nested": {"k": b"v"}, "n": 2**40},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        timestamp=5,
    )
    channel.basic_publish("", queue, b"x", properties)
    channel.basic_publish("", queue, b"x")
    message = get(channel, queue)
    assert message.properties == properties
    assert message.properties is message.properties
    assert message.properties.headers == properties.headers
    message = get(channel, queue)
    assert message.properties == pyqstore.Properties()


def test_too_large_body_is_refused(path: Path) -> None:
    with pyqstore.open(path, body_bytes_max=1000) as store:
        with store.channel() as channel:
            channel.queue_declare("q")
            channel.basic_publish("", "q", b"x" * 1000)
            with pytest.raises(pyqstore.PreconditionFailed):
                channel.basic_publish("", "q", b"x" * 1001)
            assert channel.closed
        assert store.queue_status("q")["messages_ready"] == 1


def test_publish_numbers_count_from_one_in_confirm_mode(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q")
    assert channel.next_publish_number == 0
    assert channel.basic_publish("", "q", b"x") == 0
    channel.confirm_select()
    assert channel.next_publish_number == 1
    assert [channel.basic_publish("", "q", b"x") for _ in range(3)] == [1, 2, 3]
    channel.confirm_select()
    assert channel.next_publish_number == 4
    assert channel.wait_for_confirms(10) is True
    assert channel.wait_for_confirms() is True


def test_unconfirmed_tells_numbers_and_queues_until_they_are_durable(
    channel: pyqstore.Channel,
) -> None:
    seen: list[pyqstore.Unconfirmed] = []

    def publish_and_look() -> bool:
        number = channel.basic_publish("amq.fanout", "", b"x", PERSISTENT)
        seen.append(channel.unconfirmed)
        return any(number in numbers for numbers in seen[-1].numbers)

    for queue, durable in (("b", True), ("a", True), ("c", False)):
        channel.queue_declare(queue, durable=durable)
        channel.queue_bind(queue, "amq.fanout")
    assert channel.unconfirmed == ([], [], [])
    channel.basic_publish("", "a", b"without a number", PERSISTENT)
    assert channel.unconfirmed == ([], [], [])
    channel.confirm_select()
    wait_until(publish_and_look)  # unless a commit is as quick as the two calls
    assert seen[-1].queues == ["a", "b"]
    numbers = seen[-1].numbers[-1]
    assert seen[-1].publishes == [(numbers, "amq.fanout", ["a", "b"])]
    assert channel.wait_for_confirms(20)
    assert channel.unconfirmed == ([], [], [])


@pytest.mark.faces("sync", "aio")
def test_waiting_outside_confirm_mode_is_refused(channel: pyqstore.Channel) -> None:
    with pytest.raises(pyqstore.PreconditionFailed, match="confirm mode"):
        channel.wait_for_confirms(1)


class Log:
    """What listeners heard, in order."""

    def __init__(self, channel: pyqstore.Channel) -> None:
        self.heard: list[tuple[object, ...]] = []
        channel.add_confirm_listener(self.on_ack, self.on_nack)
        channel.add_return_listener(self.on_return)

    def on_ack(self, number: int, multiple: bool) -> None:
        self.heard.append(("ack", number, multiple))

    def on_nack(self, number: int, multiple: bool) -> None:
        self.heard.append(("nack", number, multiple))

    def on_return(self, message: pyqstore.ReturnedMessage) -> None:
        self.heard.append(("return", message.body))

    def numbers(self, kind: str) -> list[int]:
        """The publish numbers that were acked or nacked; none may be told twice."""
        told: set[int] = set()
        result = []
        for what, number, *rest in self.heard:
            if what == "return":
                continue
            assert isinstance(number, int)
            covered = [n for n in range(1, number + 1) if n not in told] if rest[0] else [number]
            assert not told.intersection(covered)
            told.update(covered)
            if what == kind:
                result += covered
        return result


def test_refused_wait_leaves_the_channel_open(channel: pyqstore.Channel) -> None:
    with pytest.raises(pyqstore.PreconditionFailed, match="confirm mode"):
        channel.wait_for_confirms(1)
    assert not channel.closed
    channel.confirm_select()
    assert channel.wait_for_confirms(1)
    channel.close()
    with pytest.raises(pyqstore.ChannelClosed):
        channel.wait_for_confirms(1)


def test_answers_that_nobody_listened_to_are_gone_after_the_wait(
    channel: pyqstore.Channel, queue: str
) -> None:
    channel.confirm_select()
    channel.basic_publish("", queue, b"1", PERSISTENT)
    channel.basic_publish("", "nowhere", b"2", PERSISTENT, mandatory=True)
    channel.basic_publish("", queue, b"3", PERSISTENT)
    with pytest.raises(pyqstore.MessageReturned):
        channel.wait_for_confirms(10)
    heard: list[object] = []
    channel.add_return_listener(heard.append)
    channel.add_confirm_listener(lambda number, multiple: heard.append(number), None)
    assert channel.process_events() == 0
    channel.basic_publish("", queue, b"4", PERSISTENT)
    assert channel.wait_for_confirms(10)
    assert heard == [4]


def test_every_publish_is_confirmed_once(channel: pyqstore.Channel, queue: str) -> None:
    channel.confirm_select()
    log = Log(channel)
    for number in range(1, 101):
        channel.basic_publish("", queue, b"x", PERSISTENT if number % 3 else None)
    assert channel.wait_for_confirms(10)
    assert sorted(log.numbers("ack")) == list(range(1, 101))
    assert log.numbers("nack") == []
    channel.basic_publish("", queue, b"x", PERSISTENT)
    assert channel.wait_for_confirms(10)
    assert max(log.numbers("ack")) == 101


def test_unroutable_mandatory_message_comes_back_before_its_confirm(
    channel: pyqstore.Channel, queue: str
) -> None:
    channel.confirm_select()
    log = Log(channel)
    returned: list[pyqstore.ReturnedMessage] = []
    channel.add_return_listener(returned.append)
    channel.basic_publish("", queue, b"routed", mandatory=True)
    channel.basic_publish("", "nowhere", b"lost", pyqstore.Properties(type="t"), mandatory=True)
    channel.basic_publish("", "nowhere", b"dropped")
    assert channel.wait_for_confirms(10)
    assert [event for event in log.heard if event[0] == "return"] == [("return", b"lost")]
    before = log.heard[: log.heard.index(("return", b"lost"))]
    assert all(event[0] == "ack" and event[1] < 2 for event in before)  # type: ignore[operator]
    assert sorted(log.numbers("ack")) == [1, 2, 3]
    (message,) = returned
    assert (message.reply_code, message.reply_text) == (312, "NO_ROUTE")
    assert (message.exchange, message.routing_key) == ("", "nowhere")
    assert message.properties.type == "t"


def test_returns_come_outside_confirm_mode_too(channel: pyqstore.Channel) -> None:
    log = Log(channel)
    channel.basic_publish("", "nowhere", b"1", mandatory=True)
    channel.basic_publish("", "nowhere", b"2", mandatory=True)
    assert channel.process_events() == 2
    assert log.heard == [("return", b"1"), ("return", b"2")]
    assert channel.process_events() == 0


def test_listener_may_use_the_channel(channel: pyqstore.Channel, queue: str) -> None:
    channel.confirm_select()
    channel.add_return_listener(
        lambda message: channel.basic_publish("", queue, message.body + b" again", PERSISTENT)
    )
    channel.basic_publish("", "nowhere", b"lost", mandatory=True)
    assert channel.wait_for_confirms(10)
    assert channel.wait_for_confirms(10)
    assert bodies(channel, queue) == [b"lost again"]


def test_listener_that_raises_loses_no_event(channel: pyqstore.Channel) -> None:
    heard = []

    def picky(message: pyqstore.ReturnedMessage) -> None:
        heard.append(message.body)
        if message.body == b"1":
            raise LookupError("no")

    channel.add_return_listener(picky)
    for body in (b"0", b"1", b"2"):
        channel.basic_publish("", "nowhere", body, mandatory=True)
    with pytest.raises(LookupError):
        channel.process_events()
    assert channel.process_events() == 1
    assert heard == [b"0", b"1", b"2"]


@pytest.mark.parametrize("timeout", [-1, float("nan"), -0.5])
def test_wrong_timeout_is_refused(channel: pyqstore.Channel, timeout: float) -> None:
    channel.confirm_select()
    for wait in (channel.wait_for_confirms, channel.process_events):
        with pytest.raises(ValueError, match="timeout"):
            wait(timeout)


def test_confirm_and_transactions_exclude_each_other(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.confirm_select()
        with pytest.raises(pyqstore.PreconditionFailed):
            channel.tx_select()
    with store.channel() as channel:
        channel.tx_select()
        with pytest.raises(pyqstore.PreconditionFailed):
            channel.confirm_select()


@pytest.mark.faces("sync", "aio")
def test_immediate_is_refused(channel: pyqstore.Channel) -> None:
    with pytest.raises(pyqstore.NotImplementedByBroker, match="immediate=true") as told:
        channel.basic_publish("", "q", b"", immediate=True)
    assert told.value.reply_code == 540
    assert channel.closed
