"""The process that test_kill.py kills: publishes numbers to three queues, and tells on stdout what
it does."""

import os
import sys

import pyarrow as pa

import pyqstore

QUEUES = ("q0", "q1", "q2")
PERSISTENT = pyqstore.Properties(delivery_mode=2)


def say(text: str) -> None:
    """One write a line: a kill cuts at most the last."""
    os.write(1, text.encode() + b"\n")


def body(number: int) -> bytes:
    size = 5000 if number % 50 == 0 else 20 + number % 100
    return b"%d " % number + b"." * (size - len(b"%d " % number))


def publish_single(channel: pyqstore.Channel, first: int, count: int) -> None:
    for number in range(first, first + count):
        channel.basic_publish("", QUEUES[number % 3], body(number), PERSISTENT)


def publish_batch(channel: pyqstore.Channel, first: int, count: int) -> None:
    numbers = range(first, first + count)
    frame = pa.table(
        {
            "body": [body(number) for number in numbers],
            "routing_key": [QUEUES[number % 3] for number in numbers],
        }
    )
    channel.publish_batch(frame)


def acknowledge(store: pyqstore.Store, channel: pyqstore.Channel, count: int) -> None:
    for queue in QUEUES:
        for _ in range(count):
            message = channel.basic_get(queue)
            if message is None:
                break
            say(f"a {int(message.body.partition(b' ')[0])}")
            message.ack()
    store.sync()
    say("s")


def main() -> None:
    path, first, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    store = pyqstore.open(path, journal_file_bytes="64KiB", message_file_bytes="64KiB")
    publisher, consumer = store.channel(), store.channel()
    for queue in QUEUES:
        publisher.queue_declare(queue, durable=True)
    publisher.confirm_select()
    pa.table({"body": [b""]})  # the first one imports what takes as long as a worker may live
    say("ready")
    turn = 0
    while True:
        turn += 1
        count = 1 + turn * 7 % 40
        say(f"p {first + count - 1}")
        if mode == "single" or (mode == "mixed" and turn % 2):
            publish_single(publisher, first, count)
        else:
            publish_batch(publisher, first, count)
        if not publisher.wait_for_confirms(timeout=30):
            raise AssertionError("a publish was refused")
        first += count
        say(f"c {first - 1}")
        if turn % 3 == 0:
            acknowledge(store, consumer, 10)


if __name__ == "__main__":
    main()
