"""The page of a store with 10,000 queues, and of a long time of updates.

QS_PAGE_SOAK_S is how long the last test looks, in seconds; 20 minutes unless it is said.
"""

import os
import time
from typing import Any

import pytest

import pyqstore

from ..serving import resident
from ..support import publish

QUEUES = 10_000
SOAK_S = float(os.environ.get("QS_PAGE_SOAK_S", "1200"))
HEAP_GROWTH_MAX = 3 << 20
SERVER_GROWTH_MAX = 32 << 20


def names(browser: Any) -> list[str]:
    code = "return [...document.querySelectorAll('tbody tr')].map((r) => r.cells[0].innerText)"
    return [str(each) for each in browser.script(code)]


def test_page_of_10000_queues_pages_filters_and_sorts_at_the_server(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    for number in range(QUEUES):
        channel.queue_declare(f"queue-{number:05}", nowait=True)
    publish(channel, "queue-07777", b"a", b"b")
    browser.go("queues")
    browser.wait_for("10,000 queues, page 1 of 400", ".pager")
    assert len(browser.all("tbody tr")) == 25  # as many as are shown, and no more
    assert names(browser)[0] == "queue-00000"
    browser.press("Next")
    browser.wait(lambda: names(browser)[:1] == ["queue-00025"])
    browser.press("Ready")
    browser.wait(lambda: names(browser)[:1] == ["queue-07777"])
    sorted_by = browser.find("th[aria-sort]")
    assert sorted_by.get_attribute("aria-sort") == "descending"
    browser.find("#filter").click()
    browser.keys(*"-0001")
    browser.wait(lambda: "10 of 10" in browser.text(".pager"))
    assert len(names(browser)) == 10
    assert browser.focused() == "Name contains"  # typing goes on where it was
    browser.keys("\ue003")
    browser.wait(lambda: "100 of 10" in browser.text(".pager"))
    browser.go("overview")
    browser.wait_for("10,000")
    assert len(browser.all("main *")) < 500


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
@pytest.mark.skipif("QS_PAGE_SOAK_S" not in os.environ, reason="takes 20 minutes: QS_PAGE_SOAK_S")
def test_page_memory_does_not_grow_while_figures_come(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    for number in range(60):
        channel.queue_declare(f"queue-{number}", durable=True)
    views = ("overview", "queues", "queue?name=queue-1", "exchanges", "connections", "streams")

    def look(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for view in views:
                browser.go(view)
                for _ in range(20):
                    publish(channel, "queue-1", b"x" * 100)
                    channel.basic_get("queue-1", auto_ack=True)
                    time.sleep(0.1)
                browser.requests()

    look(60)
    heap, server = browser.heap_bytes(), resident(os.getpid())
    look(SOAK_S)
    grown = browser.heap_bytes() - heap
    print(f"{SOAK_S:.0f} s: page {heap >> 10} KiB + {grown >> 10} KiB")
    assert grown < HEAP_GROWTH_MAX
    assert resident(os.getpid()) - server < SERVER_GROWTH_MAX
