"""What a publisher is told: receipts of batches, and mandatory messages that no queue took."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, bodies, declare, run_python

pytestmark = pytest.mark.faces("sync", "aio")


def rows(count: int, **columns: list[Any]) -> Any:
    return pa.table({"body": [b"%d" % i for i in range(count)], **columns})


def counts(receipt: pyqstore.Receipt) -> tuple[int, int, int, int]:
    return receipt.confirmed, receipt.refused, receipt.returned, receipt.unroutable


# Refused rows.


def test_wait_said_true_for_rows_that_were_refused(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=2, overflow="reject-publish")
    channel.confirm_select()
    channel.basic_publish("", "nowhere", b"")
    receipt = channel.publish_batch(rows(10), "", "full")
    with pytest.raises(pyqstore.PublishRefused, match="8 of the batch's messages") as caught:
        receipt.wait(60)
    assert caught.value.count == 8
    assert caught.value.publish_number == 4
    assert caught.value.publish_numbers == (4, 5, 6, 7, 8, 9, 10, 11)
    assert caught.value.rows == (2, 3, 4, 5, 6, 7, 8, 9)
    assert counts(receipt) == (2, 8, 0, 0)
    assert not receipt.done
    assert channel.wait_for_confirms(10) is False
    assert bodies(channel, "full") == [b"0", b"1"]


def test_rows_refused_outside_confirm_mode_have_no_numbers(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=9, overflow="reject-publish")
    receipt = channel.publish_batch(rows(10), "", "full")
    with pytest.raises(pyqstore.PublishRefused, match=r"1 of .*: rows 9$") as caught:
        receipt.wait(60)
    assert (caught.value.publish_number, caught.value.publish_numbers) == (0, ())


def test_a_row_that_one_of_its_queues_refuses_is_refused(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=1, overflow="reject-publish")
    declare(channel, "open")
    for queue in ("full", "open"):
        channel.queue_bind(queue, "amq.fanout")
    receipt = channel.publish_batch(rows(3), "amq.fanout")
    with pytest.raises(pyqstore.PublishRefused):
        receipt.wait(60)
    assert counts(receipt) == (1, 2, 0, 0)
    assert bodies(channel, "open") == [b"0", b"1", b"2"]


# Rows that no queue takes.


@pytest.mark.parametrize("mandatory", [False, True])
def test_a_receipt_tells_of_rows_that_no_queue_took(
    channel: pyqstore.Channel, queue: str, mandatory: bool
) -> None:
    data = rows(5, routing_key=[queue, "no", queue, "nowhere", "no"])
    receipt = channel.publish_batch(data, mandatory=mandatory)
    assert receipt.wait(60)
    assert receipt.done
    assert counts(receipt) == ((5, 0, 3, 0) if mandatory else (5, 0, 0, 3))
    alike = channel.publish_batch(rows(1000), "", "nowhere", mandatory=mandatory)
    assert counts(alike) == ((1000, 0, 1000, 0) if mandatory else (1000, 0, 0, 1000))
    assert counts(channel.publish_batch(rows(0), "", "nowhere")) == (0, 0, 0, 0)


def test_a_receipt_counts_rows_that_headers_lead_nowhere(channel: pyqstore.Channel) -> None:
    declare(channel, "red")
    channel.queue_bind("red", "amq.headers", arguments={"colour": "red"})
    headers = pa.array(
        [[("colour", "red")], [("colour", "blue")], None], pa.map_(pa.string(), pa.string())
    )
    receipt = channel.publish_batch(rows(3, headers=headers), "amq.headers")
    assert counts(receipt)[2:] == (0, 2)


# Transactions.


def test_receipt_of_an_open_transaction_said_done(channel: pyqstore.Channel, queue: str) -> None:
    channel.tx_select()
    receipt = channel.publish_batch(rows(3, routing_key=[queue, queue, "nowhere"]))
    assert not receipt.done
    assert counts(receipt) == (0, 0, 0, 1)
    with pytest.raises(RuntimeError, match=r"tx_commit\(\) publishes it"):
        receipt.wait()
    channel.tx_commit()
    assert receipt.done
    assert receipt.wait(0)
    assert counts(receipt) == (3, 0, 0, 1)


def test_receipt_of_a_transaction_that_was_rolled_back_said_done(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.tx_select()
    receipt = channel.publish_batch(rows(3), "", queue)
    channel.tx_rollback()
    after = channel.publish_batch(rows(1), "", queue)
    with store.channel() as other:
        other.tx_select()
        left = other.publish_batch(rows(2), "", queue)
    channel.tx_commit()
    for each in (receipt, left):
        assert not each.done
        assert each.confirmed == 0
        with pytest.raises(RuntimeError, match="rolled back"):
            each.wait(0)
    assert after.done


# Mandatory messages in confirm mode, without a listener.


@pytest.mark.faces("sync")
def test_mandatory_messages_vanished_in_confirm_mode(channel: pyqstore.Channel, queue: str) -> None:
    channel.confirm_select()
    channel.basic_publish("", queue, b"taken", PERSISTENT, mandatory=True)
    channel.basic_publish("amq.direct", "no", b"first", PERSISTENT, mandatory=True)
    channel.basic_publish("", "nowhere", b"second", mandatory=True)
    channel.basic_publish("", "nowhere", b"dropped")
    with pytest.raises(pyqstore.MessageReturned, match="no queue took 2 mandatory") as caught:
        channel.wait_for_confirms(10)
    assert "'amq.direct' with routing key 'no'" in str(caught.value)
    message = caught.value.message
    assert message is not None
    assert (caught.value.count, message.body, message.reply_code) == (2, b"first", 312)
    assert (message.exchange, message.routing_key) == ("amq.direct", "no")
    assert message.properties.delivery_mode == 2
    assert channel.wait_for_confirms(10) is True
    assert bodies(channel, queue) == [b"taken"]


def test_mandatory_rows_vanished_in_confirm_mode(channel: pyqstore.Channel, queue: str) -> None:
    channel.confirm_select()
    data = rows(3, routing_key=[queue, "one", "two"])
    assert channel.publish_batch(data, mandatory=True).wait(60)
    channel.publish_batch(data, mandatory=True)
    with pytest.raises(pyqstore.MessageReturned) as caught:
        channel.wait_for_confirms(10)
    assert caught.value.message is not None
    assert (caught.value.message.body, caught.value.count) == (b"1", 4)
    channel.publish_batch(rows(1), "", "nowhere", mandatory=True)
    with pytest.raises(pyqstore.MessageReturned, match="no queue took a mandatory message; it was"):
        channel.wait_for_confirms(10)
    assert channel.wait_for_confirms(10) is True


@pytest.mark.faces("sync")
def test_refusals_are_told_behind_returned_messages(channel: pyqstore.Channel) -> None:
    declare(channel, "full", max_length=1, overflow="reject-publish")
    channel.confirm_select()
    channel.publish_batch(rows(2), "", "full")
    channel.basic_publish("", "nowhere", b"", mandatory=True)
    with pytest.raises(pyqstore.MessageReturned):
        channel.wait_for_confirms(10)
    assert channel.wait_for_confirms(10) is False
    assert channel.wait_for_confirms(10) is True


def test_whoever_listens_to_returned_messages_gets_no_error(channel: pyqstore.Channel) -> None:
    returned: list[bytes] = []
    channel.add_return_listener(lambda message: returned.append(message.body))
    channel.confirm_select()
    channel.basic_publish("", "nowhere", b"back", mandatory=True)
    assert channel.wait_for_confirms(10) is True
    assert returned == [b"back"]


@pytest.mark.faces("sync")
def test_listener_to_confirms_alone_is_no_listener_to_returns(channel: pyqstore.Channel) -> None:
    confirmed: list[int] = []
    channel.add_confirm_listener(lambda number, _: confirmed.append(number), None)
    channel.confirm_select()
    channel.basic_publish("", "nowhere", b"back", mandatory=True)
    with pytest.raises(pyqstore.MessageReturned):
        channel.wait_for_confirms(10)
    assert confirmed == [1]


def test_returned_messages_outside_confirm_mode_are_no_error(channel: pyqstore.Channel) -> None:
    channel.basic_publish("", "nowhere", b"", mandatory=True)
    channel.confirm_select()
    assert channel.wait_for_confirms(10) is True


def test_only_the_first_returned_message_is_kept(path: Path) -> None:
    with pyqstore.open(path, memory_budget="4MiB") as store, store.channel() as channel:
        channel.confirm_select()
        for number in range(20_000):
            channel.basic_publish("", "nowhere", b"%10000d" % number, mandatory=True)
        assert 10_000 < store.stats()["ram_bytes"] < 100_000
        with pytest.raises(pyqstore.MessageReturned) as caught:
            channel.wait_for_confirms(60)
        assert caught.value.count == 20_000
        assert caught.value.message is not None
        assert int(caught.value.message.body) == 0
        assert store.stats()["ram_bytes"] < 10_000


def test_an_error_comes_without_its_message_where_others_fill_the_memory(path: Path) -> None:
    with (
        pyqstore.open(path, memory_budget="1MiB") as store,
        store.channel() as reader,
        store.channel() as channel,
    ):
        reader.add_return_listener(lambda message: None)
        reader.basic_publish("", "nowhere", bytes(130_000), mandatory=True)
        channel.confirm_select()
        channel.basic_publish("", "nowhere", bytes(10_000), mandatory=True)
        with pytest.raises(pyqstore.MessageReturned, match=r"^no queue took a mandatory message$"):
            channel.wait_for_confirms(10)


async def test_await_of_a_mandatory_publish_returned_a_number_for_nothing(
    aio_channel: aio.Channel,
) -> None:
    await aio_channel.confirm_select()
    assert await aio_channel.basic_publish("", "q", b"", mandatory=True) == 1
    with pytest.raises(pyqstore.MessageReturned, match="with routing key 'no'") as caught:
        await aio_channel.basic_publish("", "no", b"back", mandatory=True)
    assert caught.value.message is not None
    assert caught.value.message.body == b"back"
    assert await aio_channel.basic_publish("", "no", b"dropped") == 3
    assert await aio_channel.wait_for_confirms(10) is True


async def test_each_of_many_awaited_publishes_learns_of_its_own_message(
    aio_channel: aio.Channel,
) -> None:
    await aio_channel.confirm_select()
    answers = await asyncio.gather(
        *(
            aio_channel.basic_publish("", key, body, PERSISTENT, mandatory=True)
            for key in ("q", "nowhere")
            for body in (b"small", bytes(10_000))
        ),
        return_exceptions=True,
    )
    assert answers[:2] == [1, 2]
    for answer, size in zip(answers[2:], (5, 10_000), strict=True):
        assert isinstance(answer, pyqstore.MessageReturned)
        assert answer.message is not None
        assert (answer.count, len(answer.message.body)) == (1, size)
    assert await aio_channel.wait_for_confirms(10) is True


async def test_mandatory_rows_vanished_in_asyncio(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    receipt = await aio_channel.publish_batch(rows(3), "", "nowhere", mandatory=True)
    assert await receipt.wait(60)
    assert counts(receipt) == (3, 0, 3, 0)
    with pytest.raises(pyqstore.MessageReturned):
        await aio_channel.basic_publish("", "no", b"mine", mandatory=True)
    await aio_channel.publish_batch(rows(1), "", "nowhere", mandatory=True)
    with pytest.raises(pyqstore.MessageReturned) as caught:
        await aio_channel.wait_for_confirms(10)
    assert caught.value.message is not None
    assert (caught.value.count, caught.value.message.body) == (4, b"0")
    assert await aio_channel.wait_for_confirms(10) is True


async def test_a_listener_in_asyncio_hears_instead(aio_channel: aio.Channel) -> None:
    returned: list[bytes] = []
    aio_channel.add_return_listener(lambda message: returned.append(message.body))
    await aio_channel.confirm_select()
    assert await aio_channel.basic_publish("", "nowhere", b"back", mandatory=True) == 1
    assert returned == [b"back"]


async def test_returned_message_of_a_publish_that_was_cancelled_is_told_of(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    """The publish waits for its turn behind a batch, is made, and cancelled before it has heard."""

    async def told_by_all(store: aio.Store, channel: aio.Channel, turns: int) -> bool:
        before = (await store.stats())["messages_published"]
        number = channel.next_publish_number
        batch = asyncio.create_task(channel.publish_batch(rows(100), "", "q"))
        publish = asyncio.create_task(channel.basic_publish("", "no", b"back", mandatory=True))
        await asyncio.sleep(0)
        while (await store.stats())["messages_published"] < before + 100:
            time.sleep(0.001)  # the batch is in a thread, and nothing happens in the loop
        for _ in range(turns):
            await asyncio.sleep(0)
        publish.cancel()
        await batch
        try:
            await publish
        except pyqstore.MessageReturned:
            return False
        except asyncio.CancelledError:
            if channel.next_publish_number == number + 100:
                return False  # it was not made
        with pytest.raises(pyqstore.MessageReturned):
            await channel.wait_for_confirms(60)
        return True

    await aio_channel.confirm_select()
    turns = 0
    while not await told_by_all(aio_store, aio_channel, turns % 8):
        assert await aio_channel.wait_for_confirms(60) is True
        turns += 1


@pytest.mark.clock
def test_returned_messages_without_a_listener_took_memory(path: Path) -> None:
    """In confirm mode too."""
    program = """
import asyncio, resource, sys
import pyqstore
from pyqstore import aio

async def main(path):
    store = await aio.open(path, memory_budget="1MiB")
    async with store, await store.channel() as channel:
        await channel.confirm_select()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(20_000):
            try:
                await channel.basic_publish("", "nobody", bytes(10_000), mandatory=True)
            except pyqstore.MessageReturned:
                pass
        stats = await store.stats()
        assert stats["messages_returned"] == 20_000 and stats["ram_bytes"] < 100_000, stats
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main(sys.argv[1]))
"""
    result = run_python(program, path)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 32 * 1024
