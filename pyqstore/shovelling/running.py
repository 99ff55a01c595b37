"""A shovel of two places, in a process that has the stores open."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ..salvaging.manifest import Manifest
from ..store import Store
from ..stream import Start
from .addresses import AmqpPlace, GrpcPlace, KafkaPlace, Place, StorePlace
from .amqp_source import AmqpSource
from .amqp_target import AmqpTarget
from .ends import Source, Target
from .kafka_source import KafkaSource
from .kafka_stream_target import KafkaStreamTarget
from .kafka_target import KafkaTarget
from .known import known_to
from .loop import AHEAD, Choices, Loop
from .report import Shovelled
from .store_source import StoreSource, stream_of
from .store_target import StoreTarget

__all__ = ["Job", "run"]

_READABLE_MAX = 60  # characters of a name that people read


@dataclass(frozen=True)
class Job:
    """What a shovel is to do."""

    source: Place
    target: Place
    name: str | None
    """Under which the target store, or a stream that is the source, remembers it; None: one that
    follows from the two places."""
    start: Start
    choices: Choices

    @property
    def called(self) -> str:
        """Its name."""
        if self.name is not None:
            return self.name
        parts = [_identity(self.source), _identity(self.target)]
        if isinstance(self.source, StorePlace) and isinstance(self.target, GrpcPlace | KafkaPlace):
            # The target may know one of another machine, at the same path.
            parts.append(Manifest.read(Path(self.source.directory)).uuid.hex())
        both = "\n".join(parts).encode("utf-8", "replace")
        digest = blake2b(both, digest_size=6).hexdigest()
        return f"{_readable(self.source)[:_READABLE_MAX]}-{digest}"


def _identity(place: Place) -> str:
    if isinstance(place, StorePlace):
        return f"{os.path.realpath(place.directory)}#{place.name}"
    return place.shown


def _readable(place: Place) -> str:
    if isinstance(place, KafkaPlace):
        return place.topic
    return (place.queue if isinstance(place, AmqpPlace) else place.name) or ""


def run(job: Job, stores: Mapping[str, Store], look: Callable[[Shovelled], bool]) -> Shovelled:
    """``stores`` by directory; one place at least is of a store.  Return what was done when
    ``look``, which is given reports, says so, or as the choices have it.  ShovelError, NotFound,
    and what the stores raise."""
    if isinstance(job.source, StorePlace):  # before the target's store makes notes of it
        stores[job.source.directory].queue_status(job.source.name)
    target = _target(job, stores)
    source = _source(job, stores, target)
    dead = job.choices.dead
    place = job.target if target.buries else job.source
    if dead is not None and isinstance(place, StorePlace):  # a server declares its own
        stores[place.directory].queue(dead)
    with known_to(stores.values(), job.called) as note:

        def noted(report: Shovelled) -> bool:
            note(report)
            return look(report)

        return Loop(source, target, job.choices, noted).run()


def _source(job: Job, stores: Mapping[str, Store], target: Target) -> Source:
    place = job.source
    if isinstance(place, AmqpPlace):
        return AmqpSource(place, AHEAD)
    if isinstance(place, GrpcPlace):
        from .grpc_ends import GrpcSource  # Arrow is of no use to others

        return GrpcSource(
            place,
            shovel=job.called,
            start=job.start,
            dead=None if target.buries else job.choices.dead,
            ahead=AHEAD,
            notes_position=not target.keeps_position,
        )
    if isinstance(place, KafkaPlace):
        return KafkaSource(place, shovel=job.called, start=job.start)
    return StoreSource(
        stores[place.directory],
        place.name,
        shovel=job.called,
        start=job.start,
        dead=job.choices.dead,
        shown=place.shown,
        ahead=AHEAD,
        notes_position=not target.keeps_position or target.may_forget,
        target_notes=target.keeps_position,
    )


def _target(job: Job, stores: Mapping[str, Store]) -> Target:
    place = job.target
    if isinstance(place, AmqpPlace):
        return AmqpTarget(place)
    if isinstance(place, GrpcPlace):
        from .grpc_ends import GrpcTarget

        return GrpcTarget(place, shovel=job.called, dead=job.choices.dead)
    if isinstance(place, KafkaPlace):
        source = job.source
        if (
            isinstance(source, StorePlace)
            and stores[source.directory].queue_status(source.name).stream
        ):
            called = stream_of(stores[source.directory], source.name)
            return KafkaStreamTarget(place, shovel=job.called, source=called)
        return KafkaTarget(place)
    return StoreTarget(
        stores[place.directory],
        place.name,
        shovel=job.called,
        dead=job.choices.dead,
        shown=place.shown,
    )
