"""What is claimed from a queue stays there or in the claim, whatever is done beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
import pyqstore.flight
from pyqstore import claiming
from pyqstore.flight import Client, FlightListener

ROWS, CHUNK_ROWS = 100, 40


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "CHUNK_ROWS", CHUNK_ROWS)


def fill(channel: pyqstore.Channel, queue: str, properties: pyqstore.Properties) -> None:
    rows = pa.table({"body": [b"%d" % number for number in range(ROWS)]})
    channel.publish_batch(rows, "", queue, properties=properties)


def before_second_chunk(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Done when its messages were got, before they are in the claim."""
    numbered, calls = claiming.numbered, []

    def wrapped(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        calls.append(first)
        if len(calls) == 2:
            act()
        return numbered(batch, first)

    monkeypatch.setattr(claiming, "numbered", wrapped)


def claimed_rows(store: pyqstore.Store, name: str) -> list[tuple[int, bytes]]:
    return [
        (row["offset"], row["body"])
        for chunks in store.browse(name)
        for chunk in chunks["body"]
        for rows in claiming.rows_of(chunk)
        for row in rows.to_pylist()
    ]


PERSISTENT = pyqstore.Properties(delivery_mode=2)
ALL = [(number, b"%d" % number) for number in range(ROWS)]


def test_a_claim_that_is_ended_while_it_is_made_loses_no_message(
    store: pyqstore.Store,
    channel: pyqstore.Channel,
    queue: str,
    flight_server: FlightListener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(channel, queue, PERSISTENT)
    seen: list[list[tuple[int, bytes]]] = []
    ended: list[bool] = []

    def end_seen(store: pyqstore.Store, name: str) -> bool:
        seen.append(claimed_rows(store, name))
        return claiming.end_claim(store, name)

    def end() -> None:
        with pyqstore.connect(flight_server.address) as other:
            ended.append(bool(other._link.call("end_claim", name="c")))

    ending = threading.Thread(target=end)

    def end_beside() -> None:
        ending.start()
        ending.join(1)  # it waits for the claim; it must not be over

    monkeypatch.setattr("pyqstore.flight.asking.end_claim", end_seen)
    before_second_chunk(monkeypatch, end_beside)
    with pyqstore.connect(flight_server.address) as client:
        claimed = _claim(client, queue, "c")
    ending.join()
    assert claimed == [ROWS, ROWS, 3]
    assert (ended, seen) == ([True], [ALL])


def _claim(client: Client, queue: str, name: str) -> object:
    return client._link.call("claim", queue=queue, name=name, rows_max=None, done=[])


def test_messages_whose_claim_is_deleted_meanwhile_stay_in_their_queue(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(channel, queue, PERSISTENT)
    before_second_chunk(monkeypatch, lambda: channel.queue_delete("c"))
    with pytest.raises(pyqstore.MessageReturned):
        claiming.claim(store, queue, "c")
    assert store.queue_status(queue).messages_ready == ROWS - CHUNK_ROWS
    assert not store.transaction_known("c")


def test_rows_whose_headers_are_large_are_claimed_in_chunks_that_fit(path: Path) -> None:
    headers = pyqstore.Properties(delivery_mode=2, headers={"large": "x" * 10_000})
    with pyqstore.open(path, body_bytes_max="100KiB") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        fill(channel, "q", headers)
        claimed = claiming.claim(store, "q", "c")
        assert claimed is not None
        assert (claimed.taken, claimed.rows) == (ROWS, ROWS)
        assert claimed.chunks > 10
        assert claimed_rows(store, "c") == ALL
        assert claiming.claim(store, "q", "c") == (0, *claimed[1:])
        assert claiming.release(store, "q", "c") == ROWS
        assert store.queue_status("q").messages_ready == ROWS


def test_empty_claims_of_other_queues_are_not_released(
    store: pyqstore.Store, channel: pyqstore.Channel, queue: str
) -> None:
    channel.queue_declare("other", durable=True)
    assert claiming.claim(store, "other", "c-1") == (0, 0, 0)
    fill(channel, queue, PERSISTENT)
    claiming.claim(store, queue, "c-2")
    assert claiming.release(store, queue, "c-") == ROWS
    assert claiming.claim(store, "other", "c-1") == (0, 0, 0)
    assert claiming.claim(store, queue, "c-2") is None
