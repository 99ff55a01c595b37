"""The options of the data source, read from the strings that Spark hands over."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import unquote, urlsplit

from .columns import _near

# As Hadoop writes them, with or without slashes: hdfs:/x, dbfs:/x, s3a://bucket/x.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


# Options of writeStream that Spark reads itself, and hands on.
_OF_SPARK = ("checkpointlocation",)


class OptionError(ValueError):
    """An option is missing, unknown, or not what it should be."""


@dataclass(frozen=True)
class WriteOptions:
    """Options of ``df.write.format("pyqstore")``; names are Spark's, so case does not matter.

    Attributes:
        path: the store's directory, absolute; seen by every executor under the same name.
        exchange: where messages go that have no exchange column; "" is the default exchange.
        routing_key: for messages that have no routing_key column.
        body: name of the column with the bodies.
        txnid: the transaction's key; a job whose key was committed before publishes nothing.
        mandatory: a message that no queue would take fails the job before its commit; false drops
            such messages, and the report counts them.
        create: make the store when there is none.
        content_type: for messages that have no content_type column.
        lock_timeout: seconds that the job waits, at its start and at its commit, while another
            process has the store.
        report: a file that gets a JSON object about the commit (rows, routed, unroutable,
            returned, files, the store's statistics).
    """

    path: str
    exchange: str = ""
    routing_key: str | None = None
    body: str = "body"
    txnid: str | None = None
    mandatory: bool = True
    create: bool = False
    content_type: str | None = None
    lock_timeout: float = 60.0
    report: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read Spark's options.

        Raises:
            OptionError: unknown option (with the known ones), a missing path, a value that cannot
                be read.
        """
        known = [field.name for field in fields(cls)]
        given = {name.lower(): value for name, value in dict(options).items()}
        for name in given:
            if name not in known and name not in _OF_SPARK:
                raise OptionError(
                    f"option '{name}' is not known{_near(name, known)}; "
                    f"known are {', '.join(known)}"
                )
        if not given.get("path"):
            raise OptionError("option 'path' is missing: the directory of the store")
        if given.get("txnid") == "":
            raise OptionError(
                "option 'txnid' is empty: leave it out, or give the transaction a name"
            )
        return cls(
            path=_directory(given["path"]),
            exchange=given.get("exchange", ""),
            routing_key=given.get("routing_key"),
            body=given.get("body", "body"),
            txnid=given.get("txnid"),
            mandatory=_boolean(given, "mandatory", True),
            create=_boolean(given, "create", False),
            content_type=given.get("content_type"),
            lock_timeout=_seconds(given, "lock_timeout", 60.0),
            report=given.get("report"),
        )


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
