"""Errors of requests, with the texts of RabbitMQ's management API."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import (
    AccessRefused,
    ChannelError,
    Error,
    NotFound,
    StoreClosed,
    StoreFailed,
    StoreFull,
)

__all__ = ["HANDLERS", "NESTED", "BadRequest", "Forbidden", "Missing", "refusal"]

NESTED = "what was sent is nested too deeply"

_WORDS = {
    400: ("bad_request", "Bad Request"),
    401: ("not_authorised", "Access refused."),
    403: ("forbidden", "Forbidden"),
    404: ("Object Not Found", "Not Found"),
    405: ("Method Not Allowed", "Method Not Allowed"),
}


class BadRequest(Exception):
    """400: the request is impossible, and why."""


class Missing(Exception):
    """404: the object does not exist."""


class Forbidden(Exception):
    """401: the user lacks the right."""


def refusal(status: int, reason: str = "", error: str = "") -> JSONResponse:
    """The answer, with RabbitMQ's text of the status if there is no reason."""
    word, told = _WORDS.get(status, ("error", "Error"))
    headers = {"Cache-Control": "no-cache"}
    return JSONResponse({"error": error or word, "reason": reason or told}, status, headers)


async def _bad(_request: Request, error: Exception) -> Response:
    return refusal(400, str(error))


async def _nested(_request: Request, _error: Exception) -> Response:
    return refusal(400, NESTED)


async def _no_text(_request: Request, _error: Exception) -> Response:
    """JSON escapes can form half of a surrogate pair."""
    return refusal(400, "what was sent has text that is no Unicode")


async def _missing(_request: Request, _error: Exception) -> Response:
    return refusal(404)


async def _forbidden(_request: Request, error: Exception) -> Response:
    return refusal(401, str(error))


async def _by_status(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = refusal(error.status_code, "" if error.status_code in _WORDS else error.detail)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _of_channel(_request: Request, error: Exception) -> Response:
    """As in RabbitMQ: a missing queue is 404, other errors are bad requests."""
    if isinstance(error, NotFound):
        return refusal(404)
    if isinstance(error, AccessRefused):
        return refusal(401, str(error))
    return refusal(400, str(error))


async def _of_store(_request: Request, error: Exception) -> Response:
    is_unavailable = isinstance(error, StoreClosed | StoreFailed | StoreFull)
    return refusal(503 if is_unavailable else 500, str(error), "store")


HANDLERS = {
    BadRequest: _bad,
    Missing: _missing,
    Forbidden: _forbidden,
    HTTPException: _by_status,
    ChannelError: _of_channel,
    Error: _of_store,
    RecursionError: _nested,
    UnicodeEncodeError: _no_text,
}
"""Exception handlers for Starlette."""
