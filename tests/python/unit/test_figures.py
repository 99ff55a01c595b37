"""What a store tells of itself: typed figures, and a log."""

import copy
import dataclasses
import json
import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_origin, get_type_hints

import pytest

import pyqstore

from ..support import PERSISTENT, run_python, wait_until


def test_figures_are_dataclasses_that_index_by_name(store: pyqstore.Store, queue: str) -> None:
    stats = store.stats()
    told = (store.queue_status(queue), stats, stats.commit_latency_us, store.recovery_report)
    for figures in told:
        assert isinstance(figures, Mapping)
        names = [field.name for field in dataclasses.fields(figures)]
        assert list(figures) == list(figures.keys()) == names
        assert len(figures) == len(names)
        hints = get_type_hints(type(figures))
        for name, value in figures.items():
            assert getattr(figures, name) == figures[name] == value
            kind = get_origin(hints[name]) or hints[name]
            assert isinstance(value, str if kind is Literal else kind), name
        assert copy.copy(figures) == pickle.loads(pickle.dumps(figures)) == figures
        assert dict(figures) == figures == {**figures}
        assert type(figures.to_dict()) is dict
        assert isinstance(figures, dict)
        assert json.loads(json.dumps(figures)) == figures == figures.to_dict()
        assert not hasattr(figures, "__dict__")
    assert type(stats.to_dict()["commit_latency_us"]) is dict
    assert stats.commit_latency_us.p50 == stats["commit_latency_us"]["p50"]


def test_figures_are_read_only_and_know_no_other_name(store: pyqstore.Store, queue: str) -> None:
    status = store.queue_status(queue)
    assert status.messages_ready == status["messages_ready"] == status.get("messages_ready") == 0
    assert "alpha" in status
    assert "to_dict" not in status
    assert status.get("omega", 5) == 5
    assert status != {}
    with pytest.raises(AttributeError):
        status.alpha = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        status["alpha"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        status.omega  # type: ignore[attr-defined]  # noqa: B018 - it raises
    for name in ("omega", "to_dict", 5):
        with pytest.raises(KeyError):
            status[name]  # type: ignore[index]


def test_tables_of_fields_have_a_type(channel: pyqstore.Channel) -> None:
    arguments: pyqstore.FieldTable = {"x-max-length": 5}
    channel.queue_declare("q2", arguments=arguments)


def test_the_log_tells_of_opening_recovery_and_closing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "pyqstore"):
        with pyqstore.open(path, embed_below=100) as store, store.channel() as channel:
            channel.queue_declare("q", durable=True)
            channel.confirm_select()
            for _ in range(100):
                channel.basic_publish("", "q", b"x", PERSISTENT)
            assert channel.wait_for_confirms(60)
            store.checkpoint()
            assert channel.basic_get("q", auto_ack=True) is not None
        told = [record.getMessage() for record in caplog.records]
    assert told[0] == f"{path}: opened with embed_below=100"
    assert told[1].startswith(f"{path}: checkpoint 1, up to LSN ")
    assert told[-1] == f"{path}: closed"


def test_the_log_tells_what_was_recovered(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = """
import os, sys
import pyqstore
store = pyqstore.open(sys.argv[1])
channel = store.channel()
channel.queue_declare("q", durable=True)
channel.basic_publish("", "q", b"x", pyqstore.Properties(delivery_mode=2))
store.sync()
os._exit(0)
"""
    result = run_python(program, path)
    assert (result.returncode, result.stderr) == (0, "")
    with caplog.at_level(logging.INFO, "pyqstore"), pyqstore.open(path):
        told = [record.getMessage() for record in caplog.records]
    assert told[0] == f"{path}: opened"
    assert " 1 messages, in " in told[1]
    assert caplog.records[1].levelno == logging.INFO


def test_the_log_tells_of_checkpoints_that_nobody_asked_for(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.DEBUG, "pyqstore"),
        pyqstore.open(path, checkpoint_bytes=1 << 20) as store,
        store.channel() as channel,
    ):
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        for _ in range(200):
            channel.basic_publish("", "q", bytes(4000), PERSISTENT)
            channel.basic_publish("", "q", bytes(4000), PERSISTENT)
        assert channel.wait_for_confirms(60)
        wait_until(lambda: f"{path}: checkpoint 1, up to LSN " in caplog.text)


def test_the_log_tells_of_a_failure_though_nobody_calls(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pyqstore"):
        store = pyqstore.open(path)
        channel = store.channel()
        channel.queue_declare("q", durable=True)
        path.rename(path.with_name("moved"))
        channel.basic_publish("", "q", b"x", PERSISTENT)
        wait_until(lambda: "the store has failed" in caplog.text)
        (error,) = (record for record in caplog.records if record.levelno == logging.ERROR)
        assert error.getMessage().startswith(f"{path}: the store has failed")
        assert "was moved away while it was open" in error.getMessage()
        with pytest.raises(pyqstore.StoreFailed):
            store.close()
