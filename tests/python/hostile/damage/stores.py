"""Small real stores, each with the truth about it.

A process of its own makes each one, in two sessions, and ends as the kind says.  Everything is done
in groups: a group ends when it is durable, so that of a crashed store only the last group may be
taken for a torn tail, and that is one commit.
"""

import contextlib
import os
import pickle
import random
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import pyqstore

SMALL = {
    "journal_file_bytes": "64KiB",
    "message_file_bytes": "64KiB",
    "checkpoint_bytes": 0,
    "checkpoint_interval": None,
    "segment_entries": 64,
}

DEAD = "dead"
"""The queue for dead letters."""
STREAM, WORK = "log", "work"
"""A stream, and the work queue that gives out its messages."""


@dataclass
class Truth:
    """What must be in a store.  A group is the number of the commit that made a thing durable."""

    seed: str
    priorities: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    queues: dict[str, list[int]] = field(default_factory=dict)
    """The confirmed messages of each durable queue that nobody acknowledged, in order."""
    published: dict[tuple[str, int], int] = field(default_factory=dict)
    settled: dict[tuple[str, int], int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    group: int = 0
    crashed: bool = False
    quiet: bool = False
    """It crashed when all it had committed was marked as durable."""
    recovered_from: int = 0
    """The last group of the last session that was closed in order."""

    bodies: dict[int, bytes] = field(default_factory=dict)
    """Those that were asked for."""

    def body(self, number: int) -> bytes:
        """The body of a message: what it is follows from the number."""
        if number not in self.bodies:
            more = random.Random(f"{self.seed} {number}").randbytes(self.sizes[number])
            self.bodies[number] = b"%08d|" % number + more
        return self.bodies[number]


@dataclass
class Built:
    """A store on the disk: its files now, older copies of them, and the truth."""

    kind: str
    path: Path
    older: dict[str, Path]
    truth: Truth
    options: dict[str, object]


class Maker:
    """Publishes and settles, and notes what is durable then."""

    def __init__(self, root: Path, seed: str, options: dict[str, object], turns: int) -> None:
        self.path = root / "store"
        self.root = root
        self.truth = Truth(seed)
        self.options = {**SMALL, **options}
        self.random = random.Random(seed)
        self.number = 0
        self.turns = turns
        self.readers: dict[str, str] = {}
        """Of a stream its work queue, which has all that the stream gets."""

    def open(self) -> None:
        self.store = pyqstore.open(self.path, **self.options)  # type: ignore[arg-type]
        self.channel = self.store.channel()
        self.channel.confirm_select()

    def close(self) -> None:
        self.channel.close()
        self.store.close()
        self.truth.recovered_from = self.truth.group

    def keep(self, name: str) -> None:
        """A copy of all files as they are now."""
        shutil.copytree(self.path, self.root / name)

    def declare(self, queue: str, **arguments: object) -> None:
        named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.channel.queue_declare(queue, durable=True, arguments=named)  # type: ignore[arg-type]
        self.truth.queues.setdefault(queue, [])

    def new(self, size: int, priority: int = 0) -> int:
        self.number += 1
        self.truth.sizes[self.number] = size
        self.truth.priorities[self.number] = priority
        return self.number

    def group(self) -> None:
        """The end of a group: all before it is durable."""
        assert self.channel.wait_for_confirms(60)
        self.store.sync()
        self.truth.group += 1

    def properties(self, number: int, mode: int = 2) -> pyqstore.Properties:
        return pyqstore.Properties(
            delivery_mode=mode,
            message_id=str(number),
            priority=self.truth.priorities[number] or None,
        )

    def note(self, queue: str, number: int) -> None:
        self.truth.queues[queue].append(number)
        self.truth.published[queue, number] = self.truth.group
        if queue in self.readers:
            self.note(self.readers[queue], number)

    def publish(self, exchange: str, key: str, queues: list[str], number: int) -> None:
        self.channel.basic_publish(exchange, key, self.truth.body(number), self.properties(number))
        for queue in queues:
            self.note(queue, number)

    def publish_batch(self, queue: str, numbers: list[int]) -> None:
        """In one commit, as the engine has it at once."""
        self.channel.publish_batch(
            pa.table(
                {
                    "body": [self.truth.body(number) for number in numbers],
                    "message_id": [str(number) for number in numbers],
                }
            ),
            routing_key=queue,
        )
        for number in numbers:
            self.note(queue, number)

    def ack(self, queue: str, count: int) -> None:
        """Acknowledge the first messages of a queue."""
        with self.store.channel() as channel:
            for _ in range(count):
                message = channel.basic_get(queue)
                if message is None:
                    break
                message.ack()
                self.settle(queue, int(message.body[:8]))
            self.store.sync()

    def settle(self, queue: str, number: int) -> None:
        self.truth.queues[queue].remove(number)
        self.truth.settled[queue, number] = self.truth.group

    def size(self) -> int:
        """Mostly small; some bodies are for the message store."""
        return self.random.choice((3, 20, 60, 150, 400, 900))


Plan = Callable[[Maker, int], None]


def plan_plain(maker: Maker, session: int) -> None:
    """Two queues and a fanout to both, singles and batches, some acknowledged."""
    if session == 0:
        maker.channel.exchange_declare("all", "fanout", durable=True)
        for queue in ("a", "b"):
            maker.declare(queue)
            maker.channel.queue_bind(queue, "all")
    for turn in range(maker.turns):
        for _ in range(3):
            maker.publish("all", "", ["a", "b"], maker.new(maker.size()))
        maker.publish("", "a", ["a"], maker.new(maker.size()))
        maker.group()
        maker.publish_batch("b", [maker.new(maker.size()) for _ in range(4)])
        maker.group()
        if turn % 3 == 2:
            maker.ack("a", 4)
            maker.ack("b", 3)
            maker.group()


def plan_large(maker: Maker, session: int) -> None:
    """Bodies in message files, some of them with a file of their own."""
    if session == 0:
        maker.declare("a")
        maker.declare("b")
    for turn in range(maker.turns):
        for size in (6000, 700, 12000):
            maker.publish("", "a", ["a"], maker.new(size))
        if turn == 3:
            maker.publish("", "b", ["b"], maker.new(90_000))
        maker.group()
        if turn % 2:
            maker.ack("a", 2)
            maker.group()


def plan_priorities(maker: Maker, session: int) -> None:
    if session == 0:
        maker.declare("p", max_priority=3)
    for turn in range(maker.turns):
        for _ in range(6):
            number = maker.new(maker.size(), maker.random.randrange(4))
            maker.publish("", "p", ["p"], number)
        maker.truth.queues["p"].sort(key=lambda number: -maker.truth.priorities[number])
        maker.group()
        if turn % 2:
            maker.ack("p", 3)
            maker.group()


def plan_dead_letters(maker: Maker, session: int) -> None:
    """Rejected messages move to another queue; what is too much does, too."""
    if session == 0:
        maker.declare(DEAD)
        maker.declare("a", dead_letter_exchange="", dead_letter_routing_key=DEAD)
        maker.declare("few", dead_letter_exchange="", dead_letter_routing_key=DEAD, max_length=4)
    for _ in range(maker.turns):
        for _ in range(4):
            maker.publish("", "a", ["a"], maker.new(maker.size()))
        maker.group()
        with maker.store.channel() as channel:
            for _ in range(2):
                message = channel.basic_get("a")
                assert message is not None
                number = int(message.body[:8])
                message.reject(requeue=False)
                maker.settle("a", number)
                maker.note(DEAD, number)
        maker.group()
        for _ in range(3):
            number = maker.new(maker.size())
            maker.publish("", "few", ["few"], number)
            while len(maker.truth.queues["few"]) > 4:
                oldest = maker.truth.queues["few"][0]
                maker.settle("few", oldest)
                maker.note(DEAD, oldest)
        maker.group()


def plan_keys(maker: Maker, session: int) -> None:
    """Transactions with keys over two queues, with acknowledgements in them."""
    if session == 0:
        maker.declare("a")
        maker.declare("b")
    with maker.store.channel() as channel:
        channel.tx_select()
        for turn in range(2 * maker.turns):
            key = f"{session} {turn}"
            for queue in ("a", "b"):
                number = maker.new(maker.size())
                channel.basic_publish("", queue, maker.truth.body(number), maker.properties(number))
                maker.note(queue, number)
            if turn % 3 == 2:
                message = channel.basic_get("a")
                assert message is not None
                message.ack()
                maker.settle("a", int(message.body[:8]))
            channel.tx_commit(key=key)
            maker.truth.keys[key] = maker.truth.group
            maker.group()


def plan_stream(maker: Maker, session: int) -> None:
    """A stream and its work queue: singles, small batches, one of several segments, and one that is
    large enough to be written straight into the stream's files."""
    if session == 0:
        maker.declare(STREAM, queue_type="stream", stream_max_segment_size_bytes=16384)
        maker.declare(WORK, stream_source=STREAM, stream_offset="first")
        maker.readers[STREAM] = WORK
    for turn in range(maker.turns):
        for _ in range(3):
            maker.publish("", STREAM, [STREAM], maker.new(maker.size()))
        maker.group()
        maker.publish_batch(STREAM, [maker.new(maker.size()) for _ in range(4)])
        maker.group()
        if turn == 1:
            maker.publish_batch(STREAM, [maker.new(2000) for _ in range(40)])
            maker.group()
            maker.publish_batch(STREAM, [maker.new(3800) for _ in range(44)])
            maker.group()
            assert any((maker.path / "streams").iterdir()), "it went through the journal"
        if turn % 2:
            maker.ack(WORK, 5)
            maker.group()


def plan_transient(maker: Maker, session: int) -> None:
    """Messages that end with the process, beside those that do not."""
    plan_plain(maker, session)
    maker.channel.queue_declare("gone", exclusive=True)
    for index in range(12):
        number = maker.new(maker.size())
        queue = "a" if index % 2 else "gone"
        maker.channel.basic_publish(
            "", queue, maker.truth.body(number), maker.properties(number, 1)
        )
    maker.publish("", "a", ["a"], maker.new(20))
    maker.group()


@dataclass(frozen=True)
class Kind:
    """How a store is made: what is done in each session, checkpoints, and how it ends."""

    plan: Plan = plan_plain
    checkpoints: int = 0
    """In each session, evenly spread: the plan is done once more after each."""
    crashes: bool = True
    rests: bool = False
    """Before it crashes nothing happens for a while."""
    fails: bool = False
    pages: bool = False
    turns: int = 5
    """How long a plan is."""
    options: dict[str, object] = field(default_factory=dict)


_SHORT: dict[str, object] = {"segment_entries": 16}
_STREAM: dict[str, object] = {"journal_file_bytes": "256KiB"}
"""A batch that is written directly needs that many."""
_PAGED: dict[str, object] = {"segment_entries": 16, "memory_budget": "64KiB", "embed_below": 256}

KINDS = {
    "closed": Kind(crashes=False),
    "killed": Kind(),
    "killed quiet": Kind(rests=True),
    "large quiet": Kind(plan_large, rests=True),
    "checkpoint quiet": Kind(checkpoints=1, rests=True),
    "checkpoint": Kind(checkpoints=1),
    "checkpoints": Kind(checkpoints=2, turns=3, options=_SHORT),
    "checkpoints closed": Kind(checkpoints=2, turns=3, crashes=False, options=_SHORT),
    "paged": Kind(checkpoints=1, pages=True, options=_PAGED),
    "paged closed": Kind(checkpoints=2, turns=3, pages=True, crashes=False, options=_PAGED),
    "large": Kind(plan_large),
    "large checkpoint": Kind(plan_large, checkpoints=1, crashes=False),
    "priorities": Kind(plan_priorities, checkpoints=1, options=_PAGED),
    "dead letters": Kind(plan_dead_letters, checkpoints=1),
    "keys": Kind(plan_keys, checkpoints=1),
    "transient": Kind(plan_transient),
    "recycled": Kind(checkpoints=5, turns=3),
    "stream": Kind(plan_stream, options=_STREAM),
    "stream checkpoint": Kind(plan_stream, checkpoints=1, rests=True, options=_STREAM),
    "stream checkpoints closed": Kind(
        plan_stream, checkpoints=2, turns=3, crashes=False, options=_STREAM
    ),
    "failed": Kind(crashes=False, fails=True),
}


def warm_up() -> None:
    """Load what makes the first batch slow, so that each child has it."""
    pa.table({"body": [b""]})


def build(root: Path, kind: str, seed: int) -> Built:
    """Make a store of a kind in a child process, which ends as the kind says."""
    root.mkdir()
    what = KINDS[kind]
    said = root / "truth"
    pid = os.fork()
    if pid == 0:
        try:
            _make(Maker(root, f"{kind} {seed}", what.options, what.turns), what, said)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(70)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != (-signal.SIGKILL if what.crashes else 0):
        raise AssertionError(f"making a store of kind {kind!r}, seed {seed}: status {code}")
    truth: Truth = pickle.loads(said.read_bytes())
    older = {name: root / name for name in ("session", "checkpoint") if (root / name).exists()}
    return Built(kind, root / "store", older, truth, what.options)


def _make(maker: Maker, what: Kind, said: Path) -> None:
    for session in range(2):
        maker.open()
        for turn in range(what.checkpoints + 1):
            what.plan(maker, session if turn == 0 else session + 10 * turn)
            if turn < what.checkpoints:
                _checkpoint(maker, what)
                if session == 1 and turn == what.checkpoints - 1:
                    maker.keep("checkpoint")
        if session == 0:
            maker.close()
            maker.keep("session")
    if what.fails:
        _fail(maker)
    elif what.crashes:
        _last_commit(maker)
        maker.truth.crashed = True
        if what.rests:
            _rest(maker)
    else:
        maker.close()
    said.write_bytes(pickle.dumps(maker.truth))
    if what.crashes:
        os.kill(os.getpid(), signal.SIGKILL)


def _checkpoint(maker: Maker, what: Kind) -> None:
    if what.pages:
        for queue in maker.truth.queues:
            maker.store.set_queue_mode(queue, "lazy")
            maker.store.queue_status(queue)
    maker.store.checkpoint()
    maker.truth.group += 1


def _last_commit(maker: Maker) -> None:
    """One commit for certain: a batch."""
    queue = next(iter(maker.truth.queues))
    if maker.truth.priorities and any(maker.truth.priorities.values()):
        for _ in range(2):
            maker.publish("", queue, [queue], maker.new(40))
    else:
        maker.publish_batch(queue, [maker.new(40) for _ in range(3)])
    maker.group()


def _rest(maker: Maker) -> None:
    """Wait until the store has nothing more to write."""
    time.sleep(0.1)  # a mark is due 20 ms after the last commit
    before = b""
    files = sorted((maker.path / "journal").iterdir())
    end = time.monotonic() + 60
    while (now := b"".join(file.read_bytes()[:12288] for file in files)) != before:
        assert time.monotonic() < end
        before = now
        time.sleep(0.2)
    maker.truth.quiet = True


def _fail(maker: Maker) -> None:
    """Let a commit fail: no file may reach as far as the journal is."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    while not maker.store.stats()["failed"]:
        number = maker.new(40)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))
        try:
            maker.channel.basic_publish("", "a", maker.truth.body(number), maker.properties(number))
            confirmed = maker.channel.wait_for_confirms(60)
            assert not confirmed, "a commit that cannot be written was confirmed"
        except pyqstore.StoreFull:  # a new file was needed: there is none yet, then there is
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            maker.publish("", "a", ["a"], maker.new(40))
            maker.group()
        except pyqstore.StoreFailed:
            pass
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
    with contextlib.suppress(pyqstore.StoreFailed):
        maker.store.close()
