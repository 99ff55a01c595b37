"""A store on this machine for readers, whichever process has it open.

``Here`` is for a store that this process opened.  ``Owner`` reaches a store that another process of
this user has open, through that process's socket for tools.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..control.reaching import is_listened_to, payloads_of_owner, reach_owner
from ..errors import ConnectionLost, StoreClosed
from ..fields import FieldValue
from ..figures import QueueStatus
from ..waiting import Deadline
from .remote_stream import ReadStream
from .wire import PROTOCOL, pack, pack_table, unpack

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped, unused-ignore]

    from ..store import Store

__all__ = ["Asked", "Here", "Owner", "owner_of"]

_BUSY_S = 60.0  # for which an owner is asked that has no room for one more call
_LOOK_S = 0.05
_Reached = TypeVar("_Reached")


class Asked(ABC):
    """The methods of ``Client`` that read, claim and lease."""

    url: str
    """The store's directory."""
    is_still: bool
    """Whether no other process changes it meanwhile."""

    @abstractmethod
    def call(self, do: str, /, **arguments: Any) -> Any:
        """The answer to a verb of ``Asking``."""

    @abstractmethod
    def get(
        self, ticket: bytes, *, is_endless: bool = False
    ) -> tuple[pyarrow.Schema, Iterable[pyarrow.RecordBatch]]:
        """Schema and batches for a ticket of ``rows.READS``."""

    def stream(self, name: str) -> ReadStream:
        """The existing stream ``name``; it is not declared."""
        return ReadStream(self, name)

    def queues(self) -> list[str]:
        """Like ``Store.queues``."""
        return list(self.call("queues"))

    def queue_status(self, name: str) -> QueueStatus:
        """Like ``Store.queue_status``."""
        return QueueStatus(**self.call("queue_status", name=name))

    def transaction_known(self, key: str) -> bool:
        """Like ``Store.transaction_known``."""
        return bool(self.call("transaction_known", key=key))

    def browse(
        self, queue: str, start: int = 0, limit: int | None = None
    ) -> Iterable[pyarrow.RecordBatch]:
        """Like ``Store.browse``."""
        return self.get(pack("browse", queue=queue, start=start, limit=limit))[1]

    def queue_declare(
        self,
        queue: str,
        *,
        passive: bool = False,
        durable: bool = False,
        arguments: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """Like ``Channel.queue_declare``."""
        self.call(
            "queue_declare",
            queue=queue,
            passive=passive,
            durable=durable,
            arguments=pack_table(arguments),
        )

    def queue_delete(self, queue: str) -> None:
        """Like ``Channel.queue_delete``."""
        self.call("queue_delete", queue=queue)


class Here(Asked):
    """A store that this process has open and closes."""

    is_still: bool = True

    def __init__(self, store: Store) -> None:
        """One thread at a time calls it."""
        from .asking import Asking

        self.url: str = store.path
        self.store: Store = store
        self._verbs = Asking(store).verbs

    def call(self, do: str, /, **arguments: Any) -> Any:
        """See Asked."""
        return self._verbs[do](**arguments)

    def get(
        self, ticket: bytes, *, is_endless: bool = False
    ) -> tuple[pyarrow.Schema, Iterable[pyarrow.RecordBatch]]:
        """See Asked."""
        from .rows import READS

        do, arguments = unpack(ticket)
        return READS[do](self.store, lambda: False, **arguments)


class Owner(Asked):
    """A store that another process has open.  Each call has its own connection, so nothing need be
    closed.

    All calls raise ConnectionLost: no process has the store open any more; StoreClosed: its process
    closed it or ended while it answered.
    """

    is_still: bool = False

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Makes no call."""
        self.url: str = os.fspath(directory)

    def call(self, do: str, /, **arguments: Any) -> Any:
        """See Asked."""
        asked = {"do": do, "arguments": arguments}
        return self._reached(lambda: reach_owner(self.url, "ask", asked))["answer"]

    def get(
        self, ticket: bytes, *, is_endless: bool = False
    ) -> tuple[pyarrow.Schema, Iterable[pyarrow.RecordBatch]]:
        """See Asked.  The owner waits until batches are asked for."""
        import pyarrow as pa

        asked = {"ticket": ticket.decode()}
        payloads = self._reached(lambda: payloads_of_owner(self.url, "rows", asked))
        schema = pa.ipc.read_schema(pa.py_buffer(next(payloads)))

        def batches() -> Iterator[pyarrow.RecordBatch]:
            for payload in payloads:
                batch = pa.ipc.open_stream(payload).read_next_batch()
                if batch.num_rows:
                    yield batch

        return schema, batches()

    def _reached(self, call: Callable[[], _Reached | None]) -> _Reached:
        """Return the result of a call.  An owner with its maximum of running calls is asked
        again."""
        deadline = Deadline(_BUSY_S)
        while (reached := call()) is None:
            if not is_listened_to(self.url):
                raise ConnectionLost(f"no process that listens for tools has {self.url} open")
            if deadline.over:
                raise ConnectionLost(
                    f"the process that has {self.url} open has as many readers as it takes at once,"
                    f" and had them for {_BUSY_S:g} s"
                )
            time.sleep(_LOOK_S)
        return reached


def owner_of(directory: str | os.PathLike[str]) -> Owner | None:
    """The process that has the store in ``directory`` open; None: no process listens, or it has
    another version."""
    owner = Owner(directory)
    try:
        owner.call("hello", protocol=PROTOCOL)
    except (ConnectionLost, StoreClosed, ValueError):
        return None
    return owner
