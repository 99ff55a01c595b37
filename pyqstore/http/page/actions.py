"""The page's actions on a store.

An action is a POST of JSON with the page's token.  Each action needs the rights that RabbitMQ
requires for the corresponding method, and answers with a text for people.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import store as _store
from ...errors import StoreFailed
from ...fields import decode_table
from ...moving import Moved, move, requeue_dead_letters
from ...properties import Properties
from ..auth import Login
from ..given import PROPERTIES, loads
from ..rights import check_user_id, to_declare_exchange, to_declare_queue
from .asking import Asking, Trouble, answer

__all__ = ["ACTIONS", "routes"]


@dataclass(frozen=True)
class Act:
    """A request for an action."""

    store: _store.Store
    vhost: str
    login: Login
    given: dict[str, Any]

    def text(self, name: str) -> str:
        """A text; "" if it is missing.  Trouble: it is not a text."""
        value = self.given.get(name, "")
        if not isinstance(value, str):
            raise Trouble(f"{name} must be text.")
        return value

    def flag(self, name: str) -> bool:
        """Whether the flag is set."""
        return self.given.get(name) is True

    def number(self, name: str) -> int | None:
        """A whole number of at least 1, or None."""
        value = self.given.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Trouble(f"{name} must be a whole number from 1 on.")
        return value

    def table(self, name: str) -> dict[str, Any] | None:
        """A JSON object from a text field; None if it is empty."""
        typed = self.text(name).strip()
        if not typed:
            return None
        try:
            value = loads(typed)
        except (ValueError, RecursionError) as error:
            raise Trouble(f"{name} is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise Trouble(f'{name} must be a JSON object, such as {{"name": 1}}.')
        return value

    def require(self, *rights: tuple[str, str]) -> None:
        """Forbidden: the user lacks one of these rights to these names."""
        for right, name in rights:
            self.login.check(self.vhost, right, name)


def publish(act: Act) -> str:
    """Publishes a message, which is durable on return if its queue is."""
    exchange, key = act.text("exchange"), act.text("routing_key")
    act.require(("write", exchange))
    given = act.table("properties") or {}
    for name in given.keys() - set(PROPERTIES):
        raise Trouble(f"There is no property {name!r:.80}: there are {', '.join(PROPERTIES)}.")
    if act.flag("persistent"):
        given.setdefault("delivery_mode", 2)
    properties = Properties(**given)
    check_user_id(act.login, properties)
    with act.store.channel() as channel:
        channel.confirm_select()
        returned: list[object] = []
        channel.add_return_listener(returned.append)
        channel.basic_publish(exchange, key, act.text("body"), properties, mandatory=True)
        is_taken = channel.wait_for_confirms()
        refusal = channel.refusal
    if returned:
        raise Trouble("No queue took it: nothing is bound to the exchange with that key.", 409)
    if isinstance(refusal, StoreFailed):
        raise refusal
    if not is_taken:
        raise Trouble("A queue is full and refused it.", 409)
    return "Published."


def purge(act: Act) -> str:
    """Removes the ready messages."""
    queue = act.text("queue")
    act.require(("read", queue))
    with act.store.channel() as channel:
        return f"{channel.queue_purge(queue)} messages removed from {queue}."


def move_messages(act: Act) -> str:
    """Moves messages to another queue."""
    source, destination = act.text("queue"), act.text("destination")
    # By the default exchange: the right to publish to it includes every queue.
    act.require(("read", source), ("write", ""))
    done = move(act.store, source, destination, act.number("limit"))
    return f"{done.moved} messages moved from {source} to {destination}."


def requeue(act: Act) -> str:
    """Requeues dead letters to the queues where they died."""
    queue = act.text("queue")
    act.require(("read", queue), ("write", ""))
    done: Moved = requeue_dead_letters(act.store, queue, act.number("limit"))
    stayed = f"; {done.stayed} stay, as no queue is known for them" if done.stayed else ""
    return f"{done.moved} messages went back to their queues{stayed}."


def declare_queue(act: Act) -> str:
    """Declares a queue or a stream."""
    queue, arguments = act.text("queue"), act.table("arguments") or {}
    act.require(*to_declare_queue(queue, arguments))
    if act.text("kind") == "stream":
        arguments["x-queue-type"] = "stream"
    with act.store.channel() as channel:
        declared = channel.queue_declare(
            queue,
            durable=act.flag("durable"),
            auto_delete=act.flag("auto_delete"),
            arguments=arguments,
        )
    return f"{declared.queue} is there."


def declare_exchange(act: Act) -> str:
    """Declares an exchange."""
    exchange, arguments = act.text("exchange"), act.table("arguments") or {}
    act.require(*to_declare_exchange(exchange, arguments))
    with act.store.channel() as channel:
        channel.exchange_declare(
            exchange,
            act.text("type"),
            durable=act.flag("durable"),
            auto_delete=act.flag("auto_delete"),
            internal=act.flag("internal"),
            arguments=arguments,
        )
    return f"{exchange} is there."


def bind(act: Act) -> str:
    """Binds a queue or an exchange to an exchange."""
    source, destination = act.text("source"), act.text("destination")
    act.require(("write", destination), ("read", source))
    with act.store.channel() as channel:
        change = channel.exchange_bind if act.text("kind") == "exchange" else channel.queue_bind
        change(destination, source, act.text("routing_key"), act.table("arguments"))
    return f"{source} leads to {destination}."


def unbind(act: Act) -> str:
    """Removes a binding; ``arguments_raw`` is its table as the page received it."""
    source, destination = act.text("source"), act.text("destination")
    act.require(("write", destination), ("read", source))
    try:
        arguments = decode_table(base64.b64decode(act.text("arguments_raw"), validate=True))
    except (binascii.Error, ValueError):
        raise Trouble("arguments_raw is none that the page was told.") from None
    with act.store.channel() as channel:
        change = channel.exchange_unbind if act.text("kind") == "exchange" else channel.queue_unbind
        change(destination, source, act.text("routing_key"), arguments)
    return f"{source} does not lead to {destination} any more."


def delete_queue(act: Act) -> str:
    """Deletes a queue with its messages and bindings."""
    queue = act.text("queue")
    act.require(("configure", queue))
    with act.store.channel() as channel:
        gone = channel.queue_delete(
            queue, if_unused=act.flag("if_unused"), if_empty=act.flag("if_empty")
        )
    return f"{queue} is deleted, with {gone} messages."


def delete_exchange(act: Act) -> str:
    """Deletes an exchange with its bindings."""
    exchange = act.text("exchange")
    act.require(("configure", exchange))
    with act.store.channel() as channel:
        channel.exchange_delete(exchange, if_unused=act.flag("if_unused"))
    return f"{exchange} is deleted."


def checkpoint(act: Act) -> str:
    """Makes a checkpoint, and returns afterwards."""
    act.login.require("administrator")
    act.store.checkpoint()
    return "A checkpoint is made."


ACTIONS: dict[str, Callable[[Act], str]] = {
    "publish": publish,
    "purge": purge,
    "move": move_messages,
    "requeue_dead_letters": requeue,
    "declare_queue": declare_queue,
    "declare_exchange": declare_exchange,
    "bind": bind,
    "unbind": unbind,
    "delete_queue": delete_queue,
    "delete_exchange": delete_exchange,
    "checkpoint": checkpoint,
}
"""The page's actions by name."""


def routes(asking: Asking) -> list[Route]:
    """All actions, at one address."""

    async def run(request: Request) -> Response:
        asking.check_token(request)
        action = ACTIONS.get(request.path_params["name"])
        if action is None:
            raise Trouble("There is no such action.", 404)
        try:
            given = loads(await request.body())
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            raise Trouble("An action is asked for with a JSON object.")
        vhost = given.get("vhost", "/")
        if not isinstance(vhost, str):
            raise Trouble("vhost must be text.")
        act = Act(asking.store(request, vhost), vhost, asking.login(request), given)
        return answer({"text": await to_thread.run_sync(action, act)})

    return [Route("/page/action/{name}", asking.told(run), methods=["POST"])]
