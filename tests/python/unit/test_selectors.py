"""Selectors of x-jms-topic exchanges: single messages, batches, restarts, and SQLite's opinion.

Method of the last: the same condition is asked of SQLite over a table of one row, whose columns are
the message's headers.  Conditions are made up within what both mean the same by.
"""

import random
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import bodies, run_python

HEADERS = pa.map_(pa.string(), pa.string())


def select(channel: pyqstore.Channel, queue: str, selector: str, key: str = "#") -> None:
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, "jms", key, {"x-jms-selector": selector})


@pytest.fixture
def channel(store: pyqstore.Store) -> pyqstore.Channel:
    channel = store.channel()
    channel.exchange_declare("jms", "x-jms-topic", durable=True)
    return channel


def send(channel: pyqstore.Channel, body: bytes, key: str = "k", **properties: Any) -> None:
    channel.basic_publish("jms", key, body, pyqstore.Properties(**properties))


def test_a_message_goes_where_key_and_selector_say(channel: pyqstore.Channel) -> None:
    select(channel, "buy", "side = 'buy' AND price < 10", "eu.#")
    select(channel, "urgent", "JMSPriority >= 7 OR JMSType = 'alarm'")
    send(channel, b"1", "eu.x", headers={"side": "buy", "price": 9.5})
    send(channel, b"2", "us.x", headers={"side": "buy", "price": 9.5})
    send(channel, b"3", "eu.x", headers={"side": "buy", "price": 10}, priority=8)
    send(channel, b"4", "eu.x", headers={"side": "buy", "price": "9"}, type="alarm")
    send(channel, b"5", "eu.x", priority=6)
    send(channel, b"6", "eu.x")
    assert bodies(channel, "buy") == [b"1"]
    assert bodies(channel, "urgent") == [b"3", b"4"]


def test_what_no_selector_selects_is_dropped_and_returned_if_mandatory(
    channel: pyqstore.Channel,
) -> None:
    select(channel, "q", "n = 1")
    returned: list[bytes] = []
    channel.add_return_listener(lambda message: returned.append(message.body))
    channel.basic_publish("jms", "k", b"dropped", pyqstore.Properties(headers={"n": 2}))
    back = pyqstore.Properties(headers={"n": 2})
    channel.basic_publish("jms", "k", b"back", back, mandatory=True)
    assert bodies(channel, "q") == []
    assert channel.process_events() is not None
    assert returned == [b"back"]


def test_a_selector_that_is_none_is_refused_with_its_place(store: pyqstore.Store) -> None:
    with store.channel() as channel:
        channel.exchange_declare("jms", "x-jms-topic")
        channel.queue_declare("q")
        with pytest.raises(
            pyqstore.PreconditionFailed,
            match=r"selector: at character 8: expected a name or a value after AND, found \)",
        ):
            channel.queue_bind("q", "jms", "k", {"x-jms-selector": "(a AND )"})
    with store.channel() as channel, pytest.raises(pyqstore.PreconditionFailed, match="rjms_"):
        channel.queue_bind("q", "jms", "k", {"rjms_erlang_selector": "true."})
    assert store.bindings() == []


def test_a_batch_goes_where_its_rows_go_one_by_one(channel: pyqstore.Channel) -> None:
    choice = random.Random(1)
    selectors = {
        "a": "x = '1'",
        "b": "x LIKE '%2' AND y IS NULL",
        "c": "JMSPriority BETWEEN 3 AND 5 OR x = '3'",
        "d": "JMSType = 't1' AND JMSDeliveryMode = 'PERSISTENT'",
        "e": "JMSMessageID LIKE '%7' OR JMSTimestamp > 1000",
    }
    for queue, selector in selectors.items():
        select(channel, queue, selector, choice.choice(["#", "k.*"]))
    rows = [
        {
            "body": b"%d" % i,
            "routing_key": choice.choice(["k", "k.l"]),
            "headers": choice.choice([None, {}, {"x": choice.choice("123"), "z": "12"}]),
            "priority": choice.choice([None, 2, 4, 6]),
            "type": choice.choice([None, "t1", "t2"]),
            "message_id": f"id{i}",
            "delivery_mode": choice.choice([1, 2]),
        }
        for i in range(6000)
    ]
    for row in rows:
        named = {k: v for k, v in row.items() if k not in ("body", "routing_key")}
        properties = pyqstore.Properties(**{"app_id": "x", **named})
        channel.basic_publish("jms", row["routing_key"], row["body"], properties)
    expected = {queue: bodies(channel, queue) for queue in selectors}
    kinds = {"body": pa.binary(), "headers": HEADERS, "priority": pa.uint8()}
    kinds["delivery_mode"] = pa.uint8()
    columns = {n: pa.array([row[n] for row in rows], kinds.get(n, pa.string())) for n in rows[0]}
    channel.publish_batch(pa.table(columns), exchange="jms")
    assert {queue: bodies(channel, queue) for queue in selectors} == expected
    assert all(expected.values())


def test_rows_without_headers_go_by_those_that_all_have(channel: pyqstore.Channel) -> None:
    select(channel, "q", "x = '1' AND JMSPriority = 3")
    table = pa.table({"body": [b"1", b"2"], "priority": pa.array([3, None], pa.uint8())})
    properties = pyqstore.Properties(headers={"x": "1"}, priority=2)
    channel.publish_batch(table, exchange="jms", routing_key="k", properties=properties)
    assert bodies(channel, "q") == [b"1"]


@pytest.mark.parametrize("how", ["kill", "checkpoint", "close"])
def test_selectors_come_back(path: Path, how: str) -> None:
    build = """
import os, signal, sys
import pyqstore

store = pyqstore.open(sys.argv[1])
channel = store.channel()
channel.exchange_declare("jms", "x-jms-topic", durable=True)
channel.exchange_declare("out", "fanout", durable=True)
for queue, selector in (("a", "n = 1"), ("a", "n = 2"), ("b", "n = 3"), ("b", "n = 4")):
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, "jms", "k.#", {"x-jms-selector": selector})
channel.exchange_bind("out", "jms", "k", {"x-jms-selector": "n IS NULL"})
channel.queue_bind("b", "out")
if sys.argv[2] == "checkpoint":
    store.checkpoint()
channel.queue_unbind("b", "jms", "k.#", {"x-jms-selector": "n = 4"})
if sys.argv[2] == "close":
    store.close()
os.kill(os.getpid(), signal.SIGKILL)
"""
    run_python(build, path, how)
    for _ in range(2):
        with pyqstore.open(path) as store, store.channel() as channel:
            assert store.exchanges()["jms"].type == "x-jms-topic"
            assert [tuple(binding) for binding in store.bindings()] == [
                ("jms", "a", "k.#", {"x-jms-selector": "n = 1"}, False),
                ("jms", "a", "k.#", {"x-jms-selector": "n = 2"}, False),
                ("jms", "b", "k.#", {"x-jms-selector": "n = 3"}, False),
                ("jms", "out", "k", {"x-jms-selector": "n IS NULL"}, True),
                ("out", "b", "", {}, False),
            ]
            for n in range(5):
                send(channel, b"%d" % n, headers={"n": n} if n > 0 else {})
            assert bodies(channel, "a") == [b"1", b"2"]
            assert bodies(channel, "b") == [b"0", b"3"]


# ---- what SQLite says ----

NUMBERS = ["i", "j", "r", "s"]
TEXTS = ["t", "u"]


def number(choice: random.Random, depth: int) -> str:
    if depth == 0 or choice.random() < 0.3:
        literals = ["0", "1", "2", "-3", "7", "0x10", "1.5", "-0.25", "1e3", "9007199254740993"]
        return choice.choice([*NUMBERS, *NUMBERS, choice.choice(literals)])
    operator = choice.choice(["+", "-", "*", "/"])
    left, right = number(choice, depth - 1), number(choice, depth - 1)
    return choice.choice([f"({left} {operator} {right})", f"(- {left})"])


def pattern(choice: random.Random) -> str:
    return "".join(choice.choice("ab%_'!x") for _ in range(choice.randrange(6))).replace("'", "''")


def texts_tested(choice: random.Random) -> str:
    text, no = choice.choice(TEXTS), choice.choice(["", "NOT "])
    few = ", ".join(f"'{choice.choice(['a', 'b', 'ab', '', 'xy'])}'" for _ in range(3))
    escaped = pattern(choice).replace("!", "!!")
    return choice.choice(
        [
            f"{text} {choice.choice(['=', '<>'])} '{choice.choice(['a', 'ab', 'b', ''])}'",
            f"{text} {no}LIKE '{pattern(choice)}'",
            f"{text} {no}LIKE '{escaped}!%' ESCAPE '!'",
            f"{text} {no}IN ({few})",
            f"{text} = {choice.choice(TEXTS)}",
        ]
    )


def condition(choice: random.Random, depth: int) -> str:
    kind = choice.randrange(9) if depth > 0 else choice.randrange(5)
    no = choice.choice(["", "NOT "])
    if kind == 0:
        compared = choice.choice(["=", "<>", "<", "<=", ">", ">="])
        return f"{number(choice, 2)} {compared} {number(choice, 2)}"
    if kind == 1:
        return texts_tested(choice)
    if kind == 2:
        return f"{choice.choice(NUMBERS + TEXTS)} IS {no}NULL"
    if kind == 3:
        between = f"{no}BETWEEN {number(choice, 1)} AND {number(choice, 1)}"
        return f"{number(choice, 1)} {between}"
    if kind == 4:
        return choice.choice(["TRUE", "FALSE"])
    if kind == 5:
        return f"NOT {condition(choice, depth - 1)}"
    left, right = condition(choice, depth - 1), condition(choice, depth - 1)
    joined = f"{left} {choice.choice(['AND', 'OR'])} {right}"
    return f"({joined})" if kind < 8 else joined


def row(choice: random.Random) -> dict[str, Any]:
    whole = [0, 1, 2, -3, 7, 16, 2**53 + 1, 2**63 - 1, -(2**63)]
    real = [0.5, -0.25, 1.5, 2.0, 1e300, -7.0, 9007199254740992.0]
    values: dict[str, Any] = {
        **{name: choice.choice(whole) for name in "ij"},
        **{name: choice.choice(real) for name in "rs"},
        **{name: choice.choice(["", "a", "b", "ab", "a%", "x'y", "!a_b", "aab"]) for name in "tu"},
    }
    return {name: value for name, value in values.items() if choice.random() < 0.8}


def asked(database: sqlite3.Connection, selector: str, values: dict[str, Any]) -> bool:
    columns = ", ".join(f"? AS {name}" for name in NUMBERS + TEXTS)
    bound = [values.get(name) for name in NUMBERS + TEXTS]
    question = f"SELECT 1 FROM (SELECT {columns}) WHERE {selector}"
    return database.execute(question, bound).fetchone() is not None


def test_selectors_select_what_sqlite_does(channel: pyqstore.Channel) -> None:
    choice = random.Random(1)
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    selectors = [condition(choice, 3) for _ in range(400)]
    rows = [row(choice) for _ in range(60)]
    for i, selector in enumerate(selectors):
        channel.queue_declare(f"q{i}")
        channel.queue_bind(f"q{i}", "jms", "k", {"x-jms-selector": selector})
    for i, values in enumerate(rows):
        send(channel, b"%d" % i, headers=values)
    selected = 0
    for i, selector in enumerate(selectors):
        expected = [b"%d" % n for n, v in enumerate(rows) if asked(database, selector, v)]
        found = bodies(channel, f"q{i}")
        differing = [rows[int(body)] for body in set(found) ^ set(expected)]
        assert found == expected, (selector, differing)
        selected += len(found)
    assert 0.2 < selected / (len(rows) * len(selectors)) < 0.8
