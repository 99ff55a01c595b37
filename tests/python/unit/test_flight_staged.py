"""Rows whose exchange a stage through Arrow Flight is told: the commit has the store adopt them."""

import datetime
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client, FlightListener
from pyqstore.flight.staging import StagedWriter, Staging

from ..platter import Platter
from ..support import batch_of, rest, wait_until

ROWS = 20_000


def numbers(first: int, count: int) -> pa.Table:
    return pa.table({"body": [b"%d" % number for number in range(first, first + count)]})


def files(path: Path) -> list[Path]:
    return sorted(each for each in (path / "staging").rglob("*") if each.is_file())


def journalled(store: pyqstore.Store) -> int:
    return int(store.stats().to_dict()["bytes_journalled"])


def test_a_commit_of_told_rows_to_a_stream_writes_no_row_again(
    remote: Client, store: pyqstore.Store, path: Path
) -> None:
    stream = store.stream("s")
    second = remote.stage(numbers(ROWS, ROWS), "t", 1, "a", "", "s")
    lost = remote.stage(numbers(0, 1), "t", 0, "a", "", "s")
    first = remote.stage(numbers(0, ROWS), "t", 0, "b", "", "s")
    nothing = remote.stage(numbers(0, 0), "t", 2, "a", "", "s")
    assert (lost.rows, nothing.rows, nothing.bytes) == (1, 0, 0)
    inodes = {each.stat().st_ino for each in files(path)}
    assert {each.suffix for each in files(path)} == {".qsb"}
    before = journalled(store)
    done = remote.commit_staged("t", [nothing, second, first], "", "s", mandatory=True)
    assert (done.committed, done.rows, done.unroutable) == (True, 2 * ROWS, 0)
    assert journalled(store) - before < 64 << 10
    linked = {each.stat().st_ino for each in (path / "streams").rglob("*") if each.is_file()}
    assert len(linked & inodes) == 2
    assert files(path) == []
    assert remote.commit_staged("t", [second, first], "", "s").committed is False
    found = stream.read().read_all()["body"].to_pylist()
    assert found == [b"%d" % number for number in range(2 * ROWS)]


def test_told_rows_arrive_in_a_queue_as_others_do(remote: Client, store: pyqstore.Store) -> None:
    table = pa.table(
        {
            "body": [b"1", b"2"],
            "headers": pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string())),
            "message_id": ["m1", None],
            "routing_key": ["eu.rome", None],
        }
    )
    properties = pyqstore.Properties(content_type="text/plain", delivery_mode=2, priority=3)
    with store.channel() as channel:
        channel.exchange_declare("e", "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "e", "#")
        for number, told in enumerate([("e", "us"), (None, None)]):
            one = remote.stage(
                table, f"t{number}", 0, 1, *told, properties=properties if told[0] else None
            )
            assert (one.route is None) == (told[0] is None)
            remote.commit_staged(f"t{number}", [one], "e", "us", properties=properties)
        one, other = channel.get_batch("q", 2), channel.get_batch("q", 2)
        for name in set(one.schema.names) - {"delivery_tag"}:
            assert one[name].to_pylist() == other[name].to_pylist(), name
        assert one["routing_key"].to_pylist() == ["eu.rome", "us"]


def test_a_wrong_told_row_fails_its_stage_and_leaves_nothing(
    remote: Client, path: Path, queue: str
) -> None:
    good = [batch_of(b"x")] * 30
    wrong = pa.Table.from_batches([*good, pa.record_batch({"body": pa.array([None], pa.binary())})])
    with pytest.raises(ValueError, match=r"^row 30: body is null"):
        remote.stage(wrong, "t", 3, "a", "", queue)
    assert files(path) == []


def test_a_commit_that_names_another_route_than_the_stage_is_refused(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    one = remote.stage(batch_of(b"1"), "t", 4, 1, "", queue)
    for exchange, key, properties in (
        ("e", queue, None),
        ("", "other", None),
        ("", queue, pyqstore.Properties(priority=1)),
    ):
        with pytest.raises(ValueError, match="partition 4 was staged for another exchange"):
            remote.commit_staged("t", [one], exchange, key, properties=properties)
    assert rest(channel, queue) == []
    assert remote.commit_staged("t", [one], "", queue).rows == 1
    assert rest(channel, queue) == [(b"1", False)]


def test_wrong_arguments_of_a_told_stage_are_refused(remote: Client, path: Path) -> None:
    with pytest.raises(TypeError, match="exchange must be str"):
        remote.stage(batch_of(b"1"), "t", 0, 1, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exchange of 256 bytes"):
        remote.stage(batch_of(b"1"), "t", 0, 1, "x" * 256)
    headers = pyqstore.Properties(headers={"n": 5})
    with pytest.raises(ValueError, match="header 'n'"):
        remote.stage(batch_of(b"1"), "t", 0, 1, "", properties=headers)
    assert files(path) == []


@pytest.mark.parametrize("to", ["q", "s"])
def test_told_rows_without_a_queue_are_named_before_anything_is_published(
    remote: Client, store: pyqstore.Store, channel: pyqstore.Channel, to: str
) -> None:
    channel.queue_declare("q", durable=True)
    stream = store.stream("s")
    keys = [to, "nowhere", "nowhere", "far"]
    table = pa.table({"body": [b"1", b"2", b"3", b"4"], "routing_key": keys})
    one = remote.stage(table, "t", 0, 1, "")
    for dry_run in (True, False):
        with pytest.raises(pyqstore.Unroutable, match="take 3 of 4 messages: ") as caught:
            remote.commit_staged("t", [one], mandatory=True, dry_run=dry_run)
        assert caught.value.count == 3
        for key in ("nowhere", "far"):
            assert f"exchange '', routing key '{key}'" in str(caught.value)
    tried = remote.commit_staged("t", [one], dry_run=True)
    assert (tried.committed, tried.rows, tried.unroutable) == (False, 0, 3)
    assert (rest(channel, "q"), stream.next) == ([], 0)
    assert not remote.transaction_known("t")
    done = remote.commit_staged("t", [one])
    assert (done.committed, done.rows, done.unroutable) == (True, 4, 3)
    assert stream.next + len(rest(channel, "q")) == 1


def test_a_dry_run_looks_at_the_headers_of_told_rows(
    remote: Client, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("h", "headers", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "h", "", {"x-match": "all", "k": "yes"})
    headers = pa.array([[("k", "yes")], [("k", "no")]], pa.map_(pa.string(), pa.string()))
    one = remote.stage(pa.table({"body": [b"1", b"2"], "headers": headers}), "t", 0, 1, "h")
    for dry_run in (True, False):
        with pytest.raises(
            pyqstore.Unroutable, match=r"take 1 of 2 messages \(their headers decide"
        ):
            remote.commit_staged("t", [one], "h", mandatory=True, dry_run=dry_run)
    assert remote.commit_staged("t", [one], "h", dry_run=True).unroutable == 1
    assert rest(channel, "q") == []


def test_told_rows_with_a_delay_wait_for_their_time(
    remote: Client, channel: pyqstore.Channel, path: Path
) -> None:
    channel.queue_declare("q", durable=True)
    now = datetime.datetime.now(datetime.UTC)
    due = pa.array([now + datetime.timedelta(hours=1), None], pa.timestamp("us", "UTC"))
    one = remote.stage(pa.table({"body": [b"late", b"now"], "due": due}), "t", 0, 1, "", "q")
    assert (one.route, [each.suffix for each in files(path)]) == (None, [".arrow"])
    assert remote.commit_staged("t", [one], "", "q").rows == 2
    assert rest(channel, "q") == [(b"now", False)]


def test_told_and_other_rows_are_published_in_the_order_of_partitions(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    staged = [
        remote.stage(batch_of(b"%d" % number), "t", number, 1, *((), ("", queue))[number % 2])
        for number in range(4)
    ]
    assert remote.commit_staged("t", staged[::-1], "", queue, dry_run=True).committed is False
    assert remote.commit_staged("t", staged[::-1], "", queue, mandatory=True).rows == 4
    assert [body for body, _ in rest(channel, queue)] == [b"0", b"1", b"2", b"3"]


def test_a_told_file_that_is_damaged_gone_or_another_is_named(
    remote: Client, path: Path, queue: str
) -> None:
    one = remote.stage(batch_of(b"1"), "t", 0, 1, "", queue)
    (file,) = files(path)
    data = file.read_bytes()
    file.write_bytes(data[:-60] + bytes([data[-60] ^ 1]) + data[-59:])
    for change in (lambda: None, lambda: file.write_bytes(data[:-1])):
        change()
        with pytest.raises(pyqstore.StoreCorrupt, match=r"0-1-\w+\.qsb has") as caught:
            remote.commit_staged("t", [one], "", queue)
        assert caught.value.path == f"staging/{file.parent.name}/{file.name}"
    remote.abort_staged("t")
    with pytest.raises(pyqstore.StoreCorrupt, match="is missing"):
        remote.commit_staged("t", [one], "", queue)
    assert not remote.transaction_known("t")


@pytest.mark.parametrize("told", [(), ("", "queue")], ids=["arrow", "blocks"])
@pytest.mark.parametrize("named", [0, 1])
def test_an_attempt_that_is_staged_again_counts_as_the_commit_names_it(
    remote: Client, channel: pyqstore.Channel, path: Path, told: tuple[str, ...], named: int
) -> None:
    channel.queue_declare("queue", durable=True)
    found = [remote.stage(batch_of(body), "t", 0, 1, *told) for body in (b"1", b"2")]
    assert len(files(path)) == 2
    assert remote.commit_staged("t", [found[named]], "", "queue").rows == 1
    assert rest(channel, "queue") == [((b"1", b"2")[named], False)]
    assert files(path) == []


@pytest.mark.parametrize("told", [(), ("", "queue")], ids=["arrow", "blocks"])
def test_an_attempt_that_is_staged_again_while_it_is_committed_does_not_swap_the_rows(
    remote: Client, flight_server: FlightListener, channel: pyqstore.Channel, told: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    channel.queue_declare("queue", durable=True)
    one = remote.stage(batch_of(b"1"), "t", 0, 1, *told)
    check = Staging.path_of

    def late(staging: Staging, *arguments: Any) -> Path:
        path = check(staging, *arguments)
        with pyqstore.connect(flight_server.address) as other:
            other.stage(batch_of(b"2"), "t", 0, 1, *told)
        return path

    monkeypatch.setattr(Staging, "path_of", late)
    assert remote.commit_staged("t", [one], "", "queue").rows == 1
    assert rest(channel, "queue") == [(b"1", False)]


@pytest.mark.parametrize("when", ["rows", "end"])
def test_a_told_stage_says_that_its_transaction_was_swept(
    remote: Client, path: Path, queue: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(20):
            yield batch_of(b"1")
        if when == "rows":
            wait_until(lambda: len(files(path)) == 1)
            shutil.rmtree(path / "staging")

    close = StagedWriter.close

    def late(writer: StagedWriter) -> Any:
        made = close(writer)
        shutil.rmtree(path / "staging")
        return made

    if when == "end":
        monkeypatch.setattr(StagedWriter, "close", late)
    reader = pa.RecordBatchReader.from_batches(batch_of(b"1").schema, batches())
    with pytest.raises(pyqstore.StoreError, match=r"0-2\.qsb"):
        remote.stage(reader, "t", 0, 2, "", queue)


def test_a_power_cut_leaves_told_rows_that_were_staged(
    remote: Client, store: pyqstore.Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platter = Platter(monkeypatch)
    close = StagedWriter.close

    def synced(writer: StagedWriter) -> Any:  # by the engine, under the name it has then
        made = close(writer)
        file = Path(made.path)
        platter.contents[file.stat().st_ino] = file.read_bytes()
        return made

    monkeypatch.setattr(StagedWriter, "close", synced)
    stream = store.stream("s")
    staged = [remote.stage(numbers(2 * one, 2), "t", one, 1, "", "s") for one in range(2)]
    root = path / "staging"
    assert platter.names[path.stat().st_ino][root.name] == root.stat().st_ino
    (root / "flight-half.tmp").write_bytes(b"not synced")
    platter.cut(root)
    assert [each.name for each in files(path)] == [
        f"{one.partition}-1-{one.crc32:08x}.qsb" for one in staged
    ]
    assert remote.commit_staged("t", staged, "", "s").rows == 4
    assert stream.read().read_all()["body"].to_pylist() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("where", "name", "call"),
    [
        (os, "rename", 1),
        (os, "fsync", 1),
        (os, "fsync", 2),
        (os, "fsync", 3),
        (StagedWriter, "write_batch", 2),
        (StagedWriter, "close", 1),
    ],
)
def test_a_full_disk_while_told_rows_are_staged_leaves_nothing_half(
    remote: Client, channel: pyqstore.Channel, path: Path, queue: str, where: Any, name: str,
    call: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    wrapped, calls = getattr(where, name), 0

    def full(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(28, "planted: no space left")
        return wrapped(*arguments)

    table = pa.Table.from_batches([batch_of(b"1"), batch_of(b"2")])
    with monkeypatch.context() as patch:
        patch.setattr(where, name, full)
        with pytest.raises(pyqstore.StoreFull, match="planted") as caught:
            remote.stage(table, "t", 0, 1, "", queue)
    assert caught.value.os_errno == 28
    staged = remote.stage(table, "t", 0, 2, "", queue)
    assert {each.suffix for each in files(path)} == {".qsb"}
    assert remote.commit_staged("t", [staged], "", queue).rows == 2
    assert rest(channel, queue) == [(b"1", False), (b"2", False)]


def test_told_rows_reach_a_store_in_memory() -> None:
    with (
        pyqstore.open(":memory:") as store,
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(server.address) as client,
    ):
        client.queue_declare("q")
        staged = client.stage(batch_of(b"1"), "t", 0, 1, "", "q")
        assert staged.route is None
        assert client.commit_staged("t", [staged], "", "q").rows == 1


def test_what_a_killed_server_had_not_named_goes_when_the_next_one_begins(
    store: pyqstore.Store, path: Path
) -> None:
    with pyqstore.flight.serve(store) as server, pyqstore.connect(server.address) as client:
        one = client.stage(batch_of(b"1"), "t", 0, "a", "", "q")
        (folder,) = (path / "staging").iterdir()
        for name in ("1-a.1.left.part", "1-a.1.left.part.0123456789abcdef.tmp"):
            (folder / name).write_bytes(b"half")
    with pyqstore.flight.serve(store):
        assert [each.name for each in folder.iterdir()] == [f"0-a-{one.crc32:08x}.qsb"]
