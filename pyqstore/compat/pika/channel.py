"""pika's name for channels in general, which programs have in their annotations."""

from .adapters import blocking_channel

__all__ = ["Channel"]

Channel = blocking_channel.BlockingChannel
