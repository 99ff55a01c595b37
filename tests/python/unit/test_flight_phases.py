"""Rows staged through Arrow Flight, and the commit that publishes them."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client, FlightListener

from ..platter import Platter
from ..support import batch_of, rest


def test_a_commit_publishes_the_named_attempts_in_the_order_of_partitions(
    remote: Client, channel: pyqstore.Channel, path: Path, queue: str
) -> None:
    remote.stage(batch_of(b"lost"), "t", 0, 1)
    second = remote.stage(batch_of(b"3", b"4"), "t", 1, "b7")
    first = remote.stage(batch_of(b"1", b"2"), "t", 0, 2)
    nothing = remote.stage(pa.table({"body": pa.array([], pa.binary())}), "t", 2, 0)
    assert remote.queue_status(queue).messages_ready == 0
    done = remote.commit_staged("t", [second, nothing, first], "", queue)
    assert (done.committed, done.rows, done.unroutable) == (True, 4, 0)
    again = remote.commit_staged("t", [second, nothing, first], "", queue)
    assert (again.committed, again.rows) == (False, 0)
    assert remote.transaction_known("t")
    assert [body for body, _ in rest(channel, queue)] == [b"1", b"2", b"3", b"4"]
    assert list((path / "staging").rglob("*.arrow")) == []


def test_a_commit_survives_a_restart_of_the_server(path: Path) -> None:
    with (
        pyqstore.open(path) as store,
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(server.address) as client,
    ):
        client.queue_declare("q", durable=True)
        staged = client.stage(batch_of(b"1"), "t", 0, 1)
    with (
        pyqstore.open(path) as store,
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(server.address) as client,
    ):
        assert client.commit_staged("t", [staged], "", "q", key="k").rows == 1
        assert (client.transaction_known("k"), client.transaction_known("t")) == (True, False)
        assert client.forget_transaction("k") == 1


def test_a_mandatory_commit_without_a_queue_publishes_nothing(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    table = pa.table({"body": [b"1", b"2"], "routing_key": [queue, "nowhere"]})
    staged = remote.stage(table, "t", 0, 1)
    with pytest.raises(pyqstore.MessageReturned) as caught:
        remote.commit_staged("t", [staged], mandatory=True)
    assert caught.value.count == 1
    assert rest(channel, queue) == []
    done = remote.commit_staged("t", [staged])
    assert (done.committed, done.rows, done.unroutable) == (True, 2, 1)


def test_a_wrong_staged_row_publishes_nothing(
    remote: Client, channel: pyqstore.Channel, queue: str
) -> None:
    good = remote.stage(batch_of(b"1"), "t", 0, 1)
    bad = remote.stage(pa.table({"body": pa.array([b"1", None], pa.binary())}), "t", 1, 1)
    with pytest.raises(ValueError, match="row 1"):
        remote.commit_staged("t", [good, bad], "", queue)
    with pytest.raises(ValueError, match="two attempts"):
        remote.commit_staged("t", [good, good], "", queue)
    assert rest(channel, queue) == []


def test_a_staged_file_that_is_damaged_or_gone_is_named(
    remote: Client, path: Path, queue: str
) -> None:
    staged = remote.stage(batch_of(b"1"), "t", 0, 1)
    (file,) = (path / "staging").rglob("*.arrow")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(pyqstore.StoreCorrupt, match=r"0-1-\w+\.arrow has") as caught:
        remote.commit_staged("t", [staged], "", queue)
    assert caught.value.path == f"staging/{file.parent.name}/{file.name}"
    remote.abort_staged("t")
    with pytest.raises(pyqstore.StoreCorrupt, match="is missing"):
        remote.commit_staged("t", [staged], "", queue)
    assert not remote.transaction_known("t")


@pytest.mark.parametrize("attempt", ["", "../../x", "a b", "x" * 65])
def test_an_attempt_that_makes_no_file_name_is_refused(remote: Client, attempt: str) -> None:
    with pytest.raises(ValueError, match="A-Z, a-z and 0-9"):
        remote.stage(batch_of(b"1"), "t", 0, attempt)


def test_a_half_close_without_the_end_stages_nothing(
    flight_server: FlightListener, remote: Client, path: Path
) -> None:
    caller = flight.FlightClient(f"grpc://{flight_server.address}")
    command = b'{"do": "stage", "transaction": "t", "partition": 0, "attempt": "1"}'
    batch = batch_of(b"1")
    writer, answers = caller.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    assert json.loads(answers.read().to_pybytes()) == {"rows": 1}
    assert answers.read() is None  # gRPC calls that a success
    writer.close()
    caller.close()
    assert [entry for entry in (path / "staging").rglob("*") if entry.is_file()] == []


def test_what_nobody_commits_is_swept_when_it_is_old(
    remote: Client, flight_server: FlightListener, store: pyqstore.Store, path: Path
) -> None:
    remote.stage(batch_of(b"1"), "old", 0, 1)
    (folder,) = (path / "staging").iterdir()
    old = time.time() - 8 * 24 * 3600
    os.utime(folder, (old, old))
    remote.stage(batch_of(b"1"), "new", 0, 1)
    with pyqstore.flight.serve(store):
        assert not folder.exists()
        assert len(list((path / "staging").iterdir())) == 1


def test_a_power_cut_leaves_what_was_staged_and_nothing_of_what_was_not(
    remote: Client, channel: pyqstore.Channel, path: Path, queue: str, monkeypatch: Any
) -> None:
    platter = Platter(monkeypatch)
    first = remote.stage(batch_of(b"1", b"2"), "t", 0, 1)
    second = remote.stage(batch_of(b"3"), "t", 1, 1)
    root = path / "staging"
    assert platter.names[path.stat().st_ino][root.name] == root.stat().st_ino
    (root / "flight-half.tmp").write_bytes(b"not synced")
    platter.cut(root)
    assert not (root / "flight-half.tmp").exists()
    assert remote.commit_staged("t", [first, second], "", queue).rows == 3
    assert [body for body, _ in rest(channel, queue)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("name", ["fsync", "rename"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_full_disk_while_rows_are_staged_leaves_nothing_half(
    remote: Client, channel: pyqstore.Channel, path: Path, queue: str, name: str, call: int,
    monkeypatch: Any,
) -> None:  # fmt: skip
    wrapped, calls = getattr(os, name), 0

    def full(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(28, "planted: no space left")
        return wrapped(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with suppress(pyqstore.StoreFull):
            remote.stage(batch_of(b"1"), "t", 0, 1)
    staged = remote.stage(batch_of(b"1"), "t", 0, 2)
    assert list((path / "staging").rglob("*.tmp")) == []
    assert remote.commit_staged("t", [staged], "", queue).rows == 1
    assert rest(channel, queue) == [(b"1", False)]


def test_a_store_in_memory_stages_beside_it() -> None:
    with (
        pyqstore.open(":memory:") as store,
        pyqstore.flight.serve(store) as server,
        pyqstore.connect(server.address) as client,
    ):
        client.queue_declare("q")
        staged = client.stage(batch_of(b"1"), "t", 0, 1)
        assert client.commit_staged("t", [staged], "", "q").rows == 1
