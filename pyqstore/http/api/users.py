"""/api/users, /api/permissions: users and permissions in the file of the store's users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute

from ...serve.passwords import Secret, hashed
from ...serve.stored_users import StoredUsers
from ...serve.user_file import changed_users
from ...serve.user_list import RIGHTS, Permission, User, check_name, users_as_json
from ...serve.users import GUEST
from ..context import Context
from ..errors import BadRequest, Missing
from .calls import Call, created, done, resource
from .lists import listed

__all__ = ["changing_users", "has_stored_users", "known_users", "routes"]

_SHA256 = "rabbit_password_hashing_sha256"


def routes(context: Context) -> Sequence[BaseRoute]:
    """The routes of this module."""
    return [
        resource("users", context, GET=_list),
        resource("users/without-permissions", context, GET=_without),
        resource("users/bulk-delete", context, POST=_delete_several),
        resource("users/{user}", context, GET=_show, PUT=_put, DELETE=_delete),
        resource("users/{user}/permissions", context, GET=_of_user),
        resource("permissions", context, GET=_permissions),
        resource(
            "permissions/{vhost}/{user}", context, GET=_permission, PUT=_permit, DELETE=_forbid
        ),
        resource("vhosts/{vhost}/permissions", context, GET=_of_vhost),
        resource("topic-permissions", context, GET=_none),
        resource("user-limits", context, GET=_none),
    ]


def known_users(context: Context) -> dict[str, User]:
    """All users.  For users whose passwords the server was given in the clear, and for guest, only
    names are known: they may do everything."""
    users = context.users
    if isinstance(users, StoredUsers):
        stored = users.listed()
        if stored is not None:
            return stored
    names = users.names() if not isinstance(users, StoredUsers) else (GUEST,)
    everywhere = {vhost: Permission() for vhost in context.stores()}
    return {name: User(None, ("administrator",), everywhere) for name in names}


def has_stored_users(call: Call) -> bool:
    """Whether users and permissions are in a file."""
    users = call.context.users
    return isinstance(users, StoredUsers) and call.login.users is not None and not users.is_empty


@contextmanager
def changing_users(call: Call) -> Iterator[dict[str, User]]:
    """The users, to be changed; they are written to the file at the end.  BadRequest: they are not
    in a file, or the change is impossible."""
    call.login.require("administrator")
    users, directory = call.context.users, call.context.store.directory
    if not isinstance(users, StoredUsers) or call.login.users is None:
        raise BadRequest("the server was given its users when it was started: change them there")
    if users.is_empty:
        raise BadRequest(
            "the store has no users but guest, who would go with the first: add that one with"
            f" 'pyqstore user add {directory} NAME --tag administrator'"
        )
    try:
        with changed_users(Path(directory)) as changed:
            yield changed
    except ValueError as error:
        raise BadRequest(str(error)) from None


def _user_items(context: Context) -> list[dict[str, Any]]:
    users = users_as_json(known_users(context))["users"]
    return [user | {"limits": {}} for user in users]


def _permission_items(context: Context) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = users_as_json(known_users(context))["permissions"]
    return found


def _list(call: Call) -> Any:
    call.login.require("administrator")
    return listed(call, _user_items(call.context))


def _without(call: Call) -> Any:
    call.login.require("administrator")
    permitted = {each["user"] for each in _permission_items(call.context)}
    return [each for each in _user_items(call.context) if each["name"] not in permitted]


def _show(call: Call) -> Any:
    call.login.require("administrator")
    for user in _user_items(call.context):
        if user["name"] == call.name("user"):
            return user
    raise Missing


def _put(call: Call) -> Any:
    call.login.require("administrator")
    body, name = call.body(), call.name("user")
    if "tags" not in body:
        raise BadRequest("tags_not_present")
    given = body["tags"]
    tags = given.split(",") if isinstance(given, str) else given
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise BadRequest("tags must be text, or a list of text")
    secret = _secret(body)
    with changing_users(call) as users:
        check_name(name)
        was_there = name in users
        kept = users.get(name, User())
        words = tuple(tag.strip() for tag in tags if tag.strip())
        users[name] = replace(kept, secret=secret, tags=words)
    return done() if was_there else created()


def _secret(body: dict[str, Any]) -> Secret | None:
    """None: no password is accepted."""
    password, known = body.get("password"), body.get("password_hash")
    if password is not None:
        if not isinstance(password, str) or not password:
            raise BadRequest("password must be text, and not empty")
        return hashed(password)
    if not known:
        return None
    try:
        return Secret(body.get("hashing_algorithm", _SHA256), known)
    except (TypeError, ValueError) as error:
        raise BadRequest(str(error)) from None


def _delete(call: Call) -> Any:
    with changing_users(call) as users:
        if call.name("user") not in users:
            raise Missing
        _drop(users, {call.name("user")})
    return done()


def _delete_several(call: Call) -> Any:
    """Deletes all of them, or none."""
    call.login.require("administrator")
    names = call.body("users")["users"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest("users must be a list of names")
    with changing_users(call) as users:
        for name in names:
            if name not in users:
                raise BadRequest(f"there is no user {name!r}: nothing is deleted")
        _drop(users, set(names))
    return done()


def _drop(users: dict[str, User], names: set[str]) -> None:
    if names >= users.keys():
        raise BadRequest("no user would be left: nobody could come in")
    for name in names:
        del users[name]


# ---- permissions ----


def _permissions(call: Call) -> Any:
    call.login.require("administrator")
    return listed(call, _permission_items(call.context))


def _of_user(call: Call) -> Any:
    call.login.require("administrator")
    name = call.name("user")
    if name not in known_users(call.context):
        raise Missing
    return [each for each in _permission_items(call.context) if each["user"] == name]


def _of_vhost(call: Call) -> Any:
    call.login.require("administrator")
    return [each for each in _permission_items(call.context) if each["vhost"] == call.vhost]


def _permission(call: Call) -> Any:
    call.login.require("administrator")
    for each in _permission_items(call.context):
        if (each["vhost"], each["user"]) == (call.vhost, call.name("user")):
            return each
    raise Missing


def _permit(call: Call) -> Any:
    call.login.require("administrator")
    body, vhost, name = call.body(*RIGHTS), call.vhost, call.name("user")
    with changing_users(call) as users:
        if name not in users:
            raise BadRequest("vhost_or_user_not_found")
        permissions = users[name].permissions
        was_there = vhost in permissions
        given = Permission(*(body[right] for right in RIGHTS))
        users[name] = replace(users[name], permissions={**permissions, vhost: given})
    return done() if was_there else created()


def _forbid(call: Call) -> Any:
    vhost, name = call.vhost, call.name("user")
    with changing_users(call) as users:
        if name not in users or vhost not in users[name].permissions:
            raise Missing
        left = {key: each for key, each in users[name].permissions.items() if key != vhost}
        users[name] = replace(users[name], permissions=left)
    return done()


def _none(_call: Call) -> Any:
    return []
