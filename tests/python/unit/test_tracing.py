"""Traces that messages carry: spans of the SDK, kept in memory, of who publishes and who works."""

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import pyqstore

from ..support import PERSISTENT, get

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="session")
def provider() -> Any:
    """One for the process, whose tests may come in any order: OpenTelemetry takes no second one."""
    missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        missing("opentelemetry-sdk is missing")
    provider = TracerProvider()
    trace.set_tracer_provider(provider)
    return provider


@pytest.fixture
def spans(provider: Any) -> Iterator[Any]:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    provider.add_span_processor(processor)
    yield exporter.get_finished_spans
    processor.shutdown()


def headers_of(message: pyqstore.Message) -> dict[str, Any]:
    return dict(message.properties.headers or {})


def test_inject_adds_the_current_span_and_keeps_all_else(
    spans: Any, provider: Any, channel: pyqstore.Channel, queue: str
) -> None:
    from pyqstore import tracing

    given = pyqstore.Properties(delivery_mode=2, message_id="m", headers={"kind": 7})
    with provider.get_tracer("test").start_as_current_span("outer") as span:
        channel.basic_publish("", queue, b"one", tracing.inject(given))
        channel.basic_publish("", queue, b"two", tracing.inject())
    context = span.get_span_context()
    flags = int(context.trace_flags)
    carried = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
    message = get(channel, queue)
    assert headers_of(message) == {"kind": 7, "traceparent": carried}
    assert message.properties.replace(headers={"kind": 7}) == given
    assert headers_of(get(channel, queue)) == {"traceparent": carried}


def test_inject_returns_what_it_got_when_there_is_nothing_to_add(spans: Any, provider: Any) -> None:
    from pyqstore import tracing

    assert tracing.inject() is None
    assert tracing.inject(PERSISTENT) is PERSISTENT
    carrying = pyqstore.Properties(headers={"traceparent": TRACEPARENT})
    with provider.get_tracer("test").start_as_current_span("outer"):
        assert tracing.inject(carrying) is carrying


def test_processing_goes_on_with_the_trace_of_another_client(
    spans: Any, channel: pyqstore.Channel, queue: str
) -> None:
    from pyqstore import tracing

    carrying = pyqstore.Properties(headers={"traceparent": TRACEPARENT}, message_id="m")
    channel.basic_publish("", queue, b"body", carrying)
    with pytest.raises(ValueError, match="no good"), tracing.processing(get(channel, queue)):
        raise ValueError("no good")
    (span,) = spans()
    assert span.name == f"process {queue}"
    assert span.kind.name == "CONSUMER"
    assert f"{span.context.trace_id:032x}" == TRACEPARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == TRACEPARENT.split("-")[2]
    assert span.attributes["messaging.destination.name"] == queue
    assert span.attributes["messaging.message.body.size"] == 4
    assert span.attributes["messaging.message.id"] == "m"
    assert span.events[0].name == "exception"


def test_messages_without_a_trace_or_with_nonsense_begin_one(
    spans: Any, channel: pyqstore.Channel, queue: str
) -> None:
    from pyqstore import tracing

    for headers in (
        None,
        {"traceparent": "nonsense"},
        {"traceparent": 7},
        {"traceparent": b"\xff"},
    ):
        channel.basic_publish("", queue, b"", pyqstore.Properties(headers=headers))
        with tracing.processing(get(channel, queue)):
            pass
    assert [span.parent for span in spans()] == [None] * 4


def test_an_instrumented_channel_carries_a_trace_from_publish_to_callback(
    spans: Any, channel: pyqstore.Channel, queue: str
) -> None:
    from pyqstore import tracing

    assert tracing.instrument(channel) is channel
    channel.confirm_select()
    assert channel.basic_publish("", queue, b"one", PERSISTENT, mandatory=True) == 1
    assert channel.wait_for_confirms(60)
    worked = []
    channel.basic_consume(queue, worked.append, auto_ack=True)
    channel.process_events(5)
    assert [message.body for message in worked] == [b"one"]
    publish, process = spans()
    assert (publish.name, publish.kind.name) == (f"publish {queue}", "PRODUCER")
    assert process.parent.span_id == publish.context.span_id
    assert process.context.trace_id == publish.context.trace_id
    with pytest.raises(pyqstore.NotFound):
        channel.basic_publish("nowhere", "key", b"")
    assert spans()[-1].status.status_code.name == "ERROR"


HEADERS = pa.array([None, [("kind", "7")]], pa.map_(pa.string(), pa.string()))
BATCH = pa.table({"body": [b"one", b"two"], "headers": HEADERS})


def check_batch(spans: Any, channel: pyqstore.Channel, queue: str) -> None:
    """The first row has the span's trace, the other one its own headers."""
    (publish,) = spans()
    assert (publish.name, publish.kind.name) == (f"publish {queue}", "PRODUCER")
    assert publish.attributes["messaging.batch.message_count"] == 2
    first, second = (headers_of(get(channel, queue)) for _ in range(2))
    assert int(first["traceparent"].split("-")[1], 16) == publish.context.trace_id
    assert second == {"kind": "7"}


def test_an_instrumented_channel_carries_a_trace_with_a_batch(
    spans: Any, channel: pyqstore.Channel, queue: str
) -> None:
    from pyqstore import tracing

    receipt = tracing.instrument(channel).publish_batch(BATCH, "", queue, mandatory=True)
    assert receipt.count == 2
    check_batch(spans, channel, queue)


async def test_an_instrumented_channel_of_asyncio_carries_a_trace_with_a_batch(
    spans: Any, store: pyqstore.Store, queue: str
) -> None:
    from pyqstore import aio, tracing

    async with await aio.Store(store).channel() as channel:
        receipt = await tracing.instrument(channel).publish_batch(BATCH, "", queue)
        assert receipt.count == 2
    with store.channel() as channel:
        check_batch(spans, channel, queue)


def test_a_channel_that_is_not_instrumented_any_more_makes_no_spans(
    spans: Any, channel: pyqstore.Channel, queue: str
) -> None:
    from pyqstore import tracing

    tracing.uninstrument(tracing.instrument(channel))
    channel.basic_publish("", queue, b"one")
    assert headers_of(get(channel, queue)) == {}
    assert spans() == ()


def test_an_instrumented_channel_ends_with_its_last_reference(
    spans: Any, store: pyqstore.Store
) -> None:
    from pyqstore import tracing

    gc.disable()
    try:
        channel = weakref.ref(tracing.instrument(store.channel()))
        assert channel() is None
    finally:
        gc.enable()


# ---- the other faces: each publishes b"one" to the queue and works on it ----


def by_queue(store: pyqstore.Store, name: str, work: Any) -> None:
    from pyqstore import tracing

    queue = tracing.instrument(store.queue(name))
    queue.put(b"one", headers={"kind": 7})
    with queue.get(5) as message:
        tracing.traced(work)(message)


def by_session(store: pyqstore.Store, name: str, work: Any) -> None:
    from pyqstore import session, tracing

    heard = threading.Event()
    with session.connect(store) as connection, connection.session() as own:
        queue = own.queue(name)
        sent = tracing.instrument(own.producer(queue)).send(b"one", properties={"kind": 7})
        assert sent
        tracing.instrument(own.producer()).send(b"two", destination=queue)

        def worked(message: Any) -> None:
            work(message)
            if message.body == b"two":
                heard.set()

        own.consumer(queue).listener = tracing.traced(worked)
        assert heard.wait(60)


def by_aio_channel(store: pyqstore.Store, name: str, work: Any) -> None:
    from pyqstore import aio, tracing

    async def run() -> None:
        heard = asyncio.Event()
        async with aio.open(store.directory) as own, await own.channel() as channel:
            await channel.confirm_select()
            tracing.instrument(channel)

            async def worked(message: Any) -> None:
                work(message)
                await message.ack()
                heard.set()

            await channel.basic_consume(name, worked)
            properties = pyqstore.Properties(headers={"kind": 7})
            assert await channel.basic_publish("", name, b"one", properties) == 1
            async with asyncio.timeout(60):
                await heard.wait()

    store.channel().queue_declare(name, durable=True)
    store.close()
    asyncio.run(run())


def by_aio_queue(store: pyqstore.Store, name: str, work: Any) -> None:
    from pyqstore import aio, tracing

    async def run() -> None:
        async def worked(message: Any) -> None:
            work(message)

        async with aio.open(store.directory) as own:
            queue = tracing.instrument(await own.queue(name))
            await queue.put(b"one", headers={"kind": 7})
            async with queue.get(5) as message:
                await tracing.traced(worked)(message)

    store.close()
    asyncio.run(run())


def by_aio_session(store: pyqstore.Store, name: str, work: Any) -> None:
    from pyqstore import aio, tracing

    async def run() -> None:
        async def worked(message: Any) -> None:
            work(message)

        async with aio.open(store.directory) as own, aio.session.connect(own) as connection:
            session = await connection.session()
            queue = session.queue(name)
            producer = tracing.instrument(await session.producer(queue))
            assert await producer.send(b"one", properties={"kind": 7})
            consumer = await session.consumer(queue)
            await tracing.traced(worked)(await consumer.receive(5))

    store.close()
    asyncio.run(run())


@pytest.mark.parametrize(
    "face", [by_queue, by_session, by_aio_channel, by_aio_queue, by_aio_session]
)
def test_each_face_carries_a_trace_from_publish_to_work(
    spans: Any, store: pyqstore.Store, face: Any
) -> None:
    inside = []

    def work(message: Any) -> None:
        from opentelemetry import trace

        inside.append((message.body, trace.get_current_span().get_span_context().trace_id))
        headers = dict((message.amqp if hasattr(message, "amqp") else message.properties).headers)
        assert headers.pop("traceparent")
        assert headers == ({"kind": 7} if message.body == b"one" else {})

    face(store, "traced", work)
    published = {span.context.span_id: span for span in spans() if span.kind.name == "PRODUCER"}
    processed = [span for span in spans() if span.kind.name == "CONSUMER"]
    assert {span.name for span in published.values()} == {"publish traced"}
    assert {span.name for span in processed} == {"process traced"}
    assert [body for body, _ in inside] == [b"one", b"two"][: len(inside)]
    assert [trace for _, trace in inside] == [span.context.trace_id for span in processed]
    assert {span.parent.span_id for span in processed} == set(published)


def test_what_is_no_function_is_refused_by_an_instrumented_channel_too(
    channel: pyqstore.Channel, queue: str
) -> None:
    from pyqstore import tracing

    with pytest.raises(TypeError, match="callback must be callable"):
        tracing.instrument(channel).basic_consume(queue, 5)  # type: ignore[arg-type]


def test_what_publishes_nothing_is_not_instrumented(store: pyqstore.Store) -> None:
    from pyqstore import tracing

    with pytest.raises(TypeError, match="a channel, a producer or a queue, not Store"):
        tracing.instrument(store)
    with pytest.raises(TypeError, match="a channel, a producer or a queue, not Stream"):
        tracing.instrument(store.stream("s"))
