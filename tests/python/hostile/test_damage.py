"""The damage matrix finds what is planted, and nothing in a new seed.

QS_DAMAGE_SEED repeats a run, QS_DAMAGE_SECONDS changes how long it takes; longer: ``./dev soak``.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyqstore
from pyqstore.codec import crc32c

from .apart import run_apart
from .damage import Case, Subject, damages_of, examine, prepare, workplace
from .damage.kinds import PAGE, Damage, Target, manifest_tmp
from .report import seed_of
from .watched import Outcome, run_watched

SECONDS = float(os.environ.get("QS_DAMAGE_SECONDS", "30"))


@pytest.mark.slow
def test_damage_of_any_kind_to_any_file_is_told() -> None:
    run_apart("damage", seed_of("QS_DAMAGE_SEED"), SECONDS)


SOAK = Path(__file__).with_name("soak.py")


@pytest.fixture
def root() -> Iterator[Path]:
    with workplace() as root:
        yield root


@pytest.fixture
def subject(root: Path) -> Subject:
    return prepare(root, 1, ["killed"])[0]


def first_journal(subject: Subject) -> str:
    return subject.files["journal"][0]


def violations(root: Path, subject: Subject, name: str, damage: Damage) -> str:
    case = Case(subject, name, damage, "planted")
    assert examine(root, case)
    return "\n".join(case.outcome.violations)


def test_wrong_byte_with_a_right_checksum_is_caught(root: Path, subject: Subject) -> None:
    names = (name for name in subject.files["journal"])
    number = subject.built.truth.queues["a"][2]
    body = b"%08d|" % number

    def body_with_checksum(target: Target) -> bool:
        contents = bytearray(target.file.read_bytes())
        at = contents.index(body)
        block = at // PAGE * PAGE
        contents[at + 9] ^= 0x20
        size = int.from_bytes(contents[block + 36 : block + 40], "little")
        crc = crc32c(contents[block + 64 : block + 64 + size], crc32c(contents[block : block + 60]))
        contents[block + 60 : block + 64] = crc.to_bytes(4, "little")
        return target.write(bytes(contents), "a body")

    name = next(name for name in names if body in (subject.built.path / name).read_bytes())
    said = violations(root, subject, name, body_with_checksum)
    assert "strict: a: a body that nobody published" in said
    assert "salvage: a: a body that nobody published" in said


def test_message_that_is_missing_is_caught(root: Path, subject: Subject) -> None:
    truth = subject.built.truth
    truth.sizes[10**6] = 5
    truth.priorities[10**6] = 0
    truth.queues["a"].append(10**6)
    truth.published["a", 10**6] = 3
    said = violations(root, subject, "MANIFEST", manifest_tmp)
    assert "silent: 1 confirmed messages of 1 missing, 0 acknowledged ones back" in said
    assert "salvage is silent about 1 missing" in said


def test_message_that_is_back_is_caught(root: Path, subject: Subject) -> None:
    truth = subject.built.truth
    truth.settled["b", truth.queues["b"].pop(3)] = 3
    said = violations(root, subject, "MANIFEST", manifest_tmp)
    assert "silent: 0 confirmed messages of 0 missing, 1 acknowledged ones back" in said


def test_messages_in_another_order_are_caught(root: Path, subject: Subject) -> None:
    published = subject.built.truth.published
    pair = ("a", subject.built.truth.queues["a"][0])
    published[pair] = published.pop(pair)
    assert "out of order" in violations(root, subject, "MANIFEST", manifest_tmp)


def bit_in_second_block(target: Target) -> bool:
    contents = bytearray(target.file.read_bytes())
    contents[4 * PAGE + 70] ^= 1  # blocks begin at the fourth page
    return target.write(bytes(contents), "a record")


def test_verification_that_finds_nothing_is_caught(root: Path, subject: Subject) -> None:
    case = Case(subject, first_journal(subject), bit_in_second_block, "planted")
    assert examine(root, case, lambda path: 0)
    said = "\n".join(case.outcome.violations)
    assert "verify says 0, strict opening and reading: StoreCorrupt" in said
    assert violations(root, subject, first_journal(subject), bit_in_second_block) == ""


def test_verification_that_writes_is_caught(root: Path, subject: Subject) -> None:
    def verify(path: Path) -> int:
        (path / "journal" / "note").write_text("was here")
        return damages_of(path)

    case = Case(subject, "MANIFEST", manifest_tmp, "planted")
    assert examine(root, case, verify)
    assert "verify changed ['journal/note']" in "\n".join(case.outcome.violations)


def test_refusal_that_removes_a_file_is_caught(
    root: Path, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pyqstore.open

    def tidy(path: Path, **options: object) -> pyqstore.Store:
        (path / subject.files["journal"][-1]).unlink(missing_ok=True)
        return whole(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pyqstore, "open", tidy)
    said = violations(root, subject, first_journal(subject), bit_in_second_block)
    assert "an open that refused" in said
    assert f"changed ['{subject.files['journal'][-1]}']" in said


def test_crash_hang_and_leak_are_caught() -> None:
    kept = []

    def work(case: int) -> Outcome:
        if case == 3:
            os.abort()
        if case == 5:
            time.sleep(1000)
        if case > 250:
            kept.append(os.open("/dev/null", os.O_RDONLY))
        return Outcome(["done"])

    outcomes = dict(run_watched(work, 3600, most=400, silence=5.0))
    assert sorted(outcomes) == list(range(400))
    told = {case: outcome for case, outcome in outcomes.items() if outcome.violations}
    assert list(told) == [3, 5, 399]
    assert "ended with SIGABRT" in told[3].violations[0]
    assert "hung for 5 s" in told[5].violations[0]
    assert "left behind: descriptors" in told[399].violations[0]
    assert "/dev/null" in told[399].violations[0]
