"""Messages that tell whether they are whole, and how a store is filled with them."""

import hashlib

import pyqstore

BODY_BYTES = 400
PERSISTENT = pyqstore.Properties(delivery_mode=2)


def body(number: int) -> bytes:
    """The body of the message with that number: its digest fills it."""
    digest = hashlib.sha256(str(number).encode()).digest()
    return (digest * (BODY_BYTES // len(digest) + 1))[:BODY_BYTES]


def publish_one(channel: pyqstore.Channel, number: int) -> bool:
    """Publish that message; False on a full disk."""
    try:
        channel.basic_publish("", "q", body(number), PERSISTENT)
    except pyqstore.StoreFull:
        return False
    return True


def fill(store: pyqstore.Store) -> int:
    """Publish until the disk is full; the number of messages, all of them durable."""
    channel = store.channel()
    channel.queue_declare("q", durable=True)
    count = 0
    while publish_one(channel, count):
        count += 1
        if count % 500 == 0:
            store.sync()
    store.sync()
    channel.close()
    return count


def take(channel: pyqstore.Channel, first: int, end: int) -> None:
    """Take and acknowledge these messages, which are next."""
    for number in range(first, end):
        message = channel.basic_get("q")
        assert message is not None
        assert message.body == body(number), number
        channel.basic_ack(message.delivery_tag)
