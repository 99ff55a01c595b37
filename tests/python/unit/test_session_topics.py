"""Topics: patterns, subscriptions that are durable, shared, exclusive or end with their consumer;
and queues among which groups are divided."""

from collections.abc import Iterator

import pytest

import pyqstore
from pyqstore import session as jms

from .either import connect

pytestmark = pytest.mark.faces("sync", "aio")


@pytest.fixture
def connection(store: pyqstore.Store) -> Iterator[jms.Connection]:
    with connect(store, client_id="billing") as connection:
        yield connection


def send(connection: jms.Connection, topic: str, *bodies: str, **properties: object) -> None:
    with connection.session() as session:
        producer = session.producer(session.topic(topic))
        for body in bodies:
            producer.send(body, properties=properties)  # type: ignore[arg-type]


def rest(consumer: jms.Consumer) -> list[str]:
    found = []
    while (message := consumer.receive(timeout=0)) is not None:
        found.append(message.text)
    return found


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("prices.eur", ["prices.eur"]),
        ("prices.*", ["prices.eur", "prices.usd"]),
        ("*.eur", ["prices.eur", "news.eur"]),
        ("prices.>", ["prices", "prices.eur", "prices.usd", "prices.usd.spot"]),
        (">", ["prices", "prices.eur", "prices.usd", "prices.usd.spot", "news.eur"]),
    ],
)
def test_a_subscription_gets_what_its_pattern_fits(
    connection: jms.Connection, pattern: str, fits: list[str]
) -> None:
    session = connection.session()
    consumer = session.consumer(session.topic(pattern))
    sent = ["prices", "prices.eur", "prices.usd", "prices.usd.spot", "news.eur"]
    for topic in sent:
        send(connection, topic, topic)
    assert rest(consumer) == fits


def test_names_that_are_no_topics_are_refused(connection: jms.Connection) -> None:
    session = connection.session()
    for name, said in [("a.#", "'#' means nothing"), ("a.>.b", "at the end"), ("", "empty")]:
        with pytest.raises(ValueError, match=said):
            session.topic(name)
    with pytest.raises(ValueError, match="stands for many topics"):
        session.producer(session.topic("a.*"))
    with pytest.raises(TypeError, match="name must be str"):
        session.topic(3)  # type: ignore[arg-type]


def test_each_subscription_gets_each_message(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session()
    before = store.queues()
    one, two = (session.subscribe(session.topic("t")) for _ in range(2))
    send(connection, "t", "a", "b")
    assert rest(one) == ["a", "b"]
    one.close()
    send(connection, "t", "c")
    assert rest(two) == ["a", "b", "c"]
    two.close()
    assert store.queues() == before
    send(connection, "t", "d")  # for nobody
    assert rest(session.subscribe(session.topic("t"))) == []


def test_a_durable_subscription_keeps_what_was_sent_while_it_had_no_consumer(
    store: pyqstore.Store,
) -> None:
    for expected in ([], ["a", "b"], ["a", "b"]):
        with connect(store, client_id="billing") as connection:
            session = connection.session()
            consumer = session.subscribe(session.topic("t"), "audit", durable=True)
            assert store.queue_status("billing.audit").durable
            assert rest(consumer) == expected
            consumer.close()
            send(connection, "t", "a", "b")
    with connect(store, client_id="billing") as connection:
        connection.session().unsubscribe("audit")
        assert "billing.audit" not in store.queues()


def test_a_durable_subscription_survives_a_restart(path: str) -> None:
    uri = f"qstore://{path}?clientID=billing"
    with jms.connect(uri) as connection:
        session = connection.session()
        session.subscribe(session.topic("t"), "audit", durable=True).close()
        send(connection, "t", "a")
    with jms.connect(uri) as connection:
        session = connection.session()
        assert rest(session.subscribe(session.topic("t"), "audit", durable=True)) == ["a"]


def test_a_durable_subscription_has_one_consumer(connection: jms.Connection) -> None:
    session = connection.session()
    topic = session.topic("t")
    consumer = session.subscribe(topic, "audit", durable=True)
    with pytest.raises(jms.IllegalState, match="Durable consumer is in use"):
        connection.session().subscribe(topic, "audit", durable=True)
    with pytest.raises(jms.IllegalState, match="Durable consumer is in use"):
        session.unsubscribe("audit")
    consumer.close()
    with pytest.raises(jms.IllegalState, match=r"no subscription 'billing\.other'"):
        session.unsubscribe("other")
    session.unsubscribe("audit")


def test_a_durable_subscription_to_something_else_begins_anew(connection: jms.Connection) -> None:
    session = connection.session()
    session.subscribe(session.topic("one"), "audit", durable=True).close()
    send(connection, "one", "a")
    consumer = session.subscribe(session.topic("two"), "audit", durable=True)
    send(connection, "one", "b")
    send(connection, "two", "c")
    assert rest(consumer) == ["c"]


def test_a_subscription_named_like_a_queue_with_messages_leaves_them_alone(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    queue = store.queue("billing.audit")
    queue.put(b"not a subscription's")
    session = connection.session()
    with pytest.raises(jms.IllegalState, match=r"queue 'billing\.audit', which is no subscription"):
        session.subscribe(session.topic("t"), "audit", durable=True)
    assert len(queue) == 1
    assert queue.purge() == 1
    session.subscribe(session.topic("t"), "audit", durable=True).close()


def test_a_selector_that_is_none_takes_nothing_from_the_subscription_that_is_there(
    connection: jms.Connection,
) -> None:
    session = connection.session()
    topic = session.topic("t")
    session.subscribe(topic, "audit", durable=True).close()
    send(connection, "t", "a")
    with pytest.raises(pyqstore.PreconditionFailed, match="selector: at character"):
        session.subscribe(topic, "audit", durable=True, selector="a = = 1")
    assert rest(session.subscribe(topic, "audit", durable=True)) == ["a"]


def test_consumers_of_a_shared_subscription_divide_its_messages(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    for durable in (False, True):
        sessions = [connection.session() for _ in range(2)]
        name = f"workers-{durable}"
        consumers = [
            session.subscribe(session.topic("t"), name, durable=durable, shared=True, prefetch=2)
            for session in sessions
        ]
        send(connection, "t", *"abcdef")
        taken: list[list[str]] = [[], []]
        while len(taken[0]) + len(taken[1]) < 6:
            for consumer, mine in zip(consumers, taken, strict=True):
                message = consumer.receive(timeout=0)
                if message is not None:
                    mine.append(message.text)
        assert sorted(taken[0] + taken[1]) == list("abcdef")
        assert len(taken[1]) >= 2
        with pytest.raises(jms.IllegalState, match="another topic or selector"):
            sessions[0].subscribe(sessions[0].topic("other"), name, durable=durable, shared=True)
        for session in sessions:
            session.close()
        assert (f"billing.{name}" in store.queues()) == durable


def test_shared_subscriptions_need_no_client_id(store: pyqstore.Store) -> None:
    with connect(store) as connection:
        session = connection.session()
        topic = session.topic("t")
        session.subscribe(topic, "workers", durable=True, shared=True)
        assert "workers" in store.queues()
        with pytest.raises(jms.IllegalState, match="needs a client_id"):
            session.subscribe(topic, "audit", durable=True)
        with pytest.raises(ValueError, match="needs a name"):
            session.subscribe(topic, durable=True)
        with pytest.raises(ValueError, match="durable, shared, or both"):
            session.subscribe(topic, "audit")
        with pytest.raises(TypeError, match="subscribe to a Topic"):
            session.subscribe(session.queue("q"))  # type: ignore[arg-type]


def test_a_selector_drops_what_it_does_not_select_when_it_is_sent(
    store: pyqstore.Store, connection: jms.Connection
) -> None:
    session = connection.session()
    topic = session.topic("prices.>")
    buying = session.subscribe(
        topic, "buying", durable=True, selector="side = 'buy' AND size BETWEEN 2 AND 3"
    )
    selling = session.consumer(session.topic("prices.eur?consumer.selector=side%3D'sell'"))
    urgent = session.subscribe(topic, "urgent", shared=True, selector="JMSPriority > 6")
    everything = session.consumer(topic)
    for side in ("buy", "sell"):
        for size in (1, 2, 3, 4):
            send(connection, "prices.eur", f"{side} {size}", side=side, size=size)
    send(connection, "prices.usd", "usd", side="sell")
    send(connection, "news", "buy", side="buy", size=2)
    send(connection, "prices.eur", "without")
    session.producer(session.topic("prices.x")).send("now", priority=9)
    status = store.queue_status("billing.buying")
    assert status.messages_ready + status.messages_unacked == 2
    assert rest(buying) == ["buy 2", "buy 3"]
    assert rest(selling) == ["sell 1", "sell 2", "sell 3", "sell 4"]
    assert rest(urgent) == ["now"]
    assert len(rest(everything)) == 11


def test_a_durable_subscription_with_another_selector_begins_anew(
    connection: jms.Connection,
) -> None:
    session = connection.session()
    topic = session.topic("t")
    for selector, expected in [
        ("size > 1", []),
        ("size > 1", ["2", "3"]),
        ("size > 2", []),
        (None, []),
        (None, ["1", "2", "3"]),
        ("size > 2", []),
    ]:
        with session.subscribe(topic, "audit", durable=True, selector=selector) as consumer:
            assert rest(consumer) == expected
        for size in (1, 2, 3):
            send(connection, "t", str(size), size=size)


@pytest.mark.parametrize("name", [None, "durable", "shared"])
def test_a_selector_that_is_none_is_refused_and_leaves_nothing(
    store: pyqstore.Store, connection: jms.Connection, name: str | None
) -> None:
    session = connection.session()
    before = store.queues()
    with pytest.raises(pyqstore.PreconditionFailed, match="selector: at character"):
        session.subscribe(
            session.topic("t"),
            name,
            durable=name == "durable",
            shared=name == "shared",
            selector="side = = 'buy'",
        )
    assert store.queues() == before
    assert rest(session.subscribe(session.topic("t"))) == []


def test_an_exclusive_consumer_of_a_queue_is_alone(connection: jms.Connection) -> None:
    session = connection.session()
    exclusive = session.queue("q?consumer.exclusive=true")
    consumer = session.consumer(exclusive)
    with pytest.raises(jms.IllegalState, match="has a consumer already"):
        session.consumer(exclusive)
    with pytest.raises(pyqstore.AccessRefused):
        session.consumer(session.queue("q"))
    consumer.close()
    other = session.consumer(session.queue("q"))  # the session goes on after the refusal
    with session.producer(session.queue("q")) as producer:
        producer.send("a")
    assert rest(other) == ["a"]


@pytest.mark.parametrize(
    ("topic", "durable", "optimized", "prefetch"),
    [
        (False, False, False, 1000),
        (True, False, False, 32767),
        (True, True, False, 100),
        (True, True, True, 1000),
    ],
)
def test_prefetch_has_the_defaults_of_activemq(
    connection: jms.Connection, topic: bool, durable: bool, optimized: bool, prefetch: int
) -> None:
    session = connection.session()
    if topic:
        consumer = session.subscribe(
            session.topic("t"),
            "audit" if durable else None,
            durable=durable,
            optimize_acknowledge=optimized,
        )
    else:
        consumer = session.consumer(session.queue("q"))
    assert consumer.prefetch == prefetch
    named = session.consumer(session.topic("t?consumer.prefetchSize=7"))
    assert named.prefetch == 7
    assert session.consumer(session.topic("t?consumer.prefetchSize=7"), prefetch=8).prefetch == 8


def test_groups_are_divided_among_queues_with_one_consumer_each(store: pyqstore.Store) -> None:
    with connect(store) as connection, connection.session() as session:
        groups = session.groups("orders", 3)
        producer = session.producer(groups)
        for number in range(60):
            producer.send(str(number), properties={"JMSXGroupID": f"customer-{number % 7}"})
        places: dict[str, set[str]] = {}
        taken: dict[str, list[int]] = {}
        for queue in groups.queues:
            consumer, idle = session.consumer(queue), session.consumer(queue)
            assert idle.receive(timeout=0) is None
            while (message := consumer.receive(timeout=0)) is not None:
                group = str(message.properties["JMSXGroupID"])
                places.setdefault(group, set()).add(queue.name)
                taken.setdefault(group, []).append(int(message.text))
            assert idle.receive(timeout=0) is None
        assert len(places) == 7
        assert all(len(queues) == 1 for queues in places.values())
        assert all(numbers == sorted(numbers) for numbers in taken.values())
        assert session.groups("orders", 3) == groups  # declared again
        with pytest.raises(ValueError, match="count must be 1 or more"):
            session.groups("orders", 0)
