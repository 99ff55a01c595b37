"""Groups of consumers: who reads which stream."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Group", "Groups", "Member"]


class Member:
    """A consumer in its group."""

    __slots__ = ("_told", "instance", "is_gone", "streams")

    def __init__(self, instance: str, streams: Sequence[str]) -> None:
        # Set by the consumer's finalizer, which may run inside any call, also one that has the
        # group's lock: it must not take that.
        self.is_gone: bool = False
        self.instance: str = instance
        self.streams: list[str] = list(streams)
        self._told: set[str] = set()  # streams that it knows are its own


class Group:
    """The consumers of a group in this process, and the streams each of them has.

    A stream moves in two steps: its consumer gives it up in its next ``poll``, and then another one
    has it.  What can stay where it is stays.

    A signal handler may raise anywhere in here.  What was begun then is finished by the next call
    that asks for news: what is no member has nothing, and streams are divided again.
    """

    def __init__(self, name: str) -> None:
        self.name: str = name
        self._mutex = threading.Lock()
        self._members: list[Member] = []
        self._owners: dict[str, Member] = {}
        self._terms: dict[str, int] = {}  # how often each stream was given to somebody
        self._heirs: dict[str, Member] = {}  # who has what its owner is to give up
        self._numbers = itertools.count(1)
        self._is_divided = True  # False while that is under way, or was interrupted

    def join(self, streams: Sequence[str], instance: str | None) -> Member:
        """A new member.  ValueError: its instance is in the group already."""
        member = None
        try:
            with self._mutex:
                self._drop_gone()
                names = {member.instance for member in self._members}
                if instance is None:
                    numbered = (f"{self.name}-{number}" for number in self._numbers)
                    instance = next(name for name in numbered if name not in names)
                elif instance in names:
                    raise ValueError(f"instance {instance!r} is in group {self.name!r} already")
                member = Member(instance, streams)
                self._members.append(member)
                self._divide()
            return member
        except BaseException:
            if member is not None:  # nobody has it
                member.is_gone = True
            raise

    def add(self, member: Member, streams: Iterable[str]) -> None:
        """The member wants these, too."""
        with self._mutex:
            new = [name for name in streams if name not in member.streams]
            if new and member in self._members:
                member.streams = [*member.streams, *new]
                self._divide()

    def leave(self, member: Member) -> None:
        """Its streams are free."""
        with self._mutex:
            self._drop_gone()
            if member in self._members:
                self._remove(member)

    def leave_out(self, member: Member, stream: str) -> None:
        """The member wants a stream no more, which is deleted: others are to see for themselves."""
        with self._mutex:
            if stream in member.streams:
                member.streams.remove(stream)
            if self._heirs.get(stream) is member:
                del self._heirs[stream]
            self._release(member, [stream])
            self._divide()

    def has_news(self, member: Member) -> bool:
        """Whether something was given to it, or is to be given up."""
        with self._mutex:
            self._drop_gone()
            if not self._is_divided:
                self._divide()
            return self._news(member)

    def revoked_of(self, member: Member) -> list[str]:
        """What it is to give up, sorted."""
        with self._mutex:
            return sorted(n for n in self._heirs if self._owners.get(n) is member)

    def released(self, member: Member, streams: Iterable[str]) -> None:
        """It has given them up."""
        with self._mutex:
            self._release(member, streams)
            self._divide()

    def assigned_to(self, member: Member) -> list[str]:
        """What is its own and it has not taken, sorted."""
        with self._mutex:
            return sorted(self._own(member) - member._told)

    def taken(self, member: Member, streams: Iterable[str]) -> None:
        """It reads them from now on."""
        with self._mutex:
            member._told |= self._own(member).intersection(streams)

    def terms_of(self, streams: Iterable[str]) -> dict[str, int]:
        """How often each of them was given to somebody: a consumer that had one then, and finds
        another number later, has lost it meanwhile."""
        with self._mutex:
            return {name: self._terms.get(name, 0) for name in streams}

    def _give(self, name: str, member: Member) -> None:
        self._terms[name] = self._terms.get(name, 0) + 1
        self._owners[name] = member

    def _drop_gone(self) -> None:
        for member in [m for m in self._members if m.is_gone]:
            self._remove(member)

    def _remove(self, member: Member) -> None:
        self._is_divided = False
        self._members.remove(member)
        self._divide()

    def _own(self, member: Member) -> set[str]:
        """What it has and keeps."""
        return {n for n, o in self._owners.items() if o is member and n not in self._heirs}

    def _news(self, member: Member) -> bool:
        return any(self._owners.get(n) is member for n in self._heirs) or bool(
            self._own(member) - member._told
        )

    def _release(self, member: Member, streams: Iterable[str]) -> None:
        self._is_divided = False
        for name in streams:
            member._told.discard(name)
            if self._owners.get(name) is member:
                heir = self._heirs.get(name)
                if heir is None:
                    del self._owners[name]
                else:
                    self._give(name, heir)
                    del self._heirs[name]

    def _divide(self) -> None:
        """Each stream to somebody who wants it, as evenly as that goes, moving as few as that
        takes."""
        self._is_divided = False
        self._take_from_others()
        wanted = sorted({name for member in self._members for name in member.streams})
        shares = dict.fromkeys(self._members, 0)
        for name, owner in self._owners.items():
            shares[self._heirs.get(name, owner)] += 1
        for name in wanted:
            if name not in self._owners:
                taker = self._least(name, shares)
                self._give(name, taker)
                shares[taker] += 1
        for name in reversed(wanted):
            owner, taker = self._owners[name], self._least(name, shares)
            if name in self._heirs or shares[owner] <= shares[taker] + 1:
                continue
            shares[owner] -= 1
            shares[taker] += 1
            if name in owner._told:
                self._heirs[name] = taker
            else:  # it has not begun
                self._give(name, taker)
        self._is_divided = True

    def _take_from_others(self) -> None:
        """Members alone have streams, and nobody is to have one from itself."""
        for name, heir in list(self._heirs.items()):
            if heir not in self._members or self._owners.get(name) is heir:
                del self._heirs[name]  # its owner keeps it, unless somebody else is to have it
        for name, owner in list(self._owners.items()):
            if owner not in self._members:
                self._release(owner, [name])
        for member in self._members:
            for name in list(member._told):
                if self._owners.get(name) is not member:
                    member._told.discard(name)

    def _least(self, name: str, shares: Mapping[Member, int]) -> Member:
        """Of those who want a stream, the one with the fewest."""
        return min((m for m in self._members if name in m.streams), key=lambda m: shares[m])


class Groups:
    """The groups of a store."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._groups: dict[str, Group] = {}

    def of(self, name: str) -> Group:
        """The group with that name, made if it is new."""
        if not name:
            raise ValueError("a group needs a name")
        with self._mutex:
            return self._groups.setdefault(name, Group(name))
