"""What the founding documents say, measured: every claim at a tiny size, with RabbitMQ where it is,
and what is told of it.

That cases run, find what they count and are told of is tested, not how fast anything is.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.laboratory.seeds import work
from benchmarks.laboratory.seeds.broker import Broker
from benchmarks.laboratory.seeds.claims import NOT_MEASURED, RABBIT, Claim, Found, Group, times
from pyqstore.bench import drawing
from pyqstore.bench.report import Report
from pyqstore.bench.runs import Case, Options, Result, Sample, results_of, run_once

TINY = Options(quick=True, scale=0.01)
NAMES = [claim.name for claim in work.CLAIMS]


def claimed(name: str) -> Claim:
    return next(claim for claim in work.CLAIMS if claim.name == name)


def measured(cases: Sequence[Case], directory: Path) -> list[Result]:
    return results_of([{n: run_once(case, directory) for n, case in enumerate(cases)}], cases)


def check(claim: Claim, results: Sequence[Result], has_broker: bool, directory: Path) -> None:
    for result in results:
        assert result.case.group == claim.title
        assert result.metrics["seconds"].median > 0
    told = claim.told(results, has_broker)
    here, beside = told.split(" RabbitMQ: ", 1)
    assert NOT_MEASURED not in here
    if not isinstance(claim.beside, str):
        assert (NOT_MEASURED in beside) != has_broker
    report = Report("seeds", work.TITLE, {}, "", {}, results, [claim.plot], [told])
    assert drawing.chosen(claim.plot, report)
    report.png(directory / "report.png")
    report.html(directory / "report.html")


@pytest.mark.parametrize("options", [Options(), TINY], ids=["full", "tiny"])
@pytest.mark.parametrize("name", NAMES)
def test_the_cases_of_a_claim_are_told_apart(name: str, options: Options) -> None:
    claim = claimed(name)
    alone = claim.cases(options, Group(claim.title, None))
    beside = claim.cases(options, Group(claim.title, Broker()))
    assert len({case.title for case in beside}) == len(beside)
    assert [each for each in beside if not each.name.startswith(RABBIT)] != []
    assert len(alone) == sum(not case.name.startswith(RABBIT) for case in beside)
    assert (len(alone) == len(beside)) == isinstance(claim.beside, str)


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_is_measured_alone(name: str, tmp_path: Path) -> None:
    claim = claimed(name)
    results = measured(claim.cases(TINY, Group(claim.title, None)), tmp_path)
    check(claim, results, False, tmp_path)


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node that all of the tests ask."""
    found = Broker()
    if (why := found.missing()) is not None:
        (pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip)(why)
    try:
        found.start(tmp_path_factory.mktemp("rabbitmq"))
        yield found
    finally:
        found.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [claim.name for claim in work.CLAIMS if not isinstance(claim.beside, str)]
)
def test_a_claim_is_measured_with_rabbitmq_beside(
    name: str, rabbitmq: Broker, tmp_path: Path
) -> None:
    claim = claimed(name)
    results = measured(claim.cases(TINY, Group(claim.title, rabbitmq)), tmp_path)
    check(claim, results, True, tmp_path)


def test_a_claim_that_was_asked_for_is_measured_alone_without_a_server(tmp_path: Path) -> None:
    options = Options(quick=True, scale=0.01, chosen={"only": ("fanout",), "alone": True})
    with work.begun(options, tmp_path, lambda *_: None) as running:
        assert [claim.name for claim in running.claims] == ["fanout"]
        notes = running.notes(measured(running.cases(options), tmp_path))
    assert notes[0] == "Beside: nothing, for RabbitMQ was not asked for."
    assert notes[-1].startswith("Fan-out to several queues. The document says: 003: ")


def test_factors_are_taken_round_by_round() -> None:
    def result(*seconds: float) -> Result:
        case = Case("case", lambda _: Sample(1), {"queues": len(seconds)}, group="claim")
        return Result(case, [Sample(each, 1) for each in seconds])

    found = Found([result(1, 2), result(1, 2, 4)])
    one, other = found.of("case", queues=3), result(2, 2, 2)
    assert found.ratio("seconds", one, other) == "1 times (0.5 to 2)"
    assert found.ratio("seconds", one, found.of("nothing")) == NOT_MEASURED
    assert found.values("case", "queues") == [2, 3]
    assert (found.number("case", "seconds", queues=3), times(1234)) == (2, "1,234 times")
