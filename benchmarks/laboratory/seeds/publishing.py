"""What the documents say of publishing: transactions, the wait for a sync, persistence, fan-out."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from pathlib import Path

import pyqstore
from pyqstore.bench.loads import PERSISTENT, QUEUE, confirm, once_confirmed
from pyqstore.bench.plots import Plot
from pyqstore.bench.runs import Case, Options, Result, Sample, repeated

from .broker import Asked, Broker
from .claims import NOT_MEASURED, RABBIT, Claim, Found, Group, opened_store, prepared

BODY_BYTES = 100
_TRANSIENT = pyqstore.Properties(delivery_mode=1)
_OUTSTANDING = 1000
_MANY = 20_000
_WAITS = 300
_COMMITTED = 100  # messages of a larger transaction
_GROUPS = 60

TRANSACTIONS = "Transactions and confirms"
CONFIRMS = f"confirms, {_OUTSTANDING:,} outstanding"
EACH_CONFIRMED = "a confirm awaited for each message"
EACH_COMMITTED = "a transaction for each message"
MANY_COMMITTED = f"transactions of {_COMMITTED}"


# Transactions against confirms.


def transactions(options: Options, group: Group) -> list[Case]:
    """One message, and many, made sure of either way."""
    many = options.count(_MANY, _OUTSTANDING)
    waits = options.count(_WAITS, 5)
    groups = options.count(_GROUPS, 2)
    each_way: list[tuple[str, str, int, int]] = [
        (CONFIRMS, "confirms", _OUTSTANDING, many // _OUTSTANDING),
        (EACH_CONFIRMED, "confirms", 1, waits),
        (EACH_COMMITTED, "transactions", 1, waits),
        (MANY_COMMITTED, "transactions", _COMMITTED, groups),
    ]
    for name, way, size, count in each_way:
        floor = None if name == CONFIRMS else CONFIRMS
        run = _committed if way == "transactions" else _confirmed
        group.ours(name, partial(run, size, count), floor)
        asked: Asked = {"way": way, "group": size, "count": size * count}
        group.theirs(name, partial(_ask_publish, asked), floor)
    return group.cases


def _confirmed(size: int, groups: int, directory: Path) -> Sample:
    body = b"x" * BODY_BYTES
    with opened_store(directory) as store, prepared(store, size * groups, BODY_BYTES) as channel:
        once = partial(once_confirmed, channel, size, body)
        return _without_latencies(repeated(groups, once, size, 0))


def _committed(size: int, groups: int, directory: Path) -> Sample:
    body = b"x" * BODY_BYTES

    def once() -> None:
        for _ in range(size):
            channel.basic_publish("", QUEUE, body, PERSISTENT)
        channel.tx_commit()

    with opened_store(directory) as store:
        prepared(store, size * groups, BODY_BYTES).close()
        with store.channel() as channel:
            channel.tx_select()
            return _without_latencies(repeated(groups, once, size, 0))


def _ask_publish(asked: Asked, broker: Broker, _directory: Path) -> Sample:
    return _without_latencies(broker.sample("publish", int(asked["count"]), **asked))


def _without_latencies(sample: Sample) -> Sample:
    """Held against each other by rates alone."""
    return Sample(sample.seconds, sample.messages, figures=sample.figures)


def _transactions_here(found: Found) -> str:
    return _slower(found, "")


def _transactions_beside(found: Found) -> str:
    return _slower(found, f"{RABBIT}: ")


def _slower(found: Found, of: str) -> str:
    rates = found.of(of + CONFIRMS), found.of(of + EACH_COMMITTED), found.of(of + EACH_CONFIRMED)
    return (
        f"confirms with {_OUTSTANDING:,} outstanding make"
        f" {found.told(of + CONFIRMS, 'messages_per_s')},"
        f" {found.ratio('messages_per_s', rates[0], rates[1])} a transaction for each message"
        f" ({found.told(of + EACH_COMMITTED, 'messages_per_s')}); a confirm awaited for each is"
        f" {found.ratio('messages_per_s', rates[2], rates[1])} as fast as a transaction, and"
        f" transactions of {_COMMITTED} make {found.told(of + MANY_COMMITTED, 'messages_per_s')}."
    )


# The wait for a sync.

LATENCY = "Sync interval and latency of confirms"
CONSTANT = "publisher at a constant rate"
_RATE = 2000  # messages a second
_LOADED_SECONDS = 0.5
_DELAYS_US = (0, 1000, 10_000, 50_000, 200_000)


def latencies(options: Options, group: Group) -> list[Case]:
    """A constant load, and commits that wait for more of it."""
    count = max(20, round(_RATE * _LOADED_SECONDS * options.scale))
    for delay_us in options.sweep(*_DELAYS_US):
        group.ours(CONSTANT, partial(_constant_load, count, delay_us), delay_us=delay_us)
    asked: Asked = {"count": count, "rate": _RATE, "group": count}
    group.theirs(CONSTANT, lambda broker, _: broker.sample("publish", count, **asked))
    return group.cases


def _constant_load(count: int, delay_us: int, directory: Path) -> Sample:
    """Each message when it is due, and its confirm when that comes."""
    body = b"x" * BODY_BYTES
    sent: deque[tuple[int, int]] = deque()
    waited: list[float] = []

    def acked(number: int, multiple: bool) -> None:
        del multiple  # confirms of one queue come in order
        now = time.perf_counter_ns()
        while sent and sent[0][0] <= number:
            waited.append((now - sent.popleft()[1]) / 1000)

    with opened_store(directory, commit_delay_us=delay_us) as store:
        channel = prepared(store, count, BODY_BYTES)
        channel.add_confirm_listener(acked, None)
        syncs = store.stats()["fdatasyncs"]
        start = time.perf_counter()
        for number in range(1, count + 1):
            due = start + number / _RATE
            while (left := due - time.perf_counter()) > 0:
                channel.process_events(left)
            sent.append((channel.next_publish_number, time.perf_counter_ns()))
            channel.basic_publish("", QUEUE, body, PERSISTENT)
        confirm(channel)
        seconds = time.perf_counter() - start
        syncs = store.stats()["fdatasyncs"] - syncs
    figures = {"messages_per_sync": count / syncs}
    return Sample(seconds, count, latencies_us=waited, figures=figures)


def _latency_here(found: Found) -> str:
    delays = [int(each) for each in found.values(CONSTANT, "delay_us")]
    told = [
        f"{found.told(CONSTANT, 'p50_us', delay_us=delay)} (p99"
        f" {found.told(CONSTANT, 'p99_us', delay_us=delay)}) with {delay / 1000:g} ms"
        for delay in delays
    ]
    return (
        f"at {_RATE:,} messages a second a confirm takes, by `commit_delay_us`, p50"
        f" {'; '.join(told)}."
    )


def _latency_beside(found: Found) -> str:
    name = f"{RABBIT}: {CONSTANT}"
    return (
        f"its confirms at the same rate take p50 {found.told(name, 'p50_us')}, p99"
        f" {found.told(name, 'p99_us')}; its interval is fixed."
    )


# Persistent and transient.

PERSISTENCE = "Persistent and transient messages"
IS_PERSISTENT, IS_TRANSIENT = "persistent", "transient"


def persistence(options: Options, group: Group) -> list[Case]:
    """The same messages, confirmed, with either delivery mode."""
    count = options.count(_MANY, 20)
    for name, properties in ((IS_TRANSIENT, _TRANSIENT), (IS_PERSISTENT, PERSISTENT)):
        floor = IS_TRANSIENT if name == IS_PERSISTENT else None
        group.ours(name, partial(_published, properties, count), floor)
        asked: Asked = {"count": count, "persistent": int(name == IS_PERSISTENT)}
        group.theirs(name, partial(_ask_publish, asked), floor)
    return group.cases


def _published(properties: pyqstore.Properties, count: int, directory: Path) -> Sample:
    body = b"x" * BODY_BYTES
    with opened_store(directory) as store, prepared(store, count, BODY_BYTES) as channel:
        start = time.perf_counter()
        for number in range(1, count + 1):
            channel.basic_publish("", QUEUE, body, properties)
            if number % _OUTSTANDING == 0 or number == count:
                confirm(channel)
        return Sample(time.perf_counter() - start, count)


def _persistence(found: Found, of: str) -> str:
    ratio = found.ratio("messages_per_s", found.of(of + IS_PERSISTENT), found.of(of + IS_TRANSIENT))
    return (
        f"persistent messages make {found.told(of + IS_PERSISTENT, 'messages_per_s')}, transient"
        f" ones {found.told(of + IS_TRANSIENT, 'messages_per_s')}: {ratio} as many."
    )


# Fan-out.

FANOUT = "Fan-out to several queues"
TO_QUEUES = "one message to all of them"
_QUEUES = (1, 3, 10, 30)
_FANNED_BODY_BYTES = 8192
_FANNED = 600


def fan_out(options: Options, group: Group) -> list[Case]:
    """A body that is large enough to be stored once."""
    count = options.count(_FANNED, 10)
    for queues in options.sweep(*_QUEUES):
        group.ours(TO_QUEUES, partial(_fanned, count, queues), queues=queues)
        asked: Asked = {"count": count, "queues": queues, "body": _FANNED_BODY_BYTES}
        group.theirs(TO_QUEUES, partial(_ask_publish, asked), queues=queues)
    return group.cases


def _fanned(count: int, queues: int, directory: Path) -> Sample:
    body = b"x" * _FANNED_BODY_BYTES
    with opened_store(directory) as store:
        channel = prepared(store, count, _FANNED_BODY_BYTES)
        channel.exchange_declare("all", "fanout", durable=True)
        for number in range(queues):
            channel.queue_declare(f"q{number}", durable=True)
            channel.queue_bind(f"q{number}", "all", "")
        before = _written(store)
        start = time.perf_counter()
        for number in range(1, count + 1):
            channel.basic_publish("all", "", body, PERSISTENT)
            if number % _OUTSTANDING == 0 or number == count:
                confirm(channel)
        seconds = time.perf_counter() - start
        written = _written(store) - before
    figures = {"written_over_bodies": written / (count * _FANNED_BODY_BYTES)}
    return Sample(seconds, count, figures=figures)


def _written(store: pyqstore.Store) -> int:
    numbers = store.stats()
    return int(numbers["bytes_journalled"] + numbers["bytes_stored"])


def _fan_ends(found: Found, of: str) -> tuple[int, Result | None, Result | None]:
    queues = [int(each) for each in found.values(of + TO_QUEUES, "queues")]
    if not queues:
        return 0, None, None
    most = found.of(of + TO_QUEUES, queues=queues[-1])
    return queues[-1], most, found.of(of + TO_QUEUES, queues=queues[0])


def _fan_here(found: Found) -> str:
    most, many, one = _fan_ends(found, "")
    ratio = found.ratio("messages_per_s", many, one)
    written = found.number(TO_QUEUES, "written_over_bodies", queues=most)
    told = NOT_MEASURED if written is None else f"{written:.2f}"
    return (
        f"to {most} queues {ratio} the rate of one queue, with {told} times the bodies' bytes"
        " written: the body is there once."
    )


def _fan_beside(found: Found) -> str:
    most, many, one = _fan_ends(found, f"{RABBIT}: ")
    return f"to {most} queues {found.ratio('messages_per_s', many, one)} the rate of one queue."


CLAIMS = [
    Claim(
        "transactions",
        TRANSACTIONS,
        "000: transactions decrease throughput by a factor of 250 (its translation: by 250 %);"
        " 003: the sender blocks after each message until the broker has answered.",
        transactions,
        Plot(TRANSACTIONS, "case", "messages_per_s", group=TRANSACTIONS, log_y=True),
        _transactions_here,
        _transactions_beside,
        "both wait for the disk; what differs is how many messages share a wait. A transaction with"
        " as many messages as are outstanding would do as well: the factor is the messages for each"
        " wait, and grows with the time that a sync takes. Here a commit is one sync, as a confirm"
        " is.",
    ),
    Claim(
        "latency",
        LATENCY,
        "000: the store persists in batches after an interval (a few hundred milliseconds), or when"
        " a queue is idle; under a constant load the latency of a confirm can reach that.",
        latencies,
        Plot(LATENCY, "delay_us", "p50_us", group=LATENCY, even=True, log_y=True,
             x_label="commit_delay_us"),
        _latency_here,
        _latency_beside,
        "a commit here begins when the one before has ended, and takes along what came meanwhile;"
        " no timer delays it unless `commit_delay_us` asks for one, and then the delay is the"
        " latency.",
    ),
    Claim(
        "persistence",
        PERSISTENCE,
        "003: persistence costs throughput, as messages are written to memory and to the disk; less"
        " important messages may go without.",
        persistence,
        Plot(PERSISTENCE, "case", "messages_per_s", group=PERSISTENCE, log_y=True),
        partial(_persistence, of=""),
        partial(_persistence, of=f"{RABBIT}: "),
        f"with {_OUTSTANDING:,} messages for each wait a sync is shared by all of them; what is"
        " left of the difference is encoding, the checksum, writing, and the wait itself.",
    ),
    Claim(
        "fanout",
        FANOUT,
        "003: one message store is shared by all queues of a node; 004: where there are several"
        " subscriptions the message is copied for each of them.",
        fan_out,
        Plot(FANOUT, "queues", "messages_per_s", group=FANOUT, log_x=True, x_label="queues"),
        _fan_here,
        _fan_beside,
        f"a body of {_FANNED_BODY_BYTES:,} B is above the threshold of embedding, so it goes to the"
        " message store once, as 003 says and 004 does not: each further queue has a row that"
        " points to it.",
    ),
]  # fmt: skip
