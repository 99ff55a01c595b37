"""A server that is killed again and again, at random moments, while clients publish and consume."""

import os
import random
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
from pyqstore.flight.client import Client
from pyqstore.flight.results import Staged

from ..serving import Served, served

KILLS = int(os.environ.get("QS_SERVER_KILLS", "5"))
PARTITIONS = 3
ROWS = 50


class Bench:
    """A client, and servers at one address of which each is killed."""

    def __init__(self, path: Path, seed: int, exchange: str, told: tuple[bool, ...]) -> None:
        self.path = path
        self.exchange = exchange
        self.told = told  # whether a stage may be told the exchange
        self.address = f"unix:{path.with_name('socket')}"
        self.random = random.Random(seed)
        self.attempts = 0
        self.taken: list[bytes] = []

    def life(self, server: Served) -> None:
        """Of one server, until it is killed in the middle of whatever it does."""
        server.addresses()
        timer = threading.Timer(self.random.uniform(0.05, 0.8), server.process.kill)
        timer.start()
        try:
            with pyqstore.connect(self.address) as client:
                self.finish(client)
                while True:
                    self.begin(client)
                    self.finish(client)
                    self.consume(client)
        finally:
            timer.join()

    number = 0
    staged: list[Staged]
    is_open = False

    def begin(self, client: Client) -> None:
        """Stage the rows of the next transaction, some partitions more than once."""
        self.is_open = True
        self.finish_staging(client)

    def finish_staging(self, client: Client) -> None:
        self.staged = []
        for partition in range(PARTITIONS):
            for _ in range(self.random.choice((1, 1, 2))):
                self.attempts += 1
                told = self.exchange if self.random.choice(self.told) else None
                data = rows(self.number, partition)
                one = client.stage(data, self.key, partition, self.attempts, told)
            self.staged.append(one)

    def finish(self, client: Client) -> None:
        """Commit what was begun, however often it takes."""
        if not self.is_open:
            return
        if len(self.staged) < PARTITIONS:
            self.finish_staging(client)
        client.commit_staged(self.key, self.staged, self.exchange, mandatory=True)
        assert client.transaction_known(self.key)
        self.number += 1
        self.is_open = False

    @property
    def key(self) -> str:
        return f"t{self.number}"

    def consume(self, client: Client) -> None:
        batch = client.get_batch("work", 70)
        if batch.num_rows:
            self.taken += batch["body"].to_pylist()
            client.ack(batch["delivery_tag"][-1].as_py(), multiple=True)


def rows(number: int, partition: int) -> pa.Table:
    bodies = [b"%d-%d-%d" % (number, partition, row) for row in range(ROWS)]
    return pa.table({"body": bodies})


@pytest.mark.crash
@pytest.mark.parametrize(
    ("exchange", "told"), [("e", (False, True)), ("streams", (True,))], ids=["queues", "stream"]
)
def test_a_server_that_is_killed_at_random_publishes_each_transaction_once(
    tmp_path: Path, exchange: str, told: tuple[bool, ...]
) -> None:
    seed = int(os.environ.get("QS_FLIGHT_SEED", "1"))
    print("QS_FLIGHT_SEED", seed)
    path = tmp_path / "store"
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.exchange_declare("e", "fanout", durable=True)
        for queue in ("kept", "work"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "e")
        channel.exchange_declare("streams", "fanout", durable=True)
        store.stream("s")
        channel.queue_bind("s", "streams")
    bench = Bench(path, seed, exchange, told)
    for _ in range(KILLS):
        with served(path, "--flight", bench.address) as server:
            with pytest.raises(pyqstore.ConnectionLost):
                bench.life(server)
            assert server.process.wait(30) == -signal.SIGKILL
    with served(path, "--flight", bench.address) as server:
        server.addresses()
        with pyqstore.connect(bench.address) as client:
            bench.finish(client)
            bench.begin(client)
            bench.finish(client)
            while client.queue_status("work").messages_ready:
                bench.consume(client)
        assert server.end()[0] == 0
    expected = [
        body
        for number in range(bench.number)
        for partition in range(PARTITIONS)
        for body in rows(number, partition)["body"].to_pylist()
    ]
    with pyqstore.open(path) as store:
        kept = [body for batch in store.browse("kept") for body in batch["body"].to_pylist()]
        kept += store.stream("s").read().read_all()["body"].to_pylist()
        assert store.queue_status("work").messages_ready == 0
    assert kept == expected
    assert set(bench.taken) == (set(expected) if exchange == "e" else set())
    assert [entry for entry in (path / "staging").rglob("*") if entry.is_file()] == []


# Where a server kills itself, and whether the rows of the transaction are there then.
MOMENTS = {
    "staged, without its name": ("os.rename", False),
    "committed, not swept": ("shutil.rmtree", True),
}


def stage_and_commit(address: str, queue: str, staged: list[Staged]) -> None:
    """``staged`` gets what was confirmed."""
    with pyqstore.connect(address) as client:
        staged.append(client.stage(rows(0, 0), "t", 0, "a", "", queue))
        client.commit_staged("t", staged, "", queue, mandatory=True)


@pytest.mark.crash
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("queue", ["s", "q"])
def test_a_server_that_is_killed_between_two_phases_publishes_once(
    tmp_path: Path, queue: str, moment: str
) -> None:
    path = tmp_path / "store"
    name, is_there = MOMENTS[moment]
    with pyqstore.open(path) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        store.stream("s")
    module, _, function = name.partition(".")
    planted = (
        f"import os, signal, {module}\n"
        f"kept = {name}\n"
        f"def dies(source, *arguments, **named):\n"
        f"    if 'staging' in str(source):\n"
        f"        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"    return kept(source, *arguments, **named)\n"
        f"{module}.{function} = dies"
    )
    address = f"unix:{tmp_path}/socket"
    staged: list[Staged] = []
    with served(path, "--flight", address, planted=planted) as server:
        server.addresses()
        with pytest.raises(pyqstore.ConnectionLost):
            stage_and_commit(address, queue, staged)
        assert server.process.wait(30) == -signal.SIGKILL
    files = [each for each in (path / "staging").rglob("*") if each.is_file()]
    assert [each.suffix for each in files] == [".qsb" if is_there else ".part"]
    with served(path, "--flight", address) as server:
        server.addresses()
        with pyqstore.connect(address) as client:
            assert client.transaction_known("t") == is_there
            assert files[0].exists() == is_there
            staged = staged or [client.stage(rows(0, 0), "t", 0, "b", "", queue)]
            done = client.commit_staged("t", staged, "", queue, mandatory=True)
            assert done.committed != is_there
        assert server.end()[0] == 0
    with pyqstore.open(path) as store:
        found = [body for batch in store.browse("q") for body in batch["body"].to_pylist()]
        found += store.stream("s").read().read_all()["body"].to_pylist()
    assert found == rows(0, 0)["body"].to_pylist()
    assert [entry for entry in (path / "staging").rglob("*") if entry.is_file()] == []
