"""A web service that answers when a job is durable, and an asyncio worker in the same process.

QSTORE=jobs.qs uvicorn examples.web:app    and then    curl -d '{"to": "ann"}' localhost:8000/mails
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import pyqstore
from pyqstore import aio


def make_app(path: str | Path) -> Starlette:
    """The application over the store in ``path``."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        store = await aio.open(path)
        stop = asyncio.Event()
        try:
            app.state.mails = await store.queue("mails", codec=pyqstore.json)
            app.state.sent = []
            worker = asyncio.create_task(app.state.mails.work(send, tasks=8, stop=stop))
            yield
            stop.set()
            await worker  # what is under way ends; the rest is there at the next start
        finally:
            await store.close()

    async def send(message: aio.Message) -> None:
        await asyncio.sleep(0.01)  # the mail server
        app.state.sent.append(message.json()["to"])

    async def post(request: Request) -> JSONResponse:
        try:
            mail = await request.json()
            recipient = mail["to"]
        except (ValueError, TypeError, KeyError):
            return JSONResponse({"error": 'a mail is {"to": NAME}'}, status_code=400)
        try:
            await request.app.state.mails.put({"to": recipient})
        except pyqstore.StoreFull:
            return JSONResponse({"error": "the disk is full"}, status_code=503)
        return JSONResponse({"accepted": recipient}, status_code=202)  # it survives a power cut

    async def status(request: Request) -> JSONResponse:
        state = request.app.state
        return JSONResponse({"waiting": len(state.mails), "sent": state.sent})

    app = Starlette(
        lifespan=lifespan,
        routes=[Route("/mails", post, methods=["POST"]), Route("/status", status)],
    )
    return app


app = make_app(os.environ.get("QSTORE", "jobs.qs"))
