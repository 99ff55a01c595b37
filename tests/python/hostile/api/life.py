"""The life of a store under calls by chance: what may come out of them, and what must be true
afterwards."""

import asyncio
import copy
import gc
import inspect
import math
import numbers
import os
import pickle
import random
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyqstore
from pyqstore import codec, fields

from ..watched import Outcome
from .values import KEPT, QUEUES, Arguments, EvilError

# What docs and docstrings promise may come out; asyncio's are for calls of pyqstore.aio.
EXPECTED = (
    pyqstore.Error, TypeError, ValueError, OverflowError, TimeoutError, BufferError, RuntimeError,
    OSError,  # of listen, which names an address, and of adopt, which names files
    EvilError, asyncio.CancelledError, StopAsyncIteration, StopIteration,
)  # fmt: skip
_PERSISTENT = pyqstore.Properties(delivery_mode=2)
_FUNCTIONS = (codec.crc32c, codec.check_properties, fields.encode_table, fields.decode_table)
_OPTIONS = (
    "memory_budget", "embed_below", "segment_entries", "journal_file_bytes", "message_file_bytes",
    "body_bytes_max", "checkpoint_bytes", "checkpoint_interval", "commit_delay_us", "sync",
    "recovery", "create", "progress", "nonsense",
)  # fmt: skip
_SMALL: dict[str, Any] = {"journal_file_bytes": "64KiB", "segment_entries": 16, "sync": "none"}
_BUDGETS = ("1MiB", "16MiB")
Call = Callable[[], Any]


def arguments_for(call: Callable[..., Any], given: Arguments) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for all parameters without a default and some of the others; sometimes too many."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in inspect.signature(call).parameters.values():
        required = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        waits = "timeout" in parameter.name  # without one it may wait for ever, as it says
        if not (required or waits) and given.chance.random() < 0.6:
            continue
        value = given.of(parameter.name)
        if waits and (value is None or _is_long(value)):
            value = 0.001
        if required and parameter.kind != parameter.KEYWORD_ONLY and not named:
            positional.append(value)
        else:
            named[parameter.name] = value
    if given.chance.random() < 0.01:
        named["nonsense"] = 1
    return positional, named


def work_arguments(given: Arguments) -> dict[str, Any]:
    """Those that do not tell how many threads or tasks work."""
    chance = given.chance
    named = {name: given.of(name) for name in ("retries", "backoff") if chance.random() < 0.3}
    if chance.random() < 0.3:
        named["dead"] = given.of("queue")
    return named


class Life:
    """A store, what was made of it, and the messages that must be in it at the end."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance
        self.outcome = Outcome()
        self.given = Arguments(chance)
        self.given.act = self.within
        self.given.things = self.things = []
        self.things_most = 25
        self.depth = 0
        self.calls = 0
        self.published = 0
        self.confirmed = 0
        self.strict = True
        """Whether an exception must be one of the expected: not where threads share a channel."""

    def wrong(self, text: str) -> None:
        self.outcome.violations.append(text)

    def open(self) -> None:
        budget = self.chance.choice(_BUDGETS)
        self.store = pyqstore.open(self.root / "store", memory_budget=budget, **_SMALL)
        self.other = pyqstore.open(self.root / "other", **_SMALL)
        self.keeper = self.store.channel()
        self.keeper.queue_declare(KEPT, durable=True)
        self.keeper.confirm_select()
        channel = self.store.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=self.chance.random() < 0.7)
        self.things += [self.store, channel, self.store.channel(), self.other, self.other.channel()]

    def keep(self) -> None:
        """The model publishes a message, and it is confirmed or the store says why not."""
        number = self.published
        with suppress(pyqstore.StoreClosed, pyqstore.ChannelClosed):
            self.keeper.basic_publish("", KEPT, b"%d" % number, _PERSISTENT)
            self.published += 1
            if self.keeper.wait_for_confirms(60):
                self.confirmed = self.published

    def add(self, thing: Any) -> None:
        if thing is None or isinstance(thing, bool | int | str | bytes | float | dict | tuple):
            return
        self.things.append(thing)
        if len(self.things) > self.things_most:
            self.things.pop(self.chance.randrange(1, len(self.things)))

    def within(self) -> None:
        """From a callback, or from converting an argument: another call."""
        if self.depth < 3:
            self.depth += 1
            try:
                self.step()
            finally:
                self.depth -= 1

    def step(self) -> None:
        """One call of anything on anything; what it gives is used, too."""
        call, what = self.choose()
        self.calls += 1
        try:
            result = call()
        except EXPECTED:
            self.outcome.figures["refused"] = self.outcome.figures.get("refused", 0) + 1
            return
        except RecursionError:
            return
        except Exception as error:
            if self.strict:
                self.wrong(f"{what}: {type(error).__name__}: {error}")
            return
        self.add(result)

    def choose(self) -> tuple[Call, str]:
        roll = self.chance.random()
        if roll < 0.03:
            return self.construct()
        if roll < 0.05:
            return self.misuse()
        if roll < 0.08:
            function = self.chance.choice(_FUNCTIONS)
            return self.bound(function, function.__name__)
        if roll < 0.1:
            return (gc.collect, "gc") if self.chance.random() < 0.02 else (self.keep, "keep")
        thing = self.chance.choice(self.things)
        if isinstance(thing, types.GeneratorType):
            return (lambda: next(thing, None)), "next"
        names = [name for name in dir(type(thing)) if not name.startswith("_")]
        ours = type(thing).__module__.startswith("pyqstore")
        if not names or not ours:
            return (lambda: repr(thing)), "repr"
        name = self.chance.choice(names)
        if name == "close" and self.chance.random() < (0.97 if thing is self.store else 0.8):
            return (lambda: repr(thing)), "repr"
        if name == "start_consuming":
            return (lambda: self.consume_for_a_moment(thing)), name
        if name == "work":
            return (lambda: self.work_for_a_moment(thing)), name
        return self.method(thing, name)

    def method(self, thing: Any, name: str) -> tuple[Call, str]:
        what = f"{type(thing).__name__}.{name}"
        value = inspect.getattr_static(type(thing), name)
        if isinstance(value, property) or not callable(getattr(type(thing), name)):
            return (lambda: getattr(thing, name)), what
        return self.bound(getattr(thing, name), what)

    def bound(self, call: Callable[..., Any], what: str) -> tuple[Call, str]:
        positional, named = arguments_for(call, self.given)
        text = f"{what}({', '.join(_short(v) for v in positional)}, {_short(named)})"
        return (lambda: call(*positional, **named)), text

    def consume_for_a_moment(self, channel: Any) -> None:
        """start_consuming would go on until somebody stops it."""
        over = threading.Event()

        def stop() -> None:
            while not over.wait(0.002):
                suppressed(channel.stop_consuming)

        stopper = threading.Thread(target=stop)
        stopper.start()
        try:
            channel.start_consuming()
        finally:
            over.set()
            stopper.join()

    def work_for_a_moment(self, queue: Any) -> None:
        """work would go on until somebody stops it."""
        stop = threading.Event()
        stopper = threading.Timer(0.005, stop.set)
        stopper.start()
        try:
            queue.work(self.given.callback, stop=stop, **work_arguments(self.given))
        finally:
            stopper.join()

    def construct(self) -> tuple[Call, str]:
        """Classes and functions of the module itself."""
        roll = self.chance.randrange(4)
        if roll == 0:
            names = [*inspect.signature(pyqstore.Properties).parameters, "nonsense"]
            named = {name: self.given.of(name) for name in self.chance.sample(names, 3)}
            return (lambda: pyqstore.Properties(**named)), f"Properties({_short(named)})"
        if roll == 1:
            options = {name: self.given.of(name) for name in self.chance.sample(_OPTIONS, 2)}
            if isinstance(options.get("journal_file_bytes"), int):
                options["journal_file_bytes"] = 1 << 16
            path = self.chance.choice((self.root / "store", self.root / "no" / "parent"))
            return (lambda: pyqstore.open(path, **options)), f"open({_short(options)})"
        if roll == 2:
            path = self.chance.choice((self.root / "store", self.given.anything()))
            if isinstance(path, str | bytes):
                path = 5  # whatever lies there is none of ours
            return (lambda: pyqstore.verify(path)), f"verify({_short(path)})"
        kinds = (pyqstore.Channel, pyqstore.Connection, pyqstore.Message, pyqstore.Receipt)
        kind = self.chance.choice(kinds)
        positional = [self.given.anything() for _ in range(self.chance.randrange(4))]
        return (lambda: kind(*positional)), f"{kind.__name__}({_short(positional)})"

    def misuse(self) -> tuple[Call, str]:
        """What any object can be asked for."""
        thing = self.chance.choice(self.things)
        function = self.chance.choice(
            (pickle.dumps, copy.copy, copy.deepcopy, hash, repr, str, iter)
        )
        if function not in (hash, repr, str) and not _is_ours(thing):
            function = repr  # iter() of a memoryview without dimensions breaks Python itself
        if function is iter and isinstance(thing, pyqstore.Queue):
            function = repr  # its messages never end
        return (lambda: function(thing)), f"{function.__name__}({type(thing).__name__})"

    # Whole lives.

    def calls_of_one_thread(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def calls_of_threads(self, count: int) -> None:
        """Several threads on the same objects: errors of any kind, but nothing that breaks."""
        self.strict = False
        lives = [self.side_life(number) for number in range(3)]
        threads = [
            threading.Thread(target=life.calls_of_one_thread, args=(count // 3,)) for life in lives
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.strict = True
        for life in lives:
            self.calls += life.calls
            life.forget()

    def side_life(self, number: int) -> "Life":
        life = Life(self.root, random.Random(f"{self.chance.random()} {number}"))
        life.strict = False
        life.store, life.keeper = self.store, self.keeper
        life.keep = lambda: None  # type: ignore[method-assign]
        life.things += self.things
        return life

    def calls_in_a_fork(self) -> None:
        """The child's calls are refused; the parent goes on."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self.keep = lambda: None  # type: ignore[method-assign]
                self.given.hostile = 0.05
                self.outcome.violations.clear()
                self.calls_of_one_thread(40)
                self.forget()
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            self.wrong(f"a forked child ended with {os.waitstatus_to_exitcode(status)}")

    def forget(self) -> None:
        """Close all that was made."""
        for thing in self.things:
            if _is_ours(thing) and hasattr(thing, "close"):
                suppressed(thing.close)
        self.things.clear()

    def end(self) -> None:
        """Everything is closed; then the store must be whole, with what was confirmed."""
        self.check_numbers()
        self.forget()
        self.keeper.close()
        self.other.close()
        self.store.close()
        del self.keeper, self.other, self.store
        self.end_apart()

    def end_apart(self) -> None:
        """The store is closed: it is whole, and has what was confirmed."""
        found = pyqstore.verify(self.root / "store")
        if found.damages:
            self.wrong(f"verify: {found.damage[0].text}")
        with pyqstore.open(self.root / "store") as store, store.channel() as channel:
            numbers = []
            while (message := channel.basic_get(KEPT)) is not None:
                numbers.append(int(message.body))
            if numbers[: self.confirmed] != list(range(self.confirmed)):
                self.wrong(f"of {self.confirmed} confirmed messages there are {numbers}")
            if numbers != list(range(len(numbers))) or len(numbers) > self.published:
                self.wrong(f"not what was published: {numbers}")
        self.outcome.figures["calls"] = self.calls
        self.outcome.figures["confirmed"] = self.confirmed

    def check_numbers(self) -> None:
        """Counts are never negative, and agree."""
        if self.store.closed:
            return
        below = {
            name: value
            for name, value in self.store.stats().items()
            if name != "clock_ahead_s"  # a wall clock may be behind, too
            and isinstance(value, int | float)
            and not isinstance(value, bool)
            and not 0 <= value < 2**62
        }
        for queue in self.store.queues():
            with suppress(pyqstore.ChannelError, ValueError):
                status = self.store.queue_status(queue)
                names = ("messages_ready", "messages_unacked", "consumers", "ram_bytes")
                below |= {name: status[name] for name in names if not 0 <= status[name] < 2**62}
        if below:
            self.wrong(f"numbers below zero: {below}")


def suppressed(call: Callable[[], object]) -> None:
    with suppress(Exception):
        call()


def _is_long(value: object) -> bool:
    if isinstance(value, timedelta):
        return _is_long(value.total_seconds())
    if not isinstance(value, int | float | numbers.Number) or isinstance(value, complex):
        return False
    return not float(value) <= 0.01 and not math.isnan(float(value))


def _is_ours(thing: object) -> bool:
    return type(thing).__module__.startswith("pyqstore")


def _short(value: object) -> str:
    try:
        return repr(value)[:60]
    except Exception:
        return f"<{type(value).__name__}>"
