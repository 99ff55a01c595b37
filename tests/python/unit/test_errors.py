"""The exceptions: their family, what they carry, and which one a status becomes."""

import copy
import importlib
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyqstore
from pyqstore import Properties
from pyqstore.compat import pika
from pyqstore.compat.pika.returned import ReturnedMessage
from pyqstore.control.failing import error_of, report_of
from pyqstore.errors import from_status

PUBLIC = ("pyqstore", "pyqstore.errors", "pyqstore.session", "pyqstore.compat.pika.exceptions")
_RETURNED = ReturnedMessage(
    pika.spec.Basic.Return(312, "NO_ROUTE", "", "q"), pika.BasicProperties(content_type="a"), b"x"
)
# What a class is made of, with its fields; those that are not here, of a text.
WORDS: dict[type, tuple[object, ...]] = {
    pyqstore.ChannelError: (406, "PRECONDITION_FAILED - text"),
    pyqstore.Unroutable: (406, "PRECONDITION_FAILED - text", 3),
    pyqstore.OffsetOutOfRange: (3, 9),
    pyqstore.PublishRefused: (7, 2, (7, 9), (0, 2)),
    pyqstore.MessageReturned: (None, 2),
    pika.exceptions.ChannelClosed: (404, "NOT_FOUND - text"),
    pika.exceptions.ConnectionClosed: (530, "NOT_ALLOWED - text"),
    pika.exceptions.UnroutableError: ([_RETURNED],),
    pika.exceptions.NackError: ([_RETURNED],),
}  # fmt: skip
FIELDS = {"status": "QS_EIO", "path": "journal/1", "offset": 8, "os_errno": 5, "pid": 77}
WAYS: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *(
        lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ),
]


def public() -> Iterator[type[BaseException]]:
    seen: set[object] = set()
    for name in PUBLIC:
        module = importlib.import_module(name)
        for each in module.__all__:
            kind = getattr(module, each)
            if isinstance(kind, type) and issubclass(kind, BaseException) and kind not in seen:
                seen.add(kind)
                yield kind


def plain(value: object) -> object:
    """What can be compared: messages have no equals."""
    if isinstance(value, pyqstore.ReturnedMessage):
        names = ("body", "exchange", "routing_key", "properties", "reply_code", "reply_text")
        return {name: getattr(value, name) for name in (*names, "queue")}
    if isinstance(value, ReturnedMessage):
        return [str(value.method), vars(value.properties), value.body]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def told(error: BaseException) -> object:
    """All that an exception tells."""
    fields = {name: plain(value) for name, value in vars(error).items()}
    return type(error), str(error), repr(error.args) if not fields else None, fields


@pytest.mark.parametrize("kind", list(public()), ids=lambda kind: kind.__name__)
def test_every_exception_can_be_pickled_and_copied_with_its_fields(
    kind: type[BaseException],
) -> None:
    words = next((WORDS[each] for each in kind.__mro__ if each in WORDS), ("text",))
    error = kind(*words)
    if isinstance(error, pyqstore.StoreError):
        for name, value in FIELDS.items():
            setattr(error, name, value)
    error.add_note("a note")
    for way in WAYS:
        assert told(way(error)) == told(error)
        assert plain(way(way(error)).args) == plain(error.args)


def returned(store: pyqstore.Store) -> pyqstore.MessageReturned:
    with store.channel() as channel:
        channel.confirm_select()
        properties = Properties(headers={"a": [1]}, content_type="text/plain")
        channel.basic_publish("", "nowhere", b'{"b": 2}', properties, mandatory=True)
        with pytest.raises(pyqstore.MessageReturned) as raised:
            channel.wait_for_confirms()
    return raised.value


def test_a_message_that_was_returned_can_be_pickled_and_copied_with_its_exception(
    store: pyqstore.Store,
) -> None:
    error = returned(store)
    for way in WAYS:
        again = way(way(error))
        assert told(again) == told(error)
        assert plain(again.args) == plain(error.args)
        message = again.message
        assert isinstance(message, pyqstore.ReturnedMessage)
        assert (message.body, message.json()) == (b'{"b": 2}', {"b": 2})
        assert message.properties.headers == {"a": [1]}
        if way is not copy.copy:  # which shares the message
            with pytest.raises(TypeError, match="messages come from a channel"):
                message.ack()


@pytest.mark.parametrize(
    "error",
    [
        pyqstore.PublishRefused(7, 2, (7, 9), (0, 2)),
        pyqstore.OffsetOutOfRange(3, 9),
        pyqstore.Unroutable(406, "PRECONDITION_FAILED - text", 3),
        pyqstore.MessageReturned(None, 2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_come_from_the_owner_of_a_store_with_their_fields(error: Exception) -> None:
    assert told(error_of(json.loads(json.dumps(report_of(error))))) == told(error)


def test_a_message_that_was_returned_in_the_owner_of_a_store_is_told_without_its_body(
    store: pyqstore.Store,
) -> None:
    again = error_of(json.loads(json.dumps(report_of(returned(store)))))
    assert isinstance(again, pyqstore.MessageReturned)
    assert (again.message, again.count) == (None, 1)
    assert str(again) == "no queue took a mandatory message"


@pytest.mark.parametrize(
    ("code", "name", "kind"),
    [
        (403, "ACCESS_REFUSED", pyqstore.AccessRefused),
        (404, "NOT_FOUND", pyqstore.NotFound),
        (405, "RESOURCE_LOCKED", pyqstore.ResourceLocked),
        (406, "PRECONDITION_FAILED", pyqstore.PreconditionFailed),
        (530, "NOT_ALLOWED", pyqstore.NotAllowed),
        (540, "NOT_IMPLEMENTED", pyqstore.NotImplementedByBroker),
        (311, "CONTENT_TOO_LARGE", pyqstore.ChannelError),
        (503, "COMMAND_INVALID", pyqstore.ChannelError),
    ],
)
def test_amqp_status_becomes_its_channel_error(
    code: int, name: str, kind: type[pyqstore.ChannelError]
) -> None:
    error = from_status(code, f"QS_{name}", name, "no queue 'q'", "", 0, 0)
    assert type(error) is kind
    assert error.reply_code == code
    assert error.reply_text == str(error) == f"{name} - no queue 'q'"
    assert isinstance(error, pyqstore.Error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.reply_code, str(again)) == (code, str(error))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("QS_ESTORE_NOT_FOUND", pyqstore.StoreNotFound),
        ("QS_ESTORE_LOCKED", pyqstore.StoreLocked),
        ("QS_ESTORE_CLOSED", pyqstore.StoreClosed),
        ("QS_ESTORE_FAILED", pyqstore.StoreFailed),
        ("QS_EIO", pyqstore.StoreFailed),
        ("QS_ESTORE_FULL", pyqstore.StoreFull),
        ("QS_ENOSPC", pyqstore.StoreFull),
        ("QS_EFORKED", pyqstore.ForkedStore),
        ("QS_EVERSION", pyqstore.StoreError),
    ],
)
def test_store_status_becomes_its_store_error(name: str, kind: type[pyqstore.StoreError]) -> None:
    error = from_status(99, name, "the summary", "", "", 0, 28)
    assert type(error) is kind
    assert str(error) == "the summary"
    assert (error.status, error.path, error.offset, error.os_errno) == (name, None, None, 28)
    assert isinstance(error, pyqstore.StoreError)
    assert isinstance(error, pyqstore.Error)


def test_corruption_tells_file_and_offset() -> None:
    error = from_status(3, "QS_ECORRUPT", "damaged", "bad checksum", "journal/1", 0, 0)
    assert isinstance(error, pyqstore.StoreCorrupt)
    assert (error.path, error.offset) == ("journal/1", 0)
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.offset) == ("journal/1", 0)
    assert str(again) == "bad checksum; pyqstore salvage DIR OUT copies what is whole"


def test_lock_tells_the_owner_if_known() -> None:
    """The number was looked for in the text, where a path may have one."""
    text = "/data/process 77 is open in process 4321: one process owns a store at a time"
    error = from_status(21, "QS_ESTORE_LOCKED", "", text, "", 0, 0, 4321)
    assert isinstance(error, pyqstore.StoreLocked)
    assert error.pid == 4321
    unknown = from_status(21, "QS_ESTORE_LOCKED", "locked", "'LOCK' is locked", "", 0, 0)
    assert isinstance(unknown, pyqstore.StoreLocked)
    assert unknown.pid is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("QS_EINVAL", ValueError),
        ("QS_ENOMEM", MemoryError),
        ("QS_ETIMEDOUT", TimeoutError),
        ("QS_ECHANNEL_CLOSED", pyqstore.ChannelClosed),
    ],
)
def test_other_status_becomes_the_fitting_exception(name: str, kind: type[Exception]) -> None:
    error = from_status(30, name, "summary", "text", "", 0, 0)
    assert type(error) is kind
    assert str(error) == "text"
