"""Backlogs, each step in a process of its own: filled and killed, opened after that, drained."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyqstore

from . import gauges
from .child import Figures, end_by_kill
from .loads import PERSISTENT, QUEUE, batch_of, confirm, expect, parts, take
from .stores import disk_bytes, settle

BUDGET = 64 << 20
SLOT_BYTES = 32  # of a message in the index
PROPERTIES_BYTES = 3  # the delivery mode
_BODIES_BYTES_MOST = 8 << 20  # of a batch
_ROWS_MOST = 10_000
_GROUP = 10_000  # single messages


class Subject:
    """A store in this process, a channel on its queue, and what the process had in memory idle."""

    def __init__(self, path: str, **options: Any) -> None:
        self.path: Path = Path(path)
        self.idle: int = gauges.rss_bytes()
        start = time.perf_counter()
        self.store: pyqstore.Store = pyqstore.open(
            self.path, **{"memory_budget": BUDGET, **options}
        )
        self.open_seconds: float = time.perf_counter() - start
        self.channel: pyqstore.Channel = self.store.channel()
        self.channel.queue_declare(QUEUE, durable=True)
        self.channel.confirm_select()

    def batch(self, body_bytes: int, rows: int = 0) -> Any:
        """A record batch to publish.  Afterwards the process counts as idle."""
        rows = rows or _rows(body_bytes)
        batch = batch_of(rows, body_bytes)
        settle(self.path)
        self.idle = gauges.rss_bytes()
        return batch

    def publish(self, batch: Any, messages: int, sampler: gauges.Sampler | None = None) -> None:
        """So many messages, the last batch shorter."""
        for part in parts(batch, messages):
            self.channel.publish_batch(part, "", QUEUE)
            if sampler is not None:
                sampler.messages += part.num_rows

    def confirm(self) -> None:
        """Wait for all confirms."""
        confirm(self.channel)

    def take(self, most: int) -> int:
        """Receive and acknowledge up to so many; how many there were."""
        return take(self.channel, most)

    def memory(self) -> Figures:
        """The most it ever had over idle."""
        return {"peak_rss_over_idle_bytes": gauges.peak_rss_bytes() - self.idle}

    def sampler(self) -> gauges.Sampler:
        """One that notes from now on."""
        sampler = gauges.Sampler(self.idle)
        sampler.start()
        return sampler


def fill(path: str, messages: int, body_bytes: int, checkpoint: bool = False) -> Figures:
    """Publish a backlog; be killed."""
    subject = Subject(path)
    batch = subject.batch(body_bytes)
    sampler = subject.sampler()
    start = time.perf_counter()
    subject.publish(batch, messages, sampler)
    subject.confirm()
    seconds = time.perf_counter() - start
    figures = {"seconds": seconds, "curves": sampler.curves(), **subject.memory()}
    if checkpoint:
        subject.store.checkpoint()
    used = disk_bytes(subject.path)
    live = messages * (body_bytes + PROPERTIES_BYTES + SLOT_BYTES)
    end_by_kill({**figures, "disk_over_live": used / live})


def fill_journal(path: str, journal_bytes: int, body_bytes: int, singly: bool) -> Figures:
    """Publish until so much is journalled, without any checkpoint; be killed."""
    subject = Subject(path, checkpoint_bytes=0, checkpoint_interval=None)
    batch = subject.batch(body_bytes, min(_ROWS_MOST, max(1, journal_bytes // body_bytes // 8)))
    body, messages = b"x" * body_bytes, 0
    begun = subject.store.stats()["appended_lsn"]
    while (used := subject.store.stats()["appended_lsn"] - begun) < journal_bytes:
        if singly:
            # Up to the target, as far as the bytes of a message are known by now.
            each = used / messages if messages else journal_bytes
            count = max(1, min(_GROUP, int((journal_bytes - used) / each)))
            for _ in range(count):
                subject.channel.basic_publish("", QUEUE, body, PERSISTENT)
            messages += count
        else:
            subject.publish(batch, batch.num_rows)
            messages += batch.num_rows
    subject.confirm()
    end_by_kill({"messages": messages})


def reopen(path: str, messages: int, cold: bool) -> Figures:
    """Open what a killed process left; be killed."""
    if cold:
        gauges.forget_pages(Path(path))
    read = gauges.read_bytes()
    subject = Subject(path, checkpoint_bytes=0, checkpoint_interval=None)
    expect(subject.store.queue_status(QUEUE)["messages_ready"], messages)
    end_by_kill(
        {
            "open_s": subject.open_seconds,
            "replayed_bytes": subject.store.stats()["recovered_bytes"],
            "device_read_bytes": gauges.read_bytes() - read,
            **subject.memory(),
        }
    )


def drain(path: str, messages: int, body_bytes: int) -> Figures:
    """Open, make a checkpoint, then receive and acknowledge everything from the disk."""
    subject = Subject(path)
    rows = _rows(body_bytes)
    start = time.perf_counter()
    subject.store.checkpoint()
    checkpoint_seconds = time.perf_counter() - start
    gauges.forget_pages(subject.path)
    sampler = subject.sampler()
    start = time.perf_counter()
    while got := subject.take(rows):
        sampler.messages += got
    seconds = time.perf_counter() - start
    expect(sampler.messages, messages)
    figures = {"seconds": seconds, "curves": sampler.curves(), **subject.memory()}
    subject.store.checkpoint()
    kept = (subject.path / "RESERVE").lstat().st_blocks * 512  # for a full disk, whatever is stored
    left = disk_bytes(subject.path) - disk_bytes(subject.path / "journal") - kept
    figures |= {"left_on_disk_bytes": left, "checkpoint_s": checkpoint_seconds}
    subject.store.close()
    return figures


def _rows(body_bytes: int) -> int:
    return max(1, min(_ROWS_MOST, _BODIES_BYTES_MOST // body_bytes))
