"""The Python of README.md and of the guide runs as it stands there."""

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import pyqstore
import pyqstore.flight

from ..documents import ROOT, blocks, run
from ..support import wait_until

LINES_MAX = 150  # of README.md


@pytest.fixture
def names(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What an example takes for granted; each document has stores of its own."""
    path.mkdir()
    monkeypatch.chdir(path)
    sent: list[bytes] = []
    return {"asyncio": asyncio, "sent": sent, "send": lambda message: sent.append(message.body)}


def test_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= LINES_MAX


def test_readme_runs(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    quickstart, client, workers, loops, frames, streams = blocks("README.md")
    run(quickstart, names)
    assert capsys.readouterr().out == "{'to': 'ann'}\n0 ready\n"
    with pyqstore.open("jobs.qs") as store:
        assert store.queue_status("jobs")["messages_delayed"] == 1
        store.queue("jobs").purge()
        listener = store.listen("127.0.0.1:0")
        run(client.replace("5672", listener.address.rpartition(":")[2]), {})
        assert capsys.readouterr().out == '{"to": "eve"}\n'
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


def test_streams_run(names: dict[str, Any]) -> None:
    first, group, transaction, adopting, asking, work, consuming = blocks("docs/STREAMS.md")
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
        Path("stage").mkdir(mode=0o700)
        names["batch"] = pyarrow.record_batch({"body": [b"staged"], "routing_key": ["eu"]})
        channel.exchange_declare("events", "fanout")
        channel.queue_bind("events", "events")
        run(adopting.replace("/data/stage", "stage"), names)
        assert store.stream("events").next == 3
        asked = asking.replace("/data/stage", "stage").replace("/data/orders.qs", "shop.qs")
        run(asked.replace("job 17", "job 18"), names)
        assert store.stream("events").next == 4


def test_shovels_run(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    moving, _ = blocks("docs/SHOVEL.md")  # the other one needs RabbitMQ and Spark
    run(moving, names)
    assert capsys.readouterr().out == "2 0\n"


def test_flight_runs(names: dict[str, Any]) -> None:
    first, second, third = blocks("docs/FLIGHT.md")
    with pyqstore.open("orders.qs") as store, pyqstore.flight.serve(store) as server:
        run(first.replace("127.0.0.1:8815", server.address), names)
        assert names["batch"].column("message_id").to_pylist() == ["a", "b"]
        run(second.replace("127.0.0.1:8815", server.address), names)
        assert store.queue_status("orders").messages_ready == 4
        with pyqstore.open("other.qs") as other, pyqstore.flight.serve(other) as beside:
            with other.channel() as channel:
                channel.queue_declare("orders", durable=True)
            names["servers"] = [server.address, beside.address]
            for _ in range(2):
                run(third, names)
            assert other.queue_status("orders").messages_ready == 2
        assert store.queue_status("orders").messages_ready == 6


def test_sessions_run(
    path: Path, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def here(block: str) -> str:
        return block.replace("qstore:///tmp/orders.qs", f"qstore://{path}/orders.qs")

    first, transacted, listening, ahead, redelivery, topics, groups, loop = blocks(
        "docs/SESSIONS.md"
    )
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
        run(ahead, names)
        assert capsys.readouterr().out == "2\n"
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
    verbs, loop, counters, traces = blocks("docs/GUIDE.md")
    run(verbs, names)
    assert capsys.readouterr().out == "eu.paris b'one'\n[b'two']\n"
    # The last lines receive for ever.
    run(loop.replace("await message.ack()", "await message.ack()\n        break"), names)
    with pyqstore.open("orders.qs") as store:
        assert store.queue_status("europe")["messages_ready"] == 9_999
    run(counters, names)
    run(traces, names)
    steps = "publish route enqueue record sync confirm deliver ack\n"
    assert capsys.readouterr().out == f"2 1\n1\n2\n{steps}"


@pytest.mark.parametrize(
    "document", ["*.md", "docs/**/*.md", "benchmarks/**/*.md", "examples/**/*.md"]
)
def test_links_of_documents_lead_somewhere(document: str) -> None:
    for path in ROOT.glob(document):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_guide_to_other_clients_names_runs(
    names: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kombu")
    monkeypatch.setenv("PYQSTORE_PATH", str(path / "default.qs"))
    pika, kombu, shared = blocks("docs/COMPAT.md")
    for block in (pika, kombu, shared):
        run(block, names)
    for store, queues in (("default.qs", []), ("orders.qs", ["jobs"])):  # hello is not durable
        with pyqstore.open(store, create=False) as opened:
            assert opened.queues() == queues
