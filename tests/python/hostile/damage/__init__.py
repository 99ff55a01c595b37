"""The damage matrix: every kind of damage to every kind of file, against the truth and `verify`.

A case takes a copy of a small store, damages one file of it, verifies it, opens it strictly and
reads all, then the same with salvage.  stores.py makes the stores, kinds.py the damage, judge.py
says what must hold.  Case n of seed s is the same each time.
"""

import os
import random
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pyqstore

from ..report import Report
from ..watched import Outcome, run_watched
from . import judge
from .judge import Reading
from .kinds import CLASSES, DAMAGES, PAGE, Damage, Target, class_of
from .stores import KINDS, Built, build, warm_up

# What stands in place of a file was put there by somebody; salvage may refuse it.
_STRANGE = {"fifo", "symlink", "hard_link", "directory", "no_permission", "delete_folder"}
# What takes away all blocks from some place on to the end of a file: what was confirmed in the last
# moments before the crash, in more than one commit.
_MARKS_END = 3 * PAGE
"""Where the blocks of a journal file begin: its header and its marks lie before."""
_SUFFIX = {"zero_tail", "older_copy"}
# The files without which nobody knows what the others are.
_ROOTS = {"MANIFEST", "checkpoint"}
_ONE_PAGE = {"flip_bit", "zero_page", "garbage_page", "lost_page", "foreign_page"}


@dataclass
class Subject:
    """A store to damage, with another one of its kind, and what each of its files holds."""

    built: Built
    donor: Path
    files: dict[str, list[str]]
    """By class."""
    units: dict[frozenset[str], set[tuple[str, int]] | None] = field(default_factory=dict)
    """The messages that salvage has not got without some files; None: it cannot be opened.  Found
    out when somebody asks."""


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder in memory, where there is one: a damaged store needs no durable copy."""
    memory = Path("/dev/shm")
    folder = memory if memory.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="qs-damage-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def prepare(root: Path, seed: int, kinds: Iterable[str] = tuple(KINDS)) -> list[Subject]:
    """Make the stores, and see that each is whole before anything is damaged."""
    subjects = []
    warm_up()
    for kind in kinds:
        made = [build(root / f"{kind} {turn}", kind, 10 * seed + turn) for turn in range(2)]
        for built, donor in (made, reversed(made)):
            subject = Subject(built, donor.path, _files(built.path))
            _check_whole(root, subject)
            subjects.append(subject)
    return subjects


def _files(path: Path) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            name = str(file.relative_to(path))
            files.setdefault(class_of(name), []).append(name)
    return files


@contextmanager
def _copy(root: Path, built: Built) -> Iterator[Path]:
    """A copy in a folder of its own."""
    home = Path(tempfile.mkdtemp(dir=root))
    try:
        shutil.copytree(built.path, home / "store")
        yield home / "store"
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _check_whole(root: Path, subject: Subject) -> None:
    built = subject.built
    with _copy(root, built) as path:
        found = pyqstore.verify(path)
        reading = judge.read(path, built, "strict")
    wrong = judge.check_contents(reading, built, forgiving=False)
    wrong += [f"missing: {judge.missing(reading, built)}"] * bool(judge.missing(reading, built))
    wrong += [f"back: {judge.back(reading, built)}"] * bool(judge.back(reading, built))
    if wrong or reading.told or found.damages or reading.known != set(built.truth.keys):
        raise AssertionError(f"{built.kind}: not whole before any damage: {wrong} {reading}")


def _unit(root: Path, subject: Subject, names: frozenset[str]) -> set[tuple[str, int]] | None:
    """Take files away and see what salvage has not got then."""
    if names not in subject.units:
        gone: set[tuple[str, int]] | None = set()
        there = [name for name in names if (subject.built.path / name).is_file()]
        if there:
            with _copy(root, subject.built) as path:
                for name in there:
                    (path / name).unlink()
                reading = judge.read(path, subject.built, "salvage")
                gone = _pairs(judge.missing(reading, subject.built))
                if reading.refused:
                    gone = None
        subject.units[names] = gone
    return subject.units[names]


def _pairs(found: dict[str, list[int]]) -> set[tuple[str, int]]:
    return {(queue, number) for queue, numbers in found.items() for number in numbers}


@dataclass
class Case:
    """One damage to one file of a store, and what came of it."""

    subject: Subject
    name: str
    damage: Damage
    seed: str
    told: str = ""
    at: int = 0
    touched: set[str] = field(default_factory=set)
    outcome: Outcome = field(default_factory=Outcome)

    def do(self, path: Path) -> bool:
        """Damage a copy; the same each time.  False: this damage cannot be done to this file."""
        chance = random.Random(self.seed)
        older = list(self.subject.built.older.values())
        target = Target(path, self.name, older, self.subject.donor, chance)
        done = self.damage(target)
        self.told = ", ".join(target.told)
        self.at = target.at
        self.touched = target.touched
        return done

    def wrong(self, text: str) -> None:
        self.outcome.violations.append(text)

    def describe(self) -> str:
        return f"{self.subject.built.kind}: {self.damage.__name__} of {self.name} ({self.told})"


Verify = Callable[[Path], int]


def damages_of(path: Path) -> int:
    """How many damaged places verify tells; a refusal to look at all is one."""
    try:
        return pyqstore.verify(path).damages
    except (pyqstore.StoreCorrupt, pyqstore.StoreFailed, pyqstore.StoreNotFound):
        return 1


def run_case(root: Path, subjects: list[Subject], seed: int, number: int) -> Outcome:
    """Case ``number`` of ``seed``."""
    for attempt in count():
        chance = random.Random(f"{seed} {number} {attempt}")
        subject = chance.choice(subjects)
        kind = chance.choice([kind for kind in CLASSES if kind in subject.files])
        name = chance.choice(subject.files[kind])
        case = Case(subject, name, chance.choice(DAMAGES), f"{seed} {number} {attempt} damage")
        if examine(root, case):
            break
    return case.outcome


def examine(root: Path, case: Case, verify: Verify = damages_of) -> bool:
    """Damage, verify, open and salvage.  False: this damage cannot be done to this file."""
    warnings.simplefilter("ignore")
    with _copy(root, case.subject.built) as path:
        if not case.do(path):
            return False
        try:
            _strict(case, path, verify)
        except Exception as error:
            case.wrong(f"strict: {type(error).__name__}: {error}")
    with _copy(root, case.subject.built) as path:
        case.do(path)
        try:
            _salvage(case, path, root)
        except Exception as error:
            case.wrong(f"salvage: {type(error).__name__}: {error}")
    case.outcome.violations = [f"{case.describe()}: {text}" for text in case.outcome.violations]
    return True


def _strict(case: Case, path: Path, verify: Verify) -> None:
    built = case.subject.built
    before = judge.picture(path)
    damages = verify(path)
    if changed := judge.changes(before, judge.picture(path)):
        case.wrong(f"verify changed {changed}")
        before = judge.picture(path)
    reading = judge.read(path, built, "strict")
    for text in judge.check_contents(reading, built, forgiving=False):
        case.wrong(f"strict: {text}")
    case.outcome.counts.append(f"damage: {class_of(case.name)}")
    if reading.refused:
        case.outcome.counts.append("strict: refused")
        _check_refusal(case, path, before, reading)
    else:
        _check_silence(case, reading)
    if (damages > 0) != reading.told:
        said = reading.refused or f"errors {reading.errors}, report {reading.report}"
        case.wrong(f"verify says {damages}, strict opening and reading: {said}")
    case.outcome.counts.append("verify: damaged" if damages else "verify: whole")
    if not reading.told and zlib.crc32(case.seed.encode()) % 4 == 0:
        _check_again(case, path, reading)


def _check_refusal(case: Case, path: Path, before: judge.Picture, reading: Reading) -> None:
    """Nothing is changed, but for what the replay paged before it met the damage: slots and bodies
    that no checkpoint counts.  So with the damaged files put back everything is there."""
    after = judge.picture(path)
    changed = judge.changes(before, after)
    if reading.recovery == "salvage":  # it makes folders that are missing
        changed = [name for name in changed if name in before or not judge.is_folder(after[name])]
    if not changed:
        return
    case.outcome.counts.append("refused: paged before")
    if any(class_of(name) != "index" or name not in before for name in changed):
        case.wrong(f"an open that refused ({reading.refused}) changed {changed}")
        return
    built = case.subject.built
    for name in case.touched:
        if os.path.lexists(path / name):
            _remove(path / name)
        if (built.path / name).exists():
            (path / name).parent.mkdir(exist_ok=True)
            shutil.copy2(built.path / name, path / name)
    again = judge.read(path, built, "strict")
    wrong = judge.check_contents(again, built, forgiving=False)
    if again.told or wrong or judge.missing(again, built) or judge.back(again, built):
        case.wrong(f"an open that refused changed {changed}: {again.refused} {wrong}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _check_silence(case: Case, reading: Reading) -> None:
    """What a strict open did not refuse: whatever is missing must have been told."""
    built = case.subject.built
    truth = built.truth
    gone, back = judge.missing(reading, built), judge.back(reading, built)
    silent = {(queue, n) for queue, n in _pairs(gone) if not reading.errors.get(queue)}
    keys = set(truth.keys) - reading.known
    returned = set() if reading.told else _pairs(back)
    groups = (
        {truth.published[pair] for pair in silent}
        | {truth.settled[pair] for pair in returned}
        | {truth.keys[key] for key in keys}
    )
    excuse = _excuse(case, groups)
    if not groups:
        case.outcome.counts.append("strict: told by message" if gone else "strict: all there")
    elif excuse is not None:
        case.outcome.counts.append(f"strict: unseen, {excuse}")
        if not reading.report["torn_bytes"]:
            case.outcome.counts.append("strict: unseen, nothing torn")
    else:
        case.wrong(
            f"silent: {len(silent)} confirmed messages of {_number(gone)} missing, {len(returned)}"
            f" acknowledged ones back, {len(keys)} keys forgotten; groups {sorted(groups)} of"
            f" {truth.group}, report {reading.report}"
        )


def _excuse(case: Case, groups: set[int]) -> str | None:
    """Why nobody could see that these commits are gone, if docs/DURABILITY.md gives a reason."""
    truth = case.subject.built.truth
    if not truth.crashed or not groups:
        return None
    classes = [class_of(name) for name in case.touched]
    if not {"journal", "messages"}.intersection(classes):
        return None
    if len(case.touched) > 1:
        return "several files at once"
    if case.damage.__name__ == "swap_pages":
        return "several pages at once"
    is_suffix = case.damage.__name__ in _SUFFIX and groups == set(range(min(groups), truth.group))
    if is_suffix and case.damage.__name__ == "zero_tail" and case.at < _MARKS_END:
        return "last file but its header"
    if truth.quiet:
        return None
    if groups == {truth.group - 1}:
        return "last commit"
    return "last moments" if is_suffix else None


def _number(found: dict[str, list[int]]) -> int:
    return sum(map(len, found.values()))


def _check_again(case: Case, path: Path, first: Reading) -> None:
    """What was opened without a word is whole from then on, and stays the same."""
    if (damages := damages_of(path)) > 0:
        case.wrong(f"after a strict open and close verify says {damages}")
    again = judge.read(path, case.subject.built, "strict")
    if again.told or _taken(again) != _taken(first):
        case.wrong(f"opened once more it is not the same: {again.refused} {again.errors}")
    case.outcome.counts.append("opened once more")


def _taken(reading: Reading) -> dict[str, list[int]]:
    return {queue: [number for number, _ in taken] for queue, taken in reading.messages.items()}


def _salvage(case: Case, path: Path, root: Path) -> None:
    built = case.subject.built
    before = judge.picture(path)
    reading = judge.read(path, built, "salvage")
    if reading.refused:
        case.outcome.counts.append("salvage: refused")
        _check_refusal(case, path, before, reading)
        roots = {class_of(name) for name in case.touched} & _ROOTS
        if not roots and case.damage.__name__ not in _STRANGE:
            case.wrong(f"salvage refused: {reading.refused}")
        return
    for text in judge.check_contents(reading, built, forgiving=True):
        case.wrong(f"salvage: {text}")
    gone = _pairs(judge.missing(reading, built))
    back = _pairs(judge.back(reading, built))
    came = {number for messages in reading.messages.values() for number, _ in messages}
    # A dead-lettered message whose move is lost is back in the queue that it came from.
    _check_bound(case, root, reading, {pair for pair in gone if pair[1] not in came})
    truth = built.truth
    groups = {truth.published[pair] for pair in gone} | {truth.settled[pair] for pair in back}
    if groups and not reading.told and _excuse(case, groups) is None:
        case.wrong(f"salvage is silent about {len(gone)} missing, {len(back)} back")
    case.outcome.counts.append("salvage: some lost" if gone else "salvage: all there")


def _check_bound(case: Case, root: Path, reading: Reading, gone: set[tuple[str, int]]) -> None:
    """Only what lies in the damaged file may be missing, of a journal only what is in the page."""
    if not gone:
        return
    allowed: set[tuple[str, int]] = set()
    together = frozenset(case.touched)  # what one journal file lacks another may name again
    for names in {together, *(frozenset([name]) for name in together)}:
        unit = _unit(root, case.subject, names)
        if unit is None:
            return
        allowed |= unit
    if more := gone - allowed:
        case.wrong(f"salvage: {len(more)} messages missing that no damaged file holds: {more}")
    in_one_page = case.damage.__name__ in _ONE_PAGE and case.at >= PAGE
    if class_of(case.name) == "journal" and in_one_page:
        groups = {case.subject.built.truth.published[pair] for pair in gone}
        if len(groups) > 1:
            case.wrong(f"salvage: a damaged page of the journal lost the groups {sorted(groups)}")


def run(seed: int, seconds: float, case: int | None = None) -> Report:
    """Cases of ``seed`` for so many seconds, or one of them."""
    report = Report()
    with workplace() as root:
        subjects = prepare(root, seed)
        most = None if case is None else 1
        work = partial(run_case, root, subjects, seed)
        for number, outcome in run_watched(work, seconds, first=case or 0, most=most):
            report.add("cases")
            for name in outcome.counts:
                report.add(name)
            report.violations += [f"--case {number}: {text}" for text in outcome.violations]
    return report
