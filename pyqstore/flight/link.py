"""The connection to a server: calls, and rows that are published."""

from __future__ import annotations

import json
import operator
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyarrow import flight  # type: ignore[import-untyped, unused-ignore]

from ..errors import ChannelClosed, ConnectionLost
from ..message import Receipt
from ..waiting import Deadline, Seconds, told
from .dialing import Dial
from .forked import Grip
from .receiving import batches_of
from .sending import Counted, send
from .wire import PROTOCOL, confirmed_note, is_confirmed_note, pack_arguments

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

__all__ = ["Link"]

_AGAIN_S = 0.05
# What gRPC says of certificates, which do not get better by waiting.
_TLS = re.compile(r"handshake failed|certificate|Hostname Verification", re.I)


class Link:
    """A connection to a server that answers."""

    def __init__(self, dial: Dial, timeout: Seconds) -> None:
        """See ``pyqstore.connect``."""
        self.dial = dial
        self._flight: Grip | None = Grip(dial.open())
        self._kept: list[Grip] = []
        try:
            self._greet(Deadline(timeout), timeout)
        except BaseException:
            self.close()
            raise

    def _greet(self, deadline: Deadline, timeout: Seconds) -> None:
        """Return when a server answers. gRPC's own waiting takes 20 seconds at least."""
        while True:
            left = deadline.left_s()
            try:
                self.call("hello", left, protocol=PROTOCOL)
                return
            except ConnectionLost as error:
                why = str(error)
                if _TLS.search(why):
                    raise
            if deadline.over:
                raise ConnectionLost(
                    f"no server at {self.dial.url} answered within {told(timeout)}: {why}"
                ) from None
            time.sleep(min(_AGAIN_S, deadline.left_s()))

    @property
    def closed(self) -> bool:
        """Whether the link was closed."""
        return self._flight is None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.dial.url

    def keep(self, reader: Any) -> None:
        """Keep this object until the link is closed."""
        self._kept.append(Grip(reader))

    def close(self) -> None:
        """Closing twice is fine."""
        for grip in self._kept:
            grip.end("cancel")
        self._kept = []
        if self._flight is not None:
            self._flight.end("close")
            self._flight = None

    def open(self) -> Any:
        """The client of pyarrow's Flight.  ChannelClosed: the link was closed; ForkedStore."""
        if self._flight is None:
            raise ChannelClosed("the client is closed")
        return self._flight.get()

    def call(self, do: str, timeout: float | None = None, /, **arguments: Any) -> Any:
        """Call the server, and return its answer."""
        action = flight.Action(do, pack_arguments(arguments))
        with self.dial.answers():
            (answer,) = self.open().do_action(action, self.dial.options(timeout))
        return json.loads(answer.body.to_pybytes())

    def publish(self, command: bytes, data: object, window: int) -> Receipt:
        """Send rows for a confirmed publish; a note of an exception has the number of confirmed
        rows."""
        if operator.index(window) < 1:
            raise ValueError(f"window must be 1 or more, not {window}")
        counted = Counted()
        try:
            self.send(command, data, window, counted)
        except BaseException as error:
            if not any(map(is_confirmed_note, getattr(error, "__notes__", ()))):
                error.add_note(confirmed_note(counted.rows))
            raise
        return counted.receipt()

    def send(
        self, command: bytes, data: object, window: int, hear: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        """See ``sending.send``."""
        return send(self.open(), self.dial, command, data, window, hear)

    def get(
        self, ticket: bytes, *, is_endless: bool = False
    ) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
        """See ``receiving.batches_of``."""
        return batches_of(self.open(), self.dial, ticket, is_endless=is_endless)
