"""Plans of write_v1.py whose stores have more files than a journal: paged and carried queues,
streams, and what a crash left."""

import struct
import time
from pathlib import Path

import pyarrow as pa
from records import BLOCKS_AT, PAGE, kinds_of_file
from writer import PERSISTENT, YEARS, Writer, body, write_truth

import pyqstore
from pyqstore import _core


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


def adopted(writer: Writer) -> None:
    """Staged files that a stream has, before and behind a checkpoint, alone and between messages
    that were published; and rows of one that were published from it."""
    stage = writer.path.with_name("stage")
    stage.mkdir(mode=0o700)
    writer.declare("a")
    writer.declare_stream("log")
    writer.declare_stream("alone")

    def adopt(number: int, key: str, files: int = 1) -> list[str]:
        names = [f"staged {number} {row:03d}" for row in range(40 * files)]
        paths = [stage / f"{number}-{file}.qsb" for file in range(files)]
        for file, path in enumerate(paths):
            part = names[40 * file : 40 * (file + 1)]
            with pyqstore.StagedWriter(path, routing_key=key) as staged:
                staged.write_batch(pa.table({"body": [body(name, 300) for name in part]}))
        adoption = writer.store.adopt(paths, f"adoption {number}")
        assert adoption.linked == (0 if key == "a" else files)
        writer.keys.append(f"adoption {number}")
        for path in paths:
            path.unlink()
        return names

    writer.append("log", "first of all")
    writer.streams["log"] += adopt(0, "log", files=2)
    writer.append("log", "in between")
    writer.streams["alone"] += adopt(1, "alone")
    writer.store.checkpoint()
    writer.streams["log"] += adopt(2, "log")
    writer.append("log", "behind them")
    writer.streams["log"] += adopt(3, "log")
    writer.truth["a"] += adopt(4, "a")
    writer.durable()
    stage.rmdir()


def asked(writer: Writer) -> None:
    """Manifests that no owner has begun with, and an answer that nobody fetched."""
    writer.declare("a")
    adopt_key = "adopted before"
    stage = writer.path.with_name("stage.qsb")
    with pyqstore.StagedWriter(stage, routing_key="a") as staged:
        staged.write_batch(pa.table({"body": [body("staged", 30)]}))
    writer.store.adopt([stage], adopt_key)
    writer.truth["a"].append("staged")
    writer.keys.append(adopt_key)
    stage.unlink()
    writer.durable()

    def ask(key: str, *paths: bytes) -> None:
        asked = _core.Request(
            bytes(writer.path),
            list(paths),
            key,
            ("excludes",),
            ("forgets",),
            True,
            int(YEARS * 1e9),
        )
        asked.send()
        writer.asked.append(asked)

    ask(adopt_key, b"/nowhere/answered.qsb")
    while list((writer.path / "inbox").glob("*.ask")) or not kinds_of_notes(writer.path):
        time.sleep(0.05)
    writer.store.close()
    ask(adopt_key, b"/nowhere/known.qsb")
    ask("adopted never", b"/nowhere/one.qsb", b"/nowhere/two.qsb")


def kinds_of_notes(store: Path) -> set[str]:
    notes = list((store / "inbox").glob("*.own"))
    return {kind for note in notes for kind in kinds_of_file(note)} - {"inbox manifest"}


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
