"""Calls through Arrow Flight that fail: what is said of them, and what was done by then."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client
from pyqstore.flight.sending import pieces

from ..serving import served

ROWS = 1000
CHUNKS = 20


def wrong_at_the_end() -> pa.Table:
    """Rows that are good but for the last, in messages of their own."""
    good = [pa.record_batch({"body": [b"x"] * ROWS})] * CHUNKS
    return pa.Table.from_batches([*good, pa.record_batch({"body": pa.array([b"x", None])})])


def failing(data: pa.Table) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from data.to_batches()[:-1]
        raise KeyError("mine")

    return pa.RecordBatchReader.from_batches(data.schema, batches())


@pytest.mark.parametrize("data_of", [lambda table: table, failing], ids=["row", "reader"])
@pytest.mark.parametrize("window", [1, 3, 8, 100])
def test_the_note_of_a_failed_publish_counts_all_that_is_in_the_queue(
    remote: Client, queue: str, data_of: Callable[[pa.Table], object], window: int
) -> None:
    with pytest.raises((ValueError, KeyError)) as caught:
        remote.publish_batch(data_of(wrong_at_the_end()), "", queue, window=window)
    (note,) = caught.value.__notes__
    assert note == f"publish_batch: {ROWS * CHUNKS} rows had been confirmed"
    assert remote.queue_status(queue).messages_ready == ROWS * CHUNKS


def test_the_note_counts_what_a_server_confirms_while_it_ends(
    store: pyqstore.Store, queue: str
) -> None:
    with pyqstore.flight.serve(store) as server, pyqstore.connect(server.address) as client:

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(100):
                if number == 20:
                    server._service.closing.set()
                yield pa.record_batch({"body": [b"x"] * ROWS})

        schema = pa.schema([("body", pa.binary())])
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        with pytest.raises(pyqstore.ConnectionLost, match="the server ends") as caught:
            client.publish_batch(reader, "", queue)
        found = store.queue_status(queue).messages_ready
        (note,) = caught.value.__notes__
        assert note == f"publish_batch: {found} rows had been confirmed"


def test_a_wrong_row_is_named_by_its_place_in_the_data(remote: Client, queue: str) -> None:
    with pytest.raises(ValueError, match=rf"^row {ROWS * CHUNKS + 1}: body is null"):
        remote.publish_batch(wrong_at_the_end(), "", queue)
    with pytest.raises(ValueError, match=rf"^row {ROWS * CHUNKS + 1}: body is null"):
        remote.stream("s").publish_batch(wrong_at_the_end())


def test_a_wrong_staged_row_is_named_with_its_partition_and_attempt(
    remote: Client, queue: str
) -> None:
    staged = remote.stage(wrong_at_the_end(), "t", 3, "a2")
    with pytest.raises(
        ValueError, match=rf"^partition 3, attempt a2, row {ROWS * CHUNKS + 1}: body is null"
    ):
        remote.commit_staged("t", [staged], "", queue)
    assert remote.queue_status(queue).messages_ready == 0


@pytest.mark.parametrize("end", [os._exit, sys.exit])
def test_a_forked_child_is_told_and_ends_and_the_parent_goes_on(
    path: Path, end: Callable[[int], None]
) -> None:
    code = """
import os, signal, sys
import pyarrow as pa
import pyqstore
signal.alarm(60)
client = pyqstore.connect(sys.argv[1])
client.queue_declare("q")
client.publish_batch(pa.table({"body": [b"1"]}), "", "q")
tag = client.get_batch("q")["delivery_tag"][0].as_py()
stream = client.stream("s")
stream.publish_batch(pa.table({"body": [b"1"]}))
reader = stream.read(follow=True)
reader.read_next_batch()
child = os.fork()
if child == 0:
    signal.alarm(20)
    for verb in (client.queues, lambda: client.get_batch("q"), reader.read_next_batch):
        try:
            verb()
        except pyqstore.ForkedStore:
            pass
        else:
            os._exit(1)
    client.close()
    {"_exit": os._exit, "exit": sys.exit}[sys.argv[2]](7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert client.queues() == ["q", "s"]
client.ack(tag)
client.close()
"""
    with served(path, "--flight", "127.0.0.1:0") as server:
        command = [sys.executable, "-c", code, server.addresses()["flight"], end.__name__]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr


def test_connecting_takes_no_longer_than_it_may_when_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"127.0.0.1:{mute.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(pyqstore.ConnectionLost, match=r"answered within 0\.5 s"):
            pyqstore.connect(url, timeout=0.5)
        assert time.monotonic() - begin < 60


def test_an_unknown_authority_is_told_at_once(
    store: pyqstore.Store, certificates: Path, tmp_path: Path
) -> None:
    cert, key = certificates / "server.pem", certificates / "server.key"
    with pyqstore.flight.serve(store, tls_cert=cert, tls_key=key) as server:
        url = f"grpc+tls://{server.address}"
        begin = time.monotonic()
        with pytest.raises(pyqstore.ConnectionLost, match=r"(?i)handshake|certificate"):
            pyqstore.connect(url, tls_ca=certificates / "client.pem", timeout=300)
        assert time.monotonic() - begin < 100
        with pytest.raises(ValueError, match="has no certificate"):
            pyqstore.connect(url, tls_ca=certificates / "ca.key")


@pytest.mark.parametrize("token", ["a\n", "ü", "x" * 20_000])
def test_a_token_that_makes_no_header_is_a_value_error(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        pyqstore.connect("127.0.0.1:1", token=token)


def test_stage_takes_whole_partitions_and_names_that_can_be_committed(
    remote: Client, queue: str
) -> None:
    rows = pa.table({"body": [b"1"]})
    for partition in (1.2, True, "1", None):
        with pytest.raises(TypeError):
            remote.stage(rows, "t", partition, 1)  # type: ignore[arg-type]
    for attempt in (True, None, 1.5):
        with pytest.raises(TypeError, match="attempt"):
            remote.stage(rows, "t", 1, attempt)  # type: ignore[arg-type]
    for name in ("", "x" * 1025):
        with pytest.raises(ValueError, match="1 to 1024 bytes"):
            remote.stage(rows, name, 1, 1)
    staged = [remote.stage(rows, "x" * 1024, 1, 1)]
    with pytest.raises(ValueError, match="key must not be empty"):
        remote.commit_staged("x" * 1024, staged, "", queue, key="")
    with pytest.raises(TypeError, match="forgets"):
        remote.commit_staged("x" * 1024, staged, "", queue, forgets="f2")
    assert remote.commit_staged("x" * 1024, staged, "", queue).rows == 1


def test_a_stage_says_that_the_disk_is_full_or_its_transaction_aborted(
    remote: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "planted: no space left")

    rows = pa.table({"body": [b"1"]})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(pyqstore.StoreFull, match="no space left") as caught:
            remote.stage(rows, "t", 0, 1)
    assert caught.value.os_errno == 28

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(20):
            yield rows.to_batches()[0]
        shutil.rmtree(path / "staging")

    reader = pa.RecordBatchReader.from_batches(rows.schema, batches())
    with pytest.raises(pyqstore.StoreCorrupt, match="was removed while it was staged"):
        remote.stage(reader, "t", 0, 2)


def test_a_large_dictionary_travels_with_the_rows_that_use_it_alone(
    remote: Client, queue: str
) -> None:
    names = [queue] + [f"k{number:050d}" for number in range(200_000)]
    keys = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(names))
    batch = pa.record_batch({"body": [b"x"] * 2000, "routing_key": keys})
    (piece,) = pieces(batch)
    assert piece["routing_key"].dictionary.to_pylist() == [queue]
    assert piece.schema == batch.schema
    assert remote.publish_batch(batch).count == 2000
    assert remote.queue_status(queue).messages_ready == 2000


def test_a_batch_of_many_entries_of_a_large_dictionary_is_cut() -> None:
    values = pa.array([f"{number:0100d}" for number in range(200_000)])
    codes = pa.array([*range(200_000), None], pa.int32())
    column = pa.DictionaryArray.from_arrays(codes, values)
    parts = list(pieces(pa.record_batch({"routing_key": column})))
    assert 2 < len(parts) < 20
    assert max(part.nbytes for part in parts) <= 8 << 20
    found = [value for part in parts for value in part["routing_key"].to_pylist()]
    assert found == [*values.to_pylist(), None]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda client: client.stream("s").read(1.5), "float"),
        (lambda client: client.queue_status(b"q"), "name must be str, not bytes"),
        (lambda client: client.get_batch(b"q"), "queue must be str, not bytes"),
        (lambda client: client.get_batch("q", max_bytes="1MiB"), "str"),
        (lambda client: client.get_batch("q", "x"), "str"),
        (lambda client: client.publish_batch(pa.table({"body": [b""]}), window="x"), "str"),
    ],
)
def test_an_argument_of_a_wrong_type_is_a_type_error(
    remote: Client, call: Callable[[Client], object], words: str
) -> None:
    remote.queue_declare("q")
    with pytest.raises(TypeError, match=words):
        call(remote)


def test_an_unknown_argument_warns_who_declares(remote: Client) -> None:
    with pytest.warns(pyqstore.UnknownArgument, match="x-max-lenght") as caught:
        remote.queue_declare("q", arguments={"x-max-lenght": 5})
    assert [warning.filename for warning in caught] == [__file__]


def put_nothing(other: flight.FlightClient, descriptor: flight.FlightDescriptor) -> None:
    writer, answers = other.do_put(descriptor, pa.schema([("body", pa.binary())]))
    answers.read()
    writer.close()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ({"do": "stage", "transaction": "t", "attempt": "a"}, "stage needs partition"),
        ({"do": "stage", "transaction": {}, "partition": 1, "attempt": "a"}, "expected str"),
        ({"do": "publish", "window": 0}, "window must be 1 or more"),
        ({"do": "publish", "window": "8"}, "window must be 1 or more"),
        ({"do": "nothing"}, "no such descriptor"),
    ],
)
def test_another_client_is_told_in_the_status_what_is_wrong(
    remote: Client, command: dict[str, object], words: str
) -> None:
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    with flight.FlightClient(remote.url) as other:
        with pytest.raises((flight.FlightError, pa.ArrowException), match=words):
            put_nothing(other, descriptor)
        with pytest.raises((flight.FlightError, pa.ArrowException), match="no such action"):
            list(other.do_action(flight.Action("nothing", b"")))


def test_a_url_with_credentials_is_refused_without_repeating_them() -> None:
    with pytest.raises(ValueError, match="user and password") as caught:
        pyqstore.connect("grpc://bob:secret@127.0.0.1:1")
    assert "secret" not in str(caught.value)


def test_what_a_killed_server_was_writing_goes_when_the_next_one_begins(
    store: pyqstore.Store, path: Path
) -> None:
    with pyqstore.flight.serve(store) as server, pyqstore.connect(server.address) as client:
        staged = client.stage(pa.table({"body": [b"1"]}), "t", 0, "a")
        (folder,) = (path / "staging").iterdir()
        (folder / "1-a.1.left.tmp").write_bytes(b"half")
        mine = folder / f"2-a.{os.getpid()}.mine.tmp"
        mine.write_bytes(b"of a listener beside")
    with pyqstore.flight.serve(store):
        left = [f"0-a-{staged.crc32:08x}.arrow", mine.name]
        assert sorted(each.name for each in folder.iterdir()) == left
