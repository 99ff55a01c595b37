"""The demonstration: runs on the real flights, and notices when a number is wrong."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyqstore
from spark_udfs import demo
from spark_udfs.__main__ import main
from spark_udfs.flights import Half, Outcome, Tally, declare, drain, reconcile
from spark_udfs.tables import print_tables


def agreeing() -> Outcome:
    tally = Tally(rows=10, crc32_sum=1234)
    half = Half(rows=5, confirmed=5, seconds=1.0, store_seconds=0.1, stats={})
    return Outcome(
        expected={"newark": tally},
        found={"newark": copy.copy(tally)},
        halves={"datasource": half, "publish": copy.copy(half)},
        rows=10,
    )


def test_reconcile_is_content_when_all_agrees() -> None:
    assert reconcile(agreeing()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda outcome: setattr(outcome.found["newark"], "rows", 9), "9 messages found, 10"),
        (lambda outcome: setattr(outcome.found["newark"], "crc32_sum", 0), "bodies differ"),
        (lambda outcome: setattr(outcome.found["newark"], "disorder", 1), "out of order"),
        (lambda outcome: setattr(outcome.halves["publish"], "confirmed", 4), "4 rows confirmed"),
        (lambda outcome: setattr(outcome, "rows", 11), "10 rows confirmed, 11"),
        (lambda outcome: setattr(outcome, "left", 1), "1 messages are in the queues again"),
        (lambda outcome: outcome.found.clear(), "0 messages found"),
        (lambda outcome: outcome.found.update(extra=Tally(rows=1)), "'extra'"),
    ],
)
def test_reconcile_names_what_disagrees(
    change: object, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = agreeing()
    assert callable(change)
    change(outcome)
    outcome.faults = reconcile(outcome)
    assert words in " ".join(outcome.faults)
    print_tables(outcome)
    assert "MISMATCH" in capsys.readouterr().out


@pytest.mark.parametrize(("left", "status"), [(0, 0), (1, 1)])
def test_run_exits_by_what_it_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: int, status: int
) -> None:
    outcome = agreeing()
    outcome.left = left
    monkeypatch.setattr(demo, "_run", lambda *_: outcome)
    assert main(["demo", "--path", str(tmp_path / "flights.qs")]) == status


def test_drain_counts_bodies_and_disorder(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store.qs") as store:
        declare(store)
        with store.channel() as channel:
            channel.confirm_select()
            for number, publisher in [(1, "a"), (1, "b"), (3, "a"), (2, "a"), (4, "b")]:
                properties = pyqstore.Properties(
                    message_id=str(number), app_id=publisher, delivery_mode=2
                )
                channel.basic_publish("flights", "EWR.AA", b"x", properties)
            channel.wait_for_confirms(timeout=30)
        tally = drain(store, "newark")
        assert (tally.rows, tally.disorder, tally.crc32_sum) == (5, 1, 5 * 0x8CDC1683)
        assert drain(store, "united") == Tally()


@pytest.mark.spark
@pytest.mark.slow
def test_demo_reconciles_the_year(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "spark_udfs", "demo", "--path", str(tmp_path / "flights.qs")],
        cwd=tmp_path,
        env={**environment, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for count in ("120,835", "111,279", "104,662", "336,776"):
        assert count in done.stdout
    assert "MISMATCH" not in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    with pyqstore.open(tmp_path / "flights.qs", create=False) as store:
        assert store.queue_status("newark")["messages_ready"] == 0


def test_demo_refuses_a_folder_in_use(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    done = subprocess.run(
        [sys.executable, "-m", "spark_udfs", "demo", "--path", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "not an empty directory" in done.stderr
