"""What a damaged store may do, and what it must not.

Never a wrong byte, a message twice, out of order, or one that nobody published.  Nothing confirmed
is missing, and nothing whose acknowledgement is durable is back, unless an error, a report or
`verify` tells.  The one exception stands in docs/DURABILITY.md: the last commit of a crashed
session may be taken for a torn tail.  What refuses, and what only reads, changes no byte.
"""

import os
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyqstore

from .stores import DEAD, Built

Picture = dict[str, tuple[object, ...]]


def picture(root: Path) -> Picture:
    """Every file with what is in it; LOCK aside, which says who owns the store."""
    seen: Picture = {}
    _add_to(seen, str(root), "")
    seen.pop("LOCK", None)
    return seen


def _add_to(seen: Picture, folder: str, prefix: str) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            mode = entry.stat(follow_symlinks=False).st_mode
            what: object = None
            if stat.S_ISREG(mode):
                with open(entry.path, "rb") as file:
                    what = file.read()
            elif stat.S_ISLNK(mode):
                what = os.readlink(entry.path)
            elif stat.S_ISDIR(mode):
                _add_to(seen, entry.path, f"{name}/")
            seen[name] = mode, what


def changes(before: Picture, after: Picture) -> list[str]:
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def is_folder(what: tuple[object, ...]) -> bool:
    """Whether that is what a picture says of something."""
    return isinstance(what[0], int) and stat.S_ISDIR(what[0])


@dataclass
class Reading:
    """What came out of a store."""

    recovery: str = "strict"
    refused: str | None = None
    report: Mapping[str, object] = field(default_factory=dict)
    messages: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    """Of each queue, in order: the number, and whether its flag says redelivered."""
    errors: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    @property
    def lost(self) -> bool:
        """Whether the store's own report says that something is lost."""
        return any(bool(number) for name, number in self.report.items() if name.startswith("lost_"))

    @property
    def told(self) -> bool:
        return self.lost or any(self.errors.values()) or self.refused is not None


# What may come out of opening and reading whatever the bytes are.
EXPECTED = (pyqstore.StoreCorrupt, pyqstore.StoreFailed)


def read(path: Path, built: Built, recovery: str) -> Reading:
    """Open a store and read all that it gives."""
    reading = Reading(recovery)
    try:
        store = pyqstore.open(
            path,
            recovery=recovery,  # type: ignore[arg-type]
            memory_budget="4MiB",
            checkpoint_bytes=0,
            checkpoint_interval=0,
        )
    except EXPECTED as error:
        reading.refused = f"{type(error).__name__}: {error}"
        if isinstance(error, pyqstore.StoreCorrupt) and not error.path:
            reading.wrong.append(f"a refusal that names no file: {error}")
        return reading
    with store:
        reading.report = store.recovery_report.to_dict()
        reading.known = {key for key in built.truth.keys if store.transaction_known(key)}
        for queue in store.queues():
            if store.queue_status(queue)["stream"]:
                _read_stream(store, queue, built, reading)
                continue
            with store.channel() as channel:
                _read_queue(store, channel, queue, built, reading)
    return reading


def _read_stream(store: pyqstore.Store, queue: str, built: Built, reading: Reading) -> None:
    taken = reading.messages.setdefault(queue, [])

    def count(_: Exception) -> None:
        reading.errors[queue] = reading.errors.get(queue, 0) + 1

    start, end = 0, int(store.queue_status(queue)["next"])
    while start < end:
        try:
            for batch in store.browse(queue, start, damaged=count):
                for row in batch.select(["sequence", "body", "message_id"]).to_pylist():
                    start = row["sequence"] + 1
                    number = _number(row["body"], queue, built, reading)
                    if number is not None and row["message_id"] != str(number):
                        reading.wrong.append(f"{queue}: message {number} with the id of another")
                    elif number is not None:
                        taken.append((number, False))
            return
        except EXPECTED as error:  # no file, but something else in its place: go on behind it
            count(error)
            start += 1


def _read_queue(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, built: Built, reading: Reading
) -> None:
    taken = reading.messages.setdefault(queue, [])
    ready = store.recovery_report.queues[queue]
    most = 2 * ready + 10
    while most > 0:
        most -= 1
        try:
            message = channel.basic_get(queue)
        except EXPECTED:
            reading.errors[queue] = reading.errors.get(queue, 0) + 1
            left = int(store.queue_status(queue)["messages_ready"])
            if left >= ready:
                return  # not of one message: nothing behind it can be read
            ready = left
            continue
        if message is None:
            return
        ready -= 1
        _take(message, queue, taken, built, reading)
    reading.wrong.append(f"{queue}: reading does not come to an end")


def _take(
    message: pyqstore.Message,
    queue: str,
    taken: list[tuple[int, bool]],
    built: Built,
    reading: Reading,
) -> None:
    number = _number(message.body, queue, built, reading)
    if number is not None and b"%d" % number not in message.properties.encoded:
        reading.wrong.append(f"{queue}: message {number} with the properties of another")
    elif number is not None:
        taken.append((number, message.redelivered))


def _number(body: bytes, queue: str, built: Built, reading: Reading) -> int | None:
    """Of the message with this body; None: nobody published it."""
    number = int(body[:8]) if body[:8].isdigit() else -1
    if number in built.truth.sizes and body == built.truth.body(number):
        return number
    reading.wrong.append(f"{queue}: a body that nobody published: {body[:40]!r}")
    return None


def check_contents(reading: Reading, built: Built, *, forgiving: bool) -> list[str]:
    """What is wrong however much is told: foreign bytes, doubles, order.  ``forgiving``: a salvaged
    store has lost acknowledgements, and what comes back comes in its old place."""
    wrong = list(reading.wrong)
    truth = built.truth
    for queue, messages in reading.messages.items():
        numbers = [number for number, _ in messages]
        for number, count in Counter(numbers).items():
            if count > 1:
                wrong.append(f"{queue}: message {number} is there {count} times")
        if queue not in truth.queues:
            if not forgiving:
                wrong.append(f"{queue}: there was no such queue")
            continue
        wrong += [
            f"{queue}: message {number} was never published there"
            for number in numbers
            if (queue, number) not in truth.published
        ]
        if forgiving and queue == DEAD:
            continue  # what was not known to be dead is dead-lettered again, behind the others
        places = {number: place for place, number in enumerate(_order(built, queue))}
        order = [places[number] for number in numbers if number in places]
        if order != sorted(order):
            wrong.append(f"{queue}: out of order: {numbers}")
    return wrong


def _order(built: Built, queue: str) -> list[int]:
    """All that was ever in a queue, in the order in which it delivers them."""
    numbers = [number for name, number in built.truth.published if name == queue]
    if any(built.truth.priorities[number] for number in numbers):
        numbers.sort(key=lambda number: -built.truth.priorities[number])
    return numbers


def missing(reading: Reading, built: Built) -> dict[str, list[int]]:
    """Confirmed messages that did not come, by queue.  A queue whose declaration is lost has
    another name, and is known by what is in it."""
    gone: dict[str, list[int]] = {}
    elsewhere = Counter(
        number
        for queue, messages in reading.messages.items()
        if queue not in built.truth.queues
        for number, _ in messages
    )
    for queue, numbers in built.truth.queues.items():
        there = {number for number, _ in reading.messages.get(queue, [])}
        away = []
        for number in numbers:
            if number in there:
                continue
            if queue not in reading.messages and elsewhere[number]:
                elsewhere[number] -= 1
                continue
            away.append(number)
        if away:
            gone[queue] = away
    return gone


def back(reading: Reading, built: Built) -> dict[str, list[int]]:
    """Messages that came although their acknowledgement is durable."""
    found: dict[str, list[int]] = {}
    for queue, messages in reading.messages.items():
        again = [number for number, _ in messages if (queue, number) in built.truth.settled]
        if again:
            found[queue] = again
    return found
