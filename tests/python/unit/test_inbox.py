"""Staged files adopted by a store that another process has open."""

from __future__ import annotations

import json
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pyqstore
from pyqstore import cli

from ..owning import ROWS, Owner, ask, left, rows_of, wait_until, write

# ---- an owner at work ----


def test_an_owner_that_publishes_and_consumes_adopts_meanwhile(
    path: Path, owner: Owner, stage: Path
) -> None:
    for number in range(5):
        write(stage / f"{number}.qsb", "s")
        assert owner.send("work") == number * ROWS
        adopted = pyqstore.adopt_into(path, [stage / f"{number}.qsb"], f"key {number}")
        assert adopted == pyqstore.Adoption(
            committed=True, rows=ROWS, unroutable=0, files=1, linked=1
        )
        assert owner.send("work") == (number + 1) * ROWS
    assert left(path) == []


def test_a_folder_goes_into_a_queue_and_its_key_only_once(
    path: Path, owner: Owner, stage: Path
) -> None:
    write(stage / "a.qsb", "q")
    write(stage / "b.qsb", "q")
    first = pyqstore.adopt_into(path, stage, "key")
    assert (first.committed, first.rows, first.linked) == (True, 2 * ROWS, 0)
    for file in stage.iterdir():
        file.unlink()
    stage.rmdir()
    assert not pyqstore.adopt_into(path, stage, "key").committed  # as Store.adopt: it may be gone
    owner.kill()
    assert rows_of(path, "q") == 2 * ROWS


def test_errors_are_those_of_adopt(path: Path, owner: Owner, stage: Path) -> None:
    with pytest.raises(pyqstore.Unroutable, match="routing key 'nowhere'") as refused:
        pyqstore.adopt_into(path, [write(stage / "a.qsb", "nowhere")], "key")
    assert refused.value.count == ROWS
    with pytest.raises(FileNotFoundError, match="gone"):
        pyqstore.adopt_into(path, [stage / "gone.qsb"], "key")
    whole = write(stage / "b.qsb", "s").read_bytes()
    (stage / "b.qsb").write_bytes(whole[:-100])
    with pytest.raises(pyqstore.StoreCorrupt, match=r"b\.qsb") as damaged:
        pyqstore.adopt_into(path, [stage / "b.qsb"], "key")
    assert (damaged.value.path or "").endswith("b.qsb")
    dropped = pyqstore.adopt_into(path, [stage / "a.qsb"], "key", mandatory=False)
    assert (dropped.committed, dropped.unroutable) == (True, ROWS)
    assert left(path) == []
    assert owner.send("look") == 0


@pytest.mark.parametrize("is_owned", [True, False], ids=["owner", "free"])
def test_rows_that_another_keys_rows_exclude_are_not_adopted_when_the_call_is_repeated(
    path: Path, owner: Owner, stage: Path, is_owned: bool
) -> None:
    """The key that excluded them was forgotten, as if they had been adopted."""
    file = write(stage / "a.qsb", "s")
    assert pyqstore.adopt_into(path, [file], "old").committed
    if not is_owned:
        owner.close()
    for _ in range(2):
        adopted = pyqstore.adopt_into(path, [file], "new", unless=["old"], forget=["old"])
        assert (adopted.committed, adopted.excluded) == (False, True)
    owner.kill()
    assert rows_of(path) == ROWS


def test_arguments_are_checked_first(path: Path, owner: Owner, stage: Path) -> None:
    file = write(stage / "a.qsb", "s")
    for timeout in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            pyqstore.adopt_into(path, [file], "key", timeout=timeout)
    with pytest.raises(ValueError, match="key of 0 bytes"):
        pyqstore.adopt_into(path, [file], "")
    with pytest.raises(ValueError, match="key of 2000 bytes"):
        pyqstore.adopt_into(path, [file], "key", forget=["k" * 2000])
    with pytest.raises(TypeError, match=r"unless\[0\] must be str"):
        pyqstore.adopt_into(path, [file], "key", unless=[7])  # type: ignore[list-item]
    with pytest.raises(pyqstore.StoreNotFound):
        pyqstore.adopt_into(path.parent / "no store", [file], "key")
    assert left(path) == []


def test_keys_decide_and_are_forgotten(path: Path, owner: Owner, stage: Path) -> None:
    file = write(stage / "a.qsb", "s")
    assert pyqstore.adopt_into(path, [file], "first").committed
    excluded = pyqstore.adopt_into(path, [file], "second", unless=["none", "first"])
    assert (excluded.committed, excluded.excluded) == (False, True)
    repeated = pyqstore.adopt_into(path, [file], "first", unless=["none"])
    assert (repeated.committed, repeated.excluded) == (False, False)
    assert pyqstore.adopt_into(path, [file], "third", forget=["first", "third"]).committed
    wait_until(lambda: pyqstore.adopt_into(path, [file], "third", forget=["third"]).committed)
    owner.close()
    with pyqstore.open(path) as store:
        known = [store.transaction_known(key) for key in ("first", "second", "third")]
    assert known == [False, False, False]


def test_a_free_store_is_opened_for_it(path: Path, owner: Owner, stage: Path) -> None:
    owner.kill()
    file = write(stage / "a.qsb", "s")
    assert pyqstore.adopt_into(path, [file], "key", forget=["key"]).linked == 1
    assert pyqstore.adopt_into(path, [file], "new", unless=["key"]).committed
    assert pyqstore.adopt_into(path, [file], "key", unless=["new"]).excluded
    assert left(path) == []


def test_the_owner_shows_what_it_answered_and_its_last_error(path: Path, stage: Path) -> None:
    file = write(stage / "a.qsb", "q")
    with pyqstore.open(path) as store, store.channel() as channel:
        with pytest.raises(pyqstore.Unroutable):
            pyqstore.adopt_into(path, [file], "key")
        channel.queue_declare("q", durable=True)
        assert pyqstore.adopt_into(path, [file], "key").committed
        wait_until(lambda: store.stats().inbox_adopted == 1)
        stats = store.stats()
        assert (stats.inbox_refused, stats.inbox_failing, stats.inbox_adopting) == (1, 0, False)
        assert "routing key 'q'" in stats.inbox_error


def test_the_process_that_owns_the_store_may_ask_itself(path: Path, stage: Path) -> None:
    file = write(stage / "a.qsb", "q")
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        assert pyqstore.adopt_into(path, [file], "key").committed
        assert store.queue_status("q").messages_ready == ROWS


# ---- the directory ----


def test_the_inbox_is_private_and_others_files_in_it_stay(
    path: Path, owner: Owner, stage: Path
) -> None:
    inbox = path / "inbox"
    assert stat.S_IMODE(inbox.stat().st_mode) == 0o700
    (inbox / "notes.txt").write_text("mine")
    fake = "0" * 13 + "fff-" + "0" * 16  # it expired long ago
    (inbox / f"{fake}.own").symlink_to("/etc/passwd")
    (inbox / f"{fake}.ask").write_text("no manifest")
    file = write(stage / "a.qsb", "s")
    assert pyqstore.adopt_into(path, [file], "key").committed
    assert (inbox / "notes.txt").read_text() == "mine"
    assert Path("/etc/passwd").exists()
    assert f"{fake}.ask" not in left(path)
    owner.kill()
    inbox.chmod(0o770)
    with pytest.raises(ValueError, match="can be written by other users"):
        pyqstore.open(path)


@pytest.mark.parametrize("is_begun", [False, True], ids=["not begun", "begun"])
def test_a_damaged_manifest_is_answered(
    path: Path, owner: Owner, stage: Path, is_begun: bool
) -> None:
    file = write(stage / "a.qsb", "s")
    owner.freeze()
    request = ask(path, file, "key", 60)
    (name,) = left(path)
    manifest = bytearray((path / "inbox" / name).read_bytes())
    manifest[-10] ^= 1
    (path / "inbox" / name).write_bytes(manifest)
    if is_begun:  # as of an owner that died then
        (path / "inbox" / name).rename(path / "inbox" / name.replace(".ask", ".own"))
    owner.signal(signal.SIGCONT)
    with pytest.raises(
        pyqstore.StoreFailed if is_begun else pyqstore.StoreCorrupt,
        match=r"is not known.*no whole note" if is_begun else "^(?!.*not known).*no whole note",
    ):
        wait_until(lambda: request.look() is not None)
    assert pyqstore.adopt_into(path, [file], "key").committed  # the owner goes on
    assert owner.send("look") == ROWS


def test_inspect_shows_what_waits(path: Path, owner: Owner, stage: Path) -> None:
    def shown() -> Any:
        result = CliRunner().invoke(cli.main, ["inspect", str(path), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.output)["inbox"]

    owner.freeze()
    ask(path, write(stage / "a.qsb", "s"), "key", 3600)
    owner.kill()
    (one,) = shown()
    assert one["state"] == "waits"
    assert 0 < one["bytes"] < 1000
    assert 0 <= one["age_s"] < 3600
    result = CliRunner().invoke(cli.main, ["inspect", str(path)])
    assert "waits" in result.output


def test_inspect_shows_what_became_of_it(path: Path, owner: Owner, stage: Path) -> None:
    def shown() -> Any:
        result = CliRunner().invoke(cli.main, ["inspect", str(path), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.output)["inbox"]

    owner.freeze()
    ask(path, write(stage / "a.qsb", "s"), "key", 3600)
    owner.kill()
    (asked,) = (path / "inbox").iterdir()
    asked.rename(asked.with_suffix(".own"))
    assert [one["state"] for one in shown()] == ["begun"]
    with pyqstore.open(path) as store:
        ask(path, write(stage / "b.qsb", "nowhere"), "another key", 7200)
        wait_until(lambda: (store.stats().inbox_adopted, store.stats().inbox_refused) == (1, 1))
    adopted, refused = shown()
    assert (adopted["state"], adopted["error"]) == ("adopted", "")
    assert refused["state"] == "refused"
    assert "routing key 'nowhere'" in refused["error"]
    assert "refused" in CliRunner().invoke(cli.main, ["inspect", str(path)]).output


def test_the_thread_of_an_idle_store_sleeps(path: Path) -> None:
    def switches() -> int:
        for task in Path("/proc/self/task").iterdir():
            status = (task / "status").read_text()
            if status.split()[1] == "qs-inbox":
                (line,) = (x for x in status.splitlines() if x.startswith("voluntary"))
                return int(line.split()[1])
        raise AssertionError("there is no such thread")

    with pyqstore.open(path):
        before, end = -1, time.monotonic() + 60
        while (now := switches()) != before:
            assert time.monotonic() < end
            before = now
            time.sleep(2)
