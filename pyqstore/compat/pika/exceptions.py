"""What goes wrong, by pika's names and in pika's hierarchy."""

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
    """The root of what a broker, here a store, can cause."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.args!r}"


class _Coded(AMQPError):
    """Has AMQP's number and text."""

    @property
    def reply_code(self) -> int:
        """AMQP's number, such as 404."""
        return cast(int, self.args[0])

    @property
    def reply_text(self) -> str:
        """AMQP's name of it and what was wrong."""
        return cast(str, self.args[1])

    def __repr__(self) -> str:
        return f"{type(self).__name__}: ({self.reply_code}) {self.reply_text!r}"


class AMQPConnectionError(AMQPError):
    """The connection cannot be made, or is over."""


class ConnectionOpenAborted(AMQPConnectionError):
    """It was closed while it was being opened."""


class StreamLostError(AMQPConnectionError):
    """The store was closed, has failed, or was opened before ``fork()``; its owner is gone."""


class IncompatibleProtocolError(AMQPConnectionError):
    """Not raised by a store."""


class AuthenticationError(AMQPConnectionError):
    """Not raised by a store."""


class ProbableAuthenticationError(AMQPConnectionError):
    """The owner of the store does not let this process in."""


class ProbableAccessDeniedError(AMQPConnectionError):
    """Not raised by a store."""


class NoFreeChannels(AMQPConnectionError):
    """The connection has all the channels that it may have."""


class ConnectionWrongStateError(AMQPConnectionError):
    """The connection is closed."""


class ConnectionClosed(_Coded, AMQPConnectionError):
    """The connection was closed, and why."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(int(reply_code), str(reply_text))


class ConnectionClosedByBroker(ConnectionClosed):
    """By an error of 500 or more."""


class ConnectionClosedByClient(ConnectionClosed):
    """By ``close()``."""


class ConnectionBlockedTimeout(AMQPConnectionError):
    """There is no space on the disk: nothing was accepted, and it can be tried again."""


class AMQPHeartbeatTimeout(AMQPConnectionError):
    """Not raised by a store."""


class AMQPChannelError(AMQPError):
    """Something of one channel."""


class ChannelWrongStateError(AMQPChannelError):
    """The channel is closed."""


class ChannelClosed(_Coded, AMQPChannelError):
    """The channel was closed, and why."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(int(reply_code), str(reply_text))


class ChannelClosedByBroker(ChannelClosed):
    """By an error, such as 404 or 406."""


class ChannelClosedByClient(ChannelClosed):
    """By ``close()``."""


class DuplicateConsumerTag(AMQPChannelError):
    """The channel has a consumer of that tag."""


class ConsumerCancelled(AMQPChannelError):
    """Not raised by a store."""


class _Undelivered(AMQPChannelError):
    """Has the messages that came back."""

    messages: Sequence[ReturnedMessage]

    def __init__(self, messages: Sequence[ReturnedMessage]) -> None:
        super().__init__(f"{len(messages)} message(s) returned")
        self.messages = messages

    def __reduce__(self) -> tuple[Any, ...]:
        """``args`` has the text, of which it cannot be made again."""
        return type(self), (self.messages,), self.__dict__

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.args[0]}"


class UnroutableError(_Undelivered):
    """In confirm mode, no queue took a message that was published with ``mandatory``."""


class NackError(_Undelivered):
    """In confirm mode, a queue that is full refused a message."""


class InvalidChannelNumber(AMQPError):
    """A channel's number is a whole number from 1 on."""


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
    """``start_consuming`` was called in a callback."""


class ShortStringTooLong(AMQPError):
    """Not raised by a store: ValueError names what is too long."""


class DuplicateGetOkCallback(ChannelError):
    """Not raised by a store."""
