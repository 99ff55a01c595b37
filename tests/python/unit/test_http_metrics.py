"""Metrics: read as Prometheus reads them, with its own parser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

import pyqstore

from .http_asking import Asking, asked

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def store() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as opened:
        yield opened


def samples(ask: Asking, path: str) -> Samples:
    answer = ask("GET", path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed(answer.data.decode())
        for sample in family.samples
    }


def fill(store: pyqstore.Store) -> pyqstore.Channel:
    channel = store.channel()
    for name in ("q", 'a "quoted\\ \n name'):
        channel.queue_declare(name)
        channel.basic_publish("", name, b"x")
    channel.basic_get("q")
    return channel


def test_sums_are_those_of_the_store(ask: Asking, store: pyqstore.Store) -> None:
    channel = fill(store)
    told = samples(ask, "/metrics")
    expected = {
        "rabbitmq_queues": 2,
        "rabbitmq_channels": 1,
        "rabbitmq_queue_messages_ready": 1,
        "rabbitmq_queue_messages_unacked": 1,
        "rabbitmq_queue_messages": 2,
        "rabbitmq_channel_messages_published_total": 2,
        "rabbitmq_channel_get_ack_total": 1,
        "rabbitmq_queue_messages_published_total": 2,
    }
    assert {name: told[name, ()] for name in expected} == expected
    stats = store.stats()
    for name, value in {
        "pyqstore_fdatasyncs_total": stats.fdatasyncs,
        "pyqstore_memory_budget_bytes": store.options["memory_budget"],
        "pyqstore_failed": 0,
    }.items():
        assert told[name, (("vhost", "/"),)] == value
    assert not channel.closed


def test_counts_of_channels_stay_when_these_close(ask: Asking, store: pyqstore.Store) -> None:
    """RabbitMQ's dashboards show rates of them."""
    for _ in range(2):
        with fill(store) as channel:
            channel.basic_get("q", auto_ack=True)  # nothing, but what the other one gave back
            channel.queue_declare("empty")
            channel.basic_get("empty")
    told = samples(ask, "/metrics")
    amqp = (("protocol", "amqp091"),)
    expected = {
        "messages_received_total": 4,
        "messages_delivered_get_manual_ack_total": 2,
        "messages_delivered_get_auto_ack_total": 1,
        "messages_get_empty_total": 3,
        "messages_redelivered_total": 1,
        "messages_unroutable_dropped_total": 0,
        "messages_delivered_consume_manual_ack_total": 0,
        "messages_delivered_consume_auto_ack_total": 0,
        "publishers": 0,
        "consumers": 0,
    }
    assert {name: told[f"rabbitmq_global_{name}", amqp] for name in expected} == expected


def test_what_came_and_went_is_counted(ask: Asking, store: pyqstore.Store) -> None:
    channel = fill(store)  # two new queues
    channel.queue_declare("q")
    channel.queue_declare("q", passive=True)
    with pytest.raises(pyqstore.NotFound):
        channel.queue_declare("none", passive=True)
    with store.channel() as other:
        other.queue_declare("mine", exclusive=True)
        other.confirm_select()
        for _ in range(3):
            other.basic_publish("", "q", b"x")
        other.queue_delete("q")
    with store.channel() as last:
        last.confirm_select()
        last.basic_publish("", "nowhere", b"x")
        told = samples(ask, "/metrics")
    expected = {
        "connections_opened_total": 3,
        "connections_closed_total": 2,
        "channels_opened_total": 3,
        "channels_closed_total": 2,
        "queues_declared_total": 4,  # without the passive one
        "queues_created_total": 3,
        "queues_deleted_total": 2,
    }
    assert {name: told[f"rabbitmq_{name}", ()] for name in expected} == expected
    amqp = (("protocol", "amqp091"),)
    assert told["rabbitmq_global_messages_received_confirm_total", amqp] == 4
    churn = ask.get("overview")["churn_rates"]
    counts = {name: value for name, value in churn.items() if not name.endswith("_details")}
    assert counts == {
        "connection_created": 3,
        "connection_closed": 3,
        "channel_created": 3,
        "channel_closed": 3,
        "queue_declared": 4,
        "queue_created": 3,
        "queue_deleted": 2,
    }


# What the dashboard RabbitMQ-Overview asks for, but for what Erlang alone has.
OVERVIEW = """
rabbitmq_build_info rabbitmq_channels rabbitmq_channels_closed_total rabbitmq_channels_opened_total
rabbitmq_connections rabbitmq_connections_closed_total rabbitmq_connections_opened_total
rabbitmq_consumers
rabbitmq_disk_space_available_bytes rabbitmq_disk_space_available_limit_bytes
rabbitmq_global_consumers rabbitmq_global_messages_acknowledged_total
rabbitmq_global_messages_confirmed_total
rabbitmq_global_messages_delivered_consume_auto_ack_total
rabbitmq_global_messages_delivered_consume_manual_ack_total
rabbitmq_global_messages_delivered_get_auto_ack_total
rabbitmq_global_messages_delivered_get_manual_ack_total
rabbitmq_global_messages_get_empty_total rabbitmq_global_messages_received_confirm_total
rabbitmq_global_messages_received_total
rabbitmq_global_messages_redelivered_total rabbitmq_global_messages_routed_total
rabbitmq_global_messages_unroutable_dropped_total
rabbitmq_global_messages_unroutable_returned_total rabbitmq_global_publishers
rabbitmq_identity_info rabbitmq_process_max_fds rabbitmq_process_max_tcp_sockets
rabbitmq_process_open_fds rabbitmq_process_open_tcp_sockets
rabbitmq_process_resident_memory_bytes rabbitmq_queue_messages_ready
rabbitmq_queue_messages_unacked rabbitmq_queues rabbitmq_queues_created_total
rabbitmq_queues_declared_total rabbitmq_queues_deleted_total rabbitmq_resident_memory_limit_bytes
"""


def test_dashboards_of_rabbitmq_find_their_metrics(tmp_path: Path) -> None:
    with pyqstore.open(tmp_path / "store") as store, asked(store) as ask:
        told = {name: value for (name, _), value in samples(ask, "/metrics").items()}
    assert [name for name in OVERVIEW.split() if name not in told] == []
    left = told["rabbitmq_resident_memory_limit_bytes"]
    assert left > told["rabbitmq_process_resident_memory_bytes"]


def test_each_queue_is_told_by_its_name_whatever_that_is(
    ask: Asking, store: pyqstore.Store
) -> None:
    channel = fill(store)
    told = samples(ask, "/metrics/per-object")
    names = {
        dict(labels)["queue"] for name, labels in told if name == "rabbitmq_queue_messages_ready"
    }
    assert names == {"q", 'a "quoted\\ \n name'}
    assert told["rabbitmq_queue_messages_unacked", (("queue", "q"), ("vhost", "/"))] == 1
    assert not channel.closed


def test_a_store_that_was_closed_is_left_out(ask: Asking, store: pyqstore.Store) -> None:
    other = pyqstore.open(":memory:")
    with asked(store, vhosts={"other": other}) as both:
        other.close()
        told = samples(both, "/metrics")
    hosts = {dict(labels).get("vhost") for name, labels in told if name == "pyqstore_failed"}
    assert hosts == {"/"}
