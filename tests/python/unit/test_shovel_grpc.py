"""Shovels from and to stores that servers of Arrow Flight have open."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyqstore
import pyqstore.flight
from pyqstore import Properties, ShovelError, shovel
from pyqstore.flight import shovelled
from pyqstore.shovelling import grpc_ends
from pyqstore.shovelling.addresses import place_of
from pyqstore.shovelling.ends import Batch, Later
from pyqstore.shovelling.grpc_link import Link
from pyqstore.shovelling.loop import Choices
from pyqstore.shovelling.running import Job

from ..shovelling import FULL, IDLE, at, bodies, drained, put, refusing, table, working
from ..support import own_host, wait_until

NUMBERS = [str(number).encode() for number in range(2500)]


@pytest.fixture
def far(tmp_path: Path) -> Iterator[pyqstore.Store]:
    """A store that a server has open: ``far_url`` leads to it."""
    with pyqstore.open(tmp_path / "far") as store:
        yield store


@pytest.fixture
def far_url(far: pyqstore.Store) -> Iterator[str]:
    with pyqstore.flight.serve(far) as server:
        yield f"grpc://{server.address}"


def test_a_queue_goes_to_a_server_and_back(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    put(store, "a", NUMBERS)
    far.queue("b")
    store.queue("c")
    report = shovel(at(store, "a"), f"{far_url}#b", idle=IDLE)
    assert (report.moved, report.lag, report.repeated, report.error) == (2500, 0, 0, None)
    assert far.queue_status("b").messages_ready == 2500
    assert store.queue_status("a").messages_ready == 0
    report = shovel(f"{far_url}#b", at(store, "c"), idle=IDLE)
    assert (report.moved, report.lag, report.repeated, report.error) == (2500, 0, 0, None)
    assert bodies(store, "c") == NUMBERS
    assert bodies(far, "b") == []


def test_a_stream_goes_to_a_server_and_back_and_goes_on_where_it_was(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    streams = store.stream("a"), far.stream("b"), store.stream("c")
    for moved in (NUMBERS, [b"more"]):
        streams[0].publish_batch(table(moved))
        assert shovel(at(store, "a"), f"{far_url}#b", name="out", idle=IDLE).moved == len(moved)
        back = shovel(f"{far_url}#b", at(store, "c"), name="back", idle=IDLE)
        assert (back.moved, back.lag) == (len(moved), 0)
    assert streams[2].read().read_all()["body"].to_pylist() == [*NUMBERS, b"more"]


def test_a_stream_of_a_server_begins_where_it_is_told(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    far.stream("a").publish_batch(table(NUMBERS))
    store.queue("b")
    assert shovel(f"{far_url}#a", at(store, "b"), start=2400, idle=IDLE).moved == 100
    assert bodies(store, "b") == NUMBERS[2400:]


def test_between_two_servers_no_store_need_be_here(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    put(far, "a", NUMBERS)
    store.queue("b")
    seen: list[Any] = []
    with pyqstore.flight.serve(store) as server:
        target = f"grpc://{server.address}#b"
        report = shovel(f"{far_url}#a", target, idle=IDLE, progress=seen.append)
    assert (report.moved, report.lag) == (2500, 0)
    assert seen
    assert bodies(store, "b") == NUMBERS


def test_a_broker_and_a_server(store: pyqstore.Store, far: pyqstore.Store, far_url: str) -> None:
    broker = f"amqp://guest:guest@{store.listen('127.0.0.1:0').address}"
    put(store, "a", NUMBERS)
    far.queue("b")
    store.queue("c")
    assert shovel(f"{broker}?queue=a", f"{far_url}#b", idle=IDLE).moved == 2500
    assert shovel(f"{far_url}#b", f"{broker}?queue=c", idle=IDLE).moved == 2500
    assert bodies(store, "c") == NUMBERS


@pytest.mark.parametrize("properties", [FULL, Properties()])
def test_everything_of_a_message_stays(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str, properties: Properties
) -> None:
    store.queue("a")
    with store.channel() as channel:
        channel.exchange_declare("x", "topic")
        channel.queue_bind("a", "x", "#")
        channel.basic_publish("x", "eu.rome", b"body", properties)
    far.queue("b")
    store.queue("c")
    assert shovel(at(store, "a"), f"{far_url}#b", idle=IDLE).moved == 1
    assert shovel(f"{far_url}#b", at(store, "c"), idle=IDLE).moved == 1
    with store.channel() as channel:
        message = channel.basic_get("c")
    assert message is not None
    assert (message.body, message.routing_key) == (b"body", "eu.rome")
    assert message.properties == properties.replace(delivery_mode=2)


def test_a_batch_whose_answer_is_lost_is_there_once(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a queue and of a stream: the server has committed it, and the shovel has not heard so."""
    hear, lost = Link.hear, []

    def loses(self: Link, timeout: float, batch: Batch | None) -> Any:
        heard = hear(self, timeout, batch)
        if heard is not None and "repeated" in heard[0] and len(lost) % 3 != 2:
            lost.append(batch)
            raise Later("the answer is lost")
        if heard is not None and "repeated" in heard[0]:
            lost.append(None)
        return heard

    monkeypatch.setattr(Link, "hear", loses)
    monkeypatch.setattr("pyqstore.shovelling.loop._WAIT_FIRST_S", 0.001)
    monkeypatch.setattr("pyqstore.shovelling.loop._WAIT_MOST_S", 0.001)
    put(store, "a", NUMBERS)
    store.stream("s").publish_batch(table(NUMBERS))
    for source, target in (("a", "b"), ("s", "t")):
        far.queue(target)
        report = shovel(at(store, source), f"{far_url}#{target}", idle=IDLE)
        assert (report.lag, report.error) == (0, "the answer is lost")
        assert bodies(far, target) == NUMBERS
    assert len(lost) > 6


def test_a_queue_of_a_server_that_takes_less_than_a_batch_gets_smaller_ones(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    target = far.queue("b", max_length=300, overflow="reject-publish")
    put(store, "a", NUMBERS)
    with working(at(store, "a"), f"{far_url}#b", idle=IDLE) as future:
        assert drained(target, len(NUMBERS)) == NUMBERS
        assert future.result(60).moved == len(NUMBERS)


def test_what_a_server_refuses_becomes_a_dead_letter_there(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, b"1")
    put(store, "a", [b"0", b"1", b"2"])
    far.queue("b")
    report = shovel(at(store, "a"), f"{far_url}#b", tries=3, dead="graves", idle=IDLE)
    assert (report.moved, report.dead) == (2, 1)
    assert bodies(far, "b") == [b"0", b"2"]
    assert bodies(far, "graves") == [b"1"]


def test_what_a_broker_refuses_becomes_a_dead_letter_at_the_source(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    broker = f"amqp://guest:guest@{store.listen('127.0.0.1:0').address}"
    with store.channel() as channel:
        channel.exchange_declare("x", "direct")
    put(far, "a", NUMBERS[:3])
    report = shovel(f"{far_url}#a", f"{broker}?exchange=x", tries=2, dead="graves", idle=IDLE)
    assert (report.moved, report.dead, report.lag) == (0, 3, 0)
    assert sorted(bodies(far, "graves")) == sorted(NUMBERS[:3])


def test_a_full_queue_at_a_server_holds_a_shovel_back(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    put(store, "a", NUMBERS)
    with far.channel() as channel:
        limits = {"x-max-length": 1000, "x-overflow": "reject-publish"}
        channel.queue_declare("b", durable=True, arguments=limits)
    taken: list[bytes] = []

    def take() -> bool:
        taken.extend(bodies(far, "b"))
        return len(taken) >= len(NUMBERS)

    with working(at(store, "a"), f"{far_url}#b", idle=IDLE) as future:
        wait_until(take)
        assert future.result(30).moved == len(NUMBERS)
    assert taken == NUMBERS


def test_what_a_server_does_not_have_is_told_at_once(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    store.queue("a")
    with pytest.raises(pyqstore.NotFound, match="'b'"):
        shovel(at(store, "a"), f"{far_url}#b", idle=IDLE)
    with pytest.raises(pyqstore.NotFound, match="'b'"):
        shovel(f"{far_url}#b", at(store, "a"), idle=IDLE)
    far.stream("s", max_messages=1)
    with pyqstore.flight.serve(far, users={"ann": "right"}) as server:
        url = f"grpc://ann:wrong@{server.address}#s"
        with pytest.raises(ShovelError, match="ACCESS_REFUSED"):
            shovel(url, at(store, "a"), idle=IDLE)
        url = f"grpc://{server.address}?user=ann&password=right#s"
        assert shovel(url, at(store, "a"), idle=IDLE).moved == 0


def test_a_name_is_for_one_shovel_at_a_time_at_a_server(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_ends, "_LOCKED_S", 0.5)
    store.queue("a")
    far.queue("b")
    begun = threading.Event()
    first = (at(store, "a"), f"{far_url}#b")
    with working(*first, name="n", progress=lambda _: begun.set()):
        assert begun.wait(30)
        put(store, "a", [b"moved"])
        wait_until(lambda: far.queue_status("b").messages_ready == 1)
        with pytest.raises(ShovelError, match="another shovel named 'n' works"):
            shovel(*first, name="n", idle=IDLE)
    assert shovel(*first, name="n", idle=IDLE).moved == 0  # it is free now


def test_a_server_ends_soon_beside_idle_shovels(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    """One waits for messages, one for a target that is away."""
    store.queue("a")
    far.queue("b")
    put(far, "c", NUMBERS)
    nowhere = f"amqp://guest:guest@{own_host()}:1?queue=x"
    with pyqstore.flight.serve(far) as server:
        url = f"grpc://{server.address}"
        put(store, "a", [b"one"])
        with (
            working(at(store, "a"), f"{url}#b", name="in") as coming,
            working(f"{url}#c", nowhere, name="out") as going,
        ):
            wait_until(lambda: far.queue_status("b").messages_ready == 1)
            assert server.close(5)
            wait_until(lambda: "pyqstore.shovel.in.lock" not in far.queues())
            assert not coming.done()
            assert not going.done()


def test_a_shovel_that_says_nothing_holds_nothing(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its machine has vanished: what it had read comes to the next one."""
    monkeypatch.setattr(shovelled, "_SILENT_S", 0.5)
    put(far, "a", NUMBERS)
    store.queue("b")
    command = [sys.executable, "-c", _STOPS, f"{far_url}#a"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "read\n"
        assert far.queue_status("a").messages_unacked > 0
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: far.queue_status("a").messages_unacked == 0)
        assert shovel(f"{far_url}#a", at(store, "b"), idle=IDLE).moved == len(NUMBERS)
        process.kill()
    assert bodies(store, "b") == NUMBERS


_STOPS = """
import sys, time
from pyqstore.shovelling.addresses import place_of
from pyqstore.shovelling.grpc_ends import GrpcSource
place = place_of(sys.argv[1], is_target=False)
source = GrpcSource(
    place, shovel="s", start="first", dead=None, ahead=5000, notes_position=False
)
source.open(None)
assert source.read(100, 1 << 20, 1) is not None
print("read", flush=True)
time.sleep(600)
"""


def test_a_full_queue_of_dead_letters_holds_a_shovel_back(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str
) -> None:
    broker = f"amqp://guest:guest@{store.listen('127.0.0.1:0').address}"
    with store.channel() as channel:
        channel.exchange_declare("x", "direct")
        channel.queue_declare("taken", durable=True)
        channel.queue_bind("taken", "x", "a")
    with far.channel() as channel:
        limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare("graves", durable=True, arguments=limits)
        channel.basic_publish("", "graves", b"old")
    far.queue("a").put_many(NUMBERS[:10])
    with far.channel() as channel:
        channel.exchange_declare("y", "topic")
        channel.queue_bind("a", "y", "#")
        channel.basic_publish("y", "nowhere", b"dead", Properties(delivery_mode=2))
    seen: list[Any] = []
    target = f"{broker}?exchange=x"
    with working(
        f"{far_url}#a", target, tries=1, dead="graves", idle=1, progress=seen.append
    ) as future:
        wait_until(lambda: bool(seen and seen[-1].error))
        time.sleep(1)  # what it does meanwhile, again and again, is counted
        assert len(store.queue("taken")) == 10
        assert bodies(far, "graves") == [b"old"]
        report = future.result(30)
    assert (report.moved, report.dead) == (10, 1)
    assert bodies(far, "graves") == [b"dead"]
    assert len(store.queue("taken")) == 10


def test_the_name_of_a_shovel_to_a_server_is_of_its_store(tmp_path: Path) -> None:
    """Of two machines, which have their stores at the same path."""
    names = set()
    for _ in range(2):
        with pyqstore.open(tmp_path / "store"):
            pass
        source = place_of(f"{tmp_path}/store#a", is_target=False)
        target = place_of("grpc://h:1#b", is_target=True)
        names.add(Job(source, target, None, "first", Choices()).called)
        shutil.rmtree(tmp_path / "store")
    assert len(names) == 2


def test_equal_messages_are_each_moved_when_an_answer_is_lost(
    store: pyqstore.Store, far: pyqstore.Store, far_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a broker, all marked as redelivered: none can come again through the same connection."""
    hear, lost = Link.hear, []

    def loses(self: Link, timeout: float, batch: Batch | None) -> Any:
        heard = hear(self, timeout, batch)
        if heard is not None and "repeated" in heard[0] and len(lost) < 2:
            lost.append(batch)
            raise Later("the answer is lost")
        return heard

    monkeypatch.setattr(Link, "hear", loses)
    monkeypatch.setattr("pyqstore.shovelling.loop._WAIT_FIRST_S", 0.001)
    put(store, "a", [b"equal"] * 5000)
    with store.channel() as channel:  # which marks them
        for _ in range(5000):
            assert channel.basic_get("a") is not None
    far.queue("b")
    broker = f"amqp://guest:guest@{store.listen('127.0.0.1:0').address}"
    report = shovel(f"{broker}?queue=a", f"{far_url}#b", idle=IDLE)
    assert (len(lost), report.repeated) == (2, 0)
    assert len(far.queue("b")) == 5000


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("grpc://h:1", "say grpc://h:1#NAME"),
        ("grpc://h:1#", "say grpc://h:1#NAME"),
        ("grpc://h:1?tls=x#b", "tls= is unknown: there are user, password"),
        ("grpc://ann@h:1#b", "say USER:PASSWORD@HOST:PORT"),
        ("grpc://h#b", r"expected grpc://HOST:PORT"),
        ("grpc+tls://h:1?tls_ca=nowhere.pem#b", "nowhere.pem"),
    ],
)
def test_a_wrong_address_of_a_server_is_told(
    store: pyqstore.Store, address: str, words: str
) -> None:
    store.queue("a")
    with pytest.raises((ValueError, ShovelError), match=words):
        shovel(at(store, "a"), address, idle=IDLE)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("grpc://h:1?password=secret&x=1#b", "x= is unknown"),
        ("grpc://ann:secret@h:1?x=1#b", "x= is unknown"),
        ("grpc://ann:sec#ret@h:1#b", "encode what is special"),
        ("grpc://ann:sec?ret@h:1#b", "encode what is special"),
        ("GRPC://ann:secret@h#b", "expected grpc://HOST:PORT"),
    ],
)
def test_an_error_shows_no_password_of_a_server(
    store: pyqstore.Store, address: str, words: str
) -> None:
    store.queue("a")
    with pytest.raises((ValueError, ShovelError), match=words) as caught:
        shovel(at(store, "a"), address, idle=IDLE)
    assert "sec" not in str(caught.value)
    assert "ret" not in str(caught.value)


_SERVER = """
import sys, pyqstore
with pyqstore.open(sys.argv[1]) as store, pyqstore.flight.serve(store, sys.argv[2]) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


class Server:
    """A process that is killed and started again, at one address."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = f"{own_host()}:0"
        self.process: subprocess.Popen[str]
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", _SERVER, str(self.path), self.address]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@contextmanager
def killed_often(path: Path, seed: int) -> Iterator[Server]:
    """It is killed five times, at moments that the seed chooses."""
    server = Server(path)
    over = threading.Event()

    def kill() -> None:
        chosen = random.Random(seed)
        for _ in range(5):
            if over.wait(chosen.uniform(0.05, 0.6)):
                break
            server.kill()
            server.start()

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        yield server
    finally:
        over.set()
        killing.join()
        server.kill()


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["queue", "stream"])
@pytest.mark.parametrize("way", ["to", "from", "from, to another"])
def test_each_message_is_moved_once_while_its_server_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: str
) -> None:
    monkeypatch.setattr(grpc_ends.GrpcSource, "most", 100)
    for name in ("BATCH", "LARGE_BATCH"):
        monkeypatch.setattr(f"pyqstore.shovelling.store_source.{name}", 100)
    monkeypatch.setattr("pyqstore.shovelling.loop._WAIT_MOST_S", 0.5)
    rows = [b"%d" % number for number in range(20_000)]
    seed = int(os.environ.get("QS_KILL_SEED", time.time_ns() % 10**9))
    print(f"QS_KILL_SEED={seed}")
    with pyqstore.open(tmp_path / "from") as store:
        if kind == "stream":
            store.stream("a").publish_batch(pa.table({"body": rows}))
        else:
            put(store, "a", rows)
    with pyqstore.open(tmp_path / "to") as store:
        store.queue("b")
    way, *another = way.split(", ")
    with ExitStack() as stack:
        server = stack.enter_context(killed_often(tmp_path / way, seed))
        far = {"from": "a", "to": "b"}[way]
        url = f"grpc://{server.address}#{far}"
        ends = {"from": f"{tmp_path}/from#a", "to": f"{tmp_path}/to#b", way: url}
        if another:
            target = stack.enter_context(pyqstore.open(tmp_path / "to"))
            other = stack.enter_context(pyqstore.flight.serve(target))
            ends["to"] = f"grpc://{other.address}#b"
        report = shovel(ends["from"], ends["to"], idle=2)
    assert report.lag == 0
    with pyqstore.open(tmp_path / "to") as store:
        assert sorted(bodies(store, "b"), key=int) == rows
