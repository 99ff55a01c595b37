"""A transaction over several servers of Arrow Flight: prepared at all before the first commits."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
import pyqstore.flight
from pyqstore.flight import Client, TransactionState, commit_shards, settle_shards
from pyqstore.flight.preparing import PreparedFolders

from ..platter import Platter
from ..sharing import DEALS, Calls, Died, dies_after, dies_before, job, rows_of

RUN, OTHER = "a" * 32, "b" * 32
NOTHING = TransactionState(False, None, 0)


class Servers:
    """Stores with a server in front of each, in this process."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self._open = ExitStack()
        self.start()

    def start(self) -> None:
        self.stores = [self._open.enter_context(pyqstore.open(path)) for path in self.paths]
        self.addresses = [
            self._open.enter_context(pyqstore.flight.serve(store)).address for store in self.stores
        ]
        for store in self.stores:
            with store.channel() as channel:
                channel.queue_declare("q", durable=True)

    def clients(self) -> list[Client]:
        return [self._open.enter_context(pyqstore.connect(address)) for address in self.addresses]

    def close(self) -> None:
        self._open.close()

    def restart(self) -> list[Client]:
        self.close()
        self.start()
        return self.clients()

    def bodies(self) -> list[bytes]:
        return sorted(
            body
            for store in self.stores
            for batch in store.browse("q")
            for body in batch["body"].to_pylist()
        )

    def staged(self) -> list[str]:
        """Folders of staged files, and whether something is promised."""
        roots = [path / "staging" for path in self.paths]
        return [each.name for root in roots if root.exists() for each in root.iterdir()]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path / "one", tmp_path / "two")
    yield made
    made.close()


@pytest.fixture
def client(servers: Servers) -> Client:
    return servers.clients()[0]


def staged(client: Client, *values: bytes, transaction: str = "t") -> list[pyqstore.flight.Staged]:
    return [client.stage(pa.record_batch({"body": list(values)}), transaction, 0, 1, "", "q")]


def prepare(
    client: Client, *values: bytes, run: str = RUN, shards: int = 2, transaction: str = "t"
) -> TransactionState:
    one = staged(client, *values, transaction=transaction)
    return client.prepare_staged(transaction, one, "", "q", run=run, shards=shards, key="k")


def test_what_is_prepared_is_committed_by_name_and_once(client: Client, servers: Servers) -> None:
    assert client.transaction_state("k") == NOTHING
    assert prepare(client, b"1", b"2") == TransactionState(False, RUN, 2)
    assert client.transaction_state("k") == TransactionState(False, RUN, 2)
    assert servers.bodies() == []
    assert not client.transaction_known("k")
    done = client.commit_prepared("k", RUN)
    assert (done.committed, done.rows, done.unroutable) == (True, 2, 0)
    assert client.transaction_state("k") == TransactionState(True, None, 0)
    again = client.commit_prepared("k", RUN)
    assert (again.committed, again.rows) == (False, 0)
    assert servers.bodies() == [b"1", b"2"]
    assert servers.staged() == []


@pytest.mark.parametrize("told", [True, False], ids=["blocks", "arrow"])
def test_a_job_is_committed_at_all_servers(servers: Servers, told: bool) -> None:
    clients = servers.clients()
    done = job(clients, "j", DEALS[0], told=told)
    assert [(one.committed, one.rows) for one in done] == [(True, 4), (True, 4)]
    again = job(clients, "j", DEALS[1], told=told)
    assert [(one.committed, one.rows) for one in again] == [(False, 0), (False, 0)]
    assert servers.bodies() == rows_of("j")
    assert servers.staged() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_no_abort_sweep_or_stage_touches_what_is_prepared(
    client: Client, servers: Servers, restarts: bool
) -> None:
    prepare(client, b"1")
    client.abort_staged("t")
    staged(client, b"2")
    (folder,) = servers.paths[0].glob("staging/prepared-*")
    for each in (folder, *folder.iterdir()):
        os.utime(each, (time.time() - 30 * 24 * 3600,) * 2)
    client.commit_staged("other", staged(client, b"3", transaction="other"), "", "q")
    if restarts:
        client = servers.restart()[0]
    assert client.commit_prepared("k", RUN).rows == 1
    assert servers.bodies() == [b"1", b"3"]


def test_a_second_run_gets_what_the_first_has_prepared(client: Client, servers: Servers) -> None:
    prepare(client, b"1")
    assert prepare(client, b"2", run=OTHER, transaction="u").run == RUN
    assert prepare(client, b"2").run == RUN  # repeated, with whatever rows
    with pytest.raises(pyqstore.PreconditionFailed, match="is not prepared here"):
        client.commit_prepared("k", OTHER)
    with pytest.raises(pyqstore.PreconditionFailed, match="is prepared here as one of 2 servers"):
        client.commit_staged("u", staged(client, b"2", transaction="u"), "", "q", key="k")
    assert servers.bodies() == []
    assert client.commit_prepared("k", RUN).rows == 1
    assert prepare(client, b"3", run=OTHER, transaction="v").committed
    assert servers.bodies() == [b"1"]


def test_a_run_is_refused_or_prepared_and_never_both(client: Client, servers: Servers) -> None:
    assert client.refuse_run("k", OTHER)
    assert prepare(client, b"1").run == RUN
    assert not client.refuse_run("k", RUN)
    assert client.rollback_prepared("k", RUN)
    assert client.transaction_state("k") == NOTHING
    assert [name for name in servers.staged() if name.startswith("prepared-")] == []
    for run in (RUN, OTHER):
        with pytest.raises(pyqstore.PreconditionFailed, match="was refused"):
            prepare(client, b"1", run=run)
    client = servers.restart()[0]
    with pytest.raises(pyqstore.PreconditionFailed, match="was refused"):
        prepare(client, b"1")
    third = "c" * 32
    assert prepare(client, b"1", run=third).run == third
    client.commit_prepared("k", third)
    assert not client.refuse_run("k", third)
    assert not client.rollback_prepared("k", third)
    assert servers.bodies() == [b"1"]


def test_what_cannot_be_committed_is_not_prepared(client: Client, servers: Servers) -> None:
    one = staged(client, b"1")
    named: dict[str, Any] = {"run": RUN, "shards": 2}
    with pytest.raises(ValueError, match="A-Z, a-z and 0-9"):
        client.prepare_staged("t", one, "", "q", run="../x", shards=2)
    with pytest.raises(ValueError, match="shards must be 1 or more"):
        client.prepare_staged("t", one, "", "q", run=RUN, shards=0)
    with pytest.raises(ValueError, match="was staged for another exchange"):
        client.prepare_staged("t", one, "", "elsewhere", **named)
    nowhere = [client.stage(pa.table({"body": [b"1"]}), "u", 0, 1, "", "nowhere")]
    with pytest.raises(pyqstore.Unroutable, match="routing key 'nowhere'"):
        client.prepare_staged("u", nowhere, "", "nowhere", mandatory=True, **named)
    null = pa.table({"body": pa.array([None], pa.binary())})
    with pytest.raises(ValueError, match="body is null"):
        client.prepare_staged("v", [client.stage(null, "v", 0, 1)], "", "q", **named)
    client.abort_staged("t")
    with pytest.raises(pyqstore.StoreCorrupt, match="is missing"):
        client.prepare_staged("t", one, "", "q", **named)
    for key in "tuv":
        assert client.transaction_state(key) == NOTHING


def test_a_prepared_record_that_is_damaged_is_named(client: Client, servers: Servers) -> None:
    prepare(client, b"1")
    (record,) = servers.paths[0].glob("staging/prepared-*/prepared")
    good = record.read_bytes()
    for damaged in (good[:-1], b"[]", good.replace(b'"version": 1', b'"version": 2')):
        record.write_bytes(damaged)
        for call in (
            lambda: client.transaction_state("k"),
            lambda: client.commit_prepared("k", RUN),
            lambda: prepare(client, b"2", run=OTHER, transaction="u"),
        ):
            with pytest.raises(pyqstore.StoreCorrupt, match=r"/prepared cannot be read"):
                call()
    record.write_bytes(good)
    client = servers.restart()[0]
    assert client.commit_prepared("k", RUN).rows == 1


def test_prepared_rows_that_are_damaged_are_not_published(client: Client, servers: Servers) -> None:
    prepare(client, b"1")
    (file,) = servers.paths[0].glob("staging/prepared-*/*.qsb")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(pyqstore.StoreCorrupt, match=r"0-1-\w+\.qsb has"):
        client.commit_prepared("k", RUN)
    assert client.transaction_state("k").run == RUN
    assert servers.bodies() == []


def test_a_key_that_is_forgotten_leaves_nothing_prepared(
    client: Client, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(client, b"1")
    with monkeypatch.context() as patch:
        patch.setattr(PreparedFolders, "drop", full)
        with pytest.raises(OSError, match="planted"):
            client.commit_prepared("k", RUN)
    assert client.transaction_state("k").committed
    assert client.forget_transaction("k") == 1
    assert client.transaction_state("k") == NOTHING
    assert servers.bodies() == [b"1"]


def test_a_run_that_is_half_undone_is_undone_by_the_next_client(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = servers.clients()
    calls = Calls(5, dies_after)
    with pytest.raises(Died):
        job([calls.of(client) for client in clients], "j", DEALS[0])
    with monkeypatch.context() as patch:
        patch.setattr(PreparedFolders, "drop", full)
        with pytest.raises(OSError, match="planted"):
            settle_shards(clients, "j")
    clients = servers.restart()
    assert clients[0].transaction_state("j").run is not None
    job(clients, "j", DEALS[1])
    assert servers.bodies() == rows_of("j")


def full(*_: Any) -> None:
    raise OSError(28, "planted: no space left")


@pytest.mark.parametrize(("name", "calls"), [("fsync", 4), ("rename", 2)])
def test_a_full_disk_while_a_run_is_prepared_leaves_it_unprepared(
    client: Client, servers: Servers, name: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, calls + 1):
        one, wrapped = staged(client, b"1"), getattr(os, name)
        counter = itertools.count(1)

        def planted(
            *given: Any, wrapped: Any = wrapped, number: int = number, counter: Any = counter,
            **named: Any,
        ) -> Any:  # fmt: skip
            return full() if next(counter) == number else wrapped(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, planted)
            with pytest.raises(pyqstore.StoreFull, match="planted"):
                client.prepare_staged("t", one, "", "q", run=RUN, shards=2, key="k")
        assert client.transaction_state("k") == NOTHING
    assert prepare(client, b"1").run == RUN
    assert client.commit_prepared("k", RUN).rows == 1
    assert servers.bodies() == [b"1"]


def test_a_power_cut_leaves_what_was_prepared(
    client: Client, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    platter = Platter(monkeypatch)
    one = [client.stage(pa.table({"body": [b"1"]}), "t", 0, 1)]
    client.prepare_staged("t", one, "", "q", run=RUN, shards=2, key="k")
    root = servers.paths[0] / "staging"
    platter.cut(root)
    assert client.transaction_state("k").run == RUN
    assert client.commit_prepared("k", RUN).rows == 1
    assert servers.bodies() == [b"1"]


# Clients that die, and others that are at work beside them.


@pytest.mark.parametrize("dies", [dies_before, dies_after])
@pytest.mark.parametrize("same", [True, False], ids=["same name", "other name"])
def test_a_job_whose_client_dies_between_any_two_calls_is_done_once_by_a_repeat(
    servers: Servers, dies: Callable[..., None], same: bool
) -> None:
    clients, expected = servers.clients(), list[bytes]()
    for number in itertools.count(1):
        name, calls = f"job {number}", Calls(number, dies)
        stage = name if same else None
        with suppress(Died):
            job([calls.of(client) for client in clients], name, DEALS[0], transaction=stage)
        job(clients, name, DEALS[1], transaction=stage)
        expected += rows_of(name)
        assert servers.bodies() == sorted(expected), number
        if calls.count < number:
            break
    assert number > 8
    assert [each for each in servers.staged() if each.startswith("prepared-")] == []


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False], ids=["same name", "other name"])
def test_two_runs_at_work_at_once_publish_one_of_them(servers: Servers, same: bool) -> None:
    first, second, third = servers.clients(), servers.clients(), servers.clients()
    expected = list[bytes]()
    for number, dies_at in itertools.product(range(3, 10), range(3, 14)):
        name = f"job {number} {dies_at}"
        stage = name if same else None

        def beside(call: Callable[[], Any], name: str = name, dies_at: int = dies_at) -> Any:
            calls = Calls(dies_at, dies_before)
            with suppress(Died, pyqstore.Error):
                clients = [calls.of(client) for client in second]
                job(clients, name, DEALS[1], transaction=name if same else None)
            return call()

        calls = Calls(number, beside)
        with suppress(pyqstore.Error):
            job([calls.of(client) for client in first], name, DEALS[0], transaction=stage)
        job(third, name, DEALS[2], transaction=stage)
        expected += rows_of(name)
        assert servers.bodies() == sorted(expected), (number, dies_at)
    assert [each for each in servers.staged() if each.startswith("prepared-")] == []


def test_a_run_that_one_server_does_not_take_is_undone(servers: Servers) -> None:
    clients = servers.clients()
    clients[1].queue_delete("q")
    with pytest.raises(pyqstore.Unroutable):
        job(clients, "j", DEALS[0])
    assert [client.transaction_state("j") for client in clients] == [NOTHING, NOTHING]
    clients[1].queue_declare("q", durable=True)
    job(clients, "j", DEALS[1])
    assert servers.bodies() == rows_of("j")


def test_a_queue_that_goes_when_all_is_prepared_is_named_and_a_repeat_finishes(
    servers: Servers,
) -> None:
    clients = servers.clients()
    calls = Calls(7, lambda call: (clients[1].queue_delete("q"), call())[1])
    with pytest.raises(pyqstore.Unroutable) as caught:
        job([calls.of(client) for client in clients], "j", DEALS[0])
    assert "is prepared at all servers" in caught.value.__notes__[0]
    states = [client.transaction_state("j") for client in clients]
    assert [(state.committed, state.shards) for state in states] == [(True, 0), (False, 2)]
    clients[1].queue_declare("q", durable=True)
    done = settle_shards(clients, "j")
    assert done is not None
    assert [(one.committed, one.rows) for one in done] == [(False, 0), (True, 4)]
    assert servers.bodies() == rows_of("j")


def test_another_number_of_servers_than_prepared_is_refused(servers: Servers) -> None:
    clients = servers.clients()
    calls = Calls(6, dies_after)
    with pytest.raises(Died):
        job([calls.of(client) for client in clients], "j", DEALS[0])
    with pytest.raises(pyqstore.PreconditionFailed, match="as one of 2 servers, and not of 1"):
        settle_shards(clients[:1], "j")
    with pytest.raises(ValueError, match="1 sequences of attempts for 2 servers"):
        commit_shards(clients, "j", [[]])
    assert settle_shards(clients, "j") is not None
    assert servers.bodies() == rows_of("j")
    clients[1].forget_transaction("j")
    with pytest.raises(pyqstore.PreconditionFailed, match="neither has it nor has prepared it"):
        settle_shards(clients, "j")


def test_the_record_of_a_prepared_transaction_can_be_read(client: Client, servers: Servers) -> None:
    prepare(client, b"1")
    (record,) = servers.paths[0].glob("staging/prepared-*/prepared")
    told = json.loads(record.read_text())
    assert (told["version"], told["key"], told["run"], told["shards"]) == (1, "k", RUN, 2)
