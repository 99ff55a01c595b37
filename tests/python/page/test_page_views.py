"""What the page shows, in headless Chromium: each view of a store that has some of everything.

After each test the browser must have seen no violation of the page's policy, no failed script, and
no other origin (conftest.py).
"""

import re
import time
from typing import Any

import pika

import pyqstore

from ..support import PERSISTENT, get, publish, wait_until

HOSTILE = '<img src=x onerror="document.title=1">&amp;</td><script>alert(1)</script>'


def test_page_overview_shows_rates_syncs_memory_and_disk_while_messages_flow(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("busy", durable=True)
    channel.confirm_select()

    def flows() -> bool:
        publish(channel, "busy", *[b"x" * 100] * 20)
        channel.wait_for_confirms()
        shown = browser.all(".tile .big")
        return len(shown) == 7 and shown[0].text not in ("\N{EN DASH}", "0/s")

    wait_until(flows)
    text = browser.text()
    for word in ("Published", "Confirmed", "Delivered", "Acknowledged", "Syncs", "Messages a sync"):
        assert word in text
    assert "Commit, 99 %" in text
    assert re.search(r"of 256 MiB, [\d.]+ \w+ not in queues", text)  # the memory budget
    assert "free" in text
    browser.wait_for("busy", "[aria-label^='Queues with the most bytes']")
    label = browser.find(".histogram").get_attribute("aria-label")
    assert "up to" in label
    rate = browser.find(".tile .sparkline").get_attribute("aria-label")
    assert rate.startswith("Published: ")


def test_page_queues_shows_counts_states_age_and_dead_letters_of_each(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("work", durable=True, arguments=dead)
    publish(channel, "work", b"a", b"b", b"c", b"d", timestamp=int(time.time()) - 90)
    channel.basic_get("work")
    rejected = get(channel, "work")
    rejected.reject(requeue=False)
    browser.go("queues")
    browser.wait_for("work")

    def cells() -> list[str]:
        code = "return [...document.querySelectorAll('tbody tr')].map((r) => r.innerText)"
        return [str(each) for each in browser.script(code)]

    def shown() -> bool:
        row = next(each for each in cells() if each.startswith("work"))
        fields = row.split()
        return fields[:4] == ["work", "durable", "2", "1"] and fields[-1] == "1"

    browser.wait(shown, lambda: repr(cells()))
    assert "1 min" in browser.text("tbody tr:nth-child(2)")
    bar = browser.find("tbody tr:nth-child(2) .stack").get_attribute("aria-label")
    assert bar == "Where the messages of work are: alpha 3, beta 0, gamma 0, delta 0"


def test_page_queue_shows_its_parts_bindings_and_arguments_and_peeks_without_delivering(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-max-length": 77})
    channel.queue_bind("q", "amq.topic", "a.*", {"why": "test"})
    headers = {"n": 1, "who": "me"}
    channel.basic_publish("", "q", "text é".encode(), pyqstore.Properties(headers=headers))
    channel.basic_publish("", "q", b"\xff\x00", PERSISTENT)
    before = store.stats()
    browser.go("queue?name=q")
    browser.wait_for("a.*")
    text = browser.text()
    assert "x-max-length" in text
    assert "77" in text
    assert '{"why": "test"}' in text
    parts = browser.find("[aria-label^='Its parts']").get_attribute("aria-label")
    assert parts == "Its parts: q1 0, q2 0, delta_len 0, q3 0, q4 2"
    browser.press("Peek")
    browser.wait_for("2 shown; none was delivered.")
    text = browser.text(".messages-list")
    assert "text é" in text
    assert "header who" in text
    assert "/wA=" in text  # no text, so base64
    now = store.stats()
    assert now.messages_delivered == before.messages_delivered
    assert store.queue_status("q").messages_ready == 2
    message = get(channel, "q")
    assert not message.redelivered


def test_page_streams_shows_offsets_and_the_lag_of_each_group(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    stream = store.stream("events")
    for number in range(10):
        stream.publish(b"%d" % number)
    with store.stream_consumer("events", "billing") as consumer:
        taken = 0
        while taken < 4:
            batch = consumer.poll(max_rows=4 - taken, timeout=1)
            taken += batch.num_rows if batch is not None else 0
        consumer.commit()
    channel.queue_declare("no stream")
    browser.go("streams")
    browser.wait_for("billing at 4, 6 behind")
    text = browser.text("tbody")
    assert text.split()[:4] == ["events", "0", "10", "10"]
    assert "no stream" not in text


def test_page_exchanges_shows_bindings_as_a_picture_and_as_a_table(
    browser: Any, channel: pyqstore.Channel
) -> None:
    channel.exchange_declare("in", "topic", durable=True)
    channel.exchange_declare("out", "fanout", durable=True)
    channel.exchange_bind("out", "in", "key.#")
    channel.exchange_bind("in", "out")  # a circle
    channel.queue_declare("q")
    channel.queue_bind("q", "out")
    browser.go("exchanges")
    browser.wait_for("key.#")
    assert len(browser.all(".graph .exchange")) == 2
    assert len(browser.all(".graph .queue")) == 1
    assert len(browser.all(".graph .binding")) == 3
    assert browser.find(".graph").get_attribute("role") == "img"
    rows = browser.text("[aria-label='Bindings'] tbody")
    assert rows.count("exchange") == 2
    assert "(default)" in browser.text("[aria-label='Exchanges']")


def test_page_connections_shows_clients_with_prefetch_and_what_is_under_way(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    channel.confirm_select()
    publish(channel, "q", b"a", b"b")
    with store.listen("127.0.0.1:0") as listener:
        port = int(listener.address.rpartition(":")[2])
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        client = connection.channel()
        client.basic_qos(prefetch_count=7)
        client.basic_get("q")
        browser.go("connections")
        browser.wait_for("Pika Python Client Library")
        rows = browser.text("[aria-label='Channels'] tbody").splitlines()
        theirs = next(each.split() for each in rows if "127.0.0.1" in each)
        assert theirs[2:7] == ["7", "\N{EN DASH}", "1", "0", "0"]
        ours = next(each.split() for each in rows if "this process" in each)
        assert "confirm" in ours
        connection.close()
    browser.wait(lambda: "Pika" not in browser.text())


def test_page_shows_hostile_names_and_bodies_as_text(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare(HOSTILE, durable=True)
    channel.exchange_declare(HOSTILE, "topic")
    channel.queue_bind(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    properties = pyqstore.Properties(headers={HOSTILE: HOSTILE}, content_type=HOSTILE)
    channel.basic_publish("", HOSTILE, HOSTILE.encode(), properties)
    for view in ("overview", "queues", "exchanges"):
        browser.go(view)
        browser.wait_for(HOSTILE)
        assert browser.all("main img, main script") == []
    browser.go("queues")
    browser.find("tbody a").click()
    browser.wait_for("Requeue dead letters")
    assert browser.text("h1") == f"Queue {HOSTILE}"
    browser.press("Peek")
    browser.wait_for(HOSTILE, "pre")
    browser.press("Purge…")
    browser.wait_for(HOSTILE, "dialog")
    assert browser.all("main img, main script, dialog img, dialog script") == []
    assert "1 messages removed" in browser.confirm("Purge")
    assert browser.all(".messages img") == []
    assert str(browser.driver.title) == f"Queue {HOSTILE} \N{EN DASH} pyqstore"


def test_page_keeps_the_theme_that_was_chosen(browser: Any) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    browser.darken(False)
    light = browser.script(ground)
    browser.darken(True)
    dark = browser.script(ground)
    assert dark != light
    browser.press("Theme: auto", "header")
    assert browser.script(ground) == light  # chosen, whatever the system prefers
    browser.press("Theme: light", "header")
    browser.darken(False)
    assert browser.script(ground) == dark
    browser.driver.refresh()
    browser.wait(lambda: browser.state() == "live")
    assert browser.script(ground) == dark
    browser.press("Theme: dark", "header")
    assert browser.script(ground) == light


def test_page_fits_a_phone(browser: Any, channel: pyqstore.Channel) -> None:
    channel.queue_declare("a-queue-with-quite-a-long-name-that-does-not-fit-anywhere")
    browser.resize(390, 800)
    try:
        for view in ("overview", "queues", "streams", "exchanges", "connections"):
            browser.go(view)
            assert browser.script("return document.documentElement.scrollWidth") <= 390, view
    finally:
        browser.resize(1280, 900)


def test_page_can_be_used_by_keyboard_alone(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    tab, back, enter, escape = "\ue004", "\ue008\ue004", "\ue007", "\ue00c"
    reached = [browser.focused()]
    while reached[-1] != "Skip to content" and len(reached) < 20:
        browser.keys(back)
        reached.append(browser.focused())
    assert reached[0] == "Overview"  # the heading
    assert reached[-1] == "Skip to content"
    assert {"Theme: auto", "Connections", "Streams", "Queues"} <= set(reached)
    browser.keys(enter)
    assert browser.script("return document.activeElement.id") == "main"
    for _ in reached:
        if browser.focused() == "Queues":
            break
        browser.keys(back)
    browser.keys(enter)
    browser.wait(lambda: browser.text("h1") == "Queues")
    assert browser.focused() == "Queues"  # a screen reader says where it is
    for _ in range(40):
        browser.keys(tab)
        if browser.focused() == "Declare a queue…":
            break
    browser.keys(enter)
    browser.find("dialog")
    assert browser.focused() == "Name"
    browser.keys("made by keys", enter)
    browser.wait_for("made by keys")
    assert "made by keys" in store.queues()
    assert browser.focused() == "Declare a queue…"  # where it was before
    browser.keys(enter)
    browser.find("dialog")
    browser.keys(escape)
    browser.wait(lambda: not browser.all("dialog"))
