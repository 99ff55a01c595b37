"""Publishing with pyqstore.aio: confirms, returns and refusals, awaited."""

import asyncio

import pytest

import pyqstore
from pyqstore import aio

from ..support import PERSISTENT, number_of

LARGE = bytes(10_000)  # goes to the message store, so publishing and reading it wait for files


@pytest.mark.parametrize("body", [b"small", LARGE])
async def test_a_publish_returns_when_it_is_durable(
    aio_store: aio.Store, aio_channel: aio.Channel, body: bytes
) -> None:
    await aio_channel.confirm_select()
    for number in range(1, 6):
        assert await aio_channel.basic_publish("", "q", body, PERSISTENT) == number
        stats = await aio_store.stats()
        assert stats["durable_lsn"] == stats["appended_lsn"]
    assert (await aio_store.queue_status("q"))["messages_ready"] == 5


@pytest.mark.options(journal_file_bytes="64MiB", commit_delay_us=5000)
async def test_ten_thousand_confirms_are_outstanding_at_once(
    aio_store: aio.Store, aio_channel: aio.Channel
) -> None:
    await aio_channel.confirm_select()
    before = (await aio_store.stats())["commits"]
    publishes = [aio_channel.basic_publish("", "q", b"x", PERSISTENT) for _ in range(10_000)]
    assert sorted(await asyncio.gather(*publishes)) == list(range(1, 10_001))
    assert (await aio_store.stats())["commits"] - before < 2_000  # in groups
    assert await aio_channel.wait_for_confirms(timeout=0) is True


async def test_large_and_small_publishes_keep_their_order(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    await asyncio.gather(
        *(
            aio_channel.basic_publish("", "q", b"%d" % i + (LARGE if i % 3 == 0 else b""))
            for i in range(200)
        )
    )
    assert [number_of(await aio_channel.basic_get("q")) for _ in range(200)] == list(range(200))


async def test_a_returned_message_comes_before_its_confirm(aio_channel: aio.Channel) -> None:
    returned: list[bytes] = []
    aio_channel.add_return_listener(lambda message: returned.append(message.body))
    await aio_channel.confirm_select()
    await aio_channel.basic_publish("", "nobody", b"back", mandatory=True)
    assert returned == [b"back"]


async def test_a_returned_message_comes_without_confirms_too(aio_channel: aio.Channel) -> None:
    came: asyncio.Future[pyqstore.ReturnedMessage]
    came = asyncio.get_running_loop().create_future()
    aio_channel.add_return_listener(came.set_result)
    assert await aio_channel.basic_publish("", "nobody", b"back", mandatory=True) == 0
    assert (await came).reply_code == 312


async def test_a_refused_publish_raises(aio_channel: aio.Channel) -> None:
    await aio_channel.queue_declare(
        "full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"}
    )
    await aio_channel.confirm_select()
    heard: list[tuple[str, int]] = []
    aio_channel.add_confirm_listener(
        lambda number, _: heard.append(("ack", number)),
        lambda number, _: heard.append(("nack", number)),
    )
    results = await asyncio.gather(
        *(aio_channel.basic_publish("", "full", b"x") for _ in range(3)), return_exceptions=True
    )
    assert results[:2] == [1, 2]
    assert isinstance(results[2], pyqstore.PublishRefused)
    assert results[2].publish_number == 3
    assert ("nack", 3) in heard
    assert await aio_channel.wait_for_confirms() is False
    assert await aio_channel.wait_for_confirms() is True


@pytest.mark.clock
@pytest.mark.options(commit_delay_us=1_000_000)
async def test_wait_for_confirms_times_out(aio_channel: aio.Channel) -> None:
    await aio_channel.confirm_select()
    publishing = asyncio.create_task(aio_channel.basic_publish("", "q", b"x", PERSISTENT))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await aio_channel.wait_for_confirms(timeout=0)
    assert await aio_channel.wait_for_confirms() is True
    assert await publishing == 1


@pytest.mark.clock
@pytest.mark.options(memory_budget="256KiB", journal_file_bytes="64KiB", commit_delay_us=5000)
async def test_the_loop_runs_on_while_a_publisher_waits_for_room(aio_channel: aio.Channel) -> None:
    waited = 0
    body = bytes(3000)
    for _ in range(300):  # many times what may wait to be synced, and the memory budget
        publishing = asyncio.create_task(aio_channel.basic_publish("", "q", body, PERSISTENT))
        for _ in range(3):  # one that need not wait is done: it lets others run once at most
            await asyncio.sleep(0)
        waited += not publishing.done()
        await publishing
    assert waited > 0
    seen = 0
    while await aio_channel.basic_get("q", auto_ack=True) is not None:  # from the disk
        seen += 1
    assert seen == 300
