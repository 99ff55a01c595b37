"""What the page can do, in headless Chromium: each action through its dialog, and what the store
has then."""

from typing import Any

import pyqstore

from ..support import get, publish, rest


def test_page_declares_publishes_and_deletes(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    browser.go("queues")
    browser.press("Declare a queue…")
    browser.fill("Name", "new")
    browser.fill("Arguments", '{"x-max-length": 5}')
    assert browser.confirm("Declare") == "new is there."
    assert store.queue_status("new").durable
    browser.go("queue?name=new")
    browser.wait_for("x-max-length")
    browser.press("Publish…")
    browser.fill("Body", "hello é")
    browser.fill("Properties", '{"headers": {"n": 1}, "priority": 3}')
    assert browser.confirm("Publish") == "Published."
    message = get(channel, "new")
    assert message.body.decode() == "hello é"
    assert message.properties.headers == {"n": 1}
    assert message.properties.priority == 3
    assert message.properties.delivery_mode == 2
    message.nack()
    browser.press("Delete…")
    browser.press("Delete", "dialog")  # only if it is empty: it is not
    browser.wait_for("not empty", "dialog")
    assert "new" in store.queues()
    browser.fill("Only if it is empty", False)
    assert browser.confirm("Delete") == "new is deleted, with 1 messages."
    assert store.queues() == []
    browser.wait_for("There is no such queue.")


def test_page_declares_a_stream(browser: Any, store: pyqstore.Store) -> None:
    browser.go("streams")
    browser.press("Declare a stream…")
    browser.fill("Name", "log")
    browser.fill("Kind", "stream")
    browser.confirm("Declare")
    assert store.queue_status("log").stream


def test_page_asks_before_it_purges_and_does_nothing_when_that_is_cancelled(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", b"a", b"b")
    browser.go("queue?name=q")
    browser.press("Purge…")
    browser.wait_for("removed", "dialog")
    assert browser.focused() == "Cancel"  # a key that was meant for the page purges nothing
    browser.press("Cancel", "dialog")
    browser.wait(lambda: not browser.all("dialog"))
    assert store.queue_status("q").messages_ready == 2
    browser.press("Purge…")
    assert browser.confirm("Purge") == "2 messages removed from q."
    assert store.queue_status("q").messages_ready == 0


def test_page_moves_messages_and_requeues_dead_letters(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", durable=True, arguments=dead)
    channel.queue_declare("other", durable=True)
    publish(channel, "q", b"a", b"b", b"c")
    browser.go("queue?name=q")
    browser.press("Move…")
    browser.fill("To the queue", "other")
    browser.fill("At most", "1")
    assert browser.confirm("Move") == "1 messages moved from q to other."
    assert rest(channel, "other") == [(b"a", False)]
    for _ in range(2):
        message = get(channel, "q")
        message.reject(requeue=False)
    publish(channel, "dead", b"never died")
    browser.go("queue?name=dead")
    browser.press("Requeue dead letters…")
    told = browser.confirm("Requeue")
    assert told == "2 messages went back to their queues; 1 stay, as no queue is known for them."
    assert [body for body, _ in rest(channel, "q")] == [b"b", b"c"]
    assert [body for body, _ in rest(channel, "dead")] == [b"never died"]


def test_page_binds_unbinds_and_deletes_exchanges(
    browser: Any, store: pyqstore.Store, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q")
    browser.go("exchanges")
    browser.press("Declare an exchange…")
    browser.fill("Name", "x")
    browser.fill("Type", "topic")
    browser.confirm("Declare")
    assert store.exchanges()["x"].type == "topic"
    browser.press("Bind…", "main .bar")
    browser.fill("From the exchange", "x")
    browser.fill("Its name", "q")
    browser.fill("Routing key", "k.*")
    browser.fill("Arguments", '{"a": [1, {"b": null}]}')
    assert browser.confirm("Bind") == "x leads to q."
    assert ("x", "q", "k.*") in [each[:3] for each in store.bindings()]
    browser.wait_for("k.*")
    browser.press("Unbind…")
    assert browser.confirm("Unbind") == "x does not lead to q any more."
    assert [each for each in store.bindings() if each.source] == []
    browser.wait_for("Nothing is bound.")
    browser.press("Delete…")
    assert browser.confirm("Delete") == "x is deleted."
    assert "x" not in store.exchanges()


def test_page_makes_a_checkpoint(browser: Any, store: pyqstore.Store) -> None:
    before = store.stats().checkpoints
    browser.press("Checkpoint…")
    assert browser.confirm("Make a checkpoint") == "A checkpoint is made."
    assert store.stats().checkpoints > before


def test_page_tells_in_the_dialog_why_an_action_was_refused(
    browser: Any, channel: pyqstore.Channel
) -> None:
    channel.queue_declare("q", durable=True)
    browser.go("queue?name=q")

    def refused(opens: str, does: str, why: str, **filled: str) -> None:
        browser.press(opens)
        for label, value in filled.items():
            browser.fill(label.replace("_", " "), value)
        browser.press(does, "dialog")
        browser.wait_for(why, "dialog [role='alert']")
        browser.press("Cancel", "dialog")
        browser.wait(lambda: not browser.all("dialog"))

    refused("Move…", "Move", "no queue 'nowhere'", To_the_queue="nowhere")
    refused("Publish…", "Publish", "no JSON", Properties="{")
    refused("Publish…", "Publish", "No queue took it", Routing_key="nowhere")
    refused("Bind…", "Bind", "no exchange 'nowhere'", From_the_exchange="nowhere")
