"""Works under limits that come and go: memory, descriptors.  A process of its own.

``worker.py PATH SEED KIND LIFE`` does at random what a program does, while every now and then the
limit of KIND leaves nothing over.  Calls may then raise what the kind allows, and nothing else.  It
says on stdout, a line each, which messages are confirmed ("c"), which it is about to acknowledge
("a"), which acknowledgements are durable ("s") and which transactions ("k"), and ends without
closing anything.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from collections.abc import Callable

import pyqstore

PERSISTENT = pyqstore.Properties(delivery_mode=2)
ROUNDS = 400
ALLOWED: dict[str, tuple[type[Exception], ...]] = {
    "memory": (MemoryError, pyqstore.StoreFull),
    "descriptors": (pyqstore.StoreError, OSError),
}
LIMITS = {"memory": resource.RLIMIT_AS, "descriptors": resource.RLIMIT_NOFILE}


class Worker:
    """One life of a store under limits."""

    def __init__(self, path: str, seed: str, kind: str, life: int) -> None:
        self.chance = random.Random(f"{seed} {kind} {life}")
        self.kind = kind
        self.serial = life * 1_000_000
        self.ballast: list[object] = []
        self.acked: list[int] = []
        self.store = pyqstore.open(
            path,
            memory_budget="4MiB",
            journal_file_bytes="256KiB",
            message_file_bytes="1MiB",
            segment_entries=256,
            checkpoint_bytes="1MiB",
        )
        self.plain, self.transacted = self.store.channel(), self.store.channel()
        self.plain.queue_declare("a", durable=True)
        self.plain.queue_declare("b", durable=True)
        for queue in "ab":
            self.plain.queue_bind(queue, "amq.fanout", "")
        self.plain.confirm_select()
        self.transacted.tx_select()

    def body(self, size: int) -> bytes:
        self.serial += 1
        return b"%d " % self.serial + bytes(size)

    def publish(self) -> None:
        size = self.chance.choice((10, 500, 20_000, 200_000))
        exchange, key = self.chance.choice((("", "a"), ("amq.fanout", "")))
        self.plain.basic_publish(exchange, key, self.body(size), PERSISTENT)
        number = self.serial
        if self.plain.wait_for_confirms(60):
            print("c", number)

    def transaction(self) -> None:
        key = f"key {self.serial}"
        try:
            for _ in range(5):
                self.transacted.basic_publish("", "b", self.body(3_000), PERSISTENT)
            self.transacted.tx_commit(key=key)
            print("k", key)
        except Exception:
            self.transacted.tx_rollback()
            raise

    def consume(self) -> None:
        for _ in range(10):
            message = self.plain.basic_get("a")
            if message is None:
                return
            number = int(message.body.split()[0])
            print("a", number, flush=True)
            message.ack()
            self.acked.append(number)

    def sync(self) -> None:
        self.store.sync()
        for number in self.acked:
            print("s", number)
        self.acked.clear()

    def checkpoint(self) -> None:
        self.store.checkpoint()

    def squeeze(self) -> None:
        """From now on there is next to nothing of what the kind limits."""
        _, hard = resource.getrlimit(LIMITS[self.kind])
        if self.kind == "memory":
            with open("/proc/self/statm") as file:
                now = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + self.chance.choice((0, 99_999)), hard))
            try:
                while True:
                    self.ballast.append(bytearray(self.chance.choice((4_000, 100_000))))
            except MemoryError:
                pass
        else:
            now = max(map(int, os.listdir("/proc/self/fd"))) + 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (now + self.chance.randrange(3), hard))

    def relax(self) -> None:
        """All is there again."""
        self.ballast.clear()
        _, hard = resource.getrlimit(LIMITS[self.kind])
        resource.setrlimit(LIMITS[self.kind], (hard, hard))

    def run(self) -> None:
        """Work, squeezed for two rounds of three."""
        work: list[Callable[[], None]] = [self.publish] * 6 + [self.transaction] * 3
        work += [self.consume] * 3 + [self.sync, self.checkpoint]
        refused = 0
        for number in range(ROUNDS):
            if number % 15 == 5:
                self.squeeze()
            try:
                self.chance.choice(work)()
            except ALLOWED[self.kind] as error:
                if isinstance(error, pyqstore.StoreFailed):
                    raise
                refused += 1
            if number % 15 == 14:
                self.relax()
        self.relax()
        assert not self.store.stats()["failed"]
        self.publish()
        self.sync()
        print("r", refused, flush=True)
        os._exit(0)


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])).run()
