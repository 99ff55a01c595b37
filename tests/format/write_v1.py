"""Writes the stores of tests/format/v1: run once for a version of the format, and kept for ever.

    PYTHONSAFEPATH=1 .venv/bin/python tests/format/write_v1.py [NAME ...]

Each store is an archive, NAME.tar.xz, with NAME.json beside it: what must be in it.  What a plan
says that queues hold is compared with what the engine finds before anything is written down.  A
later version does not write these again: it opens them.  A new record, flag or file gets a new plan
and one more archive; test_golden.py fails until there is one.
"""

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contents import copy, drain, key_of, look, pack, plain
from forging import forge, stand_in
from plans_of_files import adopted, asked, carried, crashed, former, paged, streams, tear
from records import kinds
from writer import PERSISTENT, YEARS, Writer, body, write_truth

import pyqstore

V1 = Path(__file__).resolve().parent / "v1"
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


def _settle(writer: Writer, queue: str, fates: str) -> None:
    """Of the next messages: acked, requeued in the end, or acked after all others were got."""
    names = list(writer.truth[queue])
    got = [writer.channel.basic_get(queue) for _ in fates]
    for fate, message in zip(fates, got, strict=True):
        assert message is not None
        if fate == "a":
            message.ack()
            writer.truth[queue].remove(names[got.index(message)])
        else:
            message.nack(requeue=True)


def work(writer: Writer) -> None:
    """Work queues over a stream: bitmaps and counts in a checkpoint, settles in the journal."""
    writer.declare("a")
    writer.declare_stream("log")
    names = [f"batch {row:03d}" for row in range(200)]
    writer.append_batch("log", names, 100)
    source = {"stream_source": "log", "stream_offset": "first"}
    for queue in ("work", "work, counted"):
        limit = {"delivery_limit": 5} if queue != "work" else {}
        writer.declare(queue, **source, **limit)
        writer.truth[queue] = list(names)
        _settle(writer, queue, "aarara")
        _settle(writer, queue, "r" + "a" * 90 + "r")
    writer.declare("work, came back", **source, delivery_limit=5)
    writer.truth["work, came back"] = list(names)
    for count in (60, 40, 30):
        _settle(writer, "work, came back", "r" * count)
    writer.declare("work, untouched", **source, stream_pin=True)
    writer.truth["work, untouched"] = list(names)
    writer.store.checkpoint()
    for queue in ("work", "work, counted"):
        _settle(writer, queue, "ra")
    writer.declare("work, from now on", stream_source="log", stream_offset="next")
    more = [f"more {row}" for row in range(3)]
    writer.append_batch("log", more, 100)
    for queue in filter(lambda name: name.startswith("work"), writer.truth):
        writer.truth[queue] += more
    writer.durable()


def selectors(writer: Writer) -> None:
    """Exchanges that select: bindings of queues and of an exchange, before and behind a
    checkpoint."""
    channel = writer.channel
    channel.exchange_declare("x.jms", "x-jms-topic", durable=True)
    channel.exchange_declare("x.hash", "x-consistent-hash", durable=True)
    writer.declare("a")
    writer.declare("b")
    channel.queue_bind("a", "x.jms", "eu.#", {"x-jms-selector": "side = 'buy' AND size > 6"})
    channel.queue_bind("b", "x.jms", "eu.#", {"x-jms-selector": "side IS NULL"})
    writer.store.checkpoint()
    channel.queue_bind("a", "x.jms", "eu.#", {"x-jms-selector": "JMSPriority = 9"})
    channel.queue_bind("a", "x.jms", "eu.#", {"x-jms-selector": "taken = 'back'"})
    channel.queue_unbind("a", "x.jms", "eu.#", {"x-jms-selector": "taken = 'back'"})
    channel.exchange_bind("x.hash", "x.jms", "#", {"x-jms-selector": "JMSType LIKE 'h%'"})
    channel.queue_bind("b", "x.hash", "3")
    buy = {"side": "buy", "size": 7}
    writer.publish("bought", exchange="x.jms", key="eu.x", to=["a"], headers=buy)
    writer.publish("no side", exchange="x.jms", key="eu", to=["b"])
    writer.publish("first", exchange="x.jms", key="eu", to=["a", "b"], priority=9)
    writer.publish("hashed", exchange="x.jms", key="us", to=["b"], type="h1", headers=buy)
    writer.durable()


UNREADABLE = {
    "an age": ("x-message-ttl", "soon"),
    "a number": ("x-max-length", -1),
    "a word": ("x-overflow", "burst"),
    "a key alone": ("x-dead-letter-routing-key", "dead"),
    "another kind's": ("x-max-age", "1D"),
    "log, an age": ("x-max-age", "7 parsecs"),
    "log, another kind's": ("x-max-priority", 5),
    "work, a boolean": ("x-stream-pin", "yes"),
    "work, another kind's": ("x-queue-mode", "lazy"),
}
"""Queues whose argument makes no sense in the store that is kept."""


def unknown(writer: Writer) -> None:
    """Arguments that nobody knows, of each type, and values that nobody can read: those have names
    that mean nothing until ``forge``."""
    warnings.simplefilter("ignore", pyqstore.UnknownArgument)
    writer.declare_stream("source")
    some: dict[str, Any] = {"of-tomorrow": "text", "numbers": [1, 2.5], "nested": {"a": {"b": 1}}}
    some |= {"no": False, "long": 2**40, "bytes": b"\xff", "nothing": None}
    half = len(UNREADABLE) // 2
    for number, (queue, (name, value)) in enumerate(UNREADABLE.items()):
        if number == half:
            writer.durable()
            writer.store.checkpoint()
        arguments = {stand_in(name): value, "x-nobody-knows": 7}
        if queue.startswith("log"):
            writer.channel.queue_declare(
                queue, durable=True, arguments={**arguments, "x-queue-type": "stream"}
            )
            writer.streams[queue], writer.groups[queue] = [], {}
            writer.append(queue, "kept")
            continue
        if queue.startswith("work"):
            arguments["x-stream-source"] = "source"
        writer.channel.queue_declare(queue, durable=True, arguments=arguments)
        writer.truth[queue] = []
        if not queue.startswith("work"):
            writer.publish(f"in {queue}", key=queue)
    for queue in ("knows nothing", "knows nothing, too"):
        writer.declare(queue, **some)
        writer.publish("kept", key=queue)
    writer.append("source", "for the work queues")
    for queue in filter(lambda name: name.startswith("work"), UNREADABLE):
        writer.truth[queue] += ["for the work queues"]
    writer.durable()


def written(writer: Writer) -> None:
    """Large batches that a stream's files have and the journal only names: in several files, with
    a checkpoint and with messages of the journal between them."""
    writer.declare("a")
    writer.publish("a message", key="a")
    writer.declare_stream("log", segment_bytes=1 << 18)
    writer.append("log", "first of all")
    for batch in range(4):
        writer.append_batch("log", [f"batch {batch} {row:03d}" for row in range(120)], 900)
        writer.append("log", f"behind {batch}")
        if batch == 1:
            writer.store.checkpoint()
    writer.append_batch("log", [f"last {row:03d}" for row in range(120)], 900)
    writer.durable()


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
    "work": (work, {}),
    "selectors": (selectors, {}),
    "unknown": (unknown, {}),
    "written": (written, {"journal_file_bytes": "1MiB", "memory_budget": "16MiB"}),
    "adopted": (adopted, {}),
    "asked": (asked, {}),
    "crashed": (crashed, {"memory_budget": "256KiB"}),
}


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
    if name == "unknown":
        forge(path, [argument for argument, _ in UNREADABLE.values()])
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
