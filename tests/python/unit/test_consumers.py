"""Consumers: who gets the next message, within a channel and across channels and threads."""

import threading
import time

import pytest

import pyqstore

from ..support import get, publish_numbers, wait_until
from ..taking import consume, take

# Tags, exclusive consumers.


def test_made_up_tags_are_new_ones(channel: pyqstore.Channel, queue: str) -> None:
    channel.basic_consume(queue, consumer_tag="amq.ctag-2")
    tags = [channel.basic_consume(queue) for _ in range(3)]
    assert all(tag.startswith("amq.ctag-") for tag in tags)
    assert len({*tags, "amq.ctag-2"}) == 4


def test_tag_is_taken_on_its_channel_only(store: pyqstore.Store, queue: str) -> None:
    with store.channel() as one, store.channel() as other:
        one.basic_consume(queue, consumer_tag="tag")
        other.basic_consume(queue, consumer_tag="tag")
        one.basic_cancel("tag")
        one.basic_consume(queue, consumer_tag="tag")
        with pytest.raises(pyqstore.NotAllowed) as caught:
            one.basic_consume("no such queue", consumer_tag="tag")
        assert str(caught.value) == "NOT_ALLOWED - attempt to reuse consumer tag 'tag'"


def test_cancelling_nobody_is_fine(channel: pyqstore.Channel) -> None:
    assert channel.basic_cancel("nobody") == []
    assert not channel.closed


@pytest.mark.parametrize("exclusive_first", [True, False])
def test_exclusive_consumer_is_alone(
    store: pyqstore.Store, queue: str, exclusive_first: bool
) -> None:
    with store.channel() as one, store.channel() as other:
        tag = one.basic_consume(queue, exclusive=exclusive_first)
        with pytest.raises(pyqstore.AccessRefused) as caught:
            other.basic_consume(queue, exclusive=not exclusive_first)
        assert str(caught.value) == "ACCESS_REFUSED - queue 'q' in this store in exclusive use"
        assert other.closed
        one.basic_publish("", queue, b"1")
        with store.channel() as getter:  # getting is no consuming
            assert getter.basic_get(queue) is not None
        one.basic_cancel(tag)
        with store.channel() as third:
            third.basic_consume(queue, exclusive=True)


# Cancellation by the store.


def test_iteration_ends_when_the_queue_goes(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 2)
    cancelled: list[str] = []
    channel.add_cancel_listener(cancelled.append)
    bodies = []
    for message in channel.consume(queue):
        bodies.append(message.body)
        if len(bodies) == 2:
            with store.channel() as other:
                other.queue_delete(queue)
        message.ack()
    assert bodies == [b"0", b"1"]
    assert len(cancelled) == 1


def test_held_messages_are_handed_out_after_their_queue_went(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    for name in ("a", "b"):
        channel.queue_declare(name)
        publish_numbers(channel, name, 2)
    channel.basic_consume("b", auto_ack=True, consumer_tag="held")
    channel.basic_consume("a", consumer_tag="read")
    read = [channel.next_delivery("read", 0) for _ in range(3)]
    assert [m.body for m in read if m is not None] == [b"0", b"1"]
    with store.channel() as other:
        other.queue_delete("b")
    assert channel.next_delivery("read", 0) is None
    held = [channel.next_delivery("held") for _ in range(2)]
    assert [m.body if m is not None else None for m in held] == [b"0", b"1"]
    for _ in range(2):
        with pytest.raises(pyqstore.NotFound, match="queue 'b' of consumer 'held' was deleted"):
            channel.next_delivery("held")
    assert not channel.closed
    channel.basic_cancel("held")
    assert channel.next_delivery("held") is None


# Priorities.


def test_highest_priority_with_room_comes_first(store: pyqstore.Store, queue: str) -> None:
    with store.channel() as low, store.channel() as high:
        publish_numbers(low, queue, 6)
        consume(low, queue, "low")
        high.basic_qos(2)
        consume(high, queue, "high", priority=1)
        # although high does not ask
        assert take(low) == [("low", number) for number in (b"2", b"3", b"4", b"5")]
        assert take(high) == [("high", b"0"), ("high", b"1")]
        high.basic_ack(1)
        publish_numbers(low, queue, 1, first=6)
        assert take(low) == []
        publish_numbers(low, queue, 1, first=7)
        assert take(low) == [("low", b"7")]
        assert take(high) == [("high", b"6")]


def test_consumers_of_one_priority_take_turns_before_lower_ones(
    channel: pyqstore.Channel, queue: str
) -> None:
    publish_numbers(channel, queue, 6)
    consume(channel, queue, "low", priority=-(2**40))
    channel.basic_qos(2)
    consume(channel, queue, "a", priority=7)
    consume(channel, queue, "b", priority=7)
    assert take(channel) == [
        ("a", b"0"), ("b", b"1"), ("a", b"2"), ("b", b"3"), ("low", b"4"), ("low", b"5"),
    ]  # fmt: skip


@pytest.mark.parametrize("priority", ["5", 5.0, True, None, {}, [1]])
def test_priority_must_be_a_whole_number(
    channel: pyqstore.Channel, queue: str, priority: object
) -> None:
    with pytest.raises(pyqstore.PreconditionFailed, match="invalid arg 'x-priority' for queue 'q'"):
        channel.basic_consume(queue, arguments={"x-priority": priority})  # type: ignore[dict-item]
    assert channel.closed


def test_other_arguments_of_consumers_have_no_effect(channel: pyqstore.Channel, queue: str) -> None:
    channel.basic_consume(queue, arguments={"x-something": "else", "x-cancel-on-ha-failover": True})
    assert channel.queue_declare(queue, passive=True).consumer_count == 1


class Waiter(threading.Thread):
    """Registers a consumer; asks for messages again and again, from ``stay`` on in one long wait,
    out of which somebody has to wake it, until it has as many as it wants."""

    def __init__(self, channel: pyqstore.Channel, queue: str, wanted: int = 1) -> None:
        super().__init__(daemon=True)
        self.channel = channel
        self.queue = queue
        self.wanted = wanted
        self.stay = threading.Event()
        self.asked = 0
        self.got: list[bytes] = []

    def run(self) -> None:
        tag = self.channel.basic_consume(self.queue)
        while len(self.got) < self.wanted:
            stays = self.stay.is_set()
            message = self.channel.next_delivery(tag, 20 if stays else 0.005)
            self.asked += 1
            if message is not None:
                self.got.append(message.body)
            elif stays:
                return

    def check_gets_nothing(self) -> None:
        """It asks at least once from here on, and goes away empty."""
        asked = self.asked
        wait_until(lambda: self.asked >= asked + 2)
        self.stay.set()
        assert self.got == []

    def check_gets(self, *bodies: bytes) -> None:
        self.join(30)
        assert self.got == [*bodies]


def test_waiting_consumer_has_what_a_higher_one_has_no_room_for(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    with store.channel() as high, store.channel() as low:
        high.basic_qos(1)
        consume(high, queue, "high", priority=1)
        waiter = Waiter(low, queue)
        waiter.start()
        wait_until(lambda: store.queue_status(queue)["consumers"] == 2)
        publish_numbers(channel, queue, 1)
        waiter.check_gets_nothing()
        publish_numbers(channel, queue, 1, first=1)
        waiter.check_gets(b"1")
        assert take(high) == [("high", b"0")]


@pytest.mark.parametrize("how", ["cancel", "close", "limit"])
def test_waiting_consumer_takes_over_from_a_higher_one(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, how: str
) -> None:
    with store.channel() as high, store.channel() as low:
        consume(high, queue, "high", priority=1)
        if how == "limit":
            publish_numbers(channel, queue, 1)
            assert take(high) == [("high", b"0")]
        waiter = Waiter(low, queue)
        waiter.start()
        wait_until(lambda: store.queue_status(queue)["consumers"] == 2)
        publish_numbers(channel, queue, 1, first=1)
        waiter.check_gets_nothing()
        if how == "cancel":
            high.basic_cancel("high")
        elif how == "close":
            high.close()
        else:
            high.basic_qos(1, global_=True)
        waiter.check_gets(b"1")


# The single active consumer.


SINGLE = {"x-single-active-consumer": True}


def test_single_active_consumer_and_those_after_it(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", arguments=SINGLE)
    channels = {name: store.channel() for name in ("first", "later", "high", "last")}
    for name, one in channels.items():
        consume(one, "q", name, priority=9 if name == "high" else 0)

    def who() -> str:
        channel.basic_publish("", "q", b"x")
        taken = [tag for one in channels.values() if not one.closed for tag, _ in take(one)]
        assert len(set(taken)) == 1
        return taken[0]

    assert who() == "first"
    assert who() == "first"
    channels["first"].basic_cancel("first")
    assert who() == "high"
    assert store.queue_status("q")["messages_unacked"] == 3
    channels["first"].basic_ack(multiple=True)  # what the old one had is still its own
    assert store.queue_status("q")["messages_unacked"] == 1
    channels["high"].close()  # comes back, and goes to the next one with the other
    assert who() == "later"
    assert store.queue_status("q")["messages_unacked"] == 2
    channels["later"].close()
    assert who() == "last"
    for one in channels.values():
        one.close()


def test_single_active_consumer_takes_over_while_it_waits(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", arguments=SINGLE)
    with store.channel() as first, store.channel() as second:
        first.basic_qos(1)
        consume(first, "q", "first")
        publish_numbers(channel, "q", 2)
        assert take(first) == [("first", b"0")]
        waiter = Waiter(second, "q", wanted=2)
        waiter.start()
        wait_until(lambda: store.queue_status("q")["consumers"] == 2)
        waiter.check_gets_nothing()  # a full active consumer has no stand-in
        first.close()
        waiter.check_gets(b"0", b"1")


def test_single_active_consumer_is_not_exclusive(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q", arguments=SINGLE)
    with pytest.raises(pyqstore.AccessRefused, match="queue 'q' in this store in exclusive use"):
        channel.basic_consume("q", exclusive=True)


TRUE = "the value 'true' of type 'bool'"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (SINGLE, None, f"received none but current is {TRUE}"),
        (None, SINGLE, f"received {TRUE} but current is none"),
        (SINGLE, {"x-queue-mode": "lazy"}, "received the value 'lazy' of type 'longstr' but"),
        (
            {"x-queue-version": 1, **SINGLE},
            {"x-queue-version": 2, **SINGLE},
            "'x-queue-version' for queue 'q' in this store: received '2' but",
        ),
        ({"x-queue-version": 1}, {"x-queue-version": "1"}, "received '1' but current is '1'"),
        (SINGLE, {"x-single-active-consumer": False}, "received 'false' but current is 'true'"),
    ],
)
def test_queue_arguments_must_be_declared_again(
    channel: pyqstore.Channel,
    before: dict[str, bool] | None,
    after: dict[str, bool] | None,
    text: str,
) -> None:
    channel.queue_declare("q", arguments=before)
    channel.queue_declare("q", arguments=before)
    with pytest.raises(pyqstore.PreconditionFailed) as caught:
        channel.queue_declare("q", arguments=after)
    assert str(caught.value).startswith("PRECONDITION_FAILED - inequivalent arg 'x-")
    assert text in str(caught.value)


def test_queue_arguments_that_mean_nothing_may_differ_when_declared_again(
    channel: pyqstore.Channel,
) -> None:
    channel.queue_declare("q", arguments={"a": 1, **SINGLE})
    channel.queue_declare("q", arguments={"a": "2", "b": [], **SINGLE})
    channel.queue_declare("q", arguments=SINGLE)


def test_single_active_consumer_may_be_switched_off(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q", arguments={"x-single-active-consumer": False})
    channel.basic_consume("q", exclusive=True)


def test_messages_are_got_beside_a_single_active_consumer(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", arguments=SINGLE)
    with store.channel() as active:
        active.basic_consume("q")
        publish_numbers(channel, "q", 2)
        message = get(channel, "q")
        assert message.body == b"0"
        assert channel.get_batch("q").num_rows == 1


# Turns across channels.


class Sharer(threading.Thread):
    """Consumes and acknowledges, in a thread and on a channel of its own, until told to stop.
    ``start_line``: where those meet who go on together, when each has its first one."""

    def __init__(
        self, store: pyqstore.Store, queue: str, start_line: threading.Barrier | None = None
    ) -> None:
        super().__init__()
        self.start_line = start_line
        self.store = store
        self.queue = queue
        self.bodies: list[bytes] = []
        self.stop = threading.Event()

    def run(self) -> None:
        with self.store.channel() as channel:
            tag = channel.basic_consume(self.queue)
            while not self.stop.is_set():
                message = channel.next_delivery(tag, 0.5)
                if message is not None:
                    self.bodies.append(message.body)
                    message.ack()
                    if self.start_line is not None and len(self.bodies) == 1:
                        self.start_line.wait(60)


@pytest.mark.clock
@pytest.mark.parametrize("sharers", [2, 3])
def test_messages_that_come_one_by_one_go_round(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, sharers: int
) -> None:
    threads = [Sharer(store, queue) for _ in range(sharers)]
    for thread in threads:
        thread.start()
    wait_until(lambda: store.queue_status(queue)["consumers"] == sharers)
    count = 100 * sharers
    for number in range(count):
        publish_numbers(channel, queue, 1, first=number)
        while sum(len(thread.bodies) for thread in threads) <= number:
            time.sleep(0)
    for thread in threads:
        thread.stop.set()
    for thread in threads:
        thread.join(10)
    shares = [len(thread.bodies) for thread in threads]
    assert sum(shares) == count
    assert min(shares) > 0.5 * count / sharers, shares


def test_two_threads_share_a_backlog(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    count = 20_000
    publish_numbers(channel, queue, count)
    start_line = threading.Barrier(2)
    threads = [Sharer(store, queue, start_line) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: sum(len(thread.bodies) for thread in threads) >= count, 60)
    for thread in threads:
        thread.stop.set()
    for thread in threads:
        thread.join(10)
    shares = [len(thread.bodies) for thread in threads]
    assert sum(shares) == count
    assert min(shares) > 0, shares  # how many each has is for the scheduler to say
    for thread in threads:  # each has them in the queue's order
        assert [int(body) for body in thread.bodies] == sorted(map(int, thread.bodies))


def test_message_is_not_lost_with_a_waiter_that_leaves(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    """Waiters come and go, by timeout and by close; what was left to them comes to the others."""
    stayer = Sharer(store, queue)
    stayer.start()
    count = 300
    others: list[bytes] = []

    def come_and_go() -> None:
        while not stayer.stop.is_set():
            with store.channel() as mine:
                tag = mine.basic_consume(queue)
                message = mine.next_delivery(tag, 0.001)
                if message is not None:
                    others.append(message.body)
                    message.ack()

    goers = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in goers:
        thread.start()
    for number in range(count):
        publish_numbers(channel, queue, 1, first=number)
        time.sleep(0.0005)
    wait_until(lambda: len(others) + len(stayer.bodies) >= count, 30)
    stayer.stop.set()
    for one in (stayer, *goers):
        one.join(10)
    assert sorted(map(int, others + stayer.bodies)) == list(range(count))
