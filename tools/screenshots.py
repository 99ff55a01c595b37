"""Make the pictures of the page in docs/pictures: page-*.png.

    screenshots.py [FOLDER]

A store of its own has some work to do, Chromium looks at its page. Needs the package, selenium,
pika, chromium and chromedriver.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pika  # type: ignore[import-untyped, unused-ignore]
from browser import Browser, missing

import pyqstore

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
REGIONS = ("north", "south", "east", "west")
WATCHED_S = 40  # before the first picture: so long are its lines
SIZES = {"wide": (1280, 900), "phone": (400, 860)}


def declare(store: pyqstore.Store) -> None:
    """Exchanges, queues, bindings and streams, as a shop has them."""
    with store.channel() as channel:
        channel.exchange_declare("orders", "topic", durable=True)
        channel.exchange_declare("audit", "fanout", durable=True)
        channel.exchange_declare("dead", "fanout", durable=True)
        channel.exchange_bind("audit", "orders", "#")
        for region in REGIONS:
            name = f"orders.{region}"
            channel.queue_declare(
                name,
                durable=True,
                arguments={"x-dead-letter-exchange": "dead", "x-delivery-limit": 3},
            )
            channel.queue_bind(name, "orders", f"order.{region}.*")
        channel.queue_declare("invoices", durable=True)
        channel.queue_bind("invoices", "orders", "order.*.paid")
        lazy = {"x-queue-mode": "lazy"}
        channel.queue_declare("archive", durable=True, arguments=lazy)
        channel.queue_bind("archive", "audit")
        channel.queue_declare("orders.dead", durable=True)
        channel.queue_bind("orders.dead", "dead")
        channel.queue_declare("sessions", auto_delete=True)
    for name in ("events.orders", "events.payments"):
        store.stream(name, max_age="7D")


def publish(store: pyqstore.Store, ended: Event) -> None:
    """Orders, at a rate that goes up and down."""
    choose = random.Random(1)
    streams = [store.stream("events.orders"), store.stream("events.payments")]
    with store.channel() as channel:
        channel.confirm_select()
        while not ended.wait(0.02):
            for _ in range(choose.randrange(10, 60)):
                key = f"order.{choose.choice(REGIONS)}.{choose.choice(('new', 'paid'))}"
                now = int(time.time())
                properties = pyqstore.Properties(delivery_mode=2, timestamp=now)
                body = b'{"order": %d, "items": [%d]}' % (choose.randrange(10**6), now)
                channel.basic_publish("orders", key, body, properties)
            channel.wait_for_confirms()
            streams[0].publish(b'{"event": "ordered"}')
            streams[1].publish(b'{"event": "paid"}')


def consume(store: pyqstore.Store, queue: str, ended: Event) -> None:
    """Most messages are acknowledged, some are rejected, and some are worked on."""
    choose = random.Random(queue)
    with store.channel() as channel:
        channel.basic_qos(prefetch_count=50)
        working: list[pyqstore.Message] = []
        channel.basic_consume(queue, working.append)
        while not ended.wait(0.01):
            channel.process_events(0.05)
            while len(working) > 20:
                message = working.pop(0)
                if choose.random() < 0.01:
                    message.reject(requeue=False)
                else:
                    message.ack()


def consume_elsewhere(address: str, queue: str, ended: Event) -> None:
    """The same as a client of AMQP, which could be another process."""
    host, _, port = address.rpartition(":")
    named = pika.ConnectionParameters(
        host, int(port), client_properties={"connection_name": f"worker of {queue}"}
    )
    connection = pika.BlockingConnection(named)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=20)
    for method, _, _ in channel.consume(queue, inactivity_timeout=0.2):
        if method is not None:
            channel.basic_ack(method.delivery_tag)
        if ended.wait(0.004):
            break
    connection.close()


def read(store: pyqstore.Store, group: str, pause: float, ended: Event) -> None:
    """A group of the streams, which is behind by more or less."""
    with store.stream_consumer(["events.orders", "events.payments"], group) as consumer:
        while not ended.wait(pause):
            consumer.poll(max_rows=40, timeout=0.1)
            consumer.commit()


@contextmanager
def at_work(store: pyqstore.Store, address: str) -> Iterator[None]:
    """Threads that publish and consume, during the block."""
    ended = Event()
    work: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        (publish, (store, ended)),
        *((consume, (store, f"orders.{region}", ended)) for region in REGIONS[:2]),
        (consume_elsewhere, (address, "orders.east", ended)),
        (consume, (store, "invoices", ended)),
        (read, (store, "billing", 0.02, ended)),
        (read, (store, "reports", 0.5, ended)),
    ]
    threads = [Thread(target=function, args=arguments) for function, arguments in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def take(browser: Browser, folder: Path) -> None:
    """All pictures; those of rates when there are some."""
    print("watching", flush=True)
    time.sleep(WATCHED_S)
    browser.resize(1280, 1210)
    browser.picture(folder / "page-overview.png")
    browser.darken(True)
    browser.picture(folder / "page-overview-dark.png")
    browser.darken(False)
    browser.resize(*SIZES["wide"])
    for view, wait_s in (("queues", 20), ("streams", 8), ("exchanges", 2), ("connections", 3)):
        print(view, flush=True)
        browser.go(view)
        time.sleep(wait_s)
        browser.picture(folder / f"page-{view}.png")
    browser.go("queue?name=orders.west")
    browser.press("Peek")
    browser.wait_for("none was delivered")
    time.sleep(10)
    browser.resize(1280, 1300)
    browser.picture(folder / "page-queue.png")
    browser.resize(*SIZES["wide"])
    browser.press("Move…")
    browser.find("dialog")
    browser.picture(folder / "page-dialog.png")
    browser.press("Cancel", "dialog")
    browser.resize(*SIZES["phone"])
    browser.darken(True)
    browser.go("overview")
    time.sleep(5)
    browser.picture(folder / "page-phone.png")


def main() -> None:
    """The command."""
    if (program := missing()) is not None:
        raise SystemExit(f"{program} is missing")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(pyqstore.open(scratch / "shop.qs", memory_budget="64MiB"))
        declare(store)
        page = stack.enter_context(store.serve_page(0))
        listener = stack.enter_context(store.listen("127.0.0.1:0"))
        stack.enter_context(at_work(store, listener.address))
        browser = Browser(scratch / "profile")
        stack.callback(browser.close)
        browser.resize(*SIZES["wide"])
        browser.darken(False)
        browser.open(page.url)
        take(browser, folder)


if __name__ == "__main__":
    main()
