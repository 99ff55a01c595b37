"""Requests that are made to do harm: each is refused with a reason, in good time, and the server
and what it serves go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import pyqstore
from pyqstore.http import auth
from pyqstore.http.api import messages

from .http_asking import Asking, asked

PUBLISH = "exchanges/%2F/amq.default/publish"
MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
GET = {"ackmode": "ack_requeue_true", "count": 1, "encoding": "auto"}
LONE = "\ud800"  # half of a character
USER = {"name": [], "password_hash": "", "tags": ""}


@pytest.fixture
def store() -> Iterator[pyqstore.Store]:
    with pyqstore.open(":memory:") as opened:
        opened.channel().queue_declare("q")
        yield opened


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("POST", "queues/%2F/q/get", GET | {"count": float("inf")}, id="endless count"),
        pytest.param("POST", "queues/%2F/q/get", GET | {"ackmode": []}, id="list as mode"),
        pytest.param("POST", "queues/%2F/q/get", b"[" * 100_000, id="deep"),
        pytest.param("POST", PUBLISH, MESSAGE | {"payload": LONE}, id="half a character"),
        pytest.param("POST", PUBLISH, MESSAGE | {"routing_key": LONE}, id="half in a key"),
        pytest.param("POST", PUBLISH, MESSAGE | {"routing_key": "k" * 256}, id="long key"),
        pytest.param("PUT", "queues/%2F/a%00b", {}, id="NUL in a name"),
        pytest.param("PUT", f"queues/%2F/{'n' * 256}", {}, id="long name"),
        pytest.param("PUT", f"exchanges/%2F/{'n' * 256}", {}, id="long exchange"),
        pytest.param("PUT", "users/ann", {"password": LONE, "tags": ""}, id="half in a password"),
        pytest.param("POST", "definitions", {"queues": [{"name": "a", "vhost": []}]}, id="vhost"),
        pytest.param("POST", "definitions", {"vhosts": [{"name": {}}]}, id="vhost's name"),
        pytest.param("POST", "definitions", {"users": [USER]}, id="user"),
        pytest.param("GET", f"health/checks/port-listener/{quote('²')}", None, id="digit"),
        pytest.param("GET", f"health/checks/port-listener/{'9' * 5000}", None, id="long port"),
    ],
)
def test_hostile_input_is_a_bad_request(ask: Asking, method: str, path: str, body: Any) -> None:
    answer = ask(method, f"/api/{path}", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


def test_names_that_cannot_be_are_those_of_nothing(ask: Asking) -> None:
    for path in ("a%00b", "n" * 256):
        assert ask("DELETE", f"/api/queues/%2F/{path}").status == 404


def test_deep_json_is_refused_by_the_page(ask: Asking) -> None:
    headers = {"x-page-token": ask("GET", "/page/session").json["token"]}
    deep = "[" * 100_000
    for body in (deep.encode(), {"queue": "new", "arguments": f'{{"a":{deep}'}):
        answer = ask("POST", "/page/action/declare_queue", body, headers=headers)
        assert (answer.status, bool(answer.json["error"])) == (400, True)


# ---- patterns ----

LONG = "x" * 255


@pytest.mark.parametrize(
    "pattern",
    [
        *("(.|.|.|.|.)*\n", "(x+)+y", "(x+x+)+y", "(x|xx)*y", r"(x)\1*y", "x*x*x*x*y"),
        *("(.|..)" * 30 + "y", "x?" * 60 + "y", "(?:(?:(?:){65535}){65535}){65535}"),
        *("(?:(?:x{0}){65535}){65535}", "x" * 201),
    ],
)
def test_a_pattern_that_could_take_for_ever_is_refused(
    ask: Asking, store: pyqstore.Store, pattern: str
) -> None:
    store.channel().queue_declare(LONG)
    query = f"page=1&use_regex=true&name={quote(pattern)}"
    answer = ask("GET", f"/api/queues?{query}")
    assert (answer.status, "pattern" in answer.json["reason"]) == (400, True)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^orders.*", ["orders-new", "orders.1"]),
        ("a|b", ["web-jobs"]),
        ("[a-z]+-jobs", ["web-jobs"]),
        (".*-jobs|orders.*-new", ["orders-new", "web-jobs"]),
        (r"^(orders|web)[.-].*\d$", ["orders.1"]),
        ("^(?!orders|x)[^q]*$", ["web-jobs"]),
        ("WEB", ["web-jobs"]),
    ],
)
def test_patterns_of_scalers_are_taken(
    ask: Asking, store: pyqstore.Store, pattern: str, found: list[str]
) -> None:
    for name in ("orders-new", "orders.1", "web-jobs", LONG):
        store.channel().queue_declare(name)
    page = ask.get(f"queues?page=1&use_regex=true&sort=name&name={quote(pattern)}")
    assert [each["name"] for each in page["items"]] == found


# ---- large answers ----


def test_get_gives_what_an_answer_has_place_for_and_loses_nothing(
    ask: Asking, store: pyqstore.Store
) -> None:
    with store.channel() as channel:
        for number in range(12):
            channel.basic_publish("", "q", b"%02d" % number + b"\x01" * (256 << 10))
    bodies = []
    for _ in range(12):
        wanted = GET | {"count": 100, "ackmode": "ack_requeue_false"}
        answer = ask("POST", "/api/queues/%2F/q/get", wanted)
        assert len(answer.data) <= messages._ANSWER_BYTES_MAX + 2
        bodies += [each["payload"][:2] for each in answer.json]
        if len(bodies) == 12:
            break
    assert bodies == [f"{number:02}" for number in range(12)]
    assert store.queue_status("q").messages_ready == 0


def test_get_refuses_a_message_that_is_longer_than_an_answer(
    ask: Asking, store: pyqstore.Store
) -> None:
    with store.channel() as channel:
        channel.basic_publish("", "q", b"x" * (messages._ANSWER_BYTES_MAX + 1))
    answer = ask("POST", "/api/queues/%2F/q/get", GET)
    assert (answer.status, "truncate" in answer.json["reason"]) == (400, True)
    (shown,) = ask("POST", "/api/queues/%2F/q/get", GET | {"truncate": 3}).json
    assert shown["payload"] == "xxx"
    assert store.queue_status("q").messages_ready == 1


def test_a_publish_that_is_not_confirmed_in_time_says_that_it_is_not_known(
    ask: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_channel: pyqstore.Channel, timeout: float) -> bool:
        raise TimeoutError(timeout)

    monkeypatch.setattr(pyqstore.Channel, "wait_for_confirms", never)  # as a disk that stands still
    for answer in (ask("POST", f"/api/{PUBLISH}", MESSAGE), ask("GET", "/api/aliveness-test/%2F")):
        assert (answer.status, "not known" in answer.json["reason"]) == (503, True)


# ---- logins ----


def test_who_is_known_does_not_wait_for_wrong_passwords(store: pyqstore.Store) -> None:
    """The looking at others' passwords is held up by the test."""
    held, begun = threading.Event(), threading.Semaphore(0)
    with asked(store) as ask:
        ask.get("whoami")
        door = auth.run_sync

        async def slow(look: Any, *given: Any, limiter: Any) -> Any:
            def waiting() -> Any:
                begun.release()
                held.wait(60)
                return look(*given)

            return await door(waiting, limiter=limiter)

        statuses: list[int] = []

        def guess() -> None:
            statuses.append(ask("GET", "/api/whoami", login=("guest", "wrong")).status)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(auth, "run_sync", slow)
            patch.setattr(auth, "_WAITING", 6)
            threads = [threading.Thread(target=guess) for _ in range(8)]
            try:
                for thread in threads:
                    thread.start()
                for _ in range(auth._LOGINS):
                    assert begun.acquire(timeout=60)
                end = time.monotonic() + 60
                while len(statuses) < 2 and time.monotonic() < end:
                    time.sleep(0.01)
                assert statuses == [503, 503]
                assert ask.get("whoami")["name"] == "guest"
            finally:
                held.set()
                for thread in threads:
                    thread.join(60)
    assert sorted(statuses) == [401] * 6 + [503] * 2
