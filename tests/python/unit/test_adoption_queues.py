"""Rows that a store adopts into queues are what the same rows would be if they were published."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

COUNT = 3000
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mortal": {"x-message-ttl": 3_600_000},
    "short": {"x-max-length": 100},
    "small": {"x-max-length-bytes": 5000},
    "urgent": {"x-max-priority": 5},
}
SAME = [
    pyqstore.Properties(),
    pyqstore.Properties(delivery_mode=1),
    pyqstore.Properties(
        app_id="app",
        content_type="text/plain",
        delivery_mode=2,
        expiration="7200000",
        headers={"h": "v", "w": "x"},
        priority=3,
        timestamp=1_700_000_000,
        type="t",
    ),
]


def plain(count: int, keys: list[str]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "body": pa.array([b"body %d" % number for number in range(count)], pa.binary()),
            "routing_key": pa.array([keys[number % len(keys)] for number in range(count)]),
        }
    )


def declare(store: pyqstore.Store) -> list[str]:
    with store.channel() as channel:
        for name, arguments in KINDS.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
    return list(KINDS)


def adopt(
    store: pyqstore.Store,
    stage: Path,
    batches: list[pa.RecordBatch],
    properties: pyqstore.Properties | None,
) -> None:
    stage.mkdir(mode=0o700)
    with pyqstore.StagedWriter(stage / "0.qsb", properties=properties) as writer:
        for batch in batches:
            writer.write_batch(batch)
    rows = sum(len(batch) for batch in batches)
    assert store.adopt(stage, "key") == pyqstore.Adoption(True, rows, 0, 1, 0)


def publish(
    store: pyqstore.Store, batches: list[pa.RecordBatch], properties: pyqstore.Properties | None
) -> None:
    with store.channel() as channel:
        channel.tx_select()
        for batch in batches:
            channel.publish_batch(batch, properties=properties)
        channel.tx_commit(key="key")


def held(store: pyqstore.Store) -> dict[str, list[dict[str, Any]]]:
    """Return what each queue has, which stays there."""
    with store.channel() as channel:
        found = {}
        for name in KINDS:
            rows: list[dict[str, Any]] = []
            while len(batch := channel.get_batch(name, 1000)):
                rows += batch.drop_columns(["delivery_tag", "redelivered"]).to_pylist()
            found[name] = rows
        return found


@pytest.mark.parametrize("properties", SAME, ids=["none", "transient", "many"])
def test_adopted_rows_do_not_take_more_than_published_ones(
    tmp_path: Path, properties: pyqstore.Properties
) -> None:
    taken = []
    for name in ("published", "adopted"):
        with pyqstore.open(tmp_path / name) as store:
            batches = [plain(COUNT, declare(store))] * 2
            before = store.stats().appended_lsn
            if name == "adopted":
                adopt(store, tmp_path / "stage", batches, properties)
            else:
                publish(store, batches, properties)
            taken.append((store.stats().appended_lsn - before, store.stats().ram_bytes))
    (published, memory), (adopted, adopted_memory) = taken
    assert adopted <= published
    assert adopted_memory <= memory


def test_a_column_of_nulls_for_expirations_takes_no_more_than_none(tmp_path: Path) -> None:
    taken = []
    for has_column in (False, True):
        with pyqstore.open(tmp_path / str(has_column)) as store:
            batch = plain(COUNT, declare(store)[:1])
            ids = pa.array([str(number) for number in range(COUNT)])
            batch = batch.append_column("message_id", ids)
            if has_column:
                batch = batch.append_column("expiration_ms", pa.nulls(COUNT, pa.int64()))
            with store.channel() as channel:
                channel.publish_batch(batch)
            store.sync()
            taken.append((store.stats().appended_lsn, store.stats().ram_bytes))
    assert taken[0] == taken[1]


def test_one_expiration_among_nulls_counts(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        batch = plain(COUNT, ["q"]).append_column(
            "expiration_ms", pa.array([None] * (COUNT - 1) + [1], pa.int64())
        )
        channel.publish_batch(batch)
        while channel.queue_declare("q", passive=True).message_count == COUNT:
            pass
        assert channel.queue_declare("q", passive=True).message_count == COUNT - 1


def some_batch(dice: random.Random) -> pa.RecordBatch:
    count = dice.randrange(1, 400)
    batch = plain(count, dice.sample(list(KINDS), dice.randrange(1, len(KINDS) + 1)))
    columns: dict[str, Any] = {
        "message_id": pa.array([f"m{number}" for number in range(count)]),
        "priority": pa.array([dice.choice([None, 0, 2, 9]) for _ in range(count)], pa.uint8()),
        "delivery_mode": pa.array([dice.choice([None, 1, 2]) for _ in range(count)], pa.uint8()),
        "expiration_ms": pa.array(
            [dice.choice([None, 3_600_000]) for _ in range(count)], pa.int64()
        ),
    }
    for name, column in columns.items():
        if dice.random() < 0.25:
            batch = batch.append_column(name, column)
    return batch


@pytest.mark.parametrize("seed", range(12))
def test_adopting_does_what_publishing_row_by_row_does(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    batches = [some_batch(dice) for _ in range(dice.randrange(1, 6))]
    properties = dice.choice([None, *SAME])
    found = []
    for name in ("published", "adopted"):
        with pyqstore.open(tmp_path / name, memory_budget=16 << 20) as store:
            declare(store)
            if name == "adopted":
                adopt(store, tmp_path / "stage", batches, properties)
            else:
                publish(store, batches, properties)
            store.sync()
            shutil.copytree(tmp_path / name, tmp_path / f"{name}-killed")
            found.append(held(store))
    assert found[0] == found[1]
    for end in ("", "-killed"):
        again = []
        for name in ("published", "adopted"):
            with pyqstore.open(tmp_path / f"{name}{end}") as store:
                again.append(held(store))
        # What leaves a queue that is full is not durable at once.
        for name in ("short", "small") if end else ():
            assert again[0].pop(name)[-1:] == again[1].pop(name)[-1:]
        assert again[0] == again[1]


def counted(path: Path, batches: list[pa.RecordBatch], *, in_transaction: bool) -> dict[str, Any]:
    """Return what is counted of all batches, each with a message behind it, three times."""
    with pyqstore.open(path) as store, store.channel() as channel:
        for name in declare(store):
            channel.queue_bind(name, "amq.topic", name)
            channel.queue_bind(name, "amq.topic", "plan")
        for _ in range(3):
            if in_transaction:
                channel.tx_select()
            for number, batch in enumerate(batches):
                exchange = ["", "amq.topic", "amq.topic"][number % 3]
                channel.publish_batch(batch, exchange)
                channel.basic_publish(exchange, "plain", b"x")
            if in_transaction:
                channel.tx_commit()
        stats = store.stats(detail=True)
        return {
            "channels": [counts["publish"] for counts in stats.channels.values()],
            "exchanges": stats.exchanges,
            "routes": stats.routes,
            "queues": {name: counts["publish"] for name, counts in stats.queues.items()},
        }


def test_a_transaction_counts_what_goes_the_same_way_in_many_batches(tmp_path: Path) -> None:
    dice = random.Random(1)
    keys = ["plain", "mortal", "urgent", "nowhere", "plan"]
    batches = []
    for count in (1, 20, 300, 300, 7, 1, 40):
        dice.shuffle(keys)
        batches.append(plain(count, keys))
    alone = counted(tmp_path / "alone", batches, in_transaction=False)
    together = counted(tmp_path / "together", batches, in_transaction=True)
    assert together == alone
    assert alone["channels"] == [3 * sum(len(batch) + 1 for batch in batches)]
    assert alone["exchanges"]["amq.topic"]["drop_unroutable"] > 0
