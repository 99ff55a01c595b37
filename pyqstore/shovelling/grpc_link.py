"""A call to a server that lasts as long as an end of a shovel is open.

A thread of its own writes and reads, so that the shovel's never waits for longer than it says,
whatever becomes of the server.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import AccessRefused, ConnectionLost, Error, NotFound, OffsetOutOfRange, ShovelError
from .ends import Batch, Item, Later
from .grpc_address import GrpcPlace
from .grpc_wire import SCHEMA, failure_of, is_failure, items_of, pack_items

__all__ = ["ANSWER_S", "Link"]

_WATCH_S = 0.2  # between two looks at whether to stop
ANSWER_S = 60.0  # a server that syncs its disk answers within
_CLOSE_S = 3.0
_HERE_S = 0.2  # of silence, after which the server is told that the shovel is there
_END: Any = object()
_HERE: Any = (json.dumps({"do": "here"}).encode(), None)


class Link:
    """``open`` makes a call; afterwards ``ask`` and ``hear`` go with it."""

    def __init__(self, place: GrpcPlace) -> None:
        """ShovelError: it cannot be an address, or a file that it names cannot be read."""
        from ..flight.dialing import Dial

        self.shown: str = place.shown
        self.watch: Callable[[], None] = _nothing
        try:
            self._dial = Dial.of(place.url, **dict(place.connecting))
        except (ValueError, OSError) as error:
            raise ShovelError(f"{self.shown}: {error}") from None
        self._call: _Call | None = None

    def open(self, **command: Any) -> dict[str, Any]:
        """Call the server; what it answers.  Later; ShovelError and what it raises: for good."""
        self.close()
        self._call = _Call(self._dial, command)
        answer, _ = self.heard(None)
        return answer

    def ask(self, asked: dict[str, Any], items: Sequence[Item] = ()) -> None:
        """Say something, behind what was said before."""
        assert self._call is not None
        self._call.say.put((json.dumps(asked).encode(), pack_items(items) if items else None))

    def heard(self, batch: Batch | None) -> tuple[dict[str, Any], list[Item]]:
        """The next answer; raises as ``hear``, and Later: none comes."""
        until = time.monotonic() + ANSWER_S
        while (heard := self.hear(_WATCH_S, batch)) is None:
            self.watch()
            if time.monotonic() >= until:
                raise Later(f"{self.shown}: no answer for {ANSWER_S:g} s")
        return heard

    def hear(self, timeout: float, batch: Batch | None) -> tuple[dict[str, Any], list[Item]] | None:
        """The next answer, which is about ``batch``; None: none came in so many seconds.  Later,
        Full, Refused; ShovelError, NotFound and OffsetOutOfRange of the server's."""
        assert self._call is not None
        try:
            heard = self._call.heard.get(timeout > 0, timeout or None)
        except queue.Empty:
            return None
        if isinstance(heard, Exception):
            self._call.heard.put(heard)  # nothing else comes
            raise self._told(heard)
        told, rows = heard
        failure = failure_of(told, batch)
        if failure is not None:
            raise self._told(failure)
        return told, items_of(rows, told.get("number", 0))

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, Later | ShovelError | NotFound | OffsetOutOfRange):
            return error
        if isinstance(error, ConnectionLost):
            return Later(str(error))
        if isinstance(error, AccessRefused):
            return ShovelError(f"{self.shown}: {error}")
        if isinstance(error, Error):  # its store is being closed, or has failed
            return Later(f"{self.shown}: {error}")
        return error

    def close(self) -> None:
        """The server hears of it."""
        call, self._call = self._call, None
        if call is not None:
            call.close()


class _Call:
    """One call, and its thread: it writes what is said, and reads the answer before it writes more.
    When nothing is said it tells the server now and then that the shovel is there."""

    def __init__(self, dial: Any, command: dict[str, Any]) -> None:
        self.say: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._dial = dial
        self._reader: Any = None
        self._thread = threading.Thread(
            target=self._work, args=(command,), name="shovel", daemon=True
        )
        self._thread.start()

    def _work(self, command: dict[str, Any]) -> None:
        from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

        try:
            with self._dial.answers(), contextlib.closing(self._dial.open()) as client:
                descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
                writer, self._reader = client.do_exchange(descriptor, self._dial.options())
                try:
                    with contextlib.suppress(OSError):  # the answer says why
                        writer.begin(SCHEMA)
                    goes_on = self._hear()
                    while goes_on and (said := self._said()) is not _END:
                        _write(writer, *said)
                        goes_on = self._hear(is_told=said is not _HERE)
                    writer.done_writing()
                    self._reader.read_chunk()  # there is none: the server has ended the call
                finally:
                    self._reader.cancel()
                    with contextlib.suppress(flight.FlightError, OSError):
                        writer.close()  # or Arrow says in its destructor what was wrong
        except StopIteration:
            self.heard.put(ConnectionLost(f"{self._dial.url}: the server ended the call"))
        except OSError as error:  # so Arrow says that a connection broke
            self.heard.put(ConnectionLost(f"{self._dial.url}: {error}"))
        except Exception as error:
            self.heard.put(error)

    def _said(self) -> Any:
        try:
            return self.say.get(timeout=_HERE_S)
        except queue.Empty:
            return _HERE

    def _hear(self, is_told: bool = True) -> bool:
        """Whether the call goes on: the server ends it when it has told of a failure, but of a full
        disk.  StopIteration: it has ended it."""
        chunk = self._reader.read_chunk()
        told = json.loads(chunk.app_metadata.to_pybytes())
        if is_told or is_failure(told):
            self.heard.put((told, chunk.data))
        return "full" in told or not is_failure(told)

    def close(self) -> None:
        """What was said before is said; then the call ends, at the latest after some seconds."""
        self.say.put(_END)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive() and self._reader is not None:
            self._reader.cancel()
            self._thread.join(_CLOSE_S)


def _write(writer: Any, text: bytes, rows: Any) -> None:
    if rows is None:
        writer.write_metadata(text)
    else:
        writer.write_with_metadata(rows, text)


def _nothing() -> None:
    pass
