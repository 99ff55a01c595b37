"""What a shovel tells of its work."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Counting", "Shovelled"]

_RATE_S = 5.0


@dataclass(frozen=True)
class Shovelled:
    """What a shovel has done, from ``pyqstore.shovel`` or, meanwhile, for its ``progress``.

    - ``moved``: messages that the target has for good and the source was told of; ``bytes``: of
      their bodies.
    - ``repeated``: messages that came again and that a store had already: they are not in
      ``moved``.
    - ``dead``: messages that went to the queue of dead letters.
    - ``connected``: how often an end was opened again after it had failed.
    - ``rate``: messages a second, of the last five seconds; at the end, of the whole time.
    - ``lag``: about how many messages wait in the source; None: it is not known.
    - ``seconds``: since it began.
    - ``error``: the last trouble that it came over, or is in; None: there was none.
    """

    moved: int
    bytes: int
    repeated: int
    dead: int
    connected: int
    rate: float
    lag: int | None
    seconds: float
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """The same as a plain dict."""
        return asdict(self)


class Counting:
    """Counts what a shovel does."""

    def __init__(self) -> None:
        self.moved: int = 0
        self.bytes: int = 0
        self.repeated: int = 0
        self.dead: int = 0
        self.connected: int = 0
        self.error: str | None = None
        self._began = time.monotonic()
        self._marks: deque[tuple[float, int]] = deque([(self._began, 0)])

    def told(self, lag: int | None) -> Shovelled:
        """For people, now."""
        now = time.monotonic()
        self._marks.append((now, self.moved))
        while len(self._marks) > 2 and now - self._marks[1][0] > _RATE_S:
            self._marks.popleft()
        return self._report(lag, *self._marks[0])

    def total(self, lag: int | None) -> Shovelled:
        """At the end."""
        return self._report(lag, self._began, 0)

    def _report(self, lag: int | None, since: float, moved: int) -> Shovelled:
        now = time.monotonic()
        rate = (self.moved - moved) / max(now - since, 1e-9)
        return Shovelled(
            self.moved,
            self.bytes,
            self.repeated,
            self.dead,
            self.connected,
            round(rate, 1),
            lag,
            round(now - self._began, 3),
            self.error,
        )
