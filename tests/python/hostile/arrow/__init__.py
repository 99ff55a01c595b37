"""The Arrow fuzzer: batches made by hand, most of them with something wrong.

node.py makes valid arrays and mutates them, memory.py lays them out so that reading a byte too many
is a crash, reader.py says what a batch means.  What is refused has published nothing and says
where; what is published is what the reader reads; a valid batch is published.  Structures are
released once.
"""

import copy
import errno
import random
import re
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count

import pyqstore

from ..report import Report
from ..watched import Outcome, run_watched
from .memory import Memory
from .node import (
    Maker,
    Node,
    missing_buffer,
    mutate,
    no_buffers,
    wrong_buffer_count,
    wrong_bytes,
    wrong_length,
    wrong_null_count,
    wrong_number,
    wrong_offset,
)
from .reader import Row, UnfitError, WrongError, fit, read

QUEUES = ("q", "r")
CASES_PER_CHILD = 4000
_ARRAY_MUTATIONS = (
    wrong_length, wrong_offset, wrong_null_count, missing_buffer, wrong_bytes, wrong_number,
    wrong_buffer_count, no_buffers,
)  # fmt: skip
# A refusal says where: in which column, row or structure.
_PLACE = re.compile(r"column|row \d|entry \d|record batch|released|children|exchange|the stream")
Publish = Callable[[pyqstore.Channel, object], object]


class Given:
    """What speaks the PyCapsule protocol."""

    def __init__(self, **protocol: Callable[[], object]) -> None:
        for name, function in protocol.items():
            setattr(self, name, function)


class Place:
    """A store with two queues, for one process; opened when the first case comes."""

    def __init__(self, publish: Publish | None = None) -> None:
        self.publish = publish or (lambda channel, data: channel.publish_batch(data, "", "q"))
        self.store: pyqstore.Store | None = None
        self.memory = Memory()

    def open(self) -> pyqstore.Channel:
        if self.store is None:
            self.home = tempfile.TemporaryDirectory()
            self.store = pyqstore.open(f"{self.home.name}/store", sync="none")
            self.channel = self.store.channel()
            self.channel.exchange_declare("all", "fanout")
            for queue in QUEUES:
                self.channel.queue_declare(queue)
                self.channel.queue_bind(queue, "all")
        if self.channel.closed:
            self.channel = self.store.channel()
        return self.channel


def run_case(place: Place, seed: int, number: int) -> Outcome:
    """Case ``number`` of ``seed``."""
    for attempt in count():
        chance = random.Random(f"{seed} {number} {attempt}")
        place.memory.clear()
        try:
            if chance.random() < 0.15:
                return _stream(place, chance)
            return _array(place, chance)
        except UnfitError:
            continue
    raise AssertionError


def _array(place: Place, chance: random.Random) -> Outcome:
    root = Maker(chance).batch()
    wrong = mutate(chance, root) if chance.random() < 0.85 else []
    fit(root)
    memory = place.memory
    schema, array = memory.schema(root), memory.array(root)
    capsules = memory.capsules(schema, array)
    outcome = _publish(place, Given(__arrow_c_array__=lambda: capsules), [root], wrong)
    counts = (memory.finish_schema(schema), memory.finish_array(array))
    if counts != (not root.schema_released, not root.array_released):
        outcome.violations.append(f"{wrong}: schema and array were released {counts} times")
    return outcome


def _stream(place: Place, chance: random.Random) -> Outcome:
    first = Maker(chance).batch()
    roots = [copy.deepcopy(first) for _ in range(chance.randrange(5))]
    wrong = []
    if roots and chance.random() < 0.6:
        mutation = chance.choice(_ARRAY_MUTATIONS)
        root = chance.choice(roots)
        mutation(chance, chance.choice(root.walk()))
        wrong.append(mutation.__name__)
    for root in roots:
        fit(root)
    fails_at = chance.randrange(len(roots) + 2) if chance.random() < 0.3 else -1
    code = chance.choice((errno.EINVAL, errno.ENOMEM, errno.EIO, errno.ENOSYS))
    if fails_at >= 0:
        wrong.append(f"fails at call {fails_at} with {code}")
    stream = place.memory.stream(first, roots, fails_at, code)
    given = Given(__arrow_c_stream__=stream.capsule)
    outcome = _publish(place, given, roots, wrong, must_fail=fails_at >= 0)
    released = [place.memory.released[address] for address in stream.given]
    if place.memory.finish_stream(stream.address) != 1 or any(n != 1 for n in released):
        outcome.violations.append(f"{wrong}: the parts of a stream were released {released} times")
    return outcome


def _publish(
    place: Place, data: object, roots: list[Node], wrong: list[str], *, must_fail: bool = False
) -> Outcome:
    channel = place.open()
    outcome = Outcome(["mutated" if wrong else "valid"])
    refusal = None
    try:
        place.publish(channel, data)
    except (ValueError, pyqstore.NotFound) as error:
        refusal = str(error)
        if not _PLACE.search(refusal):
            outcome.violations.append(f"{wrong}: a refusal that says nothing: {refusal!r}")
    except (OSError, MemoryError) as error:
        refusal = str(error)
        if not must_fail:
            outcome.violations.append(f"{wrong}: {type(error).__name__}: {error}")
    except Exception as error:
        outcome.violations.append(f"{wrong}: {type(error).__name__}: {error}")
        refusal = str(error)
    place.memory.poison_buffers()
    there = {queue: _take(place.open(), queue) for queue in QUEUES}
    outcome.counts.append("published" if refusal is None else "refused")
    if refusal is not None:
        if any(there.values()):
            outcome.violations.append(f"{wrong}: refused ({refusal}), and {there} is there")
        if not wrong:
            outcome.violations.append(f"a valid batch was refused: {refusal}")
        return outcome
    try:
        rows = [row for root in roots for row in read(root, "", "q")]
    except WrongError as error:
        outcome.violations.append(f"{wrong}: published, although: {error}")
        return outcome
    expected = {queue: [row for row in rows if _goes(row, queue)] for queue in QUEUES}
    if must_fail or there != expected:
        outcome.violations.append(f"{wrong}: published {there}, expected {expected}")
    return outcome


def _goes(row: Row, queue: str) -> bool:
    return row.exchange == "all" or (row.exchange == "" and row.routing_key == queue)


def _take(channel: pyqstore.Channel, queue: str) -> list[Row]:
    taken = []
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        properties = message.properties.asdict()
        taken.append(
            Row(
                message.exchange,
                message.routing_key,
                message.body,
                tuple(sorted(properties.items(), key=lambda pair: pair[0])),
            )
        )
    return taken


def run(seed: int, seconds: float, case: int | None = None) -> Report:
    """Batches of ``seed`` for so many seconds, or one of them."""
    report = Report()
    work = partial(run_case, Place(), seed)
    most = None if case is None else 1
    for number, outcome in run_watched(
        work, seconds, first=case or 0, most=most, per_child=CASES_PER_CHILD
    ):
        report.add("batches")
        for name in outcome.counts:
            report.add(name)
        report.violations += [f"--case {number}: {text}" for text in outcome.violations]
    return report
