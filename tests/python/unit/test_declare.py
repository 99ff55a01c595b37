"""Exchanges, queues, bindings: declared, declared again, asked for, deleted, refused, reopened."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import _core, aio
from pyqstore.fields import FieldValue

from ..support import get


@pytest.fixture
def refused(store: pyqstore.Store) -> Iterator[Callable[..., None]]:
    """Do something on a channel of its own, which must be refused so and closed by it."""
    channels = []

    def check(
        kind: type[pyqstore.ChannelError], words: str, do: Callable[[pyqstore.Channel], object]
    ) -> None:
        channel = store.channel()
        channels.append(channel)
        with pytest.raises(kind, match=words) as caught:
            do(channel)
        assert str(caught.value).startswith(f"{caught.value.reply_text.split(' ')[0]} - ")
        assert channel.closed
        with pytest.raises(pyqstore.ChannelClosed):
            channel.queue_declare("after")

    yield check
    for channel in channels:
        channel.close()


def test_queue_is_declared_and_declared_again(channel: pyqstore.Channel) -> None:
    assert channel.queue_declare("q", durable=True) == ("q", 0, 0)
    channel.basic_publish("", "q", b"x")
    channel.basic_consume("q", print)
    again = channel.queue_declare("q", durable=True)
    assert (again.queue, again.message_count, again.consumer_count) == ("q", 1, 1)
    assert channel.queue_declare("q", passive=True).message_count == 1


def test_store_makes_up_names(channel: pyqstore.Channel) -> None:
    one, two = channel.queue_declare(), channel.queue_declare("")
    assert one.queue.startswith("amq.gen")
    assert one.queue != two.queue
    channel.basic_publish("", one.queue, b"x")
    assert channel.basic_get(one.queue) is not None


def test_declaring_differently_is_refused(
    channel: pyqstore.Channel, refused: Callable[..., None]
) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-max-length": 5})
    for do in (
        lambda c: c.queue_declare("q"),
        lambda c: c.queue_declare("q", durable=True),
        lambda c: c.queue_declare("q", durable=True, arguments={"x-max-length": 6}),
        lambda c: c.queue_declare("q", durable=True, auto_delete=True),
    ):
        refused(pyqstore.PreconditionFailed, "'?q'?", do)
    channel.exchange_declare("e", "topic")
    for do in (
        lambda c: c.exchange_declare("e", "fanout"),
        lambda c: c.exchange_declare("e", "topic", durable=True),
    ):
        refused(pyqstore.PreconditionFailed, "'?e'?", do)


def test_equal_arguments_in_another_order_are_equal(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q", arguments={"note": 5, "else": "1000"})
    channel.queue_declare("q", arguments={"else": "1000", "note": 5})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("quorum", "there are no 'quorum' queues here, say 'classic' or 'stream'"),
        (b"classic", "a string is needed, 'classic' or 'stream'"),
        (1, "a string is needed, 'classic' or 'stream'"),
        (None, "a string is needed, 'classic' or 'stream'"),
    ],
)
def test_queue_of_another_type_is_refused(
    store: pyqstore.Store, refused: Callable[..., None], kind: FieldValue, words: str
) -> None:
    arguments = {"x-queue-type": kind}
    refused(
        pyqstore.PreconditionFailed,
        f"^PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue 'q' in this store: {words}$",
        lambda c: c.queue_declare("q", durable=True, arguments=arguments),
    )
    assert store.queues() == []


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("x-ha-policy", "mirrored"),
        ("x-ha-mode", "mirrored"),
        ("ha-mode", "mirrored"),
        ("ha-sync-mode", "mirrored"),
        ("x-queue-master-locator", "mirrored"),
        ("x-queue-leader-locator", "quorum"),
        ("x-quorum-initial-group-size", "quorum"),
    ],
)
def test_arguments_that_ask_for_copies_elsewhere_were_ignored(
    store: pyqstore.Store, refused: Callable[..., None], name: str, what: str
) -> None:
    refused(
        pyqstore.PreconditionFailed,
        f"^PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in this store:"
        f" there are no {what} queues here, leave it out$",
        lambda c: c.queue_declare("q", durable=True, arguments={name: "all"}),
    )
    assert store.queues() == []


def test_a_misspelt_argument_was_accepted_in_silence(channel: pyqstore.Channel) -> None:
    known = (
        "queue 'q': the argument 'x-mesage-ttl' means nothing here; did you mean 'x-message-ttl'"
    )
    with pytest.warns(pyqstore.UnknownArgument, match=known) as told:
        channel.queue_declare("q", arguments={"x-mesage-ttl": 5, "x-max-length": 1})
    assert [each.filename for each in told] == [__file__]
    with pytest.warns(pyqstore.UnknownArgument, match="'x-12345' means nothing here$"):
        channel.queue_declare("other", arguments={"x-12345": 5, "mine": 1})


async def test_a_misspelt_argument_is_warned_of_in_asyncio(path: Path) -> None:
    async with aio.open(path) as store, await store.channel() as channel:
        with pytest.warns(pyqstore.UnknownArgument, match="mean 'x-overflow'") as told:
            await channel.queue_declare("q", arguments={"x-overlow": "drop-head"})
        assert [each.filename for each in told] == [__file__]


def test_every_argument_that_is_heeded_is_known(channel: pyqstore.Channel) -> None:
    arguments = {
        "x-message-ttl": 1,
        "x-expires": 3_600_000,
        "x-max-length": 1,
        "x-max-length-bytes": 1,
        "x-delivery-limit": 1,
        "x-max-priority": 1,
        "x-overflow": "drop-head",
        "x-dead-letter-strategy": "at-most-once",
        "x-queue-mode": "lazy",
        "x-queue-type": "classic",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "q",
        "x-single-active-consumer": True,
        "x-persistent": True,
    }
    of_streams = {"x-max-age": "7D", "x-max-messages": 1, "x-stream-max-segment-size-bytes": 1}
    of_work_queues = {"x-stream-source": "stream", "x-stream-offset": "first", "x-stream-pin": True}
    assert set(_core.queue_argument_names()) == {*arguments, *of_streams, *of_work_queues}
    channel.queue_declare("all", arguments=arguments)
    channel.queue_declare(
        "stream", durable=True, arguments={"x-queue-type": "stream", **of_streams}
    )
    channel.queue_declare("work", durable=True, arguments=of_work_queues)


@pytest.mark.parametrize(("name", "value"), [("x-stream-offset", "first"), ("x-stream-pin", True)])
@pytest.mark.parametrize("said", [{}, {"x-queue-type": "stream"}])
def test_what_only_a_work_queue_has_is_refused_for_another_queue(
    refused: Callable[..., None], said: dict[str, FieldValue], name: str, value: FieldValue
) -> None:
    refused(
        pyqstore.PreconditionFailed,
        f"invalid arg '{name}' for queue 'q' in this store: there is no 'x-stream-source'",
        lambda c: c.queue_declare("q", durable=True, arguments={**said, name: value}),
    )


@pytest.mark.parametrize("name", ["x-max-age", "x-max-messages", "x-stream-max-segment-size-bytes"])
@pytest.mark.parametrize("said", [{}, {"x-queue-type": "classic"}])
def test_what_only_a_stream_has_is_refused_for_another_queue(
    refused: Callable[..., None], said: dict[str, FieldValue], name: str
) -> None:
    refused(
        pyqstore.PreconditionFailed,
        f"invalid arg '{name}' for queue 'q' in this store of queue type rabbit_classic_queue",
        lambda c: c.queue_declare("q", arguments={**said, name: 1}),
    )


def test_a_stream_takes_messages_that_expire_or_are_delayed(channel: pyqstore.Channel) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_select()
    channel.basic_publish("", "s", b"a", pyqstore.Properties(expiration="1"))
    channel.basic_publish("", "s", b"b", delay=3600)
    rows = pa.record_batch({"body": [b"c", b"d"], "expiration_ms": pa.array([1, None], pa.int64())})
    channel.publish_batch(rows, "", "s")
    assert channel.wait_for_confirms(10)
    assert channel.queue_declare("s", passive=True).message_count == 4


@pytest.mark.parametrize("said", [{}, {"x-queue-type": "classic"}])
def test_classic_queue_is_one_whether_it_says_so_or_not(
    channel: pyqstore.Channel, refused: Callable[..., None], said: dict[str, FieldValue]
) -> None:
    channel.queue_declare("q", arguments=said)
    channel.queue_declare("q")
    channel.queue_declare("q", arguments={"x-queue-type": "classic"})
    refused(
        pyqstore.PreconditionFailed,
        "inequivalent arg 'x-queue-type' for queue 'q'",
        lambda c: c.queue_declare("q", arguments={"x-queue-type": "quorum"}),
    )


def test_what_does_not_exist_is_not_found(refused: Callable[..., None]) -> None:
    for do in (
        lambda c: c.queue_declare("no", passive=True),
        lambda c: c.exchange_declare("no", passive=True),
        lambda c: c.queue_purge("no"),
        lambda c: c.basic_get("no"),
        lambda c: c.get_batch("no"),
        lambda c: c.basic_consume("no"),
        lambda c: c.basic_publish("no", "", b""),
        lambda c: (c.queue_declare("q"), c.queue_bind("q", "no")),
        lambda c: c.queue_bind("no", "amq.direct"),
    ):
        refused(pyqstore.NotFound, "no", do)


def test_reserved_names_are_refused(refused: Callable[..., None]) -> None:
    refused(pyqstore.AccessRefused, "amq", lambda c: c.queue_declare("amq.mine"))
    refused(pyqstore.AccessRefused, "amq", lambda c: c.exchange_declare("amq.mine"))
    refused(pyqstore.AccessRefused, "exchange", lambda c: c.exchange_delete("amq.direct"))
    refused(
        pyqstore.AccessRefused,
        "exchange",
        lambda c: (c.queue_declare("d"), c.queue_bind("d", "", "d")),
    )
    refused(pyqstore.AccessRefused, "amq", lambda c: c.exchange_delete("amq.none"))
    for do in (
        lambda c: c.exchange_declare("", passive=True),
        lambda c: c.queue_bind("none", "", "d"),
        lambda c: c.queue_unbind("none", "", "d"),
    ):
        refused(pyqstore.AccessRefused, "default exchange", do)


def test_unbinding_succeeds_when_an_end_is_gone(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q")
    channel.queue_unbind("q", "none", "k")
    channel.queue_unbind("none", "amq.direct", "k")
    channel.queue_unbind("q", "amq.direct", "k")


def test_redeclaring_with_another_exclusive_is_locked(
    store: pyqstore.Store, refused: Callable[..., None]
) -> None:
    refused(
        pyqstore.ResourceLocked,
        "mine",
        lambda c: (c.queue_declare("mine", exclusive=True), c.queue_declare("mine")),
    )
    with store.channel() as owner:
        owner.queue_declare("all")
    refused(pyqstore.ResourceLocked, "all", lambda c: c.queue_declare("all", exclusive=True))


def test_exchanges_of_amqp_are_there_from_the_start(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    kinds = {"direct": "direct", "fanout": "fanout", "headers": "headers", "match": "headers"}
    for name, kind in {**kinds, "topic": "topic"}.items():
        name = f"amq.{name}"
        channel.exchange_declare(name, passive=True)
        assert store.exchanges()[name].type == kind


def test_unknown_exchange_type_is_refused(store: pyqstore.Store) -> None:
    with store.channel() as channel, pytest.raises(pyqstore.ChannelError, match="zebra"):
        channel.exchange_declare("e", "zebra")


def test_internal_exchange_takes_no_publish(
    channel: pyqstore.Channel, refused: Callable[..., None]
) -> None:
    channel.exchange_declare("inner", "fanout", internal=True)
    refused(pyqstore.AccessRefused, "inner", lambda c: c.basic_publish("inner", "", b""))


def test_queue_delete_heeds_its_conditions(
    channel: pyqstore.Channel, store: pyqstore.Store, refused: Callable[..., None]
) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    refused(pyqstore.PreconditionFailed, "q", lambda c: c.queue_delete("q", if_empty=True))
    tag = channel.basic_consume("q", print)
    refused(pyqstore.PreconditionFailed, "q", lambda c: c.queue_delete("q", if_unused=True))
    channel.basic_cancel(tag)
    assert channel.queue_delete("q", if_unused=True) == 1
    assert channel.queue_delete("q") == 0
    assert store.queues() == []


def test_exchange_delete_heeds_if_unused(
    channel: pyqstore.Channel, store: pyqstore.Store, refused: Callable[..., None]
) -> None:
    channel.exchange_declare("e")
    channel.queue_declare("q")
    channel.queue_bind("q", "e", "k")
    refused(pyqstore.PreconditionFailed, "e", lambda c: c.exchange_delete("e", if_unused=True))
    channel.queue_unbind("q", "e", "k")
    channel.exchange_delete("e", if_unused=True)
    assert "e" not in store.exchanges()


def test_exclusive_queue_belongs_to_its_channel(
    store: pyqstore.Store, refused: Callable[..., None]
) -> None:
    with store.channel() as owner:
        owner.queue_declare("mine", exclusive=True)
        refused(pyqstore.ResourceLocked, "mine", lambda c: c.queue_declare("mine", passive=True))
        refused(pyqstore.ResourceLocked, "mine", lambda c: c.basic_get("mine"))
        assert "mine" in store.queues()
    assert "mine" not in store.queues()


def test_auto_delete_queue_goes_with_its_last_consumer(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", auto_delete=True)
    one, two = channel.basic_consume("q", print), channel.basic_consume("q", print)
    channel.basic_cancel(one)
    assert "q" in store.queues()
    channel.basic_cancel(two)
    assert "q" not in store.queues()


def test_auto_delete_exchange_goes_with_its_last_binding(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("e", auto_delete=True)
    channel.queue_declare("q")
    channel.queue_bind("q", "e", "1")
    channel.queue_bind("q", "e", "2")
    channel.queue_unbind("q", "e", "1")
    assert "e" in store.exchanges()
    channel.queue_unbind("q", "e", "2")
    assert "e" not in store.exchanges()


def test_purge_drops_ready_messages_only(channel: pyqstore.Channel) -> None:
    channel.queue_declare("q")
    for _ in range(5):
        channel.basic_publish("", "q", b"x")
    message = get(channel, "q")
    assert channel.queue_purge("q") == 4
    message.nack()
    assert channel.queue_declare("q", passive=True).message_count == 1


def test_durable_things_survive_and_others_do_not(path: Path) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("kept", durable=True, arguments={"note": 10})
        channel.queue_declare("gone")
        channel.exchange_declare("kept.e", "topic", durable=True, internal=True)
        channel.exchange_declare("gone.e", "topic")
        channel.queue_bind("kept", "kept.e", "a.#", {"k": "v"})
        channel.queue_bind("gone", "kept.e", "b")
        channel.queue_bind("kept", "gone.e", "c")
    with pyqstore.open(path) as store, store.channel() as channel:
        assert store.queues() == ["kept"]
        assert store.exchanges()["kept.e"] == ("kept.e", "topic", True, False, True, {})
        assert "gone.e" not in store.exchanges()
        named = [binding for binding in store.bindings() if binding.source]
        assert named == [("kept.e", "kept", "a.#", {"k": "v"}, False)]
        channel.queue_declare("kept", durable=True, arguments={"note": 10})
        channel.queue_delete("kept")
        channel.exchange_delete("kept.e")
    with pyqstore.open(path) as store:
        assert store.queues() == []
        assert "kept.e" not in store.exchanges()


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "with space", "a/b", "..", "\n"])
def test_names_may_be_any_text_of_255_bytes(path: Path, name: str) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        assert channel.queue_declare(name, durable=True).queue == name
        channel.basic_publish("", name, b"x", pyqstore.Properties(delivery_mode=2))
    with pyqstore.open(path) as store, store.channel() as channel:
        assert store.queues() == [name]
        message = get(channel, name)
        assert (message.queue, message.routing_key) == (name, name)


def test_wrong_names_are_refused(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        with pytest.raises(TypeError, match="queue must be str, not bytes"):
            channel.queue_declare(b"q")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="exchange must be str, not NoneType"):
            channel.basic_publish(None, "", b"")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="surrogates"):
            channel.queue_declare("\ud800")
        with pytest.raises(TypeError, match="arguments must be a mapping"):
            channel.queue_declare("q", arguments=["x"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"arguments\['x'\]"):
            channel.queue_declare("q", arguments={"x": 2**64})
        assert not channel.closed
    with store.channel() as channel, pytest.raises((ValueError, pyqstore.ChannelError)):
        channel.queue_declare("x" * 256)
