"""What users may do: the same methods with the same permissions, at RabbitMQ and at a listener."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import pyqstore
from pyqstore.serve.passwords import hashed
from pyqstore.serve.user_file import changed_users
from pyqstore.serve.user_list import Permission, User

from .broker import Broker, is_installed

Act = Callable[[BlockingChannel], Any]


class Case(NamedTuple):
    permission: tuple[str, str, str]
    act: Act


def declare(name: str, **arguments: str) -> Act:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    return lambda channel: channel.queue_declare(name, arguments=table)


def exchange(name: str, **arguments: str) -> Act:
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    return lambda channel: channel.exchange_declare(name, "fanout", arguments=table)


def publish(name: str) -> Act:
    def act(channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        channel.basic_publish(name, "nowhere", b"x")

    return act


def server_named(channel: BlockingChannel) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    channel.basic_get(name)


ACTS: dict[str, Act] = {
    "declare": declare("q"),
    "declare passive": lambda channel: channel.queue_declare("q", passive=True),
    "declare with dead letters": declare("dlx", x_dead_letter_exchange="ex"),
    "declare with dead letters for the default exchange": declare("dl0", x_dead_letter_exchange=""),
    "declare a name of the server's": server_named,
    "delete": lambda channel: channel.queue_delete("gone"),
    "purge": lambda channel: channel.queue_purge("q"),
    "get": lambda channel: channel.basic_get("q", auto_ack=True),
    "consume": lambda channel: channel.basic_consume("q", print),
    "publish": publish("ex"),
    "publish by the default exchange": publish(""),
    "bind": lambda channel: channel.queue_bind("q", "ex", "k"),
    "bind to the default exchange": lambda channel: channel.queue_bind("q", "", "k"),
    "unbind": lambda channel: channel.queue_unbind("q", "ex", "k"),
    "declare an exchange": exchange("ex"),
    "declare an exchange passive": lambda channel: channel.exchange_declare("ex", passive=True),
    "declare an exchange with an alternate": exchange("aex", alternate_exchange="ex"),
    "delete an exchange": lambda channel: channel.exchange_delete("gone"),
    "bind exchanges": lambda channel: channel.exchange_bind("ex", "amq.fanout"),
    "unbind exchanges": lambda channel: channel.exchange_unbind("ex", "amq.fanout"),
}
PERMISSIONS = {
    "none": ("", "", ""),
    "all": (".*", ".*", ".*"),
    "configure": (".*", "", ""),
    "write": ("", ".*", ""),
    "read": ("", "", ".*"),
    "no write": (".*", "", ".*"),
    "no read": (".*", ".*", ""),
    "queues alone": ("^(q|dlx|dl0|gone)$", "^(q|dlx|dl0|gone)$", "^(q|dlx|dl0|gone)$"),
    "exchanges alone": ("ex$", "ex$", "ex$"),
    "found anywhere": ("e|q|d", "e|q|d", "e|q|d"),
    "by its name": ("^amq\\.default$",) * 3,
}
USERS = {f"user{number}": permission for number, permission in enumerate(PERMISSIONS.values())}


class Side(NamedTuple):
    port: int

    def connect(self, user: str, vhost: str = "/") -> pika.BlockingConnection:
        credentials = pika.PlainCredentials(user, "guest" if user == "guest" else "secret")
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.port, vhost, credentials, heartbeat=0, socket_timeout=30
            )
        )

    def prepare(self) -> None:
        connection = self.connect("guest")
        channel = connection.channel()
        channel.queue_declare("q")
        channel.exchange_declare("ex", "fanout")
        for name in ("dlx", "dl0"):
            channel.queue_delete(name)
        channel.exchange_delete("aex")
        connection.close()

    def tell(self, user: str, act: Act) -> str:
        connection = self.connect(user)
        try:
            act(connection.channel())
        except pika.exceptions.ChannelClosedByBroker as error:
            text = f"{error.reply_code} {error.reply_text}"
            return re.sub("amq.gen-[^']*", "amq.gen-", text)
        finally:
            if connection.is_open:
                connection.close()
        return "done"


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    if not is_installed():
        pytest.fail("the package rabbitmq-server is not installed")
    started = Broker(tmp_path_factory.mktemp("rabbitmq"), managed=True)
    try:
        started.start()
        for name, permission in USERS.items():
            started.manage("PUT", f"users/{name}", password="secret", tags="")
            rights = dict(zip(("configure", "write", "read"), permission, strict=True))
            started.manage("PUT", f"permissions/%2f/{name}", **rights)
        started.manage("PUT", "users/nobody", password="secret", tags="")
        side = Side(started.port)
        side.prepare()
        yield side
    finally:
        started.stop()


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    path: Path = tmp_path_factory.mktemp("store")
    secret = hashed("secret")
    with changed_users(path, create=True) as users:
        users["guest"] = User(hashed("guest"), permissions={"/": Permission()})
        users["nobody"] = User(secret)
        for name, permission in USERS.items():
            users[name] = User(secret, permissions={"/": Permission(*permission)})
    with pyqstore.open(path) as store:
        side = Side(int(store.listen("127.0.0.1:0").address.rpartition(":")[2]))
        side.prepare()
        yield side


@pytest.mark.parametrize("allowed", PERMISSIONS)
def test_users_may_do_what_rabbitmq_lets_them(rabbitmq: Side, listener: Side, allowed: str) -> None:
    user = next(name for name, given in USERS.items() if given == PERMISSIONS[allowed])
    answers: list[dict[str, str]] = []
    for side in (listener, rabbitmq):
        answers.append({})
        for name, act in ACTS.items():
            answers[-1][name] = side.tell(user, act)
            side.prepare()
    assert answers[0] == answers[1]
    refused = [text for text in answers[0].values() if text.startswith("403 ACCESS_REFUSED - ")]
    assert len(refused) > (0 if allowed in ("all", "found anywhere") else 2)


def test_users_without_permissions_in_a_vhost_do_not_come_in(
    rabbitmq: Side, listener: Side
) -> None:
    said = []
    for side in (listener, rabbitmq):
        for vhost in ("/", "nowhere"):
            with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
                side.connect("nobody", vhost)
            said.append(str(refused.value))
    assert said[:2] == said[2:]
