"""The exceptions: their family, what they carry, and which one a status becomes."""

import pickle

import pytest

import pyqstore
from pyqstore.errors import from_status


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
