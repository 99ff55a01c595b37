"""RabbitMQ's streams: the plugin that has a protocol for them, and its Java client."""

from __future__ import annotations

from pathlib import Path

from . import jars
from .contract import ANSWER_SECONDS
from .java_client import JavaClient
from .rabbitmq import RabbitMq, plugins_folder
from .server import LOOPBACK, free_port

PLUGIN = "rabbitmq_stream"


class RabbitMqStream(RabbitMq):
    """A reader keeps its place itself, so nothing is acknowledged."""

    is_stream = True
    _pom = jars.STREAMS_POM
    _plugins = (PLUGIN,)

    def __init__(self) -> None:
        super().__init__("RabbitMQ stream", {})
        self._stream_port = 0

    def missing(self) -> str | None:
        return super().missing() or self._plugin_missing()

    def version(self) -> str:
        return f"{next(plugins_folder().glob(f'{PLUGIN}-*')).name}, {self._versions}"

    def _configuration(self) -> str:
        self._stream_port = free_port()
        return f"stream.listeners.tcp.1 = {LOOPBACK}:{self._stream_port}\n"

    def _new_client(self, log: Path) -> JavaClient:
        assert self._server is not None
        self._server.wait_until_it_listens(self._stream_port)
        return JavaClient(
            "StreamClient", self._pom, [self._stream_port, round(ANSWER_SECONDS)], log
        )

    @staticmethod
    def _plugin_missing() -> str | None:
        if any(plugins_folder().glob(f"{PLUGIN}-*")):
            return None
        return f"RabbitMQ has no plugin {PLUGIN}; there is one from 3.9 on"
