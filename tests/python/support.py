"""What tests of several files use."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import pyqstore
from pyqstore import aio

PERSISTENT = pyqstore.Properties(delivery_mode=2)


def declare(channel: pyqstore.Channel, queue: str, **arguments: Any) -> None:
    """Declare a durable queue with arguments such as ``max_length=5``, which is x-max-length."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments=named)


def publish(channel: pyqstore.Channel, queue: str, *bodies: bytes, **properties: Any) -> None:
    """Publish persistent messages to a queue."""
    for body in bodies:
        channel.basic_publish("", queue, body, pyqstore.Properties(delivery_mode=2, **properties))


def batch_of(*bodies: bytes) -> pa.RecordBatch:
    """A batch with no column but the body."""
    return pa.record_batch({"body": list(bodies)})


def sent(**properties: Any) -> pyqstore.Properties:
    """Properties as another client may send them: with an expiration that ours refuses to make."""
    expiration = properties.pop("expiration", None)
    if expiration is None:
        return pyqstore.Properties(**properties)
    place = "3141592653"
    encoded = pyqstore.Properties(**properties, expiration=place).encoded
    text = str(expiration).encode()
    raw = bytes([len(text)]) + text
    return pyqstore.Properties.decode(encoded.replace(b"\n" + place.encode(), raw, 1))


def publish_numbers(
    channel: pyqstore.Channel,
    queue: str,
    count: int,
    first: int = 0,
    properties: pyqstore.Properties | None = None,
) -> None:
    """Publish messages whose bodies are numbers, transient ones without other properties."""
    for number in range(first, first + count):
        channel.basic_publish("", queue, b"%d" % number, properties)


async def fill_aio(channel: aio.Channel, count: int, body: bytes = b"") -> None:
    """Publish persistent messages to "q": numbers, with something behind them."""
    for number in range(count):
        await channel.basic_publish("", "q", b"%d" % number + body, PERSISTENT)


def get(channel: pyqstore.Channel, queue: str, auto_ack: bool = False) -> pyqstore.Message:
    """The first message of a queue that has one."""
    message = channel.basic_get(queue, auto_ack)
    assert message is not None
    return message


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return when ``holds()``, which other threads or the store bring about."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.002)


async def until(holds: Callable[[], object]) -> None:
    """As ``wait_until``, in a loop that goes on; the test has its limit."""
    while not holds():
        await asyncio.sleep(0.002)


def number_of(message: pyqstore.Message | None) -> int:
    """In a body, with something behind it or not."""
    assert message is not None
    return int(message.body.rstrip(b"\0"))


def own_host() -> str:
    """An address of this machine at which no other process listens: a port of it that was closed
    stays free."""
    number = os.getpid() % (250 * 250)
    return f"127.{1 + number // 250}.{1 + number % 250}.7"


def bodies(channel: pyqstore.Channel, queue: str) -> list[bytes]:
    """Bodies of what is ready, taken."""
    return [body for body, _ in rest(channel, queue)]


def run_python(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run code in another interpreter; its arguments are strings."""
    return _run("-X", "faulthandler", "-c", code, *arguments, **options)


def run_command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command ``pyqstore``."""
    return _run("-m", "pyqstore", *arguments, **options)


def _run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    options = {"timeout": 120, "check": False} | options
    return subprocess.run(command, capture_output=True, text=True, **options)


def rest(channel: pyqstore.Channel, queue: str) -> list[tuple[bytes, bool]]:
    """Body and redelivered of what is ready, taken."""
    found = []
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        found.append((message.body, message.redelivered))
    return found
