"""Memory that nothing in memory_budget used to bound: each case in a process of its own, whose
resident memory tells."""

from pathlib import Path
from typing import Any

import pyarrow
import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, publish_numbers, run_python

_MEASURE = """
import sys, asyncio, pyqstore
from pyqstore import aio
PERSISTENT = pyqstore.Properties(delivery_mode=2)
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
path = sys.argv[1]
"""


def growth_mib(path: Path, before: str, after: str) -> int:
    """By how much resident memory grew while ``after`` ran."""
    code = (
        f"{_MEASURE}\n{before}\nbegan = resident()\n{after}\n"
        "print((resident() - began) >> 20)\n"
        "store.close()\n"
    )
    result = run_python(code, path)
    assert result.returncode == 0, result.stderr
    return int(result.stdout.split()[-1])


_OPEN = 'store = pyqstore.open(path, memory_budget="1MiB"); channel = store.channel()'


@pytest.mark.clock
def test_returned_messages_that_nobody_listens_to_take_no_memory(path: Path) -> None:
    grown = growth_mib(
        path,
        _OPEN,
        "for _ in range(20_000):\n"
        "    channel.basic_publish('', 'nobody', bytes(10_000), mandatory=True)\n"
        "assert store.stats()['messages_returned'] == 20_000\n"
        "assert store.stats()['ram_bytes'] < 1 << 20",
    )
    assert grown < 32


def _publish_unroutable(channel: pyqstore.Channel, count: int) -> None:
    for _ in range(count):
        channel.basic_publish("", "nobody", bytes(10_000), mandatory=True)


def test_returned_messages_that_nobody_reads_are_counted_and_refused_in_time(path: Path) -> None:
    with pyqstore.open(path, memory_budget="1MiB") as store, store.channel() as channel:
        returned: list[bytes] = []
        channel.add_return_listener(lambda message: returned.append(message.body))
        channel.confirm_select()
        with pytest.raises(pyqstore.StoreFull, match="process the channel's events"):
            _publish_unroutable(channel, 1000)
        accepted = channel.basic_publish("", "nobody", b"") - 1
        assert 1 < accepted <= 13
        assert 10_000 * accepted < store.stats()["ram_bytes"] < (1 << 20)
        assert channel.wait_for_confirms(10)
        assert len(returned) == accepted
        channel.basic_publish("", "nobody", bytes(10_000), mandatory=True)
        channel.process_events()
        assert len(returned) == accepted + 1
        assert store.stats()["ram_bytes"] < 10_000


def test_batch_of_returned_messages_is_refused_whole_when_they_are_too_many(path: Path) -> None:
    with pyqstore.open(path, memory_budget="1MiB") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.add_return_listener(lambda message: None)
        rows = pyarrow.table(
            {"body": [bytes(10_000)] * 100, "routing_key": ["q"] + ["nobody"] * 99}
        )
        with pytest.raises(pyqstore.StoreFull, match="fewer unroutable messages"):
            channel.publish_batch(rows, mandatory=True)
        assert store.queue_status("q")["messages_ready"] == 0
        assert channel.publish_batch(rows.slice(0, 10), mandatory=True).count == 10
        assert channel.process_events() == 9


async def test_returned_messages_reach_a_listener_of_asyncio(path: Path) -> None:
    returned = []
    async with await aio.open(path) as store, await store.channel() as channel:
        await channel.basic_publish("", "nobody", b"dropped", mandatory=True)
        channel.add_return_listener(lambda message: returned.append(message.body))
        await channel.basic_publish("", "nobody", b"kept", mandatory=True)
        await channel.process_events()
    assert returned == [b"kept"]


_BACKLOG = """
for queue in "ab":
    channel.queue_declare(queue)
with store.channel() as publisher:
    for _ in range(10_000):
        publisher.basic_publish("", "a", bytes(10_000))
    publisher.basic_publish("", "b", b"last")
"""


@pytest.mark.clock
def test_backlog_of_a_consumer_is_bounded_while_another_is_read(path: Path) -> None:
    grown = growth_mib(
        path,
        _OPEN + _BACKLOG,
        "channel.basic_consume('a', consumer_tag='a')\n"
        "channel.basic_consume('b', consumer_tag='b')\n"
        "assert channel.next_delivery('b').body == b'last'\n"
        "assert channel.next_delivery('b', timeout=1.0) is None\n"
        "assert store.queue_status('a')['messages_unacked'] < 300",
    )
    assert grown < 32


@pytest.mark.clock
def test_backlog_of_a_consumer_is_bounded_while_another_is_read_in_asyncio(path: Path) -> None:
    grown = growth_mib(
        path,
        _OPEN + _BACKLOG + "store.sync(); channel.close(); store.close()\n",
        """
async def main():
    store = await aio.open(path, memory_budget="1MiB")
    async with store, await store.channel() as channel:
        await channel.queue_declare("a")
        await channel.queue_declare("b")
        async with await store.channel() as publisher:
            for _ in range(10_000):
                await publisher.basic_publish("", "a", bytes(10_000))
            await publisher.basic_publish("", "b", b"last")
        await channel.basic_consume("a", consumer_tag="a")
        await channel.basic_consume("b", consumer_tag="b")
        assert (await channel.next_delivery("b")).body == b"last"
        assert await channel.next_delivery("b", timeout=1.0) is None
        assert (await store.queue_status("a"))["messages_unacked"] < 400
        for _ in range(1_000):
            message = await channel.next_delivery("a", timeout=10)
            await message.ack()
asyncio.run(main())
""",
    )
    assert grown < 48


def test_every_message_comes_in_order_when_a_full_backlog_is_read(
    channel: pyqstore.Channel, store: pyqstore.Store
) -> None:
    for queue in "ab":
        channel.queue_declare(queue)
    with store.channel() as publisher:
        publish_numbers(publisher, "a", 1_000)
        publisher.basic_publish("", "b", b"b")
    channel.basic_consume("a", consumer_tag="a")
    channel.basic_consume("b", consumer_tag="b", auto_ack=True)
    for expected in (b"b", None):
        message = channel.next_delivery("b", timeout=0)
        assert (message and message.body) == expected
    taken: list[bytes] = []
    while (message := channel.next_delivery("a", timeout=0)) is not None:
        taken.append(message.body)
        if len(taken) % 300 == 0:
            assert channel.next_delivery("b", timeout=0) is None
    assert taken == [b"%d" % number for number in range(1_000)]


def test_paused_consumer_leaves_messages_to_others(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    """As one whose prefetch is used up does, whatever its priority."""
    for queue in "ab":
        channel.queue_declare(queue)
    channel.basic_consume("a", consumer_tag="a", arguments={"x-priority": 1})
    channel.basic_consume("b", consumer_tag="b")
    with store.channel() as other:
        other.basic_consume("a", consumer_tag="other")
        for _ in range(500):
            other.basic_publish("", "a", b"")
        assert channel.next_delivery("b", timeout=0) is None
        for _ in range(244):
            assert other.next_delivery("other", timeout=10) is not None
        assert other.next_delivery("other", timeout=0) is None


def test_recovering_goes_on_with_a_consumer_whose_backlog_was_full(
    store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    for queue in "ab":
        channel.queue_declare(queue)
    for _ in range(300):
        channel.basic_publish("", "a", b"", PERSISTENT)
    channel.basic_consume("a", consumer_tag="a")
    channel.basic_consume("b", consumer_tag="b")
    assert channel.next_delivery("b", timeout=0) is None
    channel.basic_recover()
    messages: list[Any] = [channel.next_delivery("a", timeout=10) for _ in range(300)]
    assert len({message.delivery_tag for message in messages}) == 300


@pytest.mark.clock
def test_transaction_keys_take_no_memory_beyond_the_budget(path: Path) -> None:
    grown = growth_mib(
        path,
        'store = pyqstore.open(path, memory_budget="1MiB", sync="none")\n'
        "channel = store.channel()\n"
        "channel.tx_select()",
        "for number in range(60_000):\n"
        "    channel.tx_commit(key=f'{number} ' + 800 * 'k')\n"
        "    if number % 1000 == 0:\n"
        "        assert store.stats()['ram_bytes'] < 1 << 20\n"
        "assert store.transaction_known('0 ' + 800 * 'k')\n"
        "assert not store.transaction_known('60000 ' + 800 * 'k')",
    )
    assert grown < 24
