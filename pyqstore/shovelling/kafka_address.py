"""Addresses of topics: ``kafka://HOST:PORT,HOST:PORT/TOPIC?option=value``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["KafkaPlace", "kafka_place"]

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OPTION = re.compile(r"[a-z0-9_.]+")
_PORT = 9092
_PORT_MAX = 65_535
# Of librdkafka's: how to reach a cluster, and how much to send and to fetch at once.
_FAMILIES = ("sasl.", "ssl.", "socket.", "fetch.", "reconnect.", "compression.", "https.")
_OPTIONS = frozenset((
    "security.protocol", "client.id", "client.rack", "client.dns.lookup", "broker.address.family",
    "broker.address.ttl", "connections.max.idle.ms", "topic.metadata.refresh.interval.ms",
    "metadata.max.age.ms", "message.max.bytes", "receive.message.max.bytes", "linger.ms",
    "queue.buffering.max.ms", "queue.buffering.max.kbytes", "queue.buffering.max.messages",
    "batch.size", "batch.num.messages", "partitioner", "max.partition.fetch.bytes",
    "queued.min.messages", "queued.max.messages.kbytes", "check.crcs", "retry.backoff.ms",
    "retry.backoff.max.ms", "enable.ssl.certificate.verification",
))  # fmt: skip
# What a shovel sets itself: with another value messages could be lost, or come twice.
_OURS = frozenset((
    "bootstrap.servers", "metadata.broker.list", "enable.auto.commit", "auto.commit.interval.ms",
    "enable.auto.offset.store", "auto.offset.reset", "isolation.level", "group.id",
    "group.instance.id", "group.protocol", "enable.idempotence", "acks", "request.required.acks",
    "transactional.id", "transaction.timeout.ms", "retries", "message.send.max.retries",
    "message.timeout.ms", "delivery.timeout.ms", "request.timeout.ms", "max.in.flight",
    "max.in.flight.requests.per.connection", "queuing.strategy", "enable.gapless.guarantee",
    "enable.partition.eof", "delivery.report.only.error", "allow.auto.create.topics",
    "offset.store.method", "max.poll.interval.ms",
))  # fmt: skip
# Code that librdkafka would load, or run.
_LOADED = frozenset(("ssl.engine.location", "ssl.providers", "sasl.kerberos.kinit.cmd"))


@dataclass(frozen=True)
class KafkaPlace:
    """A topic of a cluster."""

    servers: str
    """Hosts with their ports, and commas between."""
    topic: str
    options: tuple[tuple[str, str], ...] = ()
    """For librdkafka; passwords may be among them."""

    @property
    def shown(self) -> str:
        """For people: without options."""
        return f"kafka://{self.servers}/{self.topic}"


def kafka_place(text: str) -> KafkaPlace:
    """The topic that an address names.  ValueError: which part is wrong, and what to say."""
    if "@" in text.partition("?")[0]:
        raise ValueError("say ?sasl.username= and &sasl.password=, and not USER:PASSWORD@")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ValueError("it is no URL: say kafka://HOST:9092/TOPIC") from None
    if parts.fragment:
        raise ValueError(
            "encode # as %23; a topic is named behind /, as in kafka://HOST:9092/TOPIC"
        )
    topic = unquote(parts.path[1:])
    if not topic:
        raise ValueError("there is no topic: say kafka://HOST:9092/TOPIC")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(
            "behind the last / is no topic's name, which has 1 to 249 of a-z, A-Z, 0-9, dot, _ and"
            " -; options begin with ?"
        )
    options: dict[str, str] = {}
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:  # which tells a byte of a password
        raise ValueError("an option is not UTF-8") from None
    for name, value in given:
        _check_option(name)
        if name in options:
            raise ValueError(f"{name}= is there twice")
        options[name] = value
    servers = ",".join(map(_server, parts.netloc.split(",")))
    return KafkaPlace(servers, topic, tuple(options.items()))


def _check_option(name: str) -> None:
    if not _OPTION.fullmatch(name):  # it may be a part of a password
        raise ValueError("an option is none: encode & as %26, # as %23 and + as %2B in passwords")
    if name in _OURS:
        raise ValueError(
            f"{name}= is set by the shovel itself: with another value messages could be lost, or"
            " come twice"
        )
    if name in _LOADED:
        raise ValueError(f"{name}= would load code or run it, and is refused")
    if name not in _OPTIONS and not name.startswith(_FAMILIES):
        raise ValueError(
            f"{name}= is unknown: there are {', '.join(sorted(_OPTIONS))}, and those that begin"
            f" with {', '.join(_FAMILIES)}"
        )


def _server(text: str) -> str:
    """With its port."""
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):  # an IPv6 address has colons of its own
        host, port = text, str(_PORT)
    if not host:
        raise ValueError("there is no host: say kafka://HOST:9092/TOPIC")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError(f"the port is no number of 1 to {_PORT_MAX}")
    return f"{host.lower()}:{port}"
