"""Sending exceptions from the owner to the tool.  Only the classes listed here are created from
received reports."""

from __future__ import annotations

from .. import errors
from ..message import ReturnedMessage
from .wire import Report

__all__ = ["error_of", "report_of"]

_PLAIN = (
    ValueError, TypeError, MemoryError, TimeoutError, FileExistsError, FileNotFoundError,
    NotADirectoryError, PermissionError, OSError,
)  # fmt: skip
_KINDS: dict[str, type[Exception]] = {
    **{
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.Error)
    },
    **{kind.__name__: kind for kind in _PLAIN},
}
_ATTRIBUTES = ("status", "path", "offset", "os_errno", "pid")


def report_of(error: Exception) -> Report:
    """An exception as JSON."""
    kind = next((each for each in type(error).__mro__ if _KINDS.get(each.__name__) is each), None)
    if kind is None:
        return {"kind": "StoreError", "words": [f"in the owner: {error!r}"], "attributes": {}}
    words = [_word_of(part) for part in error.args]
    if isinstance(error, OSError) and error.filename is not None:
        words.append(str(error.filename))
    attributes = {name: getattr(error, name, None) for name in _ATTRIBUTES}
    return {"kind": kind.__name__, "words": words, "attributes": attributes}


def _word_of(part: object) -> object:
    if isinstance(part, tuple):  # numbers of publishes
        return [_word_of(each) for each in part]
    if isinstance(part, ReturnedMessage):  # its body may be too large for a frame
        return None
    return part if isinstance(part, str | int | None) else str(part)


def error_of(report: Report) -> Exception:
    """The exception of a report."""
    kind = _KINDS.get(str(report.get("kind")), errors.StoreError)
    try:
        error = kind(*(tuple(part) if isinstance(part, list) else part for part in report["words"]))
    except (TypeError, KeyError):
        error = errors.StoreError(str(report.get("words")))
    if isinstance(error, errors.StoreError):
        for name, value in report.get("attributes", {}).items():
            if name in _ATTRIBUTES and value is not None:
                setattr(error, name, value)
    return error
