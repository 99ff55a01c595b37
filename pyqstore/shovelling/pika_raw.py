"""pika, with properties that stay encoded as they come and go.

pika decodes headers and encodes them anew: a floating-point number becomes a whole one on that way,
and widths of integers change.  Nobody here looks at the values, so nothing decodes them.
"""

from __future__ import annotations

import struct
from importlib import import_module
from typing import Any

from ..errors import ShovelError

__all__ = ["Pika"]

_HEAD = struct.Struct(">BHL")
_CONTENT = struct.Struct(">HHQ")
_HEADER, _END = 2, 0xCE


class Pika:
    """pika's parts.  ShovelError: it is not installed, or is not as it is known here."""

    def __init__(self) -> None:
        try:
            pika = import_module("pika")
            exceptions, frame = import_module("pika.exceptions"), import_module("pika.frame")
        except ImportError:
            raise ShovelError(
                "amqp:// needs pika, which is not installed: pip install 'pyqstore[amqp]'"
            ) from None
        if not callable(getattr(pika.SelectConnection, "_read_frame", None)):
            raise ShovelError("amqp:// does not know this version of pika: pip install 'pika<2'")
        self.exceptions: Any = exceptions
        self.parameters_of: Any = pika.URLParameters
        self.properties: Any = _properties(pika.BasicProperties)
        self.connection: Any = _connection(pika.SelectConnection, frame, self.properties)


def _properties(base: Any) -> Any:
    class Raw(base):  # type: ignore[misc]
        """Properties that are encoded already."""

        def __init__(self, encoded: bytes) -> None:
            self.encoded: bytes = encoded or b"\0\0"

        def encode(self) -> list[bytes]:
            """As pika asks for it."""
            return [self.encoded]

    return Raw


def _connection(base: Any, frame: Any, properties: Any) -> Any:
    class Connection(base):  # type: ignore[misc]
        """Reads frames of properties itself, and leaves all others to pika."""

        def _read_frame(self) -> tuple[int, Any]:
            data = self._frame_buffer  # never empty here
            if data[0] != _HEADER or len(data) < _HEAD.size:
                return super()._read_frame()  # type: ignore[no-any-return]
            _, channel, size = _HEAD.unpack_from(data)
            end = _HEAD.size + size
            if len(data) <= end or data[end] != _END or size < _CONTENT.size:
                return super()._read_frame()  # type: ignore[no-any-return]
            _, _, body_bytes = _CONTENT.unpack_from(data, _HEAD.size)
            encoded = bytes(data[_HEAD.size + _CONTENT.size : end])
            return end + 1, frame.Header(channel, body_bytes, properties(encoded))

    return Connection
