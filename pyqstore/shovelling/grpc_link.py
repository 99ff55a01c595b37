"""A call to a server that lasts as long as an end of a shovel is open.

Two threads write and read, so that the shovel's own never waits for longer than it says, whatever
becomes of the server.
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
from .grpc_wire import SCHEMA, failure_of, items_of, pack_items

__all__ = ["Link"]

_WATCH_S = 0.2  # between two looks at whether to stop
_ANSWER_S = 60.0  # a server that syncs its disk answers within
_CLOSE_S = 3.0
_END: Any = object()


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
        until = time.monotonic() + _ANSWER_S
        while (heard := self.hear(_WATCH_S, batch)) is None:
            self.watch()
            if time.monotonic() >= until:
                raise Later(f"{self.shown}: no answer for {_ANSWER_S:g} s")
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
    """One call, and its threads."""

    def __init__(self, dial: Any, command: dict[str, Any]) -> None:
        self.say: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._dial = dial
        self._reader: Any = None
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._write, args=(command,), name="shovel out", daemon=True)
        ]
        self._threads[0].start()

    def _write(self, command: dict[str, Any]) -> None:
        import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
        from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

        try:
            with self._dial.answers(), contextlib.closing(self._dial.open()) as client:
                descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
                writer, self._reader = client.do_exchange(descriptor, self._dial.options())
                reading = threading.Thread(target=self._read, name="shovel in", daemon=True)
                self._threads.append(reading)
                reading.start()
                writer.begin(SCHEMA)
                # What is wrong is read, behind all answers: a write says only that it failed.
                with contextlib.suppress(pa.ArrowException, OSError):
                    while (said := self.say.get()) is not _END and not self._is_over:
                        _write(writer, *said)
                    writer.done_writing()
                reading.join(_CLOSE_S)
                self._reader.cancel()
                reading.join()
                with contextlib.suppress(pa.ArrowException, OSError):
                    writer.close()  # or Arrow says in its destructor what was wrong
        except Exception as error:
            self._fail(error)

    def _read(self) -> None:
        try:
            with self._dial.answers():
                while True:
                    chunk = self._reader.read_chunk()
                    self.heard.put((json.loads(chunk.app_metadata.to_pybytes()), chunk.data))
        except StopIteration:
            self._fail(ConnectionLost(f"{self._dial.url}: the server ended the call"))
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """What was heard before comes first."""
        if isinstance(error, OSError):  # of Arrow, which says so of connections that break
            error = ConnectionLost(f"{self._dial.url}: {error}")
        self.heard.put(error)
        self._is_over = True
        self.say.put(_END)

    def close(self) -> None:
        """The threads end soon, by themselves if the server does not answer."""
        self.say.put(_END)
        for thread in list(self._threads):
            thread.join(_CLOSE_S)


def _write(writer: Any, text: bytes, rows: Any) -> None:
    if rows is None:
        writer.write_metadata(text)
    else:
        writer.write_with_metadata(rows, text)


def _nothing() -> None:
    pass
