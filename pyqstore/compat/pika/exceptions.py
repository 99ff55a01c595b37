"""pika's exceptions, with pika's names and hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from .returned import ReturnedMessage

__all__ = [
    "AMQPChannelError",
    "AMQPConnectionError",
    "AMQPError",
    "AMQPHeartbeatTimeout",
    "AuthenticationError",
    "BodyTooLongError",
    "ChannelClosed",
    "ChannelClosedByBroker",
    "ChannelClosedByClient",
    "ChannelError",
    "ChannelWrongStateError",
    "ConnectionBlockedTimeout",
    "ConnectionClosed",
    "ConnectionClosedByBroker",
    "ConnectionClosedByClient",
    "ConnectionOpenAborted",
    "ConnectionWrongStateError",
    "ConsumerCancelled",
    "DuplicateConsumerTag",
    "DuplicateGetOkCallback",
    "IncompatibleProtocolError",
    "InvalidChannelNumber",
    "InvalidFieldTypeException",
    "InvalidFrameError",
    "MethodNotImplemented",
    "NackError",
    "NoFreeChannels",
    "ProbableAccessDeniedError",
    "ProbableAuthenticationError",
    "ProtocolSyntaxError",
    "ProtocolVersionMismatch",
    "ReentrancyError",
    "ShortStringTooLong",
    "StreamLostError",
    "UnexpectedFrameError",
    "UnroutableError",
    "UnsupportedAMQPFieldException",
]


class AMQPError(Exception):
    """The base class of errors of a broker, here of a store."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.args!r}"


class _Coded(AMQPError):
    """Has AMQP's reply code and text."""

    @property
    def reply_code(self) -> int:
        """AMQP's reply code, such as 404."""
        return cast(int, self.args[0])

    @property
    def reply_text(self) -> str:
        """AMQP's name of the error, and its cause."""
        return cast(str, self.args[1])

    def __repr__(self) -> str:
        return f"{type(self).__name__}: ({self.reply_code}) {self.reply_text!r}"


class AMQPConnectionError(AMQPError):
    """The connection cannot be opened, or has ended."""


class ConnectionOpenAborted(AMQPConnectionError):
    """The connection was closed while it was opened."""


class StreamLostError(AMQPConnectionError):
    """The store was closed, has failed, or was opened before ``fork()``; or its owner has ended."""


class IncompatibleProtocolError(AMQPConnectionError):
    """Not raised by a store."""


class AuthenticationError(AMQPConnectionError):
    """Not raised by a store."""


class ProbableAuthenticationError(AMQPConnectionError):
    """The owner of the store refused this process."""


class ProbableAccessDeniedError(AMQPConnectionError):
    """Not raised by a store."""


class NoFreeChannels(AMQPConnectionError):
    """All channel numbers of the connection are in use."""


class ConnectionWrongStateError(AMQPConnectionError):
    """The connection is closed."""


class ConnectionClosed(_Coded, AMQPConnectionError):
    """The connection was closed, with the reason."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(int(reply_code), str(reply_text))


class ConnectionClosedByBroker(ConnectionClosed):
    """The connection was closed by an error with a code of 500 or more."""


class ConnectionClosedByClient(ConnectionClosed):
    """The connection was closed by ``close()``."""


class ConnectionBlockedTimeout(AMQPConnectionError):
    """The disk is full: nothing was accepted, and the call can be retried."""


class AMQPHeartbeatTimeout(AMQPConnectionError):
    """Not raised by a store."""


class AMQPChannelError(AMQPError):
    """The base class of errors of one channel."""


class ChannelWrongStateError(AMQPChannelError):
    """The channel is closed."""


class ChannelClosed(_Coded, AMQPChannelError):
    """The channel was closed, with the reason."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(int(reply_code), str(reply_text))


class ChannelClosedByBroker(ChannelClosed):
    """The channel was closed by an error, such as 404 or 406."""


class ChannelClosedByClient(ChannelClosed):
    """The channel was closed by ``close()``."""


class DuplicateConsumerTag(AMQPChannelError):
    """The channel already has a consumer with that tag."""


class ConsumerCancelled(AMQPChannelError):
    """Not raised by a store."""


class _Undelivered(AMQPChannelError):
    """Has the messages that were returned."""

    messages: Sequence[ReturnedMessage]

    def __init__(self, messages: Sequence[ReturnedMessage]) -> None:
        super().__init__(f"{len(messages)} message(s) returned")
        self.messages = messages

    def __reduce__(self) -> tuple[Any, ...]:
        """``args`` has only the text, from which the exception cannot be rebuilt."""
        return type(self), (self.messages,), self.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.args[0]}"


class UnroutableError(_Undelivered):
    """In confirm mode: a message published with ``mandatory`` reached no queue."""


class NackError(_Undelivered):
    """In confirm mode: a full queue refused a message."""


class InvalidChannelNumber(AMQPError):
    """A channel number must be an integer from 1 on."""


class ProtocolSyntaxError(AMQPError):
    """Not raised by a store."""


class UnexpectedFrameError(ProtocolSyntaxError):
    """Not raised by a store."""


class ProtocolVersionMismatch(ProtocolSyntaxError):
    """Not raised by a store."""


class BodyTooLongError(ProtocolSyntaxError):
    """Not raised by a store."""


class InvalidFrameError(ProtocolSyntaxError):
    """Not raised by a store."""


class InvalidFieldTypeException(ProtocolSyntaxError):
    """Not raised by a store."""


class UnsupportedAMQPFieldException(ProtocolSyntaxError):
    """Not raised by a store."""


class MethodNotImplemented(AMQPError):
    """Not raised by a store."""


class ChannelError(Exception):
    """Not raised by a store."""


class ReentrancyError(Exception):
    """``start_consuming`` was called inside a callback."""


class ShortStringTooLong(AMQPError):
    """Not raised by a store, which raises ValueError with the name of the string."""


class DuplicateGetOkCallback(ChannelError):
    """Not raised by a store."""
