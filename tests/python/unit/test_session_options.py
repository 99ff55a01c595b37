"""Options of connections and destinations, by URI."""

from pathlib import Path
from typing import Any

import pytest

from pyqstore import session as jms
from pyqstore.session.options import NAMES, Options, parse_uri


def parsed(query: str) -> Options:
    path, options = parse_uri(f"qstore:///a/b?{query}")
    assert path == "/a/b"
    return options


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("optimizeAcknowledge=true", {"optimize_acknowledge": True}),
        ("jms.optimizeAcknowledge=TRUE", {"optimize_acknowledge": True}),
        ("optimizeAcknowledgeTimeOut=30000", {"optimize_timeout": 30.0}),
        ("optimizeAcknowledgeTimeOut=0", {"optimize_timeout": None}),
        (
            "prefetch=100",
            {
                "queue_prefetch": 100,
                "queue_browser_prefetch": 100,
                "topic_prefetch": 100,
                "durable_topic_prefetch": 100,
                "optimize_durable_topic_prefetch": 100,
            },
        ),
        (
            "jms.prefetchPolicy.all=9&jms.prefetchPolicy.queuePrefetch=12",
            {
                "queue_prefetch": 12,
                "queue_browser_prefetch": 9,
                "topic_prefetch": 9,
                "durable_topic_prefetch": 9,
                "optimize_durable_topic_prefetch": 9,
            },
        ),
        ("prefetchPolicy.topicPrefetch=12", {"topic_prefetch": 12}),
        ("sendAcksAsync=false", {"send_acks_async": False}),
        ("useAsyncSend=true", {"use_async_send": True}),
        ("deadLetterQueue=dead%20letters", {"dead_letter_queue": "dead letters"}),
        ("clientID=billing", {"client_id": "billing"}),
    ],
)
def test_uri_sets_options_by_the_names_that_activemq_has(
    query: str, expected: dict[str, Any]
) -> None:
    assert parsed(query) == Options(**expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("redeliveryPolicy.maximumRedeliveries=-1", {"maximum_redeliveries": -1}),
        ("jms.redeliveryPolicy.initialRedeliveryDelay=20", {"initial_redelivery_delay": 0.02}),
        ("redeliveryPolicy.redeliveryDelay=1500", {"redelivery_delay": 1.5}),
        ("redeliveryPolicy.useExponentialBackOff=true", {"use_exponential_back_off": True}),
        ("redeliveryPolicy.backOffMultiplier=2.5", {"back_off_multiplier": 2.5}),
        ("redeliveryPolicy.maximumRedeliveryDelay=-1", {"maximum_redelivery_delay": -1}),
        ("redeliveryPolicy.maximumRedeliveryDelay=200", {"maximum_redelivery_delay": 0.2}),
        ("redeliveryPolicy.useCollisionAvoidance=true", {"use_collision_avoidance": True}),
        ("redeliveryPolicy.collisionAvoidanceFactor=0.5", {"collision_avoidance_factor": 0.5}),
        ("nonBlockingRedelivery=true", {"non_blocking_redelivery": True}),
    ],
)
def test_uri_sets_the_redelivery_policy(query: str, expected: dict[str, Any]) -> None:
    assert parsed(query).redelivery == jms.RedeliveryPolicy(**expected)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("tcp://host:61616", "begins with 'qstore://'"),
        ("/a/b", "begins with 'qstore://'"),
        ("qstore:/a/b", "begins with 'qstore://'"),
        ("qstore://host/a", "has no host"),
        ("qstore:///", "names no path"),
        ("qstore:///a?prefetchSize=1", "no option 'prefetchSize'; did you mean 'prefetch'"),
        ("qstore:///a?optimiseAcknowledge=true", "did you mean 'optimizeAcknowledge'"),
        ("qstore:///a?zzz=1", "no option 'zzz'; there are prefetch, "),
        ("qstore:///a?redeliveryPolicy.x=1", "no option 'redeliveryPolicy.x'"),
        ("qstore:///a?prefetch=many", "'prefetch' must be a whole number of 0 or more"),
        ("qstore:///a?prefetch=-1", "'prefetch' must be a whole number of 0 or more"),
        ("qstore:///a?prefetch=1&prefetch=2", "'prefetch' is given twice"),
        ("qstore:///a?prefetch", "options are name=value"),
        ("qstore:///a?optimizeAcknowledge=1", "must be true or false"),
        ("qstore:///a?redeliveryPolicy.maximumRedeliveries=-2", "maximum_redeliveries must be -1"),
        ("qstore:///a?redeliveryPolicy.backOffMultiplier=x", "must be a number"),
        ("qstore:///a?clientID=", "must not be empty"),
    ],
)
def test_uri_with_something_wrong_is_refused_by_name(uri: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        jms.connect(uri)


def test_every_option_that_is_named_can_be_given() -> None:
    for name in NAMES:
        value = "true" if name.startswith(("optimizeAcknowledge", "use", "send", "non")) else "1"
        if name == "optimizeAcknowledgeTimeOut" or "." in name:
            value = "true" if ".use" in name else "1"
        parsed(f"{name}={value}")


def test_a_connections_arguments_count_before_its_uri(path: Path) -> None:
    policy = jms.RedeliveryPolicy(maximum_redeliveries=2)
    uri = f"qstore://{path}?clientID=a&redeliveryPolicy.maximumRedeliveries=9&prefetch=3"
    with jms.connect(uri, client_id="b", redelivery=policy) as connection:
        assert connection.client_id == "b"
        assert connection.options.redelivery == policy
        session = connection.session()
        assert session.consumer(session.queue("q")).prefetch == 3
        assert session.consumer(session.topic("t")).prefetch == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("q?customer.prefetchSize=1", "no option 'customer.prefetchSize'"),
        ("q?consumer.prefetch=1", "there are consumer.prefetchSize, consumer.exclusive"),
        ("q?consumer.prefetchSize=-1", "whole number of 0 or more"),
        ("q?consumer.exclusive=yes", "must be true or false"),
        ("q?consumer.priority=high", "must be a whole number"),
        ("?consumer.prefetchSize=1", "must not be empty"),
        ("q" * 256, "at most 255 bytes"),
    ],
)
def test_destination_with_something_wrong_is_refused(path: Path, name: str, said: str) -> None:
    with jms.connect(f"qstore://{path}") as connection:
        session = connection.session()
        for make in (session.queue, session.topic):
            with pytest.raises(ValueError, match=said):
                make(name)


def test_consumers_of_higher_priority_come_first(path: Path) -> None:
    with jms.connect(f"qstore://{path}") as connection:
        session = connection.session("client")
        low = session.consumer(session.queue("q"))
        high = session.consumer(session.queue("q?consumer.priority=5"))
        session.producer(session.queue("q")).send("a")
        assert low.receive(timeout=0) is None
        message = high.receive(timeout=0)
        assert message is not None
        assert message.text == "a"
