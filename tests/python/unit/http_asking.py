"""A store that is served over HTTP, and requests to it with nothing but the standard library."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyqstore

GUEST = ("guest", "guest")
Login = tuple[str, str] | None


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Asking:
    """Who asks a server."""

    address: str
    login: Login = GUEST

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        login: Login | str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        who = self.login if isinstance(login, str) else login
        if who is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(":".join(who).encode()).decode()
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        with closing(http.client.HTTPConnection(self.address, timeout=60)) as connection:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())

    def get(self, path: str, **more: Any) -> Any:
        answer = self("GET", f"/api/{path}", **more)
        assert answer.status == 200, (path, answer)
        return answer.json


@contextmanager
def asked(store: pyqstore.Store, **options: Any) -> Iterator[Asking]:
    with store.serve_page(0, **options) as server:
        yield Asking(server.address)
