"""What the documents say of receiving: acknowledgements, requeueing, turns, consumers that die."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pyqstore
from pyqstore.bench import child
from pyqstore.bench.backlogs import Subject
from pyqstore.bench.child import Figures, end_by_kill
from pyqstore.bench.consume import by_callback
from pyqstore.bench.loads import QUEUE, WAIT_SECONDS, expect, publish_rows, together
from pyqstore.bench.plots import Plot
from pyqstore.bench.runs import Case, Options, Sample

from .broker import Asked, Broker
from .claims import RABBIT, Claim, Found, Group, opened_store, prepared

BODY_BYTES = 100
_MESSAGES = 20_000
_THEIR_PREFETCH = 1000
_MULTIPLE = 100


# Acknowledging.

ACKS = "Automatic and manual acknowledgements"
AUTO, SINGLE, MULTIPLE = "automatic", "manual, each", f"manual, {_MULTIPLE} at once"


def acks(options: Options, group: Group) -> list[Case]:
    """A consumer with a callback, and a backlog that it works off."""
    count = options.count(_MESSAGES, _MULTIPLE)
    for name, every in ((AUTO, 0), (SINGLE, 1), (MULTIPLE, _MULTIPLE)):
        floor = None if name == AUTO else AUTO
        group.ours(name, partial(_consumed, count, every), floor)
        asked: Asked = {
            "count": count,
            "auto": int(every == 0),
            "ack_every": every,
            "multiple": int(every > 1),
            "prefetch": _THEIR_PREFETCH,
        }
        group.theirs(name, partial(_ask, "consume", count, asked), floor)
    return group.cases


def _consumed(count: int, every: int, directory: Path) -> Sample:
    with opened_store(directory) as store, prepared(store, count, BODY_BYTES) as channel:
        publish_rows(channel, count, BODY_BYTES)
        start = time.perf_counter()
        by_callback(channel, count, prefetch=0, acks_every=every)
        store.sync()
        return Sample(time.perf_counter() - start, count)


def _ask(workload: str, messages: int, asked: Asked, broker: Broker, _directory: Path) -> Sample:
    found = broker.sample(workload, messages, **asked)
    return Sample(found.seconds, found.messages)


def _acks(found: Found, of: str) -> str:
    rates = found.of(of + AUTO), found.of(of + SINGLE), found.of(of + MULTIPLE)
    return (
        f"without acknowledgements {found.told(of + AUTO, 'messages_per_s')}; one each makes"
        f" {found.ratio('messages_per_s', rates[1], rates[0])} of that, one for {_MULTIPLE}"
        f" {found.ratio('messages_per_s', rates[2], rates[0])}."
    )


# Requeueing.

REQUEUE = "Requeueing to the head and to the tail"
HEAD = "the first of the backlog, requeued"
TAIL = "the last of the backlog, requeued"
AGAIN = "acknowledged and published again"
_BACKLOGS = (100, 3000, 30_000)
_TIMES = 1000
_WHERE = {HEAD: "head", TAIL: "tail", AGAIN: "again"}


def requeues(options: Options, group: Group) -> list[Case]:
    """One message, again and again, before or behind a backlog."""
    times = options.count(_TIMES, 5)
    for name, where in _WHERE.items():
        for backlog in options.sweep(*_BACKLOGS):
            messages = backlog if not options.quick else max(10, backlog // 10)
            group.ours(name, partial(_requeued, where, messages, times), backlog=messages)
            asked: Asked = {"count": messages, "times": times, "where": where}
            group.theirs(name, partial(_ask_requeue, times, asked), backlog=messages)
    return group.cases


def _requeued(where: str, backlog: int, times: int, directory: Path) -> Sample:
    body = b"x" * BODY_BYTES
    persistent = pyqstore.Properties(delivery_mode=2)
    with opened_store(directory) as store, prepared(store, backlog, BODY_BYTES) as channel:
        publish_rows(channel, backlog, BODY_BYTES)
        if where == "tail":  # all before it are held
            held = 0
            while held < backlog:
                batch = channel.get_batch(QUEUE, backlog - held)
                held += batch.num_rows
            channel.basic_reject(batch["delivery_tag"][-1].as_py(), requeue=True)
        start = time.perf_counter()
        for _ in range(times):
            message = channel.basic_get(QUEUE)
            assert message is not None
            if where == "again":
                message.ack()
                channel.basic_publish("", QUEUE, body, persistent)
            else:
                message.reject(requeue=True)
        seconds = time.perf_counter() - start
    return Sample(seconds, times, figures={"requeue_us": seconds * 1e6 / times})


def _ask_requeue(times: int, asked: Asked, broker: Broker, directory: Path) -> Sample:
    sample = _ask("requeue", times, asked, broker, directory)
    return Sample(sample.seconds, times, figures={"requeue_us": sample.seconds * 1e6 / times})


def _requeue_told(found: Found, of: str) -> str:
    told = []
    for name in (HEAD, TAIL, AGAIN):
        backlogs = found.values(of + name, "backlog")
        ends = [found.told(of + name, "requeue_us", backlog=each) for each in backlogs]
        if ends:
            told.append(
                f"{name}: {ends[0]} with a backlog of {backlogs[0]:,}, {ends[-1]} with"
                f" {backlogs[-1]:,}"
            )
    return f"getting a message and putting it back, {'; '.join(told)}."


# Whose turn.

FAIR = "Fair dispatch: a slow consumer and a quick one"
UNLIMITED, ONE = "prefetch without a limit", "prefetch 1"
_SHARED = 300
_SLOW_US, _FAST_US = 5000, 500


def fairness(options: Options, group: Group) -> list[Case]:
    """A backlog for two, one of which takes ten times as long for each message."""
    count = options.count(_SHARED, 6)
    for name, prefetch in ((UNLIMITED, 0), (ONE, 1)):
        group.ours(name, partial(_shared, count, prefetch))
        asked: Asked = {
            "count": count,
            "prefetch": prefetch,
            "slow_us": _SLOW_US,
            "fast_us": _FAST_US,
        }
        group.theirs(name, partial(_ask_fair, count, asked))
    return group.cases


def _shared(count: int, prefetch: int, directory: Path) -> Sample:
    with opened_store(directory) as store, prepared(store, count, BODY_BYTES) as channel:
        left = threading.Semaphore(0)
        ended = threading.Event()
        tasks = [
            partial(_work, store, prefetch, work_us / 1e6, left, ended)
            for work_us in (_SLOW_US, _FAST_US)
        ]
        seconds, given = together([*tasks, partial(_publish, channel, count, left, ended)])
        slow_share = max(each for each in given if each[0] == _SLOW_US / 1e6)[1] / count
    return Sample(seconds, count, figures={"slow_share": slow_share})


def _work(
    store: pyqstore.Store,
    prefetch: int,
    work_seconds: float,
    left: threading.Semaphore,
    ended: threading.Event,
) -> tuple[float, int]:
    """Take, work, acknowledge, until all are done; how many it was."""
    done = 0

    def handle(message: pyqstore.Message) -> None:
        nonlocal done
        time.sleep(work_seconds)
        message.ack()
        done += 1
        left.release()

    with store.channel() as channel:
        channel.basic_qos(prefetch)
        channel.basic_consume(QUEUE, handle)
        while not ended.is_set():
            channel.process_events(0.01)
    return work_seconds, done


def _publish(
    channel: pyqstore.Channel, count: int, left: threading.Semaphore, ended: threading.Event
) -> tuple[float, int]:
    try:
        publish_rows(channel, count, BODY_BYTES)
        for _ in range(count):
            if not left.acquire(timeout=WAIT_SECONDS):
                raise RuntimeError("not all messages were acknowledged")
    finally:
        ended.set()
    return 0.0, 0


def _ask_fair(count: int, asked: Asked, broker: Broker, _directory: Path) -> Sample:
    found = broker.ask("fair", **asked)
    figures = {"slow_share": found["slow_share"][0]}
    return Sample(found["seconds"][0], count, figures=figures)


def _fair(found: Found, of: str) -> str:
    told = []
    for name in (UNLIMITED, ONE):
        share = found.number(of + name, "slow_share")
        shown = "an unknown part" if share is None else f"{share:.0%}"
        told.append(
            f"with {name} {found.told(of + name, 'messages_per_s')}, {shown} of them by the slow"
            " consumer"
        )
    ratio = found.ratio("messages_per_s", found.of(of + ONE), found.of(of + UNLIMITED))
    return f"{'; '.join(told)}: {ratio} as many a second with 1."


# A consumer that dies.

DEATH = "A consumer that dies with messages unacknowledged"
CLOSED, KILLED = "its channel closes", "its process is killed"
_UNACKED = (100, 3000, 30_000)


def deaths(options: Options, group: Group) -> list[Case]:
    """Until all are ready again, in the same store or in the one that is opened next."""
    for unacked in options.sweep(*_UNACKED):
        count = unacked if not options.quick else max(10, unacked // 10)
        group.ours(CLOSED, partial(_closed, count), unacked=count)
        if not options.quick or unacked == _UNACKED[-1]:  # a process takes long to start
            group.ours(KILLED, partial(_killed, count), unacked=count)
        group.theirs("its connection ends", partial(_ask_abandon, count), unacked=count)
    return group.cases


def _closed(count: int, directory: Path) -> Sample:
    with opened_store(directory) as store, prepared(store, count, BODY_BYTES) as channel:
        publish_rows(channel, count, BODY_BYTES)
        with store.channel() as consumer:
            _hold(consumer, count)
            expect(store.queue_status(QUEUE)["messages_ready"], 0)
            start = time.perf_counter()
        expect(store.queue_status(QUEUE)["messages_ready"], count)
        seconds = time.perf_counter() - start
        redelivered = _redelivered(channel, count)
    return Sample(seconds, count, figures={"redelivered": redelivered})


def _killed(count: int, directory: Path) -> Sample:
    child.call(hold, path=directory / "store", messages=count)
    start = time.perf_counter()
    with opened_store(directory) as store:
        expect(store.queue_status(QUEUE)["messages_ready"], count)
        seconds = time.perf_counter() - start
        with store.channel() as channel:
            redelivered = _redelivered(channel, count)
    return Sample(seconds, count, figures={"redelivered": redelivered})


def hold(path: str, messages: int) -> Figures:
    """Publish and receive so many, acknowledge none; be killed."""
    subject = Subject(path)
    publish_rows(subject.channel, messages, BODY_BYTES)
    _hold(subject.channel, messages)
    end_by_kill({})


def _hold(channel: pyqstore.Channel, count: int) -> None:
    held = 0
    while held < count:
        got = channel.get_batch(QUEUE, count - held).num_rows
        expect(got > 0, True)
        held += got


def _redelivered(channel: pyqstore.Channel, count: int) -> int:
    found, marked = 0, 0
    while found < count:
        batch = channel.get_batch(QUEUE, count - found)
        expect(batch.num_rows > 0, True)
        found += batch.num_rows
        marked += sum(batch["redelivered"].to_pylist())
    return marked


def _ask_abandon(count: int, broker: Broker, _directory: Path) -> Sample:
    found = broker.ask("abandon", count=count, multiple=1)
    figures = {"redelivered": found["redelivered"][0]}
    return Sample(found["seconds"][0], count, figures=figures)


def _death(found: Found, *names: str) -> str:
    told = []
    for name in names:
        counts = found.values(name, "unacked")
        if counts:
            marked = found.number(name, "redelivered", unacked=counts[-1])
            seconds = found.number(name, "seconds", unacked=counts[-1]) or 0
            told.append(
                f"when {name.removeprefix(f'{RABBIT}: ')}, {counts[-1]:,} are ready after"
                f" {seconds * 1000:.3g} ms, {marked:,.0f} of them marked redelivered"
            )
    return f"{'; '.join(told)}."


CLAIMS = [
    Claim(
        "acks",
        ACKS,
        "001: automatic acknowledgement gives the best rate, at the price of safety; 003: multiple"
        " acknowledgements lower their cost.",
        acks,
        Plot(ACKS, "case", "messages_per_s", group=ACKS, log_y=True),
        partial(_acks, of=""),
        partial(_acks, of=f"{RABBIT}: "),
        "in the process an acknowledgement is a call of half a microsecond, a bit and a part of a"
        " journal record, which no call waits for; over a socket it is a frame. Automatic ones are"
        " journalled here, too, when the message was persistent.",
    ),
    Claim(
        "requeue",
        REQUEUE,
        "001: a requeued message goes to its original place if it can, else nearer to the head;"
        " loops of requeueing and redelivery are expensive.",
        requeues,
        Plot(REQUEUE, "backlog", "requeue_us", group=REQUEUE, log_x=True, log_y=True,
             x_label="messages of the backlog"),
        partial(_requeue_told, of=""),
        partial(_requeue_told, of=f"{RABBIT}: "),
        "here a message never leaves its place: requeueing clears a bit, wherever that is, and"
        " nothing is written. To publish it again is a record more, and its place is lost.",
    ),
    Claim(
        "fair",
        FAIR,
        "003: messages go to consumers in turn (the m-th to consumer m modulo n), whatever they"
        " have to do; prefetch 1 gives them to those that have finished.",
        fairness,
        Plot(FAIR, "case", "messages_per_s", group=FAIR),
        partial(_fair, of=""),
        partial(_fair, of=f"{RABBIT}: "),
        "a backlog is dealt out before the first message is done, half to each. With prefetch 1 a"
        " consumer is dealt the next when it has acknowledged.",
    ),
    Claim(
        "death",
        DEATH,
        "001: what was delivered and not acknowledged is requeued when its channel or connection"
        " closes, and marked redelivered.",
        deaths,
        Plot(DEATH, "unacked", "seconds", group=DEATH, log_x=True, log_y=True, unit="seconds",
             x_label="messages unacknowledged"),
        lambda found: _death(found, CLOSED, KILLED),
        lambda found: _death(found, f"{RABBIT}: its connection ends"),
        "unacknowledged messages are in their places already. When the process is killed the"
        " journal is replayed, which is most of that time; deliveries are not journalled, so after"
        " a crash all messages are marked redelivered, those that were never delivered, too.",
    ),
]  # fmt: skip
