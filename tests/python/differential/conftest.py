"""The servers that all tests here share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from benchmarks.laboratory.rivals.kafka_node import KafkaNode

from .broker import Broker, is_installed
from .kafka import Kafka


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if not is_installed():
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing("the package rabbitmq-server is not installed")
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # errors are what is compared
    started = Broker(tmp_path_factory.mktemp("rabbitmq"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    if (why := KafkaNode.missing()) is not None:
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing(why)
    started = Kafka(tmp_path_factory.mktemp("kafka"))
    try:
        started.start()
        yield started
    finally:
        started.stop()
