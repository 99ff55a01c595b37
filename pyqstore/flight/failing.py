"""Sends errors of a server to the client, where they are raised as the same exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..errors import ConnectionLost
from .wire import pack_error

__all__ = ["carried", "failure"]

_TEXT_MAX = 300


def failure(
    error: Exception, *, rows_before: int = 0, of: str = "", confirmed: int | None = None
) -> flight.FlightError:
    """The exception for the client.

    ``rows_before``: rows of the caller's data before those whose row the text names; ``of``: what
    the rows are part of; ``confirmed``: the number of confirmed rows of a publish.
    """
    kind = flight.FlightServerError
    if isinstance(error, ConnectionLost):
        kind = flight.FlightUnavailableError
    # The text is short: it travels beside the exception, in the same trailers.  Our client reads
    # the exception alone, others show the text.
    return kind(
        f"{type(error).__name__}: {str(error)[:_TEXT_MAX]}",
        pack_error(error, rows_before=rows_before, of=of, confirmed=confirmed),
    )


@contextmanager
def carried() -> Iterator[None]:
    """An exception that is raised inside is raised at the client, too."""
    try:
        yield
    except flight.FlightError:
        raise
    except Exception as error:
        raise failure(error) from error
