"""A caller whose types pyright checks strictly; never run.

No Arrow: pyarrow ships no types of its own.
"""

from datetime import timedelta

import pyqstore
from pyqstore import aio


def work(message: pyqstore.Message) -> None:
    print(message.body)


def synchronous() -> None:
    arguments: dict[str, pyqstore.FieldValue] = {"x-max-length": 5}
    narrow: dict[str, int] = {"x-max-length": 5}
    headers: dict[str, str] = {"a": "b"}
    with pyqstore.open("x.qs", memory_budget="64MiB") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.queue_declare("r", durable=True, arguments=narrow)
        channel.confirm_select()
        channel.basic_publish(
            "",
            "q",
            b"x",
            pyqstore.Properties(delivery_mode=2, headers=headers),
            delay=timedelta(seconds=5),
        )
        message = channel.basic_get("q")
        if message is not None:
            print(message.body.decode(), message.properties.headers)
            message.ack()
        status = store.queue_status("q")
        print(status["messages_ready"] + 1, status.messages_ready, store.stats().ram_bytes)
        queue = store.queue(
            "jobs", codec=pyqstore.json, max_length=5, message_ttl=timedelta(days=1)
        )
        queue.put({"a": 1}, headers=headers, delay=5)
        with queue.get(timeout=5) as got:
            print(got.json())
        for each in queue:
            each.retry(delay=1)
        queue.work(work, threads=2, backoff=timedelta(seconds=1))


async def asynchronous() -> None:
    async with aio.open("x.qs") as store:
        jobs = await store.queue("jobs")
        await jobs.put(b"x")
        async with jobs.get() as message:
            print(message.body)
        async with await store.channel() as channel:
            await channel.basic_publish("", "q", b"x")
            async for m in channel.consume("q"):
                await m.ack()


class Counting(aio.Store):
    """Verbs of asyncio can be overridden."""

    async def sync(self) -> None:
        await super().sync()
        self.syncs = 1
