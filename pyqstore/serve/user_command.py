"""The command ``pyqstore user``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..terminal import errors_told, visible, visible_json
from .passwords import Secret, hashed
from .user_file import NAME, changed_users, read_json, read_users
from .user_list import RIGHTS, Permission, User, check_name, located, merge_users

__all__ = ["user"]

_SHA = {
    "sha256": "rabbit_password_hashing_sha256",
    "sha512": "rabbit_password_hashing_sha512",
}
_PASSWORD_BYTES_MAX = 4096

_directory = click.argument("directory", type=click.Path(path_type=Path))
_name = click.argument("name")
_password = click.argument("password", required=False)
_pre_hashed = click.option(
    "--pre-hashed",
    type=click.Choice(list(_SHA)),
    help="The password is RabbitMQ's hash of it: base64 of salt and hash.",
)
_vhost = click.option("--vhost", default="/", show_default=True, help="The virtual host.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def user() -> None:
    """Say who may use a store through ``pyqstore serve``, and what for.

    They are kept in the file users.json of DIRECTORY.  A server that runs reads it again when it
    changes.  PASSWORD is asked for at a terminal, or is the first line of standard input: as an
    argument every process of the machine can see it.
    """


@user.command()
@_directory
@_name
@_password
@_pre_hashed
@click.option("--no-password", is_flag=True, help="A certificate alone lets the user in.")
@click.option("--tag", "tags", multiple=True, help="As administrator; may be repeated.")
@click.option("--no-permissions", is_flag=True, help="Until there are some: user permit.")
@_json
def add(
    directory: Path,
    name: str,
    password: str | None,
    pre_hashed: str | None,
    no_password: bool,
    tags: tuple[str, ...],
    no_permissions: bool,
    as_json: bool,
) -> None:
    """Add the user NAME, who may do everything in the virtual host "/"."""
    if no_password and (password or pre_hashed):
        raise click.UsageError("--no-password: then there is no password to hash")
    with errors_told():
        check_name(name)
        secret = None if no_password else _secret(password, pre_hashed)
        with changed_users(directory, create=True) as users:
            if name in users:
                raise ValueError(f"user {name!r} is there already: see user passwd, user permit")
            users[name] = User(secret, tags, {} if no_permissions else {"/": Permission()})
        _say(as_json, _told(name, users[name]))


@user.command()
@_directory
@_name
@_password
@_pre_hashed
@_json
def passwd(
    directory: Path, name: str, password: str | None, pre_hashed: str | None, as_json: bool
) -> None:
    """Give the user NAME another password."""
    with errors_told():
        secret = _secret(password, pre_hashed)
        with _changed(directory, name) as (users, known):
            users[name] = replace(known, secret=secret)
        _say(as_json, _told(name, users[name]))


@user.command()
@_directory
@_name
@_json
def remove(directory: Path, name: str, as_json: bool) -> None:
    """Remove the user NAME."""
    with errors_told():
        with _changed(directory, name) as (users, _):
            del users[name]
        _say(as_json, {"name": name, "removed": True})


@user.command()
@_directory
@_name
@click.argument("patterns", nargs=-1, metavar="[CONFIGURE WRITE READ]")
@_vhost
@click.option("--clear", is_flag=True, help="No access to the virtual host any more.")
@_json
def permit(
    directory: Path,
    name: str,
    patterns: tuple[str, ...],
    vhost: str,
    clear: bool,
    as_json: bool,
) -> None:
    """Say what the user NAME may do: regular expressions for the names of exchanges and queues.

    They are found anywhere in a name, as RabbitMQ has it: '^orders' are all that begin with it,
    '.*' are all, and '' is none.
    """
    if len(patterns) != (0 if clear else len(RIGHTS)):
        raise click.UsageError("give CONFIGURE, WRITE and READ, or --clear")
    with errors_told():
        with _changed(directory, name) as (users, known):
            check_name(vhost, "vhost")
            permissions = {**known.permissions}
            permissions.pop(vhost, None)
            if not clear:
                permissions[vhost] = Permission(*patterns)
            users[name] = replace(known, permissions=permissions)
        _say(as_json, _told(name, users[name]))


@user.command("import")
@_directory
@click.argument("file", type=click.Path(path_type=Path))
@_json
def import_users(directory: Path, file: Path, as_json: bool) -> None:
    """Take the users and permissions of FILE, which RabbitMQ wrote (export_definitions).

    A user that is there already gets the password and the tags of FILE.  All are taken, or none.
    """
    with errors_told():
        with located(str(file)):
            document = read_json(file)
            if not (directory / NAME).exists():
                merge_users({}, document)  # before anything is written
        with changed_users(directory, create=True) as users, located(str(file)):
            counts = merge_users(users, document)
        _say(
            as_json,
            dict(zip(("users", "permissions"), counts, strict=True)),
            "{} users, {} permissions".format(*counts),
        )


@user.command("list")
@_directory
@_json
def list_users(directory: Path, as_json: bool) -> None:
    """Print the users and what they may do."""
    with errors_told():
        users = read_users(directory / NAME)
        if as_json:
            _say(as_json, [_told(*each) for each in users.items()])
        else:
            _print(users)


def _say(as_json: bool, found: object, text: str | None = None) -> None:
    """Prints the result: as JSON, or as ``text`` for people, if there is one."""
    if as_json:
        click.echo(visible_json(json.dumps(found, indent=2)))
    elif text is not None:
        click.echo(text)


def _told(name: str, known: User) -> dict[str, Any]:
    permissions = {
        vhost: {right: getattr(permission, right) for right in RIGHTS}
        for vhost, permission in known.permissions.items()
    }
    return {
        "name": name,
        "tags": list(known.tags),
        "has_password": known.secret is not None,
        "permissions": permissions,
    }


def _print(users: dict[str, User]) -> None:
    from rich.table import Table

    from ..paper import Paper

    table = Table(box=None, pad_edge=False)
    for column in ("user", "tags", "vhost", *RIGHTS):
        table.add_column(column, overflow="fold")
    for name, known in users.items():
        first = (visible(name), visible(", ".join(known.tags)))
        if not known.permissions:
            table.add_row(*first, "no access")
        for vhost, permission in known.permissions.items():
            patterns = (repr(getattr(permission, right)) for right in RIGHTS)
            table.add_row(*first, visible(vhost), *map(visible, patterns))
            first = ("", "")
    Paper(soft_wrap=False, highlight=False, markup=False, emoji=False).print(table)


@contextmanager
def _changed(directory: Path, name: str) -> Iterator[tuple[dict[str, User], User]]:
    with changed_users(directory) as users:
        if name not in users:
            raise ValueError(f"user {name!r} is not in {directory / NAME}")
        yield users, users[name]


def _secret(password: str | None, pre_hashed: str | None) -> Secret:
    """ValueError: there is no password, or no hash."""
    if password is None:
        password = _asked("Hash" if pre_hashed else "Password")
    if not password:
        raise ValueError("the password is empty: give one")
    return Secret(_SHA[pre_hashed], password) if pre_hashed else hashed(password)


def _asked(what: str) -> str:
    """Asks at a terminal, without echo, and twice."""
    if sys.stdin.isatty():
        answer: str = click.prompt(what, hide_input=True, confirmation_prompt=True, err=True)
        return answer
    line = sys.stdin.buffer.readline(_PASSWORD_BYTES_MAX + 2)
    if len(line) > _PASSWORD_BYTES_MAX:
        raise ValueError(f"the password has more than {_PASSWORD_BYTES_MAX} bytes")
    try:
        return line.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise ValueError("the password on standard input is no UTF-8") from None
