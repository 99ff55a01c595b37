"""``pyqstore user``: the users of a store, in a file that is changed in one step."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import pyqstore
from pyqstore.serve import stored_users, user_file
from pyqstore.serve.passwords import Secret, hashed
from pyqstore.serve.stored_users import StoredUsers
from pyqstore.serve.user_file import changed_users, read_users
from pyqstore.serve.user_list import Permission, User

from ..support import run_command, wait_until

SHA256 = "rabbit_password_hashing_sha256"
SHA512 = "rabbit_password_hashing_sha512"
NONE = Permission("", "", "")


def run(*arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return run_command("user", *arguments, input=given)


def done(*arguments: str | Path, given: str = "") -> str:
    ended = run(*arguments, given=given)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def of_rabbitmq(password: str, algorithm: str = SHA256) -> Secret:
    digest = {SHA256: hashlib.sha256, SHA512: hashlib.sha512}[algorithm]
    salt = os.urandom(4)
    return Secret(
        algorithm, base64.b64encode(salt + digest(salt + password.encode()).digest()).decode()
    )


def put(directory: Path, **users: User) -> None:
    with changed_users(directory, create=True) as known:
        known.update(users)


# ---- the command ----


def test_users_are_added_changed_listed_and_removed(tmp_path: Path) -> None:
    home = tmp_path / "jobs.qs"
    done("add", home, "ann", "--tag", "administrator", given="secret\n")
    done("add", home, "bob", "--no-permissions", given="pass word\r\nmore\n")
    users = StoredUsers(home)
    assert users.check("ann", "secret")
    assert users.check("bob", "pass word")
    assert not users.check("bob", "secret")
    done("passwd", home, "ann", given="other\n")
    assert users.check("ann", "other")
    assert not users.check("ann", "secret")
    done("permit", home, "bob", "^a", "", ".*")
    done("permit", home, "ann", "--clear")
    listed = json.loads(done("list", home, "--json"))
    assert listed == [
        {"name": "ann", "tags": ["administrator"], "has_password": True, "permissions": {}},
        {
            "name": "bob",
            "tags": [],
            "has_password": True,
            "permissions": {"/": {"configure": "^a", "write": "", "read": ".*"}},
        },
    ]
    assert re.search(r"^bob +/ +'\^a' +'' +'\.\*'", done("list", home), re.M)
    done("remove", home, "ann")
    assert list(read_users(home / "users.json")) == ["bob"]


def test_commands_of_users_print_json_where_it_is_asked_for(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ann = json.loads(done("add", store, "ann", "--json", given="secret\n"))
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert ann == {
        "name": "ann",
        "tags": [],
        "has_password": True,
        "permissions": {"/": everything},
    }
    assert json.loads(done("passwd", store, "ann", "--json", given="other\n")) == ann
    permitted = json.loads(done("permit", store, "ann", "--json", "--clear"))
    assert permitted == {**ann, "permissions": {}}
    taken = json.loads(done("import", store, store / "users.json", "--json"))
    assert taken == {"users": 1, "permissions": 0}
    assert json.loads(done("list", store, "--json")) == [permitted]
    assert json.loads(done("remove", store, "ann", "--json")) == {"name": "ann", "removed": True}


def test_a_password_is_in_no_file(tmp_path: Path) -> None:
    done("add", tmp_path, "ann", given="swordfish\n")
    done("add", tmp_path, "bob", "swordfish")
    for path in tmp_path.iterdir():
        assert "swordfish" not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, second = (user.secret for user in read_users(tmp_path / "users.json").values())
    assert first is not None
    assert second is not None
    assert first.text != second.text


@pytest.mark.parametrize("name", ["sha256", "sha512"])
def test_a_hash_of_rabbitmq_is_taken(tmp_path: Path, name: str) -> None:
    secret = of_rabbitmq("ünder", f"rabbit_password_hashing_{name}")
    done("add", tmp_path, "ann", "--pre-hashed", name, given=secret.text + "\n")
    assert StoredUsers(tmp_path).check("ann", "ünder")
    assert not StoredUsers(tmp_path).check("ann", "under")


def definitions(folder: Path, **document: Any) -> Path:
    file = folder / "definitions.json"
    file.write_text(json.dumps(document))
    return file


def entry(name: str, password: str = "secret", **more: Any) -> dict[str, Any]:
    secret = of_rabbitmq(password)
    known = {"name": name, "password_hash": secret.text, "hashing_algorithm": secret.algorithm}
    return {**known, "tags": [], "limits": {}, **more}


def permission(name: str, vhost: str, pattern: str) -> dict[str, str]:
    return {"user": name, "vhost": vhost, **dict.fromkeys(("configure", "write", "read"), pattern)}


def test_users_of_definitions_come_to_those_that_are_there(tmp_path: Path) -> None:
    home = tmp_path / "jobs.qs"
    done("add", home, "ann", "--tag", "old", given="old")
    done("add", home, "kept", given="kept")
    file = definitions(
        tmp_path,
        users=[entry("ann", tags=["administrator"]), entry("bob", tags="a,b", password="other")],
        permissions=[
            permission("bob", "/", "^b"),
            permission("ann", "v", ""),
            permission("kept", "/", "k"),
        ],
        queues=[{"name": "q"}],
        topic_permissions=[],
    )
    for _ in range(2):
        assert done("import", home, file) == "2 users, 3 permissions\n"
    users = read_users(home / "users.json")
    assert list(users) == ["ann", "kept", "bob"]
    assert [each.tags for each in users.values()] == [("administrator",), (), ("a", "b")]
    assert users["ann"].permissions == {"/": Permission(), "v": NONE}
    assert users["bob"].permissions == {"/": Permission("^b", "^b", "^b")}
    assert users["kept"].permissions == {"/": Permission("k", "k", "k")}
    known = StoredUsers(home)
    for name, password in {"ann": "secret", "bob": "other", "kept": "kept"}.items():
        assert known.check(name, password)


@pytest.mark.slow
def test_definitions_with_a_fault_change_no_user(tmp_path: Path) -> None:
    home = tmp_path / "jobs.qs"
    none = tmp_path / "none.qs"
    done("add", home, "ann", given="secret")
    before = (home / "users.json").read_bytes()
    good = entry("bob")
    for said, document in {
        "it has no users, and no permissions": {"queues": []},
        "users: expected a list": {"users": {}},
        "users[1]: user 'bob' is there twice": {"users": [good, good]},
        "users[1]: a password hash": {"users": [good, entry("cid", password_hash="?")]},
        "users[1]: it has a password as it is": {"users": [good, {"name": "c", "password": "x"}]},
        "users[1]: the hashing algorithm 'rot13' is not known": {
            "users": [good, entry("cid", hashing_algorithm="rot13")]
        },
        "permissions[0]: user 'cid' is not among": {
            "users": [good],
            "permissions": [permission("cid", "/", "")],
        },
        "permissions[0]: configure '(' is no regular": {
            "users": [good],
            "permissions": [permission("bob", "/", "(")],
        },
        "permissions[1]: user 'bob' has permissions in vhost '/' twice": {
            "users": [good],
            "permissions": [permission("bob", "/", "")] * 2,
        },
        "topic_permissions: there are none here": {
            "users": [good],
            "topic_permissions": [permission("bob", "/", "")],
        },
    }.items():
        file = definitions(tmp_path, **document)
        for store in (home, none):
            ended = run("import", store, file)
            assert ended.returncode == 3
            assert len(ended.stderr.splitlines()) == 1
            assert ended.stderr.startswith(f"pyqstore: {file}: ")
            assert said in ended.stderr
    assert (home / "users.json").read_bytes() == before
    assert not none.exists()


def test_what_the_command_refuses_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "jobs.qs"
    assert "no users in" in run("passwd", home, "ann", given="x").stderr
    assert not home.exists()
    done("add", home, "ann", given="secret")
    before = (home / "users.json").read_bytes()
    for said, arguments in {
        "is there already": ["add", home, "ann"],
        "the password is empty": ["passwd", home, "ann", ""],
        "no password hash": ["passwd", home, "ann", "c2FsdA==", "--pre-hashed", "sha256"],
        "'bob' is not in": ["remove", home, "bob"],
        "read '(' is no regular": ["permit", home, "ann", "", "", "("],
        "a name is text": ["add", home, ""],
        "no vhost": ["permit", home, "ann", "", "", "", "--vhost", ""],
    }.items():
        ended = run(*arguments, given="x\n")
        assert ended.returncode == 3
        assert len(ended.stderr.splitlines()) == 1
        assert said in ended.stderr.replace("vhost '': a name", "no vhost"), arguments
    assert run("permit", home, "ann", ".*").returncode == 2
    assert (home / "users.json").read_bytes() == before


def test_users_do_not_move_into_the_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    ended = run("add", tmp_path, "ann", given="x")
    assert "it has other things in it, such as 'notes.txt'" in ended.stderr
    assert os.listdir(tmp_path) == ["notes.txt"]


# ---- the file beside a store ----


def test_a_store_begins_where_users_are_and_leaves_them_alone(tmp_path: Path) -> None:
    put(tmp_path, ann=User())
    (tmp_path / "users.json.tmp").write_text("half")  # of a change that was cut off
    before = (tmp_path / "users.json").read_bytes()
    for _ in range(2):
        with pyqstore.open(tmp_path) as store:
            store.queue("q").put(b"x")
            store.checkpoint()
    for command in ("verify", "inspect"):
        subprocess.run([sys.executable, "-m", "pyqstore", command, str(tmp_path)], check=True)
    assert (tmp_path / "users.json").read_bytes() == before
    put(tmp_path, bob=User())
    assert set(read_users(tmp_path / "users.json")) == {"ann", "bob"}


# ---- changes ----


def test_what_else_a_file_of_users_has_stays_when_they_change(tmp_path: Path) -> None:
    others = {"rabbit_version": "3.10.8", "exchanges": [{"name": "x", "vhost": "/"}]}
    (tmp_path / "users.json").write_text(json.dumps({**others, "users": [], "permissions": []}))
    with changed_users(tmp_path) as users:
        users["ann"] = User()
    document = json.loads((tmp_path / "users.json").read_text())
    assert [each["name"] for each in document.pop("users")] == ["ann"]
    assert document == {**others, "permissions": []}


def test_changes_at_once_lose_nothing(tmp_path: Path) -> None:
    names = [f"user{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(put, tmp_path, **{name: User()}) for name in names]:
            future.result()
    assert set(read_users(tmp_path / "users.json")) == set(names)


def test_a_lock_file_that_is_there_is_given_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a second name of a file of root's, in a directory whose owner put it there."""
    given: list[str] = []
    monkeypatch.setattr(
        user_file, "_give", lambda fd, directory: given.append(os.readlink(f"/proc/self/fd/{fd}"))
    )
    for _ in range(2):
        with user_file._lock(tmp_path):
            pass
    assert given == [str(tmp_path / "users.json.lock")]


def test_two_commands_at_once_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyqstore", "user", "add", str(tmp_path)]
    running = [subprocess.Popen([*command, name, "secret"]) for name in ("ann", "bob", "cid")]
    assert [each.wait(120) for each in running] == [0, 0, 0]
    assert set(read_users(tmp_path / "users.json")) == {"ann", "bob", "cid"}


def test_a_change_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, ann=User())
    order: list[str] = []
    real: dict[str, Callable[..., Any]] = {"fsync": os.fsync, "replace": os.replace}

    def fsync(fd: int) -> None:
        order.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path)))
        real["fsync"](fd)

    def replace(source: Path, target: Path) -> None:
        order.append(f"{source.name} is {target.name}")
        real["replace"](source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    put(tmp_path, bob=User())
    assert order == ["/users.json.tmp", "users.json.tmp is users.json", ""]


@pytest.mark.parametrize("step", range(4))
def test_a_change_that_fails_at_any_step_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    put(tmp_path, ann=User())
    calls = 0

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step + 1:
                raise OSError(errno.EIO, "planted")
            return real(*arguments, **more)

        return call

    with monkeypatch.context() as patched:
        for name in ("fsync", "replace"):
            patched.setattr(os, name, failing(getattr(os, name)))
        with pytest.raises(OSError, match="planted") if step < 3 else nullcontext():
            put(tmp_path, bob=User())
    assert set(read_users(tmp_path / "users.json")) in ({"ann"}, {"ann", "bob"})
    put(tmp_path, cid=User())
    assert {"ann", "cid"} <= set(read_users(tmp_path / "users.json"))


# ---- files that others wrote ----

BROKEN = {
    "": "Expecting value",
    "{": "Expecting property name",
    "[]": "expected a JSON object, not a list",
    '{"users": {}}': "users: expected a list, not an object",
    '{"users": [1]}': r"users\[0\]: expected an object, not a number",
    '{"users": [{}]}': r"users\[0\]: user None: a name is text",
    '{"users": [{"name": "a\\u0000"}]}': r"users\[0\]: user 'a\\x00': a name is text",
    '{"users": [{"name": "a\\ud800"}]}': r"users\[0\]: .*no UTF-8",
    '{"users": [{"name": "a"}, {"name": "a"}]}': r"users\[1\]: user 'a' is there twice",
    '{"users": [{"name": "a", "name": "b"}]}': "the key 'name' is there twice",
    '{"users": [{"name": "a", "tags": 7}]}': r"users\[0\]: tags must be a list",
    '{"users": [{"name": "a", "password_hash": "%%"}]}': r"users\[0\]: .* no base64",
    '{"users": [{"name": "a", "password_hash": "x", "hashing_algorithm": "md5"}]}': "'md5' is not",
    '{"users": [{"name": "a", "hashing_algorithm": "scrypt", "password_hash":'
    ' "$scrypt$ln=30,r=8,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA"}]}': "256 MiB at most",
    '{"permissions": [{"user": "a", "vhost": "/"}]}': r"permissions\[0\]: user 'a' is not among",
    '{"users": [{"name": "a"}], "permissions": [{"user": "a", "vhost": "/", "configure": "(",'
    ' "write": "", "read": ""}]}': r"permissions\[0\]: configure '\(' is no regular expression",
    '{"users": [{"name": "a"}], "permissions": [{"user": "a", "vhost": "/", "configure": "",'
    ' "write": ""}]}': r"permissions\[0\]: read must be a regular expression, not None",
    "[" * 100_000: "nested too deeply",
    "\xff": "utf-8",
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:60])
def test_a_broken_file_is_refused_with_what_and_where(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=BROKEN[text]) as refused:
        StoredUsers(tmp_path)
    assert str(path) in str(refused.value)
    with pytest.raises(ValueError, match=BROKEN[text]):
        put(tmp_path, ann=User())
    assert path.read_bytes() == text.encode("latin-1")


def test_users_of_no_regular_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "users.json").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="no regular file"):
        StoredUsers(tmp_path)


# ---- while a server looks at them ----


def test_a_file_that_breaks_leaves_the_last_good_one_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, ann=User(of_rabbitmq("secret")))
    users = StoredUsers(tmp_path)
    path = tmp_path / "users.json"
    path.write_text("{")
    for _ in range(3):
        assert users.check("ann", "secret")
    assert caplog.text.count("what was read before stays in force") == 1
    path.unlink()
    assert users.check("ann", "secret")
    assert not users.is_empty, "guest would come in"
    put(tmp_path, bob=User(of_rabbitmq("other")))
    assert users.check("bob", "other")
    assert "ann" not in users


def test_a_file_that_comes_while_guest_is_served_ends_that(tmp_path: Path) -> None:
    users = StoredUsers(tmp_path)
    assert users.is_empty
    assert users.check("guest", "guest")
    put(tmp_path, ann=User(of_rabbitmq("secret")))
    assert not users.is_empty
    assert not users.check("guest", "guest")
    assert users.check("ann", "secret")


def test_a_file_without_users_is_refused(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text("{}")
    with pytest.raises(ValueError, match="has no users"):
        StoredUsers(tmp_path)


def test_a_password_that_was_right_is_known_soon_and_a_wrong_one_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, ann=User(hashed("secret")), bob=User())
    users = StoredUsers(tmp_path)
    looked = 0
    real = hashlib.scrypt

    def scrypt(*arguments: Any, **more: Any) -> bytes:
        nonlocal looked
        looked += 1
        return real(*arguments, **more)

    monkeypatch.setattr(hashlib, "scrypt", scrypt)
    assert [users.check("ann", "secret") for _ in range(3)] == [True] * 3
    assert looked == 1
    # As long for a wrong password, for a user without one, and for a name that there is not.
    for number, name in enumerate(("ann", "bob", "cid"), 2):
        assert not users.check(name, "wrong")
        assert looked == number


def test_users_that_could_not_be_read_for_a_moment_are_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, ann=User())
    users = StoredUsers(tmp_path)

    def fail(_path: Path) -> dict[str, User]:
        raise OSError(errno.EMFILE, "Too many open files")

    with changed_users(tmp_path) as changed:
        del changed["ann"]
    with monkeypatch.context() as patched:
        patched.setattr(stored_users, "read_users", fail)
        assert "ann" in users
    wait_until(lambda: "ann" not in users)


def test_who_may_do_everything_is_told_from_who_may_not(tmp_path: Path) -> None:
    put(tmp_path, ann=User(of_rabbitmq("a"), permissions={"/": Permission()}))
    put(tmp_path, bob=User(of_rabbitmq("b"), permissions={"/": NONE}))
    users = StoredUsers(tmp_path)
    assert users.may_do_all("ann")
    assert not users.may_do_all("bob")
    assert not users.may_do_all("cid")
