"""Consumers of tests: their messages go to the next ``take``."""

import pyqstore


def take(channel: pyqstore.Channel) -> list[tuple[str, bytes]]:
    """Tag and body of what comes for the channel's consumers without waiting."""
    taken: list[tuple[str, bytes]] = []
    channel._test_taken = taken  # type: ignore[attr-defined]
    channel.process_events(0)
    return taken


def consume(
    channel: pyqstore.Channel,
    queue: str,
    tag: str,
    *,
    auto_ack: bool = False,
    priority: int | None = None,
) -> None:
    """A consumer whose messages go to the next ``take``."""

    def callback(message: pyqstore.Message) -> None:
        channel._test_taken.append((message.consumer_tag, message.body))  # type: ignore[attr-defined]

    arguments = None if priority is None else {"x-priority": priority}
    channel.basic_consume(queue, callback, consumer_tag=tag, auto_ack=auto_ack, arguments=arguments)
