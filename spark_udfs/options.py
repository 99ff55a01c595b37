"""The options of the data source, read from the strings that Spark hands over."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from urllib.parse import unquote, urlsplit

from .columns import _near

# As Hadoop writes them, with or without slashes: hdfs:/x, dbfs:/x, s3a://bucket/x.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


# Options of writeStream that Spark reads itself, and hands on.
_OF_TABLES = "provider"  # Spark has it among the options of a table alone
_LEASE_S = (1, 30 * 24 * 3600)
_OF_SPARK = ("checkpointlocation",)
_APPID_BYTES_MAX = 255


class OptionError(ValueError):
    """An option is missing, unknown, or not what it should be."""


@dataclass(frozen=True)
class WriteOptions:
    """Options of ``df.write.format("pyqstore")``; names are Spark's, so case does not matter.

    Attributes:
        path: the store's directory, absolute; seen by every executor under the same name.
        exchange: where messages go that have no exchange column; "" is the default exchange.
        routing_key: for messages that have no routing_key column.
        stream: the stream that every message goes to, in place of an exchange; "": none is named.
        body: name of the column with the bodies.
        txnid: the transaction's key; a job whose key was committed before publishes nothing.
        appid: of a stream: names it in place of its query's id, which a new checkpoint changes.
        mandatory: a message that no queue would take fails the job before its commit; false drops
            such messages, and the report counts them.
        create: make the store when there is none.
        content_type: for messages that have no content_type column.
        lock_timeout: seconds that the job waits, at its start and at its commit, while another
            process has the store.
        shard_by: of several servers: the column whose ``shard`` says to which one a row goes; "":
            they are dealt by partition.
        report: a file that gets a JSON object about the commit (rows, routed, unroutable,
            returned, files, the store's statistics).
    """

    path: str
    exchange: str = ""
    routing_key: str | None = None
    stream: str = ""
    body: str = "body"
    txnid: str | None = None
    appid: str | None = None
    mandatory: bool = True
    create: bool = False
    content_type: str | None = None
    lock_timeout: float = 60.0
    shard_by: str = ""
    report: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read Spark's options.

        Raises:
            OptionError: unknown option (with the known ones), a missing path, a value that cannot
                be read.
        """
        given = _given(options, [field.name for field in fields(cls)])
        return cls(
            path=_directory(given["path"]),
            exchange=given.get("exchange", ""),
            routing_key=given.get("routing_key"),
            stream=_stream(given),
            body=given.get("body", "body"),
            txnid=given.get("txnid"),
            appid=_appid(given),
            mandatory=_boolean(given, "mandatory", True),
            create=_boolean(given, "create", False),
            content_type=given.get("content_type"),
            lock_timeout=_seconds(given, "lock_timeout", 60.0),
            shard_by=given.get("shard_by", ""),
            report=given.get("report"),
        )


@dataclass(frozen=True)
class ReadOptions:
    """Options of ``spark.read.format("pyqstore")`` and ``spark.readStream``.

    Attributes:
        path: the store's directory, absolute; seen by every executor under the same name.
        queue, stream: what is read; one of them is "".
        starting, ending: where reading a stream begins and before what it ends: "first", "last"
            (where the last block begins), "next", an offset, a time with its zone; None where none
            was given.  Of options, an end "last" is after the last row: "next".
        min_partitions: at least so many partitions, if there are as many rows.
        max_rows: of a batch of a streaming query; None: all there are.
        drain: consume the queue, under ``txnid``.
        txnid: names what was drained: read again under it, the rows are the same.
        group: of a stream: begin where this group's cursor is, and move it with each batch.
        ack: of a queue: "claim", messages are acknowledged when their batch is done, "take", when
            their rows are durable in files.
        pushdown: take Spark's filters.
        lock_timeout: seconds to wait while another process has the store.
        lease: of a stream: seconds for which it keeps what is to be read; 0: as its limits say.
    """

    path: str
    queue: str = ""
    stream: str = ""
    starting: str | int | datetime | None = None
    ending: str | int | datetime | None = None
    min_partitions: int = 1
    max_rows: int | None = None
    drain: bool = False
    txnid: str | None = None
    group: str | None = None
    ack: str = "claim"
    pushdown: bool = False
    lock_timeout: float = 60.0
    lease: float = 0.0

    @property
    def what(self) -> str:
        """What is read, in words."""
        return f"stream '{self.stream}'" if self.stream else f"queue '{self.queue}'"

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Read Spark's options.

        Raises:
            OptionError: unknown option, one that does not go with the others, a missing one, a
                value that cannot be read.
        """
        given = _given(options, READING)
        if ("queue" in given) == ("stream" in given):
            raise OptionError("give either an option 'queue' or an option 'stream'")
        kind = "queue" if "queue" in given else "stream"
        if not given[kind]:
            raise OptionError(f"option '{kind}' is empty: expected a name")
        for name in given:
            wanted = _NEEDS.get(name, "")
            if wanted and not {kind, "readStream" if streaming else "read"} >= set(wanted.split()):
                raise OptionError(
                    f"option '{_spelt(name)}' is for {_WORDS[wanted]}; this is "
                    f"{'readStream' if streaming else 'read'} of a {kind}"
                )
        ack = given.get("ack", "claim").strip().lower()
        if ack not in ("claim", "take"):
            raise OptionError(f"option 'ack' is '{given['ack']}', expected claim or take")
        drain = _boolean(given, "drain", False)
        if drain != ("txnid" in given):
            raise OptionError(
                "options 'drain' and 'txnid' go together: drain=true consumes the queue, and what "
                "it took is read again under the same txnid"
            )
        if drain and _boolean(given, "pushdown", False):
            raise OptionError("option 'pushdown' does not go with 'drain': all is consumed")
        return cls(
            path=_directory(given["path"]),
            queue=given.get("queue", ""),
            stream=given.get("stream", ""),
            starting=_place(given, "startingoffset"),
            ending=_end(given),
            min_partitions=_count(given, "minpartitions") or 1,
            max_rows=_count(given, "maxrowsperbatch"),
            drain=drain,
            txnid=given.get("txnid"),
            group=given.get("group"),
            ack=ack,
            pushdown=_boolean(given, "pushdown", False),
            lock_timeout=_seconds(given, "lock_timeout", 60.0),
            lease=_lease(given),
        )


READING = [
    "path",
    "queue",
    "stream",
    "startingOffset",
    "endingOffset",
    "minPartitions",
    "maxRowsPerBatch",
    "drain",
    "txnid",
    "ack",
    "group",
    "pushdown",
    "lock_timeout",
    "lease",
]
_WORDS = {
    "stream": "streams",
    "queue": "queues",
    "queue read": "spark.read of queues",
    "stream read": "spark.read of streams",
    "readStream": "readStream",
    "read": "spark.read",
    "queue readStream": "readStream of queues",
    "stream readStream": "readStream of streams",
}
# What an option asks for.
_NEEDS = {
    "startingoffset": "stream",
    "endingoffset": "stream read",
    "minpartitions": "stream",
    "maxrowsperbatch": "readStream",
    "drain": "queue read",
    "txnid": "queue read",
    "ack": "queue readStream",
    "group": "stream readStream",
    "pushdown": "read",
    "lease": "stream",
}


def _given(options: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """Spark's options by their names in small letters, all of them known, with a path."""
    given = {name.lower(): value for name, value in dict(options).items()}
    if _OF_TABLES in given:
        raise OptionError(
            "a table of the catalog cannot be read: Spark does not tell its options to what reads "
            "it. Use CREATE TEMPORARY VIEW ... USING pyqstore OPTIONS (...)"
        )
    lowered = [name.lower() for name in known]
    for name in given:
        if name not in lowered and name not in _OF_SPARK:
            raise OptionError(
                f"option '{name}' is not known{_near(name, known)}; known are {', '.join(known)}"
            )
    if not given.get("path"):
        raise OptionError(
            "option 'path' is missing: the directory of the store (or 'url': where a server is)"
        )
    if given.get("txnid") == "":
        raise OptionError("option 'txnid' is empty: leave it out, or give the transaction a name")
    return given


def _stream(options: Mapping[str, str]) -> str:
    stream = options.get("stream")
    if stream == "":
        raise OptionError("option 'stream' is empty: expected a name")
    if stream is not None and "exchange" in options:
        raise OptionError("give an option 'stream' or an option 'exchange', not both")
    return stream or ""


def _appid(options: Mapping[str, str]) -> str | None:
    appid = options.get("appid")
    if appid is not None and not 0 < len(appid.encode()) <= _APPID_BYTES_MAX:
        raise OptionError(
            f"option 'appid' has {len(appid.encode())} bytes, expected 1 to {_APPID_BYTES_MAX}"
        )
    return appid


def _spelt(name: str) -> str:
    """An option as it is documented."""
    return next(known for known in READING if known.lower() == name)


def _end(given: Mapping[str, str]) -> str | int | datetime | None:
    """Who says that reading ends with the last row means all of it, not all but the last block."""
    end = _place(given, "endingoffset")
    return "next" if end == "last" else end


def _place(options: Mapping[str, str], name: str) -> str | int | datetime | None:
    text = options.get(name)
    if text is None:
        return None
    word = text.strip().lower()
    if word in ("first", "last", "next"):
        return word
    if word.isdecimal() and word.isascii():
        return int(word)
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise OptionError(
            f"option '{_spelt(name)}' is '{text}', expected first, last, next, an offset, or a "
            f"time with its zone as 2026-01-31T12:00:00Z"
        )
    return when


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.strip().isdecimal() and text.isascii()) or int(text) == 0:
        raise OptionError(f"option '{_spelt(name)}' is '{text}', expected a number from 1 on")
    return int(text)


def _directory(path: str) -> str:
    url = urlsplit(path)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        path = unquote(url.path)
    elif _SCHEME.match(path):
        raise OptionError(
            f"option 'path' is '{path}': a store lives in a directory of a local or shared disk, "
            f"not at an address of {url.scheme} (a relative path that begins so: './{path}')"
        )
    return os.path.abspath(path)


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise OptionError(f"option '{name}' is '{options[name]}', expected true or false")
    return value == "true"


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise OptionError(f"option '{name}' is '{options[name]}', expected seconds, 0 or more")
    return value


def _lease(options: Mapping[str, str]) -> float:
    seconds = _seconds(options, "lease", 0.0)
    if seconds and not _LEASE_S[0] <= seconds <= _LEASE_S[1]:
        raise OptionError(
            f"option 'lease' is '{options['lease']}', expected 0 or {_LEASE_S[0]} to "
            f"{_LEASE_S[1]} seconds"
        )
    return seconds
