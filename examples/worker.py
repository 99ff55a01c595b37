"""A worker in threads: jobs that fail are tried again later, and set aside when that does not help.

python examples/worker.py STORE [--forever]
"""

import logging
import sys
import threading

import pyqstore

FAILS_TWICE, FAILS_ALWAYS = 3, 5


def handle(message: pyqstore.Message) -> None:
    """A job.  Returning acknowledges it; raising has it tried again."""
    order = message.json()
    if order["id"] == FAILS_ALWAYS or (order["id"] == FAILS_TWICE and message.delivery_count < 2):
        raise ConnectionError(f"the shop does not answer for order {order['id']}")
    print(f"order {order['id']}: {order['item']}\n", end="", flush=True)  # in one piece


def main(path: str, forever: bool) -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message).100s")
    with pyqstore.open(path) as store:
        # Durable.  Deliveries are counted in the journal, so that an order that kills this process
        # is set aside as well, when it did so for the tenth time.
        orders = store.queue(
            "orders",
            codec=pyqstore.json,
            delivery_limit=10,
            dead_letter_exchange="",
            dead_letter_routing_key="orders.dead",
        )
        dead = store.queue("orders.dead")
        if len(orders) == 0:
            orders.put_many({"id": number, "item": "tea"} for number in range(1, 7))

        stop = threading.Event()
        if not forever:
            threading.Thread(target=stop_when_idle, args=(store, stop), daemon=True).start()
        orders.work(handle, threads=4, retries=3, backoff=0.1, dead="orders.dead", stop=stop)
        for message in dead.peek(10):
            print(f"set aside: {message.json()}, {message.properties.headers['x-error']}")
        dead.purge()


def stop_when_idle(store: pyqstore.Store, stop: threading.Event) -> None:
    """When no order is ready, under way, or to be tried again later."""
    while not stop.wait(0.1):
        orders = store.queue_status("orders")
        counts = ("messages_ready", "messages_unacked", "messages_delayed")
        if not any(orders[count] for count in counts):
            stop.set()


if __name__ == "__main__":
    main(sys.argv[1], "--forever" in sys.argv)
