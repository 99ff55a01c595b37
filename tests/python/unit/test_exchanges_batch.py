"""Batches through headers exchanges, bindings between exchanges and carbon copies.

Method: what single publishes of the same rows do is what a batch has to do.
"""

import random
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import bodies

QUEUES = "abcdef"
HEADERS = pa.map_(pa.string(), pa.string())


def table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {"body": pa.binary(), "routing_key": pa.string(), "exchange": pa.string()}
    return pa.table(
        {
            **{n: pa.array([row[n] for row in rows], kind) for n, kind in columns.items()},
            "headers": pa.array([row["headers"] for row in rows], HEADERS),
        }
    )


def declare(channel: pyqstore.Channel) -> None:
    for name in QUEUES:
        channel.queue_declare(name, durable=name < "d")
    for exchange, kind in (("d", "direct"), ("t", "topic"), ("h", "headers"), ("g", "headers")):
        alternate = {"alternate-exchange": "amq.fanout"} if exchange in "dg" else None
        channel.exchange_declare(exchange, kind, arguments=alternate)


def bind_at_random(channel: pyqstore.Channel, choice: random.Random) -> None:
    exchanges = ["d", "t", "h", "g", "amq.fanout"]
    for _ in range(14):
        source, key = choice.choice(exchanges), choice.choice(["k", "l", "#"])
        arguments = {n: choice.choice(["1", "2", None]) for n in "xy" if choice.random() < 0.6}
        arguments["x-match"] = choice.choice(["all", "any"])
        if choice.random() < 0.3:
            channel.exchange_bind(choice.choice(exchanges), source, key, arguments)
        else:
            channel.queue_bind(choice.choice(QUEUES), source, key, arguments)


def random_rows(choice: random.Random, count: int) -> list[dict[str, Any]]:
    def some_headers() -> dict[str, str | None] | None:
        if choice.random() < 0.2:
            return None
        return {n: choice.choice(["1", "2", "3"]) for n in "xyz" if choice.random() < 0.7}

    return [
        {
            "body": b"%d" % i,
            "exchange": choice.choice(["d", "t", "h", "g", ""]),
            "routing_key": choice.choice(["k", "l", "m", "a", "e"]),
            "headers": some_headers(),
        }
        for i in range(count)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_goes_where_its_rows_would(channel: pyqstore.Channel, seed: int) -> None:
    choice = random.Random(seed)
    returned: list[Any] = []
    channel.add_return_listener(returned.append)
    declare(channel)
    bind_at_random(channel, choice)
    rows = random_rows(choice, 400)
    default = {"x": "1", "y": "2"} if seed % 2 else None
    copies = {"CC": ["b"]} if seed % 3 == 0 else {}
    common = pyqstore.Properties(headers={**(default or {}), **copies}) if default else None
    for row in rows:
        own = row["headers"]
        properties = common if own is None else pyqstore.Properties(headers=own)
        channel.basic_publish(
            row["exchange"], row["routing_key"], row["body"], properties, mandatory=True
        )
    channel.process_events()
    expected = {name: bodies(channel, name) for name in QUEUES}
    unroutable = [message.body for message in returned]
    returned.clear()
    split = choice.randrange(len(rows))
    data = pa.concat_tables([table(rows[:split]), table(rows[split:])])
    assert channel.publish_batch(data, properties=common, mandatory=True).count == len(rows)
    channel.process_events()
    assert {name: bodies(channel, name) for name in QUEUES} == expected
    assert [message.body for message in returned] == unroutable
    assert sum(map(len, expected.values())) > 100


def test_many_rows_with_headers_of_their_own(channel: pyqstore.Channel) -> None:
    for name, wanted in (("a", "7"), ("b", "4999")):
        channel.queue_declare(name)
        channel.queue_bind(name, "amq.headers", "", {"n": wanted})
    channel.queue_declare("c")
    channel.queue_bind("c", "amq.headers", "", {"all": None})
    rows = 20_000
    data = pa.table(
        {
            "body": pa.array([b"%d" % i for i in range(rows)]),
            "headers": pa.array([{"n": str(i % 5000), "all": ""} for i in range(rows)], HEADERS),
        }
    )
    channel.publish_batch(data, "amq.headers")
    assert bodies(channel, "a") == [b"7", b"5007", b"10007", b"15007"]
    assert bodies(channel, "b") == [b"4999", b"9999", b"14999", b"19999"]
    batch = channel.get_batch("c")
    assert batch.column("body").to_pylist() == data.column("body").to_pylist()
    assert batch.column("headers").to_pylist()[4999] == [("n", "4999"), ("all", "")]


def test_persistent_rows_by_headers_survive(path: Any) -> None:
    with pyqstore.open(path) as store, store.channel() as channel:
        for name in "ab":
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.headers", "", {"to": name})
        large = [b"x" * size for size in (10, 5000, 9000, 20)]
        to = [{"to": "a"}, {"to": "b"}, {"to": "a"}, {"to": "none"}]
        data = pa.table({"body": large, "headers": pa.array(to, HEADERS)})
        channel.publish_batch(data, "amq.headers").wait()
    with pyqstore.open(path) as store, store.channel() as channel:
        assert bodies(channel, "a") == [large[0], large[2]]
        assert bodies(channel, "b") == [large[1]]


def test_copies_in_the_properties_of_all_rows(channel: pyqstore.Channel) -> None:
    for name in "abc":
        channel.queue_declare(name)
    common = pyqstore.Properties(headers={"CC": ["b"], "BCC": ["c"], "o": 1})
    channel.publish_batch(pa.table({"body": [b"1", b"2"]}), "", "a", properties=common)
    for name in "abc":
        messages = [channel.basic_get(name) for _ in range(2)]
        assert [m and m.properties.headers for m in messages] == [{"CC": ["b"], "o": 1}] * 2
    # A row's own headers replace the common ones, with their copies.
    data = pa.table({"body": [b"3", b"4"], "headers": pa.array([{"n": "1"}, None], HEADERS)})
    channel.publish_batch(data, "", "a", properties=common)
    assert [bodies(channel, name) for name in "abc"] == [[b"3", b"4"], [b"4"], [b"4"]]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (
            {"a": "1", "CC": "b"},
            'row 4: invalid message: {unacceptable_type_in_header,"CC",longstr}',
        ),
        ({"BCC": None}, 'row 4: invalid message: {unacceptable_type_in_header,"BCC",void}'),
    ],
)
def test_copies_in_a_column_are_refused_with_their_row(
    store: pyqstore.Store, channel: pyqstore.Channel, own: dict[str, str | None], expected: str
) -> None:
    channel.queue_declare("a")
    column = pa.array([None, {"CCC": "x"}, {"cc": "y"}, {}, own, own], HEADERS)
    data = pa.table({"body": [b""] * 6, "headers": column})
    for batches in (data, pa.concat_tables([data[:3], data[3:]])):
        with store.channel() as other:
            with pytest.raises(pyqstore.PreconditionFailed) as caught:
                other.publish_batch(batches, "", "a")
            assert expected in str(caught.value)
        with store.channel() as other, pytest.raises(pyqstore.NotFound):
            other.publish_batch(batches, "no", "a")
    bad = pyqstore.Properties(headers={"CC": "b"})
    with pytest.raises(pyqstore.PreconditionFailed, match="CC"):
        channel.publish_batch(pa.table({"body": [b""]}), "", "a", properties=bad)
    assert store.queue_status("a")["messages_ready"] == 0
