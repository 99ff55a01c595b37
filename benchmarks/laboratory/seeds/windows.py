"""What the documents say of windows: prefetch over a slow network, push and pull, fewer acks."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyqstore
from pyqstore import session
from pyqstore.bench.loads import PERSISTENT, QUEUE, WAIT_SECONDS, publish_rows
from pyqstore.bench.plots import Plot, shown_number
from pyqstore.bench.runs import Case, Options, Sample
from pyqstore.session import PushBuffer

from .broker import Asked, Broker
from .claims import RABBIT, Claim, Found, Group, opened_store, prepared
from .network import Ack, Arrived, Far, Request, far, wait_for

BODY_BYTES = 1000
_DELAYS_MS = (0, 1, 10, 50)
_PREFETCHES = (1, 10, 30, 100, 300, 1000, 10_000)
_WORK_US = 200
_RUN_MS = 400
_RUN_MS_LEAST = 20
_SWEET = 300  # the end of the document's range


# Prefetch.

PREFETCH = "Prefetch over a network that takes its time"


def name_of(delay_ms: int) -> str:
    """Of a case."""
    return f"{delay_ms} ms each way"


def prefetches(options: Options, group: Group) -> list[Case]:
    """A backlog, a slow consumer, a window, and a delay each way."""
    run_ms = options.count(_RUN_MS, _RUN_MS_LEAST)
    for delay_ms in options.sweep(*_DELAYS_MS):
        for prefetch in options.sweep(*_PREFETCHES):
            messages = _messages(run_ms * 1000, delay_ms * 1000, prefetch)
            run = partial(_windowed, messages, prefetch, delay_ms, run_ms)
            group.ours(name_of(delay_ms), run, prefetch=prefetch)
            asked: Asked = {
                "count": messages,
                "body": BODY_BYTES,
                "prefetch": prefetch,
                "delay_us": delay_ms * 1000,
                "work_us": _WORK_US,
                "run_ms": run_ms,
            }
            group.theirs(name_of(delay_ms), partial(_ask_window, asked), prefetch=prefetch)
    return group.cases


def _messages(run_us: int, delay_us: int, prefetch: int) -> int:
    """As many as may leave the queue."""
    most = math.ceil(run_us / _WORK_US) + prefetch
    if delay_us:
        most = min(most, prefetch * (run_us // (2 * delay_us) + 3))
    return most


def _windowed(messages: int, prefetch: int, delay_ms: int, run_ms: int, directory: Path) -> Sample:
    with opened_store(directory) as store, prepared(store) as channel:
        publish_rows(channel, messages, BODY_BYTES)
        with far(store, delay_ms / 1000, prefetch) as network:
            return _work(network, run_ms / 1000, _WORK_US / 1e6)


def _work(network: Far, run_seconds: float, work_seconds: float) -> Sample:
    """From the first message on, for so long: take one, work, acknowledge it."""
    buffer, came = PushBuffer(), deque[float]()
    held_most, waited = 0, []

    def push(arrived: Sequence[Arrived[pyqstore.Message | None]]) -> int:
        for at, message in arrived:
            assert message is not None
            buffer.append(message)
            came.append(at)
        return max(held_most, buffer.body_bytes)

    held_most = push(wait_for(partial(network.to_consumer.arrived, 1.0)))
    start = time.perf_counter()
    while (now := time.perf_counter()) < start + run_seconds:
        if buffer:
            waited.append((now - came.popleft()) * 1e6)
            message = buffer.popleft()
            time.sleep(work_seconds)
            network.to_engine.send(Ack(message.delivery_tag, False))
        left = start + run_seconds - now
        held_most = push(network.to_consumer.arrived(0 if buffer else left))
    seconds = time.perf_counter() - start
    figures = {"buffered_bytes": held_most}
    return Sample(seconds, len(waited), latencies_us=waited, figures=figures)


def _ask_window(asked: Asked, broker: Broker, _directory: Path) -> Sample:
    found = broker.ask("window", **asked)
    figures = {"buffered_bytes": found["buffered"][0]}
    messages = int(found["messages"][0])
    return Sample(found["seconds"][0], messages, latencies_us=found["latencies_us"],
                  figures=figures)  # fmt: skip


def _prefetch(found: Found, of: str) -> str:
    told = []
    for delay_ms in _DELAYS_MS:
        name = of + name_of(delay_ms)
        windows = [int(each) for each in found.values(name, "prefetch")]
        rates = {each: found.number(name, "messages_per_s", prefetch=each) or 0 for each in windows}
        if not rates:
            continue
        best = max(rates.values())
        enough = min(each for each in windows if rates[each] >= 0.9 * best)
        held = found.told(name, "buffered_bytes", prefetch=windows[-1])
        wait = found.told(name, "p50_us", prefetch=windows[-1])
        told.append(
            f"{name_of(delay_ms)}: {shown_number(rates[windows[0]])} messages/s with {windows[0]},"
            f" nine tenths of the most ({shown_number(best)}) from {enough:,} on; with"
            f" {windows[-1]:,} up to {held} wait in the buffer, each {wait}"
        )
    return f"{'; '.join(told)}."


# Push and pull.

LATENCY = "Push and pull"
PUSHED, PULLED = "pushed", "pulled"
_TIMES = 60


def pushes(options: Options, group: Group) -> list[Case]:
    """A message is published near the engine, and received behind the network."""
    times = options.count(_TIMES, 3)
    for name in (PUSHED, PULLED):
        for delay_ms in options.sweep(*_DELAYS_MS):
            group.ours(name, partial(_received, name == PULLED, times, delay_ms), delay_ms=delay_ms)
            asked: Asked = {"times": times, "delay_us": delay_ms * 1000, "how": name[:4]}
            ask = partial(_ask_latency, times, asked)
            group.theirs(name, ask, delay_ms=delay_ms)
    return group.cases


def _received(is_pulled: bool, times: int, delay_ms: int, directory: Path) -> Sample:
    body, waited = b"x" * 100, []
    with (
        opened_store(directory) as store,
        prepared(store) as channel,
        far(store, delay_ms / 1000, is_pulled=is_pulled) as network,
    ):
        start = time.perf_counter()
        for _ in range(times):
            begin = time.perf_counter()
            channel.basic_publish("", QUEUE, body, PERSISTENT)
            message = _pull(network) if is_pulled else _next(network)
            assert message is not None
            waited.append((time.perf_counter() - begin) * 1e6)
            network.to_engine.send(Ack(message.delivery_tag, False))
        seconds = time.perf_counter() - start
    return Sample(seconds, times, latencies_us=waited)


def _next(network: Far) -> pyqstore.Message | None:
    return wait_for(partial(network.to_consumer.arrived, 1.0))[0].what


def _pull(network: Far) -> pyqstore.Message:
    while True:
        network.to_engine.send(Request())
        message = _next(network)
        if message is not None:
            return message


def _ask_latency(times: int, asked: Asked, broker: Broker, _directory: Path) -> Sample:
    return broker.sample("latency", times, **asked)


def _push(found: Found, of: str) -> str:
    told = []
    for delay in found.values(of + PUSHED, "delay_ms"):
        pushed = found.told(of + PUSHED, "p50_us", delay_ms=delay)
        pulled = found.told(of + PULLED, "p50_us", delay_ms=delay)
        told.append(f"{pushed} pushed and {pulled} pulled with {delay} ms each way")
    return f"from publishing to receiving, p50: {'; '.join(told)}."


# Fewer acknowledgements.

OPTIMIZED = "optimizeAcknowledge: acknowledged at 65 % of the window"
OFF, ON = "off", "on"
SESSION = "a session in the process, "
_WINDOW = 100
_SHARE = 0.65
_OPTIMIZED = 6000


def optimized(options: Options, group: Group) -> list[Case]:
    """A consumer that does nothing but acknowledge, one by one or so many at once."""
    count = options.count(_OPTIMIZED, 2 * _WINDOW)
    for name, every in ((OFF, 1), (ON, math.ceil(_SHARE * _WINDOW))):
        for delay_ms in options.sweep(*_DELAYS_MS[:3]):
            messages = count if delay_ms < _DELAYS_MS[2] else count // 4
            run = partial(_acknowledged, messages, every, delay_ms)
            group.ours(name, run, delay_ms=delay_ms)
        run = partial(_in_session, count, name == ON)
        group.ours(f"{SESSION}{name}", run, delay_ms=0)
    return group.cases


def _acknowledged(count: int, every: int, delay_ms: int, directory: Path) -> Sample:
    with opened_store(directory) as store, prepared(store) as channel:
        publish_rows(channel, count, BODY_BYTES)
        with far(store, delay_ms / 1000, _WINDOW) as network:
            taken = acks = 0
            start = time.perf_counter()
            while taken < count:
                for _, message in wait_for(partial(network.to_consumer.arrived, 1.0)):
                    assert message is not None
                    taken += 1
                    if taken % every == 0 or taken == count:
                        network.to_engine.send(Ack(message.delivery_tag, True))
                        acks += 1
            seconds = time.perf_counter() - start
    return Sample(seconds, count, figures={"messages_per_ack": count / acks})


def _in_session(count: int, is_on: bool, directory: Path) -> Sample:
    """The option itself, of a session's consumer."""
    with opened_store(directory) as store, prepared(store) as channel:
        publish_rows(channel, count, BODY_BYTES)
        with session.connect(store) as connection:
            own = connection.session("auto")
            consumer = own.consumer(own.queue(QUEUE), prefetch=_WINDOW, optimize_acknowledge=is_on)
            start = time.perf_counter()
            for _ in range(count):
                if consumer.receive(WAIT_SECONDS) is None:
                    raise RuntimeError("a message did not come")
            seconds = time.perf_counter() - start
    return Sample(seconds, count)


def _optimized_here(found: Found) -> str:
    told = []
    for delay in found.values(ON, "delay_ms"):
        pair = found.of(ON, delay_ms=delay), found.of(OFF, delay_ms=delay)
        told.append(
            f"{found.ratio('messages_per_s', *pair)} the rate with {delay} ms each way"
            f" ({found.told(ON, 'messages_per_s', delay_ms=delay)} with it)"
        )
    pair = found.of(SESSION + ON), found.of(SESSION + OFF)
    return (
        f"with a window of {_WINDOW}, {'; '.join(told)}; a session's consumer in the process itself"
        f" takes {found.ratio('messages_per_s', *pair)} as many with the option as without."
    )


CLAIMS = [
    Claim(
        "prefetch",
        PREFETCH,
        "001: a higher prefetch delivers faster and takes more of the consumer's memory; values"
        " from 100 to 300 usually give the best rate without that risk; 1 is the most cautious and"
        " slow, above all where the network is.",
        prefetches,
        Plot(PREFETCH, "prefetch", "messages_per_s", group=PREFETCH, log_x=True, log_y=True,
             x_label="prefetch, messages"),
        partial(_prefetch, of=""),
        partial(_prefetch, of=f"{RABBIT}: "),
        "a window of p gives at most p messages for each way there and back: what is enough is the"
        " consumer's rate times that time. A round trip of 20 ms to a consumer that does some"
        " thousand a second asks for about a hundred, one of 100 ms for some hundreds: that is the"
        " document's range. Beyond it nothing is gained, and what is in the window waits, and is"
        " held, in the consumer's buffer.",
        (
            Plot("What waits in the consumer's buffer", "prefetch", "buffered_bytes",
                 group=PREFETCH, log_x=True, x_label="prefetch, messages"),
            Plot("How long it waits there, p50", "prefetch", "p50_us", group=PREFETCH,
                 log_x=True, log_y=True, x_label="prefetch, messages"),
        ),
    ),
    Claim(
        "push",
        LATENCY,
        "004: pulling each message adds significant latency; pushing keeps a buffer ready.",
        pushes,
        Plot(LATENCY, "delay_ms", "p50_us", group=LATENCY, even=True, log_y=True,
             x_label="delay each way, ms"),
        partial(_push, of=""),
        partial(_push, of=f"{RABBIT}: "),
        "a pushed message crosses the network once, a pulled one is behind a request that crosses"
        " it first. In the process itself a pull is a call, and there is nothing to gain.",
    ),
    Claim(
        "optimize",
        OPTIMIZED,
        "004: with optimizeAcknowledge a consumer acknowledges when 65 % of its prefetch is"
        " consumed, all at once, which is for quick consumers.",
        optimized,
        Plot(OPTIMIZED, "delay_ms", "messages_per_s", group=OPTIMIZED, even=True,
             x_label="delay each way, ms"),
        _optimized_here,
        "not shown: the option is ActiveMQ's client's. Its multiple acknowledgements are measured"
        " above.",
        "fewer acknowledgements are less to send and to settle, which counts as long as that is"
        " what takes the time. With a slow network they hold the window back: its other 35 % are"
        " all that is under way meanwhile.",
    ),
]  # fmt: skip
