"""Writes the stores of tests/format/v1: run once for a version of the format, and kept for ever.

    PYTHONSAFEPATH=1 .venv/bin/python tests/format/write_v1.py [NAME ...]

Each store is an archive, NAME.tar.xz, with NAME.json beside it: what must be in it.  What a plan
says that queues hold is compared with what the engine finds before anything is written down.  A
later version does not write these again: it opens them.  A new record, flag or file gets a new plan
and one more archive; test_golden.py fails until there is one.
"""

import json
import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contents import SMALL, copy, drain, key_of, look, pack, plain
from records import BLOCKS_AT, PAGE, kinds

import pyqstore

V1 = Path(__file__).resolve().parent / "v1"
PERSISTENT = pyqstore.Properties(delivery_mode=2)
YEARS = 50 * 365 * 86400.0
Truth = dict[str, list[str]]
"""The bodies of queues, in order: how each begins."""


def body(name: str, size: int = 0) -> bytes:
    """A body that begins with its name; what follows is the same each time."""
    head = name.encode() + b"|"
    return (head * (size // len(head) + 1))[: max(size, len(head))]


class Writer:
    """An open store, and what the plan has put into it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.options = {**SMALL, "segment_entries": 64, "sync": "none", **options}
        self.truth: Truth = {}
        self.streams: Truth = {}
        self.groups: dict[str, dict[str, int]] = {}
        self.keys: list[str] = []
        self.forgotten: list[str] = []
        self.open()

    def open(self) -> None:
        self.store = pyqstore.open(self.path, **self.options)
        self.channel = self.store.channel()
        self.channel.confirm_select()

    def close(self) -> None:
        self.channel.close()
        self.store.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """Ends the process where it stands."""
        os.kill(os.getpid(), signal.SIGKILL)

    def declare(self, queue: str, **arguments: Any) -> None:
        named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.channel.queue_declare(queue, durable=True, arguments=named)
        self.truth.setdefault(queue, [])

    def publish(
        self,
        name: str,
        size: int = 0,
        exchange: str = "",
        key: str = "",
        to: list[str] | None = None,
        delay: float | None = None,
        **properties: Any,
    ) -> None:
        properties.setdefault("delivery_mode", 2)
        self.channel.basic_publish(
            exchange, key, body(name, size), pyqstore.Properties(**properties), delay=delay
        )
        for queue in [key] if to is None else to:
            self.truth[queue].append(name)

    def batch(self, names: list[str], size: int, key: str, **columns: Any) -> None:
        """To a queue, or to what an exchange of that name leads to."""
        self.channel.publish_batch(
            pa.table({"body": [body(name, size) for name in names], **columns}), routing_key=key
        )
        self.truth[key].extend(names)

    def declare_stream(self, stream: str, **arguments: int) -> pyqstore.Stream:
        """Its truth is all that was ever published: how much of it is kept the plan waits for."""
        declared = self.store.stream(stream, **arguments)
        self.streams.setdefault(stream, [])
        self.groups.setdefault(stream, {})
        return declared

    def append(self, stream: str, name: str, size: int = 0, **options: Any) -> None:
        self.store.stream(stream).publish(body(name, size), **options)
        self.streams[stream].append(name)

    def append_batch(self, stream: str, names: list[str], size: int = 0, **columns: Any) -> None:
        rows = pa.table({"body": [body(name, size) for name in names], **columns})
        self.store.stream(stream).publish_batch(rows)
        self.streams[stream].extend(names)

    def commit_offset(self, stream: str, group: str, offset: int) -> None:
        self.channel._commit_offset(stream, group, offset)
        self.groups[stream][group] = offset

    def wait_for(self, files: str) -> None:
        """Make checkpoints until there are such files, which the pager makes in its own time."""
        for _ in range(200):
            self.store.checkpoint()
            if any(self.path.glob(files)):
                return
            time.sleep(0.05)
        raise AssertionError(f"no {files}")

    def durable(self) -> None:
        assert self.channel.wait_for_confirms(60)
        self.store.sync()


Plan = Callable[[Writer], None]


def topology(writer: Writer) -> None:
    """Exchanges, queues and bindings: declared, deleted, taken back."""
    channel = writer.channel
    for kind in ("direct", "fanout", "topic", "headers"):
        channel.exchange_declare(f"x.{kind}", kind, durable=True)
    channel.exchange_declare("x.inner", "fanout", durable=True, internal=True)
    channel.exchange_declare("x.passing", "direct", durable=True, auto_delete=True)
    other = {"alternate-exchange": "x.fanout"}
    channel.exchange_declare("x.other", "direct", durable=True, arguments=other)
    channel.exchange_declare("x.gone", "direct", durable=True)
    channel.exchange_delete("x.gone")
    for name in ("a", "b", "lazy", "gone"):
        writer.declare(name)
    writer.declare("levels", max_priority=5)
    writer.declare("limits", max_length=100, overflow="reject-publish")
    channel.queue_bind("a", "x.direct", "key")
    channel.queue_bind("a", "x.direct", "taken back")
    channel.queue_unbind("a", "x.direct", "taken back")
    channel.queue_bind("b", "x.topic", "*.b.#")
    channel.queue_bind("b", "x.headers", "", {"x-match": "any", "size": 7, "name": "n"})
    channel.queue_bind("a", "x.fanout")
    channel.queue_bind("a", "x.passing", "p")
    channel.queue_bind("b", "x.inner")
    channel.exchange_bind("x.inner", "x.direct", "inner")
    channel.exchange_bind("x.inner", "x.topic", "taken.back")
    channel.exchange_unbind("x.inner", "x.topic", "taken.back")
    channel.queue_delete("gone")
    del writer.truth["gone"]
    writer.store.set_queue_mode("lazy", "lazy")
    writer.publish("by key", exchange="x.direct", key="key", to=["a"])
    writer.publish("by topic", exchange="x.topic", key="a.b.c", to=["b"])
    writer.publish("by header", exchange="x.headers", to=["b"], headers={"size": 7})
    writer.publish("to all", exchange="x.fanout", to=["a"])
    writer.publish("inwards", exchange="x.direct", key="inner", to=["b"])
    writer.publish("otherwise", exchange="x.other", key="nowhere", to=["a"])
    writer.publish("copied", key="a", headers={"CC": ["b"]}, to=["a", "b"])
    for priority in (0, 3, 5, 3):
        writer.publish(f"priority {priority}", key="levels", to=[], priority=priority)
    writer.truth["levels"] = ["priority 5", "priority 3", "priority 3", "priority 0"]
    writer.durable()


def messages(writer: Writer) -> None:
    """Records of one row and of many, with each column that there can be."""
    for queue in ("one", "many", "large", "late", "brief"):
        writer.declare(queue)
    writer.publish("plain", key="one")
    writer.publish("empty body follows", key="one")
    writer.channel.basic_publish("", "one", b"", PERSISTENT)
    writer.truth["one"].append("")
    writer.publish(
        "all properties", key="one", content_type="text/plain", content_encoding="utf-8",
        headers={"s": "text", "i": -5, "f": 1.5, "b": True, "n": None, "l": [1, "two"],
                 "d": {"in": "it"}, "x": b"\0\xff"},
        priority=9, correlation_id="c", reply_to="r", message_id="m", timestamp=1_700_000_000,
        type="t", user_id="u", app_id="a", cluster_id="k",
    )  # fmt: skip
    writer.publish("in a message file", 9_000, key="large")
    writer.publish("alone in a message file", 100_000, key="large")
    writer.publish("far away", key="late", to=[], delay=YEARS)
    writer.publish("soon", key="late", delay=0.001)
    writer.publish("expires", key="brief", to=[], expiration=1)
    writer.publish("stays", key="brief")
    names = [f"row {row:03d}" for row in range(300)]
    writer.batch(names, 100, "many")
    writer.batch([f"few {row}" for row in range(3)], 20, "many")
    writer.batch([f"mixed {row}" for row in range(6)], 20, "many",
                 message_id=[f"id {row}" for row in range(6)])  # fmt: skip
    writer.batch([f"stored {row}" for row in range(4)], 5_000, "large")
    modes = pa.array([2, 1, 2, 1], pa.uint8())
    writer.batch([f"mode {row}" for row in range(4)], 30, "many", delivery_mode=modes)
    writer.truth["many"] = [n for n in writer.truth["many"] if n not in ("mode 1", "mode 3")]
    lives = pa.array([1, None, 1, None], pa.uint32())
    writer.batch([f"life {row}" for row in range(4)], 30, "brief", expiration_ms=lives)
    writer.truth["brief"] = [n for n in writer.truth["brief"] if n not in ("life 0", "life 2")]
    dues = pa.array([3_000_000_000_000_000, None, 1, None], pa.timestamp("us", "UTC"))
    writer.batch([f"due {row}" for row in range(4)], 30, "late", due=dues)
    writer.truth["late"].remove("due 0")
    writer.durable()


def aligned(writer: Writer) -> None:
    """Long records whose columns are aligned, with every column at once."""
    for queue in ("plain", "all"):
        writer.declare(queue)
    writer.batch([f"row {row:03d}" for row in range(500)], 70, "plain")
    count = 400
    rows = range(count)
    writer.channel.publish_batch(
        pa.table({
            "body": [body(f"all {row:03d}", 5_000 if row % 100 == 7 else 60) for row in rows],
            "routing_key": ["all" if row % 2 else "plain" for row in rows],
            "message_id": [f"id {row}" for row in rows],
            "delivery_mode": pa.array([1 if row % 10 == 3 else 2 for row in rows], pa.uint8()),
            "expiration_ms": pa.array(
                [1 if row % 10 == 5 else None for row in rows], pa.uint32()
            ),
            "due": pa.array(
                [3_000_000_000_000_000 if row % 10 == 1 else None for row in rows],
                pa.timestamp("us", "UTC"),
            ),
        })
    )  # fmt: skip
    for row in rows:
        if row % 10 not in (1, 3, 5):
            writer.truth["all" if row % 2 else "plain"].append(f"all {row:03d}")
    writer.durable()


def settled(writer: Writer) -> None:
    """Everything that can become of a delivered message."""
    writer.declare("a")
    writer.declare("limited", delivery_limit=5)
    writer.declare("dead")
    writer.declare("rejects", dead_letter_exchange="", dead_letter_routing_key="dead")
    for queue in ("a", "limited", "rejects"):
        for number in range(12):
            writer.publish(f"{queue} {number:02d}", key=queue)
    writer.durable()
    a, limited = writer.truth["a"], writer.truth["limited"]
    with writer.store.channel() as channel:
        taken = [channel.basic_get("a") for _ in range(10)]
        channel.basic_ack(taken[2].delivery_tag, multiple=True)
        channel.basic_ack(taken[4].delivery_tag)
        channel.basic_nack(taken[5].delivery_tag)
        channel.basic_nack(taken[6].delivery_tag, delay=YEARS)
        channel.basic_nack(taken[7].delivery_tag, delay=0.001)
        writer.truth["a"] = [n for n in a if n not in (*a[:3], a[4], a[6])]
    with writer.store.channel() as channel:
        taken = [channel.basic_get("limited") for _ in range(6)]
        channel.basic_ack(taken[0].delivery_tag)
        channel.basic_nack(taken[1].delivery_tag)
        channel.basic_nack(taken[2].delivery_tag, delay=YEARS)
        writer.truth["limited"] = [n for n in limited if n not in (limited[0], limited[2])]
    with writer.store.channel() as channel:
        channel.basic_qos(prefetch_count=4)
        tag = channel.basic_consume("limited")
        first = channel.next_delivery(tag, 10)
        assert first is not None
        channel.basic_cancel(tag)
        channel.basic_nack(first.delivery_tag)
    with writer.store.channel() as channel:
        for _ in range(3):
            message = channel.basic_get("rejects")
            channel.basic_reject(message.delivery_tag, requeue=False)
            writer.truth["dead"].append(writer.truth["rejects"].pop(0))
        writer.store.sync()
    _take_back(writer)
    writer.declare("purged")
    for number in range(5):
        writer.publish(f"purged {number}", key="purged", to=[])
    writer.durable()
    writer.channel.queue_purge("purged")
    writer.durable()


def _take_back(writer: Writer) -> None:
    """A batch is given back, because one of its bodies could not be read for a while."""
    writer.declare("held", delivery_limit=9)
    writer.publish("small", key="held")
    writer.publish("large", 5_000, key="held")
    writer.durable()
    (file,) = (writer.path / "messages").glob("*.msg")
    whole = file.read_bytes()
    at = whole.index(body("large", 5_000))
    with file.open("r+b") as damaged, writer.store.channel() as channel:
        os.pwrite(damaged.fileno(), b"?", at)
        try:
            channel.get_batch("held")
        except pyqstore.StoreCorrupt:
            pass
        else:
            raise AssertionError("the damage was not found")
        os.pwrite(damaged.fileno(), whole[at : at + 1], at)


def _commit(writer: Writer, key: str, names: list[str]) -> None:
    with writer.store.channel() as channel:
        channel.tx_select()
        for name in names:
            channel.basic_publish("", "a", body(name), PERSISTENT)
            writer.truth["a"].append(name)
        channel.tx_commit(key=key_of(key))
    writer.keys.append(key)


def _forget(writer: Writer, key: str) -> None:
    writer.store.forget_transaction(key_of(key))
    writer.keys.remove(key)
    writer.forgotten.append(key)


def transactions(writer: Writer) -> None:
    """Groups of several blocks, keys in the journal and keys that were forgotten."""
    writer.declare("a")
    _commit(writer, "first", ["one", "two"])
    _commit(writer, "forgotten", ["three"])
    _forget(writer, "forgotten")
    with writer.store.channel() as channel:
        channel.tx_select()
        message = channel.basic_get("a")
        assert message is not None
        channel.basic_ack(message.delivery_tag)
        channel.basic_publish("", "a", body("four"), PERSISTENT)
        channel.tx_commit(key=key_of("with an ack"))
    writer.truth["a"] = [*writer.truth["a"][1:], "four"]
    writer.keys.append("with an ack")
    with writer.store.channel() as channel:
        channel.tx_select()
        channel.publish_batch(
            pa.table({"body": [body(f"wide {n:03d}", 900) for n in range(100)]}), routing_key="a",
            properties=PERSISTENT,
        )  # fmt: skip
        channel.tx_commit(key=key_of("wide"))
    writer.truth["a"].extend(f"wide {n:03d}" for n in range(100))
    writer.keys.append("wide")
    time.sleep(0.3)  # a mark is written when the store goes quiet


def keys(writer: Writer) -> None:
    """More keys than memory takes: in sorted files, of which one says that some are forgotten."""
    writer.declare("a")
    for number in range(150):
        _commit(writer, f"key {number:03d}", [])
    writer.store.checkpoint()
    for number in range(0, 150, 7):
        _forget(writer, f"key {number:03d}")
    for number in range(150, 260):
        _commit(writer, f"key {number:03d}", [])
    _commit(writer, "the last", ["a message"])
    writer.store.checkpoint()
    _commit(writer, "behind the checkpoint", ["another"])


def paged(writer: Writer) -> None:
    """Checkpoints over segments with all columns, dense and packed; a rewritten message file."""
    for queue in ("plain", "large", "sparse", "late", "both"):
        writer.declare(queue)
    writer.declare("counted", delivery_limit=9)
    writer.declare("brief")
    writer.declare("sized", max_length_bytes=1_000_000)
    writer.declare("levels", max_priority=3)
    writer.channel.exchange_declare("all", "fanout", durable=True)
    for queue in ("plain", "both"):
        writer.channel.queue_bind(queue, "all")
    for number in range(150):
        writer.publish(f"plain {number:03d}", 50, key="plain")
        writer.publish(f"sparse {number:03d}", 200, key="sparse")
        writer.publish(f"large {number:03d}", 6_000, key="large")
    for number in range(40):
        writer.publish(f"counted {number:02d}", 50, key="counted")
        writer.publish(f"sized {number:02d}", 50, key="sized")
        writer.publish(f"both {number:02d}", 50, exchange="all", to=["plain", "both"])
        writer.publish(f"level {number:02d}", 50, key="levels", to=[], priority=number % 4)
        delay = YEARS if number % 2 else None
        writer.publish(f"late {number:02d}", 3_000, key="late", delay=delay)
        life = 4_000 if number % 2 else None
        writer.publish(f"brief {number:02d}", 3_000, key="brief", expiration=life)
    writer.truth["levels"] = [
        f"level {number:02d}"
        for level in (3, 2, 1, 0)
        for number in range(40)
        if number % 4 == level
    ]
    writer.truth["late"] = writer.truth["late"][::2]
    writer.truth["brief"] = writer.truth["brief"][::2]
    writer.durable()
    with writer.store.channel() as channel:
        for _ in range(4):
            channel.basic_get("counted")
    writer.store.checkpoint()
    for queue in ("sparse", "large"):
        with writer.store.channel() as channel:
            for number in range(150):
                message = channel.basic_get(queue)
                assert message is not None
                if number % 9:
                    channel.basic_ack(message.delivery_tag)
            writer.store.sync()
        writer.truth[queue] = writer.truth[queue][::9]
    writer.wait_for("messages/*-0001.msg")
    writer.publish("behind the checkpoint", key="plain")
    writer.durable()


def carried(writer: Writer) -> None:
    """A checkpoint that carries its messages itself, delivered and delayed ones among them."""
    writer.declare("a")
    for number in range(10):
        writer.publish(f"message {number}", 30, key="a")
    writer.batch([f"row {row:03d}" for row in range(300)], 80, "a")
    writer.publish("far away", key="a", to=[], delay=YEARS)
    writer.durable()
    with writer.store.channel() as channel:
        taken = [channel.basic_get("a") for _ in range(4)]
        channel.basic_ack(taken[0].delivery_tag)
        channel.basic_nack(taken[1].delivery_tag)
        channel.basic_nack(taken[2].delivery_tag, delay=YEARS)
    writer.truth["a"] = [n for n in writer.truth["a"] if n not in ("message 0", "message 2")]
    writer.store.checkpoint()


def former(writer: Writer) -> None:
    """A segment that goes on in another file, because its own could not be read for a while."""
    writer.declare("a")
    for number in range(40):
        writer.publish(f"before {number:02d}", 3_000, key="a")
    writer.durable()
    writer.store.checkpoint()
    (file,) = (writer.path / "index").glob("*.seg")
    away = writer.path.with_suffix(".away")
    writer.reopen()
    with writer.store.channel() as channel:
        taken = [channel.basic_get("a") for _ in range(3)]
        file.rename(away)
        for message in taken:
            assert message is not None
            channel.basic_ack(message.delivery_tag)
        writer.store.sync()
        writer.store.checkpoint()
    writer.truth["a"] = writer.truth["a"][3:]
    writer.close()
    away.rename(file)
    writer.open()


def crashed(writer: Writer) -> None:
    """Killed while it worked: files that end with the process, and the last commit is torn."""
    writer.declare("a")
    writer.declare("transient")
    for number in range(30):
        writer.publish(f"kept {number:02d}", 60, key="a")
    for number in range(400):
        writer.publish(f"transient {number}", 60, key="transient", to=[], delivery_mode=1)
        if number % 20 == 0:
            writer.publish(f"persistent {number:03d}", 60, key="transient")
    writer.store.set_queue_mode("transient", "lazy")
    writer.store.queue_status("transient")
    writer.durable()
    writer.publish("torn", key="a", to=[])
    writer.durable()
    write_truth(writer)
    writer.kill()


def tear(store: Path) -> None:
    """Takes the last block of the journal back, as if its pages had not been written, and the marks
    with it: a power cut just before the sync."""
    path = max((store / "journal").glob("*.jnl"), key=lambda file: _last_block(file)[0])
    _, at = _last_block(path)
    data = bytearray(path.read_bytes())
    data[at + 70 : at + PAGE] = bytes(PAGE - 70)
    for mark in (PAGE, 2 * PAGE):
        data[mark : mark + PAGE] = bytes(PAGE)
    path.write_bytes(data)


def _last_block(path: Path) -> tuple[int, int]:
    """LSN and place of the last block with records that begins in a journal file."""
    data = path.read_bytes()
    found = (-1, 0)
    salt = data[32:40]
    for at in range(BLOCKS_AT, len(data) - 64, PAGE):
        (used,) = struct.unpack_from("<I", data, at + 36)
        if data[at : at + 4] == b"QSJB" and data[at + 24 : at + 32] == salt and used > 0:
            found = (struct.unpack_from("<Q", data, at + 8)[0], at)
    return found


def streams(writer: Writer) -> None:
    """Logs in files, in a checkpoint and in the journal; cursors, and what retention dropped."""
    writer.declare("a")
    writer.declare_stream("log")
    limits = {"max_messages": 100, "segment_bytes": 1 << 16}
    writer.declare_stream("short", **limits)
    writer.append_batch("log", [f"batch {row:03d}" for row in range(100)], 900)
    writer.commit_offset("log", "alone", 10)
    writer.store.checkpoint()
    for number in range(90):
        writer.append("log", f"single {number:02d}", 900)  # each has a time of its own
    writer.store.checkpoint()
    for number in range(5):  # runs of times
        names = [f"run {number} {row:02d}" for row in range(20)]
        keys = [f"key.{row % 3}" for row in range(20)]
        writer.append_batch("log", names, 900, routing_key=keys)
    _append_special(writer, "flushed")
    _trim(writer)
    writer.store.checkpoint()
    _append_special(writer, "flushed again")
    writer.declare_stream("at once")
    writer.append("at once", "at once", 70_000)  # one time
    writer.declare_stream("carried")  # by the checkpoint: there is little of it
    writer.append_batch("carried", [f"carried {row}" for row in range(3)])
    writer.append("carried", "carried, key", key="some.key")
    with writer.store.stream_consumer("log", group="in a transaction") as consumer:
        assert len(consumer.poll(25)) == 25
        with writer.store.channel() as channel, channel.transaction() as tx:
            tx.publish("", "a", body("with an offset"), PERSISTENT)
            tx.commit_offsets(consumer)
    writer.truth["a"].append("with an offset")
    writer.groups["log"]["in a transaction"] = 25
    _trim(writer)  # ends with a checkpoint, behind which is only what it dropped
    _append_special(writer, "in the journal")
    writer.declare_stream("new")
    writer.append("new", "in the journal alone")
    writer.commit_offset("log", "alone", 150)
    writer.commit_offset("new", "another", 1)
    writer.publish("a message", key="a")
    writer.durable()


def _append_special(writer: Writer, where: str) -> None:
    """What a stream's messages may have of their own."""
    writer.append("log", f"{where}, plain")
    writer.append("log", f"{where}, key", key="some.key", headers={"size": 7, "name": "n"})
    writer.append("log", f"{where}, large", 9_000)
    modes = pa.array([2, 1, 2, 1], pa.uint8())
    names, ids = zip(*((f"{where}, mode {row}", f"id {row}") for row in range(4)), strict=True)
    writer.append_batch("log", list(names), 30, delivery_mode=modes, message_id=ids)


def _trim(writer: Writer) -> None:
    """Segments go, in the moment after a checkpoint."""
    stream = writer.store.stream("short")
    first = stream.first
    for _ in range(3):
        at = len(writer.streams["short"])
        writer.append_batch("short", [f"short {row:03d}" for row in range(at, at + 80)], 1_000)
        writer.store.checkpoint()
    for _ in range(100):
        if stream.first == stream.next - 160:
            break
        time.sleep(0.05)
    assert first < stream.first == stream.next - 160


PLANS: dict[str, tuple[Plan, dict[str, Any]]] = {
    "topology": (topology, {}),
    "messages": (messages, {}),
    "aligned": (aligned, {}),
    "settled": (settled, {}),
    "transactions": (transactions, {"sync": "fdatasync"}),
    "keys": (keys, {"memory_budget": "256KiB"}),
    "paged": (paged, {"memory_budget": "256KiB"}),
    "carried": (carried, {}),
    "former": (former, {}),
    "streams": (streams, {}),
    "crashed": (crashed, {"memory_budget": "256KiB"}),
}


def write_truth(writer: Writer) -> None:
    """For the process that waits for this one."""
    truth = {
        "queues": writer.truth,
        "streams": writer.streams,
        "groups": writer.groups,
        "keys": writer.keys,
        "forgotten": writer.forgotten,
    }
    writer.path.with_suffix(".truth").write_text(json.dumps(truth), encoding="utf-8")


def build(name: str, path: Path) -> dict[str, Any]:
    """A store, made in a process of its own, and what it must hold."""
    plan, options = PLANS[name]
    child = os.fork()
    if child == 0:
        writer = Writer(path, **options)
        plan(writer)
        write_truth(writer)
        writer.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) if name == "crashed" else status == 0, status
    if name == "crashed":
        tear(path)
    truth: dict[str, Any] = json.loads(path.with_suffix(".truth").read_text(encoding="utf-8"))
    return truth


def check_streams(truth: dict[str, Any], looked: dict[str, Any], found: dict[str, Any]) -> None:
    """What is kept of each stream is all that was published from its first offset on."""
    assert sorted(found.get("streams", {})) == sorted(truth["streams"])
    for stream, names in truth["streams"].items():
        rows = found["streams"][stream]["rows"]
        first = looked["streams"][stream]["first"]
        assert [row[0] for row in rows] == list(range(first, len(names))), stream
        assert [row[1].split("|")[0] for row in rows] == names[first:], stream
        assert found["streams"][stream]["groups"] == truth["groups"][stream], stream


def write(name: str, plan: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store")
        truth = build(plan, path)
        time.sleep(5 if plan == "paged" else 0)  # until what expires there has
        looked = look(copy(path, Path(folder, "look")))
        found = drain(copy(path, Path(folder, "drain")), truth["keys"], truth["forgotten"])
        for queue, names in truth["queues"].items():
            got = [message[0].split("|")[0] for message in found["queues"][queue]]
            assert got == names, f"{name}, {queue}: {got} is not {names}"
        check_streams(truth, looked, found)
        assert found["known"] == truth["keys"]
        assert not found["damaged"]
        pack(path, V1 / f"{name}.tar.xz")
        del found["known"]
        expected = {
            "kinds": sorted(kinds(path)),
            "keys": truth["keys"],
            "forgotten": truth["forgotten"],
            "look": looked,
        }
        text = json.dumps(plain({**expected, "drain": found}), indent=0, ensure_ascii=True)
        (V1 / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(name, (V1 / f"{name}.tar.xz").stat().st_size, ", ".join(expected["kinds"]))


def main() -> None:
    V1.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PLANS:
        kept, _, plan = name.partition("=")
        write(kept, plan or name)


if __name__ == "__main__":
    main()
