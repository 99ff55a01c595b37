"""``pyqstore serve`` is killed at a random moment while clients publish and consume over AMQP.

Half of the publishers wait for confirms, half commit transactions; so do consumers with their acks.
After each life the store itself is looked at: what was confirmed or committed is there once and in
its order, a transaction is there whole or not at all, what was acked in a transaction never comes
back.  Some lives end while the store is recovering, some by SIGTERM.
"""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pika
import pika.exceptions

import pyqstore

from ..serving import Served
from .report import Report

QUEUE = "q"
CONFIRMS_MAX = 400  # heard in a life before its end
SECONDS_MAX = 8.0  # of a life, on a disk that is slow
JOIN_S = 300.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)
_LOST = (pika.exceptions.AMQPError, OSError)

Plant = Callable[[Path, "Known"], bool]


class Known:
    """What clients did to one store and what they heard, over all its lives."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: set[bytes] = set()
        self.sure: set[bytes] = set()
        """Confirmed, committed, or found in the store."""
        self.groups: list[list[bytes]] = []
        """Published in a transaction of which no client heard the end."""
        self.acked: set[bytes] = set()
        """There or not: who acked them heard nothing of it, as AMQP has it."""
        self.acked_groups: list[list[bytes]] = []
        self.gone: set[bytes] = set()
        """Acked in a transaction that was committed, or found to be gone."""
        self.delivered: set[bytes] = set()
        """In this life."""
        self.heard = 0
        """Confirms and commits of this life."""
        self.violations: list[str] = []

    def publishing(self, bodies: list[bytes]) -> None:
        with self.lock:
            self.sent.update(bodies)

    def published(self, bodies: list[bytes]) -> None:
        with self.lock:
            self.sure.update(bodies)
            self.heard += 1

    def deliver(self, body: bytes, redelivered: bool) -> None:
        with self.lock:
            if body not in self.sent:
                self.violations.append(f"{_name(body)} was delivered and never published")
            if body in self.gone:
                self.violations.append(f"{_name(body)} was delivered after its end was durable")
            if body in self.acked:
                self.violations.append(f"{_name(body)} was delivered after its ack")
            if body in self.delivered and not redelivered:
                self.violations.append(f"{_name(body)} came twice, and not as redelivered")
            self.delivered.add(body)

    def look(self, found: list[bytes]) -> list[str]:
        """What is wrong with the store's messages; they are what is known from here on."""
        there = set(found)
        wrong = [f"{_name(b)} is there {n} times" for b, n in Counter(found).items() if n > 1]
        wrong += [f"{_name(body)} was never published" for body in there - self.sent]
        wrong += [f"{_name(body)} is back after its end was durable" for body in there & self.gone]
        ended = self.acked | self.gone | {body for each in self.acked_groups for body in each}
        wrong += [f"{_name(body)} is LOST" for body in self.sure - there - ended]
        for group in self.groups:
            seen = [body for body in group if body in there | self.delivered]
            if seen and not set(group) <= there | ended:
                wrong.append(f"of a transaction of {len(group)} only {len(seen)} are there")
        for group in self.acked_groups:
            if 0 < len(there.intersection(group)) < len(group):
                wrong.append(f"of {len(group)} acks of a transaction some hold")
        last: dict[bytes, int] = {}
        for body in found:
            client, number = _name(body).rsplit(".", 1)
            if int(number) < last.get(client.encode(), -1):
                wrong.append(f"{_name(body)} comes behind {client}.{last[client.encode()]}")
            last[client.encode()] = int(number)
        self.gone |= ended - there
        self.sure = there
        self.groups, self.acked_groups, self.acked, self.delivered = [], [], set(), set()
        self.heard = 0
        return wrong


def _name(body: bytes) -> str:
    return body.partition(b" ")[0].decode()


class Client(threading.Thread):
    """Works until its connection is lost."""

    def __init__(self, known: Known, port: int, name: str, seed: str) -> None:
        super().__init__(name=name)
        self.known = known
        self.random = random.Random(seed)
        self._parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self.start()

    def run(self) -> None:
        try:
            channel = pika.BlockingConnection(self._parameters).channel()
            channel.queue_declare(QUEUE, durable=True)
            self.work(channel)
        except _LOST:
            pass

    def work(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        raise NotImplementedError

    def bodies(self, first: int, count: int) -> list[bytes]:
        """The next ones, of any size; some are larger than what is embedded."""
        return [
            b"%s.%d " % (self.name.encode(), number) + b"x" * self.random.choice((9, 300, 5000))
            for number in range(first, first + count)
        ]


class Confirming(Client):
    def work(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.confirm_delivery()
        for number in itertools.count():
            bodies = self.bodies(number, 1)
            self.known.publishing(bodies)
            channel.basic_publish("", QUEUE, bodies[0], PERSISTENT)
            self.known.published(bodies)


class Committing(Client):
    def work(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.tx_select()
        number = 0
        while True:
            bodies = self.bodies(number, self.random.randint(1, 20))
            number += len(bodies)
            self.known.publishing(bodies)
            with self.known.lock:
                self.known.groups.append(bodies)
            for body in bodies:
                channel.basic_publish("", QUEUE, body, PERSISTENT)
            if self.random.random() < 0.1:
                channel.tx_rollback()
                with self.known.lock:
                    self.known.sent.difference_update(bodies)
                    self.known.groups.remove(bodies)
                continue
            channel.tx_commit()
            with self.known.lock:
                self.known.groups.remove(bodies)
            self.known.published(bodies)


class Consuming(Client):
    """Acks some, gives some back, keeps some; a channel that is closed gives back what it has."""

    def work(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        while True:
            channel.basic_qos(prefetch_count=self.random.randint(1, 50))
            for method, _, body in channel.consume(QUEUE, inactivity_timeout=0.05):
                if method is None or self.random.random() < 0.02:
                    break
                self.known.deliver(body, method.redelivered)
                chance = self.random.random()
                if chance < 0.4:
                    with self.known.lock:
                        self.known.acked.add(body)
                    channel.basic_ack(method.delivery_tag)
                elif chance < 0.6:
                    channel.basic_nack(method.delivery_tag)
            connection = channel.connection
            channel.close()
            connection.sleep(self.random.random() * 0.2)
            channel = connection.channel()


class ConsumingInTransactions(Client):
    def work(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        channel.tx_select()
        while True:
            taken = []
            for _ in range(self.random.randint(1, 10)):
                method, _, body = channel.basic_get(QUEUE)
                if method is not None:
                    self.known.deliver(body, method.redelivered)
                    taken.append(body)
                    channel.basic_ack(method.delivery_tag)
            if taken:
                with self.known.lock:
                    self.known.acked_groups.append(taken)
                channel.tx_commit()
                with self.known.lock:
                    self.known.acked_groups.remove(taken)
                    self.known.gone.update(taken)
            channel.connection.sleep(self.random.random() * 0.05)


_KINDS = (Confirming, Confirming, Committing, Committing, Consuming, ConsumingInTransactions)


def _live(path: Path, known: Known, chosen: random.Random, number: int) -> str:
    """One life of a server and its clients; how it ended."""
    server = Served(path, "--listen", "127.0.0.1:0")
    clients: list[Client] = []
    how = signal.SIGTERM if chosen.random() < 0.15 else signal.SIGKILL
    try:
        if chosen.random() < 0.1:
            time.sleep(chosen.random())
            return "lives that ended early"
        port = int(server.addresses()["amqp"].rpartition(":")[2])
        clients = [
            kind(known, port, f"{number}.{place}", f"{chosen.random()}")
            for place, kind in enumerate(_KINDS)
        ]
        wanted = chosen.randint(1, CONFIRMS_MAX)
        end = time.monotonic() + SECONDS_MAX
        while known.heard < wanted and time.monotonic() < end:
            if server.process.poll() is not None:
                known.violations.append(f"the server ended: {server.process.communicate()}")
                break
            time.sleep(0.001)
        return "ends by SIGTERM" if how == signal.SIGTERM else "kills"
    finally:
        if how == signal.SIGTERM and clients and server.process.poll() is None:
            status, _, told = server.end(seconds=JOIN_S)
            if status != 0:
                known.violations.append(f"it ended with {status} after SIGTERM: {told}")
        else:
            server.process.kill()
            server.process.communicate()
        for client in clients:
            client.join(JOIN_S)
            if client.is_alive():
                known.violations.append(f"the client {client.name} hangs")


def run(seed: int, seconds: float, plant: Plant | None = None) -> Report:
    """Lives of one store; ``plant`` does harm between two of them, and says when it has."""
    chosen = random.Random(seed)
    known = Known()
    report = Report()
    folder = Path(tempfile.mkdtemp(prefix="qs-wire-"))
    path = folder / "store"
    end = time.monotonic() + seconds
    try:
        for number in itertools.count():
            report.add(_live(path, known, chosen, number))
            report.add("confirms and commits", known.heard)
            planted = plant is not None and plant(path, known)
            with pyqstore.open(path) as store:
                has_queue = QUEUE in store.queues()
                batches = store.browse(QUEUE) if has_queue else ()
                found = [body for batch in batches for body in batch["body"].to_pylist()]
            wrong = known.violations + known.look(found)
            known.violations = []
            report.violations += [f"seed {seed}, life {number}: {text}" for text in wrong]
            if report.violations or planted or (plant is None and time.monotonic() >= end):
                break
        damages = pyqstore.verify(path).damages
        report.violations += [f"seed {seed}: verify finds {damages} damages"] if damages else []
        report.add("ended for ever", len(known.gone))
        return report
    finally:
        shutil.rmtree(folder, ignore_errors=True)
