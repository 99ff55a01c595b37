"""The Python of docs/SPARK.md runs as it stands there, but for the directory; so does the job of
the tutorial."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
import pyqstore.flight

from ..documents import ROOT, blocks

pytestmark = pytest.mark.spark
GUIDE = ROOT / "docs/SPARK.md"


def test_the_guide_runs(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text().replace('"/data/', f'"{tmp_path}/')
    found = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    write, ask, meet, write_stream, browse, read, drain, read_stream, held, beside, owned = found
    rows = pa.table({"body": [str(number) for number in range(100)]})
    with pyqstore.open(tmp_path / "orders.qs") as store, store.channel() as channel:
        channel.exchange_declare("orders", "fanout", durable=True)
        channel.queue_declare("orders", durable=True)
        channel.queue_bind("orders", "orders")
        store.stream("events").publish_batch(rows)
    names: dict[str, Any] = {"spark": spark}

    def run(block: str) -> None:
        exec(compile(block, "<example>", "exec"), names)

    spark.createDataFrame(rows).write.parquet(str(tmp_path / "source"))
    names["frame"] = spark.createDataFrame(rows)
    run(write)
    run(ask)  # it was written
    run(meet)
    assert capsys.readouterr().out == "200\n"
    names["frame"] = spark.readStream.schema("body string").parquet(str(tmp_path / "source"))
    run(write_stream)
    names["query"].processAllAvailable()
    names["query"].stop()
    run(browse)
    assert re.search(r"\| +300\|", capsys.readouterr().out)
    run(read)
    assert names["events"].count() == 100
    run(drain)
    assert spark.read.parquet(str(tmp_path / "2026-01-31")).count() == 300
    with pyqstore.open(tmp_path / "orders.qs", read_only=True) as store:
        assert store.queue_status("orders").messages_ready == 0
    run(read_stream)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert spark.read.parquet(str(tmp_path / "events")).count() == 100
    run(held)
    assert re.search(r"\| +100\|", capsys.readouterr().out)
    run(beside)
    assert capsys.readouterr().out == "0\n1\n"
    with pyqstore.open(tmp_path / "orders.qs") as store, pyqstore.flight.serve(store) as server:
        run(owned.replace("127.0.0.1:8815", server.address))
        assert store.queue_status("orders").messages_ready == 101


def test_the_job_of_the_tutorial_runs(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = blocks("docs/TUTORIAL.md")[-1].replace("spark = local_session()\n", "")
    with pyqstore.open(tmp_path / "jobs.qs") as store:
        rows = {"body": [b"ann", b"bob"], "routing_key": ["eu", "us"]}
        store.stream("events").publish_batch(pa.table(rows))
    here = job.replace('"jobs.qs"', f'"{tmp_path}/jobs.qs"')
    exec(compile(here, "<example>", "exec"), {"spark": spark})
    assert re.search(r"eu\W+1\b", capsys.readouterr().out)
    with pyqstore.open(tmp_path / "jobs.qs", read_only=True) as store:
        assert store.queue_status("jobs").messages_ready == 2  # not 4
