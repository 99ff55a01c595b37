"""The Python of README.md and of the guide runs as it stands there."""

import ast
import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import pyqstore

from ..support import wait_until

ROOT = Path(__file__).parents[3]
LINES_MAX = 150  # of README.md


def blocks(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S)


@pytest.fixture
def names(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an example takes for granted; each document has stores of its own."""
    path.mkdir()
    monkeypatch.chdir(path)
    sent: list[bytes] = []
    return {"asyncio": asyncio, "sent": sent, "send": lambda message: sent.append(message.body)}


def run(block: str, names: dict[str, Any]) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block, "<example>", "exec", flags=flags)
    result = eval(code, names)
    if result is not None:
        asyncio.run(asyncio.wait_for(result, 60))


def test_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= LINES_MAX


def test_readme_runs(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    quickstart, workers, loops, frames, streams, spark = blocks("README.md")
    run(quickstart, names)
    assert capsys.readouterr().out == "{'to': 'ann'}\n0 ready\n"
    with pyqstore.open("jobs.qs") as store:
        assert store.queue_status("jobs")["messages_delayed"] == 1
        store.queue("jobs").purge()
        store.queue("jobs").put(b"work")
    stop = threading.Event()
    names["send"] = lambda message: (names["sent"].append(message.body), stop.set())
    names["stop"] = stop
    run(workers.replace("retries=5", "retries=5, stop=stop"), names)
    assert names["sent"] == [b"work"]
    run(loops, names)
    assert capsys.readouterr().out == "b'0'\n"
    with pyqstore.open("jobs.qs") as store:
        assert len(store.queue("jobs")) == 999
    run(frames, names)
    assert names["batch"].column("body").to_pylist() == [b"1"]
    alone = {"pyarrow": pyarrow, "pyqstore": pyqstore}
    run(streams, alone)
    assert alone["batch"].column("routing_key").to_pylist() == ["eu.rome"]
    compile(spark, "<example>", "exec")


def test_streams_run(names: dict[str, Any]) -> None:
    first, group, transaction, work, consuming = blocks("docs/STREAMS.md")
    run(first, names)
    assert names["table"].column("body").to_pylist() == [b"one"]
    names["handle"] = names["sent"].append
    with pyqstore.open("shop.qs") as store, store.channel() as channel:
        names |= {"store": store, "channel": channel}
        run(group, names)
        assert len(names["sent"][0]) == 2
        channel.queue_declare("invoices", durable=True)
        names["result"] = names["sent"][0].select(["body"])
        with store.stream_consumer("events", group="invoices") as consumer:
            names["consumer"] = consumer
            consumer.poll(timeout=5)
            run(transaction, names)
            assert consumer.committed("events") == 2
        assert store.queue_status("invoices").messages_ready == 2
        run(work, names)
        assert names["message"].body == b"one"
        names["handle"] = lambda offset, body: names["sent"].append((offset, body))
        run(consuming.replace("message.ack()", "message.ack()\n    break"), names)  # without end
        assert names["sent"][-1] == (0, b"one")


def test_sessions_run(
    path: Path, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def here(block: str) -> str:
        return block.replace("qstore:///tmp/orders.qs", f"qstore://{path}/orders.qs")

    first, transacted, listening, redelivery, topics, groups, loop = blocks("docs/SESSIONS.md")
    run(here(first), names)
    assert capsys.readouterr().out == "b'one' {'side': 'buy'} False 1\n"
    names["done"] = names["sent"]
    with pyqstore.open("orders.qs") as store:
        names["store"] = store
        store.queue("orders").put(b"three")
        run(transacted, names)
        with names["session"].connect(store) as names["connection"]:
            run(listening, names)
            wait_until(lambda: names["sent"] == ["three"])
        store.queue("orders").put(b"four")
        run(redelivery, names)
        assert names["message"].text == "four"
        assert [names["policy"].delay(count) for count in (1, 2, 3, 4)] == [1, 5, 25, 60]
        run(topics, names)
        assert names["found"] == [b"1.09"] * 3
        assert "audit.log" not in store.queues()
        run(groups, names)
        assert sum(len(store.queue(f"work.{number}")) for number in range(4)) == 2
        store.queue("orders").put(b"five")
    run(here(loop), names)
    assert capsys.readouterr().out == "five\n"


def test_guide_runs(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    verbs, loop = blocks("docs/GUIDE.md")
    run(verbs, names)
    assert capsys.readouterr().out == "eu.paris b'one'\n[b'two']\n"
    # The last lines receive for ever.
    run(loop.replace("await message.ack()", "await message.ack()\n        break"), names)
    with pyqstore.open("orders.qs") as store:
        assert store.queue_status("europe")["messages_ready"] == 9_999


@pytest.mark.parametrize(
    "document",
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md", "benchmarks/**/*.md"],
)
def test_links_of_documents_lead_somewhere(document: str) -> None:
    for path in ROOT.glob(document):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"
