"""Adoption by an owner, with time, signals, kills and shortages in between."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore import _core, inbox

from ..owning import ROWS, Owner, ask, left, rows_of, wait_until, write

# ---- taken back ----


def test_what_timed_out_is_never_adopted(path: Path, owner: Owner, stage: Path) -> None:
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    with pytest.raises(pyqstore.StoreLocked, match=str(owner.process.pid)):
        pyqstore.adopt_into(path, [file], "key", timeout=0.5)
    assert left(path) == []
    owner.signal(signal.SIGCONT)
    assert pyqstore.adopt_into(path, [file], "another").committed
    assert owner.send("look") == ROWS


def test_an_interrupted_call_takes_its_manifest_back(path: Path, owner: Owner, stage: Path) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def interrupt_when_asked() -> None:
        while not left(path):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGALRM)

    file = write(stage / "a.qsb", "s")
    owner.freeze()
    before = signal.signal(signal.SIGALRM, interrupt)
    looks = threading.Thread(target=interrupt_when_asked, daemon=True)
    try:
        looks.start()
        with pytest.raises(KeyboardInterrupt):
            pyqstore.adopt_into(path, [file], "key")
    finally:
        signal.signal(signal.SIGALRM, before)
    looks.join()
    assert left(path) == []
    owner.signal(signal.SIGCONT)
    assert owner.send("look") == 0


def test_a_call_interrupted_while_it_leaves_its_manifest_takes_it_back(
    path: Path, owner: Owner, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    class Slow(_core.Request):
        def send(self) -> None:
            super().send()
            signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(_core, "Request", Slow)
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            pyqstore.adopt_into(path, [file], "key")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert left(path) == []
    owner.signal(signal.SIGCONT)
    assert owner.send("look") == 0


def begin_when_asked(path: Path) -> subprocess.Popen[bytes]:
    """Another process gives the manifest the name that an owner begins with."""
    script = """
import os, sys, time
print("looks", flush=True)
while not (asked := [name for name in os.listdir(sys.argv[1]) if name.endswith(".ask")]):
    time.sleep(0.001)
name = os.path.join(sys.argv[1], asked[0])
os.rename(name, name[:-4] + ".own")
"""
    command = [sys.executable, "-c", script, str(path / "inbox")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"looks\n"
    return process


@pytest.mark.slow
def test_an_owner_that_began_and_never_answers_is_not_waited_for_for_ever(
    path: Path, owner: Owner, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_ANSWER_S", 1.0)
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    begins = begin_when_asked(path)
    with pytest.raises(TimeoutError, match=r"not known.*Repeat the call with the same key"):
        pyqstore.adopt_into(path, [file], "key", timeout=10)
    begins.wait()
    owner.signal(signal.SIGCONT)
    owner.close()  # the next one goes on
    pyqstore.adopt_into(path, [file], "key")
    assert rows_of(path) == ROWS


def test_looks_that_fail_for_a_while_do_not_fail_what_an_owner_adopts(
    path: Path, owner: Owner, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0

    def fails(*args: Any, **options: Any) -> pyqstore.Store:
        nonlocal failures
        if left(path) and left(path)[0].endswith(".own"):
            failures += 1
            if failures <= 3:
                raise OSError(24, "too many open files")
            owner.signal(signal.SIGCONT)
        return pyqstore.open(*args, **options)

    monkeypatch.setattr(inbox, "open", fails)
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    begins = begin_when_asked(path)
    assert pyqstore.adopt_into(path, [file], "key").committed
    assert failures > 3
    begins.wait()
    assert owner.send("look") == ROWS


def test_a_call_asks_again_when_the_owners_clock_was_set_forward(
    path: Path, owner: Owner, stage: Path
) -> None:
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    script = """
import os, signal, sys, time
while not (asked := [name for name in os.listdir(sys.argv[1]) if name.endswith(".ask")]):
    time.sleep(0.001)
os.remove(os.path.join(sys.argv[1], asked[0]))
os.kill(int(sys.argv[2]), signal.SIGCONT)
"""  # to the owner's clock it had expired
    command = [sys.executable, "-c", script, str(path / "inbox"), str(owner.process.pid)]
    removes = subprocess.Popen(command)
    assert pyqstore.adopt_into(path, [file], "key", timeout=600).committed
    assert removes.wait() == 0
    assert left(path) == []
    assert owner.send("look") == ROWS


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def open_with(most: int, path: Path) -> pyqstore.Store | None:
    """None: that takes more descriptors."""
    try:
        with descriptors(most):
            return pyqstore.open(path)
    except pyqstore.StoreError as error:
        if error.status == "QS_EMFILE":
            return None
        raise


def test_a_store_that_opens_when_descriptors_run_out_takes_in_once_there_are_some(
    path: Path, owner: Owner, stage: Path
) -> None:
    owner.close()
    file = write(stage / "a.qsb", "s")
    opened = 0
    taken = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(3, 10_000) if number not in taken]  # others have some
    for number in free[:60]:
        store = open_with(number + 1, path)
        if store is not None:
            with store:
                assert pyqstore.adopt_into(path, [file], f"key {number}").committed
                opened += 1
                assert store.stream("s").next == opened * ROWS
        if opened == 5:
            break
    assert opened == 5


def test_a_free_store_whose_checkpoint_fails_has_adopted(
    path: Path, owner: Owner, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any) -> None:
        raise pyqstore.StoreFull("no space left")

    owner.close()
    monkeypatch.setattr(inbox, "_JOURNAL_BYTES_KEPT", 0)
    monkeypatch.setattr(pyqstore.Store, "checkpoint", fails)
    monkeypatch.setattr(pyqstore.Store, "forget_transaction", fails)
    assert pyqstore.adopt_into(path, [write(stage / "a.qsb", "s")], "key", forget=["key"]).committed
    assert rows_of(path) == ROWS


def test_a_look_that_fails_is_no_answer(path: Path, owner: Owner, stage: Path) -> None:
    owner.freeze()
    request = ask(path, write(stage / "a.qsb", "s"), "key", 60)
    with descriptors(3):
        assert request.look() is None
        trouble = request.trouble
    owner.signal(signal.SIGCONT)
    wait_until(lambda: request.look() is not None)
    assert isinstance(trouble, pyqstore.StoreError)
    assert trouble.status == "QS_EMFILE"
    assert owner.send("look") == ROWS


def test_what_a_dead_process_asked_expires(path: Path, owner: Owner, stage: Path) -> None:
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    request = ask(path, file, "key", 0.2)
    assert [name[-4:] for name in left(path)] == [".ask"]
    time.sleep(0.5)
    owner.signal(signal.SIGCONT)
    wait_until(lambda: left(path) == [])
    with pytest.raises(TimeoutError, match="in time"):
        request.look()
    assert owner.send("look") == 0


def test_an_owner_that_closes_leaves_it_to_who_asked(path: Path, owner: Owner, stage: Path) -> None:
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    request = ask(path, file, "key", 60)
    owner.kill()
    with pyqstore.open(path) as store:  # the next owner takes in what is there
        wait_until(lambda: store.stream("s").next == ROWS)
        wait_until(lambda: request.look() is not None)
    assert left(path) == []


def test_a_free_store_is_held_until_its_engine_has_adopted(
    path: Path, owner: Owner, stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed in the middle, it would begin anew each time, and never end."""
    monkeypatch.setattr(inbox, "_FREE_S", 0.0)
    file = write(stage / "a.qsb", "q", 500_000)
    owner.freeze()
    begins = begin_when_asked(path)
    kill = subprocess.Popen(
        ["sh", "-c", f"while ! ls {path}/inbox/*.own; do :; done; kill -9 {owner.process.pid}"]
    )
    assert pyqstore.adopt_into(path, [file], "key").rows == 500_000
    begins.wait()
    kill.wait()
    assert rows_of(path, "q") == 500_000


def test_who_waits_takes_a_store_that_comes_free(path: Path, owner: Owner, stage: Path) -> None:
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    kill = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {owner.process.pid}"])
    assert pyqstore.adopt_into(path, [file], "key").rows == ROWS
    kill.wait()
    assert left(path) == []
    assert rows_of(path) == ROWS


# ---- killed anywhere ----


def test_owners_killed_at_any_moment_adopt_once(path: Path, stage: Path) -> None:
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    file = write(stage / "a.qsb", "s")
    for number in range(12):
        owner = Owner(path)
        delay = choose.choice([0.0, 0.002, 0.005, 0.01, 0.02, 0.05])
        kill = subprocess.Popen(["sh", "-c", f"sleep {delay}; kill -9 {owner.process.pid}"])
        pyqstore.adopt_into(path, [file], f"key {number}")
        kill.wait()
        owner.kill()
        assert rows_of(path) == (number + 1) * ROWS, seed
    assert left(path) == []


def test_jobs_killed_at_any_moment_and_repeated_adopt_once(
    path: Path, owner: Owner, stage: Path
) -> None:
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    file = write(stage / "a.qsb", "s")
    code = "import sys, pyqstore; print(1, flush=True); pyqstore.adopt_into(*sys.argv[1:3], 'key')"
    for number in range(12):
        key = f"key {number}"
        job = subprocess.Popen(
            [sys.executable, "-c", code.replace("'key'", repr(key)), path, stage],
            stdout=subprocess.PIPE,
        )
        assert job.stdout is not None
        job.stdout.readline()
        time.sleep(choose.choice([0.0, 0.002, 0.005, 0.01, 0.02, 0.05]))
        job.kill()
        job.wait()
        job.stdout.close()
        pyqstore.adopt_into(path, [file], key)
        assert owner.send("work") == (number + 1) * ROWS, seed
