"""What a type checker sees of the public API; checked by mypy, never run."""

from collections.abc import Callable, Iterator
from typing import Any, assert_type

import pyarrow as pa

import pyqstore
from pyqstore import aio, flight


def stores(path: str) -> None:
    with pyqstore.open(path, memory_budget="64MiB", embed_below=0, create=False) as store:
        assert_type(store, pyqstore.Store)
        assert_type(store.closed, bool)
        assert_type(store.queues(), list[str])
        assert_type(sorted(store.exchanges()), list[str])
        assert_type(store.sync(), None)
        assert_type(store.checkpoint(), None)
        assert_type(store.set_queue_mode("q", "lazy"), None)
        assert_type(store.stats(), pyqstore.Stats)
        assert_type(store.stats().commits, int)
        assert_type(store.stats().commit_latency_us.p99, int)
        assert_type(store.queue_status("q"), pyqstore.QueueStatus)
        assert_type(store.queue_status("q").ingress_rate, float)
        assert_type(store.queue_status("q").to_dict(), dict[str, Any])
        assert_type(store.recovery_report.messages, int)
        assert_type(store.recovery_report.queues, dict[str, int])
        assert_type(store.channel(), pyqstore.Channel)
        with store.connection("name") as connection:
            assert_type(connection, pyqstore.Connection)
            assert_type(connection.channel(), pyqstore.Channel)
            assert_type(connection.closed, bool)


def publishing(channel: pyqstore.Channel, frame: pa.Table) -> None:
    assert_type(channel.confirm_select(), None)
    assert_type(channel.next_publish_number, int)
    assert_type(channel.basic_publish("", "q", b"body"), int)
    assert_type(channel.basic_publish("", "q", memoryview(b"body"), mandatory=True), int)
    assert_type(channel.wait_for_confirms(timeout=5), bool)
    receipt = channel.publish_batch(frame, routing_key="q")
    assert_type(receipt, pyqstore.Receipt)
    assert_type(receipt.count, int)
    assert_type(receipt.done, bool)
    listener: Callable[[int, bool], object] = print
    channel.add_confirm_listener(listener, listener)


def consuming(channel: pyqstore.Channel) -> None:
    assert_type(
        channel.exchange_declare("e", "headers", arguments={"alternate-exchange": "f"}), None
    )
    assert_type(channel.exchange_bind("f", "e", "k", {"x-match": "any", "a": 1}), None)
    assert_type(channel.exchange_unbind("f", "e", "k", {"x-match": "any", "a": 1}), None)
    declared = channel.queue_declare("q", durable=True)
    assert_type(declared.queue, str)
    assert_type(declared.message_count, int)
    assert_type(channel.basic_get("q"), pyqstore.Message | None)
    assert_type(channel.basic_consume("q"), str)
    messages: Iterator[pyqstore.Message] = iter(channel.consume("q"))
    for message in messages:
        assert_type(message.body, bytes)
        assert_type(message.delivery_tag, int)
        assert_type(message.properties, pyqstore.Properties)
        assert_type(message.ack(), None)
    batch: pa.RecordBatch = channel.get_batch("q", 100, timeout=1.0)
    channel.basic_ack(batch.num_rows, multiple=True)


def properties() -> None:
    made = pyqstore.Properties(delivery_mode=2, headers={"key": "value", "list": [1, None]})
    assert_type(made.delivery_mode, int | None)
    assert_type(made.message_id, str | None)
    headers: dict[str, Any] | None = made.headers
    assert headers


def errors(error: pyqstore.Error) -> None:
    if isinstance(error, pyqstore.ChannelError):
        assert_type(error.reply_code, int)
        assert_type(error.reply_text, str)
    if isinstance(error, pyqstore.StoreCorrupt):
        assert_type(error.offset, int | None)


def remote(frame: pa.Table) -> None:
    with pyqstore.connect("grpc://127.0.0.1:8815", user="ann", password="x") as client:
        assert_type(client, flight.Client)
        assert_type(client.queue_declare("q", durable=True).queue, str)
        assert_type(client.publish_batch(frame, "", "q"), pyqstore.Receipt)
        assert_type(client.ack(1, multiple=True), None)
        assert_type(client.stream("s"), flight.RemoteStream)
        assert_type(pyqstore.connect("grpc://h:1", token_file="tokens"), flight.Client)
        staged = client.stage(frame, "t", partition=0, attempt=1)
        assert_type(staged, flight.Staged)
        assert_type(client.stage(frame, "t", 1, "a", "orders", "eu").route, int | None)
        assert_type(client.commit_staged("t", [staged]), flight.StagedCommit)
        state = client.prepare_staged("t", [staged], run="r1", shards=2)
        assert_type(state, flight.TransactionState)
        assert_type(client.transaction_state("t").run, str | None)
        assert_type(client.commit_prepared("t", "r1"), flight.StagedCommit)
        assert_type(client.refuse_run("t", "r1"), bool)
        assert_type(client.rollback_prepared("t", "r1"), bool)
        done = flight.commit_shards([client], "t", [[staged]])
        assert_type(done, list[flight.StagedCommit])
        assert_type(flight.settle_shards([client], "t"), list[flight.StagedCommit] | None)
        assert_type(client.token(), str)


async def asynchronous(path: str) -> None:
    async with await aio.open(path, memory_budget="64MiB") as store:
        assert_type(store, aio.Store)
        assert_type(await store.queues(), list[str])
        assert_type(await (await store.connection("name")).channel(), aio.Channel)
        channel = await store.channel()
        assert_type((await channel.queue_declare("q")).queue, str)
        assert_type(await channel.basic_publish("", "q", b"body"), int)
        assert_type(await channel.wait_for_confirms(timeout=5), bool)
        assert_type(await channel.basic_get("q"), aio.Message | None)
        callback: Callable[[aio.Message], object] = print
        assert_type(await channel.basic_consume("q", callback), str)
        async for message in channel.consume("q"):
            assert_type(message, aio.Message)
            assert_type(await message.ack(), None)
        receipt = await channel.publish_batch(pa.table({"body": [b""]}), routing_key="q")
        assert_type(await receipt.wait(), bool)
