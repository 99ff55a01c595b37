"""Backlogs larger than memory: what they cost in memory, on disk and in time.

    python benchmarks/bench_paging.py [--messages N] [--quick] [--json FILE] [--plot FILE]
                                      [--directory DIR] [WORK...]

Works: backlog, large, fanout, churn, sparse, pause, recovery; all of them when none is named.

Every store lives in a process of its own.  Memory is that process's resident set over what it had
idle: pyarrow imported, its batch made and an empty store open.  Peaks are the kernel's (VmHWM), the
curves come from a thread that reads /proc/self/statm.  Disk use is what the files occupy
(st_blocks).  Before cold reads the kernel is asked to forget the store's files (posix_fadvise),
which needs no root; ``read_bytes`` of /proc/self/io tells what then came from the disk.  A process
that is killed gets SIGKILL.

The raw floor writes the same bytes in the same run, 1 MiB and one fdatasync at a time: over a
file that is there already, and to new files, which costs more because a file system has to find
room.  A journal does the former, a growing backlog cannot but do the latter.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20
GIB = 1 << 30
BUDGET = 64 * MIB
SLOT_BYTES = 32  # of a message in the index
PROPERTIES_BYTES = 3  # the delivery mode
SEGMENT = 16384  # messages
TENTHS = 10
RAW_STEP = MIB
RAW_BYTES_MAX = 2 * GIB
FAN = 10
PAUSE_ROUNDS = 4
WAITS = 2000
SAMPLE_SECONDS = 0.02
RAW_LIBRARY = Path(__file__).parent.parent / "build/release/benchmarks/libbench_raw.so"
Figures = dict[str, Any]


# ---- what a process can tell of itself ----


def proc_number(path: str, key: str) -> int:
    """The number behind ``key`` in a file of /proc/self."""
    for line in Path("/proc/self", path).read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    return 0


def rss_bytes() -> int:
    """Resident set now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_rss_bytes() -> int:
    """The largest it ever was, as the kernel saw it."""
    return proc_number("status", "VmHWM:") << 10


def disk_bytes(path: Path, part: str = "") -> int:
    """Bytes that the files below occupy.  One that goes meanwhile counts as gone."""
    total = 0
    for folder, _, names in os.walk(path / part):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def forget_pages(path: Path) -> None:
    """Let the next reads of the files come from the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def disk_figures(path: Path, bodies: int = 0, messages: int = 0) -> Figures:
    """Disk use, and how it compares with what is alive."""
    total, journal = disk_bytes(path), disk_bytes(path, "journal")
    figures: Figures = {"disk_bytes": total, "disk_bytes_journal": journal}
    if bodies:
        live = bodies + messages * (PROPERTIES_BYTES + SLOT_BYTES)
        figures |= {
            "disk_over_bodies": total / bodies,
            "disk_over_live": total / live,
            "disk_without_journal_over_live": (total - journal) / live,
        }
    return figures


def quantile(values: list[float], q: float) -> float:
    """The value below which the share ``q`` of them lies."""
    return sorted(values)[min(int(len(values) * q), len(values) - 1)]


# ---- what runs in processes of their own ----


def tell(**what: Any) -> None:
    """A line to the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def wait_to_be_killed() -> None:
    """The end of a process that is to leave its store as it is."""
    tell(kill=True)
    while True:
        signal.pause()


class Bench:
    """An open store with a durable queue "q", and a channel in confirm mode on it."""

    def __init__(self, path: Path, **options: Any) -> None:
        import pyarrow as pa

        import pyqstore

        self.pa, self.path = pa, path
        self.opened = -time.perf_counter()
        self.store = pyqstore.open(path, memory_budget=BUDGET, **options)
        self.opened += time.perf_counter()
        self.channel = self.store.channel()
        self.channel.queue_declare("q", durable=True)
        self.channel.confirm_select()
        self.idle = 0

    def batch(self, rows: int, body_bytes: int) -> Any:
        """A record batch for publish; afterwards the process counts as idle."""
        batch = self.pa.record_batch(
            {"body": self.pa.array([b"x" * body_bytes] * rows, self.pa.binary())}
        )
        time.sleep(0.3)  # the store makes files ahead behind the scenes
        self.idle = rss_bytes()
        return batch

    def publish(self, batch: Any, messages: int, exchange: str = "", key: str = "q") -> None:
        """So many messages, the last batch shorter."""
        for left in range(messages, 0, -batch.num_rows):
            part = batch if left >= batch.num_rows else batch.slice(0, left)
            self.channel.publish_batch(part, exchange, key)

    def confirmed(self) -> None:
        """Wait for all confirms."""
        if not self.channel.wait_for_confirms():
            raise SystemExit("a message was refused")

    def take(self, most: int) -> int:
        """Receive and acknowledge up to so many; how many there were."""
        got = self.channel.get_batch("q", max_messages=most)
        if got.num_rows:
            self.channel.basic_ack(got["delivery_tag"][-1].as_py(), multiple=True)
        return int(got.num_rows)

    def memory(self) -> Figures:
        """Resident set over the idle process."""
        return {
            "rss_idle": self.idle,
            "rss_over_idle": rss_bytes() - self.idle,
            "peak_rss_over_idle": peak_rss_bytes() - self.idle,
        }

    def counters(self) -> Figures:
        """What the store says of its own work."""
        names = (
            "ram_bytes", "checkpoints", "segments_written", "bytes_journalled",
            "bytes_checkpointed", "messages_paged_out", "messages_paged_in",
        )  # fmt: skip
        stats = self.store.stats()
        return {name: stats[name] for name in names}


class Sampler(threading.Thread):
    """Notes seconds, messages, resident set (and disk use, less often) while something goes on."""

    def __init__(self, bench: Bench, total: int) -> None:
        super().__init__(daemon=True)
        self.bench, self.total, self.messages = bench, total, 0
        self.samples: list[list[float]] = []
        self.disk: list[list[float]] = []
        self.ended = threading.Event()
        self.began = time.perf_counter()

    def run(self) -> None:
        count = 0
        while not self.ended.wait(SAMPLE_SECONDS):
            now = time.perf_counter() - self.began
            self.samples.append([now, self.messages, rss_bytes() - self.bench.idle])
            if count % 25 == 0:
                self.disk.append([now, self.messages, disk_bytes(self.bench.path)])
                tell(progress=self.messages / self.total)
            count += 1

    def curves(self) -> Figures:
        """What was noted; at most about a thousand samples."""
        self.ended.set()
        self.join()
        step = max(1, len(self.samples) // 1000)
        return {"samples": self.samples[::step], "disk_samples": self.disk}


def raw(path: Path, total: int) -> Figures:
    """The disk's own rates, in bytes a second."""
    steps = min(total, RAW_BYTES_MAX) // RAW_STEP
    data = b"x" * RAW_STEP
    library = ctypes.CDLL(str(RAW_LIBRARY)) if RAW_LIBRARY.exists() else None
    if library is not None:
        library.raw_write.argtypes = [
            ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64,
        ]  # fmt: skip

    def write(descriptor: int, count: int) -> float:
        began = time.perf_counter()
        if library is not None:
            error = library.raw_write(descriptor, data, RAW_STEP, count)
            if error:
                raise OSError(error, os.strerror(error))
        else:
            for i in range(count):
                os.pwrite(descriptor, data, i * RAW_STEP)
                os.fdatasync(descriptor)
        return count * RAW_STEP / (time.perf_counter() - began)

    path.mkdir()
    fresh = []
    for i in range(TENTHS):
        descriptor = os.open(path / str(i), os.O_RDWR | os.O_CREAT)
        fresh.append(write(descriptor, max(steps // TENTHS, 1)))
        os.close(descriptor)
        tell(progress=(i + 1) / TENTHS)
    rates = []
    for i in range(TENTHS):
        descriptor = os.open(path / str(i), os.O_RDWR)
        rates.append(write(descriptor, max(steps // TENTHS, 1)))
        os.close(descriptor)
    return {
        "by": "native/raw.c" if library else "a loop in Python",
        "bytes": steps * RAW_STEP,
        "overwrite_bytes_per_s": TENTHS / sum(1 / rate for rate in rates),
        "new_bytes_per_s": TENTHS / sum(1 / rate for rate in fresh),
        "new_tenths_bytes_per_s": fresh,
    }


def fill(path: Path, messages: int, body_bytes: int, rows: int) -> None:
    """Publish a backlog; be killed."""
    bench = Bench(path)
    batch = bench.batch(rows, body_bytes)
    sampler = Sampler(bench, messages)
    tenths, began = [], time.perf_counter()
    sampler.start()
    for _ in range(TENTHS):
        tenth = time.perf_counter()
        for left in range(messages // TENTHS, 0, -rows):
            bench.publish(batch, min(left, rows))
            sampler.messages += min(left, rows)
        tenths.append(messages // TENTHS / (time.perf_counter() - tenth))
    bench.confirmed()
    took = time.perf_counter() - began
    result = {
        "messages": messages,
        "body_bytes": body_bytes,
        "messages_per_s": messages / took,
        "bytes_per_s": messages * body_bytes / took,
        "tenths_messages_per_s": tenths,
        "last_of_first_tenth": tenths[-1] / tenths[0],
    }
    result |= sampler.curves() | bench.memory() | bench.counters()
    tell(result=result | disk_figures(path, messages * body_bytes, messages))
    wait_to_be_killed()


def reopen(path: Path, cold: bool, messages: int) -> None:
    """Open what a killed process left, and be killed."""
    if cold:
        forget_pages(path)
    bench = Bench(path)
    stats = bench.store.stats()
    ready = bench.store.queue_status("q")["messages_ready"]
    if ready != messages:
        raise SystemExit(f"{ready} messages came back of {messages}")
    tell(
        result={
            "seconds": bench.opened,
            "replayed_bytes": stats["recovered_bytes"],
            "read_bytes": proc_number("io", "read_bytes:"),
            "messages": ready,
        }
    )
    wait_to_be_killed()


def drain(path: Path, messages: int, body_bytes: int, rows: int) -> Figures:
    """Make a checkpoint, then receive and acknowledge everything from the disk."""
    bench = Bench(path)
    bench.batch(1, 1)
    began = time.perf_counter()
    bench.store.checkpoint()
    bodies = messages * body_bytes
    result: Figures = {
        "checkpoint_seconds": time.perf_counter() - began,
        "before": disk_figures(path, bodies, messages),
    }
    forget_pages(path)
    read = proc_number("io", "read_bytes:")
    sampler = Sampler(bench, messages)
    sampler.start()
    began = time.perf_counter()
    while got := bench.take(rows):
        sampler.messages += got
    took = time.perf_counter() - began
    if sampler.messages != messages:
        raise SystemExit(f"{sampler.messages} messages came back of {messages}")
    result |= {
        "messages_per_s": messages / took,
        "bytes_per_s": bodies / took,
        "read_bytes": proc_number("io", "read_bytes:") - read,
    }
    result |= sampler.curves() | bench.memory() | bench.counters()
    bench.store.checkpoint()
    result["after"] = disk_figures(path)
    bench.store.close()
    return result


def fan_out(path: Path, messages: int, queues: int) -> Figures:
    """1 KiB to so many queues."""
    bench = Bench(path)
    batch = bench.batch(10_000, 1024)
    bench.channel.exchange_declare("f", "fanout", durable=True)
    for i in range(queues):
        bench.channel.queue_declare(f"q{i}", durable=True)
        bench.channel.queue_bind(f"q{i}", "f")
    journalled = bench.store.stats()["bytes_journalled"]
    began = time.perf_counter()
    bench.publish(batch, messages, "f", "")
    bench.confirmed()
    took = time.perf_counter() - began
    result = {"queues": queues, "messages": messages, "messages_per_s": messages / took}
    result["journalled"] = bench.store.stats()["bytes_journalled"] - journalled
    bench.store.checkpoint()
    result |= bench.counters() | disk_figures(path, messages * 1024, messages)
    bench.store.close()
    return result


def churn(path: Path, total: int) -> Figures:
    """Publish and consume, the backlog never larger than a batch of 1 MiB."""
    rows = 1024
    bench = Bench(path)
    batch = bench.batch(rows, 1024)
    messages = total // 1024
    sampler = Sampler(bench, messages)
    sampler.start()
    began = time.perf_counter()
    while sampler.messages < messages:
        bench.publish(batch, rows)
        while bench.take(rows):
            pass
        sampler.messages += rows
    bench.confirmed()
    took = time.perf_counter() - began
    result: Figures = {"messages_per_s": messages / took, "bytes_per_s": total / took}
    result |= sampler.curves() | bench.memory() | bench.counters()
    late = [used for _, done, used in sampler.disk if done >= messages / 10] or [0.0]
    result |= {"disk_least": min(late), "disk_most": max(late)}
    bench.store.close()
    return result


def sparse(path: Path, messages: int) -> Figures:
    """Consume all but the first of every 16384."""
    bench = Bench(path)
    batch = bench.batch(10_000, 100)
    bench.publish(batch, messages)
    bench.confirmed()
    bench.store.checkpoint()
    keeper = bench.store.channel()
    kept = 0
    for left in range(messages, 0, -SEGMENT):
        keeper.basic_get("q")
        kept += 1
        span = min(left, SEGMENT) - 1
        while span > 0:
            span -= bench.take(span)
        tell(progress=1 - left / messages)
    bench.store.checkpoint()
    used, steady = disk_bytes(path), time.perf_counter()
    while time.perf_counter() - steady < 1:  # files are compacted behind the scenes
        time.sleep(0.1)
        if disk_bytes(path) != used:
            used, steady = disk_bytes(path), time.perf_counter()
    bench.store.checkpoint()
    result: Figures = {"messages": messages, "kept": kept}
    result |= disk_figures(path) | bench.memory() | bench.counters()
    keeper.close()  # requeues what it has
    result["came_back"] = bench.take(messages)
    bench.store.close()
    return result


def pause(path: Path, backlog: int) -> Figures:
    """Publish + confirm, with checkpoints one after another and without."""
    import pyqstore

    bench = Bench(path, checkpoint_bytes=0, checkpoint_interval=None)
    bench.publish(bench.batch(10_000, 100), backlog)
    bench.confirmed()
    bench.store.checkpoint()
    durable, body = pyqstore.Properties(delivery_mode=2), b"x" * 100
    made: list[float] = []
    times: dict[bool, list[float]] = {False: [], True: []}

    def make_checkpoints(stop: threading.Event) -> None:
        while not stop.is_set():
            began = time.perf_counter()
            bench.store.checkpoint()
            made.append(time.perf_counter() - began)

    for turn in range(2 * PAUSE_ROUNDS):
        busy, stop = turn % 2 == 1, threading.Event()
        thread = threading.Thread(target=make_checkpoints, args=(stop,))
        if busy:
            thread.start()
        for _ in range(WAITS):
            began = time.perf_counter()
            bench.channel.basic_publish("", "q", body, durable)
            bench.channel.wait_for_confirms()
            times[busy].append(time.perf_counter() - began)
        stop.set()
        if busy:
            thread.join()
        tell(progress=(turn + 1) / (2 * PAUSE_ROUNDS))
    result: Figures = {"checkpoints": len(made), "checkpoint_longest_s": max(made)}
    for name, q in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        calm, busied = quantile(times[False], q), quantile(times[True], q)
        result |= {f"calm_{name}_us": calm * 1e6, f"busy_{name}_us": busied * 1e6}
        result[f"{name}_ratio"] = busied / calm
    bench.store.close()
    return result


def fill_for_recovery(path: Path, messages: int, checkpoint: bool) -> None:
    """A backlog in the journal alone, or behind a checkpoint; be killed."""
    bench = Bench(path, checkpoint_bytes=0, checkpoint_interval=None)
    bench.publish(bench.batch(10_000, 100), messages)
    bench.confirmed()
    if checkpoint:
        bench.store.checkpoint()
    wait_to_be_killed()


CHILDREN: dict[str, Callable[..., Figures | None]] = {
    work.__name__: work
    for work in (raw, fill, reopen, drain, fan_out, churn, sparse, pause, fill_for_recovery)
}


# ---- the parent ----


class Run:
    """The works, one child after the other, and what they told."""

    def __init__(self, directory: Path, messages: int, quick: bool, progress: Any) -> None:
        self.path = directory / "store"
        self.messages, self.quick, self.progress = messages, quick, progress
        self.figures: Figures = {"messages": messages, "quick": quick, "budget": BUDGET}

    def child(self, title: str, work: str, **arguments: Any) -> Figures:
        """Run a work in a process of its own; its result."""
        task = self.progress.add_task(title, total=1.0)
        result: Figures = {}
        request = json.dumps({"work": work, "path": str(self.path), **arguments})
        command = [sys.executable, __file__, "--child", request]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            killed = False
            for line in process.stdout:
                told = json.loads(line)
                result = told.get("result", result)
                if "progress" in told:
                    self.progress.update(task, completed=told["progress"])
                if told.get("kill"):
                    killed = True
                    process.kill()
        if process.returncode != (-signal.SIGKILL if killed else 0):
            raise SystemExit(f"{title}: failed with {process.returncode}")
        self.progress.update(task, completed=1.0)
        return result

    def clean(self) -> None:
        """Remove the store, and have the file system done with that before the next begins."""
        shutil.rmtree(self.path, ignore_errors=True)
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def floor(self, total: int) -> Figures:
        """The disk itself, with so many bytes."""
        figures = self.child("raw disk", "raw", total=total)
        self.clean()
        return figures

    def backlog_of(self, name: str, messages: int, body_bytes: int, rows: int) -> None:
        """Fill, kill, open, kill, open cold, drain."""
        messages = messages // TENTHS * TENTHS
        size: Figures = {"messages": messages, "body_bytes": body_bytes, "rows": rows}
        figures: Figures = {"raw": self.floor(messages * body_bytes)}
        figures["publish"] = self.child(f"{name}: publish", "fill", **size)
        for cold in (False, True):
            figures["open_cold" if cold else "open"] = self.child(
                f"{name}: open after a kill", "reopen", cold=cold, messages=messages
            )
        figures["drain"] = self.child(f"{name}: drain", "drain", **size)
        self.figures[name] = figures
        self.clean()

    def backlog(self) -> None:
        """Messages of 100 bytes."""
        self.backlog_of("backlog", self.messages, 100, 10_000)

    def large(self) -> None:
        """Bodies for the message store; 10,000 of them in a batch were more than the budget."""
        self.backlog_of("large", self.messages // 20, 8192, 1000)

    def fanout(self) -> None:
        """One copy beside ten."""
        messages = 100_000 if self.quick else 400_000
        figures: Figures = {}
        for queues in (1, FAN):
            figures[str(queues)] = self.child(
                f"fanout to {queues}", "fan_out", messages=messages, queues=queues
            )
            self.clean()
        one, many = figures["1"], figures[str(FAN)]
        stored = [each["disk_bytes"] - each["disk_bytes_journal"] for each in (one, many)]
        figures["journalled_ratio"] = many["journalled"] / one["journalled"]
        figures["disk_ratio"] = stored[1] / stored[0]
        self.figures["fanout"] = figures

    def churn(self, total: int = 0) -> None:
        """Through the store and out again."""
        total = total or (2 if self.quick else 50) * GIB
        self.figures["churn"] = {
            "bytes": total,
            "raw": self.floor(total),
            **self.child("churn", "churn", total=total),
        }
        self.clean()

    def sparse(self) -> None:
        """Nearly everything consumed."""
        self.figures["sparse"] = self.child("sparse", "sparse", messages=self.messages // 2)
        self.clean()

    def pause(self) -> None:
        """Checkpoints beside publishers."""
        self.figures["pause"] = self.child("pause", "pause", backlog=1_000_000)
        self.clean()

    def recovery(self) -> None:
        """Open time over what there is to replay, and over what there is not."""
        rows = []
        for checkpoint in (False, True):
            most = self.messages if checkpoint else self.messages // 2
            for messages in (most // 16, most // 4, most):
                title = f"recovery: {messages:,}{' behind a checkpoint' if checkpoint else ''}"
                self.child(title, "fill_for_recovery", messages=messages, checkpoint=checkpoint)
                row = self.child(title, "reopen", cold=True, messages=messages)
                rows.append({"checkpoint": checkpoint, **row})
                self.clean()
        self.figures["recovery"] = rows


WORKS = ("backlog", "large", "fanout", "churn", "sparse", "pause", "recovery")


# ---- tables ----

Row = tuple[str, str, str, bool | None]  # figure, value, aim, was it reached


def mib(size: float) -> str:
    """Bytes as MiB."""
    return f"{size / MIB:,.1f} MiB"


def backlog_rows(name: str, figures: Figures) -> Iterator[Row]:
    """Publishing, opening and draining a backlog."""
    publish, drained, floor = figures["publish"], figures["drain"], figures["raw"]
    before, after = drained["before"], drained["after"]
    peak, aim = publish["peak_rss_over_idle"], BUDGET + 64 * MIB
    overwrite = publish["bytes_per_s"] / floor["overwrite_bytes_per_s"]
    fresh = floor["new_tenths_bytes_per_s"]
    opened, cold = figures["open"]["seconds"], figures["open_cold"]["seconds"]
    rate = drained["messages_per_s"]
    yield (
        "raw disk, over a file / to new files",
        (f"{mib(floor['overwrite_bytes_per_s'])}/s / {mib(floor['new_bytes_per_s'])}/s"),
        "",
        None,
    )
    yield "publish", f"{publish['messages_per_s']:,.0f} msg/s", "", None
    yield "  bodies over raw", f"{overwrite:.2f}", "0.2", overwrite >= 0.2
    yield (
        "  bodies over raw to new files",
        (f"{publish['bytes_per_s'] / floor['new_bytes_per_s']:.2f}"),
        "",
        None,
    )
    yield (
        "  last tenth over first",
        f"{publish['last_of_first_tenth']:.2f}",
        "1",
        (publish["last_of_first_tenth"] >= min(0.8, fresh[-1] / fresh[0])),
    )
    yield "  the same of raw to new files", f"{fresh[-1] / fresh[0]:.2f}", "", None
    yield "  peak RSS over idle", mib(peak), f"<= {mib(aim)}", peak <= aim
    yield "disk over bodies", f"{before['disk_over_bodies']:.2f}", "", None
    yield "disk over bodies, properties, slots", f"{before['disk_over_live']:.2f}", "", None
    yield "  without the journal", f"{before['disk_without_journal_over_live']:.2f}", "", None
    yield "open after a kill", f"{opened:.2f} s", "<= 2 s", opened <= 2
    yield "  nothing cached", f"{cold:.2f} s", "<= 2 s", cold <= 2
    if name == "backlog":
        yield "drain from disk", f"{rate:,.0f} msg/s", ">= 1,000,000", rate >= 1e6
    else:
        yield "drain from disk", f"{rate:,.0f} msg/s", "", None
    yield "  bytes", f"{mib(drained['bytes_per_s'])}/s", "", None
    yield (
        "  peak RSS over idle",
        mib(drained["peak_rss_over_idle"]),
        f"<= {mib(aim)}",
        (drained["peak_rss_over_idle"] <= aim),
    )
    rest = after["disk_bytes"] - after["disk_bytes_journal"]
    yield "disk afterwards, without the journal", mib(rest), "<= 1 MiB", rest <= MIB
    yield "  the journal", mib(after["disk_bytes_journal"]), "", None


def fanout_rows(figures: Figures) -> Iterator[Row]:
    """Ten copies over one."""
    for name, key in (("journalled", "journalled_ratio"), ("on disk", "disk_ratio")):
        yield f"{name}, {FAN} queues over one", f"{figures[key]:.2f}", "<= 1.3", figures[key] <= 1.3


def churn_rows(figures: Figures) -> Iterator[Row]:
    """Through and out."""
    segments = figures["segments_written"]
    raw_share = figures["bytes_per_s"] / figures["raw"]["overwrite_bytes_per_s"]
    spread = figures["disk_most"] / max(figures["disk_least"], 1)
    yield "rate", f"{figures['messages_per_s']:,.0f} msg/s", "", None
    yield "  over raw", f"{raw_share:.2f}", "", None
    yield "segments written", f"{segments:,}", "0", segments == 0
    yield (
        "disk, least to most",
        f"{mib(figures['disk_least'])} to {mib(figures['disk_most'])}",
        ("flat"),
        spread < 2,
    )
    yield "peak RSS over idle", mib(figures["peak_rss_over_idle"]), "", None


def sparse_rows(figures: Figures) -> Iterator[Row]:
    """What a few survivors cost."""
    rest = figures["disk_bytes"] - figures["disk_bytes_journal"]
    yield "kept", f"{figures['kept']:,} of {figures['messages']:,}", "", None
    yield "disk without the journal", mib(rest), "", None
    yield "  for each that is kept", f"{rest / figures['kept']:,.0f} B", "", None
    yield "RSS over idle", mib(figures["rss_over_idle"]), "", None
    yield (
        "came back",
        f"{figures['came_back']:,}",
        f"{figures['kept']:,}",
        (figures["came_back"] == figures["kept"]),
    )


def pause_rows(figures: Figures) -> Iterator[Row]:
    """Checkpoints beside publishers."""
    for name in ("p50", "p99", "max"):
        value = f"{figures[f'calm_{name}_us']:,.0f} -> {figures[f'busy_{name}_us']:,.0f} us"
        yield f"{name} without -> with checkpoints", value, "", None
    yield "p99 ratio", f"{figures['p99_ratio']:.2f}", "<= 3", figures["p99_ratio"] <= 3
    yield "checkpoints", f"{figures['checkpoints']:,}", "", None
    yield "  the longest", f"{figures['checkpoint_longest_s']:.3f} s", "", None


def recovery_rows(figures: list[Figures]) -> Iterator[Row]:
    """Open times."""
    behind = [row for row in figures if row["checkpoint"]]
    for row in figures:
        name = f"{row['messages']:,} {'behind a checkpoint' if row['checkpoint'] else 'journalled'}"
        value = f"{row['seconds']:.3f} s, {mib(row['replayed_bytes'])} replayed"
        largest = row is behind[-1]
        yield name, value, "<= 2 s" if largest else "", row["seconds"] <= 2 if largest else None


def print_tables(figures: Figures, console: Any) -> None:
    """The figures beside what they aim at."""
    from rich.table import Table

    makers: dict[str, Callable[[Any], Iterator[Row]]] = {
        "backlog": lambda each: backlog_rows("backlog", each),
        "large": lambda each: backlog_rows("large", each),
        "fanout": fanout_rows,
        "churn": churn_rows,
        "sparse": sparse_rows,
        "pause": pause_rows,
        "recovery": recovery_rows,
    }
    for work, rows in makers.items():
        if work not in figures:
            continue
        table = Table("figure", "value", "aim", "", title=work, title_justify="left")
        for name, value, aim, reached in rows(figures[work]):
            table.add_row(name, value, aim, {True: "reached", False: "MISSED", None: ""}[reached])
        console.print(table)


# ---- the plot ----


def rates(samples: list[list[float]], pieces: int = 50) -> tuple[list[float], list[float]]:
    """Messages, and messages a second there, from samples of both."""
    step = max(1, len(samples) // pieces)
    chosen = samples[::step]
    pairs = [(a, b) for a, b in itertools.pairwise(chosen) if b[0] > a[0]]
    return [b[1] for _, b in pairs], [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]


def plot(figures: Figures, path: Path) -> None:
    """One page: publish rate and memory over messages, disk, drain."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    page, ((publishing, memory), (disk, draining)) = pyplot.subplots(2, 2, figsize=(11.7, 8.3))
    bars: dict[str, list[float]] = {}
    for name in ("backlog", "large"):
        if name not in figures:
            continue
        filled, drained = figures[name]["publish"], figures[name]["drain"]
        body = filled["body_bytes"]
        label = f"{filled['messages']:,} x {body} B"
        for axes, each in ((publishing, filled), (draining, drained)):
            done, rate = rates(each["samples"])
            axes.plot(
                [100 * x / filled["messages"] for x in done],
                [x * body / MIB for x in rate],
                label=label,
            )
        for each, style, what in ((filled, "-", "publish"), (drained, ":", "drain")):
            memory.plot(
                [100 * x[1] / filled["messages"] for x in each["samples"]],
                [x[2] / MIB for x in each["samples"]],
                style,
                label=f"{label}, {what}",
            )
        bars[label] = [
            filled["messages"] * (body + PROPERTIES_BYTES + SLOT_BYTES) / GIB,
            filled["disk_bytes"] / GIB,
            drained["before"]["disk_bytes"] / GIB,
            drained["after"]["disk_bytes"] / GIB,
        ]
        publishing.axhline(
            figures[name]["raw"]["new_bytes_per_s"] / MIB, color="grey", linestyle="--"
        )
    memory.axhline((BUDGET + 64 * MIB) / MIB, color="red", linestyle="--", label="budget + 64 MiB")
    for i, (label, heights) in enumerate(bars.items()):
        disk.bar([x + 0.4 * i for x in range(len(heights))], heights, 0.4, label=label)
    disk.set_xticks([x + 0.2 for x in range(4)])
    disk.set_xticklabels(["live", "published", "checkpoint", "drained"])
    titles = (
        (publishing, "Publishing (dashed: raw disk, new files)", "MiB of bodies a second"),
        (memory, "Resident set over the idle process", "MiB"),
        (disk, "Disk use", "GiB"),
        (draining, "Draining from disk", "MiB of bodies a second"),
    )
    for axes, title, unit in titles:
        axes.set(title=title, ylabel=unit)
        if axes is not disk:
            axes.set_xlabel("% of the messages")
        axes.set_ylim(bottom=0)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8)
    page.tight_layout()
    page.savefig(path, dpi=120)
    pyplot.close(page)


# ---- the command ----


def arguments_of(given: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of {', '.join(WORKS)}; all")
    parser.add_argument("--messages", type=int, help="of 100 bytes in the backlog (20,000,000)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, 2 GiB churn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a page there (PNG)")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="on the disk to measure")
    options = parser.parse_args(given)
    for work in options.works:
        if work not in WORKS:
            parser.error(f"no work {work!r}; there are {', '.join(WORKS)}")
    if options.messages is not None and options.messages < 1000:
        parser.error("--messages: 1000 at least")
    return options


def main(given: list[str] | None = None) -> None:
    """The parent."""
    from rich.console import Console
    from rich.progress import Progress

    options = arguments_of(given)
    messages = options.messages or (2_000_000 if options.quick else 20_000_000)
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="bench-paging-", dir=options.directory) as directory,
        Progress(console=Console(stderr=True)) as progress,
    ):
        run = Run(Path(directory), messages, options.quick, progress)
        for work in options.works or WORKS:
            getattr(run, work)()
            if options.json:  # what was measured stays, whatever comes next
                options.json.write_text(json.dumps(run.figures, indent=1) + "\n")
    print_tables(run.figures, console)
    if options.plot:
        plot(run.figures, options.plot)


def child(request: Figures) -> None:
    """A work in a process of its own."""
    work, path = request.pop("work"), Path(request.pop("path"))
    result = CHILDREN[work](path, **request)
    if result is not None:
        tell(result=result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        main()
