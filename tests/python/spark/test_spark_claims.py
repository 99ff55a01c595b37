"""What a batch claims from a queue: once, whatever is killed; asked again, the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import claiming
from spark_udfs import claims, release_claims, spool
from spark_udfs.claims import QueueBatch
from spark_udfs.options import ReadOptions
from spark_udfs.reading import SourceError

from ..support import get
from .planting import PLANTING

ROWS = 5000
SCHEMA = pa.schema([("offset", pa.int64()), ("body", pa.binary()), ("routing_key", pa.string())])

# Calls a function here after planting a kill before or after another.
_CHILD = f"""{PLANTING}
from pyqstore import Channel, Store, claiming
from spark_udfs import claims, options

path, call, planted = json.loads(sys.argv[1])
exec(planted)
claiming.CHUNK_ROWS, claims.PART_CHUNKS = 1000, 2
asked = options.ReadOptions.parse({{"path": path, "queue": "all"}}, streaming=True)
batch = claims.QueueBatch(path, "q", 1)
exec(call)
"""
_TAKE = "claims.take(asked, batch, rows_max=4500)"
_END = "claims.end(asked, batch)"
_RELEASE = "claims.release_claims(path, 'all')"
_TAKING = {
    "declared": ("after(Channel, 'queue_declare')", 0),
    "taken": ("after(Channel, 'get_batch')", 0),
    "chunk": ("after(Channel, 'publish_batch')", 0),
    "acked": ("after(Channel, 'basic_ack')", 0),
    "one chunk": ("after(Channel, 'tx_commit')", 1000),
    "two chunks": ("after(Channel, 'tx_commit', 2)", 2000),
    "all chunks": ("after(Channel, 'tx_commit', 5)", 4500),
    "whole": ("after(Channel, 'tx_commit', 6)", 4500),
    "closed": ("after(Store, 'close')", 4500),
}


def killed(disk: Any, call: str, planted: str) -> None:
    told = json.dumps([str(disk.path), call, planted])
    child = subprocess.run([sys.executable, "-P", "-c", _CHILD, told], check=False)
    assert child.returncode == -9


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "CHUNK_ROWS", 1000)
    monkeypatch.setattr(claims, "PART_CHUNKS", 2)


def asked(disk: Any, ack: str = "claim") -> ReadOptions:
    given = {"path": str(disk.path), "queue": "all", "ack": ack}
    return ReadOptions.parse(given, streaming=True)


def batch_of_query(disk: Any, number: int = 1) -> QueueBatch:
    return QueueBatch(str(disk.path), "q", number)


def numbers(disk: Any, taken: claims.Taken, batch: QueueBatch | None = None) -> list[int]:
    """The bodies, whose offsets count from 0."""
    parts = [claims.read_chunks(asked(disk), part, SCHEMA) for part in taken.chunks]
    at = (batch or batch_of_query(disk)).spool
    parts += [spool.read_file(at, file, SCHEMA) for file in taken.files]
    rows = [row for part in parts for rows in part for row in rows.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert {row["routing_key"] for row in rows} <= {"n.0", "n.1"}
    return [int(row["body"]) for row in rows]


def take(disk: Any, number: int = 1, ack: str = "claim", most: int | None = None) -> claims.Taken:
    return claims.take(asked(disk, ack), batch_of_query(disk, number), rows_max=most)


def queues(disk: Any) -> list[str]:
    with pyqstore.open(disk.path, read_only=True) as store:
        return sorted(store.queues())


def test_what_is_claimed_is_told_again_and_no_other_consumer_gets_it(disk: Any) -> None:
    disk.publish(range(ROWS))
    first = take(disk, most=2500)
    assert [(part.first, part.count) for part in first.chunks] == [(0, 2), (2, 1)]
    assert first.rows == 2500
    assert disk.numbers() == list(range(2500, ROWS))
    disk.publish(range(ROWS, ROWS + 10))
    again = take(disk, most=2500)
    assert (again.rows, again.chunks) == (0, first.chunks)
    assert numbers(disk, again) == list(range(2500))
    assert disk.ready() == 10
    assert disk.staged == []


def test_a_batch_that_is_done_leaves_neither_claim_nor_more_than_one_key(disk: Any) -> None:
    disk.publish(range(100))
    for number in range(1, 4):
        assert take(disk, number, most=10).rows == 10
        if number == 2:
            claims.end(asked(disk), batch_of_query(disk, number))
            claims.end(asked(disk), batch_of_query(disk, number))
    assert [disk.knows(batch_of_query(disk, number).claim) for number in (1, 2, 3)] == [
        False,
        False,
        True,
    ]
    assert queues(disk) == ["all", "odd", "spark-claim-q-3"]
    claims.end(asked(disk), batch_of_query(disk, 3))
    assert queues(disk) == ["all", "odd"]
    assert disk.ready() == 70


def test_an_empty_batch_stays_empty(disk: Any) -> None:
    assert take(disk).chunks == ()
    disk.publish(range(10))
    assert take(disk).chunks == ()
    assert take(disk, 2).rows == 10


@pytest.mark.parametrize(("first", "then"), [("take", "claim"), ("claim", "take")])
def test_a_batch_is_told_as_it_was_consumed_when_the_option_ack_changed_since(
    disk: Any, first: str, then: str
) -> None:
    disk.publish(range(100))
    taken = take(disk, 1, first, most=60)
    again = take(disk, 1, then, most=60)
    assert again == claims.Taken(0, taken.chunks, taken.files)
    assert numbers(disk, again) == list(range(60))
    claims.end(asked(disk, then), batch_of_query(disk))
    second = take(disk, 2, then)
    assert numbers(disk, second, batch_of_query(disk, 2)) == list(range(60, 100))
    claims.end(asked(disk, first), batch_of_query(disk, 2))
    assert queues(disk) == ["all", "odd"]
    assert disk.staged == []


def test_what_redelivery_and_properties_say_is_claimed_with_the_rows(disk: Any) -> None:
    properties = pyqstore.Properties(
        delivery_mode=2, headers={"a": 1}, expiration="60000", priority=3, message_id="m"
    )
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.basic_publish("events", "n.0", b"body", properties)
        message = get(channel, "all")
        message.nack()
        (plain,) = (batch.to_pylist()[0] for batch in store.browse("all"))
    wanted = pa.schema(
        [
            ("exchange", pa.string()),
            ("headers", pa.map_(pa.string(), pa.string())),
            ("expiration_ms", pa.int64()),
            ("priority", pa.int16()),
            ("message_id", pa.string()),
            ("redelivered", pa.bool_()),
        ]
    )
    (part,) = take(disk).chunks
    ((row,),) = (rows.to_pylist() for rows in claims.read_chunks(asked(disk), part, wanted))
    assert row == {name: plain[name] for name in wanted.names}
    assert row["redelivered"]


def declare(disk: Any, **limits: Any) -> None:
    """The queue "all" anew, with a queue for its dead letters."""
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.queue_delete("all")
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("all", durable=True, arguments={**letters, **limits})


def publish(disk: Any, number: int, **properties: Any) -> None:
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        kept = pyqstore.Properties(delivery_mode=2, **properties)
        channel.basic_publish("", "all", str(number).encode(), kept)


def await_dead(disk: Any, count: int) -> None:
    with pyqstore.open(disk.path) as store:
        while store.queue_status("dead").messages_ready != count:
            time.sleep(0.01)


def bodies(disk: Any, number: int, most: int | None = None) -> list[int]:
    """Of a claimed batch."""
    schema, found = pa.schema([("body", pa.binary())]), []
    for part in take(disk, number, most=most).chunks:
        for rows in claims.read_chunks(asked(disk), part, schema):
            found += [int(body) for body in rows["body"].to_pylist()]
    return found


def test_what_has_the_highest_priority_is_claimed_first(disk: Any) -> None:
    declare(disk, **{"x-max-priority": 3})
    for number in range(9):
        publish(disk, number, priority=number % 3)
    assert bodies(disk, 1, most=4) == [2, 5, 8, 1]
    publish(disk, 9, priority=3)
    assert bodies(disk, 2, most=4) == [9, 4, 7, 0]
    assert release_claims(disk.path, "all") == 4  # the first batch was done
    assert bodies(disk, 3) == [9, 4, 7, 3, 6, 0]


def test_what_expired_is_a_dead_letter_and_what_is_claimed_expires_no_more(disk: Any) -> None:
    declare(disk)
    for number in range(4):
        publish(disk, number, expiration="1" if number % 2 else "3600000")
    await_dead(disk, 2)
    assert bodies(disk, 1) == [0, 2]
    with pyqstore.open(disk.path, read_only=True) as store:
        (chunk,) = (row for rows in store.browse("spark-claim-q-1") for row in rows.to_pylist())
        assert chunk["expiration_ms"] is None
    assert release_claims(disk.path, "all") == 2
    assert [(row["body"], row["expiration_ms"]) for row in disk.take()] == [
        (b"0", 3_600_000),
        (b"2", 3_600_000),
    ]
    letters = disk.take("dead")
    assert [(row["body"], dict(row["headers"])["x-first-death-reason"]) for row in letters] == [
        (b"1", "expired"),
        (b"3", "expired"),
    ]


@pytest.mark.crash
def test_what_is_claimed_too_often_by_who_is_killed_is_a_dead_letter(disk: Any) -> None:
    declare(disk, **{"x-delivery-limit": 1})
    for number in range(3):
        publish(disk, number)
    for _ in range(2):
        killed(disk, _TAKE, _TAKING["taken"][0])
    assert bodies(disk, 1) == []
    await_dead(disk, 3)
    reasons = [dict(row["headers"])["x-first-death-reason"] for row in disk.take("dead")]
    assert reasons == ["delivery_limit"] * 3


@pytest.mark.crash
@pytest.mark.parametrize("moment", _TAKING)
def test_killed_while_it_claims_each_message_is_claimed_once(disk: Any, moment: str) -> None:
    disk.publish(range(ROWS))
    planted, claimed = _TAKING[moment]
    killed(disk, _TAKE, planted)
    assert disk.ready() == ROWS - claimed
    assert disk.knows("spark-claim-q-1") is (moment in ("whole", "closed"))
    taken = take(disk, most=4500)
    assert taken.rows == 4500 - claimed
    assert numbers(disk, taken) == list(range(4500))
    assert disk.numbers() == list(range(4500, ROWS))


@pytest.mark.crash
@pytest.mark.parametrize(
    "planted", ["before(Channel, 'queue_delete')", "after(Channel, 'queue_delete')"]
)
def test_killed_while_a_batch_ends_the_next_one_ends_it(disk: Any, planted: str) -> None:
    disk.publish(range(100))
    take(disk)
    killed(disk, _END, planted)
    take(disk, 2)
    assert queues(disk) == ["all", "odd", "spark-claim-q-2"]


def test_a_claim_that_is_released_goes_back_to_its_queue_and_its_batch_fails(disk: Any) -> None:
    disk.publish(range(ROWS))
    take(disk, most=2500)
    claims.take(
        ReadOptions.parse({"path": str(disk.path), "queue": "odd"}, streaming=True),
        QueueBatch(str(disk.path), "other", 1),
        rows_max=None,
    )
    with pytest.raises(pyqstore.NotFound, match="'al'"):
        release_claims(disk.path, "al")
    assert release_claims(disk.path, "all") == 2500
    assert release_claims(disk.path, "all") == 0
    assert disk.numbers() == [*range(2500, ROWS), *range(2500)]
    with pytest.raises(SourceError, match="it was released"):
        take(disk, most=2500)
    assert queues(disk) == ["all", "odd", "spark-claim-other-1"]
    assert release_claims(disk.path, "odd") == ROWS // 2
    with pyqstore.open(disk.path) as store:
        # Those by which the two queries are told.
        assert all(store.transaction_known(f"spark-claim-{name}-1") for name in ("q", "other"))
        assert store.forget_transaction(older_than=0) == 2


@pytest.mark.crash
def test_a_claim_that_was_not_whole_when_it_was_released_is_made_anew(disk: Any) -> None:
    disk.publish(range(ROWS))
    killed(disk, _TAKE, _TAKING["two chunks"][0])
    assert release_claims(disk.path, "all") == 2000
    with pyqstore.open(disk.path) as store:
        assert store.forget_transaction(older_than=0) == 0
    assert take(disk).rows == ROWS
    assert release_claims(disk.path, "all") == ROWS
    assert disk.numbers() == [*range(2000, ROWS), *range(2000)]


def test_what_is_released_keeps_its_properties_but_copies_and_survives(disk: Any) -> None:
    properties = pyqstore.Properties(
        delivery_mode=2, headers={"a": "b", "CC": ["x"]}, priority=3, message_id="m"
    )
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.basic_publish("events", "n.0", b"body", properties)
    take(disk)
    assert release_claims(disk.path, "all") == 1
    (row,) = disk.take()
    assert (row["exchange"], row["routing_key"], row["body"]) == ("", "all", b"body")
    assert (row["headers"], row["priority"], row["message_id"]) == ([("a", "b")], 3, "m")
    assert row["delivery_mode"] == 2


@pytest.mark.crash
@pytest.mark.parametrize(
    "planted",
    [
        "after(Channel, 'tx_commit')",
        "after(Channel, 'publish_batch', 2)",
        "after(Channel, 'tx_commit', 3)",
        "before(Channel, 'queue_delete')",
        "after(Channel, 'queue_delete')",
    ],
)
def test_killed_while_it_releases_nothing_is_lost_or_doubled(disk: Any, planted: str) -> None:
    disk.publish(range(ROWS))
    take(disk)
    killed(disk, _RELEASE, planted)
    with pytest.raises(SourceError, match="it was released"):
        take(disk)
    release_claims(disk.path, "all")
    assert disk.numbers() == list(range(ROWS))
    assert queues(disk) == ["all", "odd"]


def test_a_claim_that_a_full_queue_refuses_stays_claimed(disk: Any) -> None:
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        limits = {"x-max-length": 10, "x-overflow": "reject-publish"}
        channel.queue_declare("few", durable=True, arguments=limits)
        for number in range(10):
            properties = pyqstore.Properties(delivery_mode=2)
            channel.basic_publish("", "few", str(number).encode(), properties)
    options = ReadOptions.parse({"path": str(disk.path), "queue": "few"}, streaming=True)
    claims.take(options, batch_of_query(disk), rows_max=None)
    with pyqstore.open(disk.path) as store, store.channel() as channel:
        channel.basic_publish("", "few", b"10", pyqstore.Properties(delivery_mode=2))
    with pytest.raises(pyqstore.PreconditionFailed):
        release_claims(disk.path, "few")
    assert disk.numbers("few") == [10]
    assert release_claims(disk.path, "few") == 10
    assert disk.numbers("few") == list(range(10))
